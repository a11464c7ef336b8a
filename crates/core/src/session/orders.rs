//! Creates, moves and removes the chats of a session.
//!
//! A chat is added with one write that contains its document and its entry in the
//! session's list, and removed with one write that deletes both. A chat that is moved to
//! another session belongs to the session that storage names; until storage has changed,
//! this session keeps the chat and does not end.

use ahp_types::actions::{
    ChatMovableChangedAction, ChatWorkingDirectoryRemovedAction, SessionChatAddedAction,
    SessionChatRemovedAction, SessionChatsReorderedAction, SessionDefaultChatChangedAction,
    SessionReadyAction, SessionTitleChangedAction, StateAction,
};
use ahp_types::commands::ChatSource;
use ahp_types::state::{
    AgentCapabilities, ChatOrigin, ChatState, MessageKind, MultipleChatsCapability, PendingMessage,
    SessionState, SideChatSelection,
};

use super::actor::SessionActor;
use super::amend::has_too_many_chats;
use super::chats::{Chat, ChatSeed, Leaving, chat_state};
use super::decide::{DecisionInput, title_from};
use super::discard::discard;
use super::handle::{ChatError, ChatOrder, ChatPlacement, NewChat, ReplySender, SessionEnding};
use super::projection;
use crate::agent::{Branch, BranchKind, History};
use crate::channel::ChannelUri;
use crate::clock::wire_time;
use crate::state::{Action, ChannelState, ChatDoc};
use crate::storage::{Change, Json, StorageError, StoredTurn};

/// The id of the first message of a chat that is created with one.
const INITIAL_MESSAGE: &str = "initial";

/// Most bytes of a side chat's selection. It is part of the session's row, which all
/// clients get. Longer selections are refused; most responses are shorter.
const MAX_SELECTION: usize = 64 * 1024;

/// Why the default chat is not moved to another session.
const DEFAULT_CHAT_FIXED: &str = "the default chat cannot be moved to another session";

/// Most chats per session; each one has its own agent.
const MAX_CHATS: usize = 64;

impl SessionActor {
    pub(super) async fn handle_order(&mut self, order: ChatOrder) {
        // Replies are sent with `.ok()`: the caller may have stopped waiting.
        match order {
            ChatOrder::Create { new, done } => {
                let created = self.create_chat(*new).await;
                done.send(created).ok();
            }
            ChatOrder::Dispose { chat, done } => self.dispose_chat(&chat, done).await,
            ChatOrder::Place { chat, after, done } => {
                let placed = self.place_chat(&chat, after.as_ref()).await;
                done.send(placed).ok();
            }
            ChatOrder::ExpectChat { placement, done } => {
                let checked = self.check_arrival(&placement);
                let granted = checked.is_ok();
                // A caller that does not receive the reply does not send the chat either.
                self.expected_chats += usize::from(done.send(checked).is_ok() && granted);
            }
            ChatOrder::CancelExpected { done } => {
                self.expected_chats = self.expected_chats.saturating_sub(1);
                done.send(Ok(())).ok();
            }
            ChatOrder::Release { chat, done } => self.release_chat(&chat, done).await,
            ChatOrder::CancelRelease { chat, done } => {
                let stored = self.cancel_release(&chat).await;
                done.send(stored).ok();
            }
            ChatOrder::DropReleased { chat, done } => {
                self.drop_released_chat(&chat).await;
                done.send(Ok(())).ok();
            }
            ChatOrder::ShowRow { done } => {
                self.project_row();
                done.send(Ok(())).ok();
            }
            ChatOrder::Adopt { seed, placement, done } => {
                self.expected_chats = self.expected_chats.saturating_sub(1);
                let adopted = self.adopt_chat(*seed, placement).await;
                done.send(adopted).ok();
            }
        }
    }

    async fn create_chat(&mut self, new: NewChat) -> Result<(), ChatError> {
        let chats = self.chat_capabilities()?;
        self.check_room()?;
        if new.initial_message.as_ref().is_some_and(|message| message.origin.kind != MessageKind::User) {
            return Err(refused("a client can only send messages of origin \"user\""));
        }
        if new.initial_message.as_ref().is_some_and(has_too_many_chats) {
            return Err(refused("the message has too many attached chats without an endTurn; attach fewer"));
        }
        let (doc, turns, history) = self.build_chat(&new, &chats)?;
        let mut seed = ChatSeed::new(new.uri.clone(), history);
        if let Some(ChatSource::Fork(fork)) = &new.source
            && let Some(source) = self.chats.get(&ChannelUri::new(&fork.chat))
        {
            seed.links = source.links.of_turns(&turns);
        }
        self.add_chat(seed, doc, turns).await?;
        // Its initial message is in the queue.
        self.start_waiting_message(&new.uri).await;
        Ok(())
    }

    /// Adds and stores a chat, if its URI is free.
    pub(super) async fn add_chat(
        &mut self,
        seed: ChatSeed,
        doc: ChatDoc,
        turns: Vec<StoredTurn>,
    ) -> Result<(), ChatError> {
        let uri = seed.uri.clone();
        if self.store.has(&uri) || !self.addresses.claim(&uri, &self.seed.uri) {
            return Err(ChatError::Exists(uri));
        }
        if let Err(error) = self.put_chat(&seed, doc, turns).await {
            self.addresses.release(&uri);
            return Err(error);
        }
        self.journal.cancel_removal(&uri);
        self.chats.add(Chat::new(seed, self.seed.provider.as_ref()));
        self.project(&uri);
        Ok(())
    }

    /// Stores a new chat and adds it to the session's list.
    async fn put_chat(
        &mut self,
        seed: &ChatSeed,
        doc: ChatDoc,
        turns: Vec<StoredTurn>,
    ) -> Result<(), ChatError> {
        let summary = projection::summary_of(doc.open());
        let added = Action::own(StateAction::SessionChatAdded(SessionChatAddedAction { summary }));
        let state: Json = serde_json::value::to_raw_value(&doc.header()).map_err(unencodable)?.into();
        let chat = seed.uri.clone();
        let mut changes = vec![
            Change::PutChat {
                chat: chat.clone(),
                session: self.seed.uri.clone(),
                conversation: seed.conversation.clone(),
                state,
            },
            Change::PutTurns { chat: chat.clone(), keep: 0, turns },
        ];
        changes.extend(seed.links.iter().map(|(turn, link)| Change::PutTurnLink {
            chat: chat.clone(),
            turn: turn.clone(),
            link: link.clone(),
        }));
        let entry = added.encoded().map_err(unencodable)?;
        let at = self.now();
        if let Err(error) =
            self.journal.write_ahead(changes, vec![(self.seed.uri.clone(), entry)], None, at).await
        {
            // After a timeout the chat may still be written.
            self.journal.schedule_removal(chat);
            return Err(error.into());
        }
        if self.store.create(vec![(chat.clone(), ChannelState::Chat(Box::new(doc)))]).is_err() {
            self.journal.schedule_removal(chat.clone());
            return Err(ChatError::Exists(chat));
        }
        self.commit_written(&self.seed.uri.clone(), &added);
        Ok(())
    }

    /// Builds the document of a new chat, its initial turns and the history for its agent.
    fn build_chat(
        &self,
        new: &NewChat,
        chats: &MultipleChatsCapability,
    ) -> Result<(ChatDoc, Vec<StoredTurn>, History), ChatError> {
        let mut state = chat_state(&new.uri, &wire_time(self.clock.now()));
        state.movable = Some(true);
        let (turns, history) = match &new.source {
            None => {
                state.working_directories = self.directories_for(new)?;
                (Vec::new(), History::Fresh)
            }
            Some(ChatSource::Fork(fork)) => {
                if chats.fork != Some(true) {
                    return Err(refused("this agent does not support forks"));
                }
                let (chat, turn_id) = (fork.chat.clone(), fork.turn_id.clone());
                let branch = self.branch(&chat, &turn_id, |_| BranchKind::Fork)?;
                let turns = self.turns_through(&ChannelUri::new(&chat), &turn_id)?;
                (state.title, state.working_directories) = self.title_and_directories(&chat);
                state.origin = Some(ChatOrigin::Fork { chat, turn_id });
                (turns, branch)
            }
            Some(ChatSource::SideChat(side)) => {
                if chats.side_chat != Some(true) {
                    return Err(refused("this agent does not support side chats"));
                }
                let (chat, turn_id, selection) =
                    (side.chat.clone(), side.turn_id.clone(), side.selection.clone());
                if let Some(selection) = &selection {
                    check_selection(selection)?;
                }
                let branch = self.branch(&chat, &turn_id, |source| {
                    let running = source.active_turn.clone().filter(|active| active.id == turn_id);
                    BranchKind::SideChat { selection: selection.clone(), running: running.map(Box::new) }
                })?;
                state.title = self.title_and_directories(&chat).0;
                state.working_directories = self.directories_for(new)?;
                state.origin = Some(ChatOrigin::SideChat { chat, turn_id, selection });
                (Vec::new(), branch)
            }
            Some(_) => return Err(refused("unknown kind of chat source")),
        };
        if let Some(mut message) = new.initial_message.clone() {
            self.pin(&mut message);
            if state.title.is_empty() {
                state.title = title_from(&message.text);
            }
            // The message is part of the first document, so a crash cannot separate the two.
            state.queued_messages = Some(vec![PendingMessage { id: INITIAL_MESSAGE.to_owned(), message }]);
        }
        let doc = ChatDoc::from_stored(state, turns.clone())
            .map_err(|error| StorageError::Failed(error.to_string()))?;
        Ok((doc, turns, history))
    }

    /// The history of a chat that branches from a turn of a chat in this session.
    fn branch(
        &self,
        chat: &str,
        turn: &str,
        kind: impl FnOnce(&ChatState) -> BranchKind,
    ) -> Result<History, ChatError> {
        let uri = ChannelUri::new(chat);
        let source = self.chats.get(&uri).filter(|chat| !chat.is_child());
        let source = source
            .ok_or_else(|| refused("the source must be a chat of this session and not a subagent's chat"))?;
        let kind = self
            .store
            .read(&uri, |state| {
                let doc = state.chat_doc()?;
                let running = doc.open().active_turn.as_ref().is_some_and(|active| active.id == turn);
                let kind = kind(doc.open());
                let known = doc.position(turn).is_some() || running && kind != BranchKind::Fork;
                known.then_some(kind)
            })
            .flatten()
            .ok_or_else(|| {
                refused("the source chat does not have this turn, or the turn is still running")
            })?;
        let branch = match source.agent.phase.history() {
            // The source has not been opened: its agent knows only what its own origin knows.
            History::Branch(origin) => {
                let place = |turn: &str| {
                    self.store
                        .read(&uri, |state| state.chat_doc().and_then(|doc| doc.position(turn)))
                        .flatten()
                };
                let inherited =
                    place(turn).is_some_and(|at| place(&origin.turn).is_some_and(|last| at <= last));
                let turn = if inherited { turn.to_owned() } else { origin.turn.clone() };
                let inherited = origin.link.filter(|_| turn == origin.turn);
                let link = source.links.get(&turn).cloned().or(inherited);
                Branch {
                    conversation: origin.conversation,
                    resume_token: origin.resume_token,
                    turn,
                    link,
                    kind,
                }
            }
            // The source has no history yet.
            History::Fresh if kind == BranchKind::Fork => return Ok(History::Fresh),
            History::Fresh | History::Resume | History::Rebuild(_) => Branch {
                conversation: source.conversation,
                resume_token: source.resume_token.clone(),
                turn: turn.to_owned(),
                link: source.links.get(turn).cloned(),
                kind,
            },
        };
        Ok(History::Branch(Box::new(branch)))
    }

    fn turns_through(&self, chat: &ChannelUri, turn: &str) -> Result<Vec<StoredTurn>, ChatError> {
        let through = |state: &ChannelState| {
            let doc = state.chat_doc()?;
            let last = doc.position(turn)?;
            Some(doc.turns().iter().take(last + 1).cloned().collect())
        };
        self.store
            .read(chat, through)
            .flatten()
            .ok_or_else(|| refused("the source chat does not have this turn"))
    }

    /// The title and the directories of a chat. The default chat uses the session's title
    /// unless it has its own.
    fn title_and_directories(&self, chat: &str) -> (String, Option<Vec<String>>) {
        let look = |session: &SessionState, chat: &ChatState| {
            let of_session = session.default_chat.as_ref() == Some(&chat.resource) && chat.title.is_empty();
            let title = if of_session { &session.title } else { &chat.title };
            (title.clone(), chat.working_directories.clone())
        };
        self.with_state(&ChannelUri::new(chat), look).unwrap_or_default()
    }

    /// Checks that the requested directories are directories of the session.
    fn directories_for(&self, new: &NewChat) -> Result<Option<Vec<String>>, ChatError> {
        let Some(wanted) = new.working_directories.as_ref().filter(|wanted| !wanted.is_empty()) else {
            return Ok(None);
        };
        let known = |state: &ChannelState| state.session()?.working_directories.clone();
        let known = self.store.read(&self.seed.uri, known).flatten().unwrap_or_default();
        match wanted.iter().find(|directory| !known.contains(directory)) {
            Some(foreign) => {
                Err(refused(&format!("the directory {foreign:?} does not belong to the session")))
            }
            None => Ok(Some(wanted.clone())),
        }
    }

    /// The agent's capabilities for several chats per session.
    fn chat_capabilities(&self) -> Result<MultipleChatsCapability, ChatError> {
        let AgentCapabilities { multiple_chats, .. } =
            self.seed.provider.offer().borrow().info.capabilities.clone().unwrap_or_default();
        multiple_chats.ok_or_else(|| {
            refused("this agent supports one chat per session; create another session instead")
        })
    }

    fn check_room(&self) -> Result<(), ChatError> {
        if self.ending.is_some() {
            return Err(ChatError::Gone);
        }
        let chats = self.chats.iter().filter(|chat| !chat.is_child()).count();
        if chats + self.expected_chats >= MAX_CHATS {
            return Err(refused(&format!(
                "a session can have at most {MAX_CHATS} chats; dispose of some first"
            )));
        }
        Ok(())
    }

    /// A chat that can be moved or removed: not the default chat, and not already leaving.
    fn movable_chat(&mut self, uri: &ChannelUri, default: &str) -> Result<&mut Chat, ChatError> {
        let is_default = self.default_chat().as_ref() == Some(uri);
        let chat = self.chats.get_mut(uri).ok_or_else(|| ChatError::Unknown(uri.clone()))?;
        match chat.leaving {
            _ if is_default => Err(refused(default)),
            _ if chat.is_child() && default == DEFAULT_CHAT_FIXED => {
                Err(refused("a subagent's chat cannot be moved to another session"))
            }
            None => Ok(chat),
            Some(Leaving::Disposed(_)) => Err(ChatError::Unknown(uri.clone())),
            Some(Leaving::Moving(_) | Leaving::InTransit) => {
                Err(refused("the chat is being moved; try again later"))
            }
        }
    }

    async fn dispose_chat(&mut self, uri: &ChannelUri, done: ReplySender<()>) {
        if let Some(Chat { leaving: Some(Leaving::Disposed(waiting)), .. }) = self.chats.get_mut(uri) {
            waiting.push(done);
            return;
        }
        let works = self.has_running_turn(uri);
        match self.movable_chat(uri, "the default chat cannot be disposed; dispose the session instead") {
            Ok(chat) if chat.is_child() && works => {
                done.send(Err(refused("the subagent is still working; cancel its turn first"))).ok();
                return;
            }
            Ok(chat) => chat.leaving = Some(Leaving::Disposed(vec![done])),
            Err(error) => {
                done.send(Err(error)).ok();
                return;
            }
        }
        let decision = self.decide(uri, DecisionInput::End(SessionEnding::Dispose));
        self.apply_decision(uri, decision).await;
    }

    async fn release_chat(&mut self, uri: &ChannelUri, done: ReplySender<ChatSeed>) {
        let busy = self.with_state(uri, |_, chat| chat.active_turn.is_some()).unwrap_or(false);
        let error = match self.movable_chat(uri, DEFAULT_CHAT_FIXED) {
            Ok(_) if busy => ChatError::TurnInProgress(uri.clone()),
            Ok(chat) => {
                chat.leaving = Some(Leaving::Moving(done));
                let decision = self.decide(uri, DecisionInput::End(SessionEnding::Suspend));
                self.apply_decision(uri, decision).await;
                return;
            }
            Err(error) => error,
        };
        done.send(Err(error)).ok();
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
                        std::iter::once(uri.clone()).chain(self.children_of(&uri)).collect();
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

    /// Deletes chats, with one write.
    pub(super) async fn remove_chats(&mut self, uris: &[ChannelUri]) -> Result<(), ChatError> {
        let actions: Vec<Action> = uris.iter().map(removed).collect();
        let mut entries = Vec::with_capacity(actions.len());
        for action in &actions {
            entries.push((self.seed.uri.clone(), action.encoded().map_err(unencodable)?));
        }
        let changes = uris.iter().map(|chat| Change::RemoveChat { chat: chat.clone() }).collect();
        let at = self.now();
        if let Err(error) = self.journal.write_ahead(changes, entries, None, at).await {
            for uri in uris {
                if self.ending.is_none()
                    && let Some(chat) = self.chats.get_mut(uri)
                {
                    chat.cancel_leaving();
                }
                // After a timeout the turns may have been deleted from storage.
                self.store.turns_not_stored(uri, 0);
            }
            self.journal.request_checkpoint();
            return Err(error.into());
        }
        let mut conversations = Vec::new();
        for (uri, action) in uris.iter().zip(&actions) {
            self.commit_written(&self.seed.uri.clone(), action);
            conversations.extend(self.chats.remove(uri).map(|chat| chat.host_conversation()));
            self.store.remove(std::slice::from_ref(uri));
            self.addresses.release(uri);
        }
        self.project_row();
        self.tasks.spawn(discard(self.records(), conversations));
        Ok(())
    }

    /// Releases a chat after all of it has been stored.
    async fn complete_release(&mut self, uri: &ChannelUri, done: ReplySender<ChatSeed>) {
        let stored = self.store_all().await;
        let Some(chat) = self.chats.get_mut(uri) else { return };
        if let Err(error) = stored {
            chat.cancel_leaving();
            done.send(Err(error.into())).ok();
            return;
        }
        chat.leaving = Some(Leaving::InTransit);
        // It counts as present until the move is completed or cancelled.
        chat.finished = false;
        let seed = chat.seed();
        if done.send(Ok(seed)).is_err()
            && let Some(chat) = self.chats.get_mut(uri)
        {
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
            self.journal.write_change(Change::RemoveChat { chat: uri.clone() });
            return Ok(());
        }
        self.store.turns_not_stored(uri, 0);
        let stored = self.store_all().await;
        if ending.is_none() {
            self.start_waiting_message(uri).await;
        }
        Ok(stored?)
    }

    async fn drop_released_chat(&mut self, uri: &ChannelUri) {
        if self.chats.remove(uri).is_some() {
            // If the write fails, the change is stored with the documents.
            self.publish_own(vec![(self.seed.uri.clone(), removed(uri))], Vec::new()).await.ok();
        }
    }

    fn check_arrival(&self, placement: &ChatPlacement) -> Result<(), ChatError> {
        self.chat_capabilities()?;
        self.check_room()?;
        match placement {
            ChatPlacement::After(after) => self.check_anchor(after.as_ref()),
            ChatPlacement::AsDefault { .. } => Ok(()),
        }
    }

    fn check_anchor(&self, after: Option<&ChannelUri>) -> Result<(), ChatError> {
        match after.filter(|after| self.chats.get(after).is_none()) {
            Some(_) => Err(refused("the chat to place it after is not in the session")),
            None => Ok(()),
        }
    }

    async fn adopt_chat(&mut self, seed: ChatSeed, placement: ChatPlacement) -> Result<(), ChatError> {
        let uri = seed.uri.clone();
        let summary = self.with_state(&uri, |_, chat| projection::summary_of(chat));
        let mut summary = summary.ok_or_else(|| ChatError::Unknown(uri.clone()))?;
        let foreign = self.foreign_directories(&uri);
        if let Some(directories) = &mut summary.working_directories {
            directories.retain(|directory| !foreign.contains(directory));
        }
        self.chats.add(Chat::new(seed, self.seed.provider.as_ref()));
        let mut actions = Vec::new();
        let mut placeholder = None;
        match placement {
            ChatPlacement::After(after) => {
                let order = self.order_after(&uri, after.as_ref());
                actions.push(StateAction::SessionChatAdded(SessionChatAddedAction { summary }));
                actions.extend(order);
            }
            ChatPlacement::AsDefault { title } => {
                placeholder = self.default_chat().filter(|placeholder| *placeholder != uri);
                summary.movable = Some(false);
                actions.push(StateAction::SessionChatAdded(SessionChatAddedAction { summary }));
                actions.extend(self.default_chat_actions(&uri, title));
            }
        }
        actions.extend((!self.listed).then_some(StateAction::SessionReady(SessionReadyAction {})));
        let lost = foreign.into_iter().map(|directory| {
            StateAction::ChatWorkingDirectoryRemoved(ChatWorkingDirectoryRemovedAction { directory })
        });
        self.publish_arrival(&uri, lost.collect(), actions, placeholder.as_ref()).await;
        self.add_to_list();
        self.project(&uri);
        // Messages that were queued during the move start here.
        self.start_waiting_message(&uri).await;
        Ok(())
    }

    /// The chat's directories that this session does not have.
    fn foreign_directories(&self, chat: &ChannelUri) -> Vec<String> {
        let look = |session: &SessionState, chat: &ChatState| {
            let known = session.working_directories.as_deref().unwrap_or_default();
            chat.working_directories.iter().flatten().filter(|own| !known.contains(own)).cloned().collect()
        };
        self.with_state(chat, look).unwrap_or_default()
    }

    /// The actions that make a chat the default chat of a session created for it.
    fn default_chat_actions(&self, uri: &ChannelUri, title: String) -> [StateAction; 2] {
        let named = self.with_state(uri, |_, chat| chat.title.clone()).unwrap_or_default();
        let title = if named.is_empty() { title } else { named };
        let default_chat = Some(uri.as_str().to_owned());
        [
            StateAction::SessionDefaultChatChanged(SessionDefaultChatChangedAction { default_chat }),
            StateAction::SessionTitleChanged(SessionTitleChangedAction { title }),
        ]
    }

    /// Publishes the arrival of a chat, in one write. `placeholder` is the unused default
    /// chat that it replaces, if any; the same write removes it.
    async fn publish_arrival(
        &mut self,
        uri: &ChannelUri,
        of_chat: Vec<StateAction>,
        actions: Vec<StateAction>,
        placeholder: Option<&ChannelUri>,
    ) {
        let of_chat = of_chat.into_iter().map(|action| (uri.clone(), Action::own(action)));
        let of_session = actions.into_iter().map(|action| (self.seed.uri.clone(), Action::own(action)));
        let mut all: Vec<(ChannelUri, Action)> = of_chat.chain(of_session).collect();
        let mut changes = Vec::new();
        if let Some(chat) = placeholder {
            let fixed = StateAction::ChatMovableChanged(ChatMovableChangedAction { movable: false });
            all.insert(0, (uri.clone(), Action::own(fixed)));
            all.push((self.seed.uri.clone(), removed(chat)));
            changes.push(Change::RemoveChat { chat: chat.clone() });
        }
        let stored = self.publish_own(all, changes).await;
        if let Some(chat) = placeholder {
            if stored.is_err() {
                self.journal.schedule_removal(chat.clone());
            }
            self.chats.remove(chat);
            self.store.remove(std::slice::from_ref(chat));
        }
    }

    async fn place_chat(&mut self, uri: &ChannelUri, after: Option<&ChannelUri>) -> Result<(), ChatError> {
        self.movable_chat(uri, "the default chat cannot be moved")?;
        if after == Some(uri) {
            return Err(refused("cannot move a chat after itself"));
        }
        self.check_anchor(after)?;
        let Some(order) = self.order_after(uri, after).map(Action::own) else { return Ok(()) };
        let entry = order.encoded().map_err(unencodable)?;
        let at = self.now();
        self.journal.write_ahead(Vec::new(), vec![(self.seed.uri.clone(), entry)], None, at).await?;
        self.commit_written(&self.seed.uri.clone(), &order);
        self.project_row();
        Ok(())
    }

    /// The action that moves a chat after another, or first; `None` if it is there already.
    fn order_after(&self, uri: &ChannelUri, after: Option<&ChannelUri>) -> Option<StateAction> {
        let listed = |state: &ChannelState| {
            Some(state.session()?.chats.iter().map(|chat| chat.resource.clone()).collect::<Vec<_>>())
        };
        let mut before = self.store.read(&self.seed.uri, listed).flatten()?;
        let mut chats = before.clone();
        chats.retain(|chat| chat != uri.as_str());
        if chats.len() == before.len() {
            // It is about to be added, at the end.
            before.push(uri.as_str().to_owned());
        }
        let anchor = after.and_then(|after| chats.iter().position(|chat| chat == after.as_str()));
        // If the anchor was removed in the meantime, the chat goes to the end.
        let place = if after.is_none() { 0 } else { anchor.map_or(chats.len(), |anchor| anchor + 1) };
        chats.insert(place, uri.as_str().to_owned());
        (chats != before).then_some(StateAction::SessionChatsReordered(SessionChatsReorderedAction { chats }))
    }
}

fn removed(chat: &ChannelUri) -> Action {
    let chat = chat.as_str().to_owned();
    Action::own(StateAction::SessionChatRemoved(SessionChatRemovedAction { chat }))
}

fn check_selection(selection: &SideChatSelection) -> Result<(), ChatError> {
    let part = selection.response_part_id.as_ref().map_or(0, String::len);
    if selection.text.is_empty() {
        return Err(refused("the selection is empty; leave it out instead"));
    }
    if selection.text.len() + part > MAX_SELECTION {
        return Err(refused(&format!(
            "the selection is longer than {MAX_SELECTION} bytes; select less text"
        )));
    }
    Ok(())
}

fn refused(why: &str) -> ChatError {
    ChatError::Refused(why.to_owned())
}

fn unencodable(error: serde_json::Error) -> StorageError {
    StorageError::Failed(error.to_string())
}
