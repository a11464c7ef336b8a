//! Reads the summaries of many transcripts and skips unchanged ones.
//!
//! Owns the cache entries of a folder: modification time, size and findings of each file. Transcripts are
//! only appended to, so a file with the same time and size is unchanged.

use std::collections::{HashMap, HashSet};
use std::fs::{self, DirEntry, File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use serde::Deserialize;
use uuid::Uuid;

use super::entry::{flag, lenient};
use super::summary::{Findings, SessionSummary, Sidecars, Window};

/// Bytes to read from the start and from the end of a transcript: enough for a title and a prompt, and
/// the same as the runtime's own tools read, so that both show the same.
const WINDOW: usize = 64 << 10;
/// Maximum number of threads; more would only wait for the disk.
const THREADS_LIMIT: usize = 8;
/// Number of files that a thread takes at once; small, so that all threads finish together.
const BATCH: usize = 32;
/// Maximum size of a sidecar file, which contains one short object.
const SIDECAR_LIMIT: u64 = 4096;

/// Cache entries of the transcripts in a folder.
pub(super) type ProjectSessions = HashMap<Uuid, KnownSession>;

/// A transcript in a folder.
#[derive(Debug)]
pub(super) struct SessionFile {
    pub(super) id: Uuid,
    /// Whether there is a folder next to it, which may contain sidecars.
    pub(super) has_folder: bool,
    location: FileLocation,
}

/// Where a transcript is. The metadata of a directory entry can be read without resolving the path again,
/// which is most of the work for an unchanged list.
#[derive(Debug)]
enum FileLocation {
    Entry(DirEntry),
    Path(PathBuf),
}

impl SessionFile {
    /// A transcript given by its path.
    pub(super) fn at(id: Uuid, path: PathBuf) -> Self {
        Self { id, has_folder: folder_of(&path).is_dir(), location: FileLocation::Path(path) }
    }

    fn path(&self) -> PathBuf {
        match &self.location {
            FileLocation::Entry(entry) => entry.path(),
            FileLocation::Path(path) => path.clone(),
        }
    }

    fn metadata(&self) -> io::Result<Metadata> {
        match &self.location {
            FileLocation::Entry(entry) => match entry.metadata()? {
                link if link.is_symlink() => fs::metadata(entry.path()),
                metadata => Ok(metadata),
            },
            FileLocation::Path(path) => fs::metadata(path),
        }
    }
}

/// The findings in a transcript at the given stamp.
#[derive(Debug, Clone)]
pub(super) struct KnownSession {
    stamp: Stamp,
    pub(super) has_folder: bool,
    pub(super) continued_in: Option<Uuid>,
    /// `None` if the transcript has nothing to list.
    pub(super) summary: Option<Arc<SessionSummary>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    transcript: FileStamp,
    title: Option<FileStamp>,
    archived: Option<FileStamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    modified: SystemTime,
    size: u64,
}

/// The folder next to a transcript.
pub(super) fn folder_of(transcript: &Path) -> PathBuf {
    transcript.with_extension("")
}

/// The conversation that a file name belongs to.
pub(super) fn session_of_file(name: &str) -> Option<Uuid> {
    session_of_folder(name.strip_suffix(".jsonl")?)
}

/// The conversation that a folder name belongs to.
pub(super) fn session_of_folder(name: &str) -> Option<Uuid> {
    // The runtime uses only this spelling of ids.
    (name.len() == 36).then(|| Uuid::try_parse(name).ok()).flatten()
}

/// The transcripts of a folder; empty if it cannot be read.
pub(super) fn session_files(project: &Path) -> Vec<SessionFile> {
    let mut files = Vec::new();
    let mut folders = HashSet::new();
    for entry in fs::read_dir(project).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if let Some(id) = session_of_file(name) {
            files.push(SessionFile { id, has_folder: false, location: FileLocation::Entry(entry) });
        } else if let Some(id) = session_of_folder(name) {
            folders.insert(id);
        }
    }
    for file in &mut files {
        file.has_folder = folders.contains(&file.id);
    }
    files
}

/// Updates the cache entries of files. `known` returns the previous entry of a file. The result is `None`
/// for a file that is missing or unreadable.
pub(super) fn scan<'a>(
    files: &[SessionFile],
    known: &(dyn Fn(usize) -> Option<&'a KnownSession> + Sync),
) -> Vec<Option<KnownSession>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_LIMIT);
    let threads = threads.min(files.len().div_ceil(BATCH)).max(1);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut scanner = Scanner::default();
        let mut done = Vec::new();
        loop {
            let start = next.fetch_add(BATCH, Ordering::Relaxed);
            let Some(batch) = files.get(start..).filter(|rest| !rest.is_empty()) else { return done };
            let fresh = batch.iter().take(BATCH).enumerate();
            done.extend(fresh.map(|(at, file)| (start + at, scanner.refresh(file, known(start + at)))));
        }
    };
    let mut results = vec![None; files.len()];
    let mut place = |done: Vec<(usize, Option<KnownSession>)>| {
        for (at, result) in done {
            if let Some(slot) = results.get_mut(at) {
                *slot = result;
            }
        }
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        place(work());
        for other in others {
            // A panicking thread leaves its files unlisted; the panic hook has reported it.
            place(other.join().unwrap_or_default());
        }
    });
    results
}

/// Updates the cache entry of one file.
pub(super) fn scan_one(file: &SessionFile, known: Option<&KnownSession>) -> Option<KnownSession> {
    Scanner::default().refresh(file, known)
}

/// Reads transcripts one after the other into the same buffer.
#[derive(Default)]
struct Scanner {
    buffer: Vec<u8>,
}

impl Scanner {
    fn refresh(&mut self, file: &SessionFile, known: Option<&KnownSession>) -> Option<KnownSession> {
        if let Some(known) = known
            && let Ok(metadata) = file.metadata()
            && stamp_of(file, &metadata).is_some_and(|stamp| stamp == known.stamp)
        {
            return Some(known.clone());
        }
        match self.read(file) {
            Ok(fresh) => fresh,
            Err(error) => {
                tracing::debug!(path = %file.path().display(), %error, "cannot read transcript");
                None
            }
        }
    }

    fn read(&mut self, file: &SessionFile) -> io::Result<Option<KnownSession>> {
        let path = file.path();
        let mut handle = File::open(&path)?;
        let metadata = handle.metadata()?;
        if !metadata.is_file() {
            return Ok(None);
        }
        let Some(stamp) = stamp_of(file, &metadata) else { return Ok(None) };
        let size = metadata.len();
        let window = self.window(&mut handle, size)?;
        let mut findings = Findings::of(window, sidecars_of(file, stamp));
        let continued_in = findings.as_mut().and_then(|findings| findings.continued_in.take());
        let summary = findings.map(|findings| {
            Arc::new(SessionSummary {
                id: file.id,
                path,
                summary: findings.summary,
                title: findings.title,
                first_prompt: findings.first_prompt,
                git_branch: findings.git_branch,
                cwd: findings.cwd,
                tag: findings.tag,
                created_at: findings.created_at,
                last_modified: stamp.transcript.modified,
                size,
                archived: findings.archived,
            })
        });
        Ok(Some(KnownSession { stamp, has_folder: file.has_folder, continued_in, summary }))
    }

    /// Reads both ends of a file; reads a short file once.
    fn window(&mut self, file: &mut File, size: u64) -> io::Result<Window<'_>> {
        self.buffer.resize(2 * WINDOW, 0);
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        if size <= 2 * WINDOW {
            let count = fill(file, self.buffer.get_mut(..size).unwrap_or_default())?;
            let tail_start = count.saturating_sub(WINDOW);
            return Ok(Window {
                head: self.buffer.get(..count.min(WINDOW)).unwrap_or_default(),
                tail: self.buffer.get(tail_start..count).unwrap_or_default(),
                tail_start: tail_start as u64,
            });
        }
        let (head, tail) = self.buffer.split_at_mut(WINDOW);
        let head_size = fill(file, head)?;
        let tail_start = (size - WINDOW) as u64;
        file.seek(SeekFrom::Start(tail_start))?;
        let tail_size = fill(file, tail)?;
        Ok(Window {
            head: head.get(..head_size).unwrap_or_default(),
            tail: tail.get(..tail_size).unwrap_or_default(),
            tail_start,
        })
    }
}

/// Reads until the buffer is full or the file ends; the file may shrink meanwhile.
fn fill(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read(rest)? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

/// The stamps of a transcript and its sidecars; `None` if the system does not record modification times.
fn stamp_of(file: &SessionFile, metadata: &Metadata) -> Option<Stamp> {
    let beside = |name: &str| {
        let metadata =
            file.has_folder.then(|| fs::metadata(folder_of(&file.path()).join(name)).ok()).flatten()?;
        FileStamp::of(&metadata)
    };
    Some(Stamp {
        transcript: FileStamp::of(metadata)?,
        title: beside(TITLE_FILE),
        archived: beside(ARCHIVED_FILE),
    })
}

impl FileStamp {
    fn of(metadata: &Metadata) -> Option<Self> {
        Some(Self { modified: metadata.modified().ok()?, size: metadata.len() })
    }
}

/// Sidecar with the title, written by newer runtimes.
pub(super) const TITLE_FILE: &str = "custom-title.json";
/// Sidecar that marks a transcript as archived.
pub(super) const ARCHIVED_FILE: &str = "archived.json";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SidecarFile {
    #[serde(default, deserialize_with = "lenient")]
    custom_title: Option<String>,
    #[serde(default, deserialize_with = "flag")]
    archived: bool,
    #[serde(default, deserialize_with = "lenient")]
    at: Option<String>,
}

fn sidecars_of(file: &SessionFile, stamp: Stamp) -> Sidecars {
    let read = |name: &str, stamp: Option<FileStamp>| -> Option<SidecarFile> {
        stamp.filter(|stamp| stamp.size <= SIDECAR_LIMIT)?;
        serde_json::from_slice(&fs::read(folder_of(&file.path()).join(name)).ok()?).ok()
    };
    Sidecars {
        title: read(TITLE_FILE, stamp.title).and_then(|sidecar| sidecar.custom_title),
        archived: read(ARCHIVED_FILE, stamp.archived)
            .and_then(|sidecar| sidecar.at.map(|at| (sidecar.archived, at))),
    }
}
