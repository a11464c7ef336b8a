//! A long-lived conversation, turn by turn.
//!
//! Owns the order of sends, the life of the runtimes that work on the conversation one after the other, and
//! what is told to those who follow it. The invariants: sends are answered in the order in which they were
//! made, each exactly once and by its own result, and nothing that a session started outlives it.

mod actor;
mod artifact;
mod board;
mod hooks;
mod options;
mod requests;
mod status;
mod turn;

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::sync::{Semaphore, TryAcquireError, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

pub use artifact::Artifact;
pub use hooks::{HookError, Subscription};
pub use options::SessionOptions;
pub use requests::{PermissionAnswer, RefuseAll, RequestHandler};
pub use status::{Status, UnexpectedExit};
pub use turn::{Lagged, Turn, TurnEnding, TurnError, TurnResult};

use crate::controls::Controls;
use crate::event::SessionEvent;
use crate::options::{Conversation, LaunchOptions};
use crate::process::Exit;
use crate::runtime::{Initialized, StartError, UserContent};
use crate::transport::BoxFuture;

use actor::{Actor, Command, Pending};
use board::Board;

/// The most sends that wait. Far more than a person types ahead; a program that sends faster than the
/// conversation goes gets [`EnqueueError::Full`].
const SENDS_LIMIT: usize = 1024;

/// The most commands on their way to the session's task: all sends that may wait, and some room for the rest,
/// which waits when it is full.
const COMMANDS_LIMIT: usize = SENDS_LIMIT + 64;

/// A conversation; cheap to clone. The runtime is ended when the last handle, and the last [`Turn`], is gone.
#[derive(Debug, Clone)]
pub struct ClaudeSession {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    board: Arc<Board>,
    commands: mpsc::Sender<Command>,
    /// One permit for each send that may wait; closed when the session is over.
    permits: Arc<Semaphore>,
    /// The session's tasks.
    tasks: TaskTracker,
}

/// What is sent, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct Prompt {
    /// What it says.
    pub content: UserContent,
    /// How long its turn may take; without one, as the session's options say.
    pub timeout: Option<Duration>,
}

impl<T: Into<UserContent>> From<T> for Prompt {
    fn from(content: T) -> Self {
        Self { content: content.into(), timeout: None }
    }
}

impl Prompt {
    /// The same with a limit on how long its turn may take.
    #[must_use]
    pub fn within(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
}

/// Why a send was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum EnqueueError {
    /// Too many sends wait already.
    #[error("{SENDS_LIMIT} messages wait already; send again when some of them were answered")]
    Full,
    /// The session is over.
    #[error("the session was terminated")]
    Terminated,
}

/// What an interrupt came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Interrupted {
    /// No send was running.
    Nothing,
    /// The turn has ended, and the runtime goes on.
    Turn,
    /// The runtime did not end its turn in time, and was ended itself. The next send starts another one.
    Runtime(Exit),
}

/// Why a conversation could not be forked.
#[derive(Debug, Error)]
pub enum ForkError {
    /// There is nothing to fork yet.
    #[error("the conversation has no messages yet; send one before forking it")]
    Empty,
    /// The fork's runtime did not start.
    #[error("the fork's runtime could not be started")]
    Start(#[source] StartError),
}

/// Why a session could not be changed.
#[derive(Debug, Error)]
pub enum RestartError {
    /// The runtime did not start. The session goes on with the options that it had.
    #[error("the runtime could not be started")]
    Start(#[source] StartError),
    /// The session is over.
    #[error("the session was terminated")]
    Terminated,
}

impl ClaudeSession {
    /// Makes a session without starting a runtime; [`Self::warm_up`] or the first send does.
    ///
    /// Cancelling `cancel` ends the session at any time. Must be called within a tokio runtime.
    pub fn new(options: SessionOptions, cancel: CancellationToken) -> Self {
        let board = Arc::new(Board::new(&options));
        let (commands, orders) = mpsc::channel(COMMANDS_LIMIT);
        let permits = Arc::new(Semaphore::new(SENDS_LIMIT));
        let tasks = TaskTracker::new();
        let actor =
            Actor::new(options, Arc::clone(&board), orders, Arc::clone(&permits), tasks.clone(), cancel);
        tasks.spawn(actor.run());
        Self { inner: Arc::new(Inner { board, commands, permits, tasks }) }
    }

    /// Makes a session and starts its runtime, so that the first send finds it warm.
    pub async fn start(options: SessionOptions, cancel: CancellationToken) -> Result<Self, StartError> {
        let session = Self::new(options, cancel);
        match session.warm_up().await {
            Ok(()) => Ok(session),
            Err(RestartError::Start(error)) => Err(error),
            Err(RestartError::Terminated) => Err(StartError::Cancelled),
        }
    }

    /// Starts the runtime now if there is none.
    pub async fn warm_up(&self) -> Result<(), RestartError> {
        self.ask(|reply| Command::WarmUp { reply }).await.unwrap_or(Err(RestartError::Terminated))
    }

    /// Sends a message behind those that wait already, and gives its turn. Never waits itself. If the runtime
    /// is gone, another one continues the conversation.
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

    /// Ends the running turn: its send fails at once. By request first, and if the runtime does not heed that
    /// in time, by the stop ladder. Sends that wait run next. Returns when the runtime is free or gone.
    pub async fn interrupt(&self) -> Interrupted {
        self.ask(|reply| Command::Interrupt { reply }).await.unwrap_or(Interrupted::Nothing)
    }

    /// Ends the session: every send fails, and the runtime is stopped, politely first. Returns when nothing of
    /// it is left, at most 8 s later.
    pub async fn terminate(&self) {
        self.ask(|reply| Command::Terminate { reply }).await;
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
    }

    /// Restarts the runtime with changed options, once the sends before this call were answered, and
    /// continues the conversation.
    pub async fn restart(
        &self,
        change: impl FnOnce(&mut LaunchOptions) + Send + 'static,
    ) -> Result<(), RestartError> {
        let change = Box::new(change);
        self.ask(|reply| Command::Restart { change, reply }).await.unwrap_or(Err(RestartError::Terminated))
    }

    /// Starts a session that begins with everything in this one and goes its own way from there. Options can
    /// be changed for it; hooks and followers are not taken along.
    pub async fn fork(
        &self,
        change: impl FnOnce(&mut LaunchOptions),
        cancel: CancellationToken,
    ) -> Result<ClaudeSession, ForkError> {
        let mut options = self.inner.board.options();
        let from = self.inner.board.established().ok_or(ForkError::Empty)?;
        let before = options.launch.clone();
        options.launch.conversation = Conversation::Fork { from, id: Uuid::new_v4() };
        change(&mut options.launch);
        options.launch.renew_system_prompt_if_changed(&before);
        ClaudeSession::start(options, cancel).await.map_err(ForkError::Start)
    }

    /// Tells `follower` of every event from now on, in order. It must not block: the session waits for it.
    pub fn on_event(&self, follower: impl Fn(&SessionEvent) + Send + Sync + 'static) -> Subscription {
        self.inner.board.followers.join(Arc::new(follower))
    }

    /// Lets `hook` rewrite every prompt before it is sent, after the hooks that were there before it. Its
    /// error fails that send alone.
    pub fn before_send(
        &self,
        hook: impl Fn(UserContent) -> BoxFuture<'static, Result<UserContent, HookError>> + Send + Sync + 'static,
    ) -> Subscription {
        self.inner.board.hooks.join(Arc::new(hook))
    }

    /// What the session is doing, now and from now on.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.inner.board.status.subscribe()
    }

    /// The record of the session so far.
    pub fn artifact(&self) -> Artifact {
        self.inner.board.artifact()
    }

    /// The conversation's id.
    pub fn conversation(&self) -> Uuid {
        self.inner.board.conversation()
    }

    /// The control requests to the runtime, if one runs. They are those of this runtime, not of one that is
    /// started later.
    pub fn controls(&self) -> Option<Controls> {
        self.inner.board.live(|live| live.controls.clone())
    }

    /// The runtime's process id, if one runs on this machine.
    pub fn pid(&self) -> Option<u32> {
        self.inner.board.live(|live| live.pid).flatten()
    }

    /// What the runtime said about itself at its start, if one runs.
    pub fn initialized(&self) -> Option<Initialized> {
        self.inner.board.live(|live| live.initialized.clone())
    }

    /// Asks the session's task; nothing if it is over.
    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.inner.commands.send(command(reply)).await.ok()?;
        answer.await.ok()
    }
}
