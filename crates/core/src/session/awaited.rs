//! The resources for which a session needs a token: a tool call in one of its chats or an
//! MCP server is waiting for it. The session document alone is read; it contains what its
//! chats wait for.

use ahp_types::state::{
    ChildCustomization, Customization, McpServerState, ProtectedResourceMetadata, SessionInputRequest,
    SessionState,
};

/// The resources that need a token; may contain duplicates.
pub(crate) fn awaited(session: &SessionState) -> impl Iterator<Item = &ProtectedResourceMetadata> {
    let by_calls = session.input_needed.iter().flatten().filter_map(|request| match request {
        SessionInputRequest::ToolAuthentication(request) => Some(&request.tool_call.auth.resource),
        SessionInputRequest::ChatInput(_)
        | SessionInputRequest::ToolConfirmation(_)
        | SessionInputRequest::ToolClientExecution(_)
        | SessionInputRequest::Unknown(_) => None,
    });
    let by_servers =
        session.customizations.iter().flatten().flat_map(servers).filter_map(|state| match state {
            McpServerState::AuthRequired(required) => Some(&required.resource),
            McpServerState::Starting(_)
            | McpServerState::Ready(_)
            | McpServerState::Error(_)
            | McpServerState::Stopped(_)
            | McpServerState::Unknown(_) => None,
        });
    by_calls.chain(by_servers)
}

/// The states of the MCP servers in a customization.
fn servers(customization: &Customization) -> Vec<&McpServerState> {
    let children = match customization {
        Customization::McpServer(server) => return vec![&server.state],
        Customization::Plugin(plugin) => plugin.children.as_deref(),
        Customization::Directory(directory) => directory.children.as_deref(),
        Customization::Unknown(_) => None,
    };
    let states = children.unwrap_or_default().iter().filter_map(|child| match child {
        ChildCustomization::McpServer(server) => Some(&server.state),
        ChildCustomization::Agent(_)
        | ChildCustomization::Skill(_)
        | ChildCustomization::Prompt(_)
        | ChildCustomization::Rule(_)
        | ChildCustomization::Hook(_)
        | ChildCustomization::Unknown(_) => None,
    });
    states.collect()
}
