//! Transcripts on disk: the official SDK's answers as the oracle, and every operation on real files.
#![expect(clippy::wildcard_enum_match_arm, reason = "a test picks the values that it is about")]

// Marked as test code, as helpers outside of test functions are held to the rules of the library otherwise.
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
