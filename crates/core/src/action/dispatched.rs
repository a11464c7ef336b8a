//! The actions that clients may dispatch, as a type.
//!
//! The table in `table.rs` creates these values. A match on them is exhaustive without
//! listing the actions that only hosts send.

use ahp_types::actions::{
    ChangesetFilesReviewChangedAction, ChatDraftChangedAction, ChatInputAnswerChangedAction,
    ChatInputCompletedAction, ChatIsArchivedChangedAction, ChatIsReadChangedAction,
    ChatPendingMessageRemovedAction, ChatPendingMessageSetAction, ChatQueuedMessagesReorderedAction,
    ChatToolCallCompleteAction, ChatToolCallConfirmedAction, ChatToolCallContentChangedAction,
    ChatToolCallResultConfirmedAction, ChatTruncatedAction, ChatTurnCancelledAction, ChatTurnResumeAction,
    ChatTurnStartedAction, ChatWorkingDirectoryRemovedAction, ChatWorkingDirectorySetAction,
    RootConfigChangedAction, SessionActiveClientRemovedAction, SessionActiveClientSetAction,
    SessionConfigChangedAction, SessionCustomizationToggledAction, SessionIsArchivedChangedAction,
    SessionIsReadChangedAction, SessionMcpServerBackgroundRequestedAction,
    SessionMcpServerStartRequestedAction, SessionMcpServerStopRequestedAction, SessionTitleChangedAction,
    SessionWorkingDirectoryRemovedAction, SessionWorkingDirectoryReplacedAction,
    SessionWorkingDirectorySetAction,
};

/// An action that a client may dispatch on some channel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Dispatched<'a> {
    RootConfigChanged(&'a RootConfigChangedAction),
    SessionTitleChanged(&'a SessionTitleChangedAction),
    SessionIsReadChanged(&'a SessionIsReadChangedAction),
    SessionIsArchivedChanged(&'a SessionIsArchivedChangedAction),
    SessionActiveClientSet(&'a SessionActiveClientSetAction),
    SessionActiveClientRemoved(&'a SessionActiveClientRemovedAction),
    SessionWorkingDirectorySet(&'a SessionWorkingDirectorySetAction),
    SessionWorkingDirectoryRemoved(&'a SessionWorkingDirectoryRemovedAction),
    SessionWorkingDirectoryReplaced(&'a SessionWorkingDirectoryReplacedAction),
    SessionCustomizationToggled(&'a SessionCustomizationToggledAction),
    SessionMcpServerStartRequested(&'a SessionMcpServerStartRequestedAction),
    SessionMcpServerStopRequested(&'a SessionMcpServerStopRequestedAction),
    SessionMcpServerBackgroundRequested(&'a SessionMcpServerBackgroundRequestedAction),
    SessionConfigChanged(&'a SessionConfigChangedAction),
    ChatTurnStarted(&'a ChatTurnStartedAction),
    ChatToolCallConfirmed(&'a ChatToolCallConfirmedAction),
    ChatToolCallComplete(&'a ChatToolCallCompleteAction),
    ChatToolCallResultConfirmed(&'a ChatToolCallResultConfirmedAction),
    ChatToolCallContentChanged(&'a ChatToolCallContentChangedAction),
    ChatTurnCancelled(&'a ChatTurnCancelledAction),
    ChatTurnResume(&'a ChatTurnResumeAction),
    ChatWorkingDirectorySet(&'a ChatWorkingDirectorySetAction),
    ChatWorkingDirectoryRemoved(&'a ChatWorkingDirectoryRemovedAction),
    ChatPendingMessageSet(&'a ChatPendingMessageSetAction),
    ChatPendingMessageRemoved(&'a ChatPendingMessageRemovedAction),
    ChatQueuedMessagesReordered(&'a ChatQueuedMessagesReorderedAction),
    ChatDraftChanged(&'a ChatDraftChangedAction),
    ChatIsReadChanged(&'a ChatIsReadChangedAction),
    ChatIsArchivedChanged(&'a ChatIsArchivedChangedAction),
    ChatInputAnswerChanged(&'a ChatInputAnswerChangedAction),
    ChatInputCompleted(&'a ChatInputCompletedAction),
    ChatTruncated(&'a ChatTruncatedAction),
    ChangesetFilesReviewChanged(&'a ChangesetFilesReviewChangedAction),
}
