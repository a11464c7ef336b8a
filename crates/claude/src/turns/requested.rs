//! The turn that the host requested: its messages and the state of each.
//!
//! Owns the state of one turn from the first written message to its end. Does not know about turns that the
//! runtime starts by itself, except one that the host steers, nor about the order of turns.

use uuid::Uuid;

use super::{EndReason, PromptKind, TurnEnd, TurnKey, TurnOrigin};
use crate::wire::Message;
use crate::wire::message::ResultMessage;

/// A turn with messages that were written to the runtime.
#[derive(Debug)]
pub(super) struct RequestedTurn {
    pub(super) key: TurnKey,
    /// Where the turn comes from.
    origin: TurnOrigin,
    messages: Vec<Written>,
    pub(super) owner: Owner,
    pub(super) unproven: Unproven,
    /// The last result that answered one of the messages.
    last: Option<Box<ResultMessage>>,
}

/// Whether the host still waits for the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// The host waits for the turn to end.
    Waits,
    /// The host abandoned the turn and the runtime still works on it.
    Abandoned,
    /// The host abandoned the turn and the runtime has stopped working on it.
    Stopped,
}

/// Work that probably belongs to a written message. Older runtimes echo a message only together with the
/// first finished block of its answer, and some slash commands not at all.
#[derive(Debug)]
pub(super) enum Unproven {
    /// There is none.
    None,
    /// The runtime has begun a turn, and nothing says that it is another one.
    Working,
    /// That turn is over, with or without a result.
    Over(Option<Box<ResultMessage>>),
}

/// A message that was written to the runtime.
#[derive(Debug)]
struct Written {
    uuid: Uuid,
    /// The uuid as it stands on the wire.
    name: String,
    origin: TurnOrigin,
    kind: PromptKind,
    state: State,
    /// Whether the runtime ever took it up.
    taken_up: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The runtime has not shown that it works on it.
    Written,
    /// The runtime works on it.
    TakenUp,
    /// The runtime is done with it, and a result is due.
    Completed,
    /// A result answered it, or the runtime went idle after working on it.
    Answered,
    /// The runtime dropped it.
    Dropped,
    /// The host took it back.
    Withdrawn,
}

impl State {
    fn is_worked_on(self) -> bool {
        matches!(self, Self::TakenUp | Self::Completed)
    }

    fn is_resolved(self) -> bool {
        matches!(self, Self::Answered | Self::Dropped | Self::Withdrawn)
    }
}

impl RequestedTurn {
    pub(super) fn new(key: TurnKey, uuid: Uuid, kind: PromptKind) -> Self {
        Self::with(key, TurnOrigin::User, Written::new(uuid, TurnOrigin::User, kind))
    }

    /// A turn that the runtime started by itself, with its first steering message.
    pub(super) fn of_background(key: TurnKey, origin: TurnOrigin, (uuid, kind): (Uuid, PromptKind)) -> Self {
        Self::with(key, origin, Written::new(uuid, TurnOrigin::Steering, kind))
    }

    /// A turn that the runtime started by itself, and that the host abandoned.
    pub(super) fn abandoned_background(key: TurnKey, origin: TurnOrigin) -> Self {
        let (owner, unproven) = (Owner::Abandoned, Unproven::None);
        Self { key, origin, messages: Vec::new(), owner, unproven, last: None }
    }

    fn with(key: TurnKey, origin: TurnOrigin, first: Written) -> Self {
        let (owner, unproven) = (Owner::Waits, Unproven::None);
        Self { key, origin, messages: vec![first], owner, unproven, last: None }
    }

    pub(super) fn steer(&mut self, uuid: Uuid, kind: PromptKind) {
        self.messages.push(Written::new(uuid, TurnOrigin::Steering, kind));
    }

    /// The runtime ended what it had started by itself; the steering messages continue the turn.
    pub(super) fn background_ended(&mut self, reason: EndReason) {
        match reason {
            EndReason::Result(result) => self.last = Some(result),
            EndReason::Dropped | EndReason::NoResult | EndReason::Merged | EndReason::Exited => {}
        }
    }

    /// The end of the turn.
    pub(super) fn end(&self, reason: EndReason) -> TurnEnd {
        TurnEnd { turn: self.key, origin: self.origin, reason, untaken: self.untaken() }
    }

    /// Whether the runtime has shown that it works on one of the messages now.
    pub(super) fn is_taken_up(&self) -> bool {
        self.messages.iter().any(|message| message.state.is_worked_on())
    }

    /// Whether output of the main thread belongs to this turn.
    pub(super) fn is_active(&self) -> bool {
        self.is_taken_up() || matches!(self.unproven, Unproven::Working)
    }

    /// Whether the runtime has begun to work on the turn, also if it is between two messages.
    pub(super) fn has_begun(&self) -> bool {
        let is_opening = |message: &&Written| message.origin == TurnOrigin::User;
        self.is_active() || self.messages.iter().find(is_opening).is_none_or(|opening| opening.taken_up)
    }

    /// Whether a message waits to be taken up.
    pub(super) fn is_waiting(&self) -> bool {
        self.owner != Owner::Stopped && self.messages.iter().any(|message| message.state == State::Written)
    }

    /// Whether every message is answered or dropped.
    pub(super) fn is_resolved(&self) -> bool {
        self.messages.iter().all(|message| message.state.is_resolved())
    }

    /// Whether only silence can tell that the turn is over: the runtime may not have read a message yet, or
    /// it may have answered or dropped it without saying so.
    pub(super) fn awaits_quiet(&self) -> bool {
        let untaken = |message: &Written| message.state == State::Written;
        let steering = |message: &Written| message.origin == TurnOrigin::Steering;
        self.is_waiting()
            && !self.is_taken_up()
            && (matches!(self.unproven, Unproven::Over(_))
                || self.messages.iter().filter(|message| untaken(message)).all(steering))
    }

    /// The steering messages that the runtime never took up.
    pub(super) fn untaken(&self) -> Vec<Uuid> {
        let is_untaken = |message: &&Written| {
            message.origin == TurnOrigin::Steering && !message.taken_up && message.state != State::Withdrawn
        };
        self.messages.iter().filter(is_untaken).map(|message| message.uuid).collect()
    }

    pub(super) fn is_named_by(&self, message: &Message) -> bool {
        message.user_messages().any(|name| self.messages.iter().any(|written| written.name == name))
    }

    /// Notes which messages the runtime takes up with this one. Returns those that are not yet known to be
    /// taken up, or nothing if it takes up none.
    pub(super) fn take_up(&mut self, message: &Message) -> Option<Vec<(Uuid, TurnOrigin)>> {
        let mut found = None;
        for written in &mut self.messages {
            if written.state == State::Written && written.is_taken_up_by(message) {
                written.state = State::TakenUp;
                let new = found.get_or_insert_with(Vec::new);
                if !std::mem::replace(&mut written.taken_up, true) {
                    new.push((written.uuid, written.origin));
                }
            }
        }
        if found.is_some() {
            // Whatever came before belongs to another turn.
            self.unproven = Unproven::None;
        }
        found
    }

    /// The only message that is not known to be taken up, if it is a steering message. An older runtime that
    /// begins to work then works on this message, and echoes it only with the first block of the answer.
    pub(super) fn only_waiting(&mut self) -> Option<Uuid> {
        let mut waiting = self.messages.iter_mut().filter(|message| message.state == State::Written);
        let (only, None) = (waiting.next()?, waiting.next()) else { return None };
        let is_new = only.origin == TurnOrigin::Steering && !std::mem::replace(&mut only.taken_up, true);
        is_new.then_some(only.uuid)
    }

    /// The runtime is done with a message; its result may follow or name another message.
    pub(super) fn completed(&mut self, name: &str) {
        for written in &mut self.messages {
            if written.name == name && written.state == State::TakenUp {
                written.state = State::Completed;
            }
        }
    }

    /// The runtime dropped a message.
    pub(super) fn dropped(&mut self, name: &str) {
        self.resolve(State::Dropped, |written| written.name == name && !written.state.is_resolved());
    }

    /// The host took a message back.
    pub(super) fn withdrawn(&mut self, uuid: Uuid) {
        self.resolve(State::Withdrawn, |written| written.uuid == uuid && !written.state.is_resolved());
    }

    /// A result names messages of this turn.
    pub(super) fn answered_by_name(&mut self, message: &Message, result: &ResultMessage) {
        self.last = Some(Box::new(result.clone()));
        self.resolve(State::Answered, |written| {
            written.state == State::Completed
                || !written.state.is_resolved() && message.user_messages().any(|name| name == written.name)
        });
    }

    /// A result names nothing, so it answers everything that the runtime works on.
    pub(super) fn answered(&mut self, result: &ResultMessage) {
        self.last = Some(Box::new(result.clone()));
        self.resolve(State::Answered, |written| written.state.is_worked_on());
    }

    /// A result without a terminal reason is the end of a command that no model saw; older runtimes do not
    /// echo those. Returns whether there is such a command.
    pub(super) fn command_answered(&mut self, result: &ResultMessage) -> bool {
        let is_waiting =
            |written: &Written| written.kind == PromptKind::Command && written.state == State::Written;
        if result.terminal_reason.is_some() || !self.messages.iter().any(is_waiting) {
            return false;
        }
        self.last = Some(Box::new(result.clone()));
        self.unproven = Unproven::None;
        self.resolve(State::Answered, is_waiting);
        true
    }

    /// The runtime went idle: no result will follow for what it worked on. It has read every message that was
    /// written before one that it took up, and none of them waits any longer: an older runtime does not echo
    /// a message whose answer was cut off before its first block.
    pub(super) fn idle(&mut self) {
        self.resolve(State::Answered, |written| written.state.is_worked_on());
        let read = self.messages.iter().rposition(|written| written.state == State::Answered).unwrap_or(0);
        for written in self.messages.iter_mut().take(read).filter(|written| written.state == State::Written) {
            written.taken_up |= written.origin == TurnOrigin::User;
            written.state = if written.taken_up { State::Answered } else { State::Dropped };
        }
        if matches!(self.unproven, Unproven::Working) {
            self.unproven = Unproven::Over(None);
        }
    }

    /// The runtime was idle and silent for a while, so nothing more will come for this turn.
    pub(super) fn quiet(&mut self) {
        if let Unproven::Over(result) = std::mem::replace(&mut self.unproven, Unproven::None) {
            let is_opening = |written: &Written| written.origin == TurnOrigin::User;
            if self.messages.iter().any(|written| is_opening(written) && written.state == State::Written) {
                self.last = result;
                for opening in self.messages.iter_mut().filter(|written| is_opening(written)) {
                    opening.taken_up = true;
                    opening.state = State::Answered;
                }
            }
        }
        self.resolve(State::Dropped, |written| written.state == State::Written);
    }

    /// How the turn ended, once every message is resolved.
    pub(super) fn end_reason(&mut self) -> EndReason {
        match self.last.take() {
            Some(result) => EndReason::Result(result),
            None if self.origin != TurnOrigin::User => EndReason::NoResult,
            None if self.messages.iter().any(|written| written.taken_up) => EndReason::NoResult,
            None => EndReason::Dropped,
        }
    }

    fn resolve(&mut self, state: State, which: impl Fn(&Written) -> bool) {
        for written in self.messages.iter_mut().filter(|written| which(written)) {
            written.state = state;
        }
    }
}

impl Written {
    fn new(uuid: Uuid, origin: TurnOrigin, kind: PromptKind) -> Self {
        Self { uuid, name: uuid.to_string(), origin, kind, state: State::Written, taken_up: false }
    }

    fn is_taken_up_by(&self, message: &Message) -> bool {
        match message {
            Message::User(user) => {
                user.is_replay == Some(true) && user.uuid.as_deref() == Some(self.name.as_str())
            }
            Message::CommandLifecycle(lifecycle) => {
                lifecycle.command_uuid.as_deref() == Some(self.name.as_str())
                    && matches!(lifecycle.state.as_deref(), Some("started" | "completed"))
            }
            Message::StreamEvent(_) | Message::Assistant(_) | Message::Result(_) | Message::System(_) => {
                message.user_messages().any(|name| name == self.name)
            }
            Message::ControlRequest(_)
            | Message::ControlResponse(_)
            | Message::ControlCancelRequest(_)
            | Message::KeepAlive(_)
            | Message::RateLimit(_)
            | Message::ConversationReset(_)
            | Message::Notice(_)
            | Message::Unknown(_) => false,
        }
    }
}
