//! What a session is doing, for somebody who looks at it.
//!
//! Pure: derived from what is sent, asked and said. Decides nothing.

use std::collections::BTreeSet;

use crate::event::EventKind;
use crate::process::Exit;
use crate::wire::{Message, SystemMessage};

/// What a session is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// Nothing; it takes a send at once.
    Idle,
    /// A turn runs.
    Streaming,
    /// A turn runs, and the model thinks.
    Thinking,
    /// A turn waits for the answer to a question.
    AwaitingApproval,
    /// The runtime ended without being asked to. The next send starts another one.
    Error(UnexpectedExit),
    /// It is over.
    Terminated,
}

/// A runtime ended without being asked to, and without the result that was due.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the runtime {exit}{}", said(exit))]
pub struct UnexpectedExit {
    /// How it ended: code, signal and the tail of its stderr.
    pub exit: Exit,
}

fn said(exit: &Exit) -> String {
    if exit.stderr_tail.is_empty() { String::new() } else { format!("; it said: {}", exit.stderr_tail) }
}

/// Follows a session.
#[derive(Debug, Default)]
pub(super) struct StatusTracker {
    phase: Phase,
    /// The ids of open questions that a person has to answer.
    questions: BTreeSet<String>,
}

#[derive(Debug, Default)]
enum Phase {
    #[default]
    Idle,
    Streaming,
    Thinking,
    Broken(UnexpectedExit),
    Terminated,
}

impl StatusTracker {
    /// The status now.
    pub(super) fn status(&self) -> Status {
        match &self.phase {
            Phase::Terminated => Status::Terminated,
            Phase::Broken(exit) => Status::Error(exit.clone()),
            Phase::Idle | Phase::Streaming | Phase::Thinking if !self.questions.is_empty() => {
                Status::AwaitingApproval
            }
            Phase::Idle => Status::Idle,
            Phase::Streaming => Status::Streaming,
            Phase::Thinking => Status::Thinking,
        }
    }

    /// A turn begins or ends.
    pub(super) fn turn(&mut self, turn: TurnEdge) {
        if !matches!(self.phase, Phase::Terminated) {
            self.phase = match turn {
                TurnEdge::Begins => Phase::Streaming,
                TurnEdge::Ends => Phase::Idle,
            };
        }
    }

    /// The runtime said something, which means these things.
    pub(super) fn message(&mut self, message: &Message, kinds: &[EventKind]) {
        if matches!(self.phase, Phase::Terminated | Phase::Broken(_)) {
            return;
        }
        if let Message::Result(result) = message {
            if result.queued_turn_count.unwrap_or(0) == 0 {
                self.phase = Phase::Idle;
            }
            return;
        }
        if let Message::System(system) = message {
            self.system(system);
            return;
        }
        for kind in kinds {
            match kind {
                EventKind::ThinkingDelta { .. } | EventKind::Thinking { .. } => self.phase = Phase::Thinking,
                EventKind::TextDelta { .. }
                | EventKind::Text { .. }
                | EventKind::ToolUse { .. }
                | EventKind::ToolResult { .. } => self.phase = Phase::Streaming,
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
            self.phase = Phase::Streaming;
        }
        if let SystemMessage::SessionStateChanged(changed) = message {
            match changed.state.as_deref() {
                Some("idle") => self.phase = Phase::Idle,
                Some("running") if matches!(self.phase, Phase::Idle) => self.phase = Phase::Streaming,
                Some(_) | None => {}
            }
        }
    }

    /// A question was asked.
    pub(super) fn asked(&mut self, id: &str) {
        self.questions.insert(id.to_owned());
    }

    /// A question was answered or withdrawn.
    pub(super) fn answered(&mut self, id: &str) {
        self.questions.remove(id);
    }

    /// The runtime is gone, unasked or not.
    pub(super) fn exited(&mut self, unexpected: Option<UnexpectedExit>) {
        self.questions.clear();
        if !matches!(self.phase, Phase::Terminated) {
            self.phase = unexpected.map_or(Phase::Idle, Phase::Broken);
        }
    }

    /// The session is over.
    pub(super) fn terminated(&mut self) {
        self.questions.clear();
        self.phase = Phase::Terminated;
    }
}

/// A turn's beginning or end.
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
    fn a_turn_goes_from_streaming_over_thinking_and_a_question_to_idle() {
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
    fn work_that_nobody_asked_for_shows_too() {
        let mut tracker = StatusTracker::default();
        assert_eq!(say(&mut tracker, r#"{"type":"system","subtype":"init"}"#), Status::Streaming);
        let idle = r#"{"type":"system","subtype":"session_state_changed","state":"idle"}"#;
        assert_eq!(say(&mut tracker, idle), Status::Idle);
    }

    #[test]
    fn an_exit_is_an_error_until_the_next_turn_and_the_end_stays() {
        let mut tracker = StatusTracker::default();
        let exit =
            Exit { code: Some(3), signal: None, stderr_tail: "no".to_owned(), reason: ExitReason::OnItsOwn };
        tracker.exited(Some(UnexpectedExit { exit: exit.clone() }));
        assert_eq!(tracker.status(), Status::Error(UnexpectedExit { exit: exit.clone() }));
        assert_eq!(UnexpectedExit { exit }.to_string(), "the runtime exited with code 3; it said: no");
        tracker.turn(TurnEdge::Begins);
        assert_eq!(tracker.status(), Status::Streaming);
        tracker.terminated();
        tracker.turn(TurnEdge::Begins);
        tracker.exited(None);
        assert_eq!(tracker.status(), Status::Terminated);
    }
}
