//! How a session's changes become public and durable.
//!
//! Boundaries of turns and decisions are in the journal before anybody is told;
//! streamed output follows within a tenth of a second. If the storage fails, a
//! client's own action is refused, and what the agent did is published all the
//! same: the user has to see it, and it is written as soon as that works again.

use ahp_types::actions::StateAction;

use super::actor::{ClientDispatch, SessionActor};
use super::decide::{Cause, Decision, Input, Phase, Target};
use super::ledger::{Chore, Due};
use super::projection;
use crate::agent::History;
use crate::channel::ChannelUri;
use crate::state::{Action, DispatchMark};
use crate::storage::{Change, StorageError};

impl SessionActor {
    /// Publishes a client's action. The error is the reason why it is refused.
    pub(super) async fn publish_for(&mut self, dispatch: &ClientDispatch) -> Result<(), String> {
        let ClientDispatch { channel, action, origin } = dispatch;
        let encoded = action.encoded().map_err(|error| error.to_string())?;
        let at = self.now();
        let ahead = !may_follow(action.typed());
        if ahead {
            let mark = DispatchMark::of(channel, action, origin);
            let handled = mark.map(|mark| (origin.client.clone(), mark));
            let entry = vec![(channel.clone(), encoded.clone())];
            self.ledger.ahead(entry, handled, at).await.map_err(|error| error.to_string())?;
        }
        if let Err(error) = self.store.commit(channel, action, Some(origin)) {
            // It may be in the journal already; the documents will be without it.
            self.ledger.wants_checkpoint();
            return Err(error.to_string());
        }
        if !ahead {
            self.ledger.note(channel, encoded, at);
        }
        self.after_commit(action.typed());
        Ok(())
    }

    /// Does what was decided, and what follows from it.
    pub(super) async fn carry_out(&mut self, first: Decision, cause: Cause) {
        let mut next = Some((first, cause));
        while let Some((decision, cause)) = next.take() {
            if let Some(phase) = decision.phase {
                self.model.phase = phase;
            }
            if let Some(rewind) = decision.rewind {
                self.model.rewind = Some(rewind);
            } else if matches!(self.model.phase, Phase::Live) {
                // It was told, first of all.
                self.model.rewind = None;
            }
            let actions: Vec<(Target, Action)> =
                decision.actions.into_iter().map(|(target, action)| (target, Action::own(action))).collect();
            let shows = actions.iter().any(|(_, action)| !projection::only_streams(action.typed()));
            let ended = self.publish(&actions).await;
            for effect in decision.effects {
                self.run_effect(effect);
            }
            if shows {
                self.project();
            }
            // Only now: the documents have the copies of the chat's facts in them.
            if ended {
                self.checkpoint();
            }
            if shows {
                next = self.waiting_message(cause).map(|decision| (decision, Cause::Agent));
            }
        }
    }

    /// Starts what waits, if the chat has become idle.
    pub(super) async fn settle(&mut self, cause: Cause) {
        if let Some(decision) = self.waiting_message(cause) {
            self.carry_out(decision, Cause::Agent).await;
        }
    }

    fn waiting_message(&self, cause: Cause) -> Option<Decision> {
        Some(self.decide(Input::Settle(cause))).filter(|next| !next.actions.is_empty())
    }

    /// Publishes actions of the host's own. Answers whether they end a turn.
    async fn publish(&mut self, actions: &[(Target, Action)]) -> bool {
        let at = self.now();
        let ahead = actions.iter().any(|(_, action)| is_boundary(action.typed()));
        if ahead {
            let entries = actions
                .iter()
                .filter_map(|(target, action)| Some((self.channel(*target).clone(), action.encoded().ok()?)))
                .collect();
            if let Err(error) = self.ledger.ahead(entries, None, at).await {
                tracing::error!(session = %self.seed.uri, %error, "published before it is stored");
                self.ledger.wants_checkpoint();
            }
        }
        for (target, action) in actions {
            let channel = self.channel(*target).clone();
            match self.store.commit(&channel, action, None) {
                Ok(_) => {
                    self.after_commit(action.typed());
                    if !ahead && let Ok(encoded) = action.encoded() {
                        self.ledger.note(&channel, encoded, at);
                    }
                }
                Err(error) => {
                    tracing::error!(session = %self.seed.uri, %error, "an action could not be published");
                    self.ledger.wants_checkpoint();
                }
            }
        }
        actions.iter().any(|(_, action)| ends_turn(action.typed()))
    }

    /// Brings the copies of the chat's facts into agreement with the chat.
    pub(super) fn project(&mut self) {
        let at = self.now();
        for update in self.with_state(projection::session_updates).unwrap_or_default() {
            let action = Action::own(update);
            match (self.store.commit(&self.seed.uri, &action, None), action.encoded()) {
                (Ok(_), Ok(encoded)) => self.ledger.note(&self.seed.uri.clone(), encoded, at),
                (Err(error), _) => {
                    tracing::error!(session = %self.seed.uri, %error, "a chat's facts could not be published");
                }
                (Ok(_), Err(_)) => self.ledger.wants_checkpoint(),
            }
        }
        if !self.model.listed {
            return;
        }
        let row =
            self.with_state(|session, _| projection::row(&self.seed.uri, &self.seed.created_at, session));
        if let Some(row) = row.and_then(|row| self.store.put_row(&self.seed.uri, row)) {
            self.ledger.beside(Change::PutRow(row));
        }
    }

    /// Does what the ledger is due for.
    pub(super) fn handle_ledger(&mut self, due: Due) {
        let quiet = self.with_state(|_, chat| chat.active_turn.is_none()).unwrap_or(true);
        match self.ledger.handle(due, quiet) {
            Chore::None => {}
            Chore::TurnsLost(from) => self.store.turns_not_stored(&self.seed.chat, from),
            Chore::Checkpoint => self.checkpoint(),
        }
    }

    /// Hands the documents to the storage, without waiting.
    pub(super) fn checkpoint(&mut self) {
        if self.ledger.takes_documents()
            && let Some((documents, turns_from)) = self.documents()
        {
            self.ledger.checkpoint(documents, turns_from);
        }
    }

    /// Stores the session as it is and waits until that is done.
    pub(super) async fn store_all(&mut self) -> Result<(), StorageError> {
        if let Some(from) = self.ledger.settled().await {
            self.store.turns_not_stored(&self.seed.chat, from);
        }
        let Some((documents, turns_from)) = self.documents() else { return Ok(()) };
        let stored = self.ledger.finish(documents).await;
        if stored.is_err() {
            self.ledger.wants_checkpoint();
            if let Some(from) = turns_from {
                self.store.turns_not_stored(&self.seed.chat, from);
            }
        }
        stored
    }

    /// Everything about the session, as changes for the storage.
    fn documents(&self) -> Option<(Vec<Change>, Option<usize>)> {
        let checkpoint = match self.store.checkpoint(&self.seed.uri, &self.seed.chat) {
            Ok(checkpoint) => checkpoint?,
            Err(error) => {
                tracing::error!(session = %self.seed.uri, %error, "the session cannot be encoded");
                return None;
            }
        };
        let history = match &self.model.phase {
            Phase::Cold(history) | Phase::Opening { history, .. } => *history,
            Phase::Live => History::Resume,
            Phase::Closing => self.history(),
        };
        let mut changes = vec![
            Change::PutSession {
                session: self.seed.uri.clone(),
                created_at: self.seed.created_at.clone(),
                row: checkpoint.row,
                state: checkpoint.session,
            },
            Change::PutChat {
                chat: self.seed.chat.clone(),
                session: self.seed.uri.clone(),
                conversation: self.seed.conversation,
                history,
                state: checkpoint.chat,
            },
        ];
        let turns_from = checkpoint.turns.as_ref().map(|(keep, _)| *keep);
        changes.extend(checkpoint.turns.map(|(keep, turns)| Change::PutTurns {
            chat: self.seed.chat.clone(),
            keep,
            turns,
        }));
        Some((changes, turns_from))
    }

    /// Whether an agent has worked here: a session is listed when its agent was there.
    fn history(&self) -> History {
        if self.model.listed { History::Resume } else { self.seed.history }
    }

    /// Counts turns, and notes when one began.
    fn after_commit(&mut self, action: &StateAction) {
        let change = if matches!(action, StateAction::ChatTurnStarted(_) | StateAction::ChatTurnResume(_)) {
            self.model.turn_began = self.began.elapsed();
            self.model.openings = 0;
            1
        } else if ends_turn(action) {
            -1
        } else {
            return;
        };
        if let Err(error) = self.store.adjust_active_sessions(change) {
            tracing::error!(%error, "the number of active sessions could not be published");
        }
    }

    fn channel(&self, target: Target) -> &ChannelUri {
        match target {
            Target::Session => &self.seed.uri,
            Target::Chat => &self.seed.chat,
        }
    }

    fn now(&self) -> i64 {
        self.clock.now().as_millisecond()
    }
}

/// Whether a client's action may be published before it is stored: it comes often
/// and little is lost with it.
fn may_follow(action: &StateAction) -> bool {
    matches!(
        action,
        StateAction::ChatDraftChanged(_)
            | StateAction::ChatInputAnswerChanged(_)
            | StateAction::ChatToolCallContentChanged(_)
            | StateAction::SessionActiveClientSet(_)
            | StateAction::SessionActiveClientRemoved(_)
    )
}

/// Whether an action of the host's own must be stored before it is published.
fn is_boundary(action: &StateAction) -> bool {
    ends_turn(action)
        || matches!(
            action,
            StateAction::ChatTurnStarted(_)
                | StateAction::ChatToolCallConfirmed(_)
                | StateAction::ChatPendingMessageRemoved(_)
                | StateAction::ChatTruncated(_)
        )
}

fn ends_turn(action: &StateAction) -> bool {
    matches!(
        action,
        StateAction::ChatTurnComplete(_) | StateAction::ChatTurnCancelled(_) | StateAction::ChatError(_)
    )
}
