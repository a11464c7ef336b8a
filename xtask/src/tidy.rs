//! Repository checks: layers, licences, file sizes, document paths, lock files, language.
//!
//! Each check is a function from data to a list of problems, one per line, that say how to fix them. Only
//! this module and [`crate::metadata`] read files.

mod documents;
mod edges;
mod language;
mod licences;
mod lockfiles;
mod sizes;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::metadata::Metadata;

/// Directories without source files of this repository.
const SKIPPED: [&str; 4] = [".git", "dist", "node_modules", "target"];

/// Runs all checks and returns their problems.
pub(crate) fn run() -> anyhow::Result<Vec<String>> {
    let metadata = Metadata::load()?;
    let root = metadata.workspace_root.as_path();
    let top: Vec<String> =
        names_in(root)?.into_iter().filter(|name| !SKIPPED.contains(&name.as_str())).collect();

    let mut problems = edges::check(&metadata);
    problems.extend(licences::check(&metadata));
    problems.extend(lockfiles::check_budget(&read(&root.join("Cargo.lock"))?));
    let mut prose = Vec::new();
    for path in files_below(root)? {
        let shown = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        if shown.ends_with(".snap.new") {
            problems
                .push(format!("{shown}: unreviewed snapshot; accept or reject it with `cargo insta review`"));
        }
        if sizes::is_checked(&shown) {
            problems.extend(sizes::check(&shown, &read(&path)?));
        }
        if language::is_checked(&shown) {
            prose.push((shown.clone(), read(&path)?));
        }
        if shown.ends_with(".md") {
            let folder = path.parent().unwrap_or(root);
            let exists = |named: &documents::DocumentPath| match named {
                documents::DocumentPath::FromRoot(relative) => root.join(relative).exists(),
                documents::DocumentPath::FromDocument(relative) => folder.join(relative).exists(),
            };
            problems.extend(documents::check(&shown, &read(&path)?, &top, exists));
        }
        if path.file_name().is_some_and(|name| name == "package-lock.json") {
            problems.extend(lockfiles::check_npm(&shown, &read(&path)?));
        }
    }
    let allowed = root.join(language::ALLOWED_PATH);
    let allowed = if allowed.exists() { read(&allowed)? } else { String::new() };
    problems.extend(language::check(&prose, &allowed));
    Ok(problems)
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The names in a directory, sorted.
fn names_in(dir: &Path) -> anyhow::Result<Vec<String>> {
    let entries = fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// All files below a directory, sorted, without skipped directories. Does not follow links.
fn files_below(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for name in names_in(&folder)? {
            let path = folder.join(&name);
            let metadata =
                fs::symlink_metadata(&path).with_context(|| format!("cannot read {}", path.display()))?;
            if metadata.is_file() {
                files.push(path);
            } else if metadata.is_dir() && !SKIPPED.contains(&name.as_str()) {
                folders.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}
