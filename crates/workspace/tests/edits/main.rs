//! The edit log with the real database, real files and real git.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "test helpers fail the test by panicking")]

mod operations;
mod recording;
mod support;
mod uncommitted;
