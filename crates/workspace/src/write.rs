//! Writes the content of a file.
//!
//! A file is replaced as a whole by renaming a temporary file over it, so that readers
//! never see a partial change; only an append at the end is made in place. Invariant: the
//! precondition is checked and the change is made under one lock.

use std::ffi::{OsStr, OsString};
use std::fs::{Metadata, Permissions};
use std::io::Write as _;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use innkeeper_core::files::{FileError, FileWrite, Links, WriteCondition, WritePlace};
use nix::errno::Errno;
use nix::fcntl::{OFlag, renameat};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, unlinkat};
use uuid::Uuid;

use crate::access_request::AccessRequest;
use crate::beneath;
use crate::locks::Locks;
use crate::look::{MAX_CONTENT, MAX_CONTENT_TEXT, content, etag, must_be_regular};
use crate::roots::{AllowedEntry, Roots};

/// Name prefixes of temporary files that will become a new entry, and of those that will
/// replace an existing one. A watch distinguishes the two by the prefix.
pub(crate) const NEW_DRAFT: &str = ".innkeeper-new-";
pub(crate) const REPLACING_DRAFT: &str = ".innkeeper-old-";

/// The same for the temporary files of an undo, which are found again after a crash.
pub(crate) const NEW_UNDO_DRAFT: &str = ".innkeeper-undo-new-";
pub(crate) const REPLACING_UNDO_DRAFT: &str = ".innkeeper-undo-old-";

/// Whether a file with this name is a temporary file of the host.
pub(crate) fn is_draft_name(name: &OsStr) -> bool {
    let prefixes = [NEW_DRAFT, REPLACING_DRAFT, NEW_UNDO_DRAFT, REPLACING_UNDO_DRAFT];
    prefixes.into_iter().any(|prefix| name.as_encoded_bytes().starts_with(prefix.as_bytes()))
}

pub(crate) fn write(roots: &Roots, locks: &Locks, write: &FileWrite) -> Result<(), FileError> {
    let access = AccessRequest::to_write(&write.uri);
    if size(&write.data) > MAX_CONTENT {
        return Err(FileError::TooLarge { what: "the content to write".to_owned(), limit: MAX_CONTENT_TEXT });
    }
    let place = roots.locate(access, Links::Follow)?;
    let _held = locks.hold(&[&place.path]);
    let existing = place.look().map_err(|errno| access.failed(errno))?;
    check(access, existing.as_ref(), &write.condition)?;
    if let Some(existing) = &existing {
        must_be_regular(access, existing)?;
        if write.place == WritePlace::Append(0) {
            return append(access, &place, &write.data);
        }
    }
    let spliced;
    let data: &[u8] = if write.place == WritePlace::Truncate(0) {
        &write.data
    } else {
        let before = if existing.is_some() { content(access, &place)? } else { Vec::new() };
        spliced = splice(access, before, write.place, &write.data)?;
        &spliced
    };
    replace(access, &place, existing.as_ref(), data, &write.condition)
}

fn check(
    access: AccessRequest<'_>,
    existing: Option<&Metadata>,
    condition: &WriteCondition,
) -> Result<(), FileError> {
    match condition {
        WriteCondition::Always => Ok(()),
        WriteCondition::IsNew if existing.is_some() => Err(access.exists()),
        WriteCondition::IsNew => Ok(()),
        WriteCondition::Matches(mark) if existing.is_some_and(|found| etag(found) == *mark) => Ok(()),
        WriteCondition::Matches(_) => Err(FileError::Conflict(access.uri.to_owned())),
    }
}

/// Returns the new content of the file.
fn splice(
    access: AccessRequest<'_>,
    mut before: Vec<u8>,
    place: WritePlace,
    data: &[u8],
) -> Result<Vec<u8>, FileError> {
    let outside = || access.invalid("is shorter than the position");
    let within = |position: u64| {
        usize::try_from(position).ok().filter(|position| *position <= before.len()).ok_or_else(outside)
    };
    let (start, end) = match place {
        WritePlace::Truncate(position) => (within(position)?, before.len()),
        WritePlace::Append(back) => {
            let start = before.len() - within(back)?;
            (start, start)
        }
        WritePlace::Insert(position) => (within(position)?, within(position)?),
    };
    before.splice(start..end, data.iter().copied());
    if size(&before) > MAX_CONTENT {
        return Err(access.too_large(MAX_CONTENT_TEXT));
    }
    Ok(before)
}

/// Appends to the end of a file, all or nothing.
fn append(access: AccessRequest<'_>, place: &AllowedEntry, data: &[u8]) -> Result<(), FileError> {
    let mut file = place.open(OFlag::O_WRONLY | OFlag::O_APPEND).map_err(|errno| access.failed(errno))?;
    let found = beneath::metadata(&file).map_err(|errno| access.failed(errno))?;
    must_be_regular(access, &found)?;
    let mut rest = data;
    while !rest.is_empty() {
        match file.write(rest) {
            Ok(written) => rest = rest.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => {
                let written = size(data) - size(rest);
                // Undo a partial append, unless another process has written after it.
                if file.metadata().is_ok_and(|now| now.len() == found.len() + written)
                    && let Err(error) = file.set_len(found.len())
                {
                    tracing::warn!(%error, path = %place.path.display(), "could not undo a partial append");
                }
                return Err(access.failed_io(&error));
            }
        }
    }
    Ok(())
}

fn replace(
    access: AccessRequest<'_>,
    place: &AllowedEntry,
    existing: Option<&Metadata>,
    data: &[u8],
    condition: &WriteCondition,
) -> Result<(), FileError> {
    let failed = |errno| access.failed(errno);
    if existing.is_some() {
        // Check write permission on the file itself; the rename needs it only on the
        // directory.
        drop(place.open(OFlag::O_WRONLY).map_err(failed)?);
    }
    let draft = Draft::new(place.dir(), existing.is_some());
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
    // The replacement of a private file is private from its first byte; a new file has
    // the mode that the umask leaves.
    let mode = Mode::from_bits_truncate(if existing.is_some() { 0o600 } else { 0o666 });
    let mut file = beneath::entry(place.dir(), draft.name(), flags, mode).map_err(failed)?;
    file.write_all(data).map_err(|error| access.failed_io(&error))?;
    if let Some(existing) = existing {
        keep_owner(&file, existing);
        let mode = existing.permissions().mode() & 0o777;
        file.set_permissions(Permissions::from_mode(mode)).map_err(|error| access.failed_io(&error))?;
    }
    drop(file);
    let placed = match existing {
        Some(_) => renameat(place.dir(), draft.name(), place.dir(), place.name()),
        None => match rename_new(place.dir(), draft.name(), place.dir(), place.name()) {
            // Another process created the file first, which matters only if the file must
            // be new.
            Err(Errno::EEXIST) if *condition != WriteCondition::IsNew => {
                renameat(place.dir(), draft.name(), place.dir(), place.name())
            }
            placed => placed,
        },
    };
    placed.map_err(failed)?;
    draft.placed();
    Ok(())
}

/// Keeps the owner of a replaced file. Only a privileged host can and needs to.
fn keep_owner(file: &std::fs::File, existing: &Metadata) {
    if file.metadata().is_ok_and(|own| own.uid() == existing.uid() && own.gid() == existing.gid()) {
        return;
    }
    let (owner, group) = (Uid::from_raw(existing.uid()), Gid::from_raw(existing.gid()));
    if let Err(error) = fchown(file, Some(owner), Some(group)) {
        tracing::debug!(%error, "could not keep the owner of a replaced file");
    }
}

/// Renames unless the new name exists.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn rename_new(
    from: BorrowedFd<'_>,
    old: &OsStr,
    to: BorrowedFd<'_>,
    new: &OsStr,
) -> Result<(), Errno> {
    use nix::fcntl::{RenameFlags, renameat2};
    match renameat2(from, old, to, new, RenameFlags::RENAME_NOREPLACE) {
        // The file system does not support this flag.
        Err(Errno::EINVAL | Errno::ENOSYS) => rename_absent(from, old, to, new),
        renamed => renamed,
    }
}

/// Renames unless the new name exists.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn rename_new(
    from: BorrowedFd<'_>,
    old: &OsStr,
    to: BorrowedFd<'_>,
    new: &OsStr,
) -> Result<(), Errno> {
    rename_absent(from, old, to, new)
}

/// Renames unless the new name exists, in two steps, which the lock makes atomic for
/// clients of this host.
fn rename_absent(from: BorrowedFd<'_>, old: &OsStr, to: BorrowedFd<'_>, new: &OsStr) -> Result<(), Errno> {
    match beneath::look(to, new) {
        Ok(_) => Err(Errno::EEXIST),
        Err(Errno::ENOENT) => renameat(from, old, to, new),
        Err(errno) => Err(errno),
    }
}

/// A temporary file, removed on drop unless it was renamed into place.
struct Draft<'a> {
    dir: BorrowedFd<'a>,
    name: OsString,
    placed: bool,
}

impl<'a> Draft<'a> {
    fn new(dir: BorrowedFd<'a>, replaces: bool) -> Self {
        Self { dir, name: draft_name(replaces), placed: false }
    }

    fn name(&self) -> &OsStr {
        &self.name
    }

    fn placed(mut self) {
        self.placed = true;
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if self.placed {
            return;
        }
        match unlinkat(self.dir, self.name.as_os_str(), UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(error) => tracing::warn!(%error, name = ?self.name, "could not remove a temporary file"),
        }
    }
}

/// Returns an unused name.
pub(crate) fn draft_name(replaces: bool) -> OsString {
    let prefix = if replaces { REPLACING_DRAFT } else { NEW_DRAFT };
    format!("{prefix}{}", Uuid::new_v4().simple()).into()
}

fn size(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
