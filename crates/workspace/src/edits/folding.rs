//! The net change of a file over several records.
//!
//! Pure except for the contents, which [`Contents`] reads and keeps. Invariant: folding
//! the records one by one gives the same result as folding all of them at once, so that a
//! cached state can be continued with new records.

use std::collections::{BTreeMap, HashMap};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use innkeeper_core::edits::{
    BlobDigest, EditRecord, EditSource, EditStorageError, FileVersion, StoredBlob, UnknownContent,
};

use crate::text::{self, Merged};

/// Stored contents.
pub(crate) trait Contents {
    /// Reads a content; `None` if it is not stored.
    fn content(&self, digest: BlobDigest) -> Result<Option<Bytes>, EditStorageError>;

    /// Stores a content that a merge produced.
    fn keep(&self, blob: StoredBlob) -> Result<(), EditStorageError>;
}

/// The net change of one file in a scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NetChange {
    /// The file.
    pub(crate) path: PathBuf,
    /// The file before the first change of an agent.
    pub(crate) before: FileVersion,
    /// The file after the last change, without the changes of others.
    pub(crate) after: FileVersion,
    /// What made the changes, in order of appearance.
    pub(crate) sources: Vec<EditSource>,
    /// Whether a change of others could not be separated from the agent's.
    pub(crate) mixed: bool,
    /// Whether another chat or call may have made a part of the change.
    pub(crate) overlaps: bool,
    /// How many parent directories the first change created.
    pub(crate) new_parents: u32,
    /// The number of the last record that is not external.
    pub(crate) last: u64,
    /// The last undo, until an agent changes the file again.
    undone: Option<Box<UndoneChange>>,
}

/// The net change before an undo, which a redo restores.
#[derive(Clone, Debug, PartialEq, Eq)]
struct UndoneChange {
    /// The file before the undo.
    from: FileVersion,
    after: FileVersion,
    mixed: bool,
}

impl NetChange {
    /// Begins with a record. `None` for a record that no agent made: an undo can only
    /// follow an agent's change, and a change of others is not in a scope by itself.
    pub(crate) fn begin(record: &EditRecord) -> Option<Self> {
        match record.source {
            EditSource::Tool | EditSource::Shell => Some(Self {
                path: record.path.clone(),
                before: record.before.clone(),
                after: record.after.clone(),
                sources: vec![record.source],
                mixed: false,
                overlaps: record.overlaps,
                new_parents: record.new_parents,
                last: record.number,
                undone: None,
            }),
            EditSource::External | EditSource::Undo | EditSource::Redo => None,
        }
    }

    /// A change that is not in the log.
    pub(crate) fn between(path: PathBuf, before: FileVersion, after: FileVersion) -> Self {
        Self {
            path,
            before,
            after,
            sources: Vec::new(),
            mixed: false,
            overlaps: false,
            new_parents: 0,
            last: 0,
            undone: None,
        }
    }

    /// Continues with the next record of the file.
    pub(crate) fn add(
        &mut self,
        record: &EditRecord,
        contents: &dyn Contents,
    ) -> Result<(), EditStorageError> {
        if !self.sources.contains(&record.source) {
            self.sources.push(record.source);
        }
        if record.source == EditSource::External {
            return Ok(());
        }
        self.last = record.number;
        self.overlaps |= record.overlaps;
        match record.source {
            EditSource::Undo => {
                self.undone = Some(Box::new(UndoneChange {
                    from: record.before.clone(),
                    after: self.after.clone(),
                    mixed: self.mixed,
                }));
            }
            EditSource::Redo => {
                let reverses = |undone: &mut Box<UndoneChange>| same(&undone.from, &record.after);
                if let Some(undone) = self.undone.take_if(reverses) {
                    self.after = undone.after;
                    self.mixed = undone.mixed;
                    return Ok(());
                }
            }
            EditSource::Tool | EditSource::Shell | EditSource::External => self.undone = None,
        }
        if same(&self.after, &record.before) {
            self.after = record.after.clone();
            return Ok(());
        }
        // The same change was recorded for another chat or call, too.
        if same(&self.after, &record.after) {
            return Ok(());
        }
        // Others took the earlier changes back, so that the agent starts again.
        if same(&self.before, &record.before)
            && let Some(restarted) = Self::begin(record)
        {
            *self = restarted;
            return Ok(());
        }
        let merged = combine(&record.before, &self.after, &record.after, contents)?;
        // An undo takes the agent's part away, whatever others changed.
        self.mixed |= merged.is_none() && record.source != EditSource::Undo;
        self.after = merged.unwrap_or_else(|| record.after.clone());
        Ok(())
    }

    /// The contents that may be the result of a merge, to which no record refers.
    pub(crate) fn merged_blobs(&self) -> impl Iterator<Item = BlobDigest> + use<> {
        let undone = self.undone.as_ref().and_then(|undone| undone.after.stored_blob());
        self.after.stored_blob().into_iter().chain(undone)
    }

    /// Whether the file is as it was before.
    pub(crate) fn is_unchanged(&self) -> bool {
        same(&self.before, &self.after)
    }

    /// Why the change cannot be undone, if it cannot.
    pub(crate) fn not_undoable(&self) -> Option<&'static str> {
        unknown_content(&self.before)
            .or_else(|| unknown_content(&self.after))
            .map(UnknownContent::explanation)
    }
}

/// Whether two versions are known to be equal.
pub(crate) fn same(left: &FileVersion, right: &FileVersion) -> bool {
    match (left, right) {
        (FileVersion::Unknown(_), _) | (_, FileVersion::Unknown(_)) => false,
        // Whether the content is stored does not change the file.
        (
            FileVersion::File { blob, mode, .. },
            FileVersion::File { blob: other_blob, mode: other_mode, .. },
        ) => blob == other_blob && mode == other_mode,
        (FileVersion::File { .. } | FileVersion::Absent | FileVersion::Link { .. }, _) => left == right,
    }
}

/// Why the content of a version is not available, if it is not.
pub(crate) fn unknown_content(version: &FileVersion) -> Option<UnknownContent> {
    match version {
        FileVersion::Unknown(reason) => Some(*reason),
        FileVersion::File { stored: false, .. } => Some(UnknownContent::FileTooLarge),
        FileVersion::File { stored: true, .. } | FileVersion::Absent | FileVersion::Link { .. } => None,
    }
}

/// Applies the change `base` → `theirs` to `ours`; `None` if that is not possible.
fn combine(
    base: &FileVersion,
    ours: &FileVersion,
    theirs: &FileVersion,
    contents: &dyn Contents,
) -> Result<Option<FileVersion>, EditStorageError> {
    if same(base, theirs) {
        return Ok(Some(ours.clone()));
    }
    let (
        FileVersion::File { mode: base_mode, .. },
        FileVersion::File { mode: our_mode, .. },
        FileVersion::File { mode: their_mode, .. },
    ) = (base, ours, theirs)
    else {
        return Ok(None);
    };
    let read = |version: &FileVersion| match version.stored_blob() {
        Some(blob) => contents.content(blob),
        None => Ok(None),
    };
    let (Some(base_content), Some(our_content), Some(their_content)) =
        (read(base)?, read(ours)?, read(theirs)?)
    else {
        return Ok(None);
    };
    let Merged::Clean(content) = text::merge3(&base_content, &our_content, &their_content) else {
        return Ok(None);
    };
    let mode = if our_mode == base_mode || our_mode == their_mode {
        *their_mode
    } else if their_mode == base_mode {
        *our_mode
    } else {
        return Ok(None);
    };
    let blob = StoredBlob::new(content);
    let size = u64::try_from(blob.content.len()).unwrap_or(u64::MAX);
    let version = FileVersion::File { blob: blob.digest, size, mode, stored: true };
    contents.keep(blob)?;
    Ok(Some(version))
}

/// Folds records, which are in order, by file. Files that only others or an undo without a
/// turn changed are left out; files that are as before are not.
pub(crate) fn fold<'a>(
    records: impl IntoIterator<Item = &'a EditRecord>,
    contents: &dyn Contents,
) -> Result<BTreeMap<PathBuf, NetChange>, EditStorageError> {
    let mut files: BTreeMap<PathBuf, NetChange> = BTreeMap::new();
    for record in records {
        add_record(&mut files, record, contents)?;
    }
    Ok(files)
}

/// Adds one record to folded files.
pub(crate) fn add_record(
    files: &mut BTreeMap<PathBuf, NetChange>,
    record: &EditRecord,
    contents: &dyn Contents,
) -> Result<(), EditStorageError> {
    if let Some(net) = files.get_mut(&record.path) {
        net.add(record, contents)
    } else {
        if let Some(net) = NetChange::begin(record) {
            files.insert(record.path.clone(), net);
        }
        Ok(())
    }
}

/// A change as it is shown: one file, or the two files of a rename.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ShownChange<'a> {
    /// One file was created, changed or deleted.
    One(&'a NetChange),
    /// A file was moved without a change of its content.
    Renamed {
        /// The deleted file.
        from: &'a NetChange,
        /// The created file.
        to: &'a NetChange,
    },
}

impl<'a> ShownChange<'a> {
    /// The file that identifies the change. For a renamed file, the new one.
    pub(crate) fn main(&self) -> &'a NetChange {
        match self {
            Self::One(net) => net,
            Self::Renamed { to, .. } => to,
        }
    }

    /// All files of the change.
    pub(crate) fn files(self) -> impl Iterator<Item = &'a NetChange> + use<'a> {
        let (first, second) = match self {
            Self::One(net) => (net, None),
            Self::Renamed { from, to } => (to, Some(from)),
        };
        std::iter::once(first).chain(second)
    }
}

/// The changed files, sorted by path, with deleted and created files of equal content
/// paired as renames. If several files have the same content, they are paired by file name
/// first, then in order.
pub(crate) fn shown<'a>(files: impl IntoIterator<Item = &'a NetChange>) -> Vec<ShownChange<'a>> {
    let mut changed: Vec<&NetChange> = files.into_iter().filter(|net| !net.is_unchanged()).collect();
    changed.sort_by(|left, right| left.path.cmp(&right.path));
    let mut deleted: HashMap<BlobDigest, Vec<&NetChange>> = HashMap::new();
    for net in &changed {
        // Empty files have nothing in common but the size.
        if let (FileVersion::File { blob, size: 1.., .. }, FileVersion::Absent) = (&net.before, &net.after) {
            deleted.entry(*blob).or_default().push(net);
        }
    }
    let mut origins: HashMap<&Path, &NetChange> = HashMap::new();
    for by_name in [true, false] {
        for net in &changed {
            let (FileVersion::Absent, FileVersion::File { blob, .. }) = (&net.before, &net.after) else {
                continue;
            };
            if origins.contains_key(net.path.as_path()) {
                continue;
            }
            let Some(candidates) = deleted.get_mut(blob) else { continue };
            let found =
                candidates.iter().position(|from| !by_name || name_of(&from.path) == name_of(&net.path));
            if let Some(index) = found {
                origins.insert(&net.path, candidates.remove(index));
            }
        }
    }
    let moved: std::collections::HashSet<&Path> = origins.values().map(|net| net.path.as_path()).collect();
    changed
        .into_iter()
        .filter(|net| !moved.contains(net.path.as_path()))
        .map(|net| match origins.get(net.path.as_path()) {
            Some(from) => ShownChange::Renamed { from, to: net },
            None => ShownChange::One(net),
        })
        .collect()
}

fn name_of(path: &Path) -> &[u8] {
    path.file_name().map_or(&[], |name| name.as_bytes())
}

#[cfg(test)]
#[path = "folding_tests.rs"]
mod tests;
