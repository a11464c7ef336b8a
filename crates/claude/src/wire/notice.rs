//! Side information: frames that are known and need no reaction.
//!
//! Owns their shapes. Those that were only ever declared and never met have an envelope alone; the rest of
//! them is kept like everything that is not known.

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::cursor::Cursor;
use super::fields::{Opaque, Tags, Wire, wire_enum, wire_struct};

wire_struct! {
    /// A frame of which only the envelope is known.
    pub struct NoticeMessage {
        /// The frame's subtype, if it has one.
        subtype: String = "subtype",
        /// The conversation.
        session_id: String = "session_id",
        /// The frame's own id.
        uuid: String = "uuid",
    }
}

wire_struct! {
    /// A sign of life.
    pub struct KeepAliveMessage {
        /// How far the start has come, in newer runtimes that were asked to say so.
        startup_mark: String = "startup_mark",
    }
}

wire_enum! {
    /// Side information beside the conversation.
    pub enum Notice {
        /// What the user might want to say next.
        PromptSuggestion(PromptSuggestionMessage) = "prompt_suggestion",
        /// Lines that were written to the transcript.
        TranscriptMirror(TranscriptMirrorMessage) = "transcript_mirror",
        /// A tool goes on.
        ToolProgress(NoticeMessage) = "tool_progress",
        /// What a few tool calls were about.
        ToolUseSummary(NoticeMessage) = "tool_use_summary",
        /// How a login goes.
        AuthStatus(NoticeMessage) = "auth_status",
    }
}

impl Notice {
    /// The frame's kind as the wire names it.
    pub fn kind(&self) -> &str {
        match self {
            Self::PromptSuggestion(_) => "prompt_suggestion",
            Self::TranscriptMirror(_) => "transcript_mirror",
            Self::ToolProgress(_) => "tool_progress",
            Self::ToolUseSummary(_) => "tool_use_summary",
            Self::AuthStatus(_) => "auth_status",
            Self::Unknown(message) => &message.kind,
        }
    }
}

impl Wire for Notice {
    fn read(cursor: &mut Cursor<'_>) -> Option<Self> {
        Self::read_tagged(&Tags::of(cursor).kind.unwrap_or_default(), cursor)
    }
}

wire_struct! {
    /// What the user might want to say next.
    pub struct PromptSuggestionMessage {
        /// The words.
        suggestion: String = "suggestion",
        /// The conversation.
        session_id: String = "session_id",
        /// The frame's own id.
        uuid: String = "uuid",
    }
}

wire_struct! {
    /// Lines that were written to the transcript.
    pub struct TranscriptMirrorMessage {
        /// The transcript.
        file_path: String = "filePath",
        /// The lines.
        entries: Vec<Box<RawValue>> = "entries",
    }
}

/// Side information among the `system` frames.
#[derive(Debug, Clone)]
pub enum SystemNotice {
    /// The background tasks are others now.
    BackgroundTasksChanged(BackgroundTasksChangedMessage),
    /// The slash commands are others now.
    CommandsChanged(CommandsChangedMessage),
    /// A request of the host's takes its time.
    ControlRequestProgress(ControlRequestProgressMessage),
    /// Something the user may want to know.
    Informational(InformationalMessage),
    /// Another model answers, because the first one cannot.
    ModelFallback(ModelFallbackMessage),
    /// Another model answers, because the first one would not.
    ModelRefusalFallback(ModelFallbackMessage),
    /// Something the user should see for a moment.
    Notification(NotificationMessage),
    /// A tool was denied without a question.
    PermissionDenied(PermissionDeniedMessage),
    /// The conversation has another title.
    SessionTitleChanged(SessionTitleChangedMessage),
    /// How much has been thought.
    ThinkingTokens(ThinkingTokensMessage),
    /// One of those of which only the envelope is known.
    Envelope(NoticeMessage),
}

/// Subtypes of which only the envelope is known.
const ENVELOPES: &[&str] = &[
    "elicitation_complete",
    "files_persisted",
    "local_command_output",
    "memory_recall",
    "plugin_install",
    "session_writes_lost",
    "worker_shutting_down",
];

impl SystemNotice {
    /// Reads a frame of one of the known subtypes.
    pub(super) fn read_subtype(subtype: &str, cursor: &mut Cursor<'_>) -> Option<Result<Self, Opaque>> {
        let notice = match subtype {
            "background_tasks_changed" => Wire::read(cursor).map(Self::BackgroundTasksChanged),
            "commands_changed" => Wire::read(cursor).map(Self::CommandsChanged),
            "control_request_progress" => Wire::read(cursor).map(Self::ControlRequestProgress),
            "informational" => Wire::read(cursor).map(Self::Informational),
            "model_fallback" => Wire::read(cursor).map(Self::ModelFallback),
            "model_refusal_fallback" => Wire::read(cursor).map(Self::ModelRefusalFallback),
            "notification" => Wire::read(cursor).map(Self::Notification),
            "permission_denied" => Wire::read(cursor).map(Self::PermissionDenied),
            "session_title_changed" => Wire::read(cursor).map(Self::SessionTitleChanged),
            "thinking_tokens" => Wire::read(cursor).map(Self::ThinkingTokens),
            _ if ENVELOPES.contains(&subtype) => Wire::read(cursor).map(Self::Envelope),
            _ => return Opaque::read(subtype, cursor).map(Err),
        };
        notice.map(Ok)
    }

    /// The frame's subtype as the wire names it.
    pub fn subtype(&self) -> &str {
        match self {
            Self::BackgroundTasksChanged(_) => "background_tasks_changed",
            Self::CommandsChanged(_) => "commands_changed",
            Self::ControlRequestProgress(_) => "control_request_progress",
            Self::Informational(_) => "informational",
            Self::ModelFallback(_) => "model_fallback",
            Self::ModelRefusalFallback(_) => "model_refusal_fallback",
            Self::Notification(_) => "notification",
            Self::PermissionDenied(_) => "permission_denied",
            Self::SessionTitleChanged(_) => "session_title_changed",
            Self::ThinkingTokens(_) => "thinking_tokens",
            Self::Envelope(message) => message.subtype.as_deref().unwrap_or_default(),
        }
    }
}

impl Serialize for SystemNotice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::BackgroundTasksChanged(message) => message.serialize(serializer),
            Self::CommandsChanged(message) => message.serialize(serializer),
            Self::ControlRequestProgress(message) => message.serialize(serializer),
            Self::Informational(message) => message.serialize(serializer),
            Self::ModelFallback(message) | Self::ModelRefusalFallback(message) => {
                message.serialize(serializer)
            }
            Self::Notification(message) => message.serialize(serializer),
            Self::PermissionDenied(message) => message.serialize(serializer),
            Self::SessionTitleChanged(message) => message.serialize(serializer),
            Self::ThinkingTokens(message) => message.serialize(serializer),
            Self::Envelope(message) => message.serialize(serializer),
        }
    }
}

wire_struct! {
    /// The background tasks.
    pub struct BackgroundTasksChangedMessage {
        /// All of them.
        tasks: Vec<Box<RawValue>> = "tasks",
        /// The conversation.
        session_id: String = "session_id",
        /// The frame's own id.
        uuid: String = "uuid",
    }
}

wire_struct! {
    /// The slash commands.
    pub struct CommandsChangedMessage {
        /// All of them.
        commands: Vec<Box<RawValue>> = "commands",
        /// The conversation.
        session_id: String = "session_id",
        /// The frame's own id.
        uuid: String = "uuid",
    }
}

wire_struct! {
    /// How a request of the host's goes.
    pub struct ControlRequestProgressMessage {
        /// The request.
        request_id: String = "request_id",
        /// How it goes.
        status: String = "status",
        /// The conversation.
        session_id: String = "session_id",
        /// The frame's own id.
        uuid: String = "uuid",
    }
}

wire_struct! {
    /// Something the user may want to know.
    pub struct InformationalMessage {
        /// The words.
        content: String = "content",
        /// `info`, `warning` or the like.
        level: String = "level",
        /// The conversation.
        session_id: String = "session_id",
        /// The frame's own id.
        uuid: String = "uuid",
    }
}

wire_struct! {
    /// Another model answers.
    pub struct ModelFallbackMessage {
        /// Why.
        trigger: String = "trigger",
        /// The model that was asked for.
        original_model: String = "original_model",
        /// The model that answers.
        fallback_model: String = "fallback_model",
        /// The words for the user.
        content: String = "content",
        /// The conversation.
        session_id: String = "session_id",
        /// The frame's own id.
        uuid: String = "uuid",
    }
}

wire_struct! {
    /// Something the user should see for a moment.
    pub struct NotificationMessage {
        /// What it is about.
        key: String = "key",
        /// The words.
        text: String = "text",
        /// How urgent it is.
        priority: String = "priority",
        /// The conversation.
        session_id: String = "session_id",
        /// The frame's own id.
        uuid: String = "uuid",
    }
}

wire_struct! {
    /// A tool was denied without a question.
    pub struct PermissionDeniedMessage {
        /// The tool.
        tool_name: String = "tool_name",
        /// The call.
        tool_use_id: String = "tool_use_id",
        /// What decided it.
        decision_reason_type: String = "decision_reason_type",
        /// What the model was told.
        message: String = "message",
        /// The conversation.
        session_id: String = "session_id",
        /// The frame's own id.
        uuid: String = "uuid",
    }
}

wire_struct! {
    /// The conversation has another title.
    pub struct SessionTitleChangedMessage {
        /// The title.
        title: String = "title",
        /// The conversation.
        session_id: String = "session_id",
        /// The frame's own id.
        uuid: String = "uuid",
    }
}

wire_struct! {
    /// How much has been thought.
    pub struct ThinkingTokensMessage {
        /// So far.
        estimated_tokens: u64 = "estimated_tokens",
        /// Since the last frame.
        estimated_tokens_delta: u64 = "estimated_tokens_delta",
        /// The conversation.
        session_id: String = "session_id",
        /// The frame's own id.
        uuid: String = "uuid",
    }
}
