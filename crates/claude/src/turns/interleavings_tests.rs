//! Random interleavings of a host, a runtime of either version, and messages in transit between them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use proptest::prelude::*;

use super::*;
use crate::wire::message::{
    AssistantMessage, CommandLifecycleMessage, InitMessage, SessionStateChangedMessage, StreamEventMessage,
    TaskMessage, UserFrameMessage,
};

/// Which version of the runtime is modelled.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Style {
    /// Echoes a message with the first finished block; results do not name messages.
    Older,
    /// Reports the lifecycle of each message; results name the messages that they answer.
    Newer,
}

/// The turn that a modelled message belongs to.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Truth {
    /// Not part of a turn.
    Side,
    /// Part of this turn, which the host requested.
    Requested(u64),
    /// Part of this turn, which the runtime started.
    Background(u64),
}

/// Marks results of background turns, combined with their number.
const BACKGROUND_MARK: u64 = 1 << 32;

#[derive(Debug, Clone, Copy)]
struct Prompt {
    uuid: Uuid,
    turn: u64,
    kind: PromptKind,
    is_steering: bool,
}

#[derive(Debug)]
enum Written {
    User(Prompt),
    Interrupt,
}

#[derive(Debug)]
struct ModelTurn {
    truth: Truth,
    answers: Vec<Prompt>,
    /// Number of answered messages that were echoed.
    echoed: usize,
}

/// A modelled runtime with its pipes. Anything can be in transit for any time.
#[derive(Debug)]
struct ModelRuntime {
    style: Style,
    stdin: VecDeque<Written>,
    stdout: VecDeque<(Message, Truth)>,
    /// Interrupts that were read and have not taken effect.
    effects: u32,
    /// Responses to interrupts. They are not ordered with messages and can overtake them.
    answers: u32,
    queued: VecDeque<Prompt>,
    turn: Option<ModelTurn>,
    /// The turn whose result was withheld.
    withheld: Option<Truth>,
    is_busy: bool,
    /// Number of the last background turn.
    background: u64,
}

fn state(state: &str) -> Message {
    let changed = SessionStateChangedMessage { state: Some(state.to_owned()), ..Default::default() };
    Message::System(SystemMessage::SessionStateChanged(changed))
}

fn names(prompts: &[Prompt]) -> Option<Vec<String>> {
    (!prompts.is_empty()).then(|| prompts.iter().map(|prompt| prompt.uuid.to_string()).collect())
}

impl ModelRuntime {
    fn new(style: Style, background: u64) -> Self {
        Self {
            style,
            stdin: VecDeque::new(),
            stdout: VecDeque::new(),
            effects: 0,
            answers: 0,
            queued: VecDeque::new(),
            turn: None,
            withheld: None,
            is_busy: false,
            background,
        }
    }

    fn side(&mut self, message: Message) {
        self.stdout.push_back((message, Truth::Side));
    }

    fn lifecycle(&mut self, uuid: Uuid, state: &str) {
        if self.style == Style::Newer {
            self.side(Message::CommandLifecycle(CommandLifecycleMessage {
                command_uuid: Some(uuid.to_string()),
                state: Some(state.to_owned()),
                ..Default::default()
            }));
        }
    }

    fn echo(&mut self, uuid: Uuid) {
        self.side(Message::User(Box::new(UserFrameMessage {
            uuid: Some(uuid.to_string()),
            is_replay: Some(true),
            ..Default::default()
        })));
    }

    fn read(&mut self) {
        match self.stdin.pop_front() {
            Some(Written::User(prompt)) => {
                self.lifecycle(prompt.uuid, "queued");
                self.queued.push_back(prompt);
            }
            Some(Written::Interrupt) => self.effects += 1,
            None => {}
        }
    }

    /// Carries out an interrupt. A newer runtime that is about to start on a message ignores it.
    fn interrupt(&mut self, heeds: bool, abandoned: &BTreeSet<u64>) {
        if self.effects == 0 {
            return;
        }
        self.effects -= 1;
        self.answers += 1;
        if heeds {
            let hit = self.turn.iter().flat_map(|turn| &turn.answers);
            for prompt in hit.filter(|prompt| !prompt.is_steering) {
                assert!(abandoned.contains(&prompt.turn), "an interrupt hit the wrong turn");
            }
            self.finish("aborted_streaming");
            // Newer runtimes drop queued messages on request; older ones cannot.
            if self.style == Style::Newer {
                for prompt in std::mem::take(&mut self.queued) {
                    assert!(abandoned.contains(&prompt.turn), "an interrupt dropped the wrong message");
                    self.lifecycle(prompt.uuid, "cancelled");
                }
            }
            self.rest();
        }
    }

    fn begin(&mut self, answers: Vec<Prompt>) {
        if self.turn.is_some() {
            return;
        }
        if !self.is_busy {
            self.is_busy = true;
            self.side(state("running"));
        }
        let truth = match (answers.first(), self.withheld) {
            (Some(prompt), _) => Truth::Requested(prompt.turn),
            (None, Some(withheld)) => withheld,
            (None, None) => {
                self.background += 1;
                Truth::Background(self.background)
            }
        };
        let mut echoed = 0;
        for prompt in &answers {
            self.lifecycle(prompt.uuid, "started");
            // Of merged messages, all but the last are echoed immediately.
            if self.style == Style::Older && echoed + 1 < answers.len() {
                self.echo(prompt.uuid);
                echoed += 1;
            }
        }
        let mut init = InitMessage::default();
        match self.style {
            Style::Newer => {
                init.capabilities = Some(Vec::new());
                init.user_message_uuids = names(&answers);
            }
            Style::Older if answers.is_empty() => {
                let task = TaskMessage { output_file: Some("task.output".to_owned()), ..Default::default() };
                self.side(Message::System(SystemMessage::TaskNotification(Box::new(task))));
            }
            Style::Older => {}
        }
        self.side(Message::System(SystemMessage::Init(Box::new(init))));
        self.turn = Some(ModelTurn { truth, answers, echoed });
    }

    /// Starts on waiting messages: a command alone, other messages together.
    fn take_up(&mut self) {
        if self.turn.is_some() || self.queued.is_empty() {
            return;
        }
        let is_text = |prompt: &&Prompt| prompt.kind == PromptKind::Text;
        let count = self.queued.iter().take_while(is_text).count().max(1);
        let answers = self.queued.drain(..count).collect();
        self.begin(answers);
    }

    fn stream(&mut self, named: bool) {
        let Some(turn) = &self.turn else { return };
        let mut event = StreamEventMessage::default();
        if named && self.style == Style::Newer {
            event.user_message_uuid = turn.answers.first().map(|prompt| prompt.uuid.to_string());
        }
        self.stdout.push_back((Message::StreamEvent(Box::new(event)), turn.truth));
    }

    /// Finishes a block. An older runtime echoes its messages before the first one.
    fn block(&mut self) {
        self.echo_rest();
        if let Some(turn) = &self.turn {
            self.stdout.push_back((Message::Assistant(Box::<AssistantMessage>::default()), turn.truth));
        }
    }

    fn echo_rest(&mut self) {
        let Some(turn) = &mut self.turn else { return };
        let left: Vec<Prompt> = turn.answers.iter().skip(turn.echoed).copied().collect();
        turn.echoed = turn.answers.len();
        for prompt in left {
            // Older runtimes do not echo a command that is not sent to the model.
            if self.style == Style::Older && prompt.kind == PromptKind::Text {
                self.echo(prompt.uuid);
            }
        }
    }

    /// Folds a waiting message into the running turn, as at the end of a tool call.
    fn fold(&mut self) {
        let is_command =
            |turn: &ModelTurn| turn.answers.iter().any(|prompt| prompt.kind == PromptKind::Command);
        if self.turn.as_ref().is_none_or(is_command) {
            return;
        }
        let Some(prompt) = self.queued.pop_front_if(|prompt| prompt.kind == PromptKind::Text) else { return };
        self.block();
        self.lifecycle(prompt.uuid, "started");
        if self.style == Style::Older {
            self.echo(prompt.uuid);
        }
        if let Some(turn) = &mut self.turn {
            turn.answers.push(prompt);
            turn.echoed += 1;
            turn.truth = Truth::Requested(prompt.turn);
        }
    }

    fn finish(&mut self, reason: &str) {
        self.echo_rest();
        let Some(turn) = self.turn.take() else { return };
        let mark = match turn.truth {
            Truth::Requested(number) => number,
            Truth::Background(number) => number | BACKGROUND_MARK,
            Truth::Side => return,
        };
        let is_command = matches!(turn.answers.as_slice(), [only] if only.kind == PromptKind::Command);
        let mut result = ResultMessage {
            terminal_reason: (!is_command).then(|| reason.to_owned()),
            duration_ms: Some(mark),
            ..Default::default()
        };
        if self.style == Style::Newer {
            result.user_message_uuids = names(&turn.answers);
            if turn.answers.is_empty() {
                let kind = Some("task-notification".to_owned());
                result.origin = Some(ResultOrigin { kind, ..Default::default() });
            }
        }
        self.withheld = None;
        self.stdout.push_back((Message::Result(Box::new(result)), turn.truth));
        for prompt in turn.answers {
            self.lifecycle(prompt.uuid, if reason == "completed" { "completed" } else { "cancelled" });
        }
        self.rest();
    }

    /// Ends the turn of an older runtime and withholds its result until the next turn ends.
    fn withhold(&mut self) {
        self.echo_rest();
        let has_command = |turn: &ModelTurn| turn.answers.iter().any(|it| it.kind == PromptKind::Command);
        if self.style == Style::Older && !self.turn.as_ref().is_some_and(has_command) {
            self.withheld = self.turn.take().map(|turn| turn.truth).or(self.withheld);
            self.rest();
        }
    }

    /// Drops a steering message. An older runtime does not report it.
    fn drop_steering(&mut self) {
        if let Some(prompt) = self.queued.pop_back_if(|prompt| prompt.is_steering) {
            self.lifecycle(prompt.uuid, "cancelled");
            self.rest();
        }
    }

    fn rest(&mut self) {
        if self.turn.is_none() && self.queued.is_empty() && self.is_busy {
            self.is_busy = false;
            self.withheld = None;
            self.side(state("idle"));
        }
    }

    fn is_silent(&self) -> bool {
        let nothing_on_its_way = self.stdin.is_empty() && self.stdout.is_empty() && self.effects == 0;
        nothing_on_its_way && self.turn.is_none() && self.queued.is_empty()
    }
}

/// A host that opens one turn at a time.
struct Host {
    machine: TurnMachine,
    runtime: ModelRuntime,
    /// The last number used for a turn or a message.
    last: u64,
    waiting: VecDeque<PromptKind>,
    turns: BTreeMap<TurnKey, u64>,
    /// The turn that the host waits for.
    open: Option<(TurnKey, u64)>,
    opened: usize,
    settled: usize,
    abandoned: BTreeSet<u64>,
    background: BTreeMap<TurnKey, Option<u64>>,
    steered: BTreeSet<Uuid>,
    /// Steering messages that were taken up or returned.
    accounted: BTreeSet<Uuid>,
}

impl Host {
    fn new(style: Style) -> Self {
        Self {
            machine: TurnMachine::default(),
            runtime: ModelRuntime::new(style, 0),
            last: 0,
            waiting: VecDeque::new(),
            turns: BTreeMap::new(),
            open: None,
            opened: 0,
            settled: 0,
            abandoned: BTreeSet::new(),
            background: BTreeMap::new(),
            steered: BTreeSet::new(),
            accounted: BTreeSet::new(),
        }
    }

    fn write(&mut self, turn: u64, kind: PromptKind, is_steering: bool) -> Uuid {
        self.last += 1;
        let uuid = Uuid::from_u128(self.last.into());
        self.runtime.stdin.push_back(Written::User(Prompt { uuid, turn, kind, is_steering }));
        uuid
    }

    fn send(&mut self, kind: PromptKind) {
        self.waiting.push_back(kind);
        self.write_next();
    }

    fn write_next(&mut self) {
        if !self.machine.is_free() {
            return;
        }
        if let Some(kind) = self.waiting.pop_front() {
            let number = self.last + 1;
            let uuid = self.write(number, kind, false);
            let turn = self.machine.open(uuid, kind);
            assert!(self.turns.insert(turn, number).is_none(), "duplicate turn key");
            self.open = Some((turn, number));
            self.opened += 1;
        }
    }

    fn steer(&mut self) {
        if let Some((turn, number)) = self.open {
            let uuid = self.write(number, PromptKind::Text, true);
            self.machine.steer(turn, uuid).unwrap();
            self.steered.insert(uuid);
        }
    }

    fn interrupt(&mut self) {
        self.machine.interrupt_sent();
        self.runtime.stdin.push_back(Written::Interrupt);
    }

    fn cancel(&mut self) {
        match self.open.take() {
            Some((turn, number)) => {
                let untaken = self.machine.abandon(turn).unwrap();
                self.abandoned.insert(number);
                self.settled += 1;
                self.account(untaken);
                self.interrupt();
            }
            // A background turn can be interrupted, too.
            None if self.machine.is_free() => self.interrupt(),
            None => {}
        }
    }

    fn repeat_interrupt(&mut self) {
        if self.machine.needs_interrupt() {
            self.interrupt();
        }
    }

    fn account(&mut self, steering: impl IntoIterator<Item = Uuid>) {
        for uuid in steering {
            assert!(
                self.steered.contains(&uuid) && self.accounted.insert(uuid),
                "steering message reported twice"
            );
        }
    }

    fn deliver(&mut self) {
        let Some((message, truth)) = self.runtime.stdout.pop_front() else { return };
        let verdicts = self.machine.judge(self.machine.generation(), &message);
        let belongs: Vec<TurnKey> = verdicts
            .iter()
            .filter_map(|it| if let Verdict::Belongs(turn) = it { Some(*turn) } else { None })
            .collect();
        assert!(belongs.len() <= 1, "message belongs to two turns");
        for verdict in &verdicts {
            if let Verdict::Begins { turn, .. } = verdict {
                assert!(self.background.insert(*turn, None).is_none(), "turn began twice");
            }
        }
        self.check_owner(belongs.first().copied(), truth);
        self.verdicts(verdicts);
    }

    fn check_owner(&mut self, owner: Option<TurnKey>, truth: Truth) {
        match truth {
            Truth::Side => {}
            Truth::Requested(number) if self.abandoned.contains(&number) => {
                assert_eq!(owner, None, "output of an abandoned turn was reported");
            }
            Truth::Requested(number) => {
                let owner = owner.and_then(|turn| self.turns.get(&turn));
                assert_eq!(owner, Some(&number), "output was assigned to the wrong turn");
            }
            Truth::Background(number) => {
                let owner = owner.and_then(|turn| self.background.get_mut(&turn));
                let known = owner.expect("output of a background turn was assigned to the wrong turn");
                assert_eq!(*known.get_or_insert(number), number, "one key for two background turns");
            }
        }
    }

    fn verdicts(&mut self, verdicts: Vec<Verdict>) {
        for verdict in verdicts {
            match verdict {
                Verdict::Begins { .. } | Verdict::Belongs(_) | Verdict::Drained(_) => {}
                Verdict::TakenUp { message, origin, .. } => {
                    self.account((origin == TurnOrigin::Steering).then_some(message));
                }
                Verdict::Ends(end) => self.ends(end),
            }
        }
        self.write_next();
    }

    fn ends(&mut self, end: TurnEnd) {
        let mark = match &end.reason {
            EndReason::Result(result) => result.duration_ms,
            EndReason::Dropped | EndReason::NoResult | EndReason::Merged | EndReason::Exited => None,
        };
        if let Some(number) = self.turns.get(&end.turn).copied() {
            assert_eq!(self.open.take(), Some((end.turn, number)), "a turn ended that was not open");
            assert!(mark.is_none_or(|mark| mark == number), "turn ended by the result of another turn");
            self.settled += 1;
            self.account(end.untaken);
        } else {
            let number = self.background.remove(&end.turn).expect("background turn ended twice");
            let expected = number.map(|number| number | BACKGROUND_MARK);
            assert!(mark.is_none() || expected.is_none() || mark == expected, "turn ended by another result");
        }
    }

    fn answer(&mut self) {
        if self.runtime.answers > 0 {
            self.runtime.answers -= 1;
            let verdicts = self.machine.interrupt_answered(self.machine.generation());
            self.verdicts(verdicts);
        }
    }

    /// Lets the runtime exit. Its remaining output is read, or partly lost.
    fn exit(&mut self, reads: bool) {
        while reads && !self.runtime.stdout.is_empty() {
            self.deliver();
        }
        let stale = self.machine.generation();
        let verdicts = self.machine.exited();
        let style = self.runtime.style;
        let old = std::mem::replace(&mut self.runtime, ModelRuntime::new(style, 0));
        self.runtime.background = old.background;
        self.machine.started();
        for (message, _) in old.stdout {
            assert!(self.machine.judge(stale, &message).is_empty(), "stale message was not ignored");
        }
        assert!(self.machine.interrupt_answered(stale).is_empty());
        self.verdicts(verdicts);
        assert!(self.background.is_empty(), "background turn did not end with the runtime");
    }

    /// Lets the quiet period pass if nothing is in transit.
    fn silence(&mut self) {
        if self.runtime.is_silent() {
            let verdicts = self.machine.quiet();
            self.verdicts(verdicts);
        }
    }

    fn is_done(&self) -> bool {
        self.settled == self.opened && self.waiting.is_empty() && self.machine.is_free()
    }

    /// Runs until every turn has ended.
    fn finish(&mut self) {
        for _ in 0..500 {
            self.runtime.read();
            self.runtime.interrupt(true, &self.abandoned);
            self.runtime.take_up();
            self.runtime.finish("completed");
            self.deliver();
            self.answer();
            self.silence();
            if self.is_done() && self.runtime.is_silent() {
                assert_eq!(self.accounted, self.steered, "steering message was lost");
                assert!(self.background.is_empty(), "background turn did not end");
                return;
            }
            if self.runtime.stdin.is_empty() && self.runtime.stdout.is_empty() {
                self.repeat_interrupt();
            }
        }
        panic!("turn did not end");
    }

    fn step(&mut self, step: Step, flag: bool) {
        match step {
            Step::Send if flag => self.send(PromptKind::Text),
            Step::Send => self.send(PromptKind::Command),
            Step::Steer => self.steer(),
            Step::Cancel => self.cancel(),
            Step::Repeat => self.repeat_interrupt(),
            Step::Read => self.runtime.read(),
            Step::Interrupt => self.runtime.interrupt(flag, &self.abandoned),
            Step::TakeUp => self.runtime.take_up(),
            Step::Background => self.runtime.begin(Vec::new()),
            Step::Stream => self.runtime.stream(flag),
            Step::Block => self.runtime.block(),
            Step::Fold => self.runtime.fold(),
            Step::Finish => self.runtime.finish(if flag { "completed" } else { "aborted_tools" }),
            Step::Withhold => self.runtime.withhold(),
            Step::Drop => self.runtime.drop_steering(),
            Step::Deliver => self.deliver(),
            Step::DeliverAll => (0..8).for_each(|_| self.deliver()),
            Step::Answer => self.answer(),
            Step::Silence => self.silence(),
            Step::Exit => self.exit(flag),
        }
    }
}

/// A step of the host, the runtime or the transport.
#[derive(Debug, Clone, Copy)]
enum Step {
    Send,
    Steer,
    Cancel,
    Repeat,
    Read,
    Interrupt,
    TakeUp,
    Background,
    Stream,
    Block,
    Fold,
    Finish,
    Withhold,
    Drop,
    Deliver,
    DeliverAll,
    Answer,
    Silence,
    Exit,
}

/// Relative frequency of each step.
const WEIGHTS: [(Step, usize); 19] = [
    (Step::Send, 5),
    (Step::Steer, 4),
    (Step::Cancel, 2),
    (Step::Repeat, 1),
    (Step::Read, 8),
    (Step::Interrupt, 3),
    (Step::TakeUp, 6),
    (Step::Background, 2),
    (Step::Stream, 5),
    (Step::Block, 4),
    (Step::Fold, 3),
    (Step::Finish, 5),
    (Step::Withhold, 1),
    (Step::Drop, 1),
    (Step::Deliver, 8),
    (Step::DeliverAll, 4),
    (Step::Answer, 3),
    (Step::Silence, 1),
    (Step::Exit, 1),
];

/// Decodes a byte to a step and a flag.
fn step(byte: u8) -> (Step, bool) {
    let mut rest = usize::from(byte >> 1) % WEIGHTS.iter().map(|(_, weight)| weight).sum::<usize>();
    for (step, weight) in WEIGHTS {
        if rest < weight {
            return (step, byte & 1 == 1);
        }
        rest -= weight;
    }
    (Step::Deliver, false)
}

fn steps(length: Range<usize>) -> impl Strategy<Value = Vec<(Step, bool)>> {
    prop::collection::vec(any::<u8>().prop_map(step), length)
}

/// Runs the same steps with both versions of the runtime.
fn run(steps: &[(Step, bool)]) {
    for style in [Style::Older, Style::Newer] {
        let mut host = Host::new(style);
        for (step, flag) in steps {
            host.step(*step, *flag);
        }
        host.finish();
    }
}

/// Each case runs two interleavings in each of two tests, which makes 100,000.
const CASES: u32 = 25_000;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn short_interleavings_keep_turns_consistent(steps in steps(1..32)) {
        run(&steps);
    }

    #[test]
    fn long_interleavings_keep_turns_consistent(steps in steps(32..64)) {
        run(&steps);
    }
}
