//! The control protocol's frames: requests both ways, their answers and their cancellation.
//!
//! Owns the shapes alone; matching answers to requests is `crate::control`'s work.

use serde_json::value::RawValue;

use super::cursor::Cursor;
use super::fields::{Opaque, Tags, Wire, wire_struct};

wire_struct! {
    /// A request of the runtime's to the host.
    pub struct ControlRequestMessage {
        /// The runtime's id of the request; the answer names it.
        request_id: String = "request_id",
        /// What is asked.
        request: IncomingRequest = "request",
    }
}

wire_struct! {
    /// The runtime's answer to a request of the host's.
    pub struct ControlResponseMessage {
        /// The answer's body.
        response: ControlResponse = "response",
    }
}

wire_struct! {
    /// The body of an answer.
    pub struct ControlResponse {
        /// `success` or `error`.
        subtype: String = "subtype",
        /// The id of the request that is answered.
        request_id: String = "request_id",
        /// The result, absent where there is nothing to say.
        response: Box<RawValue> = "response",
        /// What went wrong.
        error: String = "error",
        /// A machine-readable form of `error`, in newer runtimes.
        error_code: String = "error_code",
    }
}

wire_struct! {
    /// The runtime no longer wants an answer to one of its requests.
    pub struct ControlCancelRequestMessage {
        /// The id of the request.
        request_id: String = "request_id",
    }
}

/// What the runtime asks of the host.
#[derive(Debug, Clone)]
pub enum IncomingRequest {
    /// May a tool run?
    CanUseTool(Box<CanUseTool>),
    /// A hook that was registered in `initialize` fired.
    HookCallback(Box<HookCallback>),
    /// A JSON-RPC message for an MCP server that lives in the host.
    McpMessage(Box<McpMessage>),
    /// An MCP server asks the user something.
    Elicitation(Box<Elicitation>),
    /// A dialog of a kind that the host said it can show.
    UserDialog(Box<UserDialog>),
    /// The host's token is not valid any more, and another one is needed.
    TokenRefresh(TokenRefresh),
    /// A request that this crate does not know; it has been answered with an error already.
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
    /// The runtime asks whether a tool may run. An "allow" must carry `updatedInput` for older runtimes.
    pub struct CanUseTool {
        /// The tool's name.
        tool_name: String = "tool_name",
        /// The input that it would run with.
        input: Box<RawValue> = "input",
        /// The call's id.
        tool_use_id: String = "tool_use_id",
        /// The tool's name for people.
        display_name: String = "display_name",
        /// What the call is for, in newer runtimes.
        description: String = "description",
        /// Permission rules the runtime proposes for "always allow".
        permission_suggestions: Box<RawValue> = "permission_suggestions",
        /// The path that made the question necessary.
        blocked_path: String = "blocked_path",
        /// Why the runtime asks.
        decision_reason: String = "decision_reason",
        /// What made it ask, in newer runtimes.
        decision_reason_type: String = "decision_reason_type",
        /// Whether the tool itself is a question to the user, in newer runtimes.
        requires_user_interaction: bool = "requires_user_interaction",
        /// The MCP server whose tool it is, in newer runtimes.
        mcp_server: Box<RawValue> = "mcp_server",
        /// Whether no "always allow" should be offered, in newer runtimes.
        suppress_always_allow_rule: bool = "suppress_always_allow_rule",
        /// Whether "no" should be the default, in newer runtimes.
        default_to_no: bool = "default_to_no",
        /// What to call the question, in newer runtimes.
        title: String = "title",
        /// The subagent that wants to run the tool, absent for the main thread.
        agent_id: String = "agent_id",
    }
}

wire_struct! {
    /// A registered hook fired.
    pub struct HookCallback {
        /// The id under which the host registered the hook.
        callback_id: String = "callback_id",
        /// The hook's input.
        input: Box<RawValue> = "input",
        /// The tool call that the hook is about.
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
    /// A question of an MCP server's to the user.
    pub struct Elicitation {
        /// The server's name.
        mcp_server_name: String = "mcp_server_name",
        /// The question.
        message: String = "message",
        /// `form` or `url`.
        mode: String = "mode",
        /// Where the user is sent to in `url` mode.
        url: String = "url",
        /// The JSON schema of the answer in `form` mode.
        requested_schema: Box<RawValue> = "requested_schema",
        /// The question's id, in `url` mode.
        elicitation_id: String = "elicitation_id",
        /// What to call the question.
        title: String = "title",
        /// The server's name for people.
        display_name: String = "display_name",
        /// What the question is for.
        description: String = "description",
    }
}

wire_struct! {
    /// A dialog of a kind that the host said it can show.
    pub struct UserDialog {
        /// The kind.
        dialog_kind: String = "dialog_kind",
        /// What it shows.
        payload: Box<RawValue> = "payload",
        /// The tool call that it is about.
        tool_use_id: String = "tool_use_id",
    }
}

wire_struct! {
    /// Another token is needed: `oauth_token_refresh` wants `accessToken`, `host_auth_token_refresh` wants
    /// `authToken`.
    pub struct TokenRefresh {
        /// Which of the two it is.
        subtype: String = "subtype",
    }
}
