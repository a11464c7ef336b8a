//! Paths whose change needs a question even where edits are free.
//!
//! These files contain secrets, or make a program run later: in a shell, an editor, a package
//! manager, a version control system or an agent.

use std::path::Path;

use super::path_subject::PathSubject;
use super::{PolicyContext, ResolvedPath};

/// File names.
const FILES: [&str; 40] = [
    ".bash_profile",
    ".bashrc",
    ".bazelrc",
    ".condarc",
    ".exrc",
    ".flowconfig",
    ".gemrc",
    ".hgrc",
    ".inputrc",
    ".lefthook.yml",
    ".login",
    ".mcp.json",
    ".mise.toml",
    ".netrc",
    ".npmrc",
    ".nvim.lua",
    ".nvimrc",
    ".pnpmfile.cjs",
    ".pnpmrc",
    ".pre-commit-config.yaml",
    ".profile",
    ".pypirc",
    ".tool-versions",
    ".vimrc",
    ".yarnrc",
    ".yarnrc.yml",
    ".zprofile",
    ".zshenv",
    ".zshrc",
    "bun.lockb",
    "bunfig.toml",
    "go.sum",
    "lefthook.yml",
    "mise.toml",
    "npm-shrinkwrap.json",
    "package-lock.json",
    "package.json",
    "pip.conf",
    "pnpm-lock.yaml",
    "pnpm-workspace.yaml",
];

/// Further lock files, and files with these endings.
const ENDINGS: [&str; 4] = [".code-workspace", ".lock", ".lockfile", ".lock.json"];

/// Names of files and directories that start with this text.
const STARTS: [&str; 3] = [".aider", ".env", ".git"];

/// Directories with everything below them.
const DIRECTORIES: [&str; 22] = [
    ".aws",
    ".bundle",
    ".cargo",
    ".claude",
    ".codex",
    ".cursor",
    ".devcontainer",
    ".docker",
    ".fleet",
    ".gemini",
    ".gnupg",
    ".gradle",
    ".hg",
    ".husky",
    ".idea",
    ".kube",
    ".mvn",
    ".ssh",
    ".svn",
    ".vscode",
    ".yarn",
    ".zed",
];

/// Directories of the operating system. A root inside of one is not part of it.
const PLATFORM: [&str; 16] = [
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/library", "/opt", "/proc", "/root",
    "/sbin", "/sys", "/system", "/usr", "/var",
];

/// A protected path.
#[derive(Clone, Debug)]
pub(super) struct Protection {
    /// The part of a sentence after "because".
    pub(super) reason: &'static str,
    /// The name in the path that makes it protected, in lower case. A rule that allows must contain it.
    pub(super) name: Option<String>,
}

/// Why a path is protected; `None` if it is not.
pub(super) fn protection(subject: &PathSubject<'_>, context: &PolicyContext<'_>) -> Option<Protection> {
    let root = subject.root.and_then(|index| context.roots.get(index));
    for form in subject.lower_forms() {
        let inside = inside_root(form, root);
        if let Some((reason, name)) = inside.iter().find_map(|name| Some((name_reason(name)?, name))) {
            return Some(Protection { reason, name: Some(name.clone()) });
        }
        let is_protected = |name: &&String| FILES.contains(&name.as_str()) || has_protected_ending(name);
        if let Some(name) = inside.last().filter(is_protected) {
            let reason = "it can run programs, configure a tool or fix the versions of packages";
            return Some(Protection { reason, name: Some(name.clone()) });
        }
    }
    if let Some(name) = context.home.and_then(|home| home_dotfile(subject, home, context)) {
        let reason = "it is a configuration file in the home directory";
        return Some(Protection { reason, name: Some(name) });
    }
    let is_platform = |directory: &str| {
        let directory = Path::new(directory);
        let contains_root = root.is_some_and(|root| is_lower_prefix(directory, &root.lexical));
        subject.is_below(directory) && !contains_root
    };
    let is_platform = PLATFORM.iter().any(|directory| is_platform(directory));
    is_platform.then_some(Protection { reason: "it belongs to the operating system", name: None })
}

/// Whether a path is inside of a version control directory's own files: `.git/x`. With `is_tree` the
/// directory itself counts, too.
pub(super) fn is_git_internal(subject: &PathSubject<'_>, is_tree: bool) -> bool {
    subject.lower_forms().any(|form| {
        let position = form.iter().position(|name| name == ".git");
        position.is_some_and(|at| is_tree || at + 1 < form.len())
    })
}

/// The names below the root; all names if the path is not below it.
fn inside_root<'a>(form: &'a [String], root: Option<&ResolvedPath>) -> &'a [String] {
    let below = |directory: &Path| {
        let names: Vec<String> =
            super::path_pattern::names_of(directory).iter().map(|name| name.to_lowercase()).collect();
        form.strip_prefix(names.as_slice())
    };
    root.and_then(|root| below(&root.lexical).or_else(|| below(root.real.as_deref()?))).unwrap_or(form)
}

fn name_reason(name: &str) -> Option<&'static str> {
    if name.starts_with(".env") {
        return Some("it can contain secrets");
    }
    if STARTS.iter().any(|start| name.starts_with(start)) {
        return Some("it configures a version control system or an agent");
    }
    DIRECTORIES.contains(&name).then_some("its directory configures tools that run programs")
}

fn has_protected_ending(name: &str) -> bool {
    ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// The name of a dotfile of the home directory that is the path or contains it. Inside of a root that is
/// itself below the home directory, dotfiles are ordinary files.
fn home_dotfile(subject: &PathSubject<'_>, home: &Path, context: &PolicyContext<'_>) -> Option<String> {
    let home: Vec<String> =
        super::path_pattern::names_of(home).iter().map(|name| name.to_lowercase()).collect();
    if home.is_empty() || subject.is_in_root_below(&home, context) {
        return None;
    }
    let is_protected = |name: &&String| name.starts_with('.') || *name == "library" || *name == "appdata";
    subject.lower_forms().find_map(|form| {
        form.strip_prefix(home.as_slice()).and_then(<[String]>::first).filter(is_protected).cloned()
    })
}

fn is_lower_prefix(directory: &Path, path: &Path) -> bool {
    let lower = |path: &Path| path.to_string_lossy().to_lowercase();
    Path::new(&lower(path)).starts_with(lower(directory))
}
