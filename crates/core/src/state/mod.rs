//! Published state: what every client sees, and how it reaches them.
//!
//! `store` owns the state of every channel and the one sequence of actions over
//! all of them; `frame` is a message encoded once; `outbox` is what waits for one
//! connection.

mod clients;
mod frame;
mod outbox;
mod replay;
mod snapshot;
mod store;

pub use frame::{Action, EncodedEnvelope, Frame, Origin, notification};
pub use outbox::{CloseReason, Outbox};
pub use snapshot::{ChannelState, EncodedSnapshot};
pub use store::{CommitError, Counts, Missed, StateStore};
