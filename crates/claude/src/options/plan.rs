//! Derives arguments, environment and files from launch options.
//!
//! A pure function to arguments, environment, private files and the `initialize` body; no I/O.
//! Invariants: with an endpoint, neither the inherited environment nor a user or project settings file
//! can redirect a model request or a key, and secrets are never passed as arguments.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value, json};

use super::environment;
use super::{
    ApiEndpoint, BypassPermissions, Conversation, LaunchOptions, McpSources, Program, SystemPrompt, Thinking,
};

/// Arguments, environment and files for given options.
#[derive(Clone)]
pub struct LaunchPlan {
    /// The file to execute.
    pub executable: PathBuf,
    /// Arguments, without those for private files.
    arguments: Vec<OsString>,
    /// The complete environment.
    pub environment: BTreeMap<OsString, OsString>,
    /// Content of the settings file, if one is needed. Contains the bearer token.
    pub settings: Option<SecretString>,
    /// Content of the MCP servers file, if one is needed.
    pub mcp: Option<SecretString>,
    /// Body of the `initialize` request.
    pub initialize: Map<String, Value>,
}

/// Paths of the private files of a plan.
#[derive(Debug, Clone, Copy, Default)]
pub struct LaunchFiles<'a> {
    /// Path of the settings file.
    pub settings: Option<&'a Path>,
    /// Path of the MCP servers file.
    pub mcp: Option<&'a Path>,
}

/// Prints only the names of variables, because the environment contains the bearer token.
impl fmt::Debug for LaunchPlan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("LaunchPlan")
            .field("executable", &self.executable)
            .field("arguments", &self.arguments)
            .field("environment", &self.environment.keys())
            .field("settings", &self.settings)
            .field("mcp", &self.mcp)
            .field("initialize", &self.initialize)
            .finish()
    }
}

impl LaunchPlan {
    /// Derives the plan from options.
    pub fn new(options: &LaunchOptions) -> Self {
        Self {
            executable: options.program.executable().to_owned(),
            arguments: arguments(options),
            environment: environment::launch_environment(options),
            settings: settings(options),
            mcp: mcp(options),
            initialize: initialize(options),
        }
    }

    /// All arguments, including those for the given private files.
    pub fn arguments(&self, files: LaunchFiles<'_>) -> Vec<OsString> {
        let mut arguments = self.arguments.clone();
        for (flag, path) in [("--settings=", files.settings), ("--mcp-config=", files.mcp)] {
            if let Some(path) = path {
                let mut argument = OsString::from(flag);
                argument.push(path);
                arguments.push(argument);
            }
        }
        arguments
    }
}

/// Flags with values use the form `--flag=value`, which both runtimes accept and which prevents values
/// from being parsed as flags.
fn arguments(options: &LaunchOptions) -> Vec<OsString> {
    let mut arguments = Vec::new();
    if let Program::Node { script, .. } = &options.program {
        arguments.push(script.clone().into_os_string());
    }
    let mut flag = |argument: String| arguments.push(argument.into());
    // Implied by the formats below if stdin is a pipe, but not if it is a terminal.
    flag("--print".to_owned());
    flag("--output-format=stream-json".to_owned());
    flag("--verbose".to_owned());
    flag("--input-format=stream-json".to_owned());
    flag("--include-partial-messages".to_owned());
    flag("--replay-user-messages".to_owned());
    flag("--permission-prompt-tool=stdio".to_owned());
    if options.hook_events {
        flag("--include-hook-events".to_owned());
    }
    let sources: Vec<_> = options.setting_sources.iter().map(|source| source.as_str()).collect();
    flag(format!("--setting-sources={}", sources.join(",")));
    match options.conversation {
        Conversation::New(id) => flag(format!("--session-id={id}")),
        Conversation::Resume(id) => flag(format!("--resume={id}")),
        Conversation::ResumeAt { id, answer } => {
            flag(format!("--resume={id}"));
            flag(format!("--resume-session-at={answer}"));
        }
        Conversation::Fork { from, id } => {
            flag(format!("--resume={from}"));
            flag("--fork-session".to_owned());
            flag(format!("--session-id={id}"));
        }
    }
    model_arguments(options, &mut flag);
    tool_arguments(options, &mut flag);
    for (name, directories) in [("--add-dir=", &options.directories), ("--plugin-dir=", &options.plugins)] {
        for directory in directories {
            let mut argument = OsString::from(name);
            argument.push(directory);
            arguments.push(argument);
        }
    }
    arguments
}

fn model_arguments(options: &LaunchOptions, flag: &mut impl FnMut(String)) {
    if let Some(model) = &options.model {
        flag(format!("--model={model}"));
    }
    if let Some(model) = &options.fallback_model {
        flag(format!("--fallback-model={model}"));
    }
    if let Some(effort) = options.effort {
        flag(format!("--effort={}", effort.as_str()));
    }
    match options.thinking {
        None => {}
        Some(Thinking::Adaptive) => flag("--thinking=adaptive".to_owned()),
        Some(Thinking::Disabled) => flag("--thinking=disabled".to_owned()),
        Some(Thinking::Budget(tokens)) => flag(format!("--max-thinking-tokens={tokens}")),
    }
    if let Some(turns) = options.max_turns {
        flag(format!("--max-turns={turns}"));
    }
    if let Some(agent) = &options.agent {
        flag(format!("--agent={agent}"));
    }
    if let Some(schema) = &options.json_schema {
        flag(format!("--json-schema={schema}"));
    }
}

fn tool_arguments(options: &LaunchOptions, flag: &mut impl FnMut(String)) {
    if let Some(mode) = options.permission_mode {
        flag(format!("--permission-mode={}", mode.as_str()));
    }
    if options.bypass_permissions == BypassPermissions::Selectable {
        flag("--allow-dangerously-skip-permissions".to_owned());
    }
    if let Some(tools) = &options.tools.available {
        flag(format!("--tools={}", tools.join(",")));
    }
    for (name, rules) in
        [("--allowedTools", &options.tools.allowed), ("--disallowedTools", &options.tools.denied)]
    {
        if !rules.is_empty() {
            flag(format!("{name}={}", rules.join(",")));
        }
    }
    if options.mcp.sources == McpSources::OptionsOnly {
        flag("--strict-mcp-config".to_owned());
    }
}

/// Settings with the highest precedence below managed settings, so that no other file overrides them.
fn settings(options: &LaunchOptions) -> Option<SecretString> {
    let mut settings = options.settings.clone();
    if let Some(endpoint) = &options.endpoint {
        lead_to(endpoint, options, &mut settings);
    }
    (!settings.is_empty()).then(|| Value::Object(settings).to_string().into())
}

fn lead_to(endpoint: &ApiEndpoint, options: &LaunchOptions, settings: &mut Map<String, Value>) {
    let mut env = match settings.remove("env") {
        Some(Value::Object(env)) => env,
        Some(_) | None => Map::new(),
    };
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
    // An empty helper counts as unset and overrides one in user or project settings.
    settings.insert("apiKeyHelper".to_owned(), json!(""));
    settings.insert("proxyAuthHelper".to_owned(), json!(""));
    settings.insert("env".to_owned(), Value::Object(env));
}

/// MCP servers are passed in a file, not as an argument, because their variables and headers often
/// contain secrets.
fn mcp(options: &LaunchOptions) -> Option<SecretString> {
    let servers = &options.mcp.servers;
    let servers: Map<_, _> = servers.iter().map(|(name, server)| (name.clone(), server.to_json())).collect();
    (!servers.is_empty()).then(|| json!({ "mcpServers": servers }).to_string().into())
}

fn initialize(options: &LaunchOptions) -> Map<String, Value> {
    let mut body = Map::new();
    let mut set = |name: &str, value: Value| body.insert(name.to_owned(), value);
    if let SystemPrompt::Replaced(prompt) = &options.system_prompt {
        set("systemPrompt", json!([prompt]));
    }
    if let Some(prompt) = &options.append_system_prompt {
        set("appendSystemPrompt", json!(prompt));
    }
    if options.renew_system_prompt && !matches!(options.conversation, Conversation::New(_)) {
        set("systemPromptSnapshot", json!(false));
    }
    if !options.agents.is_empty() {
        let agents: Map<_, _> =
            options.agents.iter().map(|(name, agent)| (name.clone(), agent.to_json())).collect();
        set("agents", Value::Object(agents));
    }
    if !options.mcp.in_process.is_empty() {
        set("sdkMcpServers", json!(options.mcp.in_process));
    }
    if !options.hooks.is_empty() {
        let mut hooks: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for hook in &options.hooks {
            hooks.entry(&hook.event).or_default().push(hook.to_json());
        }
        set("hooks", json!(hooks));
    }
    if let Some(schema) = &options.json_schema {
        set("jsonSchema", schema.clone());
    }
    if options.forward_subagent_text {
        set("forwardSubagentText", json!(true));
    }
    if options.per_task_stop {
        set("perTaskStopAffordance", json!(true));
    }
    body
}
