//! Moves chats between sessions.
//!
//! A chat that is moved belongs to the session that storage names. Until storage has
//! changed, the old session keeps the chat and does not end; from then on the new session
//! does not end before it has adopted the chat. `Host::move_chat` takes the steps in order.

use ahp_types::actions::{ChatChangesetsChangedAction, StateAction};

use super::actor::SessionActor;
use super::chats::{Chat, ChatSeed};
use super::decide::{ChatChange, DecisionInput, adoption, chat_removed, check_anchor};
use super::handle::{ChatError, ChatOrder, ChatReplySender, EndWaiter, SessionEnding};
use crate::channel::ChannelUri;
use crate::state::Action;
use crate::storage::Change;

/// One step of moving a chat to another session.
#[derive(Debug)]
pub(crate) enum ChatTransfer {
    /// Prepares for a chat of another session. After a positive reply the chat cannot be
    /// refused, and the session does not end before the chat arrives or is cancelled.
    Expect { placement: ChatPlacement, done: ChatReplySender<()> },
    /// The expected chat does not arrive.
    CancelExpected { done: ChatReplySender<()> },
    /// Releases a chat for another session.
    Release { chat: ChannelUri, done: ChatReplySender<ChatSeed> },
    /// The released chat stays in this session.
    CancelRelease { chat: ChannelUri, done: ChatReplySender<()> },
    /// The released chat belongs to another session now. `ShowRow` then updates the row.
    DropReleased { chat: ChannelUri, done: ChatReplySender<()> },
    /// Updates the row in the session list, after the other session has adopted the chat.
    ShowRow { done: ChatReplySender<()> },
    /// Adds a chat that another session has released.
    Adopt { seed: Box<ChatSeed>, placement: ChatPlacement, done: ChatReplySender<()> },
}

impl From<ChatTransfer> for ChatOrder {
    fn from(step: ChatTransfer) -> Self {
        Self::Transfer(step)
    }
}

/// The position of a chat that comes from another session.
#[derive(Clone, Debug)]
pub(crate) enum ChatPlacement {
    /// After another chat, or first.
    After(Option<ChannelUri>),
    /// Replaces the default chat, which is removed. For a session that is not used yet.
    AsDefault {
        /// The session title if the chat has none.
        title: String,
    },
}

/// How a chat leaves a session that continues.
#[derive(Debug)]
pub(super) enum Leaving {
    /// It is deleted; these callers wait for it.
    Disposed(Vec<ChatReplySender<()>>),
    /// It moves to another session, as soon as its agent has stopped.
    Moving(ChatReplySender<ChatSeed>),
    /// It has been released and may belong to the other session already.
    InTransit,
}

/// The chats of other sessions that are being moved here. While there are any, the session
/// does not end.
#[derive(Debug, Default)]
pub(super) struct ExpectedChats {
    count: usize,
    /// Requests to end the session, handled after the last expected chat.
    deferred_ends: Vec<(SessionEnding, EndWaiter)>,
}

impl ExpectedChats {
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Defers a request to end the session until no chat is expected.
    pub(super) fn defer_end(&mut self, ending: SessionEnding, done: EndWaiter) {
        self.deferred_ends.push((ending, done));
    }

    /// The deferred requests, if no chat is expected.
    pub(super) fn take_ends(&mut self) -> Vec<(SessionEnding, EndWaiter)> {
        if self.count > 0 { Vec::new() } else { std::mem::take(&mut self.deferred_ends) }
    }

    fn add(&mut self) {
        self.count += 1;
    }

    fn remove(&mut self) {
        self.count = self.count.saturating_sub(1);
    }
}

impl Chat {
    /// Whether it has been released and may belong to another session.
    pub(super) fn is_in_transit(&self) -> bool {
        matches!(self.leaving, Some(Leaving::InTransit))
    }
}

impl SessionActor {
    pub(super) async fn handle_transfer(&mut self, step: ChatTransfer) {
        match step {
            ChatTransfer::Expect { placement, done } => {
                let checked = self.check_arrival(&placement);
                let granted = checked.is_ok();
                // A caller that does not receive the reply does not send the chat either.
                if done.send(checked).is_ok() && granted {
                    self.expected.add();
                }
            }
            ChatTransfer::CancelExpected { done } => {
                self.expected.remove();
                done.send(Ok(())).ok();
            }
            ChatTransfer::Release { chat, done } => self.release_chat(&chat, done).await,
            ChatTransfer::CancelRelease { chat, done } => {
                let stored = self.cancel_release(&chat).await;
                done.send(stored).ok();
            }
            ChatTransfer::DropReleased { chat, done } => {
                if self.chats.remove(&chat).is_some() {
                    let removed = Action::own(chat_removed(&chat));
                    self.publisher.publish_and_remove_chats(&[(self.uri.clone(), removed)], &[]).await;
                }
                done.send(Ok(())).ok();
            }
            ChatTransfer::ShowRow { done } => {
                self.project_row();
                done.send(Ok(())).ok();
            }
            ChatTransfer::Adopt { seed, placement, done } => {
                self.expected.remove();
                let adopted = self.adopt_chat(*seed, placement).await;
                done.send(adopted).ok();
            }
        }
    }

    fn check_arrival(&self, placement: &ChatPlacement) -> Result<(), ChatError> {
        self.check_another_chat()?;
        match placement {
            ChatPlacement::After(after) => {
                check_anchor(after.as_ref(), |after| self.chats.get(after).is_some())
            }
            ChatPlacement::AsDefault { .. } => Ok(()),
        }
    }

    async fn release_chat(&mut self, uri: &ChannelUri, done: ChatReplySender<ChatSeed>) {
        match self.changeable_chat(uri, ChatChange::Release) {
            Ok(chat) => chat.leaving = Some(Leaving::Moving(done)),
            Err(error) => {
                done.send(Err(error)).ok();
                return;
            }
        }
        self.decide_and_apply(uri, DecisionInput::End(SessionEnding::Suspend)).await;
    }

    /// Completes the removal or release of chats whose agents have stopped.
    pub(super) async fn complete_leaving(&mut self) {
        let finished: Vec<ChannelUri> =
            self.chats.iter().filter(|chat| chat.finished).map(|chat| chat.uri.clone()).collect();
        for uri in finished {
            let Some(chat) = self.chats.get_mut(&uri) else { continue };
            match chat.leaving.take() {
                Some(Leaving::Disposed(waiting)) => {
                    let gone: Vec<ChannelUri> =
                        std::iter::once(uri.clone()).chain(self.chats.children_of(&uri)).collect();
                    let removed = self.remove_chats(&gone).await;
                    for done in waiting {
                        done.send(removed.clone()).ok();
                    }
                }
                // A session that is ending keeps its chats.
                Some(Leaving::Moving(done)) if self.ending.is_some() => {
                    done.send(Err(ChatError::Gone)).ok();
                }
                Some(Leaving::Moving(done)) => self.complete_release(&uri, done).await,
                Some(Leaving::InTransit) => chat.leaving = Some(Leaving::InTransit),
                None => {}
            }
        }
    }

    /// Releases a chat after all of it has been stored.
    async fn complete_release(&mut self, uri: &ChannelUri, done: ChatReplySender<ChatSeed>) {
        let stored = self.publisher.store_all(&self.chats).await;
        let Some(chat) = self.chats.get_mut(uri) else { return };
        if let Err(error) = stored {
            chat.cancel_leaving();
            done.send(Err(error.into())).ok();
            return;
        }
        chat.leaving = Some(Leaving::InTransit);
        // It counts as present until the move is completed or cancelled.
        chat.finished = false;
        if done.send(Ok(chat.seed())).is_err() {
            chat.cancel_leaving();
        }
    }

    /// Cancels the release of a chat. A write that assigns it to the other session may still
    /// be pending, so all of it is written again, after that write.
    async fn cancel_release(&mut self, uri: &ChannelUri) -> Result<(), ChatError> {
        let ending = self.ending;
        let Some(chat) = self.chats.get_mut(uri).filter(|chat| chat.is_in_transit()) else { return Ok(()) };
        chat.cancel_leaving();
        // The chat has no agent, and an ending session does not start one.
        chat.finished = ending.is_some();
        if ending == Some(SessionEnding::Dispose) {
            self.publisher.write_change(Change::RemoveChat { chat: uri.clone() });
            return Ok(());
        }
        self.publisher.store().turns_not_stored(uri, 0);
        let stored = self.publisher.store_all(&self.chats).await;
        if ending.is_none() {
            self.start_waiting_message(uri).await;
        }
        Ok(stored?)
    }

    /// The action that sets the changesets of a chat from another session, whose addresses
    /// contain the session's.
    fn changed_changesets(&self, chat: &ChannelUri) -> Option<Action> {
        let changesets = self.changesets.of_chat(&self.uri, chat);
        let known = self.publisher.store().read(chat, |state| state.chat()?.changesets.clone()).flatten();
        let changed = ChatChangesetsChangedAction { changesets: changesets.clone() };
        (changesets != known).then(|| Action::own(StateAction::ChatChangesetsChanged(changed)))
    }

    async fn adopt_chat(&mut self, seed: ChatSeed, placement: ChatPlacement) -> Result<(), ChatError> {
        let uri = seed.uri.clone();
        let replaced = match placement {
            ChatPlacement::After(_) => None,
            ChatPlacement::AsDefault { .. } => self.default_chat(),
        };
        let actions = self.publisher.with_state(&uri, |session, chat| {
            adoption((session, self.listed), chat, &placement, replaced.as_ref())
        });
        let mut actions: Vec<(ChannelUri, Action)> = actions
            .ok_or_else(|| ChatError::Unknown(uri.clone()))?
            .into_iter()
            .map(|(target, action)| (self.channel(&uri, target).clone(), Action::own(action)))
            .collect();
        actions.extend(self.changed_changesets(&uri).map(|action| (uri.clone(), action)));
        self.chats.add(Chat::new(seed, self.opener.provider.as_ref()));
        self.publisher.publish_and_remove_chats(&actions, replaced.as_slice()).await;
        if let Some(chat) = &replaced {
            self.chats.remove(chat);
        }
        self.add_to_list();
        self.project(&uri);
        // Messages that were queued during the move start here.
        self.start_waiting_message(&uri).await;
        Ok(())
    }
}
