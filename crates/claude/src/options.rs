//! What a runtime is started with.
//!
//! Owns `LaunchOptions` and the types in it. What follows from them is worked out in `plan`; how the process
//! is started is not decided here.

mod environment;
mod kinds;
mod plan;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use serde_json::{Map, Value};

pub(crate) use environment::MARK;
pub use kinds::{
    AgentDefinition, BypassPermissions, Conversation, Directories, Effort, Endpoint, HookRegistration,
    McpOptions, McpServer, McpSources, PermissionMode, Program, SettingSource, SystemPrompt, Thinking, Tools,
    WardenProgram,
};
pub use plan::{LaunchFiles, LaunchPlan};

/// Everything that a start of the runtime depends on. Made with [`LaunchOptions::new`], then changed field
/// by field.
#[derive(Clone)]
pub struct LaunchOptions {
    /// The runtime.
    pub program: Program,
    /// The process that watches over it.
    pub warden: WardenProgram,
    /// The runtime's working directory, which must exist.
    pub cwd: PathBuf,
    /// The conversation to work on.
    pub conversation: Conversation,
    /// Where model requests go; without one, the user's own account and settings are used as they are.
    pub endpoint: Option<Endpoint>,
    /// The model; without one, the runtime's default.
    pub model: Option<String>,
    /// The model to fall back to when the first one is overloaded.
    pub fallback_model: Option<String>,
    /// How hard the model thinks; without one, the runtime's default.
    pub effort: Option<Effort>,
    /// Whether and how much the model thinks; without one, the runtime's default.
    pub thinking: Option<Thinking>,
    /// The permission mode; without one, what the user's settings say.
    pub permission_mode: Option<PermissionMode>,
    /// Whether the mode without any permission can be chosen, now or later.
    pub bypass_permissions: BypassPermissions,
    /// The most calls of the model in one turn.
    pub max_turns: Option<u32>,
    /// The system prompt.
    pub system_prompt: SystemPrompt,
    /// The base context: said to the model once at the start, after the system prompt.
    pub append_system_prompt: Option<String>,
    /// Whether a resumed conversation gets the system prompt of these options. Newer runtimes otherwise go on
    /// with the one that the conversation began with; older ones always take the new one.
    pub renew_system_prompt: bool,
    /// Directories beside the working directory that the runtime may use.
    pub directories: Vec<PathBuf>,
    /// The agent that the main thread plays.
    pub agent: Option<String>,
    /// Subagents by name, beside those of the user's files.
    pub agents: BTreeMap<String, AgentDefinition>,
    /// Directories of plugins.
    pub plugins: Vec<PathBuf>,
    /// MCP servers.
    pub mcp: McpOptions,
    /// Which tools there are, and which of them run without a question.
    pub tools: Tools,
    /// Hooks that the host answers.
    pub hooks: Vec<HookRegistration>,
    /// The JSON schema that the last answer of a turn must follow.
    pub json_schema: Option<Value>,
    /// Settings as in the runtime's settings files, above those of the user and the project. Where the
    /// endpoint needs a setting, the endpoint wins.
    pub settings: Map<String, Value>,
    /// Which settings files of others are read.
    pub setting_sources: Vec<SettingSource>,
    /// Whether every message becomes a checkpoint that files can be rewound to.
    pub file_checkpoints: bool,
    /// Whether newer runtimes show what subagents say, too.
    pub forward_subagent_text: bool,
    /// The environment to inherit, as the caller captured it.
    pub environment: BTreeMap<OsString, OsString>,
    /// Variables that are set whatever else is decided about them.
    pub overrides: BTreeMap<OsString, OsString>,
    /// A directory for short-lived private files; created if it is missing.
    pub scratch_dir: PathBuf,
    /// Where running runtimes are written down (see [`crate::registry`]); without one they are not.
    pub registry: Option<PathBuf>,
}

impl LaunchOptions {
    /// Options with everything else left to the runtime and to the user's settings, and an empty environment.
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
            system_prompt: SystemPrompt::OfTheRuntime,
            append_system_prompt: None,
            renew_system_prompt: false,
            directories: Vec::new(),
            agent: None,
            agents: BTreeMap::new(),
            plugins: Vec::new(),
            mcp: McpOptions::default(),
            tools: Tools::default(),
            hooks: Vec::new(),
            json_schema: None,
            settings: Map::new(),
            setting_sources: vec![SettingSource::User, SettingSource::Project, SettingSource::Local],
            file_checkpoints: false,
            forward_subagent_text: false,
            environment: BTreeMap::new(),
            overrides: BTreeMap::new(),
            scratch_dir: directories.scratch,
            registry: None,
        }
    }
}

impl LaunchOptions {
    /// Makes sure that a system prompt which differs from the one before is used when the conversation is
    /// resumed.
    pub(crate) fn renew_system_prompt_if_changed(&mut self, before: &Self) {
        self.renew_system_prompt |= self.append_system_prompt != before.append_system_prompt
            || self.system_prompt != before.system_prompt;
    }
}

/// Environments, settings and MCP servers hold secrets of the user's, so only names are shown of them.
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
