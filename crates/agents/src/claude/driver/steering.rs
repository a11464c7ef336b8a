//! Messages that steer the running turn.
//!
//! A message is kept until the runtime works on the turn, and is then written with a priority: `now` cuts
//! off an answer, `next` waits for the end of a tool. `now` would also withdraw an open request and stop a
//! compaction, so it is used only while the model writes text. A slash command is never written: one runtime
//! would give it to the model as text. It stays a waiting message of the session and starts the next turn.

use std::collections::HashSet;

use ahp_types::state::Message as UserInput;
use innkeeper_claude::turns::{PromptKind, TurnKey, TurnOrigin};
use innkeeper_claude::wire::message::StreamEvent;
use innkeeper_claude::wire::{ContentBlock, SystemMessage};
use innkeeper_claude::{Message, Priority, RequestError, UserContent, UserMessage};
use innkeeper_core::agent::{AgentEvent, MessageLink};
use innkeeper_core::ids::TurnId;
use uuid::Uuid;

use super::super::images;
use super::super::prompt::content_blocks;
use super::{ClaudeDriver, End};

/// Maximum number of steering messages of a turn. The session sends one at a time; earlier ones are kept
/// until the runtime has answered their withdrawal. Further ones start the next turn.
const MAX_MESSAGES: usize = 64;

/// Maximum number of open calls that are distinguished, far more than a model starts at once.
const MAX_CALLS: usize = 1024;

/// The steering messages of the running turns.
#[derive(Debug, Default)]
pub(super) struct SteeringMessages {
    messages: Vec<SteeringMessage>,
    /// What the runtime does.
    pub(super) activity: MainThread,
}

/// A steering message that the runtime has not taken up.
#[derive(Debug)]
struct SteeringMessage {
    /// The session's id.
    id: String,
    turn: TurnId,
    message: UserInput,
    /// The runtime's id, once it is written.
    written: Option<Uuid>,
}

impl SteeringMessages {
    /// Forgets the messages of a turn. Returns the runtime's ids of those that are written.
    pub(super) fn forget_turn(&mut self, turn: &TurnId) -> Vec<Uuid> {
        let (gone, left) = std::mem::take(&mut self.messages).into_iter().partition(|it| it.turn == *turn);
        self.messages = left;
        let gone: Vec<SteeringMessage> = gone;
        gone.into_iter().filter_map(|message| message.written).collect()
    }

    fn take(&mut self, uuid: Uuid) -> Option<SteeringMessage> {
        let at = self.messages.iter().position(|message| message.written == Some(uuid))?;
        Some(self.messages.remove(at))
    }
}

/// What the main thread of the runtime does, as far as it matters for steering.
#[derive(Debug, Default)]
pub(super) struct MainThread {
    /// Calls without a result.
    calls: HashSet<String>,
    /// Whether the model writes a call.
    is_writing_call: bool,
    is_compacting: bool,
}

impl MainThread {
    /// Follows a message of the runtime.
    pub(super) fn follow(&mut self, message: &Message) {
        match message {
            Message::StreamEvent(event) if event.parent_tool_use_id.is_none() => match &event.event {
                Some(StreamEvent::ContentBlockStart(start)) => {
                    self.is_writing_call = !start.content_block.as_ref().is_none_or(is_prose);
                }
                Some(StreamEvent::MessageStart(_) | StreamEvent::MessageStop(_)) => {
                    self.is_writing_call = false;
                }
                Some(
                    StreamEvent::ContentBlockDelta(_)
                    | StreamEvent::ContentBlockStop(_)
                    | StreamEvent::MessageDelta(_)
                    | StreamEvent::Error(_)
                    | StreamEvent::Unknown(_),
                )
                | None => {}
            },
            Message::Assistant(assistant) if assistant.parent_tool_use_id.is_none() => {
                let content = assistant.message.as_ref().and_then(|message| message.content.as_ref());
                for block in content.map(|content| content.blocks()).unwrap_or_default() {
                    if let ContentBlock::ToolUse(call) = block
                        && let Some(id) = &call.id
                        && self.calls.len() < MAX_CALLS
                    {
                        self.calls.insert(id.clone());
                    }
                }
            }
            Message::User(user) => {
                let content = user.message.as_ref().and_then(|message| message.content.as_ref());
                for block in content.map(|content| content.blocks()).unwrap_or_default() {
                    if let ContentBlock::ToolResult(result) = block
                        && let Some(id) = &result.tool_use_id
                    {
                        self.calls.remove(id);
                    }
                }
            }
            // Otherwise only the permission mode changes.
            Message::System(SystemMessage::Status(status)) if status.permission_mode.is_none() => {
                self.is_compacting = status.status.as_deref() == Some("compacting");
            }
            // The runtime's turn begins or ends.
            Message::Result(_) | Message::System(SystemMessage::Init(_)) => *self = Self::default(),
            Message::System(_)
            | Message::StreamEvent(_)
            | Message::Assistant(_)
            | Message::ControlRequest(_)
            | Message::ControlResponse(_)
            | Message::ControlCancelRequest(_)
            | Message::CommandLifecycle(_)
            | Message::KeepAlive(_)
            | Message::RateLimit(_)
            | Message::ConversationReset(_)
            | Message::Notice(_)
            | Message::Unknown(_) => {}
        }
    }

    /// Whether the answer can be cut off without losing work.
    fn can_be_cut(&self) -> bool {
        self.calls.is_empty() && !self.is_writing_call && !self.is_compacting
    }
}

fn is_prose(block: &ContentBlock) -> bool {
    match block {
        ContentBlock::Text(_) | ContentBlock::Thinking(_) => true,
        ContentBlock::Unknown(unknown) => unknown.kind == "redacted_thinking",
        ContentBlock::ToolUse(_) | ContentBlock::ToolResult(_) => false,
    }
}

/// Whether the runtime may carry out a text as a command. A path is not one.
fn is_command(text: &str) -> bool {
    let name = text.strip_prefix('/').and_then(|rest| rest.split(char::is_whitespace).next());
    let is_name = |name: &&str| {
        !name.is_empty() && name.chars().all(|it| it.is_ascii_alphanumeric() || ":_-".contains(it))
    };
    name.as_ref().is_some_and(is_name)
}

impl ClaudeDriver {
    /// Accepts a message for a turn; `write_steering` writes it.
    pub(super) fn steer(&mut self, id: String, turn: TurnId, message: UserInput) {
        let is_waiting = self.waiting.as_ref().is_some_and(|waiting| waiting.turn == turn);
        let is_known = is_waiting || self.key_of(&turn).is_some();
        let can_steer = !is_command(&message.text) && images::check(&message).is_ok();
        // Otherwise the session sends it as the next message, which is rejected if an image is invalid.
        if is_known && can_steer && self.steering.messages.len() < MAX_MESSAGES {
            self.steering.messages.push(SteeringMessage { id, turn, message, written: None });
        }
    }

    /// Takes a message back, unless the runtime has it.
    pub(super) fn unsteer(&mut self, id: &str) {
        self.steering.messages.retain(|message| message.id != id || message.written.is_some());
        let written = self.steering.messages.iter().filter(|message| message.id == id);
        for uuid in written.filter_map(|message| message.written) {
            self.requests.withdraw(&self.runtime.controls(), uuid);
        }
    }

    /// Takes back what was written for a cancelled turn. An older runtime would continue with it after the
    /// interrupt.
    pub(super) fn withdraw_steering(&mut self, turn: &TurnId) {
        for uuid in self.steering.forget_turn(turn) {
            self.requests.withdraw(&self.runtime.controls(), uuid);
        }
    }

    /// Handles the runtime's response to the withdrawal of a message.
    pub(super) fn steering_withdrawn(
        &mut self,
        uuid: Uuid,
        answer: Result<(), RequestError>,
    ) -> Result<(), End> {
        if let Err(error) = answer {
            // The runtime reports what it does with the message.
            tracing::debug!(%error, "cannot take a steering message back");
            return Ok(());
        }
        self.steering.take(uuid);
        let verdicts = self.turns.withdraw(uuid);
        self.verdicts(verdicts, None)
    }

    /// Writes the messages of the turns that the runtime works on.
    pub(super) fn write_steering(&mut self) -> Result<(), End> {
        // Messages of the runtime are not read meanwhile, so its state is not known.
        if self.edits.is_recording() {
            return Ok(());
        }
        let can_be_cut = self.steering.activity.can_be_cut() && !self.has_open_requests();
        let priority = if can_be_cut { Priority::Now } else { Priority::Next };
        for at in 0..self.steering.messages.len() {
            let Some(SteeringMessage { turn, message, written: None, .. }) = self.steering.messages.get(at)
            else {
                continue;
            };
            let uuid = Uuid::new_v4();
            let Some(key) = self.key_of(turn).filter(|key| self.turns.is_active(*key)) else { continue };
            if self.turns.steer(key, uuid, PromptKind::Text).is_err() {
                continue;
            }
            let content = UserContent::Blocks(content_blocks(message));
            let message_text = message.text.clone();
            let frame = UserMessage { priority: Some(priority), ..UserMessage::new(uuid, content) };
            self.models.endpoint.mark_turn(self.conversation, &message_text);
            if let Some(steering) = self.steering.messages.get_mut(at) {
                steering.written = Some(uuid);
            }
            if self.background.as_ref().is_some_and(|current| current.key == key) {
                // The turn machine treats it as requested from now on.
                self.requested = self.background.take();
            }
            if let Err(error) = self.runtime.send(&frame) {
                tracing::warn!(%error, "cannot write steering message to the runtime");
                return Err(End::Stop);
            }
        }
        Ok(())
    }

    /// Reports that the runtime has taken up a message.
    pub(super) fn taken_up(&mut self, uuid: Uuid, origin: TurnOrigin) -> Result<(), End> {
        self.has_messages()?;
        let steering = self.steering.take(uuid).filter(|_| origin == TurnOrigin::Steering);
        let Some(SteeringMessage { id, turn, message, .. }) = steering else { return Ok(()) };
        let link = MessageLink::Prompt(uuid.to_string());
        self.events.push(AgentEvent::MessageLinked { turn: turn.clone(), link })?;
        let message = Box::new(message);
        Ok(self.events.push(AgentEvent::SteeringTaken { id, turn, message })?)
    }

    fn key_of(&self, turn: &TurnId) -> Option<TurnKey> {
        let mut turns = [&self.requested, &self.background].into_iter().flatten();
        turns.find(|current| current.turn == *turn).map(|current| current.key)
    }

    /// Whether the runtime waits for an answer of the host or of a user.
    fn has_open_requests(&self) -> bool {
        !self.waiting_requests.is_empty() || !self.preparing.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_commands_are_commands() {
        for text in ["/compact", "/nosuch thing", "/plugin:do-it now"] {
            assert!(is_command(text), "{text}");
        }
        for text in ["", "/", "/ x", "/etc/hosts is wrong", "see /compact", "/über"] {
            assert!(!is_command(text), "{text}");
        }
    }
}
