//! Operations on directory entries: copy, move, delete, create a directory.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;

use innkeeper_core::files::{Existing, Extent, FileError, Links, Transfer};
use nix::errno::Errno;
use nix::fcntl::renameat;
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use crate::access_request::AccessRequest;
use crate::beneath;
use crate::files::Parts;
use crate::look::MAX_ENTRIES_TEXT;
use crate::roots::{AllowedEntry, Roots};
use crate::stop_flag::StopFlag;
use crate::tree::{self, Copying, Level, MAX_BYTES_TEXT, Removal, TreeError};
use crate::write::{draft_name, rename_new};

pub(crate) fn copy(parts: &Parts, transfer: &Transfer) -> Result<(), FileError> {
    let roots = &parts.roots;
    let from = AccessRequest::to_read(&transfer.source);
    let to = AccessRequest::to_write(&transfer.destination);
    let source = roots.locate(from, Links::Follow)?;
    let destination = roots.locate(to, Links::Keep)?;
    must_exist(from, &source)?;
    roots.guard_hidden(from, &source.path)?;
    if source.path == destination.path {
        return same_place(to, transfer.existing);
    }
    roots.guard(to, &destination.path)?;
    must_be_apart(to, &source.path, &destination.path)?;
    let _held = parts.locks.hold(&[&source.path, &destination.path]);
    copy_over(from, &source, to, &destination, transfer.existing, &parts.stop)
}

pub(crate) fn relocate(parts: &Parts, transfer: &Transfer) -> Result<(), FileError> {
    let roots = &parts.roots;
    let from = AccessRequest::to_write(&transfer.source);
    let to = AccessRequest::to_write(&transfer.destination);
    let source = roots.locate(from, Links::Keep)?;
    let destination = roots.locate(to, Links::Keep)?;
    must_exist(from, &source)?;
    roots.guard(from, &source.path)?;
    if source.path == destination.path {
        return same_place(to, transfer.existing);
    }
    roots.guard(to, &destination.path)?;
    must_be_apart(to, &source.path, &destination.path)?;
    let _held = parts.locks.hold(&[&source.path, &destination.path]);
    match put((source.dir(), source.name()), &destination, transfer.existing) {
        // Another file system: copy, then remove the original.
        Err(TreeError::Failed(Errno::EXDEV)) => {
            copy_over(from, &source, to, &destination, transfer.existing, &parts.stop)?;
            let why = Removal::Wanted(&parts.stop);
            tree::remove(source.dir(), source.name(), why, Level::default())
                .map_err(|error| failed(from, error))
        }
        // The destination exists, or the source does not.
        Err(error) => Err(failed(if error == TreeError::Failed(Errno::ENOENT) { from } else { to }, error)),
        Ok(()) => Ok(()),
    }
}

pub(crate) fn delete(parts: &Parts, uri: &str, extent: Extent) -> Result<(), FileError> {
    let roots = &parts.roots;
    let access = AccessRequest::to_write(uri);
    let place = roots.locate(access, Links::Keep)?;
    roots.guard(access, &place.path)?;
    let _held = parts.locks.hold(&[&place.path]);
    let found = place.look().map_err(|errno| access.failed(errno))?.ok_or_else(|| access.not_found())?;
    match extent {
        Extent::Recursive => {
            let why = Removal::Wanted(&parts.stop);
            tree::remove(place.dir(), place.name(), why, Level::default())
                .map_err(|error| failed(access, error))
        }
        Extent::Single => {
            let flag = if found.is_dir() { UnlinkatFlags::RemoveDir } else { UnlinkatFlags::NoRemoveDir };
            unlinkat(place.dir(), place.name(), flag).map_err(|errno| {
                // Some systems return EEXIST for a directory that is not empty.
                access.failed(if errno == Errno::EEXIST { Errno::ENOTEMPTY } else { errno })
            })
        }
    }
}

pub(crate) fn make_directory(roots: &Roots, uri: &str) -> Result<(), FileError> {
    let access = AccessRequest::to_write(uri);
    let spot = roots.find(access, Links::Follow)?;
    let mut current = spot.open_root().map_err(|errno| access.failed(errno))?;
    let mut names = spot.relative().iter().peekable();
    while let Some(name) = names.next() {
        match mkdirat(current.as_fd(), name, Mode::from_bits_truncate(0o777)) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(access.failed(errno)),
        }
        current = beneath::entry_directory(current.as_fd(), name).map_err(|errno| {
            let in_place = errno == Errno::ENOTDIR && names.peek().is_none();
            if in_place { access.exists() } else { access.failed(errno) }
        })?;
    }
    Ok(())
}

fn must_exist(access: AccessRequest<'_>, place: &AllowedEntry) -> Result<(), FileError> {
    match place.look() {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(access.not_found()),
        Err(errno) => Err(access.failed(errno)),
    }
}

fn same_place(access: AccessRequest<'_>, existing: Existing) -> Result<(), FileError> {
    match existing {
        Existing::Replace => Ok(()),
        Existing::Keep => Err(access.exists()),
    }
}

/// Neither path may contain the other: a copy would not terminate, and a move would
/// destroy its source.
fn must_be_apart(access: AccessRequest<'_>, source: &Path, destination: &Path) -> Result<(), FileError> {
    if destination.starts_with(source) {
        return Err(access.invalid("is inside of the source"));
    }
    if source.starts_with(destination) {
        return Err(access.invalid("contains the source"));
    }
    Ok(())
}

/// Copies to a temporary entry next to the destination, then replaces it as a whole.
fn copy_over(
    from: AccessRequest<'_>,
    source: &AllowedEntry,
    to: AccessRequest<'_>,
    destination: &AllowedEntry,
    existing: Existing,
    stop: &StopFlag,
) -> Result<(), FileError> {
    let occupied = destination.look().map_err(|errno| to.failed(errno))?.is_some();
    if occupied && existing == Existing::Keep {
        return Err(to.exists());
    }
    let draft = draft_name(occupied);
    let copied = Copying::until(stop)
        .copy((source.dir(), source.name()), (destination.dir(), &draft), Level::default())
        .map_err(|error| failed(from, error))
        .and_then(|()| {
            put((destination.dir(), &draft), destination, existing).map_err(|error| failed(to, error))
        });
    if copied.is_err() {
        discard(destination.dir(), &draft);
    }
    copied
}

/// Renames to the destination. An existing entry is replaced or kept.
fn put(from: (BorrowedFd<'_>, &OsStr), to: &AllowedEntry, existing: Existing) -> Result<(), TreeError> {
    match rename_new(from.0, from.1, to.dir(), to.name()) {
        Err(Errno::EEXIST) if existing == Existing::Replace => {}
        renamed => return Ok(renamed?),
    }
    let is_directory = |dir, name| beneath::look(dir, name).is_ok_and(|found| found.is_dir());
    if !is_directory(from.0, from.1) && !is_directory(to.dir(), to.name()) {
        return Ok(renameat(from.0, from.1, to.dir(), to.name())?);
    }
    // A directory cannot be replaced in one step. It is renamed first, so that nothing is
    // lost if the second step fails.
    let aside = draft_name(true);
    renameat(to.dir(), to.name(), to.dir(), aside.as_os_str())?;
    if let Err(errno) = rename_new(from.0, from.1, to.dir(), to.name()) {
        rename_new(to.dir(), &aside, to.dir(), to.name())?;
        return Err(errno.into());
    }
    discard(to.dir(), &aside);
    Ok(())
}

fn discard(dir: BorrowedFd<'_>, name: &OsStr) {
    match tree::remove(dir, name, Removal::Leftover, Level::default()) {
        Ok(()) | Err(TreeError::Failed(Errno::ENOENT)) => {}
        Err(error) => tracing::warn!(?error, ?name, "could not remove a temporary entry"),
    }
}

fn failed(access: AccessRequest<'_>, error: TreeError) -> FileError {
    match error {
        TreeError::Failed(errno) => access.failed(errno),
        TreeError::TooMany => access.too_large(MAX_ENTRIES_TEXT),
        TreeError::TooLarge => access.too_large(MAX_BYTES_TEXT),
        TreeError::NoRoom => access.no_room(),
        TreeError::TooDeep => access.too_large("128 levels of directories"),
        TreeError::Stopped => access.stopped(),
        TreeError::Special => access.invalid("is or contains a pipe, socket or device"),
    }
}
