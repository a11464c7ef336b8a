use proptest::prelude::*;

use super::*;

/// Applies hunks to the old content.
fn apply(before: &[u8], after: &[u8], hunks: &[LineHunk]) -> Vec<u8> {
    let old = split_lines(before);
    let new = split_lines(after);
    let mut result = Vec::new();
    let mut next = 0;
    for hunk in hunks {
        append(&mut result, &old, next..hunk.before.start);
        append(&mut result, &new, hunk.after.clone());
        next = hunk.before.end;
    }
    append(&mut result, &old, next..old.len());
    result
}

/// Lines from single characters.
fn text(lines: &str) -> Vec<u8> {
    lines.chars().flat_map(|line| [line, '\n']).collect::<String>().into_bytes()
}

fn ranges(before: &str, after: &str) -> Vec<(Range<usize>, Range<usize>)> {
    let hunks = hunks(&text(before), &text(after));
    hunks.into_iter().map(|hunk| (hunk.before, hunk.after)).collect()
}

#[test]
fn counts_added_and_removed_lines() {
    for (before, after, expected) in [
        ("", "", (0, 0)),
        ("", "a\nb\n", (2, 0)),
        ("a\nb\n", "", (0, 2)),
        ("a", "a\n", (1, 1)),
        ("a\r\n", "a\n", (1, 1)),
        ("a\nb\nc\n", "a\nX\nc\n", (1, 1)),
        ("a\nb\nc\n", "c\na\nb\n", (1, 1)),
    ] {
        let counts = line_counts(before.as_bytes(), after.as_bytes()).unwrap();
        assert_eq!((counts.added, counts.removed), expected, "{before:?} → {after:?}");
    }
}

#[test]
fn binary_contents_have_no_counts() {
    assert_eq!(line_counts(b"a\0b", b"a"), None);
    assert_eq!(line_counts(b"a", b"a\0b"), None);
}

#[test]
fn hunk_in_a_run_of_equal_lines_is_at_its_end() {
    assert_eq!(ranges("aab", "aaab"), [(2..2, 2..3)]);
    assert_eq!(ranges("aaab", "ab"), [(1..3, 1..1)]);
    assert_eq!(ranges("x{}y", "x{}{}y"), [(3..3, 3..5)]);
}

#[test]
fn hunks_that_meet_after_moving_are_joined() {
    assert_eq!(ranges("aab", "aaaX"), [(2..3, 2..4)]);
}

#[test]
fn only_hunks_that_touch_the_range_are_reverted() {
    // a→A (line 0), deletion of c (before line 2), x inserted (line 3), f→F (line 5).
    let (before, after) = ("abcdef", "AbdxeF");
    for (lines, expected) in [
        (0..1, "abdxeF"),
        (0..0, "abdxeF"),
        (1..1, "abdxeF"),
        (1..2, "AbcdxeF"),
        (2..3, "AbcdxeF"),
        (2..2, "AbcdxeF"),
        (3..4, "AbdeF"),
        (4..5, "AbdxeF"),
        (5..6, "Abdxef"),
        (6..6, "Abdxef"),
        (5..900, "Abdxef"),
        (7..900, "AbdxeF"),
        (0..6, "abcdef"),
        (0..u64::MAX, "abcdef"),
    ] {
        let reverted = revert_lines(&text(before), &text(after), lines.clone());
        assert_eq!(reverted, text(expected), "{lines:?}");
    }
}

#[test]
fn range_at_the_end_of_the_file_reverts_a_deletion_there() {
    assert_eq!(revert_lines(&text("abc"), &text("ab"), 1..2), text("abc"));
    assert_eq!(revert_lines(&text("abc"), &text("ab"), 0..1), text("ab"));
    assert_eq!(revert_lines(&text("abc"), b"", 0..0), text("abc"));
    assert_eq!(revert_lines(b"a\nb", b"a\nb\n", 1..2), b"a\nb");
}

#[test]
fn approximate_pairs_are_equal_lines_in_order() {
    let line = |at: usize| at.wrapping_mul(at) % 97;
    let old: Vec<usize> = (0..900).map(line).collect();
    let new: Vec<usize> = (300..1_100).map(|at| line(at + at / 50)).collect();
    for search_time in [Duration::ZERO, Duration::from_secs(60)] {
        let pairs = approximate_common_lines(&old, &new, search_time);
        assert!(pairs.iter().all(|(one, other)| old[*one] == new[*other]));
        assert!(pairs.is_sorted_by(|one, next| one.0 < next.0 && one.1 < next.1));
        assert_eq!(search_time.is_zero(), pairs.len() < 100, "{} pairs", pairs.len());
    }
}

/// A content of few different lines, with and without a final line end.
fn content() -> impl Strategy<Value = Vec<u8>> {
    let line = prop::sample::select(vec![b"a\n".as_slice(), b"b\n", b"\n", b"c\r\n", b"\xff\n"]);
    let lines = prop::collection::vec(line, 0..40);
    (lines, prop::bool::ANY).prop_map(|(lines, ends)| {
        let mut content = lines.concat();
        if !ends {
            content.pop();
        }
        content
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn hunks_turn_old_content_into_new_content(before in content(), after in content()) {
        let hunks = hunks(&before, &after);
        prop_assert_eq!(apply(&before, &after, &hunks), after);
        prop_assert!(hunks.iter().all(|hunk| !(hunk.before.is_empty() && hunk.after.is_empty())));
        // At least one equal line is between two hunks.
        let apart = |one: &LineHunk, next: &LineHunk| {
            one.before.end < next.before.start && one.after.end < next.after.start
        };
        prop_assert!(hunks.is_sorted_by(apart));
    }

    #[test]
    fn each_reverted_range_contains_hunks_as_a_whole(
        before in content(),
        after in content(),
        start in 0..40_u64,
        length in 0..10_u64,
    ) {
        prop_assert_eq!(revert_lines(&before, &after, 0..u64::MAX), before.clone());
        let reverted = revert_lines(&before, &after, start..start + length);
        let all = hunks(&before, &after);
        let kept: Vec<LineHunk> = all
            .into_iter()
            .filter(|hunk| {
                let (first, last) = (hunk.after.start as u64, hunk.after.end as u64);
                last < start || first > start + length
                    || (length > 0 && first < last && (last == start || first == start + length))
            })
            .collect();
        prop_assert_eq!(reverted, apply(&before, &after, &kept));
    }
}
