use super::*;
use crate::wire::{Message, decode};

fn control() -> (Arc<Control>, Arc<ByteQueue<Bytes>>) {
    let outgoing = Arc::new(ByteQueue::new(1024));
    (Arc::new(Control::new(Arc::clone(&outgoing))), outgoing)
}

/// The answer as the runtime would write it.
fn response(json: &str) -> ControlResponse {
    let line = format!(r#"{{"type":"control_response","response":{json}}}"#);
    let message = decode(line.as_bytes()).unwrap();
    let Message::ControlResponse(message) = message else { panic!("{message:?}") };
    message.response.unwrap()
}

#[tokio::test]
async fn answers_find_their_requests_in_any_order() {
    let (control, _outgoing) = control();
    let first = control.ask("mcp_status", Map::new()).unwrap();
    let second = control.ask("interrupt", Map::new()).unwrap();
    control.answered(response(r#"{"subtype":"success","request_id":"host-2"}"#));
    control.answered(response(r#"{"subtype":"success","request_id":"host-1","response":{"a":1}}"#));
    assert!(second.answer(REQUEST_TIMEOUT).await.unwrap().is_none());
    assert_eq!(first.answer(REQUEST_TIMEOUT).await.unwrap().unwrap().get(), r#"{"a":1}"#);
}

#[tokio::test]
async fn a_refusal_carries_the_runtimes_words_and_code() {
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
async fn a_request_without_an_answer_times_out_and_a_late_answer_is_dropped() {
    let (control, _outgoing) = control();
    let after = Duration::from_secs(5);
    let error = control.request("interrupt", Map::new(), after).await.unwrap_err();
    assert_eq!(error, RequestError::TimedOut { after });
    control.answered(response(r#"{"subtype":"success","request_id":"host-1"}"#));
    assert!(lock(&control.asked).as_ref().unwrap().is_empty());
}

#[tokio::test]
async fn the_exit_fails_open_and_later_requests() {
    let (control, _outgoing) = control();
    let asked = control.ask("interrupt", Map::new()).unwrap();
    control.fail_all();
    assert_eq!(asked.answer(REQUEST_TIMEOUT).await.unwrap_err(), RequestError::Exited);
    assert_eq!(control.ask("interrupt", Map::new()).unwrap_err(), RequestError::Exited);
}

#[test]
fn a_dropped_request_is_forgotten_and_the_runtime_told_so() {
    let (control, outgoing) = control();
    drop(control.ask("side_question", Map::new()).unwrap());
    assert!(lock(&control.asked).as_ref().unwrap().is_empty());
    outgoing.try_pop().unwrap();
    let sent: Value = serde_json::from_slice(&outgoing.try_pop().unwrap()).unwrap();
    assert_eq!(sent, json!({ "type": "control_cancel_request", "request_id": "host-1" }));
}

#[test]
fn a_question_is_answered_at_most_once_and_not_after_its_cancellation() {
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
fn a_full_queue_is_an_error_and_leaves_no_open_request() {
    let (control, _outgoing) = control();
    control.send(&json!("x".repeat(1024))).unwrap();
    let error = control.ask("interrupt", Map::new()).unwrap_err();
    assert_eq!(error, RequestError::Send(SendError::QueueFull));
    assert!(lock(&control.asked).as_ref().unwrap().is_empty());
}
