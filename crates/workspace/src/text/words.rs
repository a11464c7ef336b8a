//! Differences inside of replaced lines, by words.

use std::time::Instant;

use similar::{Algorithm, DiffOp, DiffableStr as _, capture_diff_slices_deadline};

/// Parts of a line, in order: text, and whether it differs from the other side.
pub(super) type LineParts = Vec<(String, bool)>;

/// Least share of common characters, in percent, of lines whose differences are emphasised. Below
/// it, most words would be emphasised and a reader would see nothing.
const LEAST_COMMON_PERCENT: usize = 50;
/// Largest number of characters in one comparison.
const MOST_CHARACTERS: usize = 20_000;

/// Compares lines that replaced each other. Returns the parts of each old and each new line.
///
/// The same number of lines on both sides: each line is compared with its counterpart.
/// Otherwise all old lines are compared with all new lines.
pub(super) fn compare_words(
    old: &[&str],
    new: &[&str],
    deadline: Option<Instant>,
) -> (Vec<LineParts>, Vec<LineParts>) {
    if old.len() != new.len() {
        return compare_together(old, new, deadline);
    }
    let pairs = old.iter().zip(new);
    let (old, new): (Vec<_>, Vec<_>) =
        pairs.map(|(old, new)| compare_together(&[old], &[new], deadline)).unzip();
    (old.concat(), new.concat())
}

/// A line as one part without emphasis.
pub(super) fn plain(line: &str) -> LineParts {
    if line.is_empty() { Vec::new() } else { vec![(line.to_owned(), false)] }
}

fn compare_together(
    old: &[&str],
    new: &[&str],
    deadline: Option<Instant>,
) -> (Vec<LineParts>, Vec<LineParts>) {
    let unemphasised = || {
        let lines = |side: &[&str]| side.iter().map(|line| plain(line)).collect();
        (lines(old), lines(new))
    };
    let length: usize = old.iter().chain(new).map(|line| line.len()).sum();
    if length > MOST_CHARACTERS || is_past(deadline) {
        return unemphasised();
    }
    let mut old_words = words(old);
    let mut new_words = words(new);
    let old_texts: Vec<&str> = old_words.iter().map(|word| word.text).collect();
    let new_texts: Vec<&str> = new_words.iter().map(|word| word.text).collect();
    let ops = capture_diff_slices_deadline(Algorithm::Myers, &old_texts, &new_texts, deadline);
    for op in ops {
        if let DiffOp::Equal { old_index, new_index, len } = op {
            mark_common(&mut old_words, old_index, len);
            mark_common(&mut new_words, new_index, len);
        }
    }
    let all = || old_words.iter().chain(&new_words);
    let total: usize = all().map(Word::weight).sum();
    let common: usize = all().filter(|word| !word.differs).map(Word::weight).sum();
    if common * 100 < total * LEAST_COMMON_PERCENT {
        return unemphasised();
    }
    (parts(&old_words, old), parts(&new_words, new))
}

#[expect(clippy::disallowed_methods, reason = "limits a computation, which needs real time")]
fn is_past(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() > deadline)
}

/// A word, white space or punctuation of a line.
struct Word<'a> {
    text: &'a str,
    line: usize,
    differs: bool,
}

impl Word<'_> {
    /// Number of visible characters: equal indentation does not make lines similar.
    fn weight(&self) -> usize {
        self.text.chars().filter(|character| !character.is_whitespace()).count()
    }
}

/// Splits lines into words by the rules of Unicode, and additionally after the punctuation that
/// connects the parts of a path or member expression.
fn words<'a>(lines: &[&'a str]) -> Vec<Word<'a>> {
    let of_line = |(line, text): (usize, &&'a str)| {
        let text: &'a str = text;
        let words = text.tokenize_unicode_words().into_iter();
        let parts = words.flat_map(|word| word.split_inclusive(['.', ':', ',', '\'']));
        parts.map(move |text| Word { text, line, differs: true })
    };
    lines.iter().enumerate().flat_map(of_line).collect()
}

fn mark_common(words: &mut [Word<'_>], from: usize, length: usize) {
    for word in words.iter_mut().skip(from).take(length) {
        word.differs = false;
    }
}

/// Joins words into the parts of each line.
fn parts(words: &[Word<'_>], lines: &[&str]) -> Vec<LineParts> {
    let mut result: Vec<LineParts> = lines.iter().map(|_| LineParts::new()).collect();
    for (at, word) in words.iter().enumerate() {
        let Some(line) = result.get_mut(word.line) else { continue };
        let neighbour_differs = |at: Option<usize>| {
            let other = at.and_then(|at| words.get(at));
            other.is_some_and(|other| other.line == word.line && other.differs)
        };
        // White space between two different words is emphasised with them: one mark, not two.
        let between = word.weight() == 0
            && neighbour_differs(at.checked_sub(1))
            && neighbour_differs(at.checked_add(1));
        let differs = word.differs || between;
        match line.last_mut() {
            Some((text, emphasised)) if *emphasised == differs => text.push_str(word.text),
            _ => line.push((word.text.to_owned(), differs)),
        }
    }
    for line in &mut result {
        // The line as a whole is marked already.
        if let [(_, emphasised)] = line.as_mut_slice() {
            *emphasised = false;
        }
    }
    result
}

#[cfg(test)]
#[path = "words_tests.rs"]
mod tests;
