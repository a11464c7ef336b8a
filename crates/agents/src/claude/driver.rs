//! The task that talks to one Claude runtime.
//!
//! It writes prompts, answers the runtime's questions, maps its messages and ends
//! it. One prompt is with the runtime at a time: a message that comes while a
//! cancelled turn is not over yet is held back until it is.

use std::time::Duration;

use ahp_types::state::{ErrorInfo, Message as UserInput};
use innkeeper_claude::{
    ClaudeSession, Exit, IncomingRequest, Message, SessionEvent, SessionEvents, UserContent, UserMessage,
};
use innkeeper_core::agent::{AgentCommand, AgentEvent, History, TurnOutcome};
use innkeeper_core::ids::TurnId;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::map::Mapper;
use super::outgoing::{Outgoing, SessionGone};
use super::prompt::content_blocks;
use super::turn::{TurnMachine, Verdict};

/// How long the runtime may take to end a turn that was interrupted. Then it is
/// ended itself, and the next message starts it again.
const INTERRUPT_DEADLINE: Duration = Duration::from_secs(5);

/// What the model is told when it wants to use a tool that needs a permission.
const DENIED: &str = "This host cannot ask its user for permission yet, so the call was denied. \
    Go on without it, or tell the user what you wanted to do.";

/// The state of the task.
pub(super) struct Driver {
    session: ClaudeSession,
    messages: SessionEvents,
    commands: mpsc::Receiver<AgentCommand>,
    outgoing: Outgoing,
    close: CancellationToken,
    turns: TurnMachine,
    mapper: Mapper,
    /// A message that waits for the cancelled turn before it to end.
    held: Option<(TurnId, UserInput)>,
    /// When a cancelled turn must have ended.
    deadline: Option<Instant>,
    /// The model that the runtime was told to use.
    model: Option<String>,
    /// Whether another process could take the conversation up.
    history: History,
    /// Where tasks beside the loop are counted.
    tasks: TaskTracker,
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
        session: ClaudeSession,
        messages: SessionEvents,
        commands: mpsc::Receiver<AgentCommand>,
        events: mpsc::Sender<AgentEvent>,
        close: CancellationToken,
        history: History,
        tasks: TaskTracker,
    ) -> Self {
        Self {
            session,
            messages,
            commands,
            outgoing: Outgoing::new(events),
            close,
            turns: TurnMachine::default(),
            mapper: Mapper::default(),
            held: None,
            deadline: None,
            model: None,
            history,
            tasks,
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
            End::Stop => self.session.stop().await,
        };
        tracing::info!(conversation = %self.session.conversation(), %exit, "the Claude runtime is gone");
        if let Some(turn) = self.turns.exited() {
            let outcome = TurnOutcome::Failed(Mapper::exit_error(&exit));
            // If the session is gone, nobody waits for the turn either.
            self.outgoing.push(AgentEvent::TurnEnded { turn, outcome }).ok();
        }
        self.outgoing.finish(AgentEvent::Closed { history: self.history }).await;
    }

    async fn step(&mut self) -> Result<(), End> {
        tokio::select! {
            // The end first, then what the user wants, then what the runtime says.
            biased;
            () = self.close.cancelled() => Err(End::Stop),
            command = self.commands.recv() => match command {
                Some(command) => self.command(command).await,
                None => Err(End::Stop),
            },
            () = sleep_until(self.deadline) => {
                tracing::warn!(conversation = %self.session.conversation(), "the runtime does not stop its turn; ending it");
                Err(End::Stop)
            }
            flushed = self.outgoing.flush_one(), if self.outgoing.is_behind() => Ok(flushed?),
            event = self.messages.next(), if self.outgoing.has_room() => match event {
                Some(event) => self.event(event).await,
                None => Err(End::Stop),
            },
        }
    }

    async fn command(&mut self, command: AgentCommand) -> Result<(), End> {
        match command {
            AgentCommand::Prompt { turn, message } if self.turns.is_idle() => {
                self.prompt(turn, &message).await
            }
            AgentCommand::Prompt { turn, message } => {
                self.held = Some((turn, message));
                Ok(())
            }
            // A steering message that is not taken becomes a turn of its own; nothing
            // asks the user anything yet, so there is nothing to answer.
            AgentCommand::Steer { .. }
            | AgentCommand::Unsteer { .. }
            | AgentCommand::ToolAnswer { .. }
            | AgentCommand::InputAnswer(_) => Ok(()),
            AgentCommand::Cancel { turn } => {
                if self.held.as_ref().is_some_and(|(held, _)| *held == turn) {
                    self.held = None;
                } else if self.turns.cancel(&turn) {
                    self.deadline = Some(Instant::now() + INTERRUPT_DEADLINE);
                    self.interrupt();
                }
                Ok(())
            }
        }
    }

    /// Asks the runtime to stop its turn, beside the loop: it may take its time.
    fn interrupt(&self) {
        let session = self.session.clone();
        self.tasks.spawn(async move {
            if let Err(error) = session.interrupt().await {
                tracing::warn!(%error, "the runtime did not take an interrupt");
            }
        });
    }

    async fn prompt(&mut self, turn: TurnId, message: &UserInput) -> Result<(), End> {
        if let Err(error) = self.select_model(message).await {
            return Ok(self
                .outgoing
                .push(AgentEvent::TurnEnded { turn, outcome: TurnOutcome::Failed(error) })?);
        }
        let uuid = Uuid::new_v4();
        let content = UserContent::Blocks(content_blocks(message));
        self.mapper.begin_turn();
        self.turns.wrote(turn, uuid.to_string());
        if let Err(error) = self.session.send(UserMessage { uuid, content }) {
            // The exit that follows fails the turn; a runtime that does not read is ended.
            tracing::warn!(%error, "the runtime did not take a message");
            return Err(End::Stop);
        }
        Ok(())
    }

    /// Switches to the model that a message asks for.
    async fn select_model(&mut self, message: &UserInput) -> Result<(), ErrorInfo> {
        let Some(wanted) = message.model.as_ref().map(|model| model.id.as_str()) else { return Ok(()) };
        if wanted == self.model.as_deref().unwrap_or("default") {
            return Ok(());
        }
        let mut fields = Map::new();
        if wanted != "default" {
            fields.insert("model".to_owned(), json!(wanted));
        }
        match self.session.request("set_model", fields).await {
            Ok(_) => {
                self.model = (wanted != "default").then(|| wanted.to_owned());
                Ok(())
            }
            Err(error) => Err(ErrorInfo {
                error_type: "model_not_available".to_owned(),
                message: format!("The model {wanted:?} cannot be used: {error}."),
                stack: None,
                meta: None,
            }),
        }
    }

    async fn event(&mut self, event: SessionEvent) -> Result<(), End> {
        match event {
            SessionEvent::Message(message) => self.message(&message).await,
            SessionEvent::Request { id, request } => {
                self.answer(&id, &request);
                Ok(())
            }
            SessionEvent::RequestCancelled { .. } => Ok(()),
            SessionEvent::Exited(exit) => Err(End::Exited(exit)),
        }
    }

    async fn message(&mut self, message: &Message) -> Result<(), End> {
        let verdict = self.turns.judge(message);
        match verdict {
            Verdict::Unowned => Ok(()),
            Verdict::Drained => {
                self.deadline = None;
                match self.held.take() {
                    Some((turn, held)) => self.prompt(turn, &held).await,
                    None => Ok(()),
                }
            }
            Verdict::Belongs(turn) => {
                self.history = History::Resume;
                self.report(&turn, message)
            }
            Verdict::Ends(turn) => {
                self.report(&turn, message)?;
                let outcome = self.mapper.outcome(message);
                Ok(self.outgoing.push(AgentEvent::TurnEnded { turn, outcome })?)
            }
        }
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
            // The library has answered it.
            IncomingRequest::Unknown(_) => return,
        };
        if let Err(error) = self.session.respond(id, answer) {
            tracing::debug!(%error, "the runtime does not want an answer any more");
        }
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
