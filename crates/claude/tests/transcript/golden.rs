//! Output of the official SDK in both versions for the fixtures of both versions.

use std::fs;
use std::path::{Path, PathBuf};

use innkeeper_claude::transcript::{
    ListOptions, ReadOptions, Scope, SessionSummary, SystemEntries, TranscriptMessage, TranscriptMessageKind,
    TranscriptOrigin, messages, subagent_messages, subagents,
};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::store::{Store, milliseconds, set_modified};

const VERSIONS: [&str; 2] = ["0.2.112", "0.3.325"];
const NEWER_SDK: &str = "0.3.325";

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings/session-fixture")
}

fn golden(sdk: &str, fixture: &str) -> Value {
    let path = fixtures().join(format!("golden/sdk-{sdk}--on-{fixture}.json"));
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Copies the fixture and sets the file times that the SDK saw.
fn fixture(version: &str, golden: &Value) -> Store {
    let store = Store::new();
    copy(&fixtures().join(version).join("projects"), &store.dir.path().join("projects"));
    let transcripts = store.transcripts();
    for session in golden["listSessions"].as_array().unwrap() {
        let path = transcripts.find(id_of(session), &Scope::Everything).unwrap();
        set_modified(&path, session["lastModified"].as_u64().unwrap());
    }
    store
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn id_of(session: &Value) -> Uuid {
    session["sessionId"].as_str().unwrap().parse().unwrap()
}

/// Formats a summary like the SDK, without the size, which changed when paths were anonymized.
fn listed(summary: &SessionSummary) -> Value {
    assert_eq!(summary.size, fs::metadata(&summary.path).unwrap().len());
    let fields = json!({
        "sessionId": summary.id.to_string(),
        "summary": summary.summary,
        "lastModified": milliseconds(summary.last_modified),
        "customTitle": summary.title,
        "firstPrompt": summary.first_prompt,
        "gitBranch": summary.git_branch,
        "cwd": summary.cwd,
        "tag": summary.tag,
        "createdAt": summary.created_at.map(milliseconds),
        "archived": summary.archived,
    });
    Value::Object(
        fields.as_object().unwrap().clone().into_iter().filter(|(_, value)| !value.is_null()).collect(),
    )
}

fn without_size(session: &Value) -> Value {
    let mut session = session.clone();
    session.as_object_mut().unwrap().remove("fileSize");
    session
}

/// Digest of a message as in the golden files.
fn digest(message: &TranscriptMessage) -> Value {
    let mut keys =
        vec!["type", "uuid", "session_id", "message", "parent_tool_use_id", "parent_agent_id", "timestamp"];
    let flags = [
        ("tool_result_meta", message.tool_denial.is_some()),
        ("isCompactSummary", message.origin == TranscriptOrigin::CompactSummary),
        ("is_meta", message.is_meta),
        ("isQueuedCommand", message.origin == TranscriptOrigin::Queued),
        ("isCompletedLocalCommand", message.origin == TranscriptOrigin::LocalCommand),
        ("origin", message.sender.is_some()),
    ];
    keys.extend(flags.into_iter().filter(|(_, set)| *set).map(|(key, _)| key));
    keys.sort_unstable();
    let raw: Value = serde_json::from_str(message.message.as_ref().unwrap().get()).unwrap();
    let cut = |text: &str| text.chars().take(60).collect::<String>();
    let content = match &raw["content"] {
        Value::String(text) => json!(format!("str:{}", cut(text))),
        Value::Array(blocks) => blocks
            .iter()
            .map(|block| match block["type"].as_str().unwrap() {
                "text" => json!(format!("text:{}", cut(block["text"].as_str().unwrap()))),
                kind => json!(kind),
            })
            .collect(),
        other => panic!("{other}"),
    };
    json!({
        "type": if message.kind == TranscriptMessageKind::User { "user" } else { "assistant" },
        "uuid": message.uuid, "parent_tool_use_id": message.parent_tool_use_id, "keys": keys, "content": content,
    })
}

fn with_sorted_keys(messages: &Value) -> Vec<Value> {
    let sorted = |message: &Value| {
        let mut message = message.clone();
        message["keys"].as_array_mut().unwrap().sort_by_key(|key| key.as_str().unwrap().to_owned());
        message
    };
    messages.as_array().unwrap().iter().map(sorted).collect()
}

#[test]
fn list_matches_newer_sdk_for_both_fixtures() {
    for version in VERSIONS {
        let golden = golden(NEWER_SDK, version);
        let store = fixture(version, &golden);
        let sessions: Vec<Value> =
            store.transcripts().list(&ListOptions::default()).iter().map(|summary| listed(summary)).collect();
        let expected: Vec<Value> =
            golden["listSessions"].as_array().unwrap().iter().map(without_size).collect();
        assert_eq!(sessions, expected, "{version}");
        let page = ListOptions { offset: 2, limit: Some(3), ..ListOptions::default() };
        let page: Vec<String> =
            store.transcripts().list(&page).iter().map(|summary| summary.id.to_string()).collect();
        assert_eq!(json!(page), golden["page"], "{version}");
    }
}

#[test]
fn older_sdk_lists_the_same() {
    for version in VERSIONS {
        assert_eq!(golden("0.2.112", version)["listSessions"], golden(NEWER_SDK, version)["listSessions"]);
    }
}

#[test]
fn messages_and_subagents_match_newer_sdk_for_both_fixtures() {
    for version in VERSIONS {
        let golden = golden(NEWER_SDK, version);
        let store = fixture(version, &golden);
        let transcripts = store.transcripts();
        let sessions: &Map<String, Value> = golden["sessions"].as_object().unwrap();
        assert!(sessions.len() > 15);
        for (id, expected) in sessions {
            let path = transcripts.find(id.parse().unwrap(), &Scope::Everything).unwrap();
            let found = messages(&path, &ReadOptions::default()).unwrap();
            let digests: Vec<Value> = found.iter().map(digest).collect();
            assert_eq!(digests, with_sorted_keys(&expected["messages"]), "{version} {id}");
            let everything = ReadOptions { system: SystemEntries::Included, ..ReadOptions::default() };
            let kinds: Vec<String> =
                messages(&path, &everything).unwrap().iter().map(kind_and_uuid).collect();
            assert_eq!(json!(kinds), expected["messagesWithSystem"], "{version} {id}");
            let agents: Vec<String> = subagents(&path).into_iter().map(|agent| agent.id).collect();
            assert_eq!(json!(agents), expected["subagents"], "{version} {id}");
            for agent in &agents {
                let found: Vec<Value> = subagent_messages(&path, agent).unwrap().iter().map(digest).collect();
                assert_eq!(
                    found,
                    with_sorted_keys(&expected["subagentMessages"][agent]),
                    "{version} {id} {agent}"
                );
            }
        }
    }
}

fn kind_and_uuid(message: &TranscriptMessage) -> String {
    let kind = match message.kind {
        TranscriptMessageKind::User => "user",
        TranscriptMessageKind::Assistant => "assistant",
        TranscriptMessageKind::System => "system",
    };
    format!("{kind}:{}", message.uuid)
}

#[test]
fn older_sdk_differs_only_in_steering_messages() {
    for version in VERSIONS {
        let golden = golden("0.2.112", version);
        let store = fixture(version, &golden);
        let transcripts = store.transcripts();
        let mut steering = 0;
        for (id, expected) in golden["sessions"].as_object().unwrap() {
            let path = transcripts.find(id.parse().unwrap(), &Scope::Everything).unwrap();
            let found = messages(&path, &ReadOptions::default()).unwrap();
            let (queued, plain): (Vec<_>, Vec<_>) =
                found.into_iter().partition(|message| message.origin == TranscriptOrigin::Queued);
            steering += queued.len();
            let found: Vec<&str> = plain.iter().map(|message| message.uuid.as_str()).collect();
            let expected = expected["messages"]
                .as_array()
                .unwrap()
                .iter()
                .map(|message| message["uuid"].as_str().unwrap());
            assert_eq!(found, expected.collect::<Vec<_>>(), "{version} {id}");
        }
        assert_eq!(steering, 1, "{version}");
    }
}

#[test]
fn every_fixture_message_converts_to_a_wire_frame() {
    for version in VERSIONS {
        let golden = golden(NEWER_SDK, version);
        let store = fixture(version, &golden);
        let everything = ReadOptions { system: SystemEntries::Included, ..ReadOptions::default() };
        for session in store.transcripts().list(&ListOptions::default()) {
            for message in messages(&session.path, &everything).unwrap() {
                let frame = serde_json::to_value(message.to_wire().unwrap()).unwrap();
                let kind = kind_and_uuid(&message);
                assert_eq!(
                    kind,
                    format!("{}:{}", frame["type"].as_str().unwrap(), frame["uuid"].as_str().unwrap())
                );
                assert_eq!(frame["session_id"], session.id.to_string(), "{version} {kind}");
                if let Some(raw) = &message.message {
                    assert_eq!(frame["message"], serde_json::from_str::<Value>(raw.get()).unwrap());
                }
                if let Some(raw) = &message.tool_use_result {
                    assert_eq!(frame["tool_use_result"], serde_json::from_str::<Value>(raw.get()).unwrap());
                }
            }
        }
    }
}
