//! Records the runtimes started by hosts: one file per conversation.
//!
//! Owns the directory of these files and the cleanup after crashed hosts. A file is locked while its
//! runtime runs, so a conversation has at most one runtime; the operating system releases the lock when
//! the host exits for any reason. Invariant: only processes that carry the mark of a file are killed.

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

/// Largest record to read; longer files are not records.
const RECORD_LIMIT: u64 = 64 * 1024;

/// The directory of runtime records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessRegistry {
    directory: PathBuf,
}

/// The result of a sweep.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sweep {
    /// Runtimes of running hosts; left untouched.
    pub live: Vec<RunningRuntime>,
    /// Runtimes of dead hosts, whose processes are all gone now.
    pub ended: Vec<RunningRuntime>,
    /// Number of processes that were killed.
    pub processes: usize,
}

/// Why a conversation cannot be leased.
#[derive(Debug, Error)]
pub enum LeaseError {
    /// Another runtime uses the conversation.
    #[error("the conversation {conversation} is in use{}", by(runtime.as_ref()))]
    InUse {
        /// The conversation.
        conversation: Uuid,
        /// The other runtime, if known.
        runtime: Option<RunningRuntime>,
    },
    /// The registry cannot be written.
    #[error("cannot use the runtime registry in {}", directory.display())]
    Io {
        /// The registry's directory.
        directory: PathBuf,
        /// The system error.
        #[source]
        source: io::Error,
    },
}

fn by(runtime: Option<&RunningRuntime>) -> String {
    let warden = runtime.and_then(|runtime| runtime.warden);
    warden.map(|pid| format!(" by the runtime with warden process {pid}; stop it first")).unwrap_or_default()
}

impl ProcessRegistry {
    /// Uses this directory, which is created when needed.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    /// Kills the remaining processes of dead hosts and deletes their records. Call when a host starts;
    /// runtimes of other running hosts are left untouched. Blocks for some seconds if a process does not
    /// exit.
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

    /// All recorded runtimes, running or not.
    pub fn list(&self) -> io::Result<Vec<RunningRuntime>> {
        Ok(self.files()?.iter().filter_map(|path| Some(read_at(path)?.to_running(path))).collect())
    }

    /// Leases a conversation for a runtime that is about to start. Blocks for some seconds if a dead host
    /// left a runtime running.
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

/// The right to run a runtime for a conversation. Released on drop.
#[derive(Debug)]
pub(crate) struct Lease {
    conversation: Uuid,
    path: PathBuf,
    /// Locked while open.
    file: Mutex<File>,
}

impl Lease {
    /// The leased conversation.
    pub(crate) fn conversation(&self) -> Uuid {
        self.conversation
    }

    /// The registry of the lease.
    pub(crate) fn registry(&self) -> ProcessRegistry {
        ProcessRegistry::new(self.path.parent().unwrap_or(&self.path))
    }

    /// Records the started process. Without the record, leftover processes of this runtime cannot be
    /// found.
    pub(crate) fn note(&self, warden: u32, mark: Uuid) {
        let record = Record::new(self.conversation, warden, mark);
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = write(&mut file, &record) {
            tracing::warn!(path = %self.path.display(), %error, "cannot write runtime record");
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Remove the file while it is locked, so that a new owner's file is not removed.
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "runtime record was already removed");
        }
    }
}

/// The result of locking a file.
enum Locked {
    Ours(File),
    Busy,
}

/// Opens and locks a file, which is created if missing.
fn lock(path: &Path) -> io::Result<Locked> {
    loop {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => return Ok(Locked::Busy),
            Err(TryLockError::Error(error)) => return Err(error),
            // The previous owner may have removed the file after it was opened; the lock is then on an
            // unlinked file.
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
#[path = "process_registry_tests.rs"]
mod tests;
