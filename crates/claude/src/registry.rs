//! What this host started: one file for each conversation that a runtime works on.
//!
//! Owns the directory of these files and the sweep of what an earlier host left behind. A file is locked for
//! as long as its runtime runs, so one conversation has one runtime; the system gives the lock back when the
//! host is gone for whatever reason. The invariant: nothing is ended but processes that bear a file's mark.

mod leftovers;
mod record;

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use thiserror::Error;
use uuid::Uuid;

pub(crate) use leftovers::end_marked;
pub use record::RunningRuntime;

use record::Record;

/// A file that is longer than this is not one of ours.
const RECORD_LIMIT: u64 = 64 * 1024;

/// A directory in which running runtimes are written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registry {
    directory: PathBuf,
}

/// What a sweep found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sweep {
    /// Runtimes of hosts that live; they were left alone.
    pub live: Vec<RunningRuntime>,
    /// Runtimes whose host is gone; nothing of them is left.
    pub ended: Vec<RunningRuntime>,
    /// How many processes had to be ended.
    pub processes: usize,
}

/// Why a conversation cannot be worked on.
#[derive(Debug, Error)]
pub enum LeaseError {
    /// Another runtime works on it.
    #[error("the conversation {conversation} is in use{}", by(runtime.as_ref()))]
    InUse {
        /// The conversation.
        conversation: Uuid,
        /// The other runtime, if that can be told.
        runtime: Option<RunningRuntime>,
    },
    /// The registry cannot be written.
    #[error("the registry of runtimes in {} cannot be used", directory.display())]
    Io {
        /// The registry's directory.
        directory: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

fn by(runtime: Option<&RunningRuntime>) -> String {
    let warden = runtime.and_then(|runtime| runtime.warden);
    warden.map(|pid| format!(" by the runtime of process {pid}; stop that one first")).unwrap_or_default()
}

impl Registry {
    /// The registry in this directory, which is made when it is needed.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    /// Ends what hosts that are gone left behind, and forgets it. To be called when a host starts; runtimes
    /// of other hosts that live are left alone. Blocks for some seconds if something does not want to end.
    pub fn sweep(&self) -> io::Result<Sweep> {
        let mut sweep = Sweep::default();
        for path in self.files()? {
            match lock(&path)? {
                Locked::Busy => sweep.live.extend(read_at(&path).map(|record| record.to_running(&path))),
                Locked::Ours(mut file) => {
                    if let Some(record) = read(&mut file) {
                        sweep.processes += leftovers::end(&record);
                        sweep.ended.push(record.to_running(&path));
                    }
                    std::fs::remove_file(&path)?;
                }
            }
        }
        Ok(sweep)
    }

    /// The runtimes that are written down, alive or not.
    pub fn list(&self) -> io::Result<Vec<RunningRuntime>> {
        Ok(self.files()?.iter().filter_map(|path| Some(read_at(path)?.to_running(path))).collect())
    }

    /// Takes a conversation for a runtime that is about to start. Blocks for some seconds if a host that is
    /// gone left one behind.
    pub(crate) fn lease(&self, conversation: Uuid) -> Result<Lease, LeaseError> {
        let failed = |source| LeaseError::Io { directory: self.directory.clone(), source };
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory).map_err(failed)?;
        let path = self.directory.join(format!("{conversation}.json"));
        match lock(&path).map_err(failed)? {
            Locked::Busy => {
                let runtime = read_at(&path).map(|record| record.to_running(&path));
                Err(LeaseError::InUse { conversation, runtime })
            }
            Locked::Ours(mut file) => {
                if let Some(record) = read(&mut file) {
                    leftovers::end(&record);
                }
                Ok(Lease { conversation, path, file: Mutex::new(file) })
            }
        }
    }

    fn files(&self) -> io::Result<Vec<PathBuf>> {
        let entries = match std::fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut files = Vec::new();
        for entry in entries {
            let path = entry?.path();
            let is_ours = path.extension().is_some_and(|extension| extension == "json")
                && path.file_stem().and_then(|name| name.to_str()?.parse::<Uuid>().ok()).is_some();
            if is_ours {
                files.push(path);
            }
        }
        Ok(files)
    }
}

/// The right to run a runtime for a conversation. Given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    conversation: Uuid,
    path: PathBuf,
    /// Locked for as long as it is open.
    file: Mutex<File>,
}

impl Lease {
    /// The conversation that was taken.
    pub(crate) fn conversation(&self) -> Uuid {
        self.conversation
    }

    /// The registry that it was taken from.
    pub(crate) fn registry(&self) -> Registry {
        Registry::new(self.path.parent().unwrap_or(&self.path))
    }

    /// Writes down the process that was started. Without it a leftover of this runtime could not be found.
    pub(crate) fn note(&self, warden: u32, mark: Uuid) {
        let record = Record::new(self.conversation, warden, mark);
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = write(&mut file, &record) {
            tracing::warn!(path = %self.path.display(), %error, "a runtime could not be written down");
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // While it is still locked, so that nobody else's file is removed.
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "the record of a runtime was gone already");
        }
    }
}

/// Whether a file could be locked.
enum Locked {
    Ours(File),
    Busy,
}

/// Opens and locks a file, which is made if it is missing.
fn lock(path: &Path) -> io::Result<Locked> {
    loop {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => return Ok(Locked::Busy),
            Err(TryLockError::Error(error)) => return Err(error),
            // Whoever had it may have removed it in between; then the lock is on a file without a name.
            Ok(()) if is_at(&file, path) => return Ok(Locked::Ours(file)),
            Ok(()) => {}
        }
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(ours), Ok(theirs)) = (file.metadata(), std::fs::metadata(path)) else { return false };
    (ours.dev(), ours.ino()) == (theirs.dev(), theirs.ino())
}

fn read_at(path: &Path) -> Option<Record> {
    read(&mut File::open(path).ok()?)
}

fn read(file: &mut File) -> Option<Record> {
    let mut text = String::new();
    file.take(RECORD_LIMIT).read_to_string(&mut text).ok()?;
    Record::from_json(&text)
}

fn write(file: &mut File, record: &Record) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(record.to_json().as_bytes())?;
    file.flush()
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
