//! A configuration directory for test transcripts.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use innkeeper_claude::transcript::Transcripts;
use serde_json::{Value, json};
use uuid::Uuid;

/// A configuration directory that is deleted when dropped.
pub(crate) struct Store {
    pub(crate) dir: tempfile::TempDir,
}

impl Store {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("projects")).unwrap();
        Self { dir }
    }

    pub(crate) fn transcripts(&self) -> Transcripts {
        Transcripts::new(self.dir.path())
    }

    pub(crate) fn project(&self, name: &str) -> PathBuf {
        let project = self.dir.path().join("projects").join(name);
        fs::create_dir_all(&project).unwrap();
        project
    }

    /// Writes a transcript; returns its path.
    #[track_caller]
    pub(crate) fn write(&self, project: &str, id: Uuid, lines: &[Value]) -> PathBuf {
        let path = self.project(project).join(format!("{id}.jsonl"));
        fs::write(&path, text_of(lines)).unwrap();
        path
    }
}

pub(crate) fn text_of(lines: &[Value]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// A prompt whose text is its uuid.
pub(crate) fn user(uuid: &str, parent: Option<&str>) -> Value {
    entry("user", uuid, parent, &json!(uuid))
}

/// A response whose text is its uuid.
pub(crate) fn assistant(uuid: &str, parent: &str) -> Value {
    entry("assistant", uuid, Some(parent), &json!([{"type": "text", "text": uuid}]))
}

pub(crate) fn entry(kind: &str, uuid: &str, parent: Option<&str>, content: &Value) -> Value {
    json!({
        "parentUuid": parent, "isSidechain": false, "type": kind, "uuid": uuid, "cwd": "/home/guest/work",
        "message": {"id": format!("msg-{uuid}"), "role": kind, "content": content}, "gitBranch": "main",
        "timestamp": "2026-11-15T08:41:12.784Z", "sessionId": "00000000-0000-4000-8000-000000000000",
    })
}

pub(crate) fn with(mut line: Value, fields: &Value) -> Value {
    for (key, value) in fields.as_object().unwrap() {
        line[key] = value.clone();
    }
    line
}

/// Sets the modification time of a file.
#[track_caller]
pub(crate) fn set_modified(path: &Path, milliseconds: u64) {
    let file = fs::File::options().append(true).open(path).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_millis(milliseconds)).unwrap();
}

pub(crate) fn milliseconds(time: SystemTime) -> u64 {
    u64::try_from(time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis()).unwrap()
}
