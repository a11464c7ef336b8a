//! The record of a session.
//!
//! Owns the kept events and the counts over all events. Keeps only complete blocks, no deltas. Above a
//! limit the oldest events are dropped and counted.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::SystemTime;

use uuid::Uuid;

use crate::event::{EventKind, SessionEvent, Tokens};

/// Approximate limit of kept events in bytes. A day's work is a few megabytes; above the limit the oldest
/// events are dropped and counted.
const KEPT_LIMIT: usize = 32 * 1024 * 1024;

/// The record of a session.
#[derive(Debug, Clone)]
pub struct Artifact {
    /// Id of the conversation.
    pub conversation: Uuid,
    /// Start of the session.
    pub started_at: SystemTime,
    /// End of the session, if it has ended.
    pub ended_at: Option<SystemTime>,
    /// Events, oldest first, without deltas.
    pub events: Vec<Arc<SessionEvent>>,
    /// Number of dropped events at the front.
    pub dropped_events: u64,
    /// Number of answered sends.
    pub turns: u64,
    /// Token counts of all turns.
    pub tokens: Tokens,
    /// Number of tool calls.
    pub tool_calls: u64,
    /// Number of tool results.
    pub tool_results: u64,
    /// Number of errors.
    pub errors: u64,
}

/// Records events.
#[derive(Debug)]
pub(super) struct Recorder {
    artifact: Artifact,
    events: VecDeque<(Arc<SessionEvent>, usize)>,
    bytes: usize,
}

impl Recorder {
    pub(super) fn new(conversation: Uuid, started_at: SystemTime) -> Self {
        let artifact = Artifact {
            conversation,
            started_at,
            ended_at: None,
            events: Vec::new(),
            dropped_events: 0,
            turns: 0,
            tokens: Tokens::default(),
            tool_calls: 0,
            tool_results: 0,
            errors: 0,
        };
        Self { artifact, events: VecDeque::new(), bytes: 0 }
    }

    /// The record so far.
    pub(super) fn artifact(&self) -> Artifact {
        let events = self.events.iter().map(|(event, _)| Arc::clone(event)).collect();
        Artifact { events, ..self.artifact.clone() }
    }

    pub(super) fn record(&mut self, event: &SessionEvent) {
        let artifact = &mut self.artifact;
        match &event.kind {
            EventKind::TextDelta { .. } | EventKind::ThinkingDelta { .. } | EventKind::Other => return,
            EventKind::ToolUse { .. } => artifact.tool_calls += 1,
            EventKind::ToolResult { .. } => artifact.tool_results += 1,
            EventKind::Result { tokens, .. } => artifact.tokens = artifact.tokens.plus(*tokens),
            EventKind::Error { .. } => artifact.errors += 1,
            EventKind::SessionStart { .. }
            | EventKind::SessionEnd { .. }
            | EventKind::Text { .. }
            | EventKind::Thinking { .. }
            | EventKind::Compaction { .. } => {}
        }
        let weight = event.kind.weight();
        self.bytes += weight;
        self.events.push_back((Arc::new(SessionEvent { message: None, ..event.clone() }), weight));
        while self.bytes > KEPT_LIMIT
            && let Some((_, weight)) = self.events.pop_front()
        {
            self.bytes -= weight;
            artifact.dropped_events += 1;
        }
    }

    pub(super) fn turn_answered(&mut self) {
        self.artifact.turns += 1;
    }

    pub(super) fn conversation_is(&mut self, conversation: Uuid) {
        self.artifact.conversation = conversation;
    }

    pub(super) fn ended(&mut self, at: SystemTime) {
        self.artifact.ended_at.get_or_insert(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: EventKind) -> SessionEvent {
        SessionEvent { at: SystemTime::UNIX_EPOCH, turn: None, subagent: None, kind, message: None }
    }

    #[test]
    fn record_counts_all_events_and_keeps_complete_blocks() {
        let mut recorder = Recorder::new(Uuid::nil(), SystemTime::UNIX_EPOCH);
        let tokens = Tokens { input: 3, output: 4, ..Tokens::default() };
        let text = |text: &str| text.to_owned();
        for kind in [
            EventKind::TextDelta { text: text("h") },
            EventKind::Text { text: text("hi") },
            EventKind::ToolUse { id: text("t"), name: text("Read"), input: None },
            EventKind::ToolResult { tool_use_id: text("t"), output: text("x"), is_error: true },
            EventKind::Error { message: text("no") },
            EventKind::Result { text: text("hi"), is_error: false, tokens },
            EventKind::Result { text: text("hi"), is_error: false, tokens },
        ] {
            recorder.record(&event(kind));
        }
        recorder.turn_answered();
        let artifact = recorder.artifact();
        assert_eq!(
            (artifact.turns, artifact.tool_calls, artifact.tool_results, artifact.errors),
            (1, 1, 1, 1)
        );
        assert_eq!((artifact.tokens.input, artifact.tokens.output), (6, 8));
        assert_eq!(artifact.events.len(), 6);
    }

    #[test]
    fn oldest_events_are_dropped_and_counted_above_limit() {
        let mut recorder = Recorder::new(Uuid::nil(), SystemTime::UNIX_EPOCH);
        for _ in 0..5 {
            recorder.record(&event(EventKind::Text { text: "x".repeat(KEPT_LIMIT / 4) }));
        }
        let artifact = recorder.artifact();
        assert_eq!((artifact.events.len(), artifact.dropped_events), (3, 2));
    }
}
