//! Reading the summaries of many transcripts, and not reading those that did not change.
//!
//! Owns what is remembered of a folder of transcripts: for each file its time and size, and what was found in
//! it then. A transcript is only ever appended to, so a file of the same time and size is the same file.

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

/// How much of a transcript's beginning and of its end is read: enough for a title and a prompt, and the same
/// as the runtime's own tools read, so that both show the same.
const WINDOW: usize = 64 << 10;
/// More threads than this only wait for the same disk.
const THREADS_LIMIT: usize = 8;
/// How many files a thread takes at once: few enough that all threads end together.
const BATCH: usize = 32;
/// A sidecar holds one short object; more than this is not one.
const SIDECAR_LIMIT: u64 = 4096;

/// What is remembered of the transcripts of a folder.
pub(super) type ProjectSessions = HashMap<Uuid, Known>;

/// A transcript in a folder.
#[derive(Debug)]
pub(super) struct SessionFile {
    pub(super) id: Uuid,
    /// Whether there is a folder beside it, in which sidecars may lie.
    pub(super) has_folder: bool,
    place: Place,
}

/// Where a transcript is. An entry of a folder that was just read can be asked for its time and size without
/// the way there being walked again, which is most of the work of a list in which nothing changed.
#[derive(Debug)]
enum Place {
    Entry(DirEntry),
    Path(PathBuf),
}

impl SessionFile {
    /// A transcript that is known by its path.
    pub(super) fn at(id: Uuid, path: PathBuf) -> Self {
        Self { id, has_folder: folder_of(&path).is_dir(), place: Place::Path(path) }
    }

    fn path(&self) -> PathBuf {
        match &self.place {
            Place::Entry(entry) => entry.path(),
            Place::Path(path) => path.clone(),
        }
    }

    fn metadata(&self) -> io::Result<Metadata> {
        match &self.place {
            Place::Entry(entry) => match entry.metadata()? {
                link if link.is_symlink() => fs::metadata(entry.path()),
                metadata => Ok(metadata),
            },
            Place::Path(path) => fs::metadata(path),
        }
    }
}

/// What was found in a transcript when it had that time and size.
#[derive(Debug, Clone)]
pub(super) struct Known {
    stamp: Stamp,
    pub(super) has_folder: bool,
    pub(super) continued_in: Option<Uuid>,
    /// Absent if the transcript has nothing to list.
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

/// The folder beside a transcript.
pub(super) fn folder_of(transcript: &Path) -> PathBuf {
    transcript.with_extension("")
}

/// The conversation that a file name belongs to.
pub(super) fn session_of_file(name: &str) -> Option<Uuid> {
    session_of_folder(name.strip_suffix(".jsonl")?)
}

/// The conversation that a folder name belongs to.
pub(super) fn session_of_folder(name: &str) -> Option<Uuid> {
    // Other spellings of an id are not names that the runtime uses.
    (name.len() == 36).then(|| Uuid::try_parse(name).ok()).flatten()
}

/// The transcripts of a folder; none if it cannot be read.
pub(super) fn session_files(project: &Path) -> Vec<SessionFile> {
    let mut files = Vec::new();
    let mut folders = HashSet::new();
    for entry in fs::read_dir(project).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if let Some(id) = session_of_file(name) {
            files.push(SessionFile { id, has_folder: false, place: Place::Entry(entry) });
        } else if let Some(id) = session_of_folder(name) {
            folders.insert(id);
        }
    }
    for file in &mut files {
        file.has_folder = folders.contains(&file.id);
    }
    files
}

/// Brings what is known about files up to date. `known` gives what was known about a file before; a file that is
/// gone or cannot be read has no answer.
pub(super) fn scan<'a>(
    files: &[SessionFile],
    known: &(dyn Fn(usize) -> Option<&'a Known> + Sync),
) -> Vec<Option<Known>> {
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
    let mut place = |done: Vec<(usize, Option<Known>)>| {
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
            // A thread that panicked leaves its files unlisted; the hook has reported it.
            place(other.join().unwrap_or_default());
        }
    });
    results
}

/// Brings what is known about one file up to date.
pub(super) fn scan_one(file: &SessionFile, known: Option<&Known>) -> Option<Known> {
    Scanner::default().refresh(file, known)
}

/// Reads transcripts one after the other into the same memory.
#[derive(Default)]
struct Scanner {
    buffer: Vec<u8>,
}

impl Scanner {
    fn refresh(&mut self, file: &SessionFile, known: Option<&Known>) -> Option<Known> {
        if let Some(known) = known
            && let Ok(metadata) = file.metadata()
            && stamp_of(file, &metadata).is_some_and(|stamp| stamp == known.stamp)
        {
            return Some(known.clone());
        }
        match self.read(file) {
            Ok(fresh) => fresh,
            Err(error) => {
                tracing::debug!(path = %file.path().display(), %error, "a transcript cannot be read");
                None
            }
        }
    }

    fn read(&mut self, file: &SessionFile) -> io::Result<Option<Known>> {
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
        Ok(Some(Known { stamp, has_folder: file.has_folder, continued_in, summary }))
    }

    /// Reads the two ends of a file; a short one is read once.
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

/// Reads until the buffer is full or the file ends; a file may shrink while it is read.
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

/// The stamp of a transcript and of what lies beside it; `None` where the system keeps no times.
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

/// Beside a transcript: the title that newer runtimes keep there.
pub(super) const TITLE_FILE: &str = "custom-title.json";
/// Beside a transcript: whether it is archived.
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
