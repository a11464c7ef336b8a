//! Retries.

use innkeeper_testkit::fakes::{Ending, EventStream, Reply};
use serde_json::json;

use crate::support::{Reader, anthropic, copilot, streamed, whole};

#[tokio::test]
async fn reset_before_first_byte_is_retried_with_same_body() {
    for ending in [Ending::Reset, Ending::Cut] {
        let (fake, gateway) = anthropic().await;
        fake.script_messages(Reply::raw("", ending));
        fake.script_messages(Reply::raw("", ending));
        let stream = EventStream::of("claude-x", &["after all"]);
        fake.script_messages(Reply::events(&stream));
        assert_eq!(Reader::of(gateway.ask(&streamed("hi")).await).rest().await, stream.text());
        let requests = fake.messages();
        assert_eq!(requests.len(), 3);
        assert!(requests.iter().all(|request| request.body == requests[0].body));
    }
}

#[tokio::test]
async fn retries_are_bounded() {
    let (fake, gateway) = anthropic().await;
    for _ in 0..10 {
        fake.script_messages(Reply::raw("", Ending::Reset));
    }
    assert_eq!(gateway.ask(&streamed("hi")).await.status(), 502);
    assert_eq!(fake.messages().len(), 3);
}

#[tokio::test]
async fn error_status_is_not_retried() {
    for status in [408, 429, 500, 502, 503, 529] {
        let (fake, gateway) = anthropic().await;
        let error = json!({"type": "error", "error": {"type": "api_error", "message": "no"}});
        fake.script_messages(Reply::json(status, &error));
        assert_eq!(gateway.ask(&streamed("hi")).await.status().as_u16(), status);
        assert_eq!(fake.messages().len(), 1);
    }
}

#[tokio::test]
async fn started_response_is_not_retried() {
    for begin in ["H", "HTTP/1.1 200 OK\r\ncontent-ty"] {
        let (fake, gateway) = anthropic().await;
        fake.script_messages(Reply::raw(begin, Ending::Reset));
        assert_eq!(gateway.ask(&streamed("hi")).await.status(), 502);
        assert_eq!(fake.messages().len(), 1);
    }
}

#[tokio::test]
async fn connections_are_reused() {
    let (fake, gateway) = anthropic().await;
    for _ in 0..20 {
        Reader::of(gateway.ask(&streamed("hi")).await).rest().await;
        assert_eq!(gateway.ask(&whole("hi")).await.status(), 200);
    }
    let connections: std::collections::HashSet<usize> =
        fake.messages().iter().map(|request| request.connection).collect();
    // The end of a response may still be in flight when the next request is sent.
    assert!(connections.len() <= 5, "{connections:?}");
}

#[tokio::test]
async fn idle_connection_closed_by_upstream_is_not_an_error() {
    let (fake, gateway) = anthropic().await;
    for _ in 0..5 {
        let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
        fake.script_messages(Reply::raw(answer, Ending::Cut));
        assert_eq!(gateway.ask(&whole("hi")).await.text().await.unwrap(), "{}");
    }
}

#[tokio::test]
async fn retry_keeps_initiator() {
    let (fake, gateway) = copilot().await;
    fake.script_messages(Reply::raw("", Ending::Reset));
    assert_eq!(gateway.ask(&streamed("hi")).await.status(), 200);
    let initiators: Vec<_> =
        fake.messages().iter().map(|request| request.header("x-initiator").unwrap().to_owned()).collect();
    assert_eq!(initiators, ["user", "user"]);
}
