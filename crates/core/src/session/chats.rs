//! The chats of a session, and their unpublished state.

use std::task::Poll;
use std::time::Duration;

use ahp_types::state::{ChatOrigin, ChatState, SessionStatus};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::briefing::Briefing;
use super::chat_todo::ChatTodo;
use super::decide::{AgentState, Decision, PermissionLedger, Phase};
use super::large_output::OutputLimiter;
use super::lifetimes::ChatLifetime;
use super::links::TurnLinks;
use super::publisher::Publisher;
use super::stopping::PendingStops;
use super::transfer::Leaving;
use crate::agent::{
    AgentCommand, AgentConnection, AgentEvent, AgentProvider, History, ResumeToken, TurnMessage,
};
use crate::channel::ChannelUri;
use crate::directories::Primary;
use crate::output::OutputId;
use crate::state::ChatDoc;
use crate::storage::{Change, StoredConversation};

/// The initial data of a chat.
#[derive(Debug)]
pub(crate) struct ChatSeed {
    /// Its channel.
    pub(crate) uri: ChannelUri,
    /// How its agent continues the conversation.
    pub(crate) conversation: StoredConversation,
    /// The agent's messages, by turn.
    pub(crate) links: TurnLinks,
    /// Whether the queue is held until a client asks to continue.
    pub(crate) queue_held: bool,
    /// The agent's to-do list.
    pub(crate) todo: ChatTodo,
    /// The chat whose agent writes to it, if it is a subagent's chat.
    pub(crate) parent: Option<ChannelUri>,
}

impl ChatSeed {
    /// A new chat without turns.
    pub(crate) fn new(uri: ChannelUri, history: History) -> Self {
        let conversation = StoredConversation::new(history);
        Self {
            uri,
            conversation,
            links: TurnLinks::default(),
            queue_held: false,
            todo: ChatTodo::default(),
            parent: None,
        }
    }
}

/// The unpublished state of a chat.
#[derive(Debug)]
pub(super) struct Chat {
    pub(super) uri: ChannelUri,
    pub(super) conversation: Uuid,
    /// The agent's own name for the conversation.
    pub(super) resume_token: Option<ResumeToken>,
    /// The agent's messages, by turn.
    pub(super) links: TurnLinks,
    /// The agent's to-do list.
    pub(super) todo: ChatTodo,
    /// The chat whose agent writes to this one, if it is a subagent's chat.
    pub(super) parent: Option<ChannelUri>,
    pub(super) agent: AgentState,
    /// Limits what the agent adds to the chat's document.
    pub(super) output: OutputLimiter,
    /// The connection to the agent, while one is open.
    pub(super) connection: Option<AgentConnection>,
    /// A message that the closing agent did not receive.
    pub(super) undelivered: Option<Box<TurnMessage>>,
    /// The session data that the agent has received.
    pub(super) briefed: Briefing,
    /// Whether the agent's briefing is out of date because its queue was full.
    pub(super) briefing_outdated: bool,
    /// Cancels the opening of an agent.
    pub(super) opening: CancellationToken,
    /// The chat is finished: it has no agent and will not get one.
    pub(super) finished: bool,
    pub(super) leaving: Option<Leaving>,
    /// How long the agent keeps its process.
    pub(super) lifetime: ChatLifetime,
    /// Requests to stop its work.
    pub(super) stops: PendingStops,
}

impl Chat {
    /// Creates a chat of a session with this agent provider.
    pub(super) fn new(seed: ChatSeed, provider: &dyn AgentProvider) -> Self {
        let offer = provider.offer();
        let offer = offer.borrow();
        let StoredConversation { id, history, resume_token, rewind } = seed.conversation;
        Self {
            uri: seed.uri,
            conversation: id,
            resume_token,
            links: seed.links,
            todo: seed.todo,
            parent: seed.parent,
            agent: AgentState {
                phase: Phase::Cold(history),
                turn_began: Duration::ZERO,
                openings: 0,
                features: offer.features,
                name: offer.info.display_name.clone(),
                restart: None,
                queue_held: seed.queue_held,
                reopened: false,
                folded: None,
                permissions: PermissionLedger::default(),
                directories: Primary::of(&offer.info),
                rewind,
            },
            output: OutputLimiter::new(OutputId::unique),
            connection: None,
            undelivered: None,
            briefed: Briefing::default(),
            briefing_outdated: false,
            opening: CancellationToken::new(),
            finished: false,
            leaving: None,
            lifetime: ChatLifetime::default(),
            stops: PendingStops::default(),
        }
    }

    /// The stored form of the conversation.
    pub(super) fn stored_conversation(&self) -> StoredConversation {
        StoredConversation {
            id: self.conversation,
            history: self.agent.phase.history(),
            resume_token: self.resume_token.clone(),
            rewind: self.agent.rewind.clone(),
        }
    }

    /// The data with which another session adopts this chat.
    pub(super) fn seed(&self) -> ChatSeed {
        ChatSeed {
            uri: self.uri.clone(),
            conversation: self.stored_conversation(),
            links: self.links.clone(),
            queue_held: self.agent.queue_held,
            todo: self.todo.clone(),
            parent: self.parent.clone(),
        }
    }

    /// Sends a command to the agent, if one is open and supports the command.
    pub(super) fn command(&mut self, command: AgentCommand) {
        if !command.is_handled_with(self.agent.features) {
            return;
        }
        let Some(connection) = &self.connection else { return };
        if let Err(error) = connection.commands.try_send(command) {
            tracing::error!(chat = %self.uri, %error, "agent command queue is full or closed; closing the agent");
            connection.close.cancel();
            // A closing agent has not read the message; the next agent gets it.
            if let AgentCommand::Prompt { turn, message } = error.into_inner() {
                self.undelivered = Some(Box::new(TurnMessage { turn, message }));
            }
        }
    }

    /// Applies the part of a decision that concerns the agent.
    pub(super) fn apply(&mut self, decision: &mut Decision, publisher: &mut Publisher) {
        let agent = &mut self.agent;
        if let Some(phase) = decision.phase.take() {
            agent.phase = phase;
        }
        if let Some(rewind) = decision.rewind.take() {
            agent.rewind = Some(rewind);
        }
        if let Some(reopened) = decision.reopened {
            agent.reopened = reopened;
        }
        if let Some(folded) = decision.folded.take() {
            agent.folded = folded;
        }
        if let Some(restart) = decision.restart.take() {
            agent.restart = restart;
        }
        for change in std::mem::take(&mut decision.permissions) {
            agent.permissions.apply(change);
        }
        if let Some(todo) = decision.todo.take() {
            self.todo = todo;
        }
        if decision.works {
            // The rewind was sent before the message that the agent is working on.
            agent.rewind = None;
            if matches!(agent.phase, Phase::Live(_)) {
                agent.phase = Phase::Live(History::Resume);
            }
        }
        let new_token = |token: &ResumeToken| self.resume_token.as_ref() != Some(token);
        if let Some(token) = decision.resume_token.take().filter(new_token) {
            self.resume_token = Some(token.clone());
            publisher.write_soon(Change::PutResumeToken { chat: self.uri.clone(), token });
        }
        if let Some((turn, message)) = decision.link.take() {
            self.record_message_link(&turn, message, publisher);
        }
    }

    /// Cancels its leaving.
    pub(super) fn cancel_leaving(&mut self) {
        self.agent.phase = Phase::Cold(self.agent.phase.history());
        self.finished = false;
        self.leaving = None;
    }
}

/// The chats of one session. There are few, so lookups are linear.
#[derive(Debug)]
pub(super) struct Chats {
    chats: Vec<Chat>,
    /// Where the search for the next event starts, so that all agents are served in turn.
    first: usize,
}

impl Chats {
    pub(super) fn new(chats: impl Iterator<Item = Chat>) -> Self {
        Self { chats: chats.collect(), first: 0 }
    }

    pub(super) fn get(&self, uri: &ChannelUri) -> Option<&Chat> {
        self.chats.iter().find(|chat| chat.uri == *uri)
    }

    pub(super) fn get_mut(&mut self, uri: &ChannelUri) -> Option<&mut Chat> {
        self.chats.iter_mut().find(|chat| chat.uri == *uri)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Chat> {
        self.chats.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Chat> {
        self.chats.iter_mut()
    }

    pub(super) fn uris(&self) -> impl Iterator<Item = ChannelUri> {
        self.chats.iter().map(|chat| chat.uri.clone())
    }

    pub(super) fn add(&mut self, chat: Chat) {
        self.chats.push(chat);
    }

    /// The chats of the subagents of a chat.
    pub(super) fn children_of(&self, parent: &ChannelUri) -> Vec<ChannelUri> {
        let children = self.iter().filter(|chat| chat.parent.as_ref() == Some(parent));
        children.map(|chat| chat.uri.clone()).collect()
    }

    /// Whether they have content that must be kept.
    pub(super) fn are_used(&self, publisher: &Publisher) -> bool {
        let used = |chat: &Chat| {
            publisher.store().read(&chat.uri, |state| state.chat_doc().is_some_and(is_used)).unwrap_or(false)
        };
        self.chats.len() > 1 || self.chats.iter().any(used)
    }

    pub(super) fn remove(&mut self, uri: &ChannelUri) -> Option<Chat> {
        let at = self.chats.iter().position(|chat| chat.uri == *uri)?;
        Some(self.chats.remove(at))
    }

    /// The next event of any agent and its chat; pending while there is no agent.
    /// Cancel-safe.
    pub(super) async fn next_event(&mut self) -> (ChannelUri, Option<AgentEvent>) {
        std::future::poll_fn(|context| {
            let count = self.chats.len();
            for at in (0..count).map(|step| (self.first + step) % count) {
                let Some(chat) = self.chats.get_mut(at) else { continue };
                let Some(connection) = &mut chat.connection else { continue };
                if let Poll::Ready(event) = connection.events.poll_recv(context) {
                    self.first = at + 1;
                    return Poll::Ready((chat.uri.clone(), event));
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Whether a message was sent in a chat. A draft does not count.
pub(crate) fn is_used(chat: &ChatDoc) -> bool {
    let open = chat.open();
    let waits = open.queued_messages.is_some() || open.steering_message.is_some();
    waits || !chat.turns().is_empty() || open.active_turn.is_some()
}

/// The state of an empty chat.
pub(crate) fn chat_state(chat: &ChannelUri, created_at: &str) -> ChatState {
    ChatState {
        resource: chat.as_str().to_owned(),
        title: String::new(),
        status: SessionStatus::Idle.0,
        activity: None,
        modified_at: created_at.to_owned(),
        changes: None,
        origin: Some(ChatOrigin::User),
        movable: None,
        interactivity: None,
        working_directories: None,
        changesets: None,
        background_work: None,
        canvases: None,
        turns: Vec::new(),
        turns_next_cursor: None,
        active_turn: None,
        steering_message: None,
        queued_messages: None,
        draft: None,
        meta: None,
    }
}
