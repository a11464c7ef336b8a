//! Damaged files and records, and a full disk.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;

use innkeeper_core::edits::EditStorageError;
use innkeeper_store::OpenStoreError;

use super::*;

const PAGE: u64 = 4096;

/// A database with records, contents and an operation, closed.
fn filled() -> EditFixture {
    let fixture = EditFixture::new();
    for number in 0..100 {
        let content = blob(format!("{number} ").repeat(100));
        let change = record(1, "turn-1", FileVersion::Absent, version(&content));
        fixture.database.append(vec![change], vec![content]).expect("appended");
    }
    let undo = operation(1, &blob("a"), &blob("b"));
    fixture.database.begin_operation(undo, vec![blob("a"), blob("b")]).expect("begun");
    fixture.database.close();
    fixture
}

/// The damaged databases that were set aside.
fn set_aside(fixture: &EditFixture) -> Vec<PathBuf> {
    let entries = fs::read_dir(fixture.directory.path()).expect("the directory exists");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let is_database = |path: &PathBuf| {
        let name = path.to_string_lossy();
        name.contains("blobs.db.damaged-") && !name.ends_with("-wal") && !name.ends_with("-shm")
    };
    paths.filter(is_database).collect()
}

fn overwrite(path: &Path, offset: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(path).expect("the file opens");
    file.write_all_at(bytes, offset).expect("the file is written");
}

#[test]
fn damaged_file_is_set_aside_when_opened() {
    let destroy: [fn(&Path); 5] = [
        |path| fs::write(path, "not a database").expect("written"),
        |path| overwrite(path, 0, &[0x5a; 100]),
        |path| overwrite(path, 100, &[0x5a; 3000]),
        |path| OpenOptions::new().write(true).open(path).and_then(|file| file.set_len(50)).expect("cut"),
        |path| sql(path).execute_batch("DROP INDEX record_path").expect("dropped"),
    ];
    for (number, destroy) in destroy.into_iter().enumerate() {
        let mut fixture = filled();
        destroy(&fixture.path());
        let damaged = fs::read(fixture.path()).expect("the file is read");
        fixture.reopen();
        let aside = set_aside(&fixture);
        assert_eq!(aside.len(), 1, "case {number}");
        assert_eq!(fs::read(&aside[0]).expect("the file is read").len(), damaged.len(), "case {number}");
        assert_eq!(fixture.database.records(&session(1)).expect("records"), []);
        fixture.database.put_blobs(vec![blob("new")]).expect("stored");
        assert!(fixture.is_stored(&blob("new")));
    }
}

/// A database with a table whose first page is overwritten.
fn with_damaged_table(table: &str) -> EditFixture {
    let mut fixture = filled();
    let root: i64 = sql(&fixture.path())
        .query_row("SELECT rootpage FROM sqlite_schema WHERE name = ?1", [table], |row| row.get(0))
        .expect("the table exists");
    overwrite(&fixture.path(), (root.unsigned_abs() - 1) * PAGE, &[0x5a; PAGE as usize]);
    fixture.reopen();
    fixture
}

#[test]
fn damaged_page_is_noticed_by_reader_and_file_is_set_aside() {
    for table in ["record", "blob", "record_session"] {
        let fixture = with_damaged_table(table);
        fixture.database.put_blobs(vec![blob("new")]).expect("stored");
        assert_eq!(fixture.database.records(&session(1)).expect("records"), [], "{table}");
        assert_eq!(set_aside(&fixture).len(), 1, "{table}");
        assert!(table != "blob" || fixture.is_stored(&blob("new")));
    }
}

#[test]
fn damaged_content_page_leaves_the_records() {
    let fixture = with_damaged_table("content");
    let records = fixture.database.records(&session(1)).expect("records");
    let digest = records.iter().find_map(|record| record.after.stored_blob()).expect("a content");
    let error = fixture.database.read_blob(digest).expect_err("the page is damaged");
    assert!(matches!(error, EditStorageError::Damaged(_)), "{error:?}");
    assert_eq!(fixture.database.records(&session(1)).expect("records").len(), records.len());
    assert_eq!(set_aside(&fixture), Vec::<PathBuf>::new());
}

#[test]
fn damaged_page_is_noticed_by_write_and_file_is_set_aside() {
    let fixture = with_damaged_table("record");
    let change = record(1, "turn-1", FileVersion::Absent, version(&blob("new")));
    fixture.database.append(vec![change], vec![blob("new")]).expect("appended");
    assert_eq!(set_aside(&fixture).len(), 1);
    let records = fixture.database.records(&session(1)).expect("records");
    assert_eq!(records[0].after, version(&blob("new")));
    assert_eq!(records.len(), 1);
}

#[test]
fn newer_schema_is_refused_and_not_changed() {
    let fixture = filled();
    sql(&fixture.path())
        .execute_batch("CREATE TABLE future (a); PRAGMA user_version = 99")
        .expect("the database is changed");
    let before = fs::read(fixture.path()).expect("the file is read");
    let error = EditDatabase::open(fixture.path(), EditDatabaseConfig::new(LARGE)).expect_err("it is newer");
    assert!(matches!(error, OpenStoreError::Newer { found: 99, known: 1, .. }), "{error:?}");
    assert!(error.to_string().contains("newer version"), "{error}");
    assert_eq!(fs::read(fixture.path()).expect("the file is read"), before);
}

#[test]
fn wrong_schema_version_of_known_tables_is_corrected() {
    let mut fixture = filled();
    sql(&fixture.path()).execute_batch("PRAGMA user_version = 99").expect("the database is changed");
    fixture.reopen();
    assert_eq!(set_aside(&fixture), Vec::<PathBuf>::new());
    assert_eq!(fixture.database.records(&session(1)).expect("records").len(), 100);
}

#[test]
fn damaged_rows_are_reported() {
    let mut fixture = filled();
    sql(&fixture.path())
        .execute_batch(
            "UPDATE record SET path = x'00' WHERE number = 5;
             UPDATE operation SET body = CAST(x'ff' || body AS BLOB);
             UPDATE content SET body = zeroblob(30) WHERE id IN (1, 2);
             UPDATE blob SET compressed = 0 WHERE content = 2;
             UPDATE blob SET size = 9223372036854775807 WHERE content = 1;
             UPDATE blob SET size = 3 WHERE content = 3;
             DELETE FROM content WHERE id = 4;",
        )
        .expect("the database is changed");
    fixture.reopen();
    let is_damaged = |error: EditStorageError| matches!(error, EditStorageError::Damaged(_));
    assert!(is_damaged(fixture.database.records(&session(1)).expect_err("a record is damaged")));
    assert!(is_damaged(fixture.database.unfinished_operations().expect_err("it is damaged")));
    for number in 0..4 {
        let content = blob(format!("{number} ").repeat(100));
        let error = fixture.database.read_blob(content.digest).expect_err("the content is damaged");
        assert!(is_damaged(error.clone()), "{number} {error:?}");
        assert!(error.to_string().contains(&content.digest.to_string()), "{error}");
    }
    assert_eq!(set_aside(&fixture), Vec::<PathBuf>::new(), "the file itself is not damaged");
    fixture.database.read_blob(blob("4 ".repeat(100)).digest).expect("the others are readable");
    fixture.database.remove_session(&session(1)).expect("removed");
    assert_eq!(fixture.database.records(&session(1)).expect("records"), []);
}

#[cfg(target_os = "linux")]
#[test]
fn full_disk_is_reported_and_loses_nothing() {
    use innkeeper_testkit::leave_out;
    use nix::mount::{MsFlags, mount};
    use nix::sched::{CloneFlags, unshare};

    let private = unshare(CloneFlags::CLONE_NEWNS).and_then(|()| {
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
    });
    if let Err(error) = private {
        leave_out(&format!("mounting is not permitted ({error}); run this test as root"))
            .expect("mounting is permitted");
        return;
    }
    let fixture = EditFixture::new();
    let small = Some("size=2m,mode=0700");
    mount(Some("none"), fixture.directory.path(), Some("tmpfs"), MsFlags::empty(), small).expect("mounted");
    let ballast = fixture.directory.path().join("ballast");
    fs::write(&ballast, vec![0; 256 * 1024]).expect("the file is written");
    let content = |number: u32| blob(BlobDigest::of(&number.to_le_bytes()).as_bytes().repeat(3).repeat(30));
    let filler = |number: u32| {
        let bytes =
            (0..1000_u32).flat_map(|part| *BlobDigest::of(format!("{number} {part}").as_bytes()).as_bytes());
        blob(bytes.collect::<Vec<u8>>())
    };
    let mut stored = 0;
    let error = loop {
        match fixture.database.put_blobs(vec![filler(stored), content(stored)]) {
            Ok(()) => stored += 1,
            Err(error) => break error,
        }
        assert!(stored < 1000, "the disk never fills");
    };
    assert_eq!(error, EditStorageError::Full);
    for number in 0..stored {
        assert!(fixture.is_stored(&content(number)) && fixture.is_stored(&filler(number)));
    }
    assert!(!fixture.is_stored(&content(stored)) && !fixture.is_stored(&filler(stored)), "all or none");
    fs::remove_file(&ballast).expect("the file is removed");
    fixture.database.put_blobs(vec![content(stored)]).expect("the database still works");
}
