//! A long-lived conversation at the level of turns.
//!
//! Owns the order of sends, the sequence of runtimes that serve the conversation, and the notification of
//! subscribers. Invariants: sends are answered in order, each exactly once and with its own result, and
//! no process of a session outlives it.

mod actor;
mod artifact;
mod hooks;
mod options;
mod requests;
mod shared;
mod status;
mod steering;
mod turn;

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::sync::{Semaphore, TryAcquireError, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

pub use artifact::Artifact;
pub use hooks::{HookError, SessionSubscription};
pub use options::SessionOptions;
pub use requests::{PermissionAnswer, RefuseAll, RequestHandler};
pub use status::{Status, UnexpectedExit};
pub use steering::{SteerError, SteeringOutcome};
pub use turn::{Lagged, Turn, TurnEnding, TurnFailure, TurnResult};

use crate::controls::Controls;
use crate::event::SessionEvent;
use crate::options::{Conversation, LaunchOptions};
use crate::process::Exit;
use crate::runtime::{Initialized, Priority, StartError, UserContent};
use crate::transport::BoxFuture;

use actor::{Actor, Command, Pending};
use shared::SharedSession;

/// Largest number of waiting sends. Far more than a person types ahead; a program that sends too fast
/// gets [`EnqueueError::Full`].
const SENDS_LIMIT: usize = 1024;

/// Capacity of the command channel: all sends that may wait, plus some room for other commands, which
/// wait when it is full.
const COMMANDS_LIMIT: usize = SENDS_LIMIT + 64;

/// A conversation; cheap to clone. The runtime is stopped when the last handle and the last [`Turn`] are
/// dropped.
#[derive(Debug, Clone)]
pub struct ClaudeSession {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    shared: Arc<SharedSession>,
    commands: mpsc::Sender<Command>,
    /// One permit per waiting send; closed when the session ends.
    permits: Arc<Semaphore>,
    /// The session's tasks.
    tasks: TaskTracker,
}

/// A message to send, with its options.
#[derive(Debug, Clone, PartialEq)]
pub struct Prompt {
    /// Content of the message.
    pub content: UserContent,
    /// Timeout of its turn; `None` for the session's default.
    pub timeout: Option<Duration>,
}

impl<T: Into<UserContent>> From<T> for Prompt {
    fn from(content: T) -> Self {
        Self { content: content.into(), timeout: None }
    }
}

impl Prompt {
    /// Sets the timeout of the turn.
    #[must_use]
    pub fn within(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
}

/// Why a send was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum EnqueueError {
    /// Too many sends are waiting.
    #[error("the queue is full: {SENDS_LIMIT} messages are waiting; retry when some of them are answered")]
    Full,
    /// The session has ended.
    #[error("the session was terminated")]
    Terminated,
}

/// Outcome of an interrupt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Interrupted {
    /// No send was running.
    Nothing,
    /// The turn has ended; the runtime continues.
    Turn,
    /// The runtime did not end its turn in time and was stopped. The next send starts a new one.
    Runtime(Exit),
}

/// Why a conversation could not be forked.
#[derive(Debug, Error)]
pub enum ForkError {
    /// The conversation has no messages.
    #[error("the conversation has no messages yet; send one before forking it")]
    Empty,
    /// The runtime of the fork did not start.
    #[error("cannot start the runtime of the fork")]
    Start(#[source] StartError),
}

/// Why a session could not be restarted.
#[derive(Debug, Error)]
pub enum RestartError {
    /// The runtime did not start. The session keeps its previous options.
    #[error("cannot start the runtime")]
    Start(#[source] StartError),
    /// The session has ended.
    #[error("the session was terminated")]
    Terminated,
}

impl ClaudeSession {
    /// Creates a session without starting a runtime; [`Self::warm_up`] or the first send starts it.
    ///
    /// Cancelling `cancel` ends the session. Must be called within a tokio runtime.
    pub fn new(options: SessionOptions, cancel: CancellationToken) -> Self {
        let shared = Arc::new(SharedSession::new(&options));
        let (commands, orders) = mpsc::channel(COMMANDS_LIMIT);
        let permits = Arc::new(Semaphore::new(SENDS_LIMIT));
        let tasks = TaskTracker::new();
        let actor =
            Actor::new(options, Arc::clone(&shared), orders, Arc::clone(&permits), tasks.clone(), cancel);
        tasks.spawn(actor.run());
        Self { inner: Arc::new(Inner { shared, commands, permits, tasks }) }
    }

    /// Creates a session and starts its runtime, so that the first send does not wait for it.
    pub async fn start(options: SessionOptions, cancel: CancellationToken) -> Result<Self, StartError> {
        let session = Self::new(options, cancel);
        match session.warm_up().await {
            Ok(()) => Ok(session),
            Err(RestartError::Start(error)) => Err(error),
            Err(RestartError::Terminated) => Err(StartError::Cancelled),
        }
    }

    /// Starts the runtime if none is running.
    pub async fn warm_up(&self) -> Result<(), RestartError> {
        self.ask(|reply| Command::WarmUp { reply }).await.unwrap_or(Err(RestartError::Terminated))
    }

    /// Enqueues a message and returns its turn. Never waits. If the runtime has exited, a new one
    /// continues the conversation.
    pub fn send(&self, prompt: impl Into<Prompt>) -> Result<Turn, EnqueueError> {
        let permit = Arc::clone(&self.inner.permits).try_acquire_owned().map_err(|error| match error {
            TryAcquireError::NoPermits => EnqueueError::Full,
            TryAcquireError::Closed => EnqueueError::Terminated,
        })?;
        let (pending, turn) = Pending::new(prompt.into(), permit, self.clone());
        self.inner.commands.try_send(Command::Send(pending)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => EnqueueError::Full,
            mpsc::error::TrySendError::Closed(_) => EnqueueError::Terminated,
        })?;
        Ok(turn)
    }

    /// Adds a message to the running turn and waits until the runtime takes it up or the turn ends. The turn
    /// ends once, with the result of its last message. [`Priority::Now`] cuts off the answer, and withdraws
    /// an open permission request; [`Priority::Next`] waits for the end of a running tool or of the answer.
    /// Hooks for prompts are not called. Dropping the future does not take the message back.
    pub async fn steer(
        &self,
        content: impl Into<UserContent>,
        priority: Priority,
    ) -> Result<SteeringOutcome, SteerError> {
        let content = content.into();
        let answer = self.ask(|reply| Command::Steer { content, priority, reply }).await;
        answer.unwrap_or(Err(SteerError::Terminated))
    }

    /// Interrupts the running turn: its send fails immediately. Sends an interrupt request first; if the
    /// runtime does not end the turn in time, it is stopped. Waiting sends run next. Returns when the
    /// runtime is idle or has exited.
    pub async fn interrupt(&self) -> Interrupted {
        self.ask(|reply| Command::Interrupt { reply }).await.unwrap_or(Interrupted::Nothing)
    }

    /// Ends the session: all sends fail, and the runtime is stopped, gracefully first. Returns when all
    /// its processes have exited, after at most 8 s.
    pub async fn terminate(&self) {
        self.ask(|reply| Command::Terminate { reply }).await;
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
    }

    /// Restarts the runtime with changed options after all earlier sends were answered, and continues the
    /// conversation.
    pub async fn restart(
        &self,
        change: impl FnOnce(&mut LaunchOptions) + Send + 'static,
    ) -> Result<(), RestartError> {
        let change = Box::new(change);
        self.ask(|reply| Command::Restart { change, reply }).await.unwrap_or(Err(RestartError::Terminated))
    }

    /// Starts a session with a copy of this conversation. The options can be changed; hooks and
    /// subscribers are not copied.
    pub async fn fork(
        &self,
        change: impl FnOnce(&mut LaunchOptions),
        cancel: CancellationToken,
    ) -> Result<ClaudeSession, ForkError> {
        let mut options = self.inner.shared.options();
        let from = self.inner.shared.established().ok_or(ForkError::Empty)?;
        let before = options.launch.clone();
        options.launch.conversation = Conversation::Fork { from, id: Uuid::new_v4() };
        change(&mut options.launch);
        options.launch.renew_system_prompt_if_changed(&before);
        ClaudeSession::start(options, cancel).await.map_err(ForkError::Start)
    }

    /// Calls `follower` for every later event, in order. It must not block: the session waits for it.
    pub fn on_event(&self, follower: impl Fn(&SessionEvent) + Send + Sync + 'static) -> SessionSubscription {
        self.inner.shared.followers.join(Arc::new(follower))
    }

    /// Adds a hook that rewrites every prompt before it is sent, after the existing hooks. Its error
    /// fails only that send.
    pub fn before_send(
        &self,
        hook: impl Fn(UserContent) -> BoxFuture<'static, Result<UserContent, HookError>> + Send + Sync + 'static,
    ) -> SessionSubscription {
        self.inner.shared.hooks.join(Arc::new(hook))
    }

    /// Watches the status of the session.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.inner.shared.status.subscribe()
    }

    /// The record of the session so far.
    pub fn artifact(&self) -> Artifact {
        self.inner.shared.artifact()
    }

    pub fn conversation(&self) -> Uuid {
        self.inner.shared.conversation()
    }

    /// The control requests of the running runtime, if any. They do not apply to a runtime started later.
    pub fn controls(&self) -> Option<Controls> {
        self.inner.shared.live(|live| live.controls.clone())
    }

    /// Process id of the running runtime, if it is a local process.
    pub fn pid(&self) -> Option<u32> {
        self.inner.shared.live(|live| live.pid).flatten()
    }

    /// The handshake response of the running runtime, if any.
    pub fn initialized(&self) -> Option<Initialized> {
        self.inner.shared.live(|live| live.initialized.clone())
    }

    /// Sends a command to the session's task and waits for the reply; `None` if the session has ended.
    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.inner.commands.send(command(reply)).await.ok()?;
        answer.await.ok()
    }
}
