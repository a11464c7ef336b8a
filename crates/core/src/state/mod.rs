//! Published state and its delivery to clients.
//!
//! `store` owns the state of every channel and the single sequence of actions across all
//! of them. `frame` holds a message that is encoded once. `outbox` is the send queue of
//! one connection. `dispatch` handles a client's dispatch once, even if it is repeated.

mod chat;
mod clients;
mod dispatch;
mod frame;
mod merge;
mod outbox;
mod outbox_budget;
mod parts;
mod replay;
mod rows;
mod session_status;
mod snapshot;
mod store;
mod write_load;

pub use chat::{ChatDoc, TurnError};
pub(crate) use dispatch::{DispatchMark, DispatchTicket};
pub(crate) use frame::Amendment;
pub use frame::{Action, EncodedEnvelope, Frame, Origin, notification};
pub use outbox::{CloseReason, Delivery, Outbox};
pub use rows::{BadRowKey, RowKey};
pub(crate) use session_status::{leading_chat, newest_chat, session_status};
pub use snapshot::{ChannelState, EncodedSnapshot};
pub use store::{
    CommitError, Counts, FetchError, Missed, Observed, ObserverScope, RowsPage, StateObserver, StateStore,
    Subscription,
};

#[cfg(test)]
mod delivery_tests;
