//! The host: its sessions, its agents, and the operations that clients ask for.
//!
//! Everything here is quick and synchronous, except what waits for a session.
//! The host routes a dispatch to the session that owns the channel; it decides
//! nothing inside a session itself.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ahp_types::actions::StateAction;
use ahp_types::common::{JsonObject, Uri};
use ahp_types::state::{
    ChatOrigin, ChatState, ChatSummary, ConfigSchema, RootConfigState, RootState, SessionActiveClient,
    SessionConfigState, SessionLifecycle, SessionState, SessionStatus, SessionSummary,
};
use tokio_util::task::TaskTracker;
use url::Url;

use crate::agent::{AgentProvider, ResolvedConfig};
use crate::channel::ChannelUri;
use crate::clock::{Clock, wire_time};
use crate::ids::ClientId;
use crate::session::{ClientDispatch, Ended, Ending, SessionActor, SessionEnd, SessionHandle, SessionSeed};
use crate::state::{Action, ChannelState, CloseReason, Origin, StateStore};

/// What a host is made of.
pub struct HostConfig {
    /// The kinds of agents it offers; the first is the default.
    pub providers: Vec<Arc<dyn AgentProvider>>,
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for HostConfig {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("HostConfig").finish_non_exhaustive()
    }
}

/// A running host. Cheap to share behind an `Arc`.
pub struct Host {
    store: Arc<StateStore>,
    providers: Vec<Arc<dyn AgentProvider>>,
    clock: Arc<dyn Clock>,
    sessions: Arc<Mutex<Sessions>>,
    tasks: TaskTracker,
}

/// The live sessions, by their own address and by their chats'.
#[derive(Debug, Default)]
struct Sessions {
    by_uri: HashMap<ChannelUri, SessionHandle>,
    by_chat: HashMap<ChannelUri, SessionHandle>,
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
    /// The host is shutting down.
    #[error("the host is shutting down")]
    Closing,
}

/// There is no such session.
#[derive(Debug, thiserror::Error)]
#[error("there is no session {0}")]
pub struct UnknownSession(pub ChannelUri);

impl std::fmt::Debug for Host {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Host").finish_non_exhaustive()
    }
}

impl Host {
    /// A host with no sessions.
    pub fn new(config: HostConfig) -> Self {
        let root = RootState {
            agents: config.providers.iter().map(|provider| provider.info()).collect(),
            active_sessions: Some(0),
            terminals: Some(Vec::new()),
            // Published even though it is empty: reducers ignore changes to an
            // absent configuration.
            config: Some(RootConfigState {
                schema: ConfigSchema {
                    r#type: "object".to_owned(),
                    properties: HashMap::new(),
                    required: None,
                },
                values: JsonObject::new(),
            }),
            meta: None,
        };
        Self {
            store: Arc::new(StateStore::new(root)),
            providers: config.providers,
            clock: config.clock,
            sessions: Arc::default(),
            tasks: TaskTracker::new(),
        }
    }

    /// The published state, for subscribing and reading.
    pub fn store(&self) -> &StateStore {
        &self.store
    }

    /// The sessions that are shown in the list, newest change first.
    pub fn list_sessions(&self) -> Vec<SessionSummary> {
        self.store.rows()
    }

    /// How many sessions there are, the provisional ones too.
    pub fn session_count(&self) -> usize {
        lock(&self.sessions).by_uri.len()
    }

    /// The configuration form of an agent.
    pub fn resolve_config(
        &self,
        provider: Option<&str>,
        chosen: &JsonObject,
    ) -> Result<ResolvedConfig, CreateError> {
        Ok(self.provider(provider)?.resolve_config(chosen))
    }

    /// Creates a session. Nothing is started and nobody else is told until its
    /// first message.
    pub fn create_session(&self, new: NewSession) -> Result<(), CreateError> {
        let provider = self.provider(new.provider.as_deref())?;
        let working_directory = working_directory(&new.working_directories)?;
        if new.uri.is_root() || !new.uri.as_str().contains(':') {
            return Err(CreateError::Invalid(format!("{:?} is no address for a session", new.uri.as_str())));
        }
        let created_at = wire_time(self.clock.now());
        let chat = ChannelUri::default_chat_of(&new.uri);
        let config = provider.resolve_config(&new.config);
        let seed = SessionSeed {
            uri: new.uri.clone(),
            chat: chat.clone(),
            created_at: created_at.clone(),
            working_directory,
            config: config.values.clone(),
            creator: new.creator.clone(),
            provider: Arc::clone(&provider),
        };
        let session = session_state(&provider.info().provider, &chat, &created_at, config, &new);
        let mut sessions = lock(&self.sessions);
        if sessions.closed {
            return Err(CreateError::Closing);
        }
        self.store
            .create(vec![
                (new.uri.clone(), ChannelState::Session(Box::new(session))),
                (chat.clone(), ChannelState::Chat(Box::new(chat_state(&chat, &created_at)))),
            ])
            .map_err(|_| CreateError::Exists(new.uri.clone()))?;
        let (actor, handle) =
            SessionActor::new(seed, Arc::clone(&self.store), Arc::clone(&self.clock), self.tasks.clone());
        sessions.by_uri.insert(new.uri.clone(), handle.clone());
        sessions.by_chat.insert(chat.clone(), handle);
        let cleanup = Cleanup {
            store: Arc::clone(&self.store),
            sessions: Arc::clone(&self.sessions),
            uri: new.uri,
            chat,
            ended: None,
        };
        self.tasks.spawn(async move {
            let mut cleanup = cleanup;
            cleanup.ended = Some(actor.run().await);
        });
        Ok(())
    }

    /// Ends a session, its agent and everything of it. What is dispatched after
    /// this has returned comes too late; the end itself is to be waited for.
    pub async fn dispose_session(&self, uri: &ChannelUri) -> Result<SessionEnd, UnknownSession> {
        let handle = lock(&self.sessions).by_uri.get(uri).cloned();
        Ok(handle.ok_or_else(|| UnknownSession(uri.clone()))?.end(Ending::Dispose).await)
    }

    /// Handles an action that a client dispatched. Waits only while the session
    /// that it is for has too much to do.
    pub async fn dispatch(&self, channel: ChannelUri, action: Action, origin: Origin) {
        if channel.is_root() {
            self.dispatch_to_root(&channel, &action, &origin);
            return;
        }
        let handle = {
            let sessions = lock(&self.sessions);
            sessions.by_chat.get(&channel).or_else(|| sessions.by_uri.get(&channel)).cloned()
        };
        let Some(handle) = handle else {
            tracing::debug!(%channel, "ignored an action for an unknown channel");
            return;
        };
        handle.dispatch(ClientDispatch { channel, action, origin }).await;
    }

    /// Ends every agent, then closes every connection. Resolves when nothing that
    /// the host started is left.
    pub async fn shutdown(&self) {
        let handles: Vec<SessionHandle> = {
            let mut sessions = lock(&self.sessions);
            sessions.closed = true;
            sessions.by_uri.values().cloned().collect()
        };
        for handle in handles {
            // Side by side, and outside of the host's own life: a stop ladder takes seconds.
            self.tasks.spawn(async move { handle.end(Ending::Suspend).await.wait().await });
        }
        self.tasks.close();
        self.tasks.wait().await;
        self.store.close_all(CloseReason::Shutdown);
    }

    fn dispatch_to_root(&self, channel: &ChannelUri, action: &Action, origin: &Origin) {
        let outcome = if matches!(action.typed(), StateAction::RootConfigChanged(_)) {
            self.store.commit(channel, action, Some(origin))
        } else {
            let reason = "this host does not take this action from a client on the root channel";
            self.store.reject(channel, action, origin, reason)
        };
        if let Err(error) = outcome {
            tracing::error!(%error, "an action on the root channel could not be answered");
        }
    }

    fn provider(&self, name: Option<&str>) -> Result<Arc<dyn AgentProvider>, CreateError> {
        self.providers
            .iter()
            .find(|provider| name.is_none_or(|name| provider.info().provider == name))
            .cloned()
            .ok_or_else(|| CreateError::UnknownProvider(name.unwrap_or_default().to_owned()))
    }
}

/// Takes a session out of the host when its actor stops, for whatever reason.
struct Cleanup {
    store: Arc<StateStore>,
    sessions: Arc<Mutex<Sessions>>,
    uri: ChannelUri,
    chat: ChannelUri,
    /// How the actor ended; nothing if it panicked.
    ended: Option<Ended>,
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        // One lock over all of it: a session that is created anew at the same address
        // must not be taken for this one.
        let mut sessions = lock(&self.sessions);
        if self.ended.is_none() {
            tracing::error!(session = %self.uri, "a session ended by a fault of the host's");
        }
        if self.ended.as_ref().is_none_or(|ended| ended.ending == Ending::Dispose) {
            self.store.remove_row(&self.uri);
            self.store.remove(&[self.uri.clone(), self.chat.clone()]);
        }
        sessions.by_uri.remove(&self.uri);
        sessions.by_chat.remove(&self.chat);
        drop(sessions);
        for waiting in self.ended.take().into_iter().flat_map(|ended| ended.waiting) {
            // Whoever asked may have gone away meanwhile.
            waiting.send(()).ok();
        }
    }
}

fn session_state(
    provider: &str,
    chat: &ChannelUri,
    created_at: &str,
    config: ResolvedConfig,
    new: &NewSession,
) -> SessionState {
    let summary = ChatSummary {
        resource: chat.as_str().to_owned(),
        title: String::new(),
        status: SessionStatus::Idle.0,
        activity: None,
        modified_at: created_at.to_owned(),
        changes: None,
        origin: Some(ChatOrigin::User),
        movable: None,
        interactivity: None,
        working_directories: None,
    };
    SessionState {
        provider: provider.to_owned(),
        title: String::new(),
        status: SessionStatus::Idle.0,
        activity: None,
        origin: None,
        project: None,
        working_directories: (!new.working_directories.is_empty()).then(|| new.working_directories.clone()),
        annotations: None,
        lifecycle: SessionLifecycle::Creating,
        creation_error: None,
        server_tools: None,
        active_clients: new.active_client.iter().cloned().collect(),
        chats: vec![summary],
        default_chat: Some(chat.as_str().to_owned()),
        config: Some(SessionConfigState { schema: config.schema, values: config.values }),
        customizations: None,
        changesets: None,
        input_needed: None,
        meta: None,
    }
}

fn chat_state(chat: &ChannelUri, created_at: &str) -> ChatState {
    ChatState {
        resource: chat.as_str().to_owned(),
        title: String::new(),
        status: SessionStatus::Idle.0,
        activity: None,
        modified_at: created_at.to_owned(),
        changes: None,
        origin: Some(ChatOrigin::User),
        movable: None,
        interactivity: None,
        working_directories: None,
        changesets: None,
        background_work: None,
        canvases: None,
        turns: Vec::new(),
        turns_next_cursor: None,
        active_turn: None,
        steering_message: None,
        queued_messages: None,
        draft: None,
        meta: None,
    }
}

fn working_directory(directories: &[Uri]) -> Result<Option<PathBuf>, CreateError> {
    match directories {
        [] => Ok(None),
        [directory] => Url::parse(directory)
            .ok()
            .filter(|url| url.scheme() == "file")
            .and_then(|url| url.to_file_path().ok())
            .map(Some)
            .ok_or_else(|| {
                CreateError::Invalid(format!(
                    "the working directory {directory:?} is not a file: address of this machine"
                ))
            }),
        [_, _, ..] => Err(CreateError::Invalid("an agent here works in one directory at a time".to_owned())),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
