use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::*;
use crate::process::ExitReason;
use crate::wire::decode;

fn intake() -> (Intake, Arc<ByteQueue<Bytes>>) {
    let outgoing = Arc::new(ByteQueue::new(1024));
    (Intake::new(Arc::new(Control::new(Arc::clone(&outgoing)))), outgoing)
}

#[track_caller]
fn take(intake: &Intake, line: &str) {
    intake.take(decode(line.as_bytes()).unwrap(), line.len()).unwrap();
}

fn sent_error(outgoing: &ByteQueue<Bytes>) -> (String, String) {
    let sent: Value = serde_json::from_slice(&outgoing.try_pop().unwrap()).unwrap();
    let text = |key: &str| sent["response"][key].as_str().unwrap().to_owned();
    assert_eq!(text("subtype"), "error");
    (text("request_id"), text("error"))
}

const QUESTION: &str =
    r#"{"type":"control_request","request_id":"q","request":{"subtype":"can_use_tool","tool_name":"Bash"}}"#;

#[test]
fn known_request_is_delivered_to_the_consumer() {
    let (intake, outgoing) = intake();
    take(&intake, QUESTION);
    let event = intake.inbox.try_pop().unwrap();
    let RuntimeEvent::Request { id, request: IncomingRequest::CanUseTool(request) } = event else {
        panic!("{event:?}");
    };
    assert_eq!((id.as_str(), request.tool_name.as_deref()), ("q", Some("Bash")));
    assert!(outgoing.try_pop().is_none());
}

#[test]
fn unknown_request_is_rejected_and_delivered() {
    let (intake, outgoing) = intake();
    take(&intake, r#"{"type":"control_request","request_id":"q","request":{"subtype":"ui_dance"}}"#);
    assert_eq!(sent_error(&outgoing), ("q".to_owned(), "unsupported request: ui_dance".to_owned()));
    let event = intake.inbox.try_pop().unwrap();
    assert!(matches!(event, RuntimeEvent::Request { request: IncomingRequest::Unknown(_), .. }));
}

#[test]
fn requests_are_rejected_after_consumer_is_dropped() {
    let (intake, outgoing) = intake();
    take(&intake, QUESTION);
    intake.abandon();
    assert_eq!(sent_error(&outgoing).0, "q");
    take(&intake, QUESTION);
    assert_eq!(sent_error(&outgoing).0, "q");
}

#[test]
fn cancelled_request_is_reported() {
    let (intake, _outgoing) = intake();
    take(&intake, QUESTION);
    take(&intake, r#"{"type":"control_cancel_request","request_id":"q"}"#);
    intake.inbox.try_pop().unwrap();
    let event = intake.inbox.try_pop().unwrap();
    assert!(matches!(event, RuntimeEvent::RequestCancelled { id } if id == "q"));
}

#[tokio::test]
async fn exit_is_the_last_event_even_if_inbox_is_full() {
    let (intake, _outgoing) = intake();
    let message = decode(br#"{"type":"keep_alive"}"#).unwrap();
    intake.take(message.clone(), INBOX_LIMIT).unwrap();
    assert_eq!(intake.take(message, 1), Err(InboxFull));
    intake.exited(Exit::unknown());
    assert!(matches!(intake.inbox.pop().await, Some(RuntimeEvent::Message(_))));
    let last = intake.inbox.pop().await;
    assert!(matches!(last, Some(RuntimeEvent::Exited(exit)) if exit.reason == ExitReason::Dropped));
    assert!(intake.inbox.pop().await.is_none());
}

#[test]
fn runtime_is_busy_from_prompt_to_idle_state_or_last_result() {
    let (intake, _outgoing) = intake();
    let activity = &intake.activity;
    assert!(!activity.is_busy());
    activity.prompted();
    assert!(activity.is_busy());
    take(&intake, r#"{"type":"result","subtype":"success","queued_turn_count":1}"#);
    assert!(activity.is_busy());
    take(&intake, r#"{"type":"result","subtype":"success"}"#);
    assert!(!activity.is_busy());
    take(&intake, r#"{"type":"system","subtype":"session_state_changed","state":"requires_action"}"#);
    assert!(activity.is_busy());
    take(&intake, r#"{"type":"system","subtype":"session_state_changed","state":"idle"}"#);
    assert!(!activity.is_busy());
}

#[test]
fn background_tasks_are_listed_until_they_end() {
    let (intake, _outgoing) = intake();
    for id in ["a", "b", "c"] {
        take(&intake, &format!(r#"{{"type":"system","subtype":"task_started","task_id":"{id}"}}"#));
    }
    take(&intake, r#"{"type":"system","subtype":"task_notification","task_id":"a","status":"completed"}"#);
    take(&intake, r#"{"type":"system","subtype":"task_updated","task_id":"b","patch":{"status":"killed"}}"#);
    take(&intake, r#"{"type":"system","subtype":"task_updated","task_id":"c","patch":{"status":"running"}}"#);
    assert_eq!(intake.activity.tasks(), ["c"]);
}
