//! Random changes of a directory: the transitions lead from the old state to the new one.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use innkeeper_core::edits::FileVersion;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::Transition;
use super::testing::{Fixture, TestDatabase, content, git};

/// A file as the test sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    File(Vec<u8>, u32),
    Link(PathBuf),
}

type Model = BTreeMap<PathBuf, Seen>;

#[derive(Clone, Debug)]
enum Change {
    Write(usize, u8),
    /// Another content of the same size.
    Flip(usize),
    Delete(usize),
    Rename(usize, usize),
    Chmod(usize, u32),
    Link(usize, u8),
    MakeDirectory(usize),
    RemoveTree(usize),
    /// Looks at a path directly.
    Look(usize),
    Git(u8),
}

const PATHS: [&str; 14] = [
    "a",
    "b",
    "c.tmp",
    "d/a",
    "d/b",
    "d/e/a",
    "d/e/f/a",
    "d/e/f/b",
    "g",
    "g/a",
    "g/h/a",
    "i/j/k",
    "i/.hidden",
    "line\nbreak",
];

fn change() -> impl Strategy<Value = Change> {
    let path = || 0..PATHS.len();
    prop_oneof![
        5 => (path(), any::<u8>()).prop_map(|(path, seed)| Change::Write(path, seed)),
        3 => path().prop_map(Change::Flip),
        2 => path().prop_map(Change::Delete),
        2 => (path(), path()).prop_map(|(from, to)| Change::Rename(from, to)),
        1 => (path(), prop::sample::select(vec![0o644, 0o755, 0o600, 0o444]))
            .prop_map(|(path, mode)| Change::Chmod(path, mode)),
        1 => (path(), any::<u8>()).prop_map(|(path, target)| Change::Link(path, target)),
        1 => path().prop_map(Change::MakeDirectory),
        1 => path().prop_map(Change::RemoveTree),
        2 => path().prop_map(Change::Look),
        2 => any::<u8>().prop_map(Change::Git),
    ]
}

/// Applies a change. Changes that do not fit the tree do nothing. Returns what a direct look
/// found.
fn apply(fixture: &Fixture, change: &Change, uses_git: bool) -> Vec<Transition> {
    let path = |position: usize| fixture.path(PATHS[position]);
    let make_parent = |path: &Path| fs::create_dir_all(path.parent().unwrap()).is_ok();
    match *change {
        Change::Write(at, seed) => {
            let path = path(at);
            if make_parent(&path) && !path.is_symlink() {
                let size = usize::from(seed % 40);
                fs::write(path, vec![if seed % 7 == 0 { 0 } else { seed }; size]).ok();
            }
        }
        Change::Flip(at) => {
            let path = path(at);
            if !path.is_symlink()
                && let Ok(mut bytes) = fs::read(&path)
            {
                bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
                fs::write(path, bytes).unwrap();
            }
        }
        Change::Delete(at) => drop(fs::remove_file(path(at))),
        Change::Rename(from, to) => {
            if make_parent(&path(to)) {
                fs::rename(path(from), path(to)).ok();
            }
        }
        Change::Chmod(at, mode) => {
            if path(at).symlink_metadata().is_ok_and(|found| found.is_file()) {
                fs::set_permissions(path(at), fs::Permissions::from_mode(mode)).unwrap();
            }
        }
        Change::Link(at, target) => {
            if make_parent(&path(at)) {
                symlink(PATHS[usize::from(target) % PATHS.len()], path(at)).ok();
            }
        }
        Change::MakeDirectory(at) => drop(fs::create_dir_all(path(at))),
        Change::RemoveTree(at) => drop(fs::remove_dir_all(path(at).parent().unwrap().join("e"))),
        Change::Look(at) => return fixture.tracker.observe(&[path(at)]).unwrap().transitions,
        Change::Git(kind) if uses_git => apply_git(fixture, kind),
        Change::Git(_) => {}
    }
    Vec::new()
}

fn apply_git(fixture: &Fixture, kind: u8) {
    let run = |arguments: &[&str]| drop(git(&fixture.tracker.core.root, arguments));
    match kind % 5 {
        0 | 1 => {
            run(&["add", "-A"]);
            run(&["commit", "-qm", "more"]);
        }
        2 => run(&["checkout", "-qf", "HEAD~1"]),
        3 => run(&["stash", "-qu"]),
        _ => run(&["checkout", "-q", "--", "."]),
    }
}

fn model(root: &Path) -> Model {
    fn visit(root: &Path, directory: &Path, model: &mut Model) {
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            let (path, found) = (entry.path(), entry.path().symlink_metadata().unwrap());
            let seen = if entry.file_name() == ".git" || path.extension().is_some_and(|found| found == "tmp")
            {
                continue;
            } else if found.is_dir() {
                visit(root, &path, model);
                continue;
            } else if found.is_symlink() {
                Seen::Link(fs::read_link(&path).unwrap())
            } else {
                Seen::File(fs::read(&path).unwrap(), found.mode() & 0o7777)
            };
            model.insert(path.strip_prefix(root).unwrap().to_owned(), seen);
        }
    }
    let mut model = Model::new();
    visit(root, root, &mut model);
    model
}

fn seen(fixture: &Fixture, version: &FileVersion) -> Option<Seen> {
    match version {
        FileVersion::Absent => None,
        FileVersion::File { mode, .. } => {
            let content = content(&*fixture.storage, version).expect("a stored content");
            Some(Seen::File(content.to_vec(), *mode))
        }
        FileVersion::Link { target } => Some(Seen::Link(target.clone())),
        FileVersion::Unknown(reason) => panic!("unknown content: {reason:?}"),
    }
}

fn check(database: &Arc<TestDatabase>, batches: &[Vec<Change>], uses_git: bool) -> Result<(), TestCaseError> {
    let fixture = Fixture::with_database(database);
    let root = fixture.tracker.core.root.clone();
    fixture.write(".gitignore", "*.tmp\n");
    if uses_git {
        git(&root, &["init", "-q"]).unwrap();
    }
    let mut model_now = None;
    for batch in batches {
        let mut transitions = Vec::new();
        for change in batch {
            transitions.extend(apply(&fixture, change, uses_git));
        }
        let Some(old) = model_now.replace(model(&root)) else {
            if uses_git {
                apply_git(&fixture, 0);
                model_now = Some(model(&root));
            }
            fixture.record();
            // Direct looks may have seen other states before.
            fixture.tracker.observe_all().unwrap();
            continue;
        };
        transitions.extend(fixture.tracker.observe_all().unwrap());
        let mut replayed = old;
        for transition in transitions {
            let path = transition.path.strip_prefix(&root).unwrap().to_owned();
            if path.extension().is_some_and(|found| found == "tmp") {
                continue;
            }
            prop_assert_eq!(seen(&fixture, &transition.before), replayed.get(&path).cloned(), "{:?}", path);
            match seen(&fixture, &transition.after) {
                Some(after) => replayed.insert(path, after),
                None => replayed.remove(&path),
            };
        }
        prop_assert_eq!(&Some(replayed), &model_now);
    }
    prop_assert_eq!(fixture.tracker.observe_all().unwrap(), vec![]);
    Ok(())
}

fn batches() -> impl Strategy<Value = Vec<Vec<Change>>> {
    prop::collection::vec(prop::collection::vec(change(), 1..8), 2..7)
}

fn run(cases: u32, uses_git: bool) {
    let database = TestDatabase::new();
    let mut runner =
        TestRunner::new(ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() });
    runner.run(&batches(), |batches| check(&database, &batches, uses_git)).unwrap();
}

#[test]
fn transitions_lead_from_the_old_state_to_the_new_one() {
    run(60, false);
}

#[test]
fn transitions_lead_from_the_old_state_to_the_new_one_in_git() {
    run(12, true);
}
