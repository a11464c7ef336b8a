//! Whole trees: copied and removed by directory handles, link by link as links.
//!
//! Invariant: a directory that is swapped for a link in the middle is an error, and
//! never a way to somewhere else. A host that stops does not wait for a large tree.

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
use crate::stop::Stop;

/// How deep a tree may be: each level is an open directory and a call.
const MAX_DEPTH: usize = 128;

/// Bytes of a file that are copied between two looks at whether to go on: a moment even
/// for a slow disk, and enough for the kernel to copy fast.
const CHUNK: u64 = 4 * 1024 * 1024;

/// Most bytes that are copied in one go: what a disk writes in some seconds, and more than
/// the files of most projects. Nobody sees how far a copy is, and it holds one of few turns.
const MAX_BYTES: u64 = 1024 * 1024 * 1024;
pub(crate) const MAX_BYTES_TEXT: &str = "1 GiB";

/// Bytes that a copy leaves free on a disk, or a twentieth of a small one: the host's
/// database may be on it, and other programs need some room, too.
const SPARED: u64 = 256 * 1024 * 1024;

/// Entries of a directory that are removed before more of it is read: a directory may have
/// millions, and a host that stops does not wait until all of them are listed.
const BATCH: usize = 1_000;

/// Why a tree could not be handled.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TreeError {
    /// The system says no.
    Failed(Errno),
    /// There are too many entries in it.
    TooMany,
    /// There are too many bytes in it.
    TooLarge,
    /// It would fill the disk.
    NoRoom,
    /// It has too many levels.
    TooDeep,
    /// There is a pipe, a socket or a device in it.
    Special,
    /// The host is stopping.
    Stopped,
}

impl From<Errno> for TreeError {
    fn from(errno: Errno) -> Self {
        Self::Failed(errno)
    }
}

/// Where in a tree something is; by default, at its top.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Level {
    depth: usize,
    /// The device of the directory that it is in, once that is known to hold files.
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

    /// What is in a directory that was opened.
    fn below(self, directory: &Metadata) -> Self {
        Self { depth: self.depth + 1, device: Some(directory.dev()) }
    }
}

/// A copy that is being made.
#[derive(Debug)]
pub(crate) struct Copying<'a> {
    stop: &'a Stop,
    /// Entries that may still be copied.
    left: usize,
    /// Bytes that may still be copied.
    bytes_left: u64,
}

impl<'a> Copying<'a> {
    /// A copy that ends early if the host stops.
    pub(crate) fn until(stop: &'a Stop) -> Self {
        Self { stop, left: MAX_ENTRIES, bytes_left: MAX_BYTES }
    }

    /// Copies an entry of a directory to a new entry of another one.
    pub(crate) fn copy(
        &mut self,
        from: (BorrowedFd<'_>, &OsStr),
        to: (BorrowedFd<'_>, &OsStr),
        level: Level,
    ) -> Result<(), TreeError> {
        go_on(self.stop)?;
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

    /// Copies the next part of a file, of which about so much is left, and answers how
    /// long that part is.
    fn copy_chunk(&mut self, source: &mut File, target: &mut File, rest: u64) -> Result<u64, TreeError> {
        go_on(self.stop)?;
        // A disk that does not say how large it is, is written to until it refuses.
        if let Ok(disk) = fstatvfs(&*target) {
            let bytes = |blocks: u64| blocks.saturating_mul(wide(disk.fragment_size()));
            let (all, free) = (bytes(wide(disk.blocks())), bytes(wide(disk.blocks_available())));
            if !has_room(all, free, rest.min(CHUNK)) {
                return Err(TreeError::NoRoom);
            }
        }
        let copied = std::io::copy(&mut source.take(CHUNK), target).map_err(errno_of)?;
        // It may grow while it is copied.
        self.bytes_left = self.bytes_left.checked_sub(copied).ok_or(TreeError::TooLarge)?;
        Ok(copied)
    }
}

/// Whether a disk of `all` bytes, of which some are free, has room for some more.
fn has_room(all: u64, free: u64, more: u64) -> bool {
    // Some file systems of other machines do not know how large they are.
    all == 0 || free >= SPARED.min(all / 20).saturating_add(more)
}

/// The system's numbers have other types on other systems.
fn wide(number: impl Into<u64>) -> u64 {
    number.into()
}

/// Why a tree is removed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Removal<'a> {
    /// Somebody wants it gone. If the host stops, what is left of it stays.
    Wanted(&'a Stop),
    /// It is what an operation of the host leaves behind, so it goes in any case, its
    /// write-protected directories included.
    Leftover,
}

/// Removes an entry of a directory with everything in it.
pub(crate) fn remove(
    dir: BorrowedFd<'_>,
    name: &OsStr,
    why: Removal<'_>,
    level: Level,
) -> Result<(), TreeError> {
    if let Removal::Wanted(stop) = why {
        go_on(stop)?;
    }
    if !beneath::look_beside(dir, name, level.device)?.is_dir() {
        return Ok(unlinkat(dir, name, UnlinkatFlags::NoRemoveDir)?);
    }
    let directory = level.open_directory(dir, name)?;
    let level = level.below(&beneath::metadata(&directory)?);
    if matches!(why, Removal::Leftover) {
        // If it cannot be, what follows says so.
        directory.set_permissions(Permissions::from_mode(0o700)).ok();
    }
    let mut inner = Dir::from_fd(directory.into())?;
    loop {
        let names = entries(&mut inner, BATCH)?;
        let mut removed = 0;
        for name in &names {
            match remove(inner.as_fd(), name, why, level) {
                Ok(()) => removed += 1,
                // Somebody else was faster.
                Err(TreeError::Failed(Errno::ENOENT)) => {}
                Err(error) => return Err(error),
            }
        }
        // If there is more and it cannot be removed, what follows says so.
        if names.len() < BATCH || removed == 0 {
            break;
        }
    }
    Ok(unlinkat(dir, name, UnlinkatFlags::RemoveDir)?)
}

fn go_on(stop: &Stop) -> Result<(), TreeError> {
    if stop.is_ordered() { Err(TreeError::Stopped) } else { Ok(()) }
}

fn open_directory(dir: BorrowedFd<'_>, name: &OsStr) -> Result<File, Errno> {
    beneath::entry(dir, name, OFlag::O_RDONLY | OFlag::O_DIRECTORY, Mode::empty())
}

/// The first names in a directory, and no more than so many.
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
