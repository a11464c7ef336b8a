//! Interface for files on this machine: the operations that clients may request.
//!
//! Defines the operations and their errors. The implementation decides which paths are
//! allowed, and opens them so that links cannot lead outside of those. Resources are
//! named by `file:` URIs, as in the protocol.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;

use ahp_types::common::Uri;
use bytes::Bytes;
use jiff::Timestamp;

use crate::agent::BoxFuture;

/// The files that clients may access. Every operation checks its URIs again, because
/// sessions and their directories change.
pub trait Files: Send + Sync + fmt::Debug + 'static {
    /// Reads a regular file.
    fn read(&self, uri: Uri) -> BoxFuture<Result<FileContent, FileError>>;

    /// Writes or creates a regular file.
    fn write(&self, write: FileWrite) -> BoxFuture<Result<(), FileError>>;

    /// Lists a directory, sorted by name.
    fn list(&self, uri: Uri) -> BoxFuture<Result<Vec<FileEntry>, FileError>>;

    /// Returns the metadata of a resource and its canonical URI.
    fn resolve(&self, uri: Uri, links: Links) -> BoxFuture<Result<FileStatus, FileError>>;

    /// Copies a file, a link or a directory with its content.
    fn copy(&self, transfer: Transfer) -> BoxFuture<Result<(), FileError>>;

    /// Moves a file, a link or a directory with its content.
    fn relocate(&self, transfer: Transfer) -> BoxFuture<Result<(), FileError>>;

    /// Deletes a file, a link or a directory.
    fn delete(&self, uri: Uri, extent: Extent) -> BoxFuture<Result<(), FileError>>;

    /// Creates a directory and its missing parents. Succeeds if it exists.
    fn make_directory(&self, uri: Uri) -> BoxFuture<Result<(), FileError>>;

    /// Checks that a resource, which need not exist, is in an allowed directory.
    fn check(&self, uri: Uri) -> BoxFuture<Result<(), FileError>>;

    /// Watches a file or directory until the watch is dropped.
    fn watch(&self, request: WatchRequest) -> BoxFuture<Result<Box<dyn FileWatch>, FileError>>;

    /// Finds files below a directory whose path matches `partial`, best match first. Best
    /// effort: the search is limited in time, and returns nothing for a directory that is
    /// not allowed.
    fn search(&self, directory: PathBuf, partial: String) -> BoxFuture<Vec<FoundFile>>;
}

/// A file system watch. Dropping it releases its system resources.
pub trait FileWatch: Send + fmt::Debug {
    /// Waits for changes and returns a batch of them, which is never empty. Returns
    /// `None`, which ends the watch, once the watched resource is no longer in an allowed
    /// directory. Cancel-safe: changes that were not returned are in the next batch.
    fn changes(&mut self) -> Pin<Box<dyn Future<Output = Option<Vec<FileChange>>> + Send + '_>>;
}

/// Why a file operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// The resource does not exist.
    #[error("{0} does not exist")]
    NotFound(Uri),
    /// The resource is not in an allowed directory, or the system denied access.
    #[error("cannot access {uri}: {reason}")]
    Denied {
        /// The requested resource.
        uri: Uri,
        /// The requested access.
        access: Access,
        /// Why access was denied.
        reason: &'static str,
    },
    /// The resource exists and may not be replaced.
    #[error("{0} already exists")]
    Exists(Uri),
    /// The file changed since the caller read its etag.
    #[error("{0} was changed by another writer; resolve it again and repeat the change")]
    Conflict(Uri),
    /// The resource exceeds a size limit.
    #[error("{what} is too large; the limit is {limit}")]
    TooLarge {
        /// The resource that is too large.
        what: String,
        /// The limit, with its unit.
        limit: &'static str,
    },
    /// The resource must be a directory.
    #[error("{0} is not a directory")]
    NotADirectory(Uri),
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// A system call failed.
    #[error("{uri}: {reason}")]
    Io {
        /// The affected resource.
        uri: Uri,
        /// The system's error text.
        reason: String,
    },
}

/// The kind of access that an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads the resource.
    Read,
    /// Changes the resource.
    Write,
}

/// The content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileContent {
    /// The content.
    pub bytes: Bytes,
    /// The media type, if the file name determines it.
    pub content_type: Option<&'static str>,
}

/// A write to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileWrite {
    /// The file.
    pub uri: Uri,
    /// The bytes to write.
    pub data: Bytes,
    /// The position of the bytes in the file.
    pub place: WritePlace,
    /// The precondition of the write.
    pub condition: WriteCondition,
}

/// Where bytes are written, in byte offsets. An offset outside of the file is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritePlace {
    /// Replaces everything from this offset on.
    Truncate(u64),
    /// Inserts the bytes this many bytes before the end.
    Append(u64),
    /// Inserts the bytes at this offset.
    Insert(u64),
}

/// The precondition of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteCondition {
    /// No precondition.
    Always,
    /// The file does not exist yet.
    IsNew,
    /// The file still has this etag.
    Matches(String),
}

/// A directory entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEntry {
    /// The file name.
    pub name: String,
    /// The type of the entry.
    pub kind: FileKind,
}

/// The type of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A pipe, socket or device. Visible, but cannot be opened.
    Other,
}

/// Whether a symbolic link at the end of a path is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// Uses the link's target.
    Follow,
    /// Uses the link itself.
    Keep,
}

/// The metadata of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStatus {
    /// The canonical URI, with links resolved.
    pub uri: Uri,
    /// The type of the resource.
    pub kind: FileKind,
    /// The size in bytes, if the type has one.
    pub size: Option<u64>,
    /// Time of the last content change.
    pub modified: Option<Timestamp>,
    /// Time of creation.
    pub created: Option<Timestamp>,
    /// The media type, if the file name determines it.
    pub content_type: Option<&'static str>,
    /// A value that changes whenever the content does.
    pub etag: Option<String>,
}

/// A copy or move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The source.
    pub source: Uri,
    /// The destination.
    pub destination: Uri,
    /// What to do with an existing destination.
    pub existing: Existing,
}

/// What to do with an existing destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Replaces it.
    Replace,
    /// Keeps it and fails.
    Keep,
}

/// The extent of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Deletes a directory only if it is empty.
    Single,
    /// Deletes a directory with its content.
    Recursive,
}

/// The parameters of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchRequest {
    /// The file or directory to watch.
    pub uri: Uri,
    /// The depth below a directory.
    pub reach: Reach,
    /// Patterns of paths to report; if empty, all paths.
    pub includes: Vec<String>,
    /// Patterns of paths to ignore.
    pub excludes: Vec<String>,
}

/// The depth of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// A directory and its entries.
    Entries,
    /// Everything below a directory.
    Descendants,
}

/// A change reported by a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    /// The changed resource.
    pub uri: Uri,
    /// The kind of change.
    pub kind: ChangeKind,
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// The resource was created.
    Added,
    /// The content changed.
    Updated,
    /// The resource was deleted.
    Deleted,
}

/// A search result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundFile {
    /// The path relative to the searched directory, with slashes.
    pub path: String,
    /// The URI.
    pub uri: Uri,
    /// File or directory.
    pub kind: FileKind,
}
