//! How the rest of the host reaches a session: what can be asked of its actor, and
//! what comes back.

use ahp_types::commands::ChatSource;
use ahp_types::common::Uri;
use ahp_types::state::Message;
use tokio::sync::{mpsc, oneshot};

use super::chats::ChatSeed;
use crate::agent::{AgentLink, OpenError, RecordedTurn, ResourceToken};
use crate::channel::ChannelUri;
use crate::ids::ClientId;
use crate::state::{Action, DispatchMark, Origin};
use crate::storage::StorageError;

/// How the rest of the host reaches a session.
#[derive(Clone, Debug)]
pub struct SessionHandle {
    inputs: mpsc::Sender<SessionInput>,
}

impl SessionHandle {
    pub(super) fn new(inputs: mpsc::Sender<SessionInput>) -> Self {
        Self { inputs }
    }

    /// A way to know this session again.
    pub(crate) fn weak(&self) -> WeakHandle {
        WeakHandle(self.inputs.downgrade())
    }

    /// Whether it is this one.
    pub(crate) fn same(&self, other: &WeakHandle) -> bool {
        other.0.upgrade().is_some_and(|inputs| inputs.same_channel(&self.inputs))
    }

    /// Hands over a client's dispatch; waits while the session is behind. Gives it
    /// back if the session is not there any more. Whoever answers for it is told with
    /// `arrives`, before the session can have it: who comes later cannot know whether the
    /// session still has it.
    pub(crate) async fn dispatch(
        &self,
        dispatch: Box<ClientDispatch>,
        arrives: impl FnOnce(&ClientDispatch) + Send,
    ) -> Result<(), Box<ClientDispatch>> {
        let Ok(place) = self.inputs.reserve().await else { return Err(dispatch) };
        arrives(&dispatch);
        // A session that is gone by now may have been forgotten before that; one that
        // goes from now on is forgotten after it.
        if self.inputs.is_closed() {
            return Err(dispatch);
        }
        place.send(SessionInput::Client(dispatch));
        Ok(())
    }

    /// Says that a client is not there for the session any more; waits while the
    /// session is behind.
    pub(crate) async fn left(&self, client: ClientId) {
        // If the session is gone, nobody is left in it.
        self.inputs.send(SessionInput::Left(client)).await.ok();
    }

    /// Hands over a token that the session waits for; waits while it is behind.
    pub(crate) async fn token(&self, token: ResourceToken) {
        // If the session is gone, it waits for nothing.
        self.inputs.send(SessionInput::Token(Box::new(token))).await.ok();
    }

    /// Asks for something about the session's chats and waits until it is done.
    pub(crate) async fn order<T>(&self, order: impl FnOnce(Answer<T>) -> ChatOrder) -> Result<T, ChatError> {
        self.begin(order).await?.wait().await
    }

    /// Asks for something about the session's chats. Waits only while the session is
    /// behind.
    pub(crate) async fn begin<T>(
        &self,
        order: impl FnOnce(Answer<T>) -> ChatOrder,
    ) -> Result<Outcome<T>, ChatError> {
        let (done, answer) = oneshot::channel();
        self.inputs.send(SessionInput::Chats(order(done))).await.map_err(|_| ChatError::Gone)?;
        Ok(Outcome(answer))
    }

    /// Asks for the end of the session and of everything that works for it. Waits
    /// only while the session is behind.
    pub(crate) async fn end(&self, ending: Ending) -> SessionEnd {
        let (done, finished) = oneshot::channel();
        // If the session is gone, the dropped sender says so.
        self.inputs.send(SessionInput::End { ending, done }).await.ok();
        SessionEnd(finished)
    }
}

/// Knows a session again without keeping it alive.
#[derive(Debug)]
pub(crate) struct WeakHandle(mpsc::WeakSender<SessionInput>);

/// The end of a session, which takes as long as its agents need to stop.
#[derive(Debug)]
pub struct SessionEnd(oneshot::Receiver<Result<(), StorageError>>);

impl SessionEnd {
    /// The end of a session that is over.
    pub(crate) fn done() -> Self {
        let (done, finished) = oneshot::channel();
        done.send(Ok(())).ok();
        Self(finished)
    }

    /// Waits until nothing of the session is left that should not be. An error says
    /// that the storage could not be told.
    pub async fn wait(self) -> Result<(), StorageError> {
        // Without an answer the actor is gone, which is what was asked for.
        self.0.await.unwrap_or(Ok(()))
    }
}

/// What becomes of something that was asked about a session's chats.
#[derive(Debug)]
pub struct Outcome<T>(oneshot::Receiver<Result<T, ChatError>>);

impl<T> Outcome<T> {
    /// Waits for it.
    pub async fn wait(self) -> Result<T, ChatError> {
        self.0.await.unwrap_or(Err(ChatError::Gone))
    }
}

/// An action that a client dispatched on one of the session's channels.
#[derive(Debug)]
pub(crate) struct ClientDispatch {
    pub(crate) channel: ChannelUri,
    pub(crate) action: Action,
    pub(crate) origin: Origin,
    /// By which it is known again, if its client tracks it.
    pub(crate) mark: Option<DispatchMark>,
}

/// What remains of a session when its actor stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Nothing: a client disposed it.
    Dispose,
    /// Everything but the agents: the host shuts down.
    Suspend,
    /// Everything, in the storage: it is not needed in memory.
    Unload,
}

/// Who waits for the end of a session.
pub(crate) type Waiting = oneshot::Sender<Result<(), StorageError>>;

/// Who waits for something about a session's chats.
pub(crate) type Answer<T> = oneshot::Sender<Result<T, ChatError>>;

#[derive(Debug)]
pub(super) enum SessionInput {
    Client(Box<ClientDispatch>),
    /// The agent of a chat is there, or cannot be.
    Opened(ChannelUri, Result<AgentLink, OpenError>),
    /// The agent's own record of a chat, to find turns in it that have no link.
    Recorded(ChannelUri, Vec<RecordedTurn>),
    Left(ClientId),
    Token(Box<ResourceToken>),
    Chats(ChatOrder),
    End {
        ending: Ending,
        done: Waiting,
    },
}

/// What can be asked about a session's chats.
#[derive(Debug)]
pub(crate) enum ChatOrder {
    /// Create one.
    Create { new: Box<NewChat>, done: Answer<()> },
    /// End one, and forget it.
    Dispose { chat: ChannelUri, done: Answer<()> },
    /// Put one behind another in the list, or first.
    Place { chat: ChannelUri, after: Option<ChannelUri>, done: Answer<()> },
    /// Be ready for a chat of another session: from now on it cannot be refused, and the
    /// session does not end before it has come or is not expected any more.
    Expect { berth: Berth, done: Answer<()> },
    /// It does not come after all.
    Unexpect { done: Answer<()> },
    /// Let go of a chat, for another session.
    Release { chat: ChannelUri, done: Answer<ChatSeed> },
    /// The chat stays after all.
    TakeBack { chat: ChannelUri, done: Answer<()> },
    /// The chat is another session's now. The row in the list follows with `ShowRow`.
    Forget { chat: ChannelUri, done: Answer<()> },
    /// Bring the row in the list up to date, now that the other session has the chat.
    ShowRow { done: Answer<()> },
    /// The chat is this session's now.
    Adopt { seed: Box<ChatSeed>, berth: Berth, done: Answer<()> },
}

/// Where a chat of another session goes.
#[derive(Clone, Debug)]
pub(crate) enum Berth {
    /// Behind another one, or first.
    Behind(Option<ChannelUri>),
    /// In the place of the default one, which goes. For a session that is not used yet.
    Default {
        /// What the session is called if the chat has no name.
        title: String,
    },
}

/// What a client wants a new chat to be.
#[derive(Clone, Debug)]
pub struct NewChat {
    /// The address that the client chose.
    pub uri: ChannelUri,
    /// The chat that it comes from.
    pub source: Option<ChatSource>,
    /// What it begins with.
    pub initial_message: Option<Message>,
    /// Where it works, out of the session's directories.
    pub working_directories: Option<Vec<Uri>>,
}

/// Why something about a chat could not be done.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ChatError {
    /// There is no such chat.
    #[error("there is no chat {0}")]
    Unknown(ChannelUri),
    /// There is no such session.
    #[error("there is no session {0}")]
    UnknownSession(ChannelUri),
    /// The address is taken.
    #[error("there is something at {0} already")]
    Exists(ChannelUri),
    /// It has to be idle for that.
    #[error("a turn is running in {0}; wait for its end or cancel it first")]
    TurnInProgress(ChannelUri),
    /// It is not possible; the text says why and what to do.
    #[error("{0}")]
    Refused(String),
    /// The session is not there any more.
    #[error("the session is being closed")]
    Gone,
    /// It could not be stored.
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
    use tokio::sync::watch;

    use crate::agent::{AgentOffer, AgentProvider, BoxFuture, OpenAgent};
    use crate::clock::SystemClock;
    use crate::ids::ConnectionId;
    use crate::session::{ChatAddresses, SessionActor, SessionSeed, Surroundings};
    use crate::state::{Outbox, StateStore};
    use crate::storage::Nowhere;

    /// The agent of a session without chats.
    struct Nobody;

    impl AgentProvider for Nobody {
        fn offer(&self) -> watch::Receiver<AgentOffer> {
            panic!("nobody asks")
        }

        fn open(&self, _: OpenAgent, _: CancellationToken) -> BoxFuture<Result<AgentLink, OpenError>> {
            panic!("nobody asks")
        }
    }

    fn session(store: &Arc<StateStore>) -> (SessionActor, SessionHandle) {
        let seed = SessionSeed {
            uri: ChannelUri::new("a:/1"),
            chats: Vec::new(),
            created_at: String::new(),
            provider: Arc::new(Nobody),
            creator: None,
            listed: false,
            next_entry: 1,
            stale: false,
        };
        let around = Surroundings {
            store: Arc::clone(store),
            storage: Arc::new(Nowhere),
            addresses: Arc::new(ChatAddresses::default()),
            clock: Arc::new(SystemClock),
            tasks: TaskTracker::new(),
        };
        SessionActor::new(seed, around)
    }

    #[tokio::test]
    async fn who_has_a_place_at_a_session_that_ends_is_answered_still() {
        let root: RootState = serde_json::from_value(json!({"agents": []})).unwrap();
        let (store, outbox) = (Arc::new(StateStore::new(root)), Arc::new(Outbox::default()));
        assert_eq!(store.attach(Arc::clone(&outbox)), ConnectionId(1));
        let (actor, handle) = session(&store);
        let place = handle.inputs.reserve().await.unwrap();
        let late = async {
            handle.end(Ending::Suspend).await;
            while !handle.inputs.is_closed() {
                tokio::task::yield_now().await;
            }
            place.send(SessionInput::Client(dispatch()));
        };
        tokio::join!(actor.run(), late);
        let frames = outbox.try_batch().unwrap().unwrap();
        let answer: serde_json::Value = serde_json::from_slice(frames[0].bytes()).unwrap();
        assert_eq!(answer["params"]["rejectionReason"], "the session is being closed");
    }

    fn dispatch() -> Box<ClientDispatch> {
        let action = json!({"type": "session/titleChanged", "title": "x"});
        let action = Action::from_client(serde_json::value::to_raw_value(&action).unwrap()).unwrap();
        let origin = Origin { connection: ConnectionId(1), client: ClientId::new("c"), client_seq: 1 };
        Box::new(ClientDispatch { channel: ChannelUri::new("a:/1"), action, origin, mark: None })
    }

    #[tokio::test]
    async fn a_dispatch_is_announced_before_its_session_can_have_it_and_not_while_it_waits() {
        let (sender, mut inputs) = mpsc::channel(1);
        let handle = SessionHandle::new(sender);
        handle.dispatch(dispatch(), |_| assert!(inputs.is_empty())).await.unwrap();
        let mut announced = false;
        {
            let mut waits = std::pin::pin!(handle.dispatch(dispatch(), |_| announced = true));
            assert!(
                std::future::poll_fn(|cx| std::task::Poll::Ready(waits.as_mut().poll(cx).is_pending())).await
            );
        }
        assert!(!announced);
        assert!(matches!(inputs.recv().await, Some(SessionInput::Client(_))));
        // The session goes at the very moment in which it is said that it gets one.
        let came = handle.dispatch(dispatch(), |_| inputs.close()).await;
        assert!(came.is_err() && inputs.recv().await.is_none());
        assert!(handle.dispatch(dispatch(), |_| panic!("nobody gets it")).await.is_err());
    }
}
