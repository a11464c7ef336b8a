//! The endpoint check on real sockets: the gateway passes, and defects are found.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic in a helper fails the test")]

mod endpoints;
mod upstreams;
