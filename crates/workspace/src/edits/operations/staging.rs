//! Temporary files of an operation, and their way into place.
//!
//! A new file is written under a temporary name in the nearest existing parent directory
//! of its target, made durable, and renamed. The name follows from the operation and the
//! step, so that a repair finds it.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::io::Write as _;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;

use bytes::Bytes;
use innkeeper_core::edits::{FileVersion, OperationStep};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, renameat};
use nix::sys::stat::{Mode, fchmod, mkdirat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, fchownat, symlinkat, unlinkat};
use uuid::Uuid;

use super::places::{Compared, EntryStamp, FileFailure, MODE_BITS, StepPlace};
use crate::beneath;
use crate::write::{NEW_UNDO_DRAFT, REPLACING_UNDO_DRAFT, rename_new};

/// The bits of a mode that give a program the rights of its owner or group.
const SET_ID_BITS: u32 = 0o6000;

/// How many files are made durable at once. As many files are open.
pub(super) const SYNC_BATCH: usize = 16;

/// The temporary name for the file of a step.
pub(super) fn staged_name(operation: Uuid, index: usize, step: &OperationStep) -> OsString {
    let prefix = if step.before == FileVersion::Absent { NEW_UNDO_DRAFT } else { REPLACING_UNDO_DRAFT };
    format!("{prefix}{}-{index}", operation.simple()).into()
}

/// What a temporary file becomes.
#[derive(Debug)]
pub(super) struct StagedContent<'a> {
    /// The version to write.
    pub(super) version: &'a FileVersion,
    /// The content of a regular file.
    pub(super) content: Bytes,
    /// The state of the file that it replaces, whose owner is kept.
    pub(super) replaced: Option<EntryStamp>,
}

/// A temporary file that waits for its rename.
#[derive(Debug)]
pub(super) struct StagedFile {
    /// The directory, below the root.
    directory: PathBuf,
    name: OsString,
    /// The open file, until its content is durable.
    unsynced: Option<File>,
}

impl StagedFile {
    /// Makes the content durable.
    pub(super) fn sync(&mut self, place: &StepPlace<'_>) -> Result<(), FileFailure> {
        let file = self.unsynced.take();
        file.map_or(Ok(()), |file| file.sync_data()).map_err(|error| FileFailure::of_io(&place.path, &error))
    }
}

/// Writes a temporary file, which must be synced before its rename. It is removed after an
/// error. `None` if the file is to be absent.
pub(super) fn stage(
    place: &StepPlace<'_>,
    name: OsString,
    staged: &StagedContent<'_>,
) -> Result<Option<StagedFile>, FileFailure> {
    let (directory, relative) = place.nearest_directory()?;
    let written = match staged.version {
        FileVersion::Absent => return Ok(None),
        FileVersion::Unknown(reason) => return Err(FileFailure::new(&place.path, reason.explanation())),
        FileVersion::Link { target } => {
            symlinkat(target, &directory, name.as_os_str()).map_err(|errno| place.failed(errno)).map(|()| {
                keep_link_owner(directory.as_fd(), &name, staged.replaced);
                None
            })
        }
        FileVersion::File { mode, .. } => {
            write_file(place, directory.as_fd(), &name, *mode, staged).map(Some)
        }
    };
    match written {
        Ok(unsynced) => Ok(Some(StagedFile { directory: relative.to_owned(), name, unsynced })),
        Err(failure) => {
            // Also if it existed: only a former attempt of the same step can have left it.
            unstage_in(directory.as_fd(), &name);
            Err(failure)
        }
    }
}

fn write_file(
    place: &StepPlace<'_>,
    directory: BorrowedFd<'_>,
    name: &OsStr,
    mode: u32,
    staged: &StagedContent<'_>,
) -> Result<File, FileFailure> {
    let failed = |error: std::io::Error| FileFailure::of_io(&place.path, &error);
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
    // Private until its mode is set, and not writable for others before its owner is set.
    let mut file = beneath::entry(directory, name, flags, Mode::from_bits_truncate(0o600))
        .map_err(|errno| place.failed(errno))?;
    file.write_all(&staged.content).map_err(failed)?;
    let is_kept = keep_owner(&file, staged.replaced);
    if !is_kept && mode & SET_ID_BITS != 0 {
        return Err(FileFailure::new(
            &place.path,
            "it runs with the rights of its owner, who cannot be kept",
        ));
    }
    // After the owner, because a change of the owner clears some bits.
    file.set_permissions(Permissions::from_mode(mode & MODE_BITS)).map_err(failed)?;
    // The system may leave out some bits without an error.
    if file.metadata().map_err(failed)?.mode() & MODE_BITS != mode & MODE_BITS {
        return Err(FileFailure::new(&place.path, "its permissions cannot be set"));
    }
    Ok(file)
}

/// Keeps the owner of a replaced file. Only a privileged host can and needs to. Returns
/// whether the owner is the same.
fn keep_owner(file: &File, replaced: Option<EntryStamp>) -> bool {
    let Some(EntryStamp { owner: (owner, group), .. }) = replaced else { return true };
    if file.metadata().is_ok_and(|own| (own.uid(), own.gid()) == (owner, group)) {
        return true;
    }
    let kept = fchown(file, Some(Uid::from_raw(owner)), Some(Gid::from_raw(group)));
    if let Err(error) = kept {
        tracing::debug!(%error, "could not keep the owner of a replaced file");
    }
    kept.is_ok()
}

fn keep_link_owner(directory: BorrowedFd<'_>, name: &OsStr, replaced: Option<EntryStamp>) {
    let Some(EntryStamp { owner: (owner, group), .. }) = replaced else { return };
    let (owner, group) = (Some(Uid::from_raw(owner)), Some(Gid::from_raw(group)));
    if let Err(error) = fchownat(directory, name, owner, group, AtFlags::AT_SYMLINK_NOFOLLOW) {
        tracing::debug!(%error, "could not keep the owner of a replaced link");
    }
}

/// The state that a file must have when it is changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExpectedEntry<'a> {
    /// The version.
    pub(super) version: &'a FileVersion,
    /// The stamp when the version was last compared; `None` if there was no file.
    pub(super) stamp: Option<EntryStamp>,
}

/// Renames a temporary file to its target, if the target still has the expected state.
/// `created` receives the paths of directories that were created for it.
pub(super) fn put_in_place(
    place: &StepPlace<'_>,
    staged: &StagedFile,
    expected: ExpectedEntry<'_>,
    created: &mut Vec<PathBuf>,
) -> Result<(), FileFailure> {
    let from = place.open_directory(&staged.directory)?;
    let parent = place.make_parent(created)?;
    must_be_as_expected(place, parent.as_fd(), expected)?;
    let renamed = if expected.stamp.is_none() {
        rename_new(from.as_fd(), &staged.name, parent.as_fd(), &place.name)
    } else {
        renameat(&from, staged.name.as_os_str(), &parent, place.name.as_os_str())
    };
    match renamed {
        Err(Errno::EEXIST) => Err(changed(place)),
        renamed => renamed.map_err(|errno| place.failed(errno)),
    }
}

/// Deletes a file, if it still has the expected state.
pub(super) fn remove(place: &StepPlace<'_>, expected: ExpectedEntry<'_>) -> Result<(), FileFailure> {
    let failed = |errno| place.failed(errno);
    let parent = place.open_parent().map_err(failed)?;
    must_be_as_expected(place, parent.as_fd(), expected)?;
    unlinkat(&parent, place.name.as_os_str(), UnlinkatFlags::NoRemoveDir).map_err(failed)
}

/// Removes an empty directory. Returns its last state if it was removed.
pub(super) fn remove_directory(place: &StepPlace<'_>) -> Result<Option<EntryStamp>, FileFailure> {
    let parent = match place.open_parent() {
        Ok(parent) => parent,
        Err(Errno::ENOENT | Errno::ENOTDIR) => return Ok(None),
        Err(errno) => return Err(place.failed(errno)),
    };
    let Some(stamp) = place.stamp(parent.as_fd())? else { return Ok(None) };
    match unlinkat(&parent, place.name.as_os_str(), UnlinkatFlags::RemoveDir) {
        Ok(()) => Ok(Some(stamp)),
        // Other files are in it, or it is the working directory of a process.
        Err(Errno::ENOTEMPTY | Errno::EEXIST | Errno::EBUSY | Errno::ENOENT | Errno::ENOTDIR) => Ok(None),
        Err(errno) => Err(place.failed(errno)),
    }
}

/// Creates a directory that a rollback restores, unless it exists.
pub(super) fn create_directory(place: &StepPlace<'_>, removed: EntryStamp) -> Result<(), FileFailure> {
    let failed = |errno| place.failed(errno);
    let parent = place.open_parent().map_err(failed)?;
    match mkdirat(&parent, place.name.as_os_str(), Mode::from_bits_truncate(0o700)) {
        Ok(()) => {}
        Err(Errno::EEXIST) => return Ok(()),
        Err(errno) => return Err(failed(errno)),
    }
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
    let created = beneath::entry(parent.as_fd(), &place.name, flags, Mode::empty()).map_err(failed)?;
    keep_owner(&created, Some(removed));
    fchmod(&created, Mode::from_bits_truncate(removed.mode & MODE_BITS)).map_err(failed)
}

/// Removes a temporary file, if it exists.
pub(super) fn unstage(place: &StepPlace<'_>, name: &OsStr) {
    for directory in place.directories() {
        unstage_in(directory.as_fd(), name);
    }
}

fn unstage_in(directory: BorrowedFd<'_>, name: &OsStr) {
    match unlinkat(directory, name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => {}
        Err(error) => tracing::warn!(%error, ?name, "could not remove a temporary file"),
    }
}

/// Makes the entries of a file's parent directory durable, as far as the system permits.
pub(super) fn sync_parent(place: &StepPlace<'_>) {
    let synced = place.open_parent().and_then(|parent| {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
        let directory = beneath::entry(parent.as_fd(), ".".as_ref(), flags, Mode::empty())?;
        nix::unistd::fsync(&directory)
    });
    match synced {
        Ok(()) | Err(Errno::ENOENT) => {}
        Err(error) => tracing::debug!(%error, path = %place.path.display(), "could not sync a directory"),
    }
}

/// Calls a function for several items at once. Disks make several files durable in about the
/// time of one.
pub(super) fn at_once<T: Send, R: Send>(items: Vec<T>, act: impl Fn(T) -> R + Sync) -> Vec<R> {
    let act = &act;
    let mut results = Vec::with_capacity(items.len());
    let mut items = items.into_iter().peekable();
    while items.peek().is_some() {
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                items.by_ref().take(SYNC_BATCH).map(|item| scope.spawn(move || act(item))).collect();
            results.extend(threads.into_iter().filter_map(|thread| thread.join().ok()));
        });
    }
    results
}

fn must_be_as_expected(
    place: &StepPlace<'_>,
    parent: BorrowedFd<'_>,
    expected: ExpectedEntry<'_>,
) -> Result<(), FileFailure> {
    let found = place.stamp(parent)?;
    if found == expected.stamp {
        return Ok(());
    }
    // The change of another hard link of the file changes a time of this one, too.
    match (found, expected.stamp) {
        (Some(found), Some(stamp))
            if found.is_same_file(&stamp)
                && matches!(place.compare(expected.version)?, Compared::Same(Some(_))) =>
        {
            Ok(())
        }
        _ => Err(changed(place)),
    }
}

/// The error for a file that another program changed since it was read.
pub(super) fn changed(place: &StepPlace<'_>) -> FileFailure {
    FileFailure::new(&place.path, "another program changed it at the same time; try again")
}
