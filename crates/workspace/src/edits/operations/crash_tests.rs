//! Kills a process at each point of an operation and of its repair.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use innkeeper_core::edits::{EditStorage as _, StoredBlob};

use super::super::testing::{TestChange, TestTree, Workbench, change, operation, put, session, text, tree};
use super::super::{FaultPoints, VersionedFile, apply};
use super::repair_with;

/// The directory, the action and the fault point of a child process; set only by its parent.
const CHILD: &str = "INNKEEPER_OPERATIONS_TEST_CHILD";

/// The files of the operation: all kinds of changes, 20 files.
fn changes() -> Vec<TestChange> {
    let absent = VersionedFile::absent;
    let script = |mode| VersionedFile::regular(b"#!/bin/sh\n".to_vec(), mode);
    let mut changes: Vec<TestChange> = (0..8)
        .map(|number| change(&format!("src/{number}.rs"), text(&format!("new {number}\n")), text("old\n")))
        .collect();
    changes.extend((0..2).map(|number| change(&format!("made/by/agent/{number}"), text("x\n"), absent())));
    changes[8].removed_parents = 3;
    changes.extend((0..3).map(|number| change(&format!("lost/inner/{number}"), absent(), text("found\n"))));
    changes.extend([
        change("run.sh", script(0o755), script(0o644)),
        change("read-only", text("1\n"), VersionedFile::regular(b"2\n".to_vec(), 0o444)),
        change("link", VersionedFile::link("there"), VersionedFile::link("here")),
        change("file-to-link", text("1\n"), VersionedFile::link("src")),
        change(
            "binary",
            VersionedFile::regular(vec![0, 1], 0o644),
            VersionedFile::regular(vec![0; 9000], 0o644),
        ),
        // A file in the place of a directory.
        change("swap", text("1\n"), absent()),
        change("swap/inner", absent(), text("2\n")),
    ]);
    assert_eq!(changes.len(), 20);
    changes
}

fn write_before(root: &Path) {
    if root.exists() {
        std::fs::remove_dir_all(root).unwrap();
    }
    std::fs::create_dir(root).unwrap();
    for change in changes() {
        if change.name != "swap/inner" {
            put(&root.join(&change.name), &change.before);
        }
    }
}

/// The tree after the operation.
fn expected_after() -> TestTree {
    let directory = tempfile::tempdir().unwrap();
    for change in changes() {
        put(&directory.path().join(&change.name), &change.after);
    }
    tree(directory.path())
}

/// The tree before and after the operation.
fn expected_trees() -> &'static (TestTree, TestTree) {
    static TREES: OnceLock<(TestTree, TestTree)> = OnceLock::new();
    TREES.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root");
        write_before(&root);
        (tree(&root), expected_after())
    })
}

/// A directory with the files before the operation, and with an empty database, which is
/// copied because its creation takes time.
fn prepared() -> tempfile::TempDir {
    static EMPTY: OnceLock<Vec<u8>> = OnceLock::new();
    let empty = EMPTY.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        let bench = Workbench::open(directory.path());
        // The first write creates the database.
        bench.storage.put_blobs(vec![StoredBlob::new("")]).unwrap();
        bench.storage.close();
        std::fs::read(directory.path().join("blobs.db")).unwrap()
    });
    let directory = tempfile::tempdir().unwrap();
    write_before(&directory.path().join("root"));
    std::fs::write(directory.path().join("blobs.db"), empty).unwrap();
    directory
}

/// Kills this process at a fault point.
fn killing_at(point: usize) -> FaultPoints {
    let next = Cell::new(0);
    FaultPoints::with(move |_| {
        if next.replace(next.get() + 1) == point {
            nix::sys::signal::kill(nix::unistd::getpid(), nix::sys::signal::Signal::SIGKILL).unwrap();
        }
        Ok(())
    })
}

/// What a child process does.
fn run_child(arguments: &str) {
    let mut arguments = arguments.splitn(3, ' ');
    let mut next = || arguments.next().unwrap();
    let (action, point, directory) = (next(), next().parse().unwrap(), next());
    let bench = Workbench::open(Path::new(directory));
    match action {
        "apply" => {
            let (operation, blobs) = operation(&bench.root, &changes());
            apply(&bench.storage, operation, blobs, None, &killing_at(point)).unwrap();
        }
        "repair" => drop(repair_with(&bench.storage, &killing_at(point)).unwrap()),
        action => panic!("unknown action {action}"),
    }
}

/// Runs a child process. Returns whether it was killed.
#[expect(clippy::disallowed_methods, reason = "the test needs a process that is killed")]
fn is_killed(test: &str, action: &str, point: usize, directory: &Path) -> bool {
    let module = module_path!().split_once("::").unwrap().1;
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("{module}::{test}"), "--nocapture"])
        .env(CHILD, format!("{action} {point} {}", directory.display()))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    if output.status.signal() == Some(9) {
        return true;
    }
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    false
}

/// Repairs, and checks that all files or none are changed. Returns whether they are.
fn repaired(directory: &Path) -> bool {
    let bench = Workbench::open(directory);
    repair_with(&bench.storage, &FaultPoints::none()).unwrap();
    let found = tree(&bench.root);
    let (before, after) = expected_trees();
    let is_after = found == *after;
    if !is_after {
        assert_eq!(found, *before, "neither before nor after");
    }
    assert_eq!(bench.unfinished(), 0);
    let records = bench.records();
    assert_eq!(records.len(), if is_after { 20 } else { 0 });
    let last = bench.storage.last_operation(&session()).unwrap();
    assert_eq!(last.map(|last| last.steps.len()), is_after.then_some(20));
    is_after
}

/// Runs cases in several threads, because they mostly wait for the disk.
fn in_threads<T: Send>(cases: usize, run: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                loop {
                    let case = next.fetch_add(1, Ordering::Relaxed);
                    if case >= cases {
                        break;
                    }
                    let result = run(case);
                    results.lock().unwrap().insert(case, result);
                }
            });
        }
    });
    results.into_inner().unwrap().into_values().collect()
}

/// Two points before the operation is stored, one for each staged file, two for each changed
/// file, and five others.
const POINTS: usize = 2 + 20 + 40 + 5;

/// The point after the first file is changed.
const FIRST_CHANGED: usize = 25;

#[test]
fn killed_operation_is_done_or_not_done_after_repair() {
    const NAME: &str = "killed_operation_is_done_or_not_done_after_repair";
    if let Ok(arguments) = std::env::var(CHILD) {
        return run_child(&arguments);
    }
    let outcomes = in_threads(POINTS + 1, |point| {
        let directory = prepared();
        let killed = is_killed(NAME, "apply", point, directory.path());
        assert_eq!(killed, point < POINTS, "point {point}");
        repaired(directory.path())
    });
    let expected: Vec<bool> = (0..=POINTS).map(|point| point >= FIRST_CHANGED).collect();
    assert_eq!(outcomes, expected, "done if and only if a file was changed");
}

#[test]
fn killed_repair_is_completed_by_the_next_one() {
    const NAME: &str = "killed_repair_is_completed_by_the_next_one";
    if let Ok(arguments) = std::env::var(CHILD) {
        return run_child(&arguments);
    }
    // The operation ends after the first change, in the middle of the renames, and after them.
    let cases: Vec<(usize, usize)> = (0..64)
        .step_by(7)
        .map(|point| (FIRST_CHANGED, point))
        .chain((0..30).step_by(2).map(|point| (45, point)))
        .chain((0..3).map(|point| (65, point)))
        .collect();
    let killed = in_threads(cases.len(), |case| {
        let (first, second) = cases[case];
        let directory = prepared();
        assert!(is_killed(NAME, "apply", first, directory.path()));
        let killed = is_killed(NAME, "repair", second, directory.path());
        assert!(repaired(directory.path()));
        killed
    });
    let killed = killed.iter().filter(|killed| **killed).count();
    assert!(killed >= 20, "the repair was killed only {killed} times");
}
