//! Publishes and stores a session's changes.
//!
//! Turn boundaries and decisions are written to the journal before they are published;
//! streamed output is written within a tenth of a second. If storage fails, client actions
//! are rejected, but agent output is published anyway: the user has to see what happened,
//! and it is stored as soon as storage works again.

use std::collections::HashSet;

use ahp_types::actions::StateAction;
use ahp_types::state::MessageKind;

use super::actor::SessionActor;
use super::decide::{ActionTarget, Decision, DecisionInput, Phase, QueueEffect};
use super::handle::ClientDispatch;
use super::journal_writer::{JournalTask, JournalWake, TurnsFrom};
use super::projection;
use crate::action::{Durability, TurnEffect, meaning};
use crate::agent::History;
use crate::channel::ChannelUri;
use crate::state::{Action, ChannelState};
use crate::storage::{Change, Json, StorageError};

impl SessionActor {
    /// Publishes a client's action, unchanged or amended. The error is the rejection reason.
    pub(super) async fn publish_for(
        &mut self,
        dispatch: &ClientDispatch,
        action: &Action,
    ) -> Result<(), String> {
        let ClientDispatch { channel, origin, .. } = dispatch;
        let encoded = action.encoded().map_err(|error| error.to_string())?;
        let at = self.now();
        let rule = meaning(action.typed()).client;
        let ahead = rule.is_none_or(|rule| rule.durability == Durability::Ahead);
        let handled = dispatch.mark.map(|mark| (&origin.client, mark));
        if ahead {
            let entry = vec![(channel.clone(), encoded.clone())];
            let written = self.journal.write_ahead(Vec::new(), entry, handled, at).await;
            written.map_err(|error| error.to_string())?;
        }
        let answer = match self.store.commit(channel, action, Some(origin)) {
            Ok(answer) => answer,
            Err(error) => {
                // The action may be in the journal; the documents will not contain it.
                self.journal.request_checkpoint();
                return Err(error.to_string());
            }
        };
        match handled {
            _ if !ahead => self.journal.append(channel, encoded, at),
            Some((client, mark)) => self.journal.record_answer(client, mark, answer),
            None => {}
        }
        self.after_commit(channel, action.typed(), QueueEffect::of_client(action.typed()));
        Ok(())
    }

    /// Applies a decision for a chat, and the decisions that follow from it.
    pub(super) async fn apply_decision(&mut self, chat: &ChannelUri, first: Decision) {
        let mut next = Some(first);
        while let Some(mut decision) = next.take() {
            self.apply_agent_changes(chat, &mut decision);
            let actions: Vec<(ActionTarget, Action)> =
                decision.actions.into_iter().map(|(target, action)| (target, Action::own(action))).collect();
            let shows = actions.iter().any(|(_, action)| meaning(action.typed()).shows_in_list);
            let ended = self.publish(chat, &actions).await;
            for effect in decision.effects {
                self.run_effect(chat, effect);
            }
            if shows {
                self.project(chat);
            }
            // After `project`, because the documents contain the copies of the chat's data.
            if ended {
                self.checkpoint();
            }
            if shows {
                next = self.next_waiting_message(chat);
            }
        }
    }

    /// Applies the part of a decision that concerns the chat's agent.
    fn apply_agent_changes(&mut self, uri: &ChannelUri, decision: &mut Decision) {
        let Some(chat) = self.chats.get_mut(uri) else { return };
        let agent = &mut chat.agent;
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
        if decision.works {
            // The rewind was sent before the message that the agent is working on.
            agent.rewind = None;
            if matches!(agent.phase, Phase::Live(_)) {
                agent.phase = Phase::Live(History::Resume);
            }
        }
        if let Some(token) =
            decision.resume_token.take().filter(|token| chat.resume_token.as_ref() != Some(token))
        {
            chat.resume_token = Some(token.clone());
            self.journal.write_soon(Change::PutResumeToken { chat: uri.clone(), token });
        }
        if let Some((turn, message)) = decision.link.take() {
            let is_folded = chat.agent.folded.as_ref().is_some_and(|folded| folded.turn == turn);
            let look = |state: &ChannelState| {
                let doc = state.chat_doc()?;
                let running = doc.open().active_turn.as_ref().map(|active| active.id.as_str());
                // An agent's own turn that is folded into a running one is linked to that one.
                let turn = if is_folded { running? } else { turn.as_str() };
                (running == Some(turn) || doc.position(turn).is_some()).then(|| turn.to_owned())
            };
            if let Some(turn) = self.store.read(uri, look).flatten() {
                let link = chat.links.add(&turn, message);
                self.journal.write_soon(Change::PutTurnLink { chat: uri.clone(), turn, link });
            }
        }
    }

    /// Fails orphaned tool calls of a chat, or else starts its next waiting message if it is
    /// idle.
    pub(super) async fn start_waiting_message(&mut self, chat: &ChannelUri) {
        if let Some(decision) = self.next_waiting_message(chat) {
            self.apply_decision(chat, decision).await;
        }
    }

    /// Calls [`Self::start_waiting_message`] for each chat.
    pub(super) async fn start_waiting_messages(&mut self) {
        for chat in self.chats.uris().collect::<Vec<_>>() {
            self.start_waiting_message(&chat).await;
        }
    }

    fn next_waiting_message(&self, chat: &ChannelUri) -> Option<Decision> {
        Some(self.decide(chat, DecisionInput::StartWaiting)).filter(|next| !next.actions.is_empty())
    }

    /// Publishes the host's own actions. Returns whether they end a turn.
    async fn publish(&mut self, chat: &ChannelUri, actions: &[(ActionTarget, Action)]) -> bool {
        let at = self.now();
        let ahead = actions.iter().any(|(_, action)| meaning(action.typed()).host == Durability::Ahead);
        if ahead {
            let entries = actions
                .iter()
                .filter_map(|(target, action)| {
                    Some((self.channel(chat, *target).clone(), action.encoded().ok()?))
                })
                .collect();
            // Published even if the write fails, because it has already happened.
            self.write_ahead(Vec::new(), entries).await.ok();
        }
        for (target, action) in actions {
            let channel = self.channel(chat, *target).clone();
            match self.store.commit(&channel, action, None) {
                Ok(_) => {
                    self.after_commit(&channel, action.typed(), QueueEffect::of_host(action.typed()));
                    if !ahead && let Ok(encoded) = action.encoded() {
                        self.journal.append(&channel, encoded, at);
                    }
                }
                Err(error) => {
                    tracing::error!(session = %self.seed.uri, %error, "cannot publish action");
                    self.journal.request_checkpoint();
                }
            }
        }
        actions.iter().any(|(_, action)| meaning(action.typed()).ends_turn())
    }

    /// Publishes the host's own actions that must survive a restart, in one write. They are
    /// published even if the write fails, because they describe what has happened.
    pub(super) async fn publish_own(
        &mut self,
        actions: Vec<(ChannelUri, Action)>,
        changes: Vec<Change>,
    ) -> Result<(), StorageError> {
        let entries = actions
            .iter()
            .filter_map(|(channel, action)| Some((channel.clone(), action.encoded().ok()?)))
            .collect();
        let stored = self.write_ahead(changes, entries).await;
        for (channel, action) in &actions {
            self.commit_written(channel, action);
        }
        stored
    }

    /// Publishes an action that has been written to the journal.
    pub(super) fn commit_written(&mut self, channel: &ChannelUri, action: &Action) {
        if let Err(error) = self.store.commit(channel, action, None) {
            tracing::error!(%channel, %error, "cannot publish action");
            self.journal.request_checkpoint();
        }
    }

    async fn write_ahead(
        &mut self,
        changes: Vec<Change>,
        entries: Vec<(ChannelUri, Json)>,
    ) -> Result<(), StorageError> {
        let at = self.now();
        let stored = self.journal.write_ahead(changes, entries, None, at).await;
        if let Err(error) = &stored {
            tracing::error!(session = %self.seed.uri, %error, "cannot store actions before publishing them");
            self.journal.request_checkpoint();
        }
        stored
    }

    /// Updates the copies of a chat's data.
    pub(super) fn project(&mut self, chat: &ChannelUri) {
        for update in self.with_state(chat, projection::session_updates).unwrap_or_default() {
            self.publish_derived(update);
        }
        self.project_row();
    }

    /// Updates the session's activity and its row in the session list.
    pub(super) fn project_row(&mut self) {
        let look = |state: &ChannelState| projection::activity_update(state.session()?);
        if let Some(update) = self.store.read(&self.seed.uri, look).flatten() {
            self.publish_derived(update);
        }
        if !self.listed && !self.is_used() {
            return;
        }
        // Listed from the first message on, even if the agent cannot be opened.
        self.add_to_list();
        let look = |state: &ChannelState| {
            Some(projection::row(&self.seed.uri, &self.seed.created_at, state.session()?))
        };
        let row = self.store.read(&self.seed.uri, look).flatten();
        if let Some(row) = row.and_then(|row| self.store.put_row(&self.seed.uri, row)) {
            self.journal.write_change(Change::PutRow(row));
        }
    }

    /// Publishes a derived action. It can be derived again, so it is not written ahead.
    fn publish_derived(&mut self, update: StateAction) {
        let (at, action) = (self.now(), Action::own(update));
        match (self.store.commit(&self.seed.uri, &action, None), action.encoded()) {
            (Ok(_), Ok(encoded)) => self.journal.append(&self.seed.uri, encoded, at),
            (Err(error), _) => {
                tracing::error!(session = %self.seed.uri, %error, "cannot publish chat summary");
            }
            (Ok(_), Err(_)) => self.journal.request_checkpoint(),
        }
    }

    /// Handles a wake-up of the journal writer.
    pub(super) fn handle_journal(&mut self, wake: JournalWake) {
        let runs = |chat: &ChannelUri| self.with_state(chat, |_, chat| chat.active_turn.is_some());
        let quiet = !self.chats.iter().any(|chat| runs(&chat.uri).unwrap_or(false));
        match self.journal.handle(wake, quiet) {
            JournalTask::None => {}
            JournalTask::TurnsLost(turns) => self.mark_turns_not_stored(turns),
            JournalTask::Checkpoint => self.checkpoint(),
        }
    }

    fn mark_turns_not_stored(&self, turns: TurnsFrom) {
        for (chat, from) in turns {
            self.store.turns_not_stored(&chat, from);
        }
    }

    /// Starts writing the documents, without waiting.
    pub(super) fn checkpoint(&mut self) {
        if self.journal.can_checkpoint()
            && let Some((documents, turns_from)) = self.documents()
        {
            self.journal.checkpoint(documents, turns_from);
        }
    }

    /// Stores the complete session and waits for the result.
    pub(super) async fn store_all(&mut self) -> Result<(), StorageError> {
        let lost = self.journal.wait_for_write().await;
        self.mark_turns_not_stored(lost);
        let Some((documents, turns_from)) = self.documents() else { return Ok(()) };
        let stored = self.journal.finish(documents).await;
        if stored.is_err() {
            self.journal.request_checkpoint();
            self.mark_turns_not_stored(turns_from);
        }
        stored
    }

    /// The complete session as storage changes, and the turns that they contain.
    fn documents(&self) -> Option<(Vec<Change>, TurnsFrom)> {
        // Only the new session may store a chat that is in transit.
        let here = || self.chats.iter().filter(|chat| !chat.is_in_transit());
        let uris: Vec<&ChannelUri> = here().map(|chat| &chat.uri).collect();
        let checkpoint = match self.store.checkpoint(&self.seed.uri, &uris) {
            Ok(checkpoint) => checkpoint?,
            Err(error) => {
                tracing::error!(session = %self.seed.uri, %error, "cannot encode session");
                return None;
            }
        };
        let mut changes = vec![Change::PutSession {
            session: self.seed.uri.clone(),
            created_at: self.seed.created_at.clone(),
            row: checkpoint.row,
            state: checkpoint.session,
        }];
        let mut turns_from = TurnsFrom::new();
        for (chat, (state, turns)) in here().zip(checkpoint.chats) {
            changes.push(Change::PutChat {
                chat: chat.uri.clone(),
                session: self.seed.uri.clone(),
                conversation: chat.stored_conversation(),
                state,
            });
            if let Some((keep, turns)) = turns {
                turns_from.push((chat.uri.clone(), keep));
                // Repeated, because the earlier write of the link may have failed.
                changes.extend(turns.iter().filter_map(|turn| {
                    let link = chat.links.get(&turn.id)?.clone();
                    Some(Change::PutTurnLink { chat: chat.uri.clone(), turn: turn.id.clone(), link })
                }));
                changes.push(Change::PutTurns { chat: chat.uri.clone(), keep, turns });
            }
        }
        Some((changes, turns_from))
    }

    /// Updates turn counters, turn start times and the queue after a commit.
    fn after_commit(&mut self, channel: &ChannelUri, action: &StateAction, queue: QueueEffect) {
        // The end of a turn that the agent started itself does not affect the queue.
        let by_user =
            |state: &ChannelState| Some(state.chat()?.turns.last()?.message.origin.kind == MessageKind::User);
        let own = meaning(action).ends_turn() && self.store.read(channel, by_user).flatten() == Some(false);
        if let Some(chat) = self.chats.get_mut(channel).filter(|_| !own) {
            match queue {
                QueueEffect::Continues => chat.agent.queue_held = false,
                QueueEffect::Held => chat.agent.queue_held = true,
                QueueEffect::None => {}
            }
        }
        let meaning = meaning(action);
        if meaning.turn == Some(TurnEffect::Truncates) {
            self.drop_links(channel);
        }
        let ended = meaning.ends_turn();
        if !ended && !meaning.begins_turn() {
            return;
        }
        let now = self.began.elapsed();
        let others = self.turns_running(channel);
        let Some(agent) = self.chats.get_mut(channel).map(|chat| &mut chat.agent) else { return };
        if !ended {
            agent.turn_began = now;
            agent.openings = 0;
        }
        // A session counts once, regardless of how many of its chats are busy.
        if others {
            return;
        }
        let change = if ended { -1 } else { 1 };
        if let Err(error) = self.store.adjust_active_sessions(change) {
            tracing::error!(%error, "cannot publish active session count");
        }
    }

    /// Drops the links of turns that the chat no longer has.
    fn drop_links(&mut self, uri: &ChannelUri) {
        let turns = |state: &ChannelState| {
            state.chat_doc().map(|doc| doc.turns().iter().map(|turn| turn.id.clone()).collect::<HashSet<_>>())
        };
        let Some(left) = self.store.read(uri, turns).flatten() else { return };
        let Some(chat) = self.chats.get_mut(uri) else { return };
        let turns = chat.links.retain(|turn| left.contains(turn));
        if !turns.is_empty() {
            self.journal.write_soon(Change::RemoveTurnLinks { chat: uri.clone(), turns });
        }
    }

    /// Whether a turn is running in another chat.
    fn turns_running(&self, but: &ChannelUri) -> bool {
        self.chats
            .uris()
            .filter(|chat| chat != but)
            .any(|chat| self.with_state(&chat, |_, chat| chat.active_turn.is_some()).unwrap_or(false))
    }

    fn channel<'a>(&'a self, chat: &'a ChannelUri, target: ActionTarget) -> &'a ChannelUri {
        match target {
            ActionTarget::Session => &self.seed.uri,
            ActionTarget::Chat => chat,
        }
    }

    pub(super) fn now(&self) -> i64 {
        self.clock.now().as_millisecond()
    }
}
