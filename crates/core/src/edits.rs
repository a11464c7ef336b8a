//! File edits of agents: what each turn changed, and how it is taken back.
//!
//! An agent reports its tool calls to an [`EditRecorder`], which records the content of the
//! changed files before and after each call. Clients see the records as changesets and undo
//! them through the [`EditLog`]. [`EditStorage`] keeps records and contents.
//!
//! Invariants: a record never changes, and an undo adds records. The content before a call is
//! stored before the call runs, and the content after it before its result is published.

mod blob;
mod changes;
mod log;
mod record;
mod recorder;
mod storage;

pub use blob::{BlobDigest, BlobUri, DiffUri, MalformedBlobUri};
pub use changes::{
    ChangeCounts, ChangeList, ChangeOperation, ChangeScope, ChangeSelection, ChangedFile, EditConflict,
    OperationKind, OperationReport, OperationTarget, SessionChangeCounts,
};
pub use log::{EditError, EditLog, NoEdits};
pub use record::{EditRecord, EditSource, FileVersion, UnknownContent};
pub use recorder::{
    CallOutcome, EditReach, EditRecorder, EditScope, NoRecorder, PlannedChange, PlannedEdit,
    PlannedReplacement, RecordedEdit, TrackedCall,
};
pub use storage::{
    EditStorage, EditStorageError, FileReview, GarbageReport, OperationRecord, OperationStep, StoredBlob,
};
