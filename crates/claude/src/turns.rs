//! Which turn a message from the runtime belongs to, and when a turn is over.
//!
//! Pure: no clock, no I/O, no randomness. The messages of a turn and its end are recognised by uuid, not by
//! counting results: a runtime folds steering messages into the turn that runs, merges waiting messages, holds
//! results back, and starts background turns without a request. There is at most one requested turn and at
//! most one background turn at a time; a background turn that is steered becomes the requested turn. The
//! invariants: every turn ends exactly once, no message belongs to two turns, and every steering message is
//! either taken up or returned.

mod requested;
mod verdict;

use std::time::Duration;

use uuid::Uuid;

use crate::wire::message::{CommandLifecycleMessage, ResultMessage, ResultOrigin};
use crate::wire::{Message, SystemMessage};

pub use verdict::{EndReason, Generation, NotRunning, PromptKind, TurnEnd, TurnKey, TurnOrigin, Verdict};

use requested::{Owner, RequestedTurn, Unproven};

/// How long an idle runtime must be silent before [`TurnMachine::quiet`] may be called. A runtime that has a
/// message in its input becomes busy within a fraction of this time.
pub const QUIET: Duration = Duration::from_secs(1);

/// The turns of one conversation.
#[derive(Debug, Default)]
pub struct TurnMachine {
    generation: Generation,
    /// The number of the last turn.
    last: u64,
    /// The turn that the host requested, or the background turn that it steers.
    requested: Option<RequestedTurn>,
    /// The turn that the runtime started by itself.
    background: Option<(TurnKey, TurnOrigin)>,
    /// Interrupts that were sent and not answered yet.
    interrupts: u32,
    /// Whether the runtime names the messages that it works on. Newer ones do, before they begin a turn.
    names_messages: bool,
    /// Whether the last state that the runtime reported is idle.
    idle: bool,
    /// Whether the runtime announced the end of a background task. An older one then starts a turn for it.
    notified: bool,
}

impl TurnMachine {
    /// The generation of the current runtime.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// A new runtime was started. It knows nothing about the messages that were written to the one before.
    pub fn started(&mut self) -> Generation {
        let generation = self.generation.next();
        *self = Self { generation, last: self.last, ..Self::default() };
        generation
    }

    /// Whether the message that opens the next turn can be written. A turn that the runtime started by itself
    /// does not prevent that.
    pub fn is_free(&self) -> bool {
        self.requested.is_none() && self.interrupts == 0
    }

    /// Whether the runtime names the messages that it works on, as newer ones do.
    pub fn names_messages(&self) -> bool {
        self.names_messages
    }

    /// Whether an abandoned turn is not over yet.
    pub fn is_draining(&self) -> bool {
        self.requested.as_ref().is_some_and(|requested| requested.owner != Owner::Waits)
    }

    /// Whether the runtime may still work on an abandoned turn, so that the interrupt has to be repeated.
    pub fn needs_interrupt(&self) -> bool {
        let is_abandoned =
            self.requested.as_ref().is_some_and(|requested| requested.owner == Owner::Abandoned);
        is_abandoned && !self.awaits_quiet()
    }

    /// The message that opens a turn is written. Only to be called when the machine is free.
    pub fn open(&mut self, message: Uuid, kind: PromptKind) -> TurnKey {
        debug_assert!(self.is_free(), "a turn is opened while another one is open");
        let turn = self.next_key();
        self.requested = Some(RequestedTurn::new(turn, message, kind));
        turn
    }

    /// Whether the runtime has begun to work on a turn. Before that, a steering message could overtake the
    /// message that opens the turn.
    pub fn is_active(&self, turn: TurnKey) -> bool {
        let is_requested = |requested: &RequestedTurn| requested.key == turn && requested.has_begun();
        self.is_background(turn) || self.requested.as_ref().is_some_and(is_requested)
    }

    /// A message for a running turn is written. A turn that the runtime started by itself can be steered, too,
    /// unless the host has requested another turn.
    pub fn steer(&mut self, turn: TurnKey, message: Uuid, kind: PromptKind) -> Result<(), NotRunning> {
        match (&mut self.requested, self.background) {
            (Some(requested), _) if requested.key == turn && requested.owner == Owner::Waits => {
                requested.steer(message, kind);
            }
            (None, Some((key, origin))) if key == turn && self.interrupts == 0 => {
                self.requested = Some(RequestedTurn::of_background(turn, origin, (message, kind)));
            }
            (_, _) => return Err(NotRunning(turn)),
        }
        Ok(())
    }

    /// The host took a written message back, and the runtime agreed. It is not returned as untaken.
    pub fn withdraw(&mut self, message: Uuid) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        if let Some(requested) = &mut self.requested {
            requested.withdrawn(message);
        }
        self.settle(&mut verdicts);
        verdicts
    }

    /// The owner no longer waits for the turn. It drains: its remaining output belongs to no turn. Returns the
    /// steering messages that were not taken up, or nothing if the turn is not running. A turn that the runtime
    /// started by itself cannot be abandoned while the host has requested another turn.
    pub fn abandon(&mut self, turn: TurnKey) -> Option<Vec<Uuid>> {
        if self.requested.is_none()
            && let Some((_, origin)) = self.background.filter(|(background, _)| *background == turn)
        {
            self.requested = Some(RequestedTurn::abandoned_background(turn, origin));
            return Some(Vec::new());
        }
        let requested = self
            .requested
            .as_mut()
            .filter(|requested| requested.key == turn && requested.owner == Owner::Waits)?;
        requested.owner = Owner::Abandoned;
        Some(requested.untaken())
    }

    /// An interrupt was written. One that is still in flight would hit whatever is written next, so the
    /// machine is not free before it is answered.
    pub fn interrupt_sent(&mut self) {
        self.interrupts += 1;
    }

    /// An interrupt was answered, or the owner gave up waiting for the answer.
    pub fn interrupt_answered(&mut self, generation: Generation) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        if generation == self.generation {
            self.interrupts = self.interrupts.saturating_sub(1);
            self.drained(&mut verdicts);
        }
        verdicts
    }

    /// The runtime exited: every turn with a waiting owner is over.
    pub fn exited(&mut self) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        self.end_background(EndReason::Exited, &mut verdicts);
        if let Some(requested) = self.requested.take_if(|requested| requested.owner == Owner::Waits) {
            verdicts.push(Verdict::Ends(requested.end(EndReason::Exited)));
        }
        // Late messages and answers of the old process are of a stale generation from now on.
        self.started();
        verdicts
    }

    /// Judges a message of the runtime of this generation.
    pub fn judge(&mut self, generation: Generation, message: &Message) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        if generation != self.generation {
            return verdicts;
        }
        self.names_messages |= is_of_newer_runtime(message);
        self.take_up(message, &mut verdicts);
        match message {
            Message::Result(result) => self.result(message, result, &mut verdicts),
            Message::System(SystemMessage::Init(_)) => self.init(message, &mut verdicts),
            Message::StreamEvent(event) => {
                self.output(message, event.parent_tool_use_id.is_some(), &mut verdicts);
            }
            Message::Assistant(assistant) => {
                self.output(message, assistant.parent_tool_use_id.is_some(), &mut verdicts);
            }
            Message::System(SystemMessage::SessionStateChanged(changed)) => {
                self.belongs(&mut verdicts);
                self.state(changed.state.as_deref(), &mut verdicts);
            }
            Message::CommandLifecycle(lifecycle) => {
                self.belongs(&mut verdicts);
                self.lifecycle(lifecycle, &mut verdicts);
            }
            Message::System(SystemMessage::TaskNotification(task)) => {
                // One that ran in the foreground is announced as well, and has no output file.
                let is_background = task.output_file.as_deref().is_some_and(|file| !file.is_empty());
                self.notified =
                    is_background && !self.requested.as_ref().is_some_and(RequestedTurn::is_active);
                self.belongs(&mut verdicts);
            }
            Message::System(_)
            | Message::User(_)
            | Message::ControlRequest(_)
            | Message::ControlResponse(_)
            | Message::ControlCancelRequest(_)
            | Message::KeepAlive(_)
            | Message::RateLimit(_)
            | Message::ConversationReset(_)
            | Message::Notice(_)
            | Message::Unknown(_) => self.belongs(&mut verdicts),
        }
        verdicts
    }

    /// Whether all that is missing is the certainty that nothing more comes; see [`Self::quiet`].
    pub fn awaits_quiet(&self) -> bool {
        self.idle && self.requested.as_ref().is_some_and(RequestedTurn::awaits_quiet)
    }

    /// The runtime has been idle and silent for [`QUIET`]. A message that it has not read yet would have made
    /// it busy, so whatever it has not taken up will not be taken up.
    pub fn quiet(&mut self) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        if self.awaits_quiet() {
            if let Some(requested) = &mut self.requested {
                requested.quiet();
            }
            self.settle(&mut verdicts);
        }
        verdicts
    }

    /// The runtime holds back the result of what it works on: older ones do while a subagent works in the
    /// background. The owner knows that from the end of the answer, or from the note about an interrupt.
    pub fn result_withheld(&mut self) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        match &mut self.requested {
            Some(requested) if requested.is_active() => requested.idle(),
            Some(_) | None => self.end_background(EndReason::NoResult, &mut verdicts),
        }
        self.settle(&mut verdicts);
        verdicts
    }

    fn next_key(&mut self) -> TurnKey {
        self.last += 1;
        TurnKey::new(self.generation, self.last)
    }

    fn take_up(&mut self, message: &Message, verdicts: &mut Vec<Verdict>) {
        let Some(requested) = &mut self.requested else { return };
        let (turn, Some(taken)) = (requested.key, requested.take_up(message)) else { return };
        self.idle = false;
        self.notified = false;
        self.end_background(EndReason::Merged, verdicts);
        self.report_taken_up(turn, taken, verdicts);
    }

    fn report_taken_up(&self, turn: TurnKey, taken: Vec<(Uuid, TurnOrigin)>, verdicts: &mut Vec<Verdict>) {
        if self.requested.as_ref().is_some_and(|requested| requested.owner == Owner::Waits) {
            let taken_up = |(message, origin)| Verdict::TakenUp { turn, message, origin };
            verdicts.extend(taken.into_iter().map(taken_up));
        }
    }

    /// A turn starts. Newer runtimes name the messages that it answers. Of older ones it belongs to a message
    /// that waits, unless the end of a background task was announced just before.
    fn init(&mut self, message: &Message, verdicts: &mut Vec<Verdict>) {
        self.idle = false;
        let announced = std::mem::take(&mut self.notified) || self.names_messages;
        match &mut self.requested {
            Some(requested) if requested.is_taken_up() || requested.is_named_by(message) => {}
            Some(requested) if requested.is_waiting() && !announced => {
                requested.unproven = Unproven::Working;
                let taken_up = requested.only_waiting().map(|message| (requested.key, message));
                self.end_background(EndReason::Merged, verdicts);
                if let Some((turn, message)) = taken_up {
                    self.report_taken_up(turn, vec![(message, TurnOrigin::Steering)], verdicts);
                }
            }
            Some(requested) => {
                if matches!(requested.unproven, Unproven::Working) {
                    requested.unproven = Unproven::None;
                }
                self.begin_background(TurnOrigin::Background, verdicts);
            }
            None => self.begin_background(TurnOrigin::Background, verdicts),
        }
        self.belongs(verdicts);
    }

    fn output(&mut self, message: &Message, is_subagent: bool, verdicts: &mut Vec<Verdict>) {
        let is_named = message.user_messages().next().is_some();
        match &self.requested {
            // It is about the messages of another turn.
            Some(requested) if requested.is_active() && is_named && !requested.is_named_by(message) => return,
            Some(requested) if requested.is_active() => {}
            Some(_) | None if is_subagent => {}
            Some(_) | None => {
                self.idle = false;
                self.begin_background(TurnOrigin::Background, verdicts);
            }
        }
        self.belongs(verdicts);
    }

    fn result(&mut self, message: &Message, result: &ResultMessage, verdicts: &mut Vec<Verdict>) {
        self.notified = false;
        let is_named = message.user_messages().next().is_some();
        let origin = result.origin.as_ref().and_then(background_origin);
        match &mut self.requested {
            Some(requested) if is_named && requested.is_named_by(message) => {
                self.belongs(verdicts);
                if let Some(requested) = &mut self.requested {
                    requested.answered_by_name(message, result);
                }
                self.settle(verdicts);
            }
            Some(requested) if is_named || origin.is_some() => {
                // The requested turn is not over, and the runtime does not work on two turns at a time.
                if !requested.is_taken_up() {
                    self.background_result(result, origin, verdicts);
                }
            }
            Some(requested) if requested.is_taken_up() => {
                self.belongs(verdicts);
                if let Some(requested) = &mut self.requested {
                    requested.answered(result);
                }
                self.settle(verdicts);
            }
            Some(requested) if requested.is_waiting() && self.background.is_none() => {
                self.belongs(verdicts);
                if let Some(requested) = &mut self.requested
                    && !requested.command_answered(result)
                {
                    requested.unproven = Unproven::Over(Some(Box::new(result.clone())));
                    self.idle = false;
                }
                self.settle(verdicts);
            }
            Some(_) | None => self.background_result(result, origin, verdicts),
        }
    }

    fn background_result(
        &mut self,
        result: &ResultMessage,
        origin: Option<TurnOrigin>,
        verdicts: &mut Vec<Verdict>,
    ) {
        if let Some(origin) = origin {
            self.begin_background(origin, verdicts);
            self.background = self.background.map(|(turn, _)| (turn, origin));
        }
        if let Some((turn, _)) = self.background {
            verdicts.push(Verdict::Belongs(turn));
            self.end_background(EndReason::Result(Box::new(result.clone())), verdicts);
            self.settle(verdicts);
        }
    }

    fn state(&mut self, state: Option<&str>, verdicts: &mut Vec<Verdict>) {
        self.idle = state == Some("idle");
        if self.idle {
            self.end_background(EndReason::NoResult, verdicts);
            if let Some(requested) = &mut self.requested {
                requested.idle();
            }
            self.settle(verdicts);
        }
    }

    fn lifecycle(&mut self, lifecycle: &CommandLifecycleMessage, verdicts: &mut Vec<Verdict>) {
        let (Some(requested), Some(name)) = (&mut self.requested, &lifecycle.command_uuid) else { return };
        match lifecycle.state.as_deref() {
            Some("completed") => requested.completed(name),
            Some("cancelled") => {
                requested.dropped(name);
                self.settle(verdicts);
            }
            Some(_) | None => {}
        }
    }

    /// Says which turn the judged message belongs to.
    fn belongs(&self, verdicts: &mut Vec<Verdict>) {
        let requested = self.requested.as_ref().filter(|requested| requested.is_active());
        match (requested, self.background) {
            (Some(requested), _) if requested.owner == Owner::Waits => {
                verdicts.push(Verdict::Belongs(requested.key))
            }
            (None, Some((turn, _))) if !self.is_abandoned(turn) => verdicts.push(Verdict::Belongs(turn)),
            (Some(_) | None, _) => {}
        }
    }

    fn is_abandoned(&self, turn: TurnKey) -> bool {
        let is_abandoned =
            |requested: &RequestedTurn| requested.key == turn && requested.owner != Owner::Waits;
        self.requested.as_ref().is_some_and(is_abandoned)
    }

    fn begin_background(&mut self, origin: TurnOrigin, verdicts: &mut Vec<Verdict>) {
        if self.background.is_none() {
            let turn = self.next_key();
            self.background = Some((turn, origin));
            verdicts.push(Verdict::Begins { turn, origin });
        }
    }

    fn is_background(&self, turn: TurnKey) -> bool {
        self.background.is_some_and(|(background, _)| background == turn)
    }

    /// Ends what the runtime started by itself. A turn that is steered ends with its steering messages.
    fn end_background(&mut self, reason: EndReason, verdicts: &mut Vec<Verdict>) {
        let Some((turn, origin)) = self.background.take() else { return };
        match &mut self.requested {
            Some(requested) if requested.key == turn => requested.background_ended(reason),
            Some(_) | None => {
                verdicts.push(Verdict::Ends(TurnEnd { turn, origin, reason, untaken: Vec::new() }));
            }
        }
    }

    /// Ends the requested turn if every message is answered or dropped, and the runtime no longer works on
    /// what it started by itself.
    fn settle(&mut self, verdicts: &mut Vec<Verdict>) {
        let background = self.background.map(|(turn, _)| turn);
        let is_over =
            |requested: &mut RequestedTurn| requested.is_resolved() && background != Some(requested.key);
        let Some(mut requested) = self.requested.take_if(is_over) else { return };
        if requested.owner == Owner::Waits {
            let reason = requested.end_reason();
            return verdicts.push(Verdict::Ends(requested.end(reason)));
        }
        requested.owner = Owner::Stopped;
        self.requested = Some(requested);
        self.drained(verdicts);
    }

    fn drained(&mut self, verdicts: &mut Vec<Verdict>) {
        if self.interrupts == 0
            && let Some(requested) = self.requested.take_if(|requested| requested.owner == Owner::Stopped)
        {
            verdicts.push(Verdict::Drained(requested.key));
        }
    }
}

/// Whether only runtimes that name the messages that they work on write such a message.
fn is_of_newer_runtime(message: &Message) -> bool {
    let has_capabilities =
        matches!(message, Message::System(SystemMessage::Init(init)) if init.capabilities.is_some());
    let is_lifecycle = matches!(message, Message::CommandLifecycle(_));
    has_capabilities || is_lifecycle || message.user_messages().next().is_some()
}

/// The origin of a turn that the runtime started by itself; nothing for a turn that a person requested.
fn background_origin(origin: &ResultOrigin) -> Option<TurnOrigin> {
    match origin.kind.as_deref()? {
        "human" | "person" | "composer" => None,
        "auto-continuation" | "hook" | "plugin" => Some(TurnOrigin::Hook),
        _ => Some(TurnOrigin::Background),
    }
}

#[cfg(test)]
#[path = "turns_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "turns/interleavings_tests.rs"]
mod interleavings;

#[cfg(test)]
#[path = "turns/recordings_tests.rs"]
mod recordings;
