//! A host with the streaming agent, in this process, on a port of its own.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use innkeeper_core::clock::SystemClock;
use innkeeper_core::storage::{Nowhere, Storage};
use innkeeper_core::{Host, HostConfig};
use innkeeper_server::{Admission, ClientConnections, Listen, Server, ServerConfig};
use tokio_util::task::TaskTracker;

use super::agent::StreamingAgent;
use crate::stage_host::files_of;

/// The name of the streaming agent among a host's providers.
pub const PROVIDER: &str = "load";

/// A host that admits everybody on this machine.
#[derive(Debug)]
pub struct LoadHost {
    server: Server,
    host: Arc<Host>,
    agents: TaskTracker,
}

impl LoadHost {
    /// Starts one that keeps nothing.
    pub async fn start() -> Result<Self> {
        Self::start_with(Arc::new(Nowhere)).await
    }

    /// Starts one that keeps its sessions there.
    pub async fn start_with(storage: Arc<dyn Storage>) -> Result<Self> {
        let agents = TaskTracker::new();
        let agent = StreamingAgent::new(agents.clone());
        let host = Host::start(HostConfig {
            providers: vec![Arc::new(agent)],
            clock: Arc::new(SystemClock),
            storage,
        })
        .await?;
        let config = ServerConfig {
            listen: vec![Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))],
            admission: Admission::open(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            default_directory: None,
            files: Arc::new(files_of(&host)),
            clients: Arc::new(ClientConnections::default()),
        };
        let server = Server::start(config, Arc::clone(&host)).await.context("the server did not start")?;
        Ok(Self { server, host, agents })
    }

    /// Where it listens.
    pub fn address(&self) -> Result<SocketAddr> {
        match self.server.places() {
            [Listen::Tcp(address), ..] => Ok(*address),
            _ => bail!("the host listens nowhere"),
        }
    }

    /// Ends it with everything in it.
    pub async fn stop(&self) {
        self.server.stop_accepting();
        self.host.shutdown().await;
        self.agents.close();
        self.agents.wait().await;
        self.server.drain().await;
        self.host.finish().await;
    }
}
