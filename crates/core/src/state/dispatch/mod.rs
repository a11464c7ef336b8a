//! Handles each dispatch of a client once, although clients repeat dispatches after a
//! reconnect.
//!
//! A [`DispatchTicket`] is claimed for each dispatch and moves with it to its handler;
//! dropping the ticket means that the dispatch was not handled, unless it was answered.
//! `mark` identifies a repeated dispatch; `handled` keeps a client's recent dispatches.

mod handled;
mod mark;
mod ticket;

pub(super) use handled::{BEFORE_THIS_HOST, ClaimId, DispatchClaim, Dispatches};
pub(crate) use mark::DispatchMark;
pub(crate) use ticket::DispatchTicket;
