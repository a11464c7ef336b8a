use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::rc::Rc;

use innkeeper_core::edits::UnknownContent;
use nix::errno::Errno;

use super::super::repair::{RepairReport, repair};
use super::super::testing::{TestChange, Workbench, change, put, text, tree};
use super::super::{VersionedFile, refuse_blocked};
use super::*;

/// Writes the files before an operation and runs it.
fn run(bench: &Workbench, changes: &[TestChange], faults: &FaultPoints) -> Result<(), EditError> {
    for change in changes {
        put(&bench.path(&change.name), &change.before);
    }
    run_only(bench, changes, faults)
}

fn run_only(bench: &Workbench, changes: &[TestChange], faults: &FaultPoints) -> Result<(), EditError> {
    let (operation, blobs) = bench.operation(changes);
    apply(&bench.storage, operation, blobs, None, faults)
}

/// Calls a function once, at a point.
fn once_at(point: FaultPoint, act: impl FnOnce() + 'static) -> FaultPoints {
    let act = Cell::new(Some(act));
    FaultPoints::with(move |reached| {
        if reached == point
            && let Some(act) = act.take()
        {
            act();
        }
        Ok(())
    })
}

/// Ends an operation at a point, as a crash does.
fn crash_at(bench: &Workbench, changes: &[TestChange], point: FaultPoint) {
    let faults = once_at(point, || panic!("crash"));
    let run = std::panic::AssertUnwindSafe(|| run(bench, changes, &faults));
    std::panic::catch_unwind(run).unwrap_err();
}

fn reason(result: Result<(), EditError>) -> String {
    match result {
        Err(EditError::File { reason, .. }) => reason,
        Err(EditError::Invalid(_) | EditError::Storage(_) | EditError::Closed) | Ok(()) => {
            panic!("another result: {result:?}")
        }
    }
}

/// Files of all kinds, changed in all ways.
fn many_changes() -> Vec<TestChange> {
    let absent = VersionedFile::absent;
    let mut changes = vec![
        change("a/changed", text("1\n"), text("2\n")),
        change("deleted", absent(), text("back\n")),
        change("far/away/deleted", absent(), text("back\n")),
        change("new/dir/created", text("x\n"), absent()),
        change("link", VersionedFile::link("one"), VersionedFile::link("two")),
        change("dangling", VersionedFile::link("nowhere"), absent()),
        change("mode", text("m\n"), VersionedFile::regular(b"m\n".to_vec(), 0o755)),
        change("read-only", VersionedFile::regular(b"r\n".to_vec(), 0o444), text("w\n")),
        change(
            "set-id",
            VersionedFile::regular(b"s\n".to_vec(), 0o4755),
            VersionedFile::regular(b"t\n".to_vec(), 0o4755),
        ),
        change("empty", text(""), text("not empty\n")),
    ];
    changes[3].removed_parents = 2;
    changes
}

#[test]
fn files_of_all_kinds_get_their_new_version() {
    let bench = Workbench::new();
    run(&bench, &many_changes(), &FaultPoints::none()).unwrap();
    let expected = Workbench::new();
    for change in many_changes() {
        put(&expected.path(&change.name), &change.after);
    }
    assert_eq!(tree(&bench.root), tree(&expected.root));
    assert_eq!(bench.unfinished(), 0);
    let records: Vec<PathBuf> = bench.records().into_iter().map(|record| record.path).collect();
    let paths: Vec<PathBuf> = many_changes().iter().map(|change| bench.path(&change.name)).collect();
    assert_eq!(records, paths);
}

#[test]
fn failure_at_any_point_changes_nothing() {
    let bench = Workbench::new();
    let mut reached_points = 0;
    for fail_at in 0.. {
        std::fs::remove_dir_all(&bench.root).unwrap();
        std::fs::create_dir(&bench.root).unwrap();
        for change in many_changes() {
            put(&bench.path(&change.name), &change.before);
        }
        let before = tree(&bench.root);
        let next = Rc::new(Cell::new(0));
        let last = Rc::new(RefCell::new(None));
        let faults = FaultPoints::with({
            let (next, last) = (Rc::clone(&next), Rc::clone(&last));
            move |point| {
                *last.borrow_mut() = Some(point);
                if next.replace(next.get() + 1) == fail_at { Err(Errno::ENOSPC) } else { Ok(()) }
            }
        });
        let result = run_only(&bench, &many_changes(), &faults);
        if next.get() <= fail_at {
            reached_points = next.get();
            break;
        }
        if *last.borrow() == Some(FaultPoint::AfterFinish) {
            assert_eq!(result, Ok(()));
            assert_eq!(bench.records().len(), many_changes().len());
            continue;
        }
        assert_eq!(reason(result), "the disk is full", "{last:?}");
        assert_eq!(tree(&bench.root), before, "{last:?}");
        assert_eq!((bench.unfinished(), bench.records().len()), (0, 0), "{last:?}");
    }
    assert_eq!(reached_points, 7 + 3 * many_changes().len());
}

#[test]
fn directories_are_removed_only_if_empty() {
    let bench = Workbench::new();
    // Both files are in new directories; only the first one created them.
    let mut changes = vec![
        change("a/b/first", text("1\n"), VersionedFile::absent()),
        change("a/b/second", text("2\n"), VersionedFile::absent()),
        change("c/d/file", text("3\n"), VersionedFile::absent()),
    ];
    changes[0].removed_parents = 2;
    changes[2].removed_parents = 99;
    put(&bench.path("c/kept"), &text("mine\n"));
    run(&bench, &changes, &FaultPoints::none()).unwrap();
    let names: Vec<PathBuf> = tree(&bench.root).into_keys().collect();
    assert_eq!(names, [PathBuf::from("c"), PathBuf::from("c/kept")]);
    assert!(bench.root.is_dir());
}

#[test]
fn file_and_directory_change_places() {
    let bench = Workbench::new();
    let mut changes = vec![
        change("one", VersionedFile::absent(), text("file\n")),
        change("one/inner", text("x\n"), VersionedFile::absent()),
        change("two", text("file\n"), VersionedFile::absent()),
        change("two/inner/deep", VersionedFile::absent(), text("x\n")),
    ];
    changes[1].removed_parents = 1;
    put(&bench.path("one/inner"), &changes[1].before);
    put(&bench.path("two"), &changes[2].before);
    let before = tree(&bench.root);
    for fail_at in [FaultPoint::AfterRename(1), FaultPoint::AfterRename(0), FaultPoint::AfterRename(3)] {
        let faults = FaultPoints::with(move |point| if point == fail_at { Err(Errno::EIO) } else { Ok(()) });
        reason(run_only(&bench, &changes, &faults));
        assert_eq!(tree(&bench.root), before, "{fail_at:?}");
    }
    run_only(&bench, &changes, &FaultPoints::none()).unwrap();
    assert_eq!(std::fs::read(bench.path("one")).unwrap(), b"file\n");
    assert_eq!(std::fs::read(bench.path("two/inner/deep")).unwrap(), b"x\n");
}

#[test]
fn obstacles_are_refused_before_anything_changes() {
    let bench = Workbench::new();
    let first = change("first", text("1\n"), text("2\n"));
    let untouched = |changes: &[TestChange], expected: &str| {
        put(&bench.path("first"), &text("1\n"));
        let before = tree(&bench.root);
        let reached = Rc::new(Cell::new(false));
        let faults = FaultPoints::with({
            let reached = Rc::clone(&reached);
            move |_| {
                reached.set(true);
                Ok(())
            }
        });
        assert_eq!(reason(run_only(&bench, changes, &faults)), expected);
        assert!(!reached.get(), "the operation has begun");
        assert_eq!(tree(&bench.root), before);
    };
    std::fs::create_dir_all(bench.path("directory/inner")).unwrap();
    let create = |name: &str| change(name, VersionedFile::absent(), text("x\n"));
    untouched(&[first.clone(), create("directory")], "a directory is in its place");
    let replace = change("directory", text("1\n"), text("2\n"));
    untouched(&[first.clone(), replace], "a directory is in its place");
    put(&bench.path("file"), &text("file\n"));
    let file = bench.path("file");
    let expected = format!("{} is not a directory", file.display());
    untouched(&[first.clone(), create("file/below/deep")], &expected);
    nix::unistd::mkfifo(&bench.path("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let replace = change("pipe", text("1\n"), text("2\n"));
    put(&bench.path("first"), &text("1\n"));
    let result = run_only(&bench, &[first, replace], &FaultPoints::none());
    assert_eq!(reason(result), "a device, pipe or socket is in its place");
    assert_eq!(std::fs::read(bench.path("first")).unwrap(), b"1\n");
}

#[test]
fn blocked_files_are_left_out_with_their_reason() {
    let bench = Workbench::new();
    let absent = VersionedFile::absent;
    let mut changes = vec![
        change("fine", text("1\n"), text("2\n")),
        change("directory", absent(), text("2\n")),
        // A rename: the old path is blocked, so the new one stays.
        change("link/old.rs", absent(), text("moved\n")),
        change("new.rs", text("moved\n"), absent()),
        // The directory is removed only if the file in it is deleted.
        change("swap", absent(), text("2\n")),
        change("swap/inner", text("1\n"), absent()),
    ];
    changes[5].removed_parents = 1;
    for name in ["fine", "new.rs", "swap/inner"] {
        let change = changes.iter().find(|change| change.name == name).unwrap();
        put(&bench.path(name), &change.before);
    }
    std::fs::create_dir(bench.path("directory")).unwrap();
    symlink("nowhere", bench.path("link")).unwrap();
    let (mut operation, blobs) = bench.operation(&changes);
    let refused = refuse_blocked(&bench.storage, &mut operation);
    let reasons: Vec<(&str, &str)> = refused
        .iter()
        .map(|(path, refused)| (path.file_name().unwrap().to_str().unwrap(), refused.reason.as_str()))
        .collect();
    let link = "cannot change old.rs: a part of its path is a symbolic link";
    let expected = [
        ("directory", "cannot change directory: a directory is in its place"),
        ("old.rs", link),
        ("new.rs", link),
    ];
    assert_eq!(reasons, expected);
    apply(&bench.storage, operation, blobs, None, &FaultPoints::none()).unwrap();
    assert_eq!(std::fs::read(bench.path("fine")).unwrap(), b"2\n");
    assert_eq!(std::fs::read(bench.path("swap")).unwrap(), b"2\n");
    assert_eq!(std::fs::read(bench.path("new.rs")).unwrap(), b"moved\n");
}

#[test]
fn file_that_needs_a_blocked_file_is_blocked_too() {
    let bench = Workbench::new();
    let absent = VersionedFile::absent;
    nix::unistd::mkfifo(&bench.path("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let changes = [change("pipe", text("1\n"), absent()), change("pipe/inner", absent(), text("2\n"))];
    let (mut operation, _) = bench.operation(&changes);
    let refused = refuse_blocked(&bench.storage, &mut operation);
    assert_eq!((refused.len(), operation.steps.len()), (2, 0));
}

#[test]
fn directory_with_other_files_is_not_replaced() {
    let bench = Workbench::new();
    let mut changes = vec![
        change("first", text("1\n"), text("2\n")),
        change("dir", VersionedFile::absent(), text("file\n")),
        change("dir/inner", text("x\n"), VersionedFile::absent()),
    ];
    changes[2].removed_parents = 1;
    put(&bench.path("first"), &text("1\n"));
    put(&bench.path("dir/inner"), &text("x\n"));
    put(&bench.path("dir/mine"), &text("mine\n"));
    let before = tree(&bench.root);
    reason(run_only(&bench, &changes, &FaultPoints::none()));
    assert_eq!(tree(&bench.root), before);
    assert_eq!((bench.unfinished(), bench.records().len()), (0, 0));
}

#[test]
fn paths_outside_of_roots_and_through_links_are_refused() {
    let bench = Workbench::new();
    std::fs::create_dir(bench.outside("other")).unwrap();
    put(&bench.outside("other/file"), &text("1\n"));
    symlink(bench.outside("other"), bench.path("away")).unwrap();
    std::fs::create_dir(bench.path("real")).unwrap();
    put(&bench.path("real/file"), &text("1\n"));
    symlink("real", bench.path("near")).unwrap();
    symlink("nowhere", bench.path("broken")).unwrap();
    let before = tree(&bench.outside("."));
    let outside = "it is not in a directory of the session";
    let link = "a part of its path is a symbolic link";
    for (name, expected) in [
        ("../other/file", outside),
        ("real/../../other/file", outside),
        ("", outside),
        ("away/file", link),
        ("near/file", link),
        ("broken/file", link),
    ] {
        for (file, target) in [(text("1\n"), text("2\n")), (VersionedFile::absent(), text("2\n"))] {
            let result = run_only(&bench, &[change(name, file, target)], &FaultPoints::none());
            assert_eq!(reason(result), expected, "{name}");
        }
    }
    let names = |tree: BTreeMap<PathBuf, (u32, Vec<u8>)>| -> Vec<_> {
        tree.into_iter().filter(|(path, _)| !path.to_string_lossy().contains("blobs.db")).collect()
    };
    assert_eq!(names(tree(&bench.outside("."))), names(before));
}

#[test]
fn link_that_replaces_directory_during_operation_is_not_followed() {
    for point in
        [FaultPoint::AfterBegin, FaultPoint::Staged(1), FaultPoint::Checked, FaultPoint::BeforeRename(1)]
    {
        let bench = Workbench::new();
        std::fs::create_dir(bench.outside("other")).unwrap();
        put(&bench.outside("other/file"), &text("1\n"));
        let changes =
            [change("first", text("1\n"), text("2\n")), change("dir/file", text("1\n"), text("2\n"))];
        let (dir, moved, other) = (bench.path("dir"), bench.outside("moved"), bench.outside("other"));
        let faults = once_at(point, move || {
            std::fs::rename(&dir, &moved).unwrap();
            symlink(&other, &dir).unwrap();
        });
        assert_eq!(reason(run(&bench, &changes, &faults)), "a part of its path is a symbolic link");
        assert_eq!(std::fs::read(bench.outside("other/file")).unwrap(), b"1\n");
        assert_eq!(std::fs::read_dir(bench.outside("other")).unwrap().count(), 1);
        assert_eq!(std::fs::read(bench.outside("moved/file")).unwrap(), b"1\n");
        assert_eq!(std::fs::read(bench.path("first")).unwrap(), b"1\n", "{point:?}");
        assert_eq!(bench.unfinished(), 0);
    }
}

#[test]
fn file_that_another_program_changes_is_not_overwritten() {
    let points =
        [FaultPoint::AfterBegin, FaultPoint::Staged(2), FaultPoint::Checked, FaultPoint::BeforeRename(1)];
    let replacements = [text("3\n"), VersionedFile::link("/etc/passwd"), VersionedFile::absent()];
    for point in points {
        for replacement in &replacements {
            let bench = Workbench::new();
            let changes = [
                change("first", text("1\n"), text("2\n")),
                change("second", text("1\n"), text("2\n")),
                change("third", VersionedFile::absent(), text("2\n")),
            ];
            let (path, file) = (bench.path("second"), replacement.clone());
            let result = run(&bench, &changes, &once_at(point, move || put(&path, &file)));
            assert_eq!(reason(result), "another program changed it at the same time; try again");
            let expected = Workbench::new();
            put(&expected.path("first"), &text("1\n"));
            put(&expected.path("second"), replacement);
            assert_eq!(tree(&bench.root), tree(&expected.root), "{point:?} {replacement:?}");
        }
    }
}

#[test]
fn file_that_another_program_creates_is_not_overwritten() {
    for point in [FaultPoint::AfterBegin, FaultPoint::Checked, FaultPoint::BeforeRename(0)] {
        let bench = Workbench::new();
        let changes = [change("file", VersionedFile::absent(), text("2\n"))];
        let path = bench.path("file");
        let result = run(&bench, &changes, &once_at(point, move || put(&path, &text("mine\n"))));
        reason(result);
        assert_eq!(std::fs::read(bench.path("file")).unwrap(), b"mine\n");
    }
}

#[test]
fn hard_links_of_one_file_are_changed_together() {
    let bench = Workbench::new();
    let changes =
        [change("one", text("1\n"), text("2\n")), change("two", text("1\n"), VersionedFile::absent())];
    put(&bench.path("one"), &text("1\n"));
    std::fs::hard_link(bench.path("one"), bench.path("two")).unwrap();
    run_only(&bench, &changes, &FaultPoints::none()).unwrap();
    assert_eq!(std::fs::read(bench.path("one")).unwrap(), b"2\n");
    assert!(!bench.path("two").exists());
}

#[test]
fn incomplete_operations_are_rejected() {
    let bench = Workbench::new();
    let unknown = VersionedFile { version: FileVersion::Unknown(UnknownContent::NotReady), content: None };
    let mut unstored = text("1\n");
    if let FileVersion::File { stored, .. } = &mut unstored.version {
        *stored = false;
    }
    let lost = VersionedFile { content: None, ..text("lost\n") };
    put(&bench.path("file"), &text("1\n"));
    for (before, after) in
        [(text("1\n"), unknown.clone()), (unknown, text("2\n")), (unstored, text("2\n")), (text("1\n"), lost)]
    {
        reason(run_only(&bench, &[change("file", before, after)], &FaultPoints::none()));
    }
    let twice = [change("file", text("1\n"), text("2\n")), change("file", text("1\n"), text("3\n"))];
    reason(run_only(&bench, &twice, &FaultPoints::none()));
    assert_eq!(std::fs::read(bench.path("file")).unwrap(), b"1\n");
    assert_eq!(bench.unfinished(), 0);
}

#[test]
fn owner_is_kept() {
    if !nix::unistd::geteuid().is_root() {
        // Only a privileged host can change owners.
        return;
    }
    let bench = Workbench::new();
    let changes = [
        change("file", text("1\n"), text("2\n")),
        change("link", VersionedFile::link("a"), VersionedFile::link("b")),
        change("gone", text("1\n"), VersionedFile::absent()),
    ];
    let owner = |name: &str| {
        let found = bench.path(name).symlink_metadata().unwrap();
        (found.uid(), found.gid())
    };
    for change in &changes {
        put(&bench.path(&change.name), &change.before);
        std::os::unix::fs::lchown(bench.path(&change.name), Some(1234), Some(2345)).unwrap();
    }
    let faults =
        FaultPoints::with(|point| if point == FaultPoint::BeforeFinish { Err(Errno::EIO) } else { Ok(()) });
    reason(run_only(&bench, &changes, &faults));
    for name in ["file", "link", "gone"] {
        assert_eq!(owner(name), (1234, 2345), "{name} after the rollback");
    }
    run_only(&bench, &changes, &FaultPoints::none()).unwrap();
    for name in ["file", "link"] {
        assert_eq!(owner(name), (1234, 2345), "{name}");
    }
}

/// Runs a function without the privileges of root, as owner of all files except for some.
#[cfg(target_os = "linux")]
fn unprivileged<T>(bench: &Workbench, kept: &[PathBuf], run: impl FnOnce() -> T) -> T {
    use nix::unistd::{Uid, geteuid, setfsuid};
    if !geteuid().is_root() {
        return run();
    }
    let user = 65534;
    let directory = bench.outside(".");
    for path in tree(&directory).into_keys().chain([PathBuf::new()]) {
        if !kept.contains(&directory.join(&path)) {
            std::os::unix::fs::lchown(directory.join(path), Some(user), Some(user)).unwrap();
        }
    }
    // Only for the files, and only in this thread and its children.
    setfsuid(Uid::from_raw(user));
    let result = run();
    setfsuid(Uid::from_raw(0));
    result
}

#[cfg(target_os = "linux")]
#[test]
fn read_only_directory_is_reported_and_nothing_changes() {
    for after in [text("2\n"), VersionedFile::absent()] {
        let bench = Workbench::new();
        let changes = [
            change("first", text("1\n"), text("2\n")),
            change("another", text("1\n"), VersionedFile::absent()),
            change("dir/file", text("1\n"), after),
        ];
        for change in &changes {
            put(&bench.path(&change.name), &change.before);
        }
        std::fs::set_permissions(bench.path("dir"), std::fs::Permissions::from_mode(0o555)).unwrap();
        let before = tree(&bench.root);
        let result = unprivileged(&bench, &[], || run_only(&bench, &changes, &FaultPoints::none()));
        let text = result.as_ref().unwrap_err().to_string();
        let path = bench.path("dir/file");
        let expected = format!("cannot change {}: permission denied; nothing was changed", path.display());
        assert_eq!(text, expected);
        assert_eq!(tree(&bench.root), before);
        assert_eq!((bench.unfinished(), bench.records().len()), (0, 0));
        std::fs::set_permissions(bench.path("dir"), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn set_id_file_of_another_owner_is_not_replaced() {
    if !nix::unistd::geteuid().is_root() {
        // Only root can create a file of another owner.
        return;
    }
    let bench = Workbench::new();
    let program = |content: &str| VersionedFile::regular(content.as_bytes().to_vec(), 0o4755);
    let changes = [change("program", program("1\n"), program("2\n"))];
    put(&bench.path("program"), &program("1\n"));
    let before = tree(&bench.root);
    let kept = [bench.outside(".").join("root/program")];
    let result = unprivileged(&bench, &kept, || run_only(&bench, &changes, &FaultPoints::none()));
    assert_eq!(reason(result), "it runs with the rights of its owner, who cannot be kept");
    assert_eq!(tree(&bench.root), before);
}

#[test]
fn repair_leaves_file_that_another_program_changed() {
    let bench = Workbench::new();
    let changes = [
        change("first", text("1\n"), text("2\n")),
        change("second", text("1\n"), text("2\n")),
        change("third", text("1\n"), text("2\n")),
    ];
    crash_at(&bench, &changes, FaultPoint::AfterRename(0));
    put(&bench.path("second"), &text("mine\n"));
    let report = repair(&bench.storage).unwrap();
    assert_eq!(
        report,
        RepairReport { completed: 1, left: vec![bench.path("second")], ..RepairReport::default() }
    );
    for (name, content) in [("first", "2\n"), ("second", "mine\n"), ("third", "2\n")] {
        assert_eq!(std::fs::read_to_string(bench.path(name)).unwrap(), content, "{name}");
    }
    assert_eq!(tree(&bench.root).len(), 3, "a temporary file is left");
    let recorded: Vec<PathBuf> = bench.records().into_iter().map(|record| record.path).collect();
    assert_eq!(recorded, [bench.path("first"), bench.path("third")]);
    assert_eq!(repair(&bench.storage).unwrap(), RepairReport::default());
}

#[test]
fn repair_does_not_complete_an_operation_that_changed_nothing() {
    let bench = Workbench::new();
    let changes = [change("first", text("1\n"), text("2\n")), change("second", text("1\n"), text("2\n"))];
    for change in &changes {
        put(&bench.path(&change.name), &change.before);
    }
    // It failed and was rolled back, but the storage failed, too.
    let (operation, blobs) = bench.operation(&changes);
    bench.storage.begin_operation(operation, blobs).unwrap();
    put(&bench.path("second"), &text("mine\n"));
    let before = tree(&bench.root);
    assert_eq!(repair(&bench.storage).unwrap(), RepairReport { rolled_back: 1, ..RepairReport::default() });
    assert_eq!(tree(&bench.root), before);
    assert_eq!((bench.unfinished(), bench.records().len()), (0, 0));
}

#[test]
fn operation_that_cannot_be_completed_is_rolled_back_by_repair() {
    let bench = Workbench::new();
    let mut changes = vec![
        change("gone/file", text("x\n"), VersionedFile::absent()),
        change("first", text("1\n"), text("2\n")),
        change("link", VersionedFile::link("a"), text("2\n")),
        change("new/file", VersionedFile::absent(), text("2\n")),
        change("last/file", VersionedFile::absent(), text("2\n")),
    ];
    changes[0].removed_parents = 1;
    crash_at(&bench, &changes, FaultPoint::AfterRename(3));
    // The last file cannot be created, because its directory is a file now.
    put(&bench.path("last"), &text("mine\n"));
    let report = repair(&bench.storage).unwrap();
    assert_eq!(report, RepairReport { rolled_back: 1, ..RepairReport::default() });
    let expected = Workbench::new();
    for change in &changes[..3] {
        put(&expected.path(&change.name), &change.before);
    }
    put(&expected.path("last"), &text("mine\n"));
    let mut found = tree(&bench.root);
    // It is not known which program created this directory.
    found.remove(Path::new("new"));
    assert_eq!(found, tree(&expected.root));
    assert_eq!((bench.unfinished(), bench.records().len()), (0, 0));
}

#[test]
fn operation_in_missing_root_is_repaired_when_root_returns() {
    let bench = Workbench::new();
    let changes = [change("first", text("1\n"), text("2\n")), change("second", text("1\n"), text("2\n"))];
    crash_at(&bench, &changes, FaultPoint::AfterRename(0));
    std::fs::rename(&bench.root, bench.outside("unmounted")).unwrap();
    assert_eq!(repair(&bench.storage).unwrap(), RepairReport { unfinished: 1, ..RepairReport::default() });
    assert_eq!(bench.unfinished(), 1);
    std::fs::rename(bench.outside("unmounted"), &bench.root).unwrap();
    assert_eq!(repair(&bench.storage).unwrap(), RepairReport { completed: 1, ..RepairReport::default() });
    assert_eq!(std::fs::read(bench.path("second")).unwrap(), b"2\n");
}

#[test]
fn interrupted_redo_takes_last_operation_back() {
    let bench = Workbench::new();
    let undo = [change("file", text("1\n"), text("2\n"))];
    run(&bench, &undo, &FaultPoints::none()).unwrap();
    let session = super::super::testing::session();
    assert!(bench.storage.last_operation(&session).unwrap().is_some());
    let (mut redo, blobs) = bench.operation(&[change("file", text("2\n"), text("1\n"))]);
    redo.can_redo = false;
    bench.storage.begin_operation(redo, blobs).unwrap();
    put(&bench.path("file"), &text("1\n"));
    assert_eq!(repair(&bench.storage).unwrap().completed, 1);
    assert_eq!(std::fs::read(bench.path("file")).unwrap(), b"1\n");
    assert_eq!(bench.storage.last_operation(&session).unwrap(), None);
}

#[test]
fn missing_parents_are_counted() {
    let bench = Workbench::new();
    std::fs::create_dir(bench.path("a")).unwrap();
    let missing = |name: &str| missing_parents(std::slice::from_ref(&bench.root), &bench.path(name));
    assert_eq!((missing("a/x"), missing("a/b/x"), missing("b/c/d/x"), missing("x")), (0, 1, 3, 0));
    assert_eq!(missing_parents(std::slice::from_ref(&bench.root), Path::new("/elsewhere/x")), 0);
}
