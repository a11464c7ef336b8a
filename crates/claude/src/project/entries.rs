//! Finds what a single configuration file would run.

use serde_json::{Map, Value};

/// Maximum length of a description.
const MAX_TEXT: usize = 200;

/// Settings that neither run a program nor grant a permission. Every other key is reported,
/// so that a setting of a newer runtime is not overlooked.
const HARMLESS: [&str; 15] = [
    "$schema",
    "alwaysThinkingEnabled",
    "attribution",
    "cleanupPeriodDays",
    "companyAnnouncements",
    "disableAllHooks",
    "disabledMcpjsonServers",
    "effortLevel",
    "includeCoAuthoredBy",
    "language",
    "model",
    "outputStyle",
    "respectGitignore",
    "showTurnDuration",
    "spinnerTipsEnabled",
];

/// Permission settings that only restrict.
const RESTRICTING: [&str; 3] = ["ask", "deny", "disableBypassPermissionsMode"];

/// A part of a project's configuration that runs a program or grants a permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectEntry {
    /// The file, relative to the working directory if it is inside.
    pub file: String,
    /// What the entry is, for example `hook SessionStart`.
    pub what: String,
    /// The command, address or value; cut if it is long, and without control characters.
    pub detail: String,
}

impl ProjectEntry {
    fn new(file: &str, what: &str, detail: &str) -> Self {
        Self { file: file.to_owned(), what: printable(what), detail: printable(detail) }
    }

    pub(super) fn unreadable(file: &str, error: &std::io::Error) -> Self {
        Self::new(file, "file that cannot be read", &error.to_string())
    }

    pub(super) fn too_many() -> Self {
        Self::new(".claude", "more files than can be checked", "")
    }
}

/// The entries of a settings file.
pub(super) fn of_settings(file: &str, content: &[u8]) -> Vec<ProjectEntry> {
    let settings: Map<String, Value> = match serde_json::from_slice(content) {
        Ok(settings) => settings,
        Err(error) => {
            return vec![ProjectEntry::new(file, "settings that cannot be parsed", &error.to_string())];
        }
    };
    let mut entries = Vec::new();
    for (key, value) in settings.iter().filter(|(key, _)| !HARMLESS.contains(&key.as_str())) {
        match (key.as_str(), value) {
            ("hooks", Value::Object(events)) => {
                entries.extend(events.iter().flat_map(|(event, hooks)| of_hooks(file, event, hooks)));
            }
            ("permissions", Value::Object(permissions)) => {
                let granting = permissions.iter().filter(|(key, _)| !RESTRICTING.contains(&key.as_str()));
                entries.extend(granting.map(|(key, value)| {
                    ProjectEntry::new(file, &format!("permission setting {key}"), &text_of(value))
                }));
            }
            (key, value) => entries.push(ProjectEntry::new(file, &format!("setting {key}"), &text_of(value))),
        }
    }
    entries
}

/// One entry for each command of an event, or for the whole value if its form is unknown.
fn of_hooks(file: &str, event: &str, hooks: &Value) -> Vec<ProjectEntry> {
    let what = format!("hook {event}");
    let groups = hooks.as_array().into_iter().flatten();
    let commands = groups.filter_map(|group| group.get("hooks")?.as_array()).flatten();
    let entries: Vec<_> = commands
        .map(|hook| {
            let command = ["command", "url", "prompt"].iter().find_map(|key| hook.get(key)?.as_str());
            ProjectEntry::new(file, &what, &command.map_or_else(|| hook.to_string(), str::to_owned))
        })
        .collect();
    match (entries.is_empty(), hooks) {
        (false, _) => entries,
        (true, Value::Array(groups)) if groups.is_empty() => Vec::new(),
        (true, other) => vec![ProjectEntry::new(file, &what, &other.to_string())],
    }
}

/// The servers of a `.mcp.json` file.
pub(super) fn of_mcp_file(file: &str, content: &[u8]) -> Vec<ProjectEntry> {
    let parsed: Value = match serde_json::from_slice(content) {
        Ok(parsed) => parsed,
        Err(error) => {
            return vec![ProjectEntry::new(file, "MCP servers that cannot be parsed", &error.to_string())];
        }
    };
    let Some(servers) = parsed.get("mcpServers").and_then(Value::as_object) else { return Vec::new() };
    let entry = |(name, server): (&String, &Value)| {
        let command = server.get("command").and_then(Value::as_str);
        let arguments = server.get("args").and_then(Value::as_array).into_iter().flatten();
        let detail = match command {
            Some(command) => {
                let arguments = arguments.map(text_of);
                std::iter::once(command.to_owned()).chain(arguments).collect::<Vec<_>>().join(" ")
            }
            None => server.get("url").map_or_else(|| server.to_string(), text_of),
        };
        ProjectEntry::new(file, &format!("MCP server {name}"), &detail)
    };
    servers.iter().map(entry).collect()
}

/// The entry of an agent, command or skill, which can contain hooks and shell commands.
pub(super) fn of_definition(kind: &str, file: &str, content: &[u8]) -> Vec<ProjectEntry> {
    let text = String::from_utf8_lossy(content);
    let description = text.lines().find_map(|line| line.strip_prefix("description:")).unwrap_or_default();
    vec![ProjectEntry::new(file, kind, description.trim())]
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Replaces characters that could hide or disguise text, and cuts long text.
fn printable(text: &str) -> String {
    let is_invisible = |letter: char| {
        letter.is_control()
            || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
    };
    let mut shown: String = text
        .chars()
        .take(MAX_TEXT)
        .map(|letter| if is_invisible(letter) { '\u{fffd}' } else { letter })
        .collect();
    if text.chars().nth(MAX_TEXT).is_some() {
        shown.push('…');
    }
    shown
}
