//! One session: its actor, its rules and its storage.
//!
//! `actor` is the task that owns a session, and the only code that changes it; `handle` is
//! its interface to the host. `decide` holds the rules, as a pure function. `chats` is the
//! list of chats; `orders` creates, moves and removes chats; `children` manages the chats
//! of subagents. `opening` starts agents; `briefing` is the session data that an agent
//! gets; `links` maps turns to the agent's messages; `record` renders a conversation as
//! text; `discard` deletes the agent's records of deleted chats. `amend` completes client actions; `publish` commits and stores changes through
//! `journal_writer`; `projection` keeps copies of chat data in the session up to date;
//! `restore` rebuilds a session from storage.

mod actor;
mod addresses;
mod amend;
mod awaited;
mod briefing;
mod chats;
mod children;
mod decide;
mod discard;
mod handle;
mod journal_writer;
mod links;
mod opening;
mod orders;
mod projection;
mod publish;
mod record;
mod restore;

pub(crate) use actor::{Ended, SessionActor, SessionSeed, SessionServices};
pub(crate) use addresses::ChatAddresses;
pub(crate) use amend::{chats_to_pin, message_in};
pub(crate) use awaited::awaited;
pub(crate) use chats::{ChatSeed, chat_state, is_used};
pub(crate) use discard::discard;
pub use handle::{ChatError, NewChat, PendingReply, SessionEnd, SessionHandle};
pub(crate) use handle::{ChatOrder, ChatPlacement, ClientDispatch, SessionEnding, WeakHandle};
pub(crate) use projection::summary_of;
pub(crate) use restore::{Restored, restore};
