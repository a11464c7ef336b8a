use serde_json::{Value, json};

use super::*;
use crate::wire::decode;

const OPENING: Uuid = Uuid::from_u128(1);
const STEERING: Uuid = Uuid::from_u128(2);
const OTHER: Uuid = Uuid::from_u128(9);

fn message(frame: &Value) -> Message {
    decode(frame.to_string().as_bytes()).unwrap()
}

fn state(state: &str) -> Message {
    message(&json!({ "type": "system", "subtype": "session_state_changed", "state": state }))
}

fn init() -> Message {
    message(&json!({ "type": "system", "subtype": "init" }))
}

fn task_ended(output_file: &str) -> Message {
    message(&json!({ "type": "system", "subtype": "task_notification", "output_file": output_file }))
}

fn echo(uuid: Uuid) -> Message {
    message(&json!({ "type": "user", "isReplay": true, "uuid": uuid, "message": {} }))
}

fn lifecycle(uuid: Uuid, state: &str) -> Message {
    message(&json!({ "type": "command_lifecycle", "command_uuid": uuid, "state": state }))
}

fn assistant() -> Message {
    message(&json!({ "type": "assistant", "message": { "content": [] } }))
}

fn stream_event(fields: Value) -> Message {
    let mut frame = json!({ "type": "stream_event", "event": { "type": "message_stop" } });
    frame.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    message(&frame)
}

fn result(fields: Value) -> Message {
    let mut frame = json!({ "type": "result", "subtype": "success" });
    frame.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    message(&frame)
}

fn completed() -> Message {
    result(json!({ "terminal_reason": "completed" }))
}

fn naming(uuids: &[Uuid]) -> Message {
    result(json!({ "user_message_uuids": uuids, "terminal_reason": "completed" }))
}

/// A machine and the turn of its opening message.
struct Fixture {
    machine: TurnMachine,
    turn: TurnKey,
}

impl Fixture {
    fn new(kind: PromptKind) -> Self {
        let mut machine = TurnMachine::default();
        machine.started();
        let turn = machine.open(OPENING, kind);
        Self { machine, turn }
    }

    fn text() -> Self {
        Self::new(PromptKind::Text)
    }

    fn judge(&mut self, message: &Message) -> Vec<String> {
        let verdicts = self.machine.judge(self.machine.generation(), message);
        self.shown(verdicts)
    }

    fn steer(&mut self, message: Uuid) -> Result<(), NotRunning> {
        self.machine.steer(self.turn, message, PromptKind::Text)
    }

    fn quiet(&mut self) -> Vec<String> {
        let verdicts = self.machine.quiet();
        self.shown(verdicts)
    }

    fn interrupt_answered(&mut self) -> Vec<String> {
        let verdicts = self.machine.interrupt_answered(self.machine.generation());
        self.shown(verdicts)
    }

    fn shown(&self, verdicts: Vec<Verdict>) -> Vec<String> {
        verdicts.into_iter().map(|verdict| self.show(&verdict)).collect()
    }

    /// Formats a verdict; the opened turn is `requested` and any other `background`.
    fn show(&self, verdict: &Verdict) -> String {
        let name = |turn: &TurnKey| if *turn == self.turn { "requested" } else { "background" };
        match verdict {
            Verdict::Begins { turn, origin } => format!("{} begins: {origin:?}", name(turn)),
            Verdict::TakenUp { message, .. } => format!("taken up: {}", message.as_u128()),
            Verdict::Belongs(turn) => name(turn).to_owned(),
            Verdict::Drained(turn) => format!("{} drained", name(turn)),
            Verdict::Ends(end) => {
                let ending = match &end.reason {
                    EndReason::Result(_) => "result".to_owned(),
                    other @ (EndReason::Dropped
                    | EndReason::NoResult
                    | EndReason::Merged
                    | EndReason::Exited) => format!("{other:?}").to_lowercase(),
                };
                let untaken: String =
                    end.untaken.iter().map(|uuid| format!(", untaken {}", uuid.as_u128())).collect();
                format!("{} ends: {ending}{untaken}", name(&end.turn))
            }
        }
    }
}

#[test]
fn result_of_older_runtime_answers_echoed_message() {
    let mut it = Fixture::text();
    assert_eq!(it.judge(&echo(OPENING)), ["taken up: 1", "requested"]);
    assert_eq!(it.judge(&completed()), ["requested", "requested ends: result"]);
    assert!(it.machine.is_free());
    assert_eq!(it.judge(&completed()), [""; 0]);
}

#[test]
fn output_of_older_runtime_before_echo_belongs_to_waiting_message() {
    let mut it = Fixture::text();
    assert_eq!(it.judge(&init()), ["requested"]);
    assert_eq!(it.judge(&stream_event(json!({}))), ["requested"]);
    assert_eq!(it.judge(&echo(OPENING)), ["taken up: 1", "requested"]);
    assert_eq!(it.judge(&completed()), ["requested", "requested ends: result"]);
}

#[test]
fn result_of_newer_runtime_answers_only_messages_that_it_names() {
    for field in ["user_message_uuid", "user_message_uuids"] {
        let uuids = |uuid: Uuid| if field.ends_with('s') { json!([uuid]) } else { json!(uuid) };
        let mut it = Fixture::text();
        assert_eq!(it.judge(&result(json!({ field: uuids(OTHER) }))), [""; 0]);
        let ends = it.judge(&result(json!({ field: uuids(OPENING) })));
        assert_eq!(ends, ["taken up: 1", "requested", "requested ends: result"]);
    }
}

#[test]
fn stream_event_takes_up_a_message_by_either_field() {
    for fields in [json!({ "user_message_uuid": OPENING }), json!({ "user_message_uuids": [OPENING] })] {
        let mut it = Fixture::text();
        assert_eq!(it.judge(&stream_event(fields)), ["taken up: 1", "requested"]);
    }
}

#[test]
fn init_of_newer_runtime_without_names_begins_a_background_turn() {
    let mut it = Fixture::text();
    it.judge(&lifecycle(OPENING, "queued"));
    assert_eq!(it.judge(&init()), ["background begins: Background", "background"]);
    assert_eq!(it.judge(&assistant()), ["background"]);
    let background = result(json!({ "origin": { "kind": "task-notification" } }));
    assert_eq!(it.judge(&background), ["background", "background ends: result"]);
    assert_eq!(it.judge(&lifecycle(OPENING, "started")), ["taken up: 1", "requested"]);
    assert_eq!(it.judge(&naming(&[OTHER])), [""; 0]);
    assert_eq!(it.judge(&naming(&[OPENING])), ["requested", "requested ends: result"]);
}

#[test]
fn notified_init_of_older_runtime_begins_a_background_turn() {
    let mut it = Fixture::text();
    it.judge(&task_ended("task.output"));
    assert_eq!(it.judge(&init()), ["background begins: Background", "background"]);
    assert_eq!(it.judge(&completed()), ["background", "background ends: result"]);
    it.judge(&task_ended(""));
    assert_eq!(it.judge(&init()), ["requested"], "the task runs in the foreground");
}

#[test]
fn activity_while_idle_is_a_background_turn() {
    let mut it = Fixture::text();
    it.judge(&naming(&[OPENING]));
    assert_eq!(it.judge(&init()), ["background begins: Background", "background"]);
    assert!(it.machine.is_free(), "a background turn blocks the next message");
    assert_eq!(it.judge(&stream_event(json!({}))), ["background"]);
    assert_eq!(it.judge(&state("idle")), ["background", "background ends: noresult"]);
    let subagent = json!({ "type": "assistant", "parent_tool_use_id": "t", "message": { "content": [] } });
    assert_eq!(it.judge(&message(&subagent)), [""; 0], "subagent output started a turn");
}

#[test]
fn origin_of_a_result_is_its_kind() {
    let mut it = Fixture::text();
    let origin = |kind: &str| result(json!({ "origin": { "kind": kind, "text": "task-notification" } }));
    let seen = it.judge(&origin("auto-continuation"));
    assert_eq!(seen, ["background begins: Hook", "background", "background ends: result"]);
    it.judge(&echo(OPENING));
    assert_eq!(it.judge(&origin("human")), ["requested", "requested ends: result"]);
}

#[test]
fn message_taken_up_in_a_background_turn_gets_the_rest_of_its_output() {
    let mut it = Fixture::text();
    it.judge(&assistant());
    assert_eq!(it.judge(&echo(OPENING)), ["background ends: merged", "taken up: 1", "requested"]);
    assert_eq!(it.judge(&assistant()), ["requested"]);
    assert_eq!(it.judge(&completed()), ["requested", "requested ends: result"]);
}

#[test]
fn late_idle_state_of_the_previous_turn_ends_nothing() {
    let mut it = Fixture::text();
    assert_eq!(it.judge(&state("idle")), [""; 0]);
    assert!(!it.machine.awaits_quiet());
}

#[test]
fn idle_runtime_ends_a_turn_that_it_took_up() {
    let mut it = Fixture::text();
    it.judge(&echo(OPENING));
    assert_eq!(it.judge(&state("idle")), ["requested", "requested ends: noresult"]);
}

#[test]
fn cancelled_message_ends_its_turn() {
    let mut it = Fixture::text();
    assert_eq!(it.judge(&lifecycle(OPENING, "cancelled")), ["requested ends: dropped"]);
}

#[test]
fn older_runtime_answers_local_commands_without_an_echo() {
    let mut it = Fixture::new(PromptKind::Command);
    assert_eq!(it.judge(&completed()), [""; 0], "the result has a model response");
    assert_eq!(it.judge(&init()), ["requested"]);
    assert_eq!(it.judge(&result(json!({ "result": "Total cost" }))), ["requested", "requested ends: result"]);
}

#[test]
fn unnamed_result_without_echo_counts_only_after_silence() {
    let mut it = Fixture::text();
    it.judge(&completed());
    assert!(!it.machine.awaits_quiet());
    it.judge(&state("idle"));
    assert!(it.machine.awaits_quiet());
    assert_eq!(it.quiet(), ["requested ends: result"]);
}

#[test]
fn unnamed_result_before_echo_belongs_to_another_turn() {
    let mut it = Fixture::text();
    it.judge(&completed());
    it.judge(&state("idle"));
    it.judge(&echo(OPENING));
    assert!(!it.machine.awaits_quiet());
    assert_eq!(it.quiet(), [""; 0]);
    assert_eq!(it.judge(&completed()), ["requested", "requested ends: result"]);
}

#[test]
fn folded_steering_message_is_answered_by_the_result_of_its_turn() {
    let mut it = Fixture::text();
    it.judge(&lifecycle(OPENING, "started"));
    it.steer(STEERING).unwrap();
    assert_eq!(it.judge(&lifecycle(STEERING, "started")), ["taken up: 2", "requested"]);
    it.judge(&lifecycle(STEERING, "completed"));
    assert_eq!(it.judge(&naming(&[OPENING, STEERING])), ["requested", "requested ends: result"]);
}

#[test]
fn completed_steering_message_needs_no_separate_result() {
    let mut it = Fixture::text();
    it.judge(&lifecycle(OPENING, "started"));
    it.steer(STEERING).unwrap();
    it.judge(&lifecycle(STEERING, "completed"));
    assert_eq!(it.judge(&naming(&[OPENING])), ["requested", "requested ends: result"]);
}

#[test]
fn steering_message_with_separate_result_keeps_turn_open() {
    let aborted = json!({ "terminal_reason": "aborted_streaming", "user_message_uuids": [OPENING] });
    let newer = [result(aborted), lifecycle(OPENING, "cancelled"), lifecycle(STEERING, "started")];
    let older = [result(json!({ "terminal_reason": "aborted_streaming" })), init(), echo(STEERING)];
    for (frames, last) in [(newer, naming(&[STEERING])), (older, completed())] {
        let mut it = Fixture::text();
        it.judge(&echo(OPENING));
        it.steer(STEERING).unwrap();
        for frame in &frames {
            let verdicts = it.judge(frame);
            assert!(!verdicts.iter().any(|verdict| verdict.contains("ends")), "{verdicts:?}");
        }
        assert_eq!(it.judge(&last), ["requested", "requested ends: result"]);
    }
}

#[test]
fn steering_message_that_is_never_taken_up_is_returned_after_silence() {
    let mut it = Fixture::text();
    it.judge(&echo(OPENING));
    it.steer(STEERING).unwrap();
    assert_eq!(it.judge(&completed()), ["requested"]);
    assert!(!it.machine.awaits_quiet(), "the runtime may still be busy");
    it.judge(&state("idle"));
    assert!(it.machine.awaits_quiet());
    assert_eq!(it.quiet(), ["requested ends: result, untaken 2"]);
}

#[test]
fn dropped_steering_message_is_returned_and_a_withdrawn_one_is_not() {
    let mut it = Fixture::text();
    it.judge(&echo(OPENING));
    it.steer(STEERING).unwrap();
    it.steer(OTHER).unwrap();
    it.judge(&completed());
    it.judge(&lifecycle(STEERING, "cancelled"));
    let verdicts = it.machine.withdraw(OTHER);
    assert_eq!(it.shown(verdicts), ["requested ends: result, untaken 2"]);
    assert_eq!(it.steer(STEERING), Err(NotRunning(it.turn)));
}

#[test]
fn abandoned_turn_is_drained_after_it_stops_and_interrupts_are_acknowledged() {
    for answered_first in [true, false] {
        let mut it = Fixture::text();
        it.judge(&echo(OPENING));
        it.steer(STEERING).unwrap();
        assert_eq!(it.machine.abandon(it.turn), Some(vec![STEERING]));
        assert_eq!(it.machine.abandon(it.turn), None);
        it.machine.interrupt_sent();
        it.machine.interrupt_sent();
        assert_eq!(it.interrupt_answered(), [""; 0]);
        let frames = [assistant(), completed(), echo(STEERING), completed()];
        if answered_first {
            assert_eq!(it.interrupt_answered(), [""; 0]);
            for frame in &frames[..3] {
                assert_eq!(it.judge(frame), [""; 0]);
            }
            assert_eq!(it.judge(&frames[3]), ["requested drained"]);
        } else {
            for frame in &frames {
                assert_eq!(it.judge(frame), [""; 0]);
            }
            assert!(it.machine.is_draining() && !it.machine.is_free() && !it.machine.needs_interrupt());
            assert_eq!(it.interrupt_answered(), ["requested drained"]);
        }
        assert!(it.machine.is_free());
    }
}

#[test]
fn pending_interrupt_blocks_next_message() {
    let mut machine = TurnMachine::default();
    machine.interrupt_sent();
    assert!(!machine.is_free());
    machine.interrupt_answered(machine.generation());
    assert!(machine.is_free());
}

#[test]
fn exit_ends_running_turns_and_stale_messages_are_ignored() {
    let mut it = Fixture::text();
    it.judge(&echo(OPENING));
    it.steer(STEERING).unwrap();
    it.machine.interrupt_sent();
    let stale = it.machine.generation();
    let verdicts = it.machine.exited();
    assert_eq!(it.shown(verdicts), ["requested ends: exited, untaken 2"]);
    assert!(it.machine.exited().is_empty());
    it.machine.started();
    let next = it.machine.open(OTHER, PromptKind::Text);
    assert_ne!(next, it.turn);
    assert!(it.machine.judge(stale, &echo(OTHER)).is_empty());
    assert!(it.machine.interrupt_answered(stale).is_empty());
    assert_eq!(it.judge(&completed()), [""; 0], "not taken up yet");
}

#[test]
fn exit_ends_a_background_turn_but_not_an_abandoned_one() {
    let mut it = Fixture::text();
    it.judge(&assistant());
    it.machine.abandon(it.turn);
    let verdicts = it.machine.exited();
    assert_eq!(it.shown(verdicts), ["background ends: exited"]);
}

#[test]
fn message_of_older_runtime_cut_off_before_its_echo_does_not_hold_the_turn() {
    let mut it = Fixture::text();
    it.judge(&init());
    assert!(it.machine.is_active(it.turn));
    it.steer(STEERING).unwrap();
    it.judge(&result(json!({ "subtype": "error_during_execution", "terminal_reason": "aborted_streaming" })));
    it.judge(&init());
    assert_eq!(it.judge(&echo(STEERING)), ["taken up: 2", "requested"]);
    assert_eq!(it.judge(&completed()), ["requested"]);
    assert_eq!(it.judge(&state("idle")), ["requested ends: result"]);
}

#[test]
fn older_runtime_takes_up_only_waiting_steering_message_with_its_turn() {
    let mut it = Fixture::text();
    it.judge(&echo(OPENING));
    it.steer(STEERING).unwrap();
    it.judge(&result(json!({ "terminal_reason": "aborted_streaming" })));
    assert_eq!(it.judge(&init()), ["taken up: 2", "requested"], "before the first word of the answer");
    assert_eq!(it.judge(&stream_event(json!({}))), ["requested"]);
    assert_eq!(it.judge(&echo(STEERING)), ["requested"], "reported once");
    assert_eq!(it.judge(&completed()), ["requested", "requested ends: result"]);
}

#[test]
fn turn_is_active_only_after_runtime_has_begun_it() {
    let mut it = Fixture::text();
    it.judge(&lifecycle(OPENING, "queued"));
    assert!(!it.machine.is_active(it.turn));
    it.judge(&lifecycle(OPENING, "started"));
    assert!(it.machine.is_active(it.turn));
}

/// A machine with a turn that the runtime started; shown as `requested`.
fn in_background_turn(frames: &[Message]) -> Fixture {
    let mut machine = TurnMachine::default();
    machine.started();
    let mut begun = None;
    for frame in frames {
        for verdict in machine.judge(machine.generation(), frame) {
            if let Verdict::Begins { turn, .. } = verdict {
                begun = Some(turn);
            }
        }
    }
    Fixture { machine, turn: begun.unwrap() }
}

#[test]
fn steered_background_turn_ends_with_its_steering_message() {
    let newer = [lifecycle(STEERING, "queued"), init(), assistant()];
    let newer_result = result(json!({ "origin": { "kind": "task-notification" } }));
    let older = [task_ended("task.output"), init(), assistant()];
    let aborted = result(json!({ "terminal_reason": "aborted_streaming" }));
    for (frames, first, taking_up, last) in [
        (newer, newer_result, lifecycle(STEERING, "started"), naming(&[STEERING])),
        (older, aborted, echo(STEERING), completed()),
    ] {
        let mut it = in_background_turn(&frames);
        it.steer(STEERING).unwrap();
        assert_eq!(it.judge(&assistant()), ["requested"]);
        assert_eq!(it.judge(&first), ["requested"], "the steering message is not answered");
        assert!(!it.machine.is_free());
        assert_eq!(it.judge(&taking_up), ["taken up: 2", "requested"]);
        assert_eq!(it.judge(&assistant()), ["requested"]);
        assert_eq!(it.judge(&last), ["requested", "requested ends: result"]);
        assert!(it.machine.is_free());
    }
}

#[test]
fn background_turn_goes_on_after_its_steering_message_was_withdrawn() {
    let mut it = in_background_turn(&[task_ended("task.output"), init(), assistant()]);
    it.steer(STEERING).unwrap();
    assert!(it.machine.withdraw(STEERING).is_empty());
    assert_eq!(it.judge(&assistant()), ["requested"]);
    assert_eq!(it.judge(&completed()), ["requested", "requested ends: result"]);
}

#[test]
fn background_turn_is_not_steered_while_another_turn_is_requested() {
    let mut it = in_background_turn(&[task_ended("task.output"), init(), assistant()]);
    it.machine.interrupt_sent();
    assert_eq!(it.steer(STEERING), Err(NotRunning(it.turn)), "the interrupt would hit the message");
    it.interrupt_answered();
    let requested = it.machine.open(OPENING, PromptKind::Text);
    assert_eq!(it.steer(STEERING), Err(NotRunning(it.turn)));
    assert!(it.machine.is_active(it.turn) && !it.machine.is_active(requested));
}

#[test]
fn steering_command_of_older_runtime_is_answered_without_an_echo() {
    let mut it = Fixture::text();
    it.judge(&echo(OPENING));
    it.machine.steer(it.turn, STEERING, PromptKind::Command).unwrap();
    it.judge(&result(json!({ "terminal_reason": "aborted_streaming" })));
    assert_eq!(it.judge(&init()), ["taken up: 2", "requested"]);
    assert_eq!(it.judge(&result(json!({ "result": "Total cost" }))), ["requested", "requested ends: result"]);
}
