use super::*;

const PATH: &str = "/project/main.rs";

fn text(content: &str) -> VersionedFile {
    VersionedFile::regular(content.as_bytes().to_vec(), 0o644)
}

fn chat() -> ChannelUri {
    ChannelUri::new("ahp-chat://default/x")
}

fn change(turn: &str, edit: TurnEdit, before: &VersionedFile, after: &VersionedFile) -> TurnChange {
    let (before, after) = (before.clone(), after.clone());
    TurnChange { chat: chat(), turn: turn.to_owned(), edit, before, after, new_parents: 0 }
}

fn file(turn: &str, path: &str, before: &VersionedFile, after: &VersionedFile) -> TurnChange {
    change(turn, TurnEdit::File(path.into()), before, after)
}

fn current<const N: usize>(files: [(&str, VersionedFile); N]) -> BTreeMap<PathBuf, VersionedFile> {
    files.into_iter().map(|(path, file)| (path.into(), file)).collect()
}

fn operation(plan: &PlannedChain) -> OperationRecord {
    let frame = RecordFrame {
        session: ChannelUri::new("ahp-session:/s"),
        operation: Uuid::new_v4(),
        source: EditSource::Undo,
        recorded_at: 1,
    };
    OperationRecord {
        id: frame.operation,
        session: frame.session.clone(),
        chat: None,
        label: "Undo".to_owned(),
        can_redo: true,
        roots: vec!["/root".into()],
        steps: plan.files.iter().map(|file| file.clone().into_step(&frame, 0)).collect(),
    }
}

/// Plans the redo of a plan, with the contents of the plan.
fn redo(plan: &PlannedChain, current: &BTreeMap<PathBuf, VersionedFile>, edited: &[&str]) -> PlannedChain {
    let read = |version: &FileVersion| {
        VersionedFile::read(version.clone(), |digest| {
            let found = plan.blobs.iter().find(|blob| blob.digest == digest);
            Ok::<_, ()>(found.map(|blob| blob.content.clone()))
        })
    };
    let edited = edited.iter().map(PathBuf::from).collect();
    redo_operation(&operation(plan), read, current, &edited, false).unwrap()
}

/// The files after a plan was carried out.
fn carried_out(
    plan: &PlannedChain,
    current: &BTreeMap<PathBuf, VersionedFile>,
) -> BTreeMap<PathBuf, VersionedFile> {
    let mut files = current.clone();
    for file in &plan.files {
        let content = file
            .after
            .stored_blob()
            .map(|digest| plan.blobs.iter().find(|blob| blob.digest == digest).unwrap().content.clone());
        assert_eq!(files[&file.path].version, file.before);
        files.insert(file.path.clone(), VersionedFile { version: file.after.clone(), content });
    }
    files
}

#[test]
fn turns_are_taken_back_newest_first_with_one_record_each() {
    let versions = [text("1\n2\n3\n4\n5\n"), text("a\n2\n3\n4\n5\n"), text("a\n2\n3\n4\nb\n")];
    let mine = current([(PATH, text("a\n2\nmine\n4\nb\n"))]);
    let turns = [file("t2", PATH, &versions[1], &versions[2]), file("t1", PATH, &versions[0], &versions[1])];
    let plan = undo_turns(&turns, &mine, false);
    assert_eq!(plan.refused, []);
    let between = text("a\n2\nmine\n4\n5\n").version;
    let last = text("1\n2\nmine\n4\n5\n").version;
    let [planned] = plan.files.as_slice() else { panic!("{plan:?}") };
    assert_eq!((&planned.before, &planned.after), (&mine[Path::new(PATH)].version, &last));
    let records: Vec<_> =
        planned.records.iter().map(|draft| (draft.turn.as_str(), &draft.before, &draft.after)).collect();
    assert_eq!(records, [("t2", &planned.before, &between), ("t1", &between, &last)]);
    // All contents, also the one in between.
    let blobs: HashSet<_> = plan.blobs.iter().map(|blob| blob.digest).collect();
    for version in [&planned.before, &between, &last] {
        assert!(blobs.contains(&version.stored_blob().unwrap()));
    }

    let undone = carried_out(&plan, &mine);
    let redone = redo(&plan, &undone, &[]);
    let turns: Vec<_> = redone.files[0].records.iter().map(|draft| draft.turn.as_str()).collect();
    assert_eq!(turns, ["t1", "t2"]);
    assert_eq!(carried_out(&redone, &undone), mine);
}

#[test]
fn redo_keeps_later_edits_of_other_lines() {
    let (before, after) = (text("1\n2\n3\n4\n5\n"), text("a\n2\n3\n4\n5\n"));
    let now = current([(PATH, after.clone())]);
    let plan = undo_turns(&[file("t1", PATH, &before, &after)], &now, false);
    let edited = current([(PATH, text("1\n2\n3\n4\nmine\n"))]);
    let redone = carried_out(&redo(&plan, &edited, &[]), &edited);
    assert_eq!(redone, current([(PATH, text("a\n2\n3\n4\nmine\n"))]));

    let conflict = current([(PATH, text("mine\n2\n3\n4\n5\n"))]);
    let refused = redo(&plan, &conflict, &[]).refused;
    assert_eq!(refused[0].1.reason, "main.rs was changed after the undo, in the same lines");
}

#[test]
fn redo_of_file_that_agent_edited_again_is_refused() {
    let (before, after) = (text("1\n"), text("2\n"));
    let now = current([(PATH, after.clone()), ("/project/b", after.clone())]);
    let turns = [file("t1", PATH, &before, &after), file("t1", "/project/b", &before, &after)];
    let plan = undo_turns(&turns, &now, false);
    let redone = redo(&plan, &carried_out(&plan, &now), &[PATH]);
    let [(path, refused)] = redone.refused.as_slice() else { panic!("{redone:?}") };
    assert_eq!(path, Path::new(PATH));
    assert_eq!(refused.reason, "the agent edited main.rs again after the undo");
    assert!(!refused.can_force);
    assert_eq!(redone.files.len(), 1);
}

#[test]
fn conflict_in_older_turn_refuses_whole_file_and_no_other() {
    let versions = [text("1\n2\n3\n"), text("a\n2\n3\n"), text("a\n2\nb\n")];
    let now = current([(PATH, text("mine\n2\nb\n")), ("/project/other", text("x\n"))]);
    let turns = [
        file("t2", PATH, &versions[1], &versions[2]),
        file("t2", "/project/other", &VersionedFile::absent(), &text("x\n")),
        file("t1", PATH, &versions[0], &versions[1]),
    ];
    let plan = undo_turns(&turns, &now, false);
    assert_eq!(plan.files.len(), 1);
    assert_eq!(plan.files[0].path, Path::new("/project/other"));
    let [(path, refused)] = plan.refused.as_slice() else { panic!("{plan:?}") };
    assert_eq!(path, Path::new(PATH));
    assert!(refused.can_force && refused.preview.is_some());
    let forced = undo_turns(&turns, &now, true);
    assert_eq!(forced.refused, []);
    assert_eq!(carried_out(&forced, &now)[Path::new(PATH)], versions[0]);
}

#[test]
fn rename_and_later_edit_are_taken_back_with_human_edit() {
    let versions = [text("1\n2\n3\n4\n5\n"), text("1\n2\n3\n4\nb\n")];
    let now = current([
        ("/project/old.rs", VersionedFile::absent()),
        ("/project/new.rs", text("mine\n2\n3\n4\nb\n")),
    ]);
    let rename = TurnEdit::Rename { from: "/project/old.rs".into(), to: "/project/new.rs".into() };
    let turns = [
        file("t2", "/project/new.rs", &versions[0], &versions[1]),
        change("t1", rename, &versions[0], &versions[0]),
    ];
    let plan = undo_turns(&turns, &now, false);
    let undone = carried_out(&plan, &now);
    let expected = current([
        ("/project/old.rs", text("mine\n2\n3\n4\n5\n")),
        ("/project/new.rs", VersionedFile::absent()),
    ]);
    assert_eq!(undone, expected);
    assert_eq!(carried_out(&redo(&plan, &undone, &[]), &undone), now);

    // A new file at the old path refuses both, and a change of the first turn, too.
    let mut occupied = now.clone();
    occupied.insert("/project/old.rs".into(), text("new\n"));
    let plan = undo_turns(&turns, &occupied, false);
    assert_eq!((plan.files.len(), plan.refused.len()), (0, 1));
}

#[test]
fn redo_of_rename_moves_later_edits_along() {
    let content = text("1\n2\n3\n");
    let now = current([("/project/old.rs", VersionedFile::absent()), ("/project/new.rs", content.clone())]);
    let rename = TurnEdit::Rename { from: "/project/old.rs".into(), to: "/project/new.rs".into() };
    let plan = undo_turns(&[change("t1", rename, &content, &content)], &now, false);
    let edited =
        current([("/project/old.rs", text("1\nmine\n3\n")), ("/project/new.rs", VersionedFile::absent())]);
    let redone = carried_out(&redo(&plan, &edited, &[]), &edited);
    let expected =
        current([("/project/old.rs", VersionedFile::absent()), ("/project/new.rs", text("1\nmine\n3\n"))]);
    assert_eq!(redone, expected);
    // If the new path is occupied, the old file is not deleted.
    let occupied = current([("/project/old.rs", content), ("/project/new.rs", text("other\n"))]);
    let redone = redo(&plan, &occupied, &[]);
    assert_eq!((redone.files.len(), redone.refused.len()), (0, 1));
}

#[test]
fn redo_of_rename_with_records_of_others_is_one_move() {
    let (moved, mine) = (text("1\n2\n3\n"), text("1\nmine\n3\n"));
    let absent = VersionedFile::absent;
    let now = current([("/project/old.rs", absent()), ("/project/new.rs", mine.clone())]);
    let rename = TurnEdit::Rename { from: "/project/old.rs".into(), to: "/project/new.rs".into() };
    let plan = undo_turns(&[change("t1", rename, &moved, &moved)], &now, false);
    let mut operation = operation(&plan);
    let old = operation.steps.iter_mut().find(|step| step.path.ends_with("old.rs")).unwrap();
    // The user's edit is recorded apart from the move.
    let mut records = vec![old.records[0].clone(), old.records[0].clone()];
    records[0].after = moved.version.clone();
    records[1].before = moved.version.clone();
    records[1].source = EditSource::External;
    old.records = records;
    let read = |version: &FileVersion| {
        let content = if *version == moved.version { &moved } else { &mine };
        VersionedFile::read(version.clone(), |_| Ok::<_, ()>(content.content.clone()))
    };
    let edited = text("1\nmine\n3\n4\n");
    let undone = current([("/project/old.rs", edited.clone()), ("/project/new.rs", absent())]);
    let redone = redo_operation(&operation, read, &undone, &HashSet::new(), false).unwrap();
    let expected = current([("/project/old.rs", absent()), ("/project/new.rs", edited)]);
    assert_eq!(carried_out(&redone, &undone), expected);
    // An edit of the agent at one of the paths refuses both.
    let again = HashSet::from([PathBuf::from("/project/old.rs")]);
    let refused = redo_operation(&operation, read, &undone, &again, false).unwrap();
    assert_eq!((refused.files.len(), refused.refused.len()), (0, 2));
}

#[test]
fn changes_that_cancel_out_need_no_write() {
    let (one, two) = (text("1\n"), text("2\n"));
    let turns = [file("t2", PATH, &two, &one), file("t1", PATH, &one, &two)];
    let plan = undo_turns(&turns, &current([(PATH, one.clone())]), false);
    assert_eq!(plan, PlannedChain::default());
}

#[test]
fn file_that_was_not_read_is_refused() {
    let plan = undo_turns(&[file("t1", PATH, &text("1\n"), &text("2\n"))], &current([]), true);
    assert_eq!(plan.files, []);
    assert!(!plan.refused[0].1.can_force);
}

#[test]
fn created_directories_are_removed_with_created_file() {
    let mut created = file("t1", PATH, &VersionedFile::absent(), &text("1\n"));
    created.new_parents = 2;
    let now = current([(PATH, text("1\n"))]);
    let plan = undo_turns(&[created], &now, false);
    assert_eq!(plan.files[0].removed_parents, 2);
    // The redo creates them again, and a second undo removes them again.
    let undone = carried_out(&plan, &now);
    let redone = redo(&plan, &undone, &[]);
    let frame =
        RecordFrame { session: chat(), operation: Uuid::new_v4(), source: EditSource::Redo, recorded_at: 1 };
    let step = redone.files[0].clone().into_step(&frame, 2);
    assert_eq!((step.records.len(), step.records[0].new_parents), (1, 2));
    assert_eq!(step.records[0].source, EditSource::Redo);
}
