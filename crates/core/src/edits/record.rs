//! Records of edits: one change of one file.

use std::path::PathBuf;

use uuid::Uuid;

use super::BlobDigest;
use crate::channel::ChannelUri;

/// One change of one file. Records are ordered by their number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditRecord {
    /// The position in the log, assigned by the storage; 0 before that.
    pub number: u64,
    /// The session.
    pub session: ChannelUri,
    /// The chat.
    pub chat: ChannelUri,
    /// The turn that made the change. For an undo, the turn whose change was taken back. Empty
    /// for a change between turns.
    pub turn: String,
    /// The tool call that made the change.
    pub tool_call: Option<String>,
    /// What made the change.
    pub source: EditSource,
    /// The absolute path, with the links of its directory resolved.
    pub path: PathBuf,
    /// The file before the change.
    pub before: FileVersion,
    /// The file after the change.
    pub after: FileVersion,
    /// How many of the parent directories did not exist before.
    pub new_parents: u32,
    /// Whether another chat or call may have made the change or a part of it.
    pub overlaps: bool,
    /// The operation that made the change, for an undo or redo.
    pub operation: Option<Uuid>,
    /// When it was recorded, in milliseconds since 1970.
    pub recorded_at: i64,
}

/// What made a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EditSource {
    /// A tool that edits files and names them.
    Tool,
    /// A command, or another tool or hook that can change any file.
    Shell,
    /// Not the agent: the user or another program.
    External,
    /// An undo of a client.
    Undo,
    /// A redo of a client.
    Redo,
}

impl EditSource {
    /// The name in storage and in `_meta`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Shell => "shell",
            Self::External => "external",
            Self::Undo => "undo",
            Self::Redo => "redo",
        }
    }

    /// Parses a stored name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Tool, Self::Shell, Self::External, Self::Undo, Self::Redo]
            .into_iter()
            .find(|source| source.as_str() == name)
    }
}

/// A file at one time. Equal versions have equal bytes and mode.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FileVersion {
    /// There is no file.
    Absent,
    /// A regular file.
    File {
        /// The digest of its content.
        blob: BlobDigest,
        /// Its size in bytes.
        size: u64,
        /// Its permission bits.
        mode: u32,
        /// Whether its content is stored. The content of a very large file is not.
        stored: bool,
    },
    /// A symbolic link.
    Link {
        /// Its target, as stored in the link.
        target: PathBuf,
    },
    /// There may be a file, but its content is not known.
    Unknown(UnknownContent),
}

impl FileVersion {
    /// The digest of its stored content.
    pub fn stored_blob(&self) -> Option<BlobDigest> {
        match self {
            Self::File { blob, stored: true, .. } => Some(*blob),
            Self::File { stored: false, .. } | Self::Absent | Self::Link { .. } | Self::Unknown(_) => None,
        }
    }
}

/// Why a content is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnknownContent {
    /// The command ran before the contents of its directory were recorded.
    NotReady,
    /// The directory has more files than the limit.
    TooManyFiles,
    /// The file is larger than the limit.
    FileTooLarge,
    /// The files of the directory are larger than the limit.
    RootTooLarge,
    /// The file could not be read.
    Unreadable,
    /// The content was removed from storage to free space.
    Evicted,
}

impl UnknownContent {
    const ALL: [Self; 6] = [
        Self::NotReady,
        Self::TooManyFiles,
        Self::FileTooLarge,
        Self::RootTooLarge,
        Self::Unreadable,
        Self::Evicted,
    ];

    /// The name in storage and in `_meta`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotReady => "not-ready",
            Self::TooManyFiles => "too-many-files",
            Self::FileTooLarge => "file-too-large",
            Self::RootTooLarge => "root-too-large",
            Self::Unreadable => "unreadable",
            Self::Evicted => "evicted",
        }
    }

    /// Parses a stored name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == name)
    }

    /// The reason as text for the user.
    pub fn explanation(self) -> &'static str {
        match self {
            Self::NotReady => "its content was not recorded before the command ran",
            Self::TooManyFiles => "the directory has more files than edits.max_files",
            Self::FileTooLarge => "the file is larger than edits.max_file_size_kib",
            Self::RootTooLarge => "the directory is larger than edits.max_root_size_mib",
            Self::Unreadable => "the file could not be read",
            Self::Evicted => "its content was removed to free space",
        }
    }
}
