//! Questions that the host asks on its own.

use innkeeper_gateway::{SideQuestion, TurnMark};
use innkeeper_testkit::fakes::{Gate, Outcome, RecordedRequest, Reply};
use serde_json::json;

use crate::support::{TOKEN, anthropic, copilot, whole};

const QUESTION: SideQuestion<'_> = SideQuestion {
    session: "session",
    purpose: "title",
    model: "claude-haiku-4-5",
    system: "Be short.",
    text: "fix it",
    max_tokens: 16,
};

#[tokio::test]
async fn question_is_sent_once_with_its_limits_and_answered() {
    let (fake, gateway) = anthropic().await;
    assert_eq!(gateway.handle.ask(QUESTION).await.unwrap(), "Hello from the fake.");
    let requests = fake.messages();
    let [request] = &requests[..] else { panic!("{requests:?}") };
    let expected = json!({"model": "claude-haiku-4-5", "max_tokens": 16, "system": "Be short.",
        "messages": [{"role": "user", "content": "fix it"}]});
    assert_eq!(request.json(), expected);
}

#[tokio::test]
async fn question_is_initiated_by_the_agent_and_leaves_the_conversation_alone() {
    let (fake, gateway) = copilot().await;
    gateway.handle.set_credential("session", "ghu_of-the-user".to_owned().into()).unwrap();
    gateway.handle.mark_turn("session", TurnMark::with_text("fix it"));
    gateway.handle.ask(QUESTION).await.unwrap();
    // The waiting turn has the same text, and is still the user's.
    gateway.ask(&whole("fix it")).await.bytes().await.unwrap();
    let header = |request: &RecordedRequest, name| request.header(name).unwrap().to_owned();
    let sent: Vec<_> = fake
        .messages()
        .iter()
        .map(|request| (header(request, "x-initiator"), header(request, "authorization")))
        .collect();
    let with = |initiator: &str| (initiator.to_owned(), "Bearer ghu_of-the-user".to_owned());
    assert_eq!(sent, [with("agent"), with("user")]);
    assert_eq!(gateway.handle.usage("session").unwrap().requests, 1);
    assert_eq!(gateway.handle.usage("session.title").unwrap().completed, 1);
    // The credential was only lent.
    gateway.messages("session.title").body(whole("x").to_string()).send().await.unwrap();
    assert_eq!(header(fake.messages().last().unwrap(), "authorization"), format!("Bearer {TOKEN}"));
}

#[tokio::test]
async fn failed_question_returns_the_error_and_does_not_change_that_of_the_session() {
    let (fake, gateway) = anthropic().await;
    let error = json!({"type": "error", "error": {"type": "not_found_error", "message": "model: x"}});
    fake.script_messages(Reply::json(404, &error));
    let error = gateway.handle.ask(QUESTION).await.unwrap_err();
    assert_eq!((error.status().as_u16(), error.message()), (404, "model: x"));
    assert_eq!(gateway.handle.last_error("session"), None);
    fake.script_messages(Reply::json(200, &json!({"no": "content"})));
    assert_eq!(gateway.handle.ask(QUESTION).await.unwrap_err().status().as_u16(), 502);
}

#[tokio::test]
async fn dropped_question_is_cancelled() {
    let (fake, gateway) = anthropic().await;
    fake.script_messages(Reply::json(200, &json!({})).gated(&Gate::new()));
    let begun = |requests: &[RecordedRequest]| !requests.is_empty();
    tokio::select! {
        answer = gateway.handle.ask(QUESTION) => panic!("unexpected answer: {answer:?}"),
        asked = fake.wait_for("the request", begun) => { asked.unwrap(); }
    }
    let cancelled =
        |requests: &[RecordedRequest]| requests.iter().all(|one| one.outcome == Outcome::Cancelled);
    fake.wait_for("its cancellation", cancelled).await.unwrap();
}
