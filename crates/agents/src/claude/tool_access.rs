//! What a tool call accesses, in the terms of the permission policy.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use innkeeper_core::policy::{
    PathResolver, PermissionRequest, ResolvedPath, ShellAccess, ShellLine, ToolAccess,
};
use serde_json::Value;

/// Tools that change nothing outside the conversation. The calls of a subagent are checked
/// one by one.
const INTERNAL: [&str; 22] = [
    "Agent",
    "AskUserQuestion",
    "BashOutput",
    "EnterPlanMode",
    "ExitPlanMode",
    "KillBash",
    "KillShell",
    "ListMcpResources",
    "ListMcpResourcesTool",
    "SendMessage",
    "SendUserMessage",
    "StructuredOutput",
    "Task",
    "TaskCreate",
    "TaskGet",
    "TaskList",
    "TaskOutput",
    "TaskStop",
    "TaskUpdate",
    "TodoRead",
    "TodoWrite",
    "ToolSearch",
];

/// Whether a tool changes nothing outside the conversation.
pub(super) fn is_internal(tool: &str) -> bool {
    INTERNAL.contains(&tool)
}

/// Resolves what tool calls access.
#[derive(Clone)]
pub(super) struct AccessResolver {
    paths: Arc<dyn PathResolver>,
    /// The directory in which the runtime was started.
    cwd: PathBuf,
    /// The directory in which the runtime writes plans.
    plans: Option<PathBuf>,
    /// The working directories.
    pub(super) roots: Arc<[ResolvedPath]>,
}

impl std::fmt::Debug for AccessResolver {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("AccessResolver").field("cwd", &self.cwd).finish_non_exhaustive()
    }
}

impl AccessResolver {
    /// Resolves the working directories. Blocks.
    pub(super) fn new(
        paths: Arc<dyn PathResolver>,
        cwd: PathBuf,
        others: &[PathBuf],
        config_dir: Option<&Path>,
    ) -> Self {
        let directories = std::iter::once(&cwd).chain(others);
        let roots = directories.map(|path| paths.resolve(&path.to_string_lossy(), &cwd)).collect();
        let plans = config_dir.map(|directory| directory.join("plans"));
        let real = plans.map(|plans| {
            let resolved = paths.resolve(&plans.to_string_lossy(), &cwd);
            resolved.real.unwrap_or(resolved.lexical)
        });
        Self { paths, cwd, plans: real, roots }
    }

    /// What a call accesses. Blocks while it resolves paths.
    pub(super) fn request(&self, tool: &str, input: &Value) -> PermissionRequest {
        PermissionRequest { tool: tool.to_owned(), access: self.access(tool, input) }
    }

    /// The directory in which the runtime was started.
    pub(super) fn cwd(&self) -> &Path {
        &self.cwd
    }

    /// The working directories, as they were given.
    pub(super) fn directories(&self) -> Vec<PathBuf> {
        self.roots.iter().map(|root| root.lexical.clone()).collect()
    }

    /// Whether a path is in the directory of plans.
    pub(super) fn is_in_plans(&self, path: &Path) -> bool {
        self.plans.as_deref().is_some_and(|plans| path.starts_with(plans))
    }

    fn access(&self, tool: &str, input: &Value) -> ToolAccess {
        let text = |field: &str| input.get(field).and_then(Value::as_str);
        match tool {
            "Bash" => match text("command") {
                Some(command) => self.shell(command),
                None => ToolAccess::Other,
            },
            "Read" => self.read(text("file_path")),
            "NotebookRead" => self.read(text("notebook_path")),
            "Glob" | "Grep" | "LS" => self.read(Some(text("path").unwrap_or("."))),
            "Write" | "Edit" | "MultiEdit" => self.write(text("file_path")),
            "NotebookEdit" => self.write(text("notebook_path")),
            "WebFetch" => match text("url") {
                Some(url) => ToolAccess::Fetch { url: url.to_owned() },
                None => ToolAccess::Other,
            },
            other => match other.strip_prefix("mcp__").and_then(|name| name.split_once("__")) {
                Some((server, tool)) => ToolAccess::Mcp { server: server.to_owned(), tool: tool.to_owned() },
                None if is_internal(other) => ToolAccess::Internal,
                None => ToolAccess::Other,
            },
        }
    }

    fn shell(&self, command: &str) -> ToolAccess {
        let line = ShellLine::parse(command);
        let paths = line.paths().iter().map(|path| self.resolve(&path.text)).collect();
        ToolAccess::Shell(Box::new(ShellAccess { line, paths }))
    }

    fn read(&self, path: Option<&str>) -> ToolAccess {
        path.map_or(ToolAccess::Other, |path| ToolAccess::Read(vec![self.resolve(path)]))
    }

    /// The runtime writes its plans itself, also in plan mode.
    fn write(&self, path: Option<&str>) -> ToolAccess {
        let Some(path) = path.map(|path| self.resolve(path)) else { return ToolAccess::Other };
        if path.real.as_deref().is_some_and(|real| self.is_in_plans(real)) {
            ToolAccess::Internal
        } else {
            ToolAccess::Write(vec![path])
        }
    }

    fn resolve(&self, path: &str) -> ResolvedPath {
        self.paths.resolve(path, &self.cwd)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Joins paths without looking at the file system.
    struct Joined;

    impl PathResolver for Joined {
        fn resolve(&self, path: &str, base: &Path) -> ResolvedPath {
            let lexical = base.join(path);
            ResolvedPath { given: path.to_owned(), real: Some(lexical.clone()), lexical }
        }
    }

    #[test]
    fn access_follows_from_tool_and_input() {
        let (cwd, config) = (PathBuf::from("/project"), Path::new("/config"));
        let resolver = AccessResolver::new(Arc::new(Joined), cwd, &[PathBuf::from("/other")], Some(config));
        assert_eq!(resolver.roots.len(), 2);
        let described = |tool: &str, input: Value| match resolver.request(tool, &input).access {
            ToolAccess::Internal => "internal".to_owned(),
            ToolAccess::Read(paths) => format!("read {}", paths[0].lexical.display()),
            ToolAccess::Write(paths) => format!("write {}", paths[0].lexical.display()),
            ToolAccess::Shell(shell) => format!("shell {}", shell.line.text()),
            ToolAccess::Fetch { url } => format!("fetch {url}"),
            ToolAccess::Mcp { server, tool } => format!("mcp {server} {tool}"),
            ToolAccess::Other => "other".to_owned(),
        };
        for (tool, input, expected) in [
            ("Bash", json!({"command": "ls"}), "shell ls"),
            ("Bash", json!({}), "other"),
            ("Read", json!({"file_path": "a.rs"}), "read /project/a.rs"),
            ("Grep", json!({"pattern": "x"}), "read /project/."),
            ("Glob", json!({"pattern": "x", "path": "/etc"}), "read /etc"),
            ("Write", json!({"file_path": "/tmp/x", "content": ""}), "write /tmp/x"),
            ("Write", json!({"file_path": "/config/plans/p.md", "content": ""}), "internal"),
            ("NotebookEdit", json!({"notebook_path": "n.ipynb"}), "write /project/n.ipynb"),
            ("Edit", json!({"file_path": 7}), "other"),
            ("WebFetch", json!({"url": "https://example.com"}), "fetch https://example.com"),
            ("mcp__git_hub__create__issue", json!({}), "mcp git_hub create__issue"),
            ("TodoWrite", json!({}), "internal"),
            ("Agent", json!({}), "internal"),
            ("WebSearch", json!({}), "other"),
            ("Unheard", json!({}), "other"),
        ] {
            assert_eq!(described(tool, input.clone()), expected, "{tool} {input}");
        }
    }
}
