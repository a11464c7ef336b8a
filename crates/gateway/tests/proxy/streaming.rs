//! Streamed responses.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use innkeeper_gateway::ClientOptions;
use innkeeper_testkit::fakes::{Ending, EventStream, Gate, Outcome, Reply, event};
use serde_json::json;
use tokio::time::Instant;

use crate::support::{
    Reader, anthropic, anthropic_with, check_failed_stream, copilot, names, streamed, whole,
};

/// Idle timeout of the test upstreams: longer than any pause of a busy machine, and several
/// times shorter than the test client's timeout.
const PATIENCE: Duration = Duration::from_secs(10);

/// Advances the clock; sockets are not affected.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

fn stream() -> EventStream {
    EventStream::of("claude-sonnet-4-6", &["one ", "two ", "three"])
}

#[tokio::test]
async fn stream_is_forwarded_byte_for_byte() {
    let (fake, gateway) = anthropic().await;
    let mut stream = stream();
    stream.events.insert(1, ": a comment\n\n".to_owned());
    stream.events.insert(3, event("unheard_of", &json!({"type": "unheard_of", "x": [1, 2]})));
    stream
        .events
        .insert(4, "id: 7\nretry: 10\nevent: ping\ndata: {\"type\":\ndata: \"ping\"}\n\n".to_owned());
    fake.script_messages(Reply::events(&stream));
    let response = gateway.ask(&streamed("hi")).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream; charset=utf-8");
    assert_eq!(response.headers()["cache-control"], "no-cache");
    assert_eq!(Reader::of(response).rest().await, stream.text());
}

#[tokio::test]
async fn chunking_of_upstream_does_not_change_text() {
    let (fake, gateway) = anthropic().await;
    let text = stream().text().replace("three", "dr\u{fc}ber");
    for size in [1, 7, 100, 100_000] {
        fake.script_messages(Reply::pieces(text.as_bytes().chunks(size).map(Bytes::copy_from_slice)));
        assert_eq!(Reader::of(gateway.ask(&streamed("hi")).await).rest().await, text);
    }
}

#[tokio::test]
async fn each_event_is_forwarded_before_next_is_sent() {
    let (fake, gateway) = anthropic().await;
    let (gate, stream) = (Gate::new(), stream());
    fake.script_messages(Reply::events(&stream).gated(&gate));
    gate.open(1);
    let mut reader = Reader::of(gateway.ask(&streamed("hi")).await);
    for event in &stream.events {
        reader.until(event).await;
        gate.open(1);
    }
    assert_eq!(reader.rest().await, stream.text());
}

#[tokio::test]
async fn status_is_sent_after_first_event() {
    let (fake, gateway) = anthropic().await;
    let gate = Gate::new();
    fake.script_messages(Reply::events(&stream()).gated(&gate));
    let body = streamed("hi");
    let asking = gateway.ask(&body);
    tokio::pin!(asking);
    let asked = fake.wait_for("the request", |requests| requests.len() == 1);
    tokio::select! {
        biased;
        _ = &mut asking => panic!("status sent before an event"),
        asked = asked => { asked.unwrap(); }
    }
    gate.open(100);
    assert_eq!(asking.await.status(), 200);
}

#[tokio::test]
async fn error_as_first_event_becomes_error_status() {
    for (data, kind, message) in [
        (
            r#"{"type":"error","error":{"type":"overloaded_error","message":"busy"},"extra":[1]}"#,
            "overloaded_error",
            "busy",
        ),
        (r#"{"type":"error","error":{"message":"untyped"}}"#, "api_error", "untyped"),
        (r#"{"type":"error","error":{"type":"x_error"}}"#, "x_error", "the upstream reported an error"),
        (r#"{"type":"error","error":"just a text"}"#, "api_error", "just a text"),
    ] {
        let (fake, gateway) = anthropic().await;
        fake.script_messages(
            Reply::pieces([Bytes::from(format!(": hello\n\nevent: error\ndata: {data}\n\n"))])
                .header("retry-after", "7"),
        );
        let response = gateway.ask(&streamed("hi")).await;
        assert_eq!(
            (response.status().as_u16(), &response.headers()["retry-after"]),
            (502, &"7".parse().unwrap())
        );
        assert_eq!(response.headers()["content-type"], "application/json");
        let body = response.text().await.unwrap();
        let object: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!((&object["error"]["type"], &object["error"]["message"]), (&json!(kind), &json!(message)));
        if object["extra"] == json!([1]) {
            assert_eq!(body, data, "the upstream's error object is passed on unchanged");
        }
    }
}

#[tokio::test]
async fn stream_without_any_event_is_bad_gateway() {
    for ending in [Ending::Whole, Ending::Cut, Ending::Reset] {
        let (fake, gateway) = anthropic().await;
        fake.script_messages(
            Reply::pieces([Bytes::from_static(b": only a comment\n\nevent: mess")]).ending(ending),
        );
        let response = gateway.ask(&streamed("hi")).await;
        assert_eq!(response.status(), 502, "{ending:?}");
        assert_eq!(fake.messages().len(), 1, "a started response is not retried");
    }
}

#[tokio::test]
async fn stream_without_message_stop_ends_with_one_error_event() {
    let stream = stream();
    let events = stream.events.len();
    for ending in [Ending::Whole, Ending::Cut, Ending::Reset] {
        for kept in [1, 5, events - 1] {
            let (fake, gateway) = anthropic().await;
            let gate = Gate::new();
            let mut pieces: Vec<Bytes> =
                stream.events[..kept].iter().map(|event| event.clone().into()).collect();
            // The last chunk is an incomplete event, which must not be forwarded.
            pieces.push(Bytes::from_static(b"event: content_block_delta\ndata: {\"type\":\"half"));
            fake.script_messages(Reply::pieces(pieces).gated(&gate).ending(ending));
            gate.open(kept + 1);
            let mut reader = Reader::of(gateway.ask(&streamed("hi")).await);
            reader.until(&stream.events[kept - 1]).await;
            gate.open(1);
            let text = reader.rest().await;
            check_failed_stream(&text, "api_error");
            assert!(text.starts_with(&stream.events[..kept].concat()) && !text.contains("half"), "{text}");
        }
    }
}

#[tokio::test]
async fn upstream_error_inside_stream_is_forwarded_and_ends_stream() {
    let (fake, gateway) = anthropic().await;
    let (gate, stream) = (Gate::new(), stream());
    let error = event(
        "error",
        &json!({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}, "more": 1}),
    );
    let mut broken = EventStream { events: stream.events[..4].to_vec() };
    broken.events.extend([error.clone(), stream.events.last().unwrap().clone(), "data: more\n\n".to_owned()]);
    fake.script_messages(Reply::events(&broken).gated(&gate));
    gate.open(5);
    let text = Reader::of(gateway.ask(&streamed("hi")).await).rest().await;
    assert_eq!(text, stream.events[..4].concat() + &error);
    check_failed_stream(&text, "overloaded_error");
    fake.wait_for("the upstream request to be cancelled", |requests| {
        requests[0].outcome == Outcome::Cancelled
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn nothing_is_read_after_message_stop() {
    let (fake, gateway) = anthropic().await;
    let (gate, stream) = (Gate::new(), stream());
    let mut longer = stream.clone();
    longer.events.push(event("more", &json!({})));
    fake.script_messages(Reply::events(&longer).gated(&gate));
    gate.open(stream.events.len());
    // The client's response ends although the upstream's does not.
    assert_eq!(Reader::of(gateway.ask(&streamed("hi")).await).rest().await, stream.text());
    fake.wait_for("the upstream request to be cancelled", |requests| {
        requests[0].outcome == Outcome::Cancelled
    })
    .await
    .unwrap();
    fake.script_messages(Reply::pieces([Bytes::from(longer.text())]));
    assert_eq!(Reader::of(gateway.ask(&streamed("hi")).await).rest().await, stream.text());
}

#[tokio::test]
async fn disconnect_cancels_upstream_within_100_ms() {
    let (fake, gateway) = anthropic().await;
    let mut times = Vec::new();
    for round in 0..8 {
        let gate = Gate::new();
        fake.script_messages(Reply::events(&stream()).gated(&gate));
        gate.open(3);
        let mut reader = Reader::of(gateway.ask(&streamed("hi")).await);
        reader.until(&stream().events[2]).await;
        let left = Instant::now();
        drop(reader);
        fake.wait_for("the cancellation", |requests| requests[round].outcome == Outcome::Cancelled)
            .await
            .unwrap();
        times.push(left.elapsed());
    }
    // A busy machine may delay single rounds, so the median is checked.
    times.sort();
    assert!(times[times.len() / 2] < Duration::from_millis(100), "{times:?}");
    fake.wait("all connections to close", |fake| (fake.open_connections() == 0).then_some(())).await.unwrap();
}

#[tokio::test]
async fn disconnect_before_response_cancels_upstream() {
    let (fake, gateway) = anthropic().await;
    for reply in [Reply::events(&stream()).gated(&Gate::new()), Reply::raw("", Ending::Silence)] {
        fake.script_messages(reply);
        let before = fake.requests().len();
        let body = streamed("hi");
        let asking = gateway.ask(&body);
        let asked = fake.wait_for("the request", |requests| requests.len() > before);
        tokio::select! {
            _ = asking => panic!("unexpected response"),
            asked = asked => { asked.unwrap(); }
        }
        fake.wait_for("the cancellation", |requests| requests[before].outcome == Outcome::Cancelled)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn slow_client_applies_backpressure_to_upstream() {
    let (fake, gateway) = anthropic().await;
    let filler =
        event("content_block_delta", &json!({"type": "content_block_delta", "x": "y".repeat(1024 * 1024)}));
    let mut large = stream();
    let last = large.events.split_off(3);
    large.events.extend(std::iter::repeat_n(filler, 64));
    large.events.extend(last);
    let total = large.text().len();
    fake.script_messages(Reply::events(&large));
    let mut reader = Reader::of(gateway.ask(&streamed("hi")).await);
    reader.until(&large.events[1]).await;
    // Other requests are not affected.
    for _ in 0..100 {
        assert_eq!(gateway.ask(&whole("x")).await.status(), 200);
    }
    let sent = fake.messages()[0].sent;
    assert!(sent < total / 2, "{sent} of {total} bytes were read ahead of the client");
    assert_eq!(reader.rest().await.len(), total);
}

#[tokio::test]
async fn silent_upstream_times_out_after_idle_timeout() {
    let (fake, gateway) =
        anthropic_with(ClientOptions { idle_timeout: PATIENCE, ..ClientOptions::default() }).await;
    let events = &stream().events[..4];
    let cut = events.iter().map(|event| Bytes::from(event.clone()));
    fake.script_messages(Reply::pieces(cut).ending(Ending::Silence));
    let mut reader = Reader::of(gateway.ask(&streamed("hi")).await);
    reader.until(&events[3]).await;
    pass(PATIENCE).await;
    check_failed_stream(&reader.rest().await, "timeout_error");
    fake.wait_for("the cancellation", |requests| requests[0].outcome == Outcome::Cancelled).await.unwrap();

    // If no byte ever arrives, a short timeout is safe.
    let hasty = ClientOptions { idle_timeout: Duration::from_millis(100), ..ClientOptions::default() };
    let (fake, gateway) = anthropic_with(hasty).await;
    for reply in [Reply::raw("", Ending::Silence), Reply::pieces([]).ending(Ending::Silence)] {
        fake.script_messages(reply);
        assert_eq!(gateway.ask(&streamed("hi")).await.status(), 504);
    }
}

#[tokio::test]
async fn long_response_has_no_total_timeout() {
    let (fake, gateway) =
        anthropic_with(ClientOptions { idle_timeout: PATIENCE, ..ClientOptions::default() }).await;
    let (gate, stream) = (Gate::new(), stream());
    fake.script_messages(Reply::events(&stream).gated(&gate));
    gate.open(1);
    let begin = Instant::now();
    let mut reader = Reader::of(gateway.ask(&streamed("hi")).await);
    for event in &stream.events {
        reader.until(event).await;
        pass(PATIENCE / 4).await;
        gate.open(1);
    }
    assert_eq!(reader.rest().await, stream.text());
    assert!(begin.elapsed() > 2 * PATIENCE);
}

#[tokio::test]
async fn only_model_in_message_start_is_rewritten_for_copilot() {
    let (fake, gateway) = copilot().await;
    let mut stream =
        EventStream::of("claude-sonnet-4.6", &["claude-sonnet-4.6 ", "\"model\":\"claude-sonnet-4.6\""]);
    stream.events[0] = stream.events[0].replace(r#""model":"#, r#""odd" : 1.50, "model" :  "#);
    for size in [1, 50, 100_000] {
        fake.script_messages(Reply::pieces(
            stream.text().as_bytes().chunks(size).map(Bytes::copy_from_slice),
        ));
        let text = Reader::of(gateway.ask(&streamed("hi")).await).rest().await;
        assert_eq!(text, stream.text().replacen("claude-sonnet-4.6", "claude-sonnet-4-6", 1));
    }
}

#[tokio::test]
async fn concurrent_streams_are_independent() {
    let (fake, gateway) = anthropic().await;
    let one = async |number: usize| {
        let mut body = streamed("hi");
        body["model"] = format!("claude-test-{number}").into();
        let response = gateway.ask(&body).await;
        let text = Reader::of(response).rest().await;
        assert_eq!(text.matches(&format!("\"claude-test-{number}\"")).count(), 1);
        assert_eq!(names(&text).last(), Some(&"message_stop"));
    };
    futures_util::stream::iter(0..200).for_each_concurrent(32, one).await;
    assert_eq!(fake.messages().len(), 200);
}
