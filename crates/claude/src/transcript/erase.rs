//! Deletes everything that runtimes stored about a conversation that this library created.
//!
//! Runtimes name files and folders after the conversation: the transcript and the folder next to it, file
//! checkpoints, task lists and others. Invariant: only entries whose name starts with the conversation's
//! id are deleted, and nothing if another program created the conversation.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use uuid::Uuid;

use super::error::TranscriptError;
use crate::options::ENTRYPOINT;

/// Bytes of a transcript to read when searching for its first message.
const HEAD_LIMIT: u64 = 4 * 1024 * 1024;

/// The result of [`erase`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Erased {
    /// Nothing is left of the conversation.
    Everything,
    /// Another program created the conversation; it is unchanged.
    Foreign,
}

/// Deletes the transcript of a conversation and all files that belong to it, if this library created the
/// conversation. No runtime may use it. Succeeds if nothing exists.
pub fn erase(config_dir: &Path, conversation: Uuid) -> Result<Erased, TranscriptError> {
    let prefix = conversation.to_string();
    let mut entries = Vec::new();
    for folder in folders_in(config_dir)? {
        entries.extend(entries_named(&folder, &prefix)?);
        if folder.ends_with("projects") {
            for project in folders_in(&folder)? {
                entries.extend(entries_named(&project, &prefix)?);
            }
        }
    }
    let transcripts = entries.iter().filter(|path| path.extension().is_some_and(|kind| kind == "jsonl"));
    for transcript in transcripts {
        if !is_ours(transcript)? {
            return Ok(Erased::Foreign);
        }
    }
    for path in &entries {
        remove(path).map_err(TranscriptError::io("delete", path))?;
    }
    Ok(Erased::Everything)
}

/// Whether this library created a conversation, according to the first message of the transcript. A
/// transcript without messages is left by a runtime that was killed early.
fn is_ours(transcript: &Path) -> Result<bool, TranscriptError> {
    #[derive(Deserialize)]
    struct Creator {
        uuid: Option<String>,
        entrypoint: Option<String>,
    }
    let failed = || TranscriptError::io("read", transcript);
    let mut lines = BufReader::new(File::open(transcript).map_err(failed())?.take(HEAD_LIMIT));
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line).map_err(failed())? > 0 {
        if let Ok(Creator { uuid: Some(_), entrypoint }) = serde_json::from_slice(&line) {
            return Ok(entrypoint.as_deref() == Some(ENTRYPOINT));
        }
        line.clear();
    }
    Ok(true)
}

fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(entry) if entry.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// The subfolders of a folder; links are not followed.
fn folders_in(folder: &Path) -> Result<Vec<PathBuf>, TranscriptError> {
    entries(folder, |entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
}

fn entries_named(folder: &Path, prefix: &str) -> Result<Vec<PathBuf>, TranscriptError> {
    entries(folder, |entry| entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes()))
}

fn entries(folder: &Path, wanted: impl Fn(&fs::DirEntry) -> bool) -> Result<Vec<PathBuf>, TranscriptError> {
    match fs::read_dir(folder) {
        Ok(entries) => Ok(entries.flatten().filter(wanted).map(|entry| entry.path()).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(TranscriptError::io("read", folder)(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a file of a configuration directory.
    fn write(config: &Path, path: &str, text: &str) -> PathBuf {
        let path = config.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn message(entrypoint: &str) -> String {
        let first = r#"{"type":"queue-operation","operation":"enqueue","content":"hi"}"#;
        format!("{first}\n{{\"type\":\"user\",\"uuid\":\"u1\",\"entrypoint\":\"{entrypoint}\"}}\n")
    }

    #[test]
    fn deletes_all_files_of_the_conversation_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let (id, other) = (Uuid::new_v4(), Uuid::new_v4());
        for id in [id, other] {
            write(place.path(), &format!("projects/-a/{id}.jsonl"), &message(ENTRYPOINT));
            write(place.path(), &format!("projects/-a/{id}/subagents/agent-1.jsonl"), "x");
            write(place.path(), &format!("file-history/{id}/0a@v1"), "x");
            write(place.path(), &format!("todos/{id}-agent-{id}.json"), "x");
        }
        assert_eq!(erase(place.path(), id).unwrap(), Erased::Everything);
        let found = |id: Uuid| {
            ["projects/-a", "file-history", "todos"]
                .map(|folder| entries_named(&place.path().join(folder), &id.to_string()).unwrap().len())
        };
        assert_eq!((found(id), found(other)), ([0; 3], [2, 1, 1]));
        assert_eq!(erase(place.path(), id).unwrap(), Erased::Everything);
        assert_eq!(erase(&place.path().join("missing"), id).unwrap(), Erased::Everything);
    }

    #[test]
    fn keeps_conversation_of_another_program() {
        for text in [message("cli"), "{\"type\":\"user\",\"uuid\":\"u1\"}\n".to_owned()] {
            let place = tempfile::tempdir().unwrap();
            let id = Uuid::new_v4();
            let transcript = write(place.path(), &format!("projects/-a/{id}.jsonl"), &text);
            let checkpoint = write(place.path(), &format!("file-history/{id}/0a@v1"), "x");
            assert_eq!(erase(place.path(), id).unwrap(), Erased::Foreign);
            assert!(transcript.exists() && checkpoint.exists());
        }
    }

    #[test]
    fn deletes_transcript_without_messages() {
        let place = tempfile::tempdir().unwrap();
        let id = Uuid::new_v4();
        let text = "{\"type\":\"queue-operation\",\"content\":\"hi\"}\n{\"type\":\"us";
        let transcript = write(place.path(), &format!("projects/-a/{id}.jsonl"), text);
        assert_eq!(erase(place.path(), id).unwrap(), Erased::Everything);
        assert!(!transcript.exists());
    }
}
