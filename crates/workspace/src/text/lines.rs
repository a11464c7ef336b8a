//! Lines of a content, and their numbers for fast comparison.

use std::collections::HashMap;

/// Bytes that are searched for NUL, as many as git searches.
const INSPECTED_BYTES: usize = 8_000;

/// Whether a content is text: no NUL byte in its first 8,000 bytes, as in git.
pub(crate) fn is_text(content: &[u8]) -> bool {
    !content.iter().take(INSPECTED_BYTES).any(|byte| *byte == 0)
}

/// Splits a content after each `\n`. The last line may lack it.
pub(super) fn split_lines(content: &[u8]) -> Vec<&[u8]> {
    content.split_inclusive(|byte| *byte == b'\n').collect()
}

/// Gives equal lines of several contents equal numbers, counted from 0.
#[derive(Debug, Default)]
pub(super) struct LineNumbers<'a> {
    known: HashMap<&'a [u8], usize>,
}

impl<'a> LineNumbers<'a> {
    /// The number of each line.
    pub(super) fn of(&mut self, lines: &[&'a [u8]]) -> Vec<usize> {
        lines
            .iter()
            .map(|line| {
                let next = self.known.len();
                *self.known.entry(line).or_insert(next)
            })
            .collect()
    }

    /// How many different lines there are.
    pub(super) fn distinct(&self) -> usize {
        self.known.len()
    }
}
