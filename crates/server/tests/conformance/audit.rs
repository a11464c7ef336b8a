//! `innkeeper/audit`: pages of stored decisions, and invalid parameters.

use std::sync::Arc;

use innkeeper_core::ChannelUri;
use innkeeper_core::audit::{AuditDecision, AuditRecord, input_digest};
use innkeeper_core::ids::ClientId;
use innkeeper_core::storage::{Change, Storage, StorageError};
use innkeeper_core_fakes::MemoryStorage;
use serde_json::{Value, json};

use crate::scene::DIRECTORY;
use crate::stage_host::{StageHost, StageOptions};
use crate::wire::Wire;

const METHOD: &str = "innkeeper/audit";
const SESSIONS: [&str; 2] = ["scripted:/1", "scripted:/2"];

fn record(session: &str, number: i64) -> AuditRecord {
    let session = ChannelUri::new(session);
    AuditRecord {
        at: 1_800_000_000_000 + number,
        chat: ChannelUri::default_chat_of(&session),
        session,
        turn: Some("t1".to_owned()),
        tool_call: format!("call-{number}"),
        tool: "Bash".to_owned(),
        input_digest: input_digest(b"{}"),
        decision: AuditDecision::Deny,
        layer: "workspace".to_owned(),
        rule: Some("Bash(rm:*)".to_owned()),
        client: Some(ClientId::new("phone")),
    }
}

/// A host with two sessions and four records, of which the second session has the third.
async fn audited() -> (StageHost, MemoryStorage, Wire) {
    let storage = MemoryStorage::new();
    let options = StageOptions { storage: Arc::new(storage.clone()), ..StageOptions::default() };
    let host = StageHost::start(options).await.unwrap();
    let client = host.observer("alice").await.unwrap();
    for session in SESSIONS {
        client.create(session, &[DIRECTORY]).await.unwrap();
    }
    let mut plain = record(SESSIONS[0], 4);
    (plain.turn, plain.rule, plain.client, plain.decision) = (None, None, None, AuditDecision::Allow);
    let records = [record(SESSIONS[0], 1), record(SESSIONS[0], 2), record(SESSIONS[1], 3), plain];
    storage.write(records.map(Change::Audit).to_vec()).await.unwrap();
    let wire = Wire::open(&host, "wire", &["1.0.0"]).await;
    (host, storage, wire)
}

fn calls(page: &Value) -> Vec<&str> {
    let records = page["records"].as_array().unwrap();
    records.iter().map(|record| record["toolCall"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn audit_records_are_returned_newest_first_in_pages() {
    let (_host, _storage, mut wire) = audited().await;
    let page = wire.ask(METHOD, json!({})).await;
    assert_eq!(calls(&page), ["call-4", "call-3", "call-2", "call-1"]);
    assert_eq!(page.get("next"), None);
    let full = json!({
        "time": "2027-01-15T08:00:00.003Z",
        "session": SESSIONS[1],
        "chat": ChannelUri::default_chat_of(&ChannelUri::new(SESSIONS[1])).as_str(),
        "turn": "t1",
        "toolCall": "call-3",
        "tool": "Bash",
        "inputDigest": input_digest(b"{}"),
        "decision": "deny",
        "layer": "workspace",
        "rule": "Bash(rm:*)",
        "client": "phone",
    });
    assert_eq!(page["records"][1], full);
    let plain = &page["records"][0];
    assert_eq!(plain["decision"], "allow");
    for absent in ["turn", "rule", "client"] {
        assert_eq!(plain.get(absent), None, "{absent}");
    }

    let first = wire.ask(METHOD, json!({"session": SESSIONS[0], "limit": 2})).await;
    assert_eq!(calls(&first), ["call-4", "call-2"]);
    let rest = json!({"session": SESSIONS[0], "limit": 2, "before": first["next"]});
    let rest = wire.ask(METHOD, rest).await;
    assert_eq!((calls(&rest), rest.get("next")), (vec!["call-1"], None));
}

#[tokio::test]
async fn audit_rejects_invalid_params_and_ignores_unknown_ones() {
    let (host, storage, mut wire) = audited().await;
    for (params, hint) in [
        (json!({"limit": 0}), "between 1 and 500"),
        (json!({"limit": 501}), "between 1 and 500"),
        (json!({"limit": -1}), "between 1 and 500"),
        (json!({"limit": "many"}), "invalid parameters"),
        (json!({"before": "yesterday"}), "value of next"),
        (json!({"before": "-1"}), "value of next"),
        (json!({"before": 3}), "invalid parameters"),
        (json!({"session": 7}), "invalid parameters"),
        (json!({"session": "x".repeat(2_000)}), "longer than"),
    ] {
        let answer = wire.request(METHOD, params.clone()).await;
        assert_eq!(answer["error"]["code"], -32602, "{params}: {answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(hint), "{params}: {answer}");
    }
    let tolerated = json!({"session": null, "before": null, "limit": 500, "later": {"x": 1}});
    assert_eq!(calls(&wire.ask(METHOD, tolerated).await).len(), 4);
    let unknown = wire.ask(METHOD, json!({"session": "scripted:/unknown"})).await;
    assert_eq!(unknown, json!({"records": []}));
    storage.fail_loads(Some(StorageError::TimedOut));
    let answer = wire.request(METHOD, json!({})).await;
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
    let mut early = Wire::connect(&host, "early").await;
    assert_eq!(early.refused(METHOD, json!({})).await, -32601, "before the handshake");
}

#[tokio::test]
async fn disposed_session_has_no_audit_records() {
    let (_host, _storage, mut wire) = audited().await;
    wire.ask("disposeSession", json!({"channel": SESSIONS[0]})).await;
    assert_eq!(calls(&wire.ask(METHOD, json!({})).await), ["call-3"]);
}
