//! Transcripts on disk: compared with the output of the official SDK, and every operation on real files.
#![expect(clippy::wildcard_enum_match_arm, reason = "tests match only the values that they check")]

// Marked as test code, since helpers outside of test functions otherwise get the lints of library code.
#[cfg(test)]
#[path = "transcript/edit.rs"]
mod edit;
#[cfg(test)]
#[path = "transcript/golden.rs"]
mod golden;
#[cfg(test)]
#[path = "transcript/list.rs"]
mod list;
#[cfg(test)]
#[path = "transcript/read.rs"]
mod read;
#[cfg(test)]
#[path = "transcript/store.rs"]
mod store;
#[cfg(test)]
#[path = "transcript/watch.rs"]
mod watch;
