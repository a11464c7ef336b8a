//! The state documents of channels, and their encoded snapshots.

use ahp::reducers::{ReduceOutcome, apply_action_to_chat, apply_action_to_root, apply_action_to_session};
use ahp_types::actions::StateAction;
use ahp_types::state::{ChatState, RootState, SessionState};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::channel::ChannelUri;
use crate::ids::ServerSeq;

/// The state document of one channel.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum ChannelState {
    /// The root channel's.
    Root(Box<RootState>),
    /// A session's.
    Session(Box<SessionState>),
    /// A chat's.
    Chat(Box<ChatState>),
}

impl ChannelState {
    /// Applies an action with the official reducers, so that a snapshot is by
    /// construction what a client computes.
    pub(super) fn reduce(&mut self, action: &StateAction) -> ReduceOutcome {
        match self {
            Self::Root(state) => apply_action_to_root(state, action),
            Self::Session(state) => apply_action_to_session(state, action),
            Self::Chat(state) => apply_action_to_chat(state, action),
        }
    }

    /// The session's state, if this is one.
    pub fn session(&self) -> Option<&SessionState> {
        match self {
            Self::Session(state) => Some(state),
            Self::Root(_) | Self::Chat(_) => None,
        }
    }

    /// The chat's state, if this is one.
    pub fn chat(&self) -> Option<&ChatState> {
        match self {
            Self::Chat(state) => Some(state),
            Self::Root(_) | Self::Session(_) => None,
        }
    }

    /// The root's state, if this is it.
    pub fn root(&self) -> Option<&RootState> {
        match self {
            Self::Root(state) => Some(state),
            Self::Session(_) | Self::Chat(_) => None,
        }
    }
}

/// A channel's snapshot as it goes over the wire.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct EncodedSnapshot(Box<RawValue>);

impl EncodedSnapshot {
    pub(super) fn encode(
        channel: &ChannelUri,
        state: &ChannelState,
        seq: ServerSeq,
    ) -> Result<Self, serde_json::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Fields<'a> {
            resource: &'a str,
            state: &'a ChannelState,
            from_seq: u64,
        }
        let fields = Fields { resource: channel.as_str(), state, from_seq: seq.0 };
        serde_json::value::to_raw_value(&fields).map(Self)
    }
}
