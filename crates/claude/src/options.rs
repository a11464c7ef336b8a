//! Launch options of a runtime.
//!
//! Owns `LaunchOptions` and its types. `plan` derives arguments and environment from them. Does not start
//! the process.

mod environment;
mod kinds;
mod plan;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};

pub use environment::is_reserved_variable;
pub(crate) use environment::{ENTRYPOINT, MARK};
pub use kinds::{
    AgentDefinition, ApiEndpoint, BypassPermissions, Conversation, Directories, Effort, HookRegistration,
    McpOptions, McpServer, McpSources, PermissionMode, Program, SettingSource, SystemPrompt, Thinking, Tools,
    WardenProgram,
};
pub use plan::{LaunchFiles, LaunchPlan};

/// Default time limit of a start.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Options for launching a runtime. Create with [`LaunchOptions::new`], then set fields.
#[derive(Clone)]
pub struct LaunchOptions {
    /// The runtime.
    pub program: Program,
    /// The warden program that supervises the runtime.
    pub warden: WardenProgram,
    /// Working directory; must exist.
    pub cwd: PathBuf,
    /// The conversation to run.
    pub conversation: Conversation,
    /// Endpoint of model requests; `None` uses the user's account and settings unchanged.
    pub endpoint: Option<ApiEndpoint>,
    /// Model; `None` selects the runtime's default.
    pub model: Option<String>,
    /// Fallback if the model is overloaded.
    pub fallback_model: Option<String>,
    /// Effort level; `None` selects the runtime's default.
    pub effort: Option<Effort>,
    /// Thinking mode; `None` selects the runtime's default.
    pub thinking: Option<Thinking>,
    /// Permission mode; `None` uses the user's settings.
    pub permission_mode: Option<PermissionMode>,
    /// Whether the mode that skips all permission checks can be selected, now or later.
    pub bypass_permissions: BypassPermissions,
    /// Largest number of model calls in a turn.
    pub max_turns: Option<u32>,
    /// The system prompt.
    pub system_prompt: SystemPrompt,
    /// Base context appended to the system prompt.
    pub append_system_prompt: Option<String>,
    /// Whether a resumed conversation uses the system prompt of these options. Otherwise newer runtimes
    /// continue with the original one; older ones always use the new one.
    pub renew_system_prompt: bool,
    /// Additional directories that the runtime may access.
    pub directories: Vec<PathBuf>,
    /// Agent of the main thread.
    pub agent: Option<String>,
    /// Subagents by name, in addition to those in the user's files.
    pub agents: BTreeMap<String, AgentDefinition>,
    /// Plugin directories.
    pub plugins: Vec<PathBuf>,
    /// MCP servers.
    pub mcp: McpOptions,
    /// Available tools, and tools that run without confirmation.
    pub tools: Tools,
    /// Hooks handled by the host.
    pub hooks: Vec<HookRegistration>,
    /// Whether to report the hooks that the runtime runs itself.
    pub hook_events: bool,
    /// JSON schema of the final answer of a turn.
    pub json_schema: Option<Value>,
    /// Settings in the format of the settings files; override user and project settings. Settings
    /// required by the endpoint take precedence.
    pub settings: Map<String, Value>,
    /// Settings files that the runtime reads.
    pub setting_sources: Vec<SettingSource>,
    /// Whether every message creates a file checkpoint for rewinding.
    pub file_checkpoints: bool,
    /// Whether to include text from subagents; newer runtimes only.
    pub forward_subagent_text: bool,
    /// Whether the host can stop single tasks. Otherwise an interrupt of a newer runtime also ends its
    /// subagents in the background; older ones always keep them.
    pub per_task_stop: bool,
    /// Environment to inherit, captured by the caller.
    pub environment: BTreeMap<OsString, OsString>,
    /// Variables to set regardless of any other rule.
    pub overrides: BTreeMap<OsString, OsString>,
    /// Directory for temporary private files; created if missing.
    pub scratch_dir: PathBuf,
    /// Folder of the process registry (see [`crate::process_registry`]); `None` disables it.
    pub registry: Option<PathBuf>,
    /// Time limit of the start, during which the user's hooks run.
    pub start_timeout: Duration,
}

impl LaunchOptions {
    /// Options with an empty environment and defaults from the runtime and the user's settings.
    pub fn new(
        program: Program,
        warden: WardenProgram,
        conversation: Conversation,
        directories: Directories,
    ) -> Self {
        Self {
            program,
            warden,
            cwd: directories.cwd,
            conversation,
            endpoint: None,
            model: None,
            fallback_model: None,
            effort: None,
            thinking: None,
            permission_mode: None,
            bypass_permissions: BypassPermissions::Forbidden,
            max_turns: None,
            system_prompt: SystemPrompt::RuntimeDefault,
            append_system_prompt: None,
            renew_system_prompt: false,
            directories: Vec::new(),
            agent: None,
            agents: BTreeMap::new(),
            plugins: Vec::new(),
            mcp: McpOptions::default(),
            tools: Tools::default(),
            hooks: Vec::new(),
            hook_events: false,
            json_schema: None,
            settings: Map::new(),
            setting_sources: vec![SettingSource::User, SettingSource::Project, SettingSource::Local],
            file_checkpoints: false,
            forward_subagent_text: false,
            per_task_stop: false,
            environment: BTreeMap::new(),
            overrides: BTreeMap::new(),
            scratch_dir: directories.scratch,
            registry: None,
            start_timeout: START_TIMEOUT,
        }
    }
}

impl LaunchOptions {
    /// Forces the new system prompt on resume if it differs from the previous one.
    pub(crate) fn renew_system_prompt_if_changed(&mut self, before: &Self) {
        self.renew_system_prompt |= self.append_system_prompt != before.append_system_prompt
            || self.system_prompt != before.system_prompt;
    }
}

/// Prints only the names of variables, settings and MCP servers, because their values contain secrets.
impl fmt::Debug for LaunchOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("LaunchOptions")
            .field("program", &self.program)
            .field("warden", &self.warden)
            .field("cwd", &self.cwd)
            .field("conversation", &self.conversation)
            .field("endpoint", &self.endpoint)
            .field("model", &self.model)
            .field("effort", &self.effort)
            .field("permission_mode", &self.permission_mode)
            .field("max_turns", &self.max_turns)
            .field("append_system_prompt", &self.append_system_prompt)
            .field("directories", &self.directories)
            .field("agents", &self.agents.keys())
            .field("plugins", &self.plugins)
            .field("mcp", &self.mcp)
            .field("settings", &self.settings.keys())
            .field("environment", &self.environment.keys())
            .field("overrides", &self.overrides.keys())
            .field("scratch_dir", &self.scratch_dir)
            .field("registry", &self.registry)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
