//! What is recorded, and for which call.

use std::time::Duration;

use bytes::Bytes;
use innkeeper_core::edits::{
    CallOutcome, ChangeSelection, EditLog as _, EditReach, EditSource, EditStorage as _, FileVersion,
    OperationKind, PlannedChange, PlannedEdit, PlannedReplacement, RecordedEdit, StoredBlob, UnknownContent,
};
use innkeeper_core::ids::TurnId;
use innkeeper_workspace::EditLogConfig;

use crate::support::{Desk, describe_edit, turns, uri};

fn described(desk: &Desk, edits: &[RecordedEdit]) -> Vec<String> {
    edits.iter().map(|edit| format!("{} {}", describe_edit(desk, &edit.edit), edit.source.as_str())).collect()
}

const ALL: ChangeSelection = ChangeSelection::All;

#[tokio::test]
async fn tool_edit_is_recorded_with_both_contents() {
    let desk = Desk::new();
    desk.write("a.txt", "one\ntwo\n");
    let chat = desk.chat("s:/1", "c:/1").await;
    let path = desk.path("a.txt");
    let edits = chat.tool("t1", "e1", &[path], || desk.write("a.txt", "one\n2\n3\n")).await;
    assert_eq!(described(&desk, &edits), ["changed a.txt +2 -1 tool"]);
    let edit = &edits[0].edit;
    assert_eq!(desk.blob(&edit.before.as_ref().unwrap().content.uri).await, "one\ntwo\n");
    assert_eq!(desk.blob(&edit.after.as_ref().unwrap().content.uri).await, "one\n2\n3\n");
    assert_eq!(edit.after.as_ref().unwrap().content.size_hint, Some(8));
    assert_eq!(desk.listed("s:/1", ALL).await, ["changed a.txt +2 -1 tool"]);
    let counts = desk.counts("s:/1").await;
    assert_eq!((counts.files, counts.added, counts.removed), (1, 2, 1));
}

#[tokio::test]
async fn tool_that_creates_a_file_with_directories_is_recorded() {
    let desk = Desk::new();
    let chat = desk.chat("s:/1", "c:/1").await;
    let edits = chat.tool("t1", "e1", &[desk.path("x/y/a.txt")], || desk.write("x/y/a.txt", "new\n")).await;
    assert_eq!(described(&desk, &edits), ["created x/y/a.txt +1 -0 tool"]);
    assert_eq!(desk.records("s:/1")[0].new_parents, 2);
}

#[tokio::test]
async fn tool_that_changes_nothing_leaves_no_record() {
    let desk = Desk::new();
    desk.write("a.txt", "one\n");
    let chat = desk.chat("s:/1", "c:/1").await;
    assert_eq!(chat.tool("t1", "e1", &[desk.path("a.txt")], || {}).await, []);
    assert_eq!(desk.records("s:/1"), []);
}

#[tokio::test]
async fn files_outside_of_the_directories_are_not_recorded() {
    let desk = Desk::new();
    let chat = desk.chat("s:/1", "c:/1").await;
    let outside = tempfile::tempdir().unwrap();
    let path = outside.path().join("plan.md");
    let edits =
        chat.tool("t1", "e1", std::slice::from_ref(&path), || std::fs::write(&path, "x").unwrap()).await;
    assert_eq!(edits, []);
    assert_eq!(desk.records("s:/1"), []);
}

async fn shell_edits_of_all_kinds(desk: Desk) {
    let chat = desk.chat("s:/1", "c:/1").await;
    let edits = chat
        .shell("t1", "b1", || {
            desk.write("new/created.txt", "a\nb\n");
            desk.write("changed.txt", "one\nTWO\n");
            desk.remove("deleted.txt");
            std::fs::rename(desk.path("old.txt"), desk.path("renamed.txt")).unwrap();
            desk.set_mode("script.sh", 0o755);
            std::os::unix::fs::symlink("changed.txt", desk.path("link")).unwrap();
            desk.write("binary", b"\0\x01\xff");
        })
        .await;
    let expected = [
        "created binary ? shell",
        "changed changed.txt +1 -1 shell",
        "deleted deleted.txt +0 -1 shell",
        "created link +1 -0 shell",
        "created new/created.txt +2 -0 shell",
        "renamed old.txt to renamed.txt +0 -0 shell",
        "changed script.sh +0 -0 shell",
    ];
    assert_eq!(described(&desk, &edits), expected);
    assert_eq!(desk.listed("s:/1", turns(&["t1"])).await, expected);
    assert_eq!(desk.listed("s:/1", turns(&["t2"])).await, Vec::<String>::new());
    let link = edits[3].edit.after.as_ref().unwrap();
    assert_eq!(desk.blob(&link.content.uri).await, "changed.txt");
    let deleted = edits[2].edit.before.as_ref().unwrap();
    assert_eq!(desk.blob(&deleted.content.uri).await, "gone\n");
    let counts = desk.counts("s:/1").await;
    assert_eq!((counts.files, counts.added, counts.removed), (7, 4, 2));
}

const FILES: &[(&str, &str)] = &[
    ("changed.txt", "one\ntwo\n"),
    ("deleted.txt", "gone\n"),
    ("old.txt", "moved\n"),
    ("script.sh", "ls\n"),
];

#[tokio::test]
async fn shell_edits_are_recorded_without_git() {
    let desk = Desk::new();
    for (name, content) in FILES {
        desk.write(name, content);
    }
    shell_edits_of_all_kinds(desk).await;
}

#[tokio::test]
async fn shell_edits_are_recorded_with_git() {
    shell_edits_of_all_kinds(Desk::in_git(FILES)).await;
}

#[tokio::test]
async fn later_edit_updates_the_net_change() {
    let desk = Desk::new();
    desk.write("a.txt", "one\n");
    let chat = desk.chat("s:/1", "c:/1").await;
    chat.edit(&desk, "t1", "a.txt", "one\ntwo\n").await;
    chat.begin_turn("t2");
    chat.edit(&desk, "t2", "a.txt", "one\ntwo\nthree\n").await;
    assert_eq!(desk.listed("s:/1", ALL).await, ["changed a.txt +2 -0 tool"]);
    assert_eq!(desk.listed("s:/1", turns(&["t2"])).await, ["changed a.txt +1 -0 tool"]);
    chat.edit(&desk, "t2", "a.txt", "one\n").await;
    assert_eq!(desk.listed("s:/1", ALL).await, Vec::<String>::new());
    assert_eq!(desk.counts("s:/1").await.files, 0);
    assert_eq!(desk.listed("s:/1", turns(&["t2"])).await, ["changed a.txt +0 -1 tool"]);
}

#[tokio::test]
async fn background_command_owns_its_edits_until_it_ends() {
    let desk = Desk::new();
    let chat = desk.chat("s:/1", "c:/1").await;
    chat.announce("t1", "server", EditReach::AnyFile).await;
    desk.write("early.txt", "x\n");
    let outcome = CallOutcome { in_background: true, original: None };
    let edits = chat.recorder.after_call("server".to_owned(), outcome).await;
    assert_eq!(described(&desk, &edits), ["created early.txt +1 -0 shell"]);
    chat.end_turn("t1").await;
    chat.begin_turn("t2");
    desk.write("late.txt", "x\n");
    chat.recorder.background_ended("server".to_owned()).await;
    desk.write("later.txt", "x\n");
    chat.shell("t2", "b2", || {}).await;
    // The user may have created the second one.
    let expected = ["created early.txt +1 -0 shell", "created late.txt +1 -0 shell overlaps"];
    assert_eq!(desk.listed("s:/1", turns(&["t1"])).await, expected);
    assert_eq!(desk.listed("s:/1", ALL).await, expected);
}

#[tokio::test]
async fn call_without_a_result_ends_with_its_turn() {
    let desk = Desk::new();
    desk.write("a.txt", "x\n");
    let chat = desk.chat("s:/1", "c:/1").await;
    chat.announce("t1", "b1", EditReach::AnyFile).await;
    desk.write("b.txt", "x\n");
    chat.announce("t1", "e1", EditReach::Files(vec![desk.path("a.txt")])).await;
    desk.write("a.txt", "y\n");
    chat.end_turn("t1").await;
    desk.write("c.txt", "x\n");
    chat.shell("t2", "b2", || {}).await;
    let expected = ["changed a.txt +1 -1 tool", "created b.txt +1 -0 shell"];
    assert_eq!(desk.listed("s:/1", ALL).await, expected);
}

#[tokio::test]
async fn calls_that_continue_after_their_turn_own_their_edits() {
    let desk = Desk::new();
    let chat = desk.chat("s:/1", "c:/1").await;
    chat.announce("t1", "w1", EditReach::Files(vec![desk.path("a.txt")])).await;
    chat.announce("t1", "b1", EditReach::AnyFile).await;
    desk.write("a.txt", "x\n");
    desk.write("b.txt", "x\n");
    chat.end_turn_except("t1", &["w1", "b1"]).await;
    chat.begin_turn("t2");
    desk.write("c.txt", "x\n");
    for (call, expected) in [
        ("w1", vec!["created a.txt +1 -0 tool"]),
        ("b1", vec!["created b.txt +1 -0 shell", "created c.txt +1 -0 shell"]),
    ] {
        let edits = chat.recorder.after_call(call.to_owned(), CallOutcome::default()).await;
        assert_eq!(described(&desk, &edits), expected);
    }
    assert_eq!(desk.listed("s:/1", turns(&["t1"])).await.len(), 3);
    assert_eq!(desk.listed("s:/1", turns(&["t2"])).await, Vec::<String>::new());
}

#[tokio::test]
async fn changes_before_a_repeated_announcement_are_not_the_calls() {
    let desk = Desk::new();
    desk.write("a.txt", "x\n");
    let chat = desk.chat("s:/1", "c:/1").await;
    chat.announce("t1", "b1", EditReach::AnyFile).await;
    desk.write("by-user.txt", "x\n");
    chat.announce("t1", "b1", EditReach::AnyFile).await;
    desk.write("by-agent.txt", "x\n");
    assert_eq!(described(&desk, &chat.ended("b1").await), ["created by-agent.txt +1 -0 shell"]);
    let reach = EditReach::Files(vec![desk.path("a.txt")]);
    chat.announce("t1", "e1", reach.clone()).await;
    desk.write("a.txt", "x\nuser\n");
    chat.announce("t1", "e1", reach).await;
    desk.write("a.txt", "agent\nx\nuser\n");
    assert_eq!(described(&desk, &chat.ended("e1").await), ["changed a.txt +1 -0 tool"]);
}

#[tokio::test]
async fn repeated_announcement_with_another_reach_replaces_the_first() {
    let desk = Desk::new();
    desk.write("a.txt", "1\n");
    let chat = desk.chat("s:/1", "c:/1").await;
    let outside = EditReach::Files(vec![desk.path("../outside.txt")]);
    for (call, first, second) in [
        ("one", EditReach::Files(vec![desk.path("a.txt")]), outside.clone()),
        ("two", EditReach::Files(vec![desk.path("a.txt")]), EditReach::AnyFile),
        ("three", EditReach::AnyFile, outside),
    ] {
        chat.announce("t1", call, first).await;
        chat.announce("t1", call, second).await;
        chat.ended(call).await;
    }
    desk.write("mine.txt", "1\n");
    chat.shell("t1", "command", || desk.write("a.txt", "22\n")).await;
    assert_eq!(desk.listed("s:/1", ALL).await, ["changed a.txt +1 -1 shell"]);
}

#[tokio::test]
async fn call_that_already_runs_owns_changes_since_the_last_observation() {
    let desk = Desk::new();
    let chat = desk.chat("s:/1", "c:/1").await;
    desk.write("a.txt", "x\n");
    chat.announce("t1", "b1", EditReach::AnyFileAlready).await;
    desk.write("b.txt", "x\n");
    let edits = chat.ended("b1").await;
    assert_eq!(described(&desk, &edits), ["created a.txt +1 -0 shell", "created b.txt +1 -0 shell"]);
}

#[tokio::test]
async fn commands_of_two_sessions_at_the_same_time_are_flagged_on_both() {
    let desk = Desk::new();
    let one = desk.chat("s:/1", "c:/1").await;
    let other = desk.chat("s:/2", "c:/2").await;
    one.announce("t1", "b1", EditReach::AnyFile).await;
    desk.write("only-one.txt", "x\n");
    other.announce("t1", "b2", EditReach::AnyFile).await;
    desk.write("both.txt", "x\n");
    one.ended("b1").await;
    desk.write("only-other.txt", "x\n");
    other.ended("b2").await;
    assert_eq!(
        desk.listed("s:/1", ALL).await,
        ["created both.txt +1 -0 shell overlaps", "created only-one.txt +1 -0 shell"]
    );
    assert_eq!(
        desk.listed("s:/2", ALL).await,
        ["created both.txt +1 -0 shell overlaps", "created only-other.txt +1 -0 shell"]
    );
}

#[tokio::test]
async fn tool_edit_during_another_sessions_command_belongs_to_the_tool() {
    let desk = Desk::new();
    desk.write("a.txt", "x\n");
    let one = desk.chat("s:/1", "c:/1").await;
    let other = desk.chat("s:/2", "c:/2").await;
    one.announce("t1", "b1", EditReach::AnyFile).await;
    other.edit(&desk, "t1", "a.txt", "y\n").await;
    other.announce("t1", "e2", EditReach::Files(vec![desk.path("b.txt")])).await;
    desk.write("b.txt", "z\n");
    // The command ends between the edit and its result.
    one.ended("b1").await;
    other.ended("e2").await;
    assert_eq!(desk.listed("s:/1", ALL).await, Vec::<String>::new());
    assert_eq!(desk.listed("s:/2", ALL).await, ["changed a.txt +1 -1 tool", "created b.txt +1 -0 tool"]);
}

#[tokio::test]
async fn tool_and_command_that_change_the_same_file_are_flagged_on_both() {
    let desk = Desk::new();
    desk.write("a.txt", "x\n");
    let one = desk.chat("s:/1", "c:/1").await;
    let other = desk.chat("s:/2", "c:/2").await;
    one.announce("t1", "b1", EditReach::AnyFile).await;
    other.announce("t1", "e1", EditReach::Files(vec![desk.path("a.txt")])).await;
    desk.write("a.txt", "x\ny\n");
    // Another command's observation sees the first of two changes.
    one.shell("t1", "b2", || {}).await;
    desk.write("a.txt", "x\ny\nz\n");
    other.ended("e1").await;
    one.ended("b1").await;
    assert_eq!(desk.listed("s:/1", ALL).await, ["changed a.txt +2 -0 shell overlaps"]);
    assert_eq!(desk.listed("s:/2", ALL).await, ["changed a.txt +2 -0 tool overlaps"]);
}

#[tokio::test]
async fn two_tools_that_change_the_same_file_are_flagged_on_both() {
    let desk = Desk::new();
    desk.write("a.txt", "x\n");
    let one = desk.chat("s:/1", "c:/1").await;
    let other = desk.chat("s:/2", "c:/2").await;
    let reach = EditReach::Files(vec![desk.path("a.txt")]);
    one.announce("t1", "e1", reach.clone()).await;
    other.announce("t1", "e2", reach).await;
    desk.write("a.txt", "x\ny\n");
    one.ended("e1").await;
    desk.write("a.txt", "x\ny\nz\n");
    other.ended("e2").await;
    assert_eq!(desk.listed("s:/1", ALL).await, ["changed a.txt +1 -0 tool+external overlaps"]);
    assert_eq!(desk.listed("s:/2", ALL).await, ["changed a.txt +1 -0 tool overlaps"]);
}

#[tokio::test]
async fn sessions_in_nested_directories_do_not_take_each_others_edits() {
    let desk = Desk::new();
    desk.write("sub/a.txt", "x\n");
    let outer = desk.chat("s:/1", "c:/1").await;
    let inner = desk.chat_in("s:/2", "c:/2", &desk.path("sub")).await;
    inner.shell("t1", "b1", || desk.write("sub/a.txt", "y\n")).await;
    inner.edit(&desk, "t1", "sub/b.txt", "y\n").await;
    outer.shell("t1", "b2", || desk.write("sub/c.txt", "z\n")).await;
    assert_eq!(desk.listed("s:/1", ALL).await, ["created sub/c.txt +1 -0 shell"]);
    assert_eq!(
        desk.listed("s:/2", ALL).await,
        ["changed sub/a.txt +1 -1 shell", "created sub/b.txt +1 -0 tool"]
    );
}

#[tokio::test]
async fn external_edits_are_recorded_for_files_that_the_agent_changed() {
    let desk = Desk::new();
    desk.write("a.txt", "one\ntwo\nthree\nfour\nfive\n");
    desk.write("users.txt", "x\n");
    let chat = desk.chat("s:/1", "c:/1").await;
    chat.edit(&desk, "t1", "a.txt", "ONE\ntwo\nthree\nfour\nfive\n").await;
    desk.write("a.txt", "ONE\ntwo\nthree\nfour\nFIVE\n");
    desk.write("users.txt", "y\n");
    chat.begin_turn("t2");
    chat.edit(&desk, "t2", "a.txt", "ONE\ntwo\nTHREE\nfour\nFIVE\n").await;
    chat.shell("t2", "b1", || {}).await;
    let sources: Vec<_> = desk.records("s:/1").iter().map(|record| record.source).collect();
    assert_eq!(sources, [EditSource::Tool, EditSource::External, EditSource::Tool]);
    let list = desk.changes("s:/1", ALL).await;
    assert_eq!(desk.listed("s:/1", ALL).await, ["changed a.txt +2 -2 tool+external"]);
    let after = desk.blob(&list.files[0].edit.after.as_ref().unwrap().content.uri).await;
    assert_eq!(after, "ONE\ntwo\nTHREE\nfour\nfive\n", "the user's line is not the agent's");
}

#[tokio::test]
async fn external_edits_of_the_same_lines_make_the_change_mixed() {
    let desk = Desk::new();
    desk.write("a.txt", "one\n");
    let chat = desk.chat("s:/1", "c:/1").await;
    chat.edit(&desk, "t1", "a.txt", "two\n").await;
    desk.write("a.txt", "users\n");
    chat.edit(&desk, "t1", "a.txt", "agents\n").await;
    assert_eq!(desk.listed("s:/1", ALL).await, ["changed a.txt +1 -1 tool+external mixed"]);
}

#[tokio::test]
async fn original_content_of_the_agent_separates_a_change_before_the_call() {
    let desk = Desk::new();
    desk.write("a.txt", "one\n");
    let chat = desk.chat("s:/1", "c:/1").await;
    chat.edit(&desk, "t1", "a.txt", "two\n").await;
    chat.announce("t1", "e1", EditReach::Files(vec![desk.path("a.txt")])).await;
    desk.write("a.txt", "users\ntwo\nagents\n");
    let original = Some((desk.path("a.txt"), Some(Bytes::from("users\ntwo\n"))));
    let outcome = CallOutcome { in_background: false, original };
    let edits = chat.recorder.after_call("e1".to_owned(), outcome).await;
    assert_eq!(described(&desk, &edits), ["changed a.txt +1 -0 tool"]);
    let sources: Vec<_> = desk.records("s:/1").iter().map(|record| record.source).collect();
    assert_eq!(sources, [EditSource::Tool, EditSource::External, EditSource::Tool]);
}

#[tokio::test]
async fn original_content_with_other_line_ends_is_not_a_change() {
    let desk = Desk::new();
    desk.write("a.txt", "\u{feff}one\r\ntwo\r\n");
    let chat = desk.chat("s:/1", "c:/1").await;
    chat.announce("t1", "e1", EditReach::Files(vec![desk.path("a.txt")])).await;
    desk.write("a.txt", "\u{feff}one\r\n2\r\n");
    let original = Some((desk.path("a.txt"), Some(Bytes::from("one\ntwo\n"))));
    let outcome = CallOutcome { in_background: false, original };
    let edits = chat.recorder.after_call("e1".to_owned(), outcome).await;
    assert_eq!(described(&desk, &edits), ["changed a.txt +1 -1 tool"]);
    assert_eq!(desk.records("s:/1").len(), 1);
}

#[tokio::test]
async fn call_that_was_not_announced_uses_the_agents_original_content() {
    let desk = Desk::new();
    let chat = desk.chat("s:/1", "c:/1").await;
    desk.write("ignored/.gitignore", "*\n");
    desk.write("a.txt", "new\n");
    desk.write("b.txt", "one\nnew\n");
    let outcome = |name: &str, content: Option<&'static str>| CallOutcome {
        in_background: false,
        original: Some((desk.path(name), content.map(Bytes::from))),
    };
    let created = chat.recorder.after_call("e1".to_owned(), outcome("a.txt", None)).await;
    assert_eq!(described(&desk, &created), ["created a.txt +1 -0 tool"]);
    let changed = chat.recorder.after_call("e2".to_owned(), outcome("b.txt", Some("one\nold\n"))).await;
    assert_eq!(described(&desk, &changed), ["changed b.txt +1 -1 tool"]);
    assert_eq!(chat.ended("unknown").await, []);
}

#[tokio::test]
async fn edit_through_a_link_is_recorded_for_its_target() {
    let desk = Desk::new();
    desk.write("real/a.txt", "one\n");
    std::os::unix::fs::symlink("real", desk.path("alias")).unwrap();
    std::os::unix::fs::symlink("a.txt", desk.path("real/link.txt")).unwrap();
    let chat = desk.chat("s:/1", "c:/1").await;
    chat.edit(&desk, "t1", "alias/a.txt", "two\n").await;
    let edits =
        chat.tool("t1", "e2", &[desk.path("real/link.txt")], || desk.write("real/a.txt", "three\n")).await;
    assert_eq!(described(&desk, &edits), ["changed real/a.txt +1 -1 tool"]);
    assert_eq!(desk.listed("s:/1", ALL).await, ["changed real/a.txt +1 -1 tool"]);
}

#[tokio::test]
async fn huge_file_is_recorded_by_digest_only() {
    let desk = Desk::limited(100);
    desk.write("a.bin", "small\n");
    let chat = desk.chat("s:/1", "c:/1").await;
    let edits = chat.tool("t1", "e1", &[desk.path("a.bin")], || desk.write("a.bin", "x".repeat(101))).await;
    assert_eq!(described(&desk, &edits), ["changed a.bin ? tool"]);
    let notice = desk.blob(&edits[0].edit.after.as_ref().unwrap().content.uri).await;
    assert!(String::from_utf8_lossy(&notice).contains("larger than"), "{notice:?}");
    let list = desk.changes("s:/1", ALL).await;
    assert!(list.files[0].not_undoable.as_ref().unwrap().contains("larger than"));
    assert!(matches!(desk.records("s:/1")[0].after, FileVersion::File { stored: false, size: 101, .. }));
}

#[tokio::test]
async fn content_before_a_command_is_unknown_if_the_directory_has_too_many_files() {
    let mut config = EditLogConfig::default();
    config.limits.max_files = 2;
    let desk = Desk::with(config);
    for name in ["a", "b", "c", "d", "e", "f"] {
        desk.write(name, "one\n");
    }
    let chat = desk.chat("s:/1", "c:/1").await;
    let edits = chat
        .shell("t1", "b1", || {
            for name in ["a", "b", "c", "d", "e", "f"] {
                desk.write(name, "two\nthree\n");
            }
        })
        .await;
    assert_eq!(edits.len(), 6);
    let unknown = desk
        .records("s:/1")
        .iter()
        .filter(|record| record.before == FileVersion::Unknown(UnknownContent::TooManyFiles))
        .count();
    assert_eq!(unknown, 4);
    let list = desk.changes("s:/1", ALL).await;
    assert_eq!(list.files.iter().filter(|file| file.not_undoable.is_some()).count(), 4);
    assert!(list.files.iter().all(|file| file.edit.before.is_some() && file.edit.after.is_some()));
}

#[tokio::test]
async fn changes_are_equal_after_a_restart() {
    let mut desk = Desk::new();
    desk.write("a.txt", "one\ntwo\nthree\nfour\n");
    let chat = desk.chat("s:/1", "c:/1").await;
    chat.edit(&desk, "t1", "a.txt", "ONE\ntwo\nthree\nfour\n").await;
    desk.write("a.txt", "ONE\ntwo\nthree\nFOUR\n");
    chat.edit(&desk, "t1", "a.txt", "1\ntwo\nthree\nFOUR\n").await;
    chat.shell("t1", "b1", || desk.write("b.txt", "x\n")).await;
    chat.end_turn("t1").await;
    let before = desk.changes("s:/1", ALL).await;
    let counts = desk.counts("s:/1").await;
    drop(chat);
    desk.reopen();
    assert_eq!(desk.changes("s:/1", ALL).await, before);
    assert_eq!(desk.counts("s:/1").await, counts);
    assert_eq!(before.files.len(), 2);
}

#[tokio::test]
async fn forked_chat_has_the_changes_of_its_turns() {
    let desk = Desk::new();
    let chat = desk.chat("s:/1", "c:/1").await;
    chat.edit(&desk, "t1", "a.txt", "x\n").await;
    chat.edit(&desk, "t2", "b.txt", "x\n").await;
    assert_eq!(desk.listed("s:/2", ALL).await, Vec::<String>::new());
    desk.log.fork(uri("c:/1"), (uri("s:/2"), uri("c:/2")), vec!["t1".to_owned()]).await.unwrap();
    assert_eq!(desk.listed("s:/2", ALL).await, ["created a.txt +1 -0 tool"]);
    desk.log.remove_session(uri("s:/1")).await.unwrap();
    assert_eq!(desk.listed("s:/1", ALL).await, Vec::<String>::new());
    assert_eq!(desk.listed("s:/2", ALL).await, ["created a.txt +1 -0 tool"]);
}

#[tokio::test]
async fn moved_chat_takes_its_changes_to_the_other_session() {
    let desk = Desk::new();
    let chat = desk.chat("s:/1", "c:/1").await;
    chat.edit(&desk, "t1", "a.txt", "x\n").await;
    drop(chat);
    assert_eq!(desk.counts("s:/1").await.files, 1);
    desk.log.move_chat(uri("c:/1"), uri("s:/2")).await.unwrap();
    assert_eq!(desk.counts("s:/1").await.files, 0);
    assert_eq!(desk.listed("s:/2", ALL).await, ["created a.txt +1 -0 tool"]);
    desk.log.remove_chat(uri("c:/1")).await.unwrap();
    assert_eq!(desk.listed("s:/2", ALL).await, Vec::<String>::new());
}

#[tokio::test]
async fn preview_shows_a_planned_edit_and_changes_nothing() {
    let desk = Desk::new();
    desk.write("a.txt", "one\ntwo\n");
    let chat = desk.chat("s:/1", "c:/1").await;
    let replacement =
        |old: &str, new: &str| PlannedReplacement { old: old.to_owned(), new: new.to_owned(), all: false };
    let planned = vec![
        PlannedEdit { path: desk.path("new.txt"), change: PlannedChange::Write(Bytes::from("x\n")) },
        PlannedEdit {
            path: desk.path("a.txt"),
            change: PlannedChange::Replace(vec![replacement("one", "1"), replacement("two", "2\n3")]),
        },
        PlannedEdit {
            path: desk.path("a.txt"),
            change: PlannedChange::Replace(vec![replacement("missing", "x")]),
        },
    ];
    let edits = chat.recorder.preview(TurnId::new("t1"), planned).await;
    assert_eq!(described(&desk, &edits), ["created new.txt +1 -0 tool", "changed a.txt +3 -2 tool"]);
    let after = desk.blob(&edits[1].edit.after.as_ref().unwrap().content.uri).await;
    assert_eq!(after, "1\n2\n3\n");
    assert_eq!(desk.read("a.txt"), "one\ntwo\n");
    assert_eq!(desk.records("s:/1"), []);
}

#[tokio::test]
async fn changed_sessions_are_reported_once() {
    let desk = Desk::new();
    let one = desk.chat("s:/1", "c:/1").await;
    one.edit(&desk, "t1", "a.txt", "x\n").await;
    one.edit(&desk, "t1", "b.txt", "x\n").await;
    assert_eq!(desk.log.changed_sessions().await, [uri("s:/1")]);
    let waiting = desk.log.changed_sessions();
    one.edit(&desk, "t1", "c.txt", "x\n").await;
    assert_eq!(waiting.await, [uri("s:/1")]);
}

#[tokio::test]
async fn diff_of_two_contents_is_a_document() {
    let desk = Desk::new();
    let chat = desk.chat("s:/1", "c:/1").await;
    chat.edit(&desk, "t1", "a.txt", "x\n").await;
    let list = desk.changes("s:/1", ALL).await;
    let content = &list.files[0].edit.after.as_ref().unwrap().content.uri;
    let digest = innkeeper_core::edits::BlobUri::parse(content).unwrap().unwrap().digest;
    let json = desk.log.diff(None, Some(digest)).await.unwrap().unwrap();
    let document: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(document["added"], 1);
    let unknown = innkeeper_core::edits::BlobDigest::of(b"unknown");
    assert_eq!(desk.log.diff(None, Some(unknown)).await.unwrap(), None);
}

/// Waits for a garbage collection that began after this call.
async fn collect_garbage(desk: &Desk) {
    let marker = StoredBlob::new("nothing refers to this");
    desk.storage.put_blobs(vec![marker.clone()]).unwrap();
    while !desk.storage.stored_blobs(&[marker.digest]).unwrap().is_empty() {
        // Each removal requests one.
        desk.log.remove_session(uri("s:/removed")).await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn content_before_a_running_call_survives_garbage_collections() {
    let desk = Desk::new();
    desk.log.start();
    desk.write("a.txt", "before\n");
    let chat = desk.chat("s:/1", "c:/1").await;
    let other = desk.chat("s:/2", "c:/2").await;
    chat.announce("t1", "edit", EditReach::Files(vec![desk.path("a.txt")])).await;
    desk.write("a.txt", "after\n");
    // The tracker forgets the content before, and there is no record yet.
    other.shell("t1", "list", || {}).await;
    collect_garbage(&desk).await;
    chat.ended("edit").await;
    assert_eq!(desk.listed("s:/1", ChangeSelection::All).await, ["changed a.txt +1 -1 tool"]);
    desk.operate(OperationKind::Undo, ChangeSelection::All, desk.file("a.txt"), false).await;
    assert_eq!(desk.read("a.txt"), "before\n");
}
