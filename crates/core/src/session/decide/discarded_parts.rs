//! An answer that broke off and that the agent starts again.
//!
//! The protocol cannot remove a part, and VS Code shows all parts twice if a turn is published
//! again. So the parts stay, and a notification names them; clients can hide them.

use ahp_types::actions::{
    ChatResponsePartAction, ChatToolCallConfirmedAction, ChatToolCallReadyAction, StateAction,
};
use ahp_types::common::{JsonObject, StringOrMarkdown};
use ahp_types::state::{
    ResponsePart, SystemNotificationResponsePart, ToolCallCancellationReason, ToolCallState,
};
use serde_json::json;

use super::{ActionTarget, AgentState, Decision, DecisionView, turns};
use crate::ids::TurnId;

/// The key of the notification's `_meta` that lists the parts.
const META: &str = "innkeeper.discardedParts";

const TEXT: &str = "The answer broke off. It starts again below.";

/// Marks parts of the running turn as discarded. Unknown parts are ignored.
pub(super) fn discarded(
    agent: &AgentState,
    view: DecisionView<'_>,
    turn: &TurnId,
    parts: Vec<String>,
) -> Decision {
    let mut decision = Decision::default();
    let Some(active) = &view.chat.active_turn else { return decision };
    let is_folded = agent.folded.as_ref().is_some_and(|folded| folded.turn == *turn);
    if turns::running(view) != Some(turn.as_str()) && !is_folded {
        return decision;
    }
    let mut known = Vec::new();
    for part in &active.response_parts {
        #[expect(clippy::wildcard_enum_match_arm, reason = "the other parts do not break off")]
        let id = match part {
            ResponsePart::Markdown(part) => &part.id,
            ResponsePart::Reasoning(part) => &part.id,
            ResponsePart::ToolCall(part) => match &part.tool_call {
                ToolCallState::Streaming(call) => &call.tool_call_id,
                ToolCallState::Running(call) => &call.tool_call_id,
                _ => continue,
            },
            _ => continue,
        };
        if !parts.contains(id) {
            continue;
        }
        known.push(id.clone());
        if matches!(part, ResponsePart::ToolCall(_)) {
            let skipped = skip(&active.id, id);
            decision.actions.extend(skipped.into_iter().map(|action| (ActionTarget::Chat, action)));
        }
    }
    if !known.is_empty() {
        let part = ResponsePart::SystemNotification(SystemNotificationResponsePart {
            content: StringOrMarkdown::from(TEXT.to_owned()),
            meta: Some(JsonObject::from_iter([(META.to_owned(), json!(known))])),
        });
        let action = ChatResponsePartAction { turn_id: active.id.clone(), part, meta: None };
        decision.actions.push((ActionTarget::Chat, StateAction::ChatResponsePart(action)));
    }
    decision
}

/// Ends a call that will not run. Only a call that waits for confirmation can be skipped.
fn skip(turn: &str, tool_call: &str) -> [StateAction; 2] {
    let ready = ChatToolCallReadyAction {
        turn_id: turn.to_owned(),
        tool_call_id: tool_call.to_owned(),
        meta: None,
        contributor: None,
        intention: None,
        invocation_message: StringOrMarkdown::from("Broke off".to_owned()),
        tool_input: None,
        confirmation_title: None,
        risk_assessment: None,
        edits: None,
        editable: None,
        confirmed: None,
        options: None,
    };
    let confirmed = ChatToolCallConfirmedAction {
        turn_id: turn.to_owned(),
        tool_call_id: tool_call.to_owned(),
        meta: None,
        approved: false,
        confirmed: None,
        reason: Some(ToolCallCancellationReason::Skipped),
        edited_tool_input: None,
        user_suggestion: None,
        reason_message: None,
        selected_option_id: None,
    };
    [StateAction::ChatToolCallReady(ready), StateAction::ChatToolCallConfirmed(confirmed)]
}
