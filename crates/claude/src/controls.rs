//! Typed control requests from the host to a runtime.
//!
//! Owns their names, fields and responses. Does not keep the runtime alive: after its exit every request
//! fails. Older runtimes reject requests that only newer ones support, with [`RequestError::Refused`].

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
    RewindResult, SettingsAnswer, SideAnswer, Title,
};

use crate::control::{Control, REQUEST_TIMEOUT, RequestError, ResponseValue, SendError};
use crate::options::{Effort, McpServer, PermissionMode};
use crate::wire::Wire;

/// Timeout of requests for which the runtime calls a model.
const MODEL_TIMEOUT: Duration = Duration::from_secs(120);

/// Timeout of requests that wait for a browser login.
const PERSON_TIMEOUT: Duration = Duration::from_secs(600);

/// Sends control requests to one runtime; cheap to clone.
#[derive(Debug, Clone)]
pub struct Controls {
    control: Arc<Control>,
}

/// Whether a feature is enabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Toggle {
    /// Enabled.
    On,
    /// Disabled.
    Off,
}

/// Whether a rewind changes files or only counts the changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RewindMode {
    /// Changes the files.
    Restore,
    /// Only counts the changes.
    DryRun,
}

/// Treatment of queued messages when a turn is interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queued {
    /// Run them next.
    Keep,
    /// Drop them; newer runtimes only.
    Cancel,
}

/// A server in the set of dynamic MCP servers.
#[derive(Debug, Clone, PartialEq)]
pub enum DynamicMcpServer {
    /// A server that the runtime starts or connects to.
    External(McpServer),
    /// A server inside the host process.
    InProcess,
}

impl Controls {
    pub(crate) fn new(control: Arc<Control>) -> Self {
        Self { control }
    }

    /// Sends any request, with any fields and the given timeout.
    pub async fn request_within(
        &self,
        timeout: Duration,
        subtype: &str,
        fields: Map<String, Value>,
    ) -> Result<Option<Box<RawValue>>, RequestError> {
        self.control.request(subtype, fields, timeout).await
    }

    /// Asks the runtime to end its turn. The turn's result follows; an idle runtime only confirms.
    ///
    /// The call itself sends the request, ahead of anything sent later; the future only waits for the
    /// response.
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

    /// Changes the model; `None` selects the default. Older runtimes accept any name and use it from the
    /// next turn; newer ones validate it and use it from the next model call.
    ///
    /// The call itself sends the request, ahead of anything sent later; the future only waits for the
    /// response.
    pub fn set_model(
        &self,
        model: Option<&str>,
    ) -> impl Future<Output = Result<(), RequestError>> + Send + use<> {
        let fields = model.map_or_else(|| json!({}), |model| json!({ "model": model }));
        let answer = self.ask_now("set_model", fields);
        async move { answer.await.map(drop) }
    }

    /// Changes the permission mode from the next tool call on.
    pub async fn set_permission_mode(
        &self,
        mode: PermissionMode,
    ) -> Result<PermissionModeAnswer, RequestError> {
        Ok(typed(self.ask("set_permission_mode", json!({ "mode": mode.as_str() })).await?))
    }

    /// Sets the thinking budget in tokens: 0 disables thinking, `None` selects the default.
    pub async fn set_max_thinking_tokens(&self, tokens: Option<u32>) -> Result<(), RequestError> {
        self.ask("set_max_thinking_tokens", json!({ "max_thinking_tokens": tokens })).await.map(drop)
    }

    /// Merges settings into the runtime's launch settings.
    pub async fn apply_settings(&self, settings: Map<String, Value>) -> Result<(), RequestError> {
        self.ask("apply_flag_settings", json!({ "settings": settings })).await.map(drop)
    }

    /// Changes the effort level; `None` selects the default.
    pub async fn set_effort(&self, effort: Option<Effort>) -> Result<(), RequestError> {
        let level = effort.map(Effort::as_str);
        self.apply_settings(Map::from_iter([("effortLevel".to_owned(), json!(level))])).await
    }

    /// Returns the effective settings.
    pub async fn settings(&self) -> Result<SettingsAnswer, RequestError> {
        Ok(typed(self.ask("get_settings", json!({})).await?))
    }

    /// Returns the MCP servers and their status.
    pub async fn mcp_status(&self) -> Result<McpStatus, RequestError> {
        Ok(typed(self.ask("mcp_status", json!({})).await?))
    }

    /// Replaces the dynamic MCP servers.
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

    /// Reconnects an MCP server.
    pub async fn reconnect_mcp(&self, server: &str) -> Result<(), RequestError> {
        self.ask("mcp_reconnect", json!({ "serverName": server })).await.map(drop)
    }

    /// Enables or disables an MCP server.
    pub async fn toggle_mcp(&self, server: &str, switch: Toggle) -> Result<(), RequestError> {
        let enabled = switch == Toggle::On;
        self.ask("mcp_toggle", json!({ "serverName": server, "enabled": enabled })).await.map(drop)
    }

    /// Forwards a message, such as a notification, from an MCP server inside the host to the runtime.
    pub async fn mcp_message(&self, server: &str, message: Value) -> Result<(), RequestError> {
        self.ask("mcp_message", json!({ "server_name": server, "message": message })).await.map(drop)
    }

    /// Starts the login to an MCP server; the response contains the URL for the user.
    pub async fn mcp_authenticate(&self, server: &str) -> Result<Option<Box<RawValue>>, RequestError> {
        self.ask("mcp_authenticate", json!({ "serverName": server })).await
    }

    /// Deletes the stored login of an MCP server.
    pub async fn mcp_clear_auth(&self, server: &str) -> Result<(), RequestError> {
        self.ask("mcp_clear_auth", json!({ "serverName": server })).await.map(drop)
    }

    /// Restores files to their state before the message with this uuid. Requires the launch option
    /// `file_checkpoints`.
    pub async fn rewind_files(&self, message: Uuid, mode: RewindMode) -> Result<RewindResult, RequestError> {
        let mut fields = json!({ "user_message_id": message.to_string() });
        if mode == RewindMode::DryRun
            && let Some(fields) = fields.as_object_mut()
        {
            fields.insert("dry_run".to_owned(), json!(true));
        }
        Ok(typed(self.ask("rewind_files", fields).await?))
    }

    /// Cancels a message that the runtime has not started; returns whether that succeeded.
    ///
    /// The call itself sends the request, ahead of anything sent later; the future only waits for the
    /// response.
    pub fn cancel_message(
        &self,
        message: Uuid,
    ) -> impl Future<Output = Result<bool, RequestError>> + Send + use<> {
        let answer = self.ask_now("cancel_async_message", json!({ "message_uuid": message.to_string() }));
        async move {
            let answer: Option<Value> = answer.await?.and_then(|raw| serde_json::from_str(raw.get()).ok());
            Ok(answer.and_then(|answer| answer.get("cancelled")?.as_bool()).unwrap_or(false))
        }
    }

    /// Marks a file as already read by the model at this modification time.
    pub async fn seed_read_state(&self, path: &Path, modified_ms: u64) -> Result<(), RequestError> {
        self.ask("seed_read_state", json!({ "path": path, "mtime": modified_ms })).await.map(drop)
    }

    /// Stops a background task.
    pub async fn stop_task(&self, task: &str) -> Result<(), RequestError> {
        self.ask("stop_task", json!({ "task_id": task })).await.map(drop)
    }

    /// Reloads plugins from disk.
    pub async fn reload_plugins(&self) -> Result<ReloadedPlugins, RequestError> {
        Ok(typed(self.ask("reload_plugins", json!({})).await?))
    }

    /// Returns the context usage. Expensive: the runtime counts tokens in dozens of calls.
    pub async fn context_usage(&self) -> Result<Option<Box<RawValue>>, RequestError> {
        self.control.request("get_context_usage", Map::new(), MODEL_TIMEOUT).await
    }

    /// Generates a title from a description with the model and optionally saves it as the conversation's
    /// title.
    pub async fn generate_title(&self, description: &str, keep: Toggle) -> Result<Title, RequestError> {
        let fields = json!({ "description": description, "persist": keep == Toggle::On });
        Ok(typed(self.control.request("generate_session_title", object(fields), MODEL_TIMEOUT).await?))
    }

    /// Asks the model a question outside the conversation.
    pub async fn side_question(&self, question: &str) -> Result<SideAnswer, RequestError> {
        let fields = object(json!({ "question": question }));
        Ok(typed(self.control.request("side_question", fields, MODEL_TIMEOUT).await?))
    }

    /// Asks the runtime to exit.
    pub async fn end_session(&self, reason: Option<&str>) -> Result<(), RequestError> {
        let fields = reason.map_or_else(|| json!({}), |reason| json!({ "reason": reason }));
        self.ask("end_session", fields).await.map(drop)
    }

    /// Sets the conversation's title; newer runtimes only.
    pub async fn rename(&self, title: &str) -> Result<(), RequestError> {
        self.ask("rename_session", json!({ "title": title })).await.map(drop)
    }

    /// Sends a request that has no dedicated method.
    pub async fn other(
        &self,
        request: OtherRequest,
        fields: Map<String, Value>,
    ) -> Result<Option<Box<RawValue>>, RequestError> {
        self.control.request(request.as_str(), fields, request.timeout()).await
    }

    /// Sets environment variables in the runtime. The runtime sends no response. Older runtimes pass the
    /// variables to shells started later; newer ones do not.
    pub fn set_variables(&self, variables: &BTreeMap<String, String>) -> Result<(), SendError> {
        self.control.send(&json!({ "type": "update_environment_variables", "variables": variables }))
    }

    /// Answers a request from the runtime.
    pub(crate) fn respond(&self, id: &str, answer: Result<Value, String>) -> Result<(), SendError> {
        self.control.respond(id, answer)
    }

    /// Sends a request immediately; the future waits for the response.
    fn ask_now(
        &self,
        subtype: &str,
        fields: Value,
    ) -> impl Future<Output = Result<ResponseValue, RequestError>> + Send + use<> {
        let asked = self.control.ask(subtype, object(fields));
        async move { asked?.answer(REQUEST_TIMEOUT).await }
    }

    async fn ask(&self, subtype: &str, fields: Value) -> Result<ResponseValue, RequestError> {
        self.control.request(subtype, object(fields), REQUEST_TIMEOUT).await
    }
}

fn object(fields: Value) -> Map<String, Value> {
    if let Value::Object(fields) = fields { fields } else { Map::new() }
}

/// Decodes a response; an unexpected shape decodes as an empty response.
fn typed<T: Wire + Default>(answer: ResponseValue) -> T {
    answer.and_then(|raw| T::from_json(raw.get())).unwrap_or_default()
}

/// Declares the requests without a dedicated method.
macro_rules! other_requests {
    ($($(#[$meta:meta])* $name:ident = $subtype:literal),* $(,)?) => {
        /// Requests without a dedicated method. All except the login requests need a newer runtime.
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
    /// Starts the runtime's login.
    ClaudeAuthenticate = "claude_authenticate",
    /// Passes the redirect of the runtime's login.
    ClaudeOauthCallback = "claude_oauth_callback",
    /// Waits for the runtime's login to complete.
    ClaudeOauthWait = "claude_oauth_wait_for_completion",
    /// Passes the redirect of an MCP server's login.
    McpOauthCallbackUrl = "mcp_oauth_callback_url",
    /// Lists background tasks.
    BackgroundTasks = "background_tasks",
    /// Returns a task's output; needs `task_id`.
    TaskOutput = "get_task_output",
    /// Lists models.
    ListModels = "list_models",
    /// Lists permission rules.
    ListPermissionRules = "list_permission_rules",
    /// Changes a settings file; needs `source` and `settings`.
    UpdateSettings = "update_settings",
    /// Returns the cost of the conversation.
    SessionCost = "get_session_cost",
    /// Returns the account's usage.
    Usage = "get_usage",
    /// Returns the runtime's status.
    Status = "get_status",
    /// Lists hooks.
    HooksListing = "get_hooks_listing",
    /// Returns the runtime's version.
    BinaryVersion = "get_binary_version",
    /// Exports the conversation as text.
    ExportConversation = "export_conversation",
    /// Returns the plan.
    Plan = "get_plan",
    /// Returns the memory files.
    MemoryDialog = "get_memory_dialog",
    /// Returns the skills.
    SkillsDialog = "get_skills_dialog",
    /// Returns the sandbox state.
    SandboxDialog = "get_sandbox_dialog",
    /// Reads a file as the runtime sees it; needs `path`.
    ReadFile = "read_file",
    /// Reloads skills.
    ReloadSkills = "reload_skills",
    /// Reloads output styles.
    ReloadOutputStyles = "reload_output_styles",
    /// Changes the working directory; needs `path`.
    SetCwd = "set_cwd",
    /// Claims the conversation.
    ClaimSession = "claim_session",
    /// Calls a tool of an MCP server.
    McpCall = "mcp_call",
    /// Reads a resource of an MCP server; needs `serverName` and `uri`.
    McpReadResource = "mcp_read_resource",
    /// Registers another repository.
    RegisterRepoRoot = "register_repo_root",
    /// Sets the conversation's colour.
    SetColor = "set_color",
    /// Lists files that match the user's input.
    FileSuggestions = "file_suggestions",
    /// Reports the user's rating of a response.
    MessageRated = "message_rated",
    /// Sends user feedback to the runtime's vendor.
    SubmitFeedback = "submit_feedback",
    /// Pauses or resumes prompt suggestions; needs `paused`.
    SetPromptSuggestionsPaused = "set_prompt_suggestions_paused",
    /// Overrides the permission mode of MCP tools.
    SetMcpPermissionModeOverride = "set_mcp_permission_mode_override",
    /// Enables a channel.
    ChannelEnable = "channel_enable",
    /// Enables remote control of the runtime.
    RemoteControl = "remote_control",
    /// Starts a remote review.
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
