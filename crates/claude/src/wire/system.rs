//! The `system` frames: events around a conversation.
//!
//! Owns the types of those that affect a turn; the others are in `notice.rs`. Unknown subtypes are kept
//! as raw JSON.

use std::borrow::Cow;

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::cursor::Cursor;
use super::fields::{Opaque, Tags, Wire, wire_struct};
use super::notice::SystemNotice;

/// A `system` frame.
#[derive(Debug, Clone)]
pub enum SystemMessage {
    /// The start of a turn, with the runtime's configuration. Sent for every turn.
    Init(Box<InitMessage>),
    /// The current activity of the runtime.
    Status(StatusMessage),
    /// An API call failed and is retried.
    ApiRetry(ApiRetryMessage),
    /// The conversation became busy, blocked on the user, or idle.
    SessionStateChanged(SessionStateChangedMessage),
    /// The conversation was compacted.
    CompactBoundary(CompactBoundaryMessage),
    /// A task (subagent or shell command) started.
    TaskStarted(Box<TaskMessage>),
    /// Progress of a task.
    TaskProgress(Box<TaskMessage>),
    /// A task's record changed.
    TaskUpdated(Box<TaskMessage>),
    /// A task ended.
    TaskNotification(Box<TaskMessage>),
    /// A hook command from the user's settings started.
    HookStarted(HookMessage),
    /// Progress of a hook command.
    HookProgress(HookMessage),
    /// A hook command ended.
    HookResponse(HookMessage),
    /// Other information that needs no reaction.
    Notice(Box<SystemNotice>),
    /// An unknown subtype.
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
    /// The configuration of the runtime, sent at the start of every turn.
    pub struct InitMessage {
        /// Id of the conversation.
        session_id: String = "session_id",
        /// Id of the frame.
        uuid: String = "uuid",
        /// The runtime's working directory.
        cwd: String = "cwd",
        /// The model of the turn.
        model: String = "model",
        /// The permission mode of the turn.
        permission_mode: String = "permissionMode",
        /// Names of the tools.
        tools: Vec<String> = "tools",
        /// The MCP servers and their status.
        mcp_servers: Box<RawValue> = "mcp_servers",
        /// Names of the slash commands.
        slash_commands: Vec<String> = "slash_commands",
        /// The runtime's version.
        claude_code_version: String = "claude_code_version",
        /// Capabilities, in newer runtimes.
        capabilities: Vec<String> = "capabilities",
        /// The host messages that the turn answers, in newer runtimes.
        user_message_uuids: Vec<String> = "user_message_uuids",
    }
}

wire_struct! {
    /// The current activity of the runtime.
    pub struct StatusMessage {
        /// `requesting`, `compacting`, or absent.
        status: String = "status",
        /// The new permission mode, if it changed.
        permission_mode: String = "permissionMode",
        /// Result of a compaction.
        compact_result: String = "compact_result",
        /// The host messages that the turn answers, in newer runtimes.
        user_message_uuids: Vec<String> = "user_message_uuids",
        /// Id of the conversation.
        session_id: String = "session_id",
        /// Id of the frame.
        uuid: String = "uuid",
    }
}

wire_struct! {
    /// An API call failed and is retried.
    pub struct ApiRetryMessage {
        /// Number of the failed attempt, from 1.
        attempt: u64 = "attempt",
        /// Maximum number of attempts.
        max_retries: u64 = "max_retries",
        /// Delay before the next attempt in milliseconds; see [`ApiRetryMessage::retry_delay`].
        retry_delay_ms: Box<RawValue> = "retry_delay_ms",
        /// API status; absent if there was no response.
        error_status: u64 = "error_status",
        /// Name of the error.
        error: String = "error",
        /// Id of the conversation.
        session_id: String = "session_id",
        /// Id of the frame.
        uuid: String = "uuid",
    }
}

wire_struct! {
    /// The conversation became busy, blocked on the user, or idle.
    pub struct SessionStateChangedMessage {
        /// `running`, `requires_action` or `idle`.
        state: String = "state",
        /// Id of the conversation.
        session_id: String = "session_id",
        /// Id of the frame.
        uuid: String = "uuid",
    }
}

wire_struct! {
    /// The conversation was compacted up to this point.
    pub struct CompactBoundaryMessage {
        /// Trigger and token counts.
        compact_metadata: Box<RawValue> = "compact_metadata",
        /// Id of the conversation.
        session_id: String = "session_id",
        /// Id of the frame.
        uuid: String = "uuid",
    }
}

wire_struct! {
    /// The state of a task (subagent or shell command).
    pub struct TaskMessage {
        /// Task id, for `stop_task`.
        task_id: String = "task_id",
        /// The tool call that started it.
        tool_use_id: String = "tool_use_id",
        /// Purpose of the task.
        description: String = "description",
        /// `local_agent`, `local_bash`, …
        task_type: String = "task_type",
        /// Final status, in notifications.
        status: String = "status",
        /// The changed fields, in updates.
        patch: TaskPatch = "patch",
        /// Summary of the work, in notifications.
        summary: String = "summary",
        /// Path of its output, in notifications; empty for a foreground task.
        output_file: String = "output_file",
        /// A subagent's last tool.
        last_tool_name: String = "last_tool_name",
        /// A subagent's prompt.
        prompt: String = "prompt",
        /// Id of the conversation.
        session_id: String = "session_id",
        /// Id of the frame.
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
    /// A hook command from the user's settings.
    pub struct HookMessage {
        /// Id of this run.
        hook_id: String = "hook_id",
        /// The hook's name.
        hook_name: String = "hook_name",
        /// The event that triggers it.
        hook_event: String = "hook_event",
        /// Result of the hook.
        outcome: String = "outcome",
        /// Id of the conversation.
        session_id: String = "session_id",
        /// Id of the frame.
        uuid: String = "uuid",
    }
}
