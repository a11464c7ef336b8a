//! Maps the runtime's messages to AHP actions. Pure: same messages, same actions.
//!
//! `text` maps text and reasoning, `tools` maps tool calls, `results` maps the
//! end of a turn. A streamed block is mapped from its stream events; the complete
//! message that follows is used only for blocks that were not streamed.

mod results;
mod text;
mod tools;

use std::collections::HashSet;

use ahp_types::actions::StateAction;
use ahp_types::state::ErrorInfo;
use innkeeper_claude::Message;
use innkeeper_claude::wire::content::ContentBlock;
use innkeeper_claude::wire::message::{
    AssistantMessage, ResultMessage, StreamEvent, StreamEventMessage, UserFrameMessage,
};
use innkeeper_core::agent::TurnOutcome;
use innkeeper_core::ids::TurnId;

use text::TextBlocks;
use tools::ToolCalls;

/// Who denied a tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Denial {
    User,
}

/// How a tool call is shown.
pub(super) struct CallDescription {
    pub(super) invocation: ahp_types::common::StringOrMarkdown,
    pub(super) tool_input: String,
    pub(super) question: String,
}

/// Maps the messages of one conversation.
#[derive(Debug, Default)]
pub(super) struct Mapper {
    text: TextBlocks,
    tools: ToolCalls,
    /// Ids of messages whose blocks were streamed, which are not mapped again.
    streamed: HashSet<String>,
    /// Model of the last response.
    model: Option<String>,
    /// Error text of the API, from a message that the runtime generated for it.
    api_error: Option<String>,
    /// Kinds of messages without a mapping, each logged once.
    skipped: HashSet<String>,
}

impl Mapper {
    /// Starts a new turn and drops the state of the previous one.
    pub(super) fn begin_turn(&mut self) {
        self.text = TextBlocks::default();
        self.tools = ToolCalls::default();
        self.streamed.clear();
        self.api_error = None;
    }

    /// Maps a message of a turn to actions.
    pub(super) fn map(&mut self, turn: &TurnId, message: &Message) -> Vec<StateAction> {
        match message {
            Message::StreamEvent(event) if event.parent_tool_use_id.is_none() => {
                self.stream_event(turn, event)
            }
            Message::Assistant(message) if message.parent_tool_use_id.is_none() => {
                self.assistant(turn, message)
            }
            Message::User(message) if message.parent_tool_use_id.is_none() => self.user(message),
            Message::Result(result) => vec![results::usage(turn, result, self.model.as_deref())],
            other => {
                self.skip(other);
                Vec::new()
            }
        }
    }

    pub(super) fn permission_requested(
        &mut self,
        turn: &TurnId,
        tool_call: &str,
        name: &str,
        input: &serde_json::Value,
    ) -> Vec<StateAction> {
        self.tools.permission_requested(turn, tool_call, name, input)
    }

    pub(super) fn describe(name: &str, input: &serde_json::Value) -> CallDescription {
        tools::describe(name, input)
    }

    pub(super) fn denied(&mut self, tool_call: &str, _: Denial) {
        self.tools.forget(tool_call);
    }

    /// Logs a message that does not belong to a turn of the session.
    pub(super) fn unowned(&mut self, message: &Message) {
        if !matches!(
            message,
            Message::StreamEvent(_) | Message::Assistant(_) | Message::User(_) | Message::Result(_)
        ) {
            self.skip(message);
        }
    }

    /// Outcome of a turn that ended with this result.
    pub(super) fn outcome(&self, result: &ResultMessage) -> TurnOutcome {
        results::outcome(result, self.api_error.as_deref())
    }

    /// Error of a turn that ended because the runtime exited.
    pub(super) fn exit_error(exit: &innkeeper_claude::Exit) -> ErrorInfo {
        results::exit_error(exit)
    }

    fn stream_event(&mut self, turn: &TurnId, message: &StreamEventMessage) -> Vec<StateAction> {
        let Some(event) = &message.event else { return Vec::new() };
        match event {
            StreamEvent::MessageStart(start) => {
                let Some(message) = &start.message else { return Vec::new() };
                if let Some(id) = &message.id {
                    self.text.begin_message(id);
                    self.tools.begin_message();
                    self.streamed.insert(id.clone());
                }
                self.model = message.model.clone().or_else(|| self.model.take());
                Vec::new()
            }
            StreamEvent::ContentBlockStart(start) => match (&start.index, &start.content_block) {
                (Some(index), Some(ContentBlock::ToolUse(block))) => self.tools.begin(turn, *index, block),
                (Some(index), Some(block)) => self.text.begin(turn, *index, block).into_iter().collect(),
                (None, _) | (_, None) => Vec::new(),
            },
            StreamEvent::ContentBlockDelta(delta) => match (&delta.index, &delta.delta) {
                (Some(index), Some(delta)) => {
                    let text = self.text.delta(turn, *index, delta);
                    text.or_else(|| self.tools.delta(*index, delta)).into_iter().collect()
                }
                (None, _) | (_, None) => Vec::new(),
            },
            StreamEvent::ContentBlockStop(stop) => {
                stop.index.and_then(|index| self.tools.end(index)).into_iter().collect()
            }
            StreamEvent::MessageDelta(_) | StreamEvent::MessageStop(_) | StreamEvent::Error(_) => Vec::new(),
            StreamEvent::Unknown(event) => {
                self.log_once(&format!("stream_event/{}", event.kind));
                Vec::new()
            }
        }
    }

    fn assistant(&mut self, turn: &TurnId, message: &AssistantMessage) -> Vec<StateAction> {
        let Some(answer) = &message.message else { return Vec::new() };
        let blocks = answer.content.as_ref().map(|content| content.blocks()).unwrap_or_default();
        if message.error.is_some() {
            // The runtime generates this message to show a failure as text; here it is an error.
            self.api_error = text::joined(blocks);
            return Vec::new();
        }
        let id = answer.id.as_deref().unwrap_or_default();
        let streamed = self.streamed.contains(id);
        let mut actions = Vec::new();
        for block in blocks {
            match block {
                ContentBlock::ToolUse(call) => actions.extend(self.tools.whole(turn, call)),
                _ if streamed => {}
                block => actions.extend(self.text.whole(turn, id, block)),
            }
        }
        actions
    }

    fn user(&mut self, message: &UserFrameMessage) -> Vec<StateAction> {
        let content = message.message.as_ref().and_then(|message| message.content.as_ref());
        let blocks = content.map(|content| content.blocks()).unwrap_or_default();
        let mut actions = Vec::new();
        for block in blocks {
            if let ContentBlock::ToolResult(result) = block {
                actions.extend(self.tools.complete(result));
            }
        }
        actions
    }

    /// Logs the kind of a message without a mapping, once per kind.
    fn skip(&mut self, message: &Message) {
        self.log_once(&message.kind());
    }

    fn log_once(&mut self, kind: &str) {
        if !self.skipped.contains(kind) {
            tracing::info!(kind, "ignoring messages of this kind: no mapping");
            self.skipped.insert(kind.to_owned());
        }
    }
}

#[cfg(test)]
#[path = "map_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "page_fixtures_tests.rs"]
mod page_fixtures;
