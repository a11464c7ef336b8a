use proptest::prelude::*;
use serde_json::json;

use super::*;

fn document(before: &str, after: &str) -> DiffDocument {
    diff_document(Some(before.as_bytes()), Some(after.as_bytes()))
}

/// A document as lines like those of a unified diff.
fn unified(document: &DiffDocument) -> Vec<String> {
    let mut result = Vec::new();
    for hunk in &document.hunks {
        result.push(format!("@ {} {}", hunk.old_start, hunk.new_start));
        for line in &hunk.lines {
            let text: String = line.parts.iter().map(|(text, _)| text.as_str()).collect();
            let mark = match line.kind {
                DocumentLineKind::Context => ' ',
                DocumentLineKind::Added => '+',
                DocumentLineKind::Removed => '-',
            };
            result.push(format!("{mark}{text}"));
        }
    }
    result
}

#[test]
fn json_has_the_documented_form() {
    let document = document("fn main() {\n  run(1);\n}", "fn main() {\n  run(2);\n}");
    let expected = json!({
        "binary": false,
        "added": 1,
        "removed": 1,
        "truncated": false,
        "hunks": [{
            "oldStart": 1,
            "newStart": 1,
            "lines": [
                { "kind": "context", "old": 1, "new": 1, "parts": [["fn main() {", false]] },
                { "kind": "removed", "old": 2,
                  "parts": [["  run(", false], ["1", true], [");", false]] },
                { "kind": "added", "new": 2,
                  "parts": [["  run(", false], ["2", true], [");", false]] },
                { "kind": "context", "old": 3, "new": 3, "parts": [["}", false]],
                  "noNewline": true },
            ],
        }],
    });
    assert_eq!(serde_json::to_value(&document).unwrap(), expected);
}

#[test]
fn near_changes_share_a_hunk_and_distant_ones_do_not() {
    let lines = |changed: &[usize]| -> String {
        let line = |at| if changed.contains(&at) { format!("X{at}\n") } else { format!("{at}\n") };
        (1..=20).map(line).collect()
    };
    let near = unified(&document(&lines(&[]), &lines(&[5, 12])));
    assert_eq!(near.iter().filter(|line| line.starts_with('@')).count(), 1);
    let distant = unified(&document(&lines(&[]), &lines(&[5, 13])));
    assert_eq!(
        distant,
        [
            "@ 2 2", " 2", " 3", " 4", "-5", "+X5", " 6", " 7", " 8", "@ 10 10", " 10", " 11", " 12", "-13",
            "+X13", " 14", " 15", " 16"
        ]
    );
}

#[test]
fn absent_side_is_shown_as_added_or_removed_lines() {
    let created = diff_document(None, Some(b"a\nb"));
    assert_eq!(unified(&created), ["@ 0 1", "+a", "+b"]);
    assert_eq!((created.added, created.removed), (2, 0));
    let deleted = diff_document(Some(b"a\n"), None);
    assert_eq!(unified(&deleted), ["@ 1 0", "-a"]);
    assert_eq!(diff_document(None, None).hunks, []);
}

#[test]
fn changed_line_ends_are_visible() {
    let removed_end = document("a\n", "a");
    let flags = removed_end.hunks.iter().flat_map(|hunk| &hunk.lines).map(|line| line.no_newline);
    assert_eq!(flags.collect::<Vec<_>>(), [false, true]);
    assert_eq!(unified(&document("a\r\n", "a\n")), ["@ 1 1", "-a\r", "+a"]);
}

#[test]
fn binary_content_has_no_hunks() {
    let document = diff_document(Some(b"a\0"), Some(b"b\n"));
    assert!(document.binary);
    assert_eq!(document.hunks, []);
    assert_eq!((document.added, document.removed), (0, 0));
}

#[test]
fn invalid_utf8_is_replaced() {
    let document = diff_document(None, Some(b"\xff\xfea\n"));
    assert_eq!(unified(&document), ["@ 0 1", "+\u{fffd}\u{fffd}a"]);
}

#[test]
fn long_line_is_cut_with_a_mark() {
    let document = document("", &format!("{}\n", "é".repeat(2_012)));
    let line = &document.hunks[0].lines[0];
    assert_eq!(line.parts[0], ("é".repeat(2_000), false));
    assert_eq!(line.parts[1], (" … (12 more characters)".to_owned(), false));
    assert_eq!(line.parts.len(), 2);
}

#[test]
fn document_ends_after_its_limit_and_keeps_the_counts() {
    let after: String = (0..30_000).map(|line| format!("{line}\n")).collect();
    let document = document("", &after);
    assert!(document.truncated);
    assert_eq!(document.added, 30_000);
    assert_eq!(document.hunks.iter().map(|hunk| hunk.lines.len()).sum::<usize>(), MOST_LINES);
    let exact: String = (0..20_000).map(|line| format!("{line}\n")).collect();
    assert!(!diff_document(None, Some(exact.as_bytes())).truncated);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Line numbers name the line that is shown, and applying the lines of the document to the
    /// old content gives the new content.
    #[test]
    fn document_lines_turn_old_content_into_new_content(
        before in prop::collection::vec("[abc]{0,1}", 0..40),
        after in prop::collection::vec("[abc]{0,1}", 0..40),
    ) {
        let content = |lines: &[String]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
        let document = document(&content(&before), &content(&after));
        let mut result: Vec<String> = Vec::new();
        let mut next = 0;
        for line in document.hunks.iter().flat_map(|hunk| &hunk.lines) {
            let text: String = line.parts.iter().map(|(text, _)| text.as_str()).collect();
            if let Some(old) = line.old {
                prop_assert_eq!(&before[old - 1], &text);
                result.extend_from_slice(&before[next..old - 1]);
                next = old;
            }
            if let Some(new) = line.new {
                prop_assert_eq!(&after[new - 1], &text);
                if line.old.is_none() && next < before.len() {
                    // Unchanged lines between two hunks precede an added line.
                    let missing = new - 1 - result.len();
                    result.extend_from_slice(&before[next..next + missing]);
                    next += missing;
                }
                result.push(text);
            }
        }
        result.extend_from_slice(&before[next..]);
        prop_assert_eq!(result, after);
    }
}
