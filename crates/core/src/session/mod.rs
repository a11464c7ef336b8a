//! One session: its actor, its rules and its storage.
//!
//! `actor` is the task that owns a session, and the only code that changes it; `handle` is
//! its interface to the host; `idle` unloads it; `lifetimes` releases
//! idle agents and opens agents in advance. `decide` holds the rules, as pure
//! functions; `apply` carries decisions out. `publisher` publishes and stores changes, with
//! `journal_writer` and `repeated_changes`; `large_output` limits agent output before that. `chats` is the list of chats; `orders` creates, places and removes
//! chats; `transfer` moves them between sessions; `children` manages the chats of subagents.
//! `opening` starts agents; `briefing` is the session data that an agent gets; `links` maps
//! turns to the agent's messages; `record` renders a conversation as text; `discard` deletes
//! the agent's records of deleted chats. `amend` completes client actions; `projection` keeps
//! copies of chat data in the session up to date; `session_meta` composes the session's
//! `_meta`, with the to-do lists of `chat_todo` and the git state that `repository` follows;
//! `restore` rebuilds a session from storage; `stopping` answers requests to stop work and to
//! restart agents; `titles` asks for a title.

mod actor;
mod addresses;
mod amend;
mod apply;
mod attached_content;
mod awaited;
mod briefing;
mod call_kind;
mod chat_todo;
mod chats;
mod children;
mod decide;
mod discard;
mod handle;
mod idle;
mod journal_writer;
mod large_output;
mod lifetimes;
mod links;
mod opening;
mod orders;
mod policy_inputs;
mod projection;
mod publisher;
mod record;
mod repeated_changes;
mod repository;
mod restore;
mod session_meta;
mod stopping;
mod titles;
mod transfer;

pub(crate) use actor::{Ended, SessionActor, SessionSeed, SessionServices};
pub(crate) use addresses::ChatAddresses;
pub(crate) use amend::{chats_to_pin, message_in};
pub(crate) use awaited::awaited;
pub(crate) use chats::{ChatSeed, chat_state, is_used};
pub(crate) use discard::discard;
pub use handle::{ChatError, NewChat, PendingReply, SessionEnd, SessionHandle};
pub(crate) use handle::{ChatOrder, ClientDispatch, SessionEnding, WeakHandle};
pub(crate) use lifetimes::LifetimeRules;
pub(crate) use projection::summary_of;
pub(crate) use repository::first_directory;
pub(crate) use restore::{Restored, restore};
pub(crate) use transfer::{ChatPlacement, ChatTransfer};
