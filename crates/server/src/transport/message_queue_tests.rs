//! The reader without a running handler, as if the handler were blocked.

use std::time::Duration;

use axum::extract::ws::Utf8Bytes;
use futures_util::stream;
use innkeeper_core::client_resources::ClientResources as _;

use super::*;
use crate::connection::ServerContext;

async fn connection() -> (Connection, ConnectionHandles) {
    let connection = Connection::open(ServerContext::without_agents().await);
    let handles = ConnectionHandles::to(&connection);
    (connection, handles)
}

fn message(text: &str) -> Inbound {
    Inbound::Text(Utf8Bytes::from(text.to_owned()))
}

fn written(handles: &ConnectionHandles) -> Vec<String> {
    let frames = handles.outbox.try_batch().map_or_else(Vec::new, Result::unwrap_or_default);
    frames.iter().map(|frame| String::from_utf8(frame.bytes().to_vec()).unwrap()).collect()
}

const PING: &str = r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;

#[tokio::test]
async fn ping_is_answered_while_handler_is_blocked() {
    let (_connection, handles) = connection().await;
    let (reader, mut queued) = create();
    let busy = (0..10).map(|number| message(&format!("\"ping\" {number}")));
    reader.read(stream::iter(busy.chain([message(PING)])), &handles).await;
    assert_eq!(written(&handles), [r#"{"jsonrpc":"2.0","id":7,"result":null}"#]);
    for number in 0..10 {
        let Some((Inbound::Text(text), _)) = queued.recv().await else { panic!("{number} is missing") };
        assert_eq!(text.as_str(), format!("\"ping\" {number}"), "other messages are queued in order");
    }
    assert!(queued.recv().await.is_none());
}

#[tokio::test]
async fn client_response_is_accepted_while_handler_is_blocked() {
    let (connection, handles) = connection().await;
    let client = innkeeper_core::ids::ClientId::new("c");
    connection.shared.clients.add(&client, Arc::clone(&connection.client_requests));
    let asking = connection.shared.clients.list(client, "virtual:/".to_owned());
    let answering = async {
        let question = handles.outbox.next_batch().await.unwrap();
        let question: serde_json::Value = serde_json::from_slice(question[0].bytes()).unwrap();
        let answer = serde_json::json!({"jsonrpc": "2.0", "id": question["id"], "result": {"entries": []}});
        let (reader, mut queued) = create();
        let late = message(r#"{"jsonrpc":"2.0","id":99,"result":null}"#);
        reader.read(stream::iter([message("first"), message(&answer.to_string()), late]), &handles).await;
        let mut waiting = 0;
        while queued.try_recv().is_ok() {
            waiting += 1;
        }
        assert_eq!(waiting, 2, "other messages are queued");
    };
    let (listed, ()) = tokio::join!(asking, answering);
    assert_eq!(listed.unwrap().entries, []);
}

#[tokio::test]
async fn reader_stops_when_queue_is_full() {
    let (_connection, handles) = connection().await;
    for (size, ahead) in [(1, AHEAD), (AHEAD_BYTES as usize / 4, 4), (3 * AHEAD_BYTES as usize, 1)] {
        let (reader, mut queued) = create();
        let taken = std::cell::Cell::new(0);
        let endless = stream::iter(std::iter::repeat_with(|| {
            taken.set(taken.get() + 1);
            message(&"x".repeat(size))
        }));
        // Without tokio's cooperative budget, so that one poll reads as far as possible.
        let reading = std::pin::pin!(tokio::task::unconstrained(reader.read(endless, &handles)));
        tokio::select! {
            biased;
            () = reading => panic!("the stream is endless"),
            () = std::future::ready(()) => {}
        }
        assert_eq!(taken.get(), ahead + 1, "messages of {size} bytes: one waits for space");
        let mut waiting = 0;
        while queued.try_recv().is_ok() {
            waiting += 1;
        }
        assert_eq!(waiting, ahead);
    }
}

#[tokio::test(start_paused = true)]
async fn handshake_deadline_counts_from_start_and_ends_with_handshake() {
    let start = Instant::now();
    let deadline = Some(start + Duration::from_secs(10));
    let (connection_one, handles) = connection().await;
    let (reader, queued) = create();
    let silent = stream::iter([message(r#"{"jsonrpc":"2.0","id":1,"method":"listSessions"}"#)])
        .chain(stream::pending());
    tokio::select! {
        () = reader.read(silent, &handles) => panic!("the stream is endless"),
        () = handle(connection_one, queued, &handles, deadline) => {}
    }
    assert_eq!(start.elapsed(), Duration::from_secs(10));
    assert_eq!(handles.outbox.close_reason(), Some(CloseReason::NoHandshake));

    let (connection_two, handles) = connection().await;
    let (reader, queued) = create();
    let initialize = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersions":["1.0.0"],"clientId":"c"}}"#;
    let known = stream::iter([message(initialize)]).chain(stream::pending());
    tokio::select! {
        () = reader.read(known, &handles) => panic!("the stream is endless"),
        () = handle(connection_two, queued, &handles, Some(Instant::now() + Duration::from_secs(10))) => panic!("the connection was closed"),
        () = tokio::time::sleep(Duration::from_secs(100)) => {}
    }
    assert_eq!(handles.outbox.close_reason(), None);
}

#[tokio::test(start_paused = true)]
async fn request_with_large_response_waits_for_earlier_large_responses() {
    let (mut connection, handles) = connection().await;
    let initialize = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersions":["1.0.0"],"clientId":"c"}}"#;
    connection.receive(initialize).await;
    let id = serde_json::value::to_raw_value(&2).unwrap();
    let large = rpc::response(&id, &"x".repeat(17 * 1024 * 1024)).unwrap();
    handles.outbox.push(large.clone());
    connection.receive(r#"{"jsonrpc":"2.0","id":3,"method":"resolveSessionConfig"}"#).await;
    assert_eq!(written(&handles).len(), 3);
    for method in ["subscribe", "fetchTurns", "listSessions"] {
        handles.outbox.push(large.clone());
        let request =
            format!(r#"{{"jsonrpc":"2.0","id":4,"method":"{method}","params":{{"channel":"ahp-root://"}}}}"#);
        let mut asking = std::pin::pin!(connection.receive(&request));
        assert!(tokio::time::timeout(Duration::from_secs(60), &mut asking).await.is_err(), "{method}");
        assert_eq!(written(&handles).len(), 1);
        asking.await;
        assert_eq!(written(&handles).len(), 1, "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn control_frames_count_toward_rate_limit() {
    let (_connection, handles) = connection().await;
    let (reader, mut queued) = create();
    let limits = &handles.shared.limits;
    let count = limits.message_burst + 3 * limits.messages_per_second;
    let start = Instant::now();
    reader.read(stream::iter((0..count).map(|_| Inbound::Control)), &handles).await;
    assert!(start.elapsed() >= Duration::from_millis(2900), "{:?}", start.elapsed());
    assert!(queued.recv().await.is_none(), "control frames are not queued");
}

#[tokio::test]
async fn queued_messages_of_evicted_client_are_not_handled() {
    let initialize = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersions":["1.0.0"],"clientId":"c"}}"#;
    for (reason, handled) in [(CloseReason::ClientGone, true), (CloseReason::TooSlow, false)] {
        let (connection, handles) = connection().await;
        let (reader, queued) = create();
        reader.read(stream::iter([message(initialize)]), &handles).await;
        handles.outbox.close(reason);
        handle(connection, queued, &handles, None).await;
        let client = innkeeper_core::ids::ClientId::new("c");
        assert_eq!(handles.shared.host.store().knows(&client), handled, "{reason:?}");
    }
}
