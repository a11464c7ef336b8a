//! Clients: their connections, their subscriptions and the sessions in which they are
//! active.

use std::sync::{Arc, Mutex};

use super::{Host, LoadError, Sessions, lock};
use crate::channel::ChannelUri;
use crate::departures::Waited;
use crate::ids::{ClientId, ConnectionId, ServerSeq};
use crate::session::SessionHandle;
use crate::state::{ChannelState, EncodedSnapshot, Frame, Missed, StateStore, Subscription};
use crate::storage::{Change, StorageError};

impl Host {
    /// Registers the client of a connection, and subscribes it to those channels that exist.
    /// The reply is queued atomically with the subscriptions.
    pub async fn introduce(
        &self,
        connection: ConnectionId,
        client: &ClientId,
        channels: &[ChannelUri],
        reply: impl FnOnce(ServerSeq, Vec<EncodedSnapshot>) -> Result<Frame, serde_json::Error>,
    ) -> Result<(), serde_json::Error> {
        self.load_or_log(channels).await;
        // A client that is lost in a crash has to initialize again.
        drop(self.storage.write(vec![Change::PutClient { client: client.clone(), restarted: true }]));
        self.store.introduce(connection, client, channels, reply)
    }

    /// Subscribes a reconnected client to its channels, and sends what it missed, atomically
    /// with the reply.
    pub async fn resume(
        &self,
        connection: ConnectionId,
        client: &ClientId,
        seen: ServerSeq,
        channels: &[ChannelUri],
        reply: impl FnOnce(Missed) -> Result<Frame, serde_json::Error>,
    ) -> Result<Result<(), serde_json::Error>, LoadError> {
        for channel in channels {
            match self.load(channel).await {
                // A changeset that cannot be opened, for example of a removed turn, is missing.
                Ok(_) | Err(LoadError::Changeset(_)) => {}
                // A damaged session must not prevent the client from resuming the others.
                Err(LoadError::Storage(error @ StorageError::Damaged { .. })) => {
                    tracing::error!(%channel, %error, "cannot load session");
                }
                // A temporary failure must not be reported as a missing channel.
                Err(error) => return Err(error),
            }
        }
        Ok(self.store.resume(connection, client, seen, channels, reply))
    }

    /// Subscribes a connection to a channel, loading its session if necessary. The reply is
    /// queued atomically with the subscription.
    pub async fn subscribe(
        &self,
        connection: ConnectionId,
        channel: &ChannelUri,
        how: Subscription,
        reply: impl FnOnce(Option<EncodedSnapshot>) -> Result<Frame, serde_json::Error>,
    ) -> Result<Result<(), serde_json::Error>, LoadError> {
        self.load(channel).await?;
        Ok(self.store.subscribe(connection, channel, how, reply))
    }

    /// Removes a client that has unsubscribed from a session from its active clients. Waits
    /// only while the session's queue is full.
    pub async fn left(&self, client: &ClientId, session: &ChannelUri) {
        let handle = lock(&self.sessions).by_uri.get(session).cloned();
        if let Some(handle) = handle {
            handle.client_left(client.clone()).await;
        }
    }

    /// Removes a reconnected client from all sessions in which it was active and which it
    /// does not name.
    pub async fn came_back(&self, client: &ClientId, channels: &[ChannelUri]) {
        for (uri, handle) in sessions_of_client(&self.store, &self.sessions, client) {
            if !channels.contains(&uri) {
                handle.client_left(client.clone()).await;
            }
        }
    }

    /// Handles the end of a client's connection. After a grace period the client is removed
    /// from sessions to which it is not subscribed. Its sessions are read at that time, not
    /// now: its last dispatch may have joined one, and may still be queued. A client that has
    /// reconnected gets another grace period, since it may just have joined.
    pub fn disconnected(&self, client: &ClientId) {
        if !self.departures.note(client) {
            return;
        }
        let (store, sessions) = (Arc::clone(&self.store), Arc::clone(&self.sessions));
        let (addresses, departures) = (Arc::clone(&self.addresses), Arc::clone(&self.departures));
        let client = client.clone();
        self.tasks.spawn(async move {
            if departures.wait(&client).await == Waited::HostClosing {
                return;
            }
            let not_listening = || {
                let mut parts = sessions_of_client(&store, &sessions, &client);
                parts.retain(|(uri, _)| {
                    let mut channels = addresses.chats_of(uri);
                    channels.push(uri.clone());
                    !store.listens(&client, &channels)
                });
                parts
            };
            let mut parts = not_listening();
            if !parts.is_empty() && store.has_audience(&[], Some(&client)) {
                // URIs only: handles would keep the sessions in memory.
                let before: Vec<ChannelUri> = parts.into_iter().map(|(uri, _)| uri).collect();
                if departures.wait_again().await == Waited::HostClosing {
                    return;
                }
                parts = not_listening();
                parts.retain(|(uri, _)| before.contains(uri));
            }
            for (_, handle) in parts {
                handle.client_left(client.clone()).await;
            }
        });
    }
}

/// The sessions in which a client is active.
fn sessions_of_client(
    store: &StateStore,
    sessions: &Mutex<Sessions>,
    client: &ClientId,
) -> Vec<(ChannelUri, SessionHandle)> {
    let mut all: Vec<(ChannelUri, SessionHandle)> =
        lock(sessions).by_uri.iter().map(|(uri, handle)| (uri.clone(), handle.clone())).collect();
    all.retain(|(uri, _)| {
        let takes_part = |state: &ChannelState| {
            state.session().is_some_and(|session| {
                session.active_clients.iter().any(|active| active.client_id == client.as_str())
            })
        };
        store.read(uri, takes_part).unwrap_or(false)
    });
    all
}
