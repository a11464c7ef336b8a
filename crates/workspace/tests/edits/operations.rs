//! Undo, keep, redo and restore.

use innkeeper_core::edits::{
    ChangeSelection, EditError, EditLog as _, OperationKind, OperationReport, OperationTarget,
};

use crate::support::{Desk, turns, uri};

const ALL: ChangeSelection = ChangeSelection::All;
const EVERYTHING: OperationTarget = OperationTarget::Changeset;

async fn undo(desk: &Desk, selection: ChangeSelection, target: OperationTarget) -> OperationReport {
    desk.operate(OperationKind::Undo, selection, target, false).await
}

async fn redo(desk: &Desk) -> OperationReport {
    desk.operate(OperationKind::Redo, ALL, EVERYTHING, false).await
}

#[tokio::test]
async fn undo_of_one_file_leaves_the_other() {
    let desk = Desk::new();
    desk.write("a.txt", "one\n");
    desk.write("b.txt", "one\n");
    let chat = desk.chat("s:/1", "c:/1").await;
    chat.edit(&desk, "t1", "a.txt", "two\n").await;
    chat.edit(&desk, "t1", "b.txt", "two\n").await;
    let report = undo(&desk, turns(&["t1"]), desk.file("a.txt")).await;
    assert_eq!(report.changed, [desk.uri("a.txt")]);
    assert_eq!((desk.read("a.txt"), desk.read("b.txt")), ("one\n".to_owned(), "two\n".to_owned()));
    assert_eq!(desk.listed("s:/1", ALL).await, ["changed b.txt +1 -1 tool"]);
    assert_eq!(desk.changes("s:/1", ALL).await.redo.as_deref(), Some("Undo a.txt"));
}

#[tokio::test]
async fn undo_of_a_turn_restores_shell_edits_of_all_kinds_and_redo_repeats_them() {
    let desk = Desk::in_git(&[("changed", "1\n"), ("deleted", "2\n"), ("old", "3\n"), ("script", "4\n")]);
    let chat = desk.chat("s:/1", "c:/1").await;
    chat.shell("t1", "b1", || {
        desk.write("new/dir/created", "x\n");
        desk.write("changed", b"\0binary");
        desk.remove("deleted");
        std::fs::rename(desk.path("old"), desk.path("renamed")).unwrap();
        desk.set_mode("script", 0o755);
        std::os::unix::fs::symlink("script", desk.path("link")).unwrap();
    })
    .await;
    let before = desk.listed("s:/1", ALL).await;
    let mode = desk.mode("changed");
    let report = undo(&desk, turns(&["t1"]), EVERYTHING).await;
    assert_eq!(report.refused, []);
    assert_eq!(desk.git(&["status", "--porcelain"]), "");
    assert!(!desk.exists("new"));
    assert_eq!(desk.mode("changed"), mode);
    assert_eq!(desk.listed("s:/1", ALL).await, Vec::<String>::new());
    let report = redo(&desk).await;
    assert_eq!(report.refused, []);
    assert_eq!(desk.mode("script"), 0o755);
    assert_eq!(desk.read("new/dir/created"), "x\n");
    assert_eq!(desk.read("renamed"), "3\n");
    assert!(!desk.exists("old") && !desk.exists("deleted"));
    assert_eq!(std::fs::read_link(desk.path("link")).unwrap().to_str(), Some("script"));
    let plain = |lines: Vec<String>| -> Vec<String> {
        lines.into_iter().map(|line| line.replace("+undo+redo", "")).collect()
    };
    assert_eq!(plain(desk.listed("s:/1", ALL).await), before);
    assert_eq!(desk.changes("s:/1", ALL).await.redo, None);
}

#[tokio::test]
async fn undo_keeps_later_human_edits_in_other_lines() {
    let desk = Desk::new();
    desk.write("a.txt", "1\n2\n3\n4\n5\n");
    let chat = desk.chat("s:/1", "c:/1").await;
    chat.edit(&desk, "t1", "a.txt", "one\n2\n3\n4\n5\n").await;
    desk.write("a.txt", "one\n2\n3\n4\nfive\n");
    let report = undo(&desk, turns(&["t1"]), EVERYTHING).await;
    assert_eq!(report.refused, []);
    assert_eq!(desk.read("a.txt"), "1\n2\n3\n4\nfive\n");
    assert_eq!(desk.listed("s:/1", ALL).await, Vec::<String>::new());
    redo(&desk).await;
    assert_eq!(desk.read("a.txt"), "one\n2\n3\n4\nfive\n");
}

#[tokio::test]
async fn undo_of_overlapping_lines_is_refused_with_a_preview_unless_forced() {
    let desk = Desk::new();
    desk.write("a.txt", "1\n2\n3\n");
    desk.write("b.txt", "1\n");
    let chat = desk.chat("s:/1", "c:/1").await;
    chat.edit(&desk, "t1", "a.txt", "1\ntwo\n3\n").await;
    chat.edit(&desk, "t1", "b.txt", "2\n").await;
    desk.write("a.txt", "1\ntwo, by the user\n3\n");
    let report = undo(&desk, turns(&["t1"]), EVERYTHING).await;
    assert_eq!(report.changed, [desk.uri("b.txt")]);
    assert_eq!(report.refused.len(), 1);
    let conflict = &report.refused[0];
    assert_eq!(conflict.uri, desk.uri("a.txt"));
    assert!(conflict.can_force);
    let preview = desk.blob(&conflict.preview.as_ref().unwrap().to_string()).await;
    let preview = String::from_utf8_lossy(&preview).into_owned();
    assert!(preview.contains("<<<<<<<") && preview.contains("by the user"), "{preview}");
    assert_eq!(desk.read("a.txt"), "1\ntwo, by the user\n3\n");
    let report = desk.operate(OperationKind::Undo, turns(&["t1"]), desk.file("a.txt"), true).await;
    assert_eq!(report.refused, []);
    assert_eq!(desk.read("a.txt"), "1\n2\n3\n");
    redo(&desk).await;
    assert_eq!(desk.read("a.txt"), "1\ntwo, by the user\n3\n");
}

#[tokio::test]
async fn kept_file_is_left_out_of_undo_all_until_it_changes_again() {
    let desk = Desk::new();
    let chat = desk.chat("s:/1", "c:/1").await;
    chat.edit(&desk, "t1", "a.txt", "x\n").await;
    chat.edit(&desk, "t1", "b.txt", "x\n").await;
    let report = desk.operate(OperationKind::Keep, turns(&["t1"]), desk.file("a.txt"), false).await;
    assert_eq!(report.changed, [desk.uri("a.txt")]);
    assert_eq!(
        desk.listed("s:/1", ALL).await,
        ["created a.txt +1 -0 tool reviewed", "created b.txt +1 -0 tool"]
    );
    undo(&desk, ALL, EVERYTHING).await;
    assert!(desk.exists("a.txt") && !desk.exists("b.txt"));
    chat.edit(&desk, "t2", "a.txt", "xx\n").await;
    assert_eq!(desk.listed("s:/1", ALL).await, ["created a.txt +1 -0 tool"]);
    assert_eq!(desk.listed("s:/1", turns(&["t1"])).await, ["created a.txt +1 -0 tool reviewed"]);
    undo(&desk, ALL, EVERYTHING).await;
    assert!(!desk.exists("a.txt"));
}

#[tokio::test]
async fn review_can_be_taken_back_for_one_turn() {
    let desk = Desk::new();
    let chat = desk.chat("s:/1", "c:/1").await;
    chat.edit(&desk, "t1", "a.txt", "x\n").await;
    chat.edit(&desk, "t2", "a.txt", "xy\n").await;
    let file = vec![desk.uri("a.txt")];
    desk.log.review(desk.scope("s:/1", ALL), file.clone(), true).await.unwrap();
    assert!(desk.changes("s:/1", turns(&["t2"])).await.files[0].reviewed);
    desk.log.review(desk.scope("s:/1", turns(&["t2"])), file.clone(), false).await.unwrap();
    assert!(!desk.changes("s:/1", turns(&["t2"])).await.files[0].reviewed);
    assert!(!desk.changes("s:/1", ALL).await.files[0].reviewed);
    assert!(desk.changes("s:/1", turns(&["t1"])).await.files[0].reviewed);
    let unknown = desk.log.review(desk.scope("s:/1", ALL), vec![desk.uri("none")], true).await;
    assert!(matches!(unknown, Err(EditError::Invalid(_))), "{unknown:?}");
}

#[tokio::test]
async fn restore_takes_a_turn_and_all_later_ones_back() {
    let desk = Desk::new();
    desk.write("a.txt", "0\n");
    let chat = desk.chat("s:/1", "c:/1").await;
    for (turn, content) in [("t1", "1\n"), ("t2", "2\n"), ("t3", "3\n")] {
        chat.begin_turn(turn);
        chat.edit(&desk, turn, "a.txt", content).await;
        chat.end_turn(turn).await;
    }
    chat.edit(&desk, "t3", "b.txt", "x\n").await;
    desk.operate(OperationKind::Keep, turns(&["t3"]), desk.file("b.txt"), false).await;
    let report = desk.operate(OperationKind::Restore, turns(&["t2", "t3"]), EVERYTHING, false).await;
    assert_eq!(report.refused, []);
    assert_eq!(desk.read("a.txt"), "1\n");
    assert!(!desk.exists("b.txt"));
    assert_eq!(desk.changes("s:/1", ALL).await.redo.as_deref(), Some("Restore 2 files"));
    assert_eq!(desk.listed("s:/1", turns(&["t2"])).await, Vec::<String>::new());
    assert_eq!(desk.listed("s:/1", turns(&["t3"])).await, Vec::<String>::new());
    assert_eq!(desk.listed("s:/1", turns(&["t1"])).await, ["changed a.txt +1 -1 tool"]);
    redo(&desk).await;
    assert_eq!(desk.read("a.txt"), "3\n");
    assert_eq!(desk.read("b.txt"), "x\n");
}

#[tokio::test]
async fn undo_of_lines_takes_one_change_of_a_file_back() {
    let desk = Desk::new();
    desk.write("a.txt", "1\n2\n3\n4\n5\n");
    let chat = desk.chat("s:/1", "c:/1").await;
    chat.edit(&desk, "t1", "a.txt", "one\n2\n3\n4\nfive\n").await;
    let lines = OperationTarget::Lines { uri: desk.uri("a.txt"), start: 4, end: 5 };
    let report = undo(&desk, turns(&["t1"]), lines).await;
    assert_eq!(report.changed, [desk.uri("a.txt")]);
    assert_eq!(desk.read("a.txt"), "one\n2\n3\n4\n5\n");
    assert_eq!(desk.listed("s:/1", turns(&["t1"])).await, ["changed a.txt +1 -1 tool+undo"]);
    redo(&desk).await;
    assert_eq!(desk.read("a.txt"), "one\n2\n3\n4\nfive\n");
}

#[tokio::test]
async fn redo_is_not_offered_after_the_agent_edited_the_file_again() {
    let desk = Desk::new();
    desk.write("a.txt", "1\n");
    let chat = desk.chat("s:/1", "c:/1").await;
    chat.edit(&desk, "t1", "a.txt", "2\n").await;
    undo(&desk, ALL, EVERYTHING).await;
    assert!(desk.changes("s:/1", ALL).await.redo.is_some());
    chat.edit(&desk, "t2", "a.txt", "3\n").await;
    assert_eq!(desk.changes("s:/1", ALL).await.redo, None);
    let report = redo(&desk).await;
    assert_eq!(report.changed, Vec::<String>::new());
    assert!(report.refused[0].reason.contains("edited a.txt again"), "{report:?}");
    assert_eq!(desk.read("a.txt"), "3\n");
}

#[tokio::test]
async fn undo_and_redo_work_after_a_restart() {
    let mut desk = Desk::new();
    desk.write("a.txt", "1\n");
    let chat = desk.chat("s:/1", "c:/1").await;
    chat.edit(&desk, "t1", "a.txt", "2\n").await;
    chat.shell("t1", "b1", || desk.write("b.txt", "x\n")).await;
    drop(chat);
    desk.reopen();
    undo(&desk, turns(&["t1"]), EVERYTHING).await;
    assert_eq!(desk.read("a.txt"), "1\n");
    assert!(!desk.exists("b.txt"));
    desk.reopen();
    redo(&desk).await;
    assert_eq!(desk.read("a.txt"), "2\n");
    assert_eq!(desk.read("b.txt"), "x\n");
}

#[tokio::test]
async fn undo_of_an_earlier_turn_keeps_later_turns() {
    let desk = Desk::new();
    desk.write("a.txt", "1\n2\n3\n4\n5\n");
    let chat = desk.chat("s:/1", "c:/1").await;
    chat.edit(&desk, "t1", "a.txt", "one\n2\n3\n4\n5\n").await;
    chat.edit(&desk, "t2", "a.txt", "one\n2\n3\n4\nfive\n").await;
    undo(&desk, turns(&["t1"]), EVERYTHING).await;
    assert_eq!(desk.read("a.txt"), "1\n2\n3\n4\nfive\n");
    assert_eq!(desk.listed("s:/1", turns(&["t1"])).await, Vec::<String>::new());
    assert_eq!(desk.listed("s:/1", turns(&["t2"])).await, ["changed a.txt +1 -1 tool"]);
    undo(&desk, ALL, EVERYTHING).await;
    assert_eq!(desk.read("a.txt"), "1\n2\n3\n4\n5\n");
}

#[tokio::test]
async fn undo_of_a_renamed_file_moves_it_back_with_later_human_edits() {
    let desk = Desk::new();
    desk.write("old.txt", "1\n2\n3\n");
    let chat = desk.chat("s:/1", "c:/1").await;
    chat.shell("t1", "b1", || std::fs::rename(desk.path("old.txt"), desk.path("new.txt")).unwrap()).await;
    desk.write("new.txt", "1\n2\nthree\n");
    let report = undo(&desk, turns(&["t1"]), desk.file("new.txt")).await;
    assert_eq!(report.refused, []);
    assert_eq!(desk.read("old.txt"), "1\n2\nthree\n");
    assert!(!desk.exists("new.txt"));
    assert_eq!(desk.listed("s:/1", ALL).await, Vec::<String>::new());
}

#[tokio::test]
async fn undo_is_not_taken_for_an_edit_of_a_running_command() {
    let desk = Desk::new();
    desk.write("a.txt", "1\n2\n3\n4\n");
    let chat = desk.chat("s:/1", "c:/1").await;
    chat.edit(&desk, "t1", "a.txt", "one\n2\n3\n4\n").await;
    let other = desk.chat("s:/2", "c:/2").await;
    other.edit(&desk, "t1", "a.txt", "one\n2\n3\nfour\n").await;
    other.announce("t2", "b1", innkeeper_core::edits::EditReach::AnyFile).await;
    undo(&desk, turns(&["t1"]), EVERYTHING).await;
    other.ended("b1").await;
    assert_eq!(desk.listed("s:/2", turns(&["t2"])).await, Vec::<String>::new());
    let last = desk.records("s:/2").pop().unwrap();
    assert_eq!(last.source.as_str(), "external");
    assert_eq!(desk.read("a.txt"), "1\n2\n3\nfour\n");
}

#[tokio::test]
async fn unknown_content_is_refused_with_the_reason() {
    let desk = Desk::limited(10);
    desk.write("a.bin", "x".repeat(20));
    let chat = desk.chat("s:/1", "c:/1").await;
    chat.edit(&desk, "t1", "a.bin", "small\n").await;
    for force in [false, true] {
        let report = desk.operate(OperationKind::Undo, ALL, EVERYTHING, force).await;
        assert_eq!(report.changed, Vec::<String>::new());
        assert!(report.refused[0].reason.contains("larger than"), "{report:?}");
        assert!(!report.refused[0].can_force);
    }
    assert_eq!(desk.read("a.bin"), "small\n");
}

#[tokio::test]
async fn invalid_requests_are_rejected() {
    let desk = Desk::new();
    let chat = desk.chat("s:/1", "c:/1").await;
    chat.edit(&desk, "t1", "a.txt", "x\n").await;
    let operate = |kind, target| {
        let scope = desk.scope("s:/1", ALL);
        desk.log.operate(innkeeper_core::edits::ChangeOperation { scope, kind, target, force: false })
    };
    for (kind, target) in [
        (OperationKind::Undo, desk.file("none.txt")),
        (OperationKind::Undo, OperationTarget::File("http://x".to_owned())),
        (OperationKind::Redo, OperationTarget::Changeset),
        (OperationKind::Redo, desk.file("a.txt")),
        (OperationKind::Restore, desk.file("a.txt")),
        (OperationKind::Keep, OperationTarget::Lines { uri: desk.uri("a.txt"), start: 0, end: 1 }),
    ] {
        let result = operate(kind, target.clone()).await;
        assert!(matches!(result, Err(EditError::Invalid(_))), "{kind:?} {target:?}: {result:?}");
    }
    assert_eq!(desk.read("a.txt"), "x\n");
}

#[tokio::test]
async fn removed_session_leaves_no_contents() {
    let desk = Desk::new();
    desk.log.start();
    let chat = desk.chat("s:/1", "c:/1").await;
    chat.edit(&desk, "t1", "a.txt", "only here\n").await;
    drop(chat);
    desk.log.remove_session(uri("s:/1")).await.unwrap();
    let digest = innkeeper_core::edits::BlobDigest::of(b"only here\n");
    // The garbage collection runs on another thread.
    for _ in 0..500 {
        if desk.log.read_blob(digest).await.unwrap().is_none() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("the content is still stored");
}

#[tokio::test]
async fn undo_follows_no_link_and_changes_the_other_files() {
    let desk = Desk::new();
    desk.write("dir/a.txt", "1\n");
    desk.write("b.txt", "1\n");
    let chat = desk.chat("s:/1", "c:/1").await;
    chat.edit(&desk, "t1", "dir/a.txt", "2\n").await;
    chat.edit(&desk, "t1", "b.txt", "2\n").await;
    let outside = tempfile::tempdir().unwrap();
    std::fs::rename(desk.path("dir"), outside.path().join("dir")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("dir"), desk.path("dir")).unwrap();
    let report = desk.operate(OperationKind::Undo, turns(&["t1"]), EVERYTHING, true).await;
    assert_eq!(report.changed, [desk.uri("b.txt")]);
    assert_eq!(report.refused.len(), 1, "{report:?}");
    assert_eq!(std::fs::read_to_string(outside.path().join("dir/a.txt")).unwrap(), "2\n");
    assert_eq!(desk.read("b.txt"), "1\n");
}

#[tokio::test]
async fn garbage_collection_keeps_the_recorded_contents_of_directories() {
    let desk = Desk::new();
    desk.write("a.txt", "recorded before the command\n");
    let chat = desk.chat("s:/1", "c:/1").await;
    let unused = innkeeper_core::edits::StoredBlob::new("unused\n");
    let digest = unused.digest;
    innkeeper_core::edits::EditStorage::put_blobs(desk.storage.as_ref(), vec![unused]).unwrap();
    desk.log.start();
    for _ in 0..500 {
        if desk.log.read_blob(digest).await.unwrap().is_none() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(desk.log.read_blob(digest).await.unwrap(), None);
    chat.shell("t1", "b1", || desk.remove("a.txt")).await;
    undo(&desk, ALL, EVERYTHING).await;
    assert_eq!(desk.read("a.txt"), "recorded before the command\n");
}
