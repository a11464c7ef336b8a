//! Protocol tests over real sockets: every command and every action of the root, session
//! and chat channels, with the official client and with a raw client. The test scripts the
//! agent; all other parts are the production code.
//!
//! Test vocabulary:
//!
//! - `Stage`: an agent provider that a test controls.
//! - `Player`: one open agent of a stage; the test reads its commands and sends its events.
//! - `Observer`: the official client with the state that it has accumulated.
//! - `Wire`: a raw client that records every message it receives.
//! - `Scene`: a host with one session and three subscribed clients that are compared after
//!   each step.
//! - `Room`: a host with two clients and a session that may have several chats; tests may
//!   add a second session.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "tests fail by panicking and match only the variants that they need"
)]

mod agent_interface;
mod attachments;
mod audit;
mod background_work;
mod branches;
mod changeset_operations;
mod changesets;
mod chats;
mod child_chats;
mod commands;
mod coverage;
mod deduplication;
mod deleted_records;
mod directories;
mod dispatch;
mod inputs;
mod large_output;
mod lifetimes;
mod lost_history;
mod moves;
mod order;
mod permissions;
mod projects;
mod queue;
mod random;
mod random_chats;
mod reconnect;
mod room;
mod scene;
mod session_meta;
mod settings;
mod stage_host;
mod stopping;
mod storage;
mod stored_host;
mod test_clients;
mod timeouts;
mod titles;
mod tokens;
mod tools;
mod turns;
mod unknown_fields;
mod wire;
