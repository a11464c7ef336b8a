//! How an agent reports the calls that may change files.

use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use ahp_types::state::FileEdit;
use bytes::Bytes;

use super::EditSource;
use crate::agent::BoxFuture;
use crate::channel::ChannelUri;
use crate::ids::TurnId;

/// What a recorder works for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditScope {
    /// The session.
    pub session: ChannelUri,
    /// The chat.
    pub chat: ChannelUri,
    /// The working directories. Changes outside of them are not recorded.
    pub roots: Vec<PathBuf>,
}

/// Records the edits of one chat's agent. An agent calls it for each tool call; a recorder
/// that cannot record reports why in the records, and never fails a call.
pub trait EditRecorder: Send + Sync + fmt::Debug {
    /// A turn begins. The contents of the directories are recorded in the background from the
    /// first turn on.
    fn begin_turn(&self, turn: &TurnId);

    /// Reads what a call is about to change. The call may run when the future completes.
    /// Calling it again for the same call replaces what was read.
    fn before_call(&self, call: TrackedCall) -> BoxFuture<()>;

    /// Records what a call changed, and returns it for the call's result. The edits are stored
    /// when the future completes. Returns nothing for a call that was not announced.
    fn after_call(&self, tool_call: String, outcome: CallOutcome) -> BoxFuture<Vec<RecordedEdit>>;

    /// A call that continued in the background has ended. Its edits belong to its turn.
    fn background_ended(&self, tool_call: String) -> BoxFuture<()>;

    /// What edits would change, without making them. The contents are kept until the turn ends.
    fn preview(&self, turn: TurnId, planned: Vec<PlannedEdit>) -> BoxFuture<Vec<RecordedEdit>>;

    /// A turn has ended; calls without a result have ended, too, except those in the background and
    /// the named ones, which subagents make that continue.
    fn end_turn(&self, turn: TurnId, continuing: HashSet<String>) -> BoxFuture<()>;
}

/// A call that may change files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackedCall {
    /// The turn.
    pub turn: TurnId,
    /// The call.
    pub tool_call: String,
    /// What it may change.
    pub reach: EditReach,
}

/// The files that a call may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditReach {
    /// These files, given as the agent names them, with absolute paths.
    Files(Vec<PathBuf>),
    /// Any file in the working directories.
    AnyFile,
    /// Any file in the working directories, and the call may already be running: changes since
    /// the directories were last read belong to it.
    AnyFileAlready,
}

/// How a call ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallOutcome {
    /// Whether it continues in the background.
    pub in_background: bool,
    /// The file that the agent says it changed, with the content before (`None`: it did not
    /// exist). Used if the call was not announced, and checked otherwise.
    pub original: Option<(PathBuf, Option<Bytes>)>,
}

/// An edit that is only planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedEdit {
    /// The file.
    pub path: PathBuf,
    /// How its content changes.
    pub change: PlannedChange,
}

/// How a planned edit changes the content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlannedChange {
    /// Replaces everything.
    Write(Bytes),
    /// Replaces pieces of text, one after the other.
    Replace(Vec<PlannedReplacement>),
}

/// The replacement of a piece of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedReplacement {
    /// The text to find; empty for a new file.
    pub old: String,
    /// The text to put in its place.
    pub new: String,
    /// Whether all occurrences are replaced.
    pub all: bool,
}

/// A recorded or planned edit, for a tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedEdit {
    /// The edit with the addresses of its contents and its line counts.
    pub edit: FileEdit,
    /// What made it.
    pub source: EditSource,
}

/// A recorder that records nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRecorder;

impl NoRecorder {
    /// A shared instance.
    pub fn shared() -> Arc<dyn EditRecorder> {
        Arc::new(Self)
    }
}

impl EditRecorder for NoRecorder {
    fn begin_turn(&self, _: &TurnId) {}

    fn before_call(&self, _: TrackedCall) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }

    fn after_call(&self, _: String, _: CallOutcome) -> BoxFuture<Vec<RecordedEdit>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    fn background_ended(&self, _: String) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }

    fn preview(&self, _: TurnId, _: Vec<PlannedEdit>) -> BoxFuture<Vec<RecordedEdit>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    fn end_turn(&self, _: TurnId, _: HashSet<String>) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }
}
