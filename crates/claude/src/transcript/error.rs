//! Transcript errors.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why a transcript operation failed.
#[derive(Debug, Error)]
pub enum TranscriptError {
    /// The transcript does not exist or is empty.
    #[error("no transcript at {}", path.display())]
    NotFound {
        /// The given path.
        path: PathBuf,
    },
    /// The file name is not a conversation id.
    #[error("{} is not a transcript; expected the name <conversation id>.jsonl", path.display())]
    NotATranscript {
        /// The given path.
        path: PathBuf,
    },
    /// A file system operation failed.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// The operation.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system error.
        #[source]
        source: io::Error,
    },
    /// The title has no visible character.
    #[error("a title must not be empty")]
    EmptyTitle,
    /// The tag has no visible character.
    #[error("a tag must not be empty; clear it instead")]
    EmptyTag,
    /// The message to fork at is not in the conversation.
    #[error("message {uuid} is not in the conversation")]
    NoSuchMessage {
        /// The requested message.
        uuid: String,
    },
    /// The fork would be empty.
    #[error("no message to fork")]
    NothingToFork,
    /// The subagent does not exist.
    #[error("the conversation has no subagent {agent}")]
    NoSuchSubagent {
        /// The requested subagent.
        agent: String,
    },
}

impl TranscriptError {
    /// Wraps a system error; a missing file becomes `NotFound`.
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| {
            if source.kind() == io::ErrorKind::NotFound {
                Self::NotFound { path: path.to_owned() }
            } else {
                Self::Io { action, path: path.to_owned(), source }
            }
        }
    }
}
