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

/// How the calls of a tool are shown.
#[derive(Clone, Copy)]
struct ToolDescription {
    names: &'static [&'static str],
    /// Name for users; `None` for the tool's own name.
    display_name: Option<&'static str>,
    /// Hint for VS Code on how to render a call.
    kind: Option<&'static str>,
    /// The input fields that best describe a call, by preference.
    describing_fields: &'static [&'static str],
    /// The verb of a completed call, before the describing field.
    past_tense: Option<&'static str>,
    /// The input field that is displayed instead of the whole input.
    shown_field: Option<&'static str>,
}

/// The description of a tool that is not in [`TOOLS`].
const OTHER: ToolDescription = ToolDescription {
    names: &[],
    display_name: None,
    kind: None,
    describing_fields: &["file_path", "notebook_path", "path"],
    past_tense: None,
    shown_field: None,
};

/// The tools with a description of their own. Each name occurs once.
const TOOLS: &[ToolDescription] = &[
    ToolDescription {
        names: &["Bash"],
        display_name: Some("Run command"),
        kind: Some("terminal"),
        describing_fields: &["command"],
        past_tense: Some("Ran"),
        shown_field: Some("command"),
    },
    ToolDescription { names: &["BashOutput", "KillBash"], kind: Some("terminal"), ..OTHER },
    ToolDescription {
        names: &["Read"],
        display_name: Some("Read file"),
        kind: Some("read"),
        past_tense: Some("Read"),
        ..OTHER
    },
    ToolDescription { names: &["NotebookRead"], kind: Some("read"), ..OTHER },
    ToolDescription {
        names: &["Write"],
        display_name: Some("Write file"),
        past_tense: Some("Wrote"),
        ..OTHER
    },
    ToolDescription {
        names: &["Edit", "MultiEdit"],
        display_name: Some("Edit file"),
        past_tense: Some("Edited"),
        ..OTHER
    },
    ToolDescription {
        names: &["Glob", "Grep"],
        kind: Some("search"),
        describing_fields: &["pattern"],
        ..OTHER
    },
    ToolDescription { names: &["WebFetch"], describing_fields: &["url"], ..OTHER },
    ToolDescription {
        names: &["Task", "Agent"],
        display_name: Some("Delegate"),
        kind: Some("subagent"),
        describing_fields: &["description"],
        ..OTHER
    },
];

fn description(name: &str) -> &'static ToolDescription {
    TOOLS.iter().find(|tool| tool.names.contains(&name)).unwrap_or(&OTHER)
}

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

    pub(super) fn permission_requested(
        &mut self,
        turn: &TurnId,
        id: &str,
        name: &str,
        input: &Value,
    ) -> Vec<StateAction> {
        let actions = self.start(turn, id, name).into_iter().collect();
        if let Some(call) = self.calls.get_mut(id) {
            call.input = input.to_string();
            call.ready = true;
        }
        actions
    }

    pub(super) fn forget(&mut self, id: &str) {
        self.calls.remove(id);
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
            meta: description(name)
                .kind
                .map(|kind| JsonObject::from_iter([("toolKind".to_owned(), json!(kind))])),
            tool_name: name.to_owned(),
            display_name: display_name(name).to_owned(),
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

pub(super) fn describe(name: &str, input: &Value) -> super::CallDescription {
    let call =
        OpenToolCall { turn: String::new(), name: name.to_owned(), input: input.to_string(), ready: true };
    super::CallDescription {
        invocation: StringOrMarkdown::from(invocation(&call)),
        tool_input: shown_input(&call),
        question: format!("{}?", display_name(name)),
    }
}

fn display_name(name: &str) -> &str {
    description(name).display_name.unwrap_or(name)
}

fn describing_value(call: &OpenToolCall) -> Option<String> {
    let input: Value = serde_json::from_str(&call.input).ok()?;
    let fields = description(&call.name).describing_fields;
    let value = fields.iter().find_map(|field| input.get(field)?.as_str())?;
    let line = value.lines().next().unwrap_or_default();
    if line.chars().count() <= SUMMARY_LENGTH {
        return Some(line.to_owned());
    }
    Some(line.chars().take(SUMMARY_LENGTH).chain(['…']).collect())
}

fn invocation(call: &OpenToolCall) -> String {
    let name = display_name(&call.name);
    describing_value(call).map_or_else(|| name.to_owned(), |value| format!("{name}: {value}"))
}

fn past_tense(call: &OpenToolCall) -> String {
    let name = display_name(&call.name);
    match (description(&call.name).past_tense, describing_value(call)) {
        (Some(verb), Some(value)) => format!("{verb} {value}"),
        (None, Some(value)) => format!("{name}: {value}"),
        (_, None) => format!("{name} finished"),
    }
}

/// The input to display: one field of it or the JSON.
fn shown_input(call: &OpenToolCall) -> String {
    let field = || {
        let input: Value = serde_json::from_str(&call.input).ok()?;
        Some(input.get(description(&call.name).shown_field?)?.as_str()?.to_owned())
    };
    field().unwrap_or_else(|| call.input.clone())
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
