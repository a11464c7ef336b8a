//! Which rules would allow a request.

use std::path::Path;

use super::path_pattern::{escaped, names_of};
use super::path_subject::PathSubject;
use super::rule_set::mcp_name;
use super::shell::SubCommand;
use super::{PermissionRule, PolicyContext};

/// Longest suggestion in bytes.
const MAX_LENGTH: usize = 300;

/// Tools whose first argument names what they do.
const WITH_SUBCOMMANDS: [&str; 41] = [
    "apt",
    "apt-get",
    "aws",
    "az",
    "brew",
    "bun",
    "bundle",
    "cargo",
    "composer",
    "conda",
    "dart",
    "deno",
    "docker",
    "dotnet",
    "flutter",
    "gcloud",
    "gem",
    "gh",
    "git",
    "go",
    "gradle",
    "helm",
    "just",
    "kubectl",
    "make",
    "mix",
    "mvn",
    "nix",
    "npm",
    "pip",
    "pip3",
    "pnpm",
    "poetry",
    "podman",
    "rails",
    "rustup",
    "swift",
    "systemctl",
    "terraform",
    "uv",
    "yarn",
];

/// Commands that run anything. A rule for them would allow everything.
const RUNS_ANYTHING: [&str; 52] = [
    ".",
    "awk",
    "bash",
    "builtin",
    "bunx",
    "busybox",
    "command",
    "csh",
    "dash",
    "doas",
    "env",
    "eval",
    "exec",
    "expect",
    "find",
    "fish",
    "flock",
    "gawk",
    "ksh",
    "lua",
    "nice",
    "node",
    "nohup",
    "npx",
    "osascript",
    "parallel",
    "perl",
    "php",
    "pipx",
    "pkexec",
    "powershell",
    "pwsh",
    "python",
    "python2",
    "python3",
    "rbash",
    "ruby",
    "script",
    "sed",
    "setsid",
    "sh",
    "source",
    "ssh",
    "su",
    "sudo",
    "time",
    "timeout",
    "tsx",
    "uvx",
    "watch",
    "xargs",
    "zsh",
];

/// Arguments after which a tool runs anything.
const RUNNING: [&str; 6] = ["dlx", "eval", "exec", "run-script", "x", "run"];

/// The rule that would allow a shell command; `None` if no rule can.
pub(super) fn for_command(command: &SubCommand) -> Option<String> {
    let name = command.name()?;
    let is_general = RUNS_ANYTHING.contains(&name) || name.contains('/') || name == "[";
    let start = if is_general { None } else { start_of(command, name) };
    let specifier = match start {
        Some(start) => format!("{start}:*"),
        None => {
            let text = command.display();
            // A star would make it a pattern.
            (!text.contains('*') && !command.has_more).then_some(text)?
        }
    };
    is_usable(&specifier).then(|| format!("Bash({specifier})"))
}

/// The first words of a command that name what it does.
fn start_of(command: &SubCommand, name: &str) -> Option<String> {
    let word = |index: usize| {
        let text = command.words.get(index)?.literal()?;
        let is_name = text.starts_with(|letter: char| letter.is_ascii_alphanumeric())
            && text
                .chars()
                .all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | ':' | '.'));
        is_name.then_some(text)
    };
    if !WITH_SUBCOMMANDS.contains(&name) {
        let is_plain = name
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.' | '+'));
        return is_plain.then(|| name.to_owned());
    }
    let second = word(1)?;
    if !RUNNING.contains(&second) {
        return Some(format!("{name} {second}"));
    }
    // A script of the package is named by the next word; all else runs a program.
    let names_script =
        matches!(name, "npm" | "pnpm" | "yarn" | "bun") && matches!(second, "run" | "run-script");
    match (name, second) {
        ("cargo" | "go" | "dotnet" | "swift" | "flutter" | "dart", "run") => Some(format!("{name} {second}")),
        _ if names_script => word(2).map(|third| format!("{name} {second} {third}")),
        _ => None,
    }
}

fn is_usable(specifier: &str) -> bool {
    specifier.len() <= MAX_LENGTH && !specifier.contains(['\n', '\0', '\t']) && specifier.trim() == specifier
}

/// The rules that would allow a write: for the directory, and for the file.
pub(super) fn for_write(
    subject: &PathSubject<'_>,
    is_protected: bool,
    context: &PolicyContext<'_>,
) -> Vec<String> {
    let mut rules = Vec::new();
    if let Some((start, names)) = address(subject, context) {
        let directory = names.split_last().map(|(_, directory)| directory).unwrap_or_default();
        if !is_protected {
            let directory: String = directory.iter().map(|name| format!("{name}/")).collect();
            rules.push(format!("Edit({start}{directory}**)"));
        }
        rules.push(format!("Edit({start}{})", names.join("/")));
    }
    rules.retain(|rule| is_usable(rule));
    rules
}

/// The rules that would allow a read outside of the roots.
pub(super) fn for_read(subject: &PathSubject<'_>) -> Vec<String> {
    let Some(names) = absolute(subject) else { return Vec::new() };
    let directory = names.split_last().map(|(_, directory)| directory).unwrap_or_default();
    let mut rules = vec![format!("Read(//{})", names.join("/"))];
    if directory.len() > 1 {
        rules.insert(0, format!("Read(//{}/**)", directory.join("/")));
    }
    rules.retain(|rule| is_usable(rule));
    rules
}

/// The start of a pattern and the names after it: relative to the first root, or absolute.
fn address(subject: &PathSubject<'_>, context: &PolicyContext<'_>) -> Option<(&'static str, Vec<String>)> {
    let root = context.roots.first().filter(|_| subject.root == Some(0));
    let below = |directory: &Path| subject.path.lexical.strip_prefix(directory).ok();
    let relative = root.and_then(|root| below(&root.lexical).or_else(|| below(root.real.as_deref()?)));
    match relative {
        Some(relative) => Some(("/", names_of(relative).iter().map(|name| escaped(name)).collect())),
        None => Some(("//", absolute(subject)?)),
    }
}

/// The names of the absolute path, if a pattern for it also matches the path with links resolved.
fn absolute(subject: &PathSubject<'_>) -> Option<Vec<String>> {
    let is_direct = subject.path.real.as_ref() == Some(&subject.path.lexical);
    is_direct.then(|| names_of(&subject.path.lexical).iter().map(|name| escaped(name)).collect())
}

/// The rule that would allow an address.
pub(super) fn for_host(host: Option<&str>) -> Vec<String> {
    host.map(|host| format!("WebFetch(domain:{host})")).into_iter().collect()
}

/// The rules that would allow a tool of an MCP server.
pub(super) fn for_mcp(server: &str, tool: &str) -> Vec<String> {
    let (server, tool) = (mcp_name(server), mcp_name(tool));
    valid(vec![format!("mcp__{server}__{tool}"), format!("mcp__{server}")])
}

/// The rule that would allow all calls of a tool.
pub(super) fn for_tool(tool: &str) -> Vec<String> {
    valid(vec![tool.to_owned()])
}

fn valid(mut rules: Vec<String>) -> Vec<String> {
    rules.retain(|rule| rule.parse::<PermissionRule>().is_ok() && is_usable(rule));
    rules
}
