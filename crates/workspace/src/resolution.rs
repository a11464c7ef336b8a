//! Resolves the links of a path, one component after the other.
//!
//! Invariant: a path that leaves the allowed directories is rejected before anything outside is accessed,
//! so that neither the result nor its timing depends on what exists there.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use innkeeper_core::files::Links;

use crate::roots::HiddenPaths;

/// Number of links in one path, as in the kernel.
const MAX_LINKS: u32 = 40;

/// An allowed directory.
#[derive(Debug)]
pub(crate) struct ResolvedRoot {
    /// The path that sessions or the configuration use.
    pub(crate) listed: PathBuf,
    /// The path without links.
    pub(crate) canonical: PathBuf,
}

/// The result of resolving a path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Resolution {
    /// The path without links. The last components need not exist.
    Path(PathBuf),
    /// The path has `..` after a component that does not exist, below this directory.
    Invalid(PathBuf),
    /// The path leads out of the allowed directories.
    Outside,
    /// The path leads into a hidden directory.
    Hidden,
}

/// Resolves an absolute path.
pub(crate) fn resolve(path: &Path, links: Links, roots: &[ResolvedRoot], hidden: &HiddenPaths) -> Resolution {
    let mut walk = LinkWalk { roots, hidden, at: PathBuf::new(), rest: VecDeque::new() };
    walk.start(path);
    let mut links_left = MAX_LINKS;
    while let Some(name) = walk.rest.pop_front() {
        if name == ".." {
            walk.at.pop();
            continue;
        }
        let next = walk.at.join(&name);
        if let Some(rejected) = walk.rejects(&next) {
            return rejected;
        }
        let keep = links == Links::Keep && walk.rest.is_empty();
        let found = if keep { None } else { std::fs::symlink_metadata(&next).ok() };
        match found {
            Some(found) if found.is_symlink() && links_left > 0 => {
                links_left -= 1;
                match std::fs::read_link(&next) {
                    Ok(target) => walk.follow(&target),
                    // It was replaced in this moment; opening it does not follow links.
                    Err(_) => walk.at = next,
                }
            }
            Some(_) => {
                walk.at = with_stored_name(next);
                if let Some(rejected) = walk.rejects(&walk.at) {
                    return rejected;
                }
            }
            None => return walk.missing(next),
        }
    }
    Resolution::Path(walk.at)
}

/// On file systems that ignore case, the path as it is stored, so that comparisons with hidden directories
/// are exact.
fn with_stored_name(path: PathBuf) -> PathBuf {
    if cfg!(target_os = "macos") { path.canonicalize().unwrap_or(path) } else { path }
}

struct LinkWalk<'a> {
    roots: &'a [ResolvedRoot],
    hidden: &'a HiddenPaths,
    /// The part that is resolved.
    at: PathBuf,
    /// The other components.
    rest: VecDeque<OsString>,
}

impl LinkWalk<'_> {
    /// Starts at the longest root that contains an absolute path. A root may be listed under a path with
    /// links, which lead outside; they are followed only if they still lead to the root.
    fn start(&mut self, path: &Path) {
        let names = self.roots.iter().flat_map(|root| {
            [&root.listed, &root.canonical].map(|name| (name.as_path(), root.canonical.as_path()))
        });
        let root = names
            .filter(|(name, _)| path.starts_with(name))
            .max_by_key(|(name, _)| name.components().count())
            .filter(|(name, canonical)| name.canonicalize().is_ok_and(|found| found == *canonical));
        let (at, below) = match root {
            Some((name, canonical)) => (canonical, path.strip_prefix(name).unwrap_or(path)),
            None => (Path::new("/"), path),
        };
        self.at = at.to_owned();
        self.prepend(below);
    }

    fn follow(&mut self, target: &Path) {
        if target.is_absolute() {
            self.start(target);
        } else {
            self.prepend(target);
        }
    }

    fn prepend(&mut self, path: &Path) {
        for component in path.components().rev() {
            match component {
                Component::Normal(name) => self.rest.push_front(name.to_owned()),
                Component::ParentDir => self.rest.push_front("..".into()),
                Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
            }
        }
    }

    /// Why a path without links must not be accessed. The parents of allowed directories are known to
    /// exist.
    fn rejects(&self, path: &Path) -> Option<Resolution> {
        if self.roots.iter().any(|root| root.canonical.starts_with(path) || root.listed.starts_with(path)) {
            None
        } else if !self.roots.iter().any(|root| path.starts_with(&root.canonical)) {
            Some(Resolution::Outside)
        } else if self.hidden.hides(path) {
            Some(Resolution::Hidden)
        } else {
            None
        }
    }

    /// The result for a component that does not exist, or whose link is not followed.
    fn missing(mut self, path: PathBuf) -> Resolution {
        if self.rest.iter().any(|name| name == "..") {
            return Resolution::Invalid(self.at);
        }
        self.at = path;
        self.at.extend(self.rest);
        match self.hidden.hides(&self.at) {
            true => Resolution::Hidden,
            false => Resolution::Path(self.at),
        }
    }
}
