//! A host in the test's process, with real sockets and an agent that the test scripts.
//! Only the agent is fake.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use innkeeper_core::clock::{Clock, SystemClock};
use innkeeper_core::storage::{Nowhere, Storage};
use innkeeper_core::{AgentLifetimes, EditConfig, Host, HostConfig, HostServices, PermissionConfig};
use innkeeper_core_fakes::Stage;
use innkeeper_server::{Admission, ClientConnections, Listen, Server, ServerConfig};
use innkeeper_testkit::{Observer, RawClient};
use innkeeper_workspace::{FilesConfig, LocalFiles};

/// Options of a [`StageHost`]. A second host started with the same options finds the
/// stored state of the first.
#[derive(Clone)]
pub(crate) struct StageOptions {
    /// The scripted agent provider.
    pub(crate) stage: Stage,
    /// The storage; by default nothing is stored.
    pub(crate) storage: Arc<dyn Storage>,
    /// The clock.
    pub(crate) clock: Arc<dyn Clock>,
    /// The edit log; by default there is none.
    pub(crate) edits: EditConfig,
    /// Services that sessions can do without; by default there are none.
    pub(crate) services: HostServices,
    /// Whether drafts open agents; by default only messages do.
    pub(crate) prewarm: bool,
}

impl Default for StageOptions {
    fn default() -> Self {
        Self {
            stage: Stage::default(),
            storage: Arc::new(Nowhere),
            clock: Arc::new(SystemClock),
            edits: EditConfig::none(),
            services: HostServices::default(),
            prewarm: false,
        }
    }
}

impl std::fmt::Debug for StageOptions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("StageOptions").finish_non_exhaustive()
    }
}

/// A running host.
#[derive(Debug)]
pub(crate) struct StageHost {
    host: Arc<Host>,
    server: Server,
    options: StageOptions,
    address: String,
}

impl StageHost {
    /// Starts a host that listens on a free port.
    pub(crate) async fn start(options: StageOptions) -> Result<Self> {
        let host = Host::start(HostConfig {
            providers: vec![options.stage.provider()],
            clock: Arc::clone(&options.clock),
            storage: Arc::clone(&options.storage),
            permissions: PermissionConfig::default(),
            edits: options.edits.clone(),
            lifetimes: AgentLifetimes { prewarm: options.prewarm, ..AgentLifetimes::default() },
            services: options.services.clone(),
        })
        .await?;
        let config = ServerConfig {
            listen: vec![Listen::Tcp(([127, 0, 0, 1], 0).into())],
            admission: Admission::open(),
            version: "0.0.0".to_owned(),
            default_directory: Some("file:///home/user".to_owned()),
            files: Arc::new(LocalFiles::new(FilesConfig::sessions_of(&host))),
            clients: Arc::new(ClientConnections::default()),
        };
        let server = Server::start(config, Arc::clone(&host)).await?;
        let address = server.places().iter().find_map(|place| match place {
            Listen::Tcp(address) => Some(format!("ws://{address}/")),
            Listen::Unix(_) | Listen::Stdio => None,
        });
        Ok(Self { host, server, options, address: address.context("the host has no TCP listener")? })
    }

    /// Shuts the host down and starts another one with the same options. Its address
    /// changes, so clients must reconnect.
    pub(crate) async fn restart(self) -> Result<Self> {
        let options = self.options.clone();
        self.stop().await;
        Self::start(options).await
    }

    /// Shuts the host down.
    pub(crate) async fn stop(self) {
        self.server.stop_accepting();
        self.host.shutdown().await;
        self.server.drain().await;
        self.host.record_clean_shutdown().await;
    }

    /// The scripted agent provider.
    pub(crate) fn stage(&self) -> &Stage {
        &self.options.stage
    }

    /// The host.
    pub(crate) fn host(&self) -> &Host {
        &self.host
    }

    /// The WebSocket URL.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// An official client, connected and subscribed to the root channel.
    pub(crate) async fn observer(&self, client_id: &str) -> Result<Observer> {
        self.observer_of(client_id, &["1.0.0", "0.9.0"]).await
    }

    /// An official client that offers these protocol versions.
    pub(crate) async fn observer_of(&self, client_id: &str, versions: &[&str]) -> Result<Observer> {
        Observer::connect_small(&self.address, client_id, versions).await
    }

    /// A raw connection.
    pub(crate) async fn raw(&self) -> Result<RawClient> {
        RawClient::connect(&self.address).await
    }
}
