//! The task that talks to one Claude runtime.
//!
//! It writes prompts, answers the runtime's questions, and ends the runtime. One prompt
//! is with the runtime at a time: a message waits until the turn before it is over, every
//! interrupt is answered and the model is selected. Nothing in the loop waits for the
//! runtime. What the session is told is in `report`.

mod identity;
mod report;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ahp_types::state::{ErrorInfo, Message as UserInput};
use innkeeper_claude::turns::{Generation, PromptKind, TurnMachine};
use innkeeper_claude::{
    Exit, IncomingRequest, RequestError, Runtime, RuntimeEvent, RuntimeEvents, UserContent, UserMessage,
};
use innkeeper_core::agent::{AgentCommand, AgentEvent, History, MessageLink, OpenAgent, TurnOutcome, Unsent};
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
use super::requests::{Purpose, Requests};
use super::selection::Choice;

pub(super) use identity::Identity;
use report::Current;

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
    /// The turn that the session asked for.
    asked: Option<Current>,
    /// The turn that the runtime started by itself.
    unasked: Option<Current>,
    /// What the runtime said last about a background task, which may start a turn.
    notice: Option<String>,
    mapper: Mapper,
    /// The next message, which cannot be written yet.
    waiting: Option<Unsent>,
    requests: Requests,
    /// The interrupts of a cancelled turn that is not over.
    drain: Option<Drain>,
    /// When silence of the runtime ends the turn.
    quiet_at: Option<Instant>,
    /// Model, effort and agent that the runtime was told to use.
    choice: Choice,
    /// The host's id of the conversation, by which model requests are known.
    conversation: Uuid,
    /// The runtime's own name of the conversation.
    identity: Identity,
    /// What another process could continue.
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
        (request, identity): (OpenAgent, Identity),
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
            asked: None,
            unasked: None,
            notice: None,
            mapper: Mapper::default(),
            waiting: None,
            requests: Requests::default(),
            drain: None,
            quiet_at: None,
            choice: Choice::of(&request.selection),
            conversation: request.conversation,
            identity,
            history: request.history,
            directories: request.working_directories,
            moves: false,
            models,
        }
    }

    /// Drives the runtime until it or its session is gone; leaves no process behind.
    pub(super) async fn run(mut self) {
        // If the session is gone, the first step ends the runtime.
        self.outgoing.push(AgentEvent::ResumeToken(self.identity.token())).ok();
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
        for current in [self.unasked.take(), self.asked.take()].into_iter().flatten() {
            let outcome = TurnOutcome::Interrupted(Mapper::exit_error(&exit));
            // If the session is gone, nobody waits for the turn either.
            self.end_turn(current, outcome).ok();
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

    /// Takes a command of the session; what follows from it is done by `advance`.
    fn take(&mut self, command: AgentCommand) {
        match command {
            AgentCommand::Prompt { turn, message } => self.waiting = Some(Unsent { turn, message }),
            AgentCommand::Cancel { turn } => self.cancel(&turn),
            AgentCommand::Directories(wanted) => self.moves = wanted != self.directories,
            // Each needs a feature that the provider does not offer, so none is sent.
            AgentCommand::Steer { .. }
            | AgentCommand::Unsteer { .. }
            | AgentCommand::ToolAnswer { .. }
            | AgentCommand::InputAnswer(_)
            | AgentCommand::Rewind { .. }
            | AgentCommand::Token(_)
            | AgentCommand::Config(_)
            | AgentCommand::ClientTools(_)
            | AgentCommand::Toggle(_)
            | AgentCommand::McpServer { .. } => {
                tracing::error!(?command, "received a command without the feature for it");
            }
        }
    }

    fn cancel(&mut self, turn: &TurnId) {
        if self.waiting.take_if(|waiting| waiting.turn == *turn).is_some() {
            return;
        }
        if let Some(current) = self.asked.take_if(|current| current.turn == *turn) {
            let key = current.key;
            self.link_answer(current);
            if self.turns.abandon(key).is_some() {
                self.interrupt();
                let next = Instant::now() + INTERRUPT_PAUSE;
                self.drain = Some(Drain { next, left: INTERRUPT_LIMIT - 1 });
            }
        } else if let Some(current) = self.unasked.take_if(|current| current.turn == *turn) {
            self.link_answer(current);
            self.interrupt();
        }
    }

    /// Writes the message that waits, if it can be written now. Between two turns is the
    /// time for a runtime to end that has to be started differently.
    fn advance(&mut self) -> Result<(), End> {
        if !self.turns.is_free() || self.requests.is_selecting() {
            return Ok(());
        }
        if self.moves {
            // The session starts another one, with the message that waits if there is one.
            return Err(End::Stop);
        }
        let Some(Unsent { message, .. }) = &self.waiting else { return Ok(()) };
        let wanted = self.choice.next(message.model.as_ref(), message.agent.as_ref());
        if wanted.agent != self.choice.agent {
            // The agent is given at the start.
            return Err(End::Stop);
        }
        if wanted != self.choice {
            self.requests.select(&self.runtime.controls(), &self.choice, wanted);
            return Ok(());
        }
        match self.waiting.take() {
            Some(Unsent { turn, message }) => self.write(turn, &message),
            None => Ok(()),
        }
    }

    fn write(&mut self, turn: TurnId, message: &UserInput) -> Result<(), End> {
        let uuid = Uuid::new_v4();
        let mut blocks = content_blocks(message);
        if let History::Rebuild(record) = &self.history {
            blocks.insert(0, json!({"type": "text", "text": &**record}));
        }
        // The user's own words decide, whatever is attached to them.
        let kind = if message.text.starts_with('/') { PromptKind::Command } else { PromptKind::Text };
        self.models.mark_turn(self.conversation, &message.text);
        self.asked = Some(Current::new(self.turns.open(uuid, kind), turn.clone()));
        let link = MessageLink::Prompt(uuid.to_string());
        self.outgoing.push(AgentEvent::MessageLinked { turn, link })?;
        let content = UserContent::Blocks(blocks);
        if let Err(error) = self.runtime.send(&UserMessage::new(uuid, content)) {
            // The exit that follows fails the turn; a runtime that does not read is ended.
            tracing::warn!(%error, "cannot write a message to the runtime");
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
            (Purpose::Select(choice), Ok(())) => self.choice = choice,
            (Purpose::Select(choice), Err(error)) => {
                // The message that wanted it may have been cancelled meanwhile.
                let wanting = self.waiting.take_if(|waiting| {
                    waiting.message.model.as_ref().is_some_and(|wanted| wanted.id == choice.model)
                });
                if let Some(Unsent { turn, .. }) = wanting {
                    let outcome = TurnOutcome::Failed(model_error(&choice.model, &error));
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

    /// Answers a request of the runtime. No request can be put to a user yet.
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
            tracing::debug!(%error, "cannot answer the runtime");
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

#[cfg(test)]
#[path = "driver_tests.rs"]
mod tests;
