use proptest::prelude::*;

use super::*;

fn merged(base: &str, ours: &str, theirs: &str) -> Merged {
    merge3(base.as_bytes(), ours.as_bytes(), theirs.as_bytes())
}

/// Lines from single characters; `_` in front of the last one omits its line end.
fn text(lines: &str) -> String {
    let (lines, end) = lines.split_once('_').map_or((lines, None), |(all, last)| (all, Some(last)));
    let mut text: String = lines.chars().flat_map(|line| [line, '\n']).collect();
    text.push_str(end.unwrap_or_default());
    text
}

#[test]
fn changes_of_different_lines_merge() {
    for (case, base, ours, theirs, expected) in [
        ("apart", "abc", "Abc", "abC", "AbC"),
        ("neighbours", "ab", "Ab", "aB", "AB"),
        ("neighbours, one grows", "abc", "Xxbc", "aYc", "XxYc"),
        ("neighbour deleted", "abc", "bc", "aBc", "Bc"),
        ("both delete neighbours", "abcd", "acd", "abd", "ad"),
        ("equal change", "abc", "aXc", "aXc", "aXc"),
        ("equal change and another", "abcde", "aXcdE", "aXcde", "aXcdE"),
        ("equal insertion", "ab", "aXb", "aXb", "aXb"),
        ("insertions apart", "abc", "Xabc", "abcY", "XabcY"),
        ("equal insertion in a run", "aaabc", "aaaabc", "aaaabC", "aaaabC"),
        ("line end removed, first line changed", "ab", "a_b", "Xb", "X_b"),
        ("deleted end without line end, first line changed", "ab_c", "ab", "Ab_c", "Ab"),
        ("emptied and unchanged", "ab", "", "ab", ""),
        ("created equally", "", "ab", "ab", "ab"),
    ] {
        let result = merged(&text(base), &text(ours), &text(theirs));
        assert_eq!(result, Merged::Clean(text(expected).into_bytes()), "{case}");
    }
}

#[test]
fn changes_at_the_same_position_conflict() {
    for (case, base, ours, theirs) in [
        ("same line", "abc", "aXc", "aYc"),
        ("deleted and changed", "abc", "ac", "aYc"),
        ("two insertions", "ab", "aXb", "aYb"),
        ("insertion after a changed line", "abc", "aBc", "abXc"),
        ("insertion before a changed line", "abc", "aBc", "aXbc"),
        ("insertion after deleted lines", "abcd", "ad", "abcXd"),
        ("insertion inside of deleted lines", "abcd", "ad", "abXcd"),
        ("neighbours that both grow", "ab", "Xxb", "aYy"),
        ("two different appends", "a", "ab", "ac"),
        ("append and lost line end", "ab", "abc", "a_b"),
        ("created differently", "", "a", "b"),
        ("insertion in a run whose line changes", "aaab", "aaaab", "aXab"),
    ] {
        for (ours, theirs) in [(ours, theirs), (theirs, ours)] {
            let result = merged(&text(base), &text(ours), &text(theirs));
            assert!(matches!(result, Merged::Conflict { conflicts: 1, .. }), "{case}: {result:?}");
        }
    }
}

#[test]
fn conflict_preview_shows_all_three_sides() {
    let result = merged("a\nb\nc", "a\nX\nc", "a\nY\nc");
    let preview = "a\n<<<<<<< current\nX\n||||||| agent's change\nb\n=======\nY\n\
                   >>>>>>> after the undo\nc";
    assert_eq!(result, Merged::Conflict { preview: preview.into(), conflicts: 1 });
}

#[test]
fn conflict_preview_ends_lines_before_markers() {
    let result = merged("b", "X", "Y");
    let preview = "<<<<<<< current\nX\n||||||| agent's change\nb\n=======\nY\n\
                   >>>>>>> after the undo\n";
    assert_eq!(result, Merged::Conflict { preview: preview.into(), conflicts: 1 });
}

#[test]
fn preview_counts_each_conflict() {
    let result = merged("a\nb\nc\nd\n", "1\nb\nc\n2\n", "3\nb\nc\n4\n");
    assert!(matches!(result, Merged::Conflict { conflicts: 2, .. }), "{result:?}");
}

#[test]
fn ambiguous_merge_is_one_conflict_of_the_changed_lines() {
    let lines = |numbers: &str| text(numbers).into_bytes();
    let (base, ours, theirs) = (lines("pdddbq"), lines("pXddXq"), lines("pdbdbq"));
    let Merged::Conflict { preview, conflicts: 1 } = merge3(&base, &ours, &theirs) else {
        panic!("an ambiguous change was merged");
    };
    assert!(preview.starts_with(b"p\n<<<<<<< current\n"));
    assert!(preview.ends_with(b">>>>>>> after the undo\nq\n"));
}

#[test]
fn binary_contents_merge_as_a_whole() {
    let (base, changed, other) = (b"\0a\nb\n".as_slice(), b"\0A\nb\n", b"\0a\nB\n");
    assert_eq!(merge3(base, base, changed), Merged::Clean(changed.to_vec()));
    assert_eq!(merge3(base, changed, base), Merged::Clean(changed.to_vec()));
    assert_eq!(merge3(base, changed, changed), Merged::Clean(changed.to_vec()));
    let Merged::Conflict { preview, conflicts: 1 } = merge3(base, changed, other) else {
        panic!("binary contents were merged by lines");
    };
    assert!(is_text(&preview));
}

/// A content of few different lines, so that runs and repetitions are frequent.
fn content() -> impl Strategy<Value = Vec<u8>> {
    let line = prop::sample::select(vec!["a\n", "b\n", "c\n", "\n", "d\r\n", "e\n"]);
    let lines = prop::collection::vec(line, 0..14);
    (lines, prop::bool::ANY).prop_map(|(lines, ends)| {
        let mut content = lines.concat().into_bytes();
        if !ends {
            content.pop();
        }
        content
    })
}

/// A change of some lines: for each line, keep, remove, replace, insert before it.
fn edited(base: &[u8], edits: &[(usize, u8)]) -> Vec<u8> {
    let mut lines: Vec<Vec<u8>> = split_lines(base).into_iter().map(<[u8]>::to_vec).collect();
    for (at, kind) in edits {
        let Some(line) = lines.get_mut(*at) else { continue };
        match kind % 4 {
            0 => line.clear(),
            1 => *line = b"X\n".to_vec(),
            2 => line.splice(0..0, *b"Y\n").for_each(drop),
            _ => *line = b"a\n".to_vec(),
        }
    }
    lines.concat()
}

fn edits() -> impl Strategy<Value = Vec<(usize, u8)>> {
    prop::collection::vec((0..14_usize, 0..4_u8), 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn unchanged_side_takes_the_other_side(base in content(), other in content()) {
        prop_assert_eq!(merge3(&base, &base, &other), Merged::Clean(other.clone()));
        prop_assert_eq!(merge3(&base, &other, &base), Merged::Clean(other.clone()));
        prop_assert_eq!(merge3(&base, &other, &other), Merged::Clean(other));
    }

    #[test]
    fn clean_merge_is_symmetric(base in content(), ours in edits(), theirs in edits()) {
        let (ours, theirs) = (edited(&base, &ours), edited(&base, &theirs));
        match (merge3(&base, &ours, &theirs), merge3(&base, &theirs, &ours)) {
            (Merged::Clean(one), Merged::Clean(other)) => prop_assert_eq!(one, other),
            (Merged::Conflict { conflicts: one, .. }, Merged::Conflict { conflicts: other, .. }) =>
                prop_assert_eq!(one, other),
            (one, other) => prop_assert!(false, "{:?} {:?}", one, other),
        }
    }

    /// The lines of a clean merge are the base lines plus the changes of both sides: each line
    /// occurs as often as the changes say, except for lines that both sides changed equally.
    #[test]
    fn clean_merge_adds_only_lines_that_a_side_added(base in content(), ours in edits(), theirs in edits()) {
        let (ours, theirs) = (edited(&base, &ours), edited(&base, &theirs));
        if let Merged::Clean(result) = merge3(&base, &ours, &theirs) {
            let occurs = |content: &[u8], line: &[u8]| {
                i64::try_from(split_lines(content).iter().filter(|other| **other == line).count()).unwrap()
            };
            for line in split_lines(&result) {
                let (in_base, in_ours) = (occurs(&base, line), occurs(&ours, line));
                let in_theirs = occurs(&theirs, line);
                let both = in_ours + in_theirs - in_base;
                let either = in_ours.max(in_theirs);
                prop_assert!(occurs(&result, line) <= both.max(either), "{:?} in {:?}", line, result);
            }
        }
    }

    /// Repeated lines make the place of an edit ambiguous. A merge may refuse it, but not guess.
    #[test]
    fn clean_merge_of_repeated_lines_has_both_edits(
        lines in prop::collection::vec(0..3_u8, 2..14),
        places in (0..14_usize, 0..14_usize),
        kinds in (0..4_u8, 0..4_u8),
    ) {
        let (our_place, their_place) = (places.0 % lines.len(), places.1 % lines.len());
        prop_assume!(our_place != their_place);
        let build = |our_edits: bool, their_edits: bool| {
            let edited = |line: u8, kind: u8, name: &str| match kind {
                0 => String::new(),
                1 => format!("{name}\n"),
                2 => format!("{name}\n{line}\n"),
                _ => format!("{name}\n{name} again\n"),
            };
            let line = |(at, line): (usize, &u8)| {
                if our_edits && at == our_place {
                    edited(*line, kinds.0, "ours")
                } else if their_edits && at == their_place {
                    edited(*line, kinds.1, "theirs")
                } else {
                    format!("{line}\n")
                }
            };
            lines.iter().enumerate().map(line).collect::<String>().into_bytes()
        };
        let (ours, theirs) = (build(true, false), build(false, true));
        prop_assume!(ours != theirs);
        if let Merged::Clean(result) = merge3(&build(false, false), &ours, &theirs) {
            prop_assert_eq!(result, build(true, true));
        }
    }

    #[test]
    fn disjoint_line_edits_are_both_applied(
        length in 2..60_usize,
        ours in prop::collection::btree_set(0..60_usize, 0..8),
        theirs in prop::collection::btree_set(0..60_usize, 0..8),
        removes in prop::bool::ANY,
    ) {
        let build = |our_edits: bool, their_edits: bool| {
            let line = |at: usize| match (ours.contains(&at), theirs.contains(&at)) {
                (true, false) if our_edits => format!("ours {at}\n"),
                (false, true) if their_edits && removes => String::new(),
                (false, true) if their_edits => format!("theirs {at}\n"),
                _ => format!("line {at}\n"),
            };
            (0..length).map(line).collect::<String>().into_bytes()
        };
        let result = merge3(&build(false, false), &build(true, false), &build(false, true));
        prop_assert_eq!(result, Merged::Clean(build(true, true)));
    }
}
