//! One session: what is decided in it, by whom, and what follows.
//!
//! `actor` is the only code that changes a session; `decide` is the pure function
//! behind it; `publish` makes its changes public and durable, by way of the
//! `ledger`; `projection` keeps the copies of a chat's facts in agreement.

mod actor;
mod decide;
mod ledger;
mod projection;
mod publish;
mod restore;

pub(crate) use actor::{ClientDispatch, Ended, Ending, SessionActor, SessionSeed, WeakHandle};
pub use actor::{SessionEnd, SessionHandle};
pub(crate) use restore::{Restored, restore};
