//! The chats of a session: which there are, and what is known of each beside what is
//! published.

use std::task::Poll;
use std::time::Duration;

use ahp_types::state::{ChatOrigin, ChatState, SessionStatus};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::briefing::{Briefing, MOST_NEWS};
use super::decide::{Model, Phase};
use super::handle::Answer;
use super::links::TurnLinks;
use crate::agent::{
    AgentCommand, AgentEvent, AgentLink, AgentProvider, COMMAND_CAPACITY, History, ResumeToken, Unsent,
};
use crate::channel::ChannelUri;
use crate::directories::Primary;
use crate::state::ChatDoc;
use crate::storage::StoredConversation;

/// Room for commands that must be left when an agent is told what is new in its session:
/// a user's own orders have to find some behind that.
const BRIEFING_ROOM: usize = COMMAND_CAPACITY / 2;

/// Most that an agent is told about its session at once, and the order that it is for.
const BRIEFING_AND_ORDER: usize = MOST_NEWS + 1;

/// What a chat starts from.
#[derive(Debug)]
pub(crate) struct ChatSeed {
    /// Its channel.
    pub(crate) uri: ChannelUri,
    /// How its agent continues the conversation.
    pub(crate) conversation: StoredConversation,
    /// The agent's messages of its turns.
    pub(crate) links: TurnLinks,
    /// Whether its queue waits until a client asks to continue.
    pub(crate) queue_held: bool,
    /// The chat whose agent fills it, if it is a subagent's.
    pub(crate) parent: Option<ChannelUri>,
}

impl ChatSeed {
    /// A chat in which nothing has happened.
    pub(crate) fn new(uri: ChannelUri, history: History) -> Self {
        let conversation = StoredConversation::new(history);
        Self { uri, conversation, links: TurnLinks::default(), queue_held: false, parent: None }
    }
}

/// A chat, as its session knows it beside what is published.
#[derive(Debug)]
pub(super) struct Chat {
    pub(super) uri: ChannelUri,
    pub(super) conversation: Uuid,
    /// The agent's own name of the conversation.
    pub(super) resume_token: Option<ResumeToken>,
    /// The agent's messages of its turns.
    pub(super) links: TurnLinks,
    /// The chat whose agent fills this one.
    pub(super) parent: Option<ChannelUri>,
    pub(super) model: Model,
    /// The agent, while there is one.
    pub(super) link: Option<AgentLink>,
    /// A message that it was to get and could not take any more.
    pub(super) undelivered: Option<Box<Unsent>>,
    /// What it knows of its session.
    pub(super) told: Briefing,
    /// Whether there is more to know, for which it had no room.
    pub(super) behind: bool,
    /// Ends the opening of an agent.
    pub(super) opening: CancellationToken,
    /// Nothing works for it any more, and nothing will.
    pub(super) over: bool,
    pub(super) leaving: Option<Leaving>,
}

/// When an agent is to be told what is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Brief {
    /// Now, if there is room beside what it has to do.
    IfRoom,
    /// Before the order that comes next, unless that would find no room then.
    First,
}

/// How a chat leaves its session while that stays.
#[derive(Debug)]
pub(super) enum Leaving {
    /// For good; these wait for it.
    Disposed(Vec<Answer<()>>),
    /// For another session, as soon as its agent is gone.
    Moves(Answer<ChatSeed>),
    /// It is on its way.
    Away,
}

impl Chat {
    /// A chat of a session with this kind of agent.
    pub(super) fn new(seed: ChatSeed, provider: &dyn AgentProvider) -> Self {
        let offer = provider.offer();
        let offer = offer.borrow();
        let StoredConversation { id, history, resume_token, rewind } = seed.conversation;
        Self {
            uri: seed.uri,
            conversation: id,
            resume_token,
            links: seed.links,
            parent: seed.parent,
            model: Model {
                phase: Phase::Cold(history),
                turn_began: Duration::ZERO,
                openings: 0,
                features: offer.features,
                queue_held: seed.queue_held,
                reopened: false,
                folded: None,
                directories: Primary::of(&offer.info),
                rewind,
            },
            link: None,
            undelivered: None,
            told: Briefing::default(),
            behind: false,
            opening: CancellationToken::new(),
            over: false,
            leaving: None,
        }
    }

    /// What the storage has to know of the conversation.
    pub(super) fn stored_conversation(&self) -> StoredConversation {
        StoredConversation {
            id: self.conversation,
            history: self.model.phase.history(),
            resume_token: self.resume_token.clone(),
            rewind: self.model.rewind.clone(),
        }
    }

    /// Everything that another session needs to have this chat.
    pub(super) fn seed(&self) -> ChatSeed {
        ChatSeed {
            uri: self.uri.clone(),
            conversation: self.stored_conversation(),
            links: self.links.clone(),
            queue_held: self.model.queue_held,
            parent: self.parent.clone(),
        }
    }

    /// Hands a command to the agent, if there is one and it handles such commands.
    pub(super) fn command(&mut self, command: AgentCommand) {
        if !command.is_handled_with(self.model.features) {
            return;
        }
        let Some(link) = &self.link else { return };
        if let Err(error) = link.commands.try_send(command) {
            tracing::error!(chat = %self.uri, %error, "the agent does not take commands; closing it");
            link.close.cancel();
            // An agent that ends just now has not seen it: it is for the next one.
            if let AgentCommand::Prompt { turn, message } = error.into_inner() {
                self.undelivered = Some(Box::new(Unsent { turn, message }));
            }
        }
    }

    /// Tells the agent what is new in its session, if it hears it. One that has enough to
    /// do gets the latest later: clients may change their minds as often as they like.
    pub(super) fn brief(&mut self, now: Briefing) {
        for command in self.told.update(now) {
            self.command(command);
        }
    }

    /// Whether there is an agent that can be told what is new. If it only has no room, it
    /// is told later.
    pub(super) fn hears(&mut self, when: Brief) -> bool {
        let Some(link) = &self.link else { return false };
        let room = match when {
            Brief::IfRoom => BRIEFING_ROOM,
            Brief::First => BRIEFING_AND_ORDER,
        };
        self.behind = link.commands.capacity() < room;
        !self.behind
    }

    /// Whether another session may have it already.
    pub(super) fn is_away(&self) -> bool {
        matches!(self.leaving, Some(Leaving::Away))
    }

    /// It stays after all.
    pub(super) fn stays(&mut self) {
        self.model.phase = Phase::Cold(self.model.phase.history());
        self.over = false;
        self.leaving = None;
    }
}

/// The chats of one session. Few, so they are looked for one by one.
#[derive(Debug)]
pub(super) struct Chats {
    chats: Vec<Chat>,
    /// Where to look first for the next event, so that every agent gets its turn.
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

    pub(super) fn remove(&mut self, uri: &ChannelUri) -> Option<Chat> {
        let at = self.chats.iter().position(|chat| chat.uri == *uri)?;
        Some(self.chats.remove(at))
    }

    /// The next event of any agent, and whose; waits forever while there is no agent.
    /// Cancel-safe.
    pub(super) async fn next_event(&mut self) -> (ChannelUri, Option<AgentEvent>) {
        std::future::poll_fn(|context| {
            let count = self.chats.len();
            for at in (0..count).map(|step| (self.first + step) % count) {
                let Some(chat) = self.chats.get_mut(at) else { continue };
                let Some(link) = &mut chat.link else { continue };
                if let Poll::Ready(event) = link.events.poll_recv(context) {
                    self.first = at + 1;
                    return Poll::Ready((chat.uri.clone(), event));
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Whether anything was sent in a chat. A draft is no reason to keep a session.
pub(crate) fn is_used(chat: &ChatDoc) -> bool {
    let open = chat.open();
    let waits = open.queued_messages.is_some() || open.steering_message.is_some();
    waits || !chat.turns().is_empty() || open.active_turn.is_some()
}

/// A chat without anything in it.
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
