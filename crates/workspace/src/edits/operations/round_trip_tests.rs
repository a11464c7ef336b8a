//! Plans and carries out an undo and its redo with random files.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;

use innkeeper_core::edits::{EditSource, EditStorage as _, FileVersion, OperationRecord};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use uuid::Uuid;

use super::testing::{Workbench, put, session, tree};
use super::{
    FaultPoints, PlannedChain, RecordFrame, TurnChange, TurnEdit, VersionedFile, apply, missing_parents,
    redo_operation, undo_turns,
};

/// The states of one file: before the turns, after each of the two turns, and now.
type FileStates = [VersionedFile; 4];

/// Ten lines; each byte of `changes` is a line and a new value.
fn content(base: &[u8], changes: &[(usize, u8)]) -> Vec<u8> {
    let mut lines = base.to_vec();
    for (line, value) in changes {
        lines[line % base.len()] = *value;
    }
    lines.iter().flat_map(|line| format!("line {line}\n").into_bytes()).collect()
}

fn version() -> impl Strategy<Value = VersionedFile> {
    let mode = prop_oneof![Just(0o644_u32), Just(0o755), Just(0o444), Just(0o600)];
    let lines = prop::collection::vec((0_usize..10, any::<u8>()), 0..3);
    prop_oneof![
        6 => (lines, mode.clone()).prop_map(|(changes, mode)| {
            VersionedFile::regular(content(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], &changes), mode)
        }),
        1 => (prop::collection::vec(any::<u8>(), 0..20), mode)
            .prop_map(|(content, mode)| VersionedFile::regular(content, mode)),
        1 => "[a-z]{1,8}".prop_map(VersionedFile::link),
        2 => Just(VersionedFile::absent()),
    ]
}

/// Often the file did not change since the last turn.
fn states() -> impl Strategy<Value = FileStates> {
    (version(), version(), version(), version(), any::<[bool; 2]>()).prop_map(|(a, b, c, d, same)| {
        let c = if same[0] { b.clone() } else { c };
        let d = if same[1] { c.clone() } else { d };
        [a, b, c, d]
    })
}

fn changes(root: &std::path::Path, files: &[FileStates]) -> Vec<TurnChange> {
    let mut changes = Vec::new();
    for (turn, index) in [("two", 1), ("one", 0)] {
        for (number, states) in files.iter().enumerate() {
            if states[index] != states[index + 1] {
                changes.push(TurnChange {
                    chat: session(),
                    turn: turn.to_owned(),
                    edit: TurnEdit::File(path(root, number)),
                    before: states[index].clone(),
                    after: states[index + 1].clone(),
                    new_parents: 0,
                });
            }
        }
    }
    changes
}

fn path(root: &std::path::Path, number: usize) -> PathBuf {
    root.join(format!("dir{}/file{number}", number % 3))
}

/// Carries a plan out. Returns the operation.
fn carry_out(bench: &Workbench, plan: &PlannedChain, source: EditSource) -> OperationRecord {
    let frame = RecordFrame { session: session(), operation: Uuid::new_v4(), source, recorded_at: 1 };
    let roots = vec![bench.root.clone()];
    let steps = plan.files.iter().map(|file| {
        let missing = missing_parents(&roots, &file.path);
        file.clone().into_step(&frame, missing)
    });
    let operation = OperationRecord {
        id: frame.operation,
        session: session(),
        chat: None,
        label: "Undo".to_owned(),
        can_redo: source == EditSource::Undo,
        roots: roots.clone(),
        steps: steps.collect(),
    };
    apply(&bench.storage, operation.clone(), plan.blobs.clone(), None, &FaultPoints::none()).unwrap();
    operation
}

/// The files as a plan leaves them.
fn planned(
    plan: &PlannedChain,
    current: &BTreeMap<PathBuf, VersionedFile>,
) -> BTreeMap<PathBuf, VersionedFile> {
    let mut files = current.clone();
    for file in &plan.files {
        let read = |digest| {
            let found = plan.blobs.iter().find(|blob| blob.digest == digest);
            Ok::<_, ()>(found.map(|blob| blob.content.clone()))
        };
        let after = VersionedFile::read(file.after.clone(), read).unwrap();
        assert!(after.content.is_some() || file.after.stored_blob().is_none(), "a content is missing");
        files.insert(file.path.clone(), after);
    }
    files
}

fn check(bench: &Workbench, files: &[FileStates], force: bool) -> Result<(), TestCaseError> {
    std::fs::remove_dir_all(&bench.root).unwrap();
    for directory in ["dir0", "dir1", "dir2"] {
        std::fs::create_dir_all(bench.path(directory)).unwrap();
    }
    let current: BTreeMap<PathBuf, VersionedFile> = files
        .iter()
        .enumerate()
        .map(|(number, states)| (path(&bench.root, number), states[3].clone()))
        .collect();
    for (path, file) in &current {
        put(path, file);
    }
    let before = tree(&bench.root);
    let plan = undo_turns(&changes(&bench.root, files), &current, force);
    let undo = carry_out(bench, &plan, EditSource::Undo);
    let undone = planned(&plan, &current);
    let refused: HashSet<&PathBuf> = plan.refused.iter().map(|(path, _)| path).collect();
    for (number, states) in files.iter().enumerate() {
        let path = path(&bench.root, number);
        if refused.contains(&path) {
            prop_assert!(!force);
            prop_assert_eq!(&undone[&path], &states[3]);
        } else if states[2] == states[3] {
            prop_assert_eq!(&undone[&path], &states[0], "not restored");
        }
    }
    // The disk has what the plan says.
    let reference = tempfile::tempdir().unwrap();
    for directory in ["dir0", "dir1", "dir2"] {
        std::fs::create_dir_all(reference.path().join(directory)).unwrap();
    }
    for (path, file) in &undone {
        put(&reference.path().join(path.strip_prefix(&bench.root).unwrap()), file);
    }
    prop_assert_eq!(tree(&bench.root), tree(reference.path()));

    let read = |version: &FileVersion| {
        VersionedFile::read(version.clone(), |digest| bench.storage.read_blob(digest))
    };
    let redo = redo_operation(&undo, read, &undone, &HashSet::new(), false).unwrap();
    prop_assert_eq!(&redo.refused, &Vec::new());
    carry_out(bench, &redo, EditSource::Redo);
    prop_assert_eq!(tree(&bench.root), before, "the redo did not restore the files");
    Ok(())
}

#[test]
fn redo_restores_files_as_they_were_before_undo() {
    let bench = Workbench::new();
    let config = ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() };
    let cases = (prop::collection::vec(states(), 1..8), any::<bool>());
    TestRunner::new(config).run(&cases, |(files, force)| check(&bench, &files, force)).unwrap();
}
