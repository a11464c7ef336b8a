//! How sessions come into memory and leave it: created, loaded, launched, cleaned up.

use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex};

use ahp_types::state::SessionState;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{CreateError, Host, Sessions, lock};
use crate::agent::{
    AgentLink, AgentOffer, AgentProvider, BoxFuture, OpenAgent, OpenError, ResolvedConfig, plain_info,
};
use crate::channel::ChannelUri;
use crate::ids::ClientId;
use crate::session::{
    ChatAddresses, Ended, Ending, Restored, SessionActor, SessionHandle, SessionSeed, Surroundings,
    WeakHandle, is_used, restore,
};
use crate::state::{ChannelState, ChatDoc, StateStore};
use crate::storage::{Change, StorageError};

/// Why a session that exists could not be brought into memory.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It could not be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// An actor that nobody knows yet, and how it will be reached.
pub(super) struct Prepared {
    actor: SessionActor,
    handle: SessionHandle,
    uri: ChannelUri,
    /// Its channels, its own and those of its chats.
    channels: Vec<ChannelUri>,
}

/// The host is shutting down.
pub(super) struct Closed;

/// The loading of a session. Whoever waits for it goes on when it is dropped.
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

/// Keeps an address for a session that is being created.
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
    /// Brings the session that a channel belongs to into memory. Answers whether
    /// there is one.
    pub(super) async fn load(&self, channel: &ChannelUri) -> Result<bool, LoadError> {
        if self.store.has(channel) {
            return Ok(true);
        }
        let Some(session) = self.stored_session_of(channel) else { return Ok(false) };
        loop {
            let mut ahead = match self.begin_loading(&session) {
                Ok(_turn) => return self.load_session(&session).await,
                Err(ahead) => ahead,
            };
            // Its end is told by the sender going away.
            ahead.changed().await.ok();
            if self.store.has(&session) {
                return Ok(true);
            }
        }
    }

    /// Makes this the one place where a session is loaded, or tells whom to wait for.
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

    /// Brings channels into memory; what cannot be read is left out.
    pub(super) async fn load_or_log(&self, channels: &[ChannelUri]) {
        for channel in channels {
            if let Err(error) = self.load(channel).await {
                tracing::error!(%channel, %error, "a session could not be loaded");
            }
        }
    }

    /// Opens sessions that need to be looked after, one after the other.
    pub(super) async fn recover(self: Arc<Self>, sessions: Vec<ChannelUri>) {
        for session in sessions {
            if self.ending.is_cancelled() {
                return;
            }
            self.load_or_log(std::slice::from_ref(&session)).await;
        }
    }

    /// The session in the storage that a channel belongs to.
    pub(super) fn stored_session_of(&self, channel: &ChannelUri) -> Option<ChannelUri> {
        let sessions = lock(&self.sessions);
        let is_stored = |uri: &ChannelUri| sessions.unlisted.contains(uri) || self.store.is_listed(uri);
        if is_stored(channel) {
            return Some(channel.clone());
        }
        self.addresses.session_of(channel).filter(is_stored)
    }

    async fn load_session(&self, uri: &ChannelUri) -> Result<bool, LoadError> {
        // Somebody may have loaded it between the first look and this turn.
        if self.store.has(uri) {
            return Ok(true);
        }
        let Some(stored) = self.storage.load_session(uri.clone()).await? else { return Ok(false) };
        let listed = stored.listed;
        let Restored { session, chats, row, created_at, next_entry, stale } = restore(uri, stored)?;
        // One that was used is not for throwing away, even if its row was not written any more.
        let listed = listed || chats.len() > 1 || chats.iter().any(|(_, doc)| is_used(doc));
        let left: Vec<ChannelUri> = chats.iter().map(|(chat, _)| chat.uri.clone()).collect();
        self.addresses.keep_only(uri, &left);
        let (chats, docs) = chats.into_iter().unzip();
        let provider = self.provider(Some(&session.provider));
        let session = match &provider {
            Ok(provider) => with_current_config(session, provider.as_ref()),
            Err(_) => session,
        };
        let provider = provider.unwrap_or_else(|_| Arc::new(Absent(session.provider.clone())));
        let took_part = session.active_clients.iter().map(|client| ClientId::new(&client.client_id));
        let took_part: Vec<ClientId> = took_part.collect();
        let seed = SessionSeed {
            uri: uri.clone(),
            chats,
            created_at,
            provider,
            creator: None,
            listed,
            next_entry,
            stale,
        };
        let Some(prepared) = self.prepare(seed, session, docs) else { return Ok(true) };
        if listed && let Some(row) = self.store.put_row(uri, row) {
            drop(self.storage.write(vec![Change::PutRow(row)]));
        }
        // While the host shuts down there is nobody left to load it for.
        let launched = self.launch(prepared).is_ok();
        for client in &took_part {
            // It may have gone for good while the session was not in memory, or come back
            // without it; nobody would say so any more.
            self.disconnected(client);
        }
        Ok(launched)
    }

    /// Keeps an address for a new session, or for a new chat.
    pub(super) fn reserve(&self, uri: &ChannelUri) -> Result<Reservation, CreateError> {
        if uri.is_root() || !uri.as_str().contains(':') {
            return Err(CreateError::Invalid(format!("{:?} is no address", uri.as_str())));
        }
        if uri.session_of_default_chat().is_some() {
            if self.store.has(uri) || self.stored_session_of(uri).is_some() {
                return Err(CreateError::Exists(uri.clone()));
            }
            return Err(CreateError::Invalid(format!("{uri} is an address for the first chat of a session")));
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

    /// Creates a session's channels and its actor, unless they are there already. The
    /// documents are those of the seed's chats.
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
        let around = Surroundings {
            store: Arc::clone(&self.store),
            storage: Arc::clone(&self.storage),
            addresses: Arc::clone(&self.addresses),
            clock: Arc::clone(&self.clock),
            tasks: self.tasks.clone(),
        };
        let (actor, handle) = SessionActor::new(seed, around);
        Some(Prepared { actor, handle, uri, channels })
    }

    /// Makes a session reachable and lets its actor run.
    pub(super) fn launch(&self, prepared: Prepared) -> Result<(), Closed> {
        let Prepared { actor, handle, uri, channels } = prepared;
        let mut sessions = lock(&self.sessions);
        if sessions.closed {
            self.store.remove(&channels);
            return Err(Closed);
        }
        sessions.by_uri.insert(uri.clone(), handle.clone());
        drop(sessions);
        let storage = Arc::clone(&self.storage);
        let cleanup = Cleanup {
            store: Arc::clone(&self.store),
            sessions: Arc::clone(&self.sessions),
            addresses: Arc::clone(&self.addresses),
            uri,
            // Weak, or the actor would never see that nobody can reach it any more.
            handle: handle.weak(),
            ended: None,
        };
        self.tasks.spawn(async move {
            let mut cleanup = cleanup;
            let mut ended = actor.run().await;
            if ended.ending == Ending::Dispose {
                let removal = Change::RemoveSession { session: cleanup.uri.clone() };
                ended.stored = storage.write(vec![removal]).await;
            }
            cleanup.ended = Some(ended);
        });
        Ok(())
    }
}

/// The session with the configuration form that its agent has today. A stored form may be
/// from another version.
fn with_current_config(mut session: SessionState, provider: &dyn AgentProvider) -> SessionState {
    if let Some(config) = &mut session.config {
        let features = provider.offer().borrow().features;
        let ResolvedConfig { schema, values } =
            provider.resolve_config(&config.values).for_features(features);
        (config.schema, config.values) = (schema, values);
    }
    session
}

/// The changes that store a new session with its chats.
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

/// Takes a session out of the host when its actor stops, for whatever reason.
struct Cleanup {
    store: Arc<StateStore>,
    sessions: Arc<Mutex<Sessions>>,
    addresses: Arc<ChatAddresses>,
    uri: ChannelUri,
    handle: WeakHandle,
    /// How the actor ended; nothing if it panicked.
    ended: Option<Ended>,
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        // One lock over all of it: a session that is created anew at the same address
        // must not be taken for this one.
        let mut sessions = lock(&self.sessions);
        let channels: Vec<ChannelUri> =
            std::iter::once(self.uri.clone()).chain(self.addresses.chats_of(&self.uri)).collect();
        match &self.ended {
            Some(Ended { ending: Ending::Dispose, stored: Ok(()), .. }) => {
                self.store.remove_row(&self.uri);
                self.store.remove(&channels);
                sessions.unlisted.remove(&self.uri);
                self.addresses.release_all_of(&self.uri);
            }
            // It is still in the storage, and can be disposed again.
            Some(Ended { ending: Ending::Dispose, .. }) => self.store.lose(&channels),
            // Its channels went when nobody listened; who wanted it meanwhile has new ones.
            Some(Ended { ending: Ending::Unload, .. }) => {}
            // Clients see it until they are disconnected.
            Some(Ended { ending: Ending::Suspend, .. }) => {}
            None => {
                tracing::error!(session = %self.uri, "a session ended by a fault of the host's; it is loaded anew when it is needed");
                self.store.lose(&channels);
                if !self.store.is_listed(&self.uri) {
                    sessions.unlisted.insert(self.uri.clone());
                }
            }
        }
        // Another actor may have its place by now.
        if sessions.by_uri.get(&self.uri).is_some_and(|handle| handle.same(&self.handle)) {
            sessions.by_uri.remove(&self.uri);
        }
        drop(sessions);
        if let Some(ended) = self.ended.take() {
            for waiting in ended.waiting {
                // Whoever asked may have gone away meanwhile.
                waiting.send(ended.stored.clone()).ok();
            }
        }
    }
}

/// Stands for a kind of agent that this host does not have (any more). Its sessions
/// can be read, and say so when they are sent a message.
struct Absent(String);

impl AgentProvider for Absent {
    fn offer(&self) -> watch::Receiver<AgentOffer> {
        watch::channel(AgentOffer::new(plain_info(&self.0, &self.0))).1
    }

    fn open(&self, _: OpenAgent, _: CancellationToken) -> BoxFuture<Result<AgentLink, OpenError>> {
        let message =
            format!("This session belongs to the agent {:?}, which this host does not have.", self.0);
        Box::pin(std::future::ready(Err(OpenError::Failed {
            error_type: "agent_missing".to_owned(),
            message,
        })))
    }
}
