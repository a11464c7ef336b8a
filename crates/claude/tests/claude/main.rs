//! The library against scripted runtimes and the real ones.
#![expect(clippy::wildcard_enum_match_arm, reason = "a test picks the events that it is about")]

// Marked as test code, as helpers outside of test functions are held to the rules of the library otherwise.
#[cfg(test)]
mod api;
#[cfg(test)]
mod controls;
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
mod session;
#[cfg(test)]
mod signals;
#[cfg(test)]
mod support;
