//! Published state that must not outlive an agent's work: the chat's activity, its
//! background work, and the states of MCP servers.

use ahp_types::actions::{
    ChatActivityChangedAction, ChatBackgroundWorkRemovedAction, SessionMcpServerStateChangedAction,
    StateAction,
};
use ahp_types::state::{BackgroundWork, ChatState, McpServerState, McpServerStoppedState, SessionState};

use super::customizations::running_servers;

/// Clears the state of a finished turn.
pub(super) fn clear_turn(chat: &ChatState) -> Option<StateAction> {
    let cleared = StateAction::ChatActivityChanged(ChatActivityChangedAction { activity: None });
    chat.activity.as_ref().map(|_| cleared)
}

/// Clears the state of a chat's closed agent.
pub(in crate::session) fn clear_chat_agent(chat: &ChatState) -> Vec<StateAction> {
    let works = chat.background_work.iter().flatten().filter_map(|work| match work {
        BackgroundWork::Shell(work) => Some(work.id.clone()),
        BackgroundWork::Subagent(work) => Some(work.id.clone()),
        BackgroundWork::Unknown(work) => Some(work.get("id")?.as_str()?.to_owned()),
    });
    let removed = |id| StateAction::ChatBackgroundWorkRemoved(ChatBackgroundWorkRemovedAction { id });
    clear_turn(chat).into_iter().chain(works.map(removed)).collect()
}

/// Clears the state that a session's agents share, after the last one has closed.
pub(in crate::session) fn clear_session_agents(session: &SessionState) -> Vec<StateAction> {
    let stopped = |id: &str| {
        let state = McpServerState::Stopped(McpServerStoppedState {});
        let changed = SessionMcpServerStateChangedAction { id: id.to_owned(), state, channel: None };
        StateAction::SessionMcpServerStateChanged(Box::new(changed))
    };
    running_servers(session).map(stopped).collect()
}
