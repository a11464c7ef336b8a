//! Client actions on tool calls: approvals, denials, and results of client tools.
//!
//! A confirmation is accepted only while its call in the running turn waits for one: a tool
//! never starts after a rejected approval, and an agent never sees a result that still needs
//! the user's approval.

use ahp_types::actions::{
    ChatToolCallCompleteAction, ChatToolCallConfirmedAction, ChatToolCallResultConfirmedAction, StateAction,
};
use ahp_types::common::StringOrMarkdown;
use ahp_types::state::{
    ChatState, ResponsePart, ToolCallContributor, ToolCallPendingResultConfirmationState, ToolCallResult,
    ToolCallState, ToolInput,
};
use serde_json::json;

use super::{ActionTarget, Decision, DecisionView, Effect, reject};
use crate::agent::{AgentCommand, Approval, ToolAnswer};
use crate::ids::{ClientId, TurnId};

/// Handles a client's approval or denial of a call. `remembered` are the permission rules
/// that the answer adds.
pub(super) fn confirmed(
    view: DecisionView<'_>,
    confirmed: &ChatToolCallConfirmedAction,
    remembered: Vec<String>,
) -> Decision {
    let Some(ToolCallState::PendingConfirmation(pending)) =
        call(view, &confirmed.turn_id, &confirmed.tool_call_id)
    else {
        return reject("the tool call is not waiting for confirmation");
    };
    if confirmed.edited_tool_input.is_some() && pending.editable != Some(true) {
        return reject("the input of this tool call cannot be edited");
    }
    // Reducers would keep the old input, so clients would see a different input than runs.
    if confirmed.edited_tool_input.is_some() && !matches!(pending.tool_input, Some(ToolInput::Inline(_))) {
        return reject("only an inline tool input can be edited; approve it as it is, or deny it");
    }
    if let Some(option) = &confirmed.selected_option_id
        && !pending.options.iter().flatten().any(|known| known.id == *option)
    {
        return reject("the tool call does not have this option");
    }
    let edited = confirmed.edited_tool_input.clone();
    answer(
        &confirmed.turn_id,
        &confirmed.tool_call_id,
        ToolAnswer::Confirmed {
            approval: if confirmed.approved { Approval::Approved } else { Approval::Denied },
            input: edited.or_else(|| pending.tool_input.as_ref().and_then(inline)),
            option: confirmed.selected_option_id.clone(),
            suggestion: confirmed.user_suggestion.as_ref().map(|message| message.text.clone()),
            remembered,
        },
    )
}

/// Handles a client's approval or denial of a result.
pub(super) fn result_confirmed(
    view: DecisionView<'_>,
    confirmed: &ChatToolCallResultConfirmedAction,
) -> Decision {
    let Some(ToolCallState::PendingResultConfirmation(pending)) =
        call(view, &confirmed.turn_id, &confirmed.tool_call_id)
    else {
        return reject("the result of this tool call is not waiting for confirmation");
    };
    let reply = match (&pending.contributor, confirmed.approved) {
        // The agent has not received this result yet.
        (Some(ToolCallContributor::Client(_)), true) => {
            ToolAnswer::Completed(Box::new(pending_result(pending)))
        }
        (_, true) => ToolAnswer::ResultConfirmed(Approval::Approved),
        (_, false) => ToolAnswer::ResultConfirmed(Approval::Denied),
    };
    answer(&confirmed.turn_id, &confirmed.tool_call_id, reply)
}

/// The result of a call that waits for its confirmation.
fn pending_result(pending: &ToolCallPendingResultConfirmationState) -> ToolCallResult {
    ToolCallResult {
        success: pending.success,
        past_tense_message: pending.past_tense_message.clone(),
        content: pending.content.clone(),
        structured_content: pending.structured_content.clone(),
        error: pending.error.clone(),
    }
}

/// Handles the result of a client tool. The agent gets it now, or after the user has
/// confirmed it if that is required.
pub(super) fn completed(
    view: DecisionView<'_>,
    client: &ClientId,
    completed: &ChatToolCallCompleteAction,
) -> Decision {
    match call(view, &completed.turn_id, &completed.tool_call_id) {
        Some(ToolCallState::Running(running)) if runs(running.contributor.as_ref(), client) => {
            if completed.requires_result_confirmation == Some(true) {
                return Decision::default();
            }
        }
        // Any client may give up a call that needs a sign-in.
        Some(ToolCallState::AuthRequired(_)) if !completed.result.success => {}
        Some(ToolCallState::AuthRequired(_)) => return reject("the tool call requires sign-in first"),
        Some(ToolCallState::Running(_)) => {
            return reject("this tool is run by another client or by the host");
        }
        _ => return reject("the tool call is not running"),
    }
    let result = Box::new(completed.result.clone());
    answer(&completed.turn_id, &completed.tool_call_id, ToolAnswer::Completed(result))
}

/// Handles progress of a client tool.
pub(super) fn content_changed(
    view: DecisionView<'_>,
    client: &ClientId,
    turn: &str,
    tool_call: &str,
) -> Decision {
    match call(view, turn, tool_call) {
        Some(ToolCallState::Running(running)) if runs(running.contributor.as_ref(), client) => {
            Decision::default()
        }
        Some(ToolCallState::Running(_)) => reject("this tool is run by another client or by the host"),
        _ => reject("the tool call is not running"),
    }
}

/// Fails the calls of client tools whose client has left the session, if any: no other
/// client may complete them.
pub(super) fn fail_orphaned_calls(view: DecisionView<'_>) -> Option<Decision> {
    let active = view.chat.active_turn.as_ref()?;
    let mut decision = Decision::default();
    for part in &active.response_parts {
        let ResponsePart::ToolCall(part) = part else { continue };
        let ToolCallState::Running(running) = &part.tool_call else { continue };
        let Some(ToolCallContributor::Client(owner)) = &running.contributor else { continue };
        if view.session.active_clients.iter().any(|client| client.client_id == owner.client_id) {
            continue;
        }
        let given_up = ChatToolCallCompleteAction {
            turn_id: active.id.clone(),
            tool_call_id: running.tool_call_id.clone(),
            meta: None,
            result: client_gone(),
            requires_result_confirmation: None,
        };
        let told = answer(
            &active.id,
            &running.tool_call_id,
            ToolAnswer::Completed(Box::new(given_up.result.clone())),
        );
        decision.effects.extend(told.effects);
        decision.actions.push((ActionTarget::Chat, StateAction::ChatToolCallComplete(given_up)));
    }
    (!decision.actions.is_empty()).then_some(decision)
}

fn client_gone() -> ToolCallResult {
    const GONE: &str = "The client that ran this tool has disconnected";
    ToolCallResult {
        success: false,
        past_tense_message: StringOrMarkdown::from(GONE.to_owned()),
        content: None,
        structured_content: None,
        error: Some(json!({"message": GONE})),
    }
}

fn answer(turn: &str, tool_call: &str, answer: ToolAnswer) -> Decision {
    let (turn, tool_call) = (TurnId::new(turn), tool_call.to_owned());
    let effect = Effect::Agent(AgentCommand::ToolAnswer { turn, tool_call, answer });
    Decision { effects: vec![effect], ..Decision::default() }
}

/// Whether a call waits for confirmation.
pub(super) fn waits_for_confirmation(view: DecisionView<'_>, turn: &str, tool_call: &str) -> bool {
    matches!(call(view, turn, tool_call), Some(ToolCallState::PendingConfirmation(_)))
}

/// A call of the running turn.
pub(super) fn call<'a>(view: DecisionView<'a>, turn: &str, tool_call: &str) -> Option<&'a ToolCallState> {
    tool_call_in(view.chat, turn, tool_call)
}

/// A tool call of the chat's active turn.
pub(in crate::session) fn tool_call_in<'a>(
    chat: &'a ChatState,
    turn: &str,
    tool_call: &str,
) -> Option<&'a ToolCallState> {
    let active = chat.active_turn.as_ref().filter(|active| active.id == turn)?;
    #[expect(clippy::wildcard_enum_match_arm, reason = "the other parts are not tool calls")]
    active.response_parts.iter().find_map(|part| match part {
        ResponsePart::ToolCall(part) if id(&part.tool_call) == Some(tool_call) => Some(&part.tool_call),
        _ => None,
    })
}

fn id(call: &ToolCallState) -> Option<&str> {
    match call {
        ToolCallState::Streaming(call) => Some(&call.tool_call_id),
        ToolCallState::PendingConfirmation(call) => Some(&call.tool_call_id),
        ToolCallState::Running(call) => Some(&call.tool_call_id),
        ToolCallState::AuthRequired(call) => Some(&call.tool_call_id),
        ToolCallState::PendingResultConfirmation(call) => Some(&call.tool_call_id),
        ToolCallState::Completed(call) => Some(&call.tool_call_id),
        ToolCallState::Cancelled(call) => Some(&call.tool_call_id),
        ToolCallState::Unknown(_) => None,
    }
}

fn runs(contributor: Option<&ToolCallContributor>, client: &ClientId) -> bool {
    matches!(contributor, Some(ToolCallContributor::Client(owner)) if owner.client_id == client.as_str())
}

fn inline(input: &ToolInput) -> Option<String> {
    match input {
        ToolInput::Inline(text) => Some(text.clone()),
        ToolInput::ContentRef(_) => None,
    }
}
