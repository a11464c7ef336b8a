//! The port to the files of this machine: what clients may read, change and watch.
//!
//! Owns the names of the operations and of their failures. Which places are
//! allowed, and how a path is opened without being led astray, belongs to whoever
//! implements the port. Resources are named by `file:` addresses, as on the wire.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;

use ahp_types::common::Uri;
use bytes::Bytes;
use jiff::Timestamp;

use crate::agent::BoxFuture;

/// The files that clients may reach. Every operation checks its addresses anew,
/// since sessions and their directories come and go.
pub trait Files: Send + Sync + fmt::Debug + 'static {
    /// The content of a regular file.
    fn read(&self, uri: Uri) -> BoxFuture<Result<FileContent, FileError>>;

    /// Changes or creates a regular file.
    fn write(&self, write: FileWrite) -> BoxFuture<Result<(), FileError>>;

    /// What is in a directory, sorted by name.
    fn list(&self, uri: Uri) -> BoxFuture<Result<Vec<FileEntry>, FileError>>;

    /// What is known about a resource, and its canonical address.
    fn resolve(&self, uri: Uri, links: Links) -> BoxFuture<Result<FileStatus, FileError>>;

    /// Copies a file, a link or a directory with all that is in it.
    fn copy(&self, transfer: Transfer) -> BoxFuture<Result<(), FileError>>;

    /// Moves a file, a link or a directory with all that is in it.
    fn relocate(&self, transfer: Transfer) -> BoxFuture<Result<(), FileError>>;

    /// Deletes a file, a link or a directory.
    fn delete(&self, uri: Uri, extent: Extent) -> BoxFuture<Result<(), FileError>>;

    /// Makes a directory and those that it is in. One that exists is fine.
    fn make_directory(&self, uri: Uri) -> BoxFuture<Result<(), FileError>>;

    /// Whether a resource, which need not exist, is in a place that is allowed.
    fn check(&self, uri: Uri) -> BoxFuture<Result<(), FileError>>;

    /// Watches a file or a directory until the watch is dropped.
    fn watch(&self, request: WatchRequest) -> BoxFuture<Result<Box<dyn FileWatch>, FileError>>;

    /// Files below a directory whose path has something of `partial` in it, best
    /// first. Best effort: it looks at no more than it can in a moment, and finds
    /// nothing in a directory that is not allowed.
    fn search(&self, directory: PathBuf, partial: String) -> BoxFuture<Vec<FoundFile>>;
}

/// A watch of the file system. Dropping it releases what the system holds for it.
pub trait FileWatch: Send + fmt::Debug {
    /// Waits for changes and answers a batch of them, which is never empty; nothing once
    /// the watched resource is in no allowed place any more, which ends the watch.
    /// Cancel-safe: what was not answered comes with the next batch.
    fn changes(&mut self) -> Pin<Box<dyn Future<Output = Option<Vec<FileChange>>> + Send + '_>>;
}

/// Why something about files could not be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// There is nothing at this address.
    #[error("there is no {0}")]
    NotFound(Uri),
    /// The place is not one that clients may reach, or the system forbids it.
    #[error("{uri} may not be accessed: {reason}")]
    Denied {
        /// What was asked for.
        uri: Uri,
        /// Whether it was to be changed.
        access: Access,
        /// Why not.
        reason: &'static str,
    },
    /// Something is there already and may not be replaced.
    #[error("{0} exists already")]
    Exists(Uri),
    /// The file is not the one that the caller has seen.
    #[error("{0} was changed meanwhile; resolve it again and repeat the change")]
    Conflict(Uri),
    /// More than is handled in one go.
    #[error("{what} is too large: at most {limit} are handled here")]
    TooLarge {
        /// What is too large.
        what: String,
        /// How much would be taken, with its unit.
        limit: &'static str,
    },
    /// A directory is needed.
    #[error("{0} is not a directory")]
    NotADirectory(Uri),
    /// The request cannot be right.
    #[error("{0}")]
    Invalid(String),
    /// The system failed.
    #[error("{uri}: {reason}")]
    Io {
        /// What it was about.
        uri: Uri,
        /// What the system says.
        reason: String,
    },
}

/// What an operation does with a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It looks at it.
    Read,
    /// It changes it.
    Write,
}

/// What is in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileContent {
    /// The content.
    pub bytes: Bytes,
    /// Its media type, if the name tells.
    pub content_type: Option<&'static str>,
}

/// A change of a file's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileWrite {
    /// The file.
    pub uri: Uri,
    /// What is written.
    pub data: Bytes,
    /// Where it goes.
    pub place: WritePlace,
    /// What must hold before anything is written.
    pub condition: WriteCondition,
}

/// Where written bytes go, with positions in bytes. A position outside of the file
/// is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritePlace {
    /// In place of everything from this position on.
    Truncate(u64),
    /// So many bytes before the end.
    Append(u64),
    /// Between the bytes before this position and those from it on.
    Insert(u64),
}

/// What must hold before a file is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteCondition {
    /// Nothing.
    Always,
    /// The file does not exist yet.
    IsNew,
    /// The file's mark is still this one.
    Matches(String),
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEntry {
    /// Its name in the directory.
    pub name: String,
    /// What it is.
    pub kind: FileKind,
}

/// What a resource is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A pipe, a socket or a device, which can be seen but not opened.
    Other,
}

/// Whether a link at the end of a path is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// What it leads to is meant.
    Follow,
    /// It is meant itself.
    Keep,
}

/// What is known about a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStatus {
    /// Its address without links on the way.
    pub uri: Uri,
    /// What it is.
    pub kind: FileKind,
    /// Its size in bytes, if it has one.
    pub size: Option<u64>,
    /// When its content changed last.
    pub modified: Option<Timestamp>,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// Its media type, if the name tells.
    pub content_type: Option<&'static str>,
    /// Changes whenever the content does.
    pub etag: Option<String>,
}

/// A copy or a move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// From where.
    pub source: Uri,
    /// To where.
    pub destination: Uri,
    /// What happens to something that is there already.
    pub existing: Existing,
}

/// What happens to something that is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It is replaced.
    Replace,
    /// It stays, and the operation fails.
    Keep,
}

/// How much is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// A directory only if nothing is in it.
    Single,
    /// A directory with everything in it.
    Recursive,
}

/// What is to be watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchRequest {
    /// The file or directory.
    pub uri: Uri,
    /// How far below a directory.
    pub reach: Reach,
    /// Only what one of these patterns matches; everything if there is none.
    pub includes: Vec<String>,
    /// Not what one of these patterns matches.
    pub excludes: Vec<String>,
}

/// How far a watch reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// A directory and its entries.
    Entries,
    /// Everything below a directory.
    Descendants,
}

/// A change that a watch saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    /// What changed.
    pub uri: Uri,
    /// How.
    pub kind: ChangeKind,
}

/// How something changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It is there now.
    Added,
    /// It is another.
    Updated,
    /// It is gone.
    Deleted,
}

/// A file that a search found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundFile {
    /// Its path below the directory that was searched, with slashes.
    pub path: String,
    /// Its address.
    pub uri: Uri,
    /// What it is: a file or a directory.
    pub kind: FileKind,
}
