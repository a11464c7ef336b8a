//! Reads one file without following links, and checks that it did not change meanwhile.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use innkeeper_core::clock::{Clock as _, SystemClock};
use innkeeper_core::edits::{BlobDigest, FileVersion, StoredBlob, UnknownContent};
use nix::NixPath;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, readlinkat};
use nix::sys::stat::{Mode, fstat, fstatat};
use sha2::{Digest as _, Sha256};

use super::TrackingLimits;
use super::index::{EntryKind, FileStamp, KnownContent, KnownFile};
use crate::beneath;

/// How often a file is read that changes meanwhile.
const ATTEMPTS: usize = 3;

/// Maximum size of a file whose digest is computed: about a second of work.
const MAX_DIGESTED: u64 = 256 * 1024 * 1024;

/// An open root directory.
#[derive(Debug)]
pub(crate) struct RootHandle {
    path: PathBuf,
    handle: OwnedFd,
}

impl RootHandle {
    /// Opens a root by its canonical path.
    pub(crate) fn open(path: &Path) -> Result<Self, Errno> {
        Ok(Self { path: path.to_owned(), handle: beneath::directory(path)? })
    }

    /// Opens a directory below the root. No link is followed.
    pub(crate) fn directory(&self, relative: &Path) -> Result<OwnedFd, Errno> {
        beneath::directory_below(self.handle.as_fd(), relative)
    }
}

/// Reads a file of a root, given with its absolute path or relative to the root. No link is
/// followed. Also returns the content, if it is not too large.
pub(crate) fn read_version(
    root: &RootHandle,
    path: &Path,
    limits: &TrackingLimits,
) -> (FileVersion, Option<StoredBlob>) {
    let relative = path.strip_prefix(&root.path).unwrap_or(path);
    let looked = look_below(root, relative, ReadLimits::new(limits));
    match looked.known.content {
        KnownContent::Version(version) => (version, looked.blob),
        KnownContent::Git(_) => (FileVersion::Unknown(UnknownContent::Unreadable), None),
    }
}

/// Which files are read.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadLimits {
    /// Maximum size of a content that is stored.
    pub(super) stored: u64,
    /// Maximum size of a content whose digest is computed.
    pub(super) digested: u64,
}

impl ReadLimits {
    pub(super) fn new(limits: &TrackingLimits) -> Self {
        Self { stored: limits.max_file_size, digested: limits.max_file_size.max(MAX_DIGESTED) }
    }
}

/// How much one observation read. Limits the work when a command writes very much.
#[derive(Debug, Default)]
pub(super) struct ReadBudget {
    stored: u64,
    digested: u64,
}

impl ReadBudget {
    /// What may still be read.
    pub(super) fn limits(&self, limits: &TrackingLimits) -> ReadLimits {
        let left = |spent: u64| limits.max_root_size.saturating_sub(spent);
        let all = ReadLimits::new(limits);
        let stored = all.stored.min(left(self.stored));
        ReadLimits { stored, digested: all.digested.min(left(self.digested)).max(stored) }
    }

    /// Counts a file that was read.
    pub(super) fn spend(&mut self, known: &KnownFile) {
        if let KnownContent::Version(FileVersion::File { size, stored, .. }) = &known.content {
            let spent = if *stored { &mut self.stored } else { &mut self.digested };
            *spent = spent.saturating_add(*size);
        }
    }
}

/// A file that was just read.
#[derive(Debug)]
pub(super) struct LookedFile {
    pub(super) known: KnownFile,
    /// Its content, if it is to be stored.
    pub(super) blob: Option<StoredBlob>,
}

impl LookedFile {
    fn without_content(stamp: Option<FileStamp>, now: i64, version: FileVersion) -> Self {
        let racy = stamp.is_some_and(|stamp| stamp.is_racy(now));
        Self { known: KnownFile { stamp, racy, content: KnownContent::Version(version) }, blob: None }
    }
}

/// The current time in nanoseconds since 1970.
pub(super) fn now() -> i64 {
    i64::try_from(SystemClock.now().as_nanosecond()).unwrap_or(i64::MAX)
}

/// The stamp of a directory entry.
pub(super) fn stamp_at<P: ?Sized + NixPath>(parent: BorrowedFd<'_>, name: &P) -> Result<FileStamp, Errno> {
    fstatat(parent, name, AtFlags::AT_SYMLINK_NOFOLLOW).map(|stat| FileStamp::of(&stat))
}

/// The stamp of an open file or directory.
pub(super) fn stamp_of(file: impl AsFd) -> Result<FileStamp, Errno> {
    fstat(file).map(|stat| FileStamp::of(&stat))
}

/// Whether an error says that there is no entry with this path.
pub(super) fn is_missing(errno: Errno) -> bool {
    matches!(errno, Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP)
}

/// Looks at a path below a root. A content that may be stored is returned.
pub(super) fn look_below(root: &RootHandle, relative: &Path, limits: ReadLimits) -> LookedFile {
    let unreadable =
        || LookedFile::without_content(None, now(), FileVersion::Unknown(UnknownContent::Unreadable));
    let (Some(parent), Some(name)) = (relative.parent(), relative.file_name()) else { return unreadable() };
    match root.directory(parent) {
        Ok(directory) => look_at(directory.as_fd(), name, limits),
        Err(errno) if is_missing(errno) => LookedFile::without_content(None, now(), FileVersion::Absent),
        Err(_) => unreadable(),
    }
}

/// Looks at a directory entry. A content that may be stored is returned.
pub(super) fn look_at(parent: BorrowedFd<'_>, name: &OsStr, limits: ReadLimits) -> LookedFile {
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let now = now();
        let stamp = match stamp_at(parent, name) {
            Ok(stamp) => stamp,
            Err(errno) if is_missing(errno) => {
                return LookedFile::without_content(None, now, FileVersion::Absent);
            }
            Err(_) => break,
        };
        last = Some((stamp, now));
        let read = match stamp.kind() {
            EntryKind::File => read_file(parent, name, limits, now),
            EntryKind::Link => read_link(parent, name, stamp, now),
            // There is not a file with this name.
            EntryKind::Directory | EntryKind::Special => {
                return LookedFile::without_content(None, now, FileVersion::Absent);
            }
        };
        match read {
            Ok(looked) => return looked,
            // Changed while it was read.
            Err(Errno::EAGAIN | Errno::ENOENT | Errno::ELOOP) => {}
            Err(_) => break,
        }
    }
    let (stamp, now) = last.map_or((None, now()), |(stamp, now)| (Some(stamp), now));
    LookedFile::without_content(stamp, now, FileVersion::Unknown(UnknownContent::Unreadable))
}

fn read_link(parent: BorrowedFd<'_>, name: &OsStr, stamp: FileStamp, now: i64) -> Result<LookedFile, Errno> {
    let target = PathBuf::from(readlinkat(parent, name)?);
    if stamp_at(parent, name)? != stamp {
        return Err(Errno::EAGAIN);
    }
    Ok(LookedFile::without_content(Some(stamp), now, FileVersion::Link { target }))
}

/// Reads a file. The error is [`Errno::EAGAIN`] if it changed meanwhile.
fn read_file(
    parent: BorrowedFd<'_>,
    name: &OsStr,
    limits: ReadLimits,
    now: i64,
) -> Result<LookedFile, Errno> {
    let mut file = beneath::entry(parent, name, OFlag::O_RDONLY, Mode::empty())?;
    let stamp = stamp_of(&file)?;
    if stamp.kind() != EntryKind::File {
        return Err(Errno::EAGAIN);
    }
    if stamp.size > limits.digested {
        let version = FileVersion::Unknown(UnknownContent::FileTooLarge);
        return Ok(LookedFile::without_content(Some(stamp), now, version));
    }
    let (blob, content) = if stamp.size <= limits.stored {
        let content = read_content(&mut file, stamp.size)?;
        // A program that writes at this moment may leave the stamp as it is.
        if stamp.is_racy(now) {
            file.rewind().map_err(errno_of)?;
            if read_content(&mut file, stamp.size)? != content {
                return Err(Errno::EAGAIN);
            }
        }
        let content = StoredBlob::new(content);
        (content.digest, Some(content))
    } else {
        (digest_of(&mut file, stamp.size)?, None)
    };
    if stamp_of(&file)? != stamp {
        return Err(Errno::EAGAIN);
    }
    let version =
        FileVersion::File { blob, size: stamp.size, mode: stamp.permissions(), stored: content.is_some() };
    let looked = LookedFile::without_content(Some(stamp), now, version);
    Ok(LookedFile { blob: content, ..looked })
}

fn read_content(file: &mut File, size: u64) -> Result<Vec<u8>, Errno> {
    let mut content = Vec::with_capacity(usize::try_from(size).unwrap_or_default().saturating_add(1));
    file.take(size.saturating_add(1)).read_to_end(&mut content).map_err(errno_of)?;
    if u64::try_from(content.len()) == Ok(size) { Ok(content) } else { Err(Errno::EAGAIN) }
}

fn digest_of(file: &mut File, size: u64) -> Result<BlobDigest, Errno> {
    let mut digest = Sha256::new();
    let read = std::io::copy(&mut file.take(size.saturating_add(1)), &mut digest).map_err(errno_of)?;
    if read == size { Ok(BlobDigest::from_bytes(digest.finalize().into())) } else { Err(Errno::EAGAIN) }
}

fn errno_of(error: std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}
