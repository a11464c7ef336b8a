//! Finds files by a part of their path while the user types.
//!
//! Caches lists of the files below a directory for a short time; the lists follow
//! `.gitignore` and omit hidden directories. Best effort: only a part of a large tree is
//! searched. Returns only names; opening a file goes through the checks of the roots.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ignore::WalkBuilder;
use innkeeper_core::files::{FileKind, FoundFile, Links};
use tokio::time::Instant;

use crate::access_request::AccessRequest;
use crate::address;
use crate::roots::{HiddenPaths, Roots};

/// Maximum number of entries that are visited.
const MAX_WALKED: usize = 20_000;

/// Number of entries that are visited regardless of the time limit, so that a busy
/// machine does not hide the files of a small project.
const ALWAYS_WALKED: usize = 500;

/// Time limit of a walk, since the user waits for the result.
const WALK_TIME: Duration = Duration::from_millis(100);

/// How long a list is reused: about the time to type one word.
const FRESH: Duration = Duration::from_secs(5);

/// Maximum number of cached lists. The oldest is evicted first.
const MAX_LISTS: usize = 8;

/// Maximum number of results.
const MAX_FOUND: usize = 50;

/// The cached lists.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    kept: Mutex<HashMap<PathBuf, List>>,
}

#[derive(Clone, Debug)]
struct List {
    made: Instant,
    entries: Arc<Vec<ListedFile>>,
}

#[derive(Debug)]
struct ListedFile {
    /// Path relative to the directory.
    path: String,
    kind: FileKind,
}

impl Lists {
    /// Returns the best matches below an allowed directory.
    pub(crate) fn search(&self, roots: &Roots, directory: &Path, partial: &str) -> Vec<FoundFile> {
        let uri = address::uri_of(directory);
        let Ok(spot) = roots.find(AccessRequest::to_read(&uri), Links::Follow) else { return Vec::new() };
        let wanted = partial.to_lowercase();
        let entries = self.entries(roots, &spot.path);
        let mut matches: Vec<(usize, &ListedFile)> =
            entries.iter().filter_map(|entry| Some((score(&entry.path, &wanted)?, entry))).collect();
        matches.sort_by_key(|(score, entry)| {
            (*score, entry.path.matches('/').count(), entry.path.len(), entry.path.as_str())
        });
        matches
            .into_iter()
            .take(MAX_FOUND)
            .map(|(_, entry)| FoundFile {
                path: entry.path.clone(),
                uri: address::uri_of(&directory.join(&entry.path)),
                kind: entry.kind,
            })
            .collect()
    }

    fn entries(&self, roots: &Roots, directory: &Path) -> Arc<Vec<ListedFile>> {
        let kept = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept().get(directory).filter(|list| list.made.elapsed() < FRESH).cloned();
        if let Some(list) = known {
            return list.entries;
        }
        // Walk without holding the lock, so that other searches can run.
        let entries = Arc::new(walk(directory, roots.hidden(), Instant::now() + WALK_TIME));
        let mut kept = kept();
        kept.retain(|_, list| list.made.elapsed() < FRESH);
        if kept.len() >= MAX_LISTS
            && let Some(oldest) = kept.iter().min_by_key(|(_, list)| list.made).map(|(path, _)| path.clone())
        {
            kept.remove(&oldest);
        }
        kept.insert(directory.to_owned(), List { made: Instant::now(), entries: Arc::clone(&entries) });
        entries
    }
}

fn walk(directory: &Path, closed: HiddenPaths, deadline: Instant) -> Vec<ListedFile> {
    WalkBuilder::new(directory)
        .hidden(false)
        .require_git(false)
        .follow_links(false)
        .filter_entry(move |entry| entry.file_name() != ".git" && !closed.hides(entry.path()))
        .build()
        .take(MAX_WALKED)
        .enumerate()
        .take_while(|(count, _)| *count < ALWAYS_WALKED || Instant::now() < deadline)
        .filter_map(|(_, entry)| entry.ok())
        .filter_map(|entry| {
            let kind = entry.file_type()?;
            let kind = if kind.is_dir() {
                FileKind::Directory
            } else if kind.is_file() {
                FileKind::File
            } else {
                return None;
            };
            let path = entry.path().strip_prefix(directory).ok()?.to_str()?;
            (!path.is_empty()).then(|| ListedFile { path: path.to_owned(), kind })
        })
        .collect()
}

/// How well a path matches the typed text, lower is better; `None` if it does not match.
fn score(path: &str, wanted: &str) -> Option<usize> {
    let path = path.to_lowercase();
    let name = path.rsplit('/').next().unwrap_or(&path);
    if wanted.is_empty() {
        return Some(0);
    }
    [
        name == wanted,
        name.starts_with(wanted),
        path.starts_with(wanted),
        name.contains(wanted),
        path.contains(wanted),
    ]
    .iter()
    .position(|fits| *fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_walk_lists_all_of_small_tree_and_part_of_large_tree() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("first"), "").unwrap();
        let walk = || walk(dir.path(), HiddenPaths::default(), Instant::now());
        assert_eq!(walk().len(), 1);
        for number in 0..ALWAYS_WALKED {
            std::fs::write(dir.path().join(number.to_string()), "").unwrap();
        }
        // The directory itself counts, but is not in the list.
        assert_eq!(walk().len(), ALWAYS_WALKED - 1);
    }
}
