//! Handles an agent that has lost its own record of the conversation.
//!
//! A conversation without any response starts fresh. Otherwise the turn fails with a
//! resumable error; if the record is still missing when a client resumes the turn, the user
//! chooses: rebuild the context from the host's record, start fresh, or cancel. Context that
//! clients show is never dropped silently.

use ahp_types::state::{ErrorInfo, ResponsePart, Turn};

use super::{AgentState, Decision, DecisionView, Effect, Phase, QuestionTopic, error_info, opening_question};
use crate::agent::{History, OpeningOption, OpeningQuestion};
use crate::session::record::record_of;

const REBUILD: &str = "rebuild";
const FRESH: &str = "fresh";

/// Decides what follows from a missing record; `None` if the turn fails with [`error`].
pub(super) fn missing(agent: &AgentState, view: DecisionView<'_>, reason: &str) -> Option<Decision> {
    let Phase::Opening { history, prompt } = &agent.phase else { return None };
    if *history == History::Resume && !was_answered(view) {
        let phase = Phase::Opening { history: History::Fresh, prompt: prompt.clone() };
        let effects = vec![Effect::open(History::Fresh)];
        return Some(Decision { phase: Some(phase), effects, ..Decision::default() });
    }
    if prompt.is_none() || !agent.reopened {
        return None;
    }
    Some(opening_question::ask(agent, view, &question(reason), QuestionTopic::LostHistory))
}

/// The error of a turn whose agent cannot continue the conversation.
pub(super) fn error(reason: &str) -> ErrorInfo {
    let message = format!(
        "{reason} Resume the turn to look for it again; if it is still missing, you can rebuild the context \
         from the conversation shown here, start fresh, or cancel."
    );
    error_info("history_missing", &message)
}

/// The history that the user chose to continue with.
pub(super) fn chosen(view: DecisionView<'_>, option: &str) -> History {
    if option == REBUILD {
        History::Rebuild(record_of(view.turns, view.chat.active_turn.as_ref()))
    } else {
        History::Fresh
    }
}

fn question(reason: &str) -> OpeningQuestion {
    let option = |id: &str, label: &str, description: &str| OpeningOption {
        id: id.to_owned(),
        label: label.to_owned(),
        description: description.to_owned(),
        recommended: id == REBUILD,
    };
    OpeningQuestion {
        topic: "history".to_owned(),
        message: reason.to_owned(),
        title: "Conversation not found".to_owned(),
        question: "How should the agent continue?".to_owned(),
        options: vec![
            option(REBUILD, "Rebuild context", "Give the agent the conversation shown here as text"),
            option(FRESH, "Start fresh", "The agent remembers nothing of this conversation"),
        ],
    }
}

/// Whether the agent ever responded in this chat.
fn was_answered(view: DecisionView<'_>) -> bool {
    let answers = |parts: &[ResponsePart]| parts.iter().any(|part| !matches!(part, ResponsePart::Error(_)));
    let active = view.chat.active_turn.as_ref().is_some_and(|active| answers(&active.response_parts));
    active
        || view.turns.iter().any(|turn| {
            // An unreadable turn may contain a response.
            serde_json::from_str::<Turn>(turn.body.get()).map_or(true, |turn| answers(&turn.response_parts))
        })
}
