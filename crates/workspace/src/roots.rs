//! The directories that clients may access, and the resolution of a URI to an open
//! directory.
//!
//! A root is a working directory of a session, the host's own content, or a directory
//! granted by the configuration. Invariant: the canonical path of a [`AllowedEntry`] is inside a
//! root, and its directory was opened from the root without following any link.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{File, Metadata};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use innkeeper_core::files::{FileError, Links};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

use crate::access_request::AccessRequest;
use crate::address;
use crate::beneath;
use crate::pins::{Pin, Pins};
use crate::resolution::{self, Resolution, ResolvedRoot};

/// Returns the current working directories of the sessions.
pub type SessionDirectories = Arc<dyn Fn() -> Vec<PathBuf> + Send + Sync>;

/// Mount points of kernel file systems, which expose secrets of processes. Files on them
/// are never opened, wherever they are mounted; below these paths they are not searched
/// or watched either.
const KERNEL_VIEWS: &[&str] = if cfg!(target_os = "linux") { &["/proc", "/sys"] } else { &[] };

/// The allowed directories.
pub(crate) struct Roots {
    sessions: SessionDirectories,
    /// Directories that are always allowed.
    fixed: Vec<PathBuf>,
    /// Directories that are hidden, even if they are inside an allowed directory or are
    /// one.
    closed: Vec<PathBuf>,
    /// The canonical path of each directory, resolved once.
    pins: Pins,
}

impl fmt::Debug for Roots {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Roots").field("fixed", &self.fixed).finish_non_exhaustive()
    }
}

/// Directories of the host and the system, without the granted directories inside of
/// them. They stay hidden even if a session works there.
#[derive(Clone, Debug, Default)]
pub(crate) struct HiddenPaths {
    closed: Vec<PathBuf>,
    /// Granted directories inside of hidden ones, as canonical paths.
    open: Vec<PathBuf>,
}

impl HiddenPaths {
    /// Whether a canonical path is hidden from clients.
    pub(crate) fn hides(&self, path: &Path) -> bool {
        let open_in =
            |closed: &Path| self.open.iter().any(|root| root.starts_with(closed) && path.starts_with(root));
        self.closed.iter().any(|closed| path.starts_with(closed) && !open_in(closed))
    }
}

/// An allowed path, which need not exist.
#[derive(Debug)]
pub(crate) struct AllowedPath {
    /// Canonical as far as it exists.
    pub(crate) path: PathBuf,
    /// The canonical root that contains the path.
    root: PathBuf,
}

/// An allowed path whose parent directory is open.
#[derive(Debug)]
pub(crate) struct AllowedEntry {
    /// Canonical as far as it exists.
    pub(crate) path: PathBuf,
    dir: OwnedFd,
    name: OsString,
}

impl Roots {
    pub(crate) fn new(sessions: SessionDirectories, fixed: Vec<PathBuf>, closed: Vec<PathBuf>) -> Self {
        let closed = closed.into_iter().map(|path| path.canonicalize().unwrap_or(path));
        let closed = closed.chain(KERNEL_VIEWS.iter().map(PathBuf::from)).collect();
        Self { sessions, fixed, closed, pins: Pins::default() }
    }

    /// The currently hidden directories.
    pub(crate) fn hidden(&self) -> HiddenPaths {
        HiddenPaths { closed: self.closed.clone(), open: self.pin(self.fixed.clone()) }
    }

    /// The canonical paths of all existing roots.
    fn current(&self) -> Vec<PathBuf> {
        self.pin(self.listed())
    }

    /// All roots as configured.
    fn listed(&self) -> Vec<PathBuf> {
        let mut listed = (self.sessions)();
        listed.extend(self.fixed.iter().cloned());
        listed.sort_unstable();
        listed.dedup();
        self.pins.retain(&listed);
        listed
    }

    /// The canonical paths of directories that exist and whose disks respond.
    fn pin(&self, listed: Vec<PathBuf>) -> Vec<PathBuf> {
        listed
            .into_iter()
            .filter_map(|path| if let Pin::To(root) = self.canonical_root(&path) { Some(root) } else { None })
            .collect()
    }

    fn canonical_root(&self, path: &Path) -> Pin {
        if path.is_absolute() { self.pins.find(path, |path| path.canonicalize().ok()) } else { Pin::Nowhere }
    }

    /// Resolves a URI and checks that the path is allowed.
    pub(crate) fn find(&self, access: AccessRequest<'_>, links: Links) -> Result<AllowedPath, FileError> {
        let path = address::path_of(access.uri)?;
        let (roots, hidden) = (self.resolved(), self.hidden());
        let outside = || access.denied("it is not in a session's directory or a granted directory");
        let is_hidden = || access.denied("it belongs to the host or to the system");
        let (inside, is_valid) = match resolution::resolve(&path, links, &roots, &hidden) {
            Resolution::Path(path) => (path, true),
            Resolution::Invalid(base) => (base, false),
            Resolution::Outside => return Err(outside()),
            Resolution::Hidden => return Err(is_hidden()),
        };
        let containing = roots.into_iter().map(|root| root.canonical).filter(|root| inside.starts_with(root));
        let root = containing.max_by_key(|root| root.as_os_str().len()).ok_or_else(outside)?;
        if hidden.hides(&inside) {
            return Err(is_hidden());
        }
        if is_valid { Ok(AllowedPath { path: inside, root }) } else { Err(access.not_found()) }
    }

    /// All existing roots.
    fn resolved(&self) -> Vec<ResolvedRoot> {
        let root = |listed: PathBuf| match self.canonical_root(&listed) {
            Pin::To(canonical) => Some(ResolvedRoot { listed, canonical }),
            Pin::Nowhere | Pin::Unknown => None,
        };
        self.listed().into_iter().filter_map(root).collect()
    }

    /// Whether a canonical path is still allowed.
    pub(crate) fn allows(&self, path: &Path) -> bool {
        self.current().iter().any(|root| path.starts_with(root)) && !self.hidden().hides(path)
    }

    /// Resolves a URI and opens the parent directory.
    pub(crate) fn locate(&self, access: AccessRequest<'_>, links: Links) -> Result<AllowedEntry, FileError> {
        self.find(access, links)?.enter().map_err(|errno| {
            // A parent of the path is a file, so the path does not exist.
            access.failed(if errno == Errno::ENOTDIR { Errno::ENOENT } else { errno })
        })
    }

    /// Rejects changes that would remove or replace a root or a hidden directory.
    pub(crate) fn guard(&self, access: AccessRequest<'_>, path: &Path) -> Result<(), FileError> {
        let is_in_use = |listed: PathBuf| match self.canonical_root(&listed) {
            Pin::To(root) => root.starts_with(path),
            // Compare by name while the disk does not respond.
            Pin::Unknown => listed.starts_with(path),
            Pin::Nowhere => false,
        };
        if self.listed().into_iter().any(is_in_use) {
            return Err(access.denied("a session works in it, or it is a granted directory"));
        }
        self.guard_hidden(access, path)
    }

    /// Rejects a path that contains a hidden directory.
    pub(crate) fn guard_hidden(&self, access: AccessRequest<'_>, path: &Path) -> Result<(), FileError> {
        if self.closed.iter().any(|closed| closed.starts_with(path)) {
            return Err(access.denied("it contains a directory of the host or the system"));
        }
        Ok(())
    }
}

impl AllowedPath {
    /// Opens the root.
    pub(crate) fn open_root(&self) -> Result<OwnedFd, Errno> {
        beneath::directory(&self.root)
    }

    /// The path relative to the root.
    pub(crate) fn relative(&self) -> &Path {
        self.path.strip_prefix(&self.root).unwrap_or(&self.path)
    }

    /// Opens the parent directory.
    pub(crate) fn enter(self) -> Result<AllowedEntry, Errno> {
        let root = self.open_root()?;
        let relative = self.relative();
        let (parent, name) = match (relative.parent(), relative.file_name()) {
            (Some(parent), Some(name)) => (parent.to_owned(), name.to_owned()),
            // The path is the root itself.
            _ => (PathBuf::new(), OsString::from(".")),
        };
        let dir = beneath::directory_below(root.as_fd(), &parent)?;
        Ok(AllowedEntry { path: self.path, dir, name })
    }
}

impl AllowedEntry {
    /// The open parent directory.
    pub(crate) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// The entry's name in the directory.
    pub(crate) fn name(&self) -> &OsStr {
        &self.name
    }

    /// Reads the metadata; `None` if the entry does not exist.
    pub(crate) fn look(&self) -> Result<Option<Metadata>, Errno> {
        match beneath::look(self.dir(), &self.name) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Opens the entry, unless it is a link.
    pub(crate) fn open(&self, flags: OFlag) -> Result<File, Errno> {
        beneath::entry(self.dir(), &self.name, flags, Mode::empty())
    }
}
