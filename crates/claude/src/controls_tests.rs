use super::*;
use crate::queue::ByteQueue;
use crate::wire::{Message, decode};

/// Runs one request against a runtime that responds with `answer`; returns the request and the result.
async fn exchange<T>(
    answer: Value,
    request: impl AsyncFnOnce(Controls) -> Result<T, RequestError>,
) -> (Value, T) {
    let outgoing = Arc::new(ByteQueue::new(1 << 20));
    let control = Arc::new(Control::new(Arc::clone(&outgoing)));
    let runtime = async {
        let sent: Value = serde_json::from_slice(&outgoing.pop().await.unwrap()).unwrap();
        let body = json!({ "subtype": "success", "request_id": sent["request_id"], "response": answer });
        let line = json!({ "type": "control_response", "response": body }).to_string();
        let Message::ControlResponse(message) = decode(line.as_bytes()).unwrap() else { panic!("{line}") };
        control.answered(message.response.unwrap());
        sent["request"].clone()
    };
    let (asked, answered) = tokio::join!(runtime, request(Controls::new(Arc::clone(&control))));
    (asked, answered.unwrap())
}

#[tokio::test]
async fn requests_have_the_expected_names_and_fields() {
    let id = Uuid::from_u128(7);
    let mut seen = Vec::new();
    let none = || json!(null);
    seen.push(exchange(none(), async |it| it.interrupt(Queued::Cancel).await).await.0);
    seen.push(exchange(none(), async |it| it.set_model(Some("opus")).await).await.0);
    seen.push(exchange(none(), async |it| it.set_model(None).await).await.0);
    seen.push(exchange(none(), async |it| it.set_permission_mode(PermissionMode::Plan).await).await.0);
    seen.push(exchange(none(), async |it| it.set_max_thinking_tokens(None).await).await.0);
    seen.push(exchange(none(), async |it| it.set_effort(Some(Effort::High)).await).await.0);
    seen.push(exchange(none(), async |it| it.reconnect_mcp("files").await).await.0);
    seen.push(exchange(none(), async |it| it.toggle_mcp("files", Toggle::Off).await).await.0);
    seen.push(exchange(none(), async |it| it.mcp_message("host", json!({ "id": 1 })).await).await.0);
    let servers = BTreeMap::from([("host".to_owned(), DynamicMcpServer::InProcess)]);
    seen.push(exchange(none(), async |it| it.set_mcp_servers(&servers).await).await.0);
    seen.push(exchange(none(), async |it| it.rewind_files(id, RewindMode::DryRun).await).await.0);
    seen.push(exchange(none(), async |it| it.seed_read_state(Path::new("a.txt"), 5).await).await.0);
    seen.push(exchange(none(), async |it| it.stop_task("t1").await).await.0);
    seen.push(exchange(none(), async |it| it.generate_title("a walk", Toggle::On).await).await.0);
    seen.push(exchange(none(), async |it| it.side_question("why?").await).await.0);
    seen.push(exchange(none(), async |it| it.end_session(Some("done")).await).await.0);
    seen.push(exchange(none(), async |it| it.rename("A walk").await).await.0);
    insta::assert_json_snapshot!(seen);
}

#[tokio::test]
async fn responses_are_typed_and_keep_unknown_fields() {
    let status = json!({ "mcpServers": [{ "name": "files", "status": "connected", "new": 1 }] });
    let (_, status) = exchange(status, async |it| it.mcp_status().await).await;
    let server = &status.servers.unwrap()[0];
    assert_eq!((server.name.as_deref(), server.status.as_deref()), (Some("files"), Some("connected")));
    assert_eq!(server.extra.get("new").unwrap().get(), "1");

    let rewind = json!({ "canRewind": true, "filesChanged": ["a.txt"], "insertions": 2, "deletions": 1 });
    let (_, rewind) =
        exchange(rewind, async |it| it.rewind_files(Uuid::from_u128(7), RewindMode::Restore).await).await;
    assert_eq!((rewind.can_rewind, rewind.insertions), (Some(true), Some(2)));

    let cancelled = json!({ "cancelled": true });
    let (_, cancelled) = exchange(cancelled, async |it| it.cancel_message(Uuid::from_u128(7)).await).await;
    assert!(cancelled);
}

#[tokio::test]
async fn response_without_body_has_default_fields() {
    let (_, interrupted) = exchange(json!(null), async |it| it.interrupt(Queued::Keep).await).await;
    assert!(interrupted.still_queued.is_none());
    let (_, cancelled) =
        exchange(json!("nonsense"), async |it| it.cancel_message(Uuid::from_u128(7)).await).await;
    assert!(!cancelled);
}

#[test]
fn remaining_requests_have_distinct_names() {
    let names: std::collections::BTreeSet<_> =
        OtherRequest::ALL.iter().map(|request| request.as_str()).collect();
    assert_eq!(names.len(), OtherRequest::ALL.len());
}

#[tokio::test]
async fn requests_are_sent_in_call_order_without_being_awaited() {
    let outgoing = Arc::new(ByteQueue::new(1 << 20));
    let controls = Controls::new(Arc::new(Control::new(Arc::clone(&outgoing))));
    let interrupt = controls.interrupt(Queued::Keep);
    let set_model = controls.set_model(Some("opus"));
    for subtype in ["interrupt", "set_model"] {
        let sent: Value = serde_json::from_slice(&outgoing.pop().await.unwrap()).unwrap();
        assert_eq!(sent["request"]["subtype"], subtype);
    }
    drop((interrupt, set_model));
}
