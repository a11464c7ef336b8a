//! The task that runs a session.
//!
//! Owns the queue of sends, the running runtime and the turn machine. Long operations are futures that
//! the loop polls concurrently, so an interrupt never waits for the operation it interrupts. Invariant:
//! an accepted send is settled exactly once, whatever happens to the runtime.

mod commands;
mod drain;
mod events;
mod lifecycle;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::board::Board;
use super::hooks::HookError;
use super::options::SessionOptions;
use super::status::{StatusTracker, TurnEdge};
use super::turn::{TURN_LIMIT, TurnEvents};
use super::{ClaudeSession, Interrupted, Prompt, RestartError, Turn, TurnError, TurnResult};
use crate::options::LaunchOptions;
use crate::queue::ByteQueue;
use crate::runtime::{Runtime, RuntimeEvent, RuntimeEvents, StartError, UserContent};
use crate::transport::BoxFuture;
use crate::turns::{Generation, TurnKey, TurnMachine};

use drain::Drain;

/// The most answers on their way back to the loop. Those who answer wait when it is full.
const ANSWERED_LIMIT: usize = 64;

/// A change to launch options.
pub(super) type Change = Box<dyn FnOnce(&mut LaunchOptions) + Send>;

/// Who waits for a runtime to be ready.
type Ready = oneshot::Sender<Result<(), RestartError>>;

/// What handles ask of the task.
pub(super) enum Command {
    Send(Pending),
    WarmUp { reply: Ready },
    Restart { change: Change, reply: Ready },
    Interrupt { reply: oneshot::Sender<Interrupted> },
    Terminate { reply: oneshot::Sender<()> },
}

/// A send that is not settled.
pub(super) struct Pending {
    uuid: Uuid,
    prompt: Prompt,
    events: Arc<TurnEvents>,
    outcome: oneshot::Sender<Result<TurnResult, TurnError>>,
    /// When its turn must be over, once it has begun; and how long it had.
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

    fn settle(self, outcome: Result<TurnResult, TurnError>) {
        self.events.close();
        // Whoever sent it may not care any more.
        self.outcome.send(outcome).ok();
    }
}

/// What waits for its turn.
enum Job {
    Send(Pending),
    WarmUp(Ready),
    Restart(Change, Ready),
}

/// What the task is in the middle of.
enum Stage {
    /// Nothing; the next job can begin.
    Idle,
    /// Hooks rewrite a prompt.
    Hooking(Pending),
    /// A runtime is being started for something.
    Starting(Purpose),
    /// A message is with the runtime, or what it left behind is awaited.
    Turn(Option<Pending>),
    /// The runtime is gone and its last event not read yet; the message goes to the next one.
    Lost(Pending, UserContent),
    /// The runtime is being stopped.
    Stopping(Afterwards),
    /// The session is over.
    Over,
}

/// What a runtime is started for.
enum Purpose {
    Write(Pending, UserContent),
    Reply(Ready),
    /// With the options to go back to if it fails.
    Changed(Ready, Box<LaunchOptions>),
    /// Whoever wanted it has given up.
    Nobody,
}

/// What follows when a runtime has been stopped.
enum Afterwards {
    Nothing,
    Restart(Change, Ready),
    Over,
}

/// What a future of the loop's came to.
enum Done {
    Hooked(Result<UserContent, HookError>),
    Started(Box<Result<(Runtime, RuntimeEvents), StartError>>),
}

/// What the loop waits for.
enum Input {
    Command(Option<Command>),
    Cancelled,
    Answered(String),
    /// A runtime of this generation answered an interrupt.
    InterruptAnswered(Generation),
    Done(Done),
    /// With the length of the line that it came as.
    Event(Option<(RuntimeEvent, usize)>),
    Time,
}

/// A runtime that runs.
struct Live {
    runtime: Runtime,
    events: RuntimeEvents,
    generation: Generation,
}

/// The state of the task.
pub(super) struct Actor {
    options: SessionOptions,
    board: Arc<Board>,
    commands: mpsc::Receiver<Command>,
    permits: Arc<Semaphore>,
    tasks: TaskTracker,
    cancel: CancellationToken,
    queue: VecDeque<Job>,
    stage: Stage,
    /// What the stage waits for, if that is a future.
    work: Option<BoxFuture<'static, Done>>,
    /// Ends a start that nobody wants any more.
    starting: CancellationToken,
    live: Option<Live>,
    /// Whether a runtime was started before, so that the next one resumes.
    started_before: bool,
    machine: TurnMachine,
    /// The turn that the send which is with the runtime opened.
    turn: Option<TurnKey>,
    /// Interrupts that are not answered yet; each gives its runtime's generation.
    interrupting: JoinSet<Generation>,
    status: StatusTracker,
    drain: Option<Drain>,
    /// When silence settles the open message.
    quiet_at: Option<Instant>,
    /// Who waits for the end of an interrupted turn.
    interrupts: Vec<oneshot::Sender<Interrupted>>,
    /// Who waits for the end of the session; something once it has begun to end.
    ending: Option<Vec<oneshot::Sender<()>>>,
    /// The runtime's open questions.
    questions: HashMap<String, CancellationToken>,
    answered: (mpsc::Sender<String>, mpsc::Receiver<String>),
}

impl Actor {
    pub(super) fn new(
        options: SessionOptions,
        board: Arc<Board>,
        commands: mpsc::Receiver<Command>,
        permits: Arc<Semaphore>,
        tasks: TaskTracker,
        cancel: CancellationToken,
    ) -> Self {
        Self {
            options,
            board,
            commands,
            permits,
            tasks,
            starting: cancel.child_token(),
            cancel,
            queue: VecDeque::new(),
            stage: Stage::Idle,
            work: None,
            live: None,
            started_before: false,
            machine: TurnMachine::default(),
            turn: None,
            interrupting: JoinSet::new(),
            status: StatusTracker::default(),
            drain: None,
            quiet_at: None,
            interrupts: Vec::new(),
            ending: None,
            questions: HashMap::new(),
            answered: mpsc::channel(ANSWERED_LIMIT),
        }
    }

    /// Runs the session to its end.
    pub(super) async fn run(mut self) {
        loop {
            self.advance();
            self.board.show(self.status.status());
            if matches!(self.stage, Stage::Over) {
                break;
            }
            let input = self.next_input().await;
            self.handle(input);
        }
        self.permits.close();
        self.status.terminated();
        let now = self.options.clock.now();
        self.board.record(|recorder| recorder.ended(now));
        self.board.show(self.status.status());
        for reply in self.ending.into_iter().flatten() {
            // Whoever asked may have gone away.
            reply.send(()).ok();
        }
    }

    async fn next_input(&mut self) -> Input {
        let due = self.due();
        let ending = self.ending.is_some();
        tokio::select! {
            // What the user wants comes first, then what was waited for, then what the runtime says.
            biased;
            () = self.cancel.cancelled(), if !ending => Input::Cancelled,
            command = self.commands.recv(), if !(ending && self.commands.is_closed()) => Input::Command(command),
            Some(id) = self.answered.1.recv() => Input::Answered(id),
            Some(answered) = self.interrupting.join_next() => {
                Input::InterruptAnswered(answered.unwrap_or_else(|_| self.machine.generation()))
            }
            done = work(&mut self.work) => Input::Done(done),
            () = sleep_until(due) => Input::Time,
            event = next_event(&mut self.live) => Input::Event(event),
        }
    }

    fn handle(&mut self, input: Input) {
        match input {
            Input::Command(Some(command)) => self.command(command),
            // The last handle is gone.
            Input::Command(None) | Input::Cancelled => self.end(None),
            Input::Answered(id) => {
                self.questions.remove(&id);
                self.status.answered(&id);
            }
            Input::InterruptAnswered(generation) => {
                let verdicts = self.machine.interrupt_answered(generation);
                self.verdicts(verdicts);
            }
            Input::Done(Done::Hooked(prompt)) => self.hooked(prompt),
            Input::Done(Done::Started(started)) => self.started(*started),
            Input::Event(Some((event, length))) => self.event(event, length),
            // The exit was the last event, so this is never reached; a runtime without events is no use.
            Input::Event(None) => self.live = None,
            Input::Time => self.time(),
        }
    }

    /// Begins the next job if nothing else goes on and no interrupt is in flight that could hit it.
    fn advance(&mut self) {
        while matches!(self.stage, Stage::Idle) && self.ending.is_none() && self.machine.is_free() {
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

    /// The next moment at which something is due.
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
            self.give_up(TurnError::TimedOut { after });
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

    /// The send that the stage is about.
    fn current(&self) -> Option<&Pending> {
        match &self.stage {
            Stage::Hooking(pending)
            | Stage::Starting(Purpose::Write(pending, _))
            | Stage::Lost(pending, _)
            | Stage::Turn(Some(pending)) => Some(pending),
            Stage::Idle
            | Stage::Starting(Purpose::Reply(_) | Purpose::Changed(..) | Purpose::Nobody)
            | Stage::Turn(None)
            | Stage::Stopping(_)
            | Stage::Over => None,
        }
    }

    /// Fails the send that the stage is about; gives whether there was one.
    fn give_up(&mut self, error: TurnError) -> bool {
        let (pending, next) = match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Hooking(pending) => {
                self.work = None;
                (pending, Stage::Idle)
            }
            // The start goes on, so that the next send finds the runtime warm.
            Stage::Starting(Purpose::Write(pending, _)) => (pending, Stage::Starting(Purpose::Nobody)),
            Stage::Lost(pending, _) => (pending, Stage::Idle),
            Stage::Turn(Some(pending)) => {
                if let Some(turn) = self.turn.take() {
                    self.machine.abandon(turn);
                }
                self.drain = Some(Drain::begin(Instant::now()));
                (pending, Stage::Turn(None))
            }
            other @ (Stage::Idle
            | Stage::Starting(_)
            | Stage::Turn(None)
            | Stage::Stopping(_)
            | Stage::Over) => {
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

/// Waits for the stage's future; for ever if there is none.
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
