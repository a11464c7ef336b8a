//! One host per data directory: a lock that the operating system releases with the process.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

/// The longest process number that is read from somebody else's lock file.
const LONGEST_PID: u64 = 20;

/// Why the lock was not taken.
#[derive(Debug)]
pub(crate) enum NotLocked {
    /// Somebody else has it; their process number, if they wrote it down.
    Taken(Option<u32>),
    /// The file cannot be used.
    Io(io::Error),
}

/// A held lock; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct HostLock {
    /// Never read: the lock lives as long as the open file.
    _file: File,
}

impl HostLock {
    /// Takes the lock, and writes down who has it.
    pub(crate) fn take(path: &Path) -> Result<Self, NotLocked> {
        let mut file = private().open(path).map_err(NotLocked::Io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(NotLocked::Taken(read_pid(&file))),
            Err(TryLockError::Error(error)) => return Err(NotLocked::Io(error)),
        }
        file.set_len(0).map_err(NotLocked::Io)?;
        file.seek(SeekFrom::Start(0)).map_err(NotLocked::Io)?;
        writeln!(file, "{}", std::process::id()).map_err(NotLocked::Io)?;
        Ok(Self { _file: file })
    }
}

/// How files of a data directory are opened: made if need be, for this user alone.
pub(crate) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    options
}

fn read_pid(file: &File) -> Option<u32> {
    let mut text = String::new();
    file.take(LONGEST_PID).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
