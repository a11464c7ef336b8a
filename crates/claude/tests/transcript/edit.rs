//! Renaming, tagging, deleting and forking.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use innkeeper_claude::transcript::{
    ForkOptions, ListOptions, ReadOptions, TranscriptError, delete, fork, messages, rename, set_tag,
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::store::{Store, assistant, entry, user, with};

const SOURCE: Uuid = Uuid::from_u128(1);
const FORK: Uuid = Uuid::from_u128(2);

fn options(up_to: Option<&str>) -> ForkOptions {
    ForkOptions {
        up_to: up_to.map(str::to_owned),
        title: None,
        session: FORK,
        now: SystemTime::UNIX_EPOCH + Duration::from_millis(1_794_732_000_123),
    }
}

fn lines_of(path: &Path) -> Vec<Value> {
    fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Texts of a conversation.
fn texts(path: &Path) -> Vec<String> {
    let text = |content: &Value| match content {
        Value::String(text) => text.clone(),
        other => other[0]["text"].as_str().unwrap_or("?").to_owned(),
    };
    let found = messages(path, &ReadOptions::default()).unwrap();
    found
        .iter()
        .map(|message| {
            text(&serde_json::from_str::<Value>(message.message.as_ref().unwrap().get()).unwrap()["content"])
        })
        .collect()
}

/// Texts of a fork at a message.
fn forked(lines: &[Value], up_to: Option<&str>) -> Vec<String> {
    let store = Store::new();
    let path = store.write("-a", SOURCE, lines);
    texts(&fork(&path, &options(up_to)).unwrap().path)
}

#[test]
fn new_title_and_tag_are_listed() {
    let store = Store::new();
    let path = store.write("-a", SOURCE, &[user("hello", None)]);
    rename(&path, "  New name ").unwrap();
    set_tag(&path, Some(" ta\u{200b}g ")).unwrap();
    let transcripts = store.transcripts();
    let listed = transcripts.list(&ListOptions::default());
    assert_eq!((listed[0].title.as_deref(), listed[0].tag.as_deref()), (Some("New name"), Some("tag")));
    set_tag(&path, None).unwrap();
    assert_eq!(transcripts.list(&ListOptions::default())[0].tag, None);
    let id = SOURCE.to_string();
    let expected = [
        json!({"type": "custom-title", "customTitle": "New name", "sessionId": id}),
        json!({"type": "tag", "tag": "tag", "sessionId": id}),
        json!({"type": "tag", "tag": "", "sessionId": id}),
    ];
    assert_eq!(lines_of(&path)[1..], expected);
}

#[test]
fn title_is_not_appended_to_a_truncated_line() {
    let store = Store::new();
    let path = store.write("-a", SOURCE, &[user("hello", None)]);
    let whole = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{whole}{{\"type\":\"user\",\"uu")).unwrap();
    rename(&path, "title").unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("\"uu\n{\"type\":\"custom-title\",\"customTitle\":\"title\""), "{text}");
    assert_eq!(store.transcripts().list(&ListOptions::default())[0].summary, "title");
}

#[test]
fn rejects_invalid_titles_tags_and_paths_without_changes() {
    let store = Store::new();
    let path = store.write("-a", SOURCE, &[user("hello", None)]);
    let before = fs::read(&path).unwrap();
    assert!(matches!(rename(&path, " \u{200b}"), Err(TranscriptError::EmptyTitle)));
    assert!(matches!(set_tag(&path, Some("\u{200b} ")), Err(TranscriptError::EmptyTag)));
    let elsewhere = path.with_file_name("notes.txt");
    fs::write(&elsewhere, "mine").unwrap();
    assert!(matches!(rename(&elsewhere, "x"), Err(TranscriptError::NotATranscript { .. })));
    assert!(matches!(delete(&elsewhere), Err(TranscriptError::NotATranscript { .. })));
    let gone = path.with_file_name(format!("{FORK}.jsonl"));
    assert!(matches!(rename(&gone, "x"), Err(TranscriptError::NotFound { .. })));
    assert!(matches!(set_tag(&gone, None), Err(TranscriptError::NotFound { .. })));
    assert!(matches!(delete(&gone), Err(TranscriptError::NotFound { .. })));
    assert!(!gone.exists() && elsewhere.exists());
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn delete_removes_only_the_transcript_and_its_sidecars() {
    let store = Store::new();
    let path = store.write("-a", SOURCE, &[user("hello", None)]);
    let other = store.write("-a", FORK, &[user("other", None)]);
    fs::create_dir_all(path.with_extension("").join("subagents")).unwrap();
    delete(&path).unwrap();
    assert!(!path.exists() && !path.with_extension("").exists() && other.exists());
}

#[test]
fn fork_has_new_ids_and_records_their_source() {
    let store = Store::new();
    let progress = with(entry("progress", "p", Some("q"), &json!([])), &json!({"data": {}}));
    let answer =
        with(assistant("a", "p"), &json!({"slug": "s", "sourceToolAssistantUUID": "x", "version": "2"}));
    let side = with(user("side", Some("a")), &json!({"isSidechain": true}));
    let replacement = json!({"type": "content-replacement", "replacements": [{"a": 1}]});
    let path = store.write(
        "-a",
        SOURCE,
        &[user("q", None), progress, answer, side, replacement, user("later", Some("a"))],
    );
    let before = fs::read(&path).unwrap();
    let forked = fork(&path, &options(Some("a"))).unwrap();
    assert_eq!(forked.path, path.with_file_name(format!("{FORK}.jsonl")));
    assert_eq!(fs::read(&path).unwrap(), before, "the source was changed");
    assert_eq!(fs::metadata(&forked.path).unwrap().permissions().mode() & 0o777, 0o600);
    let lines = lines_of(&forked.path);
    let [question, answer, replacement, title] = lines.as_slice() else { panic!("{lines:?}") };
    assert_eq!((&question["parentUuid"], &answer["parentUuid"]), (&Value::Null, &question["uuid"]));
    assert_eq!(answer["forkedFrom"], json!({"sessionId": SOURCE.to_string(), "messageUuid": "a"}));
    assert!(answer["uuid"].as_str().unwrap().parse::<Uuid>().is_ok());
    assert_eq!(
        (&answer["slug"], &answer["sourceToolAssistantUUID"], &answer["version"]),
        (&Value::Null, &Value::Null, &json!("2"))
    );
    assert_eq!(
        (&question["timestamp"], &answer["timestamp"]),
        (&json!("2026-11-15T08:41:12.784Z"), &json!("2026-11-15T08:40:00.123Z"))
    );
    assert_eq!(replacement["replacements"], json!([{"a": 1}]));
    assert_eq!((&title["type"], &title["customTitle"]), (&json!("custom-title"), &json!("q (fork)")));
    assert!(lines.iter().all(|line| line["sessionId"] == FORK.to_string()));
    let text = fs::read_to_string(&forked.path).unwrap();
    assert!(text.starts_with("{\"") && text.contains("\n{\"type\":\"custom-title\""), "{text}");
}

#[test]
fn fork_gets_the_given_title_or_the_source_title() {
    let store = Store::new();
    let path = store.write("-a", SOURCE, &[user("q", None)]);
    rename(&path, "My work").unwrap();
    let title_of = |path: &Path| lines_of(path).last().unwrap()["customTitle"].clone();
    assert_eq!(title_of(&fork(&path, &options(None)).unwrap().path), "My work (fork)");
    let named = ForkOptions { title: Some("Named".into()), session: Uuid::from_u128(3), ..options(None) };
    assert_eq!(title_of(&fork(&path, &named).unwrap().path), "Named");
}

#[test]
fn fork_ends_at_its_message_on_any_branch() {
    let lines = [
        user("q1", None),
        assistant("a1", "q1"),
        user("left", Some("a1")),
        assistant("left too", "left"),
        user("q2", Some("a1")),
        assistant("a2", "q2"),
    ];
    assert_eq!(forked(&lines, None), ["q1", "a1", "q2", "a2"]);
    assert_eq!(forked(&lines, Some("q2")), ["q1", "a1", "q2"]);
    assert_eq!(forked(&lines, Some("left too")), ["q1", "a1", "left", "left too"]);
    let queued = json!({"attachment": {"type": "queued_command", "prompt": "steer", "source_uuid": "sent"}});
    let steered = [
        user("q1", None),
        with(entry("attachment", "x", Some("q1"), &json!([])), &queued),
        assistant("a1", "x"),
    ];
    assert_eq!(forked(&steered, Some("sent")), ["q1", "steer"]);
}

#[test]
fn fork_keeps_compactions_complete() {
    let metadata = json!({"preservedSegment": {"headUuid": "q2", "anchorUuid": "summary", "tailUuid": "a2"}});
    let lines = [
        user("q1", None),
        assistant("a1", "q1"),
        user("q2", Some("a1")),
        assistant("a2", "q2"),
        json!({"parentUuid": null, "logicalParentUuid": "a2", "type": "system", "subtype": "compact_boundary", "uuid": "b", "compactMetadata": metadata}),
        user("summary", Some("b")),
        user("q3", Some("summary")),
        assistant("a3", "q3"),
    ];
    assert_eq!(forked(&lines, None), ["summary", "q2", "a2", "q3", "a3"]);
    assert_eq!(forked(&lines, Some("q3")), ["summary", "q2", "a2", "q3"]);
    assert_eq!(forked(&lines, Some("a2")), ["q1", "a1", "q2", "a2"]);
    assert_eq!(forked(&lines, Some("b")), ["q1", "a1", "q2", "a2"]);
    assert_eq!(forked(&lines, Some("summary")), ["summary"]);
}

#[test]
fn failed_fork_says_why_and_leaves_no_files() {
    let store = Store::new();
    let path = store.write("-a", SOURCE, &[user("q", None)]);
    assert!(
        matches!(fork(&path, &options(Some("gone"))), Err(TranscriptError::NoSuchMessage { uuid }) if uuid == "gone")
    );
    let empty = store.write("-b", SOURCE, &[json!({"type": "mode"})]);
    assert!(matches!(fork(&empty, &options(None)), Err(TranscriptError::NothingToFork)));
    fork(&path, &options(None)).unwrap();
    let before = fs::read(path.with_file_name(format!("{FORK}.jsonl"))).unwrap();
    assert!(
        matches!(fork(&path, &options(None)), Err(TranscriptError::Io { .. })),
        "an existing file was overwritten"
    );
    assert_eq!(fs::read(path.with_file_name(format!("{FORK}.jsonl"))).unwrap(), before);
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 2, "a file was left over");
}
