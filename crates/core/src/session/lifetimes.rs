//! How long the agents of a session keep their processes.
//!
//! An agent that has had nothing to do for some time is told to end its process; the next
//! message opens another one, which resumes the conversation. An agent can also be opened in
//! advance, when a client begins to write a message. Clients notice neither.
//!
//! A session has one timer. A chat for which it fires is checked; a busy one is checked again
//! after the next event or client action, so nothing is polled.

use std::sync::Arc;

use ahp_types::actions::ChatDraftChangedAction;
use ahp_types::state::ChatState;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::actor::SessionActor;
use super::chats::Chat;
use super::decide::{DecisionInput, Phase};
use crate::agent::AgentCommand;
use crate::channel::ChannelUri;
use crate::host::AgentLifetimes;
use crate::state::ChannelState;

/// Most agents of one host that are opened in advance and wait for their first message.
const MAX_PREWARMED: usize = 4;

/// The rules for all sessions of a host.
#[derive(Clone, Debug)]
pub(crate) struct LifetimeRules {
    lifetimes: AgentLifetimes,
    /// Places for agents that are opened in advance.
    places: Arc<Semaphore>,
}

impl LifetimeRules {
    pub(crate) fn new(lifetimes: AgentLifetimes) -> Self {
        Self { lifetimes, places: Arc::new(Semaphore::new(MAX_PREWARMED)) }
    }
}

/// What is known about the lifetime of a chat's agent.
#[derive(Debug, Default)]
pub(super) struct ChatLifetime {
    /// Since when the agent may have had nothing to do. `None` while it certainly has, or
    /// until its next event.
    quiet_since: Option<Instant>,
    /// Whether a turn is running.
    in_turn: bool,
    /// The place of an agent that was opened in advance and has had no message.
    place: Option<OwnedSemaphorePermit>,
    /// Whether an agent that was opened in advance has failed since the last message. Clients send
    /// a draft with each key, so no other one is opened before the next message.
    has_failed: bool,
    /// Whether the host has told the agent to end its process.
    is_released: bool,
}

impl ChatLifetime {
    /// Something happened in the chat. The time starts again.
    pub(super) fn touch(&mut self) {
        self.quiet_since = (!self.in_turn).then(Instant::now);
    }

    /// A turn begins, so the agent is no longer unused.
    pub(super) fn turn_began(&mut self) {
        *self = Self { in_turn: true, ..Self::default() };
    }

    pub(super) fn turn_ended(&mut self) {
        self.in_turn = false;
        self.touch();
    }

    /// The agent has closed. `is_restart` says that it closed for changed settings.
    pub(super) fn closed(&mut self, is_restart: bool) {
        let is_expected = std::mem::take(&mut self.is_released) || is_restart;
        self.has_failed |= self.place.take().is_some() && !is_expected;
    }

    /// Opening the agent failed.
    pub(super) fn open_failed(&mut self) {
        self.has_failed |= self.place.take().is_some();
    }
}

impl Chat {
    /// When the agent has to be checked.
    fn check_at(&self, rules: &LifetimeRules) -> Option<Instant> {
        if !self.agent.features.release || !matches!(self.agent.phase, Phase::Live(_)) {
            return None;
        }
        let AgentLifetimes { idle, unused, .. } = rules.lifetimes;
        let time = if self.lifetime.place.is_some() { Some(unused) } else { idle };
        self.lifetime.quiet_since?.checked_add(time?)
    }
}

impl SessionActor {
    /// When the next agent has to be checked.
    pub(super) fn next_lifetime_check(&self) -> Option<Instant> {
        self.chats.iter().filter_map(|chat| chat.check_at(&self.lifetime_rules)).min()
    }

    /// Releases the agents that have had nothing to do for long enough.
    pub(super) fn release_idle_agents(&mut self) {
        let now = Instant::now();
        let is_due = |chat: &&Chat| chat.check_at(&self.lifetime_rules).is_some_and(|at| at <= now);
        let due: Vec<ChannelUri> = self.chats.iter().filter(is_due).map(|chat| chat.uri.clone()).collect();
        for uri in due {
            let is_busy = self.is_busy(&uri);
            let Some(chat) = self.chats.get_mut(&uri) else { continue };
            if is_busy {
                chat.lifetime.quiet_since = None;
            } else {
                tracing::debug!(chat = %uri, "releasing idle agent");
                chat.command(AgentCommand::Release);
                chat.lifetime.is_released = true;
                // The agent may know of work that is not shown, and is then asked again.
                chat.lifetime.quiet_since = Some(now);
            }
        }
    }

    /// Whether the chat or a subagent of it has work.
    fn is_busy(&self, uri: &ChannelUri) -> bool {
        let store = self.publisher.store();
        let holds_queue = self.chats.get(uri).is_some_and(|chat| chat.agent.queue_held);
        let has_work = |state: &ChannelState| state.chat().is_some_and(|chat| has_work(chat, holds_queue));
        store.read(uri, has_work).unwrap_or(false)
            || self.chats.children_of(uri).iter().any(|child| self.publisher.has_running_turn(child))
    }

    /// Opens the agent of a chat in advance, after a client has changed the draft.
    pub(super) async fn prewarm(&mut self, uri: &ChannelUri, changed: &ChatDraftChangedAction) {
        let is_written = changed.draft.as_ref().is_some_and(|draft| {
            !draft.text.trim().is_empty() || draft.attachments.as_ref().is_some_and(|all| !all.is_empty())
        });
        let is_open =
            |chat: &Chat| chat.lifetime.place.is_some() || (chat.uri == *uri && chat.lifetime.has_failed);
        if self.drain.is_draining() {
            return;
        }
        if !is_written || !self.lifetime_rules.lifetimes.prewarm || self.chats.iter().any(is_open) {
            return;
        }
        let decision = self.decide(uri, DecisionInput::Prewarm);
        if decision.phase.is_none() {
            return;
        }
        let Ok(place) = Arc::clone(&self.lifetime_rules.places).try_acquire_owned() else { return };
        let Some(chat) = self.chats.get_mut(uri) else { return };
        chat.lifetime.place = Some(place);
        self.apply_decision(uri, decision).await;
    }
}

/// Whether a chat has a running turn, a waiting message or work in the background. Messages of a held
/// queue are not work: only a client can continue the queue, and may never do so.
fn has_work(chat: &ChatState, holds_queue: bool) -> bool {
    let is_waiting = chat.steering_message.is_some()
        || chat.queued_messages.as_ref().is_some_and(|waiting| !waiting.is_empty());
    chat.active_turn.is_some()
        || (is_waiting && !holds_queue)
        || chat.background_work.as_ref().is_some_and(|work| !work.is_empty())
}

/// Completes at a time; never, if there is none.
pub(super) async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
