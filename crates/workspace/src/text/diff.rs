//! Line diffs: the smallest set of hunks that turns one content into another.

use std::convert::Infallible;
use std::ops::Range;
use std::time::{Duration, Instant};

use similar::Algorithm;
use similar::algorithms::{DiffHook, diff_slices_deadline};

use super::lines::{LineNumbers, is_text, split_lines};
use super::search::longest_common_lines;
use super::sparse::common_lines_of_similar;

/// Up to this number of differences, the search that is fast for few differences is used.
const FEW_DIFFERENCES: usize = 400;
/// There are few differences if this many lines exist per difference: otherwise the other search
/// is as fast.
const LINES_PER_DIFFERENCE: usize = 50;
/// Largest product of the numbers of lines for which the smallest diff is searched; 65,000 changed
/// lines on each side. Beyond it, the diff is approximate and its search has a deadline.
const EXACT_CELLS: usize = 1 << 32;
/// Time after which the search for an approximate diff stops.
const SEARCH_TIME: Duration = Duration::from_millis(500);

/// Lines that a change added and removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LineCounts {
    pub(crate) added: u64,
    pub(crate) removed: u64,
}

/// Lines of the old content that lines of the new content replace, counted from 0. One of the
/// ranges may be empty; an empty range is the position before its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LineHunk {
    pub(crate) before: Range<usize>,
    pub(crate) after: Range<usize>,
}

impl LineHunk {
    /// Whether the hunk only adds lines or only removes lines.
    pub(super) fn is_one_sided(&self) -> bool {
        self.before.is_empty() || self.after.is_empty()
    }
}

/// Counts added and removed lines, as `git diff --minimal --numstat` does. `None`: one of the
/// contents is binary.
pub(crate) fn line_counts(before: &[u8], after: &[u8]) -> Option<LineCounts> {
    if !is_text(before) || !is_text(after) {
        return None;
    }
    Some(count(&hunks(before, after)))
}

/// Adds up the lines of hunks.
pub(super) fn count(hunks: &[LineHunk]) -> LineCounts {
    let lines = |range: &Range<usize>| u64::try_from(range.len()).unwrap_or(u64::MAX);
    hunks.iter().fold(LineCounts::default(), |sum, hunk| LineCounts {
        added: sum.added.saturating_add(lines(&hunk.after)),
        removed: sum.removed.saturating_add(lines(&hunk.before)),
    })
}

/// The hunks that turn `before` into `after`, in order. At least one equal line is between two
/// hunks. A hunk that could be at several places is at the last of them.
pub(crate) fn hunks(before: &[u8], after: &[u8]) -> Vec<LineHunk> {
    if before == after {
        return Vec::new();
    }
    let mut numbers = LineNumbers::default();
    let before = numbers.of(&split_lines(before));
    let after = numbers.of(&split_lines(after));
    hunks_of_numbers(&before, &after, numbers.distinct())
}

/// Reverts the hunks of `before` → `after` that touch the given lines of `after`, counted from
/// 0, and keeps all others.
///
/// A hunk touches the range if they share a line. A hunk without lines in `after` (a pure
/// deletion) touches it if its position is inside or at the border of the range. An empty range
/// is a position: it touches each hunk that contains it or has it as a border.
pub(crate) fn revert_lines(before: &[u8], after: &[u8], lines: Range<u64>) -> Vec<u8> {
    let start = usize::try_from(lines.start).unwrap_or(usize::MAX);
    let end = usize::try_from(lines.end).unwrap_or(usize::MAX).max(start);
    let touches = |hunk: &LineHunk| {
        if hunk.after.is_empty() || start == end {
            hunk.after.start <= end && start <= hunk.after.end
        } else {
            hunk.after.start < end && start < hunk.after.end
        }
    };
    let hunks = hunks(before, after);
    let before = split_lines(before);
    let after = split_lines(after);
    let mut result = Vec::new();
    let mut next = 0;
    for hunk in hunks.iter().filter(|hunk| touches(hunk)) {
        append(&mut result, &after, next..hunk.after.start);
        append(&mut result, &before, hunk.before.clone());
        next = hunk.after.end;
    }
    append(&mut result, &after, next..after.len());
    result
}

/// Appends some lines of a content.
pub(super) fn append(result: &mut Vec<u8>, lines: &[&[u8]], range: Range<usize>) {
    for line in lines.get(range).unwrap_or_default() {
        result.extend_from_slice(line);
    }
}

/// The hunks between two sequences of line numbers, all lower than `distinct`.
pub(super) fn hunks_of_numbers(before: &[usize], after: &[usize], distinct: usize) -> Vec<LineHunk> {
    let common =
        |pairs: &mut dyn Iterator<Item = (&usize, &usize)>| pairs.take_while(|(old, new)| old == new).count();
    let prefix = common(&mut before.iter().zip(after));
    let old = before.get(prefix..).unwrap_or_default();
    let new = after.get(prefix..).unwrap_or_default();
    let suffix = common(&mut old.iter().rev().zip(new.iter().rev()));
    let old = old.get(..old.len() - suffix).unwrap_or_default();
    let new = new.get(..new.len() - suffix).unwrap_or_default();

    // A line that the other side lacks is part of no common subsequence: without such lines the
    // search is shorter and its result is the same.
    let (old_kept, old_values) = lines_also_in(new, old, distinct);
    let (new_kept, new_values) = lines_also_in(old, new, distinct);
    let pairs = common_lines(&old_values, &new_values, distinct);

    let mut builder = HunkBuilder::default();
    builder.equal(0, 0, prefix);
    for (old, new) in pairs {
        if let (Some(old), Some(new)) = (old_kept.get(old), new_kept.get(new)) {
            builder.equal(prefix + old, prefix + new, 1);
        }
    }
    builder.equal(before.len() - suffix, after.len() - suffix, suffix);
    slide_down(builder.hunks, before, after)
}

/// The lines that the other sequence has, too: their positions and their numbers.
fn lines_also_in(other: &[usize], lines: &[usize], distinct: usize) -> (Vec<usize>, Vec<usize>) {
    let mut in_other = vec![false; distinct];
    for number in other {
        if let Some(flag) = in_other.get_mut(*number) {
            *flag = true;
        }
    }
    lines
        .iter()
        .enumerate()
        .filter(|(_, number)| in_other.get(**number).copied().unwrap_or_default())
        .map(|(position, number)| (position, *number))
        .unzip()
}

/// Pairs of positions of equal lines, in order: as many as possible, except for large sequences
/// with many differences.
fn common_lines(old: &[usize], new: &[usize], distinct: usize) -> Vec<(usize, usize)> {
    let cells = old.len().saturating_mul(new.len());
    let few = (cells.isqrt() / LINES_PER_DIFFERENCE).min(FEW_DIFFERENCES);
    if let Some(pairs) = common_lines_of_similar(old, new, few) {
        pairs
    } else if cells <= EXACT_CELLS {
        longest_common_lines(old, new, distinct)
    } else {
        approximate_common_lines(old, new, SEARCH_TIME)
    }
}

/// Pairs of equal lines of two large sequences, in order. Not always as many as possible.
fn approximate_common_lines(old: &[usize], new: &[usize], search_time: Duration) -> Vec<(usize, usize)> {
    let mut equal = EqualLines::default();
    #[expect(clippy::disallowed_methods, reason = "limits a computation, which needs real time")]
    let deadline = Instant::now().checked_add(search_time);
    match diff_slices_deadline(Algorithm::Myers, &mut equal, old, new, deadline) {
        Ok(()) => equal.pairs,
        Err(impossible) => match impossible {},
    }
}

/// Collects the pairs of equal lines that a search finds.
#[derive(Debug, Default)]
struct EqualLines {
    pairs: Vec<(usize, usize)>,
}

impl DiffHook for EqualLines {
    type Error = Infallible;

    fn equal(&mut self, old: usize, new: usize, length: usize) -> Result<(), Infallible> {
        self.pairs.extend((old..old + length).zip(new..new + length));
        Ok(())
    }
}

/// Builds hunks from the equal lines between them.
#[derive(Debug, Default)]
struct HunkBuilder {
    before: usize,
    after: usize,
    hunks: Vec<LineHunk>,
}

impl HunkBuilder {
    /// Adds equal lines. All lines since the last equal ones are one hunk.
    fn equal(&mut self, before: usize, after: usize, length: usize) {
        if self.before < before || self.after < after {
            self.hunks.push(LineHunk { before: self.before..before, after: self.after..after });
        }
        self.before = before + length;
        self.after = after + length;
    }
}

/// Moves each hunk that only adds or only removes lines to the last place where it has the same
/// effect, and joins hunks that meet there. So the same change has the same place in every diff.
fn slide_down(hunks: Vec<LineHunk>, before: &[usize], after: &[usize]) -> Vec<LineHunk> {
    let mut moved: Vec<LineHunk> = Vec::with_capacity(hunks.len());
    for mut hunk in hunks.into_iter().rev() {
        loop {
            let next = moved.last().map_or(before.len(), |next| next.before.start);
            let room = next.saturating_sub(hunk.before.end);
            let steps = slide_steps_down(&hunk, before, after, room);
            hunk.before = hunk.before.start + steps..hunk.before.end + steps;
            hunk.after = hunk.after.start + steps..hunk.after.end + steps;
            if steps < room || moved.is_empty() {
                break;
            }
            if let Some(next) = moved.pop() {
                hunk.before.end = next.before.end;
                hunk.after.end = next.after.end;
            }
        }
        moved.push(hunk);
    }
    moved.reverse();
    moved
}

/// How many lines a one-sided hunk can move down, at most `room`.
pub(super) fn slide_steps_down(hunk: &LineHunk, before: &[usize], after: &[usize], room: usize) -> usize {
    let (lines, range) = changed_side(hunk, before, after);
    if !hunk.is_one_sided() {
        return 0;
    }
    let entering = lines.get(range.end..).unwrap_or_default();
    let leaving = lines.get(range.start..).unwrap_or_default();
    let pairs = leaving.iter().zip(entering);
    pairs.take(room).take_while(|(one, other)| one == other).count()
}

/// How many lines a one-sided hunk can move up, at most `room`.
pub(super) fn slide_steps_up(hunk: &LineHunk, before: &[usize], after: &[usize], room: usize) -> usize {
    let (lines, range) = changed_side(hunk, before, after);
    if !hunk.is_one_sided() {
        return 0;
    }
    let entering = lines.get(..range.start).unwrap_or_default().iter().rev();
    let leaving = lines.get(..range.end).unwrap_or_default().iter().rev();
    let pairs = leaving.zip(entering);
    pairs.take(room).take_while(|(one, other)| one == other).count()
}

/// The side on which a one-sided hunk has lines.
fn changed_side<'a>(hunk: &LineHunk, before: &'a [usize], after: &'a [usize]) -> (&'a [usize], Range<usize>) {
    if hunk.before.is_empty() { (after, hunk.after.clone()) } else { (before, hunk.before.clone()) }
}

#[cfg(test)]
#[path = "diff_tests.rs"]
mod tests;
