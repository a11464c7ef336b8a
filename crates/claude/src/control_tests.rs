use super::*;
use crate::wire::{Message, decode};

fn control() -> (Arc<Control>, Arc<ByteQueue<Bytes>>) {
    let outgoing = Arc::new(ByteQueue::new(1024));
    (Arc::new(Control::new(Arc::clone(&outgoing))), outgoing)
}

/// A control response as the runtime writes it.
fn response(json: &str) -> ControlResponse {
    let line = format!(r#"{{"type":"control_response","response":{json}}}"#);
    let message = decode(line.as_bytes()).unwrap();
    let Message::ControlResponse(message) = message else { panic!("{message:?}") };
    message.response.unwrap()
}

#[tokio::test]
async fn responses_match_requests_in_any_order() {
    let (control, _outgoing) = control();
    let first = control.ask("mcp_status", Map::new()).unwrap();
    let second = control.ask("interrupt", Map::new()).unwrap();
    control.answered(response(r#"{"subtype":"success","request_id":"host-2"}"#));
    control.answered(response(r#"{"subtype":"success","request_id":"host-1","response":{"a":1}}"#));
    assert!(second.answer(REQUEST_TIMEOUT).await.unwrap().is_none());
    assert_eq!(first.answer(REQUEST_TIMEOUT).await.unwrap().unwrap().get(), r#"{"a":1}"#);
}

#[tokio::test]
async fn error_response_carries_message_and_code() {
    let (control, _outgoing) = control();
    let asked = control.ask("set_model", Map::new()).unwrap();
    control.answered(response(
        r#"{"subtype":"error","request_id":"host-1","error":"no such model","error_code":"not_found"}"#,
    ));
    let refused =
        RequestError::Refused { message: "no such model".to_owned(), code: Some("not_found".to_owned()) };
    assert_eq!(asked.answer(REQUEST_TIMEOUT).await.unwrap_err(), refused);
}

#[tokio::test(start_paused = true)]
async fn unanswered_request_times_out_and_late_response_is_dropped() {
    let (control, _outgoing) = control();
    let after = Duration::from_secs(5);
    let error = control.request("interrupt", Map::new(), after).await.unwrap_err();
    assert_eq!(error, RequestError::TimedOut { after });
    control.answered(response(r#"{"subtype":"success","request_id":"host-1"}"#));
    assert!(lock(&control.asked).as_ref().unwrap().is_empty());
}

#[tokio::test]
async fn exit_fails_pending_and_later_requests() {
    let (control, _outgoing) = control();
    let asked = control.ask("interrupt", Map::new()).unwrap();
    control.fail_all();
    assert_eq!(asked.answer(REQUEST_TIMEOUT).await.unwrap_err(), RequestError::Exited);
    assert_eq!(control.ask("interrupt", Map::new()).unwrap_err(), RequestError::Exited);
}

#[test]
fn dropped_request_is_removed_and_cancelled() {
    let (control, outgoing) = control();
    drop(control.ask("side_question", Map::new()).unwrap());
    assert!(lock(&control.asked).as_ref().unwrap().is_empty());
    outgoing.try_pop().unwrap();
    let sent: Value = serde_json::from_slice(&outgoing.try_pop().unwrap()).unwrap();
    assert_eq!(sent, json!({ "type": "control_cancel_request", "request_id": "host-1" }));
}

#[test]
fn rejects_second_response_and_response_after_cancellation() {
    let (control, outgoing) = control();
    let no_such = |id: &str| Err(SendError::NoSuchRequest { id: id.to_owned() });
    control.opened("a");
    control.opened("b");
    assert_eq!(control.respond("a", Ok(json!({}))), Ok(()));
    assert_eq!(control.respond("a", Ok(json!({}))), no_such("a"));
    control.cancelled("b");
    assert_eq!(control.respond("b", Ok(json!({}))), no_such("b"));
    let sent: Value = serde_json::from_slice(&outgoing.try_pop().unwrap()).unwrap();
    let response = json!({ "subtype": "success", "request_id": "a", "response": {} });
    assert_eq!(sent, json!({ "type": "control_response", "response": response }));
    assert!(outgoing.try_pop().is_none());
}

#[test]
fn full_queue_is_an_error_and_leaves_no_pending_request() {
    let (control, _outgoing) = control();
    control.send(&json!("x".repeat(1024))).unwrap();
    let error = control.ask("interrupt", Map::new()).unwrap_err();
    assert_eq!(error, RequestError::Send(SendError::QueueFull));
    assert!(lock(&control.asked).as_ref().unwrap().is_empty());
}
