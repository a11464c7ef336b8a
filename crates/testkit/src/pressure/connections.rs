//! More clients than the host has descriptors for. The host must reject clients with 503
//! while turns still work, also those that start a runtime.

use std::fmt;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use crate::host::{HostOptions, TestHost};
use crate::observer::Observer;
use crate::raw::RawClient;
use crate::wait::in_time;

/// How long a connection or a rejection may take; without descriptors it would never come.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// How long a turn may take at the limit.
const TURN_TIME: Duration = Duration::from_secs(30);

/// Rejections in a row after which the host is considered full: sockets that are being
/// closed may still free a descriptor.
const REJECTIONS: usize = 8;

/// The size of the scenario.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionsPlan {
    /// The host's limit of open files.
    pub open_files: usize,
    /// Sessions that are started while the host is full, each with its own runtime.
    pub sessions: usize,
}

/// Figures of a run.
#[derive(Debug)]
pub struct ConnectionsResult {
    open_files: usize,
    clients: usize,
    sessions: usize,
}

impl fmt::Display for ConnectionsResult {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { open_files, clients, sessions } = self;
        write!(
            formatter,
            "with {open_files} open files the host served {clients} clients, rejected the next with 503 \
             and ran {sessions} new sessions"
        )
    }
}

/// Connects clients until the host rejects them, and then runs turns.
pub async fn fill_connections(mut options: HostOptions, plan: ConnectionsPlan) -> Result<ConnectionsResult> {
    let directory = tempfile::tempdir().context("cannot create a temporary directory")?;
    let limited = directory.path().join("innkeeper");
    write_wrapper(&limited, &options.binary, plan.open_files)?;
    options.binary = limited;
    let host = TestHost::start(options).await?;
    let mut client = host.observer("client").await?;
    run_session(&host, &mut client).await.context("before the limit")?;
    let mut clients = Vec::new();
    let mut rejections = 0;
    while rejections < REJECTIONS {
        match connect(&host).await? {
            Some(mut client) => {
                client.initialize(&format!("client-{}", clients.len()), &[]).await?;
                clients.push(client);
            }
            None => rejections += 1,
        }
        ensure!(clients.len() < plan.open_files, "the host accepts more clients than it can open files");
    }
    for _ in 0..plan.sessions {
        run_session(&host, &mut client).await.context("at the limit")?;
    }
    ensure!(connect(&host).await?.is_none(), "a client was accepted at the limit");
    let served = clients.len();
    clients.truncate(served / 2);
    in_time(ANSWER_TIME, "a client is accepted again", async {
        while connect(&host).await?.is_none() {}
        anyhow::Ok(())
    })
    .await??;
    Ok(ConnectionsResult { open_files: plan.open_files, clients: served, sessions: plan.sessions })
}

/// Writes a program that starts the host with a limit of open files.
fn write_wrapper(path: &Path, binary: &Path, open_files: usize) -> Result<()> {
    let text = format!("#!/bin/sh\nulimit -n {open_files}\nexec '{}' \"$@\"\n", binary.display());
    std::fs::write(path, text)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
    Ok(())
}

/// Connects a client; `None` if the host rejects it with 503.
async fn connect(host: &TestHost) -> Result<Option<RawClient>> {
    match in_time(ANSWER_TIME, "the host answers", host.raw()).await? {
        Ok(client) => Ok(Some(client)),
        Err(error) if format!("{error:#}").contains("503") => Ok(None),
        Err(error) => bail!(error.context("a client was not rejected with 503")),
    }
}

/// Runs a turn in a new session.
async fn run_session(host: &TestHost, client: &mut Observer) -> Result<()> {
    let session = format!("claude:/{}", uuid::Uuid::new_v4());
    client.create_session(&session, &host.work_uri()).await?;
    let chat = client.open_session(&session).await?;
    client.say(&chat, "turn-1", "#demo\ntext still here").await?;
    in_time(TURN_TIME, "a turn", client.until_turn_over(&chat, "turn-1")).await??;
    let answered = client.chat(&chat)?.turns.last().is_some_and(|turn| !turn.response_parts.is_empty());
    ensure!(answered, "the turn has no response: {:?}", client.chat(&chat)?.turns);
    Ok(())
}
