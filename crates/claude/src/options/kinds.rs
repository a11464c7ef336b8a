//! The types that launch options are made of.
//!
//! Owns their names on the wire, and nothing that follows from them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use secrecy::SecretString;
use serde_json::{Map, Value, json};
use uuid::Uuid;

/// How the runtime is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// A native binary.
    Native(PathBuf),
    /// A script for Node.
    Node {
        /// Node itself: a path, or a name that is looked up in `PATH`.
        node: PathBuf,
        /// The runtime's entry script.
        script: PathBuf,
    },
}

impl Program {
    /// Takes a script (`.js`, `.mjs`, `.cjs`) to be run with the Node on `PATH`, all else to be native.
    pub fn from_path(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("js" | "mjs" | "cjs") => Self::Node { node: PathBuf::from("node"), script: path },
            _ => Self::Native(path),
        }
    }

    /// The file that is executed.
    pub fn executable(&self) -> &Path {
        match self {
            Self::Native(path) => path,
            Self::Node { node, .. } => node,
        }
    }
}

/// The warden: the small process between the host and the runtime (see [`crate::warden`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WardenProgram {
    /// A program that calls [`crate::warden::run`].
    pub path: PathBuf,
    /// What goes before the warden's own arguments, such as a subcommand.
    pub args: Vec<OsString>,
}

/// Where a runtime works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directories {
    /// The working directory, which must exist.
    pub cwd: PathBuf,
    /// For short-lived private files; created if it is missing.
    pub scratch: PathBuf,
}

/// Which conversation the runtime works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conversation {
    /// A new one under this id. The runtime refuses an id that exists already.
    New(Uuid),
    /// An earlier one. The runtime refuses an id that does not exist in the working directory's project.
    Resume(Uuid),
    /// An earlier one, cut off after one of its answers. What came later stays in the transcript, unused.
    ResumeAt {
        /// The conversation.
        id: Uuid,
        /// The uuid of the last answer that counts.
        answer: Uuid,
    },
    /// A new one that begins with everything in an earlier one, which stays as it is.
    Fork {
        /// The earlier conversation.
        from: Uuid,
        /// The new one's id.
        id: Uuid,
    },
}

impl Conversation {
    /// The conversation's id.
    pub fn id(self) -> Uuid {
        match self {
            Self::New(id) | Self::Resume(id) | Self::ResumeAt { id, .. } | Self::Fork { id, .. } => id,
        }
    }
}

/// Where the runtime's model requests go.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// The root of an Anthropic-compatible API.
    pub base_url: String,
    /// What the runtime shows there.
    pub bearer: SecretString,
}

/// Whether and when the runtime asks before it runs a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PermissionMode {
    /// Ask for what is not harmless.
    Default,
    /// Edit files without asking.
    AcceptEdits,
    /// Plan only.
    Plan,
    /// Deny what would be asked.
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

/// Whether [`PermissionMode::BypassPermissions`] can be chosen, at the start or later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BypassPermissions {
    /// It cannot.
    #[default]
    Forbidden,
    /// It can. The runtime refuses to start like this as root outside of a sandbox.
    Selectable,
}

/// How hard the model thinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// As little as possible.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
    /// More than much, for models that know it.
    ExtraHigh,
    /// As much as possible.
    Max,
}

impl Effort {
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

/// Whether and how much the model thinks before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thinking {
    /// As much as the model finds right.
    Adaptive,
    /// Up to so many tokens.
    Budget(u32),
    /// Not at all.
    Disabled,
}

/// The system prompt of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SystemPrompt {
    /// The runtime's own.
    #[default]
    OfTheRuntime,
    /// Another one in its place.
    Replaced(String),
}

/// A subagent that the model can delegate to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AgentDefinition {
    /// When to delegate to it.
    pub description: String,
    /// Its system prompt.
    pub prompt: String,
    /// The tools that it has; all if none are named.
    pub tools: Option<Vec<String>>,
    /// Its model; the conversation's if none is named.
    pub model: Option<String>,
    /// What newer runtimes know beyond that, by its name on the wire.
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
    /// Servers that live in the host, by name: their messages come as requests.
    pub in_process: Vec<String>,
    /// Whether servers of the user's and the project's configuration are used, too.
    pub sources: McpSources,
}

/// Where MCP servers come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum McpSources {
    /// The options and the configuration files.
    #[default]
    OptionsAndFiles,
    /// The options alone.
    OptionsOnly,
}

/// An MCP server that the runtime starts or connects to.
#[derive(Clone, PartialEq)]
pub enum McpServer {
    /// A program that speaks on its standard streams.
    Stdio {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Variables for it.
        env: BTreeMap<String, String>,
    },
    /// A server that is reached by streamable HTTP.
    Http {
        /// Its address.
        url: String,
        /// Headers of every request.
        headers: BTreeMap<String, String>,
    },
    /// A server that is reached by server-sent events.
    Sse {
        /// Its address.
        url: String,
        /// Headers of every request.
        headers: BTreeMap<String, String>,
    },
}

impl McpServer {
    /// The server as configuration files have it.
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

/// Variables and headers hold secrets, so only their names are shown.
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

/// Which tools the model has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tools {
    /// The built-in tools by name; without a list, the runtime's default set.
    pub available: Option<Vec<String>>,
    /// Rules of what runs without a question, such as `Bash(git status)`.
    pub allowed: Vec<String>,
    /// Rules of what never runs.
    pub denied: Vec<String>,
}

/// A hook that the host answers, by the requests that name its callbacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookRegistration {
    /// The event, such as `PreToolUse`.
    pub event: String,
    /// Which tools it is about; all if there is none.
    pub matcher: Option<String>,
    /// The host's own names of its callbacks.
    pub callbacks: Vec<String>,
    /// After how many seconds the runtime goes on without an answer.
    pub timeout_seconds: Option<u32>,
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
        Value::Object(body)
    }
}

/// A settings file of somebody else's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingSource {
    /// The user's.
    User,
    /// The project's, shared by everybody who works on it.
    Project,
    /// The user's for this project.
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
