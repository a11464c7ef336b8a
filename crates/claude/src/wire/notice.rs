//! Known frames that need no reaction.
//!
//! Owns their types. Frames that are declared but have never been observed have only an envelope; their
//! other fields are kept like unknown fields.

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::cursor::Cursor;
use super::fields::{Opaque, Tags, Wire, wire_enum, wire_struct};

wire_struct! {
    /// A frame of which only the envelope is known.
    pub struct NoticeMessage {
        /// Subtype of the frame, if any.
        subtype: String = "subtype",
        /// Id of the conversation.
        session_id: String = "session_id",
        /// Id of the frame.
        uuid: String = "uuid",
    }
}

wire_struct! {
    /// A keep-alive.
    pub struct KeepAliveMessage {
        /// Progress of the startup, in newer runtimes if requested.
        startup_mark: String = "startup_mark",
    }
}

wire_enum! {
    /// Information outside of the conversation.
    pub enum Notice {
        /// A suggestion for the next prompt.
        PromptSuggestion(PromptSuggestionMessage) = "prompt_suggestion",
        /// Lines written to the transcript.
        TranscriptMirror(TranscriptMirrorMessage) = "transcript_mirror",
        /// Progress of a tool.
        ToolProgress(NoticeMessage) = "tool_progress",
        /// A summary of several tool calls.
        ToolUseSummary(NoticeMessage) = "tool_use_summary",
        /// Progress of a login.
        AuthStatus(NoticeMessage) = "auth_status",
    }
}

impl Notice {
    /// The wire name of the frame's kind.
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
    /// A suggestion for the next prompt.
    pub struct PromptSuggestionMessage {
        /// The suggested text.
        suggestion: String = "suggestion",
        /// Id of the conversation.
        session_id: String = "session_id",
        /// Id of the frame.
        uuid: String = "uuid",
    }
}

wire_struct! {
    /// Lines written to the transcript.
    pub struct TranscriptMirrorMessage {
        /// Path of the transcript.
        file_path: String = "filePath",
        /// The lines.
        entries: Vec<Box<RawValue>> = "entries",
    }
}

/// `system` frames that need no reaction.
#[derive(Debug, Clone)]
pub enum SystemNotice {
    /// The set of background tasks changed.
    BackgroundTasksChanged(BackgroundTasksChangedMessage),
    /// The set of slash commands changed.
    CommandsChanged(CommandsChangedMessage),
    /// Progress of a host request.
    ControlRequestProgress(ControlRequestProgressMessage),
    /// An informational message for the user.
    Informational(InformationalMessage),
    /// A fallback model answers because the original one is unavailable.
    ModelFallback(ModelFallbackMessage),
    /// A fallback model answers because the original one refused.
    ModelRefusalFallback(ModelFallbackMessage),
    /// A transient notification for the user.
    Notification(NotificationMessage),
    /// A tool was denied without asking.
    PermissionDenied(PermissionDeniedMessage),
    /// The title of the conversation changed.
    SessionTitleChanged(SessionTitleChangedMessage),
    /// Number of thinking tokens.
    ThinkingTokens(ThinkingTokensMessage),
    /// A frame of which only the envelope is known.
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
    /// Reads a frame of a known subtype.
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

    /// The wire name of the frame's subtype.
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
    /// The set of background tasks changed.
    pub struct BackgroundTasksChangedMessage {
        /// All background tasks.
        tasks: Vec<Box<RawValue>> = "tasks",
        /// Id of the conversation.
        session_id: String = "session_id",
        /// Id of the frame.
        uuid: String = "uuid",
    }
}

wire_struct! {
    /// The set of slash commands changed.
    pub struct CommandsChangedMessage {
        /// All slash commands.
        commands: Vec<Box<RawValue>> = "commands",
        /// Id of the conversation.
        session_id: String = "session_id",
        /// Id of the frame.
        uuid: String = "uuid",
    }
}

wire_struct! {
    /// Progress of a host request.
    pub struct ControlRequestProgressMessage {
        /// Id of the request.
        request_id: String = "request_id",
        /// Status of the request.
        status: String = "status",
        /// Id of the conversation.
        session_id: String = "session_id",
        /// Id of the frame.
        uuid: String = "uuid",
    }
}

wire_struct! {
    /// An informational message for the user.
    pub struct InformationalMessage {
        /// The text.
        content: String = "content",
        /// Level, such as `info` or `warning`.
        level: String = "level",
        /// Id of the conversation.
        session_id: String = "session_id",
        /// Id of the frame.
        uuid: String = "uuid",
    }
}

wire_struct! {
    /// A fallback model answers.
    pub struct ModelFallbackMessage {
        /// The reason.
        trigger: String = "trigger",
        /// The requested model.
        original_model: String = "original_model",
        /// The fallback model.
        fallback_model: String = "fallback_model",
        /// Text for the user.
        content: String = "content",
        /// Id of the conversation.
        session_id: String = "session_id",
        /// Id of the frame.
        uuid: String = "uuid",
    }
}

wire_struct! {
    /// A transient notification for the user.
    pub struct NotificationMessage {
        /// Identifies the subject of the notification.
        key: String = "key",
        /// The text.
        text: String = "text",
        /// Priority of the notification.
        priority: String = "priority",
        /// Id of the conversation.
        session_id: String = "session_id",
        /// Id of the frame.
        uuid: String = "uuid",
    }
}

wire_struct! {
    /// A tool was denied without asking.
    pub struct PermissionDeniedMessage {
        /// Name of the tool.
        tool_name: String = "tool_name",
        /// Id of the call.
        tool_use_id: String = "tool_use_id",
        /// Type of the reason.
        decision_reason_type: String = "decision_reason_type",
        /// The message to the model.
        message: String = "message",
        /// Id of the conversation.
        session_id: String = "session_id",
        /// Id of the frame.
        uuid: String = "uuid",
    }
}

wire_struct! {
    /// The title of the conversation changed.
    pub struct SessionTitleChangedMessage {
        /// The title.
        title: String = "title",
        /// Id of the conversation.
        session_id: String = "session_id",
        /// Id of the frame.
        uuid: String = "uuid",
    }
}

wire_struct! {
    /// Number of thinking tokens.
    pub struct ThinkingTokensMessage {
        /// Total so far.
        estimated_tokens: u64 = "estimated_tokens",
        /// Increase since the last frame.
        estimated_tokens_delta: u64 = "estimated_tokens_delta",
        /// Id of the conversation.
        session_id: String = "session_id",
        /// Id of the frame.
        uuid: String = "uuid",
    }
}
