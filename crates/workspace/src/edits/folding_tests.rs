//! Folding with contents in memory.

use std::cell::RefCell;

use innkeeper_core::channel::ChannelUri;

use super::*;

#[derive(Default)]
struct Memory(RefCell<HashMap<BlobDigest, Bytes>>);

impl Contents for Memory {
    fn content(&self, digest: BlobDigest) -> Result<Option<Bytes>, EditStorageError> {
        Ok(self.0.borrow().get(&digest).cloned())
    }

    fn keep(&self, blob: StoredBlob) -> Result<(), EditStorageError> {
        self.0.borrow_mut().insert(blob.digest, blob.content);
        Ok(())
    }
}

impl Memory {
    fn file(&self, text: &str) -> FileVersion {
        self.file_with(text, 0o644)
    }

    fn file_with(&self, text: &str, mode: u32) -> FileVersion {
        let blob = StoredBlob::new(text.to_owned());
        let digest = blob.digest;
        self.keep(blob).unwrap();
        FileVersion::File { blob: digest, size: u64::try_from(text.len()).unwrap(), mode, stored: true }
    }
}

fn record(path: &str, source: EditSource, before: &FileVersion, after: &FileVersion) -> EditRecord {
    EditRecord {
        number: 1,
        session: ChannelUri::new("s:/1"),
        chat: ChannelUri::new("c:/1"),
        turn: "t".to_owned(),
        tool_call: None,
        source,
        path: PathBuf::from(path),
        before: before.clone(),
        after: after.clone(),
        new_parents: 0,
        overlaps: false,
        operation: None,
        recorded_at: 0,
    }
}

fn net(memory: &Memory, records: &[EditRecord]) -> Option<NetChange> {
    fold(records, memory).unwrap().into_values().next()
}

use EditSource::{External, Redo, Shell, Tool, Undo};

#[test]
fn consecutive_changes_are_one_change() {
    let memory = Memory::default();
    let [a, b, c] = ["a\n", "b\n", "c\n"].map(|text| memory.file(text));
    let found = net(&memory, &[record("/f", Tool, &a, &b), record("/f", Shell, &b, &c)]).unwrap();
    assert_eq!((&found.before, &found.after, found.mixed), (&a, &c, false));
    assert_eq!(found.sources, [Tool, Shell]);
    let back = net(&memory, &[record("/f", Tool, &a, &b), record("/f", Tool, &b, &a)]).unwrap();
    assert!(back.is_unchanged());
}

#[test]
fn changes_of_others_in_other_lines_are_left_out() {
    let memory = Memory::default();
    let texts = ["1\n2\n3\n4\n5\n", "A\n2\n3\n4\n5\n", "A\n2\n3\n4\nH\n", "A\n2\nB\n4\nH\n"];
    let [start, first, human, last] = texts.map(|text| memory.file(text));
    for with_external in [true, false] {
        let mut records = vec![record("/f", Tool, &start, &first)];
        if with_external {
            records.push(record("/f", External, &first, &human));
        }
        records.push(record("/f", Tool, &human, &last));
        let found = net(&memory, &records).unwrap();
        assert_eq!(found.after, memory.file("A\n2\nB\n4\n5\n"));
        assert!(!found.mixed);
    }
}

#[test]
fn changes_of_others_in_the_same_part_make_the_change_mixed() {
    let memory = Memory::default();
    let [a, b, c, d] = ["a\n", "b\n", "c\n", "d\n"].map(|text| memory.file(text));
    let found = net(&memory, &[record("/f", Tool, &a, &b), record("/f", Tool, &c, &d)]).unwrap();
    assert_eq!((found.after, found.mixed), (d.clone(), true));
    let [x, y, z] = [0o600, 0o755, 0o640].map(|mode| memory.file_with("b\n", mode));
    let found = net(&memory, &[record("/f", Tool, &a, &x), record("/f", Shell, &y, &z)]).unwrap();
    assert!(found.mixed);
    let gone = FileVersion::Absent;
    let found = net(&memory, &[record("/f", Tool, &a, &b), record("/f", Tool, &gone, &d)]).unwrap();
    assert_eq!((found.after, found.mixed), (d, true));
}

#[test]
fn change_that_is_recorded_twice_counts_once() {
    let memory = Memory::default();
    let gone = FileVersion::Absent;
    let link = FileVersion::Link { target: PathBuf::from("x") };
    let found =
        net(&memory, &[record("/f", Shell, &gone, &link), record("/f", Shell, &gone, &link)]).unwrap();
    assert_eq!((found.after, found.mixed), (link, false));
}

#[test]
fn only_agents_begin_a_change() {
    let memory = Memory::default();
    let (a, b) = (memory.file("a\n"), memory.file("b\n"));
    for source in [External, Undo, Redo] {
        assert_eq!(net(&memory, &[record("/f", source, &a, &b)]), None);
    }
}

#[test]
fn redo_restores_the_change_exactly_even_if_the_undo_was_forced() {
    let memory = Memory::default();
    let [a, b, human] = ["a\n", "b\n", "human\n"].map(|text| memory.file(text));
    let mut records = vec![record("/f", Tool, &a, &b), record("/f", Undo, &human, &a)];
    assert!(net(&memory, &records).unwrap().is_unchanged());
    records.push(record("/f", Redo, &a, &human));
    let found = net(&memory, &records).unwrap();
    assert_eq!((found.before, found.after, found.mixed), (a, b, false));
}

#[test]
fn unknown_content_is_never_equal() {
    let memory = Memory::default();
    let unknown = FileVersion::Unknown(UnknownContent::NotReady);
    let a = memory.file("a\n");
    let found = net(&memory, &[record("/f", Shell, &unknown, &a)]).unwrap();
    assert_eq!(found.not_undoable(), Some(UnknownContent::NotReady.explanation()));
    let found = net(&memory, &[record("/f", Shell, &unknown, &unknown)]).unwrap();
    assert!(!found.is_unchanged());
}

#[test]
fn deleted_and_created_files_of_equal_content_are_a_rename() {
    let memory = Memory::default();
    let gone = FileVersion::Absent;
    let (a, empty) = (memory.file("a\n"), memory.file(""));
    let records = [
        record("/old/name", Shell, &a, &gone),
        record("/other", Shell, &a, &gone),
        record("/new/name", Shell, &gone, &memory.file_with("a\n", 0o755)),
        record("/empty-1", Shell, &empty, &gone),
        record("/empty-2", Shell, &gone, &empty),
    ];
    let files = fold(&records, &memory).unwrap();
    let shown: Vec<String> = shown(files.values())
        .into_iter()
        .map(|change| match change {
            ShownChange::One(net) => net.path.display().to_string(),
            ShownChange::Renamed { from, to } => format!("{} to {}", from.path.display(), to.path.display()),
        })
        .collect();
    assert_eq!(shown, ["/empty-1", "/empty-2", "/old/name to /new/name", "/other"]);
}

#[test]
fn change_after_others_restored_the_file_starts_again() {
    let memory = Memory::default();
    let [start, first, last] = ["1\n2\n3\n", "A\n2\n3\n", "1\n2\nB\n"].map(|text| memory.file(text));
    for restored in [&start, &FileVersion::Absent] {
        for with_external in [true, false] {
            let mut records = vec![record("/f", Tool, restored, &first)];
            if with_external {
                records.push(record("/f", External, &first, restored));
            }
            records.push(record("/f", Shell, restored, &last));
            let found = net(&memory, &records).unwrap();
            assert_eq!((&found.before, &found.after, found.mixed), (restored, &last, false));
            assert_eq!(found.sources, [Shell]);
        }
    }
}
