//! The parts list: where the concrete types of all layers meet.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use innkeeper_agents::claude::{ClaudeProvider, ClaudeProviderConfig, ProgramSource};
use innkeeper_claude::install::Runtimes;
use innkeeper_claude::process_registry::ProcessRegistry;
use innkeeper_claude::{Program, WardenProgram};
use innkeeper_core::clock::SystemClock;
use innkeeper_core::model::{ModelAccess, ModelEndpoint};
use innkeeper_core::storage::Storage;
use innkeeper_core::{Host, HostConfig};
use innkeeper_gateway::{Gateway, GatewayConfig, GatewayHandle, TurnMark};
use innkeeper_server::{Admission, ClientConnections, Listen, Server, ServerConfig, ServerOptions};
use innkeeper_store::{Store, StoreConfig};
use innkeeper_workspace::{FilesConfig, LocalFiles};
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::config::Upstreams;
use crate::directories::Directories;

/// The hidden command by which this binary is a warden.
pub(crate) const WARDEN_COMMAND: &str = "warden";

/// How long operations on files may take to end: they look at it as they go, but have to
/// clean up. No longer than a stubborn runtime, which ends meanwhile.
const FILES_TIME: Duration = Duration::from_secs(8);

/// What the parts are made from.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) directories: Directories,
    pub(crate) listen: Vec<Listen>,
    pub(crate) admission: Admission,
    pub(crate) server: ServerOptions,
    pub(crate) upstreams: Upstreams,
    pub(crate) claude: Option<PathBuf>,
    /// Directories that clients may reach although no session works in them.
    pub(crate) roots: Vec<PathBuf>,
}

/// A running host with everything around it.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) server: Server,
    inside: Inside,
}

/// What there is without a way in.
#[derive(Debug)]
struct Inside {
    host: Arc<Host>,
    store: Arc<Store>,
    gateway: Arc<GatewayHandle>,
    drivers: TaskTracker,
    files: LocalFiles,
}

/// Builds and starts everything.
pub(crate) async fn start(settings: Settings) -> Result<Running> {
    // First of all: it also makes sure that no other host uses the same directory.
    let store = Arc::new(open_store(settings.directories.data().to_owned()).await?);
    sweep(settings.directories.started()).await;
    let gateway = Arc::new(start_gateway(settings.upstreams, SocketAddr::from(([127, 0, 0, 1], 0))).await?);
    let drivers = TaskTracker::new();
    let workspace = settings.directories.workspace()?;
    let claude = ClaudeProvider::new(
        ClaudeProviderConfig {
            program: program_source(settings.claude, settings.directories.runtimes()),
            warden: warden()?,
            models: Arc::new(GatewayEndpoint(Arc::clone(&gateway))),
            environment: std::env::vars_os().collect(),
            default_directory: workspace.clone(),
            scratch_dir: settings.directories.scratch(),
            registry_dir: settings.directories.started(),
        },
        drivers.clone(),
    );
    let host = Host::start(HostConfig {
        providers: vec![Arc::new(claude)],
        clock: Arc::new(SystemClock),
        storage: Arc::clone(&store) as Arc<dyn Storage>,
    })
    .await?;
    let files = local_files(&host, workspace, &settings.directories, settings.roots);
    let inside = Inside { host, store, gateway, drivers, files };
    let config = ServerConfig {
        listen: settings.listen,
        admission: settings.admission,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        default_directory: home_uri(),
        files: Arc::new(inside.files.clone()),
        clients: Arc::new(ClientConnections::default()),
    };
    match Server::start_with(config, settings.server, Arc::clone(&inside.host)).await {
        Ok(server) => Ok(Running { server, inside }),
        Err(error) => {
            // In order, so that clients go on with the host that comes next as with this one.
            inside.suspend().await;
            inside.finish().await;
            Err(error.into())
        }
    }
}

/// Opens the storage, off the threads that serve clients. What is wrong with it is in the
/// log by then.
async fn open_store(directory: PathBuf) -> Result<Store> {
    Ok(tokio::task::spawn_blocking(move || Store::open(StoreConfig::new(directory))).await??)
}

/// The files that clients may reach: those of sessions, also of sessions without a
/// directory of their own, and what the user grants; but nothing else of the host's.
fn local_files(
    host: &Arc<Host>,
    workspace: PathBuf,
    directories: &Directories,
    roots: Vec<PathBuf>,
) -> LocalFiles {
    let host = Arc::clone(host);
    let mut granted = roots;
    granted.push(workspace);
    LocalFiles::new(FilesConfig {
        sessions: Arc::new(move || host.working_directories()),
        granted,
        closed: vec![directories.data().to_owned()],
    })
}

/// Ends what an earlier host left behind because its wardens were killed with it.
async fn sweep(started: PathBuf) {
    match tokio::task::spawn_blocking(move || ProcessRegistry::new(started).sweep()).await {
        Ok(Ok(swept)) => tracing::debug!(?swept, "looked for leftovers of an earlier host"),
        Ok(Err(error)) => tracing::warn!(%error, "leftovers of an earlier host could not be looked for"),
        Err(error) => tracing::error!(%error, "the search for leftovers of an earlier host failed"),
    }
}

/// Starts a gateway in front of an upstream, on a thread of its own: events pass while the host is busy.
pub(crate) async fn start_gateway(upstreams: Upstreams, listen: SocketAddr) -> Result<GatewayHandle> {
    let limits = upstreams.limits;
    let upstream = upstreams.build()?;
    Ok(Gateway::start_on_thread(GatewayConfig { listen, upstream }, limits).await?)
}

impl Running {
    /// Ends everything in order: no new clients, then the agents and work on files, then
    /// the clients that are left, and last the gateway, which the agents need to the end.
    pub(crate) async fn stop(&self) {
        self.server.stop_accepting();
        self.inside.suspend().await;
        self.server.drain().await;
        self.inside.finish().await;
    }
}

impl Inside {
    /// Ends the agents and work on files.
    async fn suspend(&self) {
        tokio::join!(self.host.shutdown(), self.stop_files());
        self.drivers.close();
        self.drivers.wait().await;
    }

    /// Ends the rest, when nobody is connected any more.
    async fn finish(&self) {
        self.host.finish().await;
        self.gateway.shutdown().await;
        let store = Arc::clone(&self.store);
        if let Err(error) = tokio::task::spawn_blocking(move || store.close()).await {
            tracing::error!(%error, "the storage could not be closed");
        }
    }

    /// Waits until no file is being changed, so that nothing is left half done.
    async fn stop_files(&self) {
        if tokio::time::timeout(FILES_TIME, self.files.stop()).await.is_err() {
            tracing::warn!("an operation on files did not end in time; something of it may stay behind");
        }
    }
}

/// The gateway as the drivers see it.
#[derive(Debug)]
struct GatewayEndpoint(Arc<GatewayHandle>);

impl ModelEndpoint for GatewayEndpoint {
    fn access(&self, conversation: Uuid) -> ModelAccess {
        ModelAccess {
            base_url: self.0.base_url().to_owned(),
            bearer: self.0.bearer_for(&conversation.to_string()),
        }
    }

    fn mark_turn(&self, conversation: Uuid, text: &str) {
        self.0.mark_turn(&conversation.to_string(), TurnMark::with_text(text));
    }
}

/// This very binary. On Linux by the link that still leads to it after an upgrade
/// has replaced the file.
fn warden() -> Result<WardenProgram> {
    let path = if cfg!(target_os = "linux") {
        PathBuf::from("/proc/self/exe")
    } else {
        std::env::current_exe().context("the path of this program cannot be found")?
    };
    Ok(WardenProgram { path, args: vec![WARDEN_COMMAND.into()] })
}

/// The runtime that the user named, else the installed one, else `claude` on PATH.
fn program_source(named: Option<PathBuf>, runtimes: &Path) -> ProgramSource {
    let runtimes = Runtimes::new(runtimes);
    Arc::new(move || {
        if let Some(path) = &named {
            return if path.is_file() {
                Ok(Program::from_path(path))
            } else {
                Err(format!(
                    "There is no Claude runtime at {}; correct --claude or leave it out.",
                    path.display()
                ))
            };
        }
        runtimes
            .default_program()
            .or_else(|| on_path("claude"))
            .map(Program::from_path)
            .ok_or_else(|| "No Claude runtime is installed. Run `innkeeper runtime install`, then send the message again.".to_owned())
    })
}

fn on_path(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|dir| dir.join(name)).find(|path| path.is_file())
}

fn home_uri() -> Option<String> {
    url::Url::from_directory_path(std::env::home_dir()?)
        .ok()
        .map(|url| url.as_str().trim_end_matches('/').to_owned())
        .filter(|uri| uri != "file:" && uri != "file://")
}
