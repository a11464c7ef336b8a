//! Which send a runtime's message belongs to, and when a send is settled.
//!
//! Pure. One message is with the runtime at a time, and it is settled by its uuid, never by counting results:
//! the runtime also works unasked, merges messages and drops results. The invariant: every message that was
//! written is settled or drained exactly once, and never by a result of something else.

use uuid::Uuid;

use crate::wire::message::ResultMessage;
use crate::wire::{Message, SystemMessage};

/// Where the conversation is.
#[derive(Debug, Default)]
pub(super) struct TurnMachine {
    state: State,
}

#[derive(Debug, Default)]
enum State {
    /// Nothing that was asked is open; a message can be written.
    #[default]
    Idle,
    /// A message was written, and its send waits.
    Running(Open),
    /// A message was written, but its send was interrupted or has timed out. What still comes of it is
    /// swallowed, and only then is the runtime free.
    Draining(Open),
    /// There is no runtime.
    Dead,
}

/// A message that was written.
#[derive(Debug)]
struct Open {
    uuid: Uuid,
    /// The uuid as it stands on the wire.
    name: String,
    /// Whether it is a slash command, which older runtimes may carry out without an echo.
    is_command: bool,
    /// Whether the runtime has shown that it works on it.
    taken_up: bool,
    /// A result that came before that, and does not say whose it is.
    unclaimed: Option<Box<ResultMessage>>,
    /// Whether the runtime said that it is idle after that result.
    idle: bool,
}

/// What a written message came to.
#[derive(Debug)]
pub(super) enum Ending {
    /// The runtime answered it.
    Result(Box<ResultMessage>),
    /// The runtime dropped it unanswered.
    Cancelled,
    /// The runtime worked on it and went idle without a result.
    NoResult,
}

/// What a message means for what was written.
#[derive(Debug)]
pub(super) enum Verdict {
    /// It belongs to nothing that anybody waits for.
    Unowned,
    /// It belongs to this send.
    Belongs(Uuid),
    /// It belongs to this send and settles it.
    Settled(Uuid, Ending),
    /// It was the last of a send that nobody waits for: the runtime is free again.
    Drained,
}

impl TurnMachine {
    /// Whether what a send left behind is still awaited.
    pub(super) fn is_draining(&self) -> bool {
        matches!(self.state, State::Draining(_))
    }

    /// A message is about to be written. Only to be called when idle.
    pub(super) fn write(&mut self, uuid: Uuid, is_command: bool) {
        let name = uuid.to_string();
        self.state =
            State::Running(Open { uuid, name, is_command, taken_up: false, unclaimed: None, idle: false });
    }

    /// Nobody waits for the running send any more: it was interrupted, or has timed out.
    pub(super) fn abandon(&mut self) -> Option<Uuid> {
        match std::mem::take(&mut self.state) {
            State::Running(open) => {
                let uuid = open.uuid;
                self.state = State::Draining(open);
                Some(uuid)
            }
            other @ (State::Idle | State::Draining(_) | State::Dead) => {
                self.state = other;
                None
            }
        }
    }

    /// The runtime is gone; gives the send that waited for it.
    pub(super) fn exited(&mut self) -> Option<Uuid> {
        match std::mem::replace(&mut self.state, State::Dead) {
            State::Running(open) => Some(open.uuid),
            State::Idle | State::Draining(_) | State::Dead => None,
        }
    }

    /// There is a new runtime, which knows nothing of what was written to the one before it.
    pub(super) fn revived(&mut self) {
        self.state = State::Idle;
    }

    /// Judges a message.
    pub(super) fn judge(&mut self, message: &Message) -> Verdict {
        let (State::Running(open) | State::Draining(open)) = &mut self.state else {
            return Verdict::Unowned;
        };
        match open.see(message) {
            Some(ending) => self.settle(ending),
            None => match &self.state {
                State::Running(open) => Verdict::Belongs(open.uuid),
                State::Draining(_) | State::Idle | State::Dead => Verdict::Unowned,
            },
        }
    }

    /// Whether all that is missing is the certainty that nothing more comes; see [`Self::quiet`].
    pub(super) fn awaits_quiet(&self) -> bool {
        match &self.state {
            State::Running(open) | State::Draining(open) => open.idle && open.unclaimed.is_some(),
            State::Idle | State::Dead => false,
        }
    }

    /// The runtime has been idle and silent for a while after a result that does not say whose it is. A
    /// message that it has not read yet would have made it busy, so the result was this one's.
    pub(super) fn quiet(&mut self) -> Verdict {
        let (State::Running(open) | State::Draining(open)) = &mut self.state else {
            return Verdict::Unowned;
        };
        match open.unclaimed.take_if(|_| open.idle) {
            Some(result) => self.settle(Ending::Result(result)),
            None => Verdict::Unowned,
        }
    }

    fn settle(&mut self, ending: Ending) -> Verdict {
        match std::mem::take(&mut self.state) {
            State::Running(open) => Verdict::Settled(open.uuid, ending),
            State::Draining(_) => Verdict::Drained,
            other @ (State::Idle | State::Dead) => {
                self.state = other;
                Verdict::Unowned
            }
        }
    }
}

impl Open {
    /// Looks at a message; gives what the open one came to if this was its last.
    fn see(&mut self, message: &Message) -> Option<Ending> {
        if self.is_taken_up_by(message) {
            self.taken_up = true;
            // Whatever came before was of another turn.
            self.unclaimed = None;
        }
        if let Message::Result(result) = message {
            return self.result(result);
        }
        if let Message::CommandLifecycle(lifecycle) = message {
            let is_dropped = lifecycle.command_uuid.as_deref() == Some(&self.name)
                && lifecycle.state.as_deref() == Some("cancelled");
            return is_dropped.then_some(Ending::Cancelled);
        }
        if let Message::System(SystemMessage::SessionStateChanged(changed)) = message {
            self.idle = changed.state.as_deref() == Some("idle");
            return (self.idle && self.taken_up).then_some(Ending::NoResult);
        }
        if let Message::System(SystemMessage::Init(_)) = message {
            self.idle = false;
        }
        None
    }

    fn result(&mut self, result: &ResultMessage) -> Option<Ending> {
        let answered = answered(result);
        let is_ours = match (answered.is_empty(), result.origin.is_some()) {
            (false, _) => answered.contains(&self.name.as_str()),
            (true, true) => false,
            // Only commands that no model saw have no reason for their end, and older runtimes do not echo
            // them; nothing that runs unasked is one.
            (true, false) => self.taken_up || self.is_command && result.terminal_reason.is_none(),
        };
        if is_ours {
            return Some(Ending::Result(Box::new(result.clone())));
        }
        if answered.is_empty() && result.origin.is_none() {
            self.unclaimed = Some(Box::new(result.clone()));
            self.idle = false;
        }
        None
    }

    fn is_taken_up_by(&self, message: &Message) -> bool {
        let named =
            |uuids: &Option<Vec<String>>| uuids.as_ref().is_some_and(|uuids| uuids.contains(&self.name));
        match message {
            Message::User(user) => {
                user.is_replay == Some(true) && user.uuid.as_deref() == Some(self.name.as_str())
            }
            Message::CommandLifecycle(lifecycle) => {
                lifecycle.command_uuid.as_deref() == Some(self.name.as_str())
                    && matches!(lifecycle.state.as_deref(), Some("started" | "completed"))
            }
            Message::StreamEvent(event) => named(&event.user_message_uuids),
            Message::Assistant(message) => named(&message.user_message_uuids),
            Message::System(_)
            | Message::Result(_)
            | Message::ControlRequest(_)
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

/// The uuids of the messages that a result answers, where the runtime says so.
fn answered(result: &ResultMessage) -> Vec<&str> {
    let several = result.user_message_uuids.iter().flatten().map(String::as_str);
    several.chain(result.user_message_uuid.as_deref()).collect()
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
