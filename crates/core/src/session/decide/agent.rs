//! Agent events: actions of the running turn, its end, and the end of the agent.
//!
//! Events for a turn that is over, and actions that agents may not send, are dropped.

use ahp_types::actions::{
    ChatTurnStartedAction, SessionConfigChangedAction, SessionTitleChangedAction, StateAction,
};
use ahp_types::common::JsonObject;
use ahp_types::state::Message;

use super::turns::{self, Resumable};
use super::{
    Decision, Effect, Model, Phase, Target, View, children, error_info, inputs, leftovers, names, queue,
    settings,
};
use crate::action::{AgentRule, meaning, turn_of};
use crate::agent::{AgentEvent, History, TurnOutcome, Unsent};
use crate::channel::ChannelKind;
use crate::ids::TurnId;

/// How often an agent is opened for one message that no agent has read.
pub(super) const MAX_OPENINGS: u32 = 3;

/// Decides what follows from an agent event.
pub(super) fn said(model: &Model, view: View<'_>, event: AgentEvent) -> Decision {
    match event {
        AgentEvent::Action(action) => acted(model, view, action),
        AgentEvent::TitleSuggested { title } => title_suggested(view, title),
        AgentEvent::ConfigChanged { values } => config_changed(view, values),
        AgentEvent::ResumeToken(token) => Decision { resume_token: Some(token), ..Decision::default() },
        AgentEvent::MessageLinked { turn, link } => {
            Decision { link: Some((turn, link)), ..Decision::default() }
        }
        AgentEvent::TurnStarted { turn, message } => turn_started(model, view, turn, message),
        AgentEvent::SteeringTaken { id } => queue::steered(view, &id),
        AgentEvent::TurnEnded { turn, outcome } => turn_ended(model, view, &turn, outcome),
        AgentEvent::Closed { history, unsent } => closed(model, view, history, unsent),
        AgentEvent::ChildStarted(child) => children::started(view, &child),
        // The actor has already passed these to the child chat.
        AgentEvent::ChildAction { .. } | AgentEvent::ChildEnded { .. } => Decision::default(),
    }
}

fn acted(model: &Model, view: View<'_>, mut action: Box<StateAction>) -> Decision {
    let mut decision = Decision::default();
    if let StateAction::ChatActivityChanged(changed) = action.as_mut() {
        changed.activity = changed.activity.take().map(names::cut);
    }
    let running = turns::running(view);
    if let (Some(folded), Some(running)) = (&model.folded, running)
        && let Some(turn) = turn_of(&mut action)
        && *turn == folded.turn.as_str()
    {
        running.clone_into(turn);
    }
    // Late output is dropped: a cancelled turn stays cancelled.
    let meaning = meaning(&action);
    let is_due = match meaning.agent {
        Some(AgentRule::InTurn(turn)) => running == Some(turn),
        Some(AgentRule::Running) => running.is_some(),
        Some(AgentRule::Anytime) => true,
        None => {
            tracing::error!(?action, "dropping action that agents may not send");
            false
        }
    };
    let target = target_of(meaning.channel).filter(|_| is_due);
    let asks = matches!(*action, StateAction::ChatInputRequested(_));
    decision.works = target.is_some() && meaning.shows_work;
    decision.actions.extend(target.map(|target| (target, *action)));
    if asks && target.is_some() {
        decision.actions.extend(settings::unread(view));
    }
    decision
}

fn title_suggested(view: View<'_>, title: String) -> Decision {
    let mut decision = Decision::default();
    // The title of another chat must not become the session's title.
    let of_default = view.session.default_chat.as_ref() == Some(&view.chat.resource);
    let is_unnamed = view.chat.title.is_empty() && turns::has_provisional_title(view);
    if !title.is_empty() && of_default && is_unnamed {
        let title = names::cut(title);
        let action = StateAction::SessionTitleChanged(SessionTitleChangedAction { title });
        decision.actions.push((Target::Session, action));
    }
    decision
}

/// Publishes configuration values that the agent changed itself. Unknown properties and
/// invalid values are dropped.
fn config_changed(view: View<'_>, mut values: JsonObject) -> Decision {
    let Some(config) = &view.session.config else { return Decision::default() };
    values
        .retain(|key, value| settings::is_valid(config, key, value) && config.values.get(key) != Some(value));
    if values.is_empty() {
        return Decision::default();
    }
    let changed = SessionConfigChangedAction { config: values, replace: None };
    let action = StateAction::SessionConfigChanged(changed);
    Decision { actions: vec![(Target::Session, action)], ..Decision::default() }
}

/// Starts a turn of the agent's own. Only one turn can run in a chat: if a user's turn is
/// running, the output is added to it.
fn turn_started(model: &Model, view: View<'_>, turn: TurnId, message: Message) -> Decision {
    if matches!(model.phase, Phase::Closing(_)) {
        return Decision::default();
    }
    if turns::running(view).is_some() {
        return Decision { folded: Some(Some(Unsent { turn, message })), ..Decision::default() };
    }
    if view.turns.iter().any(|known| known.id == turn.as_str()) {
        tracing::error!(%turn, "dropping agent turn with a duplicate id");
        return Decision::default();
    }
    let mut decision = Decision { reopened: Some(false), ..Decision::default() };
    decision.actions.push((Target::Chat, own_turn(view, Unsent { turn, message })));
    decision
}

/// The action that starts an agent's own turn.
fn own_turn(view: View<'_>, own: Unsent) -> StateAction {
    StateAction::ChatTurnStarted(ChatTurnStartedAction {
        turn_id: own.turn.as_str().to_owned(),
        started_at: view.time.to_owned(),
        message: own.message,
        queued_message_id: None,
        meta: None,
    })
}

fn turn_ended(model: &Model, view: View<'_>, turn: &TurnId, outcome: TurnOutcome) -> Decision {
    let mut decision = Decision::default();
    if model.folded.as_ref().is_some_and(|folded| folded.turn == *turn) {
        decision.folded = Some(None);
        return decision;
    }
    if turns::running(view) == Some(turn.as_str()) {
        decision.works = outcome == TurnOutcome::Completed;
        let cancelled = outcome == TurnOutcome::Cancelled;
        let withdrawn = if matches!(outcome, TurnOutcome::Interrupted(_)) {
            inputs::withdrawn(view.chat)
        } else {
            Vec::new()
        };
        let ended = turns::ended(model, view, turn.as_str(), outcome);
        let unsteered = if cancelled { queue::unsteered(view) } else { Vec::new() };
        let actions = withdrawn.into_iter().chain([ended]).chain(unsteered);
        decision.actions.extend(actions.map(|action| (Target::Chat, action)));
        if !children::is_child(view.chat) {
            decision.actions.extend(settings::unread(view));
        }
    } else if turns::running(view).is_some() {
        return decision;
    }
    decision.actions.extend(leftovers::of_turn(view.chat).map(|action| (Target::Chat, action)));
    // The agent is still working on its folded turn, which can now become a turn.
    if let Some(folded) = model.folded.clone() {
        decision.folded = Some(None);
        decision.actions.push((Target::Chat, own_turn(view, folded)));
    }
    decision
}

fn closed(model: &Model, view: View<'_>, history: History, unsent: Option<Box<Unsent>>) -> Decision {
    let actions = goes_along(view);
    if matches!(model.phase, Phase::Closing(_)) {
        let phase = Some(Phase::Closing(history));
        return Decision { phase, actions, effects: vec![Effect::Finish], ..Decision::default() };
    }
    let mut decision = Decision {
        phase: Some(Phase::Cold(history.clone())),
        folded: Some(None),
        actions,
        ..Decision::default()
    };
    let Some(turn) = turns::running(view) else { return decision };
    match unsent {
        // The message did not cause the agent's end, so another agent gets it. The
        // number of openings is limited in case agents keep failing.
        Some(unsent) if unsent.turn.as_str() == turn && model.openings < MAX_OPENINGS => {
            decision.phase = Some(Phase::Opening { history: history.clone(), prompt: Some(unsent) });
            decision.effects.push(Effect::OpenAgent(history));
        }
        Some(_) | None => {
            let info = error_info("agent_closed", "the agent ended before it finished the turn");
            let failed = turns::failed(model, view, turn, info, Resumable::Yes);
            let actions = inputs::withdrawn(view.chat).into_iter().chain([failed]);
            decision.actions.extend(actions.map(|action| (Target::Chat, action)));
            decision.actions.extend(settings::unread(view));
        }
    }
    decision
}

/// Clears the state of the closed agent, and the session's shared agent state after the
/// last one.
fn goes_along(view: View<'_>) -> Vec<(Target, StateAction)> {
    let of_session = if view.attended { Vec::new() } else { leftovers::of_agents(view.session) };
    let of_chat = leftovers::of_agent(view.chat).into_iter().map(|action| (Target::Chat, action));
    of_chat.chain(of_session.into_iter().map(|action| (Target::Session, action))).collect()
}

/// The target channel of an agent action.
fn target_of(channel: Option<ChannelKind>) -> Option<Target> {
    match channel? {
        ChannelKind::Chat => Some(Target::Chat),
        ChannelKind::Session => Some(Target::Session),
        ChannelKind::Root
        | ChannelKind::Canvas
        | ChannelKind::Changeset
        | ChannelKind::Annotations
        | ChannelKind::Terminal
        | ChannelKind::ResourceWatch
        | ChannelKind::Automations
        | ChannelKind::AutomationRun => None,
    }
}
