//! What was asked for, so that a failure of the system can be told in its words.

use innkeeper_core::files::{Access, FileError};
use nix::errno::Errno;

use crate::beneath;

/// What is told of an operation that the end of the host cuts short.
pub(crate) const STOPPING: &str = "the host is stopping; try again when it is back";

/// A resource as a client named it, and what is to be done with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) uri: &'a str,
    access: Access,
}

impl<'a> Asked<'a> {
    pub(crate) fn to_read(uri: &'a str) -> Self {
        Self { uri, access: Access::Read }
    }

    pub(crate) fn to_write(uri: &'a str) -> Self {
        Self { uri, access: Access::Write }
    }

    pub(crate) fn denied(self, reason: &'static str) -> FileError {
        FileError::Denied { uri: self.uri.to_owned(), access: self.access, reason }
    }

    pub(crate) fn not_found(self) -> FileError {
        FileError::NotFound(self.uri.to_owned())
    }

    pub(crate) fn exists(self) -> FileError {
        FileError::Exists(self.uri.to_owned())
    }

    pub(crate) fn invalid(self, why: &str) -> FileError {
        FileError::Invalid(format!("{} {why}", self.uri))
    }

    pub(crate) fn too_large(self, limit: &'static str) -> FileError {
        FileError::TooLarge { what: self.uri.to_owned(), limit }
    }

    /// What a system call's failure means for whoever asked.
    pub(crate) fn failed(self, errno: Errno) -> FileError {
        // Hundreds of numbers, of which a few mean something to a client.
        #[expect(clippy::wildcard_enum_match_arm, reason = "the system's own list of errors")]
        match errno {
            Errno::ENOENT => self.not_found(),
            Errno::EEXIST => self.exists(),
            Errno::ENOTDIR => FileError::NotADirectory(self.uri.to_owned()),
            Errno::EACCES | Errno::EPERM => self.denied("the system does not permit it"),
            beneath::KERNEL_VIEW => self.denied("it is no file, but what the system shows of itself"),
            Errno::EROFS => self.denied("the file system is read-only"),
            // Links are resolved before anything is opened, so one that is met
            // while opening was put there meanwhile or leads nowhere.
            Errno::ELOOP | Errno::EXDEV => self.denied("a link on the way leads nowhere or was just changed"),
            Errno::ENAMETOOLONG => self.invalid("has a name that is too long"),
            Errno::ENOTEMPTY => self.invalid("is not empty; delete it recursively"),
            Errno::EISDIR => self.invalid("is a directory"),
            Errno::EINVAL => self.invalid("is not accepted by the file system"),
            Errno::ENOSPC | Errno::EDQUOT => self.io("the disk is full; free some space and try again"),
            other => self.io(other.desc()),
        }
    }

    /// The same for a failure that the standard library reports.
    pub(crate) fn broke(self, error: &std::io::Error) -> FileError {
        match error.raw_os_error() {
            Some(number) => self.failed(Errno::from_raw(number)),
            None => self.io(&error.to_string()),
        }
    }

    /// Too little of the disk would be left free.
    pub(crate) fn no_room(self) -> FileError {
        self.io("the disk is almost full, so nothing is copied; free some space and try again")
    }

    /// The host is stopping.
    pub(crate) fn stopped(self) -> FileError {
        self.io(STOPPING)
    }

    fn io(self, reason: &str) -> FileError {
        FileError::Io { uri: self.uri.to_owned(), reason: reason.to_owned() }
    }
}
