//! Finds what changed below a root since the last scan.
//!
//! First checks the known directories: one whose stamp is unchanged has the same names, so only
//! the stamps of its files are compared. Then lists the changed and new directories. Reads no
//! file except for ignore rules, and changes no state. Works on two threads: a scan mostly waits
//! in system calls, and the user's programs need the other processors.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

use super::index::{EntryKind, FileIndex, FileStamp, IndexedDirectory, KnownFile, position};
use super::reading::{RootHandle, is_missing, now, stamp_at, stamp_of};
use super::rules::{IgnoreRules, RULE_FILES, rule_stamps, rule_texts};
use crate::stop_flag::StopFlag;

/// Number of threads that look at files.
const THREADS: usize = 2;

/// Number of files that a thread checks before it takes more: large directories are shared.
const CHUNK: usize = 512;

/// A scan of a root.
#[derive(Debug)]
pub(super) struct RootScan<'a> {
    pub(super) root: &'a RootHandle,
    pub(super) index: &'a FileIndex,
    /// The rules from above the root.
    pub(super) rules: &'a Arc<IgnoreRules>,
    /// Maximum number of files.
    pub(super) max_files: usize,
    pub(super) stop: &'a StopFlag,
}

/// What a scan found.
#[derive(Debug, Default)]
pub(super) struct ScanFindings {
    /// When the scan began.
    pub(super) time: i64,
    /// Files in unchanged directories that have to be looked at: the directory, and the
    /// position of the file in it.
    pub(super) suspects: Vec<(PathBuf, usize)>,
    /// Directories that were listed.
    pub(super) listings: BTreeMap<PathBuf, DirectoryListing>,
    /// Directories that do not exist any longer.
    pub(super) gone: Vec<PathBuf>,
    /// Files and directories that exist, but cannot be looked at.
    pub(super) unseen: Vec<PathBuf>,
    /// Whether there are more files than the limit.
    pub(super) truncated: bool,
}

/// A directory that was listed.
#[derive(Debug)]
pub(super) struct DirectoryListing {
    pub(super) stamp: FileStamp,
    pub(super) rules: Arc<IgnoreRules>,
    pub(super) rule_files: [Option<FileStamp>; 2],
    /// Sorted by name.
    pub(super) files: Vec<ListedEntry>,
    /// Whether it was listed because the rules above it changed.
    forced: bool,
}

/// A file or link in a listing.
#[derive(Debug)]
pub(super) struct ListedEntry {
    pub(super) name: CString,
    pub(super) stamp: FileStamp,
    /// Whether it was not seen before, although it may have existed: the rules ignored it.
    pub(super) adopted: bool,
}

/// A part of a known directory.
#[derive(Debug)]
struct DirectoryPart<'a> {
    path: &'a Path,
    directory: &'a IndexedDirectory,
    files: Range<usize>,
}

#[derive(Debug)]
enum PartFinding {
    /// The names are unchanged. The positions of files that have to be looked at.
    Suspects(Vec<usize>),
    Listing,
    Gone,
}

/// A directory to list.
#[derive(Debug)]
struct ListingJob {
    path: PathBuf,
    /// The rules of its parent.
    rules: Arc<IgnoreRules>,
    /// Whether the rules changed.
    forced: bool,
    /// Whether it is new here, but may have existed before.
    adopted: bool,
}

impl RootScan<'_> {
    /// Compares the root with the index.
    pub(super) fn run(&self) -> ScanFindings {
        let mut findings = ScanFindings { time: now(), ..ScanFindings::default() };
        let jobs = if self.index.directories.is_empty() {
            let rules = Arc::clone(self.rules);
            vec![ListingJob { path: PathBuf::new(), rules, forced: false, adopted: !self.index.scanned }]
        } else {
            self.check_known(&mut findings)
        };
        let lister = Lister {
            scan: self,
            queue: Mutex::new(ListerQueue { jobs, running: 0, findings: ScanFindings::default() }),
            changed: Condvar::new(),
            files: AtomicUsize::new(self.index.len()),
            directories: AtomicUsize::new(self.index.directories.len()),
            truncated: AtomicBool::new(self.index.truncated),
        };
        let listed = lister.run();
        findings.listings = listed.listings;
        findings.gone.extend(listed.gone);
        findings.unseen = listed.unseen;
        findings.truncated = listed.truncated;
        findings.suspects.retain(|(path, _)| !findings.listings.contains_key(path));
        findings
    }

    /// Checks the known directories. Returns those to list.
    fn check_known(&self, findings: &mut ScanFindings) -> Vec<ListingJob> {
        let mut parts = Vec::new();
        for (path, directory) in &self.index.directories {
            let count = directory.files.len();
            parts.extend((0..count.max(1)).step_by(CHUNK).map(|start| DirectoryPart {
                path,
                directory,
                files: start..count.min(start + CHUNK),
            }));
        }
        let mut jobs: Vec<ListingJob> = Vec::new();
        for (part, finding) in parts.iter().zip(on_threads(&parts, |part| self.check(part))) {
            match finding {
                PartFinding::Suspects(files) => {
                    findings.suspects.extend(files.into_iter().map(|file| (part.path.to_owned(), file)));
                }
                PartFinding::Gone => findings.gone.push(part.path.to_owned()),
                PartFinding::Listing if jobs.last().is_some_and(|job| job.path == part.path) => {}
                PartFinding::Listing => jobs.push(ListingJob {
                    path: part.path.to_owned(),
                    rules: self.rules_above(part.path),
                    forced: false,
                    adopted: false,
                }),
            }
        }
        jobs
    }

    fn rules_above(&self, path: &Path) -> Arc<IgnoreRules> {
        let parent = path.parent().and_then(|parent| self.index.directories.get(parent));
        Arc::clone(parent.map_or(self.rules, |parent| &parent.rules))
    }

    fn check(&self, part: &DirectoryPart<'_>) -> PartFinding {
        if self.stop.is_requested() {
            return PartFinding::Suspects(Vec::new());
        }
        let known = part.directory;
        let (handle, stamp) = match self.open(part.path) {
            Ok(opened) => opened,
            Err(errno) if is_missing(errno) => return PartFinding::Gone,
            // Not accessible at the moment: the last state stays.
            Err(_) => return PartFinding::Suspects(Vec::new()),
        };
        let directory = handle.as_fd();
        let has_rules = known.rule_files.iter().any(Option::is_some);
        if known.racy || stamp != known.stamp || (has_rules && rule_stamps(directory) != known.rule_files) {
            return PartFinding::Listing;
        }
        let mut suspects = Vec::new();
        for (position, file) in known.files.iter().enumerate().take(part.files.end).skip(part.files.start) {
            match stamp_at(directory, file.name.as_c_str()) {
                Ok(stamp) if !file.known.needs_look(Some(&stamp)) => {}
                Ok(_) => suspects.push(position),
                Err(errno) if is_missing(errno) => suspects.push(position),
                Err(_) => {}
            }
        }
        PartFinding::Suspects(suspects)
    }

    fn open(&self, path: &Path) -> Result<(std::os::fd::OwnedFd, FileStamp), Errno> {
        let handle = self.root.directory(path)?;
        let stamp = stamp_of(&handle)?;
        Ok((handle, stamp))
    }
}

/// Lists directories, and new directories in them.
#[derive(Debug)]
struct Lister<'a> {
    scan: &'a RootScan<'a>,
    queue: Mutex<ListerQueue>,
    /// Notified when there are more jobs, or none are left.
    changed: Condvar,
    files: AtomicUsize,
    directories: AtomicUsize,
    truncated: AtomicBool,
}

#[derive(Debug)]
struct ListerQueue {
    /// At most one job for each directory.
    jobs: Vec<ListingJob>,
    running: usize,
    findings: ScanFindings,
}

impl Lister<'_> {
    fn run(self) -> ScanFindings {
        if !self.lock().jobs.is_empty() {
            std::thread::scope(|scope| {
                for _ in 1..THREADS {
                    scope.spawn(|| self.work());
                }
                self.work();
            });
        }
        let mut queue = self.queue.into_inner().unwrap_or_else(PoisonError::into_inner);
        queue.findings.truncated = self.truncated.into_inner();
        queue.findings
    }

    fn lock(&self) -> MutexGuard<'_, ListerQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            let mut found = FoundEntries::default();
            let listed = self.list(&job, &mut found);
            let mut queue = self.lock();
            queue.running -= 1;
            queue.jobs.append(&mut found.directories);
            queue.findings.unseen.append(&mut found.unseen);
            match listed {
                Ok(listing) => {
                    let is_newer =
                        queue.findings.listings.get(&job.path).is_none_or(|existing| !existing.forced);
                    if is_newer {
                        queue.findings.listings.insert(job.path, listing);
                    }
                }
                Err(errno) if is_missing(errno) => queue.findings.gone.push(job.path),
                // Not accessible at the moment: the last state stays.
                Err(_) if self.scan.index.directories.contains_key(&job.path) => {}
                Err(_) => queue.findings.unseen.push(job.path),
            }
            drop(queue);
            self.changed.notify_all();
        }
    }

    fn next(&self) -> Option<ListingJob> {
        let mut queue = self.lock();
        loop {
            if self.scan.stop.is_requested() {
                return None;
            }
            if let Some(job) = queue.jobs.pop() {
                queue.running += 1;
                return Some(job);
            }
            if queue.running == 0 {
                return None;
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lists one directory.
    fn list(&self, job: &ListingJob, found: &mut FoundEntries) -> Result<DirectoryListing, Errno> {
        let (handle, stamp) = self.scan.open(&job.path)?;
        let directory = handle.as_fd();
        let known = self.scan.index.directories.get(&job.path);
        let names = names_in(directory)?;
        let rule_files = if names.iter().any(|(name, _)| RULE_FILES.iter().any(|rule| name == rule)) {
            rule_stamps(directory)
        } else {
            [None; 2]
        };
        let forced = job.forced || known.is_some_and(|known| known.rule_files != rule_files);
        let rules = match known {
            Some(known) if !forced => Arc::clone(&known.rules),
            _ if rule_files.iter().any(Option::is_some) => {
                IgnoreRules::below(&job.rules, &job.path, &rule_texts(directory))
            }
            _ => Arc::clone(&job.rules),
        };
        found.files.reserve(names.len());
        let visit = DirectoryVisit {
            job,
            index: self.scan.index,
            known,
            directory,
            rules: Arc::clone(&rules),
            forced,
        };
        for (name, kind) in names {
            self.visit(&visit, name, kind, found);
        }
        let mut files = std::mem::take(&mut found.files);
        files.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(DirectoryListing { stamp, rules, rule_files, files, forced })
    }

    fn visit(
        &self,
        visit: &DirectoryVisit<'_>,
        name: ListedName,
        kind: Option<Type>,
        found: &mut FoundEntries,
    ) {
        let known = visit.known_file(name.as_os_str());
        let is_known = known.is_some();
        let mut stamp = None;
        if kind != Some(Type::Directory) {
            if !is_known && kind.is_some() && visit.ignores(name.as_os_str(), false) {
                return;
            }
            stamp = match stamp_at(visit.directory, name.0.as_c_str()) {
                Ok(stamp) => Some(stamp),
                Err(errno) if is_missing(errno) => return,
                // Not accessible at the moment: the last state stays.
                Err(_) => known.and_then(|known| known.stamp),
            };
            if stamp.is_none() {
                found.unseen.push(visit.job.path.join(name.as_os_str()));
                return;
            }
        }
        match stamp.map_or(EntryKind::Directory, |stamp| stamp.kind()) {
            EntryKind::Directory => found.directories.extend(self.directory_job(visit, name.as_os_str())),
            EntryKind::Special => {}
            EntryKind::File | EntryKind::Link => {
                let Some(stamp) = stamp else { return };
                if !is_known {
                    if kind.is_none() && visit.ignores(name.as_os_str(), false) {
                        return;
                    }
                    if self.files.fetch_add(1, Ordering::Relaxed) >= self.scan.max_files {
                        self.truncated.store(true, Ordering::Relaxed);
                        return;
                    }
                }
                let adopted = visit.adopts(name.as_os_str(), false);
                found.files.push(ListedEntry { name: name.0, stamp, adopted });
            }
        }
    }

    fn directory_job(&self, visit: &DirectoryVisit<'_>, name: &OsStr) -> Option<ListingJob> {
        let path = visit.job.path.join(name);
        let rules = Arc::clone(&visit.rules);
        if self.scan.index.directories.contains_key(&path) {
            return visit.forced.then_some(ListingJob { path, rules, forced: true, adopted: false });
        }
        if rules.ignores(&path, true) {
            return None;
        }
        // Otherwise a scan of a very large directory would not end.
        let is_full = self.files.load(Ordering::Relaxed) >= self.scan.max_files
            || self.directories.fetch_add(1, Ordering::Relaxed) >= self.scan.max_files;
        if is_full {
            self.truncated.store(true, Ordering::Relaxed);
            return None;
        }
        Some(ListingJob { adopted: visit.adopts(name, true), path, rules, forced: false })
    }
}

/// The entries of a directory.
#[derive(Debug, Default)]
struct FoundEntries {
    files: Vec<ListedEntry>,
    directories: Vec<ListingJob>,
    unseen: Vec<PathBuf>,
}

/// The directory whose entries are visited.
#[derive(Debug)]
struct DirectoryVisit<'a> {
    job: &'a ListingJob,
    index: &'a FileIndex,
    known: Option<&'a IndexedDirectory>,
    directory: BorrowedFd<'a>,
    rules: Arc<IgnoreRules>,
    forced: bool,
}

impl DirectoryVisit<'_> {
    fn ignores(&self, name: &OsStr, is_directory: bool) -> bool {
        self.rules.ignores(&self.job.path.join(name), is_directory)
    }

    fn known_file(&self, name: &OsStr) -> Option<&KnownFile> {
        let files = &self.known?.files;
        files.get(position(files, name).ok()?).map(|file| &file.known)
    }

    /// Whether an entry that is not ignored may have existed before without being seen.
    fn adopts(&self, name: &OsStr, is_directory: bool) -> bool {
        let was_ignored = |known: &IndexedDirectory| {
            self.forced && known.rules.ignores(&self.job.path.join(name), is_directory)
        };
        let was_unseen =
            || !self.index.unseen.is_empty() && self.index.unseen.contains(&self.job.path.join(name));
        self.job.adopted || self.index.truncated || was_unseen() || self.known.is_some_and(was_ignored)
    }
}

/// A name in a directory.
#[derive(Debug)]
struct ListedName(CString);

impl ListedName {
    fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(self.0.as_bytes())
    }
}

impl PartialEq<&str> for ListedName {
    fn eq(&self, other: &&str) -> bool {
        self.0.as_bytes() == other.as_bytes()
    }
}

fn names_in(directory: BorrowedFd<'_>) -> Result<Vec<(ListedName, Option<Type>)>, Errno> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut listed = Dir::openat(directory, c".", flags, Mode::empty())?;
    let mut names = Vec::new();
    for entry in listed.iter() {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b".." | b".git") {
            names.push((ListedName(entry.file_name().to_owned()), entry.file_type()));
        }
    }
    Ok(names)
}

/// Runs `work` for all items on two threads. The results are in the order of the items.
fn on_threads<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    if items.len() < THREADS {
        return items.iter().map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let take = || {
        let mut results = Vec::new();
        loop {
            let position = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(position) else { return results };
            results.push((position, work(item)));
        }
    };
    let mut results = std::thread::scope(|scope| {
        let others: Vec<_> = (1..THREADS).map(|_| scope.spawn(take)).collect();
        let mut results = take();
        for other in others {
            match other.join() {
                Ok(more) => results.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        results
    });
    results.sort_unstable_by_key(|(position, _)| *position);
    results.into_iter().map(|(_, result)| result).collect()
}
