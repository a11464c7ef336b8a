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
}

#[derive(Debug, Default)]
enum State {
    /// Nothing was asked of the runtime.
    #[default]
    Idle,
    /// A message was written and is being worked on.
    Running(Running),
    /// The turn was cancelled; the runtime has not stopped working on it yet.
    Draining,
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

    /// The running turn.
    pub(super) fn running(&self) -> Option<&TurnId> {
        match &self.state {
            State::Running(running) => Some(&running.turn),
            State::Idle | State::Draining => None,
        }
    }

    /// A message was written for a turn.
    pub(super) fn wrote(&mut self, turn: TurnId, uuid: String) {
        self.state = State::Running(Running { turn, uuid, taken_up: false });
    }

    /// The turn is cancelled. Answers whether the runtime has to be interrupted.
    pub(super) fn cancel(&mut self, turn: &TurnId) -> bool {
        let running = self.running() == Some(turn);
        if running {
            self.state = State::Draining;
        }
        running
    }

    /// The runtime is gone, and with it the turn.
    pub(super) fn exited(&mut self) -> Option<TurnId> {
        match std::mem::take(&mut self.state) {
            State::Running(running) => Some(running.turn),
            State::Idle | State::Draining => None,
        }
    }

    /// Judges a message of the main thread.
    pub(super) fn judge(&mut self, message: &Message) -> Verdict {
        match &mut self.state {
            State::Idle => Verdict::Unowned,
            State::Draining => {
                if ends_any_turn(message) {
                    self.state = State::Idle;
                    Verdict::Drained
                } else {
                    Verdict::Unowned
                }
            }
            State::Running(running) => {
                running.taken_up |= takes_up(message, &running.uuid);
                let turn = running.turn.clone();
                if running.is_ended_by(message) {
                    self.state = State::Idle;
                    Verdict::Ends(turn)
                } else {
                    Verdict::Belongs(turn)
                }
            }
        }
    }
}

impl Running {
    fn is_ended_by(&self, message: &Message) -> bool {
        match message {
            Message::Result(result) => match answered(result) {
                Some(uuids) => uuids.contains(&self.uuid),
                None => self.taken_up,
            },
            // A runtime that says it is idle will send no result any more.
            Message::System(SystemMessage::SessionStateChanged(changed)) => {
                self.taken_up && changed.state.as_deref() == Some("idle")
            }
            _ => false,
        }
    }
}

/// The uuids of the messages that a result answers, if the runtime says so.
fn answered(result: &ResultMessage) -> Option<&[String]> {
    result.user_message_uuids.as_deref().filter(|uuids| !uuids.is_empty())
}

/// Whether a message shows that the runtime works on the message with this uuid.
fn takes_up(message: &Message, uuid: &str) -> bool {
    match message {
        Message::User(user) => user.is_replay == Some(true) && user.uuid.as_deref() == Some(uuid),
        Message::CommandLifecycle(lifecycle) => {
            lifecycle.command_uuid.as_deref() == Some(uuid) && lifecycle.state.as_deref() != Some("queued")
        }
        // Each turn begins with an init; older runtimes echo the message only later.
        Message::System(SystemMessage::Init(_)) => true,
        _ => false,
    }
}

fn ends_any_turn(message: &Message) -> bool {
    match message {
        Message::Result(_) => true,
        Message::System(SystemMessage::SessionStateChanged(changed)) => {
            changed.state.as_deref() == Some("idle")
        }
        _ => false,
    }
}

#[cfg(test)]
#[path = "turn_tests.rs"]
mod tests;
