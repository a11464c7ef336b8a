//! Which turn a message of the runtime belongs to, and when a turn is over.
//!
//! Pure. A turn is settled by the uuid of the message that opened it, never by
//! counting results: the runtime also works unasked, merges messages, and ends an
//! interrupted turn with a result of its own.

use innkeeper_claude::Message;
use innkeeper_claude::wire::{SystemMessage, message::ResultMessage};
use innkeeper_core::ids::TurnId;

/// Where the conversation is.
#[derive(Debug, Default)]
pub(super) struct TurnMachine {
    state: State,
    /// Whether the runtime names the messages that it works on. Newer ones do, from
    /// their first message on; of older ones it has to be guessed.
    names_messages: bool,
}

#[derive(Debug, Default)]
enum State {
    /// Nothing was asked of the runtime.
    #[default]
    Idle,
    /// A message was written and is being worked on.
    Running(Running),
    /// The turn was cancelled. It is over when the runtime has stopped working and
    /// has answered the interrupt: an interrupt that is still on its way would hit
    /// whatever is written next.
    Draining { stopped: bool, interrupt_answered: bool },
}

#[derive(Debug)]
struct Running {
    turn: TurnId,
    /// The uuid that the message was written with.
    uuid: String,
    /// Whether the runtime has taken the message up.
    taken_up: bool,
}

/// What a message means for the running turn.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It belongs to this turn.
    Belongs(TurnId),
    /// It belongs to this turn and ends it.
    Ends(TurnId),
    /// It is of no turn that anybody waits for.
    Unowned,
    /// The cancelled turn is over: the runtime is free again.
    Drained,
}

impl TurnMachine {
    /// Whether a message can be written now.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// A message was written for a turn.
    pub(super) fn wrote(&mut self, turn: TurnId, uuid: String) {
        self.state = State::Running(Running { turn, uuid, taken_up: false });
    }

    /// The turn is cancelled. Answers whether the runtime has to be interrupted.
    pub(super) fn cancel(&mut self, turn: &TurnId) -> bool {
        let running = matches!(&self.state, State::Running(running) if running.turn == *turn);
        if running {
            self.state = State::Draining { stopped: false, interrupt_answered: false };
        }
        running
    }

    /// The runtime has answered the interrupt.
    pub(super) fn interrupt_answered(&mut self) -> Verdict {
        if let State::Draining { interrupt_answered, .. } = &mut self.state {
            *interrupt_answered = true;
        }
        self.drained()
    }

    /// The runtime is gone, and with it the turn.
    pub(super) fn exited(&mut self) -> Option<TurnId> {
        match std::mem::take(&mut self.state) {
            State::Running(running) => Some(running.turn),
            State::Idle | State::Draining { .. } => None,
        }
    }

    /// Judges a message of the main thread.
    pub(super) fn judge(&mut self, message: &Message) -> Verdict {
        self.names_messages |= matches!(message, Message::CommandLifecycle(_)) || named(message).is_some();
        let names_messages = self.names_messages;
        match &mut self.state {
            State::Idle => Verdict::Unowned,
            State::Draining { stopped, .. } => {
                *stopped |= stops_working(message);
                self.drained()
            }
            State::Running(running) => {
                running.taken_up |= running.is_taken_up_by(message, names_messages);
                if running.is_ended_by(message) {
                    let turn = running.turn.clone();
                    self.state = State::Idle;
                    Verdict::Ends(turn)
                } else if running.owns(message) {
                    Verdict::Belongs(running.turn.clone())
                } else {
                    Verdict::Unowned
                }
            }
        }
    }

    fn drained(&mut self) -> Verdict {
        if matches!(self.state, State::Draining { stopped: true, interrupt_answered: true }) {
            self.state = State::Idle;
            return Verdict::Drained;
        }
        Verdict::Unowned
    }
}

impl Running {
    /// Whether a message shows that the runtime works on ours.
    fn is_taken_up_by(&self, message: &Message, names_messages: bool) -> bool {
        match message {
            Message::User(user) => {
                user.is_replay == Some(true) && user.uuid.as_deref() == Some(self.uuid.as_str())
            }
            Message::CommandLifecycle(lifecycle) => {
                lifecycle.command_uuid.as_deref() == Some(self.uuid.as_str())
                    && lifecycle.state.as_deref() != Some("queued")
            }
            // Each turn begins with an init; older runtimes echo the message only later.
            Message::System(SystemMessage::Init(_)) if !names_messages => true,
            other => named(other).is_some_and(|uuids| uuids.contains(&self.uuid)),
        }
    }

    fn is_ended_by(&self, message: &Message) -> bool {
        match message {
            Message::Result(result) => match named(message) {
                Some(uuids) => uuids.contains(&self.uuid),
                None => self.taken_up && !is_unasked(result),
            },
            // A runtime that says it is idle will send no result any more.
            Message::System(SystemMessage::SessionStateChanged(changed)) => {
                self.taken_up && changed.state.as_deref() == Some("idle")
            }
            _ => false,
        }
    }

    /// Whether a message is about ours: the runtime has taken it up, and does not say
    /// that the message is about others.
    fn owns(&self, message: &Message) -> bool {
        let unasked = matches!(message, Message::Result(result) if is_unasked(result));
        self.taken_up && !unasked && named(message).is_none_or(|uuids| uuids.contains(&self.uuid))
    }
}

/// The uuids of the messages that a message is about, where the runtime says so.
fn named(message: &Message) -> Option<&[String]> {
    let uuids = match message {
        Message::StreamEvent(message) => &message.user_message_uuids,
        Message::Assistant(message) => &message.user_message_uuids,
        Message::Result(message) => &message.user_message_uuids,
        _ => return None,
    };
    uuids.as_deref().filter(|uuids| !uuids.is_empty())
}

/// Whether a result is of a turn that the runtime started by itself.
fn is_unasked(result: &ResultMessage) -> bool {
    result.origin.as_ref().is_some_and(|origin| origin.get().contains("task-notification"))
}

fn stops_working(message: &Message) -> bool {
    match message {
        Message::Result(result) => !is_unasked(result),
        Message::System(SystemMessage::SessionStateChanged(changed)) => {
            changed.state.as_deref() == Some("idle")
        }
        // It was dropped before it was taken up, so there will be no result.
        Message::CommandLifecycle(lifecycle) => lifecycle.state.as_deref() == Some("cancelled"),
        _ => false,
    }
}

#[cfg(test)]
#[path = "turn_tests.rs"]
mod tests;
