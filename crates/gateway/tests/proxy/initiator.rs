//! The initiator of requests.

use innkeeper_gateway::TurnMark;
use innkeeper_testkit::fakes::{Ending, EventStream, FakeCopilot, Gate, Outcome, Reply};
use serde_json::{Value, json};

use crate::support::{Reader, copilot, streamed, whole};

fn initiators(fake: &FakeCopilot) -> Vec<String> {
    fake.messages().iter().map(|request| request.header("x-initiator").unwrap().to_owned()).collect()
}

fn tool_result() -> Value {
    let mut body = streamed("hi");
    body["messages"].as_array_mut().unwrap().extend([
        json!({"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}]}),
        json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]}),
    ]);
    body
}

#[tokio::test]
async fn last_message_decides_initiator_without_marks() {
    let (fake, gateway) = copilot().await;
    for body in [streamed("hi"), tool_result(), streamed("and now?")] {
        Reader::of(gateway.ask(&body).await).rest().await;
    }
    assert_eq!(initiators(&fake), ["user", "agent", "user"]);
}

#[tokio::test]
async fn marked_turn_has_exactly_one_successful_user_request() {
    let (fake, gateway) = copilot().await;
    gateway.handle.mark_turn("session", TurnMark::with_text("fix it"));
    // An error status, an interrupted stream and a disconnect are not successes.
    fake.script_messages(Reply::json(529, &json!({})));
    gateway.ask(&streamed("fix it")).await;
    let events = EventStream::of("claude-sonnet-4.6", &[]).events;
    fake.script_messages(Reply::pieces([events[0].clone().into()]).ending(Ending::Cut));
    Reader::of(gateway.ask(&streamed("fix it")).await).rest().await;
    fake.script_messages(Reply::pieces(events.into_iter().map(Into::into)).gated(&Gate::new()));
    let body = streamed("fix it");
    tokio::select! {
        _ = gateway.ask(&body) => panic!("unexpected response"),
        asked = fake.copilot.wait_for("the third request", |requests| requests.iter().filter(|request| request.path() == "/v1/messages").count() == 3) => { asked.unwrap(); }
    }
    let cancelled = |requests: &[innkeeper_testkit::fakes::RecordedRequest]| {
        requests.last().unwrap().outcome == Outcome::Cancelled
    };
    fake.copilot.wait_for("its cancellation", cancelled).await.unwrap();

    for body in [whole("fix it"), tool_result(), streamed("a subagent's prompt"), streamed("fix it")] {
        gateway.ask(&body).await.bytes().await.unwrap();
    }
    let summary = streamed("Your task is to create a detailed summary of the conversation");
    gateway.handle.mark_turn("session", TurnMark::with_text("next"));
    gateway.ask(&summary).await.bytes().await.unwrap();
    gateway.ask(&streamed("next")).await.bytes().await.unwrap();
    assert_eq!(
        initiators(&fake),
        ["user", "user", "user", "user", "agent", "agent", "agent", "agent", "user"]
    );
}

#[tokio::test]
async fn marks_belong_to_their_session() {
    let (fake, gateway) = copilot().await;
    gateway.handle.mark_turn("one", TurnMark::with_text("hi"));
    gateway.handle.mark_turn("two", TurnMark::with_text("something else"));
    for session in ["one", "two", "three"] {
        gateway.messages(session).body(whole("hi").to_string()).send().await.unwrap();
    }
    assert_eq!(initiators(&fake), ["user", "agent", "user"]);
}
