//! Frames of the control protocol: requests in both directions, responses and cancellations.
//!
//! Owns only the types; `crate::control` matches responses to requests.

use serde_json::value::RawValue;

use super::cursor::Cursor;
use super::fields::{Opaque, Tags, Wire, wire_struct};

wire_struct! {
    /// A request from the runtime to the host.
    pub struct ControlRequestMessage {
        /// Request id of the runtime; the response refers to it.
        request_id: String = "request_id",
        /// The request.
        request: IncomingRequest = "request",
    }
}

wire_struct! {
    /// The runtime's response to a host request.
    pub struct ControlResponseMessage {
        /// Body of the response.
        response: ControlResponse = "response",
    }
}

wire_struct! {
    /// The body of a response.
    pub struct ControlResponse {
        /// `success` or `error`.
        subtype: String = "subtype",
        /// Id of the request.
        request_id: String = "request_id",
        /// The result, if any.
        response: Box<RawValue> = "response",
        /// The error message.
        error: String = "error",
        /// Machine-readable form of `error`, in newer runtimes.
        error_code: String = "error_code",
    }
}

wire_struct! {
    /// The runtime cancels one of its requests.
    pub struct ControlCancelRequestMessage {
        /// Id of the request.
        request_id: String = "request_id",
    }
}

/// A request from the runtime.
#[derive(Debug, Clone)]
pub enum IncomingRequest {
    /// Permission to run a tool.
    CanUseTool(Box<CanUseTool>),
    /// A hook registered in `initialize` was triggered.
    HookCallback(Box<HookCallback>),
    /// A JSON-RPC message for an MCP server inside the host.
    McpMessage(Box<McpMessage>),
    /// An MCP server requests input from the user.
    Elicitation(Box<Elicitation>),
    /// A dialog of a kind that the host supports.
    UserDialog(Box<UserDialog>),
    /// The host's token has expired and a new one is needed.
    TokenRefresh(TokenRefresh),
    /// An unknown request, already answered with an error.
    Unknown(Opaque),
}

impl Wire for IncomingRequest {
    fn read(cursor: &mut Cursor<'_>) -> Option<Self> {
        // Requests have a `subtype` and no `type`.
        let subtype = Tags::of(cursor).subtype.unwrap_or_default();
        match &*subtype {
            "can_use_tool" => Wire::read(cursor).map(Self::CanUseTool),
            "hook_callback" => Wire::read(cursor).map(Self::HookCallback),
            "mcp_message" => Wire::read(cursor).map(Self::McpMessage),
            "elicitation" => Wire::read(cursor).map(Self::Elicitation),
            "request_user_dialog" => Wire::read(cursor).map(Self::UserDialog),
            "oauth_token_refresh" | "host_auth_token_refresh" => Wire::read(cursor).map(Self::TokenRefresh),
            _ => Opaque::read(&subtype, cursor).map(Self::Unknown),
        }
    }
}

impl serde::Serialize for IncomingRequest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::CanUseTool(request) => request.serialize(serializer),
            Self::HookCallback(request) => request.serialize(serializer),
            Self::McpMessage(request) => request.serialize(serializer),
            Self::Elicitation(request) => request.serialize(serializer),
            Self::UserDialog(request) => request.serialize(serializer),
            Self::TokenRefresh(request) => request.serialize(serializer),
            Self::Unknown(request) => request.serialize(serializer),
        }
    }
}

wire_struct! {
    /// A permission request for a tool. An "allow" must contain `updatedInput` for older runtimes.
    pub struct CanUseTool {
        /// The tool's name.
        tool_name: String = "tool_name",
        /// The input of the call.
        input: Box<RawValue> = "input",
        /// Id of the call.
        tool_use_id: String = "tool_use_id",
        /// Display name of the tool.
        display_name: String = "display_name",
        /// Purpose of the call, in newer runtimes.
        description: String = "description",
        /// Proposed permission rules for "always allow".
        permission_suggestions: Box<RawValue> = "permission_suggestions",
        /// The path that requires permission.
        blocked_path: String = "blocked_path",
        /// Why permission is required.
        decision_reason: String = "decision_reason",
        /// Type of the reason, in newer runtimes.
        decision_reason_type: String = "decision_reason_type",
        /// Whether the tool itself asks the user a question, in newer runtimes.
        requires_user_interaction: bool = "requires_user_interaction",
        /// The MCP server that provides the tool, in newer runtimes.
        mcp_server: Box<RawValue> = "mcp_server",
        /// Whether to offer no "always allow", in newer runtimes.
        suppress_always_allow_rule: bool = "suppress_always_allow_rule",
        /// Whether to preselect "no", in newer runtimes.
        default_to_no: bool = "default_to_no",
        /// Title of the request, in newer runtimes.
        title: String = "title",
        /// The subagent that calls the tool; absent for the main thread.
        agent_id: String = "agent_id",
    }
}

wire_struct! {
    /// A registered hook was triggered.
    pub struct HookCallback {
        /// Id under which the host registered the hook.
        callback_id: String = "callback_id",
        /// Input of the hook.
        input: Box<RawValue> = "input",
        /// The tool call that triggered the hook.
        tool_use_id: String = "tool_use_id",
    }
}

wire_struct! {
    /// A JSON-RPC message for an in-process MCP server.
    pub struct McpMessage {
        /// The server's name.
        server_name: String = "server_name",
        /// The JSON-RPC message.
        message: Box<RawValue> = "message",
    }
}

wire_struct! {
    /// A request for user input from an MCP server.
    pub struct Elicitation {
        /// The server's name.
        mcp_server_name: String = "mcp_server_name",
        /// Text of the request.
        message: String = "message",
        /// `form` or `url`.
        mode: String = "mode",
        /// URL for the user in `url` mode.
        url: String = "url",
        /// The JSON schema of the answer in `form` mode.
        requested_schema: Box<RawValue> = "requested_schema",
        /// Id of the request, in `url` mode.
        elicitation_id: String = "elicitation_id",
        /// Title of the request.
        title: String = "title",
        /// Display name of the server.
        display_name: String = "display_name",
        /// Purpose of the request.
        description: String = "description",
    }
}

wire_struct! {
    /// A dialog of a kind that the host supports.
    pub struct UserDialog {
        /// Kind of the dialog.
        dialog_kind: String = "dialog_kind",
        /// Content of the dialog.
        payload: Box<RawValue> = "payload",
        /// The tool call that it belongs to.
        tool_use_id: String = "tool_use_id",
    }
}

wire_struct! {
    /// A new token is needed: `oauth_token_refresh` expects `accessToken`, `host_auth_token_refresh`
    /// expects `authToken`.
    pub struct TokenRefresh {
        /// Which of the two kinds it is.
        subtype: String = "subtype",
    }
}
