//! What a runtime is started with, and what follows from it.
//!
//! Owns `LaunchOptions` and the pure step from them to argv, environment, settings and the `initialize`
//! body. Touches no file and no process. The invariant: with an endpoint given, neither the inherited
//! environment nor a settings file of the user's or the project's leads a model request or a key elsewhere.

mod environment;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret, SecretString};
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

/// Which conversation the runtime works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conversation {
    /// A new one under this id. The runtime refuses an id that exists already.
    New(Uuid),
    /// An earlier one. The runtime refuses an id that does not exist in the working directory's project.
    Resume(Uuid),
}

impl Conversation {
    /// The conversation's id.
    pub fn id(self) -> Uuid {
        match self {
            Self::New(id) | Self::Resume(id) => id,
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
    /// Never ask.
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

/// Everything that a start of the runtime depends on.
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
    /// The permission mode; without one, what the user's settings say.
    pub permission_mode: Option<PermissionMode>,
    /// What is said to the model after the runtime's own system prompt.
    pub append_system_prompt: Option<String>,
    /// The environment to inherit, as the caller captured it.
    pub environment: BTreeMap<OsString, OsString>,
    /// Variables that are set whatever else is decided about them.
    pub overrides: BTreeMap<OsString, OsString>,
    /// A directory for short-lived private files; created if it is missing.
    pub scratch_dir: PathBuf,
}

/// Environments hold secrets of the user's, so only the names of variables are shown.
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
            .field("permission_mode", &self.permission_mode)
            .field("append_system_prompt", &self.append_system_prompt)
            .field("environment", &self.environment.keys())
            .field("overrides", &self.overrides.keys())
            .field("scratch_dir", &self.scratch_dir)
            .finish()
    }
}

/// What is executed and sent for given options.
#[derive(Clone)]
pub struct LaunchPlan {
    /// The file to execute.
    pub executable: PathBuf,
    /// Its arguments, without the one that names the settings file.
    arguments: Vec<OsString>,
    /// Its whole environment.
    pub environment: BTreeMap<OsString, OsString>,
    /// The content of the settings file, if there is to be one. It holds the bearer.
    pub settings: Option<SecretString>,
    /// The `initialize` request.
    pub initialize: Map<String, Value>,
}

/// The environment holds the bearer, so only the names of variables are shown.
impl fmt::Debug for LaunchPlan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("LaunchPlan")
            .field("executable", &self.executable)
            .field("arguments", &self.arguments)
            .field("environment", &self.environment.keys())
            .field("settings", &self.settings)
            .field("initialize", &self.initialize)
            .finish()
    }
}

impl LaunchPlan {
    /// Works out the plan.
    pub fn new(options: &LaunchOptions) -> Self {
        Self {
            executable: options.program.executable().to_owned(),
            arguments: arguments(options),
            environment: environment::launch_environment(options),
            settings: options.endpoint.as_ref().map(|endpoint| settings(options, endpoint)),
            initialize: initialize(options),
        }
    }

    /// The arguments, given where the settings were written to.
    pub fn arguments(&self, settings_file: Option<&Path>) -> Vec<OsString> {
        let mut arguments = self.arguments.clone();
        if let Some(path) = settings_file {
            let mut argument = OsString::from("--settings=");
            argument.push(path);
            arguments.push(argument);
        }
        arguments
    }
}

/// Valued flags take the form `--flag=value`, which both runtimes read and no value can break out of.
fn arguments(options: &LaunchOptions) -> Vec<OsString> {
    let mut arguments = Vec::new();
    if let Program::Node { script, .. } = &options.program {
        arguments.push(script.clone().into_os_string());
    }
    let mut flag = |argument: String| arguments.push(argument.into());
    flag("--output-format=stream-json".to_owned());
    flag("--verbose".to_owned());
    flag("--input-format=stream-json".to_owned());
    flag("--include-partial-messages".to_owned());
    flag("--replay-user-messages".to_owned());
    flag("--permission-prompt-tool=stdio".to_owned());
    flag("--setting-sources=user,project,local".to_owned());
    flag(match options.conversation {
        Conversation::New(id) => format!("--session-id={id}"),
        Conversation::Resume(id) => format!("--resume={id}"),
    });
    if let Some(model) = &options.model {
        flag(format!("--model={model}"));
    }
    if let Some(mode) = options.permission_mode {
        flag(format!("--permission-mode={}", mode.as_str()));
    }
    arguments
}

/// The settings with the highest rank below an administrator's, so that no other file overrules them.
fn settings(options: &LaunchOptions, endpoint: &Endpoint) -> SecretString {
    let mut env = Map::new();
    for name in environment::DIVERTING {
        env.insert((*name).to_owned(), json!(""));
    }
    let no_proxy = environment::no_proxy(&options.environment);
    for (name, value) in [
        ("ANTHROPIC_BASE_URL", endpoint.base_url.as_str()),
        ("ANTHROPIC_AUTH_TOKEN", endpoint.bearer.expose_secret()),
        ("NO_PROXY", &no_proxy),
        ("no_proxy", &no_proxy),
    ] {
        env.insert(name.to_owned(), json!(value));
    }
    // An empty helper stands for none and overrules one in the user's or the project's settings.
    json!({ "apiKeyHelper": "", "proxyAuthHelper": "", "env": env }).to_string().into()
}

fn initialize(options: &LaunchOptions) -> Map<String, Value> {
    let mut body = Map::new();
    if let Some(prompt) = &options.append_system_prompt {
        body.insert("appendSystemPrompt".to_owned(), json!(prompt));
    }
    body
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
