//! Converts the runtime's `AskUserQuestion` tool to an input request, and the user's answers
//! back to the tool's input.
//!
//! An empty answer is never passed to the model as an answer: unanswered questions are left
//! out, and a request without any answer is denied.

use std::collections::HashMap;

use ahp_types::state::{
    ChatInputAnswer, ChatInputAnswerValue, ChatInputMultiSelectQuestion, ChatInputOption, ChatInputQuestion,
    ChatInputRequest, ChatInputResponseKind, ChatInputSingleSelectQuestion,
};
use innkeeper_claude::PermissionAnswer;
use innkeeper_core::agent::InputAnswer;
use serde::Deserialize;
use serde_json::{Map, Value};

/// Name of the tool.
pub(super) const ASK_USER_QUESTION: &str = "AskUserQuestion";

/// The answer to the model when the user does not answer.
const NOT_ANSWERED: &str = "The user did not answer the question. Continue without the answer if you can, \
    and do not assume one.";

/// The questions of a tool call that waits for the user.
#[derive(Debug)]
pub(super) struct UserQuestions {
    /// The tool's input.
    input: Map<String, Value>,
    /// The text of each question; the position is part of the question's id.
    texts: Vec<String>,
}

#[derive(Deserialize)]
struct ToolQuestions {
    questions: Vec<ToolQuestion>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolQuestion {
    question: String,
    #[serde(default)]
    header: Option<String>,
    #[serde(default)]
    multi_select: bool,
    #[serde(default)]
    options: Vec<ToolOption>,
}

#[derive(Deserialize)]
struct ToolOption {
    label: String,
    #[serde(default)]
    description: Option<String>,
}

impl UserQuestions {
    /// Reads the tool's input. The error is the answer to the model.
    pub(super) fn parse(id: &str, input: &Value) -> Result<(Self, ChatInputRequest), String> {
        let questions = ToolQuestions::deserialize(input)
            .map_err(|error| format!("The questions could not be shown to the user: {error}."))?
            .questions;
        if questions.is_empty() {
            return Err("There is no question in the call; pass at least one.".to_owned());
        }
        // The only question can be declined with the whole request.
        let required = (questions.len() == 1).then_some(true);
        let texts = questions.iter().map(|question| question.question.clone()).collect();
        let shown =
            questions.into_iter().enumerate().map(|(at, question)| shown(at, question, required)).collect();
        let request = ChatInputRequest {
            id: id.to_owned(),
            message: None,
            url: None,
            questions: Some(shown),
            answers: None,
        };
        let input = input.as_object().cloned().unwrap_or_default();
        Ok((Self { input, texts }, request))
    }

    /// The response to the runtime.
    pub(super) fn answered(&self, answer: &InputAnswer) -> PermissionAnswer {
        if answer.response != ChatInputResponseKind::Accept {
            return PermissionAnswer::deny(NOT_ANSWERED);
        }
        let answers: Map<String, Value> = self
            .texts
            .iter()
            .enumerate()
            .filter_map(|(at, text)| {
                let given = joined(answer.answers.get(&question_id(at))?)?;
                Some((text.clone(), Value::String(given)))
            })
            .collect();
        if answers.is_empty() {
            return PermissionAnswer::deny(NOT_ANSWERED);
        }
        let mut input = self.input.clone();
        input.insert("answers".to_owned(), Value::Object(answers));
        PermissionAnswer::Allow { updated_input: Some(Value::Object(input)), updated_permissions: Vec::new() }
    }
}

fn question_id(at: usize) -> String {
    format!("question-{}", at + 1)
}

fn shown(at: usize, question: ToolQuestion, required: Option<bool>) -> ChatInputQuestion {
    let (id, title, message) =
        (question_id(at), question.header.filter(|header| !header.is_empty()), question.question);
    let mut options: Vec<ChatInputOption> = Vec::with_capacity(question.options.len());
    for ToolOption { label, description } in question.options {
        // The label identifies the option, so a repeated one cannot be chosen separately.
        if !options.iter().any(|option| option.id == label) {
            options.push(ChatInputOption { id: label.clone(), label, description, recommended: None });
        }
    }
    if question.multi_select {
        ChatInputQuestion::MultiSelect(ChatInputMultiSelectQuestion {
            id,
            title,
            message,
            required,
            options,
            allow_freeform_input: Some(true),
            min: required.map(|_| 1),
            max: None,
        })
    } else {
        ChatInputQuestion::SingleSelect(ChatInputSingleSelectQuestion {
            id,
            title,
            message,
            required,
            options,
            allow_freeform_input: Some(true),
        })
    }
}

/// The text of an answer; `None` if it is empty.
fn joined(answer: &ChatInputAnswer) -> Option<String> {
    let value = match answer {
        ChatInputAnswer::Draft(answered) | ChatInputAnswer::Submitted(answered) => &answered.value,
        ChatInputAnswer::Skipped(_) => return None,
    };
    let texts: Vec<&str> = match value {
        ChatInputAnswerValue::Text(text) => vec![text.value.as_str()],
        ChatInputAnswerValue::Selected(selected) => {
            let freeform = selected.freeform_values.iter().flatten().map(String::as_str);
            std::iter::once(selected.value.as_str()).chain(freeform).collect()
        }
        ChatInputAnswerValue::SelectedMany(selected) => {
            let freeform = selected.freeform_values.iter().flatten();
            selected.value.iter().chain(freeform).map(String::as_str).collect()
        }
        ChatInputAnswerValue::Number(number) => return Some(number.value.to_string()),
        ChatInputAnswerValue::Boolean(boolean) => return Some(boolean.value.to_string()),
        ChatInputAnswerValue::Unknown(_) => return None,
    };
    let texts: Vec<&str> = texts.into_iter().map(str::trim).filter(|text| !text.is_empty()).collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

/// The answers of an input request, by question id, without the skipped ones.
pub(super) fn given(answers: &HashMap<String, ChatInputAnswer>) -> HashMap<&str, &ChatInputAnswerValue> {
    answers
        .iter()
        .filter_map(|(id, answer)| match answer {
            ChatInputAnswer::Draft(answered) | ChatInputAnswer::Submitted(answered) => {
                Some((id.as_str(), &answered.value))
            }
            ChatInputAnswer::Skipped(_) => None,
        })
        .collect()
}

#[cfg(test)]
#[path = "user_questions_tests.rs"]
mod tests;
