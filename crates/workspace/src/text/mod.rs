//! Line diffs, counts and three-way merges of file contents.
//!
//! Contents are bytes; a line ends after `\n`, and the last line may lack it: `a` and `a\n`
//! are different lines, as in git. All functions are pure: no I/O, and the clock only limits the
//! time of a search. A search that reaches its limit returns a valid, but longer diff.

mod diff;
mod document;
mod lines;
mod merge;
mod search;
mod sparse;
mod words;

pub(crate) use diff::{LineCounts, line_counts, revert_lines};
pub(crate) use document::diff_document;
pub(crate) use lines::is_text;
pub(crate) use merge::{Merged, merge3};

#[cfg(test)]
mod corpus_tests;
