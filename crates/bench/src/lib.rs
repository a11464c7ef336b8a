//! Shared by the programs of `scripts/bench` and `scripts/soak`.
//!
//! `bench-upstream` sends model responses, `gateway-load` requests them and measures, and
//! `host-load` runs a host with many clients. Development only.

#![expect(clippy::indexing_slicing, reason = "indexing a missing JSON field yields null")]

mod clock;
pub mod events;
pub mod load;
pub mod plan;

pub use clock::monotonic_nanos;
