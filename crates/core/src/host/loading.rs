//! Creates, loads, launches and unloads sessions.

use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex};

use ahp_types::state::{ChatOrigin, SessionConfigState, SessionState, SessionSummary};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{ChangesetError, CreateError, Host, Sessions, lock, remove_edits};
use crate::agent::{
    AgentConnection, AgentOffer, AgentProvider, BoxFuture, OpenAgent, OpenError, ResolvedConfig, plain_info,
};
use crate::changesets::{ChangesetUri, Changesets};
use crate::channel::ChannelUri;
use crate::ids::ClientId;
use crate::session::{
    ChatAddresses, Ended, Restored, SessionActor, SessionEnding, SessionHandle, SessionSeed, SessionServices,
    WeakHandle, discard, is_used, restore,
};
use crate::state::{ChannelState, ChatDoc, StateStore};
use crate::storage::{Change, StorageError};

/// Why a session could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It could not be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// It is a changeset that cannot be opened.
    #[error(transparent)]
    Changeset(#[from] ChangesetError),
}

/// A session actor that is not running yet, and its handle.
pub(super) struct Prepared {
    actor: SessionActor,
    handle: SessionHandle,
    uri: ChannelUri,
    /// The session's channel and those of its chats.
    channels: Vec<ChannelUri>,
}

/// The host is shutting down.
pub(super) struct HostClosed;

/// Marks a session as loading. Dropping it wakes the tasks that wait for the session.
struct Loading {
    sessions: Arc<Mutex<Sessions>>,
    session: ChannelUri,
    _done: watch::Sender<()>,
}

impl Drop for Loading {
    fn drop(&mut self) {
        lock(&self.sessions).loading.remove(&self.session);
    }
}

/// Reserves a URI for a session or chat that is being created.
pub(super) struct Reservation {
    sessions: Arc<Mutex<Sessions>>,
    uri: ChannelUri,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        lock(&self.sessions).reserved.remove(&self.uri);
    }
}

impl Host {
    /// Loads the session of a channel, and opens the channel if it is a changeset. Returns
    /// whether it exists.
    pub(super) async fn load(&self, channel: &ChannelUri) -> Result<bool, LoadError> {
        let Some(address) = self.changesets.address_of(channel) else {
            return self.load_stored(channel).await;
        };
        if self.changesets.touch(channel) {
            return Ok(true);
        }
        if !self.load_stored(&address.session).await? {
            return Ok(false);
        }
        self.changesets.open(channel, address)?;
        Ok(true)
    }

    /// Loads the session of a session's or chat's channel. Returns whether it exists.
    async fn load_stored(&self, channel: &ChannelUri) -> Result<bool, LoadError> {
        if self.store.has(channel) {
            return Ok(true);
        }
        let Some(session) = self.stored_session_of(channel) else { return Ok(false) };
        loop {
            let mut ahead = match self.begin_loading(&session) {
                Ok(_loading) => return self.load_session(&session).await,
                Err(ahead) => ahead,
            };
            // The sender is dropped when loading ends.
            ahead.changed().await.ok();
            if self.store.has(&session) {
                return Ok(true);
            }
        }
    }

    /// Starts loading a session; if it is being loaded already, returns the receiver to wait
    /// on.
    fn begin_loading(&self, session: &ChannelUri) -> Result<Loading, watch::Receiver<()>> {
        match lock(&self.sessions).loading.entry(session.clone()) {
            Entry::Occupied(ahead) => Err(ahead.get().clone()),
            Entry::Vacant(free) => {
                let (done, waiting) = watch::channel(());
                free.insert(waiting);
                Ok(Loading { sessions: Arc::clone(&self.sessions), session: session.clone(), _done: done })
            }
        }
    }

    /// Loads the sessions of these channels; failures are logged.
    pub(super) async fn load_or_log(&self, channels: &[ChannelUri]) {
        for channel in channels {
            match self.load(channel).await {
                Ok(_) => {}
                Err(LoadError::Changeset(error)) => {
                    tracing::debug!(%channel, %error, "cannot open changeset");
                }
                Err(LoadError::Storage(error)) => {
                    tracing::error!(%channel, %error, "cannot load session");
                }
            }
        }
    }

    /// Loads sessions with a journal, whose turns must be closed, and unlisted ones, which
    /// delete themselves when they are not used; one after the other.
    pub(super) async fn recover(self: Arc<Self>, sessions: Vec<ChannelUri>) {
        for session in sessions {
            if self.ending.is_cancelled() {
                return;
            }
            self.load_or_log(std::slice::from_ref(&session)).await;
        }
    }

    /// The stored session of a channel.
    pub(super) fn stored_session_of(&self, channel: &ChannelUri) -> Option<ChannelUri> {
        let sessions = lock(&self.sessions);
        let is_stored = |uri: &ChannelUri| sessions.unlisted.contains(uri) || self.store.is_listed(uri);
        if is_stored(channel) {
            return Some(channel.clone());
        }
        self.addresses.session_of(channel).filter(is_stored)
    }

    async fn load_session(&self, uri: &ChannelUri) -> Result<bool, LoadError> {
        // It may have been loaded between the first check and this one.
        if self.store.has(uri) {
            return Ok(true);
        }
        let Some(stored) = self.storage.load_session(uri.clone()).await? else { return Ok(false) };
        let listed = stored.listed;
        let Restored { session, chats, row, created_at, next_entry, stale } = restore(uri, stored)?;
        // A used session is kept, even if its row was not written before a crash.
        let listed = listed || chats.len() > 1 || chats.iter().any(|(_, doc)| is_used(doc));
        let left: Vec<ChannelUri> = chats.iter().map(|(chat, _)| chat.uri.clone()).collect();
        self.addresses.keep_only(uri, &left);
        let (chats, mut docs): (Vec<_>, Vec<_>) = chats.into_iter().unzip();
        let provider = self.provider(Some(&session.provider));
        let config = provider.as_ref().ok().and_then(|provider| changed_config(&session, provider.as_ref()));
        let mut session = match config {
            Some(config) => {
                // No action changes a schema, so a replay would leave clients with the old one.
                self.store.require_snapshots(std::slice::from_ref(uri));
                SessionState { config: Some(config), ..session }
            }
            None => session,
        };
        self.set_changesets(uri, &mut session, &mut docs);
        self.set_project(uri, &mut session).await;
        let changes = self.store.row_changes(uri);
        let row = SessionSummary { changes: changes.clone(), ..row };
        let provider = provider.unwrap_or_else(|_| Arc::new(MissingProvider(session.provider.clone())));
        let active_clients = session.active_clients.iter().map(|client| ClientId::new(&client.client_id));
        let active_clients: Vec<ClientId> = active_clients.collect();
        let seed = SessionSeed {
            uri: uri.clone(),
            chats,
            created_at,
            provider,
            creator: None,
            listed,
            next_entry,
            stale,
            changes,
        };
        let Some(prepared) = self.prepare(seed, session, docs) else { return Ok(true) };
        if listed && let Some(row) = self.store.put_row(uri, row) {
            drop(self.storage.write(vec![Change::PutRow(row)]));
        }
        // During shutdown the session is not launched.
        let launched = self.launch(prepared).is_ok();
        if self.recovering {
            // The last counts may not be stored.
            self.changesets.request_counts(uri);
        }
        for client in &active_clients {
            // The client may have disconnected, or reconnected without this session, while the
            // session was not in memory; no other event reports that.
            self.disconnected(client);
        }
        Ok(launched)
    }

    /// Sets the changesets in the documents of a session. A host may offer others than the one
    /// that stored the documents.
    fn set_changesets(&self, uri: &ChannelUri, session: &mut SessionState, docs: &mut [ChatDoc]) {
        let of_session = self.changesets.of_session(uri);
        let mut outdated = Vec::new();
        if session.changesets != of_session {
            session.changesets = of_session;
            outdated.push(uri.clone());
        }
        for doc in docs {
            let chat = ChannelUri::new(&doc.open().resource);
            let is_child = matches!(doc.open().origin, Some(ChatOrigin::Tool { .. }));
            let of_chat = self.changesets.of_chat(uri, &chat).filter(|_| !is_child);
            if doc.set_changesets(of_chat) {
                outdated.push(chat);
            }
        }
        self.store.require_snapshots(&outdated);
    }

    /// Reserves a URI for a new session or chat.
    pub(super) fn reserve(&self, uri: &ChannelUri) -> Result<Reservation, CreateError> {
        if uri.is_root() || !uri.as_str().contains(':') {
            return Err(CreateError::Invalid(format!("invalid URI {:?}", uri.as_str())));
        }
        if uri.session_of_default_chat().is_some() {
            if self.store.has(uri) || self.stored_session_of(uri).is_some() {
                return Err(CreateError::Exists(uri.clone()));
            }
            return Err(CreateError::Invalid(format!("{uri} is reserved for the first chat of a session")));
        }
        if ChangesetUri::parse(uri).is_some() {
            return Err(CreateError::Invalid(format!("{uri} is reserved for a changeset")));
        }
        let mut sessions = lock(&self.sessions);
        if sessions.closed {
            return Err(CreateError::Closing);
        }
        let taken = self.store.has(uri)
            || self.store.is_listed(uri)
            || sessions.unlisted.contains(uri)
            || self.addresses.contains(uri);
        if taken || !sessions.reserved.insert(uri.clone()) {
            return Err(CreateError::Exists(uri.clone()));
        }
        Ok(Reservation { sessions: Arc::clone(&self.sessions), uri: uri.clone() })
    }

    /// Creates a session's channels and its actor, unless the channels exist. `docs` are the
    /// documents of the seed's chats, in the same order.
    pub(super) fn prepare(
        &self,
        seed: SessionSeed,
        session: SessionState,
        docs: Vec<ChatDoc>,
    ) -> Option<Prepared> {
        let uri = seed.uri.clone();
        let chats = seed.chats.iter().map(|chat| chat.uri.clone());
        let channels: Vec<ChannelUri> = std::iter::once(uri.clone()).chain(chats).collect();
        let chats = docs.into_iter().map(|doc| ChannelState::Chat(Box::new(doc)));
        let states = std::iter::once(ChannelState::Session(Box::new(session))).chain(chats);
        self.store.create(channels.iter().cloned().zip(states).collect()).ok()?;
        let services = SessionServices {
            store: Arc::clone(&self.store),
            storage: Arc::clone(&self.storage),
            addresses: Arc::clone(&self.addresses),
            clock: Arc::clone(&self.clock),
            permission_rules: Arc::clone(&self.permission_rules),
            edits: Arc::clone(&self.edits.log),
            changesets: Arc::clone(&self.changesets),
            projects: Arc::clone(&self.services.projects),
            titles: Arc::clone(&self.services.titles),
            lifetime_rules: self.lifetime_rules.clone(),
            drain: self.drain.clone(),
            tasks: self.tasks.clone(),
        };
        let (actor, handle) = SessionActor::new(seed, services);
        Some(Prepared { actor, handle, uri, channels })
    }

    /// Registers a session and starts its actor.
    pub(super) fn launch(&self, prepared: Prepared) -> Result<(), HostClosed> {
        let Prepared { actor, handle, uri, channels } = prepared;
        let mut sessions = lock(&self.sessions);
        if sessions.closed {
            self.store.remove(&channels);
            return Err(HostClosed);
        }
        sessions.by_uri.insert(uri.clone(), handle.clone());
        drop(sessions);
        let (storage, edits) = (Arc::clone(&self.storage), Arc::clone(&self.edits.log));
        let cleanup = Cleanup {
            store: Arc::clone(&self.store),
            sessions: Arc::clone(&self.sessions),
            addresses: Arc::clone(&self.addresses),
            changesets: Arc::clone(&self.changesets),
            uri,
            // Weak, so that the actor notices when all handles are dropped.
            handle: handle.weak(),
            ended: None,
        };
        self.tasks.spawn(async move {
            let mut cleanup = cleanup;
            let mut ended = actor.run().await;
            if ended.ending == SessionEnding::Dispose {
                let removal = Change::RemoveSession { session: cleanup.uri.clone() };
                ended.stored = match remove_edits(&*edits, &cleanup.uri).await {
                    Ok(()) => storage.write(vec![removal]).await,
                    Err(error) => Err(error),
                };
                if ended.stored.is_ok() {
                    discard(ended.records.take(), std::mem::take(&mut ended.conversations)).await;
                }
            }
            cleanup.ended = Some(ended);
        });
        Ok(())
    }
}

/// The session's configuration with the provider's current schema, if it differs from the
/// stored one, which may be from another version.
fn changed_config(session: &SessionState, provider: &dyn AgentProvider) -> Option<SessionConfigState> {
    let stored = session.config.as_ref()?;
    let features = provider.offer().borrow().features;
    let ResolvedConfig { schema, values } = provider.resolve_config(&stored.values).for_features(features);
    let current = SessionConfigState { schema, values };
    (current != *stored).then_some(current)
}

/// The changes that store a new session and its chats.
pub(super) fn first_documents(
    seed: &SessionSeed,
    session: &SessionState,
    docs: &[ChatDoc],
) -> Result<Vec<Change>, StorageError> {
    let unencodable = |error: serde_json::Error| StorageError::Failed(error.to_string());
    let mut changes = vec![Change::PutSession {
        session: seed.uri.clone(),
        created_at: seed.created_at.clone(),
        row: None,
        state: serde_json::value::to_raw_value(session).map_err(unencodable)?.into(),
    }];
    for (chat, doc) in seed.chats.iter().zip(docs) {
        changes.push(Change::PutChat {
            chat: chat.uri.clone(),
            session: seed.uri.clone(),
            conversation: chat.conversation.clone(),
            state: serde_json::value::to_raw_value(&doc.header()).map_err(unencodable)?.into(),
        });
    }
    Ok(changes)
}

/// Removes a session from the host when its actor stops for any reason.
struct Cleanup {
    store: Arc<StateStore>,
    sessions: Arc<Mutex<Sessions>>,
    addresses: Arc<ChatAddresses>,
    changesets: Arc<Changesets>,
    uri: ChannelUri,
    handle: WeakHandle,
    /// The actor's result; `None` if it panicked.
    ended: Option<Ended>,
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        // One lock for all steps, so that a new session with the same URI is not affected.
        let mut sessions = lock(&self.sessions);
        let channels: Vec<ChannelUri> =
            std::iter::once(self.uri.clone()).chain(self.addresses.chats_of(&self.uri)).collect();
        match &self.ended {
            Some(Ended { ending: SessionEnding::Dispose, stored: Ok(()), .. }) => {
                // First, so that no further changeset is opened.
                self.store.remove(&channels);
                let changesets = self.changesets.end_session(&self.uri);
                self.store.remove_row(&self.uri);
                self.store.remove(&changesets);
                sessions.unlisted.remove(&self.uri);
                self.addresses.release_all_of(&self.uri);
            }
            // It is still in storage and can be disposed again.
            Some(Ended { ending: SessionEnding::Dispose, .. }) => self.store.lose(&channels),
            // Its channels were removed when it had no subscribers; later subscribers have new
            // ones.
            Some(Ended { ending: SessionEnding::Unload, .. }) => {}
            // Clients keep it until they are disconnected.
            Some(Ended { ending: SessionEnding::Suspend, .. }) => {}
            None => {
                tracing::error!(session = %self.uri, "session actor panicked; the session will be reloaded on demand");
                self.store.lose(&channels);
                if !self.store.is_listed(&self.uri) {
                    sessions.unlisted.insert(self.uri.clone());
                }
            }
        }
        // A new actor may have been registered for this URI.
        if sessions.by_uri.get(&self.uri).is_some_and(|handle| handle.same(&self.handle)) {
            sessions.by_uri.remove(&self.uri);
        }
        drop(sessions);
        if let Some(ended) = self.ended.take() {
            for waiter in ended.waiters {
                // The caller may have stopped waiting.
                waiter.send(ended.stored.clone()).ok();
            }
        }
    }
}

/// Replaces an agent provider that this host does not have. Its sessions can be read;
/// messages to them fail with this reason.
struct MissingProvider(String);

impl AgentProvider for MissingProvider {
    fn offer(&self) -> watch::Receiver<AgentOffer> {
        watch::channel(AgentOffer::new(plain_info(&self.0, &self.0))).1
    }

    fn open(&self, _: OpenAgent, _: CancellationToken) -> BoxFuture<Result<AgentConnection, OpenError>> {
        let message =
            format!("This session uses the agent {:?}, which is not available on this host.", self.0);
        Box::pin(std::future::ready(Err(OpenError::Failed {
            error_type: "agent_missing".to_owned(),
            message,
        })))
    }
}
