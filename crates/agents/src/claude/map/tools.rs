//! Tool calls: start, input, ready, result.
//!
//! A result is matched by tool call id, never by the turn that is running when it
//! arrives. The protocol requires a call to be ready before it can complete.

use std::collections::HashMap;

use ahp_types::actions::{
    ChatToolCallCompleteAction, ChatToolCallDeltaAction, ChatToolCallReadyAction, ChatToolCallStartAction,
    StateAction,
};
use ahp_types::common::{JsonObject, StringOrMarkdown};
use ahp_types::state::{
    ToolCallConfirmationReason, ToolCallResult, ToolInput, ToolResultContent, ToolResultTextContent,
};
use innkeeper_claude::wire::content::{MessageContent, ToolResultBlock, ToolUseBlock};
use innkeeper_claude::wire::message::BlockDelta;
use innkeeper_core::ids::TurnId;
use serde_json::{Value, json};

use super::text;

/// Maximum length in characters of the command or path in a call's message.
const SUMMARY_LENGTH: usize = 80;

/// Tool calls that are not complete yet.
#[derive(Debug, Default)]
pub(super) struct ToolCalls {
    /// By tool call id.
    calls: HashMap<String, OpenToolCall>,
    /// Ids of the calls in the message that is being streamed, by block index.
    open: HashMap<u32, String>,
}

#[derive(Debug)]
struct OpenToolCall {
    turn: String,
    name: String,
    /// The input's JSON received so far.
    input: String,
    ready: bool,
}

impl ToolCalls {
    /// Starts a new message.
    pub(super) fn begin_message(&mut self) {
        self.open.clear();
    }

    /// Starts a streamed call.
    pub(super) fn begin(&mut self, turn: &TurnId, index: u32, block: &ToolUseBlock) -> Vec<StateAction> {
        let Some(id) = &block.id else { return Vec::new() };
        self.open.insert(index, id.clone());
        self.start(turn, id, block.name.as_deref().unwrap_or("unknown")).into_iter().collect()
    }

    /// Appends to a call's input.
    pub(super) fn delta(&mut self, index: u32, delta: &BlockDelta) -> Option<StateAction> {
        let BlockDelta::InputJson(delta) = delta else { return None };
        let id = self.open.get(&index)?;
        let call = self.calls.get_mut(id)?;
        let content = delta.partial_json.clone().filter(|json| !json.is_empty())?;
        call.input.push_str(&content);
        Some(StateAction::ChatToolCallDelta(ChatToolCallDeltaAction {
            turn_id: call.turn.clone(),
            tool_call_id: id.clone(),
            meta: None,
            content: Some(content),
            invocation_message: None,
        }))
    }

    /// Completes a streamed call's input.
    pub(super) fn end(&mut self, index: u32) -> Option<StateAction> {
        let id = self.open.remove(&index)?;
        self.ready(&id)
    }

    /// Maps a complete call, which may have been streamed before.
    pub(super) fn whole(&mut self, turn: &TurnId, block: &ToolUseBlock) -> Vec<StateAction> {
        let Some(id) = &block.id else { return Vec::new() };
        let mut actions: Vec<StateAction> =
            self.start(turn, id, block.name.as_deref().unwrap_or("unknown")).into_iter().collect();
        if let (Some(call), Some(input)) = (self.calls.get_mut(id), &block.input)
            && !call.ready
        {
            input.get().clone_into(&mut call.input);
        }
        actions.extend(self.ready(id));
        actions
    }

    /// Completes a call with its result.
    pub(super) fn complete(&mut self, result: &ToolResultBlock) -> Vec<StateAction> {
        let Some(id) = &result.tool_use_id else { return Vec::new() };
        let mut actions: Vec<StateAction> = self.ready(id).into_iter().collect();
        let Some(call) = self.calls.remove(id) else { return Vec::new() };
        let success = result.is_error != Some(true);
        let text = user_visible(&result_text(result.content.as_ref()));
        let message =
            if success { past_tense(&call) } else { format!("{} failed", display_name(&call.name)) };
        let error = (!success).then(|| json!({ "message": text }));
        let content =
            (!text.is_empty()).then(|| vec![ToolResultContent::Text(ToolResultTextContent { text })]);
        actions.push(StateAction::ChatToolCallComplete(ChatToolCallCompleteAction {
            turn_id: call.turn,
            tool_call_id: id.clone(),
            meta: None,
            result: ToolCallResult {
                success,
                past_tense_message: StringOrMarkdown::from(message),
                content,
                structured_content: None,
                error,
            },
            requires_result_confirmation: None,
        }));
        actions
    }

    fn start(&mut self, turn: &TurnId, id: &str, name: &str) -> Option<StateAction> {
        if self.calls.contains_key(id) {
            return None;
        }
        let call = OpenToolCall {
            turn: turn.as_str().to_owned(),
            name: name.to_owned(),
            input: String::new(),
            ready: false,
        };
        self.calls.insert(id.to_owned(), call);
        Some(StateAction::ChatToolCallStart(ChatToolCallStartAction {
            turn_id: turn.as_str().to_owned(),
            tool_call_id: id.to_owned(),
            meta: tool_kind(name).map(|kind| JsonObject::from_iter([("toolKind".to_owned(), json!(kind))])),
            tool_name: name.to_owned(),
            display_name: display_name(name),
            intention: None,
            contributor: None,
        }))
    }

    fn ready(&mut self, id: &str) -> Option<StateAction> {
        let call = self.calls.get_mut(id).filter(|call| !call.ready)?;
        call.ready = true;
        Some(StateAction::ChatToolCallReady(ChatToolCallReadyAction {
            turn_id: call.turn.clone(),
            tool_call_id: id.to_owned(),
            meta: None,
            contributor: None,
            intention: None,
            invocation_message: StringOrMarkdown::from(invocation(call)),
            tool_input: Some(ToolInput::Inline(shown_input(call))),
            confirmation_title: None,
            risk_assessment: None,
            edits: None,
            editable: None,
            confirmed: Some(ToolCallConfirmationReason::NotNeeded),
            options: None,
        }))
    }
}

fn display_name(name: &str) -> String {
    match name {
        "Bash" => "Run command".to_owned(),
        "Read" => "Read file".to_owned(),
        "Write" => "Write file".to_owned(),
        "Edit" | "MultiEdit" => "Edit file".to_owned(),
        "Task" | "Agent" => "Delegate".to_owned(),
        other => other.to_owned(),
    }
}

/// Hint for VS Code on how to render a call.
fn tool_kind(name: &str) -> Option<&'static str> {
    match name {
        "Bash" | "BashOutput" | "KillBash" => Some("terminal"),
        "Read" | "NotebookRead" => Some("read"),
        "Glob" | "Grep" => Some("search"),
        "Task" | "Agent" => Some("subagent"),
        _ => None,
    }
}

/// The input fields that best describe a call, by preference.
fn describing_fields(name: &str) -> &'static [&'static str] {
    match name {
        "Bash" => &["command"],
        "Glob" | "Grep" => &["pattern"],
        "WebFetch" => &["url"],
        "Task" | "Agent" => &["description"],
        _ => &["file_path", "notebook_path", "path"],
    }
}

fn describing_value(call: &OpenToolCall) -> Option<String> {
    let input: Value = serde_json::from_str(&call.input).ok()?;
    let value = describing_fields(&call.name).iter().find_map(|field| input.get(field)?.as_str())?;
    let line = value.lines().next().unwrap_or_default();
    if line.chars().count() <= SUMMARY_LENGTH {
        return Some(line.to_owned());
    }
    Some(line.chars().take(SUMMARY_LENGTH).chain(['…']).collect())
}

fn invocation(call: &OpenToolCall) -> String {
    match describing_value(call) {
        Some(value) => format!("{}: {value}", display_name(&call.name)),
        None => display_name(&call.name),
    }
}

fn past_tense(call: &OpenToolCall) -> String {
    match (call.name.as_str(), describing_value(call)) {
        ("Bash", Some(command)) => format!("Ran {command}"),
        ("Read", Some(path)) => format!("Read {path}"),
        ("Write", Some(path)) => format!("Wrote {path}"),
        ("Edit" | "MultiEdit", Some(path)) => format!("Edited {path}"),
        (_, Some(value)) => format!("{}: {value}", display_name(&call.name)),
        (_, None) => format!("{} finished", display_name(&call.name)),
    }
}

/// The input to display: the command of a shell call, otherwise the JSON.
fn shown_input(call: &OpenToolCall) -> String {
    if call.name == "Bash"
        && let Ok(input) = serde_json::from_str::<Value>(&call.input)
        && let Some(command) = input.get("command").and_then(Value::as_str)
    {
        return command.to_owned();
    }
    call.input.clone()
}

/// Removes what the runtime adds to a result for the model only: the markup of its
/// own errors, and reminders after the text.
fn user_visible(text: &str) -> String {
    let text = text.split_once("\n\n<system-reminder>").map_or(text, |(text, _)| text);
    let refusal =
        text.trim().strip_prefix("<tool_use_error>").and_then(|text| text.strip_suffix("</tool_use_error>"));
    refusal.unwrap_or(text).to_owned()
}

fn result_text(content: Option<&MessageContent>) -> String {
    match content {
        None => String::new(),
        Some(MessageContent::Text(text)) => text.clone(),
        Some(MessageContent::Blocks(blocks)) => text::joined(blocks).unwrap_or_default(),
    }
}

#[cfg(test)]
#[path = "tools_tests.rs"]
mod tests;
