//! Ignore rules: `.ignore`, `.gitignore` and `.git/info/exclude`.
//!
//! Each directory has the rules of its parents and its own. Rules of deeper directories take
//! precedence, and `.ignore` takes precedence over `.gitignore`, as in the search of files.

use std::ffi::OsStr;
use std::io::Read as _;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

use super::index::FileStamp;
use super::reading::stamp_at;
use crate::beneath;

/// The ignore files of a directory, in the order of precedence.
pub(super) const RULE_FILES: [&str; 2] = [".ignore", ".gitignore"];

/// Maximum size of an ignore file. The rest is not read.
const MAX_RULE_FILE: u64 = 1024 * 1024;

/// The rules for the entries of a directory.
#[derive(Debug, Default)]
pub(super) struct IgnoreRules {
    parent: Option<Arc<IgnoreRules>>,
    /// The root, to which paths are relative.
    root: PathBuf,
    /// The rules of [`RULE_FILES`] and of the repository.
    own: [Option<Gitignore>; 3],
    /// Absolute paths that are always ignored.
    excluded: Arc<[PathBuf]>,
}

impl IgnoreRules {
    /// The rules that apply to the entries of a root before its own ignore files.
    pub(super) fn above(root: &Path, excluded: &Arc<[PathBuf]>) -> Arc<Self> {
        let empty = || {
            Arc::new(Self {
                parent: None,
                root: root.to_owned(),
                own: [const { None }; 3],
                excluded: Arc::clone(excluded),
            })
        };
        let Some(top) = root.ancestors().find(|ancestor| ancestor.join(".git").symlink_metadata().is_ok())
        else {
            return empty();
        };
        let mut rules = empty();
        let exclude = git_directory(top).map(|found| read_bounded_path(&found.join("info"), "exclude"));
        if let Some(exclude) = exclude.flatten().and_then(|text| parse(top, &text)) {
            rules = Arc::new(Self {
                parent: Some(rules),
                root: root.to_owned(),
                own: [None, None, Some(exclude)],
                excluded: Arc::clone(excluded),
            });
        }
        let mut between: Vec<&Path> = root.ancestors().take_while(|ancestor| *ancestor != top).collect();
        between.push(top);
        between.reverse();
        for pair in between.windows(2) {
            let [directory, child] = pair else { continue };
            let texts = RULE_FILES.map(|name| read_bounded_path(directory, name));
            rules = Self::below(&rules, directory, &texts);
            // The user works in an ignored directory: the rules of its parents do not apply.
            if rules.ignores(child, true) {
                return empty();
            }
        }
        rules
    }

    /// The rules for a directory with these ignore files.
    pub(super) fn below(parent: &Arc<Self>, directory: &Path, texts: &[Option<Vec<u8>>; 2]) -> Arc<Self> {
        let absolute = parent.root.join(directory);
        let [first, second] = texts;
        let own = [first, second].map(|text| text.as_ref().and_then(|text| parse(&absolute, text)));
        if own.iter().all(Option::is_none) {
            return Arc::clone(parent);
        }
        let [first, second] = own;
        Arc::new(Self {
            parent: Some(Arc::clone(parent)),
            root: parent.root.clone(),
            own: [first, second, None],
            excluded: Arc::clone(&parent.excluded),
        })
    }

    /// Whether a path is ignored. Its parents are not checked.
    pub(super) fn ignores(&self, path: &Path, is_directory: bool) -> bool {
        if self.parent.is_none() && self.own.iter().all(Option::is_none) && self.excluded.is_empty() {
            return false;
        }
        let absolute = self.root.join(path);
        if self.excluded.contains(&absolute) {
            return true;
        }
        (0..self.own.len())
            .find_map(|source| self.decide(source, &absolute, is_directory))
            .unwrap_or_default()
    }

    fn decide(&self, source: usize, path: &Path, is_directory: bool) -> Option<bool> {
        let mut rules = Some(self);
        while let Some(current) = rules {
            if let Some(Some(matcher)) = current.own.get(source) {
                match matcher.matched(path, is_directory) {
                    Match::Ignore(_) => return Some(true),
                    Match::Whitelist(_) => return Some(false),
                    Match::None => {}
                }
            }
            rules = current.parent.as_deref();
        }
        None
    }
}

/// The directory with the configuration of a repository. In a linked work tree, `.git` is a file
/// that refers to a directory, which refers to it.
fn git_directory(top: &Path) -> Option<PathBuf> {
    let entry = top.join(".git");
    if entry.is_dir() {
        return entry.canonicalize().ok();
    }
    let text = read_bounded_path(top, ".git")?;
    let own = top.join(path_in(text.strip_prefix(b"gitdir: ")?)).canonicalize().ok()?;
    let Some(common) = read_bounded_path(&own, "commondir") else { return Some(own) };
    own.join(path_in(&common)).canonicalize().ok()
}

fn path_in(line: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(line.strip_suffix(b"\n").unwrap_or(line)))
}

/// The stamps of the ignore files in an open directory.
pub(super) fn rule_stamps(directory: BorrowedFd<'_>) -> [Option<FileStamp>; 2] {
    RULE_FILES.map(|name| stamp_at(directory, name).ok())
}

/// The ignore files in an open directory.
pub(super) fn rule_texts(directory: BorrowedFd<'_>) -> [Option<Vec<u8>>; 2] {
    RULE_FILES.map(|name| read_bounded(directory, name))
}

fn read_bounded_path(directory: &Path, name: &str) -> Option<Vec<u8>> {
    let directory = beneath::directory(directory).ok()?;
    read_bounded(directory.as_fd(), name)
}

fn read_bounded(directory: BorrowedFd<'_>, name: &str) -> Option<Vec<u8>> {
    let file = beneath::entry(directory, OsStr::new(name), OFlag::O_RDONLY, Mode::empty()).ok()?;
    if !beneath::metadata(&file).ok()?.is_file() {
        return None;
    }
    let mut text = Vec::new();
    file.take(MAX_RULE_FILE).read_to_end(&mut text).ok()?;
    Some(text)
}

/// Parses an ignore file. Invalid lines are skipped, as git does.
fn parse(directory: &Path, text: &[u8]) -> Option<Gitignore> {
    let mut builder = GitignoreBuilder::new(directory);
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    for line in text.split(|byte| *byte == b'\n') {
        if let Ok(line) = std::str::from_utf8(line) {
            builder.add_line(None, line).ok();
        }
    }
    builder.build().ok().filter(|rules| !rules.is_empty())
}
