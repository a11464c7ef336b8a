//! The interface of a session actor for the rest of the host: requests and their replies.

use std::time::Duration;

use ahp_types::commands::ChatSource;
use ahp_types::common::Uri;
use ahp_types::state::Message;
use tokio::sync::{mpsc, oneshot};

use super::transfer::ChatTransfer;
use crate::agent::{AgentConnection, OpenError, RecordedTurn, ResourceToken, StopTarget, StoppedWork};
use crate::channel::ChannelUri;
use crate::edits::SessionChangeCounts;
use crate::ids::ClientId;
use crate::output::{OutputId, StoredOutput};
use crate::state::{Action, DispatchTicket};
use crate::storage::StorageError;

/// Sends inputs to a session actor.
#[derive(Clone, Debug)]
pub struct SessionHandle {
    inputs: mpsc::Sender<SessionInput>,
}

impl SessionHandle {
    pub(super) fn new(inputs: mpsc::Sender<SessionInput>) -> Self {
        Self { inputs }
    }

    /// Returns a weak handle that identifies this session.
    pub(crate) fn weak(&self) -> WeakHandle {
        WeakHandle(self.inputs.downgrade())
    }

    /// Whether the weak handle is for this session.
    pub(crate) fn same(&self, other: &WeakHandle) -> bool {
        other.0.upgrade().is_some_and(|inputs| inputs.same_channel(&self.inputs))
    }

    /// Sends a client's dispatch; waits while the session's queue is full. Returns the
    /// dispatch if the session has ended.
    pub(crate) async fn dispatch(&self, dispatch: Box<ClientDispatch>) -> Result<(), Box<ClientDispatch>> {
        let Ok(place) = self.inputs.reserve().await else { return Err(dispatch) };
        // The session may have closed after the place became free.
        if self.inputs.is_closed() {
            return Err(dispatch);
        }
        dispatch.ticket.delivered();
        place.send(SessionInput::Client(dispatch));
        Ok(())
    }

    /// Reports that a client has left the session; waits while the session's queue is full.
    pub(crate) async fn client_left(&self, client: ClientId) {
        // A session that has ended has no clients.
        self.inputs.send(SessionInput::ClientLeft(client)).await.ok();
    }

    /// Sends a token that the session is waiting for; waits while its queue is full.
    pub(crate) async fn token(&self, token: ResourceToken) {
        // A session that has ended does not need the token.
        self.inputs.send(SessionInput::Token(Box::new(token))).await.ok();
    }

    /// Sends the counts of the session's changes; waits while its queue is full.
    pub(crate) async fn counted(&self, counts: SessionChangeCounts) {
        // A session that has ended is counted again when it is loaded.
        self.inputs.send(SessionInput::Counted(Box::new(counts))).await.ok();
    }

    /// Sends a chat order and waits for its result.
    pub(crate) async fn order<T, O: Into<ChatOrder>>(
        &self,
        order: impl FnOnce(ChatReplySender<T>) -> O,
    ) -> Result<T, ChatError> {
        self.begin(order).await?.wait().await
    }

    /// Sends a chat order; waits only while the session's queue is full.
    pub(crate) async fn begin<T, O: Into<ChatOrder>>(
        &self,
        order: impl FnOnce(ChatReplySender<T>) -> O,
    ) -> Result<PendingReply<T>, ChatError> {
        let (done, answer) = oneshot::channel();
        self.inputs.send(SessionInput::Chats(order(done).into())).await.map_err(|_| ChatError::Gone)?;
        Ok(PendingReply(answer))
    }

    /// Requests the end of the session and of its agents. Waits only while the session's
    /// queue is full.
    pub(crate) async fn end(&self, ending: SessionEnding) -> SessionEnd {
        let (done, finished) = oneshot::channel();
        // If the session has ended, the dropped sender completes the wait.
        self.inputs.send(SessionInput::End { ending, done }).await.ok();
        SessionEnd(finished)
    }
}

/// Identifies a session without keeping it alive.
#[derive(Debug)]
pub(crate) struct WeakHandle(mpsc::WeakSender<SessionInput>);

/// Completes when a session has ended, which takes until its agents have stopped.
#[derive(Debug)]
pub struct SessionEnd(oneshot::Receiver<Result<(), StorageError>>);

impl SessionEnd {
    /// Returns the end of a session that has already ended.
    pub(crate) fn done() -> Self {
        let (done, finished) = oneshot::channel();
        done.send(Ok(())).ok();
        Self(finished)
    }

    /// Waits until the session has ended. Fails if the result could not be stored.
    pub async fn wait(self) -> Result<(), StorageError> {
        // Without an answer the actor is gone, so the session has ended.
        self.0.await.unwrap_or(Ok(()))
    }
}

/// The pending reply to a chat order.
#[derive(Debug)]
pub struct PendingReply<T>(oneshot::Receiver<Result<T, ChatError>>);

impl<T> PendingReply<T> {
    /// Waits for the reply.
    pub async fn wait(self) -> Result<T, ChatError> {
        self.0.await.unwrap_or(Err(ChatError::Gone))
    }

    /// Waits for the reply for this long; `late` says what to do after that.
    pub(crate) async fn wait_for(self, limit: Duration, late: &'static str) -> Result<T, ChatError> {
        tokio::time::timeout(limit, self.wait()).await.unwrap_or(Err(ChatError::TimedOut(late)))
    }
}

/// An action that a client dispatched on one of the session's channels.
#[derive(Debug)]
pub(crate) struct ClientDispatch {
    pub(crate) channel: ChannelUri,
    pub(crate) action: Action,
    pub(crate) ticket: DispatchTicket,
    /// Snapshots of attachments, to which the message in the action refers.
    pub(crate) snapshots: Vec<(OutputId, StoredOutput)>,
}

/// How a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionEnding {
    /// Disposed: nothing is kept.
    Dispose,
    /// The host is shutting down: everything except the agents is kept.
    Suspend,
    /// Not needed in memory: everything is kept in storage.
    Unload,
}

/// Notifies a caller that waits for the end of a session.
pub(crate) type EndWaiter = oneshot::Sender<Result<(), StorageError>>;

/// Sends the result of a chat order to the caller.
pub(crate) type ChatReplySender<T> = oneshot::Sender<Result<T, ChatError>>;

#[derive(Debug)]
pub(super) enum SessionInput {
    Client(Box<ClientDispatch>),
    /// The agent of a chat has been opened, or opening it failed.
    Opened(ChannelUri, Result<AgentConnection, OpenError>),
    /// The agent's own record of a chat, for matching turns that have no link.
    Recorded(ChannelUri, Vec<RecordedTurn>),
    ClientLeft(ClientId),
    Token(Box<ResourceToken>),
    /// A title was written after the first exchange of a chat.
    TitleWritten(ChannelUri, String),
    /// The counts of the session's changes.
    Counted(Box<SessionChangeCounts>),
    Chats(ChatOrder),
    End {
        ending: SessionEnding,
        done: EndWaiter,
    },
}

/// A request that concerns the chats of a session.
#[derive(Debug)]
pub(crate) enum ChatOrder {
    /// Creates a chat.
    Create {
        new: Box<NewChat>,
        /// Snapshots of attachments, to which the first message refers.
        snapshots: Vec<(OutputId, StoredOutput)>,
        done: ChatReplySender<()>,
    },
    /// Ends and deletes a chat.
    Dispose { chat: ChannelUri, done: ChatReplySender<()> },
    /// Moves a chat after another in the list, or to the start.
    Place { chat: ChannelUri, after: Option<ChannelUri>, done: ChatReplySender<()> },
    /// Stops work of a chat. `StopTarget::Background` stops all of it, with the running turn.
    Stop { chat: ChannelUri, target: StopTarget, done: ChatReplySender<Vec<StoppedWork>> },
    /// Ends the process of a chat's agent. The next message opens another one.
    RestartAgent { chat: ChannelUri, done: ChatReplySender<()> },
    /// A step of moving a chat between sessions.
    Transfer(ChatTransfer),
}

/// A client's request for a new chat.
#[derive(Clone, Debug)]
pub struct NewChat {
    /// The URI that the client chose.
    pub uri: ChannelUri,
    /// The chat that it branches from.
    pub source: Option<ChatSource>,
    /// Its first message.
    pub initial_message: Option<Message>,
    /// Its directories; must be session directories.
    pub working_directories: Option<Vec<Uri>>,
}

impl NewChat {
    /// The chat that it branches from, if its kind of source is known.
    pub(super) fn source_chat(&self) -> Option<ChannelUri> {
        match self.source.as_ref()? {
            ChatSource::Fork(fork) => Some(ChannelUri::new(&fork.chat)),
            ChatSource::SideChat(side) => Some(ChannelUri::new(&side.chat)),
            ChatSource::Unknown(_) => None,
        }
    }
}

/// Why a chat order failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ChatError {
    /// The chat does not exist.
    #[error("unknown chat {0}")]
    Unknown(ChannelUri),
    /// The session does not exist.
    #[error("unknown session {0}")]
    UnknownSession(ChannelUri),
    /// The URI is in use.
    #[error("{0} already exists")]
    Exists(ChannelUri),
    /// The chat must be idle for this.
    #[error("a turn is running in {0}; wait until it ends or cancel it first")]
    TurnInProgress(ChannelUri),
    /// The order is not possible; the text gives the reason and a remedy.
    #[error("{0}")]
    Refused(String),
    /// The agent has not done this in time; the text says what to do.
    #[error("{0}")]
    TimedOut(&'static str),
    /// The session has ended.
    #[error("the session is closing")]
    Gone,
    /// Storage failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ahp_types::state::RootState;
    use serde_json::json;
    use tokio_util::sync::CancellationToken;
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::host::{AgentLifetimes, DrainFlag, PermissionConfig};
    use crate::permission_rules::PermissionRules;
    use tokio::sync::watch;

    use crate::agent::{AgentOffer, AgentProvider, BoxFuture, OpenAgent};
    use crate::changesets::Changesets;
    use crate::clock::SystemClock;
    use crate::edits::{EditLog, NoEdits};
    use crate::ids::ConnectionId;
    use crate::projects::NoProjects;
    use crate::session::{ChatAddresses, LifetimeRules, SessionActor, SessionSeed, SessionServices};
    use crate::state::{Origin, Outbox, StateStore};
    use crate::storage::Nowhere;
    use crate::titles::NoTitles;

    /// The provider of a session without chats; never called.
    struct UncalledProvider;

    impl AgentProvider for UncalledProvider {
        fn offer(&self) -> watch::Receiver<AgentOffer> {
            panic!("never called")
        }

        fn open(&self, _: OpenAgent, _: CancellationToken) -> BoxFuture<Result<AgentConnection, OpenError>> {
            panic!("never called")
        }
    }

    fn session(store: &Arc<StateStore>) -> (SessionActor, SessionHandle) {
        let seed = SessionSeed {
            uri: ChannelUri::new("a:/1"),
            chats: Vec::new(),
            created_at: String::new(),
            provider: Arc::new(UncalledProvider),
            creator: None,
            listed: false,
            next_entry: 1,
            stale: false,
            changes: None,
        };
        let tasks = TaskTracker::new();
        let edits: Arc<dyn EditLog> = Arc::new(NoEdits);
        let changesets = Changesets::new(
            Arc::clone(store),
            Arc::clone(&edits),
            None,
            tasks.clone(),
            CancellationToken::new(),
        );
        let services = SessionServices {
            store: Arc::clone(store),
            storage: Arc::new(Nowhere),
            addresses: Arc::new(ChatAddresses::default()),
            clock: Arc::new(SystemClock),
            permission_rules: Arc::new(PermissionRules::new(
                Arc::new(Nowhere),
                Vec::new(),
                PermissionConfig::default(),
            )),
            edits,
            changesets,
            projects: Arc::new(NoProjects),
            titles: Arc::new(NoTitles),
            lifetime_rules: LifetimeRules::new(AgentLifetimes::default()),
            drain: DrainFlag::default(),
            tasks,
        };
        SessionActor::new(seed, services)
    }

    #[tokio::test]
    async fn queued_dispatch_is_rejected_when_session_ends() {
        let root: RootState = serde_json::from_value(json!({"agents": []})).unwrap();
        let (store, outbox) = (Arc::new(StateStore::new(root)), Arc::new(Outbox::default()));
        assert_eq!(store.attach(Arc::clone(&outbox)), ConnectionId(1));
        let (actor, handle) = session(&store);
        let place = handle.inputs.reserve().await.unwrap();
        let late = async {
            handle.end(SessionEnding::Suspend).await;
            while !handle.inputs.is_closed() {
                tokio::task::yield_now().await;
            }
            place.send(SessionInput::Client(dispatch(&store).await));
        };
        tokio::join!(actor.run(), late);
        let frames = outbox.try_batch().unwrap().unwrap();
        let answer: serde_json::Value = serde_json::from_slice(frames[0].bytes()).unwrap();
        assert_eq!(answer["params"]["rejectionReason"], "the session is closing");
    }

    async fn dispatch(store: &Arc<StateStore>) -> Box<ClientDispatch> {
        let (channel, action) = (ChannelUri::new("a:/1"), action());
        let origin = Origin { connection: ConnectionId(1), client: ClientId::new("c"), client_seq: 1 };
        let ticket = DispatchTicket::claim(store, &channel, &action, origin).await.unwrap();
        Box::new(ClientDispatch { channel, action, ticket, snapshots: Vec::new() })
    }

    fn action() -> Action {
        let action = json!({"type": "session/titleChanged", "title": "x"});
        Action::from_client(serde_json::value::to_raw_value(&action).unwrap()).unwrap()
    }

    #[tokio::test]
    async fn dispatch_to_closed_session_is_returned() {
        let root: RootState = serde_json::from_value(json!({"agents": []})).unwrap();
        let store = Arc::new(StateStore::new(root));
        let (sender, mut inputs) = mpsc::channel(1);
        let handle = SessionHandle::new(sender);
        handle.dispatch(dispatch(&store).await).await.unwrap();
        let late = dispatch(&store).await;
        let mut waits = std::pin::pin!(handle.dispatch(late));
        assert!(
            std::future::poll_fn(|cx| std::task::Poll::Ready(waits.as_mut().poll(cx).is_pending())).await
        );
        // The session closes after a place has become free and before the caller uses it.
        assert!(matches!(inputs.recv().await, Some(SessionInput::Client(_))));
        inputs.close();
        assert!(waits.await.is_err() && inputs.recv().await.is_none());
        assert!(handle.dispatch(dispatch(&store).await).await.is_err());
    }
}
