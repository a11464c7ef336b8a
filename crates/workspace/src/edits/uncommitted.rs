//! Changes between git's last commit and the working directories.
//!
//! Git tells which files may differ; the files themselves are read and compared. Runs no
//! filters: a file that a filter converts, such as a large file that is stored elsewhere,
//! has an unknown content in the commit.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use innkeeper_core::edits::{
    ChangeScope, EditError, EditRecord, EditSource, EditStorageError, FileVersion, StoredBlob, UnknownContent,
};

use super::folding::{NetChange, same};
use super::paths;
use super::shared::LogParts;
use crate::stop_flag::StopFlag;
use crate::text;
use crate::tracking::{GitObject, GitRunner, MAX_LIST, RootHandle, WITHOUT_FILTERS, read_version, records};

/// Bytes of contents that are stored together.
const BATCH: usize = 8 * 1024 * 1024;

/// The uncommitted changes of a session's directories, and how many files are left out.
pub(crate) fn changes(
    log: &LogParts,
    scope: &ChangeScope,
    records: &[Arc<EditRecord>],
) -> Result<(BTreeMap<PathBuf, NetChange>, usize), EditError> {
    let mut nets = BTreeMap::new();
    let mut omitted = 0;
    for root in paths::outermost(&scope.roots) {
        let stop = StopFlag::default();
        let git = GitRunner { directory: &root, stop: &stop };
        let Some(mut candidates) = candidates(&git) else { continue };
        let room = log.config.max_listed_files.saturating_sub(nets.len());
        while candidates.len() > room {
            candidates.pop_last();
            omitted += 1;
        }
        let comparison = CommitComparison { log, root: &root, git: &git };
        for (path, before, after) in comparison.compare(candidates)? {
            nets.insert(path.clone(), NetChange::between(path, before, after));
        }
    }
    add_sources(&mut nets, records);
    Ok((nets, omitted))
}

/// Adds what the log knows about the files.
fn add_sources(nets: &mut BTreeMap<PathBuf, NetChange>, records: &[Arc<EditRecord>]) {
    for record in records {
        let is_edit = matches!(record.source, EditSource::Tool | EditSource::Shell);
        if let Some(net) = nets.get_mut(&record.path).filter(|_| is_edit) {
            if net.sources.is_empty() {
                net.new_parents = record.new_parents;
            }
            if !net.sources.contains(&record.source) {
                net.sources.push(record.source);
            }
            net.overlaps |= record.overlaps;
        }
    }
    for net in nets.values_mut().filter(|net| net.sources.is_empty()) {
        net.sources.push(EditSource::External);
    }
}

/// A file in the last commit.
#[derive(Clone, Debug)]
struct CommittedFile {
    kind: CommittedKind,
    id: Arc<str>,
    /// Whether a filter converts the file.
    is_filtered: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CommittedKind {
    Regular,
    Executable,
    Link,
}

/// The files that may differ from the last commit, with relative paths; `None` for a file
/// that is not in it.
type Candidates = BTreeMap<PathBuf, Option<CommittedFile>>;

/// Asks git which files may differ; `None` if git cannot tell.
fn candidates(git: &GitRunner<'_>) -> Option<Candidates> {
    git.directory.ancestors().find(|ancestor| ancestor.join(".git").symlink_metadata().is_ok())?;
    let mut candidates = Candidates::new();
    let list = |arguments: &[&str]| git.run(arguments, &[], MAX_LIST);
    for path in records(&list(&["ls-files", "--others", "--exclude-standard", "-z"])?) {
        candidates.insert(PathBuf::from(OsStr::from_bytes(path)), None);
    }
    let head = list(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"]);
    let Some(head) = head.and_then(|head| String::from_utf8(head).ok()) else {
        // Nothing is committed yet.
        for path in records(&list(&["ls-files", "--cached", "-z"])?) {
            candidates.insert(PathBuf::from(OsStr::from_bytes(path)), None);
        }
        return Some(candidates);
    };
    let differing = |pathspec: &str| {
        let options = ["diff-index", "--raw", "-z", "--no-renames", "--no-abbrev", "--relative"];
        let rest = ["--ignore-submodules", head.trim(), "--", pathspec];
        list(&[&options[..], &rest[..]].concat())
    };
    let unfiltered = differing(WITHOUT_FILTERS)?;
    let unfiltered: BTreeSet<&[u8]> = raw_entries(&unfiltered).map(|(_, path)| path).collect();
    for (entry, path) in raw_entries(&differing(":(top)")?) {
        let is_filtered = !unfiltered.contains(path);
        match committed(entry, is_filtered) {
            RawEntry::NotCommitted => {
                candidates.insert(PathBuf::from(OsStr::from_bytes(path)), None);
            }
            RawEntry::Committed(file) => {
                candidates.insert(PathBuf::from(OsStr::from_bytes(path)), Some(file));
            }
            RawEntry::Other => {}
        }
    }
    Some(candidates)
}

/// The entries of a raw diff: `:MODE MODE ID ID STATUS`, then the path.
fn raw_entries(output: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut parts = records(output);
    std::iter::from_fn(move || Some((parts.next()?, parts.next()?)))
}

enum RawEntry {
    NotCommitted,
    Committed(CommittedFile),
    /// A submodule, or something that is not known.
    Other,
}

fn committed(entry: &[u8], is_filtered: bool) -> RawEntry {
    let fields = || {
        let mut fields = std::str::from_utf8(entry).ok()?.strip_prefix(':')?.split_ascii_whitespace();
        Some((fields.next()?, fields.nth(1)?))
    };
    let Some((mode, id)) = fields() else { return RawEntry::Other };
    let kind = match mode {
        "000000" => return RawEntry::NotCommitted,
        "100644" | "100664" => CommittedKind::Regular,
        "100755" => CommittedKind::Executable,
        "120000" => CommittedKind::Link,
        _ => return RawEntry::Other,
    };
    RawEntry::Committed(CommittedFile { kind, id: id.into(), is_filtered })
}

struct CommitComparison<'a> {
    log: &'a LogParts,
    root: &'a Path,
    git: &'a GitRunner<'a>,
}

impl CommitComparison<'_> {
    /// Reads the files and their committed contents, and returns those that differ.
    fn compare(&self, candidates: Candidates) -> Result<Vec<(PathBuf, FileVersion, FileVersion)>, EditError> {
        let Ok(root) = RootHandle::open(self.root) else { return Ok(Vec::new()) };
        let limit = self.log.config.limits.max_file_size;
        let sizes = self.sizes(candidates.values().flatten());
        let mut pending = PendingBlobs::default();
        let mut changes = Vec::new();
        let candidates: Vec<_> = candidates.into_iter().collect();
        // A part at a time, so that few contents are in memory.
        for part in candidates.chunks(256) {
            let objects: Vec<_> = part
                .iter()
                .filter_map(|(_, committed)| sizes.get(&committed.as_ref()?.id))
                .filter(|object| object.size <= limit)
                .cloned()
                .collect();
            let contents = self.git.contents(&objects);
            for (path, committed) in part {
                let path = self.root.join(path);
                let (after, blob) = read_version(&root, &path, &self.log.config.limits);
                let before = committed.as_ref().map(|committed| {
                    let content = contents.get(&committed.id).map(Vec::as_slice);
                    let current = blob.as_ref().map(|blob| &*blob.content);
                    before_version(committed, content, sizes.get(&committed.id), &after, current)
                });
                let (before, old) = before.unwrap_or((FileVersion::Absent, None));
                if !same(&before, &after) {
                    changes.push((path, before, after));
                    pending.add(self.log, [old, blob])?;
                }
            }
        }
        pending.flush(self.log)?;
        Ok(changes)
    }

    /// The sizes of objects that exist here.
    fn sizes<'f>(&self, files: impl Iterator<Item = &'f CommittedFile>) -> HashMap<Arc<str>, GitObject> {
        let ids: BTreeSet<&str> = files.filter(|file| !file.is_filtered).map(|file| &*file.id).collect();
        if ids.is_empty() {
            return HashMap::new();
        }
        let input: Vec<u8> = ids.iter().flat_map(|id| [id.as_bytes(), b"\n"].concat()).collect();
        let output = self.git.run(
            &["cat-file", "--batch-check=%(objectname) %(objectsize)", "--buffer"],
            &input,
            MAX_LIST,
        );
        let output = String::from_utf8(output.unwrap_or_default()).unwrap_or_default();
        let object = |line: &str| {
            let (id, size) = line.split_once(' ')?;
            let id: Arc<str> = id.into();
            Some((Arc::clone(&id), GitObject { id, size: size.parse().ok()? }))
        };
        output.lines().filter_map(object).collect()
    }
}

/// The version of a file in the last commit, as it would be checked out.
fn before_version(
    committed: &CommittedFile,
    content: Option<&[u8]>,
    object: Option<&GitObject>,
    after: &FileVersion,
    current: Option<&[u8]>,
) -> (FileVersion, Option<StoredBlob>) {
    let Some(content) = content else {
        let reason = if object.is_some() { UnknownContent::FileTooLarge } else { UnknownContent::Unreadable };
        return (FileVersion::Unknown(reason), None);
    };
    let mode = match (committed.kind, after) {
        (CommittedKind::Link, _) => {
            let target = PathBuf::from(OsStr::from_bytes(content));
            return (FileVersion::Link { target }, None);
        }
        // Git only knows whether a file is executable.
        (CommittedKind::Regular, FileVersion::File { mode, .. }) => mode & !0o111,
        (CommittedKind::Executable, FileVersion::File { mode, .. }) if mode & 0o100 != 0 => *mode,
        (CommittedKind::Executable, FileVersion::File { mode, .. }) => mode | (mode & 0o444) >> 2,
        (CommittedKind::Regular, _) => 0o644,
        (CommittedKind::Executable, _) => 0o755,
    };
    let content = with_line_ends_of(content, current);
    let blob = StoredBlob::new(content);
    let size = u64::try_from(blob.content.len()).unwrap_or(u64::MAX);
    (FileVersion::File { blob: blob.digest, size, mode, stored: true }, Some(blob))
}

/// Git may convert line ends when it checks a file out. The current file shows whether it
/// did.
fn with_line_ends_of(content: &[u8], current: Option<&[u8]>) -> Vec<u8> {
    let has_only_returns = |text: &[u8]| {
        text.contains(&b'\n')
            && text
                .split_inclusive(|byte| *byte == b'\n')
                .all(|line| line.ends_with(b"\r\n") || !line.ends_with(b"\n"))
    };
    let converts = current.is_some_and(|current| text::is_text(current) && has_only_returns(current));
    if !converts || !text::is_text(content) || content.contains(&b'\r') {
        return content.to_vec();
    }
    let mut converted = Vec::with_capacity(content.len());
    for &byte in content {
        if byte == b'\n' {
            converted.push(b'\r');
        }
        converted.push(byte);
    }
    converted
}

/// Contents on their way to storage.
#[derive(Default)]
struct PendingBlobs {
    blobs: Vec<StoredBlob>,
    bytes: usize,
}

impl PendingBlobs {
    fn add(
        &mut self,
        log: &LogParts,
        blobs: impl IntoIterator<Item = Option<StoredBlob>>,
    ) -> Result<(), EditStorageError> {
        for blob in blobs.into_iter().flatten() {
            self.bytes = self.bytes.saturating_add(blob.content.len());
            self.blobs.push(blob);
        }
        if self.bytes > BATCH { self.flush(log) } else { Ok(()) }
    }

    fn flush(&mut self, log: &LogParts) -> Result<(), EditStorageError> {
        self.bytes = 0;
        let blobs = std::mem::take(&mut self.blobs);
        if blobs.is_empty() { Ok(()) } else { log.storage.put_blobs(blobs) }
    }
}
