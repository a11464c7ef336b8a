//! Checks whether a Messages endpoint follows Anthropic's wire format.
//!
//! Owns the rules of the format as clients rely on them, and the requests that
//! test them. It works with any endpoint and shares no code with the gateway,
//! so that it can check the gateway, too. Nothing that an endpoint sends makes
//! the check itself fail: a defect is a finding, never an error.

mod block;
mod endpoint;
mod excerpt;
mod frames;
mod grammar;
mod probes;
mod report;
mod rule;
mod shape;
mod stream;
mod usage;

pub use endpoint::{CheckError, CheckTarget, Credentials};
pub use probes::{CheckOptions, check};
pub use report::{CheckOutcome, CheckReport, Defect, Finding};
pub use rule::{Aspect, Rule, Violation};
pub use stream::{StreamEnding, StreamLimits, StreamValidator, StreamVerdict};
