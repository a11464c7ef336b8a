//! The storage of the edit log: records, contents, operations and reviews.

use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;

use bytes::Bytes;
use uuid::Uuid;

use super::{BlobDigest, EditRecord, FileVersion};
use crate::channel::ChannelUri;

/// Keeps the data of the edit log. The methods block: they are called from threads that may
/// wait for a disk. Each method is one transaction.
pub trait EditStorage: Send + Sync + fmt::Debug + 'static {
    /// Stores contents that are not stored yet.
    fn put_blobs(&self, blobs: Vec<StoredBlob>) -> Result<(), EditStorageError>;

    /// Reads a content; `None` if it is not stored. A content whose digest does not match is an
    /// error.
    fn read_blob(&self, digest: BlobDigest) -> Result<Option<Bytes>, EditStorageError>;

    /// Which of these contents are stored.
    fn stored_blobs(&self, digests: &[BlobDigest]) -> Result<HashSet<BlobDigest>, EditStorageError>;

    /// Appends records, with the contents they refer to, and returns the records' numbers.
    fn append(&self, records: Vec<EditRecord>, blobs: Vec<StoredBlob>) -> Result<Vec<u64>, EditStorageError>;

    /// The records of a session, in order.
    fn records(&self, session: &ChannelUri) -> Result<Vec<EditRecord>, EditStorageError>;

    /// The records of all sessions for these files since a record number, in order.
    fn records_of_paths(&self, paths: &[PathBuf], after: u64) -> Result<Vec<EditRecord>, EditStorageError>;

    /// Stores an operation before its first file is changed, durably, with all contents it needs.
    fn begin_operation(
        &self,
        operation: OperationRecord,
        blobs: Vec<StoredBlob>,
    ) -> Result<(), EditStorageError>;

    /// Marks an operation as done, appends its records, and makes it the last operation of its
    /// session, which a redo takes back. `consumed` is the operation that it took back itself.
    fn finish_operation(
        &self,
        operation: Uuid,
        records: Vec<EditRecord>,
        consumed: Option<Uuid>,
    ) -> Result<(), EditStorageError>;

    /// Deletes an operation that changed nothing.
    fn cancel_operation(&self, operation: Uuid) -> Result<(), EditStorageError>;

    /// Operations that were interrupted by the end of the host.
    fn unfinished_operations(&self) -> Result<Vec<OperationRecord>, EditStorageError>;

    /// The last finished undo or restore of a session that was not taken back.
    fn last_operation(&self, session: &ChannelUri) -> Result<Option<OperationRecord>, EditStorageError>;

    /// Sets or clears reviews.
    fn set_reviews(
        &self,
        session: &ChannelUri,
        reviews: Vec<FileReview>,
        reviewed: bool,
    ) -> Result<(), EditStorageError>;

    /// The reviews of a session.
    fn reviews(&self, session: &ChannelUri) -> Result<Vec<FileReview>, EditStorageError>;

    /// Copies the records of some turns of a chat. `to` is the session and the chat that
    /// receives them.
    fn copy_records(
        &self,
        from: &ChannelUri,
        to: (&ChannelUri, &ChannelUri),
        turns: &[String],
    ) -> Result<(), EditStorageError>;

    /// Assigns a chat's records to another session.
    fn move_records(&self, chat: &ChannelUri, to: &ChannelUri) -> Result<(), EditStorageError>;

    /// Deletes a chat's records. For its contents, see [`Self::remove_session`].
    fn remove_chat(&self, chat: &ChannelUri) -> Result<(), EditStorageError>;

    /// Deletes all data of a session. Contents that only this session refers to are deleted by
    /// the next [`Self::collect_garbage`], even if they were stored recently: only its caller
    /// knows which contents are still held.
    fn remove_session(&self, session: &ChannelUri) -> Result<(), EditStorageError>;

    /// Deletes contents that nothing refers to, except for `held` and for recently stored ones,
    /// then the oldest contents while there are more than the quota.
    fn collect_garbage(&self, held: &HashSet<BlobDigest>) -> Result<GarbageReport, EditStorageError>;
}

/// A content with its digest.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredBlob {
    /// The digest of the content.
    pub digest: BlobDigest,
    /// The content.
    pub content: Bytes,
}

impl StoredBlob {
    /// Computes the digest of a content.
    pub fn new(content: impl Into<Bytes>) -> Self {
        let content = content.into();
        Self { digest: BlobDigest::of(&content), content }
    }
}

impl fmt::Debug for StoredBlob {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "StoredBlob({}, {} bytes)", self.digest, self.content.len())
    }
}

/// An operation that changes files: what to do, and what is needed to repair or take it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationRecord {
    /// Identifies the operation.
    pub id: Uuid,
    /// The session.
    pub session: ChannelUri,
    /// The chat; `None` for the whole session.
    pub chat: Option<ChannelUri>,
    /// What the user did, such as "Undo main.rs".
    pub label: String,
    /// Whether a redo may take it back. A redo itself may not be taken back.
    pub can_redo: bool,
    /// The directories that it may change.
    pub roots: Vec<PathBuf>,
    /// The changes of files.
    pub steps: Vec<OperationStep>,
}

/// The change of one file by an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationStep {
    /// The file.
    pub path: PathBuf,
    /// The file before the operation.
    pub before: FileVersion,
    /// The file after the operation.
    pub after: FileVersion,
    /// How many parent directories are removed if they are empty.
    pub removed_parents: u32,
    /// The records that the operation adds when it is done. Several if it takes back several
    /// turns. The first begins with `before`, the last ends with `after`.
    pub records: Vec<EditRecord>,
}

/// A file that the user reviewed. The review ends when the file changes again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileReview {
    /// The chat; `None` if it was reviewed in a changeset of the whole session.
    pub chat: Option<ChannelUri>,
    /// The turn; `None` if it was reviewed in a changeset of all turns.
    pub turn: Option<String>,
    /// The file.
    pub path: PathBuf,
    /// The number of the last record of the file in the scope when it was reviewed.
    pub through: u64,
}

/// What a garbage collection did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GarbageReport {
    /// Deleted contents that nothing referred to.
    pub unreferenced: u64,
    /// Deleted contents beyond the quota, which records still refer to.
    pub evicted: u64,
    /// Bytes of all contents that are left, compressed.
    pub bytes: u64,
}

/// Why the storage failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditStorageError {
    /// The disk is full.
    #[error("the disk is full; free some space and try again")]
    Full,
    /// A stored content or record is damaged.
    #[error("damaged record in the edit log: {0}")]
    Damaged(String),
    /// The database failed.
    #[error("the edit log failed: {0}")]
    Failed(String),
    /// The host is shutting down.
    #[error("the edit log is closed")]
    Closed,
}
