//! Reads the worktrees of a git repository from its files.
//!
//! Listing must not start a program, so this does not run git, which stores two short text files per
//! worktree. A repository that cannot be parsed counts as having no other worktrees.

use std::fs;
use std::path::{Path, PathBuf};

/// The roots of all worktrees of the repository that contains `directory`, unordered.
pub(super) fn worktrees_of(directory: &Path) -> Vec<PathBuf> {
    let Some(common) = directory.ancestors().find_map(common_dir) else { return Vec::new() };
    let main = common.file_name().is_some_and(|name| name == ".git").then(|| common.parent()).flatten();
    let mut roots: Vec<PathBuf> = main.map(Path::to_owned).into_iter().collect();
    for entry in fs::read_dir(common.join("worktrees")).into_iter().flatten().flatten() {
        let pointer = first_line(&entry.path().join("gitdir"));
        roots.extend(pointer.and_then(|path| path.parent().map(Path::to_owned)));
    }
    roots
}

/// The shared git directory of the repository with the worktree root `root`.
fn common_dir(root: &Path) -> Option<PathBuf> {
    let dot_git = root.join(".git");
    let metadata = fs::metadata(&dot_git).ok()?;
    if metadata.is_dir() {
        return Some(dot_git);
    }
    // In a linked worktree, `.git` is a file that names its own folder, which in turn names the shared
    // one.
    let own = root.join(first_line(&dot_git)?.to_str()?.strip_prefix("gitdir:")?.trim());
    let common = first_line(&own.join("commondir"))?;
    fs::canonicalize(own.join(common)).ok()
}

fn first_line(path: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| PathBuf::from(line))
}
