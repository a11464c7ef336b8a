//! The transcripts that the runtime keeps on disk: finding, listing, reading, forking and editing them.
//!
//! Owns the knowledge of the layout of the configuration directory and of the JSON lines in it. Everything is
//! synchronous and works on paths, so that callers choose the thread. Never starts a runtime or any other
//! program, and a line that it does not understand costs that line alone.
//!
//! Where the runtime's two supported versions differ, the newer one is followed: titles are looked for line by
//! line, a `custom-title.json` counts, steering messages are part of the conversation, and sessions that were
//! continued elsewhere are not listed.

mod chain;
mod edit;
mod entry;
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
pub use error::TranscriptError;
pub use fork::{ForkOptions, Forked, fork};
pub use list::{ListOptions, Scope, Transcripts, Worktrees};
pub use project::project_key;
pub use read::{Origin, ReadOptions, SystemEntries, TranscriptMessage, TranscriptMessageKind, messages};
pub use subagents::{Subagent, subagent_messages, subagents};
pub use summary::SessionSummary;
pub use watch::WatchedTranscripts;

/// The runtime's configuration directory in an environment.
pub fn config_dir(environment: &BTreeMap<OsString, OsString>) -> Option<PathBuf> {
    let variable = |name: &str| environment.get(OsStr::new(name)).filter(|value| !value.is_empty());
    variable("CLAUDE_CONFIG_DIR")
        .map(PathBuf::from)
        .or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(".claude")))
}

/// The transcript of a conversation, if the runtime has written one. It does so some time after the first
/// message, so a runtime that died early leaves none, and there is nothing to resume.
pub fn find(environment: &BTreeMap<OsString, OsString>, conversation: Uuid) -> Option<PathBuf> {
    Transcripts::new(&config_dir(environment)?).find(conversation, &Scope::Everything)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_is_found_in_any_project_and_only_if_something_was_written() {
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
