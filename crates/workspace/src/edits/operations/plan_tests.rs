use std::path::Path;

use proptest::prelude::*;

use super::*;

const MODE: u32 = 0o644;

fn text(content: &str) -> VersionedFile {
    VersionedFile::regular(content.as_bytes().to_vec(), MODE)
}

fn with_mode(content: &str, mode: u32) -> VersionedFile {
    VersionedFile::regular(content.as_bytes().to_vec(), mode)
}

fn unknown(reason: UnknownContent) -> VersionedFile {
    VersionedFile { version: FileVersion::Unknown(reason), content: None }
}

/// A file that was too large to be stored.
fn unstored(content: &str) -> VersionedFile {
    let mut file = text(content);
    if let FileVersion::File { stored, .. } = &mut file.version {
        *stored = false;
    }
    file.content = None;
    file
}

fn edit<'a>(before: &'a VersionedFile, after: &'a VersionedFile) -> NetEdit<'a> {
    NetEdit { origin: TakenBack::AgentEdit, path: Path::new("/project/main.rs"), before, after }
}

fn refusal(planned: PlannedFile) -> (String, bool) {
    match planned {
        PlannedFile::Refused(refused) => (refused.reason, refused.can_force),
        PlannedFile::Unchanged | PlannedFile::Write(_) => panic!("not refused: {planned:?}"),
    }
}

#[test]
fn undo_of_unchanged_file_restores_other_version() {
    let link = VersionedFile::link("there");
    let binary = VersionedFile::regular(vec![0, 1, 2], MODE);
    let absent = VersionedFile::absent();
    let versions = [text("a\n"), text(""), with_mode("a\n", 0o755), link, binary, absent];
    for before in &versions {
        for after in &versions {
            for force in [false, true] {
                let planned = undo_file(&edit(before, after), after, force);
                let expected =
                    if before == after { PlannedFile::Unchanged } else { PlannedFile::Write(before.clone()) };
                assert_eq!(planned, expected, "{before:?} {after:?}");
                assert_eq!(undo_file(&edit(before, after), before, force), PlannedFile::Unchanged);
            }
        }
    }
}

#[test]
fn human_edits_of_other_lines_survive() {
    let before = text("1\n2\n3\n4\n5\n");
    let after = text("1\n2\n3\n4\nfive\n");
    let current = text("one\n2\n3\n4\nfive\n");
    for force in [false, true] {
        let planned = undo_file(&edit(&before, &after), &current, force);
        assert_eq!(planned, PlannedFile::Write(text("one\n2\n3\n4\n5\n")));
    }
}

#[test]
fn undo_by_hand_and_further_edit_changes_nothing() {
    let (before, after) = (text("1\n2\n3\n4\n"), text("1\n2\n3\nx\n"));
    let current = text("one\n2\n3\n4\n");
    assert_eq!(undo_file(&edit(&before, &after), &current, false), PlannedFile::Unchanged);
}

#[test]
fn conflict_in_same_lines_is_refused_with_preview() {
    let (before, after, current) = (text("1\nold\n3\n"), text("1\nnew\n3\n"), text("1\nmine\n3\n"));
    let planned = undo_file(&edit(&before, &after), &current, false);
    let PlannedFile::Refused(refused) = planned else { panic!("not refused: {planned:?}") };
    assert_eq!(refused.reason, "main.rs was changed after the agent's edit, in the same lines");
    assert!(refused.can_force);
    let preview = String::from_utf8(refused.preview.unwrap()).unwrap();
    for line in ["1\n", "mine\n", "new\n", "old\n", "3\n", "<<<<<<<", ">>>>>>>"] {
        assert!(preview.contains(line), "{line:?} is missing in {preview}");
    }
    assert_eq!(undo_file(&edit(&before, &after), &current, true), PlannedFile::Write(before));
}

#[test]
fn conflicts_without_lines_are_refused_with_their_reason() {
    let (absent, link) = (VersionedFile::absent(), VersionedFile::link("x"));
    let binary = |byte| VersionedFile::regular(vec![0, byte], MODE);
    let file = text("a\n");
    let cases = [
        (&file, &text("b\n"), &absent, "main.rs was deleted after the agent's edit"),
        (&absent, &file, &text("c\n"), "main.rs was changed after the agent's edit"),
        (&absent, &file, &with_mode("a\n", 0o755), "main.rs was changed after the agent's edit"),
        (&file, &absent, &text("c\n"), "main.rs was created again after the agent's edit"),
        (&file, &link, &VersionedFile::link("y"), "main.rs was changed after the agent's edit"),
        (&link, &file, &text("c\n"), "main.rs was changed after the agent's edit"),
        (
            &binary(1),
            &binary(2),
            &binary(3),
            "main.rs was changed after the agent's edit, and binary files cannot be merged",
        ),
        (
            &with_mode("a\n", 0o644),
            &with_mode("b\n", 0o755),
            &with_mode("b\n", 0o600),
            "the permissions of main.rs were changed after the agent's edit",
        ),
    ];
    for (before, after, current, reason) in cases {
        let planned = undo_file(&edit(before, after), current, false);
        assert_eq!(refusal(planned), (reason.to_owned(), true));
        assert_eq!(undo_file(&edit(before, after), current, true), PlannedFile::Write(before.clone()));
    }
}

#[test]
fn modes_are_merged_with_content() {
    let cases = [
        // The agent's chmod is taken back, the user's edit stays.
        ((0o644, "1\n2\n"), (0o755, "1\n2\n"), (0o755, "1\nx\n"), (0o644, "1\nx\n")),
        // The user's chmod stays, the agent's edit is taken back.
        ((0o644, "1\n2\n"), (0o644, "1\nx\n"), (0o755, "1\nx\n"), (0o755, "1\n2\n")),
        // Both changed the mode in the same way, and the user changed it back.
        ((0o644, "1\n2\n"), (0o755, "1\nx\n"), (0o644, "1\nx\n"), (0o644, "1\n2\n")),
    ];
    for (before, after, current, expected) in cases {
        let file = |(mode, content): (u32, &str)| with_mode(content, mode);
        let planned = undo_file(&edit(&file(before), &file(after)), &file(current), false);
        assert_eq!(planned, PlannedFile::Write(file(expected)));
    }
}

#[test]
fn unavailable_contents_are_refused_with_explanation() {
    let (file, other, third) = (text("a\n"), text("b\n"), text("c\n"));
    let lost = VersionedFile { content: None, ..text("lost\n") };
    let not_ready = unknown(UnknownContent::NotReady);
    let before = |explanation: &str| {
        format!("the content of main.rs before the agent's edit is not available: {explanation}")
    };
    for (version, reason) in [
        (&not_ready, UnknownContent::NotReady),
        (&unstored("x\n"), UnknownContent::FileTooLarge),
        (&lost, UnknownContent::Evicted),
    ] {
        for force in [false, true] {
            let planned = undo_file(&edit(version, &other), &other, force);
            assert_eq!(refusal(planned), (before(reason.explanation()), false));
        }
        let (reason, can_force) = refusal(undo_file(&edit(&file, version), &third, false));
        assert!(reason.starts_with("the content of main.rs after the agent's edit is not available"));
        assert!(can_force);
        assert_eq!(undo_file(&edit(&file, version), &third, true), PlannedFile::Write(file.clone()));
        let (reason, can_force) = refusal(undo_file(&edit(&file, &other), version, true));
        assert!(reason.starts_with("the current content of main.rs cannot be kept for a redo"), "{reason}");
        assert!(!can_force);
    }
}

#[test]
fn range_undo_reverts_only_touched_hunks() {
    let before = text("1\n2\n3\n4\n5\n6\n7\n");
    let after = text("one\n2\n3\n4\n5\n6\nseven\n");
    let current = text("one\n2\n3\nmine\n5\n6\nseven\n");
    let undo = |lines| undo_lines(&edit(&before, &after), &current, lines, false);
    assert_eq!(undo(0..1), PlannedFile::Write(text("1\n2\n3\nmine\n5\n6\nseven\n")));
    assert_eq!(undo(6..7), PlannedFile::Write(text("one\n2\n3\nmine\n5\n6\n7\n")));
    assert_eq!(undo(0..7), PlannedFile::Write(text("1\n2\n3\nmine\n5\n6\n7\n")));
    assert_eq!(undo(2..4), PlannedFile::Unchanged);
    let conflict = text("changed\n2\n3\n4\n5\n6\nseven\n");
    let planned = undo_lines(&edit(&before, &after), &conflict, 0..1, false);
    assert_eq!(refusal(planned).0, "main.rs was changed after the agent's edit, in the same lines");
}

#[test]
fn range_undo_keeps_mode_and_removes_empty_created_file() {
    let (absent, created) = (VersionedFile::absent(), with_mode("1\n2\n", 0o755));
    let undo = |lines| undo_lines(&edit(&absent, &created), &created, lines, false);
    assert_eq!(undo(0..2), PlannedFile::Write(VersionedFile::absent()));
    let before = with_mode("1\n2\n3\n4\n", 0o644);
    let after = with_mode("x\n2\n3\ny\n", 0o755);
    let planned = undo_lines(&edit(&before, &after), &after, 0..1, false);
    assert_eq!(planned, PlannedFile::Write(with_mode("1\n2\n3\ny\n", 0o755)));
}

#[test]
fn range_undo_of_files_without_lines_is_refused() {
    let binary = VersionedFile::regular(vec![0, 1], MODE);
    let file = text("a\n");
    let cases = [
        (&binary, &file, "main.rs is a binary file; undo the whole file"),
        (&file, &binary, "main.rs is a binary file; undo the whole file"),
        (&file, &VersionedFile::absent(), "main.rs does not consist of lines; undo the whole file"),
        (&VersionedFile::link("x"), &file, "main.rs does not consist of lines; undo the whole file"),
    ];
    for (before, after, reason) in cases {
        assert_eq!(refusal(undo_lines(&edit(before, after), after, 0..1, true)), (reason.to_owned(), false));
    }
}

fn rename(current_old: &VersionedFile, current_new: &VersionedFile, force: bool) -> PlannedRename {
    let moved = text("1\n2\n3\n");
    undo_rename(&edit(&moved, &moved), Path::new("/project/old.rs"), current_old, current_new, force)
}

#[test]
fn undo_of_rename_moves_current_content_back() {
    let (absent, moved, edited) = (VersionedFile::absent(), text("1\n2\n3\n"), text("1\nmine\n3\n"));
    for current in [&moved, &edited] {
        let expected = PlannedRename::Move {
            old: PlannedFile::Write(current.clone()),
            new: PlannedFile::Write(absent.clone()),
        };
        assert_eq!(rename(&absent, current, false), expected);
    }
    let unchanged = PlannedRename::Move { old: PlannedFile::Unchanged, new: PlannedFile::Unchanged };
    assert_eq!(rename(&moved, &absent, false), unchanged);
}

#[test]
fn undo_of_rename_does_not_overwrite_new_file_at_old_path() {
    let (moved, other) = (text("1\n2\n3\n"), text("other\n"));
    let PlannedRename::Refused(refused) = rename(&other, &moved, false) else { panic!("not refused") };
    assert_eq!(refused.reason, "old.rs was created again after the agent's edit");
    assert!(refused.can_force);
    assert!(matches!(rename(&other, &moved, true), PlannedRename::Move { .. }));
    let lost = unknown(UnknownContent::FileTooLarge);
    let PlannedRename::Refused(refused) = rename(&lost, &moved, true) else { panic!("not refused") };
    assert!(!refused.can_force);
}

#[test]
fn undo_of_rename_after_deletion_of_new_file_needs_force() {
    let (absent, moved) = (VersionedFile::absent(), text("1\n2\n3\n"));
    let before = text("1\n2\n3\n");
    // Renamed and changed in one turn.
    let after = text("1\n2\nthree\n");
    let undo =
        |force| undo_rename(&edit(&before, &after), Path::new("/project/old.rs"), &absent, &absent, force);
    let PlannedRename::Refused(refused) = undo(false) else { panic!("not refused") };
    assert_eq!(refused.reason, "main.rs was deleted after the agent's edit");
    let expected = PlannedRename::Move { old: PlannedFile::Write(moved), new: PlannedFile::Unchanged };
    assert_eq!(undo(true), expected);
}

/// Lines that differ from each other, so that edits of different lines do not meet.
fn lines() -> impl Strategy<Value = Vec<String>> {
    (12_usize..30).prop_map(|count| (0..count).map(|number| format!("line {number}\n")).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn unrelated_human_edits_survive_undo_and_redo(
        lines in lines(),
        agent in prop::collection::vec(0_usize..5, 1..4),
        human in 8_usize..11,
        executable in any::<bool>(),
    ) {
        let change = |lines: &[String], at: &[usize], word: &str| {
            let mut lines = lines.to_vec();
            for at in at {
                lines[*at] = format!("{word} {at}\n");
            }
            lines
        };
        let mode = if executable { 0o755 } else { 0o644 };
        let file = |lines: &[String], mode| with_mode(&lines.concat(), mode);
        let after = change(&lines, &agent, "agent");
        let current = change(&after, &[human], "human");
        let expected = change(&lines, &[human], "human");
        let (b, a) = (file(&lines, 0o644), file(&after, mode));
        let undone = undo_file(&edit(&b, &a), &file(&current, mode), false);
        prop_assert_eq!(&undone, &PlannedFile::Write(file(&expected, 0o644)));
        let PlannedFile::Write(undone) = undone else { unreachable!() };
        let redo = NetEdit { origin: TakenBack::Undo, before: &file(&current, mode), after: &undone, path: Path::new("x") };
        prop_assert_eq!(undo_file(&redo, &undone, false), PlannedFile::Write(file(&current, mode)));
    }

    #[test]
    fn changed_binary_files_are_never_overwritten(
        before in prop::collection::vec(0_u8..3, 0..6),
        after in prop::collection::vec(0_u8..3, 0..6),
        current in prop::collection::vec(0_u8..3, 0..6),
        lines in 0_u64..5,
    ) {
        let file = |content: &[u8]| VersionedFile::regular(content.to_vec(), MODE);
        let (b, a, c) = (file(&before), file(&after), file(&current));
        let is_text = [&before, &after, &current].into_iter().all(|content| !content.contains(&0));
        match undo_file(&edit(&b, &a), &c, false) {
            PlannedFile::Write(target) => prop_assert!(is_text || (current == after && target == b)),
            PlannedFile::Unchanged => prop_assert!(is_text || current == before || after == before),
            PlannedFile::Refused(refused) => {
                prop_assert!(current != after && current != before);
                prop_assert!(refused.can_force);
            }
        }
        if let PlannedFile::Write(target) = undo_lines(&edit(&b, &a), &c, lines..lines + 2, false) {
            prop_assert!(is_text && target != c);
        }
    }
}
