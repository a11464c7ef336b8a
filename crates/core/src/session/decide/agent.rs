//! Agent events: actions of the running turn, its end, and the end of the agent.
//!
//! Events for a turn that is over, and actions that agents may not send, are dropped.

use ahp_types::actions::{ChatTurnStartedAction, ChatUsageAction, SessionConfigChangedAction, StateAction};
use ahp_types::common::JsonObject;
use ahp_types::state::{ActiveTurn, Message};

use super::turns::{self, Resumable};
use super::{
    ActionTarget, AgentState, Decision, DecisionView, Effect, Phase, children, discarded_parts, error_info,
    inputs, leftovers, names, permissions, process_of, queue, settings, starting, titles, tools,
};
use crate::action::{AgentRule, meaning, turn_of};
use crate::agent::{AgentEvent, History, TurnMessage, TurnOutcome};
use crate::channel::ChannelKind;
use crate::ids::TurnId;
use crate::usage::UsageReport;

/// How often an agent is opened for one message that no agent has read.
pub(super) const MAX_OPENINGS: u32 = 3;

/// Decides what follows from an agent event.
pub(super) fn handle_event(agent: &AgentState, view: DecisionView<'_>, event: AgentEvent) -> Decision {
    // The process is ending, so that another one can be opened. Its output belongs to no turn, but what
    // it says about the conversation is needed to resume it, and what it used counts.
    if matches!(agent.phase, Phase::Opening { .. })
        && !matches!(
            event,
            AgentEvent::Closed { .. }
                | AgentEvent::ResumeToken(_)
                | AgentEvent::MessageLinked { .. }
                | AgentEvent::Used { .. }
        )
    {
        return Decision::default();
    }
    match event {
        AgentEvent::Action(action) => handle_action(agent, view, action),
        AgentEvent::TitleSuggested { title } => titles::suggested(view, title),
        AgentEvent::ConfigChanged { values } => config_changed(view, values),
        // The actor has already passed these with the rules of the session.
        AgentEvent::PermissionRequested(_) => Decision::default(),
        AgentEvent::PermissionWithdrawn { tool_call } => permissions::withdrawn(agent, view, &tool_call),
        AgentEvent::ResumeToken(token) => Decision { resume_token: Some(token), ..Decision::default() },
        AgentEvent::MessageLinked { turn, link } => {
            Decision { link: Some((turn, link)), ..Decision::default() }
        }
        AgentEvent::TurnStarted { turn, message } => turn_started(agent, view, turn, message),
        AgentEvent::SteeringTaken { id, turn, message } => {
            queue::steering_taken(agent, view, &id, &turn, &message)
        }
        AgentEvent::TurnEnded { turn, outcome } => turn_ended(agent, view, &turn, outcome),
        AgentEvent::Exited => exited(agent, view),
        AgentEvent::Closed { history, unsent, restart } => {
            // An agent without a conversation is not restarted, but started.
            let restart = restart.filter(|_| !matches!(history, History::Fresh));
            Decision { restart: Some(restart), ..closed(agent, view, history, unsent) }
        }
        AgentEvent::ChildStarted(child) => children::started(view, &child),
        AgentEvent::PartsDiscarded { turn, parts } => discarded_parts::discarded(agent, view, &turn, parts),
        AgentEvent::TodoChanged { list } => Decision { todo: Some(list.into()), ..Decision::default() },
        AgentEvent::Used { turn, report } => used(agent, view, turn.as_ref(), &report),
        // The actor has already passed these to the waiting request, or to the child chat.
        AgentEvent::WorkStopped { .. } | AgentEvent::ChildAction { .. } | AgentEvent::ChildEnded { .. } => {
            Decision::default()
        }
    }
}

fn handle_action(agent: &AgentState, view: DecisionView<'_>, mut action: Box<StateAction>) -> Decision {
    let mut decision = Decision::default();
    let mut is_activity = false;
    if let StateAction::ChatActivityChanged(changed) = action.as_mut() {
        changed.activity = changed.activity.take().map(names::cut);
        is_activity = changed.activity.is_some();
    }
    let running = turns::running(view);
    if let (Some(folded), Some(running)) = (&agent.folded, running)
        && let Some(turn) = turn_of(&mut action)
        && *turn == folded.turn.as_str()
    {
        running.clone_into(turn);
    }
    if let StateAction::ChatToolCallComplete(completed) = action.as_mut()
        && let Some(added) = completed.meta.take()
    {
        // Reducers replace the metadata of a call; what was added for its permission stays.
        let call = tools::call(view, &completed.turn_id, &completed.tool_call_id);
        let mut meta = call.and_then(permissions::meta_of).cloned().unwrap_or_default();
        meta.extend(added);
        completed.meta = Some(meta);
    }
    // Late output is dropped: a cancelled turn stays cancelled.
    let meaning = meaning(&action);
    let is_due = match meaning.agent {
        Some(AgentRule::InTurn(turn)) => running == Some(turn),
        Some(AgentRule::Running) => running.is_some(),
        // An activity belongs to a turn; after its turn, nothing would clear it.
        Some(AgentRule::Anytime) => running.is_some() || !is_activity,
        None => {
            tracing::error!(?action, "dropping action that agents may not send");
            false
        }
    };
    let target = target_of(meaning.channel).filter(|_| is_due);
    if let StateAction::ChatToolCallComplete(completed) = action.as_ref() {
        permissions::completed(agent, &completed.tool_call_id, &mut decision);
    }
    let asks = matches!(*action, StateAction::ChatInputRequested(_));
    decision.works = target.is_some() && meaning.shows_work;
    if decision.works || (asks && target.is_some()) {
        decision.actions.extend(starting::ended(agent, view));
    }
    decision.actions.extend(target.map(|target| (target, *action)));
    if asks && target.is_some() {
        decision.actions.extend(settings::mark_unread(view));
    }
    decision
}

/// Adds what the agent used to the running turn, if it belongs to it, and to the session.
fn used(agent: &AgentState, view: DecisionView<'_>, turn: Option<&TurnId>, report: &UsageReport) -> Decision {
    let mut decision = Decision { used: Some(report.used), ..Decision::default() };
    let is_folded = agent.folded.as_ref().is_some_and(|folded| Some(&folded.turn) == turn);
    let is_of = |active: &&ActiveTurn| is_folded || turn.is_some_and(|turn| turn.as_str() == active.id);
    if let Some(active) = view.chat.active_turn.as_ref().filter(is_of) {
        let usage = report.added_to(active.usage.as_ref(), &active.message.origin.kind);
        let action = ChatUsageAction { turn_id: active.id.clone(), usage, meta: None };
        decision.actions.push((ActionTarget::Chat, StateAction::ChatUsage(action)));
    }
    decision
}

/// Publishes configuration values that the agent changed itself. Unknown properties and
/// invalid values are dropped.
fn config_changed(view: DecisionView<'_>, mut values: JsonObject) -> Decision {
    let Some(config) = &view.session.config else { return Decision::default() };
    values
        .retain(|key, value| settings::is_valid(config, key, value) && config.values.get(key) != Some(value));
    if values.is_empty() {
        return Decision::default();
    }
    let changed = SessionConfigChangedAction { config: values, replace: None };
    let action = StateAction::SessionConfigChanged(changed);
    Decision { actions: vec![(ActionTarget::Session, action)], ..Decision::default() }
}

/// Starts a turn of the agent's own. Only one turn can run in a chat: if a user's turn is
/// running, the output is added to it.
fn turn_started(agent: &AgentState, view: DecisionView<'_>, turn: TurnId, message: Message) -> Decision {
    if matches!(agent.phase, Phase::Closing(_)) {
        return Decision::default();
    }
    if turns::running(view).is_some() {
        return Decision { folded: Some(Some(TurnMessage { turn, message })), ..Decision::default() };
    }
    if view.turns.iter().any(|known| known.id == turn.as_str()) {
        tracing::error!(%turn, "dropping agent turn with a duplicate id");
        return Decision::default();
    }
    let mut decision = Decision { reopened: Some(false), ..Decision::default() };
    decision.actions.push((ActionTarget::Chat, own_turn(view, TurnMessage { turn, message })));
    decision
}

/// The action that starts an agent's own turn.
fn own_turn(view: DecisionView<'_>, own: TurnMessage) -> StateAction {
    StateAction::ChatTurnStarted(ChatTurnStartedAction {
        turn_id: own.turn.as_str().to_owned(),
        started_at: view.time.to_owned(),
        message: own.message,
        queued_message_id: None,
        meta: None,
    })
}

fn turn_ended(agent: &AgentState, view: DecisionView<'_>, turn: &TurnId, outcome: TurnOutcome) -> Decision {
    let mut decision = Decision::default();
    if agent.folded.as_ref().is_some_and(|folded| folded.turn == *turn) {
        decision.folded = Some(None);
        return decision;
    }
    if turns::running(view) == Some(turn.as_str()) {
        decision.works = outcome == TurnOutcome::Completed;
        let cancelled = outcome == TurnOutcome::Cancelled;
        let cancel_open_requests = if matches!(outcome, TurnOutcome::Interrupted(_)) {
            inputs::cancel_open_requests(view.chat)
        } else {
            Vec::new()
        };
        let ended = turns::ended(agent, view, turn.as_str(), outcome);
        let requeue_steering = if cancelled { queue::requeue_steering(view) } else { Vec::new() };
        let actions = cancel_open_requests.into_iter().chain([ended]).chain(requeue_steering);
        decision.actions.extend(actions.map(|action| (ActionTarget::Chat, action)));
        if !children::is_child(view.chat) {
            decision.actions.extend(settings::mark_unread(view));
        }
    } else if turns::running(view).is_some() {
        return decision;
    }
    decision.actions.extend(leftovers::clear_turn(view.chat).map(|action| (ActionTarget::Chat, action)));
    // The agent is still working on its folded turn, which can now become a turn.
    if let Some(folded) = agent.folded.clone() {
        decision.folded = Some(None);
        decision.actions.push((ActionTarget::Chat, own_turn(view, folded)));
    }
    decision
}

/// Removes the work that has ended with the agent's process. The agent still has to report the
/// ends of its turns.
fn exited(agent: &AgentState, view: DecisionView<'_>) -> Decision {
    let work = if matches!(agent.phase, Phase::Closing(_)) {
        leftovers::remove_background_work(view.chat)
    } else {
        leftovers::stop_background_work(view.chat, view.turns, &process_of(agent), view.time)
    };
    let mut decision = Decision::default();
    if !work.is_empty() && turns::running(view).is_none() {
        decision.actions.extend(settings::mark_unread(view));
    }
    decision.actions.extend(work.into_iter().map(|action| (ActionTarget::Chat, action)));
    decision
}

fn closed(
    agent: &AgentState,
    view: DecisionView<'_>,
    history: History,
    unsent: Option<Box<TurnMessage>>,
) -> Decision {
    if matches!(agent.phase, Phase::Closing(_)) {
        let actions = clear_agent_state(view, leftovers::remove_background_work(view.chat));
        let phase = Some(Phase::Closing(history));
        return Decision { phase, actions, effects: vec![Effect::Finish], ..Decision::default() };
    }
    // If the agent has not reported its exit.
    let stopped = leftovers::stop_background_work(view.chat, view.turns, &process_of(agent), view.time);
    let was_working = !stopped.is_empty();
    let mut decision = Decision {
        phase: Some(Phase::Cold(history.clone())),
        folded: Some(None),
        actions: clear_agent_state(view, stopped),
        ..Decision::default()
    };
    let Some(turn) = turns::running(view) else {
        decision.actions.extend(settings::mark_unread(view).filter(|_| was_working));
        return decision;
    };
    // A message that came while the agent was being restarted.
    let waiting = if let Phase::Opening { prompt, .. } = &agent.phase { prompt.clone() } else { None };
    match waiting.or(unsent) {
        // The message did not cause the agent's end, so another agent gets it. The
        // number of openings is limited in case agents keep failing.
        Some(unsent) if unsent.turn.as_str() == turn && agent.openings < MAX_OPENINGS => {
            decision.phase = Some(Phase::Opening { history: history.clone(), prompt: Some(unsent) });
            decision.effects.push(Effect::open(history));
        }
        Some(_) | None => {
            let info = error_info("agent_closed", "the agent ended before it finished the turn");
            let failed = turns::failed(agent, view, turn, info, Resumable::Yes);
            let actions = inputs::cancel_open_requests(view.chat).into_iter().chain([failed]);
            decision.actions.extend(actions.map(|action| (ActionTarget::Chat, action)));
            decision.actions.extend(settings::mark_unread(view));
        }
    }
    decision
}

/// Clears the state of the closed agent after its work, and the session's shared agent state
/// after the last agent.
fn clear_agent_state(view: DecisionView<'_>, work: Vec<StateAction>) -> Vec<(ActionTarget, StateAction)> {
    let of_session = if view.has_agent { Vec::new() } else { leftovers::clear_session_agents(view.session) };
    let of_chat = work.into_iter().chain(leftovers::clear_turn(view.chat));
    let of_chat = of_chat.map(|action| (ActionTarget::Chat, action));
    of_chat.chain(of_session.into_iter().map(|action| (ActionTarget::Session, action))).collect()
}

/// The target channel of an agent action.
fn target_of(channel: Option<ChannelKind>) -> Option<ActionTarget> {
    match channel? {
        ChannelKind::Chat => Some(ActionTarget::Chat),
        ChannelKind::Session => Some(ActionTarget::Session),
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
