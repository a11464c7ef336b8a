//! The task that runs a session.
//!
//! Owns the queue of sends, the running runtime and the turn machine. Long operations are futures that
//! the loop polls concurrently, so an interrupt never waits for the operation it interrupts. Invariant:
//! an accepted send is settled exactly once, whatever happens to the runtime.

mod commands;
mod drain;
mod events;
mod lifecycle;
mod steering;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::hooks::HookError;
use super::options::SessionOptions;
use super::shared::SharedSession;
use super::status::{StatusTracker, TurnEdge};
use super::turn::{TURN_LIMIT, TurnEvents};
use super::{ClaudeSession, Interrupted, Prompt, RestartError, Turn, TurnFailure, TurnResult};
use crate::options::LaunchOptions;
use crate::queue::ByteQueue;
use crate::runtime::{Priority, Runtime, RuntimeEvent, RuntimeEvents, StartError, UserContent};
use crate::transport::BoxFuture;
use crate::turns::{Generation, TurnKey, TurnMachine};

use drain::Drain;
use steering::SteeringReply;

/// Capacity of the channel for completed answers. Senders wait when it is full.
const ANSWERED_LIMIT: usize = 64;

/// A change to the launch options.
pub(super) type OptionsChange = Box<dyn FnOnce(&mut LaunchOptions) + Send>;

/// Notified when the runtime is ready.
type Ready = oneshot::Sender<Result<(), RestartError>>;

/// Commands from session handles.
pub(super) enum Command {
    Send(Pending),
    Steer { content: UserContent, priority: Priority, reply: SteeringReply },
    WarmUp { reply: Ready },
    Restart { change: OptionsChange, reply: Ready },
    Interrupt { reply: oneshot::Sender<Interrupted> },
    Terminate { reply: oneshot::Sender<()> },
}

/// A send that is not settled.
pub(super) struct Pending {
    uuid: Uuid,
    prompt: Prompt,
    events: Arc<TurnEvents>,
    outcome: oneshot::Sender<Result<TurnResult, TurnFailure>>,
    /// Deadline of the turn once it has started, with the timeout.
    deadline: Option<(Instant, Duration)>,
    _permit: OwnedSemaphorePermit,
}

impl Pending {
    pub(super) fn new(prompt: Prompt, permit: OwnedSemaphorePermit, session: ClaudeSession) -> (Self, Turn) {
        let (settle, outcome) = oneshot::channel();
        let events = Arc::new(ByteQueue::new(TURN_LIMIT));
        let uuid = Uuid::new_v4();
        let turn = Turn { uuid, events: Arc::clone(&events), outcome, _session: session };
        (Self { uuid, prompt, events, outcome: settle, deadline: None, _permit: permit }, turn)
    }

    fn settle(self, outcome: Result<TurnResult, TurnFailure>) {
        self.events.close();
        // The sender may have dropped the turn.
        self.outcome.send(outcome).ok();
    }
}

/// Queued work.
enum Job {
    Send(Pending),
    WarmUp(Ready),
    Restart(OptionsChange, Ready),
}

/// Current activity of the task.
enum SessionStage {
    /// Ready for the next job.
    Idle,
    /// Hooks are rewriting a prompt.
    Hooking(Pending),
    /// A runtime is starting.
    Starting(Purpose),
    /// A message was sent to the runtime; or, with `None`, an abandoned turn is being drained.
    Turn(Option<Pending>),
    /// The runtime has exited but its last event was not read yet; the next runtime gets the message.
    Lost(Pending, UserContent),
    /// The runtime is stopping.
    Stopping(Afterwards),
    /// The session has ended.
    Over,
}

/// Why a runtime is started.
enum Purpose {
    Write(Pending, UserContent),
    Reply(Ready),
    /// With the options to restore if the start fails.
    Changed(Ready, Box<LaunchOptions>),
    /// The requester has given up.
    Abandoned,
}

/// What follows after a runtime has stopped.
enum Afterwards {
    Nothing,
    Restart(OptionsChange, Ready),
    Over,
}

/// Output of the stage's future.
enum Done {
    Hooked(Result<UserContent, HookError>),
    Started(Box<Result<(Runtime, RuntimeEvents), StartError>>),
}

/// Inputs of the loop.
enum ActorInput {
    Command(Option<Command>),
    Cancelled,
    Answered(String),
    /// A runtime of this generation responded to an interrupt.
    InterruptAnswered(Generation),
    /// A runtime of this generation gave a message back, or refused to.
    Withdrawn(Option<(Generation, Uuid)>),
    Done(Done),
    /// With the length of its line.
    Event(Option<(RuntimeEvent, usize)>),
    Time,
}

/// The running runtime.
struct Live {
    runtime: Runtime,
    events: RuntimeEvents,
    generation: Generation,
}

/// The state of the task.
pub(super) struct Actor {
    options: SessionOptions,
    shared: Arc<SharedSession>,
    commands: mpsc::Receiver<Command>,
    permits: Arc<Semaphore>,
    tasks: TaskTracker,
    cancel: CancellationToken,
    queue: VecDeque<Job>,
    stage: SessionStage,
    /// The future that the stage waits for, if any.
    work: Option<BoxFuture<'static, Done>>,
    /// Cancels a start that is no longer needed.
    starting: CancellationToken,
    live: Option<Live>,
    /// Whether a runtime was started before, so that the next one resumes.
    started_before: bool,
    machine: TurnMachine,
    /// The turn of the send in progress.
    turn: Option<TurnKey>,
    /// Pending interrupts; each returns the generation of its runtime.
    interrupting: JoinSet<Generation>,
    /// Senders of messages for the running turn that the runtime has not taken up, by uuid.
    steering: HashMap<Uuid, SteeringReply>,
    /// Pending withdrawals; each returns the message if it was withdrawn.
    withdrawing: JoinSet<Option<(Generation, Uuid)>>,
    status: StatusTracker,
    drain: Option<Drain>,
    /// When the open message is settled because of silence.
    quiet_at: Option<Instant>,
    /// Waiting for the end of an interrupted turn.
    interrupts: Vec<oneshot::Sender<Interrupted>>,
    /// Waiting for the end of the session; `Some` once it is ending.
    ending: Option<Vec<oneshot::Sender<()>>>,
    /// Pending requests from the runtime.
    questions: HashMap<String, CancellationToken>,
    answered: (mpsc::Sender<String>, mpsc::Receiver<String>),
}

impl Actor {
    pub(super) fn new(
        options: SessionOptions,
        shared: Arc<SharedSession>,
        commands: mpsc::Receiver<Command>,
        permits: Arc<Semaphore>,
        tasks: TaskTracker,
        cancel: CancellationToken,
    ) -> Self {
        Self {
            options,
            shared,
            commands,
            permits,
            tasks,
            starting: cancel.child_token(),
            cancel,
            queue: VecDeque::new(),
            stage: SessionStage::Idle,
            work: None,
            live: None,
            started_before: false,
            machine: TurnMachine::default(),
            turn: None,
            interrupting: JoinSet::new(),
            steering: HashMap::new(),
            withdrawing: JoinSet::new(),
            status: StatusTracker::default(),
            drain: None,
            quiet_at: None,
            interrupts: Vec::new(),
            ending: None,
            questions: HashMap::new(),
            answered: mpsc::channel(ANSWERED_LIMIT),
        }
    }

    /// Runs the session until it ends.
    pub(super) async fn run(mut self) {
        loop {
            self.advance();
            self.shared.show(self.status.status());
            if matches!(self.stage, SessionStage::Over) {
                break;
            }
            let input = self.next_input().await;
            self.handle(input);
        }
        self.permits.close();
        self.status.terminated();
        let now = self.options.clock.now();
        self.shared.record(|recorder| recorder.ended(now));
        self.shared.show(self.status.status());
        for reply in self.ending.into_iter().flatten() {
            // The receiver may have been dropped.
            reply.send(()).ok();
        }
    }

    async fn next_input(&mut self) -> ActorInput {
        let due = self.due();
        let ending = self.ending.is_some();
        tokio::select! {
            // User commands come first, then completed work, then events from the runtime.
            biased;
            () = self.cancel.cancelled(), if !ending => ActorInput::Cancelled,
            command = self.commands.recv(), if !(ending && self.commands.is_closed()) => ActorInput::Command(command),
            Some(id) = self.answered.1.recv() => ActorInput::Answered(id),
            Some(answered) = self.interrupting.join_next() => {
                ActorInput::InterruptAnswered(answered.unwrap_or_else(|_| self.machine.generation()))
            }
            Some(withdrawn) = self.withdrawing.join_next() => ActorInput::Withdrawn(withdrawn.unwrap_or_default()),
            done = work(&mut self.work) => ActorInput::Done(done),
            () = sleep_until(due) => ActorInput::Time,
            event = next_event(&mut self.live) => ActorInput::Event(event),
        }
    }

    fn handle(&mut self, input: ActorInput) {
        match input {
            ActorInput::Command(Some(command)) => self.command(command),
            // The last handle was dropped.
            ActorInput::Command(None) | ActorInput::Cancelled => self.end(None),
            ActorInput::Answered(id) => {
                self.questions.remove(&id);
                self.status.answered(&id);
            }
            ActorInput::InterruptAnswered(generation) => {
                let verdicts = self.machine.interrupt_answered(generation);
                self.verdicts(verdicts);
            }
            ActorInput::Withdrawn(withdrawn) => self.withdrawn(withdrawn),
            ActorInput::Done(Done::Hooked(prompt)) => self.hooked(prompt),
            ActorInput::Done(Done::Started(started)) => self.started(*started),
            ActorInput::Event(Some((event, length))) => self.event(event, length),
            // Unreachable, because the exit is the last event; a runtime without events is unusable.
            ActorInput::Event(None) => self.live = None,
            ActorInput::Time => self.time(),
        }
    }

    /// Starts the next job if the task is idle and no pending interrupt could affect it.
    fn advance(&mut self) {
        while matches!(self.stage, SessionStage::Idle) && self.ending.is_none() && self.machine.is_free() {
            let Some(job) = self.queue.pop_front() else { return };
            match job {
                Job::Send(pending) => self.begin(pending),
                Job::WarmUp(ready) if self.live.is_some() => {
                    ready.send(Ok(())).ok();
                }
                Job::WarmUp(ready) => self.start_for(Purpose::Reply(ready)),
                Job::Restart(change, ready) => self.restart(change, ready),
            }
        }
    }

    /// The next deadline.
    fn due(&self) -> Option<Instant> {
        let deadline = self.current().and_then(|pending| pending.deadline).map(|(at, _)| at);
        let drain = self.drain.as_ref().map(|drain| drain.next);
        [deadline, drain, self.quiet_at].into_iter().flatten().min()
    }

    fn time(&mut self) {
        let now = Instant::now();
        if let Some((at, after)) = self.current().and_then(|pending| pending.deadline)
            && now >= at
        {
            self.give_up(TurnFailure::TimedOut { after });
        }
        if self.drain.as_ref().is_some_and(|drain| now >= drain.next) {
            self.drain_on(now);
        }
        if self.quiet_at.is_some_and(|at| now >= at) {
            self.quiet_at = None;
            let verdicts = self.machine.quiet();
            self.verdicts(verdicts);
        }
    }

    /// The send in progress.
    fn current(&self) -> Option<&Pending> {
        match &self.stage {
            SessionStage::Hooking(pending)
            | SessionStage::Starting(Purpose::Write(pending, _))
            | SessionStage::Lost(pending, _)
            | SessionStage::Turn(Some(pending)) => Some(pending),
            SessionStage::Idle
            | SessionStage::Starting(Purpose::Reply(_) | Purpose::Changed(..) | Purpose::Abandoned)
            | SessionStage::Turn(None)
            | SessionStage::Stopping(_)
            | SessionStage::Over => None,
        }
    }

    /// Fails the send in progress; returns whether there was one.
    fn give_up(&mut self, error: TurnFailure) -> bool {
        let (pending, next) = match std::mem::replace(&mut self.stage, SessionStage::Idle) {
            SessionStage::Hooking(pending) => {
                self.work = None;
                (pending, SessionStage::Idle)
            }
            // The start continues, so that the next send does not wait for it.
            SessionStage::Starting(Purpose::Write(pending, _)) => {
                (pending, SessionStage::Starting(Purpose::Abandoned))
            }
            SessionStage::Lost(pending, _) => (pending, SessionStage::Idle),
            SessionStage::Turn(Some(pending)) => {
                // Before the interrupt, which is due now.
                let untaken = self.turn.take().and_then(|turn| self.machine.abandon(turn));
                self.withdraw(untaken.unwrap_or_default());
                self.steering_over();
                self.drain = Some(Drain::begin(Instant::now()));
                (pending, SessionStage::Turn(None))
            }
            other @ (SessionStage::Idle
            | SessionStage::Starting(_)
            | SessionStage::Turn(None)
            | SessionStage::Stopping(_)
            | SessionStage::Over) => {
                self.stage = other;
                return false;
            }
        };
        self.stage = next;
        self.status.turn(TurnEdge::Ends);
        pending.settle(Err(error));
        true
    }
}

/// Waits for the stage's future; never returns if there is none.
async fn work(work: &mut Option<BoxFuture<'static, Done>>) -> Done {
    match work {
        Some(running) => {
            let done = running.await;
            *work = None;
            done
        }
        None => std::future::pending().await,
    }
}

async fn next_event(live: &mut Option<Live>) -> Option<(RuntimeEvent, usize)> {
    match live {
        Some(live) => live.events.next_weighed().await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
