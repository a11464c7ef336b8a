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

fn turn() -> TurnId {
    TurnId::new("t1")
}

fn running() -> TurnMachine {
    let mut turns = TurnMachine::default();
    turns.wrote(turn(), "u1".to_owned());
    turns
}

#[test]
fn a_result_of_another_turn_does_not_end_this_one() {
    let mut turns = running();
    assert_eq!(turns.judge(&result(json!(["someone-else"]))), Verdict::Belongs(turn()));
    assert_eq!(
        turns.judge(&result(Value::Null)),
        Verdict::Belongs(turn()),
        "the message was not taken up yet"
    );
    assert_eq!(turns.judge(&result(json!(["u0", "u1"]))), Verdict::Ends(turn()));
    assert!(turns.is_idle());
}

#[test]
fn older_runtimes_name_no_uuids_so_the_message_must_have_been_taken_up() {
    let echo = message(
        json!({"type": "user", "uuid": "u1", "isReplay": true, "message": {"role": "user", "content": "x"}}),
    );
    for sign in [init(), echo] {
        let mut turns = running();
        assert_eq!(turns.judge(&sign), Verdict::Belongs(turn()));
        assert_eq!(turns.judge(&result(Value::Null)), Verdict::Ends(turn()));
    }
    let other = message(
        json!({"type": "user", "uuid": "u9", "isReplay": true, "message": {"role": "user", "content": "x"}}),
    );
    let mut turns = running();
    turns.judge(&other);
    assert_eq!(turns.judge(&result(Value::Null)), Verdict::Belongs(turn()));
}

#[test]
fn an_idle_runtime_ends_a_turn_that_it_took_up() {
    let mut turns = running();
    assert_eq!(turns.judge(&idle()), Verdict::Belongs(turn()), "it was idle before it read the message");
    turns.judge(&init());
    assert_eq!(turns.judge(&idle()), Verdict::Ends(turn()));
}

#[test]
fn what_a_cancelled_turn_still_says_belongs_to_nobody_until_it_is_over() {
    let mut turns = running();
    assert!(!turns.cancel(&TurnId::new("another")));
    assert!(turns.cancel(&turn()));
    assert!(!turns.cancel(&turn()), "once is enough");
    assert_eq!(turns.judge(&init()), Verdict::Unowned);
    assert!(!turns.is_idle());
    assert_eq!(turns.judge(&result(json!(["u1"]))), Verdict::Drained);
    assert!(turns.is_idle());
    assert_eq!(turns.judge(&result(Value::Null)), Verdict::Unowned, "unasked work is of no turn");
}

#[test]
fn an_exit_fails_the_running_turn_only() {
    assert_eq!(running().exited(), Some(turn()));
    assert_eq!(TurnMachine::default().exited(), None);
    let mut cancelled = running();
    cancelled.cancel(&turn());
    assert_eq!(cancelled.exited(), None);
}
