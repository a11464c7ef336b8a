//! Asks the user a question before an agent can be opened.
//!
//! The question is an input request of the turn whose message opened the agent. The first
//! valid answer opens the agent again; every question has an option that cancels the turn.

use ahp_types::actions::{
    ChatInputCompletedAction, ChatInputRequestedAction, SessionReadyAction, StateAction,
};
use ahp_types::state::{
    ChatInputAnswer, ChatInputAnswerValue, ChatInputOption, ChatInputQuestion, ChatInputRequest,
    ChatInputResponseKind, ChatInputSingleSelectQuestion, ResponsePart, SessionLifecycle,
};

use super::{
    ActionTarget, AgentState, Decision, DecisionView, Effect, Phase, inputs, lost_history, queue, settings,
    turns,
};
use crate::agent::{History, OpeningAnswer, OpeningQuestion, TurnOutcome};

/// The id of the single question in the request.
const QUESTION: &str = "choice";

/// The id of the option that ends the turn.
const CANCEL: &str = "cancel";

/// The start of every request id.
const REQUEST: &str = "before-start";

/// The topic of an open question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::session) enum QuestionTopic {
    /// The agent has lost its record of the conversation.
    LostHistory,
    /// A question of the provider.
    Provider(String),
}

/// Asks a question in the running turn. If the turn was cancelled while the agent was being
/// opened, there is nothing to ask for.
pub(super) fn ask(
    agent: &AgentState,
    view: DecisionView<'_>,
    question: &OpeningQuestion,
    topic: QuestionTopic,
) -> Decision {
    let Phase::Opening { history, prompt } = &agent.phase else { return Decision::default() };
    let history = history.clone();
    let Some(prompt) = prompt.clone() else {
        return Decision { phase: Some(Phase::Cold(history)), ..Decision::default() };
    };
    let mut decision =
        Decision { phase: Some(Phase::Asking { history, prompt, topic }), ..Decision::default() };
    if view.session.lifecycle != SessionLifecycle::Ready {
        // Clients show the chats of a ready session only.
        decision.actions.push((ActionTarget::Session, StateAction::SessionReady(SessionReadyAction {})));
    }
    let request =
        StateAction::ChatInputRequested(ChatInputRequestedAction { request: request(view, question) });
    decision.actions.push((ActionTarget::Chat, request));
    decision.actions.extend(settings::mark_unread(view));
    decision
}

/// Decides what follows from a client's answer, if it answers the open question.
pub(super) fn answered(
    agent: &AgentState,
    view: DecisionView<'_>,
    completed: &ChatInputCompletedAction,
) -> Option<Decision> {
    let Phase::Asking { history, prompt, topic } = &agent.phase else { return None };
    if completed.request_id != request_id(view) || inputs::completed(view, completed).rejection.is_some() {
        return None;
    }
    let option = chosen_option(view, completed).filter(|option| option != CANCEL);
    let (history, answer) = match (topic, option) {
        (_, None) => return Some(cancel(agent, view, history, prompt.turn.as_str())),
        (QuestionTopic::LostHistory, Some(option)) => (lost_history::chosen(view, &option), None),
        (QuestionTopic::Provider(topic), Some(option)) => {
            (history.clone(), Some(OpeningAnswer { topic: topic.clone(), option }))
        }
    };
    let phase = Phase::Opening { history: history.clone(), prompt: Some(prompt.clone()) };
    let effects = vec![Effect::OpenAgent { history, answer }];
    Some(Decision { phase: Some(phase), effects, ..Decision::default() })
}

fn cancel(agent: &AgentState, view: DecisionView<'_>, history: &History, turn: &str) -> Decision {
    let cancelled = turns::ended(agent, view, turn, TurnOutcome::Cancelled);
    let actions = std::iter::once(cancelled).chain(queue::requeue_steering(view));
    Decision {
        phase: Some(Phase::Cold(history.clone())),
        actions: actions.map(|action| (ActionTarget::Chat, action)).collect(),
        ..Decision::default()
    }
}

/// The chosen option. A draft counts as the answer once the request is accepted.
fn chosen_option(view: DecisionView<'_>, completed: &ChatInputCompletedAction) -> Option<String> {
    if completed.response != ChatInputResponseKind::Accept {
        return None;
    }
    let given = completed.answers.as_ref().and_then(|answers| answers.get(QUESTION));
    let drafted = || inputs::open_request(view, &completed.request_id)?.answers.as_ref()?.get(QUESTION);
    match given.or_else(drafted)? {
        ChatInputAnswer::Draft(answer) | ChatInputAnswer::Submitted(answer) => match &answer.value {
            ChatInputAnswerValue::Selected(selected) => Some(selected.value.clone()),
            ChatInputAnswerValue::Text(_)
            | ChatInputAnswerValue::Number(_)
            | ChatInputAnswerValue::Boolean(_)
            | ChatInputAnswerValue::SelectedMany(_)
            | ChatInputAnswerValue::Unknown(_) => None,
        },
        ChatInputAnswer::Skipped(_) => None,
    }
}

fn request(view: DecisionView<'_>, question: &OpeningQuestion) -> ChatInputRequest {
    let mut options: Vec<_> = question
        .options
        .iter()
        .map(|option| ChatInputOption {
            id: option.id.clone(),
            label: option.label.clone(),
            description: Some(option.description.clone()),
            recommended: option.recommended.then_some(true),
        })
        .collect();
    options.push(ChatInputOption {
        id: CANCEL.to_owned(),
        label: "Cancel".to_owned(),
        description: Some("Stop this turn and send nothing".to_owned()),
        recommended: None,
    });
    let select = ChatInputSingleSelectQuestion {
        id: QUESTION.to_owned(),
        title: Some(question.title.clone()),
        message: question.question.clone(),
        required: Some(true),
        options,
        // Stated, because VS Code offers a text field otherwise.
        allow_freeform_input: Some(false),
    };
    ChatInputRequest {
        id: request_id(view),
        message: Some(question.message.clone()),
        url: None,
        questions: Some(vec![ChatInputQuestion::SingleSelect(select)]),
        answers: None,
    }
}

/// The id of the request in the running turn. It contains the number of earlier requests,
/// because a turn that is resumed again asks again.
fn request_id(view: DecisionView<'_>) -> String {
    let Some(active) = &view.chat.active_turn else { return String::new() };
    let asked = active.response_parts.iter().filter(|part| {
        matches!(part, ResponsePart::InputRequest(part)
            if part.request.id.starts_with(REQUEST) && part.response.is_some())
    });
    format!("{REQUEST}-{}-{}", active.id, asked.count())
}
