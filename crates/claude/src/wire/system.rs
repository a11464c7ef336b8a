//! The `system` frames: what happens around a conversation.
//!
//! Owns the shapes of those that mean something for a turn; the others are in `notice.rs`. A subtype that is
//! not known is kept whole.

use std::borrow::Cow;

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::cursor::Cursor;
use super::fields::{Opaque, Tags, Wire, wire_struct};
use super::notice::SystemNotice;

/// A `system` frame.
#[derive(Debug, Clone)]
pub enum SystemMessage {
    /// A turn starts; says what the runtime has to offer. Comes again with every turn.
    Init(Box<InitMessage>),
    /// What the runtime is doing.
    Status(StatusMessage),
    /// The API failed and is asked again.
    ApiRetry(ApiRetryMessage),
    /// The conversation became busy, blocked on the user, or idle.
    SessionStateChanged(SessionStateChangedMessage),
    /// The conversation was summarized.
    CompactBoundary(CompactBoundaryMessage),
    /// A task (subagent or shell command) started.
    TaskStarted(Box<TaskMessage>),
    /// A task goes on.
    TaskProgress(Box<TaskMessage>),
    /// A task's record changed.
    TaskUpdated(Box<TaskMessage>),
    /// A task ended.
    TaskNotification(Box<TaskMessage>),
    /// A hook command of the user's settings started.
    HookStarted(HookMessage),
    /// A hook command goes on.
    HookProgress(HookMessage),
    /// A hook command ended.
    HookResponse(HookMessage),
    /// Side information that needs no reaction.
    Notice(Box<SystemNotice>),
    /// A subtype that this crate does not know.
    Unknown(Opaque),
}

impl SystemMessage {
    pub(super) fn read_subtype(subtype: &str, cursor: &mut Cursor<'_>) -> Option<Self> {
        match subtype {
            "init" => Wire::read(cursor).map(Self::Init),
            "status" => Wire::read(cursor).map(Self::Status),
            "api_retry" => Wire::read(cursor).map(Self::ApiRetry),
            "session_state_changed" => Wire::read(cursor).map(Self::SessionStateChanged),
            "compact_boundary" => Wire::read(cursor).map(Self::CompactBoundary),
            "task_started" => Wire::read(cursor).map(Self::TaskStarted),
            "task_progress" => Wire::read(cursor).map(Self::TaskProgress),
            "task_updated" => Wire::read(cursor).map(Self::TaskUpdated),
            "task_notification" => Wire::read(cursor).map(Self::TaskNotification),
            "hook_started" => Wire::read(cursor).map(Self::HookStarted),
            "hook_progress" => Wire::read(cursor).map(Self::HookProgress),
            "hook_response" => Wire::read(cursor).map(Self::HookResponse),
            _ => match SystemNotice::read_subtype(subtype, cursor)? {
                Ok(notice) => Some(Self::Notice(Box::new(notice))),
                Err(unknown) => Some(Self::Unknown(unknown)),
            },
        }
    }

    /// The frame's kind for logs: `system/` and the subtype.
    pub fn kind(&self) -> Cow<'_, str> {
        Cow::Borrowed(match self {
            Self::Init(_) => "system/init",
            Self::Status(_) => "system/status",
            Self::ApiRetry(_) => "system/api_retry",
            Self::SessionStateChanged(_) => "system/session_state_changed",
            Self::CompactBoundary(_) => "system/compact_boundary",
            Self::TaskStarted(_) => "system/task_started",
            Self::TaskProgress(_) => "system/task_progress",
            Self::TaskUpdated(_) => "system/task_updated",
            Self::TaskNotification(_) => "system/task_notification",
            Self::HookStarted(_) => "system/hook_started",
            Self::HookProgress(_) => "system/hook_progress",
            Self::HookResponse(_) => "system/hook_response",
            Self::Notice(notice) => return Cow::Owned(format!("system/{}", notice.subtype())),
            Self::Unknown(message) => return Cow::Owned(format!("system/{}", message.kind)),
        })
    }
}

impl Wire for SystemMessage {
    fn read(cursor: &mut Cursor<'_>) -> Option<Self> {
        Self::read_subtype(&Tags::of(cursor).subtype.unwrap_or_default(), cursor)
    }
}

impl Serialize for SystemMessage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Init(message) => message.serialize(serializer),
            Self::Status(message) => message.serialize(serializer),
            Self::ApiRetry(message) => message.serialize(serializer),
            Self::SessionStateChanged(message) => message.serialize(serializer),
            Self::CompactBoundary(message) => message.serialize(serializer),
            Self::TaskStarted(message)
            | Self::TaskProgress(message)
            | Self::TaskUpdated(message)
            | Self::TaskNotification(message) => message.serialize(serializer),
            Self::HookStarted(message) | Self::HookProgress(message) | Self::HookResponse(message) => {
                message.serialize(serializer)
            }
            Self::Notice(message) => message.serialize(serializer),
            Self::Unknown(message) => message.serialize(serializer),
        }
    }
}

wire_struct! {
    /// What the runtime has to offer, at the start of every turn.
    pub struct InitMessage {
        /// The conversation.
        session_id: String = "session_id",
        /// The frame's own id.
        uuid: String = "uuid",
        /// The runtime's working directory.
        cwd: String = "cwd",
        /// The model of the turn.
        model: String = "model",
        /// The permission mode of the turn.
        permission_mode: String = "permissionMode",
        /// The names of the tools.
        tools: Vec<String> = "tools",
        /// The MCP servers and how they are.
        mcp_servers: Box<RawValue> = "mcp_servers",
        /// The names of the slash commands.
        slash_commands: Vec<String> = "slash_commands",
        /// The runtime's version.
        claude_code_version: String = "claude_code_version",
        /// What the runtime can do beyond older ones, in newer runtimes.
        capabilities: Vec<String> = "capabilities",
        /// The host messages that the turn answers, in newer runtimes.
        user_message_uuids: Vec<String> = "user_message_uuids",
    }
}

wire_struct! {
    /// What the runtime is doing.
    pub struct StatusMessage {
        /// `requesting`, `compacting`, or nothing in particular.
        status: String = "status",
        /// The new permission mode, when it changed.
        permission_mode: String = "permissionMode",
        /// How a compaction ended.
        compact_result: String = "compact_result",
        /// The host messages that the turn answers, in newer runtimes.
        user_message_uuids: Vec<String> = "user_message_uuids",
        /// The conversation.
        session_id: String = "session_id",
        /// The frame's own id.
        uuid: String = "uuid",
    }
}

wire_struct! {
    /// The API failed and is asked again.
    pub struct ApiRetryMessage {
        /// Which attempt failed, from 1.
        attempt: u64 = "attempt",
        /// How many attempts there are.
        max_retries: u64 = "max_retries",
        /// The pause before the next one, in milliseconds; see [`ApiRetryMessage::retry_delay`].
        retry_delay_ms: Box<RawValue> = "retry_delay_ms",
        /// The API's status; absent if there was no answer at all.
        error_status: u64 = "error_status",
        /// The failure's name.
        error: String = "error",
        /// The conversation.
        session_id: String = "session_id",
        /// The frame's own id.
        uuid: String = "uuid",
    }
}

wire_struct! {
    /// The conversation became busy, blocked on the user, or idle.
    pub struct SessionStateChangedMessage {
        /// `running`, `requires_action` or `idle`.
        state: String = "state",
        /// The conversation.
        session_id: String = "session_id",
        /// The frame's own id.
        uuid: String = "uuid",
    }
}

wire_struct! {
    /// The conversation was summarized up to here.
    pub struct CompactBoundaryMessage {
        /// Trigger and token counts.
        compact_metadata: Box<RawValue> = "compact_metadata",
        /// The conversation.
        session_id: String = "session_id",
        /// The frame's own id.
        uuid: String = "uuid",
    }
}

wire_struct! {
    /// A task (subagent or shell command) and what happened to it.
    pub struct TaskMessage {
        /// The task's id, which `stop_task` takes.
        task_id: String = "task_id",
        /// The tool call that started it.
        tool_use_id: String = "tool_use_id",
        /// What it is for.
        description: String = "description",
        /// `local_agent`, `local_bash`, …
        task_type: String = "task_type",
        /// How it ended, in notifications.
        status: String = "status",
        /// The changed fields, in updates.
        patch: TaskPatch = "patch",
        /// What it did, in notifications.
        summary: String = "summary",
        /// Where its output is, in notifications; empty for a task that ran in the foreground.
        output_file: String = "output_file",
        /// A subagent's last tool.
        last_tool_name: String = "last_tool_name",
        /// A subagent's prompt.
        prompt: String = "prompt",
        /// The conversation.
        session_id: String = "session_id",
        /// The frame's own id.
        uuid: String = "uuid",
    }
}

wire_struct! {
    /// The changed fields of a task.
    pub struct TaskPatch {
        /// The task's new status.
        status: String = "status",
    }
}

wire_struct! {
    /// A hook command of the user's settings.
    pub struct HookMessage {
        /// This run's id.
        hook_id: String = "hook_id",
        /// The hook's name.
        hook_name: String = "hook_name",
        /// The event that it hangs on.
        hook_event: String = "hook_event",
        /// How it ended.
        outcome: String = "outcome",
        /// The conversation.
        session_id: String = "session_id",
        /// The frame's own id.
        uuid: String = "uuid",
    }
}
