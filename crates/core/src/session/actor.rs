//! The one task that owns a session, with all of its chats.
//!
//! It takes inputs one by one, asks `decide` what follows, commits the actions and
//! runs the effects. Beside its next input it waits for one thing only, and not for
//! long: that the storage has a boundary or a decision before it is published. The
//! agents are opened by tasks beside it, and commands to an agent are handed over
//! without waiting. Which chats there are is the business of `chats`.

use std::sync::Arc;
use std::time::Duration;

use ahp_types::actions::StateAction;
use ahp_types::state::{ChatState, SessionState};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::addresses::ChatAddresses;
use super::chats::{Brief, Chat, ChatSeed, Chats, is_used};
use super::decide::{Decision, Effect, Input, Phase, Target, View, decide};
use super::handle::{ClientDispatch, Ending, SessionHandle, SessionInput, Waiting};
use super::ledger::Ledger;
use crate::action::{AgentUpdate, meaning};
use crate::agent::{AgentCommand, AgentEvent, AgentProvider, History, ResourceToken};
use crate::channel::ChannelUri;
use crate::clock::{Clock, wire_time};
use crate::ids::ClientId;
use crate::state::StateStore;
use crate::storage::{Storage, StorageError};

/// Inputs that may wait at a session. When it is full, the connection that sends
/// is not read on: its client waits, and no other.
const INPUT_CAPACITY: usize = 64;

/// How often a session without agents is looked after.
const LOOK_AFTER: Duration = Duration::from_secs(30);

/// How long a session stays in memory when nothing happens in it and nobody watches.
const UNUSED_AFTER: Duration = Duration::from_secs(10 * 60);

/// How long a session that was never used stays when nobody is there for it. VS Code
/// creates sessions that it throws away, and a window that reloads comes back.
const ABANDONED_AFTER: Duration = Duration::from_secs(5 * 60);

/// What a new session starts from.
pub(crate) struct SessionSeed {
    /// The session's channel.
    pub uri: ChannelUri,
    /// Its chats.
    pub chats: Vec<ChatSeed>,
    /// When it was created.
    pub created_at: String,
    /// The agent that works in it.
    pub provider: Arc<dyn AgentProvider>,
    /// The client that created it, which may still want it.
    pub creator: Option<ClientId>,
    /// Whether the session is in the list.
    pub listed: bool,
    /// The number of its next journal entry.
    pub next_entry: u64,
    /// Whether its documents have to be written.
    pub stale: bool,
}

impl std::fmt::Debug for SessionSeed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("SessionSeed").field("uri", &self.uri).finish_non_exhaustive()
    }
}

/// The task's state.
pub(crate) struct SessionActor {
    pub(super) seed: SessionSeed,
    pub(super) store: Arc<StateStore>,
    pub(super) addresses: Arc<ChatAddresses>,
    pub(super) chats: Chats,
    /// Whether the session is in the list that every client sees.
    pub(super) listed: bool,
    pub(super) ledger: Ledger,
    pub(super) clock: Arc<dyn Clock>,
    /// Where tasks beside the actor are counted, so that shutdown waits for them.
    pub(super) tasks: TaskTracker,
    inputs: mpsc::Receiver<SessionInput>,
    /// For the tasks that open agents. Weak: the actor must not keep itself alive.
    pub(super) own_inputs: mpsc::WeakSender<SessionInput>,
    /// Zero of this session's clock.
    pub(super) began: Instant,
    /// Since when nobody is there for the session.
    abandoned_since: Option<Instant>,
    /// Who waits for the end, and what it shall leave.
    waiting: Vec<Waiting>,
    pub(super) ending: Option<Ending>,
    /// Chats of other sessions that are on their way here.
    pub(super) expected: usize,
    /// Who asked for the end while a chat was on its way, which is waited for.
    deferred: Vec<(Ending, Waiting)>,
    finished: bool,
}

/// What the actors of all sessions share.
#[derive(Clone)]
pub(crate) struct Surroundings {
    /// The published state.
    pub(crate) store: Arc<StateStore>,
    /// Where everything is kept.
    pub(crate) storage: Arc<dyn Storage>,
    /// Which session a chat belongs to.
    pub(crate) addresses: Arc<ChatAddresses>,
    /// Where the time comes from.
    pub(crate) clock: Arc<dyn Clock>,
    /// Where tasks beside an actor are counted.
    pub(crate) tasks: TaskTracker,
}

impl SessionActor {
    /// An actor for a session whose channels exist in the store, and its handle.
    pub(crate) fn new(mut seed: SessionSeed, around: Surroundings) -> (Self, SessionHandle) {
        let Surroundings { store, storage, addresses, clock, tasks } = around;
        let (sender, inputs) = mpsc::channel(INPUT_CAPACITY);
        let handle = SessionHandle::new(sender.clone());
        let chats = std::mem::take(&mut seed.chats);
        let chats = Chats::new(chats.into_iter().map(|chat| Chat::new(chat, seed.provider.as_ref())));
        let mut actor = Self {
            chats,
            listed: seed.listed,
            ledger: Ledger::new(storage, seed.uri.clone(), seed.next_entry),
            seed,
            store,
            addresses,
            clock,
            tasks,
            inputs,
            own_inputs: sender.downgrade(),
            began: Instant::now(),
            abandoned_since: None,
            waiting: Vec::new(),
            ending: None,
            expected: 0,
            deferred: Vec::new(),
            finished: false,
        };
        if actor.seed.stale {
            actor.ledger.wants_checkpoint();
        }
        (actor, handle)
    }

    /// Runs until the session has ended. Answers what it shall leave behind.
    pub(crate) async fn run(mut self) -> Ended {
        let mut reachable = true;
        while !self.finished {
            tokio::select! {
                // Clients first: a cancel must not wait behind a flood of output.
                biased;
                input = self.inputs.recv(), if reachable => match input {
                    Some(input) => self.handle(input).await,
                    // No handle is left, so nobody can ask for the end any more.
                    None => {
                        reachable = false;
                        self.end(Ending::Suspend, None).await;
                    }
                },
                due = self.ledger.next() => self.handle_ledger(due),
                (chat, event) = self.chats.next_event() => self.handle_agent(&chat, event).await,
                () = tokio::time::sleep(LOOK_AFTER), if self.is_cold() => self.look_after().await,
            }
        }
        let ending = self.ending.unwrap_or(Ending::Suspend);
        if ending != Ending::Unload {
            self.turn_away("the session is being closed").await;
        }
        let stored = match ending {
            Ending::Dispose | Ending::Unload => Ok(()),
            Ending::Suspend => self.store_all().await,
        };
        Ended { ending, waiting: self.waiting, stored }
    }

    fn is_cold(&self) -> bool {
        self.chats.iter().all(|chat| matches!(chat.model.phase, Phase::Cold(_)))
    }

    /// The session's channels.
    fn channels(&self) -> Vec<ChannelUri> {
        std::iter::once(self.seed.uri.clone()).chain(self.chats.uris()).collect()
    }

    /// Ends a session that was never used and that nobody wants any more, and takes
    /// one out of memory that is not needed there.
    async fn look_after(&mut self) {
        if self.expected > 0 {
            return;
        }
        let channels = self.channels();
        let creator = self.seed.creator.as_ref().filter(|_| !self.listed);
        if self.store.has_audience(&channels, creator) {
            self.abandoned_since = None;
            return;
        }
        let since = *self.abandoned_since.get_or_insert_with(Instant::now);
        if !self.listed && since.elapsed() >= ABANDONED_AFTER {
            tracing::info!(session = %self.seed.uri, "a session that was never used goes away");
            self.end(Ending::Dispose, None).await;
        } else if self.listed && since.elapsed() >= UNUSED_AFTER {
            match self.store_all().await {
                Ok(()) => self.leave_memory(&channels).await,
                Err(error) => {
                    tracing::error!(session = %self.seed.uri, %error, "the session stays in memory")
                }
            }
        }
    }

    /// Takes the session out of memory, unless somebody wants it after all.
    async fn leave_memory(&mut self, channels: &[ChannelUri]) {
        if !self.inputs.is_empty() || !self.store.remove_unsubscribed(channels) {
            return;
        }
        self.turn_away("the session was put away; try again").await;
        self.ending = Some(Ending::Unload);
        self.finished = true;
    }

    /// Answers who came in this very moment: it is too late.
    async fn turn_away(&mut self, why: &str) {
        self.inputs.close();
        // Also who has a place in the queue already and is about to take it.
        while let Some(input) = self.inputs.recv().await {
            match input {
                SessionInput::Client(dispatch) => self.reject(&dispatch, why),
                // Only to be disposed is more than what happens here.
                SessionInput::End { ending: Ending::Dispose, done }
                    if self.ending != Some(Ending::Dispose) =>
                {
                    done.send(Err(StorageError::Busy)).ok();
                }
                SessionInput::End { done, .. } => self.waiting.push(done),
                // Who asked hears that the session is gone.
                SessionInput::Chats(_)
                | SessionInput::Opened(..)
                | SessionInput::Recorded(..)
                | SessionInput::Left(_)
                | SessionInput::Token(_) => {}
            }
        }
    }

    async fn handle(&mut self, input: SessionInput) {
        // Something happens, so the session is needed.
        self.abandoned_since = None;
        match input {
            SessionInput::Client(dispatch) => self.handle_client(&dispatch).await,
            SessionInput::Opened(chat, Ok(link)) => {
                let Some(opened) = self.chats.get_mut(&chat) else { return };
                if matches!(opened.model.phase, Phase::Closing(_)) {
                    link.close.cancel();
                }
                opened.link = Some(link);
                self.catch_up(&chat);
                let decision = self.decide(&chat, Input::Opened);
                self.carry_out(&chat, decision).await;
            }
            SessionInput::Recorded(chat, record) => self.link_by_order(&chat, &record),
            SessionInput::Opened(chat, Err(error)) => {
                tracing::warn!(session = %self.seed.uri, %chat, %error, "the agent could not be opened");
                let decision = self.decide(&chat, Input::OpenFailed(&error));
                self.carry_out(&chat, decision).await;
            }
            SessionInput::Left(client) => self.handle_left(&client).await,
            SessionInput::Token(token) => self.handle_token(*token),
            SessionInput::Chats(order) => self.handle_order(order).await,
            SessionInput::End { ending, done } if self.expected > 0 => self.deferred.push((ending, done)),
            SessionInput::End { ending, done } => self.end(ending, Some(done)).await,
        }
        if self.expected == 0 {
            for (ending, done) in std::mem::take(&mut self.deferred) {
                self.end(ending, Some(done)).await;
            }
        }
        self.see_off().await;
    }

    async fn handle_client(&mut self, dispatch: &ClientDispatch) {
        let (chat, target) = if dispatch.channel == self.seed.uri {
            (self.default_chat(), Target::Session)
        } else if self.chats.get(&dispatch.channel).is_some() {
            (Some(dispatch.channel.clone()), Target::Chat)
        } else {
            (None, Target::Chat)
        };
        let Some(chat) = chat else {
            self.reject(dispatch, "the chat is gone or on its way to another session; try again");
            return;
        };
        let amended = self.amended(&chat, &dispatch.action);
        let published = amended.as_ref().unwrap_or(&dispatch.action);
        let action = published.typed();
        let input = Input::Client { target, action, client: &dispatch.origin.client };
        let mut decision = self.decide(&chat, input);
        if let Some(reason) = decision.rejection.take() {
            self.reject(dispatch, &reason);
            return;
        }
        if let Err(reason) = self.publish_for(dispatch, published).await {
            self.reject(dispatch, &reason);
            return;
        }
        if target == Target::Session {
            self.tell_all(&decision.effects);
            decision.effects.clear();
        }
        self.carry_out(&chat, decision).await;
        self.project(&chat);
        match target {
            Target::Chat => self.settle(&chat).await,
            Target::Session => {
                self.follow_directories(action).await;
                if meaning(action).told == Some(AgentUpdate::Settings) {
                    self.brief_all();
                }
                self.settle_all().await;
            }
        }
    }

    async fn handle_left(&mut self, client: &ClientId) {
        let Some(chat) = self.default_chat() else { return };
        let decision = self.decide(&chat, Input::Left(client));
        self.carry_out(&chat, decision).await;
        self.brief_all();
        self.settle_all().await;
    }

    fn handle_token(&mut self, token: ResourceToken) {
        if let Some(chat) = self.default_chat() {
            let decision = self.decide(&chat, Input::Token(token));
            self.tell_all(&decision.effects);
        }
    }

    /// What concerns the whole session concerns the agents of all of its chats.
    fn tell_all(&mut self, effects: &[Effect]) {
        for effect in effects {
            if let Effect::Agent(command) = effect {
                for chat in self.chats.iter_mut() {
                    chat.command(command.clone());
                }
            }
        }
    }

    /// Where the session works concerns each of its chats.
    async fn follow_directories(&mut self, action: &StateAction) {
        if meaning(action).told != Some(AgentUpdate::Directories) {
            return;
        }
        // One that is on its way belongs to another session already.
        let chats = self.chats.iter().filter(|chat| !chat.is_away()).map(|chat| chat.uri.clone());
        for chat in chats.collect::<Vec<_>>() {
            let decision = self.decide(&chat, Input::Directories(action));
            self.carry_out(&chat, decision).await;
        }
    }

    /// The chat that stands for the session where one is needed.
    pub(super) fn default_chat(&self) -> Option<ChannelUri> {
        let named = self.store.read(&self.seed.uri, |state| state.session()?.default_chat.clone()).flatten();
        let named = named.map(|uri| ChannelUri::new(&uri)).filter(|uri| self.chats.get(uri).is_some());
        named.or_else(|| self.chats.uris().next())
    }

    fn reject(&self, dispatch: &ClientDispatch, reason: &str) {
        tracing::debug!(session = %self.seed.uri, reason, "rejected a client's action");
        if let Err(error) = self.store.reject(&dispatch.channel, &dispatch.action, &dispatch.origin, reason) {
            tracing::error!(session = %self.seed.uri, %error, "a rejection could not be sent");
        }
    }

    async fn handle_agent(&mut self, chat: &ChannelUri, event: Option<AgentEvent>) {
        let history = || self.chats.get(chat).map_or(History::Resume, |chat| chat.model.phase.history());
        let mut event = event.unwrap_or_else(|| AgentEvent::Closed { history: history(), unsent: None });
        let closed = matches!(event, AgentEvent::Closed { .. });
        if let (AgentEvent::Closed { unsent, .. }, Some(chat)) = (&mut event, self.chats.get_mut(chat)) {
            chat.link = None;
            let undelivered = chat.undelivered.take();
            *unsent = unsent.take().or(undelivered);
        }
        self.brief_behind(chat, Brief::IfRoom);
        let Some(event) = self.route_to_child(chat, event).await else { return };
        if closed {
            self.end_children(chat).await;
        }
        let configures = matches!(event, AgentEvent::ConfigChanged { .. });
        let decision = self.decide(chat, Input::Agent(event));
        self.carry_out(chat, decision).await;
        if configures {
            // The agents of the other chats work with the same configuration.
            self.brief_all();
        }
        if closed {
            self.see_off().await;
        }
    }

    async fn end(&mut self, ending: Ending, done: Option<Waiting>) {
        self.waiting.extend(done);
        // A chat may have left whose new session was still to be told.
        self.project_row();
        // A dispose that comes while the host shuts down still deletes.
        if self.ending != Some(Ending::Dispose) {
            self.ending = Some(ending);
        }
        for chat in self.chats.uris().collect::<Vec<_>>() {
            let decision = self.decide(&chat, Input::End(ending));
            self.carry_out(&chat, decision).await;
        }
        self.see_off().await;
    }

    /// Lets chats go that are over, and the session when the last one is.
    async fn see_off(&mut self) {
        self.finish_leaving().await;
        self.finished |= self.ending.is_some() && self.chats.iter().all(|chat| chat.over);
    }

    pub(super) fn decide(&self, chat: &ChannelUri, input: Input<'_>) -> Decision {
        let Some(Chat { model, .. }) = self.chats.get(chat) else { return Decision::default() };
        let (now, time) = (self.began.elapsed(), wire_time(self.clock.now()));
        self.store
            .read_both((&self.seed.uri, chat), |session, chat| {
                let (session, doc) = (session.session()?, chat.chat_doc()?);
                let (chat, turns) = (doc.open(), doc.turns());
                let attended = self.chats.iter().any(|chat| chat.link.is_some());
                Some(decide(model, View { session, chat, turns, attended, now, time: &time }, input))
            })
            .flatten()
            .unwrap_or_default()
    }

    pub(super) fn run_effect(&mut self, uri: &ChannelUri, effect: Effect) {
        if let Effect::OpenAgent(history) = effect {
            self.open_agent(uri, history);
            return;
        }
        if let Effect::TellDirectories = effect {
            self.brief(uri, Brief::IfRoom);
            return;
        }
        if matches!(effect, Effect::Agent(AgentCommand::Prompt { .. })) {
            self.brief_behind(uri, Brief::First);
        }
        // The agent of a child chat is that of its parent.
        let parent = self.chats.get(uri).and_then(|chat| chat.parent.clone());
        let agent = parent.as_ref().filter(|_| matches!(effect, Effect::Agent(_))).unwrap_or(uri);
        let Some(chat) = self.chats.get_mut(agent) else { return };
        match effect {
            Effect::Agent(command) => chat.command(command),
            // A live agent is asked to close, which gives it time to end politely; one
            // that is still being opened is not waited for.
            Effect::CloseAgent => match &chat.link {
                Some(link) => link.close.cancel(),
                None => chat.opening.cancel(),
            },
            Effect::Finish => chat.over = true,
            Effect::OpenAgent(_) | Effect::TellDirectories => {}
        }
    }

    /// The session is for everyone to see, with the next look at its row.
    pub(super) fn list(&mut self) {
        if !self.listed {
            self.listed = true;
            self.ledger.wants_checkpoint();
        }
    }

    /// Whether there is anything in the session that must not be lost.
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

/// What an actor leaves when it has stopped.
pub(crate) struct Ended {
    pub(crate) ending: Ending,
    pub(crate) waiting: Vec<Waiting>,
    /// Whether everything that shall stay is stored.
    pub(crate) stored: Result<(), StorageError>,
}
