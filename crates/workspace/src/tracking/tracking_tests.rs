//! Observations of a directory without git.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::testing::{Fixture, content};
use super::*;

fn file(content: &[u8], mode: u32) -> FileVersion {
    let size = u64::try_from(content.len()).unwrap();
    FileVersion::File { blob: BlobDigest::of(content), size, mode, stored: true }
}

#[test]
fn changes_have_readable_contents_before_and_after() {
    let fixture = Fixture::new();
    fixture.write("a/one", "first");
    fixture.write("two", "second");
    fixture.write("same", "x");
    fixture.record();
    fixture.write("a/one", "FIRST");
    fs::remove_file(fixture.path("two")).unwrap();
    fixture.write("new/deep/three", "third");
    fixture.write("same", "x");
    let changes = fixture.changes();
    assert_eq!(
        changes,
        [
            ("a/one", file(b"first", 0o644), file(b"FIRST", 0o644), 0),
            ("new/deep/three", FileVersion::Absent, file(b"third", 0o644), 2),
            ("two", file(b"second", 0o644), FileVersion::Absent, 0),
        ]
        .map(|(path, before, after, parents)| (path.into(), before, after, parents))
    );
    for (_, before, after, _) in &changes {
        for version in [before, after] {
            assert!(version == &FileVersion::Absent || content(&*fixture.storage, version).is_some());
        }
    }
    assert_eq!(fixture.changes(), []);
}

#[test]
fn mode_link_and_kind_changes_are_seen() {
    let fixture = Fixture::new();
    fixture.write("script", "x");
    fixture.write("becomes-directory", "x");
    fixture.write("becomes-file/inner", "y");
    symlink("one", fixture.path("link")).unwrap();
    fixture.record();
    fs::set_permissions(fixture.path("script"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::remove_file(fixture.path("link")).unwrap();
    symlink("two", fixture.path("link")).unwrap();
    fs::remove_file(fixture.path("becomes-directory")).unwrap();
    fixture.write("becomes-directory/inner", "z");
    fs::remove_dir_all(fixture.path("becomes-file")).unwrap();
    fixture.write("becomes-file", "w");
    let link = |target: &str| FileVersion::Link { target: target.into() };
    assert_eq!(
        fixture.changes(),
        [
            ("becomes-directory", file(b"x", 0o644), FileVersion::Absent, 0),
            ("becomes-directory/inner", FileVersion::Absent, file(b"z", 0o644), 1),
            ("becomes-file", FileVersion::Absent, file(b"w", 0o644), 0),
            ("becomes-file/inner", file(b"y", 0o644), FileVersion::Absent, 0),
            ("link", link("one"), link("two"), 0),
            ("script", file(b"x", 0o644), file(b"x", 0o755), 0),
        ]
        .map(|(path, before, after, parents)| (path.into(), before, after, parents))
    );
}

#[test]
fn direct_look_works_without_a_baseline() {
    let fixture = Fixture::new();
    fixture.write("known", "old");
    let paths = ["known", "new/file", "missing"].map(|path| fixture.path(path));
    let observed = fixture.tracker.observe(&paths).unwrap();
    assert_eq!(observed.transitions, []);
    assert_eq!(
        observed.versions.iter().map(|(_, version)| version.clone()).collect::<Vec<_>>(),
        [file(b"old", 0o644), FileVersion::Absent, FileVersion::Absent,]
    );
    fixture.write("known", "new");
    fixture.write("new/file", "created");
    let observed = fixture.tracker.observe(&paths).unwrap();
    assert_eq!(
        observed.transitions,
        [
            Transition {
                path: fixture.path("known"),
                before: file(b"old", 0o644),
                after: file(b"new", 0o644),
                new_parents: 0,
            },
            Transition {
                path: fixture.path("new/file"),
                before: FileVersion::Absent,
                after: file(b"created", 0o644),
                new_parents: 1,
            },
        ]
    );
    // The scan knows what was seen, and adopts the rest.
    fixture.write("other", "x");
    assert_eq!(fixture.changes(), []);
    assert_eq!(fixture.tracker.version(&fixture.path("known")), Some(file(b"new", 0o644)));
}

#[test]
fn paths_outside_and_in_the_repository_are_left_out() {
    let fixture = Fixture::new();
    let outside = tempfile::tempdir().unwrap();
    fs::create_dir(fixture.path("real")).unwrap();
    symlink(fixture.path("real"), fixture.path("alias")).unwrap();
    symlink(outside.path(), fixture.path("exit")).unwrap();
    fixture.write("real/file", "x");
    fixture.write(".git/config", "x");
    let paths = [
        fixture.path("alias/file"),
        fixture.path("exit/file"),
        fixture.path(".git/config"),
        outside.path().join("file"),
        fixture.path("../file"),
        fixture.path(""),
    ];
    let observed = fixture.tracker.observe(&paths).unwrap();
    assert_eq!(observed.versions, [(fixture.path("real/file"), file(b"x", 0o644))]);
}

#[test]
fn ignored_files_are_seen_only_by_direct_looks() {
    let fixture = Fixture::new();
    fixture.write(".gitignore", "*.log\n/target/\n!keep.log\n");
    fixture.write("sub/.ignore", "hidden\n");
    fixture.record();
    for path in ["a.log", "keep.log", "target/out", "sub/hidden", "sub/seen", ".hidden"] {
        fixture.write(path, "x");
    }
    let changed: Vec<_> = fixture.changes().into_iter().map(|(path, ..)| path).collect();
    assert_eq!(changed, [".hidden", "keep.log", "sub/seen"].map(PathBuf::from));
    let path = fixture.path("target/out");
    assert_eq!(fixture.tracker.observe(std::slice::from_ref(&path)).unwrap().transitions, []);
    fixture.write("target/out", "changed");
    assert_eq!(fixture.changes().len(), 1);
}

#[test]
fn excluded_directory_is_never_looked_into() {
    let fixture = Fixture::new();
    let storage = Arc::clone(&fixture.storage);
    let excluded = [fixture.path("sub/data"), fixture.path(""), "/elsewhere".into()];
    let limits = TrackingLimits::default();
    let tracker = RootTracker::excluding(fixture.path(""), limits, storage, &excluded);
    assert_eq!(tracker.observe_all().unwrap(), []);
    for path in ["sub/data/blobs.db", "sub/data/workspace/x", "sub/database", "seen"] {
        fixture.write(path, "x");
    }
    let changed: Vec<_> = tracker.observe_all().unwrap().into_iter().map(|found| found.path).collect();
    assert_eq!(changed, [fixture.path("seen"), fixture.path("sub/database")]);
    let paths = [fixture.path("sub/data/blobs.db"), fixture.path("sub/data/new")];
    assert_eq!(tracker.observe(&paths).unwrap().versions, []);
}

#[test]
fn files_that_are_not_ignored_any_longer_are_not_reported_as_created() {
    let fixture = Fixture::new();
    fixture.write(".gitignore", "out\n");
    fixture.write("out/file", "x");
    fixture.write("sub/out/file", "x");
    fixture.record();
    fixture.write(".gitignore", "");
    let changed: Vec<_> = fixture.changes().into_iter().map(|(path, ..)| path).collect();
    assert_eq!(changed, [PathBuf::from(".gitignore")]);
    fixture.wait_for_contents();
    fixture.write("sub/out/file", "y");
    let changed = fixture.changes();
    assert_eq!(changed, [("sub/out/file".into(), file(b"x", 0o644), file(b"y", 0o644), 0)]);
}

#[test]
fn unusual_names_and_special_files_are_handled() {
    let fixture = Fixture::new();
    let names: [&[u8]; 3] = [b"line\nbreak", b"\xff\xfe", b" -x"];
    let path = |name: &[u8]| fixture.tracker.core.root.join(std::ffi::OsStr::from_bytes(name));
    for name in names {
        fs::write(path(name), "before").unwrap();
    }
    nix::unistd::mkfifo(&fixture.path("pipe"), nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(fixture.path("socket")).unwrap();
    fixture.record();
    for name in names {
        fs::write(path(name), "after!").unwrap();
    }
    assert_eq!(fixture.changes().len(), names.len());
    assert_eq!(fixture.tracker.status().files, names.len());
}

#[test]
fn limits_leave_contents_unknown() {
    let limits = TrackingLimits { max_files: 3, max_file_size: 8, max_root_size: 16 };
    let fixture = Fixture::with_limits(limits);
    fixture.write("a", "12345678");
    fixture.write("b", "123456789");
    fixture.write("c", "1234567");
    fixture.write("d", "1");
    fixture.record();
    let version = |path: &str| fixture.tracker.version(&fixture.path(path)).unwrap();
    assert_eq!(version("a"), file(b"12345678", 0o644));
    assert!(matches!(version("b"), FileVersion::File { stored: false, .. }));
    assert_eq!(version("d"), FileVersion::Unknown(UnknownContent::TooManyFiles));
    assert_eq!(fixture.tracker.status().limit, Some(UnknownContent::TooManyFiles));
    fixture.write("d", "2");
    fixture.write("b", "987654321");
    let changes = fixture.changes();
    assert_eq!(changes.len(), 2);
    assert!(changes.contains(&(
        "d".into(),
        FileVersion::Unknown(UnknownContent::TooManyFiles),
        file(b"2", 0o644),
        0
    )));
}

#[test]
fn held_contents_are_those_of_the_last_seen_files() {
    let fixture = Fixture::new();
    fixture.write("a", "one");
    fixture.record();
    assert_eq!(fixture.tracker.held_blobs(), HashSet::from([BlobDigest::of(b"one")]));
    fixture.write("a", "two");
    fixture.changes();
    assert_eq!(fixture.tracker.held_blobs(), HashSet::from([BlobDigest::of(b"two")]));
}

#[test]
fn missing_root_is_tolerated() {
    let fixture = Fixture::new();
    fixture.write("a", "one");
    fixture.record();
    fs::remove_dir_all(&fixture.tracker.core.root).unwrap();
    assert_eq!(fixture.changes(), []);
    assert_eq!(fixture.tracker.observe(&[fixture.path("a")]).unwrap(), Observed::default());
}

#[test]
fn failed_storage_reports_the_change_again() {
    let (fixture, storage) = Fixture::with_failing_storage();
    fixture.write("a", "one");
    fixture.record();
    fixture.write("a", "two");
    storage.fail(true);
    assert_eq!(fixture.tracker.observe_all(), Err(EditStorageError::Full));
    storage.fail(false);
    assert_eq!(fixture.changes(), [("a".into(), file(b"one", 0o644), file(b"two", 0o644), 0)]);
}

#[test]
fn change_before_the_first_index_is_reported_by_the_next_observation() {
    let fixture = Fixture::new();
    fixture.write("known", "one");
    let paths = ["known", "new/file"].map(|path| fixture.path(path));
    fixture.tracker.observe(&paths).unwrap();
    fixture.write("known", "two");
    fixture.write("new/file", "created");
    fixture.record();
    // The directory may be listed again, although it is known now.
    if let Some(directory) = fixture.tracker.core.index().directories.get_mut(Path::new("new")) {
        directory.racy = true;
    }
    let changes = fixture.changes();
    let expected = [
        ("known".into(), file(b"one", 0o644), file(b"two", 0o644), 0),
        ("new/file".into(), FileVersion::Absent, file(b"created", 0o644), 1),
    ];
    assert_eq!(changes, expected);
    fixture.write("new/file", "CREATED");
    assert_eq!(fixture.changes(), [("new/file".into(), file(b"created", 0o644), file(b"CREATED", 0o644), 0)]);
    fs::remove_dir_all(fixture.path("new")).unwrap();
    assert_eq!(fixture.changes(), [("new/file".into(), file(b"CREATED", 0o644), FileVersion::Absent, 0)]);
}

#[test]
fn direct_look_reads_a_file_beyond_the_limits() {
    let limits = TrackingLimits { max_files: 1, ..TrackingLimits::default() };
    let fixture = Fixture::with_limits(limits);
    fixture.write("a", "one");
    fixture.write("b", "two");
    fixture.record();
    let path = fixture.path("b");
    let unknown = FileVersion::Unknown(UnknownContent::TooManyFiles);
    assert_eq!(fixture.tracker.version(&path), Some(unknown));
    let observed = fixture.tracker.observe(std::slice::from_ref(&path)).unwrap();
    assert_eq!(observed, Observed { versions: vec![(path, file(b"two", 0o644))], transitions: vec![] });
}

#[test]
fn one_observation_stores_at_most_the_size_of_a_root() {
    let limits = TrackingLimits { max_files: 100, max_file_size: 8, max_root_size: 10 };
    let fixture = Fixture::with_limits(limits);
    fixture.record();
    for name in ["a", "b", "c", "d"] {
        fixture.write(name, "1234567");
    }
    let changes = fixture.changes();
    let stored: Vec<bool> = changes.iter().map(|(_, _, after, _)| after.stored_blob().is_some()).collect();
    assert_eq!(stored, [true, false, false, false]);
    assert_eq!(changes[2].2, FileVersion::Unknown(UnknownContent::FileTooLarge));
}

#[test]
fn deleted_directory_with_many_files_is_reported_completely() {
    let fixture = Fixture::new();
    for number in 0..600 {
        fixture.write(format!("d/{}/f{number}", number % 3), number.to_string());
    }
    fixture.record();
    fs::remove_dir_all(fixture.path("d")).unwrap();
    let changes = fixture.changes();
    assert_eq!(changes.len(), 600);
    assert!(changes.iter().all(|(_, before, after, _)| {
        content(&*fixture.storage, before).is_some() && *after == FileVersion::Absent
    }));
}

#[test]
fn renamed_directory_is_reported_as_deleted_and_created_files() {
    let fixture = Fixture::new();
    fixture.write("old/sub/file", "x");
    fixture.record();
    fs::rename(fixture.path("old"), fixture.path("new")).unwrap();
    assert_eq!(
        fixture.changes(),
        [
            ("new/sub/file".into(), FileVersion::Absent, file(b"x", 0o644), 2),
            ("old/sub/file".into(), file(b"x", 0o644), FileVersion::Absent, 0),
        ]
    );
}

#[test]
fn unreadable_file_is_unknown() {
    let fixture = Fixture::new();
    fixture.write("secret", "x");
    fs::set_permissions(fixture.path("secret"), fs::Permissions::from_mode(0o000)).unwrap();
    fixture.record();
    let version = fixture.tracker.version(&fixture.path("secret")).unwrap();
    // The superuser can read every file.
    let expected = match fs::read(fixture.path("secret")) {
        Ok(_) => file(b"x", 0),
        Err(_) => FileVersion::Unknown(UnknownContent::Unreadable),
    };
    assert_eq!(version, expected);
}

#[test]
fn file_that_changes_while_it_is_read_is_not_trusted() {
    use std::io::Write as _;
    use std::sync::atomic::{AtomicBool, Ordering};

    let fixture = Fixture::new();
    let path = fixture.path("log");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Each state of the file is a repeated byte.
            let mut fill = 0;
            while !stop.load(Ordering::Relaxed) {
                let mut file = fs::File::create(&path).unwrap();
                for _ in 0..16 {
                    file.write_all(&[fill; 4096]).unwrap();
                }
                fill = fill.wrapping_add(1);
            }
        });
        for _ in 0..50 {
            let observed = fixture.tracker.observe(std::slice::from_ref(&path)).unwrap();
            for (_, version) in observed.versions {
                if let Some(content) = content(&*fixture.storage, &version) {
                    assert!(content.windows(2).all(|pair| pair[0] == pair[1]));
                    assert!(matches!(version, FileVersion::File { size, .. }
                        if size == u64::try_from(content.len()).unwrap()));
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn thread_ends_when_the_tracker_is_dropped() {
    let fixture = Fixture::new();
    fixture.write("a", "x");
    fixture.record();
    let core = Arc::downgrade(&fixture.tracker.core);
    drop(fixture);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while core.strong_count() > 0 && tokio::time::Instant::now() < deadline {
        std::thread::yield_now();
    }
    assert_eq!(core.strong_count(), 0);
}

#[test]
fn single_version_is_read_without_following_links() {
    let fixture = Fixture::new();
    fixture.write("file", "x");
    fixture.write("large", "123456789");
    symlink("file", fixture.path("link")).unwrap();
    symlink(".", fixture.path("here")).unwrap();
    let root = RootHandle::open(&fixture.tracker.core.root).unwrap();
    let limits = TrackingLimits { max_file_size: 8, ..TrackingLimits::default() };
    let read = |path: &str| read_version(&root, &fixture.path(path), &limits);
    let (version, blob) = read("file");
    assert_eq!((version, blob.unwrap().digest), (file(b"x", 0o644), BlobDigest::of(b"x")));
    assert_eq!(read("link").0, FileVersion::Link { target: "file".into() });
    assert_eq!(read("here/file").0, FileVersion::Absent);
    assert_eq!(read("missing").0, FileVersion::Absent);
    let (version, blob) = read("large");
    assert!(matches!(version, FileVersion::File { stored: false, size: 9, .. }) && blob.is_none());
}

#[test]
fn directory_that_existed_before_the_file_is_not_a_new_parent() {
    let fixture = Fixture::new();
    let path = fixture.path("one/two/file");
    fixture.record();
    fixture.tracker.observe(std::slice::from_ref(&path)).unwrap();
    fs::create_dir_all(fixture.path("one")).unwrap();
    assert_eq!(fixture.changes(), []);
    fixture.write("one/two/file", "x");
    let transitions = fixture.tracker.observe(&[path]).unwrap().transitions;
    assert_eq!(transitions.iter().map(|found| found.new_parents).collect::<Vec<_>>(), [1]);
}
