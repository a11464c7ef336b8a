//! Why something could not be done with a transcript.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why something could not be done with a transcript.
#[derive(Debug, Error)]
pub enum TranscriptError {
    /// There is no such transcript, or nothing was written to it yet.
    #[error("there is no transcript at {}", path.display())]
    NotFound {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The file name of a transcript is the conversation's id, and this one is not.
    #[error("{} is not a transcript: its name must be <conversation id>.jsonl", path.display())]
    NotATranscript {
        /// The path that was given.
        path: PathBuf,
    },
    /// The system refused.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// A title without a visible character.
    #[error("a title must not be empty")]
    EmptyTitle,
    /// A tag without a visible character.
    #[error("a tag must not be empty; clear it instead")]
    EmptyTag,
    /// The message to fork at is not in the conversation.
    #[error("message {uuid} is not in the conversation")]
    NoSuchMessage {
        /// The message that was asked for.
        uuid: String,
    },
    /// Nothing would be left in the fork.
    #[error("there is no message to fork")]
    NothingToFork,
    /// The conversation has no such subagent.
    #[error("the conversation has no subagent {agent}")]
    NoSuchSubagent {
        /// The subagent that was asked for.
        agent: String,
    },
}

impl TranscriptError {
    /// Wraps what the system said; a missing file is an answer of its own.
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
