//! The task that owns a session and all of its chats.
//!
//! It takes inputs one by one, asks `decide` what follows, commits the actions and runs
//! the effects. While it handles an input it waits only for storage, and only for a short
//! time: turn boundaries and users' choices are stored before they are published. Agents are
//! opened by separate tasks, and commands to an agent are sent without waiting. `chats`
//! holds the list of chats.

use std::sync::Arc;

use ahp_types::actions::StateAction;
use ahp_types::state::{ChangesSummary, SessionState};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::addresses::ChatAddresses;
use super::amend::amended;
use super::attached_content::ContentSources;
use super::briefing::Brief;
use super::chats::{Chat, ChatSeed, Chats};
use super::decide::{
    ActionTarget, Decision, DecisionInput, DecisionView, FirstExchange, Phase, QueueEffect, decide,
    first_exchange,
};
use super::handle::{ClientDispatch, EndWaiter, SessionEnding, SessionHandle, SessionInput};
use super::idle::IDLE_CHECK_INTERVAL;
use super::lifetimes::{LifetimeRules, sleep_until};
use super::opening::AgentOpener;
use super::policy_inputs::{PolicyInputs, SessionRules, workspace_of};
use super::projection;
use super::publisher::{Publisher, PublisherSeed};
use super::repository::SessionRepository;
use super::titles::SessionTitle;
use super::transfer::ExpectedChats;
use crate::action::{AgentUpdate, meaning};
use crate::agent::{
    AgentConnection, AgentEvent, AgentProvider, ConversationRecords, History, HostConversation, OpenError,
    PermissionQuery, ResourceToken,
};
use crate::changesets::Changesets;
use crate::channel::ChannelUri;
use crate::clock::Clock;
use crate::edits::{EditLog, SessionChangeCounts};
use crate::host::DrainFlag;
use crate::ids::ClientId;
use crate::permission_rules::PermissionRules;
use crate::projects::Projects;
use crate::state::{ChannelState, StateStore};
use crate::storage::{Storage, StorageError};
use crate::titles::TitleWriter;
use crate::usage::ModelUse;

/// Inputs that may wait in a session's queue. While it is full, the handler of the sending
/// connection waits; other clients do not.
const INPUT_CAPACITY: usize = 64;

/// Why turns are rejected while the host waits for the running ones.
const HOST_STOPPING: &str = "the host is stopping; send the message again when it runs again";

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
    /// The counts of changes in its row.
    pub changes: Option<ChangesSummary>,
}

impl std::fmt::Debug for SessionSeed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("SessionSeed").field("uri", &self.uri).finish_non_exhaustive()
    }
}

/// The state of the session task.
pub(crate) struct SessionActor {
    /// The session's channel.
    pub(super) uri: ChannelUri,
    /// The client that created the session. Keeps an unused session alive while connected.
    pub(super) creator: Option<ClientId>,
    pub(super) publisher: Publisher,
    pub(super) opener: AgentOpener,
    pub(super) addresses: Arc<ChatAddresses>,
    pub(super) changesets: Arc<Changesets>,
    /// The git repository that the session works in.
    pub(super) repository: SessionRepository,
    /// The generated title.
    pub(super) title: SessionTitle,
    pub(super) chats: Chats,
    /// The session's own permission rules.
    session_rules: SessionRules,
    /// The permission rules of all sessions.
    pub(super) permission_rules: Arc<PermissionRules>,
    /// Whether the session is in the session list.
    pub(super) listed: bool,
    pub(super) inputs: mpsc::Receiver<SessionInput>,
    /// Since when the session has no subscribers and no activity.
    pub(super) idle_since: Option<Instant>,
    /// Callers that wait for the end of the session.
    end_waiters: Vec<EndWaiter>,
    pub(super) ending: Option<SessionEnding>,
    /// Chats of other sessions that are being moved here.
    pub(super) expected: ExpectedChats,
    pub(super) finished: bool,
    /// What the agents used since the session's `_meta` was updated.
    pub(super) used: ModelUse,
    /// How long agents keep their processes.
    pub(super) lifetime_rules: LifetimeRules,
    /// Whether the host lets running turns end before it stops.
    pub(super) drain: DrainFlag,
    /// Where the content of attachments is read.
    pub(super) content: ContentSources,
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
    /// The permission rules of all sessions.
    pub(crate) permission_rules: Arc<PermissionRules>,
    /// The edit log.
    pub(crate) edits: Arc<dyn EditLog>,
    /// The changesets that clients look at.
    pub(crate) changesets: Arc<Changesets>,
    /// The repositories that sessions work in.
    pub(crate) projects: Arc<dyn Projects>,
    /// Writes titles of sessions.
    pub(crate) titles: Arc<dyn TitleWriter>,
    /// How long agents keep their processes.
    pub(crate) lifetime_rules: LifetimeRules,
    /// Whether the host lets running turns end before it stops.
    pub(crate) drain: DrainFlag,
    /// Counts helper tasks.
    pub(crate) tasks: TaskTracker,
}

impl SessionActor {
    /// Creates the actor and its handle. The session's channels must exist in the store.
    pub(crate) fn new(seed: SessionSeed, services: SessionServices) -> (Self, SessionHandle) {
        let SessionServices {
            store,
            storage,
            addresses,
            clock,
            permission_rules,
            edits,
            changesets,
            projects,
            titles,
            lifetime_rules,
            drain,
            tasks,
        } = services;
        let SessionSeed { uri, chats, created_at, provider, creator, listed, next_entry, stale, changes } =
            seed;
        let (sender, inputs) = mpsc::channel(INPUT_CAPACITY);
        let handle = SessionHandle::new(sender.clone());
        let chats = Chats::new(chats.into_iter().map(|chat| Chat::new(chat, provider.as_ref())));
        let session = uri.clone();
        let content = ContentSources {
            storage: Arc::clone(&storage),
            store: Arc::clone(&store),
            addresses: Arc::clone(&addresses),
        };
        let seed = PublisherSeed { session, created_at, next_entry, changes, storage, store, clock };
        let mut publisher = Publisher::new(seed);
        if stale {
            publisher.request_checkpoint();
        }
        let actor = Self {
            creator,
            publisher,
            opener: AgentOpener { provider, session: uri.clone(), edits, tasks, inputs: sender.downgrade() },
            uri,
            addresses,
            changesets,
            repository: SessionRepository::new(projects),
            title: SessionTitle::new(titles),
            chats,
            session_rules: SessionRules::default(),
            permission_rules,
            listed,
            inputs,
            idle_since: None,
            end_waiters: Vec::new(),
            ending: None,
            expected: ExpectedChats::default(),
            finished: false,
            used: ModelUse::default(),
            lifetime_rules,
            drain,
            content,
        };
        (actor, handle)
    }

    /// Runs until the session has ended.
    pub(crate) async fn run(mut self) -> Ended {
        let mut reachable = true;
        self.follow_repository();
        while !self.finished {
            let lifetime_check = sleep_until(self.next_lifetime_check());
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
                wake = self.publisher.next_wake() => self.publisher.handle_wake(wake, &self.chats),
                (chat, event) = self.chats.next_event() => self.handle_agent(&chat, event).await,
                () = self.repository.changed() => self.project_row(),
                () = lifetime_check => self.release_idle_agents(),
                () = tokio::time::sleep(IDLE_CHECK_INTERVAL), if self.is_cold() => self.check_idle().await,
            }
        }
        let ending = self.ending.unwrap_or(SessionEnding::Suspend);
        if ending != SessionEnding::Unload {
            self.reject_remaining_inputs("the session is closing").await;
        }
        let stored = match ending {
            SessionEnding::Dispose | SessionEnding::Unload => Ok(()),
            SessionEnding::Suspend => self.publisher.store_all(&self.chats).await,
        };
        let conversations = self.chats.iter().map(Chat::host_conversation).collect();
        let records = self.records();
        Ended { ending, waiters: self.end_waiters, stored, records, conversations }
    }

    /// Closes the input queue and rejects the inputs that are still in it.
    pub(super) async fn reject_remaining_inputs(&mut self, why: &str) {
        self.inputs.close();
        // This includes senders that have reserved a place and have not sent yet.
        while let Some(input) = self.inputs.recv().await {
            match input {
                SessionInput::Client(dispatch) => self.publisher.reject(&dispatch, why),
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
                | SessionInput::Counted(_)
                | SessionInput::TitleWritten(..)
                | SessionInput::Token(_) => {}
            }
        }
    }

    async fn handle(&mut self, input: SessionInput) {
        self.idle_since = None;
        match input {
            SessionInput::Client(dispatch) => self.handle_client(&dispatch).await,
            SessionInput::Opened(chat, opened) => self.handle_opened(&chat, opened).await,
            SessionInput::Recorded(chat, record) => {
                if let Some(chat) = self.chats.get_mut(&chat) {
                    chat.link_by_order(&record, &mut self.publisher);
                }
            }
            SessionInput::ClientLeft(client) => self.handle_left(&client).await,
            SessionInput::Token(token) => self.handle_token(*token).await,
            SessionInput::Counted(counts) => self.handle_counts(&counts),
            SessionInput::TitleWritten(chat, title) => self.handle_title(&chat, &title).await,
            SessionInput::Chats(order) => self.handle_order(order).await,
            SessionInput::End { ending, done } => self.expected.defer_end(ending, done),
        }
        for (ending, done) in self.expected.take_ends() {
            self.end(ending, Some(done)).await;
        }
        self.finish_leaving_chats().await;
    }

    async fn handle_client(&mut self, dispatch: &ClientDispatch) {
        let (chat, target) = if dispatch.channel == self.uri {
            (self.default_chat(), ActionTarget::Session)
        } else {
            (self.chats.get(&dispatch.channel).map(|chat| chat.uri.clone()), ActionTarget::Chat)
        };
        let Some(chat) = chat else {
            let reason = match target {
                ActionTarget::Session => "the session has no chat",
                ActionTarget::Chat => "the chat was removed or is being moved to another session; try again",
            };
            self.publisher.reject(dispatch, reason);
            return;
        };
        let start = meaning(dispatch.action.typed()).begins_turn().then(|| self.drain.start_turn());
        if let Some(None) = start {
            self.publisher.reject(dispatch, HOST_STOPPING);
            return;
        }
        let client = &dispatch.ticket.origin().client;
        let amended = amended(self.publisher.store(), (&self.uri, &chat), client, &dispatch.action);
        let published = amended.as_ref().unwrap_or(&dispatch.action);
        let action = published.typed();
        let input = DecisionInput::Client { target, action, client };
        let mut decision = self.decide(&chat, input);
        let accepted = match decision.rejection.take() {
            Some(reason) => Err(reason),
            None => {
                if meaning(action).ends_turn() {
                    self.end_text(&chat).await;
                }
                let limited = self.limit_client_output(&chat, action).await;
                self.publisher.store_snapshots(&chat, dispatch.snapshots.clone()).await;
                self.publisher.publish_client_action(dispatch, limited.as_ref().unwrap_or(published)).await
            }
        };
        if let Err(reason) = accepted {
            self.publisher.reject(dispatch, &reason);
            return;
        }
        self.after_commit(&dispatch.channel, action, QueueEffect::of_client(action));
        if target == ActionTarget::Session || self.default_chat().as_ref() == Some(&chat) {
            self.title.note(action);
        }
        drop(start);
        self.apply_decision(&chat, decision).await;
        self.project(&chat);
        match target {
            ActionTarget::Chat => {
                if let Some(chat) = self.chats.get_mut(&chat) {
                    chat.lifetime.touch();
                }
                if let StateAction::ChatDraftChanged(changed) = action {
                    self.prewarm(&chat, changed).await;
                }
                if matches!(action, StateAction::ChatToolCallConfirmed(_)) {
                    // The answer may have added rules or changed the mode.
                    self.brief_agents();
                    self.reconsider_permissions().await;
                }
                self.start_waiting_message(&chat).await;
            }
            ActionTarget::Session => {
                self.update_agents(action).await;
                self.start_waiting_messages().await;
            }
        }
    }

    async fn handle_opened(&mut self, uri: &ChannelUri, opened: Result<AgentConnection, OpenError>) {
        let connection = match opened {
            Ok(connection) => connection,
            Err(error) => {
                tracing::warn!(session = %self.uri, chat = %uri, %error, "cannot open agent");
                if let Some(chat) = self.chats.get_mut(uri) {
                    chat.lifetime.open_failed();
                }
                self.decide_and_apply(uri, DecisionInput::OpenFailed(&error)).await;
                self.answer_stops(uri);
                return;
            }
        };
        let Some(chat) = self.chats.get_mut(uri) else { return };
        if matches!(chat.agent.phase, Phase::Closing(_)) {
            connection.close.cancel();
        }
        if chat.stops.is_restarting() {
            // It opened although it was cancelled.
            connection.close.cancel();
            chat.connection = Some(connection);
            return;
        }
        chat.connection = Some(connection);
        chat.lifetime.touch();
        chat.brief_after_opening(&self.publisher);
        self.decide_and_apply(uri, DecisionInput::Opened).await;
    }

    async fn handle_left(&mut self, client: &ClientId) {
        let Some(chat) = self.default_chat() else { return };
        self.decide_and_apply(&chat, DecisionInput::ClientLeft(client)).await;
        self.brief_agents();
        self.start_waiting_messages().await;
    }

    async fn handle_token(&mut self, token: ResourceToken) {
        if let Some(chat) = self.default_chat() {
            self.decide_and_apply(&chat, DecisionInput::Token(token)).await;
        }
    }

    /// Publishes the counts of the session's changes, where they differ.
    fn handle_counts(&mut self, counts: &SessionChangeCounts) {
        let updates = |session: &SessionState| projection::count_updates(session, counts);
        for update in self.publisher.with_session(updates).unwrap_or_default() {
            self.publisher.publish_derived(update);
        }
        self.publisher.set_counts(counts.session);
        self.project_row();
    }

    /// Sends changed session data to the agents of all chats.
    fn brief_agents(&mut self) {
        for chat in self.chats.iter_mut() {
            chat.update_briefing(&self.publisher, Brief::IfRoom);
        }
    }

    /// Updates all agents after a change of the session.
    async fn update_agents(&mut self, action: &StateAction) {
        match meaning(action).agent_update {
            Some(AgentUpdate::Settings) => {
                self.brief_agents();
                self.reconsider_permissions().await;
            }
            Some(AgentUpdate::Directories) => {
                self.follow_repository();
                self.update_chat_directories(action).await;
            }
            None => {}
        }
    }

    /// Applies a change of the session's directories to each of its chats.
    async fn update_chat_directories(&mut self, action: &StateAction) {
        // A chat that is in transit may already belong to another session.
        let chats = self.chats.iter().filter(|chat| !chat.is_in_transit()).map(|chat| chat.uri.clone());
        for chat in chats.collect::<Vec<_>>() {
            self.decide_and_apply(&chat, DecisionInput::Directories(action)).await;
        }
    }

    /// The chat that is used for session-wide decisions.
    pub(super) fn default_chat(&self) -> Option<ChannelUri> {
        let named = self.publisher.with_session(|session| session.default_chat.clone()).flatten();
        let named = named.map(|uri| ChannelUri::new(&uri)).filter(|uri| self.chats.get(uri).is_some());
        named.or_else(|| self.chats.uris().next())
    }

    async fn handle_agent(&mut self, chat: &ChannelUri, event: Option<AgentEvent>) {
        let history = || self.chats.get(chat).map_or(History::Resume, |chat| chat.agent.phase.history());
        let mut event =
            event.unwrap_or_else(|| AgentEvent::Closed { history: history(), unsent: None, restart: None });
        let closed = matches!(event, AgentEvent::Closed { .. });
        if let Some(chat) = self.chats.get_mut(chat) {
            chat.lifetime.touch();
        }
        if let (AgentEvent::Closed { unsent, restart, .. }, Some(chat)) =
            (&mut event, self.chats.get_mut(chat))
        {
            chat.connection = None;
            chat.lifetime.closed(restart.is_some() || chat.stops.is_restarting());
            let undelivered = chat.undelivered.take();
            *unsent = unsent.take().or(undelivered);
        }
        if let Some(chat) = self.chats.get_mut(chat) {
            chat.update_if_outdated(&self.publisher, Brief::IfRoom);
        }
        let Some(event) = self.route_to_child(chat, event).await else { return };
        if closed {
            self.end_children(chat).await;
        }
        if let AgentEvent::PermissionRequested(query) = event {
            return self.decide_permission(chat, *query).await;
        }
        if let AgentEvent::WorkStopped { request, result } = event {
            if let Some(chat) = self.chats.get_mut(chat) {
                chat.stops.answer(request, result);
            }
            return;
        }
        let configures = matches!(event, AgentEvent::ConfigChanged { .. });
        self.decide_and_apply(chat, DecisionInput::Agent(event)).await;
        if configures {
            // The other chats' agents use the same configuration.
            self.brief_agents();
            self.reconsider_permissions().await;
        }
        if closed {
            self.answer_stops(chat);
            self.finish_leaving_chats().await;
        }
    }

    /// Answers the requests to stop work of a chat whose agent has closed.
    fn answer_stops(&mut self, chat: &ChannelUri) {
        self.chats.get_mut(chat).into_iter().for_each(|chat| chat.stops.agent_closed());
    }

    /// Decides about a tool call.
    async fn decide_permission(&mut self, chat: &ChannelUri, query: PermissionQuery) {
        let Some(policy) = self.policy_inputs(&query) else { return };
        self.decide_and_apply(chat, DecisionInput::Permission(query, &policy)).await;
    }

    /// Decides again about the tool calls that users are asked about.
    async fn reconsider_permissions(&mut self) {
        for chat in self.chats.uris().collect::<Vec<_>>() {
            let open = self.chats.get(&chat).and_then(|chat| chat.agent.permissions.first_open().cloned());
            let Some(policy) = open.and_then(|query| self.policy_inputs(&query)) else { continue };
            self.decide_and_apply(&chat, DecisionInput::PolicyChanged(&policy)).await;
        }
    }

    /// The rules and the mode for a tool call.
    fn policy_inputs(&mut self, query: &PermissionQuery) -> Option<PolicyInputs> {
        let base = workspace_of(query);
        let (own, host) = (&mut self.session_rules, &self.permission_rules);
        let channels = (&ChannelUri::root(), &self.uri);
        let inputs = |root: &ChannelState, session: &ChannelState| {
            let config = root.root().and_then(|root| root.config.as_ref()).map(|config| &config.values);
            Some(PolicyInputs::new(own, host, session.session()?, config, base))
        };
        self.publisher.store().read_both(channels, inputs).flatten()
    }

    pub(super) async fn end(&mut self, ending: SessionEnding, done: Option<EndWaiter>) {
        self.end_waiters.extend(done);
        // The `ShowRow` order after a released chat may not arrive any longer.
        self.project_row();
        // A dispose during shutdown still deletes the session.
        if self.ending != Some(SessionEnding::Dispose) {
            self.ending = Some(ending);
        }
        for chat in self.chats.uris().collect::<Vec<_>>() {
            self.decide_and_apply(&chat, DecisionInput::End(ending)).await;
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
        self.with_view(chat, |view| decide(agent, view, input)).unwrap_or_default()
    }

    /// The first exchange of the session, if it was just completed in this chat.
    pub(super) fn first_exchange(&self, chat: &ChannelUri) -> Option<FirstExchange> {
        self.with_view(chat, first_exchange).flatten()
    }

    fn with_view<R>(&self, chat: &ChannelUri, look: impl FnOnce(DecisionView<'_>) -> R) -> Option<R> {
        let (now, time) = (self.publisher.elapsed(), self.publisher.wire_time());
        let has_agent = self.chats.iter().any(|chat| chat.connection.is_some());
        let looking = |session: &ChannelState, chat: &ChannelState| {
            let (session, doc) = (session.session()?, chat.chat_doc()?);
            let (chat, turns) = (doc.open(), doc.turns());
            Some(look(DecisionView { session, chat, turns, has_agent, now, time: &time }))
        };
        self.publisher.store().read_both((&self.uri, chat), looking).flatten()
    }

    /// Decides about an input for a chat and applies the decision.
    pub(super) async fn decide_and_apply(&mut self, chat: &ChannelUri, input: DecisionInput<'_>) {
        let decision = self.decide(chat, input);
        self.apply_decision(chat, decision).await;
    }
}

/// The result of a stopped actor.
pub(crate) struct Ended {
    pub(crate) ending: SessionEnding,
    pub(crate) waiters: Vec<EndWaiter>,
    /// Whether everything that must be kept is stored.
    pub(crate) stored: Result<(), StorageError>,
    /// The records of the session's agent.
    pub(crate) records: Option<Arc<dyn ConversationRecords>>,
    /// The conversations of the session's chats.
    pub(crate) conversations: Vec<HostConversation>,
}
