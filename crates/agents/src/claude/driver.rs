//! The task that drives one Claude runtime.
//!
//! Writes prompts, responds to the runtime's requests and stops the runtime. The runtime
//! has at most one prompt at a time: a message is written only after the previous turn has
//! ended, every interrupt has been acknowledged and the model is selected. The loop never
//! blocks on the runtime. Reporting to the session is in `report`, requests of the runtime to
//! the user in `user_requests`, reporting to the recorder of edits in `edits`, the permission
//! mode in `permission_mode`, messages for the running turn in `steering`, changes that need another runtime
//! in `changes`, and the model of a message in `model_choice`.

mod answers;
mod changes;
mod edit_reach;
mod edits;
mod identity;
mod model_choice;
mod permission_mode;
mod progress;
mod report;
mod steering;
mod stop_work;
mod tasks;
mod user_requests;
mod withheld;
mod work;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ahp_types::state::Message as UserInput;
use innkeeper_claude::turns::{Generation, PromptKind, QUIET, TurnKey, TurnMachine};
use innkeeper_claude::{
    Exit, Message, PermissionMode, Queued, RequestError, Runtime, RuntimeEvent, RuntimeEvents, SendError,
    StopOptions, UserContent, UserMessage,
};
use innkeeper_core::agent::{
    AgentCommand, AgentEvent, History, MessageLink, OpenAgent, TurnMessage, TurnOutcome,
};
use innkeeper_core::channel::ChannelUri;
use innkeeper_core::edits::EditRecorder;
use innkeeper_core::ids::TurnId;
use innkeeper_core::usage::UsageReport;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::config;
use super::event_queue::{EventQueue, SessionGone};
use super::failures;
use super::images;
use super::map::{CallEdits, Mapper};
use super::models::AgentModels;
use super::prompt::content_blocks;
use super::requests::{RequestPurpose, Requests};
use super::selection::Choice;
use super::tool_access::AccessResolver;
use super::trust::TrustedProject;

pub(super) use identity::ConversationIdentity;
pub(super) use permission_mode::AutoMode;
pub(super) use user_requests::BEFORE_TOOL_USE;

use changes::LaunchSettings;
use edits::EditTracking;
use progress::TurnProgress;
use report::Current;
use steering::SteeringMessages;
use stop_work::StopRequests;
use user_requests::{PreparedRequest, WaitingRequest};
use withheld::AnswerEnd;
use work::WorkNotices;

/// Pause between two interrupts of a cancelled turn. A runtime that has not yet started on
/// the message may acknowledge an interrupt and still begin the turn.
const INTERRUPT_PAUSE: Duration = Duration::from_millis(250);

/// Maximum number of interrupts for a cancelled turn, which takes 5 s. After that the
/// runtime is stopped, and the next message starts another one. Counted rather than timed,
/// so that a suspended machine does not use up the runtime's time to respond.
const INTERRUPT_LIMIT: u32 = 20;

/// State of the driver task.
pub(super) struct ClaudeDriver {
    runtime: Runtime,
    messages: RuntimeEvents,
    commands: mpsc::Receiver<AgentCommand>,
    events: EventQueue,
    close: CancellationToken,
    turns: TurnMachine,
    /// Generation of the runtime. A driver has exactly one.
    generation: Generation,
    /// The turn that the session requested.
    requested: Option<Current>,
    /// The turn that the runtime started without a prompt.
    background: Option<Current>,
    /// Ended work in the background, which may start turns.
    notices: WorkNotices,
    /// Requests of the session to stop something.
    stops: StopRequests,
    /// How long the runtime has been silent.
    progress: TurnProgress,
    /// Whether the model's answer is complete.
    answer_end: AnswerEnd,
    /// The chat of the agent.
    chat: ChannelUri,
    mapper: Mapper,
    /// The next message, while it cannot be written yet.
    waiting: Option<TurnMessage>,
    steering: SteeringMessages,
    requests: Requests,
    /// Requests of the runtime that wait for the session.
    waiting_requests: Vec<WaitingRequest>,
    /// Requests of the runtime for which the file system is being read.
    preparing: JoinSet<PreparedRequest>,
    /// A turn that shows questions of a background task.
    question_turn: Option<TurnId>,
    /// The plan file that the runtime wrote last.
    plan_file: Option<PathBuf>,
    /// Resolves what tool calls access.
    access: AccessResolver,
    /// Reports calls that may change files.
    edits: EditTracking,
    /// A message with results of calls whose edits are being recorded.
    held: Option<Box<Message>>,
    /// The permission mode of the session.
    mode: PermissionMode,
    /// The permission mode that the runtime last reported or accepted.
    runtime_mode: PermissionMode,
    /// What is known about the mode `auto`.
    auto_mode: Arc<AutoMode>,
    /// Whether a turn has ended since the runtime started.
    turn_ended: bool,
    /// Interrupts of a cancelled turn that has not ended.
    interrupt_retry: Option<InterruptRetry>,
    /// When the turn ends because the runtime sends no more messages.
    quiet_at: Option<Instant>,
    /// Model, effort and agent in use by the runtime.
    choice: Choice,
    /// Whether the runtime has answered the last change of model and effort.
    is_choice_known: bool,
    /// The host's id of the conversation, which identifies model requests.
    conversation: Uuid,
    /// The runtime's id of the conversation.
    identity: ConversationIdentity,
    /// What another process can resume from.
    history: History,
    /// The options that the runtime was started with, and their changes.
    launch: LaunchSettings,
    /// The project's settings, if the runtime uses them.
    project: Option<TrustedProject>,
    /// The models, and the endpoint of the runtime's model requests, which is notified of each turn.
    models: AgentModels,
    /// Whether the runtime has told which model it uses by default.
    knows_default: bool,
}

/// Progress of interrupting a cancelled turn.
struct InterruptRetry {
    /// When the next interrupt is due.
    next: Instant,
    /// Remaining interrupts.
    left: u32,
}

/// Why the loop ended.
enum End {
    /// The runtime exited.
    Exited(Exit),
    /// The session closed the runtime, or the runtime does not respond to interrupts.
    Stop,
    /// The project's settings changed since the user trusted them.
    SettingsChanged,
    /// The runtime must be started again with other options; the text says with which.
    Restart(String),
    /// The runtime does not respond to requests.
    Hung,
}

impl From<SessionGone> for End {
    fn from(_: SessionGone) -> Self {
        Self::Stop
    }
}

impl ClaudeDriver {
    pub(super) fn new(
        (runtime, messages): (Runtime, RuntimeEvents),
        (commands, events): (mpsc::Receiver<AgentCommand>, mpsc::Sender<AgentEvent>),
        close: CancellationToken,
        (request, identity): (OpenAgent, ConversationIdentity),
        (models, choice): (AgentModels, Choice),
        project: Option<TrustedProject>,
        (access, recorder, auto_mode): (AccessResolver, Arc<dyn EditRecorder>, Arc<AutoMode>),
    ) -> Self {
        let mode = config::permission_mode(&request.config).unwrap_or(PermissionMode::Default);
        let edits = EditTracking::new(recorder, access.cwd().to_owned());
        let launch = LaunchSettings::of(&request);
        let mut turns = TurnMachine::default();
        let generation = turns.started();
        Self {
            runtime,
            messages,
            commands,
            events: EventQueue::new(events),
            close,
            turns,
            generation,
            requested: None,
            background: None,
            notices: WorkNotices::default(),
            stops: StopRequests::default(),
            progress: TurnProgress::new(),
            answer_end: AnswerEnd::default(),
            chat: request.edits.chat().clone(),
            mapper: Mapper::default(),
            waiting: None,
            steering: SteeringMessages::default(),
            requests: Requests::default(),
            waiting_requests: Vec::new(),
            preparing: JoinSet::new(),
            question_turn: None,
            plan_file: None,
            access,
            edits,
            held: None,
            turn_ended: false,
            mode,
            runtime_mode: mode,
            auto_mode,
            interrupt_retry: None,
            quiet_at: None,
            choice,
            is_choice_known: true,
            conversation: request.conversation,
            identity,
            history: request.history,
            launch,
            project,
            models,
            knows_default: false,
        }
    }

    /// Drives the runtime until the runtime or the session ends. Leaves no process running.
    pub(super) async fn run(mut self) {
        // A closed session is detected by the first step, which stops the runtime.
        self.events.push(AgentEvent::ResumeToken(self.identity.token())).ok();
        let end = loop {
            if let Err(end) = self.step().await {
                break end;
            }
        };
        self.deny_all_requests();
        let restart = if let End::Restart(cause) = &end { Some(cause.clone()) } else { None };
        let is_hung = matches!(end, End::Hung);
        let exit = match end {
            End::Exited(exit) => exit,
            End::Stop | End::Restart(_) => self.runtime.stop().await,
            // The runtime has read the new settings, too, and would run their hooks at its end. One that
            // hangs does not react to anything else.
            End::SettingsChanged | End::Hung => {
                self.runtime.stop_with(StopOptions { kill: true, ..StopOptions::default() }).await
            }
        };
        tracing::info!(conversation = %self.runtime.conversation(), %exit, "Claude runtime exited");
        // A closed session does not need the event.
        self.events.push(AgentEvent::Exited).ok();
        drop(self.turns.exited());
        for current in [self.background.take(), self.requested.take()].into_iter().flatten() {
            let error = if is_hung { failures::hung_error() } else { failures::exit_error(&exit) };
            let outcome = TurnOutcome::Interrupted(error);
            // A closed session does not need the outcome.
            self.end_turn(current, outcome).ok();
        }
        self.edits.finish().await;
        // Of subagents that ended with the process. A closed session does not need the report.
        self.report_usage(None, UsageReport::default()).ok();
        // Commands may still be queued.
        self.commands.close();
        while let Ok(command) = self.commands.try_recv() {
            // The session knows which work has ended with the process.
            if !matches!(command, AgentCommand::StopWork { .. }) {
                // A closed session does not need the events.
                self.take(command).ok();
            }
        }
        let (history, unsent) = (self.history.clone(), self.waiting.map(Box::new));
        self.events.finish(AgentEvent::Closed { history, unsent, restart }).await;
    }

    async fn step(&mut self) -> Result<(), End> {
        let watch_at = self.watch_at();
        let held_until = self.waiting.as_ref().and_then(|_| self.notices.held_until());
        tokio::select! {
            // Shutdown first, then responses that messages may depend on, then commands
            // of the session, then timers, then messages of the runtime.
            biased;
            () = self.close.cancelled() => Err(End::Stop),
            (purpose, answer) = self.requests.next() => self.request_completed(purpose, answer),
            command = self.commands.recv() => match command {
                Some(command) => {
                    self.take(command)?;
                    self.advance()
                }
                None => Err(End::Stop),
            },
            () = sleep_until(self.interrupt_retry.as_ref().map(|retry| retry.next)) => self.retry_interrupt(),
            () = sleep_until(self.quiet_at), if !self.edits.is_recording() => {
                self.quiet_at = None;
                let verdicts = self.turns.quiet();
                self.verdicts(verdicts, None)
            }
            () = sleep_until(self.stops.next()) => self.retry_stops(),
            () = sleep_until(held_until) => self.advance(),
            Some(found) = self.stops.search.join_next() => {
                match found {
                    Ok(found) => self.commands_found(&found),
                    Err(error) => tracing::error!(%error, "cannot read the process table"),
                }
                Ok(())
            }
            () = sleep_until(self.answer_end.at), if !self.edits.is_recording() => self.result_withheld(),
            () = sleep_until(watch_at) => self.watch(),
            Some(prepared) = self.preparing.join_next() => match prepared {
                Ok(prepared) => self.request_prepared(prepared),
                Err(error) => {
                    tracing::error!(%error, "cannot resolve the paths of a tool call");
                    Ok(())
                }
            },
            flushed = self.events.flush_one(), if self.events.is_behind() => Ok(flushed?),
            edits = self.edits.recorded() => self.recorded(&edits),
            event = self.messages.next(), if self.events.has_room() && !self.edits.is_recording() => match event {
                Some(event) => self.event(event),
                None => Err(End::Stop),
            },
        }
    }

    /// Records a command of the session; `advance` acts on it.
    fn take(&mut self, command: AgentCommand) -> Result<(), End> {
        match command {
            AgentCommand::Prompt { turn, message } => self.waiting = Some(TurnMessage { turn, message }),
            AgentCommand::Cancel { turn } => self.cancel(&turn),
            AgentCommand::Directories(wanted) => self.launch.set_directories(wanted),
            AgentCommand::Config(values) => self.configure(&values),
            AgentCommand::PermissionVerdict { tool_call, stage, verdict } => {
                return self.policy_decided(&tool_call, stage, verdict);
            }
            AgentCommand::ToolAnswer { tool_call, answer, .. } => {
                return self.user_decided(&tool_call, answer);
            }
            AgentCommand::InputAnswer(answer) => return self.user_answered(&answer),
            AgentCommand::Release => return self.release(),
            AgentCommand::StopWork { request, target } => return self.stop_work(request, &target),
            AgentCommand::Steer { id, turn, message } => self.steer(id, turn, message),
            AgentCommand::Unsteer { id } => self.unsteer(&id),
            // The provider does not offer these features, so the session never sends them.
            AgentCommand::Rewind { .. }
            | AgentCommand::Token(_)
            | AgentCommand::ClientTools(_)
            | AgentCommand::Toggle(_)
            | AgentCommand::McpServer { .. } => {
                tracing::error!(?command, "received a command for an unsupported feature");
            }
        }
        Ok(())
    }

    fn cancel(&mut self, turn: &TurnId) {
        // Before the interrupt: neither a message nor a tool must run after it.
        self.withdraw_steering(turn);
        if self.waiting.take_if(|waiting| waiting.turn == *turn).is_some() {
            return;
        }
        self.deny_requests_of(turn);
        if let Some(current) = self.requested.take_if(|current| current.turn == *turn) {
            let key = current.key;
            self.edits.turn_stopped(key, current.turn.clone());
            self.link_answer(current);
            self.interrupt_abandoned(key);
        } else if let Some(current) = self.background.take_if(|current| current.turn == *turn) {
            let key = current.key;
            self.edits.turn_stopped(key, current.turn.clone());
            self.link_answer(current);
            if !self.interrupt_abandoned(key) {
                self.interrupt();
            }
        }
    }

    /// Abandons a turn, and interrupts the runtime until the turn is over. Returns false if the turn is
    /// not running, or the runtime has another one to do after it.
    fn interrupt_abandoned(&mut self, key: TurnKey) -> bool {
        let is_abandoned = self.turns.abandon(key).is_some();
        if is_abandoned {
            self.interrupt();
            let next = Instant::now() + INTERRUPT_PAUSE;
            self.interrupt_retry = Some(InterruptRetry { next, left: INTERRUPT_LIMIT - 1 });
        }
        is_abandoned
    }

    /// Writes the waiting messages if possible. Stops the runtime between two turns if it
    /// must be restarted with different options.
    fn advance(&mut self) -> Result<(), End> {
        self.write_steering()?;
        if !self.turns.is_free() || self.requests.is_configuring() || self.edits.is_recording() {
            return Ok(());
        }
        if self.background.is_some() && self.launch.restart_cause().is_some() {
            // A message waits for the end of this turn, and for the next runtime.
            return Ok(());
        }
        self.restart_if_changed()?;
        let Some(waiting) = &self.waiting else {
            self.probe_auto();
            return Ok(());
        };
        if self.notices.held_until().is_some() {
            return Ok(());
        }
        let wanted = match self.choice_for(waiting) {
            Ok(wanted) => wanted,
            Err(unknown) => return self.reject_model(&unknown),
        };
        let is_selected = self.is_choice_known && wanted == self.choice;
        let is_trusted = self.project.as_mut().is_none_or(TrustedProject::is_trusted);
        if self.background.is_some() && !(is_selected && is_trusted) {
            // Nothing changes in the middle of a turn.
            return Ok(());
        }
        if !is_trusted {
            // The next runtime starts only after the user has seen the change.
            return Err(End::SettingsChanged);
        }
        if wanted.agent != self.choice.agent {
            // The agent can only be set when the runtime starts.
            return Err(End::Restart("the chosen agent".to_owned()));
        }
        if !is_selected {
            let now = Some(&self.choice).filter(|_| self.is_choice_known);
            self.requests.select(&self.runtime.controls(), now, wanted);
            return Ok(());
        }
        match self.waiting.take() {
            Some(TurnMessage { turn, message }) => self.write(turn, &message),
            None => Ok(()),
        }
    }

    fn write(&mut self, turn: TurnId, message: &UserInput) -> Result<(), End> {
        if let Err(error) = images::check(message) {
            self.withdraw_steering(&turn);
            let outcome = TurnOutcome::Failed(error);
            return Ok(self.events.push(AgentEvent::TurnEnded { turn, outcome })?);
        }
        let uuid = Uuid::new_v4();
        let mut blocks = content_blocks(message);
        if let History::Rebuild(record) = &self.history {
            blocks.insert(0, json!({"type": "text", "text": &**record}));
        }
        // Decided by the user's text, regardless of attachments.
        let kind = if message.text.starts_with('/') { PromptKind::Command } else { PromptKind::Text };
        self.models.endpoint.mark_turn(self.conversation, &message.text);
        self.edits.begin_turn(&turn);
        self.progress.begin_turn();
        self.requested = Some(Current::new(self.turns.open(uuid, kind), turn.clone()));
        let link = MessageLink::Prompt(uuid.to_string());
        self.events.push(AgentEvent::MessageLinked { turn, link })?;
        let content = UserContent::Blocks(blocks);
        if let Err(error) = self.runtime.send(&UserMessage::new(uuid, content)) {
            tracing::warn!(%error, "cannot write message to the runtime");
            // This runtime has not read the message, so the next one gets it.
            let unread = self.requested.take();
            self.waiting = unread.map(|Current { turn, .. }| TurnMessage { turn, message: message.clone() });
            return Err(End::Stop);
        }
        Ok(())
    }

    fn interrupt(&mut self) {
        self.turns.interrupt_sent();
        self.requests.interrupt(&self.runtime.controls(), Queued::Cancel);
    }

    /// Repeats the interrupt of a cancelled turn. Stops the runtime after the last one.
    fn retry_interrupt(&mut self) -> Result<(), End> {
        let Some(retry) = &mut self.interrupt_retry else { return Ok(()) };
        if self.edits.is_recording() {
            // The end of the turn may already be in the runtime's output.
            retry.next = Instant::now() + INTERRUPT_PAUSE;
            return Ok(());
        }
        if retry.left == 0 {
            tracing::warn!(conversation = %self.runtime.conversation(), "runtime does not end its turn; stopping it");
            return Err(End::Stop);
        }
        retry.left -= 1;
        retry.next = Instant::now() + INTERRUPT_PAUSE;
        if self.turns.needs_interrupt() {
            self.interrupt();
        }
        Ok(())
    }

    fn request_completed(
        &mut self,
        purpose: RequestPurpose,
        answer: Result<(), RequestError>,
    ) -> Result<(), End> {
        if answer.as_ref().err().is_some_and(is_exit) {
            // The exit follows in the runtime's output. Another request would fail at once, and
            // so on; a waiting message and the session's settings are for the next runtime.
            self.auto_mode.forget_probe(&purpose);
            return Ok(());
        }
        match (purpose, answer) {
            (RequestPurpose::Interrupt, answer) => {
                if let Err(error) = answer {
                    tracing::warn!(%error, "interrupt failed");
                }
                let verdicts = self.turns.interrupt_answered(self.generation);
                self.verdicts(verdicts, None)?;
            }
            (RequestPurpose::Withdraw(message), answer) => self.steering_withdrawn(message, answer)?,
            (RequestPurpose::Mode(mode), answer) => self.mode_set(mode, answer)?,
            (RequestPurpose::ProbeAuto(returned), answer) => self.auto_probed(returned, answer),
            (RequestPurpose::StopTask(task), answer) => self.stop_answered(&task, answer)?,
            (RequestPurpose::Liveness, Err(RequestError::TimedOut { .. })) => return Err(End::Hung),
            (RequestPurpose::Liveness, _) => {}
            (RequestPurpose::Select(choice), answer) => self.model_selected(choice, answer)?,
        }
        self.advance()
    }

    /// Continues after the recorder has stored edits.
    fn recorded(&mut self, edits: &CallEdits) -> Result<(), End> {
        // The runtime's output was not read meanwhile.
        self.quiet_at = self.quiet_at.map(|_| Instant::now() + QUIET);
        if let Some(message) = self.held.take() {
            self.message(&message, edits)?;
        }
        self.advance()
    }

    fn event(&mut self, event: RuntimeEvent) -> Result<(), End> {
        match event {
            RuntimeEvent::Message(message) => {
                let turn = matches!(message, Message::System(_)).then(|| self.shown_turn());
                if self.edits.follow(&message, turn.flatten()) {
                    self.held = Some(Box::new(message));
                    return Ok(());
                }
                self.message(&message, &CallEdits::new())
            }
            RuntimeEvent::Request { id, request } => self.runtime_request(&id, request),
            RuntimeEvent::RequestCancelled { id } => self.request_withdrawn(&id),
            RuntimeEvent::Exited(exit) => Err(End::Exited(exit)),
        }
    }
}

/// Whether a request failed because the runtime has exited. Its input may close before the exit is
/// reported.
fn is_exit(error: &RequestError) -> bool {
    matches!(error, RequestError::Exited | RequestError::Send(SendError::Exited))
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

#[cfg(test)]
#[path = "driver_exit_tests.rs"]
mod exit_tests;

#[cfg(test)]
#[path = "driver_model_tests.rs"]
mod model_tests;

#[cfg(test)]
#[path = "driver_steering_tests.rs"]
mod steering_tests;

#[cfg(test)]
#[path = "driver_edit_tests.rs"]
mod edit_tests;

#[cfg(test)]
#[path = "driver_usage_tests.rs"]
mod usage_tests;

#[cfg(test)]
#[path = "driver_work_tests.rs"]
mod work_tests;
