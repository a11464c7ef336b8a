//! Copies and removes directory trees by directory handles; links are copied as links.
//!
//! Invariant: if a directory is replaced by a link during the operation, the operation
//! fails and does not follow the link. A shutdown does not wait for a large tree.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, Permissions};
use std::io::Read as _;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use innkeeper_core::files::FileKind;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, readlinkat};
use nix::sys::stat::{Mode, mkdirat};
use nix::sys::statvfs::fstatvfs;
use nix::unistd::{UnlinkatFlags, symlinkat, unlinkat};

use crate::beneath;
use crate::look::{MAX_ENTRIES, kind_of};
use crate::stop_flag::StopFlag;

/// Maximum depth of a tree: each level uses an open directory and a stack frame.
const MAX_DEPTH: usize = 128;

/// Bytes that are copied between two checks of the stop flag: quick even on a slow disk,
/// and large enough for a fast copy in the kernel.
const CHUNK: u64 = 4 * 1024 * 1024;

/// Maximum number of bytes in one copy: a few seconds of disk writes, and more than most
/// projects have. A copy does not report progress, and it occupies one of few operation
/// slots.
const MAX_BYTES: u64 = 1024 * 1024 * 1024;
pub(crate) const MAX_BYTES_TEXT: &str = "1 GiB";

/// Bytes that a copy leaves free on a disk, or 5 % of a small disk, for the host's
/// database and other programs.
const SPARED: u64 = 256 * 1024 * 1024;

/// Number of directory entries that are removed before more are read: a directory may
/// have millions, and a shutdown must not wait until all are listed.
const BATCH: usize = 1_000;

/// Why a tree operation failed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TreeError {
    /// A system call failed.
    Failed(Errno),
    /// The tree has too many entries.
    TooMany,
    /// The tree has too many bytes.
    TooLarge,
    /// The copy would fill the disk.
    NoRoom,
    /// The tree has too many levels.
    TooDeep,
    /// The tree contains a pipe, socket or device.
    Special,
    /// The host is shutting down.
    Stopped,
}

impl From<Errno> for TreeError {
    fn from(errno: Errno) -> Self {
        Self::Failed(errno)
    }
}

/// A position in a tree; the default is the top.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Level {
    depth: usize,
    /// The device of the parent directory, once it is known to be a regular file system.
    device: Option<u64>,
}

impl Level {
    /// Opens a directory of the tree, unless it is too deep.
    fn open_directory(self, dir: BorrowedFd<'_>, name: &OsStr) -> Result<File, TreeError> {
        if self.depth >= MAX_DEPTH {
            return Err(TreeError::TooDeep);
        }
        Ok(open_directory(dir, name)?)
    }

    /// The position of the entries of an open directory.
    fn below(self, directory: &Metadata) -> Self {
        Self { depth: self.depth + 1, device: Some(directory.dev()) }
    }
}

/// A copy operation and its remaining limits.
#[derive(Debug)]
pub(crate) struct Copying<'a> {
    stop: &'a StopFlag,
    /// Remaining number of entries.
    left: usize,
    /// Remaining number of bytes.
    bytes_left: u64,
}

impl<'a> Copying<'a> {
    /// Creates a copy operation that ends early if `stop` is set.
    pub(crate) fn until(stop: &'a StopFlag) -> Self {
        Self { stop, left: MAX_ENTRIES, bytes_left: MAX_BYTES }
    }

    /// Copies a directory entry to a new entry of another directory.
    pub(crate) fn copy(
        &mut self,
        from: (BorrowedFd<'_>, &OsStr),
        to: (BorrowedFd<'_>, &OsStr),
        level: Level,
    ) -> Result<(), TreeError> {
        check_stop(self.stop)?;
        self.left = self.left.checked_sub(1).ok_or(TreeError::TooMany)?;
        match kind_of(beneath::look_beside(from.0, from.1, level.device)?.file_type()) {
            FileKind::File => self.copy_file(from, to),
            FileKind::Symlink => Ok(symlinkat(readlinkat(from.0, from.1)?.as_os_str(), to.0, to.1)?),
            FileKind::Directory => self.copy_directory(from, to, level),
            FileKind::Other => Err(TreeError::Special),
        }
    }

    fn copy_directory(
        &mut self,
        from: (BorrowedFd<'_>, &OsStr),
        to: (BorrowedFd<'_>, &OsStr),
        level: Level,
    ) -> Result<(), TreeError> {
        let source = level.open_directory(from.0, from.1)?;
        let found = beneath::metadata(&source)?;
        let mode = found.permissions().mode() & 0o777;
        let mut source = Dir::from_fd(source.into())?;
        let names = entries(&mut source, self.left.saturating_add(1))?;
        if names.len() > self.left {
            return Err(TreeError::TooMany);
        }
        mkdirat(to.0, to.1, Mode::from_bits_truncate(0o700))?;
        let target = open_directory(to.0, to.1)?;
        for name in names {
            self.copy((source.as_fd(), &name), (target.as_fd(), &name), level.below(&found))?;
        }
        target.set_permissions(Permissions::from_mode(mode)).map_err(errno_of)?;
        Ok(())
    }

    fn copy_file(
        &mut self,
        from: (BorrowedFd<'_>, &OsStr),
        to: (BorrowedFd<'_>, &OsStr),
    ) -> Result<(), TreeError> {
        let mut source = beneath::entry(from.0, from.1, OFlag::O_RDONLY, Mode::empty())?;
        let found = beneath::metadata(&source)?;
        if !found.is_file() {
            return Err(TreeError::Special);
        }
        if found.len() > self.bytes_left {
            return Err(TreeError::TooLarge);
        }
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
        let mut target = beneath::entry(to.0, to.1, flags, Mode::from_bits_truncate(0o600))?;
        let mut rest = found.len();
        loop {
            let copied = self.copy_chunk(&mut source, &mut target, rest)?;
            if copied == 0 {
                break;
            }
            rest = rest.saturating_sub(copied);
        }
        let mode = found.permissions().mode() & 0o777;
        target.set_permissions(Permissions::from_mode(mode)).map_err(errno_of)?;
        Ok(())
    }

    /// Copies the next chunk of a file with about `rest` bytes left. Returns the size of
    /// the chunk.
    fn copy_chunk(&mut self, source: &mut File, target: &mut File, rest: u64) -> Result<u64, TreeError> {
        check_stop(self.stop)?;
        // If the disk does not report its size, write until it fails.
        if let Ok(disk) = fstatvfs(&*target) {
            let bytes = |blocks: u64| blocks.saturating_mul(wide(disk.fragment_size()));
            let (all, free) = (bytes(wide(disk.blocks())), bytes(wide(disk.blocks_available())));
            if !has_room(all, free, rest.min(CHUNK)) {
                return Err(TreeError::NoRoom);
            }
        }
        let copied = std::io::copy(&mut source.take(CHUNK), target).map_err(errno_of)?;
        // The file may grow while it is copied.
        self.bytes_left = self.bytes_left.checked_sub(copied).ok_or(TreeError::TooLarge)?;
        Ok(copied)
    }
}

/// Whether a disk of `all` bytes with `free` bytes available has room for `more`.
fn has_room(all: u64, free: u64, more: u64) -> bool {
    // Some network file systems do not report their size.
    all == 0 || free >= SPARED.min(all / 20).saturating_add(more)
}

/// Converts a number whose type depends on the system.
fn wide(number: impl Into<u64>) -> u64 {
    number.into()
}

/// Why a tree is removed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Removal<'a> {
    /// A client requested it. A shutdown keeps the rest of the tree.
    Wanted(&'a StopFlag),
    /// It is a temporary tree of the host. Always removed completely, including
    /// write-protected directories.
    Leftover,
}

/// Removes a directory entry with everything in it.
pub(crate) fn remove(
    dir: BorrowedFd<'_>,
    name: &OsStr,
    why: Removal<'_>,
    level: Level,
) -> Result<(), TreeError> {
    if let Removal::Wanted(stop) = why {
        check_stop(stop)?;
    }
    if !beneath::look_beside(dir, name, level.device)?.is_dir() {
        return Ok(unlinkat(dir, name, UnlinkatFlags::NoRemoveDir)?);
    }
    let directory = level.open_directory(dir, name)?;
    let level = level.below(&beneath::metadata(&directory)?);
    if matches!(why, Removal::Leftover) {
        // If this fails, the removal below reports the error.
        directory.set_permissions(Permissions::from_mode(0o700)).ok();
    }
    let mut inner = Dir::from_fd(directory.into())?;
    loop {
        let names = entries(&mut inner, BATCH)?;
        let mut removed = 0;
        for name in &names {
            match remove(inner.as_fd(), name, why, level) {
                Ok(()) => removed += 1,
                // Already removed by another process.
                Err(TreeError::Failed(Errno::ENOENT)) => {}
                Err(error) => return Err(error),
            }
        }
        // If entries remain that cannot be removed, the removal below reports the error.
        if names.len() < BATCH || removed == 0 {
            break;
        }
    }
    Ok(unlinkat(dir, name, UnlinkatFlags::RemoveDir)?)
}

fn check_stop(stop: &StopFlag) -> Result<(), TreeError> {
    if stop.is_requested() { Err(TreeError::Stopped) } else { Ok(()) }
}

fn open_directory(dir: BorrowedFd<'_>, name: &OsStr) -> Result<File, Errno> {
    beneath::entry(dir, name, OFlag::O_RDONLY | OFlag::O_DIRECTORY, Mode::empty())
}

/// Returns at most `most` names in a directory.
fn entries(dir: &mut Dir, most: usize) -> Result<Vec<OsString>, Errno> {
    let mut names = Vec::new();
    for entry in dir.iter() {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            names.push(name.to_owned());
        }
        if names.len() >= most {
            break;
        }
    }
    Ok(names)
}

fn errno_of(error: std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
