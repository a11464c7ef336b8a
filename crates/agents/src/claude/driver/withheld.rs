//! Detects results that older runtimes hold back while a subagent works in the background.
//!
//! Such a runtime reports no result and no idle state before the subagent has ended, although it would
//! answer the next message. Without this, the turn would last as long as the subagent, and a cancelled
//! turn would never seem to end.

use std::time::Duration;

use innkeeper_claude::Message;
use innkeeper_claude::wire::SystemMessage;
use innkeeper_claude::wire::content::ContentBlock;
use innkeeper_claude::wire::message::{StreamEvent, StreamEventMessage, UserFrameMessage};
use tokio::time::Instant;

use super::{ClaudeDriver, End};

/// How long after a complete answer the result is awaited. A result that is not held back follows at
/// once.
const WITHHELD_AFTER: Duration = Duration::from_millis(500);

/// Start of the runtime's note about an interrupt.
const INTERRUPTED: &str = "[Request interrupted by user";

/// Whether the model's answer is complete.
#[derive(Debug, Default)]
pub(super) struct AnswerEnd {
    /// Whether the model ended its turn with the message that is being streamed.
    ends_turn: bool,
    is_complete: bool,
    /// Running hooks, which may continue the turn.
    hooks: u32,
    /// When the result counts as held back.
    pub(super) at: Option<Instant>,
}

impl AnswerEnd {
    fn follow(&mut self, message: &Message) {
        let continues = match message {
            Message::StreamEvent(event) if event.parent_tool_use_id.is_none() => return self.stream(event),
            Message::System(message) => self.system(message),
            Message::User(frame) => frame.parent_tool_use_id.is_none(),
            Message::Result(_) => true,
            Message::StreamEvent(_)
            | Message::Assistant(_)
            | Message::ControlRequest(_)
            | Message::ControlResponse(_)
            | Message::ControlCancelRequest(_)
            | Message::KeepAlive(_)
            | Message::RateLimit(_)
            | Message::CommandLifecycle(_)
            | Message::ConversationReset(_)
            | Message::Notice(_)
            | Message::Unknown(_) => false,
        };
        self.is_complete &= !continues;
    }

    /// Whether the runtime goes on after the answer.
    fn system(&mut self, message: &SystemMessage) -> bool {
        match message {
            SystemMessage::HookStarted(_) => self.hooks = self.hooks.saturating_add(1),
            SystemMessage::HookResponse(_) => self.hooks = self.hooks.saturating_sub(1),
            SystemMessage::Init(_)
            | SystemMessage::SessionStateChanged(_)
            | SystemMessage::CompactBoundary(_) => return true,
            SystemMessage::Status(status) => return status.status.is_some(),
            SystemMessage::ApiRetry(_)
            | SystemMessage::TaskStarted(_)
            | SystemMessage::TaskProgress(_)
            | SystemMessage::TaskUpdated(_)
            | SystemMessage::TaskNotification(_)
            | SystemMessage::HookProgress(_)
            | SystemMessage::Notice(_)
            | SystemMessage::Unknown(_) => {}
        }
        false
    }

    fn stream(&mut self, message: &StreamEventMessage) {
        match &message.event {
            Some(StreamEvent::MessageStart(_)) => {
                (self.ends_turn, self.is_complete, self.hooks) = (false, false, 0);
            }
            Some(StreamEvent::MessageDelta(delta)) => {
                let reason = delta.delta.as_ref().and_then(|delta| delta.stop_reason.as_deref());
                self.ends_turn |= matches!(reason, Some("end_turn" | "stop_sequence"));
            }
            Some(StreamEvent::MessageStop(_)) => self.is_complete = self.ends_turn,
            Some(
                StreamEvent::ContentBlockStart(_)
                | StreamEvent::ContentBlockDelta(_)
                | StreamEvent::ContentBlockStop(_)
                | StreamEvent::Error(_)
                | StreamEvent::Unknown(_),
            )
            | None => {}
        }
    }
}

impl ClaudeDriver {
    /// Follows the end of the model's answers. Ends a cancelled turn whose result is held back.
    pub(super) fn follow_answer(&mut self, message: &Message) -> Result<(), End> {
        self.answer_end.follow(message);
        let is_withheld = self.answer_end.is_complete
            && self.answer_end.hooks == 0
            && (self.requested.is_some() || self.background.is_some())
            && self.edits.tasks().withholds_results();
        self.answer_end.at = match (is_withheld, self.answer_end.at) {
            (false, _) => None,
            (true, Some(at)) => Some(at),
            (true, None) => Some(Instant::now() + WITHHELD_AFTER),
        };
        if let Message::User(frame) = message
            && self.turns.is_draining()
            && is_interrupt_note(frame)
            && self.edits.tasks().withholds_results()
        {
            return self.result_withheld();
        }
        Ok(())
    }

    /// Ends the turn without a result.
    pub(super) fn result_withheld(&mut self) -> Result<(), End> {
        self.answer_end.at = None;
        self.answer_end.is_complete = false;
        let verdicts = self.turns.result_withheld();
        self.verdicts(verdicts, None)
    }
}

fn is_interrupt_note(frame: &UserFrameMessage) -> bool {
    let content = frame.message.as_ref().and_then(|message| message.content.as_ref());
    let is_note = |block: &ContentBlock| match block {
        ContentBlock::Text(block) => block.text.as_deref().is_some_and(|text| text.starts_with(INTERRUPTED)),
        ContentBlock::Thinking(_)
        | ContentBlock::ToolUse(_)
        | ContentBlock::ToolResult(_)
        | ContentBlock::Unknown(_) => false,
    };
    frame.parent_tool_use_id.is_none() && content.is_some_and(|content| content.blocks().iter().any(is_note))
}
