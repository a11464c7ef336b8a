//! Decides what one file of an undo or redo becomes. Pure.
//!
//! Taking a change back means to apply its reverse to the current file: nothing changed
//! since → the other version; changed in other lines → a merge; changed in the same lines →
//! refused, unless forced. Invariant: a file whose current content cannot be kept for a
//! redo is never changed.

use std::ops::Range;
use std::path::Path;

use bytes::Bytes;
use innkeeper_core::edits::{BlobDigest, FileVersion, StoredBlob, UnknownContent};

use crate::text::{self, Merged};

/// A version of a file with its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VersionedFile {
    /// The version.
    pub(crate) version: FileVersion,
    /// The content of a regular file; `None` if it is not available.
    pub(crate) content: Option<Bytes>,
}

impl VersionedFile {
    /// No file.
    pub(crate) fn absent() -> Self {
        Self { version: FileVersion::Absent, content: None }
    }

    /// A regular file.
    pub(crate) fn regular(content: impl Into<Bytes>, mode: u32) -> Self {
        let blob = StoredBlob::new(content);
        let size = u64::try_from(blob.content.len()).unwrap_or(u64::MAX);
        let version = FileVersion::File { blob: blob.digest, size, mode, stored: true };
        Self { version, content: Some(blob.content) }
    }

    /// A symbolic link.
    #[cfg(test)]
    pub(crate) fn link(target: impl Into<std::path::PathBuf>) -> Self {
        Self { version: FileVersion::Link { target: target.into() }, content: None }
    }

    /// A version whose content is read, if it is stored.
    pub(crate) fn read<E>(
        version: FileVersion,
        read: impl FnOnce(BlobDigest) -> Result<Option<Bytes>, E>,
    ) -> Result<Self, E> {
        let content = match version.stored_blob() {
            Some(blob) => read(blob)?,
            None => None,
        };
        Ok(Self { version, content })
    }

    /// The content as it is stored.
    pub(crate) fn blob(&self) -> Option<StoredBlob> {
        let digest = self.version.stored_blob()?;
        self.content.clone().map(|content| StoredBlob { digest, content })
    }

    /// Whether both are known to be the same file.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (&self.version, &other.version) {
            (FileVersion::Unknown(_), _) | (_, FileVersion::Unknown(_)) => false,
            (
                FileVersion::File { blob, mode, .. },
                FileVersion::File { blob: other_blob, mode: other_mode, .. },
            ) => blob == other_blob && mode == other_mode,
            (left, right) => left == right,
        }
    }

    pub(super) fn is_absent(&self) -> bool {
        self.version == FileVersion::Absent
    }

    /// Why the file cannot be written or merged, if it cannot.
    fn unavailable(&self) -> Option<&'static str> {
        let reason = match &self.version {
            FileVersion::Absent | FileVersion::Link { .. } => return None,
            FileVersion::Unknown(reason) => *reason,
            FileVersion::File { stored: false, .. } => UnknownContent::FileTooLarge,
            FileVersion::File { stored: true, .. } if self.content.is_none() => UnknownContent::Evicted,
            FileVersion::File { stored: true, .. } => return None,
        };
        Some(reason.explanation())
    }
}

/// What a file becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PlannedFile {
    /// It is already as it should be.
    Unchanged,
    /// It gets another version.
    Write(VersionedFile),
    /// It is left alone.
    Refused(RefusedFile),
}

/// Why a file is left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RefusedFile {
    /// The reason, as text for the user.
    pub(crate) reason: String,
    /// The file with marked conflicts.
    pub(crate) preview: Option<Vec<u8>>,
    /// Whether the operation can be repeated with `force`.
    pub(crate) can_force: bool,
}

impl RefusedFile {
    fn final_reason(reason: String) -> PlannedFile {
        PlannedFile::Refused(Self { reason, preview: None, can_force: false })
    }
}

/// What an operation takes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TakenBack {
    /// An agent's edit.
    AgentEdit,
    /// An undo.
    Undo,
}

impl TakenBack {
    /// The name in messages.
    fn name(self) -> &'static str {
        match self {
            Self::AgentEdit => "the agent's edit",
            Self::Undo => "the undo",
        }
    }
}

/// A change of one file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NetEdit<'a> {
    /// What made it.
    pub(crate) origin: TakenBack,
    /// The file, for messages.
    pub(crate) path: &'a Path,
    /// The file before the change.
    pub(crate) before: &'a VersionedFile,
    /// The file after the change.
    pub(crate) after: &'a VersionedFile,
}

/// Takes a change of a file back.
pub(crate) fn undo_file(edit: &NetEdit<'_>, current: &VersionedFile, force: bool) -> PlannedFile {
    let name = name_of(edit.path);
    let origin = edit.origin.name();
    let NetEdit { before, after, .. } = edit;
    if current.is_same(before) || after.is_same(before) {
        return PlannedFile::Unchanged;
    }
    if let Some(explanation) = before.unavailable() {
        return RefusedFile::final_reason(format!(
            "the content of {name} before {origin} is not available: {explanation}"
        ));
    }
    if let Some(explanation) = current.unavailable() {
        return RefusedFile::final_reason(format!(
            "the current content of {name} cannot be kept for a redo: {explanation}"
        ));
    }
    if current.is_same(after) {
        return PlannedFile::Write((*before).clone());
    }
    let merged = merge_files(before, after, current);
    if let Some(Ok(merged)) = merged {
        return plan_of(current, merged);
    }
    if force {
        return PlannedFile::Write((*before).clone());
    }
    let (reason, preview) = if let Some(explanation) = after.unavailable() {
        (format!("the content of {name} after {origin} is not available: {explanation}"), None)
    } else {
        match merged {
            Some(Err(FileConflict::Lines(preview))) => {
                (format!("{name} was changed after {origin}, in the same lines"), Some(preview))
            }
            Some(Err(FileConflict::Binary)) => {
                (format!("{name} was changed after {origin}, and binary files cannot be merged"), None)
            }
            Some(Err(FileConflict::Mode)) => {
                (format!("the permissions of {name} were changed after {origin}"), None)
            }
            Some(Ok(_)) | None => (scalar_reason(&name, origin, edit, current), None),
        }
    };
    PlannedFile::Refused(RefusedFile { reason, preview, can_force: true })
}

fn plan_of(current: &VersionedFile, target: VersionedFile) -> PlannedFile {
    if target.is_same(current) { PlannedFile::Unchanged } else { PlannedFile::Write(target) }
}

/// Why the reverse of a change does not fit the current file, if not all versions are
/// regular files.
fn scalar_reason(name: &str, origin: &str, edit: &NetEdit<'_>, current: &VersionedFile) -> String {
    if current.is_absent() {
        format!("{name} was deleted after {origin}")
    } else if edit.after.is_absent() {
        format!("{name} was created again after {origin}")
    } else {
        format!("{name} was changed after {origin}")
    }
}

/// Why regular files cannot be merged.
enum FileConflict {
    /// The same lines were changed; with the marked conflicts.
    Lines(Vec<u8>),
    /// A file is binary.
    Binary,
    /// The mode was changed on both sides.
    Mode,
}

/// Applies the change `after` → `before` to the current file. `None` if one of them is not a
/// regular file.
fn merge_files(
    before: &VersionedFile,
    after: &VersionedFile,
    current: &VersionedFile,
) -> Option<Result<VersionedFile, FileConflict>> {
    let (before_content, before_mode) = regular(before)?;
    let (after_content, after_mode) = regular(after)?;
    let (current_content, current_mode) = regular(current)?;
    let merged = match text::merge3(after_content, current_content, before_content) {
        Merged::Clean(content) => content,
        Merged::Conflict { preview, .. } => {
            let all_text = [before_content, after_content, current_content]
                .into_iter()
                .all(|content| text::is_text(content));
            return Some(Err(if all_text { FileConflict::Lines(preview) } else { FileConflict::Binary }));
        }
    };
    let mode = if current_mode == after_mode {
        before_mode
    } else if before_mode == after_mode || before_mode == current_mode {
        current_mode
    } else {
        return Some(Err(FileConflict::Mode));
    };
    Some(Ok(VersionedFile::regular(merged, mode)))
}

fn regular(file: &VersionedFile) -> Option<(&Bytes, u32)> {
    match (&file.version, &file.content) {
        (FileVersion::File { mode, .. }, Some(content)) => Some((content, *mode)),
        (
            FileVersion::File { .. }
            | FileVersion::Absent
            | FileVersion::Link { .. }
            | FileVersion::Unknown(_),
            _,
        ) => None,
    }
}

/// Takes the parts of a change back that touch some lines, counted from 0, of the file after
/// the change.
pub(crate) fn undo_lines(
    edit: &NetEdit<'_>,
    current: &VersionedFile,
    lines: Range<u64>,
    force: bool,
) -> PlannedFile {
    let name = name_of(edit.path);
    let origin = edit.origin.name();
    for (file, when) in [(edit.before, "before"), (edit.after, "after")] {
        if let Some(explanation) = file.unavailable() {
            return RefusedFile::final_reason(format!(
                "the content of {name} {when} {origin} is not available: {explanation}"
            ));
        }
    }
    let empty = Bytes::new();
    let before = match regular(edit.before) {
        Some((content, _)) => Some(content),
        None => edit.before.is_absent().then_some(&empty),
    };
    let (Some(before), Some((after, mode))) = (before, regular(edit.after)) else {
        return RefusedFile::final_reason(format!("{name} does not consist of lines; undo the whole file"));
    };
    if !(text::is_text(before) && text::is_text(after)) {
        return RefusedFile::final_reason(format!("{name} is a binary file; undo the whole file"));
    }
    let reverted = text::revert_lines(before, after, lines);
    let target = if reverted.is_empty() && edit.before.is_absent() {
        VersionedFile::absent()
    } else {
        VersionedFile::regular(reverted, mode)
    };
    if target.is_same(edit.after) {
        return PlannedFile::Unchanged;
    }
    undo_file(&NetEdit { before: &target, ..*edit }, current, force)
}

/// What the two files of a rename become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PlannedRename {
    /// Both files become these.
    Move {
        /// The file at the old path.
        old: PlannedFile,
        /// The file at the new path.
        new: PlannedFile,
    },
    /// Both files are left alone.
    Refused(RefusedFile),
}

/// Takes a rename back: moves the current content to the old path, without the agent's
/// changes of it. The path of the edit is the new one.
pub(crate) fn undo_rename(
    edit: &NetEdit<'_>,
    old_path: &Path,
    current_old: &VersionedFile,
    current_new: &VersionedFile,
    force: bool,
) -> PlannedRename {
    let old_name = name_of(old_path);
    if current_new.is_absent() && current_old.is_same(edit.before) {
        return PlannedRename::Move { old: PlannedFile::Unchanged, new: PlannedFile::Unchanged };
    }
    let content = match undo_file(edit, current_new, force) {
        PlannedFile::Unchanged => current_new.clone(),
        PlannedFile::Write(content) => content,
        PlannedFile::Refused(refused) => return PlannedRename::Refused(refused),
    };
    if let Some(explanation) = content.unavailable().or_else(|| current_old.unavailable()) {
        let reason = format!("the current content of {old_name} cannot be kept for a redo: {explanation}");
        return PlannedRename::Refused(RefusedFile { reason, preview: None, can_force: false });
    }
    if !(current_old.is_absent() || current_old.is_same(&content) || force) {
        let reason = format!("{old_name} was created again after {}", edit.origin.name());
        return PlannedRename::Refused(RefusedFile { reason, preview: None, can_force: true });
    }
    PlannedRename::Move {
        old: plan_of(current_old, content),
        new: plan_of(current_new, VersionedFile::absent()),
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
