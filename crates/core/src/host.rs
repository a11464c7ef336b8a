//! The host: sessions, agent providers, and the operations that clients request.
//!
//! The host routes client requests to the session that owns the channel, and loads sessions
//! from storage when they are needed. The rules of a session are in `session`.

mod changesets;
mod chats;
mod clients;
mod composing;
mod dispatching;
mod documents;
mod draining;
mod loading;
mod offers;
mod projects;
mod stopping;
mod tokens;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ahp_types::common::{JsonObject, Uri};
use ahp_types::state::{ProtectedResourceMetadata, SessionActiveClient};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::agent::{AgentProvider, History, ResolvedConfig};
use crate::audit::{AuditPage, AuditQuery};
use crate::changesets::Changesets;
use crate::channel::ChannelUri;
use crate::clock::{Clock, wire_time};
use crate::departures::Departures;
use crate::directories::Primary;
use crate::edits::{EditLog, NoEdits};
use crate::ids::{ClientId, ConnectionId, ServerSeq};
use crate::output::{OutputId, StoredOutput};
use crate::permission_rules::PermissionRules;
use crate::projects::{NoProjects, Projects};
use crate::session::{
    ChatAddresses, ChatSeed, LifetimeRules, SessionEnd, SessionEnding, SessionHandle, SessionSeed,
    chat_state, summary_of,
};
use crate::state::{ChatDoc, CloseReason, FetchError, RowKey, RowsPage, StateStore};
use crate::storage::{Change, Storage, StorageError};
use crate::titles::{NoTitles, TitleWriter};
use changesets::remove_edits;
pub use changesets::{ChangesetError, OperateError, OperationOutcome, OperationRequest};
pub use composing::Composing;
pub(crate) use draining::{DrainFlag, TurnStart};
pub use loading::LoadError;
use projects::ProjectLookup;
pub use tokens::AuthenticateError;

/// Sequence numbers reserved per block: more than the host can use between two checks.
const SEQ_BLOCK: u64 = 10_000_000;

/// How often the host checks the remaining reserved numbers.
const SEQ_CHECK: Duration = Duration::from_secs(1);

/// The parts from which a host is built.
pub struct HostConfig {
    /// The agent providers; the first is the default.
    pub providers: Vec<Arc<dyn AgentProvider>>,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// Persistent storage.
    pub storage: Arc<dyn Storage>,
    /// What the permission policy uses in all sessions.
    pub permissions: PermissionConfig,
    /// The edit log.
    pub edits: EditConfig,
    /// How long agents without work keep their processes.
    pub lifetimes: AgentLifetimes,
    /// Services that sessions can do without.
    pub services: HostServices,
}

/// Services that sessions can do without. The default has none.
#[derive(Clone, Debug)]
pub struct HostServices {
    /// The repositories that sessions work in.
    pub projects: Arc<dyn Projects>,
    /// Writes titles of sessions.
    pub titles: Arc<dyn TitleWriter>,
}

impl Default for HostServices {
    fn default() -> Self {
        Self { projects: Arc::new(NoProjects), titles: Arc::new(NoTitles) }
    }
}

/// How long agents without work keep their processes, and when they start in advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentLifetimes {
    /// How long an idle agent keeps its process; `None` keeps it until the session ends.
    pub idle: Option<Duration>,
    /// Whether an agent is started when a client begins to type.
    pub prewarm: bool,
    /// How long an agent that was started in advance waits for its first message.
    pub unused: Duration,
}

impl Default for AgentLifetimes {
    fn default() -> Self {
        Self { idle: Some(Duration::from_secs(600)), prewarm: true, unused: Duration::from_secs(120) }
    }
}

/// The edit log and what it needs.
#[derive(Clone, Debug)]
pub struct EditConfig {
    /// The log.
    pub log: Arc<dyn EditLog>,
    /// Where the agents of sessions without a directory work.
    pub default_directory: Option<PathBuf>,
}

impl EditConfig {
    /// Records nothing.
    pub fn none() -> Self {
        Self { log: Arc::new(NoEdits), default_directory: None }
    }
}

/// What the permission policy uses in all sessions.
#[derive(Clone, Debug, Default)]
pub struct PermissionConfig {
    /// The administrator's rules.
    pub administrator: AdministratorRules,
    /// Directories and files of the host, with links resolved. No agent may write to them.
    pub guarded_paths: Vec<PathBuf>,
    /// Directories inside of the guarded ones in which sessions work.
    pub unguarded_paths: Vec<PathBuf>,
    /// The user's home directory.
    pub home: Option<PathBuf>,
}

/// Permission rules from the configuration file, which the host never changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdministratorRules {
    /// Rules that allow a call.
    pub allow: Vec<String>,
    /// Rules that ask a client.
    pub ask: Vec<String>,
    /// Rules that deny a call.
    pub deny: Vec<String>,
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
    /// Maps chats to sessions.
    addresses: Arc<ChatAddresses>,
    /// Serializes changes of the host-wide configuration.
    root_config: Semaphore,
    /// Serializes moves of chats.
    moves: Semaphore,
    departures: Arc<Departures>,
    permission_rules: Arc<PermissionRules>,
    edits: EditConfig,
    changesets: Arc<Changesets>,
    services: HostServices,
    lifetime_rules: LifetimeRules,
    /// Whether running turns are awaited before the host stops.
    drain: DrainFlag,
    /// Whether the last host stopped before it stored everything.
    recovering: bool,
    /// The directories of sessions that are not in memory.
    stored_directories: composing::StoredDirectories,
    /// Whether a session could not be stored during shutdown.
    unstored: Arc<AtomicBool>,
    tasks: TaskTracker,
    ending: CancellationToken,
}

/// The sessions in memory, and the state of those being created or loaded.
#[derive(Debug, Default)]
struct Sessions {
    by_uri: HashMap<ChannelUri, SessionHandle>,
    /// URIs of sessions and chats that are being created.
    reserved: HashSet<ChannelUri>,
    /// Sessions in storage that are not in the session list.
    unlisted: HashSet<ChannelUri>,
    /// Sessions that are being loaded; the channel closes when loading ends.
    loading: HashMap<ChannelUri, watch::Receiver<()>>,
    /// Whether the host is shutting down, so that no session may be created.
    closed: bool,
}

/// A client's request for a new session.
#[derive(Debug)]
pub struct NewSession {
    /// The URI that the client chose.
    pub uri: ChannelUri,
    /// The agent provider; `None` selects the default.
    pub provider: Option<String>,
    /// The working directories.
    pub working_directories: Vec<Uri>,
    /// Configuration values; unknown keys are ignored.
    pub config: JsonObject,
    /// The first active client.
    pub active_client: Option<SessionActiveClient>,
    /// The client that creates it.
    pub creator: Option<ClientId>,
}

/// Why a session could not be created.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The URI is in use.
    #[error("{0} already exists")]
    Exists(ChannelUri),
    /// The agent provider does not exist.
    #[error("unknown agent {0:?}")]
    UnknownProvider(String),
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The agent needs tokens for these resources.
    #[error("the agent needs a token for {}; authenticate first", names(.0))]
    TokensNeeded(Vec<ProtectedResourceMetadata>),
    /// The host is shutting down.
    #[error("the host is shutting down")]
    Closing,
    /// Storage failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

fn names(resources: &[ProtectedResourceMetadata]) -> String {
    resources.iter().map(|resource| resource.resource.as_str()).collect::<Vec<_>>().join(", ")
}

/// Why a session could not be disposed.
#[derive(Debug, thiserror::Error)]
pub enum DisposeError {
    /// The session does not exist.
    #[error("unknown session {0}")]
    Unknown(ChannelUri),
    /// Storage failed.
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
    /// Starts a host that continues from the state in its storage.
    pub async fn start(config: HostConfig) -> Result<Arc<Self>, StorageError> {
        let mut index = config.storage.load_index().await?;
        let reserved = ServerSeq(index.seq.0.saturating_add(SEQ_BLOCK));
        config.storage.write(vec![Change::ReserveSeq { through: reserved }]).await?;
        let agents = offers::agents_of(&config.providers);
        let root = documents::root_state(agents, index.root_config.take().unwrap_or_default());
        let sessions = Sessions { unlisted: index.unlisted.iter().cloned().collect(), ..Sessions::default() };
        let addresses = ChatAddresses::new(std::mem::take(&mut index.chats));
        let clean = index.clean;
        let to_recover: Vec<ChannelUri> =
            index.unlisted.drain(..).chain(std::mem::take(&mut index.with_journal)).collect();
        let permission_rules = Arc::new(PermissionRules::new(
            Arc::clone(&config.storage),
            std::mem::take(&mut index.rules),
            config.permissions,
        ));
        let store = Arc::new(StateStore::restored(root, index));
        let (tasks, ending) = (TaskTracker::new(), CancellationToken::new());
        let changesets = Changesets::new(
            Arc::clone(&store),
            Arc::clone(&config.edits.log),
            config.edits.default_directory.clone(),
            tasks.clone(),
            ending.clone(),
        );
        let host = Arc::new(Self {
            permission_rules,
            edits: config.edits,
            changesets,
            services: config.services,
            lifetime_rules: LifetimeRules::new(config.lifetimes),
            drain: DrainFlag::default(),
            recovering: !clean,
            store,
            storage: config.storage,
            providers: config.providers,
            clock: config.clock,
            sessions: Arc::new(Mutex::new(sessions)),
            addresses: Arc::new(addresses),
            root_config: Semaphore::new(1),
            moves: Semaphore::new(1),
            departures: Arc::default(),
            stored_directories: composing::StoredDirectories::default(),
            unstored: Arc::default(),
            tasks,
            ending,
        });
        if clean {
            // Clients that continue know the agents of the last host, which may have been a
            // different version.
            host.publish_agents();
        }
        host.tasks.spawn(Arc::clone(&host).watch_offers());
        host.tasks.spawn(Arc::clone(&host).watch_edits());
        host.tasks.spawn(Arc::clone(&host).recover(to_recover));
        host.tasks.spawn(Arc::clone(&host).reserve_sequence_numbers(reserved));
        Ok(host)
    }

    /// The published state.
    pub fn store(&self) -> &StateStore {
        &self.store
    }

    /// The sessions in the list after a position, latest change first.
    pub fn list_sessions(&self, after: Option<&RowKey>, limit: Option<usize>) -> RowsPage {
        self.store.list(after, limit)
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

    /// Reads a piece of stored output; `None` if it does not exist.
    pub async fn read_output(&self, output: OutputId) -> Result<Option<StoredOutput>, StorageError> {
        self.storage.load_output(output).await
    }

    /// Loads audit records, newest first.
    pub async fn load_audit(&self, query: AuditQuery) -> Result<AuditPage, StorageError> {
        self.storage.load_audit(query).await
    }

    /// The number of sessions, including unlisted ones.
    pub fn session_count(&self) -> usize {
        let sessions = lock(&self.sessions);
        let unlisted = sessions.by_uri.keys().filter(|uri| !self.store.is_listed(uri)).count();
        self.store.row_count() + unlisted
    }

    /// The configuration form of an agent, for these values.
    pub fn resolve_config(
        &self,
        provider: Option<&str>,
        chosen: &JsonObject,
    ) -> Result<ResolvedConfig, CreateError> {
        let provider = self.provider(provider)?;
        let features = provider.offer().borrow().features;
        Ok(provider.resolve_config(chosen).for_features(features))
    }

    /// Creates a session. It is neither started nor listed before its first message.
    pub async fn create_session(&self, new: NewSession) -> Result<(), CreateError> {
        if self.drain.is_draining() {
            return Err(CreateError::Closing);
        }
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
        let mut state = chat_state(&chat.uri, &created_at);
        state.changesets = self.changesets.of_chat(&new.uri, &chat.uri);
        let mut session = documents::session_state(&name, summary_of(&state), config, &new);
        session.changesets = self.changesets.of_session(&new.uri);
        if let ProjectLookup::Done(project) = self.project_of(&session).await {
            session.project = project;
        }
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
            changes: None,
        };
        let docs = vec![doc];
        self.storage.write(loading::first_documents(&seed, &session, &docs)?).await?;
        let actor = self.prepare(seed, session, docs).ok_or_else(|| CreateError::Exists(new.uri.clone()))?;
        self.launch(actor).map_err(|_| CreateError::Closing)?;
        drop(reservation);
        Ok(())
    }

    /// Ends and deletes a session. Dispatches after this has returned are rejected; the
    /// returned [`SessionEnd`] completes when the session has ended.
    pub async fn dispose_session(&self, uri: &ChannelUri) -> Result<SessionEnd, DisposeError> {
        match self.load(uri).await {
            Ok(_) => {}
            // A damaged session can still be deleted.
            Err(LoadError::Storage(StorageError::Damaged { .. })) => {
                remove_edits(&*self.edits.log, uri).await?;
                self.storage.write(vec![Change::RemoveSession { session: uri.clone() }]).await?;
                self.store.remove_row(uri);
                self.addresses.release_all_of(uri);
                lock(&self.sessions).unlisted.remove(uri);
                return Ok(SessionEnd::done());
            }
            Err(LoadError::Storage(error)) => return Err(error.into()),
            Err(LoadError::Changeset(_)) => return Err(DisposeError::Unknown(uri.clone())),
        }
        let handle = lock(&self.sessions).by_uri.get(uri).cloned();
        Ok(handle.ok_or_else(|| DisposeError::Unknown(uri.clone()))?.end(SessionEnding::Dispose).await)
    }

    /// Ends all turns, stops all agents, stores all sessions, then closes all connections.
    /// Completes when all tasks of the host have ended.
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
            // In parallel, because stopping an agent can take seconds.
            self.tasks.spawn(async move {
                if let Err(error) = handle.end(SessionEnding::Suspend).await.wait().await {
                    tracing::error!(%error, "cannot store session");
                    unstored.store(true, Ordering::Relaxed);
                }
            });
        }
        self.tasks.close();
        self.tasks.wait().await;
        self.store.close_all(CloseReason::Shutdown);
    }

    /// Records a clean shutdown, so that clients can resume with the next host. Must be the
    /// last call.
    pub async fn record_clean_shutdown(&self) {
        if self.unstored.load(Ordering::Relaxed) {
            // Clients have seen more than is stored.
            tracing::error!("unclean shutdown; clients will receive full snapshots");
            return;
        }
        let (seq, replay, clients) = self.store.shutdown_state();
        if let Err(error) = self.storage.write(vec![Change::CleanShutdown { seq, replay, clients }]).await {
            tracing::error!(%error, "cannot record clean shutdown; clients will receive full snapshots");
        }
    }

    /// Reserves sequence numbers ahead of use, so that a crash cannot lead to repeated ones.
    async fn reserve_sequence_numbers(self: Arc<Self>, mut reserved: ServerSeq) {
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
                    Err(error) => tracing::error!(%error, "cannot reserve sequence numbers; retrying"),
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
