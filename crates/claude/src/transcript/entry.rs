//! The conversation entries of a transcript.
//!
//! Owns reading a transcript line by line and separating conversation entries from other lines of the
//! runtime. Skips corrupt lines and an incomplete last line. `chain.rs` orders the entries.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::error::TranscriptError;

/// Longest line to read. Tool results with images reach tens of megabytes; longer lines are skipped like
/// corrupt ones, so that a broken file cannot exhaust memory.
const LINE_LIMIT: u64 = 64 << 20;
/// Read buffer size.
const READ_SIZE: usize = 256 << 10;
/// In larger files, entries before a compaction that kept nothing are dropped from memory.
const LARGE_FILE: u64 = 5 << 20;

/// The kind of a conversation entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryKind {
    User,
    Assistant,
    System,
    Progress,
    Attachment,
}

impl EntryKind {
    fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "user" => Self::User,
            "assistant" => Self::Assistant,
            "system" => Self::System,
            "progress" => Self::Progress,
            "attachment" => Self::Attachment,
            _ => return None,
        })
    }
}

/// A conversation entry.
#[derive(Debug)]
pub(super) struct TranscriptEntry {
    pub(super) kind: EntryKind,
    pub(super) uuid: String,
    pub(super) fields: EntryFields,
}

/// The fields of an entry; a field of an unexpected type counts as absent.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EntryFields {
    #[serde(rename = "type", default, deserialize_with = "lenient")]
    kind: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    uuid: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) parent_uuid: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) session_id: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) timestamp: Option<String>,
    #[serde(default, deserialize_with = "flag")]
    pub(super) is_sidechain: bool,
    #[serde(default, deserialize_with = "flag")]
    pub(super) is_meta: bool,
    #[serde(default, deserialize_with = "flag")]
    pub(super) is_compact_summary: bool,
    #[serde(default, deserialize_with = "flag")]
    pub(super) is_visible_in_transcript_only: bool,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) team_name: Option<String>,
    #[serde(default, deserialize_with = "raw")]
    pub(super) message: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "raw")]
    pub(super) attachment: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "raw")]
    pub(super) tool_use_result: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) tool_denial_kind: Option<String>,
    #[serde(default, rename = "sourceToolAssistantUUID", deserialize_with = "lenient")]
    pub(super) source_tool_assistant_uuid: Option<String>,
    #[serde(default, deserialize_with = "raw")]
    pub(super) origin: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) subtype: Option<String>,
    #[serde(default, deserialize_with = "raw")]
    pub(super) content: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "raw")]
    pub(super) compact_metadata: Option<Box<RawValue>>,
}

/// The entries that a compaction kept.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Preserved {
    #[serde(default, deserialize_with = "lenient")]
    pub(super) preserved_segment: Option<PreservedSegment>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) preserved_messages: Option<PreservedMessages>,
}

/// A contiguous range of kept entries.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PreservedSegment {
    pub(super) head_uuid: String,
    pub(super) anchor_uuid: String,
    pub(super) tail_uuid: String,
}

/// Individually kept entries.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PreservedMessages {
    pub(super) anchor_uuid: String,
    pub(super) uuids: Vec<String>,
}

/// The fields of an API message that determine where its entry belongs.
#[derive(Debug, Default, Deserialize)]
pub(super) struct MessageHead {
    #[serde(default, deserialize_with = "lenient")]
    pub(super) id: Option<String>,
    #[serde(default, deserialize_with = "content")]
    pub(super) content: Vec<BlockHead>,
}

/// The fields of a content block that determine where its entry belongs.
#[derive(Debug, Default, Deserialize)]
pub(super) struct BlockHead {
    #[serde(rename = "type", default, deserialize_with = "lenient")]
    pub(super) kind: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) text: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) tool_use_id: Option<String>,
}

impl MessageHead {
    pub(super) fn parse(message: Option<&RawValue>) -> Self {
        message.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
    }

    /// The text blocks of the message, in order.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        let texts = self.content.iter().filter(|block| block.kind.as_deref() == Some("text"));
        texts.filter_map(|block| block.text.as_deref())
    }

    /// The tool call whose result the message contains, if any.
    pub(super) fn tool_result_of(&self) -> Option<&str> {
        let result = self.content.iter().find(|block| block.kind.as_deref() == Some("tool_result"));
        result.map(|block| block.tool_use_id.as_deref().unwrap_or_default())
    }
}

impl TranscriptEntry {
    /// Parses a line; `None` if it is not a conversation entry.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        if !may_be_entry(line) {
            return None;
        }
        let mut fields: EntryFields = serde_json::from_slice(line).ok()?;
        let kind = EntryKind::from_name(fields.kind.as_deref()?)?;
        Some(Self { kind, uuid: fields.uuid.take()?, fields })
    }

    pub(super) fn is_compact_boundary(&self) -> bool {
        self.kind == EntryKind::System && self.fields.subtype.as_deref() == Some("compact_boundary")
    }

    /// The kept entries, if this is a compaction that kept some.
    pub(super) fn preserved(&self) -> Option<Preserved> {
        let metadata =
            self.is_compact_boundary().then_some(self.fields.compact_metadata.as_deref()).flatten()?;
        let preserved: Preserved = serde_json::from_str(metadata.get()).ok()?;
        (preserved.preserved_segment.is_some() || preserved.preserved_messages.is_some()).then_some(preserved)
    }

    pub(super) fn is_message(&self) -> bool {
        matches!(self.kind, EntryKind::User | EntryKind::Assistant)
    }

    /// Whether this is a prompt that was queued during a turn and included in it.
    pub(super) fn is_queued_prompt(&self) -> bool {
        let attachment = self.fields.attachment.as_deref().filter(|_| self.kind == EntryKind::Attachment);
        let head = attachment.and_then(|raw| serde_json::from_str::<BlockHead>(raw.get()).ok());
        head.is_some_and(|head| head.kind.as_deref() == Some("queued_command"))
    }

    pub(super) fn head(&self) -> MessageHead {
        MessageHead::parse(self.fields.message.as_deref())
    }
}

/// Most bytes of newer transcripts are other kinds of lines; the first field identifies them without
/// parsing.
fn may_be_entry(line: &[u8]) -> bool {
    let Some(rest) = line.strip_prefix(b"{\"type\":\"") else { return true };
    let kind = rest.split(|byte| *byte == b'"').next().and_then(|name| std::str::from_utf8(name).ok());
    kind.is_some_and(|kind| EntryKind::from_name(kind).is_some())
}

/// The entries of a transcript in file order.
pub(super) fn read_entries(path: &Path) -> Result<Vec<TranscriptEntry>, TranscriptError> {
    let (file, size) = open(path)?;
    let mut entries: Vec<TranscriptEntry> = Vec::new();
    each_line(file, &mut |line| {
        if let Some(entry) = TranscriptEntry::parse(line) {
            if size > LARGE_FILE && entry.is_compact_boundary() && entry.preserved().is_none() {
                entries.clear();
            }
            entries.push(entry);
        }
    })
    .map_err(TranscriptError::io("read", path))?;
    Ok(entries)
}

/// Opens a transcript; fails if it is empty.
pub(super) fn open(path: &Path) -> Result<(File, u64), TranscriptError> {
    let file = File::open(path).map_err(TranscriptError::io("open", path))?;
    let metadata = file.metadata().map_err(TranscriptError::io("read", path))?;
    if !metadata.is_file() || metadata.len() == 0 {
        return Err(TranscriptError::NotFound { path: path.to_owned() });
    }
    Ok((file, metadata.len()))
}

/// Calls `visit` with each line, without its line end; the last one may be incomplete.
pub(super) fn each_line(file: impl Read, visit: &mut dyn FnMut(&[u8])) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(READ_SIZE, file);
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.by_ref().take(LINE_LIMIT).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if line.pop_if(|last| *last == b'\n').is_some() || (line.len() as u64) < LINE_LIMIT {
            visit(&line);
        } else {
            reader.skip_until(b'\n')?;
        }
    }
}

/// Deserializes a value; `None` if it has an unexpected type.
pub(super) fn lenient<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let raw = <&RawValue>::deserialize(deserializer)?;
    Ok(serde_json::from_str(raw.get()).ok())
}

/// Deserializes a boolean; any other value is false.
pub(super) fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(lenient(deserializer)?.unwrap_or_default())
}

/// Keeps a value as raw JSON; `null` becomes `None`.
fn raw<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    let raw = <&RawValue>::deserialize(deserializer)?;
    Ok((raw.get() != "null").then(|| raw.to_owned()))
}

/// Deserializes a string as a single text block, or a list of blocks; skips invalid blocks.
fn content<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<BlockHead>, D::Error> {
    let raw = <&RawValue>::deserialize(deserializer)?;
    if let Ok(text) = serde_json::from_str(raw.get()) {
        return Ok(vec![BlockHead { kind: Some("text".to_owned()), text: Some(text), tool_use_id: None }]);
    }
    let blocks: Vec<&RawValue> = serde_json::from_str(raw.get()).unwrap_or_default();
    Ok(blocks.iter().filter_map(|block| serde_json::from_str(block.get()).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_line_above_the_limit_is_skipped() {
        let long = io::repeat(b'x').take(LINE_LIMIT + 10);
        let file = b"one\n".chain(long).chain(&b"\ntwo\nhalf"[..]);
        let mut lines = Vec::new();
        each_line(file, &mut |line| lines.push(String::from_utf8_lossy(line).into_owned())).unwrap();
        assert_eq!(lines, ["one", "two", "half"]);
    }

    #[test]
    fn only_the_field_of_unexpected_type_is_dropped() {
        let entry = TranscriptEntry::parse(
            br#"{"type":"user","uuid":"u","parentUuid":7,"isMeta":"yes","teamName":null,"message":{"content":[1,{"type":"text","text":"hi"}]}}"#,
        )
        .unwrap();
        assert_eq!((entry.fields.parent_uuid.as_deref(), entry.fields.is_meta), (None, false));
        assert_eq!(entry.head().texts().collect::<Vec<_>>(), ["hi"]);
    }

    #[test]
    fn rejects_lines_that_are_not_conversation_entries() {
        for line in [
            r#"{"type":"api-request-shape","uuid":"u"}"#,
            r#"{"uuid":"u","type":"custom-title"}"#,
            r#"{"type":"user"}"#,
            r#"{"type":"user","uuid":1}"#,
            r#"{"type":"user","uuid":"u""#,
            "noise",
            "",
        ] {
            assert!(TranscriptEntry::parse(line.as_bytes()).is_none(), "{line}");
        }
    }
}
