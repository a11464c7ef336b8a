//! Deleted sessions and chats leave nothing in the files.

use std::fs;

use innkeeper_core::edits::FileReview;

use super::*;

/// Text that only the deleted session contains.
const MARKER: &str = "a-secret-that-must-vanish";

/// The files that contain the marker.
fn files_with_marker(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("the directory exists");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let has_marker = |path: &PathBuf| {
        let bytes = fs::read(path).expect("the file is read");
        bytes.windows(MARKER.len()).any(|window| window == MARKER.as_bytes())
    };
    paths.filter(has_marker).collect()
}

/// Short contents are not compressed.
fn fill(fixture: &EditFixture) -> Vec<StoredBlob> {
    let contents: Vec<StoredBlob> = (0..200).map(|number| blob(format!("{number}{MARKER}"))).collect();
    for pair in contents.windows(2) {
        let change = EditRecord {
            path: PathBuf::from(format!("/w/{MARKER}")),
            turn: MARKER.to_owned(),
            ..record(1, "", version(&pair[0]), version(&pair[1]))
        };
        fixture.database.append(vec![change], pair.to_vec()).expect("appended");
    }
    let review = FileReview { chat: None, turn: None, path: MARKER.into(), through: 1 };
    fixture.database.set_reviews(&session(1), vec![review], true).expect("set");
    let undo = OperationRecord { label: MARKER.to_owned(), ..operation(1, &contents[0], &contents[1]) };
    fixture.database.begin_operation(undo.clone(), Vec::new()).expect("begun");
    fixture.database.finish_operation(undo.id, Vec::new(), None).expect("finished");
    contents
}

#[test]
fn removed_session_leaves_no_content_in_any_file() {
    let fixture = EditFixture::new();
    let contents = fill(&fixture);
    assert!(!files_with_marker(fixture.directory.path()).is_empty(), "the marker can be found");
    fixture.database.remove_session(&session(1)).expect("removed");
    assert_eq!(fixture.database.records(&session(1)).expect("records"), []);
    assert_eq!(fixture.database.reviews(&session(1)).expect("reviews"), []);
    assert_eq!(fixture.database.last_operation(&session(1)).expect("read"), None);
    // At once: the contents of a deleted session have no grace period.
    let report = fixture.database.collect_garbage(&nothing()).expect("collected");
    assert_eq!((report.unreferenced, report.bytes), (contents.len() as u64, 0));
    assert_eq!(files_with_marker(fixture.directory.path()), Vec::<PathBuf>::new());
}

#[test]
fn removed_chat_leaves_no_content_in_any_file() {
    let fixture = EditFixture::new();
    fill(&fixture);
    fixture
        .database
        .set_reviews(
            &session(1),
            vec![FileReview { chat: None, turn: None, path: MARKER.into(), through: 1 }],
            false,
        )
        .expect("cleared");
    fixture.database.remove_chat(&chat(1)).expect("removed");
    fixture.database.collect_garbage(&nothing()).expect("collected");
    assert_eq!(files_with_marker(fixture.directory.path()), Vec::<PathBuf>::new());
}

#[test]
fn contents_that_others_use_survive_removal() {
    let fixture = EditFixture::new();
    let (shared, held, again, own) = (blob("shared"), blob("held"), blob("again"), blob("own"));
    for content in [&shared, &held, &again, &own] {
        let change = record(1, "turn-1", FileVersion::Absent, version(content));
        fixture.database.append(vec![change], vec![content.clone()]).expect("appended");
    }
    let other = record(2, "turn-1", version(&shared), FileVersion::Absent);
    fixture.database.append(vec![other], Vec::new()).expect("appended");
    fixture.database.remove_session(&session(1)).expect("removed");
    // Another session puts it before the collection.
    fixture.database.put_blobs(vec![again.clone()]).expect("stored");
    fixture.database.collect_garbage(&HashSet::from([held.digest])).expect("collected");
    let stored = [&shared, &held, &again, &own].map(|blob| fixture.is_stored(blob));
    assert_eq!(stored, [true, true, true, false]);
    assert_eq!(fixture.database.records(&session(2)).expect("records")[0].before, version(&shared));
}
