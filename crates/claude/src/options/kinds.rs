//! Types of the launch options.
//!
//! Owns their wire names.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use secrecy::SecretString;
use serde_json::{Map, Value, json};
use uuid::Uuid;

/// The runtime program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// A native binary.
    Native(PathBuf),
    /// A script for Node.
    Node {
        /// Path of Node, or a name to look up in `PATH`.
        node: PathBuf,
        /// Entry script of the runtime.
        script: PathBuf,
    },
}

impl Program {
    /// Runs scripts (`.js`, `.mjs`, `.cjs`) with `node` from `PATH` and everything else as a native
    /// binary.
    pub fn from_path(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("js" | "mjs" | "cjs") => Self::Node { node: PathBuf::from("node"), script: path },
            _ => Self::Native(path),
        }
    }

    /// The file to execute.
    pub fn executable(&self) -> &Path {
        match self {
            Self::Native(path) => path,
            Self::Node { node, .. } => node,
        }
    }
}

/// The warden program, the process between host and runtime (see [`crate::warden`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WardenProgram {
    /// A program that calls [`crate::warden::run`].
    pub path: PathBuf,
    /// Arguments before the warden's own, such as a subcommand.
    pub args: Vec<OsString>,
}

/// The directories of a runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directories {
    /// Working directory; must exist.
    pub cwd: PathBuf,
    /// Directory for temporary private files; created if missing.
    pub scratch: PathBuf,
}

/// The conversation to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conversation {
    /// A new conversation with this id. The runtime rejects an existing id.
    New(Uuid),
    /// An existing conversation. The runtime rejects an id that does not exist in the project of the
    /// working directory.
    Resume(Uuid),
    /// An existing conversation, truncated after one of its answers. Later entries remain in the
    /// transcript but are ignored.
    ResumeAt {
        /// The conversation.
        id: Uuid,
        /// Uuid of the last answer to keep.
        answer: Uuid,
    },
    /// A new conversation that starts with a copy of an existing one.
    Fork {
        /// The existing conversation.
        from: Uuid,
        /// Id of the new conversation.
        id: Uuid,
    },
}

impl Conversation {
    pub fn id(self) -> Uuid {
        match self {
            Self::New(id) | Self::Resume(id) | Self::ResumeAt { id, .. } | Self::Fork { id, .. } => id,
        }
    }
}

/// The endpoint of model requests.
#[derive(Debug, Clone)]
pub struct ApiEndpoint {
    /// Base URL of an Anthropic-compatible API.
    pub base_url: String,
    /// The bearer token.
    pub bearer: SecretString,
}

/// When the runtime asks for permission to run a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PermissionMode {
    /// Ask unless the tool is harmless.
    Default,
    /// Edit files without asking.
    AcceptEdits,
    /// Only plan.
    Plan,
    /// Deny instead of asking.
    DontAsk,
    /// Never ask. Needs [`BypassPermissions::Selectable`].
    BypassPermissions,
    /// Let a model decide.
    Auto,
}

impl PermissionMode {
    /// The mode's name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::AcceptEdits => "acceptEdits",
            Self::Plan => "plan",
            Self::DontAsk => "dontAsk",
            Self::BypassPermissions => "bypassPermissions",
            Self::Auto => "auto",
        }
    }
}

/// Whether [`PermissionMode::BypassPermissions`] can be selected, at the start or later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BypassPermissions {
    /// Not selectable.
    #[default]
    Forbidden,
    /// Selectable. The runtime refuses to start in this mode as root outside of a sandbox.
    Selectable,
}

/// The effort level of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// Lowest effort.
    Low,
    /// Medium effort.
    Medium,
    /// High effort.
    High,
    /// Higher than high, for models that support it.
    ExtraHigh,
    /// Highest effort.
    Max,
}

impl Effort {
    /// All levels, lowest first.
    pub const ALL: [Self; 5] = [Self::Low, Self::Medium, Self::High, Self::ExtraHigh, Self::Max];

    /// The effort's name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::ExtraHigh => "xhigh",
            Self::Max => "max",
        }
    }
}

/// Whether and how much the model thinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thinking {
    /// The model decides.
    Adaptive,
    /// At most this number of tokens.
    Budget(u32),
    /// No thinking.
    Disabled,
}

/// The system prompt of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SystemPrompt {
    /// The runtime's own prompt.
    #[default]
    RuntimeDefault,
    /// A replacement.
    Replaced(String),
}

/// A subagent for delegation.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AgentDefinition {
    /// When to use the subagent.
    pub description: String,
    /// System prompt.
    pub prompt: String,
    /// Available tools; `None` for all.
    pub tools: Option<Vec<String>>,
    /// Model; `None` for the model of the conversation.
    pub model: Option<String>,
    /// Further fields of newer runtimes, by wire name.
    pub more: Map<String, Value>,
}

impl AgentDefinition {
    pub(super) fn to_json(&self) -> Value {
        let mut body = self.more.clone();
        body.insert("description".to_owned(), json!(self.description));
        body.insert("prompt".to_owned(), json!(self.prompt));
        if let Some(tools) = &self.tools {
            body.insert("tools".to_owned(), json!(tools));
        }
        if let Some(model) = &self.model {
            body.insert("model".to_owned(), json!(model));
        }
        Value::Object(body)
    }
}

/// The MCP servers of a conversation.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct McpOptions {
    /// Servers that the runtime starts or connects to, by name.
    pub servers: BTreeMap<String, McpServer>,
    /// Servers inside the host, by name; their messages arrive as requests.
    pub in_process: Vec<String>,
    /// Whether to include servers from user and project configuration.
    pub sources: McpSources,
}

/// Sources of MCP servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum McpSources {
    /// Options and configuration files.
    #[default]
    OptionsAndFiles,
    /// Only the options.
    OptionsOnly,
}

/// An MCP server that the runtime starts or connects to.
#[derive(Clone, PartialEq)]
pub enum McpServer {
    /// A program that communicates over stdin and stdout.
    Stdio {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Environment variables.
        env: BTreeMap<String, String>,
    },
    /// A server reached over streamable HTTP.
    Http {
        /// URL of the server.
        url: String,
        /// HTTP headers.
        headers: BTreeMap<String, String>,
    },
    /// A server reached over server-sent events.
    Sse {
        /// URL of the server.
        url: String,
        /// HTTP headers.
        headers: BTreeMap<String, String>,
    },
}

impl McpServer {
    /// The server in configuration file format.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Stdio { command, args, env } => {
                json!({ "type": "stdio", "command": command, "args": args, "env": env })
            }
            Self::Http { url, headers } => json!({ "type": "http", "url": url, "headers": headers }),
            Self::Sse { url, headers } => json!({ "type": "sse", "url": url, "headers": headers }),
        }
    }
}

/// Prints only the names of variables and headers, because their values contain secrets.
impl fmt::Debug for McpServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdio { command, args, env } => formatter
                .debug_struct("Stdio")
                .field("command", command)
                .field("args", args)
                .field("env", &env.keys())
                .finish(),
            Self::Http { url, headers } => {
                formatter.debug_struct("Http").field("url", url).field("headers", &headers.keys()).finish()
            }
            Self::Sse { url, headers } => {
                formatter.debug_struct("Sse").field("url", url).field("headers", &headers.keys()).finish()
            }
        }
    }
}

/// The tools of the model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tools {
    /// Built-in tools by name; `None` for the default set.
    pub available: Option<Vec<String>>,
    /// Rules for tools that run without confirmation, such as `Bash(git status)`.
    pub allowed: Vec<String>,
    /// Rules for denied tools.
    pub denied: Vec<String>,
}

/// A hook handled by the host. The runtime calls it with requests that name the callbacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookRegistration {
    /// Event name, such as `PreToolUse`.
    pub event: String,
    /// Tools it applies to; `None` for all.
    pub matcher: Option<String>,
    /// Callback ids chosen by the host.
    pub callbacks: Vec<String>,
    /// Timeout after which the runtime continues without a response.
    pub timeout_seconds: Option<u32>,
    /// Whether a failed hook blocks the action; newer runtimes only. Otherwise the action continues.
    pub blocks_on_failure: bool,
}

impl HookRegistration {
    pub(super) fn to_json(&self) -> Value {
        let mut body = Map::from_iter([("hookCallbackIds".to_owned(), json!(self.callbacks))]);
        if let Some(matcher) = &self.matcher {
            body.insert("matcher".to_owned(), json!(matcher));
        }
        if let Some(timeout) = self.timeout_seconds {
            body.insert("timeout".to_owned(), json!(timeout));
        }
        if self.blocks_on_failure {
            body.insert("onFailure".to_owned(), json!("block"));
        }
        Value::Object(body)
    }
}

/// A settings file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingSource {
    /// User settings.
    User,
    /// Project settings, shared by all users of the project.
    Project,
    /// The user's settings for this project.
    Local,
}

impl SettingSource {
    /// The source's name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Project => "project",
            Self::Local => "local",
        }
    }
}
