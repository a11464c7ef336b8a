//! Hosts under pressure: clients that never read, half requests, and too few descriptors.
//!
//! Each scenario runs a real host and returns an error if a limit does not hold. The test
//! suite runs short forms and `scripts/soak` long ones.

mod connections;
mod deaf;
mod host_process;
mod starve;

pub use connections::{ConnectionsPlan, ConnectionsResult, fill_connections};
pub use deaf::{DeafPlan, DeafResult, fill_outboxes};
pub use starve::{StarvePlan, StarveResult, send_half_requests};
