use serde_json::json;

use super::*;

fn questions() -> Value {
    json!({"questions": [
        {"question": "Which colour?", "header": "Colour", "multiSelect": false,
         "options": [{"label": "Red", "description": "warm"}, {"label": "Blue"}, {"label": "Blue"}]},
        {"question": "Which sizes?", "header": "", "multiSelect": true, "options": [{"label": "S"}, {"label": "L"}]},
    ]})
}

fn answer(response: ChatInputResponseKind, answers: Value) -> InputAnswer {
    InputAnswer { request: "r".to_owned(), response, answers: serde_json::from_value(answers).unwrap() }
}

fn answers_of(answer: &PermissionAnswer) -> Value {
    match answer {
        PermissionAnswer::Allow { updated_input: Some(input), .. } => input["answers"].clone(),
        other => panic!("not allowed: {other:?}"),
    }
}

#[test]
fn questions_become_an_input_request() {
    let (_, request) = UserQuestions::parse("r", &questions()).unwrap();
    let shown = serde_json::to_value(request).unwrap();
    let expected = json!({"id": "r", "questions": [
        {"kind": "single-select", "id": "question-1", "title": "Colour", "message": "Which colour?",
         "options": [{"id": "Red", "label": "Red", "description": "warm"}, {"id": "Blue", "label": "Blue"}],
         "allowFreeformInput": true},
        {"kind": "multi-select", "id": "question-2", "message": "Which sizes?",
         "options": [{"id": "S", "label": "S"}, {"id": "L", "label": "L"}], "allowFreeformInput": true},
    ]});
    assert_eq!(shown, expected);
}

#[test]
fn only_question_is_required() {
    let one = json!({"questions": [{"question": "Go?", "header": "Go", "options": [{"label": "Yes"}]}]});
    let (_, request) = UserQuestions::parse("r", &one).unwrap();
    let shown = serde_json::to_value(request).unwrap();
    assert_eq!(shown["questions"][0]["required"], true);
}

#[test]
fn answers_are_keyed_by_question_text() {
    let (asked, _) = UserQuestions::parse("r", &questions()).unwrap();
    let given = answer(
        ChatInputResponseKind::Accept,
        json!({
            "question-1": {"state": "submitted", "value": {"kind": "selected", "value": "", "freeformValues": ["green"]}},
            "question-2": {"state": "draft", "value": {"kind": "selected-many", "value": ["S", "L"], "freeformValues": ["XXL"]}},
        }),
    );
    let expected = json!({"Which colour?": "green", "Which sizes?": "S, L, XXL"});
    assert_eq!(answers_of(&asked.answered(&given)), expected);
}

#[test]
fn skipped_and_empty_answers_are_left_out() {
    let (asked, _) = UserQuestions::parse("r", &questions()).unwrap();
    let given = answer(
        ChatInputResponseKind::Accept,
        json!({
            "question-1": {"state": "submitted", "value": {"kind": "selected", "value": "Red"}},
            "question-2": {"state": "skipped"},
        }),
    );
    assert_eq!(answers_of(&asked.answered(&given)), json!({"Which colour?": "Red"}));
}

#[test]
fn request_without_an_answer_is_denied() {
    let (asked, _) = UserQuestions::parse("r", &questions()).unwrap();
    let blank = json!({"question-1": {"state": "submitted", "value": {"kind": "selected", "value": "  "}}});
    for (response, answers) in [
        (ChatInputResponseKind::Accept, json!({})),
        (ChatInputResponseKind::Accept, blank),
        (ChatInputResponseKind::Decline, json!({})),
        (ChatInputResponseKind::Cancel, json!({})),
    ] {
        let reply = asked.answered(&answer(response, answers));
        assert_eq!(reply, PermissionAnswer::deny(NOT_ANSWERED), "{response:?}");
    }
}

#[test]
fn invalid_questions_are_refused() {
    for input in [json!({}), json!({"questions": []}), json!({"questions": "Go?"}), json!(null)] {
        assert!(UserQuestions::parse("r", &input).is_err(), "{input}");
    }
}
