//! The state documents of channels, and their encoded snapshots.

use ahp::reducers::{
    ReduceOutcome, apply_action_to_changeset, apply_action_to_resource_watch, apply_action_to_root,
    apply_action_to_session,
};
use ahp_types::actions::StateAction;
use ahp_types::state::{ChangesetState, ChatState, ResourceWatchState, RootState, SessionState};
use serde::Serialize;
use serde_json::value::RawValue;

use super::chat::{ChatDoc, TurnError};
use super::session_status::session_status;
use crate::channel::{ChannelKind, ChannelUri};
use crate::ids::ServerSeq;

/// The state document of one channel.
#[derive(Clone, Debug)]
pub enum ChannelState {
    /// State of the root channel.
    Root(Box<RootState>),
    /// State of a session.
    Session(Box<SessionState>),
    /// State of a chat.
    Chat(Box<ChatDoc>),
    /// State of a file watch: its parameters. Its actions do not change the state.
    ResourceWatch(Box<ResourceWatchState>),
    /// State of a changeset.
    Changeset(Box<ChangesetState>),
}

impl ChannelState {
    /// Applies an action with the official reducers, so that a snapshot always equals the
    /// state that a client computes, except for the activity in a session's status.
    pub(crate) fn reduce(&mut self, action: &StateAction) -> Result<ReduceOutcome, TurnError> {
        match self {
            Self::Root(state) => Ok(apply_action_to_root(state, action)),
            Self::Session(state) => Ok(apply_action_to_session(state, action)),
            Self::Chat(chat) => chat.reduce(action),
            Self::ResourceWatch(state) => Ok(apply_action_to_resource_watch(state, action)),
            Self::Changeset(state) => Ok(apply_action_to_changeset(state, action)),
        }
    }

    /// The kind of channel that has this state.
    pub fn kind(&self) -> ChannelKind {
        match self {
            Self::Root(_) => ChannelKind::Root,
            Self::Session(_) => ChannelKind::Session,
            Self::Chat(_) => ChannelKind::Chat,
            Self::ResourceWatch(_) => ChannelKind::ResourceWatch,
            Self::Changeset(_) => ChannelKind::Changeset,
        }
    }

    /// The session's state, if this is a session.
    pub fn session(&self) -> Option<&SessionState> {
        match self {
            Self::Session(state) => Some(state),
            Self::Root(_) | Self::Chat(_) | Self::ResourceWatch(_) | Self::Changeset(_) => None,
        }
    }

    /// The chat's state, if this is a chat. Contains only the last finished turn.
    pub fn chat(&self) -> Option<&ChatState> {
        self.chat_doc().map(ChatDoc::open)
    }

    /// The chat's document, if this is a chat.
    pub fn chat_doc(&self) -> Option<&ChatDoc> {
        match self {
            Self::Chat(chat) => Some(chat),
            Self::Root(_) | Self::Session(_) | Self::ResourceWatch(_) | Self::Changeset(_) => None,
        }
    }

    /// The changeset's state, if this is a changeset.
    pub fn changeset(&self) -> Option<&ChangesetState> {
        match self {
            Self::Changeset(state) => Some(state),
            Self::Root(_) | Self::Session(_) | Self::Chat(_) | Self::ResourceWatch(_) => None,
        }
    }

    /// The root state, if this is the root channel.
    pub fn root(&self) -> Option<&RootState> {
        match self {
            Self::Root(state) => Some(state),
            Self::Session(_) | Self::Chat(_) | Self::ResourceWatch(_) | Self::Changeset(_) => None,
        }
    }
}

/// An encoded snapshot of a channel.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct EncodedSnapshot(Box<RawValue>);

impl EncodedSnapshot {
    /// Encodes a channel's state; for a chat, optionally only its newest turns.
    pub(super) fn encode(
        channel: &ChannelUri,
        state: &ChannelState,
        seq: ServerSeq,
        newest_turns: Option<usize>,
    ) -> Result<Self, serde_json::Error> {
        match state {
            ChannelState::Root(state) => Self::of(channel, state, seq),
            ChannelState::Session(state) => {
                let status = session_status(state);
                if status == state.status {
                    return Self::of(channel, state, seq);
                }
                Self::of(channel, &SessionState { status, ..state.as_ref().clone() }, seq)
            }
            ChannelState::Chat(chat) => Self::of(channel, &chat.window(newest_turns), seq),
            ChannelState::ResourceWatch(state) => Self::of(channel, state, seq),
            ChannelState::Changeset(state) => Self::of(channel, state, seq),
        }
    }

    fn of(channel: &ChannelUri, state: &impl Serialize, seq: ServerSeq) -> Result<Self, serde_json::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct SnapshotFields<'a, S> {
            resource: &'a str,
            state: &'a S,
            from_seq: u64,
        }
        let fields = SnapshotFields { resource: channel.as_str(), state, from_seq: seq.0 };
        serde_json::value::to_raw_value(&fields).map(Self)
    }
}
