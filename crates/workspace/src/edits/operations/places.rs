//! The files of an operation: where they are, and whether they are in an expected state.
//!
//! Each access opens the path again from the handle of its root, without following links,
//! so that a directory that is replaced in between cannot redirect it.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::Read as _;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use innkeeper_core::edits::{BlobDigest, EditError, FileVersion};
use nix::errno::Errno;
use nix::fcntl::{OFlag, readlinkat};
use nix::sys::stat::{Mode, mkdirat};

use crate::beneath;

/// The bits of a file's mode that are recorded and restored.
pub(super) const MODE_BITS: u32 = 0o7777;

/// A file that could not be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileFailure {
    /// The file.
    pub(super) path: PathBuf,
    /// Why, as a part of a sentence.
    pub(super) reason: String,
}

impl FileFailure {
    pub(super) fn new(path: &Path, reason: impl Into<String>) -> Self {
        Self { path: path.to_owned(), reason: reason.into() }
    }

    pub(super) fn of_errno(path: &Path, errno: Errno) -> Self {
        const REASONS: [(Errno, &str); 9] = [
            (Errno::ELOOP, "a part of its path is a symbolic link"),
            (Errno::EISDIR, "a directory is in its place"),
            (Errno::ENOTDIR, "a part of its path is not a directory"),
            (Errno::EROFS, "the file system is read-only"),
            (Errno::ENOSPC, "the disk is full"),
            (Errno::EDQUOT, "the disk quota is exceeded"),
            (Errno::EACCES, "permission denied"),
            (Errno::EPERM, "permission denied"),
            (beneath::KERNEL_VIEW, "it is on a file system of the kernel"),
        ];
        let known = REASONS.into_iter().find(|(known, _)| *known == errno);
        Self::new(path, known.map_or(errno.desc(), |(_, reason)| reason))
    }

    pub(super) fn of_io(path: &Path, error: &std::io::Error) -> Self {
        match error.raw_os_error() {
            Some(code) => Self::of_errno(path, Errno::from_raw(code)),
            None => Self::new(path, error.to_string()),
        }
    }
}

impl From<FileFailure> for EditError {
    fn from(failure: FileFailure) -> Self {
        Self::File { path: failure.path.display().to_string(), reason: failure.reason }
    }
}

/// The open roots of an operation.
#[derive(Debug)]
pub(super) struct OpenRoots {
    /// Canonical paths with handles.
    roots: Vec<(PathBuf, OwnedFd)>,
}

impl OpenRoots {
    /// Opens the roots that exist.
    pub(super) fn open(roots: &[PathBuf]) -> Self {
        let open = |root: &PathBuf| {
            let canonical = root.canonicalize().ok()?;
            match beneath::directory(&canonical) {
                Ok(handle) => Some((canonical, handle)),
                Err(error) => {
                    tracing::debug!(%error, root = %root.display(), "cannot open a root");
                    None
                }
            }
        };
        Self { roots: roots.iter().filter_map(open).collect() }
    }

    /// A file inside of a root.
    pub(super) fn place<'a>(&'a self, path: &Path) -> Result<StepPlace<'a>, FileFailure> {
        let outside = || FileFailure::new(path, "it is not in a directory of the session");
        if !path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_))) {
            return Err(outside());
        }
        let containing = self.roots.iter().filter(|(root, _)| path.starts_with(root));
        let (root, handle) = containing.max_by_key(|(root, _)| root.as_os_str().len()).ok_or_else(outside)?;
        let relative = path.strip_prefix(root).map_err(|_| outside())?;
        let name = relative.file_name().ok_or_else(outside)?;
        Ok(StepPlace {
            root: handle.as_fd(),
            root_path: root,
            parent: relative.parent().map(Path::to_owned).unwrap_or_default(),
            name: name.to_owned(),
            path: path.to_owned(),
        })
    }
}

/// A file inside of a root, which need not exist.
#[derive(Debug)]
pub(super) struct StepPlace<'a> {
    root: BorrowedFd<'a>,
    root_path: &'a Path,
    /// The parent directory, relative to the root.
    parent: PathBuf,
    /// The name in the parent directory.
    pub(super) name: OsString,
    /// The absolute path.
    pub(super) path: PathBuf,
}

impl StepPlace<'_> {
    /// An error of this file.
    pub(super) fn failed(&self, errno: Errno) -> FileFailure {
        FileFailure::of_errno(&self.path, errno)
    }

    /// Opens the parent directory.
    pub(super) fn open_parent(&self) -> Result<OwnedFd, Errno> {
        beneath::directory_below(self.root, &self.parent)
    }

    /// Opens a directory that [`Self::nearest_directory`] returned.
    pub(super) fn open_directory(&self, relative: &Path) -> Result<OwnedFd, FileFailure> {
        beneath::directory_below(self.root, relative).map_err(|errno| self.failed(errno))
    }

    /// Opens the nearest parent directory that exists. Returns its path below the root, too.
    pub(super) fn nearest_directory(&self) -> Result<(OwnedFd, &Path), FileFailure> {
        for directory in self.parent.ancestors() {
            match beneath::directory_below(self.root, directory) {
                Ok(opened) => return Ok((opened, directory)),
                Err(Errno::ENOENT | Errno::ENOTDIR) => {}
                Err(errno) => return Err(self.failed(errno)),
            }
        }
        Err(self.failed(Errno::ENOENT))
    }

    /// All existing directories from the root to the parent.
    pub(super) fn directories(&self) -> impl Iterator<Item = OwnedFd> + '_ {
        self.parent.ancestors().filter_map(|directory| beneath::directory_below(self.root, directory).ok())
    }

    /// The first part of the path that exists and is not a directory.
    pub(super) fn obstacle(&self) -> Result<Option<PathBuf>, FileFailure> {
        let mut parts: Vec<&Path> = self.parent.ancestors().collect();
        parts.reverse();
        for part in parts {
            match beneath::directory_below(self.root, part) {
                Ok(_) => {}
                Err(Errno::ENOENT) => return Ok(None),
                Err(Errno::ENOTDIR) => return Ok(Some(self.root_path.join(part))),
                Err(errno) => return Err(self.failed(errno)),
            }
        }
        Ok(None)
    }

    /// How many parent directories do not exist.
    pub(super) fn missing_parents(&self) -> u32 {
        let missing =
            self.parent.ancestors().take_while(|part| beneath::directory_below(self.root, part).is_err());
        u32::try_from(missing.count()).unwrap_or(u32::MAX)
    }

    /// Opens the parent directory, and creates it and its parents if they are missing.
    /// `created` receives the absolute paths of the new directories, also after an error.
    pub(super) fn make_parent(&self, created: &mut Vec<PathBuf>) -> Result<OwnedFd, FileFailure> {
        let failed = |errno| self.failed(errno);
        let mut current = beneath::directory_below(self.root, Path::new("")).map_err(failed)?;
        let mut path = self.root_path.to_owned();
        for part in self.parent.components() {
            let name = part.as_os_str();
            path.push(name);
            current = match beneath::entry_directory(current.as_fd(), name) {
                Err(Errno::ENOENT) => {
                    let mode = Mode::from_bits_truncate(0o777);
                    mkdirat(current.as_fd(), name, mode).map_err(failed)?;
                    created.push(path.clone());
                    beneath::entry_directory(current.as_fd(), name).map_err(failed)?
                }
                opened => opened.map_err(failed)?,
            };
        }
        Ok(current)
    }

    /// The nearest `count` parent directories, innermost first, without the root.
    pub(super) fn parents(&self, count: u32) -> Vec<PathBuf> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let inner = self.parent.ancestors().filter(|part| !part.as_os_str().is_empty());
        inner.take(count).map(|part| self.root_path.join(part)).collect()
    }

    /// Compares the file with a version.
    pub(super) fn compare(&self, version: &FileVersion) -> Result<Compared, FileFailure> {
        let parent = match self.open_parent() {
            Ok(parent) => parent,
            Err(Errno::ENOENT | Errno::ENOTDIR) => return Ok(Compared::absent(version)),
            Err(errno) => return Err(self.failed(errno)),
        };
        compare_entry(parent.as_fd(), &self.name, version).map_err(|errno| self.failed(errno))
    }

    /// The kind of entry that is there, if it is not a file or link.
    pub(super) fn foreign_entry(&self) -> Result<Option<Compared>, FileFailure> {
        // No file has this version, so that no content is read.
        Ok(match self.compare(&FileVersion::Absent)? {
            other @ (Compared::Directory | Compared::Special) => Some(other),
            Compared::Same(_) | Compared::Different => None,
        })
    }

    /// The file's current stamp; `None` if it does not exist.
    pub(super) fn stamp(&self, parent: BorrowedFd<'_>) -> Result<Option<EntryStamp>, FileFailure> {
        match beneath::look(parent, &self.name) {
            Ok(found) => Ok(Some(EntryStamp::of(&found))),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(self.failed(errno)),
        }
    }
}

/// Distinguishes states of a file without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryStamp {
    device: u64,
    inode: u64,
    size: u64,
    /// The kind and the mode.
    pub(super) mode: u32,
    modified: (i64, i64),
    changed: (i64, i64),
    /// The owner and the group.
    pub(super) owner: (u32, u32),
}

impl EntryStamp {
    fn of(found: &Metadata) -> Self {
        Self {
            device: found.dev(),
            inode: found.ino(),
            size: found.size(),
            mode: found.mode(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
            owner: (found.uid(), found.gid()),
        }
    }

    /// Whether both are states of the same file.
    pub(super) fn is_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

/// The result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compared {
    /// The file has this version. The stamp is `None` if it does not exist.
    Same(Option<EntryStamp>),
    /// The file has another version.
    Different,
    /// There is a directory.
    Directory,
    /// There is a device, a pipe or a socket.
    Special,
}

impl Compared {
    fn absent(version: &FileVersion) -> Self {
        if *version == FileVersion::Absent { Self::Same(None) } else { Self::Different }
    }
}

fn compare_entry(parent: BorrowedFd<'_>, name: &OsStr, version: &FileVersion) -> Result<Compared, Errno> {
    let found = match beneath::look(parent, name) {
        Ok(found) => found,
        Err(Errno::ENOENT) => return Ok(Compared::absent(version)),
        Err(errno) => return Err(errno),
    };
    if found.is_dir() {
        return Ok(Compared::Directory);
    }
    if !(found.is_file() || found.is_symlink()) {
        return Ok(Compared::Special);
    }
    let is_same = match version {
        FileVersion::Absent | FileVersion::Unknown(_) => false,
        FileVersion::Link { target } => {
            found.is_symlink() && readlinkat(parent, name)?.as_os_str() == target.as_os_str()
        }
        FileVersion::File { blob, size, mode, .. } => {
            found.is_file()
                && found.size() == *size
                && found.mode() & MODE_BITS == *mode
                && has_content(parent, name, *blob, &found)?
        }
    };
    Ok(if is_same { Compared::Same(Some(EntryStamp::of(&found))) } else { Compared::Different })
}

/// Whether a file of the expected size has a content. A file that changes while it is read
/// does not.
fn has_content(
    parent: BorrowedFd<'_>,
    name: &OsStr,
    blob: BlobDigest,
    expected: &Metadata,
) -> Result<bool, Errno> {
    let file = beneath::entry(parent, name, OFlag::O_RDONLY, Mode::empty())?;
    let is_unchanged =
        |file: &File| beneath::metadata(file).map(|found| EntryStamp::of(&found) == EntryStamp::of(expected));
    if !is_unchanged(&file)? {
        return Ok(false);
    }
    let mut content = Vec::with_capacity(usize::try_from(expected.size()).unwrap_or_default());
    let read = (&file).take(expected.size() + 1).read_to_end(&mut content);
    read.map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))?;
    Ok(BlobDigest::of(&content) == blob && is_unchanged(&file)?)
}
