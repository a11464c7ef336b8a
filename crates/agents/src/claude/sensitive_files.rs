//! Files about which the runtime must always ask the host.
//!
//! The runtime treats some files specially, since they can make it or other programs run
//! commands. For these files, one version ignores that the host's hook wants to ask while
//! permissions are bypassed. It does follow ask rules in its settings, so these name the files,
//! and the session's policy then decides in every mode.

use serde_json::{Map, Value, json};

/// Folders of such files.
const FOLDERS: [&str; 5] = [".git", ".vscode", ".idea", ".claude", ".husky"];

/// Names of such files.
const FILES: [&str; 10] = [
    ".gitconfig",
    ".gitmodules",
    ".bashrc",
    ".bash_profile",
    ".zshrc",
    ".zprofile",
    ".profile",
    ".ripgreprc",
    ".mcp.json",
    ".claude.json",
];

/// Settings with which the runtime asks before it changes these files.
pub(super) fn settings() -> Map<String, Value> {
    let folders = FOLDERS.iter().map(|name| format!("Edit(//**/{name}/**)"));
    let rules: Vec<String> = folders.chain(FILES.iter().map(|name| format!("Edit(//**/{name})"))).collect();
    Map::from_iter([
        ("permissions".to_owned(), json!({"ask": rules})),
        // In plan mode, newer runtimes would refuse calls that the host's policy asks about.
        ("useAutoModeDuringPlan".to_owned(), json!(false)),
    ])
}
