//! Requests to stop a chat's work and to restart its agent, until they are answered.
//!
//! The actor does not wait for an agent: a request is answered when the agent reports, or when
//! it has closed. The caller limits how long it waits.

use super::actor::SessionActor;
use super::decide::{DecisionInput, StopPlan};
use super::handle::{ChatError, ChatReplySender};
use crate::agent::{StopTarget, StoppedWork};
use crate::channel::ChannelUri;

/// Most unanswered requests of each kind per chat. Callers stop waiting after seconds, so only
/// a client that repeats its request in a loop reaches the limit.
const MAX_PENDING: usize = 16;

const TOO_MANY: &str = "too many requests of this kind are waiting in this chat; wait for their answers";

/// The unanswered requests of a chat.
#[derive(Debug, Default)]
pub(super) struct PendingStops {
    /// Number of the latest request.
    latest: u64,
    stops: Vec<PendingStop>,
    restarts: Vec<ChatReplySender<()>>,
    /// Whether the agent's process is ending for a restart.
    restarting: bool,
}

/// An unanswered request to stop work.
#[derive(Debug)]
struct PendingStop {
    request: u64,
    plan: StopPlan,
    done: ChatReplySender<Vec<StoppedWork>>,
}

impl PendingStop {
    fn answer(self, by_agent: Result<Vec<StoppedWork>, String>) {
        let mut stopped = self.plan.stopped;
        let answer = match by_agent {
            Ok(by_agent) => {
                stopped.extend(by_agent);
                Ok(stopped)
            }
            Err(reason) if stopped.is_empty() => Err(ChatError::Refused(reason)),
            Err(reason) => {
                Err(ChatError::Refused(format!("the turn was stopped, but not all work: {reason}")))
            }
        };
        // The caller may have stopped waiting.
        self.done.send(answer).ok();
    }
}

impl PendingStops {
    /// Answers a request.
    pub(super) fn answer(&mut self, request: u64, by_agent: Result<Vec<StoppedWork>, String>) {
        let at = self.stops.iter().position(|pending| pending.request == request);
        if let Some(at) = at {
            self.stops.swap_remove(at).answer(by_agent);
        }
    }

    /// Answers all requests after the agent has closed, or could not be opened.
    pub(super) fn agent_closed(&mut self) {
        self.restarting = false;
        for mut pending in std::mem::take(&mut self.stops) {
            // The work has ended with the agent.
            let asked = pending.plan.asked.take().unwrap_or_default();
            pending.answer(Ok(asked));
        }
        for done in std::mem::take(&mut self.restarts) {
            done.send(Ok(())).ok();
        }
    }

    /// Whether the agent's process is ending for a restart.
    pub(super) fn is_restarting(&self) -> bool {
        self.restarting
    }

    /// Forgets requests to stop work whose callers have stopped waiting. Returns the number of
    /// another one, if there is room for it.
    fn next_stop(&mut self) -> Result<u64, ChatError> {
        self.stops.retain(|pending| !pending.done.is_closed());
        if self.stops.len() >= MAX_PENDING {
            return Err(ChatError::Refused(TOO_MANY.to_owned()));
        }
        self.latest += 1;
        Ok(self.latest)
    }

    /// Forgets restarts whose callers have stopped waiting. Returns whether one is under way.
    fn is_restarting_with_room(&mut self) -> Result<bool, ChatError> {
        self.restarts.retain(|done| !done.is_closed());
        if self.restarts.len() >= MAX_PENDING {
            return Err(ChatError::Refused(TOO_MANY.to_owned()));
        }
        Ok(self.restarting)
    }
}

impl SessionActor {
    pub(super) async fn stop_work(
        &mut self,
        uri: &ChannelUri,
        target: StopTarget,
        done: ChatReplySender<Vec<StoppedWork>>,
    ) {
        let request = match self.pending_stops(uri).and_then(PendingStops::next_stop) {
            Ok(request) => request,
            Err(error) => {
                done.send(Err(error)).ok();
                return;
            }
        };
        let mut decision = self.decide(uri, DecisionInput::Stop { request, target: &target });
        if let Some(reason) = decision.rejection.take() {
            done.send(Err(ChatError::Refused(reason))).ok();
            return;
        }
        let plan = std::mem::take(&mut decision.stop);
        let asks = plan.asked.is_some();
        let pending = PendingStop { request, plan, done };
        match self.chats.get_mut(uri) {
            Some(chat) if asks => {
                chat.stops.stops.push(pending);
                self.apply_decision(uri, decision).await;
            }
            Some(_) | None => {
                self.apply_decision(uri, decision).await;
                pending.answer(Ok(Vec::new()));
            }
        }
    }

    pub(super) async fn restart_agent(&mut self, uri: &ChannelUri, done: ChatReplySender<()>) {
        match self.pending_stops(uri).map(|stops| (stops.is_restarting_with_room(), stops)) {
            Ok((Ok(true), stops)) => {
                stops.restarts.push(done);
                return;
            }
            Ok((Ok(false), _)) => {}
            Ok((Err(error), _)) | Err(error) => {
                done.send(Err(error)).ok();
                return;
            }
        }
        let mut decision = self.decide(uri, DecisionInput::Restart);
        if let Some(reason) = decision.rejection.take() {
            done.send(Err(ChatError::Refused(reason))).ok();
            return;
        }
        match self.chats.get_mut(uri) {
            Some(chat) if decision.phase.is_some() => {
                chat.stops.restarting = true;
                chat.stops.restarts.push(done);
            }
            // There is no process.
            Some(_) | None => {
                done.send(Ok(())).ok();
            }
        }
        self.apply_decision(uri, decision).await;
    }

    fn pending_stops(&mut self, uri: &ChannelUri) -> Result<&mut PendingStops, ChatError> {
        let chat = self.chats.get_mut(uri).ok_or_else(|| ChatError::Unknown(uri.clone()))?;
        Ok(&mut chat.stops)
    }
}
