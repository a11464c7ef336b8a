//! Reads the messages of a conversation.
//!
//! Owns the message format and the selection of messages. `chain.rs` determines the order. A message can
//! be converted to a frame of the live stream, so that both are processed the same way.

use std::path::Path;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::chain::conversation;
use super::entry::{EntryKind, MessageHead, TranscriptEntry, lenient, read_entries};
use super::error::TranscriptError;
use crate::wire::{DecodeError, Message, decode};

/// Which messages to read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// Whether to include system entries.
    pub system: SystemEntries,
    /// Number of oldest messages to skip.
    pub offset: usize,
    /// Maximum number of messages.
    pub limit: Option<usize>,
}

/// Whether to include the runtime's own entries (compactions, output of local commands).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SystemEntries {
    /// Only user and model messages.
    #[default]
    Excluded,
    /// System entries as well.
    Included,
}

/// The sender of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TranscriptMessageKind {
    /// The user: prompts and tool results.
    User,
    /// The model.
    Assistant,
    /// The runtime itself.
    System,
}

/// How a message was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TranscriptOrigin {
    /// A prompt, a tool result, or a model message.
    Plain,
    /// A prompt that was queued during a turn and included in it.
    Queued,
    /// The record of a command that the runtime executed itself.
    LocalCommand,
    /// The summary created by a compaction.
    CompactSummary,
}

/// A message of a conversation.
#[derive(Debug, Clone)]
pub struct TranscriptMessage {
    /// Sender of the message.
    pub kind: TranscriptMessageKind,
    /// Message id; for a prompt the one assigned by the host.
    pub uuid: String,
    /// Id of the conversation.
    pub session_id: Option<String>,
    /// Timestamp as written by the runtime.
    pub timestamp: Option<String>,
    /// The API message; `None` for system entries.
    pub message: Option<Box<RawValue>>,
    /// The tool call that the sending subagent works for.
    pub parent_tool_use_id: Option<String>,
    /// The parent of the sending subagent.
    pub parent_agent_id: Option<String>,
    /// Structured tool output.
    pub tool_use_result: Option<Box<RawValue>>,
    /// Why a tool was not executed.
    pub tool_denial: Option<String>,
    /// How the message was created.
    pub origin: TranscriptOrigin,
    /// Sender of an unsolicited prompt, as reported by the runtime.
    pub sender: Option<Box<RawValue>>,
    /// Whether the message is meant for the model and not for users.
    pub is_meta: bool,
    /// Kind of a system entry.
    pub subtype: Option<String>,
    /// Text of a system entry.
    pub content: Option<Box<RawValue>>,
    /// Details of a compaction.
    pub compact_metadata: Option<Box<RawValue>>,
}

/// The messages of a conversation up to the newest one, oldest first.
pub fn messages(transcript: &Path, options: &ReadOptions) -> Result<Vec<TranscriptMessage>, TranscriptError> {
    let entries = read_entries(transcript)?;
    let mut found = Vec::new();
    let mut previous_is_local = false;
    for entry in conversation(&entries).into_iter().filter_map(|at| entries.get(at)) {
        let fields = &entry.fields;
        let local = LocalCommand::of(entry, previous_is_local);
        previous_is_local = local.is_some();
        if fields.is_meta || fields.is_sidechain || fields.team_name.is_some() {
            continue;
        }
        let mut message = match entry.kind {
            EntryKind::User | EntryKind::Assistant => TranscriptMessage::of(entry),
            EntryKind::System if options.system == SystemEntries::Included => TranscriptMessage::of(entry),
            EntryKind::Attachment => match TranscriptMessage::of_queued(entry) {
                Some(message) => message,
                None => continue,
            },
            EntryKind::System | EntryKind::Progress => continue,
        };
        if local.is_some() && message.kind == TranscriptMessageKind::User {
            message.origin = TranscriptOrigin::LocalCommand;
        }
        found.push(message);
    }
    Ok(found.into_iter().skip(options.offset).take(options.limit.unwrap_or(usize::MAX)).collect())
}

/// The entries that record a command executed by the runtime: a caveat to the model, the command, and its
/// output. A command that is a prompt has no caveat.
struct LocalCommand;

impl LocalCommand {
    fn of(entry: &TranscriptEntry, follows_local: bool) -> Option<Self> {
        if entry.kind != EntryKind::User {
            return None;
        }
        let head = entry.head();
        let text = head.texts().next()?.trim_start();
        let is_warning = entry.fields.is_meta && text.starts_with("<local-command-caveat>");
        let tags = ["<command-name>", "<local-command-stdout>", "<local-command-stderr>"];
        let is_record = follows_local && tags.iter().any(|tag| text.starts_with(tag));
        (is_warning || is_record).then_some(Self)
    }
}

/// A prompt that was queued during a turn.
#[derive(Deserialize)]
struct QueuedCommand<'a> {
    #[serde(borrow)]
    prompt: &'a RawValue,
    #[serde(default, deserialize_with = "lenient")]
    source_uuid: Option<String>,
    #[serde(rename = "commandMode", default, deserialize_with = "lenient")]
    mode: Option<String>,
    #[serde(borrow, default)]
    origin: Option<&'a RawValue>,
}

impl TranscriptMessage {
    pub(super) fn of(entry: &TranscriptEntry) -> Self {
        let fields = &entry.fields;
        Self {
            kind: match entry.kind {
                EntryKind::User | EntryKind::Attachment | EntryKind::Progress => TranscriptMessageKind::User,
                EntryKind::Assistant => TranscriptMessageKind::Assistant,
                EntryKind::System => TranscriptMessageKind::System,
            },
            uuid: entry.uuid.clone(),
            session_id: fields.session_id.clone(),
            timestamp: fields.timestamp.clone(),
            message: fields.message.clone(),
            parent_tool_use_id: None,
            parent_agent_id: None,
            tool_use_result: fields.tool_use_result.clone(),
            tool_denial: fields.tool_denial_kind.clone(),
            origin: if fields.is_compact_summary {
                TranscriptOrigin::CompactSummary
            } else {
                TranscriptOrigin::Plain
            },
            sender: fields.origin.clone(),
            is_meta: fields.is_meta || fields.is_compact_summary || fields.is_visible_in_transcript_only,
            subtype: fields.subtype.clone(),
            content: fields.content.clone(),
            compact_metadata: fields.compact_metadata.clone(),
        }
    }

    /// The queued prompt in an attachment, if any.
    fn of_queued(entry: &TranscriptEntry) -> Option<Self> {
        if !entry.is_queued_prompt() {
            return None;
        }
        let queued: QueuedCommand<'_> =
            serde_json::from_str(entry.fields.attachment.as_deref()?.get()).ok()?;
        let message =
            serde_json::value::to_raw_value(&PromptMessage { role: "user", content: queued.prompt }).ok()?;
        let notification = (queued.mode.as_deref() == Some("task-notification"))
            .then(|| serde_json::value::to_raw_value(&json!({"kind": "task-notification"})).ok());
        let mut converted = Self::of(entry);
        converted.message = Some(message);
        converted.origin = TranscriptOrigin::Queued;
        converted.sender =
            queued.origin.map(ToOwned::to_owned).or(notification.flatten()).or(converted.sender);
        if let Some(uuid) = queued.source_uuid {
            converted.uuid = uuid;
        }
        Some(converted)
    }

    /// Converts the message to a frame of the live stream.
    pub fn to_wire(&self) -> Result<Message, DecodeError> {
        decode(Value::Object(self.frame()).to_string().as_bytes())
    }

    fn frame(&self) -> Map<String, Value> {
        let value = |raw: &RawValue| serde_json::from_str(raw.get()).unwrap_or_default();
        let mut frame = Map::new();
        let kind = match self.kind {
            TranscriptMessageKind::User => "user",
            TranscriptMessageKind::Assistant => "assistant",
            TranscriptMessageKind::System => "system",
        };
        frame.insert("type".into(), kind.into());
        frame.insert("uuid".into(), self.uuid.clone().into());
        frame.insert("session_id".into(), self.session_id.clone().into());
        if self.kind != TranscriptMessageKind::System {
            frame.insert("parent_tool_use_id".into(), self.parent_tool_use_id.clone().into());
        }
        let raws = [
            ("message", &self.message),
            ("tool_use_result", &self.tool_use_result),
            ("origin", &self.sender),
            ("content", &self.content),
            ("compact_metadata", &self.compact_metadata),
        ];
        for (key, raw) in raws.into_iter().filter_map(|(key, raw)| raw.as_deref().map(|raw| (key, raw))) {
            frame.insert(key.into(), value(raw));
        }
        for (key, text) in [("timestamp", &self.timestamp), ("subtype", &self.subtype)] {
            text.as_ref().map(|text| frame.insert(key.into(), text.clone().into()));
        }
        if let Some(denial) = &self.tool_denial {
            let head = MessageHead::parse(self.message.as_deref());
            let call = head.tool_result_of().unwrap_or_default();
            let meta = json!([{"id": call, "non_execution_kind": denial}]);
            frame.insert("tool_result_meta".into(), meta);
        }
        if self.is_meta {
            frame.insert("isSynthetic".into(), true.into());
        }
        frame
    }
}

#[derive(serde::Serialize)]
struct PromptMessage<'a> {
    role: &'a str,
    content: &'a RawValue,
}
