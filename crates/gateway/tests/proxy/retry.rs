//! When a request is sent again, and when not.

use innkeeper_testkit::fakes::{Ending, EventStream, Reply};
use serde_json::json;

use crate::support::{Reader, anthropic, copilot, streamed, whole};

#[tokio::test]
async fn a_reset_before_any_byte_is_tried_again_with_the_same_bytes() {
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
async fn tries_are_capped() {
    let (fake, gateway) = anthropic().await;
    for _ in 0..10 {
        fake.script_messages(Reply::raw("", Ending::Reset));
    }
    assert_eq!(gateway.ask(&streamed("hi")).await.status(), 502);
    assert_eq!(fake.messages().len(), 3);
}

#[tokio::test]
async fn a_status_is_never_tried_again() {
    for status in [408, 429, 500, 502, 503, 529] {
        let (fake, gateway) = anthropic().await;
        let error = json!({"type": "error", "error": {"type": "api_error", "message": "no"}});
        fake.script_messages(Reply::json(status, &error));
        assert_eq!(gateway.ask(&streamed("hi")).await.status().as_u16(), status);
        assert_eq!(fake.messages().len(), 1);
    }
}

#[tokio::test]
async fn an_answer_that_had_begun_is_not_tried_again() {
    for begin in ["H", "HTTP/1.1 200 OK\r\ncontent-ty"] {
        let (fake, gateway) = anthropic().await;
        fake.script_messages(Reply::raw(begin, Ending::Reset));
        assert_eq!(gateway.ask(&streamed("hi")).await.status(), 502);
        assert_eq!(fake.messages().len(), 1);
    }
}

#[tokio::test]
async fn connections_are_used_again() {
    let (fake, gateway) = anthropic().await;
    for _ in 0..20 {
        Reader::of(gateway.ask(&streamed("hi")).await).rest().await;
        assert_eq!(gateway.ask(&whole("hi")).await.status(), 200);
    }
    let connections: std::collections::HashSet<usize> =
        fake.messages().iter().map(|request| request.connection).collect();
    // The end of an answer may still be on its way when the next request comes.
    assert!(connections.len() <= 5, "{connections:?}");
}

#[tokio::test]
async fn a_kept_connection_that_the_upstream_has_closed_is_no_failure() {
    let (fake, gateway) = anthropic().await;
    for _ in 0..5 {
        let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
        fake.script_messages(Reply::raw(answer, Ending::Cut));
        assert_eq!(gateway.ask(&whole("hi")).await.text().await.unwrap(), "{}");
    }
}

#[tokio::test]
async fn a_retry_is_made_in_the_same_name() {
    let (fake, gateway) = copilot().await;
    fake.script_messages(Reply::raw("", Ending::Reset));
    assert_eq!(gateway.ask(&streamed("hi")).await.status(), 200);
    let initiators: Vec<_> =
        fake.messages().iter().map(|request| request.header("x-initiator").unwrap().to_owned()).collect();
    assert_eq!(initiators, ["user", "user"]);
}
