//! The requests that a host makes of a runtime, typed.
//!
//! Owns their names, fields and answers. Does not keep the runtime alive: after its end every request fails.
//! What only newer runtimes know is refused by older ones with [`RequestError::Refused`].

mod answers;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use uuid::Uuid;

pub use answers::{
    InterruptAnswer, McpServerStatus, McpServersChange, McpStatus, PermissionModeAnswer, ReloadedPlugins,
    Rewind, SettingsAnswer, SideAnswer, Title,
};

use crate::control::{Answer, Control, REQUEST_TIMEOUT, RequestError, SendError};
use crate::options::{Effort, McpServer, PermissionMode};
use crate::wire::Wire;

/// How long a request waits that makes the runtime ask a model.
const MODEL_TIMEOUT: Duration = Duration::from_secs(120);

/// How long a request waits for a login that a person goes through in a browser.
const PERSON_TIMEOUT: Duration = Duration::from_secs(600);

/// The requests to one runtime; cheap to clone.
#[derive(Debug, Clone)]
pub struct Controls {
    control: Arc<Control>,
}

/// Whether something is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switch {
    /// It is.
    On,
    /// It is not.
    Off,
}

/// Whether files are changed or only counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RewindMode {
    /// They are changed.
    Restore,
    /// They are counted.
    DryRun,
}

/// What becomes of messages that wait when a turn is interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queued {
    /// They run next.
    Keep,
    /// They are dropped, by newer runtimes.
    Cancel,
}

/// The server of an in-process or dynamic MCP set.
#[derive(Debug, Clone, PartialEq)]
pub enum DynamicMcpServer {
    /// One that the runtime starts or connects to.
    External(McpServer),
    /// One that lives in the host.
    InProcess,
}

impl Controls {
    pub(crate) fn new(control: Arc<Control>) -> Self {
        Self { control }
    }

    /// Sends any request, with any fields, and waits at most so long for the answer.
    pub async fn request_within(
        &self,
        timeout: Duration,
        subtype: &str,
        fields: Map<String, Value>,
    ) -> Result<Option<Box<RawValue>>, RequestError> {
        self.control.request(subtype, fields, timeout).await
    }

    /// Asks the runtime to end its turn. The turn's result follows; an idle runtime just says yes.
    ///
    /// The request is sent by the call itself, before anything that is sent after it; the future only waits
    /// for the answer.
    pub fn interrupt(
        &self,
        queued: Queued,
    ) -> impl Future<Output = Result<InterruptAnswer, RequestError>> + Send + use<> {
        let fields = match queued {
            Queued::Keep => json!({}),
            Queued::Cancel => json!({ "cancel_queued": true }),
        };
        let answer = self.ask_now("interrupt", fields);
        async move { Ok(typed(answer.await?)) }
    }

    /// Changes the model; none is the default. Older runtimes take any name and use it from the next turn
    /// on, newer ones check it and use it from the next call on.
    ///
    /// The request is sent by the call itself, before anything that is sent after it; the future only waits
    /// for the answer.
    pub fn set_model(
        &self,
        model: Option<&str>,
    ) -> impl Future<Output = Result<(), RequestError>> + Send + use<> {
        let fields = model.map_or_else(|| json!({}), |model| json!({ "model": model }));
        let answer = self.ask_now("set_model", fields);
        async move { answer.await.map(drop) }
    }

    /// Changes the permission mode, from the next tool on.
    pub async fn set_permission_mode(
        &self,
        mode: PermissionMode,
    ) -> Result<PermissionModeAnswer, RequestError> {
        Ok(typed(self.ask("set_permission_mode", json!({ "mode": mode.as_str() })).await?))
    }

    /// Changes how much the model may think: so many tokens, nothing at all (0), or the default.
    pub async fn set_max_thinking_tokens(&self, tokens: Option<u32>) -> Result<(), RequestError> {
        self.ask("set_max_thinking_tokens", json!({ "max_thinking_tokens": tokens })).await.map(drop)
    }

    /// Merges settings into those that the runtime was started with.
    pub async fn apply_settings(&self, settings: Map<String, Value>) -> Result<(), RequestError> {
        self.ask("apply_flag_settings", json!({ "settings": settings })).await.map(drop)
    }

    /// Changes how hard the model thinks; none is the default.
    pub async fn set_effort(&self, effort: Option<Effort>) -> Result<(), RequestError> {
        let level = effort.map(Effort::as_str);
        self.apply_settings(Map::from_iter([("effortLevel".to_owned(), json!(level))])).await
    }

    /// The settings in effect.
    pub async fn settings(&self) -> Result<SettingsAnswer, RequestError> {
        Ok(typed(self.ask("get_settings", json!({})).await?))
    }

    /// The MCP servers and how they are.
    pub async fn mcp_status(&self) -> Result<McpStatus, RequestError> {
        Ok(typed(self.ask("mcp_status", json!({})).await?))
    }

    /// Replaces the MCP servers that were added while the runtime runs.
    pub async fn set_mcp_servers(
        &self,
        servers: &BTreeMap<String, DynamicMcpServer>,
    ) -> Result<McpServersChange, RequestError> {
        let servers: Map<_, _> = servers
            .iter()
            .map(|(name, server)| {
                let server = match server {
                    DynamicMcpServer::External(server) => server.to_json(),
                    DynamicMcpServer::InProcess => json!({ "type": "sdk", "name": name }),
                };
                (name.clone(), server)
            })
            .collect();
        Ok(typed(self.ask("mcp_set_servers", json!({ "servers": servers })).await?))
    }

    /// Connects an MCP server again.
    pub async fn reconnect_mcp(&self, server: &str) -> Result<(), RequestError> {
        self.ask("mcp_reconnect", json!({ "serverName": server })).await.map(drop)
    }

    /// Uses an MCP server, or does not.
    pub async fn toggle_mcp(&self, server: &str, switch: Switch) -> Result<(), RequestError> {
        let enabled = switch == Switch::On;
        self.ask("mcp_toggle", json!({ "serverName": server, "enabled": enabled })).await.map(drop)
    }

    /// Hands the runtime a message of an MCP server that lives in the host, such as a notification.
    pub async fn mcp_message(&self, server: &str, message: Value) -> Result<(), RequestError> {
        self.ask("mcp_message", json!({ "server_name": server, "message": message })).await.map(drop)
    }

    /// Begins the login of an MCP server; the answer says where to send the user.
    pub async fn mcp_authenticate(&self, server: &str) -> Result<Option<Box<RawValue>>, RequestError> {
        self.ask("mcp_authenticate", json!({ "serverName": server })).await
    }

    /// Forgets the login of an MCP server.
    pub async fn mcp_clear_auth(&self, server: &str) -> Result<(), RequestError> {
        self.ask("mcp_clear_auth", json!({ "serverName": server })).await.map(drop)
    }

    /// Puts files back to what they were before the message with this uuid. Needs the launch option
    /// `file_checkpoints`.
    pub async fn rewind_files(&self, message: Uuid, mode: RewindMode) -> Result<Rewind, RequestError> {
        let mut fields = json!({ "user_message_id": message.to_string() });
        if mode == RewindMode::DryRun
            && let Some(fields) = fields.as_object_mut()
        {
            fields.insert("dry_run".to_owned(), json!(true));
        }
        Ok(typed(self.ask("rewind_files", fields).await?))
    }

    /// Takes back a message that the runtime has not taken up; answers whether that worked.
    pub async fn cancel_message(&self, message: Uuid) -> Result<bool, RequestError> {
        let answer = self.ask("cancel_async_message", json!({ "message_uuid": message.to_string() })).await?;
        let answer: Option<Value> = answer.and_then(|raw| serde_json::from_str(raw.get()).ok());
        Ok(answer.and_then(|answer| answer.get("cancelled")?.as_bool()).unwrap_or(false))
    }

    /// Tells the runtime that a file was read by the model already, when it was changed last at this time.
    pub async fn seed_read_state(&self, path: &Path, modified_ms: u64) -> Result<(), RequestError> {
        self.ask("seed_read_state", json!({ "path": path, "mtime": modified_ms })).await.map(drop)
    }

    /// Ends a background task.
    pub async fn stop_task(&self, task: &str) -> Result<(), RequestError> {
        self.ask("stop_task", json!({ "task_id": task })).await.map(drop)
    }

    /// Reads plugins from disk again.
    pub async fn reload_plugins(&self) -> Result<ReloadedPlugins, RequestError> {
        Ok(typed(self.ask("reload_plugins", json!({})).await?))
    }

    /// How the context is used. Expensive: the runtime makes some dozens of token counts for it.
    pub async fn context_usage(&self) -> Result<Option<Box<RawValue>>, RequestError> {
        self.control.request("get_context_usage", Map::new(), MODEL_TIMEOUT).await
    }

    /// Has the model think of a title for what is described, and keeps it as the conversation's on request.
    pub async fn generate_title(&self, description: &str, keep: Switch) -> Result<Title, RequestError> {
        let fields = json!({ "description": description, "persist": keep == Switch::On });
        Ok(typed(self.control.request("generate_session_title", object(fields), MODEL_TIMEOUT).await?))
    }

    /// Asks the model something beside the conversation.
    pub async fn side_question(&self, question: &str) -> Result<SideAnswer, RequestError> {
        let fields = object(json!({ "question": question }));
        Ok(typed(self.control.request("side_question", fields, MODEL_TIMEOUT).await?))
    }

    /// Asks the runtime to exit.
    pub async fn end_session(&self, reason: Option<&str>) -> Result<(), RequestError> {
        let fields = reason.map_or_else(|| json!({}), |reason| json!({ "reason": reason }));
        self.ask("end_session", fields).await.map(drop)
    }

    /// Gives the conversation a title, in newer runtimes.
    pub async fn rename(&self, title: &str) -> Result<(), RequestError> {
        self.ask("rename_session", json!({ "title": title })).await.map(drop)
    }

    /// Sends one of the requests without a method of their own, with the fields it needs.
    pub async fn other(
        &self,
        request: OtherRequest,
        fields: Map<String, Value>,
    ) -> Result<Option<Box<RawValue>>, RequestError> {
        self.control.request(request.as_str(), fields, request.timeout()).await
    }

    /// Sets variables in the runtime's own environment. There is no answer. Older runtimes hand them on to the
    /// shells that they start from now on, newer ones do not.
    pub fn set_variables(&self, variables: &BTreeMap<String, String>) -> Result<(), SendError> {
        self.control.send(&json!({ "type": "update_environment_variables", "variables": variables }))
    }

    /// Answers a question of the runtime's.
    pub(crate) fn respond(&self, id: &str, answer: Result<Value, String>) -> Result<(), SendError> {
        self.control.respond(id, answer)
    }

    /// Sends a request at once; the future waits for the answer.
    fn ask_now(
        &self,
        subtype: &str,
        fields: Value,
    ) -> impl Future<Output = Result<Answer, RequestError>> + Send + use<> {
        let asked = self.control.ask(subtype, object(fields));
        async move { asked?.answer(REQUEST_TIMEOUT).await }
    }

    async fn ask(&self, subtype: &str, fields: Value) -> Result<Answer, RequestError> {
        self.control.request(subtype, object(fields), REQUEST_TIMEOUT).await
    }
}

fn object(fields: Value) -> Map<String, Value> {
    if let Value::Object(fields) = fields { fields } else { Map::new() }
}

/// Reads an answer; one of another shape than expected reads as one that says nothing.
fn typed<T: Wire + Default>(answer: Answer) -> T {
    answer.and_then(|raw| T::from_json(raw.get())).unwrap_or_default()
}

/// Declares the requests that have no method of their own.
macro_rules! other_requests {
    ($($(#[$meta:meta])* $name:ident = $subtype:literal),* $(,)?) => {
        /// Requests without a method of their own. All but the logins are known to newer runtimes only.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum OtherRequest {
            $($(#[$meta])* $name,)*
        }

        impl OtherRequest {
            /// The request's name on the wire.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $subtype,)*
                }
            }

            #[cfg(test)]
            const ALL: &'static [Self] = &[$(Self::$name,)*];
        }
    };
}

other_requests! {
    /// The runtime's login: begin.
    ClaudeAuthenticate = "claude_authenticate",
    /// The runtime's login: what the browser was sent back with.
    ClaudeOauthCallback = "claude_oauth_callback",
    /// The runtime's login: wait for its end.
    ClaudeOauthWait = "claude_oauth_wait_for_completion",
    /// An MCP server's login: what the browser was sent back with.
    McpOauthCallbackUrl = "mcp_oauth_callback_url",
    /// The background tasks.
    BackgroundTasks = "background_tasks",
    /// What a task wrote; needs `task_id`.
    TaskOutput = "get_task_output",
    /// The models.
    ListModels = "list_models",
    /// The permission rules.
    ListPermissionRules = "list_permission_rules",
    /// Changes a settings file; needs `source` and `settings`.
    UpdateSettings = "update_settings",
    /// What the conversation has cost.
    SessionCost = "get_session_cost",
    /// What the account has used.
    Usage = "get_usage",
    /// How the runtime is.
    Status = "get_status",
    /// The hooks.
    HooksListing = "get_hooks_listing",
    /// The runtime's version.
    BinaryVersion = "get_binary_version",
    /// The conversation as text.
    ExportConversation = "export_conversation",
    /// The plan.
    Plan = "get_plan",
    /// The memory files.
    MemoryDialog = "get_memory_dialog",
    /// The skills.
    SkillsDialog = "get_skills_dialog",
    /// The sandbox.
    SandboxDialog = "get_sandbox_dialog",
    /// A file as the runtime sees it; needs `path`.
    ReadFile = "read_file",
    /// Reads skills again.
    ReloadSkills = "reload_skills",
    /// Reads output styles again.
    ReloadOutputStyles = "reload_output_styles",
    /// Changes the working directory; needs `path`.
    SetCwd = "set_cwd",
    /// Takes over the conversation.
    ClaimSession = "claim_session",
    /// Calls a tool of an MCP server.
    McpCall = "mcp_call",
    /// Reads a resource of an MCP server; needs `serverName` and `uri`.
    McpReadResource = "mcp_read_resource",
    /// Makes another repository known.
    RegisterRepoRoot = "register_repo_root",
    /// The conversation's colour.
    SetColor = "set_color",
    /// Files that match what a user has typed.
    FileSuggestions = "file_suggestions",
    /// What the user thought of an answer.
    MessageRated = "message_rated",
    /// What the user has to say to the runtime's makers.
    SubmitFeedback = "submit_feedback",
    /// Whether prompts are suggested; needs `paused`.
    SetPromptSuggestionsPaused = "set_prompt_suggestions_paused",
    /// The permission mode of MCP tools.
    SetMcpPermissionModeOverride = "set_mcp_permission_mode_override",
    /// Uses a channel.
    ChannelEnable = "channel_enable",
    /// Lets the runtime be driven from elsewhere.
    RemoteControl = "remote_control",
    /// Begins a review elsewhere.
    UltrareviewLaunch = "ultrareview_launch",
}

impl OtherRequest {
    fn timeout(self) -> Duration {
        if self == Self::ClaudeOauthWait { PERSON_TIMEOUT } else { REQUEST_TIMEOUT }
    }
}

#[cfg(test)]
#[path = "controls_tests.rs"]
mod tests;
