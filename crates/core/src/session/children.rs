//! The chats of subagents, which the agent of their parent chat creates, fills and ends.
//!
//! A child chat is stored like any other and is kept when its subagent has finished.
//! Clients can read it; they cannot send messages to it.

use ahp_types::state::{ChatInteractivity, ChatOrigin};

use super::actor::SessionActor;
use super::chats::{Chat, ChatSeed, chat_state};
use super::decide::DecisionInput;
use crate::agent::{AgentEvent, ChildChat, ChildId, History, TurnOutcome};
use crate::channel::ChannelUri;
use crate::state::{ChannelState, ChatDoc};

/// Most child chats per session. For a further one the oldest finished one is removed;
/// while all are running, the further subagent gets no chat. The tool call that started
/// the subagent has its result either way.
const MAX_CHILDREN: usize = 256;

/// Longest tool call id, in bytes; it is part of the chat's URI.
const MAX_ID: usize = 256;

impl SessionActor {
    /// Passes an event about a child chat to that chat. Returns the event if it is about the
    /// agent's own chat.
    pub(super) async fn route_to_child(
        &mut self,
        parent: &ChannelUri,
        event: AgentEvent,
    ) -> Option<AgentEvent> {
        let (child, event) = match event {
            AgentEvent::ChildStarted(child) => {
                self.start_child(parent, *child).await;
                return None;
            }
            AgentEvent::ChildAction { child, action } => (child, AgentEvent::Action(action)),
            AgentEvent::ChildEnded { child, outcome } => {
                let uri = self.child_uri(&child);
                if self.is_child_of(&uri, parent) {
                    self.end_child(&uri, outcome).await;
                }
                return None;
            }
            other @ (AgentEvent::Action(_)
            | AgentEvent::TitleSuggested { .. }
            | AgentEvent::ConfigChanged { .. }
            | AgentEvent::PermissionRequested(_)
            | AgentEvent::PermissionWithdrawn { .. }
            | AgentEvent::ResumeToken(_)
            | AgentEvent::MessageLinked { .. }
            | AgentEvent::TurnStarted { .. }
            | AgentEvent::SteeringTaken { .. }
            | AgentEvent::WorkStopped { .. }
            | AgentEvent::PartsDiscarded { .. }
            | AgentEvent::TodoChanged { .. }
            | AgentEvent::Used { .. }
            | AgentEvent::TurnEnded { .. }
            | AgentEvent::Exited
            | AgentEvent::Closed { .. }) => return Some(other),
        };
        let uri = self.child_uri(&child);
        if self.is_child_of(&uri, parent) {
            self.decide_and_apply(&uri, DecisionInput::Agent(event)).await;
        }
        None
    }

    /// Ends the turns of all subagents of a chat whose agent has closed.
    pub(super) async fn end_children(&mut self, parent: &ChannelUri) {
        for child in self.chats.children_of(parent) {
            let gone =
                super::decide::error_info("agent_closed", "the agent ended before the subagent was done");
            self.end_child(&child, TurnOutcome::Failed(gone)).await;
        }
    }

    fn child_uri(&self, child: &ChildId) -> ChannelUri {
        ChannelUri::child_chat_of(&self.uri, child.tool_call())
    }

    fn is_child_of(&self, uri: &ChannelUri, parent: &ChannelUri) -> bool {
        self.chats.get(uri).is_some_and(|chat| chat.parent.as_ref() == Some(parent))
    }

    async fn start_child(&mut self, parent: &ChannelUri, child: ChildChat) {
        let uri = self.child_uri(&child.id);
        if child.id.tool_call().len() > MAX_ID {
            tracing::error!(session = %self.uri, "subagent tool call id is too long");
            return;
        }
        let is_there = self.chats.get(&uri).is_some();
        if !is_there && !self.create_child(parent, &uri, &child).await {
            return;
        }
        if is_there && !self.is_child_of(&uri, parent) {
            tracing::error!(session = %self.uri, child = %child.id, "child chat URI is in use");
            return;
        }
        self.decide_and_apply(&uri, DecisionInput::Agent(AgentEvent::ChildStarted(Box::new(child)))).await;
    }

    async fn create_child(&mut self, parent: &ChannelUri, uri: &ChannelUri, child: &ChildChat) -> bool {
        if self.ending.is_some() || !self.make_room_for_child().await {
            tracing::warn!(session = %self.uri, child = %child.id, "cannot create child chat: session is ending or limit reached");
            return false;
        }
        let mut state = chat_state(uri, &self.publisher.wire_time());
        state.title = super::decide::cut_name(child.title.clone());
        state.interactivity = Some(ChatInteractivity::ReadOnly);
        state.origin = Some(ChatOrigin::Tool {
            chat: parent.as_str().to_owned(),
            tool_call_id: child.id.tool_call().to_owned(),
        });
        let seed = ChatSeed { parent: Some(parent.clone()), ..ChatSeed::new(uri.clone(), History::Fresh) };
        let created = match ChatDoc::from_stored(state, Vec::new()) {
            Ok(doc) => self.add_chat(seed, doc, Vec::new()).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = &created {
            tracing::error!(session = %self.uri, child = %child.id, error, "cannot create child chat");
        }
        created.is_ok()
    }

    /// Removes the oldest finished child chat if the limit is reached. Returns whether there
    /// is room for another one.
    async fn make_room_for_child(&mut self) -> bool {
        let children: Vec<ChannelUri> =
            self.chats.iter().filter(|chat| chat.is_child()).map(|chat| chat.uri.clone()).collect();
        if children.len() < MAX_CHILDREN {
            return true;
        }
        let is_done = |uri: &&ChannelUri| !self.publisher.has_running_turn(uri);
        match children.iter().find(is_done) {
            Some(oldest) => self.remove_chats(std::slice::from_ref(oldest)).await.is_ok(),
            None => false,
        }
    }

    async fn end_child(&mut self, child: &ChannelUri, outcome: TurnOutcome) {
        let running = |state: &ChannelState| Some(state.chat()?.active_turn.as_ref()?.id.clone());
        let Some(turn) = self.publisher.store().read(child, running).flatten() else { return };
        let turn = crate::ids::TurnId::new(&turn);
        self.decide_and_apply(child, DecisionInput::Agent(AgentEvent::TurnEnded { turn, outcome })).await;
    }
}

/// The parent of a stored chat, if it is a subagent's chat.
pub(super) fn stored_parent(doc: &ChatDoc) -> Option<ChannelUri> {
    super::decide::parent_of(doc.open()).map(ChannelUri::new)
}

impl Chat {
    /// Whether it is a subagent's chat.
    pub(super) fn is_child(&self) -> bool {
        self.parent.is_some()
    }
}
