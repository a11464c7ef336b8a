//! The search for a longest common subsequence of lines with few differences.
//!
//! Myers' greedy method: for each number of differences, the furthest old line on each diagonal.
//! Its time grows with the square of the number of differences, but hardly with the number of
//! lines, so that it is faster than the bit-parallel search for small edits of large files.

/// A diagonal that no path reaches.
const UNREACHED: usize = usize::MAX;

/// Pairs of positions of a longest common subsequence, in order. `None`: there are more than
/// `most_differences` removed and added lines.
pub(super) fn common_lines_of_similar(
    old: &[usize],
    new: &[usize],
    most_differences: usize,
) -> Option<Vec<(usize, usize)>> {
    if old.len().abs_diff(new.len()) > most_differences {
        return None;
    }
    let search = SparseSearch { old, new };
    let mut rounds: Vec<Vec<usize>> = Vec::new();
    for differences in 0..=most_differences {
        let previous = rounds.last().map(Vec::as_slice).unwrap_or_default();
        let mut furthest = Vec::with_capacity(differences + 1);
        for diagonal in 0..=differences {
            let start = search.start(previous, differences, diagonal);
            let end = search.follow(start, differences, diagonal);
            furthest.push(end);
            if search.is_end(end, differences, diagonal) {
                rounds.push(furthest);
                return Some(search.trace(&rounds, diagonal));
            }
        }
        rounds.push(furthest);
    }
    None
}

/// The two sequences. After `d` differences, a path on diagonal `i` has removed `i` lines and added
/// `d - i` lines: its position in the new sequence is that in the old one, plus `d - 2 i`.
struct SparseSearch<'a> {
    old: &'a [usize],
    new: &'a [usize],
}

impl SparseSearch<'_> {
    /// The new position for an old position, if both are inside of the sequences.
    fn new_position(&self, old: usize, differences: usize, diagonal: usize) -> Option<usize> {
        if old > self.old.len() {
            return None;
        }
        let position = (old + differences).checked_sub(2 * diagonal)?;
        (position <= self.new.len()).then_some(position)
    }

    /// The old position after one more difference, before equal lines.
    fn start(&self, previous: &[usize], differences: usize, diagonal: usize) -> usize {
        if differences == 0 {
            return 0;
        }
        let at = |index: Option<usize>| {
            let reached = index.and_then(|index| previous.get(index)).copied();
            reached.filter(|position| *position != UNREACHED)
        };
        let inside = |position: &usize| self.new_position(*position, differences, diagonal).is_some();
        let after_removal = at(diagonal.checked_sub(1)).map(|position| position + 1).filter(inside);
        let after_addition = at(Some(diagonal)).filter(inside);
        after_removal.max(after_addition).unwrap_or(UNREACHED)
    }

    /// The old position after the equal lines.
    fn follow(&self, start: usize, differences: usize, diagonal: usize) -> usize {
        let Some(new) = self.new_position(start, differences, diagonal) else {
            return UNREACHED;
        };
        let old_lines = self.old.get(start..).unwrap_or_default();
        let new_lines = self.new.get(new..).unwrap_or_default();
        let pairs = old_lines.iter().zip(new_lines);
        start + pairs.take_while(|(old, new)| old == new).count()
    }

    fn is_end(&self, old: usize, differences: usize, diagonal: usize) -> bool {
        old == self.old.len() && self.new_position(old, differences, diagonal) == Some(self.new.len())
    }

    /// Follows the path back from its end.
    fn trace(&self, rounds: &[Vec<usize>], diagonal: usize) -> Vec<(usize, usize)> {
        let mut pairs = Vec::new();
        let mut diagonal = diagonal;
        for (differences, furthest) in rounds.iter().enumerate().rev() {
            let before = differences.checked_sub(1).and_then(|before| rounds.get(before));
            let previous = before.map(Vec::as_slice).unwrap_or_default();
            let start = self.start(previous, differences, diagonal);
            let end = furthest.get(diagonal).copied().unwrap_or(start);
            if let Some(new) = self.new_position(start, differences, diagonal) {
                let equal = (start..end).zip(new..);
                let from = pairs.len();
                pairs.extend(equal);
                if let Some(added) = pairs.get_mut(from..) {
                    added.reverse();
                }
            }
            let removed_from = diagonal.checked_sub(1).and_then(|index| previous.get(index));
            if removed_from.is_some_and(|position| position.checked_add(1) == Some(start)) {
                diagonal -= 1;
            }
        }
        pairs.reverse();
        pairs
    }
}

#[cfg(test)]
#[path = "sparse_tests.rs"]
mod tests;
