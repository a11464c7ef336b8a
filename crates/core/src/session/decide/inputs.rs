//! Questions to the user: draft answers and completion.
//!
//! The first valid completion wins. An answer must match its question's kind, and an
//! accepted request must answer all required questions.

use std::collections::HashMap;

use ahp_types::actions::{ChatInputAnswerChangedAction, ChatInputCompletedAction, StateAction};
use ahp_types::state::{
    ChatInputAnswer, ChatInputAnswerValue, ChatInputQuestion, ChatInputRequest, ChatInputResponseKind,
    ChatState, ResponsePart,
};

use super::{Decision, DecisionView, Effect, reject};
use crate::agent::{AgentCommand, InputAnswer};

/// Handles a client's change of a draft answer, which all clients see.
pub(super) fn answer_changed(view: DecisionView<'_>, changed: &ChatInputAnswerChangedAction) -> Decision {
    let Some(request) = open_request(view, &changed.request_id) else {
        return reject("there is no open request with this id");
    };
    let Some(question) = question(request, &changed.question_id) else {
        return reject("the request does not have this question");
    };
    match &changed.answer {
        Some(answer) if !fits(question, answer) => reject("the answer does not match the question's kind"),
        Some(_) | None => Decision::default(),
    }
}

/// Handles a client's completion of a request.
pub(super) fn completed(view: DecisionView<'_>, completed: &ChatInputCompletedAction) -> Decision {
    let Some(request) = open_request(view, &completed.request_id) else {
        return reject("there is no open request with this id");
    };
    let mut answers: HashMap<String, ChatInputAnswer> = request.answers.clone().unwrap_or_default();
    answers.extend(completed.answers.clone().unwrap_or_default());
    for (id, answer) in &answers {
        match question(request, id) {
            None => return reject("the request does not have this question"),
            Some(question) if !fits(question, answer) => {
                return reject("an answer does not match its question's kind");
            }
            Some(_) => {}
        }
    }
    if completed.response == ChatInputResponseKind::Accept {
        let missing = request.questions.iter().flatten().find(|question| {
            let answer = id(question).and_then(|id| answers.get(id));
            is_required(question)
                && !matches!(answer, Some(ChatInputAnswer::Submitted(_) | ChatInputAnswer::Draft(_)))
        });
        if missing.is_some() {
            return reject("a required question has no answer");
        }
        let beyond = answers.iter().any(|(id, answer)| {
            question(request, id).is_some_and(|question| !is_within_limits(question, answer))
        });
        if beyond {
            return reject("an answer exceeds its question's limits");
        }
    }
    let answer = InputAnswer { request: completed.request_id.clone(), response: completed.response, answers };
    Decision { effects: vec![Effect::Agent(AgentCommand::InputAnswer(answer))], ..Decision::default() }
}

/// Cancels the open requests of a turn that ends and can be resumed: after that the agent
/// asks again.
pub(in crate::session) fn cancel_open_requests(chat: &ChatState) -> Vec<StateAction> {
    let parts = chat.active_turn.iter().flat_map(|active| &active.response_parts);
    #[expect(clippy::wildcard_enum_match_arm, reason = "the other parts are not requests")]
    let open = parts.filter_map(|part| match part {
        ResponsePart::InputRequest(part) if part.response.is_none() => Some(part.request.id.clone()),
        _ => None,
    });
    let cancelled = |request_id| {
        StateAction::ChatInputCompleted(ChatInputCompletedAction {
            request_id,
            response: ChatInputResponseKind::Cancel,
            answers: None,
        })
    };
    open.map(cancelled).collect()
}

/// An unanswered request of the running turn.
pub(super) fn open_request<'a>(view: DecisionView<'a>, request: &str) -> Option<&'a ChatInputRequest> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the other parts are not requests")]
    view.chat.active_turn.as_ref()?.response_parts.iter().find_map(|part| match part {
        ResponsePart::InputRequest(part) if part.request.id == request && part.response.is_none() => {
            Some(&part.request)
        }
        _ => None,
    })
}

fn question<'a>(request: &'a ChatInputRequest, wanted: &str) -> Option<&'a ChatInputQuestion> {
    request.questions.iter().flatten().find(|question| id(question) == Some(wanted))
}

fn id(question: &ChatInputQuestion) -> Option<&str> {
    match question {
        ChatInputQuestion::Text(question) => Some(&question.id),
        ChatInputQuestion::Number(question) | ChatInputQuestion::Integer(question) => Some(&question.id),
        ChatInputQuestion::Boolean(question) => Some(&question.id),
        ChatInputQuestion::SingleSelect(question) => Some(&question.id),
        ChatInputQuestion::MultiSelect(question) => Some(&question.id),
        ChatInputQuestion::Unknown(_) => None,
    }
}

fn is_required(question: &ChatInputQuestion) -> bool {
    let required = match question {
        ChatInputQuestion::Text(question) => question.required,
        ChatInputQuestion::Number(question) | ChatInputQuestion::Integer(question) => question.required,
        ChatInputQuestion::Boolean(question) => question.required,
        ChatInputQuestion::SingleSelect(question) => question.required,
        ChatInputQuestion::MultiSelect(question) => question.required,
        ChatInputQuestion::Unknown(_) => None,
    };
    required == Some(true)
}

/// Whether an answer matches its question's kind. Unknown kinds from newer protocols pass.
fn fits(question: &ChatInputQuestion, answer: &ChatInputAnswer) -> bool {
    let value = match answer {
        ChatInputAnswer::Draft(answered) | ChatInputAnswer::Submitted(answered) => &answered.value,
        ChatInputAnswer::Skipped(_) => return true,
    };
    match (question, value) {
        (ChatInputQuestion::Unknown(_), _) | (_, ChatInputAnswerValue::Unknown(_)) => true,
        (ChatInputQuestion::Text(_), ChatInputAnswerValue::Text(_))
        | (ChatInputQuestion::Number(_), ChatInputAnswerValue::Number(_))
        | (ChatInputQuestion::Boolean(_), ChatInputAnswerValue::Boolean(_)) => true,
        (ChatInputQuestion::Integer(_), ChatInputAnswerValue::Number(number)) => number.value.fract() == 0.0,
        (ChatInputQuestion::SingleSelect(question), ChatInputAnswerValue::Selected(selected)) => {
            question.allow_freeform_input == Some(true)
                || question.options.iter().any(|option| option.id == selected.value)
        }
        (ChatInputQuestion::MultiSelect(question), ChatInputAnswerValue::SelectedMany(selected)) => {
            question.allow_freeform_input == Some(true)
                || selected
                    .value
                    .iter()
                    .all(|value| question.options.iter().any(|option| option.id == *value))
        }
        _ => false,
    }
}

/// Whether an answer respects its question's minimum and maximum.
fn is_within_limits(question: &ChatInputQuestion, answer: &ChatInputAnswer) -> bool {
    let value = match answer {
        ChatInputAnswer::Draft(answered) | ChatInputAnswer::Submitted(answered) => &answered.value,
        ChatInputAnswer::Skipped(_) => return true,
    };
    match (question, value) {
        (ChatInputQuestion::Text(question), ChatInputAnswerValue::Text(text)) => {
            is_within(question.min, question.max, count(text.value.chars()))
        }
        (
            ChatInputQuestion::Number(question) | ChatInputQuestion::Integer(question),
            ChatInputAnswerValue::Number(number),
        ) => is_within(question.min, question.max, number.value),
        (ChatInputQuestion::MultiSelect(question), ChatInputAnswerValue::SelectedMany(selected)) => {
            let freeform = selected.freeform_values.iter().flatten();
            is_within(question.min, question.max, count(selected.value.iter().chain(freeform)))
        }
        _ => true,
    }
}

fn is_within<T: PartialOrd>(least: Option<T>, most: Option<T>, value: T) -> bool {
    least.is_none_or(|least| value >= least) && most.is_none_or(|most| value <= most)
}

fn count(items: impl Iterator) -> i64 {
    i64::try_from(items.count()).unwrap_or(i64::MAX)
}
