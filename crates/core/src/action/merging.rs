//! Defines which host actions can be merged while they wait in a client's outbox.
//!
//! `state::merge` encodes and merges the frames; this module extracts the mergeable
//! fields of an action. An action with metadata is never merged, because the metadata
//! would be lost.

use ahp_types::actions::{
    ChatActivityChangedAction, ChatDeltaAction, ChatReasoningAction, ChatToolCallDeltaAction,
    ChatUsageAction, RootActiveSessionsChangedAction, SessionActivityChangedAction,
};

/// How an action merges with the next action of the same kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Merging<'a> {
    /// Never merged.
    Never,
    /// The texts are concatenated.
    Append(TextDelta<'a>),
    /// The later action replaces the earlier one of the same turn. `turn` is `None` if
    /// the value does not belong to a turn.
    Replace {
        /// The turn that the value belongs to.
        turn: Option<&'a str>,
    },
}

/// An action that appends text to a part and does nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TextDelta<'a> {
    /// The action's type in the protocol.
    pub(crate) kind: &'static str,
    /// The id of the turn.
    pub(crate) turn: &'a str,
    /// The name of the JSON field that holds `target`.
    pub(crate) target_field: &'static str,
    /// The id of the part or tool call.
    pub(crate) target: &'a str,
    /// The appended text.
    pub(crate) content: &'a str,
}

impl<'a> From<&'a ChatDeltaAction> for Merging<'a> {
    fn from(action: &'a ChatDeltaAction) -> Self {
        if action.meta.is_some() {
            return Self::Never;
        }
        Self::Append(TextDelta {
            kind: "chat/delta",
            turn: &action.turn_id,
            target_field: "partId",
            target: &action.part_id,
            content: &action.content,
        })
    }
}

impl<'a> From<&'a ChatReasoningAction> for Merging<'a> {
    fn from(action: &'a ChatReasoningAction) -> Self {
        if action.meta.is_some() {
            return Self::Never;
        }
        Self::Append(TextDelta {
            kind: "chat/reasoning",
            turn: &action.turn_id,
            target_field: "partId",
            target: &action.part_id,
            content: &action.content,
        })
    }
}

impl<'a> From<&'a ChatToolCallDeltaAction> for Merging<'a> {
    fn from(action: &'a ChatToolCallDeltaAction) -> Self {
        let Some(content) = action.content.as_deref() else { return Self::Never };
        if action.meta.is_some() || action.invocation_message.is_some() {
            return Self::Never;
        }
        Self::Append(TextDelta {
            kind: "chat/toolCallDelta",
            turn: &action.turn_id,
            target_field: "toolCallId",
            target: &action.tool_call_id,
            content,
        })
    }
}

impl<'a> From<&'a ChatUsageAction> for Merging<'a> {
    fn from(action: &'a ChatUsageAction) -> Self {
        if action.meta.is_some() { Self::Never } else { Self::Replace { turn: Some(&action.turn_id) } }
    }
}

impl From<&ChatActivityChangedAction> for Merging<'_> {
    fn from(_: &ChatActivityChangedAction) -> Self {
        Self::Replace { turn: None }
    }
}

impl From<&SessionActivityChangedAction> for Merging<'_> {
    fn from(_: &SessionActivityChangedAction) -> Self {
        Self::Replace { turn: None }
    }
}

impl From<&RootActiveSessionsChangedAction> for Merging<'_> {
    fn from(_: &RootActiveSessionsChangedAction) -> Self {
        Self::Replace { turn: None }
    }
}
