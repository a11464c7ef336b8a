//! Child chats: the chats of subagents, which the agent of the parent chat fills.

use ahp_types::actions::{ChatTurnStartedAction, StateAction};
use ahp_types::state::{ChatOrigin, ChatState};

use super::{ActionTarget, Decision, DecisionView};
use crate::agent::ChildChat;

/// The parent of a subagent's chat.
pub(in crate::session) fn parent_of(chat: &ChatState) -> Option<&str> {
    match &chat.origin {
        Some(ChatOrigin::Tool { chat, .. }) => Some(chat),
        Some(
            ChatOrigin::User | ChatOrigin::Fork { .. } | ChatOrigin::SideChat { .. } | ChatOrigin::Unknown(_),
        )
        | None => None,
    }
}

/// Whether a chat is a subagent's chat.
pub(super) fn is_child(chat: &ChatState) -> bool {
    parent_of(chat).is_some()
}

/// Starts the turn of a subagent's chat.
pub(super) fn started(view: DecisionView<'_>, child: &ChildChat) -> Decision {
    let is_taken = view.turns.iter().any(|turn| turn.id == child.turn.as_str());
    if is_taken || view.chat.active_turn.is_some() {
        tracing::error!(child = %child.id, "ignoring repeated start of a subagent");
        return Decision::default();
    }
    let started = ChatTurnStartedAction {
        turn_id: child.turn.as_str().to_owned(),
        started_at: view.time.to_owned(),
        message: child.message.clone(),
        queued_message_id: None,
        meta: None,
    };
    Decision {
        actions: vec![(ActionTarget::Chat, StateAction::ChatTurnStarted(started))],
        ..Decision::default()
    }
}
