//! Reading conversations that the fixtures do not cover.

use std::fs;

use innkeeper_claude::Message;
use innkeeper_claude::transcript::{
    ReadOptions, SystemEntries, TranscriptError, TranscriptOrigin, messages, subagent_messages, subagents,
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::store::{Store, assistant, entry, text_of, user, with};

fn read(lines: &[Value]) -> Vec<(String, TranscriptOrigin)> {
    let store = Store::new();
    let path = store.write("-a", Uuid::from_u128(1), lines);
    let found = messages(&path, &ReadOptions::default()).unwrap();
    found.into_iter().map(|message| (message.uuid, message.origin)).collect()
}

fn uuids(lines: &[Value]) -> Vec<String> {
    read(lines).into_iter().map(|(uuid, _)| uuid).collect()
}

#[test]
fn corrupt_and_truncated_lines_are_skipped() {
    let store = Store::new();
    let path = store.write("-a", Uuid::from_u128(1), &[user("q", None)]);
    let mut bytes = fs::read(&path).unwrap();
    bytes.extend_from_slice(b"garbage\n\n{\"type\":\"user\"\n\xff\xfe{}\n[1]\n");
    bytes.extend_from_slice(text_of(&[assistant("a", "q")]).as_bytes());
    bytes.extend_from_slice(b"{\"parentUuid\":\"a\",\"type\":\"user\",\"uuid\":\"ha");
    fs::write(&path, bytes).unwrap();
    let found = messages(&path, &ReadOptions::default()).unwrap();
    assert_eq!(found.iter().map(|message| message.uuid.as_str()).collect::<Vec<_>>(), ["q", "a"]);
}

#[test]
fn missing_or_empty_transcript_is_not_found() {
    let store = Store::new();
    let path = store.write("-a", Uuid::from_u128(1), &[]);
    for path in [path.clone(), path.with_file_name("gone.jsonl")] {
        let error = messages(&path, &ReadOptions::default()).unwrap_err();
        assert!(matches!(error, TranscriptError::NotFound { .. }), "{error}");
    }
}

#[test]
fn offset_and_limit_select_a_page() {
    let store = Store::new();
    let lines = [user("1", None), assistant("2", "1"), user("3", Some("2")), assistant("4", "3")];
    let path = store.write("-a", Uuid::from_u128(1), &lines);
    let page = ReadOptions { offset: 1, limit: Some(2), ..ReadOptions::default() };
    let found: Vec<String> =
        messages(&path, &page).unwrap().into_iter().map(|message| message.uuid).collect();
    assert_eq!(found, ["2", "3"]);
}

#[test]
fn queued_prompt_keeps_the_id_it_was_sent_with() {
    let attachment = |uuid: &str, parent: &str, attachment: &Value| {
        with(entry("attachment", uuid, Some(parent), &json!([])), &json!({"attachment": attachment}))
    };
    let lines = [
        user("q", None),
        assistant("a1", "q"),
        attachment("x1", "a1", &json!({"type": "queued_command", "prompt": "steer", "source_uuid": "sent"})),
        assistant("a2", "x1"),
        attachment("x2", "a2", &json!({"type": "queued_command", "prompt": [{"type": "text", "text": "t"}]})),
        attachment("x3", "x2", &json!({"type": "skill_listing", "content": "…"})),
        assistant("a3", "x3"),
    ];
    let expected = [
        ("q", TranscriptOrigin::Plain),
        ("a1", TranscriptOrigin::Plain),
        ("sent", TranscriptOrigin::Queued),
        ("a2", TranscriptOrigin::Plain),
        ("x2", TranscriptOrigin::Queued),
        ("a3", TranscriptOrigin::Plain),
    ];
    assert_eq!(read(&lines), expected.map(|(uuid, origin)| (uuid.to_owned(), origin)));
}

#[test]
fn task_notification_has_its_sender() {
    let store = Store::new();
    let queued = json!({"type": "queued_command", "prompt": "done", "commandMode": "task-notification"});
    let lines = [
        user("q", None),
        with(entry("attachment", "x", Some("q"), &json!([])), &json!({"attachment": queued})),
        assistant("a", "x"),
    ];
    let path = store.write("-a", Uuid::from_u128(1), &lines);
    let found = messages(&path, &ReadOptions::default()).unwrap();
    assert_eq!(found[1].sender.as_ref().unwrap().get(), r#"{"kind":"task-notification"}"#);
    assert_eq!(found[1].message.as_ref().unwrap().get(), r#"{"role":"user","content":"done"}"#);
}

#[test]
fn command_is_local_only_after_its_caveat() {
    let text = |uuid: &str, parent: Option<&str>, text: &str| entry("user", uuid, parent, &json!(text));
    let warning = with(text("warning", None, "<local-command-caveat>"), &json!({"isMeta": true}));
    let local = [
        warning,
        text("command", Some("warning"), "<command-name>/x</command-name>"),
        text("output", Some("command"), "<local-command-stdout>o</local-command-stdout>"),
        text("prompt", Some("output"), "hello"),
    ];
    let origins: Vec<TranscriptOrigin> = read(&local).into_iter().map(|(_, origin)| origin).collect();
    assert_eq!(
        origins,
        [TranscriptOrigin::LocalCommand, TranscriptOrigin::LocalCommand, TranscriptOrigin::Plain]
    );
    let prompt = [text("command", None, "<command-name>/x</command-name>"), assistant("a", "command")];
    assert!(read(&prompt).iter().all(|(_, origin)| *origin == TranscriptOrigin::Plain));
}

#[test]
fn large_file_is_read_from_its_last_compaction() {
    let boundary = |uuid: &str, metadata: &Value| json!({"parentUuid": null, "type": "system", "subtype": "compact_boundary", "uuid": uuid, "compactMetadata": metadata});
    // A later message refers to the branch before the compaction, which is not followed in a large file.
    let mut lines = vec![
        user("old", None),
        boundary("b", &json!({"trigger": "auto"})),
        user("summary", Some("b")),
        user("rewound", Some("old")),
    ];
    assert_eq!(uuids(&lines), ["old", "rewound"]);
    lines.push(json!({"type": "mode", "mode": "x".repeat(6 << 20)}));
    assert_eq!(uuids(&lines), ["rewound"]);
    let kept = json!({"preservedSegment": {"headUuid": "old", "anchorUuid": "summary", "tailUuid": "old"}});
    lines[1] = boundary("b", &kept);
    assert_eq!(uuids(&lines), ["summary", "old", "rewound"]);
}

#[test]
fn compaction_converts_to_a_boundary_frame() {
    let store = Store::new();
    let boundary = json!({"parentUuid": null, "type": "system", "subtype": "compact_boundary", "uuid": "b", "compactMetadata": {"trigger": "auto"}});
    let summary = with(user("summary", Some("b")), &json!({"isCompactSummary": true}));
    let path = store.write("-a", Uuid::from_u128(1), &[boundary, summary]);
    let everything = ReadOptions { system: SystemEntries::Included, ..ReadOptions::default() };
    let found = messages(&path, &everything).unwrap();
    let frames: Vec<Message> = found.iter().map(|message| message.to_wire().unwrap()).collect();
    assert_eq!(frames.iter().map(Message::kind).collect::<Vec<_>>(), ["system/compact_boundary", "user"]);
    assert_eq!(serde_json::to_value(&frames[1]).unwrap()["isSynthetic"], true);
}

#[test]
fn subagents_are_found_in_subdirectories_by_exact_id() {
    let store = Store::new();
    let path = store.write("-a", Uuid::from_u128(1), &[user("q", None)]);
    let nested = path.with_extension("").join("subagents/deeper");
    fs::create_dir_all(&nested).unwrap();
    let side = |line| with(line, &json!({"isSidechain": true}));
    fs::write(nested.join("agent-inner.jsonl"), text_of(&[side(user("p", None)), side(assistant("r", "p"))]))
        .unwrap();
    fs::write(
        nested.join("agent-inner.meta.json"),
        r#"{"agentType":"explore","toolUseId":"t1","parentAgentId":"outer"}"#,
    )
    .unwrap();
    fs::write(nested.join("../agent-outer.jsonl"), text_of(&[side(user("p", None))])).unwrap();
    fs::write(nested.join("other.jsonl"), "").unwrap();
    let found = subagents(&path);
    let about: Vec<_> = found
        .iter()
        .map(|agent| (agent.id.as_str(), agent.agent_type.as_deref(), agent.tool_use_id.as_deref()))
        .collect();
    assert_eq!(about, [("inner", Some("explore"), Some("t1")), ("outer", None, None)]);
    let said = subagent_messages(&path, "inner").unwrap();
    assert_eq!(said.iter().map(|message| message.uuid.as_str()).collect::<Vec<_>>(), ["p", "r"]);
    assert!(said.iter().all(|message| message.parent_agent_id.as_deref() == Some("outer")));
    for id in ["gone", "../inner", "deeper/agent-inner", ""] {
        let error = subagent_messages(&path, id).unwrap_err();
        assert!(matches!(error, TranscriptError::NoSuchSubagent { .. }), "{error}");
    }
}
