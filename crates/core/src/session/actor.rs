//! The task that owns a session and all of its chats.
//!
//! It takes inputs one by one, asks `decide` what follows, commits the actions and runs
//! the effects. While it handles an input it waits only for storage, and only for a short
//! time: turn boundaries and decisions are stored before they are published. Agents are
//! opened by separate tasks, and commands to an agent are sent without waiting. `chats`
//! holds the list of chats.

use std::sync::Arc;
use std::time::Duration;

use ahp_types::actions::StateAction;
use ahp_types::state::{ChatState, SessionState};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::addresses::ChatAddresses;
use super::chats::{Brief, Chat, ChatSeed, Chats, is_used};
use super::decide::{ActionTarget, Decision, DecisionInput, DecisionView, Effect, Phase, decide};
use super::handle::{ClientDispatch, EndWaiter, SessionEnding, SessionHandle, SessionInput};
use super::journal_writer::JournalWriter;
use crate::action::{AgentUpdate, meaning};
use crate::agent::{AgentCommand, AgentEvent, AgentProvider, History, HostConversation, ResourceToken};
use crate::channel::ChannelUri;
use crate::clock::{Clock, wire_time};
use crate::ids::ClientId;
use crate::state::StateStore;
use crate::storage::{Storage, StorageError};

/// Inputs that may wait in a session's queue. While it is full, the sending connection is
/// not read: only that client waits.
const INPUT_CAPACITY: usize = 64;

/// How often a session without agents checks whether it is still needed.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// How long a session without activity and subscribers stays in memory.
const UNLOAD_AFTER: Duration = Duration::from_secs(10 * 60);

/// How long an unused session without subscribers is kept. VS Code creates sessions that it
/// never uses, and a window that reloads subscribes again.
const DISPOSE_UNUSED_AFTER: Duration = Duration::from_secs(5 * 60);

/// The initial data of a session actor.
pub(crate) struct SessionSeed {
    /// The session's channel.
    pub uri: ChannelUri,
    /// Its chats.
    pub chats: Vec<ChatSeed>,
    /// When it was created.
    pub created_at: String,
    /// The agent provider of all its chats.
    pub provider: Arc<dyn AgentProvider>,
    /// The client that created it. Keeps an unused session alive while connected.
    pub creator: Option<ClientId>,
    /// Whether the session is in the session list.
    pub listed: bool,
    /// The number of the next journal entry.
    pub next_entry: u64,
    /// Whether the stored documents are out of date.
    pub stale: bool,
}

impl std::fmt::Debug for SessionSeed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("SessionSeed").field("uri", &self.uri).finish_non_exhaustive()
    }
}

/// The state of the session task.
pub(crate) struct SessionActor {
    pub(super) seed: SessionSeed,
    pub(super) store: Arc<StateStore>,
    pub(super) addresses: Arc<ChatAddresses>,
    pub(super) chats: Chats,
    /// Whether the session is in the session list.
    pub(super) listed: bool,
    pub(super) journal: JournalWriter,
    pub(super) clock: Arc<dyn Clock>,
    /// Counts helper tasks, so that shutdown waits for them.
    pub(super) tasks: TaskTracker,
    inputs: mpsc::Receiver<SessionInput>,
    /// For the tasks that open agents. Weak, so that the actor does not keep itself alive.
    pub(super) own_inputs: mpsc::WeakSender<SessionInput>,
    /// The start of this session's monotonic clock.
    pub(super) began: Instant,
    /// Since when the session has no subscribers and no activity.
    idle_since: Option<Instant>,
    /// Callers that wait for the end of the session.
    end_waiters: Vec<EndWaiter>,
    pub(super) ending: Option<SessionEnding>,
    /// Chats of other sessions that are being moved here.
    pub(super) expected_chats: usize,
    /// Requests to end that arrived while a chat was being moved here; handled afterwards.
    deferred_ends: Vec<(SessionEnding, EndWaiter)>,
    finished: bool,
}

/// Services that all session actors share.
#[derive(Clone)]
pub(crate) struct SessionServices {
    /// The published state.
    pub(crate) store: Arc<StateStore>,
    /// Persistent storage.
    pub(crate) storage: Arc<dyn Storage>,
    /// Maps chats to sessions.
    pub(crate) addresses: Arc<ChatAddresses>,
    /// The wall clock.
    pub(crate) clock: Arc<dyn Clock>,
    /// Counts helper tasks.
    pub(crate) tasks: TaskTracker,
}

impl SessionActor {
    /// Creates the actor and its handle. The session's channels must exist in the store.
    pub(crate) fn new(mut seed: SessionSeed, services: SessionServices) -> (Self, SessionHandle) {
        let SessionServices { store, storage, addresses, clock, tasks } = services;
        let (sender, inputs) = mpsc::channel(INPUT_CAPACITY);
        let handle = SessionHandle::new(sender.clone());
        let chats = std::mem::take(&mut seed.chats);
        let chats = Chats::new(chats.into_iter().map(|chat| Chat::new(chat, seed.provider.as_ref())));
        let mut actor = Self {
            chats,
            listed: seed.listed,
            journal: JournalWriter::new(storage, seed.uri.clone(), seed.next_entry),
            seed,
            store,
            addresses,
            clock,
            tasks,
            inputs,
            own_inputs: sender.downgrade(),
            began: Instant::now(),
            idle_since: None,
            end_waiters: Vec::new(),
            ending: None,
            expected_chats: 0,
            deferred_ends: Vec::new(),
            finished: false,
        };
        if actor.seed.stale {
            actor.journal.request_checkpoint();
        }
        (actor, handle)
    }

    /// Runs until the session has ended.
    pub(crate) async fn run(mut self) -> Ended {
        let mut reachable = true;
        while !self.finished {
            tokio::select! {
                // Client inputs first: a cancel must not wait for queued agent output.
                biased;
                input = self.inputs.recv(), if reachable => match input {
                    Some(input) => self.handle(input).await,
                    // All handles are dropped, so the session cannot be ended by request.
                    None => {
                        reachable = false;
                        self.end(SessionEnding::Suspend, None).await;
                    }
                },
                wake = self.journal.next() => self.handle_journal(wake),
                (chat, event) = self.chats.next_event() => self.handle_agent(&chat, event).await,
                () = tokio::time::sleep(IDLE_CHECK_INTERVAL), if self.is_cold() => self.check_idle().await,
            }
        }
        let ending = self.ending.unwrap_or(SessionEnding::Suspend);
        if ending != SessionEnding::Unload {
            self.reject_remaining_inputs("the session is closing").await;
        }
        let stored = match ending {
            SessionEnding::Dispose | SessionEnding::Unload => Ok(()),
            SessionEnding::Suspend => self.store_all().await,
        };
        let conversations = self.chats.iter().map(Chat::host_conversation).collect();
        Ended { ending, waiters: self.end_waiters, stored, conversations }
    }

    fn is_cold(&self) -> bool {
        self.chats.iter().all(|chat| matches!(chat.agent.phase, Phase::Cold(_)))
    }

    /// The session's channels.
    fn channels(&self) -> Vec<ChannelUri> {
        std::iter::once(self.seed.uri.clone()).chain(self.chats.uris()).collect()
    }

    /// Disposes of a session that was never used and has no subscribers, and unloads a
    /// used one that is idle.
    async fn check_idle(&mut self) {
        if self.expected_chats > 0 {
            return;
        }
        let channels = self.channels();
        let creator = self.seed.creator.as_ref().filter(|_| !self.listed);
        if self.store.has_audience(&channels, creator) {
            self.idle_since = None;
            return;
        }
        let since = *self.idle_since.get_or_insert_with(Instant::now);
        if !self.listed && since.elapsed() >= DISPOSE_UNUSED_AFTER {
            tracing::info!(session = %self.seed.uri, "disposing of unused session");
            self.end(SessionEnding::Dispose, None).await;
        } else if self.listed && since.elapsed() >= UNLOAD_AFTER {
            match self.store_all().await {
                Ok(()) => self.unload(&channels).await,
                Err(error) => {
                    tracing::error!(session = %self.seed.uri, %error, "cannot store session; keeping it in memory")
                }
            }
        }
    }

    /// Removes the session from memory, unless a client subscribed in the meantime.
    async fn unload(&mut self, channels: &[ChannelUri]) {
        if !self.inputs.is_empty() || !self.store.remove_unsubscribed(channels) {
            return;
        }
        self.reject_remaining_inputs("the session was unloaded; try again").await;
        self.ending = Some(SessionEnding::Unload);
        self.finished = true;
    }

    /// Closes the input queue and rejects the inputs that are still in it.
    async fn reject_remaining_inputs(&mut self, why: &str) {
        self.inputs.close();
        // This includes senders that have reserved a place and have not sent yet.
        while let Some(input) = self.inputs.recv().await {
            match input {
                SessionInput::Client(dispatch) => self.reject(&dispatch, why),
                // Suspend and unload do not delete the session; the caller has to try again.
                SessionInput::End { ending: SessionEnding::Dispose, done }
                    if self.ending != Some(SessionEnding::Dispose) =>
                {
                    done.send(Err(StorageError::Busy)).ok();
                }
                SessionInput::End { done, .. } => self.end_waiters.push(done),
                // Dropping the reply sender reports that the session is gone.
                SessionInput::Chats(_)
                | SessionInput::Opened(..)
                | SessionInput::Recorded(..)
                | SessionInput::ClientLeft(_)
                | SessionInput::Token(_) => {}
            }
        }
    }

    async fn handle(&mut self, input: SessionInput) {
        self.idle_since = None;
        match input {
            SessionInput::Client(dispatch) => self.handle_client(&dispatch).await,
            SessionInput::Opened(chat, Ok(link)) => {
                let Some(opened) = self.chats.get_mut(&chat) else { return };
                if matches!(opened.agent.phase, Phase::Closing(_)) {
                    link.close.cancel();
                }
                opened.link = Some(link);
                self.brief_after_opening(&chat);
                let decision = self.decide(&chat, DecisionInput::Opened);
                self.apply_decision(&chat, decision).await;
            }
            SessionInput::Recorded(chat, record) => self.link_by_order(&chat, &record),
            SessionInput::Opened(chat, Err(error)) => {
                tracing::warn!(session = %self.seed.uri, %chat, %error, "cannot open agent");
                let decision = self.decide(&chat, DecisionInput::OpenFailed(&error));
                self.apply_decision(&chat, decision).await;
            }
            SessionInput::ClientLeft(client) => self.handle_left(&client).await,
            SessionInput::Token(token) => self.handle_token(*token),
            SessionInput::Chats(order) => self.handle_order(order).await,
            SessionInput::End { ending, done } if self.expected_chats > 0 => {
                self.deferred_ends.push((ending, done))
            }
            SessionInput::End { ending, done } => self.end(ending, Some(done)).await,
        }
        if self.expected_chats == 0 {
            for (ending, done) in std::mem::take(&mut self.deferred_ends) {
                self.end(ending, Some(done)).await;
            }
        }
        self.finish_leaving_chats().await;
    }

    async fn handle_client(&mut self, dispatch: &ClientDispatch) {
        let (chat, target) = if dispatch.channel == self.seed.uri {
            (self.default_chat(), ActionTarget::Session)
        } else if self.chats.get(&dispatch.channel).is_some() {
            (Some(dispatch.channel.clone()), ActionTarget::Chat)
        } else {
            (None, ActionTarget::Chat)
        };
        let Some(chat) = chat else {
            self.reject(dispatch, "the chat was removed or is being moved to another session; try again");
            return;
        };
        let amended = self.amended(&chat, &dispatch.action);
        let published = amended.as_ref().unwrap_or(&dispatch.action);
        let action = published.typed();
        let input = DecisionInput::Client { target, action, client: &dispatch.origin.client };
        let mut decision = self.decide(&chat, input);
        if let Some(reason) = decision.rejection.take() {
            self.reject(dispatch, &reason);
            return;
        }
        if let Err(reason) = self.publish_for(dispatch, published).await {
            self.reject(dispatch, &reason);
            return;
        }
        if target == ActionTarget::Session {
            self.send_to_all_agents(&decision.effects);
            decision.effects.clear();
        }
        self.apply_decision(&chat, decision).await;
        self.project(&chat);
        match target {
            ActionTarget::Chat => self.start_waiting_message(&chat).await,
            ActionTarget::Session => {
                self.update_chat_directories(action).await;
                if meaning(action).told == Some(AgentUpdate::Settings) {
                    self.brief_all();
                }
                self.start_waiting_messages().await;
            }
        }
    }

    async fn handle_left(&mut self, client: &ClientId) {
        let Some(chat) = self.default_chat() else { return };
        let decision = self.decide(&chat, DecisionInput::ClientLeft(client));
        self.apply_decision(&chat, decision).await;
        self.brief_all();
        self.start_waiting_messages().await;
    }

    fn handle_token(&mut self, token: ResourceToken) {
        if let Some(chat) = self.default_chat() {
            let decision = self.decide(&chat, DecisionInput::Token(token));
            self.send_to_all_agents(&decision.effects);
        }
    }

    /// Sends the agent commands among session-wide effects to the agents of all chats.
    fn send_to_all_agents(&mut self, effects: &[Effect]) {
        for effect in effects {
            if let Effect::Agent(command) = effect {
                for chat in self.chats.iter_mut() {
                    chat.command(command.clone());
                }
            }
        }
    }

    /// Applies a change of the session's directories to each of its chats.
    async fn update_chat_directories(&mut self, action: &StateAction) {
        if meaning(action).told != Some(AgentUpdate::Directories) {
            return;
        }
        // A chat that is in transit may already belong to another session.
        let chats = self.chats.iter().filter(|chat| !chat.is_in_transit()).map(|chat| chat.uri.clone());
        for chat in chats.collect::<Vec<_>>() {
            let decision = self.decide(&chat, DecisionInput::Directories(action));
            self.apply_decision(&chat, decision).await;
        }
    }

    /// The chat that is used for session-wide decisions.
    pub(super) fn default_chat(&self) -> Option<ChannelUri> {
        let named = self.store.read(&self.seed.uri, |state| state.session()?.default_chat.clone()).flatten();
        let named = named.map(|uri| ChannelUri::new(&uri)).filter(|uri| self.chats.get(uri).is_some());
        named.or_else(|| self.chats.uris().next())
    }

    fn reject(&self, dispatch: &ClientDispatch, reason: &str) {
        tracing::debug!(session = %self.seed.uri, reason, "client action rejected");
        if let Err(error) = self.store.reject(&dispatch.channel, &dispatch.action, &dispatch.origin, reason) {
            tracing::error!(session = %self.seed.uri, %error, "cannot send rejection");
        }
    }

    async fn handle_agent(&mut self, chat: &ChannelUri, event: Option<AgentEvent>) {
        let history = || self.chats.get(chat).map_or(History::Resume, |chat| chat.agent.phase.history());
        let mut event = event.unwrap_or_else(|| AgentEvent::Closed { history: history(), unsent: None });
        let closed = matches!(event, AgentEvent::Closed { .. });
        if let (AgentEvent::Closed { unsent, .. }, Some(chat)) = (&mut event, self.chats.get_mut(chat)) {
            chat.link = None;
            let undelivered = chat.undelivered.take();
            *unsent = unsent.take().or(undelivered);
        }
        self.brief_if_outdated(chat, Brief::IfRoom);
        let Some(event) = self.route_to_child(chat, event).await else { return };
        if closed {
            self.end_children(chat).await;
        }
        let configures = matches!(event, AgentEvent::ConfigChanged { .. });
        let decision = self.decide(chat, DecisionInput::Agent(event));
        self.apply_decision(chat, decision).await;
        if configures {
            // The other chats' agents use the same configuration.
            self.brief_all();
        }
        if closed {
            self.finish_leaving_chats().await;
        }
    }

    async fn end(&mut self, ending: SessionEnding, done: Option<EndWaiter>) {
        self.end_waiters.extend(done);
        // The `ShowRow` order after a released chat may not arrive any longer.
        self.project_row();
        // A dispose during shutdown still deletes the session.
        if self.ending != Some(SessionEnding::Dispose) {
            self.ending = Some(ending);
        }
        for chat in self.chats.uris().collect::<Vec<_>>() {
            let decision = self.decide(&chat, DecisionInput::End(ending));
            self.apply_decision(&chat, decision).await;
        }
        self.finish_leaving_chats().await;
    }

    /// Removes chats that are finished, and ends the session after the last one.
    async fn finish_leaving_chats(&mut self) {
        self.complete_leaving().await;
        self.finished |= self.ending.is_some() && self.chats.iter().all(|chat| chat.finished);
    }

    pub(super) fn decide(&self, chat: &ChannelUri, input: DecisionInput<'_>) -> Decision {
        let Some(Chat { agent, .. }) = self.chats.get(chat) else { return Decision::default() };
        let (now, time) = (self.began.elapsed(), wire_time(self.clock.now()));
        self.store
            .read_both((&self.seed.uri, chat), |session, chat| {
                let (session, doc) = (session.session()?, chat.chat_doc()?);
                let (chat, turns) = (doc.open(), doc.turns());
                let has_agent = self.chats.iter().any(|chat| chat.link.is_some());
                Some(decide(agent, DecisionView { session, chat, turns, has_agent, now, time: &time }, input))
            })
            .flatten()
            .unwrap_or_default()
    }

    pub(super) fn run_effect(&mut self, uri: &ChannelUri, effect: Effect) {
        if let Effect::OpenAgent { history, answer } = effect {
            self.open_agent(uri, history, answer);
            return;
        }
        if let Effect::UpdateDirectories = effect {
            self.brief(uri, Brief::IfRoom);
            return;
        }
        if matches!(effect, Effect::Agent(AgentCommand::Prompt { .. })) {
            self.brief_if_outdated(uri, Brief::First);
        }
        // Child chats use the agent of their parent.
        let parent = self.chats.get(uri).and_then(|chat| chat.parent.clone());
        let agent = parent.as_ref().filter(|_| matches!(effect, Effect::Agent(_))).unwrap_or(uri);
        let Some(chat) = self.chats.get_mut(agent) else { return };
        match effect {
            Effect::Agent(command) => chat.command(command),
            // A live agent gets time to shut down cleanly; an agent that is still being
            // opened is cancelled.
            Effect::CloseAgent => match &chat.link {
                Some(link) => link.close.cancel(),
                None => chat.opening.cancel(),
            },
            Effect::Finish => chat.finished = true,
            Effect::OpenAgent { .. } | Effect::UpdateDirectories => {}
        }
    }

    /// Adds the session to the session list with the next update of its row.
    pub(super) fn add_to_list(&mut self) {
        if !self.listed {
            self.listed = true;
            self.journal.request_checkpoint();
        }
    }

    /// Whether the session has content that must be kept.
    pub(super) fn is_used(&self) -> bool {
        let used = |chat: &ChannelUri| self.store.read(chat, |state| state.chat_doc().is_some_and(is_used));
        self.chats.iter().count() > 1 || self.chats.uris().any(|chat| used(&chat).unwrap_or(false))
    }

    pub(super) fn with_state<R>(
        &self,
        chat: &ChannelUri,
        look: impl FnOnce(&SessionState, &ChatState) -> R,
    ) -> Option<R> {
        self.store
            .read_both((&self.seed.uri, chat), |session, chat| Some(look(session.session()?, chat.chat()?)))
            .flatten()
    }
}

/// The result of a stopped actor.
pub(crate) struct Ended {
    pub(crate) ending: SessionEnding,
    pub(crate) waiters: Vec<EndWaiter>,
    /// Whether everything that must be kept is stored.
    pub(crate) stored: Result<(), StorageError>,
    /// The conversations of the session's chats.
    pub(crate) conversations: Vec<HostConversation>,
}
