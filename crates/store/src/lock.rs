//! Ensures one host per data directory, with a lock that the operating system releases
//! when the process exits.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;

/// Maximum length of a process id read from the lock file.
const LONGEST_PID: u64 = 20;

/// Why the lock was not taken.
#[derive(Debug)]
pub(crate) enum NotLocked {
    /// Another process holds it; its process id, if it could be read.
    Taken(Option<u32>),
    /// The lock file is a symbolic link.
    Link,
    /// The lock file cannot be used.
    Io(io::Error),
}

/// A held lock, released when dropped.
#[derive(Debug)]
pub(crate) struct HostLock {
    /// Never read: the lock is held as long as the file is open.
    _file: File,
}

impl HostLock {
    /// Takes the lock and writes the process id to the file.
    pub(crate) fn take(path: &Path) -> Result<Self, NotLocked> {
        let opened = private().custom_flags(OFlag::O_NOFOLLOW.bits()).open(path);
        let mut file = opened.map_err(|error| match error.raw_os_error() {
            Some(code) if code == Errno::ELOOP as i32 => NotLocked::Link,
            _ => NotLocked::Io(error),
        })?;
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

/// Options for files in the data directory: created if missing, accessible only to this
/// user.
pub(crate) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.mode(0o600);
    options
}

fn read_pid(file: &File) -> Option<u32> {
    let mut text = String::new();
    file.take(LONGEST_PID).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
