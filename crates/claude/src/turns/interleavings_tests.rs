//! Random interleavings of a host, a runtime of either version, and messages in transit between them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use proptest::prelude::*;

use super::*;

#[path = "model_runtime_tests.rs"]
mod model_runtime;

use model_runtime::{BACKGROUND_MARK, ModelRuntime, Prompt, Style, Truth, Written};

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
    abandoned: BTreeSet<Truth>,
    background: BTreeMap<TurnKey, Option<u64>>,
    /// The turn that the runtime started and the host steers, with its number.
    steered_background: Option<(TurnKey, u64)>,
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
            steered_background: None,
            steered: BTreeSet::new(),
            accounted: BTreeSet::new(),
        }
    }

    fn next_uuid(&mut self) -> Uuid {
        self.last += 1;
        Uuid::from_u128(self.last.into())
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
            let uuid = self.next_uuid();
            let number = self.last;
            let truth = Truth::Requested(number);
            let prompt = Prompt { uuid, truth, kind, is_steering: false, is_urgent: false };
            self.runtime.stdin.push_back(Written::User(prompt));
            let turn = self.machine.open(uuid, kind);
            assert!(self.turns.insert(turn, number).is_none(), "duplicate turn key");
            self.open = Some((turn, number));
            self.opened += 1;
        }
    }

    /// Steers the requested turn or, without one, the turn that the runtime started.
    fn steer(&mut self, is_urgent: bool) {
        let kept = self.steered_background.or_else(|| {
            let mut known = self.background.iter().filter_map(|(turn, number)| Some((*turn, (*number)?)));
            known.next_back().filter(|_| self.machine.is_free())
        });
        let (turn, truth) = match (self.open, kept) {
            (Some((turn, number)), _) => (turn, Truth::Requested(number)),
            (None, Some((turn, number))) => {
                self.background.remove(&turn);
                self.steered_background = Some((turn, number));
                (turn, Truth::Background(number))
            }
            (None, None) => return,
        };
        // The driver waits until the runtime has begun the turn.
        if !self.machine.is_active(turn) {
            return;
        }
        let (uuid, kind) = (self.next_uuid(), PromptKind::Text);
        self.machine.steer(turn, uuid, kind).unwrap();
        let prompt = Prompt { uuid, truth, kind, is_steering: true, is_urgent };
        self.runtime.stdin.push_back(Written::User(prompt));
        self.steered.insert(uuid);
    }

    fn interrupt(&mut self) {
        self.machine.interrupt_sent();
        self.runtime.stdin.push_back(Written::Interrupt);
    }

    fn cancel(&mut self) {
        let (turn, truth) = match (self.open.take(), self.steered_background) {
            (Some((turn, number)), _) => {
                self.settled += 1;
                (turn, Truth::Requested(number))
            }
            (None, Some((turn, number))) => {
                self.steered_background = None;
                (turn, Truth::Background(number))
            }
            // A background turn can be cancelled, too.
            (None, None) if self.machine.is_free() => match self.background.pop_first() {
                Some((turn, Some(number))) => (turn, Truth::Background(number)),
                Some((turn, None)) => {
                    self.background.insert(turn, None);
                    return self.interrupt();
                }
                None => return self.interrupt(),
            },
            (None, None) => return,
        };
        let untaken = self.machine.abandon(turn).unwrap();
        self.abandoned.insert(truth);
        self.account(untaken);
        self.interrupt();
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
            Truth::Requested(_) | Truth::Background(_) if self.abandoned.contains(&truth) => {
                let is_known = |turn: &TurnKey| {
                    self.open.is_some_and(|(open, _)| open == *turn) || self.background.contains_key(turn)
                };
                assert!(!owner.as_ref().is_some_and(is_known), "output of an abandoned turn was reported");
            }
            Truth::Requested(number) => {
                let owner = owner.and_then(|turn| self.turns.get(&turn));
                assert_eq!(owner, Some(&number), "output was assigned to the wrong turn");
            }
            Truth::Background(number) if self.steered_background.is_some_and(|(_, it)| it == number) => {
                assert_eq!(owner, self.steered_background.map(|(turn, _)| turn), "wrong turn");
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
        } else if let Some((_, number)) = self.steered_background.take_if(|(turn, _)| *turn == end.turn) {
            let expected = number | BACKGROUND_MARK;
            assert!(mark.is_none_or(|mark| mark == expected), "turn ended by the result of another turn");
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
        let is_settled = self.settled == self.opened && self.steered_background.is_none();
        is_settled && self.waiting.is_empty() && self.machine.is_free()
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
            Step::Steer => self.steer(flag),
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
