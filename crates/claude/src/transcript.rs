//! The runtime's transcripts on disk: finding, listing, reading, forking and editing.
//!
//! Owns the layout of the configuration directory and the format of its JSON lines. All functions are
//! synchronous and take paths, so that callers choose the thread. Never starts a program. A line that
//! cannot be parsed is skipped; the rest of the transcript is still read.
//!
//! Where the two supported runtime versions differ, this follows the newer one: titles are searched line
//! by line, a `custom-title.json` counts, steering messages are part of the conversation, and sessions
//! continued elsewhere are not listed.

mod chain;
mod edit;
mod entry;
mod erase;
mod error;
mod fork;
mod list;
mod object;
mod project;
mod prompt;
mod read;
mod scan;
mod subagents;
mod summary;
mod watch;
mod worktrees;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use uuid::Uuid;

pub use edit::{delete, rename, set_tag};
pub use erase::{Erased, erase};
pub use error::TranscriptError;
pub use fork::{ForkOptions, Forked, fork};
pub use list::{ListOptions, Scope, Transcripts, Worktrees};
pub use project::project_key;
pub use read::{
    ReadOptions, SystemEntries, TranscriptMessage, TranscriptMessageKind, TranscriptOrigin, messages,
};
pub use subagents::{Subagent, subagent_messages, subagents};
pub use summary::SessionSummary;
pub use watch::WatchedTranscripts;

/// The runtime's configuration directory for an environment.
pub fn config_dir(environment: &BTreeMap<OsString, OsString>) -> Option<PathBuf> {
    let variable = |name: &str| environment.get(OsStr::new(name)).filter(|value| !value.is_empty());
    variable("CLAUDE_CONFIG_DIR")
        .map(PathBuf::from)
        .or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(".claude")))
}

/// The transcript of a conversation, if the runtime has written one. It is written some time after the
/// first message; if the runtime exits earlier, there is nothing to resume.
pub fn find(environment: &BTreeMap<OsString, OsString>, conversation: Uuid) -> Option<PathBuf> {
    Transcripts::new(&config_dir(environment)?).find(conversation, &Scope::Everything)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_non_empty_transcript_in_any_project() {
        let home = tempfile::tempdir().unwrap();
        let environment = BTreeMap::from([("HOME".into(), home.path().as_os_str().to_owned())]);
        let id = Uuid::new_v4();
        assert_eq!(find(&environment, id), None);
        let project = home.path().join(".claude/projects/-some-where");
        std::fs::create_dir_all(&project).unwrap();
        let path = project.join(format!("{id}.jsonl"));
        std::fs::write(&path, "").unwrap();
        assert_eq!(find(&environment, id), None);
        std::fs::write(&path, "{}\n").unwrap();
        assert_eq!(find(&environment, id), Some(path));
        assert_eq!(find(&environment, Uuid::new_v4()), None);
    }
}
