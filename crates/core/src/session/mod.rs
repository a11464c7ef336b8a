//! One session: what is decided in it, by whom, and what follows.
//!
//! `actor` is the only code that changes a session, `handle` how it is reached; `decide`
//! is the pure function behind it; `opening` starts agents, `briefing` is what they know of it; `chats` and
//! `orders` are which chats it has and how they come and go; `amend` completes what
//! clients send; `publish` makes its changes public and durable, by way of the `ledger`;
//! `projection` keeps the copies of a chat's facts in agreement; `children` are the chats
//! of subagents; `links` join turns with the agent's messages; `record` is the conversation
//! as text.

mod actor;
mod addresses;
mod amend;
mod awaited;
mod briefing;
mod chats;
mod children;
mod decide;
mod handle;
mod ledger;
mod links;
mod opening;
mod orders;
mod projection;
mod publish;
mod record;
mod restore;

pub(crate) use actor::{Ended, SessionActor, SessionSeed, Surroundings};
pub(crate) use addresses::ChatAddresses;
pub(crate) use amend::{chats_to_pin, message_in};
pub(crate) use awaited::awaited;
pub(crate) use chats::{ChatSeed, chat_state, is_used};
pub(crate) use handle::{Berth, ChatOrder, ClientDispatch, Ending, WeakHandle};
pub use handle::{ChatError, NewChat, Outcome, SessionEnd, SessionHandle};
pub(crate) use projection::summary_of;
pub(crate) use restore::{Restored, restore};
