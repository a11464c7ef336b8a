//! Observations: compares files with their last seen state and stores what is new.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use innkeeper_core::edits::{EditStorageError, FileVersion, StoredBlob, UnknownContent};

use super::git::{GitObject, GitRunner};
use super::index::{FileIndex, FileStamp, IndexedDirectory, IndexedFile, KnownContent, KnownFile, position};
use super::reading::{LookedFile, ReadBudget, RootHandle, look_below, stamp_at};
use super::scan::{DirectoryListing, RootScan, ScanFindings};
use super::{Observed, TrackerCore, Transition};

/// Bytes of contents that are collected before they are stored together.
const BATCH: u64 = 8 * 1024 * 1024;

/// A scan keeps this many times more files than contents are recorded for. Changes of these
/// files are seen, but not the contents before.
const MAX_FILES_FACTOR: usize = 4;

/// Number of git objects that are in memory together.
const GIT_PART: usize = 256;

/// A path that has to be looked at.
#[derive(Debug)]
struct Suspect {
    /// The last seen state; `None` if it was not seen.
    prior: Option<KnownFile>,
    /// How many parent directories did not exist before.
    new_parents: u32,
}

/// Suspects by path, relative to the root.
type Suspects = BTreeMap<PathBuf, Suspect>;

/// The result of a look at suspects.
#[derive(Debug, Default)]
struct Examined {
    /// The states now.
    now: HashMap<PathBuf, KnownFile>,
    transitions: Vec<Transition>,
}

/// Contents on their way to the storage.
#[derive(Debug, Default)]
pub(super) struct BlobBatch {
    blobs: Vec<StoredBlob>,
    bytes: u64,
}

impl BlobBatch {
    /// Adds a content; stores all if they are many.
    pub(super) fn add(&mut self, core: &TrackerCore, blob: StoredBlob) -> Result<(), EditStorageError> {
        let size = u64::try_from(blob.content.len()).unwrap_or(u64::MAX);
        // Also limits the number of empty and small contents.
        self.bytes = self.bytes.saturating_add(size).saturating_add(1024);
        self.blobs.push(blob);
        if self.bytes >= BATCH { self.flush(core) } else { Ok(()) }
    }

    /// Stores the contents.
    pub(super) fn flush(&mut self, core: &TrackerCore) -> Result<(), EditStorageError> {
        self.bytes = 0;
        if self.blobs.is_empty() {
            return Ok(());
        }
        core.storage.put_blobs(std::mem::take(&mut self.blobs))
    }
}

impl TrackerCore {
    pub(super) fn observe_all(&self) -> Result<Vec<Transition>, EditStorageError> {
        let mut index = self.index();
        let Some(root) = self.open_root() else { return Ok(Vec::new()) };
        let findings = self.scan(&root, &index);
        let suspects = suspects(&index, &findings, &root);
        let examined = self.examine(&root, suspects)?;
        let has_pending = apply(&mut index, findings, examined.now);
        refresh_missing_parents(&mut index);
        drop(index);
        if has_pending {
            self.request_baseline();
        }
        Ok(examined.transitions)
    }

    /// Records the stamps of all files, unless a scan did already. Changes of files that were
    /// seen before are left for the next observation.
    pub(super) fn index_all(&self) {
        let mut index = self.index();
        if !index.scanned
            && let Some(root) = self.open_root()
        {
            let findings = self.scan(&root, &index);
            apply(&mut index, findings, HashMap::new());
        }
    }

    pub(super) fn open_root(&self) -> Option<RootHandle> {
        RootHandle::open(&self.root)
            .inspect_err(
                |error| tracing::debug!(%error, root = ?self.root, "cannot open a tracked directory"),
            )
            .ok()
    }

    fn scan(&self, root: &RootHandle, index: &FileIndex) -> ScanFindings {
        let max_files = self.limits.max_files.saturating_mul(MAX_FILES_FACTOR);
        RootScan { root, index, rules: &self.rules, max_files, stop: &self.stop }.run()
    }

    pub(super) fn observe(&self, paths: &[PathBuf]) -> Result<Observed, EditStorageError> {
        let mut index = self.index();
        let Some(root) = self.open_root() else { return Ok(Observed::default()) };
        let paths: Vec<PathBuf> = paths.iter().filter_map(|path| self.relative(path)).collect();
        let mut suspects = Suspects::new();
        for path in &paths {
            suspects.insert(path.clone(), direct_suspect(&index, path));
        }
        let examined = self.examine(&root, suspects)?;
        for (path, known) in examined.now {
            let missing = if known.stamp.is_some() { 0 } else { missing_on_disk(&root, &path) };
            index.set(&path, known, missing);
        }
        let mut versions = Vec::with_capacity(paths.len());
        for path in paths {
            let version = self.resolve(&mut index, &path)?;
            versions.push((self.root.join(path), version.unwrap_or(FileVersion::Absent)));
        }
        Ok(Observed { versions, transitions: examined.transitions })
    }

    #[cfg(test)]
    pub(super) fn version(&self, path: &Path) -> Option<FileVersion> {
        let path = self.relative(path)?;
        let mut index = self.index();
        match self.resolve(&mut index, &path) {
            Ok(Some(version)) => Some(version),
            Ok(None) => index.covers(&path).then_some(FileVersion::Absent),
            Err(error) => {
                tracing::warn!(%error, "could not store a file's content");
                Some(FileVersion::Unknown(UnknownContent::Unreadable))
            }
        }
    }

    /// The last seen version. Stores a content that so far is only in git.
    fn resolve(&self, index: &mut FileIndex, path: &Path) -> Result<Option<FileVersion>, EditStorageError> {
        let Some(known) = index.get_mut(path) else { return Ok(None) };
        let fetched = self.fetch_from_git([&*known])?;
        let version = version_of(known, &fetched);
        known.content = KnownContent::Version(version.clone());
        Ok(Some(version))
    }

    /// Reads suspects, stores their contents, and compares them with their last seen state.
    fn examine(&self, root: &RootHandle, suspects: Suspects) -> Result<Examined, EditStorageError> {
        let (mut batch, mut budget) = (BlobBatch::default(), ReadBudget::default());
        let mut changed = Vec::new();
        let mut examined = Examined::default();
        for (path, suspect) in suspects {
            if let Some(prior) = &suspect.prior
                && !prior.is_unknown()
                && !prior.needs_look(stamp_below(root, &path).as_ref())
            {
                continue;
            }
            let LookedFile { known, blob } = look_below(root, &path, budget.limits(&self.limits));
            budget.spend(&known);
            if let Some(blob) = blob {
                batch.add(self, blob)?;
            }
            examined.now.insert(path.clone(), known.clone());
            if let Some(prior) =
                suspect.prior.filter(|prior| !prior.is_unknown() || prior.stamp != known.stamp)
            {
                changed.push((path, prior, known, suspect.new_parents));
            }
        }
        batch.flush(self)?;
        let fetched = self.fetch_from_git(changed.iter().map(|(_, prior, _, _)| prior))?;
        for (path, prior, known, new_parents) in changed {
            let before = version_of(&prior, &fetched);
            let KnownContent::Version(after) = known.content else { continue };
            if !is_same(&before, &after) {
                let new_parents = if before == FileVersion::Absent { new_parents } else { 0 };
                let path = self.root.join(path);
                examined.transitions.push(Transition { path, before, after, new_parents });
            }
        }
        Ok(examined)
    }

    /// Reads git objects and stores their contents. A missing object is left out.
    fn fetch_from_git<'a>(
        &self,
        files: impl IntoIterator<Item = &'a KnownFile>,
    ) -> Result<GitVersions, EditStorageError> {
        let mut wanted: HashMap<Arc<str>, GitObject> = HashMap::new();
        for known in files {
            if let (KnownContent::Git(id), Some(stamp)) = (&known.content, &known.stamp) {
                wanted.insert(Arc::clone(id), GitObject { id: Arc::clone(id), size: stamp.size });
            }
        }
        let mut versions = GitVersions::new();
        if wanted.is_empty() {
            return Ok(versions);
        }
        let wanted: Vec<GitObject> = wanted.into_values().collect();
        let mut batch = BlobBatch::default();
        // Bounded by the contents of changed files, which are stored piece by piece.
        for part in wanted.chunks(GIT_PART) {
            for (id, content) in self.git().contents(part) {
                let blob = StoredBlob::new(content);
                let size = u64::try_from(blob.content.len()).unwrap_or(u64::MAX);
                versions.insert(id, FileVersion::File { blob: blob.digest, size, mode: 0, stored: true });
                batch.add(self, blob)?;
            }
        }
        batch.flush(self)?;
        Ok(versions)
    }

    pub(super) fn git(&self) -> GitRunner<'_> {
        GitRunner { directory: &self.root, stop: &self.stop }
    }
}

/// The contents of git objects, without a mode.
type GitVersions = HashMap<Arc<str>, FileVersion>;

/// The version of a known file, after its git object was fetched.
fn version_of(known: &KnownFile, fetched: &GitVersions) -> FileVersion {
    match &known.content {
        KnownContent::Version(version) => version.clone(),
        KnownContent::Git(object) => match (fetched.get(object), &known.stamp) {
            (Some(FileVersion::File { blob, size, stored, .. }), Some(stamp)) => {
                FileVersion::File { blob: *blob, size: *size, mode: stamp.permissions(), stored: *stored }
            }
            _ => FileVersion::Unknown(UnknownContent::Unreadable),
        },
    }
}

/// Whether two versions have the same content and mode, stored or not.
fn is_same(one: &FileVersion, other: &FileVersion) -> bool {
    match (one, other) {
        (
            FileVersion::File { blob, mode, .. },
            FileVersion::File { blob: other_blob, mode: other_mode, .. },
        ) => blob == other_blob && mode == other_mode,
        _ => one == other,
    }
}

fn direct_suspect(index: &FileIndex, path: &Path) -> Suspect {
    if let Some(known) = index.get(path) {
        let extra = index.extras.get(path).map(|extra| extra.missing_parents);
        return Suspect { prior: Some(known.clone()), new_parents: extra.unwrap_or_default() };
    }
    let is_covered = index.covers(path);
    Suspect {
        prior: is_covered.then(KnownFile::absent),
        new_parents: if is_covered { index.missing_parents(path) } else { 0 },
    }
}

fn missing_on_disk(root: &RootHandle, path: &Path) -> u32 {
    let parents = path.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty());
    let missing = parents.take_while(|parent| root.directory(parent).is_err()).count();
    u32::try_from(missing).unwrap_or(u32::MAX)
}

fn stamp_below(root: &RootHandle, path: &Path) -> Option<FileStamp> {
    let directory = root.directory(path.parent()?).ok()?;
    stamp_at(directory.as_fd(), path.file_name()?).ok()
}

/// The paths that have to be looked at after a scan.
fn suspects(index: &FileIndex, findings: &ScanFindings, root: &RootHandle) -> Suspects {
    let mut suspects = Suspects::new();
    let known = |known: &KnownFile| Suspect { prior: Some(known.clone()), new_parents: 0 };
    for (path, position) in &findings.suspects {
        if let Some(file) = index.directories.get(path).and_then(|directory| directory.files.get(*position)) {
            suspects.insert(join(path, file.name.as_bytes()), known(&file.known));
        }
    }
    for path in &findings.gone {
        for file in index.directories.get(path).into_iter().flat_map(|directory| &directory.files) {
            suspects.insert(join(path, file.name.as_bytes()), known(&file.known));
        }
    }
    for (path, listing) in &findings.listings {
        suspects_in_listing(index, path, listing, &mut suspects);
    }
    for (path, extra) in &index.extras {
        if !suspects.contains_key(path) && extra.known.needs_look(stamp_below(root, path).as_ref()) {
            let new_parents = extra.missing_parents;
            suspects.insert(path.clone(), Suspect { prior: Some(extra.known.clone()), new_parents });
        }
    }
    suspects
}

fn suspects_in_listing(index: &FileIndex, path: &Path, listing: &DirectoryListing, suspects: &mut Suspects) {
    let old = index.directories.get(path).map_or(&[][..], |directory| &directory.files);
    for file in old {
        let found = listing.files.binary_search_by(|listed| listed.name.cmp(&file.name));
        let stamp = found.ok().and_then(|found| listing.files.get(found)).map(|listed| &listed.stamp);
        if file.known.needs_look(stamp) {
            let suspect = Suspect { prior: Some(file.known.clone()), new_parents: 0 };
            suspects.insert(join(path, file.name.as_bytes()), suspect);
        }
    }
    for listed in &listing.files {
        if position(old, OsStr::from_bytes(listed.name.as_bytes())).is_ok() {
            continue;
        }
        if listed.adopted && index.extras.is_empty() {
            continue;
        }
        let path = join(path, listed.name.as_bytes());
        let extra = index.extras.get(&path);
        let prior = match extra {
            Some(extra) => extra.known.clone(),
            None if listed.adopted => continue,
            None => KnownFile::absent(),
        };
        if prior.needs_look(Some(&listed.stamp)) {
            let new_parents = match extra {
                Some(extra) => extra.missing_parents,
                None => index.missing_parents(&path),
            };
            suspects.insert(path, Suspect { prior: Some(prior), new_parents });
        }
    }
}

/// Updates the index after a scan. Returns whether there are files without contents.
fn apply(index: &mut FileIndex, findings: ScanFindings, mut now: HashMap<PathBuf, KnownFile>) -> bool {
    let mut has_pending = false;
    for path in &findings.gone {
        if !findings.listings.contains_key(path) {
            index.directories.remove(path);
        }
    }
    for (path, listing) in findings.listings {
        has_pending |= apply_listing(index, &path, listing, findings.time, &mut now);
    }
    for (path, known) in now {
        let is_extra = index.extras.contains_key(&path);
        if known.stamp.is_none() && !is_extra {
            index.remove_indexed(&path);
        } else if let Some(slot) = index.get_mut(&path) {
            *slot = known;
        }
    }
    index.scanned = true;
    index.truncated = findings.truncated;
    index.add_unseen(findings.unseen);
    has_pending
}

/// Other programs may have created directories of files that are still absent.
fn refresh_missing_parents(index: &mut FileIndex) {
    let mut extras = std::mem::take(&mut index.extras);
    for (path, extra) in extras.iter_mut().filter(|(_, extra)| extra.missing_parents > 0) {
        extra.missing_parents = extra.missing_parents.min(index.missing_parents(path));
    }
    index.extras = extras;
}

fn apply_listing(
    index: &mut FileIndex,
    path: &Path,
    listing: DirectoryListing,
    time: i64,
    now: &mut HashMap<PathBuf, KnownFile>,
) -> bool {
    let mut has_pending = false;
    index.unseen.remove(path);
    let mut old = index.directories.remove(path).map(|directory| directory.files).unwrap_or_default();
    let mut files = Vec::with_capacity(listing.files.len());
    let has_priors = !now.is_empty() || !index.extras.is_empty() || !index.unseen.is_empty();
    for listed in listing.files {
        let whole = has_priors.then(|| join(path, listed.name.as_bytes()));
        if let Some(whole) = &whole {
            index.unseen.remove(whole);
        }
        let looked = whole.as_ref().and_then(|whole| now.remove(whole));
        let mut extra = whole.as_ref().and_then(|whole| index.extras.remove(whole));
        if looked.is_none()
            && let (Some(whole), Some(absent)) = (whole, extra.take_if(|extra| extra.known.stamp.is_none()))
        {
            // It was created since it was seen. Its change is not reported yet.
            index.extras.insert(whole, absent);
            continue;
        }
        let kept = position(&old, OsStr::from_bytes(listed.name.as_bytes()))
            .ok()
            .and_then(|position| old.get_mut(position))
            .map(|file| std::mem::replace(&mut file.known, KnownFile::absent()));
        let known = looked
            .or(kept)
            .or(extra.map(|extra| extra.known))
            .unwrap_or_else(|| KnownFile::pending(listed.stamp, time));
        if known.stamp.is_some() {
            has_pending |= known.is_pending();
            files.push(IndexedFile { name: listed.name, known });
        }
    }
    let DirectoryListing { stamp, rules, rule_files, .. } = listing;
    let racy = stamp.is_racy(time);
    index.directories.insert(path.to_owned(), IndexedDirectory { stamp, racy, rules, rule_files, files });
    has_pending
}

fn join(directory: &Path, name: &[u8]) -> PathBuf {
    directory.join(OsStr::from_bytes(name))
}
