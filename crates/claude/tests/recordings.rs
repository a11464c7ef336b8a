//! Recorded frames of both real runtimes: all of them decode to typed messages, round-trip, and match the reviewed
//! order.
#![expect(clippy::wildcard_enum_match_arm, reason = "tests match only the kinds that they check")]

#[cfg(test)]
#[path = "recordings/frames.rs"]
mod frames;
#[cfg(test)]
#[path = "recordings/golden.rs"]
mod golden;
#[cfg(test)]
#[path = "recordings/kinds.rs"]
mod kinds;
