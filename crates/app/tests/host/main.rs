//! The whole host, as clients and users meet it: the real binary, the real
//! runtimes, the demo model, the official client.

#![expect(
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    clippy::cognitive_complexity,
    reason = "JSON without a field reads as null, tests look at a few of many kinds, and a story is told in one piece"
)]

mod certificate;
mod chain;
mod chats;
mod command_line;
mod continuing;
mod crash;
mod directories;
mod durability;
mod endings;
mod environment;
mod faults;
mod files;
mod hostile;
mod lifecycle;
mod operations;
mod readme;
mod settings;
mod tls;
mod transports;
mod upstreams;

use std::path::PathBuf;

use anyhow::Result;
use innkeeper_testkit::{HostOptions, Observer, TestHost};

/// A host with this runtime, whose failures show at once.
fn options(claude: PathBuf) -> HostOptions {
    HostOptions::new(env!("CARGO_BIN_EXE_innkeeper"), Some(claude))
        .with_variable("CLAUDE_CODE_MAX_RETRIES", "0")
}

/// A host for tests in which no runtime is started.
fn without_runtime() -> HostOptions {
    HostOptions::new(env!("CARGO_BIN_EXE_innkeeper"), None).with_variable("PATH", "")
}

/// The address of a new session.
fn new_session() -> String {
    format!("claude:/{}", uuid::Uuid::new_v4())
}

/// A client with a new session that it has open.
struct Opened {
    client: Observer,
    session: String,
    chat: String,
}

impl Opened {
    /// Connects, creates a session in the test's own folder and opens it.
    async fn new(host: &TestHost) -> Result<Self> {
        let session = new_session();
        let mut client = host.observer("first").await?;
        client.create_session(&session, &host.work_uri()).await?;
        let chat = client.open_session(&session).await?;
        Ok(Self { client, session, chat })
    }
}
