//! What is stored is read back.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use innkeeper_core::edits::{EditStorageError, FileReview, UnknownContent};

use super::*;

/// Records with every kind of version.
fn odd_records() -> Vec<EditRecord> {
    let huge =
        FileVersion::File { blob: BlobDigest::of(b"huge"), size: u64::MAX, mode: 0o755, stored: false };
    let link = FileVersion::Link { target: odd_path() };
    let unknown = FileVersion::Unknown(UnknownContent::NotReady);
    let plain = |before, after| record(1, "turn-1", before, after);
    vec![
        EditRecord { path: odd_path(), ..plain(FileVersion::Absent, version(&blob("a"))) },
        EditRecord { tool_call: None, source: EditSource::Shell, ..plain(version(&blob("a")), huge) },
        EditRecord { new_parents: 3, overlaps: true, ..plain(link, unknown) },
        EditRecord {
            turn: String::new(),
            operation: Some(Uuid::new_v4()),
            source: EditSource::Redo,
            recorded_at: -1,
            ..plain(version(&blob("")), FileVersion::Absent)
        },
    ]
}

#[test]
fn records_are_read_as_they_were_appended() {
    let mut fixture = EditFixture::new();
    let mut records = odd_records();
    let numbers = fixture.database.append(records.clone(), vec![blob("a"), blob("")]).expect("appended");
    assert_eq!(numbers, [1, 2, 3, 4]);
    for (record, number) in records.iter_mut().zip(numbers) {
        record.number = number;
    }
    assert_eq!(fixture.database.records(&session(1)).expect("records"), records);
    assert_eq!(fixture.database.records(&session(2)).expect("records"), []);
    let of_paths = fixture.database.records_of_paths(&["/w/a.rs".into(), odd_path()], 0);
    assert_eq!(of_paths.expect("records"), records);
    let later = fixture.database.records_of_paths(&["/w/a.rs".into(), odd_path()], 2);
    assert_eq!(later.expect("records"), records[2..]);
    fixture.reopen();
    assert_eq!(fixture.database.records(&session(1)).expect("records"), records);
    assert_eq!(fixture.database.append(odd_records(), Vec::new()).expect("appended"), [5, 6, 7, 8]);
}

#[test]
fn contents_are_read_as_they_were_put() {
    let mut fixture = EditFixture::new();
    let random: Vec<u8> = (0_u32..50_000)
        .flat_map(|number| BlobDigest::of(&number.to_le_bytes()).as_bytes()[..2].to_vec())
        .collect();
    let contents = vec![blob(""), blob("text ".repeat(100_000)), blob(random)];
    fixture.database.put_blobs(contents.clone()).expect("stored");
    fixture.reopen();
    for content in &contents {
        assert_eq!(fixture.database.read_blob(content.digest).expect("read"), Some(content.content.clone()));
    }
    let other = blob("other");
    assert_eq!(fixture.database.read_blob(other.digest).expect("read"), None);
    let stored = fixture.database.stored_blobs(&[contents[0].digest, other.digest]).expect("read");
    assert_eq!(stored, HashSet::from([contents[0].digest]));
    let disk: u64 = fs::metadata(fixture.path()).expect("the file exists").len();
    assert!(disk < 250_000, "the text is compressed: {disk}");
}

#[test]
fn content_is_stored_once() {
    let fixture = EditFixture::new();
    let content = blob("x".repeat(10_000));
    fixture.database.put_blobs(vec![content.clone(), content.clone()]).expect("stored");
    fixture.clock.advance(Duration::from_secs(300));
    fixture.database.put_blobs(vec![content.clone()]).expect("stored");
    let version = version(&content);
    let record = record(1, "turn-1", FileVersion::Absent, version);
    fixture.database.append(vec![record], vec![content]).expect("appended");
    let count: i64 = sql(&fixture.path())
        .query_row("SELECT count(*) FROM content", [], |row| row.get(0))
        .expect("the table is read");
    assert_eq!(count, 1);
}

#[test]
fn unused_database_has_no_file() {
    let fixture = EditFixture::new();
    assert_eq!(fixture.database.records(&session(1)).expect("records"), []);
    assert_eq!(fixture.database.unfinished_operations().expect("operations"), []);
    assert_eq!(fixture.database.read_blob(blob("a").digest).expect("read"), None);
    fixture.database.remove_session(&session(1)).expect("removed");
    fixture.database.move_records(&chat(1), &session(2)).expect("moved");
    assert_eq!(fixture.database.collect_garbage(&nothing()).expect("collected").bytes, 0);
    assert!(!fixture.path().exists());
    fixture.database.put_blobs(vec![blob("a")]).expect("stored");
    let mode = fs::metadata(fixture.path()).expect("the file exists").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let log = fs::metadata(fixture.directory.path().join("blobs.db-wal")).expect("the log exists");
    assert_eq!(log.permissions().mode() & 0o777, 0o600);
}

#[test]
fn closed_database_rejects_calls() {
    let fixture = EditFixture::new();
    fixture.database.put_blobs(vec![blob("a")]).expect("stored");
    fixture.database.close();
    assert_eq!(fixture.database.put_blobs(vec![blob("b")]), Err(EditStorageError::Closed));
    assert_eq!(fixture.database.records(&session(1)), Err(EditStorageError::Closed));
    assert_eq!(fixture.database.unfinished_operations(), Err(EditStorageError::Closed));
}

#[test]
fn operation_is_kept_until_next_one_finishes() {
    let mut fixture = EditFixture::new();
    let (a, b, c) = (blob("a"), blob("b"), blob("c"));
    let first = operation(1, &b, &a);
    fixture.database.begin_operation(first.clone(), vec![a.clone(), b.clone()]).expect("begun");
    assert!(fixture.database.begin_operation(first.clone(), Vec::new()).is_err(), "it exists already");
    fixture.reopen();
    let unfinished = fixture.database.unfinished_operations().expect("operations");
    assert_eq!(unfinished, std::slice::from_ref(&first));
    assert_eq!(fixture.database.last_operation(&session(1)).expect("read"), None);
    let records = first.steps[0].records.clone();
    fixture.database.finish_operation(first.id, records.clone(), None).expect("finished");
    assert_eq!(fixture.database.unfinished_operations().expect("operations"), []);
    assert_eq!(fixture.database.last_operation(&session(1)).expect("read"), Some(first.clone()));
    assert_eq!(fixture.database.records(&session(1)).expect("records").len(), 1);

    let second = operation(1, &c, &a);
    fixture.database.begin_operation(second.clone(), vec![c.clone()]).expect("begun");
    assert_eq!(fixture.database.last_operation(&session(1)).expect("read"), Some(first));
    fixture.database.finish_operation(second.id, Vec::new(), None).expect("finished");
    assert_eq!(fixture.database.last_operation(&session(1)).expect("read"), Some(second.clone()));

    let redo = OperationRecord { can_redo: false, ..operation(1, &a, &c) };
    fixture.database.begin_operation(redo.clone(), Vec::new()).expect("begun");
    fixture.database.finish_operation(redo.id, records, Some(second.id)).expect("finished");
    assert_eq!(fixture.database.last_operation(&session(1)).expect("read"), None);
    assert_eq!(fixture.database.unfinished_operations().expect("operations"), []);
}

#[test]
fn cancelled_operation_is_deleted() {
    let fixture = EditFixture::new();
    let cancelled = operation(1, &blob("a"), &blob("b"));
    fixture.database.begin_operation(cancelled.clone(), vec![blob("a"), blob("b")]).expect("begun");
    fixture.database.cancel_operation(cancelled.id).expect("cancelled");
    assert_eq!(fixture.database.unfinished_operations().expect("operations"), []);
    let error = fixture.database.finish_operation(cancelled.id, Vec::new(), None).expect_err("it is unknown");
    assert!(error.to_string().contains("unknown operation"), "{error}");
}

#[test]
fn reviews_are_set_replaced_and_cleared() {
    let fixture = EditFixture::new();
    let review = |chat, turn: Option<&str>, through| FileReview {
        chat,
        turn: turn.map(str::to_owned),
        path: odd_path(),
        through,
    };
    let all =
        vec![review(None, None, 1), review(Some(chat(1)), None, 2), review(Some(chat(1)), Some("t"), 3)];
    fixture.database.set_reviews(&session(1), all.clone(), true).expect("set");
    assert_eq!(fixture.database.reviews(&session(1)).expect("reviews"), all);
    fixture.database.set_reviews(&session(1), vec![review(None, None, 9)], true).expect("set");
    fixture.database.set_reviews(&session(1), vec![review(Some(chat(1)), None, 0)], false).expect("set");
    let expected = [all[2].clone(), review(None, None, 9)];
    assert_eq!(fixture.database.reviews(&session(1)).expect("reviews"), expected);
    assert_eq!(fixture.database.reviews(&session(2)).expect("reviews"), []);
}

#[test]
fn forked_and_moved_chats_keep_their_records() {
    let fixture = EditFixture::new();
    let change = |turn: &str| record(1, turn, FileVersion::Absent, version(&blob("a")));
    let records = vec![change("turn-1"), change("turn-2"), change("turn-3")];
    fixture.database.append(records, vec![blob("a")]).expect("appended");
    let review = FileReview { chat: Some(chat(1)), turn: None, path: odd_path(), through: 3 };
    fixture.database.set_reviews(&session(1), vec![review.clone()], true).expect("set");
    let undo = operation(1, &blob("a"), &blob("a"));
    fixture.database.begin_operation(undo.clone(), vec![blob("a")]).expect("begun");
    fixture.database.finish_operation(undo.id, Vec::new(), None).expect("finished");

    let turns = ["turn-1".to_owned(), "turn-3".to_owned()];
    fixture.database.copy_records(&chat(1), (&session(2), &chat(2)), &turns).expect("copied");
    let copied = fixture.database.records(&session(2)).expect("records");
    let described: Vec<_> = copied.iter().map(|record| (record.number, record.turn.as_str())).collect();
    assert_eq!(described, [(4, "turn-1"), (5, "turn-3")]);
    assert!(copied.iter().all(|record| record.chat == chat(2) && record.after == version(&blob("a"))));

    fixture.database.move_records(&chat(1), &session(3)).expect("moved");
    assert_eq!(fixture.database.records(&session(1)).expect("records"), []);
    let moved = fixture.database.records(&session(3)).expect("records");
    assert_eq!(moved.iter().map(|record| record.number).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(fixture.database.reviews(&session(3)).expect("reviews"), [review]);
    assert_eq!(fixture.database.last_operation(&session(1)).expect("read"), None);
    let last = fixture.database.last_operation(&session(3)).expect("read").expect("it moved");
    assert_eq!(last.id, undo.id);
    assert_eq!(last.steps[0].records[0].session, session(3));

    fixture.database.remove_chat(&chat(1)).expect("removed");
    assert_eq!(fixture.database.records(&session(3)).expect("records"), []);
    assert_eq!(fixture.database.reviews(&session(3)).expect("reviews"), []);
    assert_eq!(fixture.database.last_operation(&session(3)).expect("read"), None);
    assert_eq!(fixture.database.records(&session(2)).expect("records").len(), 2);
}
