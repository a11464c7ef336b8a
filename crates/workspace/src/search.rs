//! Finding files by a part of their path, as somebody types it.
//!
//! Owns a short-lived list of the files below a directory, made with the rules of
//! `.gitignore` and without what is closed. Best effort: a large tree is looked at only
//! in part. It knows names alone; whoever opens one goes through the checks of the roots.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ignore::WalkBuilder;
use innkeeper_core::files::{FileKind, FoundFile, Links};
use tokio::time::Instant;

use crate::address;
use crate::asked::Asked;
use crate::roots::{Closed, Roots};

/// Most entries of a tree that are looked at.
const MAX_WALKED: usize = 20_000;

/// Entries that are looked at however long it takes: a moment in which the machine is
/// busy must not hide the files of a small project.
const ALWAYS_WALKED: usize = 500;

/// How long a walk may take: the answer is for somebody who types.
const WALK_TIME: Duration = Duration::from_millis(100);

/// How long a list is used: about one word.
const FRESH: Duration = Duration::from_secs(5);

/// Lists that are kept. The oldest goes first; it is made anew when needed.
const MAX_LISTS: usize = 8;

/// Most files that are answered.
const MAX_FOUND: usize = 50;

/// The lists that were made last.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    kept: Mutex<HashMap<PathBuf, List>>,
}

#[derive(Clone, Debug)]
struct List {
    made: Instant,
    entries: Arc<Vec<Entry>>,
}

#[derive(Debug)]
struct Entry {
    /// Below the directory.
    path: String,
    kind: FileKind,
}

impl Lists {
    /// The best matches below a directory that is allowed.
    pub(crate) fn search(&self, roots: &Roots, directory: &Path, partial: &str) -> Vec<FoundFile> {
        let uri = address::uri_of(directory);
        let Ok(spot) = roots.find(Asked::to_read(&uri), Links::Follow) else { return Vec::new() };
        let wanted = partial.to_lowercase();
        let entries = self.entries(roots, &spot.path);
        let mut matches: Vec<(usize, &Entry)> =
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

    fn entries(&self, roots: &Roots, directory: &Path) -> Arc<Vec<Entry>> {
        let kept = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept().get(directory).filter(|list| list.made.elapsed() < FRESH).cloned();
        if let Some(list) = known {
            return list.entries;
        }
        // Outside of the lock: others may search elsewhere meanwhile.
        let entries = Arc::new(walk(directory, roots.closed(), Instant::now() + WALK_TIME));
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

fn walk(directory: &Path, closed: Closed, deadline: Instant) -> Vec<Entry> {
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
            (!path.is_empty()).then(|| Entry { path: path.to_owned(), kind })
        })
        .collect()
}

/// How well a path fits what was typed, best first; nothing if it does not.
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
    fn a_walk_that_is_late_has_all_of_a_small_tree_and_a_part_of_a_large_one() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("first"), "").unwrap();
        let walk = || walk(dir.path(), Closed::default(), Instant::now());
        assert_eq!(walk().len(), 1);
        for number in 0..ALWAYS_WALKED {
            std::fs::write(dir.path().join(number.to_string()), "").unwrap();
        }
        // The directory itself counts, and is not in the list.
        assert_eq!(walk().len(), ALWAYS_WALKED - 1);
    }
}
