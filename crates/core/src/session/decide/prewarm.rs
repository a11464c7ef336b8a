//! Opens an agent in advance, when a client begins to write a message.
//!
//! The agent is opened without a message. Failures and questions are silent: the message opens
//! the agent again, and reports them.

use ahp_types::state::ChatInteractivity;

use super::children::is_child;
use super::{AgentState, Decision, DecisionView, Effect, Phase};

/// Opens the agent, if there is none and a message could be sent.
pub(super) fn requested(agent: &AgentState, view: DecisionView<'_>) -> Decision {
    let Phase::Cold(history) = &agent.phase else { return Decision::default() };
    let is_closed =
        matches!(view.chat.interactivity, Some(ChatInteractivity::ReadOnly | ChatInteractivity::Hidden));
    // An agent that cannot be released would keep its process for no reason.
    if view.chat.active_turn.is_some() || is_closed || is_child(view.chat) || !agent.features.release {
        return Decision::default();
    }
    Decision {
        phase: Some(Phase::Opening { history: history.clone(), prompt: None }),
        effects: vec![Effect::open(history.clone())],
        ..Decision::default()
    }
}
