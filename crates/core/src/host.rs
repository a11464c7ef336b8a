//! The host: its sessions, its agents, and the operations that clients ask for.
//!
//! The host routes what clients ask for to the session that owns the channel, and
//! brings sessions from the storage into memory when they are needed; it decides
//! nothing inside a session itself.

mod chats;
mod composing;
mod documents;
mod loading;
mod offers;
mod tokens;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ahp_types::actions::RootConfigChangedAction;
use ahp_types::common::{JsonObject, Uri};
use ahp_types::state::{ProtectedResourceMetadata, SessionActiveClient};
use tokio::sync::{Notify, Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::action::{Dispatched, meaning};
use crate::agent::{AgentProvider, History, ResolvedConfig};
use crate::channel::ChannelUri;
use crate::clock::{Clock, wire_time};
use crate::departures::{Departures, Waited};
use crate::directories::Primary;
use crate::ids::{ClientId, ConnectionId, ServerSeq};
use crate::session::{
    ChatAddresses, ChatSeed, ClientDispatch, Ending, SessionEnd, SessionHandle, SessionSeed, chat_state,
    chats_to_pin, message_in, summary_of,
};
use crate::state::{
    Action, ChannelState, ChatDoc, CloseReason, DispatchClaim, DispatchMark, EncodedSnapshot, FetchError,
    Frame, Missed, Origin, RowKey, RowsPage, StateStore, Subscription,
};
use crate::storage::{Change, Storage, StorageError};
pub use composing::Composing;
pub use loading::LoadError;
pub use tokens::AuthenticateError;

/// Sequence numbers that are reserved at a time: more than a host can use between
/// two looks at them.
const SEQ_BLOCK: u64 = 10_000_000;

/// How often the host looks whether it has enough of them.
const SEQ_CHECK: Duration = Duration::from_secs(1);

/// What a host is made of.
pub struct HostConfig {
    /// The kinds of agents it offers; the first is the default.
    pub providers: Vec<Arc<dyn AgentProvider>>,
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
    /// Where everything is kept.
    pub storage: Arc<dyn Storage>,
}

impl std::fmt::Debug for HostConfig {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("HostConfig").finish_non_exhaustive()
    }
}

/// A running host. Cheap to share behind an `Arc`.
pub struct Host {
    store: Arc<StateStore>,
    storage: Arc<dyn Storage>,
    providers: Vec<Arc<dyn AgentProvider>>,
    clock: Arc<dyn Clock>,
    sessions: Arc<Mutex<Sessions>>,
    /// Which session a chat belongs to.
    addresses: Arc<ChatAddresses>,
    /// One change of the host-wide configuration at a time.
    root_config: Semaphore,
    /// One chat moves at a time.
    moves: Semaphore,
    departures: Arc<Departures>,
    /// Tells that a dispatch got to where it is handled, or did not.
    arrivals: Notify,
    /// Where sessions work that are not in memory.
    stored_directories: composing::StoredDirectories,
    /// Whether there was a session at the end that could not be stored.
    unstored: Arc<AtomicBool>,
    tasks: TaskTracker,
    ending: CancellationToken,
}

/// The sessions in memory, and what is known of the others.
#[derive(Debug, Default)]
struct Sessions {
    by_uri: HashMap<ChannelUri, SessionHandle>,
    /// Sessions that are being created.
    reserved: HashSet<ChannelUri>,
    /// Sessions in the storage that are not in the list.
    unlisted: HashSet<ChannelUri>,
    /// Sessions that are being brought into memory, for those who wait for it.
    loading: HashMap<ChannelUri, watch::Receiver<()>>,
    /// No session may be created any more.
    closed: bool,
}

/// What a client wants a new session to be.
#[derive(Debug)]
pub struct NewSession {
    /// The address that the client chose.
    pub uri: ChannelUri,
    /// The kind of agent; the host's default without one.
    pub provider: Option<String>,
    /// Directories to work in.
    pub working_directories: Vec<Uri>,
    /// Configuration values; unknown keys are ignored.
    pub config: JsonObject,
    /// A client that takes part from the start.
    pub active_client: Option<SessionActiveClient>,
    /// The client that asks for it.
    pub creator: Option<ClientId>,
}

/// Why a session could not be created.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The address is taken.
    #[error("a session {0} exists already")]
    Exists(ChannelUri),
    /// There is no such kind of agent.
    #[error("there is no agent {0:?} here")]
    UnknownProvider(String),
    /// Something about the request cannot be right.
    #[error("{0}")]
    Invalid(String),
    /// The agent cannot work without tokens for these.
    #[error("the agent needs a token for {}; authenticate first", names(.0))]
    TokensNeeded(Vec<ProtectedResourceMetadata>),
    /// The host is shutting down.
    #[error("the host is shutting down")]
    Closing,
    /// It could not be stored.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

fn names(resources: &[ProtectedResourceMetadata]) -> String {
    resources.iter().map(|resource| resource.resource.as_str()).collect::<Vec<_>>().join(", ")
}

/// Why a session could not be disposed.
#[derive(Debug, thiserror::Error)]
pub enum DisposeError {
    /// There is no such session.
    #[error("there is no session {0}")]
    Unknown(ChannelUri),
    /// It could not be deleted.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Why older turns could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchTurnsError {
    /// The session could not be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The turns could not be found.
    #[error(transparent)]
    Fetch(#[from] FetchError),
}

impl std::fmt::Debug for Host {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Host").finish_non_exhaustive()
    }
}

impl Host {
    /// A host that goes on where the last one on the same storage ended.
    pub async fn start(config: HostConfig) -> Result<Arc<Self>, StorageError> {
        let mut index = config.storage.load_index().await?;
        let reserved = ServerSeq(index.seq.0.saturating_add(SEQ_BLOCK));
        config.storage.write(vec![Change::ReserveSeq { through: reserved }]).await?;
        let agents = offers::agents_of(&config.providers);
        let root = documents::root_state(agents, index.root_config.take().unwrap_or_default());
        let sessions = Sessions { unlisted: index.unlisted.iter().cloned().collect(), ..Sessions::default() };
        let addresses = ChatAddresses::new(std::mem::take(&mut index.chats));
        let goes_on = index.clean;
        let to_open: Vec<ChannelUri> =
            index.unlisted.drain(..).chain(std::mem::take(&mut index.unfinished)).collect();
        let host = Arc::new(Self {
            store: Arc::new(StateStore::restored(root, index)),
            storage: config.storage,
            providers: config.providers,
            clock: config.clock,
            sessions: Arc::new(Mutex::new(sessions)),
            addresses: Arc::new(addresses),
            root_config: Semaphore::new(1),
            moves: Semaphore::new(1),
            departures: Arc::default(),
            arrivals: Notify::new(),
            stored_directories: composing::StoredDirectories::default(),
            unstored: Arc::default(),
            tasks: TaskTracker::new(),
            ending: CancellationToken::new(),
        });
        if goes_on {
            // Clients that continue know the agents of the last host, which may have been
            // another version.
            host.publish_agents();
        }
        host.tasks.spawn(Arc::clone(&host).watch_offers());
        host.tasks.spawn(Arc::clone(&host).recover(to_open));
        host.tasks.spawn(Arc::clone(&host).keep_numbers(reserved));
        Ok(host)
    }

    /// The published state, for subscribing and reading.
    pub fn store(&self) -> &StateStore {
        &self.store
    }

    /// The sessions that are shown in the list behind a place, newest change first.
    pub fn list_sessions(&self, after: Option<&RowKey>, limit: Option<usize>) -> RowsPage {
        self.store.list(after, limit)
    }

    /// Learns who is at the other end of a connection, and subscribes it to those of
    /// the channels that exist. The reply is queued in one step with that.
    pub async fn introduce(
        &self,
        connection: ConnectionId,
        client: &ClientId,
        channels: &[ChannelUri],
        reply: impl FnOnce(ServerSeq, Vec<EncodedSnapshot>) -> Result<Frame, serde_json::Error>,
    ) -> Result<(), serde_json::Error> {
        self.load_or_log(channels).await;
        // A client that is not remembered after a crash has to introduce itself again.
        drop(self.storage.write(vec![Change::PutClient { client: client.clone(), restarted: true }]));
        self.store.introduce(connection, client, channels, reply)
    }

    /// Subscribes a client that comes back to the channels that it had, and tells it
    /// what it missed, in one step with the reply.
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
                Ok(_) => {}
                // One that cannot be read at all must not keep the client from the others.
                Err(LoadError::Storage(error @ StorageError::Damaged { .. })) => {
                    tracing::error!(%channel, %error, "a session could not be loaded");
                }
                // What cannot be read now is not gone, and the client must not be told so.
                Err(error) => return Err(error),
            }
        }
        Ok(self.store.resume(connection, client, seen, channels, reply))
    }

    /// Subscribes a connection to a channel, which is loaded if need be. The reply is
    /// queued in one step with that.
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

    /// Sends a client older turns of a chat.
    pub async fn fetch_turns(
        &self,
        connection: ConnectionId,
        chat: &ChannelUri,
        cursor: Option<&str>,
    ) -> Result<(), FetchTurnsError> {
        self.load(chat).await?;
        Ok(self.store.fetch_turns(connection, chat, cursor)?)
    }

    /// How many sessions there are, the provisional ones too.
    pub fn session_count(&self) -> usize {
        let sessions = lock(&self.sessions);
        let unlisted = sessions.by_uri.keys().filter(|uri| !self.store.is_listed(uri)).count();
        self.store.row_count() + unlisted
    }

    /// The configuration form of an agent.
    pub fn resolve_config(
        &self,
        provider: Option<&str>,
        chosen: &JsonObject,
    ) -> Result<ResolvedConfig, CreateError> {
        let provider = self.provider(provider)?;
        let features = provider.offer().borrow().features;
        Ok(provider.resolve_config(chosen).for_features(features))
    }

    /// Creates a session. Nothing is started and nobody else is told until its
    /// first message.
    pub async fn create_session(&self, new: NewSession) -> Result<(), CreateError> {
        let provider = self.provider(new.provider.as_deref())?;
        let (name, features) = {
            let offer = provider.offer();
            let offer = offer.borrow();
            documents::check_directories(&new.working_directories, Primary::of(&offer.info))?;
            (offer.info.provider.clone(), offer.features)
        };
        let reservation = self.reserve(&new.uri)?;
        let needed = provider.needs_tokens();
        if !needed.is_empty() {
            return Err(CreateError::TokensNeeded(needed));
        }
        let created_at = wire_time(self.clock.now());
        let config = provider.resolve_config(&new.config).for_features(features);
        let chat = ChatSeed::new(ChannelUri::default_chat_of(&new.uri), History::Fresh);
        let state = chat_state(&chat.uri, &created_at);
        let session = documents::session_state(&name, summary_of(&state), config, &new);
        let doc = ChatDoc::new(state).map_err(|error| CreateError::Invalid(error.to_string()))?;
        let seed = SessionSeed {
            uri: new.uri.clone(),
            chats: vec![chat],
            created_at: created_at.clone(),
            creator: new.creator.clone(),
            provider: Arc::clone(&provider),
            listed: false,
            next_entry: 1,
            stale: false,
        };
        let docs = vec![doc];
        self.storage.write(loading::first_documents(&seed, &session, &docs)?).await?;
        let actor = self.prepare(seed, session, docs).ok_or_else(|| CreateError::Exists(new.uri.clone()))?;
        self.launch(actor).map_err(|_| CreateError::Closing)?;
        drop(reservation);
        Ok(())
    }

    /// Ends a session, its agents and everything of it. What is dispatched after
    /// this has returned comes too late; the end itself is to be waited for.
    pub async fn dispose_session(&self, uri: &ChannelUri) -> Result<SessionEnd, DisposeError> {
        match self.load(uri).await {
            Ok(_) => {}
            // What cannot be read can still be deleted.
            Err(LoadError::Storage(StorageError::Damaged { .. })) => {
                self.storage.write(vec![Change::RemoveSession { session: uri.clone() }]).await?;
                self.store.remove_row(uri);
                self.addresses.release_all_of(uri);
                lock(&self.sessions).unlisted.remove(uri);
                return Ok(SessionEnd::done());
            }
            Err(LoadError::Storage(error)) => return Err(error.into()),
        }
        let handle = lock(&self.sessions).by_uri.get(uri).cloned();
        Ok(handle.ok_or_else(|| DisposeError::Unknown(uri.clone()))?.end(Ending::Dispose).await)
    }

    /// Handles an action that a client dispatched. Waits only while the session
    /// that it is for has too much to do, or is being loaded.
    pub async fn dispatch(&self, channel: ChannelUri, action: Action, origin: Origin) {
        let mark = DispatchMark::of(&channel, &action, &origin);
        if let Some(mark) = mark
            && !self.is_new(&channel, &action, &origin, mark).await
        {
            return;
        }
        let mut arrival = Arrival { host: self, origin: origin.clone(), mark };
        if channel.is_root() {
            self.dispatch_to_root(&channel, &action, &origin).await;
            return;
        }
        // What is attached may belong to any session.
        self.load_or_log(&chats_to_pin(message_in(action.typed()))).await;
        match self.hand_over(Box::new(ClientDispatch { channel, action, origin, mark })).await {
            HandedOver::Yes => arrival.mark = None,
            HandedOver::Unknown(channel) => {
                tracing::debug!(%channel, "ignored an action for an unknown channel");
            }
            HandedOver::Refused(dispatch, reason) => {
                let ClientDispatch { channel, action, origin, .. } = &*dispatch;
                if let Err(error) = self.store.reject(channel, action, origin, &reason) {
                    tracing::error!(%channel, %error, "a rejection could not be sent");
                }
            }
        }
    }

    /// Whether a dispatch is one that its client did not make before; otherwise it is
    /// answered, or will be. Waits while an earlier one may not get to where it is handled.
    async fn is_new(
        &self,
        channel: &ChannelUri,
        action: &Action,
        origin: &Origin,
        mark: DispatchMark,
    ) -> bool {
        loop {
            let mut settled = std::pin::pin!(self.arrivals.notified());
            // From here on, so that nothing is missed between the look and the wait.
            settled.as_mut().enable();
            match self.store.claim(origin, mark) {
                DispatchClaim::New => return true,
                DispatchClaim::UnderWay => settled.await,
                DispatchClaim::ResponsePending => return false,
                DispatchClaim::Answered => {
                    tracing::debug!(%channel, client_seq = origin.client_seq, "refused a repeated action");
                    if let Err(error) = self.store.reject_repeated(channel, action, origin, mark) {
                        tracing::error!(%channel, %error, "a rejection could not be sent");
                    }
                    return false;
                }
            }
        }
    }

    /// Gives a dispatch to the session that owns its channel.
    async fn hand_over(&self, mut dispatch: Box<ClientDispatch>) -> HandedOver {
        // Twice, since a session may be leaving the memory at this very moment.
        for _ in 0..2 {
            if let Err(error) = self.load(&dispatch.channel).await {
                tracing::error!(channel = %dispatch.channel, %error, "a session could not be loaded");
                return HandedOver::Refused(dispatch, error.to_string());
            }
            let session = self.addresses.session_of(&dispatch.channel);
            let session = session.as_ref().unwrap_or(&dispatch.channel);
            let handle = lock(&self.sessions).by_uri.get(session).cloned();
            if let Some(handle) = handle {
                match handle.dispatch(dispatch, |dispatch| self.arrives(dispatch)).await {
                    Ok(()) => return HandedOver::Yes,
                    Err(back) => dispatch = back,
                }
            } else if let Some(reason) = self.without_session(&dispatch.channel) {
                return HandedOver::Refused(dispatch, reason.to_owned());
            } else {
                return HandedOver::Unknown(dispatch.channel);
            }
        }
        HandedOver::Refused(dispatch, UNREACHABLE.to_owned())
    }

    /// A dispatch gets to its session, which will answer it.
    fn arrives(&self, dispatch: &ClientDispatch) {
        if let Some(mark) = dispatch.mark {
            self.store.arrived(&dispatch.channel, &dispatch.origin, mark);
            self.arrivals.notify_waiters();
        }
    }

    /// Why nobody takes actions for a channel; nothing if there is no such channel.
    fn without_session(&self, channel: &ChannelUri) -> Option<&'static str> {
        match self.store.read(channel, |state| matches!(state, ChannelState::ResourceWatch(_))) {
            Some(true) => Some("this channel only informs; the host takes no actions on it"),
            Some(false) => Some(UNREACHABLE),
            None => self.stored_session_of(channel).map(|_| UNREACHABLE),
        }
    }

    /// A client does not want to hear of a session any more, so it does not take part
    /// in it either. Waits only while that session has too much to do.
    pub async fn left(&self, client: &ClientId, session: &ChannelUri) {
        let handle = lock(&self.sessions).by_uri.get(session).cloned();
        if let Some(handle) = handle {
            handle.left(client.clone()).await;
        }
    }

    /// A client that came back wants these channels: it has left all sessions that it
    /// took part in and does not name.
    pub async fn came_back(&self, client: &ClientId, channels: &[ChannelUri]) {
        for (uri, handle) in taking_part(&self.store, &self.sessions, client) {
            if !channels.contains(&uri) {
                handle.left(client.clone()).await;
            }
        }
    }

    /// A connection of a client's has ended. Some time later the client does not take part
    /// any more in sessions that it does not listen to by then. What it takes part in is
    /// looked at then and not now: it may have said so last, and a session may be behind.
    /// One that is back has as much time again, since it may only just have joined.
    pub fn disconnected(&self, client: &ClientId) {
        if !self.departures.note(client) {
            return;
        }
        let (store, sessions) = (Arc::clone(&self.store), Arc::clone(&self.sessions));
        let (addresses, departures) = (Arc::clone(&self.addresses), Arc::clone(&self.departures));
        let client = client.clone();
        self.tasks.spawn(async move {
            if departures.wait(&client).await == Waited::HostCloses {
                return;
            }
            let not_listening = || {
                let mut parts = taking_part(&store, &sessions, &client);
                parts.retain(|(uri, _)| {
                    let mut channels = addresses.chats_of(uri);
                    channels.push(uri.clone());
                    !store.listens(&client, &channels)
                });
                parts
            };
            let mut parts = not_listening();
            if !parts.is_empty() && store.has_audience(&[], Some(&client)) {
                // Without the handles, which would keep the sessions in memory.
                let before: Vec<ChannelUri> = parts.into_iter().map(|(uri, _)| uri).collect();
                if departures.wait_again().await == Waited::HostCloses {
                    return;
                }
                parts = not_listening();
                parts.retain(|(uri, _)| before.contains(uri));
            }
            for (_, handle) in parts {
                handle.left(client.clone()).await;
            }
        });
    }

    /// Ends every agent, then closes every connection. Resolves when nothing that
    /// the host started is left.
    pub async fn shutdown(&self) {
        self.ending.cancel();
        let handles: Vec<SessionHandle> = {
            let mut sessions = lock(&self.sessions);
            sessions.closed = true;
            sessions.by_uri.values().cloned().collect()
        };
        self.departures.close();
        for handle in handles {
            let unstored = Arc::clone(&self.unstored);
            // Side by side, and outside of the host's own life: a stop ladder takes seconds.
            self.tasks.spawn(async move {
                if let Err(error) = handle.end(Ending::Suspend).await.wait().await {
                    tracing::error!(%error, "a session could not be stored");
                    unstored.store(true, Ordering::Relaxed);
                }
            });
        }
        self.tasks.close();
        self.tasks.wait().await;
        self.store.close_all(CloseReason::Shutdown);
    }

    /// Writes down that the host ended in order, so that clients may go on with the
    /// next one where they are. The last thing to do.
    pub async fn finish(&self) {
        if self.unstored.load(Ordering::Relaxed) {
            // Clients have seen more than the next host will find.
            tracing::error!("the host does not end in order; clients will start anew");
            return;
        }
        let (seq, replay, clients) = self.store.shutdown_state();
        if let Err(error) = self.storage.write(vec![Change::CleanShutdown { seq, replay, clients }]).await {
            tracing::error!(%error, "the end of the host could not be stored; clients will start anew");
        }
    }

    async fn dispatch_to_root(&self, channel: &ChannelUri, action: &Action, origin: &Origin) {
        let dispatched = meaning(action.typed()).dispatched();
        let outcome = if let Some(Dispatched::RootConfigChanged(changed)) = dispatched {
            let _alone = self.root_config.acquire().await;
            match self.changed_root_config(changed) {
                // VS Code sends the same configuration from every window.
                None => self.store.echo_unchanged(channel, action, origin),
                Some(values) => match self.storage.write(vec![Change::PutRootConfig { values }]).await {
                    Ok(()) => self.store.commit(channel, action, Some(origin)),
                    Err(error) => self.store.reject(channel, action, origin, &error.to_string()),
                },
            }
        } else {
            let reason = "this host does not take this action from a client on the root channel";
            self.store.reject(channel, action, origin, reason)
        };
        if let Err(error) = outcome {
            tracing::error!(%error, "an action on the root channel could not be answered");
        }
    }

    /// The configuration as the action will leave it, if the action changes anything.
    fn changed_root_config(&self, changed: &RootConfigChangedAction) -> Option<JsonObject> {
        let old = self
            .store
            .read(&ChannelUri::root(), |state| Some(state.root()?.config.as_ref()?.values.clone()))
            .flatten()
            .unwrap_or_default();
        let mut values = if changed.replace == Some(true) { JsonObject::new() } else { old.clone() };
        values.extend(changed.config.clone());
        (values != old).then_some(values)
    }

    /// Sees to it that there are always numbers left that a crash cannot repeat.
    async fn keep_numbers(self: Arc<Self>, mut reserved: ServerSeq) {
        loop {
            tokio::select! {
                () = self.ending.cancelled() => return,
                () = tokio::time::sleep(SEQ_CHECK) => {}
            }
            let seq = self.store.seq();
            if seq.0.saturating_add(SEQ_BLOCK / 2) > reserved.0 {
                let through = ServerSeq(seq.0.saturating_add(SEQ_BLOCK));
                match self.storage.write(vec![Change::ReserveSeq { through }]).await {
                    Ok(()) => reserved = through,
                    Err(error) => tracing::error!(%error, "numbers could not be reserved; it is tried again"),
                }
            }
        }
    }

    fn provider(&self, name: Option<&str>) -> Result<Arc<dyn AgentProvider>, CreateError> {
        self.providers
            .iter()
            .find(|provider| name.is_none_or(|name| provider.offer().borrow().info.provider == name))
            .cloned()
            .ok_or_else(|| CreateError::UnknownProvider(name.unwrap_or_default().to_owned()))
    }
}

/// What is said of a session that is there and does not take anything.
const UNREACHABLE: &str = "the session cannot be reached at the moment; try again";

/// What became of a dispatch.
enum HandedOver {
    /// Its session has it, and will answer it.
    Yes,
    /// There is no such channel.
    Unknown(ChannelUri),
    /// Nobody can have it, for this reason.
    Refused(Box<ClientDispatch>, String),
}

/// A dispatch on its way to its session. If it does not get there, because its client is
/// gone or the session is, it does not count as handled.
struct Arrival<'a> {
    host: &'a Host,
    origin: Origin,
    /// By which it is known; nothing once its session has it.
    mark: Option<DispatchMark>,
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        if let Some(mark) = self.mark {
            self.host.store.did_not_arrive(&self.origin, mark);
            self.host.arrivals.notify_waiters();
        }
    }
}

/// The sessions that a client takes part in.
fn taking_part(
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
