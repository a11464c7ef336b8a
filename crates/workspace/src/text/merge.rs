//! Three-way merge of file contents, by lines.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::diff::{LineHunk, append, hunks_of_numbers, slide_steps_down, slide_steps_up};
use super::lines::{LineNumbers, is_text, split_lines};

/// Marks the start of our lines in a conflict preview.
const OURS_MARKER: &[u8] = b"<<<<<<< current\n";
/// Marks the start of the base lines in a conflict preview.
const BASE_MARKER: &[u8] = b"||||||| agent's change\n";
/// Separates the base lines from their lines in a conflict preview.
const MIDDLE_MARKER: &[u8] = b"=======\n";
/// Marks the end of a conflict in a preview.
const THEIRS_MARKER: &[u8] = b">>>>>>> after the undo\n";

/// Result of a three-way merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Merged {
    /// Both changes are in the content.
    Clean(Vec<u8>),
    /// The changes overlap.
    Conflict {
        /// The merged content with the conflicts between markers. For binary contents, the
        /// markers enclose the sizes.
        preview: Vec<u8>,
        /// Number of conflicts.
        conflicts: usize,
    },
}

/// Applies the change `base` → `theirs` to `ours`.
///
/// Text is merged by lines. Changes of different lines are both applied, also if the lines are
/// neighbours, and equal changes are applied once. Everything else is a conflict, namely changes
/// of the same line, and changes at the same position between two lines:
///
/// - an insertion conflicts with a change of the line before or after it, and with a different
///   insertion at the same position: the order of the results would be a guess;
/// - changes of neighbouring lines conflict if both sides have more lines than the base, because
///   then both can contain an insertion between these lines;
/// - an insertion or deletion that could be at several places with the same result (in a run of
///   equal lines) counts as a change of all of these places;
/// - if another choice among the smallest diffs gives another result, the whole merge conflicts.
///
/// Binary contents merge only if one side equals the base or both sides are equal.
pub(crate) fn merge3(base: &[u8], ours: &[u8], theirs: &[u8]) -> Merged {
    if ours == theirs || base == theirs {
        return Merged::Clean(ours.to_vec());
    }
    if base == ours {
        return Merged::Clean(theirs.to_vec());
    }
    if !(is_text(base) && is_text(ours) && is_text(theirs)) {
        return binary_conflict(base, ours, theirs);
    }
    let lines = MergeLines::new(base, ours, theirs);
    let merged = lines.merge(DiffDirection::Forward);
    let Merged::Clean(content) = &merged else {
        return merged;
    };
    // Where lines repeat, several smallest diffs exist. If the result depends on the choice, it
    // would be a guess.
    match lines.merge(DiffDirection::Backward) {
        Merged::Clean(other) if other != *content => lines.conflict_of_all(),
        checked @ (Merged::Clean(_) | Merged::Conflict { .. }) => checked,
    }
}

/// Which of several smallest diffs a merge uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DiffDirection {
    /// The diff that a search from the start finds.
    Forward,
    /// The diff that a search from the end finds.
    Backward,
}

/// The lines of the three contents, and their numbers.
struct MergeLines<'a> {
    base: Vec<&'a [u8]>,
    ours: Vec<&'a [u8]>,
    theirs: Vec<&'a [u8]>,
    base_numbers: Vec<usize>,
    our_numbers: Vec<usize>,
    their_numbers: Vec<usize>,
    distinct: usize,
}

impl<'a> MergeLines<'a> {
    fn new(base: &'a [u8], ours: &'a [u8], theirs: &'a [u8]) -> Self {
        let base = split_lines(base);
        let ours = split_lines(ours);
        let theirs = split_lines(theirs);
        let mut numbers = LineNumbers::default();
        Self {
            base_numbers: numbers.of(&base),
            our_numbers: numbers.of(&ours),
            their_numbers: numbers.of(&theirs),
            distinct: numbers.distinct(),
            base,
            ours,
            theirs,
        }
    }

    fn merge(&self, direction: DiffDirection) -> Merged {
        let mut changes = self.changes_of(Side::Ours, direction);
        changes.extend(self.changes_of(Side::Theirs, direction));
        changes.sort_by_key(|change| (change.extent.start, change.extent.end));
        let shared = shared_borders(&changes);
        let mut output = MergeOutput::new(self);
        let mut group: Option<ChangeGroup> = None;
        for change in changes {
            match group.take() {
                Some(mut open) if open.meets(&change, &shared) => {
                    open.add(change);
                    group = Some(open);
                }
                finished => {
                    if let Some(finished) = finished {
                        output.add_group(&finished);
                    }
                    group = Some(ChangeGroup::new(change));
                }
            }
        }
        if let Some(finished) = group {
            output.add_group(&finished);
        }
        output.finish()
    }

    /// One conflict of all lines that the three contents do not have in common.
    fn conflict_of_all(&self) -> Merged {
        let all_equal = |((base, ours), theirs): &((&usize, &usize), &usize)| base == ours && base == theirs;
        let (base, ours, theirs) = (&self.base_numbers, &self.our_numbers, &self.their_numbers);
        let shortest = base.len().min(ours.len()).min(theirs.len());
        let prefix = base.iter().zip(ours).zip(theirs).take_while(all_equal).count();
        let from_end = base.iter().rev().zip(ours.iter().rev()).zip(theirs.iter().rev());
        let suffix = from_end.take(shortest - prefix).take_while(all_equal).count();
        let mut output = MergeOutput::new(self);
        append(&mut output.content, &self.base, 0..prefix);
        output.add_conflict(
            prefix..base.len() - suffix,
            prefix..ours.len() - suffix,
            prefix..theirs.len() - suffix,
        );
        output.next_base = base.len() - suffix;
        output.finish()
    }

    /// The changes that one side made to the base.
    fn changes_of(&self, side: Side, direction: DiffDirection) -> Vec<SideChange> {
        let base = &self.base_numbers;
        let changed = match side {
            Side::Ours => &self.our_numbers,
            Side::Theirs => &self.their_numbers,
        };
        let hunks = match direction {
            DiffDirection::Forward => hunks_of_numbers(base, changed, self.distinct),
            DiffDirection::Backward => hunks_from_end(base, changed, self.distinct),
        };
        with_extents(side, hunks, base, changed)
    }
}

/// The hunks that a search from the end finds.
fn hunks_from_end(base: &[usize], changed: &[usize], distinct: usize) -> Vec<LineHunk> {
    let reversed = |lines: &[usize]| lines.iter().rev().copied().collect::<Vec<_>>();
    let hunks = hunks_of_numbers(&reversed(base), &reversed(changed), distinct);
    let from_start = |range: Range<usize>, length: usize| length - range.end..length - range.start;
    let mapped = hunks.into_iter().rev().map(|hunk| LineHunk {
        before: from_start(hunk.before, base.len()),
        after: from_start(hunk.after, changed.len()),
    });
    mapped.collect()
}

/// A side of the merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Ours,
    Theirs,
}

/// One hunk of one side.
#[derive(Debug)]
struct SideChange {
    side: Side,
    hunk: LineHunk,
    /// Base lines of all places where the hunk could be.
    extent: Range<usize>,
}

impl SideChange {
    fn is_insertion(&self) -> bool {
        self.hunk.before.is_empty()
    }

    fn grows(&self) -> bool {
        self.hunk.after.len() > self.hunk.before.len()
    }

    /// Whether two changes whose extents touch without a common line are at the same position.
    fn shares_border(&self, other: &Self) -> bool {
        self.is_insertion() || other.is_insertion() || (self.grows() && other.grows())
    }
}

/// Adds the other places where hunks could be.
fn with_extents(side: Side, hunks: Vec<LineHunk>, base: &[usize], changed: &[usize]) -> Vec<SideChange> {
    let ends = hunks.iter().map(|hunk| hunk.before.end);
    let previous_ends = std::iter::once(0).chain(ends);
    let starts = hunks.iter().map(|hunk| hunk.before.start);
    let next_starts = starts.skip(1).chain(std::iter::once(base.len()));
    let extents: Vec<Range<usize>> = hunks
        .iter()
        .zip(previous_ends.zip(next_starts))
        .map(|(hunk, (previous_end, next_start))| {
            let room_up = hunk.before.start.saturating_sub(previous_end);
            let room_down = next_start.saturating_sub(hunk.before.end);
            let up = slide_steps_up(hunk, base, changed, room_up);
            let down = slide_steps_down(hunk, base, changed, room_down);
            hunk.before.start - up..hunk.before.end + down
        })
        .collect();
    let pairs = hunks.into_iter().zip(extents);
    pairs.map(|(hunk, extent)| SideChange { side, hunk, extent }).collect()
}

/// The positions between two base lines at which both sides change the content.
fn shared_borders(changes: &[SideChange]) -> HashSet<usize> {
    let mut starts: HashMap<usize, Vec<&SideChange>> = HashMap::new();
    for change in changes {
        starts.entry(change.extent.start).or_default().push(change);
    }
    let ends_at_shared_border = |change: &&SideChange| {
        let following = starts.get(&change.extent.end).into_iter().flatten();
        let mut of_other_side = following.filter(|other| other.side != change.side);
        of_other_side.any(|other| change.shares_border(other))
    };
    let ending = changes.iter().filter(ends_at_shared_border);
    ending.map(|change| change.extent.end).collect()
}

/// Changes that overlap or are at the same position.
#[derive(Debug)]
struct ChangeGroup {
    extent: Range<usize>,
    changes: Vec<SideChange>,
}

impl ChangeGroup {
    fn new(change: SideChange) -> Self {
        Self { extent: change.extent.clone(), changes: vec![change] }
    }

    /// Whether a change, which does not start before the group, belongs to the group.
    fn meets(&self, change: &SideChange, shared_borders: &HashSet<usize>) -> bool {
        let start = change.extent.start;
        start < self.extent.end || start == self.extent.end && shared_borders.contains(&start)
    }

    fn add(&mut self, change: SideChange) {
        self.extent.end = self.extent.end.max(change.extent.end);
        self.changes.push(change);
    }

    fn changed_by(&self, side: Side) -> bool {
        self.changes.iter().any(|change| change.side == side)
    }
}

/// The merged content so far.
struct MergeOutput<'a> {
    lines: &'a MergeLines<'a>,
    /// First line of the base, of ours and of theirs that is not merged yet.
    next_base: usize,
    next_ours: usize,
    next_theirs: usize,
    content: Vec<u8>,
    conflicts: usize,
}

impl<'a> MergeOutput<'a> {
    fn new(lines: &'a MergeLines<'a>) -> Self {
        Self { lines, next_base: 0, next_ours: 0, next_theirs: 0, content: Vec::new(), conflicts: 0 }
    }

    /// Appends the unchanged lines before a group, then the group.
    fn add_group(&mut self, group: &ChangeGroup) {
        let lines = self.lines;
        let unchanged = group.extent.start.saturating_sub(self.next_base);
        append(&mut self.content, &lines.base, self.next_base..group.extent.start);
        let ours = self.next_ours + unchanged;
        let ours = ours..ours + length_on(Side::Ours, group);
        let theirs = self.next_theirs + unchanged;
        let theirs = theirs..theirs + length_on(Side::Theirs, group);
        self.next_base = group.extent.end;
        self.next_ours = ours.end;
        self.next_theirs = theirs.end;
        let equal = lines.ours.get(ours.clone()) == lines.theirs.get(theirs.clone());
        if equal || !group.changed_by(Side::Theirs) {
            append(&mut self.content, &lines.ours, ours);
        } else if !group.changed_by(Side::Ours) {
            append(&mut self.content, &lines.theirs, theirs);
        } else {
            self.add_conflict(group.extent.clone(), ours, theirs);
        }
    }

    /// Appends all three sides between markers.
    fn add_conflict(&mut self, base: Range<usize>, ours: Range<usize>, theirs: Range<usize>) {
        self.conflicts += 1;
        let sides = [
            (OURS_MARKER, &self.lines.ours, ours),
            (BASE_MARKER, &self.lines.base, base),
            (MIDDLE_MARKER, &self.lines.theirs, theirs),
        ];
        for (marker, lines, range) in sides {
            end_line(&mut self.content);
            self.content.extend_from_slice(marker);
            append(&mut self.content, lines, range);
        }
        end_line(&mut self.content);
        self.content.extend_from_slice(THEIRS_MARKER);
    }

    fn finish(mut self) -> Merged {
        let base = &self.lines.base;
        append(&mut self.content, base, self.next_base..base.len());
        if self.conflicts == 0 {
            Merged::Clean(self.content)
        } else {
            Merged::Conflict { preview: self.content, conflicts: self.conflicts }
        }
    }
}

/// How many lines a side has for the base lines of a group.
fn length_on(side: Side, group: &ChangeGroup) -> usize {
    let hunks = || group.changes.iter().filter(|change| change.side == side);
    let added: usize = hunks().map(|change| change.hunk.after.len()).sum();
    let removed: usize = hunks().map(|change| change.hunk.before.len()).sum();
    (group.extent.len() + added).saturating_sub(removed)
}

/// Ends a last line that lacks its `\n`, so that a marker has its own line.
fn end_line(content: &mut Vec<u8>) {
    if content.last().is_some_and(|byte| *byte != b'\n') {
        content.push(b'\n');
    }
}

/// Contents that cannot be merged by lines.
fn binary_conflict(base: &[u8], ours: &[u8], theirs: &[u8]) -> Merged {
    let mut preview = Vec::new();
    let parts = [(OURS_MARKER, ours), (BASE_MARKER, base), (MIDDLE_MARKER, theirs)];
    for (marker, content) in parts {
        preview.extend_from_slice(marker);
        let kind = if is_text(content) { "text" } else { "binary" };
        preview.extend_from_slice(format!("{kind} content, {} bytes\n", content.len()).as_bytes());
    }
    preview.extend_from_slice(THEIRS_MARKER);
    Merged::Conflict { preview, conflicts: 1 }
}

#[cfg(test)]
#[path = "merge_tests.rs"]
mod tests;
