//! The search for a longest common subsequence of lines.
//!
//! Computes a row of the usual length table with one bit per line: a bit of a row is 0 if the
//! common subsequence becomes longer at this line of the old content (Hyyrö's bit-parallel
//! method). Only words that contain a matching line or a carry are touched. The table is split
//! in halves (Hirschberg's method) until its rows fit into a small buffer. The result is exact
//! and depends on the contents only, not on the clock.

use std::ops::Range;

/// Lines per word of a row.
const WORD: usize = 64;
/// Words of rows that are stored to trace back a part of the table; 256 KiB.
const STORED_WORDS: usize = 32 * 1024;
/// Ends a list in [`MatchMasks`].
const NONE: usize = usize::MAX;

/// Pairs of positions of a longest common subsequence, in order. All line numbers are lower than
/// `distinct`.
pub(super) fn longest_common_lines(old: &[usize], new: &[usize], distinct: usize) -> Vec<(usize, usize)> {
    let mut search = LineSearch { old, new, masks: MatchMasks::new(distinct), pairs: Vec::new() };
    search.solve(0..old.len(), 0..new.len());
    search.pairs
}

/// State of one search.
struct LineSearch<'a> {
    old: &'a [usize],
    new: &'a [usize],
    masks: MatchMasks,
    pairs: Vec<(usize, usize)>,
}

impl LineSearch<'_> {
    /// Finds the pairs of a part of the table. The depth of the recursion is the logarithm of
    /// the number of new lines.
    fn solve(&mut self, old: Range<usize>, new: Range<usize>) {
        let old_lines = self.old.get(old.clone()).unwrap_or_default();
        let new_lines = self.new.get(new.clone()).unwrap_or_default();
        let equal = |(one, other): &(&usize, &usize)| one == other;
        let prefix = old_lines.iter().zip(new_lines).take_while(equal).count();
        let old_rest = old_lines.get(prefix..).unwrap_or_default();
        let new_rest = new_lines.get(prefix..).unwrap_or_default();
        let from_end = old_rest.iter().rev().zip(new_rest.iter().rev());
        let suffix = from_end.take_while(equal).count();

        self.pairs.extend(old.clone().zip(new.clone()).take(prefix));
        let old_middle = old.start + prefix..old.end - suffix;
        let new_middle = new.start + prefix..new.end - suffix;
        if !old_middle.is_empty() && !new_middle.is_empty() {
            let words = old_middle.len().div_ceil(WORD);
            if new_middle.len() == 1 || words.saturating_mul(new_middle.len()) <= STORED_WORDS {
                self.trace(old_middle, new_middle);
            } else {
                let middle = new_middle.start + new_middle.len() / 2;
                let split = self.best_split(&old_middle, &new_middle, middle);
                self.solve(old_middle.start..split, new_middle.start..middle);
                self.solve(split..old_middle.end, middle..new_middle.end);
            }
        }
        let tail = (old.end - suffix..old.end).zip(new.end - suffix..new.end);
        self.pairs.extend(tail);
    }

    /// The old line at which the table is split, for a given new line.
    fn best_split(&mut self, old: &Range<usize>, new: &Range<usize>, middle: usize) -> usize {
        let old_lines = self.old.get(old.clone()).unwrap_or_default();
        let upper = self.new.get(new.start..middle).unwrap_or_default();
        let lower = self.new.get(middle..new.end).unwrap_or_default();
        let mut first = TableRow::new(old_lines.len());
        self.masks.set(old_lines.iter());
        upper.iter().for_each(|line| first.advance(&self.masks, *line));
        self.masks.clear(old_lines);
        let mut last = TableRow::new(old_lines.len());
        self.masks.set(old_lines.iter().rev());
        lower.iter().rev().for_each(|line| last.advance(&self.masks, *line));
        self.masks.clear(old_lines);

        let length = old_lines.len();
        let mut common: usize = (0..length).filter(|bit| last.is_longer_at(*bit)).count();
        let mut best = (common, 0);
        for line in 0..length {
            common += usize::from(first.is_longer_at(line));
            common -= usize::from(last.is_longer_at(length - 1 - line));
            if common > best.0 {
                best = (common, line + 1);
            }
        }
        old.start + best.1
    }

    /// Computes all rows of a small part of the table and follows them back.
    fn trace(&mut self, old: Range<usize>, new: Range<usize>) {
        let old_lines = self.old.get(old.clone()).unwrap_or_default();
        let new_lines = self.new.get(new.clone()).unwrap_or_default();
        let mut row = TableRow::new(old_lines.len());
        let width = row.words.len();
        let mut rows = Vec::with_capacity(width * new_lines.len());
        self.masks.set(old_lines.iter());
        for line in new_lines {
            row.advance(&self.masks, *line);
            rows.extend_from_slice(&row.words);
        }
        self.masks.clear(old_lines);

        let start = self.pairs.len();
        let mut old_left = old_lines.iter().enumerate().rev().peekable();
        let mut new_left = new_lines.iter().zip(rows.chunks_exact(width)).enumerate().rev();
        let mut current = new_left.next();
        while let (Some((old_at, old_line)), Some((new_at, (new_line, row)))) =
            (old_left.peek().copied(), current)
        {
            if !is_zero(row, old_at) {
                old_left.next();
            } else if old_line == new_line {
                self.pairs.push((old.start + old_at, new.start + new_at));
                old_left.next();
                current = new_left.next();
            } else {
                current = new_left.next();
            }
        }
        if let Some(found) = self.pairs.get_mut(start..) {
            found.reverse();
        }
    }
}

/// For each line number, the words of a row in which it matches, as a list in ascending order.
struct MatchMasks {
    first: Vec<usize>,
    last: Vec<usize>,
    entries: Vec<MaskEntry>,
}

/// The matching lines of one word.
#[derive(Clone, Copy)]
struct MaskEntry {
    word: usize,
    mask: u64,
    next: usize,
}

impl MatchMasks {
    fn new(distinct: usize) -> Self {
        Self { first: vec![NONE; distinct], last: vec![NONE; distinct], entries: Vec::new() }
    }

    /// Sets the lists for the lines of a row.
    fn set<'b>(&mut self, lines: impl Iterator<Item = &'b usize>) {
        self.entries.clear();
        for (position, line) in lines.enumerate() {
            let (word, mask) = (position / WORD, 1 << (position % WORD));
            let (Some(first), Some(last)) = (self.first.get_mut(*line), self.last.get_mut(*line)) else {
                continue;
            };
            let added = self.entries.len();
            match self.entries.get_mut(*last) {
                Some(entry) if entry.word == word => {
                    entry.mask |= mask;
                    continue;
                }
                Some(entry) => entry.next = added,
                None => *first = added,
            }
            *last = added;
            self.entries.push(MaskEntry { word, mask, next: NONE });
        }
    }

    /// Removes the lists of these lines.
    fn clear(&mut self, lines: &[usize]) {
        for line in lines {
            if let (Some(first), Some(last)) = (self.first.get_mut(*line), self.last.get_mut(*line)) {
                *first = NONE;
                *last = NONE;
            }
        }
    }

    /// The words in which a line matches.
    fn of(&self, line: usize) -> impl Iterator<Item = MaskEntry> {
        let first = self.first.get(line).and_then(|at| self.entries.get(*at));
        std::iter::successors(first, |entry| self.entries.get(entry.next)).copied()
    }
}

/// A row of the table.
struct TableRow {
    words: Vec<u64>,
    /// All words from here on have no 0 bit.
    untouched: usize,
}

impl TableRow {
    fn new(length: usize) -> Self {
        Self { words: vec![u64::MAX; length.div_ceil(WORD)], untouched: 0 }
    }

    /// Whether the common subsequence becomes longer at a line.
    fn is_longer_at(&self, line: usize) -> bool {
        is_zero(&self.words, line)
    }

    /// Adds a line of the new content.
    fn advance(&mut self, masks: &MatchMasks, line: usize) {
        let mut carry_into = None;
        for MaskEntry { word, mask, .. } in masks.of(line) {
            let carry = carry_into.is_some_and(|from| self.carry(from, word));
            let Some(bits) = self.words.get_mut(word) else {
                return;
            };
            let (sum, overflow) = bits.overflowing_add(*bits & mask);
            let (sum, overflow_of_carry) = sum.overflowing_add(u64::from(carry));
            *bits = sum | (*bits & !mask);
            self.untouched = self.untouched.max(word + 1);
            carry_into = (overflow || overflow_of_carry).then_some(word + 1);
        }
        if let Some(from) = carry_into {
            self.carry(from, self.untouched);
        }
    }

    /// Adds a carry to the words of a range without matches. Returns whether it leaves the range.
    fn carry(&mut self, from: usize, to: usize) -> bool {
        let words = self.words.get_mut(from..to.min(self.untouched)).unwrap_or_default();
        match words.iter_mut().find(|bits| **bits != u64::MAX) {
            Some(bits) => {
                *bits |= *bits + 1;
                false
            }
            None => true,
        }
    }
}

/// Whether a bit of a row is 0.
fn is_zero(words: &[u64], bit: usize) -> bool {
    words.get(bit / WORD).is_some_and(|word| word >> (bit % WORD) & 1 == 0)
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
