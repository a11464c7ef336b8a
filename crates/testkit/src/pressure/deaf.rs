//! Clients that ask for much and never read. The host's memory must stay bounded, other
//! clients must be served, and the memory must be returned.

use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;
use tokio::net::TcpSocket;

use super::host_process::memory;
use crate::host::{HostOptions, TestHost};
use crate::observer::Observer;
use crate::raw::RawClient;
use crate::wait::eventually;

const MIB: u64 = 1024 * 1024;

/// Most memory that the clients may occupy in addition to the budget of all outboxes:
/// the largest outbox, and copies of what is being encoded and written.
const MAX_EXCESS: u64 = 200 * MIB;

/// Most memory that may remain afterwards.
const MAX_REST: u64 = 32 * MIB;

/// Kernel receive buffer of a client.
const RECEIVE_BUFFER: u32 = 128 * 1024;

/// How long the host may take to return the memory: it may first have to notice that the
/// clients make no progress.
const RETURN_TIME: Duration = Duration::from_secs(60);

/// The size of the scenario.
#[derive(Clone, Copy, Debug)]
pub struct DeafPlan {
    /// Number of clients that never read.
    pub clients: usize,
    /// Snapshots of about 512 KiB that each of them asks for.
    pub snapshots: usize,
    /// What the host may queue for all clients.
    pub queued_mib: u32,
    /// Seed of the order and size of the requests.
    pub seed: u64,
}

/// Figures of a run.
#[derive(Debug)]
pub struct DeafResult {
    /// Memory before the clients connected, the most with them, and after they left.
    memory: [u64; 3],
}

impl fmt::Display for DeafResult {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [before, most, after] = self.memory.map(|bytes| bytes / MIB);
        write!(
            formatter,
            "host memory {before} MiB, with deaf clients at most {most} MiB, afterwards {after} MiB"
        )
    }
}

/// Lets clients ask for snapshots without reading them.
pub async fn fill_outboxes(mut options: HostOptions, plan: DeafPlan) -> Result<DeafResult> {
    let directory = tempfile::tempdir().context("cannot create a temporary directory")?;
    let config = directory.path().join("config.toml");
    std::fs::write(&config, format!("[limits]\nqueued_mib = {}\n", plan.queued_mib))?;
    options.arguments.extend(["--config".to_owned(), config.display().to_string()]);
    let host = TestHost::start(options).await?;
    let mut random = StdRng::seed_from_u64(plan.seed);
    let (mut observer, chat) = chat_with_draft(&host, &mut random).await?;
    let before = memory(&host)?;
    let mut most = before;
    let mut clients = Vec::new();
    for number in 0..plan.clients {
        clients.push(deaf_client(&host, number, &chat).await?);
    }
    let mut left = plan.snapshots * plan.clients;
    while left > 0 && !clients.is_empty() {
        let at = random.random_range(0..clients.len());
        let Some(client) = clients.get_mut(at) else { continue };
        let request =
            json!({"jsonrpc": "2.0", "id": left, "method": "subscribe", "params": {"channel": chat}});
        // Fails if the host has closed the connection.
        if client.send_text(&request.to_string()).await.is_err() {
            clients.swap_remove(at);
        }
        left -= 1;
        most = most.max(memory(&host)?);
    }
    // Requests are still being handled; their responses count, too.
    observer.settle().await.context("another client is not served")?;
    most = most.max(settled_memory(&host).await?);
    ensure!(
        most - before <= u64::from(plan.queued_mib) * MIB + MAX_EXCESS,
        "{} deaf clients took {} MiB",
        plan.clients,
        (most - before) / MIB
    );
    drop(clients);
    let returned = || memory(&host).is_ok_and(|now| now <= before + MAX_REST);
    eventually(RETURN_TIME, "the memory is returned", returned).await?;
    observer.list_sessions().await.context("another client is not served")?;
    Ok(DeafResult { memory: [before, most, memory(&host)?] })
}

/// Opens a chat whose snapshots are about 512 KiB.
async fn chat_with_draft(host: &TestHost, random: &mut StdRng) -> Result<(Observer, String)> {
    let session = format!("claude:/{}", uuid::Uuid::new_v4());
    let mut observer = host.observer("reading").await?;
    observer.create_session(&session, &host.work_uri()).await?;
    let chat = observer.open_session(&session).await?;
    let text = "x".repeat(1024 * random.random_range(384..640));
    let draft = json!({"text": text, "origin": {"kind": "user"}});
    observer.dispatch(&chat, json!({"type": "chat/draftChanged", "draft": draft})).await?;
    let echoed = |observer: &Observer| observer.chat(&chat).is_ok_and(|chat| chat.draft.is_some());
    observer.until("the draft", echoed).await?;
    Ok((observer, chat))
}

async fn deaf_client(host: &TestHost, number: usize, chat: &str) -> Result<RawClient> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    let peer = host.socket()?.trim_start_matches("ws://").trim_end_matches('/').parse()?;
    let stream = socket.connect(peer).await.context("cannot connect")?;
    let mut client = RawClient::over(&host.address()?, Box::new(stream)).await?;
    client.initialize(&format!("deaf-{number}"), &[chat]).await?;
    Ok(client)
}

/// Waits until the memory stops growing and returns the most that was seen.
async fn settled_memory(host: &TestHost) -> Result<u64> {
    let mut most = memory(host)?;
    let mut steady = 0;
    let settled = || {
        let now = memory(host).unwrap_or_default();
        steady = if now > most { 0 } else { steady + 1 };
        most = most.max(now);
        steady >= 100
    };
    eventually(Duration::from_secs(60), "the memory stops growing", settled).await?;
    Ok(most)
}
