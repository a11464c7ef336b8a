//! The diff of two contents as JSON, for a page that shows it.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::diff::{LineHunk, count, hunks};
use super::lines::{is_text, split_lines};
use super::words::{LineParts, compare_words, plain};

/// Unchanged lines before and after a change.
const CONTEXT_LINES: usize = 3;
/// Most lines in a document.
const MOST_LINES: usize = 20_000;
/// Most characters of a line.
const MOST_LINE_CHARACTERS: usize = 2_000;
/// Time for the comparison of words in a document; later lines have no emphasis.
const WORDS_TIME: Duration = Duration::from_millis(200);

/// The difference between two contents.
///
/// As JSON:
///
/// ```json
/// {
///   "binary": false,
///   "added": 1,
///   "removed": 1,
///   "truncated": false,
///   "hunks": [
///     {
///       "oldStart": 1,
///       "newStart": 1,
///       "lines": [
///         { "kind": "context", "old": 1, "new": 1, "parts": [["fn main() {", false]] },
///         { "kind": "removed", "old": 2, "parts": [["  run(", false], ["1", true], [");", false]] },
///         { "kind": "added", "new": 2, "parts": [["  run(", false], ["2", true], [");", false]] },
///         { "kind": "context", "old": 3, "new": 3, "parts": [["}", false]], "noNewline": true }
///       ]
///     }
///   ]
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DiffDocument {
    /// Whether one of the contents is binary. Then there are no hunks and the counts are 0.
    pub(crate) binary: bool,
    /// Number of added lines, also if the document is truncated.
    pub(crate) added: u64,
    /// Number of removed lines, also if the document is truncated.
    pub(crate) removed: u64,
    /// Whether the document ends before the diff, because it has 20,000 lines.
    pub(crate) truncated: bool,
    /// Changes with 3 unchanged lines before and after them, in order.
    pub(crate) hunks: Vec<DocumentHunk>,
}

/// Changes that are near each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DocumentHunk {
    /// Number of the first old line, counted from 1. Without old lines: number of the old line
    /// before the hunk, which is 0 at the start.
    pub(crate) old_start: usize,
    /// Number of the first new line, likewise.
    pub(crate) new_start: usize,
    /// Context, removed and added lines; removed lines precede the lines that replace them.
    pub(crate) lines: Vec<DocumentLine>,
}

/// One line of a hunk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DocumentLine {
    pub(crate) kind: DocumentLineKind,
    /// Number of the line in the old content, counted from 1. Added lines have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) old: Option<usize>,
    /// Number of the line in the new content, counted from 1. Removed lines have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) new: Option<usize>,
    /// The text without `\n` (a `\r` before it is kept), as `[text, emphasised]` pairs. Invalid
    /// UTF-8 is replaced by U+FFFD. A line of more than 2,000 characters ends with a part like
    /// ` … (12 more characters)`. An empty line has no parts.
    pub(crate) parts: LineParts,
    /// Whether the line is the last one of its content and has no line end.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) no_newline: bool,
}

/// What happened to a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum DocumentLineKind {
    Context,
    Added,
    Removed,
}

/// Describes the difference between two contents. An absent file has no content, like an empty
/// one.
pub(crate) fn diff_document(before: Option<&[u8]>, after: Option<&[u8]>) -> DiffDocument {
    let before = before.unwrap_or_default();
    let after = after.unwrap_or_default();
    let mut document = DiffDocument {
        binary: !is_text(before) || !is_text(after),
        added: 0,
        removed: 0,
        truncated: false,
        hunks: Vec::new(),
    };
    if document.binary {
        return document;
    }
    let mut hunks: VecDeque<LineHunk> = hunks(before, after).into();
    let counts = count(hunks.make_contiguous());
    document.added = counts.added;
    document.removed = counts.removed;
    #[expect(clippy::disallowed_methods, reason = "limits a computation, which needs real time")]
    let words_deadline = Instant::now().checked_add(WORDS_TIME);
    let mut writer = DocumentWriter {
        old: split_lines(before),
        new: split_lines(after),
        words_deadline,
        room: MOST_LINES,
        lines: Vec::new(),
    };
    while let Some(group) = next_group(&mut hunks) {
        if writer.room == 0 {
            break;
        }
        document.hunks.push(writer.hunk(&group));
    }
    let shown = document.hunks.iter().flat_map(|hunk| &hunk.lines);
    let changed = shown.filter(|line| line.kind != DocumentLineKind::Context).count();
    document.truncated =
        u64::try_from(changed).unwrap_or(u64::MAX) < counts.added.saturating_add(counts.removed);
    document
}

/// Takes the next hunks whose context lines touch each other.
fn next_group(hunks: &mut VecDeque<LineHunk>) -> Option<Vec<LineHunk>> {
    let mut end = hunks.front()?.before.end;
    let mut group = Vec::new();
    while let Some(hunk) = hunks.pop_front_if(|hunk| hunk.before.start <= end + 2 * CONTEXT_LINES) {
        end = hunk.before.end;
        group.push(hunk);
    }
    Some(group)
}

/// Writes the lines of a document.
struct DocumentWriter<'a> {
    old: Vec<&'a [u8]>,
    new: Vec<&'a [u8]>,
    words_deadline: Option<Instant>,
    /// How many more lines the document may have.
    room: usize,
    /// Lines of the current hunk.
    lines: Vec<DocumentLine>,
}

impl DocumentWriter<'_> {
    /// Writes near changes with their context.
    fn hunk(&mut self, changes: &[LineHunk]) -> DocumentHunk {
        let first = changes.first().map(|hunk| (hunk.before.start, hunk.after.start));
        let (old_first, new_first) = first.unwrap_or_default();
        let context = CONTEXT_LINES.min(old_first);
        let (mut old, mut new) = (old_first - context, new_first.saturating_sub(context));
        let (old_start, new_start) = (old, new);
        for change in changes {
            self.context(old..change.before.start, new);
            self.change(change);
            old = change.before.end;
            new = change.after.end;
        }
        self.context(old..self.old.len().min(old + CONTEXT_LINES), new);
        let lines = std::mem::take(&mut self.lines);
        let has = |kind| lines.iter().any(|line| line.kind != kind);
        DocumentHunk {
            old_start: old_start + usize::from(has(DocumentLineKind::Added)),
            new_start: new_start + usize::from(has(DocumentLineKind::Removed)),
            lines,
        }
    }

    fn context(&mut self, old: Range<usize>, new_start: usize) {
        for (at, number) in old.zip(new_start + 1..) {
            let line = self.old.get(at).copied().unwrap_or_default();
            let text = ShownLine::new(line);
            let parts = plain(&text.text);
            self.push(DocumentLineKind::Context, Some(at + 1), Some(number), text, parts);
        }
    }

    fn change(&mut self, change: &LineHunk) {
        // Lines that the document has no room for are not compared.
        let shown = |lines: &[&[u8]], range: &Range<usize>| -> Vec<ShownLine> {
            let lines = lines.get(range.clone()).unwrap_or_default().iter();
            lines.take(self.room).map(|line| ShownLine::new(line)).collect()
        };
        let old = shown(&self.old, &change.before);
        let new = shown(&self.new, &change.after);
        let old_texts: Vec<&str> = old.iter().map(|line| line.text.as_str()).collect();
        let new_texts: Vec<&str> = new.iter().map(|line| line.text.as_str()).collect();
        let (old_parts, new_parts) = compare_words(&old_texts, &new_texts, self.words_deadline);
        for ((line, parts), number) in old.into_iter().zip(old_parts).zip(change.before.start + 1..) {
            self.push(DocumentLineKind::Removed, Some(number), None, line, parts);
        }
        for ((line, parts), number) in new.into_iter().zip(new_parts).zip(change.after.start + 1..) {
            self.push(DocumentLineKind::Added, None, Some(number), line, parts);
        }
    }

    fn push(
        &mut self,
        kind: DocumentLineKind,
        old: Option<usize>,
        new: Option<usize>,
        line: ShownLine,
        mut parts: LineParts,
    ) {
        if self.room == 0 {
            return;
        }
        self.room -= 1;
        if line.omitted > 0 {
            parts.push((format!(" … ({} more characters)", line.omitted), false));
        }
        self.lines.push(DocumentLine { kind, old, new, parts, no_newline: line.no_newline });
    }
}

/// A line as text, cut to a length that can be shown.
struct ShownLine {
    text: String,
    /// Characters that were cut.
    omitted: usize,
    no_newline: bool,
}

impl ShownLine {
    fn new(line: &[u8]) -> Self {
        let (content, no_newline) = match line.strip_suffix(b"\n") {
            Some(content) => (content, false),
            None => (line, true),
        };
        let decoded = String::from_utf8_lossy(content);
        let mut characters = decoded.chars();
        let text = characters.by_ref().take(MOST_LINE_CHARACTERS).collect();
        Self { text, omitted: characters.count(), no_newline }
    }
}

#[cfg(test)]
#[path = "document_tests.rs"]
mod tests;
