//! Handles events from the runtime.

use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::super::status::TurnEdge;
use super::super::turn::Lagged;
use super::super::{TurnFailure, TurnResult};
use super::{Actor, Pending, SessionStage};
use crate::event::{EventKind, SessionEvent, classify, subagent};
use crate::queue::PushError;
use crate::runtime::RuntimeEvent;
use crate::turns::{EndReason, QUIET, Verdict};
use crate::wire::{IncomingRequest, Message, SystemMessage};

impl Actor {
    pub(super) fn event(&mut self, event: RuntimeEvent, length: usize) {
        match event {
            RuntimeEvent::Message(message) => self.message(message, length),
            RuntimeEvent::Request { id, request } => self.question(id, request),
            RuntimeEvent::RequestCancelled { id } => {
                if let Some(question) = self.questions.remove(&id) {
                    question.cancel();
                }
                self.status.answered(&id);
            }
            RuntimeEvent::Exited(exit) => self.exited(exit),
        }
    }

    fn message(&mut self, message: Message, length: usize) {
        self.observe(&message);
        let kinds = classify(&message);
        self.status.message(&message, &kinds);
        let Some(live) = &self.live else { return };
        let verdicts = self.machine.judge(live.generation, &message);
        let belongs =
            |verdict: &Verdict| matches!(verdict, Verdict::Belongs(turn) if Some(*turn) == self.turn);
        let pending = self.current().filter(|_| verdicts.iter().any(belongs));
        let turn = pending.map(|pending| pending.uuid);
        let subagent = subagent(&message).map(str::to_owned);
        let message = Arc::new(message);
        for kind in kinds {
            let message = Some(Arc::clone(&message));
            let at = self.options.clock.now();
            self.announce(SessionEvent { at, turn, subagent: subagent.clone(), kind, message }, length);
        }
        self.quiet_at = self.machine.awaits_quiet().then(|| Instant::now() + QUIET);
        self.verdicts(verdicts);
    }

    /// Records changes of the conversation itself.
    fn observe(&mut self, message: &Message) {
        if let Some(conversation) = message.conversation() {
            self.shared.set_conversation(conversation);
        }
        // A turn has started, so its message was written to the transcript.
        if let Message::System(SystemMessage::Init(_)) = message {
            self.shared.set_established();
        }
    }

    pub(super) fn verdicts(&mut self, verdicts: Vec<Verdict>) {
        for verdict in verdicts {
            match verdict {
                Verdict::Drained(_) => self.drained(),
                Verdict::TakenUp { message, .. } => self.steering_taken_up(message),
                Verdict::Ends(end) if Some(end.turn) == self.turn => self.ended(end.reason),
                // Turns started by the runtime itself do not belong to a send; subscribers see their
                // events.
                Verdict::Begins { .. } | Verdict::Ends(_) | Verdict::Belongs(_) => {}
            }
        }
    }

    /// Settles the send whose turn ended.
    fn ended(&mut self, reason: EndReason) {
        self.turn = None;
        self.steering_over();
        match std::mem::replace(&mut self.stage, SessionStage::Idle) {
            SessionStage::Turn(Some(pending)) => self.settle(pending, reason),
            other @ (SessionStage::Idle
            | SessionStage::Hooking(_)
            | SessionStage::Starting(_)
            | SessionStage::Turn(None)
            | SessionStage::Lost(..)
            | SessionStage::Stopping(_)
            | SessionStage::Over) => self.stage = other,
        }
    }

    fn settle(&mut self, pending: Pending, reason: EndReason) {
        self.quiet_at = None;
        self.status.turn(TurnEdge::Ends);
        let outcome = match reason {
            EndReason::Result(message) => {
                self.shared.record(super::super::artifact::Recorder::turn_answered);
                Ok(TurnResult::new(pending.uuid, self.shared.conversation(), message))
            }
            EndReason::Dropped => Err(TurnFailure::Cancelled),
            EndReason::NoResult | EndReason::Merged | EndReason::Exited => Err(TurnFailure::NoResult),
        };
        pending.settle(outcome);
    }

    /// Notifies all subscribers of an event, then the reader of the turn. `length` is the size of its
    /// message.
    fn announce(&mut self, event: SessionEvent, length: usize) {
        let event = Arc::new(event);
        self.shared.announce(&event);
        if let SessionStage::Turn(Some(pending)) = &self.stage
            && event.turn == Some(pending.uuid)
        {
            let weight = event.kind.weight() + length;
            match pending.events.push(Ok(event), weight) {
                // A reader that only waits for the result has closed its queue.
                Ok(()) | Err(PushError::Closed) => {}
                Err(PushError::Full) => pending.events.finish(Err(Lagged)),
            }
        }
    }

    /// Notifies all subscribers of a runtime event outside of any turn.
    pub(super) fn announce_runtime(&mut self, kind: EventKind) {
        let at = self.options.clock.now();
        self.announce(SessionEvent { at, turn: None, subagent: None, kind, message: None }, 0);
    }

    /// Answers a request from the runtime in a separate task.
    fn question(&mut self, id: String, request: IncomingRequest) {
        let needs_person = match &request {
            IncomingRequest::CanUseTool(_)
            | IncomingRequest::Elicitation(_)
            | IncomingRequest::UserDialog(_) => true,
            IncomingRequest::HookCallback(_)
            | IncomingRequest::McpMessage(_)
            | IncomingRequest::TokenRefresh(_) => false,
            // Already answered.
            IncomingRequest::Unknown(_) => return,
        };
        let Some(live) = &self.live else { return };
        if needs_person {
            self.status.asked(&id);
        }
        let cancel = CancellationToken::new();
        self.questions.insert(id.clone(), cancel.clone());
        let controls = live.runtime.controls();
        // Runs in a separate task, so that the runtime gets an answer even if the handler panics.
        let answering = self.tasks.spawn(self.options.handler.answer(request, cancel.clone()));
        let answered = self.answered.0.clone();
        self.tasks.spawn(async move {
            let abort = answering.abort_handle();
            let Some(answer) = cancel.run_until_cancelled(answering).await else {
                return abort.abort();
            };
            let answer = answer.unwrap_or_else(|_| Err("the host failed to answer".to_owned()));
            if let Err(error) = controls.respond(&id, answer) {
                tracing::debug!(%error, "cannot answer request");
            }
            // The session may have ended.
            answered.send(id).await.ok();
        });
    }
}
