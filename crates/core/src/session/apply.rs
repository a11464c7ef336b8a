//! Applies decisions: changes the state of agents, publishes actions, runs effects and
//! updates the copies of a chat's data.

use ahp_types::actions::StateAction;
use ahp_types::state::{MessageKind, SessionState};

use super::actor::SessionActor;
use super::briefing::Brief;
use super::decide::{ActionTarget, Decision, DecisionInput, Effect, QueueEffect};
use super::large_output::LimitedOutput;
use super::projection;
use super::session_meta::{self, MetaSources};
use crate::action::{TurnEffect, meaning};
use crate::agent::AgentCommand;
use crate::channel::ChannelUri;
use crate::host::TurnStart;
use crate::state::{Action, ChannelState};

impl SessionActor {
    /// Applies a decision for a chat, and the decisions that follow from it.
    pub(super) async fn apply_decision(&mut self, chat: &ChannelUri, first: Decision) {
        let mut next = Some(first);
        // The permission to start the turn of `next`, until the turn is counted.
        let mut start: Option<Option<TurnStart>> = None;
        while let Some(mut decision) = next.take() {
            let lists = decision.todo.is_some() || decision.used.is_some();
            self.used = self.used.plus(decision.used.take().unwrap_or_default());
            if let Some(chat) = self.chats.get_mut(chat) {
                chat.apply(&mut decision, &mut self.publisher);
            }
            let actions = self.limit_output(chat, decision.actions).await;
            let any = |is: fn(&StateAction) -> bool| actions.iter().any(|(_, action)| is(action.typed()));
            let shows = lists || any(|action| meaning(action).shows_in_list);
            let ended = any(|action| meaning(action).ends_turn());
            self.publish(&actions).await;
            drop(start.take());
            let prompts = |effect: &Effect| matches!(effect, Effect::Agent(AgentCommand::Prompt { .. }));
            let is_prompted = decision.effects.iter().any(prompts);
            for effect in decision.effects {
                let effect = self.content.with_content(effect).await;
                self.run_effect(chat, effect);
            }
            if is_prompted {
                // The agent gets the message before the copies of the chat's data are updated.
                tokio::task::yield_now().await;
            }
            if shows {
                self.project(chat);
            }
            // After `project`, because the documents contain the copies of the chat's data.
            if ended {
                self.publisher.checkpoint(&self.chats);
                self.request_title(chat);
            }
            // Every action after which a chat can become idle is also shown in the list.
            if shows {
                (next, start) = self.next_waiting_message(chat).unzip();
            }
        }
    }

    /// Limits the output in actions about a chat, and stores what it moves out of them.
    async fn limit_output(
        &mut self,
        chat: &ChannelUri,
        actions: Vec<(ActionTarget, StateAction)>,
    ) -> Vec<(ChannelUri, Action)> {
        let mut limited = LimitedOutput::default();
        let mut channels = Vec::with_capacity(actions.len());
        for (target, action) in actions {
            match (target, self.chats.get_mut(chat)) {
                (ActionTarget::Chat, Some(chat)) => chat.output.limit(action, &mut limited),
                (ActionTarget::Chat | ActionTarget::Session, _) => limited.actions.push(action),
            }
            channels.resize(limited.actions.len(), self.channel(chat, target).clone());
        }
        self.publisher.store_output(chat, limited.pieces).await;
        channels.into_iter().zip(limited.actions.into_iter().map(Action::own)).collect()
    }

    /// Publishes the rest of a text that is being moved to stored output.
    pub(super) async fn end_text(&mut self, chat: &ChannelUri) {
        let mut limited = LimitedOutput::default();
        if let Some(chat) = self.chats.get_mut(chat) {
            chat.output.end_text(&mut limited);
        }
        self.publisher.store_output(chat, limited.pieces).await;
        let rest = limited.actions.into_iter().map(|action| (chat.clone(), Action::own(action)));
        self.publish(&rest.collect::<Vec<_>>()).await;
    }

    /// Limits the output in a client's action, and stores what it moves out of it. Returns
    /// the limited action, if it differs.
    pub(super) async fn limit_client_output(
        &mut self,
        chat: &ChannelUri,
        action: &StateAction,
    ) -> Option<Action> {
        let carries_output = matches!(
            action,
            StateAction::ChatToolCallComplete(_) | StateAction::ChatToolCallContentChanged(_)
        );
        let output = &mut self.chats.get_mut(chat).filter(|_| carries_output)?.output;
        let mut limited = LimitedOutput::default();
        output.limit(action.clone(), &mut limited);
        self.publisher.store_output(chat, limited.pieces).await;
        limited.actions.pop().filter(|limited| limited != action).map(Action::own)
    }

    /// Publishes the host's own actions.
    async fn publish(&mut self, actions: &[(ChannelUri, Action)]) {
        let written = self.publisher.write_if_ahead(actions).await;
        for (channel, action) in actions {
            if self.publisher.publish_host_action(channel, action, written) {
                self.after_commit(channel, action.typed(), QueueEffect::of_host(action.typed()));
            }
        }
    }

    /// Updates turn counters, turn start times and the queue after a commit.
    pub(super) fn after_commit(&mut self, channel: &ChannelUri, action: &StateAction, queue: QueueEffect) {
        let meaning = meaning(action);
        let ended = meaning.ends_turn();
        let store = self.publisher.store();
        // The end of a turn that the agent started itself does not affect the queue, unless it
        // was cancelled.
        let by_user =
            |state: &ChannelState| Some(state.chat()?.turns.last()?.message.origin.kind == MessageKind::User);
        let is_cancelled = matches!(action, StateAction::ChatTurnCancelled(_));
        let own = ended && !is_cancelled && store.read(channel, by_user).flatten() == Some(false);
        let Some(chat) = self.chats.get_mut(channel) else { return };
        match queue {
            _ if own => {}
            QueueEffect::Continues => chat.agent.queue_held = false,
            QueueEffect::Held => chat.agent.queue_held = true,
            QueueEffect::None => {}
        }
        if meaning.turn == Some(TurnEffect::Truncates) {
            chat.drop_links_of_removed_turns(&mut self.publisher);
        }
        if !ended && !meaning.begins_turn() {
            return;
        }
        for unanswered in chat.agent.permissions.clear() {
            self.publisher.write_audit(channel, unanswered);
        }
        if ended {
            chat.lifetime.turn_ended();
            self.repository.refresh();
        } else {
            chat.lifetime.turn_began();
            chat.agent.turn_began = self.publisher.elapsed();
            chat.agent.openings = 0;
            chat.output.begin_turn(self.publisher.running_turn_size(channel));
        }
        // A session counts once, regardless of how many of its chats are busy.
        let mut others = self.chats.uris().filter(|chat| chat != channel);
        if others.any(|chat| self.publisher.has_running_turn(&chat)) {
            return;
        }
        let change = if ended { -1 } else { 1 };
        if let Err(error) = self.publisher.store().adjust_active_sessions(change) {
            tracing::error!(%error, "cannot publish active session count");
        }
    }

    fn run_effect(&mut self, uri: &ChannelUri, effect: Effect) {
        let parent = self.chats.get(uri).and_then(|chat| chat.parent.clone());
        // Child chats use the agent of their parent.
        let to = parent.as_ref().filter(|_| matches!(effect, Effect::Agent(_))).unwrap_or(uri);
        let Some(chat) = self.chats.get_mut(to) else { return };
        match effect {
            Effect::OpenAgent { history, answer } => {
                self.opener.open(chat, &mut self.publisher, history, answer);
            }
            Effect::RememberRules { root, rules } => {
                let stored = self.permission_rules.allow_in_workspace(&root, &rules, self.publisher.now());
                self.opener.tasks.spawn(async move {
                    if let Err(error) = stored.await {
                        tracing::error!(%error, root = %root.display(), "cannot store permission rules; they apply until the host ends");
                    }
                });
            }
            Effect::Audit(facts) => self.publisher.write_audit(uri, *facts),
            Effect::UpdateDirectories => chat.update_briefing(&self.publisher, Brief::IfRoom),
            Effect::Agent(command) => {
                if matches!(command, AgentCommand::Prompt { .. }) {
                    chat.update_if_outdated(&self.publisher, Brief::First);
                }
                chat.command(command);
            }
            Effect::AllAgents(command) => {
                for chat in self.chats.iter_mut() {
                    chat.command(command.clone());
                }
            }
            // A live agent gets time to shut down cleanly; an agent that is still being
            // opened is cancelled.
            Effect::CloseAgent => match &chat.connection {
                Some(connection) => connection.close.cancel(),
                None => chat.opening.cancel(),
            },
            Effect::Finish => chat.finished = true,
        }
    }

    /// Fails orphaned tool calls of a chat, or else starts its next waiting message if it is
    /// idle.
    pub(super) async fn start_waiting_message(&mut self, chat: &ChannelUri) {
        if let Some((decision, start)) = self.next_waiting_message(chat) {
            self.apply_decision(chat, decision).await;
            drop(start);
        }
    }

    /// The decision about the next waiting message, with the permission to start its turn.
    fn next_waiting_message(&self, chat: &ChannelUri) -> Option<(Decision, Option<TurnStart>)> {
        let start = self.drain.start_turn();
        let input = match start {
            Some(_) => DecisionInput::StartWaiting,
            None => DecisionInput::FailOrphanedCalls,
        };
        let decision = self.decide(chat, input);
        (!decision.actions.is_empty()).then_some((decision, start))
    }

    /// Calls [`Self::start_waiting_message`] for each chat.
    pub(super) async fn start_waiting_messages(&mut self) {
        for chat in self.chats.uris().collect::<Vec<_>>() {
            self.start_waiting_message(&chat).await;
        }
    }

    /// Updates the copies of a chat's data.
    pub(super) fn project(&mut self, chat: &ChannelUri) {
        for update in self.publisher.with_state(chat, projection::session_updates).unwrap_or_default() {
            self.publisher.publish_derived(update);
        }
        self.project_row();
    }

    /// Updates the session's activity, its `_meta` and its row in the session list.
    pub(super) fn project_row(&mut self) {
        if let Some(update) = self.publisher.with_session(projection::activity_update).flatten() {
            self.publisher.publish_derived(update);
        }
        let todos = self.chats.iter().map(|chat| (chat.uri.as_str(), &chat.todo)).collect();
        let (git, used) = (self.repository.reading(), std::mem::take(&mut self.used));
        let sources = MetaSources { todos, git, used };
        let update = |session: &SessionState| session_meta::update(session, &sources);
        if let Some(update) = self.publisher.with_session(update).flatten() {
            self.publisher.publish_derived(update);
        }
        if !self.listed && !self.chats.are_used(&self.publisher) {
            return;
        }
        // Listed from the first message on, even if the agent cannot be opened.
        self.add_to_list();
        self.publisher.publish_row();
    }

    /// Adds the session to the session list with the next update of its row.
    pub(super) fn add_to_list(&mut self) {
        if !self.listed {
            self.listed = true;
            self.publisher.request_checkpoint();
        }
    }

    /// The channel of an action that a decision about a chat names.
    pub(super) fn channel<'a>(&'a self, chat: &'a ChannelUri, target: ActionTarget) -> &'a ChannelUri {
        match target {
            ActionTarget::Session => &self.uri,
            ActionTarget::Chat => chat,
        }
    }
}
