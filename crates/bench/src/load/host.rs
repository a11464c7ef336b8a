//! A host in this process with the streaming agent, listening on a free port.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use innkeeper_core::clock::SystemClock;
use innkeeper_core::storage::{Nowhere, Storage};
use innkeeper_core::{AgentLifetimes, EditConfig, Host, HostConfig, HostServices, PermissionConfig};
use innkeeper_server::{Admission, ClientConnections, Listen, Server, ServerConfig};
use innkeeper_workspace::{FilesConfig, LocalFiles};
use tokio_util::task::TaskTracker;

use super::agent::StreamingAgent;

/// Provider id of the streaming agent.
pub const PROVIDER: &str = "load";

/// A host that accepts local clients without a token.
#[derive(Debug)]
pub struct LoadHost {
    server: Server,
    host: Arc<Host>,
    agents: TaskTracker,
}

impl LoadHost {
    /// Starts a host without persistent storage.
    pub async fn start() -> Result<Self> {
        Self::start_with(Arc::new(Nowhere)).await
    }

    /// Starts a host with this storage.
    pub async fn start_with(storage: Arc<dyn Storage>) -> Result<Self> {
        let agents = TaskTracker::new();
        let agent = StreamingAgent::new(agents.clone());
        let host = Host::start(HostConfig {
            providers: vec![Arc::new(agent)],
            clock: Arc::new(SystemClock),
            storage,
            permissions: PermissionConfig::default(),
            edits: EditConfig::none(),
            lifetimes: AgentLifetimes::default(),
            services: HostServices::default(),
        })
        .await?;
        let config = ServerConfig {
            listen: vec![Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))],
            admission: Admission::open(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            default_directory: None,
            files: Arc::new(LocalFiles::new(FilesConfig::sessions_of(&host))),
            clients: Arc::new(ClientConnections::default()),
        };
        let server = Server::start(config, Arc::clone(&host)).await.context("cannot start the server")?;
        Ok(Self { server, host, agents })
    }

    /// The listen address.
    pub fn address(&self) -> Result<SocketAddr> {
        match self.server.places() {
            [Listen::Tcp(address), ..] => Ok(*address),
            _ => bail!("the host has no TCP listener"),
        }
    }

    /// Stops the agents, the server and the host.
    pub async fn stop(&self) {
        self.server.stop_accepting();
        self.host.shutdown().await;
        self.agents.close();
        self.agents.wait().await;
        self.server.drain().await;
        self.host.record_clean_shutdown().await;
    }
}
