//! Creates, places and removes the chats of a session. `decide` holds the rules.
//!
//! A chat is added with one write that contains its document and its entry in the
//! session's list, and removed with one write that deletes both.

use std::sync::Arc;

use ahp_types::state::{MultipleChatsCapability, SessionState};

use super::actor::SessionActor;
use super::amend::pin;
use super::chats::{Chat, ChatSeed};
use super::decide::{
    BranchSource, ChatChange, ChatFacts, DecisionInput, NewChatView, check_change, check_initial_message,
    check_placement, check_room, new_chat, order_after,
};
use super::discard::discard;
use super::handle::{ChatError, ChatOrder, ChatReplySender, NewChat, SessionEnding};
use super::transfer::Leaving;
use crate::agent::History;
use crate::channel::ChannelUri;
use crate::output::{OutputId, StoredOutput};
use crate::state::{Action, ChannelState, ChatDoc};
use crate::storage::{StorageError, StoredTurn};

impl SessionActor {
    pub(super) async fn handle_order(&mut self, order: ChatOrder) {
        // Replies are sent with `.ok()`: the caller may have stopped waiting.
        match order {
            ChatOrder::Create { new, snapshots, done } => {
                let created = self.create_chat(*new, snapshots).await;
                done.send(created).ok();
            }
            ChatOrder::Dispose { chat, done } => self.dispose_chat(&chat, done).await,
            ChatOrder::Place { chat, after, done } => {
                let placed = self.place_chat(&chat, after.as_ref()).await;
                done.send(placed).ok();
            }
            ChatOrder::Stop { chat, target, done } => self.stop_work(&chat, target, done).await,
            ChatOrder::RestartAgent { chat, done } => self.restart_agent(&chat, done).await,
            ChatOrder::Transfer(step) => self.handle_transfer(step).await,
        }
    }

    async fn create_chat(
        &mut self,
        mut new: NewChat,
        snapshots: Vec<(OutputId, StoredOutput)>,
    ) -> Result<(), ChatError> {
        let capabilities = self.check_another_chat()?;
        check_initial_message(&new)?;
        if let Some(message) = &mut new.initial_message {
            pin(self.publisher.store(), message);
        }
        let source = new.source_chat().and_then(|uri| self.chats.get(&uri)).filter(|chat| !chat.is_child());
        let history = source.map_or(History::Fresh, |source| source.agent.phase.history());
        let time = self.publisher.wire_time();
        let content = |session: &SessionState, source: Option<(&Chat, &ChatDoc)>| {
            let source = source.map(|(chat, doc)| BranchSource {
                doc,
                history: &history,
                conversation: chat.conversation,
                resume_token: chat.resume_token.as_ref(),
                links: &chat.links,
            });
            new_chat(&new, NewChatView { session, source, capabilities: &capabilities, time: &time })
        };
        let content = match source {
            None => self.publisher.with_session(|session| content(session, None)),
            Some(chat) => {
                let both = |session: &ChannelState, source: &ChannelState| {
                    Some(content(session.session()?, Some((chat, source.chat_doc()?))))
                };
                self.publisher.store().read_both((&self.uri, &chat.uri), both).flatten()
            }
        };
        let mut content = content.ok_or(ChatError::Gone)??;
        content.state.changesets = self.changesets.of_chat(&self.uri, &new.uri);
        let forked: Vec<String> = content.turns.iter().map(|turn| turn.id.clone()).collect();
        let doc = ChatDoc::from_stored(content.state, content.turns.clone())
            .map_err(|error| StorageError::Failed(error.to_string()))?;
        let seed = ChatSeed { links: content.links, ..ChatSeed::new(new.uri.clone(), content.history) };
        self.add_chat(seed, doc, content.turns).await?;
        self.publisher.store_snapshots(&new.uri, snapshots).await;
        if let Some(source) = new.source_chat().filter(|_| !forked.is_empty()) {
            self.fork_edits(source, &new.uri, forked).await;
        }
        // Its initial message is in the queue.
        self.start_waiting_message(&new.uri).await;
        Ok(())
    }

    /// Copies the edits of the turns that a new chat has in common with its source. Before its
    /// agent makes others.
    async fn fork_edits(&mut self, source: ChannelUri, fork: &ChannelUri, turns: Vec<String>) {
        let to = (self.uri.clone(), fork.clone());
        match self.opener.edits.fork(source, to, turns).await {
            Ok(()) => self.changesets.request_counts(&self.uri),
            Err(error) => tracing::error!(chat = %fork, %error, "cannot copy the edits of a fork's source"),
        }
    }

    /// Deletes the edits of chats that were deleted, and their changesets.
    fn remove_edits(&self, chats: &[ChannelUri]) {
        let (log, changesets) = (Arc::clone(&self.opener.edits), Arc::clone(&self.changesets));
        let (chats, session) = (chats.to_vec(), self.uri.clone());
        for chat in &chats {
            changesets.end_chat(chat);
        }
        self.opener.tasks.spawn(async move {
            for chat in chats {
                if let Err(error) = log.remove_chat(chat.clone()).await {
                    tracing::error!(%chat, %error, "cannot delete the edits of a deleted chat");
                }
            }
            changesets.request_counts(&session);
        });
    }

    /// Adds and stores a chat, if its URI is free.
    pub(super) async fn add_chat(
        &mut self,
        seed: ChatSeed,
        doc: ChatDoc,
        turns: Vec<StoredTurn>,
    ) -> Result<(), ChatError> {
        let uri = seed.uri.clone();
        if self.publisher.store().has(&uri) || !self.addresses.claim(&uri, &self.uri) {
            return Err(ChatError::Exists(uri));
        }
        if let Err(error) = self.publisher.add_chat(&seed, doc, turns).await {
            self.addresses.release(&uri);
            return Err(error);
        }
        self.chats.add(Chat::new(seed, self.opener.provider.as_ref()));
        self.project(&uri);
        Ok(())
    }

    /// Checks that the session can have another chat. Returns the agent's capabilities for
    /// several chats.
    pub(super) fn check_another_chat(&self) -> Result<MultipleChatsCapability, ChatError> {
        let offer = self.opener.provider.offer();
        let capabilities = offer.borrow().info.capabilities.clone().unwrap_or_default().multiple_chats;
        let unsupported = "this agent supports one chat per session; create another session instead";
        let capabilities = capabilities.ok_or_else(|| ChatError::Refused(unsupported.to_owned()))?;
        let chats = self.chats.iter().filter(|chat| !chat.is_child()).count();
        check_room(chats + self.expected.count(), self.ending)?;
        Ok(capabilities)
    }

    /// The chat, if it exists and may be changed this way.
    pub(super) fn changeable_chat(
        &mut self,
        uri: &ChannelUri,
        change: ChatChange,
    ) -> Result<&mut Chat, ChatError> {
        let is_default = self.default_chat().as_ref() == Some(uri);
        let chat = self.chats.get_mut(uri).ok_or_else(|| ChatError::Unknown(uri.clone()))?;
        let facts = ChatFacts {
            is_default,
            is_child: chat.is_child(),
            has_running_turn: self.publisher.has_running_turn(uri),
            leaving: chat.leaving.as_ref(),
        };
        check_change(uri, facts, change)?;
        Ok(chat)
    }

    async fn dispose_chat(&mut self, uri: &ChannelUri, done: ChatReplySender<()>) {
        if let Some(Chat { leaving: Some(Leaving::Disposed(waiting)), .. }) = self.chats.get_mut(uri) {
            waiting.push(done);
            return;
        }
        match self.changeable_chat(uri, ChatChange::Dispose) {
            Ok(chat) => chat.leaving = Some(Leaving::Disposed(vec![done])),
            Err(error) => {
                done.send(Err(error)).ok();
                return;
            }
        }
        self.decide_and_apply(uri, DecisionInput::End(SessionEnding::Dispose)).await;
    }

    /// Deletes chats, with one write.
    pub(super) async fn remove_chats(&mut self, uris: &[ChannelUri]) -> Result<(), ChatError> {
        if let Err(error) = self.publisher.remove_chats(uris).await {
            if self.ending.is_none() {
                for uri in uris {
                    self.chats.get_mut(uri).into_iter().for_each(Chat::cancel_leaving);
                }
            }
            return Err(error.into());
        }
        let mut conversations = Vec::new();
        for uri in uris {
            conversations.extend(self.chats.remove(uri).map(|chat| chat.host_conversation()));
            self.addresses.release(uri);
        }
        self.remove_edits(uris);
        self.project_row();
        self.opener.tasks.spawn(discard(self.records(), conversations));
        Ok(())
    }

    async fn place_chat(&mut self, uri: &ChannelUri, after: Option<&ChannelUri>) -> Result<(), ChatError> {
        self.changeable_chat(uri, ChatChange::Place)?;
        check_placement(uri, after, |after| self.chats.get(after).is_some())?;
        let order = self.publisher.with_session(|session| order_after(session, uri, after)).flatten();
        if let Some(order) = order {
            self.publisher.store_then_publish(&Action::own(order)).await?;
            self.project_row();
        }
        Ok(())
    }
}
