use innkeeper_claude::wire::decode;
use serde_json::{Value, json};

use super::*;

fn message(value: Value) -> Message {
    decode(value.to_string().as_bytes()).unwrap()
}

fn init() -> Message {
    message(json!({"type": "system", "subtype": "init"}))
}

fn result(uuids: Value) -> Message {
    message(json!({"type": "result", "subtype": "success", "user_message_uuids": uuids}))
}

fn idle() -> Message {
    message(json!({"type": "system", "subtype": "session_state_changed", "state": "idle"}))
}

fn lifecycle(uuid: &str, state: &str) -> Message {
    message(json!({"type": "command_lifecycle", "command_uuid": uuid, "state": state}))
}

fn echo(uuid: &str) -> Message {
    message(
        json!({"type": "user", "uuid": uuid, "isReplay": true, "message": {"role": "user", "content": "x"}}),
    )
}

fn words(uuids: Value) -> Message {
    let delta =
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x"}});
    message(json!({"type": "stream_event", "event": delta, "user_message_uuids": uuids}))
}

fn turn() -> TurnId {
    TurnId::new("t1")
}

fn running() -> TurnMachine {
    let mut turns = TurnMachine::default();
    turns.wrote(turn(), "u1".to_owned());
    turns
}

#[test]
fn a_runtime_that_names_messages_is_taken_at_its_word() {
    let mut turns = running();
    turns.judge(&lifecycle("u1", "queued"));
    assert_eq!(turns.judge(&init()), Verdict::Unowned, "the beginning of work that nobody asked for");
    assert_eq!(turns.judge(&words(Value::Null)), Verdict::Unowned, "its words");
    assert_eq!(turns.judge(&result(Value::Null)), Verdict::Unowned, "and its end");
    assert_eq!(turns.judge(&lifecycle("u1", "started")), Verdict::Belongs(turn()));
    assert_eq!(turns.judge(&words(json!(["u1"]))), Verdict::Belongs(turn()));
    assert_eq!(turns.judge(&words(json!(["u9"]))), Verdict::Unowned);
    assert_eq!(turns.judge(&result(json!(["u9"]))), Verdict::Unowned);
    let unasked = json!({"type": "result", "subtype": "success", "origin": {"kind": "task-notification"}});
    assert_eq!(turns.judge(&message(unasked)), Verdict::Unowned);
    assert_eq!(turns.judge(&result(json!(["u0", "u1"]))), Verdict::Ends(turn()));
    assert!(turns.is_idle());
}

#[test]
fn of_older_runtimes_the_beginning_of_a_turn_is_taken_for_ours() {
    for sign in [init(), echo("u1")] {
        let mut turns = running();
        assert_eq!(turns.judge(&words(Value::Null)), Verdict::Unowned);
        assert_eq!(turns.judge(&result(Value::Null)), Verdict::Unowned, "it was not taken up yet");
        assert_eq!(turns.judge(&sign), Verdict::Belongs(turn()));
        assert_eq!(turns.judge(&words(Value::Null)), Verdict::Belongs(turn()));
        assert_eq!(turns.judge(&result(Value::Null)), Verdict::Ends(turn()));
    }
    let mut turns = running();
    turns.judge(&echo("u9"));
    assert_eq!(turns.judge(&result(Value::Null)), Verdict::Unowned);
}

#[test]
fn an_idle_runtime_ends_a_turn_that_it_took_up() {
    let mut turns = running();
    assert_eq!(turns.judge(&idle()), Verdict::Unowned, "it was idle before it read the message");
    turns.judge(&init());
    assert_eq!(turns.judge(&idle()), Verdict::Ends(turn()));
}

#[test]
fn a_cancelled_turn_is_over_when_it_has_stopped_and_the_interrupt_is_answered() {
    for answered_first in [true, false] {
        let mut turns = running();
        assert!(!turns.cancel(&TurnId::new("another")));
        assert!(turns.cancel(&turn()));
        assert!(!turns.cancel(&turn()), "once is enough");
        assert_eq!(turns.judge(&init()), Verdict::Unowned);
        if answered_first {
            assert_eq!(turns.interrupt_answered(), Verdict::Unowned);
            assert!(!turns.is_idle());
            assert_eq!(turns.judge(&result(json!(["u1"]))), Verdict::Drained);
        } else {
            assert_eq!(turns.judge(&result(json!(["u1"]))), Verdict::Unowned);
            assert!(!turns.is_idle(), "the interrupt would hit the next message");
            assert_eq!(turns.interrupt_answered(), Verdict::Drained);
        }
        assert!(turns.is_idle());
        assert_eq!(turns.judge(&result(Value::Null)), Verdict::Unowned, "unasked work is of no turn");
    }
}

#[test]
fn an_exit_fails_the_running_turn_only() {
    assert_eq!(running().exited(), Some(turn()));
    assert_eq!(TurnMachine::default().exited(), None);
    let mut cancelled = running();
    cancelled.cancel(&turn());
    assert_eq!(cancelled.exited(), None);
}
