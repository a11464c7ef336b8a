//! Handles an agent that has lost its own record of the conversation.
//!
//! A conversation without any response starts fresh. Otherwise the turn fails with a
//! resumable error; if the record is still missing when a client resumes the turn, the user
//! chooses: rebuild the context from the host's record, start fresh, or cancel. Context that
//! clients show is never dropped silently.

use ahp_types::actions::{ChatInputCompletedAction, ChatInputRequestedAction, StateAction};
use ahp_types::state::{
    ChatInputAnswer, ChatInputAnswerValue, ChatInputOption, ChatInputQuestion, ChatInputRequest,
    ChatInputResponseKind, ChatInputSingleSelectQuestion, ErrorInfo, ResponsePart, Turn,
};

use super::{
    ActionTarget, AgentState, Decision, DecisionView, Effect, Phase, error_info, inputs, queue, settings,
    turns,
};
use crate::agent::{History, TurnOutcome};
use crate::session::record::record_of;

/// The id of the question in the request.
const QUESTION: &str = "history";

const REBUILD: &str = "rebuild";
const FRESH: &str = "fresh";
const CANCEL: &str = "cancel";

/// Decides what follows from a missing record; `None` if the turn fails with [`error`].
pub(super) fn missing(agent: &AgentState, view: DecisionView<'_>, reason: &str) -> Option<Decision> {
    let Phase::Opening { history, prompt } = &agent.phase else { return None };
    if *history == History::Resume && !was_answered(view) {
        let phase = Phase::Opening { history: History::Fresh, prompt: prompt.clone() };
        let effects = vec![Effect::OpenAgent(History::Fresh)];
        return Some(Decision { phase: Some(phase), effects, ..Decision::default() });
    }
    let prompt = prompt.clone().filter(|_| agent.reopened)?;
    let phase = Phase::Asking { history: history.clone(), prompt };
    let request =
        StateAction::ChatInputRequested(ChatInputRequestedAction { request: request(view, reason) });
    let mut decision = Decision { phase: Some(phase), ..Decision::default() };
    decision.actions.push((ActionTarget::Chat, request));
    decision.actions.extend(settings::mark_unread(view));
    Some(decision)
}

/// The error of a turn whose agent cannot continue the conversation.
pub(super) fn error(reason: &str) -> ErrorInfo {
    let message = format!(
        "{reason} Resume the turn to look for it again; if it is still missing, you can rebuild the context \
         from the conversation shown here, start fresh, or cancel."
    );
    error_info("history_missing", &message)
}

/// Decides what follows from a client's answer, if it answers this question.
pub(super) fn answered(
    agent: &AgentState,
    view: DecisionView<'_>,
    completed: &ChatInputCompletedAction,
) -> Option<Decision> {
    let Phase::Asking { history, prompt } = &agent.phase else { return None };
    if completed.request_id != request_id(view) || inputs::completed(view, completed).rejection.is_some() {
        return None;
    }
    let history = match choice(view, completed) {
        Some(REBUILD) => History::Rebuild(record_of(view.turns, view.chat.active_turn.as_ref())),
        Some(FRESH) => History::Fresh,
        Some(_) | None => {
            let turn = prompt.turn.as_str();
            let cancelled = turns::ended(agent, view, turn, TurnOutcome::Cancelled);
            let actions = std::iter::once(cancelled).chain(queue::requeue_steering(view));
            return Some(Decision {
                phase: Some(Phase::Cold(history.clone())),
                actions: actions.map(|action| (ActionTarget::Chat, action)).collect(),
                ..Decision::default()
            });
        }
    };
    let phase = Phase::Opening { history: history.clone(), prompt: Some(prompt.clone()) };
    Some(Decision { phase: Some(phase), effects: vec![Effect::OpenAgent(history)], ..Decision::default() })
}

/// The chosen option. A draft counts as the answer once the request is accepted.
fn choice(view: DecisionView<'_>, completed: &ChatInputCompletedAction) -> Option<&'static str> {
    if completed.response != ChatInputResponseKind::Accept {
        return None;
    }
    let given = completed.answers.as_ref().and_then(|answers| answers.get(QUESTION));
    let drafted = || inputs::open_request(view, &completed.request_id)?.answers.as_ref()?.get(QUESTION);
    let selected = match given.or_else(drafted)? {
        ChatInputAnswer::Draft(answer) | ChatInputAnswer::Submitted(answer) => match &answer.value {
            ChatInputAnswerValue::Selected(selected) => selected.value.as_str(),
            ChatInputAnswerValue::Text(_)
            | ChatInputAnswerValue::Number(_)
            | ChatInputAnswerValue::Boolean(_)
            | ChatInputAnswerValue::SelectedMany(_)
            | ChatInputAnswerValue::Unknown(_) => return None,
        },
        ChatInputAnswer::Skipped(_) => return None,
    };
    [REBUILD, FRESH, CANCEL].into_iter().find(|option| *option == selected)
}

fn request(view: DecisionView<'_>, reason: &str) -> ChatInputRequest {
    let option = |id: &str, label: &str, description: &str| ChatInputOption {
        id: id.to_owned(),
        label: label.to_owned(),
        description: Some(description.to_owned()),
        recommended: (id == REBUILD).then_some(true),
    };
    let question = ChatInputSingleSelectQuestion {
        id: QUESTION.to_owned(),
        title: Some("Conversation not found".to_owned()),
        message: "How should the agent continue?".to_owned(),
        required: Some(true),
        options: vec![
            option(REBUILD, "Rebuild context", "Give the agent the conversation shown here as text"),
            option(FRESH, "Start fresh", "The agent remembers nothing of this conversation"),
            option(CANCEL, "Cancel", "Stop this turn and send nothing"),
        ],
        allow_freeform_input: None,
    };
    ChatInputRequest {
        id: request_id(view),
        message: Some(reason.to_owned()),
        url: None,
        questions: Some(vec![ChatInputQuestion::SingleSelect(question)]),
        answers: None,
    }
}

/// The id of the request in the running turn. It contains the number of earlier requests,
/// because a turn that is resumed again asks again.
fn request_id(view: DecisionView<'_>) -> String {
    let Some(active) = &view.chat.active_turn else { return String::new() };
    let asked = active.response_parts.iter().filter(|part| {
        matches!(part, ResponsePart::InputRequest(part)
            if part.request.id.starts_with("history-missing") && part.response.is_some())
    });
    format!("history-missing-{}-{}", active.id, asked.count())
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
