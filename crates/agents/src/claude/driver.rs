//! The task that talks to one Claude runtime.
//!
//! It writes prompts, answers the runtime's questions, maps its messages and ends
//! it. One prompt is with the runtime at a time, and one request of the driver's is
//! under way at a time: a message waits until the turn before it is over and the
//! runtime has answered. Nothing in the loop waits for the runtime.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ahp_types::state::{ErrorInfo, Message as UserInput};
use innkeeper_claude::{
    Exit, IncomingRequest, Message, RequestError, Runtime, RuntimeEvent, RuntimeEvents, UserContent,
    UserMessage,
};
use innkeeper_core::agent::{AgentCommand, AgentEvent, History, OpenAgent, TurnOutcome, Unsent};
use innkeeper_core::ids::TurnId;
use innkeeper_core::model::ModelEndpoint;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::map::Mapper;
use super::outgoing::{Outgoing, SessionGone};
use super::prompt::content_blocks;
use super::turn::{TurnMachine, Verdict};

/// How long the runtime may take to end a turn that was interrupted. Then it is
/// ended itself, and the next message starts it again.
const INTERRUPT_DEADLINE: Duration = Duration::from_secs(5);

/// The model that is used when none is chosen.
const DEFAULT_MODEL: &str = "default";

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
    mapper: Mapper,
    /// The next message, which cannot be written yet.
    waiting: Option<Unsent>,
    /// A request to the runtime that is not answered yet.
    asked: Option<Asked>,
    /// When a cancelled turn must have ended.
    deadline: Option<Instant>,
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

/// A request of the driver's. Polling it first writes it, so that what is written
/// after it was started comes after it.
struct Asked {
    answer: Pin<Box<dyn Future<Output = Result<(), RequestError>> + Send>>,
    purpose: Purpose,
}

/// What a request of the driver's is for.
enum Purpose {
    /// To stop the running turn.
    Interrupt,
    /// To switch to this model for the message that waits.
    SelectModel(String),
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
        Self {
            runtime,
            messages,
            commands,
            outgoing: Outgoing::new(events),
            close,
            turns: TurnMachine::default(),
            mapper: Mapper::default(),
            waiting: None,
            asked: None,
            deadline: None,
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
        if let Some(turn) = self.turns.exited() {
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
            // The end first, then what was asked of the runtime, so that it is written
            // before anything that follows from its messages; then what the user
            // wants, then what the runtime says.
            biased;
            () = self.close.cancelled() => Err(End::Stop),
            (purpose, answer) = answer(&mut self.asked) => self.answered(purpose, answer),
            command = self.commands.recv() => match command {
                Some(command) => {
                    self.take(command);
                    self.advance()
                }
                None => Err(End::Stop),
            },
            () = sleep_until(self.deadline) => {
                tracing::warn!(conversation = %self.runtime.conversation(), "the runtime does not stop its turn; ending it");
                Err(End::Stop)
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
                } else if self.turns.cancel(&turn) {
                    self.deadline = Some(Instant::now() + INTERRUPT_DEADLINE);
                    self.ask(Purpose::Interrupt);
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
        if !self.turns.is_idle() || self.asked.is_some() {
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
            self.ask(Purpose::SelectModel(wanted));
            return Ok(());
        }
        self.write(unsent.turn, &unsent.message)
    }

    fn write(&mut self, turn: TurnId, message: &UserInput) -> Result<(), End> {
        let uuid = Uuid::new_v4();
        let content = UserContent::Blocks(content_blocks(message));
        self.mapper.begin_turn();
        self.models.mark_turn(self.runtime.conversation(), &message.text);
        self.turns.wrote(turn, uuid.to_string());
        if let Err(error) = self.runtime.send(&UserMessage::new(uuid, content)) {
            // The exit that follows fails the turn; a runtime that does not read is ended.
            tracing::warn!(%error, "the runtime did not take a message");
            return Err(End::Stop);
        }
        Ok(())
    }

    fn ask(&mut self, purpose: Purpose) {
        let (subtype, fields) = match &purpose {
            // A message that the runtime has not taken up yet is to be dropped, too.
            Purpose::Interrupt => ("interrupt", Map::from_iter([("cancel_queued".to_owned(), json!(true))])),
            // The runtime takes no model for its default one.
            Purpose::SelectModel(model) if model == DEFAULT_MODEL => ("set_model", Map::new()),
            Purpose::SelectModel(model) => {
                ("set_model", Map::from_iter([("model".to_owned(), json!(model))]))
            }
        };
        let runtime = self.runtime.clone();
        let answer = Box::pin(async move { runtime.request(subtype, fields).await.map(drop) });
        self.asked = Some(Asked { answer, purpose });
    }

    fn answered(&mut self, purpose: Purpose, answer: Result<(), RequestError>) -> Result<(), End> {
        match (purpose, answer) {
            (Purpose::Interrupt, answer) => {
                if let Err(error) = answer {
                    tracing::warn!(%error, "the runtime did not take an interrupt");
                }
                if self.turns.interrupt_answered() == Verdict::Drained {
                    self.deadline = None;
                }
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
        match self.turns.judge(message) {
            Verdict::Unowned => {}
            Verdict::Drained => self.deadline = None,
            Verdict::Belongs(turn) => {
                self.history = History::Resume;
                self.report(&turn, message)?;
            }
            Verdict::Ends(turn) => {
                self.report(&turn, message)?;
                let outcome = self.mapper.outcome(message);
                self.outgoing.push(AgentEvent::TurnEnded { turn, outcome })?;
            }
        }
        self.advance()
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

/// The answer to what was asked; waits forever while nothing is. Cancel-safe: the
/// request stays where it is until it is answered.
async fn answer(asked: &mut Option<Asked>) -> (Purpose, Result<(), RequestError>) {
    let answer = match asked {
        Some(asked) => asked.answer.as_mut().await,
        None => std::future::pending().await,
    };
    match asked.take() {
        Some(asked) => (asked.purpose, answer),
        // Nobody else takes it; still, waiting is the harmless thing to do.
        None => std::future::pending().await,
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
