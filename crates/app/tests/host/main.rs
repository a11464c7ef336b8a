//! End-to-end tests of the host: the real binary, the real runtimes, the demo model and
//! the official client.

#![expect(
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    clippy::cognitive_complexity,
    reason = "a missing JSON field reads as null, tests match a few of many variants, and scenarios are not split"
)]

mod accounting;
mod asking;
mod attachments;
mod background_work;
mod broken_answers;
mod certificate;
mod chain;
mod changing;
mod chats;
mod command_line;
mod continuing;
mod crash;
mod deletion;
mod directories;
mod durability;
mod edit_origins;
mod editing;
mod edits;
mod elicitation;
mod endings;
mod environment;
mod failures;
mod faults;
mod files;
mod hanging;
mod host_stop;
mod hostile;
mod idle_release;
mod large_output;
mod lifecycle;
mod models;
mod no_progress;
mod operations;
mod pending_requests;
mod permission_modes;
mod permission_rules;
mod permissions;
mod plan_mode;
mod pressure;
mod projects;
mod readme;
mod secrets;
mod settings;
mod steering;
mod stopping;
mod storm;
mod titles;
mod tls;
mod todo_list;
mod tool_permissions;
mod tour;
mod transcripts;
mod transports;
mod trust;
mod turn_races;
mod upstreams;
mod user_questions;

use std::path::PathBuf;

use anyhow::Result;
use innkeeper_testkit::{HostOptions, Observer, TestHost};

/// Options for a host with this runtime; failures are reported immediately.
fn options(claude: PathBuf) -> HostOptions {
    HostOptions::new(env!("CARGO_BIN_EXE_innkeeper"), Some(claude))
        .with_variable("CLAUDE_CODE_MAX_RETRIES", "0")
}

/// Options for tests that do not start a runtime.
fn without_runtime() -> HostOptions {
    HostOptions::new(env!("CARGO_BIN_EXE_innkeeper"), None).with_variable("PATH", "")
}

/// Runs `innkeeper trust` for the data directory of a host. Returns its output.
fn trust_command(host: &TestHost, arguments: &[&str]) -> Result<String> {
    #[expect(clippy::disallowed_methods, reason = "a short command that the test waits for")]
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_innkeeper"))
        .arg("trust")
        .arg("--data-dir")
        .arg(host.data_dir())
        .args(arguments)
        .output()?;
    anyhow::ensure!(output.status.success(), "{output:?}");
    Ok(String::from_utf8(output.stdout)?)
}

/// Trusts the working directory of the test's sessions.
fn trust_work_dir(host: &TestHost) -> Result<()> {
    trust_command(host, &["add", &host.work_dir().display().to_string()]).map(drop)
}

/// Returns the URI of a new session.
fn new_session() -> String {
    format!("claude:/{}", uuid::Uuid::new_v4())
}

/// A client that is subscribed to a new session.
struct Opened {
    client: Observer,
    session: String,
    chat: String,
}

impl Opened {
    /// Connects, creates a session in the test's directory and subscribes to it.
    async fn new(host: &TestHost) -> Result<Self> {
        let session = new_session();
        let mut client = host.observer("first").await?;
        client.create_session(&session, &host.work_uri()).await?;
        let chat = client.open_session(&session).await?;
        Ok(Self { client, session, chat })
    }
}
