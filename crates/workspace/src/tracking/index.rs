//! The last seen state of the files below a root.
//!
//! Data only: scans and direct looks compute what changed and replace entries here.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use innkeeper_core::edits::{BlobDigest, FileVersion, UnknownContent};
use nix::libc;
use nix::sys::stat::FileStat;

use super::rules::IgnoreRules;

/// A file whose change time is this close to its observation, in nanoseconds, may change again
/// without another change time: the clock of a file system advances in steps.
const RACY: i64 = 20_000_000;

/// The same for a file system that keeps whole seconds only, in steps of up to two seconds.
const COARSE_RACY: i64 = 2_020_000_000;

/// Maximum number of files outside of the index, such as ignored files that a tool edited. The
/// first in path order is forgotten.
const MAX_EXTRAS: usize = 4096;

/// Maximum number of files and directories that could not be looked at. Beyond it, an unknown
/// file is never taken for a new one.
const MAX_UNSEEN: usize = 4096;

/// The metadata that changes when a file changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileStamp {
    pub(super) size: u64,
    pub(super) modified: i64,
    pub(super) changed: i64,
    pub(super) inode: u64,
    /// Permission bits and the kind.
    pub(super) mode: u32,
}

/// What a directory entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryKind {
    File,
    Link,
    Directory,
    Special,
}

impl FileStamp {
    pub(super) fn of(stat: &FileStat) -> Self {
        Self {
            size: u64::try_from(stat.st_size).unwrap_or_default(),
            modified: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
            changed: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
            inode: widen(stat.st_ino),
            mode: widen(stat.st_mode),
        }
    }

    pub(super) fn kind(&self) -> EntryKind {
        let kind = self.mode & widen::<_, u32>(libc::S_IFMT);
        if kind == widen::<_, u32>(libc::S_IFREG) {
            EntryKind::File
        } else if kind == widen::<_, u32>(libc::S_IFLNK) {
            EntryKind::Link
        } else if kind == widen::<_, u32>(libc::S_IFDIR) {
            EntryKind::Directory
        } else {
            EntryKind::Special
        }
    }

    /// The permission bits.
    pub(super) fn permissions(&self) -> u32 {
        self.mode & 0o7777
    }

    /// Whether a file that was observed at `now` may change without another stamp.
    pub(super) fn is_racy(&self, now: i64) -> bool {
        let is_coarse = self.changed % 1_000_000_000 == 0;
        self.changed.saturating_add(if is_coarse { COARSE_RACY } else { RACY }) >= now
    }
}

/// Converts a number whose type depends on the system.
fn widen<T: Into<U>, U>(number: T) -> U {
    number.into()
}

fn nanoseconds(seconds: i64, rest: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

/// What is known of a content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KnownContent {
    /// The version.
    Version(FileVersion),
    /// The content of this git object, which was not read yet.
    Git(Arc<str>),
}

/// The last seen state of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownFile {
    /// `None` if there is no file.
    pub(super) stamp: Option<FileStamp>,
    /// Whether the content may have changed without another stamp.
    pub(super) racy: bool,
    pub(super) content: KnownContent,
}

impl KnownFile {
    pub(super) fn absent() -> Self {
        Self { stamp: None, racy: false, content: KnownContent::Version(FileVersion::Absent) }
    }

    /// A file whose content is not read yet.
    pub(super) fn pending(stamp: FileStamp, now: i64) -> Self {
        let content = KnownContent::Version(FileVersion::Unknown(UnknownContent::NotReady));
        Self { stamp: Some(stamp), racy: stamp.is_racy(now), content }
    }

    /// Whether the content is not read yet.
    pub(super) fn is_pending(&self) -> bool {
        self.content == KnownContent::Version(FileVersion::Unknown(UnknownContent::NotReady))
    }

    /// Whether its content is not known, for whatever reason.
    pub(super) fn is_unknown(&self) -> bool {
        matches!(self.content, KnownContent::Version(FileVersion::Unknown(_)))
    }

    /// Whether its content has to be compared, if the path now has this stamp.
    pub(super) fn needs_look(&self, now: Option<&FileStamp>) -> bool {
        self.stamp.as_ref() != now || (self.racy && !self.is_unknown())
    }
}

/// A file or link in a directory.
#[derive(Clone, Debug)]
pub(super) struct IndexedFile {
    pub(super) name: CString,
    pub(super) known: KnownFile,
}

/// A directory that was listed.
#[derive(Clone, Debug)]
pub(super) struct IndexedDirectory {
    pub(super) stamp: FileStamp,
    /// Whether the names may have changed without another stamp.
    pub(super) racy: bool,
    /// The ignore rules for its entries.
    pub(super) rules: Arc<IgnoreRules>,
    /// The stamps of its own ignore files.
    pub(super) rule_files: [Option<FileStamp>; 2],
    /// Sorted by name.
    pub(super) files: Vec<IndexedFile>,
}

/// A path that is not in a listed directory: it is ignored, or was looked at before a scan.
#[derive(Clone, Debug)]
pub(super) struct ExtraFile {
    pub(super) known: KnownFile,
    /// How many parent directories did not exist when the file was last seen absent.
    pub(super) missing_parents: u32,
}

/// The last seen state of all files. Paths are relative to the root.
#[derive(Debug, Default)]
pub(super) struct FileIndex {
    pub(super) directories: BTreeMap<PathBuf, IndexedDirectory>,
    pub(super) extras: BTreeMap<PathBuf, ExtraFile>,
    /// Whether the root was scanned.
    pub(super) scanned: bool,
    /// Whether there are more files than a scan keeps. Then an unknown file may have existed
    /// before.
    pub(super) truncated: bool,
    /// Files and directories that exist, but could not be looked at.
    pub(super) unseen: BTreeSet<PathBuf>,
}

impl FileIndex {
    /// Number of files in listed directories.
    pub(super) fn len(&self) -> usize {
        self.directories.values().map(|directory| directory.files.len()).sum()
    }

    /// The state of a path.
    pub(super) fn get(&self, path: &Path) -> Option<&KnownFile> {
        self.indexed(path).or_else(|| self.extras.get(path).map(|extra| &extra.known))
    }

    fn indexed(&self, path: &Path) -> Option<&KnownFile> {
        let directory = self.directories.get(path.parent()?)?;
        let position = position(&directory.files, path.file_name()?).ok()?;
        directory.files.get(position).map(|file| &file.known)
    }

    /// The state of a path, to change it.
    pub(super) fn get_mut(&mut self, path: &Path) -> Option<&mut KnownFile> {
        if self.indexed(path).is_none() {
            return self.extras.get_mut(path).map(|extra| &mut extra.known);
        }
        let directory = self.directories.get_mut(path.parent()?)?;
        let position = position(&directory.files, path.file_name()?).ok()?;
        directory.files.get_mut(position).map(|file| &mut file.known)
    }

    /// Replaces the state of a path after a direct look at it.
    pub(super) fn set(&mut self, path: &Path, known: KnownFile, missing_parents: u32) {
        if known.stamp.is_some()
            && let Some(slot) = self.get_mut(path)
        {
            *slot = known;
            return;
        }
        // The directory's own stamp changes with its names, so that the next scan lists it.
        self.remove_indexed(path);
        self.extras.insert(path.to_owned(), ExtraFile { known, missing_parents });
        if self.extras.len() > MAX_EXTRAS {
            self.extras.pop_first();
        }
    }

    pub(super) fn remove_indexed(&mut self, path: &Path) {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return };
        if let Some(directory) = self.directories.get_mut(parent)
            && let Ok(position) = position(&directory.files, name)
        {
            directory.files.remove(position);
        }
    }

    /// Remembers files and directories that could not be looked at.
    pub(super) fn add_unseen(&mut self, paths: Vec<PathBuf>) {
        self.unseen.extend(paths);
        if self.unseen.len() > MAX_UNSEEN {
            self.unseen.clear();
            self.truncated = true;
        }
    }

    /// Whether a path would be in the index if it existed at the last scan.
    pub(super) fn covers(&self, path: &Path) -> bool {
        let is_unseen = |part: &Path| self.unseen.contains(part);
        if !self.scanned || self.truncated || path.ancestors().any(is_unseen) {
            return false;
        }
        let mut rules = self.directories.get(Path::new("")).map(|top| Arc::clone(&top.rules));
        let mut ancestors: Vec<&Path> = path.ancestors().skip(1).collect();
        ancestors.reverse();
        for ancestor in ancestors {
            if let Some(directory) = self.directories.get(ancestor) {
                rules = Some(Arc::clone(&directory.rules));
            } else if rules.as_ref().is_none_or(|rules| rules.ignores(ancestor, true)) {
                return false;
            }
        }
        rules.is_some_and(|rules| !rules.ignores(path, false))
    }

    /// Number of parent directories of a path that did not exist at the last scan.
    pub(super) fn missing_parents(&self, path: &Path) -> u32 {
        let parents = path.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty());
        let missing = parents.take_while(|parent| !self.directories.contains_key(*parent)).count();
        u32::try_from(missing).unwrap_or(u32::MAX)
    }

    /// All states.
    pub(super) fn all(&self) -> impl Iterator<Item = &KnownFile> {
        let indexed = self.directories.values().flat_map(|directory| &directory.files);
        indexed.map(|file| &file.known).chain(self.extras.values().map(|extra| &extra.known))
    }

    /// The stored contents that the index refers to.
    pub(super) fn stored_blobs(&self) -> HashSet<BlobDigest> {
        self.all()
            .filter_map(|known| match &known.content {
                KnownContent::Version(version) => version.stored_blob(),
                KnownContent::Git(_) => None,
            })
            .collect()
    }
}

/// Finds a name in sorted files.
pub(super) fn position(files: &[IndexedFile], name: &OsStr) -> Result<usize, usize> {
    files.binary_search_by(|file| file.name.as_bytes().cmp(name.as_bytes()))
}
