use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn entries(lines: &[Value]) -> Vec<TranscriptEntry> {
    lines.iter().map(|line| TranscriptEntry::parse(line.to_string().as_bytes()).unwrap()).collect()
}

fn uuids(lines: &[Value]) -> Vec<String> {
    let entries = entries(lines);
    conversation(&entries).into_iter().map(|at| entries[at].uuid.clone()).collect()
}

fn user(uuid: &str, parent: impl Into<Option<&'static str>>) -> Value {
    json!({"type": "user", "uuid": uuid, "parentUuid": parent.into(), "message": {"content": uuid}})
}

fn assistant(uuid: &str, parent: &str) -> Value {
    json!({"type": "assistant", "uuid": uuid, "parentUuid": parent, "message": {"id": uuid, "content": []}})
}

fn with(mut line: Value, fields: &Value) -> Value {
    for (key, value) in fields.as_object().unwrap() {
        line[key] = value.clone();
    }
    line
}

/// A block of the message `M`, with a timestamp.
fn block(uuid: &str, parent: &str, second: u8) -> Value {
    let message = json!({"id": "M", "content": [{"type": "tool_use"}]});
    with(assistant(uuid, parent), &json!({"message": message, "timestamp": format!("T{second:02}")}))
}

fn tool_result(uuid: &str, parent: &'static str, second: u8) -> Value {
    let message = json!({"content": [{"type": "tool_result", "tool_use_id": "t"}]});
    let fields =
        json!({"message": message, "timestamp": format!("T{second:02}"), "sourceToolAssistantUUID": parent});
    with(user(uuid, parent), &fields)
}

fn compacted(metadata: &Value) -> Vec<Value> {
    vec![
        user("q1", None),
        assistant("a1", "q1"),
        user("q2", "a1"),
        assistant("a2", "q2"),
        json!({"type": "system", "subtype": "compact_boundary", "uuid": "boundary", "parentUuid": null, "compactMetadata": metadata}),
        user("summary", "boundary"),
        user("q3", "summary"),
        assistant("a3", "q3"),
    ]
}

#[test]
fn last_written_branch_is_the_conversation() {
    let lines = [
        user("q1", None),
        assistant("a1", "q1"),
        user("left", "a1"),
        assistant("left too", "left"),
        user("q2", "a1"),
        assistant("a2", "q2"),
    ];
    assert_eq!(uuids(&lines), ["q1", "a1", "q2", "a2"]);
}

#[test]
fn later_note_makes_its_branch_the_newest() {
    let note = json!({"type": "system", "uuid": "note", "parentUuid": "old"});
    let lines = [user("q1", None), user("old", "q1"), user("new", "q1"), note];
    assert_eq!(uuids(&lines), ["q1", "old"]);
}

#[test]
fn subagents_teams_and_unattached_notes_are_not_leaves() {
    let side = with(user("side", "a1"), &json!({"isSidechain": true}));
    let team = with(user("team", None), &json!({"teamName": "t"}));
    let note = json!({"type": "system", "uuid": "note", "parentUuid": null});
    assert_eq!(uuids(&[user("q1", None), assistant("a1", "q1"), side, team, note]), ["q1", "a1"]);
}

#[test]
fn duplicate_entry_counts_once() {
    let lines = [user("q1", None), assistant("a1", "q1"), user("q1", None), assistant("a1", "q1")];
    assert_eq!(uuids(&lines), ["q1", "a1"]);
}

#[test]
fn parallel_calls_and_results_follow_their_message() {
    let lines = [
        user("q", None),
        block("use1", "q", 1),
        block("use2", "use1", 2),
        tool_result("result2", "use2", 3),
        block("use3", "use2", 4),
        tool_result("result1", "use1", 5),
        tool_result("result3", "use3", 6),
        assistant("done", "result1"),
    ];
    assert_eq!(uuids(&lines), ["q", "use1", "use2", "use3", "result2", "result3", "result1", "done"]);
}

#[test]
fn conversation_starts_at_compaction() {
    assert_eq!(uuids(&compacted(&json!({"trigger": "auto"}))), ["boundary", "summary", "q3", "a3"]);
}

#[test]
fn messages_kept_by_compaction_follow_its_summary() {
    let segment = json!({"preservedSegment": {"headUuid": "q2", "anchorUuid": "summary", "tailUuid": "a2"}});
    assert_eq!(uuids(&compacted(&segment)), ["boundary", "summary", "q2", "a2", "q3", "a3"]);
    let list = json!({"preservedMessages": {"anchorUuid": "summary", "uuids": ["a1", "a2"]}});
    assert_eq!(uuids(&compacted(&list)), ["boundary", "summary", "a1", "a2", "q3", "a3"]);
    let both = with(segment, &list);
    assert_eq!(uuids(&compacted(&both)), ["boundary", "summary", "a1", "a2", "q3", "a3"]);
    let incomplete = json!({"preservedMessages": {"anchorUuid": "summary", "uuids": ["gone", "a2"]}});
    assert_eq!(uuids(&compacted(&incomplete)), ["boundary", "summary", "q3", "a3"]);
    let malformed = json!({"preservedMessages": 7, "preservedSegment": {"headUuid": 1}});
    assert_eq!(uuids(&compacted(&malformed)), ["boundary", "summary", "q3", "a3"]);
}

#[test]
fn cycles_terminate() {
    assert_eq!(uuids(&[user("a", "b"), user("b", "a")]), Vec::<String>::new());
    assert_eq!(uuids(&[user("a", "b"), user("b", "a"), user("c", "b")]), ["a", "b", "c"]);
}

proptest! {
    #[test]
    fn conversation_of_any_forest_has_no_duplicates(
        parents in prop::collection::vec((0_usize..14, 0_usize..4, any::<bool>()), 0..14),
        kept in prop::collection::vec(0_usize..14, 0..4),
    ) {
        let lines: Vec<Value> = parents.iter().enumerate().map(|(at, (parent, answer, is_user))| {
            let kind = if *is_user { "user" } else { "assistant" };
            let message = json!({"id": format!("m{answer}"), "content": [{"type": "tool_result"}]});
            json!({"type": kind, "uuid": at.to_string(), "parentUuid": parent.to_string(), "message": message})
        }).collect();
        let kept: Vec<String> = kept.iter().map(usize::to_string).collect();
        let preserved = json!({"preservedMessages": {"anchorUuid": "0", "uuids": kept}});
        let boundary = json!({"type": "system", "subtype": "compact_boundary", "uuid": "b", "compactMetadata": preserved});
        let found = uuids(&[lines, vec![boundary]].concat());
        let distinct: HashSet<&String> = found.iter().collect();
        prop_assert_eq!(distinct.len(), found.len());
    }
}
