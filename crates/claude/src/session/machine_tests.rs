use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::wire::decode;

fn message(frame: &Value) -> Message {
    decode(frame.to_string().as_bytes()).unwrap()
}

fn state(state: &str) -> Message {
    message(&json!({ "type": "system", "subtype": "session_state_changed", "state": state }))
}

fn echo(uuid: Uuid) -> Message {
    message(&json!({ "type": "user", "isReplay": true, "uuid": uuid.to_string(), "message": {} }))
}

fn result(fields: Value) -> Message {
    let mut frame = json!({ "type": "result", "subtype": "success" });
    frame.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    message(&frame)
}

fn completed() -> Message {
    result(json!({ "terminal_reason": "completed" }))
}

fn running(is_command: bool) -> (TurnMachine, Uuid) {
    let (mut machine, uuid) = (TurnMachine::default(), Uuid::new_v4());
    machine.write(uuid, is_command);
    (machine, uuid)
}

fn settles(verdict: &Verdict, uuid: Uuid) -> bool {
    matches!(verdict, Verdict::Settled(settled, Ending::Result(_)) if *settled == uuid)
}

#[test]
fn an_older_runtimes_result_settles_what_it_has_echoed() {
    let (mut machine, uuid) = running(false);
    assert!(matches!(machine.judge(&echo(uuid)), Verdict::Belongs(_)));
    assert!(settles(&machine.judge(&completed()), uuid));
    assert!(matches!(machine.judge(&completed()), Verdict::Unowned));
}

#[test]
fn a_newer_runtimes_result_settles_what_it_names_and_nothing_else() {
    let (mut machine, uuid) = running(false);
    let naming = |uuid: Uuid| result(json!({ "user_message_uuids": [uuid.to_string()] }));
    assert!(matches!(machine.judge(&naming(Uuid::new_v4())), Verdict::Belongs(_)));
    let unasked = result(json!({ "origin": { "kind": "task-notification" } }));
    assert!(matches!(machine.judge(&unasked), Verdict::Belongs(_)));
    assert!(settles(&machine.judge(&naming(uuid)), uuid));
}

#[test]
fn the_idle_state_of_the_turn_before_settles_nothing() {
    let (mut machine, _) = running(false);
    assert!(matches!(machine.judge(&state("idle")), Verdict::Belongs(_)));
    assert!(!machine.awaits_quiet());
}

#[test]
fn a_runtime_that_goes_idle_over_a_message_gives_no_result() {
    let (mut machine, uuid) = running(false);
    machine.judge(&echo(uuid));
    assert!(matches!(machine.judge(&state("idle")), Verdict::Settled(_, Ending::NoResult)));
}

#[test]
fn a_message_that_was_dropped_is_cancelled() {
    let (mut machine, uuid) = running(false);
    let dropped =
        json!({ "type": "command_lifecycle", "command_uuid": uuid.to_string(), "state": "cancelled" });
    assert!(matches!(machine.judge(&message(&dropped)), Verdict::Settled(_, Ending::Cancelled)));
}

#[test]
fn an_older_runtime_does_not_echo_commands_that_no_model_sees() {
    let (mut machine, uuid) = running(true);
    assert!(matches!(machine.judge(&completed()), Verdict::Belongs(_)), "of a turn that was unasked");
    assert!(settles(&machine.judge(&result(json!({ "result": "Total cost" }))), uuid));
}

#[test]
fn a_result_without_a_name_or_an_echo_counts_only_after_silence() {
    let (mut machine, uuid) = running(false);
    machine.judge(&completed());
    assert!(!machine.awaits_quiet());
    machine.judge(&state("idle"));
    assert!(machine.awaits_quiet());
    assert!(settles(&machine.quiet(), uuid));
}

#[test]
fn an_echo_after_an_unnamed_result_shows_that_the_result_was_anothers() {
    let (mut machine, uuid) = running(false);
    machine.judge(&completed());
    machine.judge(&state("idle"));
    machine.judge(&echo(uuid));
    assert!(!machine.awaits_quiet());
    assert!(matches!(machine.quiet(), Verdict::Unowned));
    assert!(settles(&machine.judge(&completed()), uuid));
}

#[test]
fn the_late_result_of_an_abandoned_send_is_swallowed_once() {
    let (mut machine, uuid) = running(false);
    machine.judge(&echo(uuid));
    assert_eq!(machine.abandon(), Some(uuid));
    assert_eq!(machine.abandon(), None);
    assert!(machine.is_draining());
    assert!(matches!(machine.judge(&completed()), Verdict::Drained));
    assert!(matches!(machine.judge(&completed()), Verdict::Unowned));
}

#[test]
fn a_dead_runtime_fails_what_waits_and_the_next_one_starts_afresh() {
    let (mut machine, uuid) = running(false);
    machine.judge(&echo(uuid));
    assert_eq!(machine.exited(), Some(uuid));
    assert_eq!(machine.exited(), None);
    machine.revived();
    let next = Uuid::new_v4();
    machine.write(next, false);
    assert!(matches!(machine.judge(&completed()), Verdict::Belongs(_)), "not taken up yet");
}

/// How a modelled runtime speaks.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Style {
    /// Echoes what it takes up; its results name nothing.
    Older,
    /// Says what became of each message; its results name what they answer.
    Newer,
}

/// What the host writes.
#[derive(Debug)]
enum Written {
    User { uuid: Uuid, is_command: bool },
    Interrupt,
}

#[derive(Debug)]
struct ModelTurn {
    /// What it answers; nothing for a turn that nobody asked for.
    answers: Vec<(Uuid, bool)>,
    echoed: bool,
}

/// A runtime with its two pipes, in which anything can be on its way for any time.
#[derive(Debug)]
struct ModelRuntime {
    style: Style,
    stdin: VecDeque<Written>,
    stdout: VecDeque<Message>,
    queued: Vec<(Uuid, bool)>,
    turn: Option<ModelTurn>,
    busy: bool,
    /// What each result answered, by the result's own uuid.
    truth: BTreeMap<String, Vec<Uuid>>,
}

impl ModelRuntime {
    fn new(style: Style) -> Self {
        Self {
            style,
            stdin: VecDeque::new(),
            stdout: VecDeque::new(),
            queued: Vec::new(),
            turn: None,
            busy: false,
            truth: BTreeMap::new(),
        }
    }

    fn lifecycle(&mut self, uuid: Uuid, state: &str) {
        if self.style == Style::Newer {
            let frame =
                json!({ "type": "command_lifecycle", "command_uuid": uuid.to_string(), "state": state });
            self.stdout.push_back(message(&frame));
        }
    }

    fn read(&mut self) {
        match self.stdin.pop_front() {
            Some(Written::User { uuid, is_command }) => {
                self.lifecycle(uuid, "queued");
                self.queued.push((uuid, is_command));
            }
            Some(Written::Interrupt) => {
                if self.turn.is_some() {
                    self.finish("aborted_streaming");
                }
                // Newer runtimes drop what is queued on request; older ones do not know how.
                if self.style == Style::Newer {
                    for (uuid, _) in std::mem::take(&mut self.queued) {
                        self.lifecycle(uuid, "cancelled");
                    }
                }
                self.rest();
            }
            None => {}
        }
    }

    fn begin(&mut self, answers: Vec<(Uuid, bool)>) {
        if !self.busy {
            self.busy = true;
            self.stdout.push_back(state("running"));
        }
        for (uuid, _) in &answers {
            self.lifecycle(*uuid, "started");
        }
        self.stdout.push_back(message(&json!({ "type": "system", "subtype": "init" })));
        self.turn = Some(ModelTurn { answers, echoed: false });
    }

    /// Takes up what waits; everything that waits at once.
    fn take_up(&mut self) {
        if self.turn.is_none() && !self.queued.is_empty() {
            let answers = std::mem::take(&mut self.queued);
            self.begin(answers);
        }
    }

    fn work(&mut self) {
        let Some(turn) = &mut self.turn else { return };
        if !turn.echoed {
            turn.echoed = true;
            // Older runtimes do not echo a command that no model sees.
            let hidden = |is_command| is_command && self.style == Style::Older;
            for (uuid, is_command) in &turn.answers {
                if !hidden(*is_command) {
                    self.stdout.push_back(echo(*uuid));
                }
            }
        }
        self.stdout.push_back(message(&json!({ "type": "assistant", "message": { "content": [] } })));
    }

    fn finish(&mut self, reason: &str) {
        if self.turn.as_ref().is_some_and(|turn| !turn.echoed) {
            self.work();
        }
        let Some(turn) = self.turn.take() else { return };
        let id = Uuid::new_v4().to_string();
        let mut fields = json!({ "uuid": id });
        let only_command = matches!(turn.answers.as_slice(), [(_, true)]);
        if !only_command {
            fields["terminal_reason"] = json!(reason);
        }
        let uuids: Vec<Uuid> = turn.answers.iter().map(|(uuid, _)| *uuid).collect();
        if self.style == Style::Newer {
            if uuids.is_empty() {
                fields["origin"] = json!({ "kind": "task-notification" });
            } else {
                fields["user_message_uuids"] = json!(uuids.iter().map(Uuid::to_string).collect::<Vec<_>>());
            }
        }
        self.truth.insert(id, uuids.clone());
        self.stdout.push_back(result(fields));
        for uuid in uuids {
            self.lifecycle(uuid, if reason == "completed" { "completed" } else { "cancelled" });
        }
        self.rest();
    }

    fn rest(&mut self) {
        if self.turn.is_none() && self.queued.is_empty() && self.busy {
            self.busy = false;
            self.stdout.push_back(state("idle"));
        }
    }
}

/// How a send ended, for the host.
#[derive(Debug, PartialEq)]
enum Settled {
    Answered,
    GivenUp,
    Exited,
    Unanswered,
}

/// A host that writes one message at a time.
struct Host {
    machine: TurnMachine,
    runtime: ModelRuntime,
    waiting: VecDeque<(Uuid, bool)>,
    open: Option<Uuid>,
    settled: BTreeMap<Uuid, Settled>,
    sent: BTreeSet<Uuid>,
    used: BTreeSet<String>,
    free: bool,
}

impl Host {
    fn new(style: Style) -> Self {
        Self {
            machine: TurnMachine::default(),
            runtime: ModelRuntime::new(style),
            waiting: VecDeque::new(),
            open: None,
            settled: BTreeMap::new(),
            sent: BTreeSet::new(),
            used: BTreeSet::new(),
            free: true,
        }
    }

    fn send(&mut self, is_command: bool) {
        let uuid = Uuid::new_v4();
        self.sent.insert(uuid);
        self.waiting.push_back((uuid, is_command));
        self.write_next();
    }

    fn write_next(&mut self) {
        if !self.free {
            return;
        }
        if let Some((uuid, is_command)) = self.waiting.pop_front() {
            self.machine.write(uuid, is_command);
            self.runtime.stdin.push_back(Written::User { uuid, is_command });
            self.open = Some(uuid);
            self.free = false;
        }
    }

    fn settle(&mut self, uuid: Uuid, how: Settled) {
        assert_eq!(self.open.take(), Some(uuid), "only the one that is open is settled");
        assert_eq!(self.settled.insert(uuid, how), None, "settled twice");
    }

    fn verdict(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Unowned | Verdict::Belongs(_) => return,
            Verdict::Drained => {}
            Verdict::Settled(uuid, Ending::Result(result)) => {
                let id = result.uuid.clone().unwrap();
                assert!(self.runtime.truth[&id].contains(&uuid), "settled by the result of another");
                assert!(self.used.insert(id), "one result for two sends");
                self.settle(uuid, Settled::Answered);
            }
            Verdict::Settled(uuid, Ending::Cancelled | Ending::NoResult) => {
                self.settle(uuid, Settled::Unanswered);
            }
        }
        self.free = true;
        self.write_next();
    }

    fn deliver(&mut self) {
        if let Some(message) = self.runtime.stdout.pop_front() {
            let verdict = self.machine.judge(&message);
            self.verdict(verdict);
        }
    }

    /// An interrupt of the user's, or a time-out.
    fn give_up(&mut self) {
        if let Some(uuid) = self.machine.abandon() {
            self.settle(uuid, Settled::GivenUp);
            self.runtime.stdin.push_back(Written::Interrupt);
        }
    }

    fn exit(&mut self, style: Style) {
        // What it wrote before its end is read, half of what it was told is lost.
        while !self.runtime.stdout.is_empty() {
            self.deliver();
        }
        if let Some(uuid) = self.machine.exited() {
            self.settle(uuid, Settled::Exited);
        }
        let truth = std::mem::take(&mut self.runtime.truth);
        self.runtime = ModelRuntime { truth, ..ModelRuntime::new(style) };
        self.machine.revived();
        self.free = true;
        self.write_next();
    }

    /// Lets a while pass in which nothing is on its way.
    fn silence(&mut self) {
        let runtime = &self.runtime;
        let silent = runtime.stdin.is_empty() && runtime.stdout.is_empty() && !runtime.busy;
        if silent && runtime.queued.is_empty() && self.machine.awaits_quiet() {
            let verdict = self.machine.quiet();
            self.verdict(verdict);
        }
    }

    /// Lets everything come to its end.
    fn finish(&mut self) {
        for _ in 0..10_000 {
            self.runtime.read();
            self.runtime.take_up();
            self.runtime.work();
            self.runtime.finish("completed");
            self.deliver();
            self.silence();
            if self.settled.len() == self.sent.len() {
                return;
            }
        }
        panic!("a send hangs: {:?} {:?}", self.machine, self.runtime);
    }
}

/// What can happen at any time.
#[derive(Debug, Clone, Copy)]
enum Step {
    Send { is_command: bool },
    Read,
    TakeUp,
    Unasked,
    Work,
    Finish,
    Deliver,
    GiveUp,
    Silence,
    Exit,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => any::<bool>().prop_map(|is_command| Step::Send { is_command }),
        5 => Just(Step::Read),
        4 => Just(Step::TakeUp),
        1 => Just(Step::Unasked),
        4 => Just(Step::Work),
        4 => Just(Step::Finish),
        9 => Just(Step::Deliver),
        2 => Just(Step::GiveUp),
        1 => Just(Step::Silence),
        1 => Just(Step::Exit),
    ];
    prop::collection::vec(step, 0..100)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn no_interleaving_hangs_a_send_or_settles_it_twice_or_by_the_wrong_result(
        steps in steps(),
        newer in any::<bool>(),
    ) {
        let style = if newer { Style::Newer } else { Style::Older };
        let mut host = Host::new(style);
        for step in steps {
            match step {
                Step::Send { is_command } => host.send(is_command),
                Step::Read => host.runtime.read(),
                Step::TakeUp => host.runtime.take_up(),
                Step::Unasked if host.runtime.turn.is_none() => host.runtime.begin(Vec::new()),
                Step::Unasked => {}
                Step::Work => host.runtime.work(),
                Step::Finish => host.runtime.finish("completed"),
                Step::Deliver => host.deliver(),
                Step::GiveUp => host.give_up(),
                Step::Silence => host.silence(),
                Step::Exit => host.exit(style),
            }
        }
        host.finish();
        prop_assert_eq!(host.settled.len(), host.sent.len());
    }
}
