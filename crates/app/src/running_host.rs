//! Builds, starts and stops the host from the concrete types of all crates.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use innkeeper_agents::claude::{ClaudeProvider, ClaudeProviderConfig, ProgramSource};
use innkeeper_claude::install::Runtimes;
use innkeeper_claude::process_registry::ProcessRegistry;
use innkeeper_claude::{Program, WardenProgram, transcript};
use innkeeper_core::clock::SystemClock;
use innkeeper_core::edits::EditStorage;
use innkeeper_core::model::{ModelAccess, ModelCatalogue, ModelEndpoint, ModelFailure, ModelLookup};
use innkeeper_core::storage::Storage;
use innkeeper_core::usage::ModelUse;
use innkeeper_core::{
    AdministratorRules, AgentLifetimes, EditConfig, Host, HostConfig, HostServices, PermissionConfig,
};
use innkeeper_gateway::{Gateway, GatewayConfig, GatewayHandle, SessionUsage, TurnMark};
use innkeeper_server::{
    Admission, ClientConnections, Listen, Server, ServerConfig, ServerOptions, UsageSource,
};
use innkeeper_store::{EditDatabase, EditDatabaseConfig, Store, StoreConfig};
use innkeeper_workspace::{
    EditLogConfig, FilesConfig, LocalEditLog, LocalFiles, LocalPathResolver, LocalProjects,
};
use tokio::sync::watch;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::cli::UpstreamName;
use crate::config::{EditSettings, Upstreams};
use crate::directories::DataDirectories;
use crate::model_refresh::{CurrentModels, ModelRefresh};
use crate::secrets;
use crate::titles::title_writer;
use crate::trusted_folders::TrustFile;

/// Hidden command that runs this binary as a warden.
pub(crate) const WARDEN_COMMAND: &str = "warden";

/// Timeout for stopping file operations. They check for cancellation but must clean up.
/// Runtimes stop concurrently and may take as long.
const FILES_TIME: Duration = Duration::from_secs(8);

/// Settings of the host.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) directories: DataDirectories,
    pub(crate) listen: Vec<Listen>,
    pub(crate) admission: Admission,
    pub(crate) server: ServerOptions,
    pub(crate) upstreams: Upstreams,
    pub(crate) claude: Option<PathBuf>,
    /// Directories that clients may access in addition to those of sessions.
    pub(crate) roots: Vec<PathBuf>,
    /// Folders whose agent settings may run programs.
    pub(crate) trusted: Vec<PathBuf>,
    /// Permission rules that clients cannot change.
    pub(crate) administrator_rules: AdministratorRules,
    /// Limits of the edit log.
    pub(crate) edits: EditSettings,
    /// Time limit for the start of a runtime.
    pub(crate) start_timeout: Duration,
    /// How long agents without work keep their processes.
    pub(crate) lifetimes: AgentLifetimes,
    /// Time between two requests for the list of models.
    pub(crate) model_refresh: Duration,
}

/// A running host with its server.
#[derive(Debug)]
pub(crate) struct RunningHost {
    pub(crate) server: Server,
    parts: HostParts,
}

/// Everything except the server.
#[derive(Debug)]
struct HostParts {
    host: Arc<Host>,
    store: Arc<Store>,
    edits: Arc<EditDatabase>,
    gateway: Arc<GatewayHandle>,
    models: ModelRefresh,
    drivers: TaskTracker,
    files: LocalFiles,
    projects: LocalProjects,
}

/// Builds and starts the host.
pub(crate) async fn start(settings: Settings) -> Result<RunningHost> {
    // Opened first, since it locks the data directory against other hosts.
    let store = Arc::new(open_store(settings.directories.data().to_owned()).await?);
    let edits = Arc::new(open_edits(settings.directories.edits(), settings.edits.quota_bytes).await?);
    sweep(settings.directories.started()).await;
    let upstream = settings.upstreams.name;
    let gateway = Arc::new(start_gateway(settings.upstreams, SocketAddr::from(([127, 0, 0, 1], 0))).await?);
    let models = ModelRefresh::start(Arc::clone(&gateway), upstream, settings.model_refresh);
    models.listed_soon().await;
    let drivers = TaskTracker::new();
    let workspace = settings.directories.workspace()?;
    let claude = ClaudeProvider::new(
        ClaudeProviderConfig {
            program: program_source(settings.claude, settings.directories.runtimes()),
            warden: warden()?,
            models: Arc::new(GatewayEndpoint {
                gateway: Arc::clone(&gateway),
                upstream,
                models: models.current(),
            }),
            environment: secrets::public_environment(),
            default_directory: workspace.clone(),
            scratch_dir: settings.directories.scratch(),
            registry_dir: settings.directories.started(),
            trust: Arc::new(TrustFile::new(settings.directories.trust(), &settings.trusted)),
            paths: Arc::new(LocalPathResolver::new(home())),
            start_timeout: settings.start_timeout,
            bypass_refusal: bypass_refusal(),
        },
        drivers.clone(),
    );
    let log = LocalEditLog::excluding(
        Arc::clone(&edits) as Arc<dyn EditStorage>,
        EditLogConfig { limits: settings.edits.limits, ..EditLogConfig::default() },
        own_files(&settings.directories),
    );
    log.start();
    let projects = LocalProjects::new(own_files(&settings.directories));
    let host = Host::start(HostConfig {
        providers: vec![Arc::new(claude)],
        clock: Arc::new(SystemClock),
        storage: Arc::clone(&store) as Arc<dyn Storage>,
        permissions: PermissionConfig {
            administrator: settings.administrator_rules,
            guarded_paths: vec![real_path(settings.directories.data())],
            unguarded_paths: vec![real_path(&workspace)],
            home: home(),
        },
        edits: EditConfig { log: Arc::new(log), default_directory: Some(workspace.clone()) },
        lifetimes: settings.lifetimes,
        services: HostServices {
            projects: Arc::new(projects.clone()),
            titles: title_writer(&gateway, upstream),
        },
    })
    .await?;
    let access = file_access(&host, workspace, &settings.directories, settings.roots);
    let files = LocalFiles::beside(access, &projects);
    let parts = HostParts { host, store, edits, gateway, models, drivers, files, projects };
    let config = ServerConfig {
        listen: settings.listen,
        admission: settings.admission,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        default_directory: home_uri(),
        files: Arc::new(parts.files.clone()),
        clients: Arc::new(ClientConnections::default()),
    };
    let gateway = Arc::clone(&parts.gateway);
    let usage = Some(UsageSource::new(move || model_use(&gateway.total_usage())));
    let options = ServerOptions { usage, ..settings.server };
    match Server::start_with(config, options, Arc::clone(&parts.host)).await {
        Ok(server) => Ok(RunningHost { server, parts }),
        Err(error) => {
            // A graceful stop lets clients resume with the next host.
            parts.suspend().await;
            parts.finish().await;
            Err(error.into())
        }
    }
}

/// Why the runtime's mode that skips all permission checks is not available. As root, the
/// runtime starts with this mode only in a sandbox.
fn bypass_refusal() -> Option<String> {
    let in_sandbox = std::env::var_os("IS_SANDBOX").is_some_and(|value| value == "1");
    let refused = nix::unistd::geteuid().is_root() && !in_sandbox;
    refused.then(|| {
        "Bypass permissions is not available to root; run the host as another user, or set IS_SANDBOX=1 in a sandbox."
            .to_owned()
    })
}

/// The user's home directory.
fn home() -> Option<PathBuf> {
    std::env::home_dir().filter(|home| !home.as_os_str().is_empty())
}

/// What the host and the runtimes write for themselves, which is not the work of an agent.
fn own_files(directories: &DataDirectories) -> Vec<PathBuf> {
    let runtime = transcript::config_dir(&secrets::public_environment());
    let state = home().map(|home| home.join(".claude.json"));
    let data = directories.data().to_owned();
    [Some(data), runtime, state].into_iter().flatten().map(|path| real_path(&path)).collect()
}

/// The path with links resolved, if it exists.
fn real_path(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Opens the storage on a blocking thread. Problems with the storage are logged by then.
async fn open_store(directory: PathBuf) -> Result<Store> {
    Ok(tokio::task::spawn_blocking(move || Store::open(StoreConfig::new(directory))).await??)
}

/// Opens the storage of the edit log on a blocking thread.
async fn open_edits(path: PathBuf, quota_bytes: u64) -> Result<EditDatabase> {
    let config = EditDatabaseConfig::new(quota_bytes);
    Ok(tokio::task::spawn_blocking(move || EditDatabase::open(path, config)).await??)
}

/// Configures the files that clients may access: working directories of sessions, the
/// default workspace and directories granted by the user, but nothing else in the data
/// directory.
fn file_access(
    host: &Arc<Host>,
    workspace: PathBuf,
    directories: &DataDirectories,
    roots: Vec<PathBuf>,
) -> FilesConfig {
    let mut granted = roots;
    granted.push(workspace);
    FilesConfig { granted, closed: vec![directories.data().to_owned()], ..FilesConfig::sessions_of(host) }
}

/// Stops runtimes of an earlier host whose wardens were killed along with it.
async fn sweep(started: PathBuf) {
    match tokio::task::spawn_blocking(move || ProcessRegistry::new(started).sweep()).await {
        Ok(Ok(swept)) => tracing::debug!(?swept, "checked for runtimes of an earlier host"),
        Ok(Err(error)) => tracing::warn!(%error, "cannot check for runtimes of an earlier host"),
        Err(error) => tracing::error!(%error, "the check for runtimes of an earlier host panicked"),
    }
}

/// Starts a gateway on its own thread, so that it forwards events while the host is busy.
pub(crate) async fn start_gateway(upstreams: Upstreams, listen: SocketAddr) -> Result<GatewayHandle> {
    let limits = upstreams.limits;
    let upstream = upstreams.build()?;
    Ok(Gateway::start_on_thread(GatewayConfig { listen, upstream }, limits).await?)
}

impl RunningHost {
    /// The host.
    pub(crate) fn host(&self) -> &Host {
        &self.parts.host
    }

    /// Stops gracefully: stops accepting clients, stops agents and file operations, closes
    /// the remaining connections, and last stops the gateway, which the agents need until
    /// they exit.
    pub(crate) async fn stop(&self) {
        self.server.stop_accepting();
        self.parts.suspend().await;
        self.server.drain().await;
        self.parts.finish().await;
    }
}

impl HostParts {
    /// Stops agents and file operations.
    async fn suspend(&self) {
        tokio::join!(self.host.shutdown(), self.stop_files(), self.stop_projects(), self.models.stop());
        self.drivers.close();
        self.drivers.wait().await;
    }

    /// Stops the rest once all clients are disconnected.
    async fn finish(&self) {
        self.host.record_clean_shutdown().await;
        self.gateway.shutdown().await;
        let (store, edits) = (Arc::clone(&self.store), Arc::clone(&self.edits));
        let close = move || {
            edits.close();
            store.close();
        };
        if let Err(error) = tokio::task::spawn_blocking(close).await {
            tracing::error!(%error, "cannot close the storage");
        }
    }

    /// Ends the observation of repositories.
    async fn stop_projects(&self) {
        let projects = self.projects.clone();
        if let Err(error) = tokio::task::spawn_blocking(move || projects.stop()).await {
            tracing::error!(%error, "cannot stop the observation of repositories");
        }
    }

    /// Waits for file operations to finish, so that none is left half done.
    async fn stop_files(&self) {
        if tokio::time::timeout(FILES_TIME, self.files.stop()).await.is_err() {
            tracing::warn!("a file operation did not stop in time; temporary files may remain");
        }
    }
}

/// The gateway as the model endpoint of the drivers.
#[derive(Debug)]
struct GatewayEndpoint {
    gateway: Arc<GatewayHandle>,
    /// Where the gateway sends the requests.
    upstream: UpstreamName,
    models: CurrentModels,
}

impl ModelEndpoint for GatewayEndpoint {
    fn access(&self, conversation: Uuid) -> ModelAccess {
        ModelAccess {
            base_url: self.gateway.base_url().to_owned(),
            bearer: self.gateway.bearer_for(&conversation.to_string()),
        }
    }

    fn mark_turn(&self, conversation: Uuid, text: &str) {
        self.gateway.mark_turn(&conversation.to_string(), TurnMark::with_text(text));
    }

    fn is_free(&self, _: Uuid) -> bool {
        matches!(self.upstream, UpstreamName::Demo)
    }

    fn take_usage(&self, conversation: Uuid) -> ModelUse {
        model_use(&self.gateway.take_usage(&conversation.to_string()))
    }

    fn last_failure(&self, conversation: Uuid) -> Option<ModelFailure> {
        let last = self.gateway.last_error(&conversation.to_string())?;
        let credentials_advice = match self.upstream {
            UpstreamName::Demo => "The demo model needs no credentials.",
            UpstreamName::Copilot => "Run `innkeeper login`, then restart the host.",
            UpstreamName::Anthropic => {
                "Check the key in ANTHROPIC_API_KEY or config.toml, then restart the host."
            }
        };
        Some(ModelFailure {
            service: self.upstream.service().to_owned(),
            credentials_advice: credentials_advice.to_owned(),
            status: last.status,
            kind: last.kind,
            message: last.message,
            retry_after: last.retry_after,
        })
    }

    fn catalogue(&self) -> watch::Receiver<ModelCatalogue> {
        self.models.catalogue()
    }

    fn find_model(&self, id: &str) -> ModelLookup {
        self.models.find(id)
    }
}

fn model_use(usage: &SessionUsage) -> ModelUse {
    ModelUse {
        requests: usage.requests,
        user_requests: usage.user_requests,
        input_tokens: usage.input_tokens,
        output_tokens: usage.output_tokens,
        cache_read_tokens: usage.cache_read_input_tokens,
        cache_write_tokens: usage.cache_creation_input_tokens,
        nano_dollars: None,
        nano_aiu: Some(usage.nano_aiu).filter(|credits| *credits > 0),
    }
}

/// Returns the command for wardens, which is this binary. On Linux `/proc/self/exe` still
/// refers to it after an upgrade has replaced the file.
fn warden() -> Result<WardenProgram> {
    let path = if cfg!(target_os = "linux") {
        PathBuf::from("/proc/self/exe")
    } else {
        std::env::current_exe().context("cannot find the path of this program")?
    };
    Ok(WardenProgram { path, args: vec![WARDEN_COMMAND.into()] })
}

/// Finds the runtime: the path from the user, otherwise the installed one, otherwise
/// `claude` on PATH.
fn program_source(named: Option<PathBuf>, runtimes: &Path) -> ProgramSource {
    let runtimes = Runtimes::new(runtimes);
    Arc::new(move || {
        if let Some(path) = &named {
            return if path.is_file() {
                Ok(Program::from_path(path))
            } else {
                Err(format!("Cannot find a Claude runtime at {}; correct or omit --claude.", path.display()))
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
