use proptest::prelude::*;

use super::*;

/// Parts as text, with emphasised parts in brackets.
fn shown(lines: &[LineParts]) -> Vec<String> {
    let part = |(text, emphasised): &(String, bool)| {
        if *emphasised { format!("[{text}]") } else { text.clone() }
    };
    lines.iter().map(|line| line.iter().map(part).collect()).collect()
}

fn compared(old: &[&str], new: &[&str]) -> (Vec<String>, Vec<String>) {
    let (old, new) = compare_words(old, new, None);
    (shown(&old), shown(&new))
}

#[test]
fn changed_words_of_similar_lines_are_emphasised() {
    for (old, new, old_shown, new_shown) in [
        ("let one = 1;", "let one = 2;", "let one = [1];", "let one = [2];"),
        ("self.read(path)", "self.write(path)", "self.[read](path)", "self.[write](path)"),
        ("call(first)", "call(first, second)", "call(first)", "call(first[, second])"),
        ("höher 日本 x y", "höher 日本 x z", "höher 日本 x [y]", "höher 日本 x [z]"),
        ("    return;", "        return;", "[    ]return;", "[        ]return;"),
    ] {
        let expected = (vec![old_shown.to_owned()], vec![new_shown.to_owned()]);
        assert_eq!(compared(&[old], &[new]), expected);
    }
}

#[test]
fn different_lines_have_no_emphasis() {
    let (old, new) = compared(&["    let value = 1;"], &["    return Err(error.into());"]);
    assert_eq!(old, ["    let value = 1;"]);
    assert_eq!(new, ["    return Err(error.into());"]);
}

#[test]
fn unequal_numbers_of_lines_are_compared_together() {
    let (old, new) = compared(&["call(one, two);"], &["call(", "one,", "three);"]);
    assert_eq!(old, ["call(one,[ two]);"]);
    assert_eq!(new, ["call(", "one,", "[three]);"]);
}

#[test]
fn very_long_lines_are_not_compared() {
    let old = "word ".repeat(3_000);
    let new = format!("{old}end");
    assert_eq!(compared(&[&old], &[&new]), (vec![old.clone()], vec![new.clone()]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parts_of_a_line_are_the_whole_line(
        old in prop::collection::vec("[a-c .\u{e9}\u{301}\u{65e5}]{0,12}", 0..4),
        new in prop::collection::vec("[a-c .\u{e9}\u{301}\u{65e5}]{0,12}", 0..4),
    ) {
        let old: Vec<&str> = old.iter().map(String::as_str).collect();
        let new: Vec<&str> = new.iter().map(String::as_str).collect();
        let (old_parts, new_parts) = compare_words(&old, &new, None);
        let joined = |lines: Vec<LineParts>| -> Vec<String> {
            let text = |line: LineParts| line.into_iter().map(|(text, _)| text).collect();
            lines.into_iter().map(text).collect()
        };
        prop_assert_eq!(joined(old_parts), old);
        prop_assert_eq!(joined(new_parts), new);
    }
}
