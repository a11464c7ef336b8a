//! Usage and last error per session.

use innkeeper_gateway::{LastError, SessionUsage};
use innkeeper_testkit::fakes::{EventStream, Gate, Outcome, Reply, event, message};
use serde_json::json;

use crate::support::{Reader, anthropic, copilot, streamed, whole};

/// The usage of one response of the fakes.
fn used() -> SessionUsage {
    SessionUsage {
        requests: 1,
        completed: 1,
        input_tokens: 11,
        output_tokens: 7,
        cache_creation_input_tokens: 2,
        cache_read_input_tokens: 3,
        last_stop_reason: Some("tool_use".to_owned()),
        ..SessionUsage::default()
    }
}

#[tokio::test]
async fn usage_is_recorded_per_session() {
    let (_fake, gateway) = anthropic().await;
    for (session, times) in [("one.a", 1), ("two", 2)] {
        for _ in 0..times {
            let response = gateway.messages(session).body(streamed("hi").to_string()).send().await.unwrap();
            Reader::of(response).rest().await;
        }
    }
    assert_eq!(gateway.handle.usage("one.a"), Some(used()));
    let two = gateway.handle.usage("two").unwrap();
    assert_eq!((two.requests, two.completed, two.input_tokens, two.output_tokens), (2, 2, 22, 14));
    assert_eq!(gateway.handle.usage("one"), None);
    let response = gateway.messages("three").body(whole("hi").to_string()).send().await.unwrap();
    response.bytes().await.unwrap();
    let expected = SessionUsage { last_stop_reason: Some("end_turn".to_owned()), ..used() };
    assert_eq!(gateway.handle.usage("three"), Some(expected));
    gateway.handle.forget("three");
    assert_eq!(gateway.handle.usage("three"), None);
}

#[tokio::test]
async fn usage_can_be_taken_when_the_end_of_the_response_arrives() {
    let (fake, gateway) = copilot().await;
    let mut stream = EventStream::of("claude-sonnet-4.6", &["x"]);
    let stop = json!({"type": "message_stop", "copilot_usage": {"total_nano_aiu": 9}});
    *stream.events.last_mut().unwrap() = event("message_stop", &stop);
    for streams in [true, false] {
        let initiated = if streams { streamed("hi") } else { whole("hi there") };
        if streams {
            fake.script_messages(Reply::events(&stream));
            let mut reader = Reader::of(gateway.ask(&initiated).await);
            reader.until(stream.events.last().unwrap()).await;
        } else {
            gateway.ask(&initiated).await.bytes().await.unwrap();
        }
        let expected = if streams {
            SessionUsage { nano_aiu: 9, user_requests: 1, ..used() }
        } else {
            SessionUsage { last_stop_reason: Some("end_turn".to_owned()), user_requests: 1, ..used() }
        };
        assert_eq!(gateway.handle.take_usage("session"), expected);
        assert_eq!(gateway.handle.take_usage("session"), SessionUsage::default());
    }
    let total = gateway.handle.total_usage();
    assert_eq!((total.requests, total.output_tokens, total.nano_aiu, total.user_requests), (2, 14, 9, 2));
}

#[tokio::test]
async fn aborted_request_records_known_usage() {
    let (fake, gateway) = copilot().await;
    let gate = Gate::new();
    let mut stream = EventStream::of("claude-sonnet-4.6", &["x"]);
    stream
        .events
        .insert(2, event("usage", &json!({"type": "usage", "copilot_usage": {"total_nano_aiu": 5000}})));
    fake.script_messages(Reply::events(&stream).gated(&gate));
    gate.open(3);
    let mut reader = Reader::of(gateway.ask(&streamed("hi")).await);
    reader.until(&stream.events[2]).await;
    drop(reader);
    let left = |requests: &[innkeeper_testkit::fakes::RecordedRequest]| {
        requests.last().unwrap().outcome == Outcome::Cancelled
    };
    fake.copilot.wait_for("the cancellation", left).await.unwrap();
    let usage = gateway.handle.usage("session").unwrap();
    let expected = SessionUsage {
        requests: 1,
        aborted: 1,
        user_requests: 1,
        input_tokens: 11,
        output_tokens: 1,
        cache_creation_input_tokens: 2,
        cache_read_input_tokens: 3,
        nano_aiu: 5000,
        ..SessionUsage::default()
    };
    assert_eq!(usage, expected);
}

#[tokio::test]
async fn last_credits_count_streamed_or_not() {
    let (fake, gateway) = copilot().await;
    let mut stream = EventStream::of("claude-sonnet-4.6", &["x"]);
    let last = stream.events.len() - 2;
    for (place, credits) in [(last, 40), (1, 10)] {
        let data = json!({"type": "x", "copilot_usage": {"total_nano_aiu": credits}});
        stream.events.insert(place, event("x", &data));
    }
    fake.script_messages(Reply::events(&stream));
    Reader::of(gateway.ask(&streamed("hi")).await).rest().await;
    let mut whole_answer = message("claude-sonnet-4.6", "x");
    whole_answer["copilot_usage"] = json!({"total_nano_aiu": 2});
    fake.script_messages(Reply::json(200, &whole_answer));
    gateway.ask(&whole("hi")).await;
    assert_eq!(gateway.handle.usage("session").unwrap().nano_aiu, 42);
}

#[tokio::test]
async fn last_error_of_session_is_recorded() {
    let (fake, gateway) = anthropic().await;
    assert_eq!(gateway.handle.last_error("session"), None);
    let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}});
    fake.script_messages(Reply::json(529, &error).header("request-id", "req_up").header("retry-after", "42"));
    gateway.ask(&streamed("hi")).await;
    let LastError { status, kind, message, retry_after, request_id } =
        gateway.handle.last_error("session").unwrap();
    assert_eq!((status, kind.as_str(), message.as_str()), (529, "overloaded_error", "busy"));
    assert_eq!(retry_after, Some(std::time::Duration::from_secs(42)));
    assert!(request_id.starts_with("req_"));

    let events = EventStream::of("claude-x", &["x"]).events;
    fake.script_messages(Reply::pieces(events[..2].iter().map(|event| event.clone().into())));
    Reader::of(gateway.ask(&streamed("hi")).await).rest().await;
    let last = gateway.handle.last_error("session").unwrap();
    assert_eq!((last.status, last.kind.as_str()), (502, "api_error"));

    gateway.messages("session").body("{").send().await.unwrap();
    assert_eq!(gateway.handle.last_error("session").unwrap().status, 400);
    let usage = gateway.handle.usage("session").unwrap();
    assert_eq!((usage.requests, usage.completed, usage.failed, usage.aborted), (2, 0, 2, 0));

    gateway.ask(&whole("hi")).await;
    assert_eq!(gateway.handle.last_error("session"), None, "a later request succeeded");
}
