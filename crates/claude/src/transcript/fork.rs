//! Forks a conversation: a new transcript with all entries up to a message.
//!
//! Owns the rewriting of ids. The fork is written next to its source, under a temporary name until it is
//! complete; the source is not changed. Files in the source's folder (subagents, long outputs) are not
//! copied.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use uuid::Uuid;

use super::edit::session_of;
use super::entry::{EntryKind, TranscriptEntry, each_line, open};
use super::error::TranscriptError;
use super::object::Object;
use super::scan::{SessionFile, scan_one};

/// Options of a fork.
#[derive(Debug, Clone)]
pub struct ForkOptions {
    /// The last message of the fork; `None` for all messages.
    pub up_to: Option<String>,
    /// Title of the fork; `None` for the source's title with a suffix.
    pub title: Option<String>,
    /// Id of the fork.
    pub session: Uuid,
    /// Time of the fork.
    pub now: SystemTime,
}

/// A forked conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forked {
    /// Id of the fork.
    pub session: Uuid,
    /// Transcript of the fork.
    pub path: PathBuf,
}

/// A parsed line of the source.
struct SourceLine {
    entry: TranscriptEntry,
    object: Object,
}

/// Forks a conversation.
pub fn fork(transcript: &Path, options: &ForkOptions) -> Result<Forked, TranscriptError> {
    let source = session_of(transcript)?;
    let (mut lines, replacements) = read_source(transcript)?;
    if let Some(up_to) = &options.up_to {
        cut(&mut lines, up_to)?;
    }
    let ids: HashMap<String, String> = lines
        .iter()
        .filter(|line| line.entry.kind != EntryKind::Progress)
        .map(|line| (line.entry.uuid.clone(), Uuid::new_v4().to_string()))
        .collect();
    if ids.is_empty() {
        return Err(TranscriptError::NothingToFork);
    }
    let parents: HashMap<String, Option<String>> =
        lines.iter().map(|line| (line.entry.uuid.clone(), line.entry.fields.parent_uuid.clone())).collect();
    let now = jiff::Timestamp::try_from(options.now).unwrap_or_default();
    let now = format!("{now:.3}");
    let mut text = String::new();
    let kept: Vec<SourceLine> =
        lines.into_iter().filter(|line| line.entry.kind != EntryKind::Progress).collect();
    let last = kept.len();
    for (at, mut line) in kept.into_iter().enumerate() {
        let rewriting = Rewriting { ids: &ids, parents: &parents, source, fork: options.session };
        rewriting.apply(&mut line);
        if at + 1 == last {
            line.object.set("timestamp", &now);
        }
        text.push_str(&line.object.to_line());
    }
    if !replacements.is_empty() {
        text.push_str(&replacement_line(&replacements, options.session));
    }
    text.push_str(&title_line(transcript, source, options, &now));
    write_beside(transcript, options.session, &text)
}

/// The conversation of the source without subagents, and its content replacements.
fn read_source(transcript: &Path) -> Result<(Vec<SourceLine>, Vec<Box<RawValue>>), TranscriptError> {
    #[derive(Deserialize)]
    struct Replacement {
        replacements: Vec<Box<RawValue>>,
    }
    let (file, _) = open(transcript)?;
    let mut lines = Vec::new();
    let mut replacements = Vec::new();
    each_line(file, &mut |line| {
        if let Some(entry) = TranscriptEntry::parse(line).filter(|entry| !entry.fields.is_sidechain)
            && let Some(object) = Object::parse(line)
        {
            lines.push(SourceLine { entry, object });
        } else if memmem::find(line, b"\"type\":\"content-replacement\"").is_some()
            && let Ok(found) = serde_json::from_slice::<Replacement>(line)
        {
            replacements.extend(found.replacements);
        }
    })
    .map_err(TranscriptError::io("read", transcript))?;
    Ok((lines, replacements))
}

/// Removes all lines after a message.
fn cut(lines: &mut Vec<SourceLine>, up_to: &str) -> Result<(), TranscriptError> {
    let is_message = |line: &SourceLine| {
        line.entry.uuid == up_to || source_of_queued(&line.entry) == Some(up_to.to_owned())
    };
    let at = lines.iter().rposition(is_message);
    let at = at.ok_or_else(|| TranscriptError::NoSuchMessage { uuid: up_to.to_owned() })?;
    // A compaction without its summary would hide all earlier entries.
    let is_boundary = lines.get(at).is_some_and(|line| line.entry.is_compact_boundary());
    lines.truncate(if is_boundary { at } else { at + 1 });
    // The entries that a compaction kept follow its summary, so a fork at the summary drops them as well.
    for line in lines.iter_mut().filter(|line| line.entry.is_compact_boundary()) {
        let anchor = line.entry.preserved().and_then(|preserved| {
            let segment = preserved.preserved_segment.map(|segment| segment.anchor_uuid);
            preserved.preserved_messages.map(|messages| messages.anchor_uuid).or(segment)
        });
        if anchor.as_deref() == Some(up_to)
            && let Some(metadata) = line.object.get("compactMetadata")
            && let Ok(mut metadata) = serde_json::from_str::<serde_json::Map<String, Value>>(metadata.get())
        {
            metadata.remove("preservedSegment");
            metadata.remove("preservedMessages");
            line.object.set("compactMetadata", &metadata);
        }
    }
    Ok(())
}

/// The id under which a queued prompt was sent.
fn source_of_queued(entry: &TranscriptEntry) -> Option<String> {
    let attachment: Value = serde_json::from_str(entry.fields.attachment.as_deref()?.get()).ok()?;
    attachment.get("source_uuid")?.as_str().map(str::to_owned)
}

struct Rewriting<'a> {
    ids: &'a HashMap<String, String>,
    parents: &'a HashMap<String, Option<String>>,
    source: Uuid,
    fork: Uuid,
}

impl Rewriting<'_> {
    fn apply(&self, line: &mut SourceLine) {
        let object = &mut line.object;
        let uuid = &line.entry.uuid;
        object.set("parentUuid", &self.parent(line.entry.fields.parent_uuid.as_deref()));
        if let Some(logical) = object.get("logicalParentUuid") {
            let logical: Option<String> = serde_json::from_str(logical.get()).ok();
            object.set("logicalParentUuid", &self.parent(logical.as_deref()));
        }
        if let Some(metadata) = object.get("compactMetadata")
            && let Ok(mut metadata) = serde_json::from_str::<Value>(metadata.get())
        {
            self.replace_ids(&mut metadata);
            object.set("compactMetadata", &metadata);
        }
        object.set("uuid", self.ids.get(uuid).unwrap_or(uuid));
        object.set("sessionId", &self.fork.to_string());
        object.remove(&["teamName", "agentName", "slug", "sourceToolAssistantUUID"]);
        object.set("forkedFrom", &json!({"sessionId": self.source.to_string(), "messageUuid": uuid}));
    }

    /// The new id of the nearest ancestor in the fork.
    fn parent(&self, uuid: Option<&str>) -> Option<&str> {
        let mut next = uuid?;
        // Entries that are not copied are bridged; a cycle of them is shorter than the number of entries.
        for _ in 0..=self.parents.len() {
            if let Some(id) = self.ids.get(next) {
                return Some(id);
            }
            next = self.parents.get(next)?.as_deref()?;
        }
        None
    }

    fn replace_ids(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Some(id) = self.ids.get(text) {
                    text.clone_from(id);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.replace_ids(item)),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.replace_ids(field)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

fn replacement_line(replacements: &[Box<RawValue>], session: Uuid) -> String {
    let mut line = Object::default();
    line.set("type", "content-replacement");
    line.set("sessionId", &session.to_string());
    line.set("replacements", replacements);
    line.to_line()
}

fn title_line(transcript: &Path, source: Uuid, options: &ForkOptions, now: &str) -> String {
    let given = options.title.as_deref().map(str::trim).filter(|title| !title.is_empty());
    let title = given.map(str::to_owned).unwrap_or_else(|| {
        let file = SessionFile::at(source, transcript.to_owned());
        let summary = scan_one(&file, None).and_then(|known| known.summary);
        let title =
            summary.and_then(|summary| summary.title.clone().or_else(|| summary.first_prompt.clone()));
        format!("{} (fork)", title.as_deref().unwrap_or("Forked session"))
    });
    let mut line = Object::default();
    line.set("type", "custom-title");
    line.set("sessionId", &options.session.to_string());
    line.set("customTitle", &title);
    line.set("uuid", &Uuid::new_v4().to_string());
    line.set("timestamp", now);
    line.to_line()
}

/// Writes a new transcript atomically, readable only by its owner.
fn write_beside(transcript: &Path, session: Uuid, text: &str) -> Result<Forked, TranscriptError> {
    let path = transcript.with_file_name(format!("{session}.jsonl"));
    let folder = transcript.parent().unwrap_or(Path::new("."));
    let failed = || TranscriptError::io("write", &path);
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed())?;
    file.write_all(text.as_bytes()).map_err(failed())?;
    file.persist_noclobber(&path).map_err(|error| failed()(error.error))?;
    Ok(Forked { session, path })
}
