//! Rejects phrases that are not plain technical English: unusual words, pronouns without a subject, and
//! possessives after "of". CONTRIBUTING.md describes the style.
//!
//! The list finds common mistakes only; it is not a grammar checker. `xtask/language-allowed.txt` lists the
//! places that may keep a phrase.

/// Path of the list of allowed places.
pub(super) const ALLOWED_PATH: &str = "xtask/language-allowed.txt";

/// Maximum number of allowed places.
const MAX_ALLOWED: usize = 20;

/// Alternatives for one word of a phrase.
type Alternatives = &'static [&'static str];

/// Rejected phrases, as sequences of words.
const PHRASES: &[&[Alternatives]] = &[
    &[&["whoever", "Whoever", "anew", "Anew", "nobody", "somebody"]],
    &[&["stay", "stays"], &["behind"]],
    &[&["came", "come", "comes"], &["about"]],
    &[&["led"], &["astray"]],
    &[&["end", "ends", "ended", "stop", "stops"], &["in"], &["order"]],
    &[&["end"], &["it"], &["in"], &["order"]],
    &[&["see", "sees"], &["to"], &["it"]],
    &[&["to"], &["the"], &["point"]],
    &[
        &["who", "Who"],
        &[
            "has", "is", "was", "waits", "asked", "came", "comes", "sent", "had", "takes", "wants", "does",
            "may", "reads", "hears", "looks",
        ],
    ],
    &[&["for"], &["ever"]],
    &[&["any"], &["more"]],
    &[&["what", "What"], &["comes", "came", "goes", "waits"]],
    &[&["what", "What"], &["is"], &["left"]],
    &[&["what", "What"], &["was"], &["told"]],
    &[&["what", "What"], &["may"], &["not"]],
    &[&["what", "What"], &["has"], &["to"]],
    &[&["is", "are"], &["to"], &["be"], &["had"]],
    &[&["by"], &["itself"], &["alone"]],
];

/// A negated noun, as in "is" followed by "no" and a noun; "there is no" and "is no longer" are accepted.
const NEGATED: &[Alternatives] = &[&["is", "are", "was", "were"], &["no"]];
const AFTER_NEGATION: [&str; 3] = ["longer", "more", "less"];

/// The start of a possessive after "of".
const POSSESSIVE: &[Alternatives] = &[&["of"], &["the", "a", "an"]];

/// Whether the language of a file is checked.
pub(super) fn is_checked(path: &str) -> bool {
    [".rs", ".ts", ".tsx", ".md"].iter().any(|end| path.ends_with(end))
}

/// A place that may keep a rejected phrase.
struct AllowedPlace<'a> {
    path: &'a str,
    part: &'a str,
}

/// Checks files, given as paths and texts, against the phrases. `allowed` is the text of the list of allowed
/// places.
pub(super) fn check(files: &[(String, String)], allowed: &str) -> Vec<String> {
    let (places, mut problems) = parse_allowed(allowed);
    let mut used = vec![false; places.len()];
    for (path, text) in files {
        for (index, line) in text.lines().enumerate() {
            let Some(phrase) = rejected_phrase(line) else { continue };
            let place = places.iter().position(|place| place.path == path && line.contains(place.part));
            match place.and_then(|place| used.get_mut(place)) {
                Some(used) => *used = true,
                None => problems
                    .push(format!("{path}:{}: reword \"{phrase}\" in plain technical English", index + 1)),
            }
        }
    }
    let unused = places.iter().zip(used).filter(|(_, used)| !used).map(|(place, _)| place);
    problems
        .extend(unused.map(|place| {
            format!("{ALLOWED_PATH}: unused entry `{}: {}`; remove it", place.path, place.part)
        }));
    problems
}

/// Parses the list of allowed places, with the problems of the list itself.
fn parse_allowed(text: &str) -> (Vec<AllowedPlace<'_>>, Vec<String>) {
    let (mut places, mut problems) = (Vec::new(), Vec::new());
    let mut previous = "";
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        if !line.is_empty() && !line.starts_with('#') {
            if !previous.starts_with('#') {
                problems.push(format!("{ALLOWED_PATH}:{number}: no reason; add a comment above the entry"));
            }
            match line.split_once(": ") {
                Some((path, part)) => places.push(AllowedPlace { path, part }),
                None => problems.push(format!("{ALLOWED_PATH}:{number}: expected `PATH: PART OF THE LINE`")),
            }
        }
        previous = line;
    }
    if places.len() > MAX_ALLOWED {
        let count = places.len();
        problems.push(format!("{ALLOWED_PATH}: {count} entries exceed the maximum of {MAX_ALLOWED}"));
    }
    (places, problems)
}

/// The first rejected phrase of a line.
fn rejected_phrase(line: &str) -> Option<&str> {
    let words = words(line);
    (0..words.len()).find_map(|start| {
        let rest = words.get(start..)?;
        let from = rest.first()?.start;
        let end = phrase_end(line, rest)
            .or_else(|| negation_end(line, rest))
            .or_else(|| possessive_end(line, rest))?;
        line.get(from..end)
    })
}

/// A word of a line: letters, digits and underscores.
#[derive(Clone, Copy)]
struct Word<'a> {
    text: &'a str,
    start: usize,
    end: usize,
}

/// Splits a line into words.
fn words(line: &str) -> Vec<Word<'_>> {
    let is_separator = |character: char| !character.is_alphanumeric() && character != '_';
    let mut words = Vec::new();
    let mut start = 0;
    for text in line.split_inclusive(is_separator) {
        let next = start + text.len();
        let text = text.trim_end_matches(is_separator);
        if !text.is_empty() {
            words.push(Word { text, start, end: start + text.len() });
        }
        start = next;
    }
    words
}

/// Where a phrase from [`PHRASES`] ends that starts with the first word.
fn phrase_end(line: &str, words: &[Word<'_>]) -> Option<usize> {
    PHRASES.iter().find_map(|phrase| sequence(line, words, phrase).map(|last| last.end))
}

/// Where a negated noun ends that starts with the first word.
fn negation_end(line: &str, words: &[Word<'_>]) -> Option<usize> {
    let no = sequence(line, words, NEGATED)?;
    let noun = words.get(NEGATED.len())?;
    let before = line.get(..words.first()?.start)?;
    let is_noun = noun.text.starts_with(|first: char| first.is_ascii_lowercase())
        && !AFTER_NEGATION.contains(&noun.text)
        && line.get(no.end..noun.start) == Some(" ");
    (is_noun && !before.ends_with("here ")).then_some(noun.end)
}

/// Where a possessive after "of" ends that starts with the first word and ends a clause.
fn possessive_end(line: &str, words: &[Word<'_>]) -> Option<usize> {
    let article = sequence(line, words, POSSESSIVE)?;
    let owner = words.get(POSSESSIVE.len())?;
    let is_owner = owner.text.bytes().all(|byte| byte.is_ascii_lowercase())
        && line.get(article.end..owner.start) == Some(" ");
    let after = line.get(owner.end..)?.strip_prefix("'s")?;
    (is_owner && after.starts_with(['.', ',', ';', ':', ')', '"'])).then_some(owner.end + 2)
}

/// The last word of a phrase, if the words start with it, separated by single spaces.
fn sequence<'a>(line: &str, words: &[Word<'a>], phrase: &[Alternatives]) -> Option<Word<'a>> {
    let mut last: Option<Word<'a>> = None;
    for (index, alternatives) in phrase.iter().enumerate() {
        let word = *words.get(index)?;
        let follows = last.is_none_or(|last| line.get(last.end..word.start) == Some(" "));
        if !follows || !alternatives.contains(&word.text) {
            return None;
        }
        last = Some(word);
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Examples are in text files, so that the check does not find them in this file.
    const REJECTED: &str = include_str!("../../tests/language/rejected.txt");
    const ACCEPTED: &str = include_str!("../../tests/language/accepted.txt");

    fn file(path: &str, text: &str) -> Vec<(String, String)> {
        vec![(path.to_owned(), text.to_owned())]
    }

    #[test]
    fn checks_rust_typescript_and_markdown() {
        for (path, expected) in [
            ("crates/core/src/host.rs", true),
            ("web/src/page.tsx", true),
            ("web/src/model.ts", true),
            ("README.md", true),
            ("scripts/test", false),
            ("web/package.json", false),
        ] {
            assert_eq!(is_checked(path), expected, "{path}");
        }
    }

    #[test]
    fn rejects_each_phrase() {
        for line in REJECTED.lines() {
            assert!(rejected_phrase(line).is_some(), "{line}");
        }
    }

    #[test]
    fn accepts_plain_text_and_similar_words() {
        for line in ACCEPTED.lines() {
            assert_eq!(rejected_phrase(line), None, "{line}");
        }
    }

    #[test]
    fn problem_names_line_and_phrase() {
        let first = REJECTED.lines().next().unwrap();
        let problems = check(&file("a.rs", &format!("fine\n// {first}\n")), "");
        assert_eq!(problems.len(), 1);
        assert!(problems[0].starts_with("a.rs:2: reword \"who"), "{problems:?}");
    }

    #[test]
    fn allowed_place_is_accepted_in_its_file_only() {
        let first = REJECTED.lines().next().unwrap();
        let allowed = format!("# A quotation.\na.rs: {first}\n");
        assert_eq!(check(&file("a.rs", first), &allowed), [""; 0]);
        assert_eq!(check(&file("b.rs", first), &allowed).len(), 2);
    }

    #[test]
    fn rejects_unused_unexplained_and_malformed_entries() {
        for (allowed, expected) in [
            ("# A reason.\na.rs: text", "unused entry `a.rs: text`"),
            ("a.rs text", "no reason"),
            ("# A reason.\na.rs", "expected `PATH: PART OF THE LINE`"),
        ] {
            let problems = check(&[], allowed);
            assert!(problems.iter().any(|problem| problem.contains(expected)), "{allowed}: {problems:?}");
        }
    }

    #[test]
    fn rejects_more_than_maximum_entries() {
        let entry = "# A reason.\na.rs: text\n";
        assert_eq!(parse_allowed(&entry.repeat(MAX_ALLOWED)).1, [""; 0]);
        assert_eq!(parse_allowed(&entry.repeat(MAX_ALLOWED + 1)).1.len(), 1);
    }
}
