//! Starts and stops runtimes.

use std::path::PathBuf;

use super::super::status::UnexpectedExit;
use super::super::{Interrupted, TurnFailure};
use super::{Actor, Afterwards, Done, Live, OptionsChange, Purpose, Ready, SessionStage};
use crate::event::EventKind;
use crate::options::{Conversation, LaunchOptions};
use crate::process::{Exit, ExitReason};
use crate::runtime::{Runtime, RuntimeEvents, StartError, StopOptions};
use crate::session::RestartError;
use crate::session::shared::LiveRuntime;
use crate::transcript;
use crate::transport::Transport;

impl Actor {
    /// Starts a runtime for the given purpose.
    pub(super) fn start_for(&mut self, purpose: Purpose) {
        let mut options = self.options.launch.clone();
        let transport = self.options.transport.clone();
        let again = self.started_before.then(|| self.shared.conversation());
        let established = self.shared.established().is_some();
        // A new token per start, created before the first await, so that no cancellation is lost.
        self.starting = self.cancel.child_token();
        let cancel = self.starting.clone();
        self.work = Some(Box::pin(async move {
            if let Some(conversation) = again {
                options.conversation = continued(&options, &transport, conversation, established).await;
            }
            Done::Started(Box::new(Runtime::start_over(options, &transport, cancel).await))
        }));
        self.stage = SessionStage::Starting(purpose);
    }

    pub(super) fn started(&mut self, started: Result<(Runtime, RuntimeEvents), StartError>) {
        let purpose = match std::mem::replace(&mut self.stage, SessionStage::Idle) {
            SessionStage::Starting(purpose) => purpose,
            other @ (SessionStage::Idle
            | SessionStage::Hooking(_)
            | SessionStage::Turn(_)
            | SessionStage::Lost(..)
            | SessionStage::Stopping(_)
            | SessionStage::Over) => {
                self.stage = other;
                return;
            }
        };
        match started {
            Ok((runtime, events)) => {
                self.live_with(runtime, events);
                self.ready(purpose);
            }
            Err(error) => self.not_started(purpose, error),
        }
        if self.ending.is_some() && !matches!(self.stage, SessionStage::Over) {
            self.stop(StopOptions::default(), Afterwards::Over);
        }
    }

    fn live_with(&mut self, runtime: Runtime, events: RuntimeEvents) {
        let resumed = matches!(
            self.options.launch.conversation,
            Conversation::Resume(_) | Conversation::ResumeAt { .. } | Conversation::Fork { .. }
        );
        if resumed {
            self.shared.set_established();
        }
        self.started_before = true;
        let generation = self.machine.started();
        self.shared.set_live(Some(LiveRuntime {
            controls: runtime.controls(),
            pid: runtime.pid(),
            initialized: runtime.initialized().clone(),
        }));
        let conversation = runtime.conversation();
        self.live = Some(Live { runtime, events, generation });
        self.announce_runtime(EventKind::SessionStart { conversation });
    }

    fn ready(&mut self, purpose: Purpose) {
        match purpose {
            Purpose::Write(pending, prompt) => self.deliver(pending, prompt),
            Purpose::Reply(ready) | Purpose::Changed(ready, _) => {
                ready.send(Ok(())).ok();
            }
            Purpose::Abandoned => {}
        }
    }

    fn not_started(&mut self, purpose: Purpose, error: StartError) {
        let ended = self.ending.is_some();
        match purpose {
            Purpose::Write(pending, _) => self.fail(pending, TurnFailure::Start(error)),
            Purpose::Reply(ready) if ended => {
                ready.send(Err(RestartError::Terminated)).ok();
            }
            Purpose::Reply(ready) => {
                ready.send(Err(RestartError::Start(error))).ok();
            }
            Purpose::Changed(ready, before) => {
                self.options.launch = *before;
                self.shared.set_options(&self.options);
                ready.send(Err(RestartError::Start(error))).ok();
            }
            Purpose::Abandoned => tracing::warn!(%error, "background start of a runtime failed"),
        }
    }

    /// Restarts the runtime with changed options; stops the running one first.
    pub(super) fn restart(&mut self, change: OptionsChange, ready: Ready) {
        if self.live.is_some() {
            return self.stop(StopOptions::default(), Afterwards::Restart(change, ready));
        }
        let before = Box::new(self.options.launch.clone());
        change(&mut self.options.launch);
        self.options.launch.renew_system_prompt_if_changed(&before);
        self.shared.set_options(&self.options);
        self.start_for(Purpose::Changed(ready, before));
    }

    /// Stops the runtime; its exit continues with `afterwards`.
    pub(super) fn stop(&mut self, options: StopOptions, afterwards: Afterwards) {
        let Some(live) = &self.live else { return self.stopped(afterwards) };
        let runtime = live.runtime.clone();
        self.tasks.spawn(async move {
            runtime.stop_with(options).await;
        });
        self.stage = SessionStage::Stopping(afterwards);
    }

    fn stopped(&mut self, afterwards: Afterwards) {
        self.stage = match afterwards {
            Afterwards::Nothing => SessionStage::Idle,
            Afterwards::Over => SessionStage::Over,
            Afterwards::Restart(change, ready) => {
                self.stage = SessionStage::Idle;
                return self.restart(change, ready);
            }
        };
    }

    /// Handles the exit of the runtime.
    pub(super) fn exited(&mut self, exit: Exit) {
        self.live = None;
        self.shared.set_live(None);
        self.drain = None;
        self.quiet_at = None;
        for (_, question) in self.questions.drain() {
            question.cancel();
        }
        let asked = matches!(self.stage, SessionStage::Stopping(_)) || self.ending.is_some();
        let asked = asked || matches!(exit.reason, ExitReason::Stopped | ExitReason::Cancelled);
        let unexpected = UnexpectedExit { exit: exit.clone() };
        // The stage holds the waiting send, and subscribers are notified of the exit itself.
        drop(self.machine.exited());
        self.turn = None;
        self.steering_over();
        self.status.exited((!asked).then(|| unexpected.clone()));
        self.announce_runtime(EventKind::SessionEnd { exit: exit.clone() });
        match std::mem::replace(&mut self.stage, SessionStage::Idle) {
            SessionStage::Turn(pending) => {
                if let Some(pending) = pending {
                    pending.settle(Err(TurnFailure::UnexpectedExit(unexpected)));
                }
            }
            SessionStage::Lost(pending, prompt) => self.start_for(Purpose::Write(pending, prompt)),
            SessionStage::Stopping(afterwards) => self.stopped(afterwards),
            other @ (SessionStage::Idle
            | SessionStage::Hooking(_)
            | SessionStage::Starting(_)
            | SessionStage::Over) => self.stage = other,
        }
        for reply in self.interrupts.drain(..) {
            reply.send(Interrupted::Runtime(exit.clone())).ok();
        }
        if self.ending.is_some() {
            self.stage = SessionStage::Over;
        }
    }
}

/// The conversation for the next runtime. If the previous one exited before it wrote a transcript, there
/// is nothing to resume and the id can be reused.
async fn continued(
    options: &LaunchOptions,
    transport: &Transport,
    conversation: uuid::Uuid,
    established: bool,
) -> Conversation {
    let is_written = match transport {
        // The transcript may be on another machine.
        Transport::Stream(_) => established,
        Transport::LocalProcess => {
            let mut environment = options.environment.clone();
            environment.extend(options.overrides.clone());
            let find = move || transcript::find(&environment, conversation);
            let found: Option<PathBuf> = tokio::task::spawn_blocking(find).await.unwrap_or_default();
            found.is_some()
        }
    };
    match options.conversation {
        Conversation::Fork { .. } if !is_written => options.conversation,
        Conversation::New(_) if !is_written => Conversation::New(conversation),
        // The resumed conversation was replaced by a new one without messages.
        Conversation::Resume(before) | Conversation::ResumeAt { id: before, .. }
            if !is_written && before != conversation =>
        {
            Conversation::New(conversation)
        }
        Conversation::New(_)
        | Conversation::Fork { .. }
        | Conversation::Resume(_)
        | Conversation::ResumeAt { .. } => Conversation::Resume(conversation),
    }
}
