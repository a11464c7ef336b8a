//! Discarded parts: an answer broke off, and the agent starts it again.
//!
//! The protocol has no action that removes a part. A repeated `chat/turnStarted` empties the
//! turn in every reducer; then each remaining part is published again. This is not a new
//! turn: its times, its place in the queue and its read state do not change.

use ahp_types::actions::{
    ChatInputRequestedAction, ChatIsReadChangedAction, ChatResponsePartAction,
    ChatToolCallAuthRequiredAction, ChatToolCallReadyAction, ChatTurnStartedAction, ChatUsageAction,
    StateAction,
};
use ahp_types::common::StringOrMarkdown;
use ahp_types::state::{
    ActiveTurn, ResponsePart, SessionStatus, SystemNotificationResponsePart, ToolCallAuthRequiredState,
    ToolCallResponsePart, ToolCallRunningState, ToolCallState,
};

use super::{ActionTarget, AgentState, Decision, DecisionView};
use crate::ids::TurnId;

/// Removes parts from the running turn. Without any of them in the turn, nothing happens.
pub(super) fn discarded(
    agent: &AgentState,
    view: DecisionView<'_>,
    turn: &TurnId,
    parts: Vec<String>,
) -> Decision {
    let Some(active) = &view.chat.active_turn else { return Decision::default() };
    let is_folded = agent.folded.as_ref().is_some_and(|folded| folded.turn == *turn);
    let is_discarded =
        |part: &&ResponsePart| discard_id(part).is_some_and(|id| parts.iter().any(|p| p == id));
    let is_running = active.id == turn.as_str() || is_folded;
    if !is_running || !active.response_parts.iter().any(|part| is_discarded(&part)) {
        return Decision::default();
    }
    let kept: Vec<&ResponsePart> = active.response_parts.iter().filter(|part| !is_discarded(part)).collect();
    let mut actions = vec![turn_started(active)];
    actions.extend(kept.iter().flat_map(|part| part_again(active, part)));
    actions.extend(kept.iter().find_map(|part| status_update(active, part)));
    actions.extend(active.usage.clone().map(|usage| {
        StateAction::ChatUsage(ChatUsageAction { turn_id: active.id.clone(), usage, meta: None })
    }));
    // The start of a turn marks the chat as unread.
    if view.chat.status & SessionStatus::IsRead.bits() != 0 {
        actions.push(StateAction::ChatIsReadChanged(ChatIsReadChangedAction { is_read: true }));
    }
    Decision {
        actions: actions.into_iter().map(|action| (ActionTarget::Chat, action)).collect(),
        discarded: Some(parts),
        ..Decision::default()
    }
}

/// The id by which a part is discarded. Parts without an id always stay.
pub(in crate::session) fn discard_id(part: &ResponsePart) -> Option<&str> {
    match part {
        ResponsePart::Markdown(part) => Some(&part.id),
        ResponsePart::Reasoning(part) => Some(&part.id),
        ResponsePart::ToolCall(part) => match &part.tool_call {
            ToolCallState::Streaming(call) => Some(&call.tool_call_id),
            ToolCallState::PendingConfirmation(call) => Some(&call.tool_call_id),
            ToolCallState::Running(call) => Some(&call.tool_call_id),
            ToolCallState::AuthRequired(call) => Some(&call.tool_call_id),
            ToolCallState::PendingResultConfirmation(call) => Some(&call.tool_call_id),
            ToolCallState::Completed(call) => Some(&call.tool_call_id),
            ToolCallState::Cancelled(call) => Some(&call.tool_call_id),
            ToolCallState::Unknown(_) => None,
        },
        ResponsePart::InputRequest(part) => Some(&part.request.id),
        ResponsePart::ContentRef(part) => Some(&part.uri),
        ResponsePart::SystemNotification(_) | ResponsePart::Error(_) | ResponsePart::Unknown(_) => None,
    }
}

fn turn_started(active: &ActiveTurn) -> StateAction {
    StateAction::ChatTurnStarted(ChatTurnStartedAction {
        turn_id: active.id.clone(),
        started_at: active.started_at.clone(),
        message: active.message.clone(),
        queued_message_id: None,
        meta: None,
    })
}

/// The actions that add a part to the emptied turn.
fn part_again(active: &ActiveTurn, part: &ResponsePart) -> Vec<StateAction> {
    let turn_id = || active.id.clone();
    let added =
        |part| StateAction::ChatResponsePart(ChatResponsePartAction { turn_id: turn_id(), part, meta: None });
    if let ResponsePart::InputRequest(open) = part
        && open.response.is_none()
    {
        // Adding the part would not set the status of the chat.
        let request = open.request.clone();
        return vec![StateAction::ChatInputRequested(ChatInputRequestedAction { request })];
    }
    if let ResponsePart::Error(error) = part {
        // The error of an earlier attempt at a resumed turn. Reducers accept an error part
        // only with the action that ends the turn.
        let content = StringOrMarkdown::Plain(error.error.message.clone());
        let notice = SystemNotificationResponsePart { content, meta: None };
        return vec![added(ResponsePart::SystemNotification(notice))];
    }
    if let ResponsePart::ToolCall(call) = part
        && let ToolCallState::AuthRequired(waiting) = &call.tool_call
    {
        // The official Rust types cannot decode a call in this state.
        let tool_call = ToolCallState::Running(before_sign_in(waiting));
        let required = ChatToolCallAuthRequiredAction {
            turn_id: turn_id(),
            tool_call_id: waiting.tool_call_id.clone(),
            meta: None,
            auth: waiting.auth.clone(),
        };
        let running = ResponsePart::ToolCall(Box::new(ToolCallResponsePart { tool_call }));
        return vec![added(running), StateAction::ChatToolCallAuthRequired(required)];
    }
    vec![added(part.clone())]
}

fn before_sign_in(waiting: &ToolCallAuthRequiredState) -> ToolCallRunningState {
    ToolCallRunningState {
        tool_call_id: waiting.tool_call_id.clone(),
        tool_name: waiting.tool_name.clone(),
        display_name: waiting.display_name.clone(),
        intention: waiting.intention.clone(),
        contributor: waiting.contributor.clone(),
        meta: waiting.meta.clone(),
        invocation_message: waiting.invocation_message.clone(),
        tool_input: waiting.tool_input.clone(),
        confirmed: waiting.confirmed.clone(),
        selected_option: waiting.selected_option.clone(),
        content: waiting.content.clone(),
    }
}

/// The action that sets the status of the chat, if the part is a tool call that waits for
/// the user's decision: adding the part does not. The action does not change the call.
fn status_update(active: &ActiveTurn, part: &ResponsePart) -> Option<StateAction> {
    let ResponsePart::ToolCall(part) = part else { return None };
    let ready = |call: &str, message: &StringOrMarkdown| ChatToolCallReadyAction {
        turn_id: active.id.clone(),
        tool_call_id: call.to_owned(),
        invocation_message: message.clone(),
        meta: None,
        contributor: None,
        intention: None,
        tool_input: None,
        confirmation_title: None,
        risk_assessment: None,
        edits: None,
        editable: None,
        confirmed: None,
        options: None,
    };
    let action = match &part.tool_call {
        ToolCallState::PendingConfirmation(call) => ChatToolCallReadyAction {
            meta: call.meta.clone(),
            contributor: call.contributor.clone(),
            intention: call.intention.clone(),
            tool_input: call.tool_input.clone(),
            confirmation_title: call.confirmation_title.clone(),
            risk_assessment: call.risk_assessment.clone(),
            edits: call.edits.clone(),
            editable: call.editable,
            options: call.options.clone(),
            ..ready(&call.tool_call_id, &call.invocation_message)
        },
        ToolCallState::PendingResultConfirmation(call) => ready(&call.tool_call_id, &call.invocation_message),
        ToolCallState::Streaming(_)
        | ToolCallState::Running(_)
        | ToolCallState::AuthRequired(_)
        | ToolCallState::Completed(_)
        | ToolCallState::Cancelled(_)
        | ToolCallState::Unknown(_) => return None,
    };
    Some(StateAction::ChatToolCallReady(action))
}
