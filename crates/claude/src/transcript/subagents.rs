//! The transcripts of subagents, in the folder next to a transcript.
//!
//! Owns finding and reading them. Nested subagents are in subfolders.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::chain::path_to_last_message;
use super::entry::{TranscriptEntry, lenient, read_entries};
use super::error::TranscriptError;
use super::read::TranscriptMessage;
use super::scan::folder_of;

/// Maximum search depth; the runtime nests folders once.
const DEPTH_LIMIT: usize = 8;

/// A subagent of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subagent {
    /// Id of the subagent.
    pub id: String,
    /// Transcript of the subagent.
    pub path: PathBuf,
    /// Type, e.g. `general-purpose`.
    pub agent_type: Option<String>,
    /// The purpose of the subagent.
    pub description: Option<String>,
    /// The tool call that started it, in newer runtimes.
    pub tool_use_id: Option<String>,
    /// The parent subagent; `None` for the main conversation.
    pub parent_agent_id: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SubagentFile {
    #[serde(default, deserialize_with = "lenient")]
    agent_type: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    description: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    tool_use_id: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    parent_agent_id: Option<String>,
}

/// The subagents of a conversation, ordered by id.
pub fn subagents(transcript: &Path) -> Vec<Subagent> {
    let mut found = Vec::new();
    collect(&folder_of(transcript).join("subagents"), DEPTH_LIMIT, &mut found);
    found.sort_by(|one, other| one.id.cmp(&other.id));
    found
}

fn collect(folder: &Path, depth: usize, found: &mut Vec<Subagent>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if depth > 0 {
                collect(&path, depth - 1, found);
            }
        } else if let Some(id) = entry.file_name().to_str().and_then(agent_id) {
            let about = fs::read(path.with_extension("meta.json")).unwrap_or_default();
            let about: SubagentFile = serde_json::from_slice(&about).unwrap_or_default();
            found.push(Subagent {
                id: id.to_owned(),
                path,
                agent_type: about.agent_type,
                description: about.description,
                tool_use_id: about.tool_use_id,
                parent_agent_id: about.parent_agent_id,
            });
        }
    }
}

fn agent_id(file_name: &str) -> Option<&str> {
    file_name.strip_prefix("agent-")?.strip_suffix(".jsonl").filter(|id| !id.is_empty())
}

/// The messages of a subagent, oldest first.
pub fn subagent_messages(transcript: &Path, agent: &str) -> Result<Vec<TranscriptMessage>, TranscriptError> {
    // The id is compared with existing files and never used as a path, so that it cannot refer to other
    // files.
    let subagent = subagents(transcript).into_iter().find(|subagent| subagent.id == agent);
    let subagent = subagent.ok_or_else(|| TranscriptError::NoSuchSubagent { agent: agent.to_owned() })?;
    let entries = read_entries(&subagent.path)?;
    let path = path_to_last_message(&entries);
    let on_path = path
        .into_iter()
        .filter_map(|at| entries.get(at))
        .filter(|entry: &&TranscriptEntry| entry.is_message());
    let message = |entry| TranscriptMessage {
        parent_tool_use_id: subagent.tool_use_id.clone(),
        parent_agent_id: subagent.parent_agent_id.clone(),
        ..TranscriptMessage::of(entry)
    };
    Ok(on_path.map(message).collect())
}
