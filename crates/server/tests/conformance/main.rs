//! The protocol as clients see it: every command and action of root, session and chat
//! over real sockets, with the official client and with a raw one. The agent is played
//! by the test, all else is the real thing.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking, and looks at a few of many kinds"
)]

mod branches;
mod chats;
mod children;
mod commands;
mod coverage;
mod directories;
mod dispatch;
mod fidelity;
mod grace;
mod guests;
mod inputs;
mod kept;
mod lost_history;
mod moves;
mod order;
mod queue;
mod random;
mod reconnect;
mod repeats;
mod room;
mod scene;
mod seam;
mod settings;
mod storage;
mod tokens;
mod tools;
mod turns;
mod wandering;
mod wire;
