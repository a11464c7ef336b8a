//! The crate against scripted and real runtimes.
#![expect(clippy::wildcard_enum_match_arm, reason = "tests match only the events that they check")]

// Marked as test code, since helpers outside of test functions otherwise get the lints of library code.
#[cfg(test)]
mod api;
#[cfg(test)]
mod controls;
#[cfg(test)]
mod daemons;
#[cfg(test)]
mod fake;
#[cfg(test)]
mod host;
#[cfg(test)]
mod interleavings;
#[cfg(test)]
mod playback;
#[cfg(test)]
mod pty;
#[cfg(test)]
mod real;
#[cfg(test)]
mod scenarios;
#[cfg(test)]
mod scripted_model;
#[cfg(test)]
mod session;
#[cfg(test)]
mod signals;
#[cfg(test)]
mod steering;
#[cfg(test)]
mod support;
