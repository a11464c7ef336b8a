//! The activity of a chat while its agent starts: set when an agent is opened for a message, and
//! cleared by the first output.

use ahp_types::actions::{ChatActivityChangedAction, StateAction};

use super::{ActionTarget, AgentState, Decision, DecisionView, Phase, names};

/// The activity of a chat whose agent starts.
fn activity(agent: &AgentState) -> String {
    names::cut(format!("Starting {}", agent.name))
}

fn is_shown(agent: &AgentState, view: DecisionView<'_>) -> bool {
    view.chat.activity.as_ref().is_some_and(|shown| *shown == activity(agent))
}

fn changed(activity: Option<String>) -> (ActionTarget, StateAction) {
    let changed = ChatActivityChangedAction { activity };
    (ActionTarget::Chat, StateAction::ChatActivityChanged(changed))
}

/// Adds the activity to a decision to open the agent for a message, and removes it when the agent
/// is not opened after all.
pub(super) fn with_activity(agent: &AgentState, view: DecisionView<'_>, mut decision: Decision) -> Decision {
    match &decision.phase {
        Some(Phase::Opening { prompt: Some(_), .. }) => {
            let is_changed = decision
                .actions
                .iter()
                .any(|(_, action)| matches!(action, StateAction::ChatActivityChanged(_)));
            if is_changed || !is_shown(agent, view) {
                decision.actions.push(changed(Some(activity(agent))));
            }
        }
        Some(Phase::Cold(_) | Phase::Asking { .. } | Phase::Closing(_)) if is_shown(agent, view) => {
            decision.actions.push(changed(None));
        }
        Some(
            Phase::Cold(_)
            | Phase::Asking { .. }
            | Phase::Closing(_)
            | Phase::Opening { prompt: None, .. }
            | Phase::Live(_),
        )
        | None => {}
    }
    decision
}

/// The action that clears the activity when the agent's first output arrives.
pub(super) fn ended(agent: &AgentState, view: DecisionView<'_>) -> Option<(ActionTarget, StateAction)> {
    is_shown(agent, view).then(|| changed(None))
}
