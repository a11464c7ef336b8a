//! Tool calls: start, input, ready, result.
//!
//! A result is matched by tool call id, never by the turn that is running when it arrives. The
//! protocol requires a call to be ready before it can complete. Denials are known by id.

use std::collections::{HashMap, HashSet};

use ahp_types::actions::{
    ChatToolCallCompleteAction, ChatToolCallDeltaAction, ChatToolCallReadyAction, ChatToolCallStartAction,
    StateAction,
};
use ahp_types::common::{JsonObject, StringOrMarkdown};
use ahp_types::state::{FileEdit, ToolCallConfirmationReason, ToolCallResult, ToolInput};
use innkeeper_claude::wire::content::ToolResultBlock;
use innkeeper_claude::wire::message::BlockDelta;
use innkeeper_core::ids::TurnId;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::description::{self, CallWords, shown_input};
use super::edits::{EditProgress, is_edit};
use super::tool_results::{ShownResult, shown};

/// Why a call did not run, as the runtime reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NotRun {
    /// Denied by this layer.
    Denied(&'static str),
    /// Stopped by an interrupt.
    Stopped,
}

/// Tool calls of a turn.
#[derive(Debug, Default)]
pub(super) struct ToolCalls {
    /// Calls that are not complete yet, by id.
    open: HashMap<String, OpenToolCall>,
    /// Ids of complete calls.
    complete: HashSet<String>,
}

#[derive(Debug)]
struct OpenToolCall {
    turn: String,
    name: String,
    /// The input's JSON received so far.
    input: String,
    /// Progress of an edit's input.
    edit: Option<EditProgress>,
    /// Whether clients know the complete input, or the driver reports it.
    ready: bool,
    /// Whether the host has denied the call, which clients show as cancelled.
    is_denied: bool,
    /// Whether the user has stopped the call while it ran.
    is_stopped: bool,
}

/// A complete call.
pub(super) struct CompletedCall {
    pub(super) name: String,
    pub(super) input: Value,
    pub(super) success: bool,
}

impl ToolCalls {
    /// The input of an open call.
    pub(super) fn input_of(&self, id: &str) -> Option<Value> {
        serde_json::from_str(&self.open.get(id)?.input).ok()
    }

    /// The name and input of an open call.
    pub(super) fn open_call(&self, id: &str) -> Option<(&str, Value)> {
        self.open.get(id).map(|call| (call.name.as_str(), call.input()))
    }

    /// The ids and names of the calls that are not complete and not denied.
    pub(super) fn running(&self) -> impl Iterator<Item = (&str, &str)> {
        let running = self.open.iter().filter(|(_, call)| call.ready && !call.is_denied);
        running.map(|(id, call)| (id.as_str(), call.name.as_str()))
    }

    /// Records that the user stopped a call.
    pub(super) fn stopped(&mut self, id: &str) {
        if let Some(call) = self.open.get_mut(id) {
            call.is_stopped = true;
        }
    }

    pub(super) fn is_open(&self, id: &str) -> bool {
        self.open.contains_key(id)
    }

    /// Starts a call, unless it is known.
    pub(super) fn start(&mut self, turn: &TurnId, id: &str, name: &str) -> Option<StateAction> {
        if self.open.contains_key(id) || self.complete.contains(id) {
            return None;
        }
        let call = OpenToolCall {
            turn: turn.as_str().to_owned(),
            name: name.to_owned(),
            input: String::new(),
            edit: is_edit(name).then(EditProgress::default),
            ready: false,
            is_denied: false,
            is_stopped: false,
        };
        self.open.insert(id.to_owned(), call);
        Some(StateAction::ChatToolCallStart(ChatToolCallStartAction {
            turn_id: turn.as_str().to_owned(),
            tool_call_id: id.to_owned(),
            meta: Some(description::meta(name)).filter(|meta| !meta.is_empty()),
            tool_name: name.to_owned(),
            display_name: description::title(name),
            intention: None,
            contributor: None,
        }))
    }

    /// Appends to a call's input.
    pub(super) fn delta(&mut self, id: &str, delta: &BlockDelta) -> Option<StateAction> {
        let BlockDelta::InputJson(delta) = delta else { return None };
        let call = self.open.get_mut(id).filter(|call| !call.ready)?;
        let content = delta.partial_json.as_ref().filter(|json| !json.is_empty())?;
        call.input.push_str(content);
        match &mut call.edit {
            Some(edit) => edit.add(content).then(|| call.progress(id)).flatten(),
            None => Some(call.delta(id, Some(content.clone()), None)),
        }
    }

    /// Completes a call's input. The complete input replaces the streamed one.
    pub(super) fn ready(&mut self, id: &str, input: Option<&RawValue>) -> Vec<StateAction> {
        let Some(call) = self.open.get_mut(id).filter(|call| !call.ready) else { return Vec::new() };
        // The runtime repeats the input of a server tool only in part.
        if let Some(input) = input.filter(|input| call.input.is_empty() || input.get() != "{}") {
            input.get().clone_into(&mut call.input);
        }
        let mut actions = Vec::new();
        if call.edit.as_mut().is_some_and(EditProgress::finish) {
            actions.extend(call.progress(id));
        }
        actions.push(call.set_ready(id));
        actions
    }

    /// Records that the driver asks for a call, and reports it as ready itself. Returns the
    /// start of an unknown call.
    pub(super) fn asked(
        &mut self,
        turn: &TurnId,
        id: &str,
        name: &str,
        input: &Value,
    ) -> Option<StateAction> {
        let start = self.start(turn, id, name);
        if let Some(call) = self.open.get_mut(id) {
            call.input = input.to_string();
            call.ready = true;
        }
        start
    }

    /// Records that clients show a call as denied.
    pub(super) fn denied(&mut self, id: &str) {
        if let Some(call) = self.open.get_mut(id) {
            call.is_denied = true;
        }
    }

    /// Forgets calls that clients no longer show.
    pub(super) fn discard(&mut self, ids: &[String]) {
        self.open.retain(|id, _| !ids.contains(id));
    }

    /// Completes a call with its result, the structured output and the recorded edits. `meta`
    /// adds to the call's metadata.
    pub(super) fn complete(
        &mut self,
        (result, structured, edits): (&ToolResultBlock, Option<&Value>, &[FileEdit]),
        not_run: Option<NotRun>,
        meta: impl FnOnce(&CompletedCall) -> Option<JsonObject>,
    ) -> Vec<StateAction> {
        let Some(id) = &result.tool_use_id else { return Vec::new() };
        let success = result.is_error != Some(true);
        let shown_result = |name: &str| shown(name, result, structured).with_edits(edits);
        self.complete_with(id, success, shown_result, not_run, meta)
    }

    /// Completes a call with a converted result.
    pub(super) fn complete_with(
        &mut self,
        id: &str,
        success: bool,
        shown: impl FnOnce(&str) -> ShownResult,
        not_run: Option<NotRun>,
        meta: impl FnOnce(&CompletedCall) -> Option<JsonObject>,
    ) -> Vec<StateAction> {
        let mut actions = self.ready(id, None);
        let Some(call) = self.open.remove(id) else { return Vec::new() };
        self.complete.insert(id.to_owned());
        if call.is_denied {
            return Vec::new();
        }
        let mut shown = shown(&call.name);
        let edits = if is_edit(&call.name) { None } else { shown.take_edits() };
        let input = call.input();
        let words = CallWords::of(&call.name, &input);
        let result = match (not_run, success) {
            (Some(NotRun::Denied(by)), false) => {
                let text = shown.text.clone();
                failure(shown, words.denied(by), "denied", &text)
            }
            (_, false) if call.is_stopped => {
                failure(shown, words.stopped(), "cancelled", "The user stopped the call.")
            }
            (Some(NotRun::Stopped), false) => {
                let none = ShownResult::default();
                failure(none, words.stopped(), "cancelled", "The call was stopped.")
            }
            (None, false) => {
                let text = shown.text.clone();
                failure(shown, words.failed(), "failed", &text)
            }
            (_, true) => ToolCallResult {
                success,
                past_tense_message: if shown.in_background {
                    words.in_background()
                } else {
                    words.past_tense()
                },
                content: Some(shown.content).filter(|content| !content.is_empty()),
                structured_content: shown.structured,
                error: None,
            },
        };
        let completed = CompletedCall { name: call.name, input, success };
        let mut added = meta(&completed).unwrap_or_default();
        added.extend(edits);
        let meta = (!added.is_empty()).then(|| {
            let mut meta = description::meta(&completed.name);
            meta.extend(added);
            meta
        });
        actions.push(StateAction::ChatToolCallComplete(ChatToolCallCompleteAction {
            turn_id: call.turn,
            tool_call_id: id.to_owned(),
            meta,
            result,
            requires_result_confirmation: None,
        }));
        actions
    }
}

impl OpenToolCall {
    /// The input as a value. An input that is not JSON is shown as text.
    fn input(&self) -> Value {
        if self.input.is_empty() {
            return json!({});
        }
        serde_json::from_str(&self.input).unwrap_or_else(|_| Value::String(self.input.clone()))
    }

    /// A message about the progress of an edit.
    fn progress(&self, id: &str) -> Option<StateAction> {
        let edit = self.edit.as_ref()?;
        let message = CallWords::of(&self.name, &edit.input()).progress(&edit.note());
        Some(self.delta(id, None, Some(message)))
    }

    fn delta(&self, id: &str, content: Option<String>, message: Option<StringOrMarkdown>) -> StateAction {
        StateAction::ChatToolCallDelta(ChatToolCallDeltaAction {
            turn_id: self.turn.clone(),
            tool_call_id: id.to_owned(),
            meta: None,
            content,
            invocation_message: message,
        })
    }

    fn set_ready(&mut self, id: &str) -> StateAction {
        self.ready = true;
        let input = self.input();
        let shown_input = match &input {
            Value::String(text) => text.clone(),
            other => shown_input(&self.name, other),
        };
        StateAction::ChatToolCallReady(ChatToolCallReadyAction {
            turn_id: self.turn.clone(),
            tool_call_id: id.to_owned(),
            meta: None,
            contributor: None,
            intention: None,
            invocation_message: CallWords::of(&self.name, &input).invocation(),
            tool_input: Some(ToolInput::Inline(shown_input)),
            confirmation_title: None,
            risk_assessment: None,
            edits: None,
            editable: None,
            confirmed: Some(ToolCallConfirmationReason::NotNeeded),
            options: None,
        })
    }
}

/// A failed result.
fn failure(shown: ShownResult, message: StringOrMarkdown, code: &str, reason: &str) -> ToolCallResult {
    ToolCallResult {
        success: false,
        past_tense_message: message,
        content: Some(shown.content).filter(|content| !content.is_empty()),
        structured_content: shown.structured,
        error: Some(json!({ "code": code, "message": reason })),
    }
}

#[cfg(test)]
#[path = "tools_tests.rs"]
mod tests;
