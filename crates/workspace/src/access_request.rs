//! The resource and access of a request, used to create its errors.

use innkeeper_core::files::{Access, FileError};
use nix::errno::Errno;

use crate::beneath;

/// The error text of an operation that is cancelled by a shutdown.
pub(crate) const STOPPING: &str = "the host is shutting down; try again later";

/// The requested resource, as the client named it, and the requested access.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AccessRequest<'a> {
    pub(crate) uri: &'a str,
    access: Access,
}

impl<'a> AccessRequest<'a> {
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

    /// Converts the error of a system call.
    pub(crate) fn failed(self, errno: Errno) -> FileError {
        // Only a few of the hundreds of error numbers are meaningful to a client.
        #[expect(clippy::wildcard_enum_match_arm, reason = "the system's own list of errors")]
        match errno {
            Errno::ENOENT => self.not_found(),
            Errno::EEXIST => self.exists(),
            Errno::ENOTDIR => FileError::NotADirectory(self.uri.to_owned()),
            Errno::EACCES | Errno::EPERM => self.denied("permission denied by the system"),
            beneath::KERNEL_VIEW => self.denied("it is not a file but a kernel interface"),
            Errno::EROFS => self.denied("the file system is read-only"),
            // Links are resolved before opening. A link found while opening was created
            // since then, or is dangling.
            Errno::ELOOP | Errno::EXDEV => {
                self.denied("a symbolic link in the path is dangling or was just changed")
            }
            Errno::ENAMETOOLONG => self.invalid("has a name that is too long"),
            Errno::ENOTEMPTY => self.invalid("is not empty; delete it recursively"),
            Errno::EISDIR => self.invalid("is a directory"),
            Errno::EINVAL => self.invalid("was rejected by the file system"),
            Errno::ENOSPC | Errno::EDQUOT => self.io("the disk is full; free some space and try again"),
            other => self.io(other.desc()),
        }
    }

    /// Converts an error of the standard library.
    pub(crate) fn failed_io(self, error: &std::io::Error) -> FileError {
        match error.raw_os_error() {
            Some(number) => self.failed(Errno::from_raw(number)),
            None => self.io(&error.to_string()),
        }
    }

    /// The disk would have too little free space left.
    pub(crate) fn no_room(self) -> FileError {
        self.io("the disk is almost full and nothing was copied; free some space and try again")
    }

    /// The host is shutting down.
    pub(crate) fn stopped(self) -> FileError {
        self.io(STOPPING)
    }

    fn io(self, reason: &str) -> FileError {
        FileError::Io { uri: self.uri.to_owned(), reason: reason.to_owned() }
    }
}
