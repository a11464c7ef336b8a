//! Publishes actions and answers dispatches.

use ahp::reducers::ReduceOutcome;
use ahp_types::actions::{RootActiveSessionsChangedAction, StateAction};
use tokio::time::Instant;

use super::super::chat::TurnError;
use super::super::frame::{Action, EncodedEnvelope, Frame, Origin, envelope};
use super::{StateStore, StoreInner};
use crate::channel::ChannelUri;
use crate::ids::{ConnectionId, ServerSeq};

/// Why an action was not published.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The channel does not exist.
    #[error("unknown channel {0}")]
    UnknownChannel(ChannelUri),
    /// The action does not apply to this kind of channel, or its data is invalid.
    #[error("cannot apply the action to this channel: {0:?}")]
    DoesNotFit(ReduceOutcome),
    /// The action cannot be encoded as JSON.
    #[error("cannot encode the action")]
    Encode(#[from] serde_json::Error),
    /// The turn that the action ends or reopens cannot be encoded or decoded.
    #[error(transparent)]
    Turn(#[from] TurnError),
}

impl StateStore {
    /// Publishes an action: assigns a number, encodes the envelope, reduces, and queues the
    /// envelope to every subscriber and to the connection that dispatched the action, even
    /// if that one is not subscribed.
    pub fn commit(
        &self,
        channel: &ChannelUri,
        action: &Action,
        origin: Option<&Origin>,
    ) -> Result<ServerSeq, CommitError> {
        self.lock().commit(channel, action, origin)
    }

    /// Rejects an action. Only the connection that dispatched it is notified, and the
    /// state does not change.
    pub fn reject(
        &self,
        channel: &ChannelUri,
        action: &Action,
        origin: &Origin,
        reason: &str,
    ) -> Result<ServerSeq, CommitError> {
        self.lock().answer_sender(channel, action, origin, Some(reason))
    }

    /// Echoes an accepted action that does not change the state. Sent only to the
    /// connection that dispatched it: its client waits for the echo, and other clients
    /// have nothing to apply.
    pub(crate) fn echo_unchanged(
        &self,
        channel: &ChannelUri,
        action: &Action,
        origin: &Origin,
    ) -> Result<ServerSeq, CommitError> {
        self.lock().answer_sender(channel, action, origin, None)
    }

    /// Adds to the number of active sessions in the root state.
    pub fn adjust_active_sessions(&self, change: i64) -> Result<ServerSeq, CommitError> {
        let mut inner = self.lock();
        let root = ChannelUri::root();
        let active = inner
            .channels
            .get(&root)
            .and_then(|channel| channel.state.root())
            .and_then(|state| state.active_sessions)
            .unwrap_or(0);
        let active_sessions = active.saturating_add(change).max(0);
        let action =
            StateAction::RootActiveSessionsChanged(RootActiveSessionsChangedAction { active_sessions });
        inner.commit(&root, &Action::own(action), None)
    }
}

impl StoreInner {
    fn commit(
        &mut self,
        uri: &ChannelUri,
        action: &Action,
        origin: Option<&Origin>,
    ) -> Result<ServerSeq, CommitError> {
        if let StateAction::ChatTruncated(truncated) = action.typed()
            && let Some(turn) = &truncated.turn_id
        {
            self.show_before_truncating(uri, turn)?;
        }
        let seq = ServerSeq(self.seq.0 + 1);
        let channel = self.channels.get_mut(uri).ok_or_else(|| CommitError::UnknownChannel(uri.clone()))?;
        // Encode first: an action that cannot be sent must not change the state.
        let frame = envelope(uri, action, seq, origin, None)?;
        match channel.state.reduce(action.typed())? {
            // Echo an accepted action even if it changes nothing; its sender waits for
            // it.
            ReduceOutcome::Applied | ReduceOutcome::NoOp => {}
            outcome @ (ReduceOutcome::OutOfScope | ReduceOutcome::Invalid(_)) => {
                return Err(CommitError::DoesNotFit(outcome));
            }
        }
        self.seq = seq;
        let other =
            origin.and_then(|origin| self.clients.dispatches_of(&origin.client)?.answered(origin, seq));
        self.log.push(seq, uri, None, EncodedEnvelope::of(&frame));
        self.observers.committed(uri, channel.state.kind(), seq, action);
        let now = Instant::now();
        for subscriber in &channel.subscribers {
            match origin {
                // Do not delay an action that a user made: its sender waits for the echo.
                Some(_) => subscriber.outbox.push(frame.clone()),
                None => subscriber.outbox.publish(frame.clone(), subscriber.delivery, &mut self.load, now),
            }
        }
        let mut unsubscribed: Vec<ConnectionId> =
            origin.map(|origin| origin.connection).into_iter().chain(other).collect();
        unsubscribed
            .retain(|sender| channel.subscribers.iter().all(|subscriber| subscriber.connection != *sender));
        for sender in unsubscribed {
            self.push_to(sender, frame.clone());
        }
        Ok(seq)
    }

    /// Sends the response to a dispatch only to its client, on every connection that
    /// waits for it. The state does not change.
    fn answer_sender(
        &mut self,
        channel: &ChannelUri,
        action: &Action,
        origin: &Origin,
        rejection: Option<&str>,
    ) -> Result<ServerSeq, CommitError> {
        let (seq, frame) = self.private_answer(channel, action, origin, rejection)?;
        let dispatches = self.clients.dispatches_of(&origin.client);
        if let Some(other) = dispatches.and_then(|dispatches| dispatches.answered(origin, seq)) {
            self.push_to(other, frame.clone());
        }
        self.push_to(origin.connection, frame);
        Ok(seq)
    }

    /// Numbers and encodes a response that only the dispatching client receives, now or
    /// when it reconnects. It is a rejection if there is a reason.
    pub(in crate::state) fn private_answer(
        &mut self,
        channel: &ChannelUri,
        action: &Action,
        origin: &Origin,
        rejection: Option<&str>,
    ) -> Result<(ServerSeq, Frame), CommitError> {
        let seq = ServerSeq(self.seq.0 + 1);
        let frame = envelope(channel, action, seq, Some(origin), rejection)?;
        self.seq = seq;
        self.log.push(seq, channel, Some(&origin.client), EncodedEnvelope::of(&frame));
        Ok((seq, frame))
    }
}
