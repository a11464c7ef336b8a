//! Handles commands from session handles.

use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::super::hooks::rewrite;
use super::super::status::TurnEdge;
use super::super::steering::SteerError;
use super::super::{Interrupted, TurnFailure};
use super::{Actor, Afterwards, Command, Done, Job, Pending, Purpose, SessionStage};
use crate::controls::Queued;
use crate::runtime::{StopOptions, UserContent, UserMessage};
use crate::session::HookError;
use crate::turns::PromptKind;
use crate::{RestartError, SendError};

impl Actor {
    pub(super) fn command(&mut self, command: Command) {
        if self.ending.is_some() {
            return self.refuse(command);
        }
        match command {
            Command::Send(pending) => self.queue.push_back(Job::Send(pending)),
            Command::Steer { content, priority, reply } => self.steer(content, priority, reply),
            Command::WarmUp { reply } => self.queue.push_back(Job::WarmUp(reply)),
            Command::Restart { change, reply } => self.queue.push_back(Job::Restart(change, reply)),
            Command::Interrupt { reply } => self.interrupt(reply),
            Command::Terminate { reply } => self.end(Some(reply)),
        }
    }

    /// Rejects commands that arrive after the end has begun.
    fn refuse(&mut self, command: Command) {
        match command {
            Command::Send(pending) => pending.settle(Err(TurnFailure::Terminated)),
            Command::Steer { reply, .. } => {
                reply.send(Err(SteerError::Terminated)).ok();
            }
            Command::WarmUp { reply } | Command::Restart { reply, .. } => {
                reply.send(Err(RestartError::Terminated)).ok();
            }
            Command::Interrupt { reply } => {
                reply.send(Interrupted::Nothing).ok();
            }
            Command::Terminate { reply } => self.ending.get_or_insert_default().push(reply),
        }
    }

    fn interrupt(&mut self, reply: oneshot::Sender<Interrupted>) {
        let interrupted = self.give_up(TurnFailure::Interrupted);
        if self.machine.is_draining() {
            self.interrupts.push(reply);
            return;
        }
        // An unsolicited turn of the runtime is interrupted as well, but its end is not awaited.
        if !interrupted {
            self.send_interrupt(Queued::Keep);
        }
        let answer = if interrupted { Interrupted::Turn } else { Interrupted::Nothing };
        reply.send(answer).ok();
    }

    /// Starts ending the session.
    pub(super) fn end(&mut self, reply: Option<oneshot::Sender<()>>) {
        self.ending.get_or_insert_default().extend(reply);
        self.permits.close();
        self.give_up(TurnFailure::Terminated);
        self.drain = None;
        for job in std::mem::take(&mut self.queue) {
            match job {
                Job::Send(pending) => pending.settle(Err(TurnFailure::Terminated)),
                Job::WarmUp(ready) | Job::Restart(_, ready) => {
                    ready.send(Err(RestartError::Terminated)).ok();
                }
            }
        }
        match std::mem::replace(&mut self.stage, SessionStage::Over) {
            SessionStage::Starting(purpose) => {
                self.starting.cancel();
                self.stage = SessionStage::Starting(purpose);
            }
            SessionStage::Stopping(Afterwards::Restart(_, ready)) => {
                ready.send(Err(RestartError::Terminated)).ok();
                self.stage = SessionStage::Stopping(Afterwards::Over);
            }
            SessionStage::Stopping(_) => self.stage = SessionStage::Stopping(Afterwards::Over),
            SessionStage::Idle
            | SessionStage::Hooking(_)
            | SessionStage::Turn(_)
            | SessionStage::Lost(..)
            | SessionStage::Over => {
                self.stop(StopOptions::default(), Afterwards::Over);
            }
        }
    }

    /// Starts a send, with hooks first.
    pub(super) fn begin(&mut self, mut pending: Pending) {
        let timeout = pending.prompt.timeout.or(self.options.send_timeout);
        pending.deadline = timeout.map(|timeout| (Instant::now() + timeout, timeout));
        self.status.turn(TurnEdge::Begins);
        let prompt = pending.prompt.content.clone();
        let hooks = self.shared.hooks.now();
        if hooks.is_empty() {
            return self.deliver(pending, prompt);
        }
        // Runs in a separate task, so that a panicking hook fails only its send.
        let rewriting = AbortOnDropHandle::new(self.tasks.spawn(rewrite(hooks, prompt)));
        self.work = Some(Box::pin(async {
            Done::Hooked(rewriting.await.unwrap_or_else(|_| Err("the hook panicked".into())))
        }));
        self.stage = SessionStage::Hooking(pending);
    }

    pub(super) fn hooked(&mut self, prompt: Result<UserContent, HookError>) {
        match std::mem::replace(&mut self.stage, SessionStage::Idle) {
            SessionStage::Hooking(pending) => match prompt {
                Ok(prompt) => self.deliver(pending, prompt),
                Err(error) => self.fail(pending, TurnFailure::Hook(error)),
            },
            other @ (SessionStage::Idle
            | SessionStage::Starting(_)
            | SessionStage::Turn(_)
            | SessionStage::Lost(..)
            | SessionStage::Stopping(_)
            | SessionStage::Over) => self.stage = other,
        }
    }

    /// Sends a message to the runtime, which is started if necessary.
    pub(super) fn deliver(&mut self, pending: Pending, prompt: UserContent) {
        let Some(live) = &self.live else {
            return self.start_for(Purpose::Write(pending, prompt));
        };
        let message = UserMessage::new(pending.uuid, prompt);
        match live.runtime.send(&message) {
            Ok(()) => {
                let kind = PromptKind::of(&message.content);
                self.turn = Some(self.machine.open(pending.uuid, kind));
                self.stage = SessionStage::Turn(Some(pending));
            }
            Err(SendError::Exited) => self.stage = SessionStage::Lost(pending, message.content),
            Err(error @ (SendError::QueueFull | SendError::NoSuchRequest { .. })) => {
                self.fail(pending, TurnFailure::Send(error));
            }
        }
    }

    /// Fails a send that is not in any stage.
    pub(super) fn fail(&mut self, pending: Pending, error: TurnFailure) {
        self.status.turn(TurnEdge::Ends);
        pending.settle(Err(error));
    }
}
