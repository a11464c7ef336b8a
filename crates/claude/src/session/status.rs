//! The status of a session.
//!
//! Pure: derived from sends, requests and messages.

use std::collections::BTreeSet;

use crate::event::EventKind;
use crate::process::Exit;
use crate::wire::{Message, SystemMessage};

/// The status of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// Ready for a send.
    Idle,
    /// A turn is running.
    Streaming,
    /// A turn is running and the model is thinking.
    Thinking,
    /// A turn is waiting for an answer from the user.
    AwaitingApproval,
    /// The runtime exited unexpectedly. The next send starts a new one.
    Error(UnexpectedExit),
    /// The session has ended.
    Terminated,
}

/// The runtime exited unexpectedly, without a pending result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the runtime {exit}{}", said(exit))]
pub struct UnexpectedExit {
    /// Exit code, signal and end of stderr.
    pub exit: Exit,
}

fn said(exit: &Exit) -> String {
    if exit.stderr_tail.is_empty() { String::new() } else { format!("; stderr: {}", exit.stderr_tail) }
}

/// Derives the status from the activity of a session.
#[derive(Debug, Default)]
pub(super) struct StatusTracker {
    phase: StatusPhase,
    /// Ids of pending requests that need an answer from the user.
    questions: BTreeSet<String>,
}

#[derive(Debug, Default)]
enum StatusPhase {
    #[default]
    Idle,
    Streaming,
    Thinking,
    Broken(UnexpectedExit),
    Terminated,
}

impl StatusTracker {
    /// The current status.
    pub(super) fn status(&self) -> Status {
        match &self.phase {
            StatusPhase::Terminated => Status::Terminated,
            StatusPhase::Broken(exit) => Status::Error(exit.clone()),
            StatusPhase::Idle | StatusPhase::Streaming | StatusPhase::Thinking
                if !self.questions.is_empty() =>
            {
                Status::AwaitingApproval
            }
            StatusPhase::Idle => Status::Idle,
            StatusPhase::Streaming => Status::Streaming,
            StatusPhase::Thinking => Status::Thinking,
        }
    }

    /// Handles the start or end of a turn.
    pub(super) fn turn(&mut self, turn: TurnEdge) {
        if !matches!(self.phase, StatusPhase::Terminated) {
            self.phase = match turn {
                TurnEdge::Begins => StatusPhase::Streaming,
                TurnEdge::Ends => StatusPhase::Idle,
            };
        }
    }

    /// Handles a message and the events it maps to.
    pub(super) fn message(&mut self, message: &Message, kinds: &[EventKind]) {
        if matches!(self.phase, StatusPhase::Terminated | StatusPhase::Broken(_)) {
            return;
        }
        if let Message::Result(result) = message {
            if result.queued_turn_count.unwrap_or(0) == 0 {
                self.phase = StatusPhase::Idle;
            }
            return;
        }
        if let Message::System(system) = message {
            self.system(system);
            return;
        }
        for kind in kinds {
            match kind {
                EventKind::ThinkingDelta { .. } | EventKind::Thinking { .. } => {
                    self.phase = StatusPhase::Thinking
                }
                EventKind::TextDelta { .. }
                | EventKind::Text { .. }
                | EventKind::ToolUse { .. }
                | EventKind::ToolResult { .. } => self.phase = StatusPhase::Streaming,
                EventKind::SessionStart { .. }
                | EventKind::SessionEnd { .. }
                | EventKind::Result { .. }
                | EventKind::Error { .. }
                | EventKind::Compaction { .. }
                | EventKind::Other => {}
            }
        }
    }

    fn system(&mut self, message: &SystemMessage) {
        if let SystemMessage::Init(_) = message {
            self.phase = StatusPhase::Streaming;
        }
        if let SystemMessage::SessionStateChanged(changed) = message {
            match changed.state.as_deref() {
                Some("idle") => self.phase = StatusPhase::Idle,
                Some("running") if matches!(self.phase, StatusPhase::Idle) => {
                    self.phase = StatusPhase::Streaming
                }
                Some(_) | None => {}
            }
        }
    }

    /// Adds a pending request.
    pub(super) fn asked(&mut self, id: &str) {
        self.questions.insert(id.to_owned());
    }

    /// Removes a request that was answered or cancelled.
    pub(super) fn answered(&mut self, id: &str) {
        self.questions.remove(id);
    }

    /// Handles the exit of the runtime.
    pub(super) fn exited(&mut self, unexpected: Option<UnexpectedExit>) {
        self.questions.clear();
        if !matches!(self.phase, StatusPhase::Terminated) {
            self.phase = unexpected.map_or(StatusPhase::Idle, StatusPhase::Broken);
        }
    }

    /// Handles the end of the session.
    pub(super) fn terminated(&mut self) {
        self.questions.clear();
        self.phase = StatusPhase::Terminated;
    }
}

/// The start or end of a turn.
#[derive(Debug, Clone, Copy)]
pub(super) enum TurnEdge {
    Begins,
    Ends,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::classify;
    use crate::process::ExitReason;
    use crate::wire::decode;

    fn say(tracker: &mut StatusTracker, line: &str) -> Status {
        let message = decode(line.as_bytes()).unwrap();
        tracker.message(&message, &classify(&message));
        tracker.status()
    }

    #[test]
    fn turn_goes_through_streaming_thinking_and_approval_to_idle() {
        let mut tracker = StatusTracker::default();
        assert_eq!(tracker.status(), Status::Idle);
        tracker.turn(TurnEdge::Begins);
        assert_eq!(tracker.status(), Status::Streaming);
        let delta = |delta: &str| {
            format!(r#"{{"type":"stream_event","event":{{"type":"content_block_delta","delta":{delta}}}}}"#)
        };
        let thinking = delta(r#"{"type":"thinking_delta","thinking":"hm"}"#);
        assert_eq!(say(&mut tracker, &thinking), Status::Thinking);
        let text = delta(r#"{"type":"text_delta","text":"a"}"#);
        assert_eq!(say(&mut tracker, &text), Status::Streaming);
        tracker.asked("q");
        assert_eq!(tracker.status(), Status::AwaitingApproval);
        tracker.answered("q");
        assert_eq!(tracker.status(), Status::Streaming);
        let queued = r#"{"type":"result","subtype":"success","queued_turn_count":1}"#;
        assert_eq!(say(&mut tracker, queued), Status::Streaming);
        assert_eq!(say(&mut tracker, r#"{"type":"result","subtype":"success"}"#), Status::Idle);
    }

    #[test]
    fn unsolicited_turn_changes_status() {
        let mut tracker = StatusTracker::default();
        assert_eq!(say(&mut tracker, r#"{"type":"system","subtype":"init"}"#), Status::Streaming);
        let idle = r#"{"type":"system","subtype":"session_state_changed","state":"idle"}"#;
        assert_eq!(say(&mut tracker, idle), Status::Idle);
    }

    #[test]
    fn exit_is_an_error_until_next_turn_but_termination_is_final() {
        let mut tracker = StatusTracker::default();
        let exit =
            Exit { code: Some(3), signal: None, stderr_tail: "no".to_owned(), reason: ExitReason::OnItsOwn };
        tracker.exited(Some(UnexpectedExit { exit: exit.clone() }));
        assert_eq!(tracker.status(), Status::Error(UnexpectedExit { exit: exit.clone() }));
        assert_eq!(UnexpectedExit { exit }.to_string(), "the runtime exited with code 3; stderr: no");
        tracker.turn(TurnEdge::Begins);
        assert_eq!(tracker.status(), Status::Streaming);
        tracker.terminated();
        tracker.turn(TurnEdge::Begins);
        tracker.exited(None);
        assert_eq!(tracker.status(), Status::Terminated);
    }
}
