//! Recorded frames of both real runtimes: all of them decode into typed messages, lose nothing, and come in the
//! order that was reviewed.
#![expect(clippy::wildcard_enum_match_arm, reason = "a test picks the kinds that it is about")]

#[cfg(test)]
#[path = "recordings/frames.rs"]
mod frames;
#[cfg(test)]
#[path = "recordings/golden.rs"]
mod golden;
#[cfg(test)]
#[path = "recordings/kinds.rs"]
mod kinds;
