//! The one task that owns a session.
//!
//! It takes inputs one by one, asks `decide` what follows, commits the actions and
//! runs the effects. Beside its next input it waits for one thing only, and not for
//! long: that the storage has a boundary or a decision before it is published. The
//! agent is opened by a task beside it, and commands to the agent are handed over
//! without waiting.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ahp_types::common::JsonObject;
use ahp_types::state::{ChatState, SessionState};
use tokio::sync::mpsc::error::SendError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::decide::{Cause, Decision, Effect, Input, Model, Phase, Target, View, decide};
use super::ledger::Ledger;
use crate::agent::{AgentCommand, AgentEvent, AgentLink, AgentProvider, History, OpenAgent, OpenError};
use crate::channel::ChannelUri;
use crate::clock::{Clock, wire_time};
use crate::ids::ClientId;
use crate::state::{Action, Origin, StateStore};
use crate::storage::{Storage, StorageError};

/// Inputs that may wait at a session. When it is full, the connection that sends
/// is not read on: its client waits, and no other.
const INPUT_CAPACITY: usize = 64;

/// How often a session without an agent is looked after.
const LOOK_AFTER: Duration = Duration::from_secs(30);

/// How long a session stays in memory when nothing happens in it and nobody watches.
const UNUSED_AFTER: Duration = Duration::from_secs(10 * 60);

/// How long a session that was never used stays when nobody is there for it. VS Code
/// creates sessions that it throws away, and a window that reloads comes back.
const ABANDONED_AFTER: Duration = Duration::from_secs(5 * 60);

/// How the rest of the host reaches a session.
#[derive(Clone, Debug)]
pub struct SessionHandle {
    inputs: mpsc::Sender<SessionInput>,
    chat: ChannelUri,
}

impl SessionHandle {
    /// The session's default chat.
    pub fn chat(&self) -> &ChannelUri {
        &self.chat
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
    /// back if the session is not there any more.
    pub(crate) async fn dispatch(&self, dispatch: ClientDispatch) -> Result<(), Box<ClientDispatch>> {
        match self.inputs.send(SessionInput::Client(Box::new(dispatch))).await {
            Ok(())
            | Err(SendError(SessionInput::Opened(_) | SessionInput::Left(_) | SessionInput::End { .. })) => {
                Ok(())
            }
            Err(SendError(SessionInput::Client(back))) => Err(back),
        }
    }

    /// Says that a client is not there for the session any more; waits while the
    /// session is behind.
    pub(crate) async fn left(&self, client: ClientId) {
        // If the session is gone, nobody is left in it.
        self.inputs.send(SessionInput::Left(client)).await.ok();
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

/// The end of a session, which takes as long as its agent needs to stop.
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

/// An action that a client dispatched on one of the session's channels.
#[derive(Debug)]
pub(crate) struct ClientDispatch {
    pub(crate) channel: ChannelUri,
    pub(crate) action: Action,
    pub(crate) origin: Origin,
}

/// What remains of a session when its actor stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Nothing: a client disposed it.
    Dispose,
    /// Everything but the agent: the host shuts down.
    Suspend,
    /// Everything, in the storage: it is not needed in memory.
    Unload,
}

/// Who waits for the end of a session.
pub(crate) type Waiting = oneshot::Sender<Result<(), StorageError>>;

#[derive(Debug)]
enum SessionInput {
    Client(Box<ClientDispatch>),
    Opened(Result<AgentLink, OpenError>),
    Left(ClientId),
    End { ending: Ending, done: Waiting },
}

/// What a new session starts from.
pub(crate) struct SessionSeed {
    /// The session's channel.
    pub uri: ChannelUri,
    /// Its default chat's channel.
    pub chat: ChannelUri,
    /// When it was created.
    pub created_at: String,
    /// The agent that works in it.
    pub provider: Arc<dyn AgentProvider>,
    /// The directory it works in.
    pub working_directory: Option<PathBuf>,
    /// The configuration it was created with.
    pub config: JsonObject,
    /// The client that created it, which may still want it.
    pub creator: Option<ClientId>,
    /// The agent's name for the conversation.
    pub conversation: Uuid,
    /// Whether the agent has worked on it.
    pub history: History,
    /// Whether the session is in the list.
    pub listed: bool,
    /// The number of its next journal entry.
    pub next_entry: u64,
    /// Whether its documents have to be written.
    pub stale: bool,
}

impl std::fmt::Debug for SessionSeed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("SessionSeed").field("uri", &self.uri).finish_non_exhaustive()
    }
}

/// The task's state.
pub(crate) struct SessionActor {
    pub(super) seed: SessionSeed,
    pub(super) store: Arc<StateStore>,
    pub(super) model: Model,
    pub(super) ledger: Ledger,
    pub(super) clock: Arc<dyn Clock>,
    /// Where tasks beside the actor are counted, so that shutdown waits for them.
    tasks: TaskTracker,
    inputs: mpsc::Receiver<SessionInput>,
    /// For the task that opens the agent. Weak: the actor must not keep itself alive.
    own_inputs: mpsc::WeakSender<SessionInput>,
    /// The agent, while there is one.
    link: Option<AgentLink>,
    /// Ends the opening of an agent.
    opening: CancellationToken,
    /// Zero of this session's clock.
    pub(super) began: Instant,
    /// Since when nobody is there for the session.
    abandoned_since: Option<Instant>,
    /// Who waits for the end, and what it shall leave.
    waiting: Vec<Waiting>,
    ending: Option<Ending>,
    finished: bool,
}

impl SessionActor {
    /// An actor for a session whose channels exist in the store, and its handle.
    pub(crate) fn new(
        seed: SessionSeed,
        store: Arc<StateStore>,
        storage: Arc<dyn Storage>,
        clock: Arc<dyn Clock>,
        tasks: TaskTracker,
    ) -> (Self, SessionHandle) {
        let (sender, inputs) = mpsc::channel(INPUT_CAPACITY);
        let handle = SessionHandle { inputs: sender.clone(), chat: seed.chat.clone() };
        let mut actor = Self {
            model: Model {
                phase: Phase::Cold(seed.history),
                turn_began: Default::default(),
                listed: seed.listed,
                openings: 0,
                rewinds: seed.provider.can_rewind(),
                rewind: None,
            },
            ledger: Ledger::new(storage, seed.uri.clone(), seed.next_entry),
            seed,
            store,
            clock,
            tasks,
            inputs,
            own_inputs: sender.downgrade(),
            link: None,
            opening: CancellationToken::new(),
            began: Instant::now(),
            abandoned_since: None,
            waiting: Vec::new(),
            ending: None,
            finished: false,
        };
        if actor.seed.stale {
            actor.ledger.wants_checkpoint();
        }
        (actor, handle)
    }

    /// Runs until the session has ended. Answers what it shall leave behind.
    pub(crate) async fn run(mut self) -> Ended {
        while !self.finished {
            tokio::select! {
                // Clients first: a cancel must not wait behind a flood of output.
                biased;
                input = self.inputs.recv() => match input {
                    Some(input) => self.handle(input).await,
                    // No handle is left, so nobody can ask for the end any more.
                    None => self.end(Ending::Suspend, None).await,
                },
                due = self.ledger.next() => self.handle_ledger(due),
                event = next_event(&mut self.link) => self.handle_agent(event).await,
                () = tokio::time::sleep(LOOK_AFTER), if self.is_cold() => self.look_after().await,
            }
        }
        let ending = self.ending.unwrap_or(Ending::Suspend);
        let stored = match ending {
            Ending::Dispose | Ending::Unload => Ok(()),
            Ending::Suspend => self.store_all().await,
        };
        Ended { ending, waiting: self.waiting, stored }
    }

    fn is_cold(&self) -> bool {
        matches!(self.model.phase, Phase::Cold(_))
    }

    /// Ends a session that was never used and that nobody wants any more, and takes
    /// one out of memory that is not needed there.
    async fn look_after(&mut self) {
        let channels = [self.seed.uri.clone(), self.seed.chat.clone()];
        let creator = self.seed.creator.as_ref().filter(|_| !self.model.listed);
        if self.store.has_audience(&channels, creator) {
            self.abandoned_since = None;
            return;
        }
        let since = *self.abandoned_since.get_or_insert_with(Instant::now);
        if !self.model.listed && since.elapsed() >= ABANDONED_AFTER {
            tracing::info!(session = %self.seed.uri, "a session that was never used goes away");
            self.end(Ending::Dispose, None).await;
        } else if self.model.listed && since.elapsed() >= UNUSED_AFTER {
            match self.store_all().await {
                Ok(()) => self.leave_memory(&channels),
                Err(error) => {
                    tracing::error!(session = %self.seed.uri, %error, "the session stays in memory")
                }
            }
        }
    }

    /// Takes the session out of memory, unless somebody wants it after all.
    fn leave_memory(&mut self, channels: &[ChannelUri]) {
        if !self.inputs.is_empty() || !self.store.remove_unheard(channels) {
            return;
        }
        self.inputs.close();
        // Who came in this very moment is told to come again.
        while let Ok(input) = self.inputs.try_recv() {
            match input {
                SessionInput::Client(dispatch) => {
                    self.reject(&dispatch, "the session was put away; try again")
                }
                SessionInput::End { done, .. } => {
                    done.send(Err(StorageError::Busy)).ok();
                }
                SessionInput::Opened(_) | SessionInput::Left(_) => {}
            }
        }
        self.ending = Some(Ending::Unload);
        self.finished = true;
    }

    async fn handle(&mut self, input: SessionInput) {
        // Something happens, so the session is needed.
        self.abandoned_since = None;
        match input {
            SessionInput::Client(dispatch) => self.handle_client(&dispatch).await,
            SessionInput::Opened(Ok(link)) => {
                if matches!(self.model.phase, Phase::Closing) {
                    link.close.cancel();
                }
                self.link = Some(link);
                let decision = self.decide(Input::Opened);
                self.carry_out(decision, Cause::Agent).await;
            }
            SessionInput::Opened(Err(error)) => {
                tracing::warn!(session = %self.seed.uri, %error, "the agent could not be opened");
                let decision = self.decide(Input::OpenFailed(&error));
                self.carry_out(decision, Cause::Agent).await;
            }
            SessionInput::Left(client) => {
                let decision = self.decide(Input::Left(&client));
                self.carry_out(decision, Cause::Agent).await;
            }
            SessionInput::End { ending, done } => self.end(ending, Some(done)).await,
        }
    }

    async fn handle_client(&mut self, dispatch: &ClientDispatch) {
        let target = if dispatch.channel == self.seed.chat { Target::Chat } else { Target::Session };
        let action = dispatch.action.typed();
        let mut decision = self.decide(Input::Client { target, action, client: &dispatch.origin.client });
        if let Some(reason) = decision.rejection.take() {
            self.reject(dispatch, &reason);
            return;
        }
        if let Err(reason) = self.publish_for(dispatch).await {
            self.reject(dispatch, &reason);
            return;
        }
        self.carry_out(decision, Cause::Client).await;
        self.project();
        self.settle(Cause::Client).await;
    }

    fn reject(&self, dispatch: &ClientDispatch, reason: &str) {
        tracing::debug!(session = %self.seed.uri, reason, "rejected a client's action");
        if let Err(error) = self.store.reject(&dispatch.channel, &dispatch.action, &dispatch.origin, reason) {
            tracing::error!(session = %self.seed.uri, %error, "a rejection could not be sent");
        }
    }

    async fn handle_agent(&mut self, event: Option<AgentEvent>) {
        let event = event.unwrap_or(AgentEvent::Closed { history: History::Resume, unsent: None });
        if matches!(event, AgentEvent::Closed { .. }) {
            self.link = None;
        }
        let decision = self.decide(Input::Agent(event));
        self.carry_out(decision, Cause::Agent).await;
    }

    async fn end(&mut self, ending: Ending, done: Option<Waiting>) {
        self.waiting.extend(done);
        // A dispose that comes while the host shuts down still deletes.
        if self.ending != Some(Ending::Dispose) {
            self.ending = Some(ending);
        }
        let decision = self.decide(Input::End(ending));
        self.carry_out(decision, Cause::Agent).await;
    }

    pub(super) fn decide(&self, input: Input<'_>) -> Decision {
        let (now, time) = (self.began.elapsed(), wire_time(self.clock.now()));
        self.store
            .read_both((&self.seed.uri, &self.seed.chat), |session, chat| {
                let (session, doc) = (session.session()?, chat.chat_doc()?);
                let (chat, turns) = (doc.open(), doc.turns());
                Some(decide(&self.model, View { session, chat, turns, now, time: &time }, input))
            })
            .flatten()
            .unwrap_or_default()
    }

    pub(super) fn run_effect(&mut self, effect: Effect) {
        match effect {
            Effect::OpenAgent(history) => self.open_agent(history),
            Effect::Agent(command) => self.command(command),
            // A live agent is asked to close, which gives it time to end politely; one
            // that is still being opened is not waited for.
            Effect::CloseAgent => match &self.link {
                Some(link) => link.close.cancel(),
                None => self.opening.cancel(),
            },
            Effect::List => {
                self.model.listed = true;
                self.project();
                self.ledger.wants_checkpoint();
            }
            Effect::Finish => self.finished = true,
        }
    }

    fn open_agent(&mut self, history: History) {
        self.opening = CancellationToken::new();
        self.model.openings += 1;
        let request = OpenAgent {
            conversation: self.seed.conversation,
            history,
            working_directory: self.seed.working_directory.clone(),
            config: self.config(),
        };
        let opened = self.seed.provider.open(request, self.opening.clone());
        let mut report = OpeningReport { inputs: Some(self.own_inputs.clone()) };
        self.tasks.spawn(async move {
            let result = opened.await;
            if let Some(inputs) = report.inputs.take().and_then(|inputs| inputs.upgrade()) {
                // If the actor is gone, dropping the link ends the agent.
                inputs.send(SessionInput::Opened(result)).await.ok();
            }
        });
    }

    fn config(&self) -> JsonObject {
        self.store
            .read(&self.seed.uri, |state| {
                state.session()?.config.as_ref().map(|config| config.values.clone())
            })
            .flatten()
            .unwrap_or_else(|| self.seed.config.clone())
    }

    fn command(&self, command: AgentCommand) {
        let Some(link) = &self.link else { return };
        if let Err(error) = link.commands.try_send(command) {
            tracing::error!(session = %self.seed.uri, %error, "the agent does not take commands; closing it");
            link.close.cancel();
        }
    }

    pub(super) fn with_state<R>(&self, look: impl FnOnce(&SessionState, &ChatState) -> R) -> Option<R> {
        self.store
            .read_both((&self.seed.uri, &self.seed.chat), |session, chat| {
                Some(look(session.session()?, chat.chat()?))
            })
            .flatten()
    }
}

/// Tells the actor that an opening failed if the task that opens panics: otherwise
/// the session would wait for it for ever.
struct OpeningReport {
    inputs: Option<mpsc::WeakSender<SessionInput>>,
}

impl Drop for OpeningReport {
    fn drop(&mut self) {
        let Some(inputs) = self.inputs.take().and_then(|inputs| inputs.upgrade()) else { return };
        let error = OpenError::Failed {
            error_type: "internal_error".to_owned(),
            message: "The agent could not be started because of a fault in the host; its log says more."
                .to_owned(),
        };
        if inputs.try_send(SessionInput::Opened(Err(error))).is_err() {
            tracing::error!("a session cannot be told that its agent does not start");
        }
    }
}

/// What an actor leaves when it has stopped.
pub(crate) struct Ended {
    pub(crate) ending: Ending,
    pub(crate) waiting: Vec<Waiting>,
    /// Whether everything that shall stay is stored.
    pub(crate) stored: Result<(), StorageError>,
}

/// The agent's next event; waits forever while there is no agent.
async fn next_event(link: &mut Option<AgentLink>) -> Option<AgentEvent> {
    match link {
        Some(link) => link.events.recv().await,
        None => std::future::pending().await,
    }
}
