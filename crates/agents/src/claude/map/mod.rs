//! Maps the runtime's messages to events for the session. Pure: same messages, same events.
//!
//! `text` maps text and reasoning, `tools` maps tool calls, `notices` maps messages around the
//! conversation, `usage` follows what the model calls used. A streamed block is mapped from its stream
//! events; the complete message that follows is used only for blocks that were not streamed.

mod activity;
mod description;
mod edits;
mod local_output;
mod notices;
mod server_tools;
mod stream;
mod text;
mod todo;
mod tool_results;
mod tool_table;
mod tool_text;
mod tools;
mod usage;
mod user_frames;

use std::collections::{HashMap, HashSet};

use ahp_types::actions::StateAction;
use ahp_types::state::FileEdit;
use innkeeper_claude::Message;
use innkeeper_claude::wire::Notice;
use innkeeper_claude::wire::content::ContentBlock;
use innkeeper_claude::wire::message::{
    AssistantMessage, ContentBlockStartEvent, MessageStartEvent, ResultMessage, StreamEvent,
    StreamEventMessage, SystemMessage,
};
use innkeeper_core::agent::{AgentEvent, TurnOutcome};
use innkeeper_core::ids::TurnId;
use innkeeper_core::model::ModelFailure;
use innkeeper_core::usage::UsageReport;
use serde_json::Value;

use super::failures::{self, ApiFailure};
use notices::Notices;
use server_tools::{call_in, result_in};
use stream::{StreamedKind, StreamedMessage};
use todo::TodoTracker;
use tools::ToolCalls;
use usage::ReportedUsage;

pub(super) use activity::WaitNote;
pub(super) use description::CallDescription;

/// What calls changed in files, by the id of the call.
pub(super) type CallEdits = HashMap<String, Vec<FileEdit>>;

/// The model of messages that the runtime generated.
const SYNTHETIC: &str = "<synthetic>";

/// Maps the messages of one conversation.
#[derive(Debug, Default)]
pub(super) struct Mapper {
    stream: StreamedMessage,
    tools: ToolCalls,
    notices: Notices,
    todo: TodoTracker,
    /// Ids of messages whose blocks were streamed, which are not mapped again.
    streamed: HashSet<String>,
    /// Number of blocks of complete messages so far, since those blocks have no index.
    whole: HashMap<String, u32>,
    /// Whether the turn has a text.
    has_text: bool,
    /// The last output of a command, which the runtime may report twice.
    last_output: Option<String>,
    /// What the model calls used.
    usage: ReportedUsage,
    /// The API's error, from a message that the runtime generated for it.
    api_error: Option<ApiFailure>,
    /// Kinds of messages without a mapping, each logged once.
    skipped: HashSet<String>,
}

impl Mapper {
    /// Starts a new turn and drops the state of the previous one.
    pub(super) fn begin_turn(&mut self) {
        let mut last = std::mem::take(self);
        last.notices.activity.begin_turn();
        let notices = Notices { activity: last.notices.activity, ..Notices::default() };
        *self =
            Self { notices, todo: last.todo, usage: last.usage, skipped: last.skipped, ..Self::default() };
    }

    /// Maps a message of a turn to events.
    pub(super) fn map(&mut self, turn: &TurnId, message: &Message) -> Vec<AgentEvent> {
        self.map_with(turn, message, &CallEdits::new())
    }

    /// Maps a message of a turn to events, with the recorded edits of the calls that it completes.
    pub(super) fn map_with(
        &mut self,
        turn: &TurnId,
        message: &Message,
        edits: &CallEdits,
    ) -> Vec<AgentEvent> {
        match message {
            Message::StreamEvent(event) if event.parent_tool_use_id.is_none() => {
                self.stream_event(turn, event)
            }
            Message::Assistant(message) if message.parent_tool_use_id.is_none() => {
                self.assistant(turn, message)
            }
            Message::User(message) => self.user(turn, message, edits),
            Message::Result(result) => self.result(turn, result),
            Message::System(SystemMessage::Notice(notice)) if self.is_command_output(notice) => {
                events(self.command_notice(turn, notice))
            }
            Message::System(message) => self.system(turn, message),
            Message::RateLimit(message) => events(Notices::rate_limit(turn, message)),
            other => {
                if let Message::Notice(notice) = other
                    && let Notice::ToolProgress(progress) = &**notice
                {
                    return events(self.notices.tool_progress(progress));
                }
                self.skip(other);
                Vec::new()
            }
        }
    }

    /// Maps a message that does not belong to a turn: activity before a turn's first message. Logs
    /// other messages.
    pub(super) fn unowned(&mut self, message: &Message) -> Vec<AgentEvent> {
        match message {
            Message::StreamEvent(_) | Message::Assistant(_) | Message::User(_) => Vec::new(),
            // The end of a turn that was cancelled.
            Message::Result(result) => {
                self.usage.result(result);
                let report = UsageReport { context: None, ..self.usage.take() };
                vec![AgentEvent::Used { turn: None, report: Box::new(report) }]
            }
            Message::System(message) if Notices::is_activity(message) => {
                // A part would need a turn.
                drop(self.notices.system(&TurnId::new(""), message, &self.tools));
                events(self.notices.activity.changed())
            }
            other => {
                self.skip(other);
                Vec::new()
            }
        }
    }

    /// Records that the user or the policy is asked for a call. The caller then reports the call
    /// as ready, with or without a confirmation. Returns the start of a call that is unknown: a
    /// subagent's, or one whose request overtook the stream. Called again after the input was
    /// edited, it only records the new input.
    pub(super) fn permission_requested(
        &mut self,
        turn: &TurnId,
        tool_call: &str,
        name: &str,
        input: &Value,
    ) -> Vec<StateAction> {
        self.tools.asked(turn, tool_call, name, input).into_iter().collect()
    }

    /// Forgets a call, so that it can be shown in another turn.
    pub(super) fn forget_call(&mut self, tool_call: String) {
        self.tools.discard(&[tool_call]);
    }

    /// The input of a call as the model wrote it, if the call is known.
    pub(super) fn input_of(&self, tool_call: &str) -> Option<Value> {
        self.tools.input_of(tool_call)
    }

    /// The name and input of a call that is not complete.
    pub(super) fn open_call(&self, tool_call: &str) -> Option<(&str, Value)> {
        self.tools.open_call(tool_call)
    }

    /// The ids and names of the calls that run, or wait for permission.
    pub(super) fn running_calls(&self) -> impl Iterator<Item = (&str, &str)> {
        self.tools.running()
    }

    /// The short name of a tool for users.
    pub(super) fn short_name(name: &str) -> String {
        if description::mcp_names(name).is_some() { description::title(name) } else { name.to_owned() }
    }

    /// Records that the user stopped a call, which its result shows.
    pub(super) fn stopped(&mut self, tool_call: &str) {
        self.tools.stopped(tool_call);
    }

    /// Sets what the turn waits for while the runtime is silent.
    pub(super) fn set_wait(&mut self, note: Option<WaitNote>) -> Vec<AgentEvent> {
        self.notices.activity.wait = note;
        events(self.notices.activity.changed())
    }

    /// A note in a turn.
    pub(super) fn note(turn: &TurnId, kind: &str, text: String) -> AgentEvent {
        AgentEvent::Action(Box::new(notices::part(turn, kind, text)))
    }

    /// Describes a call.
    pub(super) fn describe(name: &str, input: &Value) -> CallDescription {
        description::describe(name, input)
    }

    /// Records that a user or the policy denied a call. Clients show it as cancelled, so its
    /// result is not reported.
    pub(super) fn denied(&mut self, tool_call: &str) {
        self.tools.denied(tool_call);
    }

    /// Outcome of a turn that ended with this result.
    pub(super) fn outcome(
        &self,
        result: &ResultMessage,
        last_failure: impl FnOnce() -> Option<ModelFailure>,
    ) -> TurnOutcome {
        failures::outcome(result, self.api_error.as_ref(), last_failure)
    }

    fn stream_event(&mut self, turn: &TurnId, message: &StreamEventMessage) -> Vec<AgentEvent> {
        let Some(event) = &message.event else { return Vec::new() };
        let is_start = matches!(event, StreamEvent::MessageStart(_));
        if !is_start && !self.stream.is(message.api_message_id.as_deref()) {
            return Vec::new();
        }
        match event {
            StreamEvent::MessageStart(start) => self.message_start(turn, start),
            StreamEvent::ContentBlockStart(start) => events(self.block_start(turn, start)),
            StreamEvent::ContentBlockDelta(delta) => {
                let (Some(index), Some(delta)) = (delta.index, &delta.delta) else { return Vec::new() };
                let Some((kind, part)) = self.stream.block(index) else { return Vec::new() };
                match kind {
                    StreamedKind::Tool => events(self.tools.delta(part, delta)),
                    StreamedKind::Text | StreamedKind::Reasoning => {
                        let delta = text::delta(turn, kind, part, delta);
                        self.has_text |= kind == StreamedKind::Text && delta.is_some();
                        events(delta)
                    }
                }
            }
            StreamEvent::ContentBlockStop(stop) => {
                let block = stop.index.and_then(|index| self.stream.block(index));
                let Some((StreamedKind::Tool, part)) = block else { return Vec::new() };
                events(self.tools.ready(part, None))
            }
            StreamEvent::MessageStop(_) => {
                self.stream.end(message.abandoned_blocks.as_deref());
                self.usage.call_ends();
                vec![self.used(turn)]
            }
            StreamEvent::MessageDelta(delta) => {
                self.usage.call_continues(delta);
                Vec::new()
            }
            StreamEvent::Error(_) => Vec::new(),
            StreamEvent::Unknown(event) => {
                self.log_once(&format!("stream_event/{}", event.kind));
                Vec::new()
            }
        }
    }

    fn message_start(&mut self, turn: &TurnId, start: &MessageStartEvent) -> Vec<AgentEvent> {
        let Some(message) = &start.message else { return Vec::new() };
        let mut found = self.answer_continues(turn);
        if let Some(id) = &message.id {
            self.stream.begin(id);
            self.streamed.insert(id.clone());
        }
        self.usage.call_starts(start);
        found.extend(events(self.notices.activity.changed()));
        found
    }

    fn block_start(&mut self, turn: &TurnId, start: &ContentBlockStartEvent) -> Vec<StateAction> {
        let (Some(index), Some(block)) = (start.index, &start.content_block) else { return Vec::new() };
        if let Some(call) = call_in(block) {
            self.stream.add(index, StreamedKind::Tool, &call.id);
            return self.tools.start(turn, &call.id, &call.name).into_iter().collect();
        }
        if result_in(block).is_some() {
            return self.server_result(block);
        }
        let Some((kind, content)) = text::content_of(block) else { return Vec::new() };
        self.has_text |= kind == StreamedKind::Text && !content.is_empty();
        let id = text::part_id(turn, self.stream.id(), index);
        self.stream.add(index, kind, &id);
        vec![text::part(turn, kind, id, content)]
    }

    fn assistant(&mut self, turn: &TurnId, message: &AssistantMessage) -> Vec<AgentEvent> {
        let Some(answer) = &message.message else { return Vec::new() };
        let blocks = answer.content.as_ref().map(|content| content.blocks()).unwrap_or_default();
        if message.error.is_some() {
            // The runtime generates this message to show a failure as text; here it is an error.
            let found = self.answer_continues(turn);
            let kind = message.error.clone().unwrap_or_default();
            self.api_error = text::joined(blocks).map(|text| ApiFailure { kind, text });
            return found.into_iter().chain(events(self.notices.activity.changed())).collect();
        }
        let id = answer.id.as_deref().unwrap_or_default();
        let mut found = Vec::new();
        if self.streamed.contains(id) {
            if self.stream.is(Some(id)) {
                let repeated = self.stream.keep(text::joined(blocks).as_deref());
                found.extend(self.discarded(turn, repeated));
            }
        } else {
            found.extend(self.answer_continues(turn));
        }
        let is_output = answer.model.as_deref() == Some(SYNTHETIC);
        for block in blocks {
            found.extend(events(self.whole_block(turn, id, block, is_output)));
        }
        if !is_output && !self.streamed.contains(id) && answer.stop_reason.is_some() {
            self.usage.whole_call(answer);
            found.push(self.used(turn));
        }
        found.extend(events(self.notices.activity.changed()));
        found
    }

    /// Maps a complete block. Of streamed messages, only tool calls can be incomplete.
    fn whole_block(
        &mut self,
        turn: &TurnId,
        message: &str,
        block: &ContentBlock,
        is_output: bool,
    ) -> Vec<StateAction> {
        if let Some(call) = call_in(block) {
            let mut actions: Vec<StateAction> =
                self.tools.start(turn, &call.id, &call.name).into_iter().collect();
            actions.extend(self.tools.ready(&call.id, call.input));
            return actions;
        }
        if result_in(block).is_some() {
            return self.server_result(block);
        }
        if self.streamed.contains(message) {
            return Vec::new();
        }
        let Some((kind, content)) = text::content_of(block) else { return Vec::new() };
        if is_output {
            return self.command_output(turn, &content).into_iter().collect();
        }
        let index = self.whole.entry(message.to_owned()).or_default();
        let id = text::part_id(turn, message, *index);
        *index += 1;
        if content.is_empty() {
            return Vec::new();
        }
        self.has_text |= kind == StreamedKind::Text;
        vec![text::part(turn, kind, id, content)]
    }

    fn server_result(&mut self, block: &ContentBlock) -> Vec<StateAction> {
        let Some(result) = result_in(block) else { return Vec::new() };
        let shown = |_: &str| tool_results::shown_server_result(&result.content);
        self.tools.complete_with(&result.id, result.success, shown, None, |_| None)
    }

    fn system(&mut self, turn: &TurnId, message: &SystemMessage) -> Vec<AgentEvent> {
        if let SystemMessage::CompactBoundary(boundary) = message {
            self.usage.compacted(boundary);
        }
        let mut found = match message {
            // A subagent's request may be repeated while the main thread streams.
            SystemMessage::ApiRetry(_) if self.stream.is_broken() => {
                let abandoned = self.stream.take_abandoned();
                self.discarded(turn, abandoned).into_iter().collect()
            }
            SystemMessage::ApiRetry(_)
            | SystemMessage::Init(_)
            | SystemMessage::Status(_)
            | SystemMessage::SessionStateChanged(_)
            | SystemMessage::CompactBoundary(_)
            | SystemMessage::TaskStarted(_)
            | SystemMessage::TaskProgress(_)
            | SystemMessage::TaskUpdated(_)
            | SystemMessage::TaskNotification(_)
            | SystemMessage::HookStarted(_)
            | SystemMessage::HookProgress(_)
            | SystemMessage::HookResponse(_)
            | SystemMessage::Notice(_)
            | SystemMessage::Unknown(_) => Vec::new(),
        };
        match self.notices.system(turn, message, &self.tools) {
            Some(part) => found.extend(events(part)),
            None => self.log_once(&message.kind()),
        }
        found.extend(events(self.notices.activity.changed()));
        found
    }

    fn result(&mut self, turn: &TurnId, result: &ResultMessage) -> Vec<AgentEvent> {
        let mut actions = Vec::new();
        // A command that the runtime does not know has no other output.
        let text = result.result.as_deref().filter(|text| !text.trim().is_empty());
        let is_success = result.subtype.as_deref() == Some("success") && result.is_error != Some(true);
        if let Some(text) = text.filter(|_| is_success && !self.has_text) {
            actions.extend(self.command_output(turn, text));
        }
        self.usage.result(result);
        let mut found = events(actions);
        found.push(self.used(turn));
        found
    }

    /// Reports what was used since the last report. The driver adds the model endpoint's counts.
    fn used(&mut self, turn: &TurnId) -> AgentEvent {
        AgentEvent::Used { turn: Some(turn.clone()), report: Box::new(self.usage.take()) }
    }

    /// Notes that the model answers, again after a failure: what the runtime did not keep of
    /// the last answer is discarded, and an error that the turn survived becomes a note.
    fn answer_continues(&mut self, turn: &TurnId) -> Vec<AgentEvent> {
        self.notices.activity.answer_continues();
        let abandoned = self.stream.take_abandoned();
        let mut found: Vec<AgentEvent> = self.discarded(turn, abandoned).into_iter().collect();
        if let Some(error) = self.api_error.take() {
            let text = failures::for_users(&failures::readable_error(&error.text));
            let text = text.unwrap_or_else(|| "A request to the model failed.".to_owned());
            found.extend(events(Some(notices::part(turn, "error", text))));
        }
        found
    }

    fn discarded(&mut self, turn: &TurnId, parts: Vec<String>) -> Option<AgentEvent> {
        if parts.is_empty() {
            return None;
        }
        self.tools.discard(&parts);
        Some(AgentEvent::PartsDiscarded { turn: turn.clone(), parts })
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

/// The events for actions.
fn events(actions: impl IntoIterator<Item = StateAction>) -> Vec<AgentEvent> {
    actions.into_iter().map(|action| AgentEvent::Action(Box::new(action))).collect()
}

#[cfg(test)]
#[path = "map_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "recorded_play_tests.rs"]
mod recorded_play;

#[cfg(test)]
#[path = "page_fixtures_tests.rs"]
mod page_fixtures;
