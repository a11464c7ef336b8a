//! The permission policy, through its public interface.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test fails by panicking")]

mod client;
mod fixture;
mod insertion;
mod paths;
mod rules;
mod shell_table;
mod suggestions;
