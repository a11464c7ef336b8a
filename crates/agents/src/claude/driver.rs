//! The task that talks to one Claude runtime.
//!
//! It writes prompts, answers the runtime's questions, maps its messages and ends
//! it. One prompt is with the runtime at a time: a message waits until the turn
//! before it is over, every interrupt is answered and the model is selected. Nothing
//! in the loop waits for the runtime.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ahp_types::state::{ErrorInfo, Message as UserInput};
use innkeeper_claude::turns::{
    EndReason, Generation, PromptKind, QUIET, TurnEnd, TurnKey, TurnMachine, Verdict,
};
use innkeeper_claude::{
    Exit, IncomingRequest, Message, RequestError, Runtime, RuntimeEvent, RuntimeEvents, UserContent,
    UserMessage,
};
use innkeeper_core::agent::{AgentCommand, AgentEvent, History, OpenAgent, TurnOutcome, Unsent};
use innkeeper_core::ids::TurnId;
use innkeeper_core::model::ModelEndpoint;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::map::Mapper;
use super::outgoing::{Outgoing, SessionGone};
use super::prompt::content_blocks;
use super::requests::{DEFAULT_MODEL, Purpose, Requests};

/// The pause between two interrupts of an abandoned turn. A runtime that has not taken
/// the message up yet may answer an interrupt and begin the turn all the same.
const INTERRUPT_PAUSE: Duration = Duration::from_millis(250);

/// How many times an abandoned turn is interrupted, which takes 5 s. Then the runtime is
/// stopped, and the next message starts another one. Counted rather than timed, so that
/// a suspended machine does not cost the runtime its time to answer.
const INTERRUPT_LIMIT: u32 = 20;

/// What the model is told when it wants to use a tool that needs a permission.
const DENIED: &str = "This host cannot ask its user for permission yet, so the call was denied. \
    Go on without it, or tell the user what you wanted to do.";

/// The state of the task.
pub(super) struct Driver {
    runtime: Runtime,
    messages: RuntimeEvents,
    commands: mpsc::Receiver<AgentCommand>,
    outgoing: Outgoing,
    close: CancellationToken,
    turns: TurnMachine,
    /// The generation of the runtime, of which a driver has one.
    generation: Generation,
    /// The turn that the session waits for, by the key that the machine gave it.
    current: Option<(TurnKey, TurnId)>,
    mapper: Mapper,
    /// The next message, which cannot be written yet.
    waiting: Option<Unsent>,
    requests: Requests,
    /// The interrupts of a cancelled turn that is not over.
    drain: Option<Drain>,
    /// When silence of the runtime ends the turn.
    quiet_at: Option<Instant>,
    /// The model that the runtime was told to use.
    model: String,
    /// Whether another process could take the conversation up.
    history: History,
    /// The directories that the runtime was started with.
    directories: Vec<PathBuf>,
    /// Whether it shall work in others, for which it has to be started again.
    moves: bool,
    /// Where the runtime's requests go, which is told whose they are.
    models: Arc<dyn ModelEndpoint>,
}

/// How far the interruption of a cancelled turn has come.
struct Drain {
    /// When the next step is due.
    next: Instant,
    /// How many interrupts are left.
    left: u32,
}

/// Why the loop ended.
enum End {
    /// The runtime is gone.
    Exited(Exit),
    /// The session does not want it any more, or it does not obey.
    Stop,
}

impl From<SessionGone> for End {
    fn from(_: SessionGone) -> Self {
        Self::Stop
    }
}

impl Driver {
    pub(super) fn new(
        (runtime, messages): (Runtime, RuntimeEvents),
        (commands, events): (mpsc::Receiver<AgentCommand>, mpsc::Sender<AgentEvent>),
        close: CancellationToken,
        request: OpenAgent,
        models: Arc<dyn ModelEndpoint>,
    ) -> Self {
        let mut turns = TurnMachine::default();
        let generation = turns.started();
        Self {
            runtime,
            messages,
            commands,
            outgoing: Outgoing::new(events),
            close,
            turns,
            generation,
            current: None,
            mapper: Mapper::default(),
            waiting: None,
            requests: Requests::default(),
            drain: None,
            quiet_at: None,
            model: DEFAULT_MODEL.to_owned(),
            history: request.history,
            directories: request.working_directories,
            moves: false,
            models,
        }
    }

    /// Drives the runtime until it or its session is gone; leaves no process behind.
    pub(super) async fn run(mut self) {
        let end = loop {
            if let Err(end) = self.step().await {
                break end;
            }
        };
        let exit = match end {
            End::Exited(exit) => exit,
            End::Stop => self.runtime.stop().await,
        };
        tracing::info!(conversation = %self.runtime.conversation(), %exit, "the Claude runtime is gone");
        drop(self.turns.exited());
        if let Some((_, turn)) = self.current.take() {
            let outcome = TurnOutcome::Failed(Mapper::exit_error(&exit));
            // If the session is gone, nobody waits for the turn either.
            self.outgoing.push(AgentEvent::TurnEnded { turn, outcome }).ok();
        }
        // What the session sent last may not even have been looked at.
        self.commands.close();
        while let Ok(command) = self.commands.try_recv() {
            self.take(command);
        }
        let (history, unsent) = (self.history.clone(), self.waiting.map(Box::new));
        self.outgoing.finish(AgentEvent::Closed { history, unsent }).await;
    }

    async fn step(&mut self) -> Result<(), End> {
        tokio::select! {
            // The end first, then answers, for which messages may wait; then what the
            // user wants, then what is due, then what the runtime says.
            biased;
            () = self.close.cancelled() => Err(End::Stop),
            (purpose, answer) = self.requests.next() => self.answered(purpose, answer),
            command = self.commands.recv() => match command {
                Some(command) => {
                    self.take(command);
                    self.advance()
                }
                None => Err(End::Stop),
            },
            () = sleep_until(self.drain.as_ref().map(|drain| drain.next)) => self.drain_on(),
            () = sleep_until(self.quiet_at) => {
                self.quiet_at = None;
                let verdicts = self.turns.quiet();
                self.verdicts(verdicts, None)
            }
            flushed = self.outgoing.flush_one(), if self.outgoing.is_behind() => Ok(flushed?),
            event = self.messages.next(), if self.outgoing.has_room() => match event {
                Some(event) => self.event(event),
                None => Err(End::Stop),
            },
        }
    }

    /// Takes an order of the session's; what follows from it is for `advance`.
    fn take(&mut self, command: AgentCommand) {
        match command {
            AgentCommand::Prompt { turn, message } => self.waiting = Some(Unsent { turn, message }),
            AgentCommand::Cancel { turn } => {
                if self.waiting.as_ref().is_some_and(|waiting| waiting.turn == turn) {
                    self.waiting = None;
                } else if let Some((key, _)) = self.current.take_if(|(_, current)| *current == turn)
                    && self.turns.abandon(key).is_some()
                {
                    self.interrupt();
                    let next = Instant::now() + INTERRUPT_PAUSE;
                    self.drain = Some(Drain { next, left: INTERRUPT_LIMIT - 1 });
                }
            }
            AgentCommand::Directories(wanted) => self.moves = wanted != self.directories,
            // A steering message that is not taken becomes a turn of its own; nothing
            // asks the user anything yet, so there is nothing to answer. None of the
            // settings can be changed while a runtime runs, and it has no way yet to the
            // tools of clients.
            AgentCommand::Steer { .. }
            | AgentCommand::Unsteer { .. }
            | AgentCommand::ToolAnswer { .. }
            | AgentCommand::InputAnswer(_)
            | AgentCommand::Rewind { .. }
            | AgentCommand::Token(_)
            | AgentCommand::Config(_)
            | AgentCommand::ClientTools(_)
            | AgentCommand::Toggle(_)
            | AgentCommand::McpServer { .. } => {}
        }
    }

    /// Writes the message that waits, if it can be written now. Between two turns is the
    /// time for a runtime to end that has to be started differently.
    fn advance(&mut self) -> Result<(), End> {
        if !self.turns.is_free() || self.requests.is_selecting_model() {
            return Ok(());
        }
        if self.moves {
            // The session starts another one, with the message that waits if there is one.
            return Err(End::Stop);
        }
        let Some(unsent) = self.waiting.take() else { return Ok(()) };
        // Without a choice it stays with the model that it had.
        let wanted = unsent.message.model.as_ref().map_or(self.model.as_str(), |model| model.id.as_str());
        if wanted != self.model {
            let wanted = wanted.to_owned();
            self.waiting = Some(unsent);
            self.requests.select_model(&self.runtime.controls(), wanted);
            return Ok(());
        }
        self.write(unsent.turn, &unsent.message)
    }

    fn write(&mut self, turn: TurnId, message: &UserInput) -> Result<(), End> {
        let uuid = Uuid::new_v4();
        let content = UserContent::Blocks(content_blocks(message));
        self.mapper.begin_turn();
        self.models.mark_turn(self.runtime.conversation(), &message.text);
        self.current = Some((self.turns.open(uuid, PromptKind::of(&content)), turn));
        if let Err(error) = self.runtime.send(&UserMessage::new(uuid, content)) {
            // The exit that follows fails the turn; a runtime that does not read is ended.
            tracing::warn!(%error, "the runtime did not take a message");
            return Err(End::Stop);
        }
        Ok(())
    }

    /// Interrupts the runtime.
    fn interrupt(&mut self) {
        self.turns.interrupt_sent();
        self.requests.interrupt(&self.runtime.controls());
    }

    /// Repeats the interrupt of a cancelled turn, or stops the runtime if it was repeated
    /// often enough.
    fn drain_on(&mut self) -> Result<(), End> {
        let Some(drain) = &mut self.drain else { return Ok(()) };
        if drain.left == 0 {
            tracing::warn!(conversation = %self.runtime.conversation(), "runtime does not end its turn; stopping it");
            return Err(End::Stop);
        }
        drain.left -= 1;
        drain.next = Instant::now() + INTERRUPT_PAUSE;
        if self.turns.needs_interrupt() {
            self.interrupt();
        }
        Ok(())
    }

    fn answered(&mut self, purpose: Purpose, answer: Result<(), RequestError>) -> Result<(), End> {
        match (purpose, answer) {
            (Purpose::Interrupt, answer) => {
                if let Err(error) = answer {
                    tracing::warn!(%error, "interrupt failed");
                }
                let verdicts = self.turns.interrupt_answered(self.generation);
                self.verdicts(verdicts, None)?;
            }
            (Purpose::SelectModel(model), Ok(())) => self.model = model,
            (Purpose::SelectModel(model), Err(error)) => {
                // The message that wanted it may have been cancelled meanwhile.
                let wanting = self.waiting.take_if(|waiting| {
                    waiting.message.model.as_ref().is_some_and(|wanted| wanted.id == model)
                });
                if let Some(Unsent { turn, .. }) = wanting {
                    let outcome = TurnOutcome::Failed(model_error(&model, &error));
                    self.outgoing.push(AgentEvent::TurnEnded { turn, outcome })?;
                }
            }
        }
        self.advance()
    }

    fn event(&mut self, event: RuntimeEvent) -> Result<(), End> {
        match event {
            RuntimeEvent::Message(message) => self.message(&message),
            RuntimeEvent::Request { id, request } => {
                self.answer(&id, &request);
                Ok(())
            }
            RuntimeEvent::RequestCancelled { .. } => Ok(()),
            RuntimeEvent::Exited(exit) => Err(End::Exited(exit)),
        }
    }

    fn message(&mut self, message: &Message) -> Result<(), End> {
        let verdicts = self.turns.judge(self.generation, message);
        self.quiet_at = self.turns.awaits_quiet().then(|| Instant::now() + QUIET);
        if !verdicts.iter().any(|verdict| matches!(verdict, Verdict::Belongs(_))) {
            self.mapper.unowned(message);
        }
        self.verdicts(verdicts, Some(message))
    }

    fn verdicts(&mut self, verdicts: Vec<Verdict>, message: Option<&Message>) -> Result<(), End> {
        for verdict in verdicts {
            self.verdict(verdict, message)?;
        }
        self.advance()
    }

    /// Tells the session what follows from a verdict. The one place that does.
    fn verdict(&mut self, verdict: Verdict, message: Option<&Message>) -> Result<(), End> {
        match verdict {
            Verdict::Begins { turn, origin } => {
                // The session cannot be told of turns that it did not ask for.
                tracing::debug!(%turn, ?origin, "not showing a turn that the runtime started");
            }
            Verdict::TakenUp { .. } => self.history = History::Resume,
            Verdict::Belongs(key) => {
                if let (Some(turn), Some(message)) = (self.turn_of(key), message) {
                    self.history = History::Resume;
                    self.report(&turn, message)?;
                }
            }
            Verdict::Ends(TurnEnd { turn: key, reason, .. }) => {
                if let Some((_, turn)) = self.current.take_if(|(current, _)| *current == key) {
                    let outcome = self.outcome(&reason);
                    self.outgoing.push(AgentEvent::TurnEnded { turn, outcome })?;
                }
            }
            Verdict::Drained(_) => {
                self.drain = None;
                self.quiet_at = None;
            }
        }
        Ok(())
    }

    fn outcome(&self, reason: &EndReason) -> TurnOutcome {
        match reason {
            EndReason::Result(result) => self.mapper.outcome(result),
            EndReason::Dropped => TurnOutcome::Cancelled,
            EndReason::NoResult | EndReason::Merged | EndReason::Exited => TurnOutcome::Completed,
        }
    }

    /// The session's turn with this key.
    fn turn_of(&self, key: TurnKey) -> Option<TurnId> {
        self.current.as_ref().filter(|(current, _)| *current == key).map(|(_, turn)| turn.clone())
    }

    fn report(&mut self, turn: &TurnId, message: &Message) -> Result<(), End> {
        for action in self.mapper.map(turn, message) {
            self.outgoing.push(AgentEvent::Action(Box::new(action)))?;
        }
        Ok(())
    }

    /// Answers a question of the runtime's; none of them can be put to a user yet.
    fn answer(&self, id: &str, request: &IncomingRequest) {
        let answer: Result<Value, String> = match request {
            IncomingRequest::CanUseTool(ask) => {
                tracing::info!(tool = ask.tool_name.as_deref(), "denied a tool that needs a permission");
                Ok(json!({"behavior": "deny", "message": DENIED, "toolUseID": ask.tool_use_id}))
            }
            IncomingRequest::Elicitation(_) => Ok(json!({"action": "decline"})),
            IncomingRequest::HookCallback(_) => Ok(json!({})),
            IncomingRequest::McpMessage(_) => Err("this host runs no MCP servers".to_owned()),
            IncomingRequest::UserDialog(_) => Err("this host shows no dialogs".to_owned()),
            IncomingRequest::TokenRefresh(_) => Err("this host has no other token".to_owned()),
            // The library has answered it.
            IncomingRequest::Unknown(_) => return,
        };
        if let Err(error) = self.runtime.respond(id, answer) {
            tracing::debug!(%error, "the runtime does not want an answer any more");
        }
    }
}

fn model_error(model: &str, error: &RequestError) -> ErrorInfo {
    ErrorInfo {
        error_type: "model_not_available".to_owned(),
        message: format!("The model {model:?} cannot be used: {error}."),
        stack: None,
        meta: None,
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
