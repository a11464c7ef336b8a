//! Changes that are not committed, whatever made them.

use innkeeper_core::edits::{ChangeSelection, EditLog as _, OperationKind, OperationTarget};

use crate::support::Desk;

const UNCOMMITTED: ChangeSelection = ChangeSelection::Uncommitted;

fn desk() -> Desk {
    let desk = Desk::in_git(&[("changed", "1\n2\n"), ("deleted", "x\n"), ("same", "x\n"), ("script", "x\n")]);
    desk.write(".git/info/exclude", "ignored\n");
    desk
}

#[tokio::test]
async fn uncommitted_changes_of_agent_and_user_are_listed() {
    let desk = desk();
    let chat = desk.chat("s:/1", "c:/1").await;
    chat.edit(&desk, "t1", "changed", "1\ntwo\n").await;
    chat.shell("t1", "b1", || desk.write("dir/untracked", "new\n")).await;
    desk.remove("deleted");
    desk.write("same", "x\n");
    desk.write("ignored", "x\n");
    desk.set_mode("script", 0o755);
    desk.write("staged", "staged\n");
    desk.git(&["add", "staged"]);
    assert_eq!(
        desk.listed("s:/1", UNCOMMITTED).await,
        [
            "changed changed +1 -1 tool",
            "deleted deleted +0 -1 external",
            "created dir/untracked +1 -0 shell",
            "changed script +0 -0 external",
            "created staged +1 -0 external",
        ]
    );
    let list = desk.changes("s:/1", UNCOMMITTED).await;
    let before = &list.files[1].edit.before.as_ref().unwrap().content.uri;
    assert_eq!(desk.blob(before).await, "x\n");
}

#[tokio::test]
async fn undo_of_an_uncommitted_file_restores_the_commit() {
    let desk = desk();
    let chat = desk.chat("s:/1", "c:/1").await;
    chat.edit(&desk, "t1", "changed", "1\ntwo\n").await;
    desk.write("new/untracked", "new\n");
    desk.remove("deleted");
    desk.set_mode("script", 0o755);
    for name in ["new/untracked", "deleted", "script", "changed"] {
        let report = desk.operate(OperationKind::Undo, UNCOMMITTED, desk.file(name), false).await;
        assert_eq!(report.changed, [desk.uri(name)], "{report:?}");
    }
    assert_eq!(desk.git(&["status", "--porcelain"]), "");
    assert_eq!(desk.listed("s:/1", UNCOMMITTED).await, Vec::<String>::new());
    assert_eq!(desk.listed("s:/1", ChangeSelection::All).await, Vec::<String>::new());
    desk.operate(OperationKind::Redo, UNCOMMITTED, OperationTarget::Changeset, false).await;
    assert_eq!(desk.read("changed"), "1\ntwo\n");
}

#[tokio::test]
async fn undo_of_all_uncommitted_changes_leaves_the_users_files() {
    let desk = desk();
    let chat = desk.chat("s:/1", "c:/1").await;
    chat.shell("t1", "b1", || desk.write("agents", "x\n")).await;
    desk.write("users", "x\n");
    let everything = OperationTarget::Changeset;
    let report = desk.operate(OperationKind::Undo, UNCOMMITTED, everything, false).await;
    assert_eq!(report.changed, [desk.uri("agents")]);
    assert_eq!(report.refused.len(), 1);
    assert!(desk.exists("users") && !desk.exists("agents"));
}

#[tokio::test]
async fn review_of_an_uncommitted_file_ends_when_it_changes() {
    let desk = desk();
    desk.write("changed", "other\n");
    desk.log.review(desk.scope("s:/1", UNCOMMITTED), vec![desk.uri("changed")], true).await.unwrap();
    assert!(desk.changes("s:/1", UNCOMMITTED).await.files[0].reviewed);
    desk.write("changed", "another\n");
    assert!(!desk.changes("s:/1", UNCOMMITTED).await.files[0].reviewed);
    desk.write("changed", "other\n");
    desk.log.review(desk.scope("s:/1", UNCOMMITTED), vec![desk.uri("changed")], false).await.unwrap();
    assert!(!desk.changes("s:/1", UNCOMMITTED).await.files[0].reviewed);
}

#[tokio::test]
async fn directory_without_commits_lists_all_files() {
    let desk = Desk::new();
    assert_eq!(desk.listed("s:/1", UNCOMMITTED).await, Vec::<String>::new());
    desk.git(&["init", "-q"]);
    desk.write("a", "x\n");
    desk.write("b", "x\n");
    desk.git(&["add", "a"]);
    assert_eq!(
        desk.listed("s:/1", UNCOMMITTED).await,
        ["created a +1 -0 external", "created b +1 -0 external"]
    );
}

#[tokio::test]
async fn converted_line_ends_are_not_a_change() {
    let desk = Desk::in_git(&[("a", "1\r\n2\r\n")]);
    desk.git(&["config", "core.autocrlf", "true"]);
    desk.write("b", "1\r\n2\r\n");
    desk.git(&["add", "b"]);
    desk.git(&["commit", "-q", "-m", "second"]);
    desk.write("b", "1\r\n2\r\n3\r\n");
    assert_eq!(desk.listed("s:/1", UNCOMMITTED).await, ["changed b +1 -0 external"]);
    desk.operate(OperationKind::Undo, UNCOMMITTED, desk.file("b"), false).await;
    assert_eq!(desk.read("b"), "1\r\n2\r\n");
}
