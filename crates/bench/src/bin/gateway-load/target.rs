//! The measured targets: the upstream, nginx, the gateway and the proxies given with
//! `--other`; how each is started and where it listens.
//!
//! Invariant: every server listens on 127.0.0.1 and uses the fake upstream.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use innkeeper_bench::plan::Plan;
use serde_json::Value;
use tempfile::TempDir;

use crate::child::{ServerLaunch, ServerProcess};
use crate::client::{self, Fidelity, LoadConnection, LoadEndpoint};
use crate::usage::ProcessTree;

/// Startup timeout of our own servers, generous for busy machines.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Startup timeout of other proxies; some import many modules first.
const OTHERS_TIMEOUT: Duration = Duration::from_secs(90);

/// The key of other proxies: not a secret, but long enough for proxies that check its
/// format.
const OTHERS_KEY: &str = "sk-bench-4f1c8a72e90b35d6a1c47e820d9b63f5";

/// Polling interval for servers without a ready line.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The fake upstream.
#[derive(Debug)]
pub(crate) struct UpstreamProcess {
    endpoint: LoadEndpoint,
    _server: ServerProcess,
    _folder: TempDir,
}

/// The counters of the upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UpstreamCounts {
    pub(crate) started: u64,
    pub(crate) cancelled: u64,
    pub(crate) active: u64,
}

impl UpstreamProcess {
    pub(crate) async fn start(program: &Path) -> Result<Self> {
        let folder = scratch()?;
        let mut server = ServerProcess::start(ServerLaunch {
            program,
            arguments: Vec::new(),
            environment: Vec::new(),
            folder: folder.path(),
        })?;
        let ready = server.ready_line(TIMEOUT).await.context("cannot start the fake upstream")?;
        let endpoint = LoadEndpoint { address: address_in(&ready)?, bearer: "direct.bench".to_owned() };
        Ok(Self { endpoint, _server: server, _folder: folder })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.endpoint.address
    }

    pub(crate) async fn counts(&self) -> Result<UpstreamCounts> {
        let body = client::get(&self.endpoint, "/counts").await?;
        let counts: Value = serde_json::from_slice(&body).context("upstream counters are not valid JSON")?;
        let count = |name: &str| {
            counts
                .get(name)
                .and_then(Value::as_u64)
                .with_context(|| format!("no `{name}` in the upstream counters"))
        };
        Ok(UpstreamCounts {
            started: count("started")?,
            cancelled: count("cancelled")?,
            active: count("active")?,
        })
    }
}

/// A kind of target.
#[derive(Clone, Debug)]
pub(crate) enum TargetKind {
    /// The upstream without a proxy.
    Direct,
    /// nginx, with the path of its program.
    Nginx(PathBuf),
    /// The gateway, with the path of the `innkeeper` program.
    Gateway(PathBuf),
    /// Another proxy.
    Other {
        /// Name in the table.
        name: String,
        /// Program that starts it.
        program: PathBuf,
    },
}

impl TargetKind {
    /// Name in the table.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Direct => "direct",
            Self::Nginx(_) => "nginx",
            Self::Gateway(_) => "innkeeper",
            Self::Other { name, .. } => name,
        }
    }

    /// Starts the target and waits until a response passes through it.
    pub(crate) async fn start(&self, upstream: &UpstreamProcess) -> Result<BenchTarget> {
        let folder = scratch()?;
        let target = match self {
            Self::Direct => BenchTarget {
                endpoint: upstream.endpoint.clone(),
                server: None,
                fidelity: Fidelity::Exact,
                _folder: folder,
            },
            Self::Nginx(program) => start_nginx(program, upstream, folder).await?,
            Self::Gateway(program) => start_gateway(program, upstream, folder).await?,
            Self::Other { program, .. } => start_other(program, upstream, folder).await?,
        };
        Ok(target)
    }
}

/// A running target.
#[derive(Debug)]
pub(crate) struct BenchTarget {
    pub(crate) endpoint: LoadEndpoint,
    pub(crate) fidelity: Fidelity,
    /// `None` for the upstream, which needs no proxy.
    server: Option<ServerProcess>,
    _folder: TempDir,
}

impl BenchTarget {
    /// The target's current processes; `None` for the upstream.
    pub(crate) fn processes(&self) -> Result<Option<ProcessTree>> {
        self.server.as_ref().map(|server| ProcessTree::of(server.pid())).transpose()
    }

    /// Requests one response on a new connection.
    pub(crate) async fn probe(&self, plan: Plan) -> Result<()> {
        let mut connection = LoadConnection::open(&self.endpoint).await?;
        connection.ask(&self.endpoint.request(plan), plan, self.fidelity).await?;
        Ok(())
    }

    /// The end of the target's stderr, for errors.
    pub(crate) fn stderr_tail(&self) -> String {
        self.server.as_ref().map_or_else(String::new, ServerProcess::stderr_tail)
    }

    /// Sends requests until a response passes through the target.
    async fn wait_until_ready(mut self, limit: Duration) -> Result<Self> {
        let deadline = tokio::time::Instant::now() + limit;
        let plan = Plan::full(6);
        loop {
            if let Some(server) = &mut self.server {
                server.check_alive()?;
            }
            let left = deadline.saturating_duration_since(tokio::time::Instant::now());
            let error = match tokio::time::timeout(left, self.probe(plan)).await {
                Ok(Ok(())) => return Ok(self),
                Ok(Err(error)) => format!("{error:#}"),
                Err(_) => "no response".to_owned(),
            };
            if tokio::time::Instant::now() + POLL_INTERVAL >= deadline {
                bail!("timed out waiting for a response: {error}; {}", self.stderr_tail());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

async fn start_gateway(program: &Path, upstream: &UpstreamProcess, folder: TempDir) -> Result<BenchTarget> {
    let arguments = ["gateway", "--listen", "127.0.0.1:0", "--upstream", "anthropic", "--json"];
    let mut server = ServerProcess::start(ServerLaunch {
        program,
        arguments: arguments.map(str::to_owned).to_vec(),
        environment: vec![
            ("ANTHROPIC_API_KEY", "x".to_owned()),
            ("INNKEEPER_ANTHROPIC_URL", format!("http://{}", upstream.address())),
            ("INNKEEPER_DATA_DIR", folder.path().display().to_string()),
        ],
        folder: folder.path(),
    })?;
    let ready = server.ready_line(TIMEOUT).await?;
    let nonce = ready.get("nonce").and_then(Value::as_str).context("no nonce in the ready line")?;
    let endpoint = LoadEndpoint { address: address_in(&ready)?, bearer: format!("{nonce}.bench") };
    let target = BenchTarget { endpoint, fidelity: Fidelity::Exact, server: Some(server), _folder: folder };
    target.wait_until_ready(TIMEOUT).await
}

async fn start_nginx(program: &Path, upstream: &UpstreamProcess, folder: TempDir) -> Result<BenchTarget> {
    let address = free_address()?;
    let configuration = folder.path().join("nginx.conf");
    std::fs::write(&configuration, nginx_configuration(address, upstream.address()))?;
    let server = ServerProcess::start(ServerLaunch {
        program,
        arguments: vec![
            "-p".to_owned(),
            folder.path().display().to_string(),
            "-c".to_owned(),
            configuration.display().to_string(),
            "-e".to_owned(),
            "stderr".to_owned(),
        ],
        environment: Vec::new(),
        folder: folder.path(),
    })?;
    let endpoint = LoadEndpoint { address, bearer: "nginx.bench".to_owned() };
    let target = BenchTarget { endpoint, fidelity: Fidelity::Exact, server: Some(server), _folder: folder };
    target.wait_until_ready(TIMEOUT).await
}

async fn start_other(program: &Path, upstream: &UpstreamProcess, folder: TempDir) -> Result<BenchTarget> {
    let address = free_address()?;
    let server = ServerProcess::start(ServerLaunch {
        program,
        arguments: Vec::new(),
        environment: vec![
            ("BENCH_UPSTREAM", format!("http://{}", upstream.address())),
            ("BENCH_PORT", address.port().to_string()),
            ("BENCH_KEY", OTHERS_KEY.to_owned()),
            ("BENCH_FOLDER", folder.path().display().to_string()),
        ],
        folder: folder.path(),
    })?;
    let endpoint = LoadEndpoint { address, bearer: OTHERS_KEY.to_owned() };
    let target =
        BenchTarget { endpoint, fidelity: Fidelity::Rewritten, server: Some(server), _folder: folder };
    target.wait_until_ready(OTHERS_TIMEOUT).await
}

/// Configures nginx as a plain streaming proxy: one worker, no buffering, keep-alive on
/// both sides.
fn nginx_configuration(listen: SocketAddr, upstream: SocketAddr) -> String {
    format!(
        "daemon off;
worker_processes 1;
worker_rlimit_nofile 8192;
pid nginx.pid;
events {{ worker_connections 8192; }}
http {{
  access_log off;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  keepalive_requests 1000000;
  client_max_body_size 32m;
  upstream fake {{
    server {upstream};
    keepalive 64;
    keepalive_requests 1000000;
  }}
  server {{
    listen {listen};
    location / {{
      proxy_pass http://fake;
      proxy_http_version 1.1;
      proxy_set_header Connection \"\";
      proxy_buffering off;
      proxy_read_timeout 600s;
    }}
  }}
}}
"
    )
}

/// Parses the address in a ready line.
fn address_in(ready: &Value) -> Result<SocketAddr> {
    ready
        .get("base_url")
        .and_then(Value::as_str)
        .and_then(|url| url.strip_prefix("http://"))
        .and_then(|address| address.trim_end_matches('/').parse().ok())
        .with_context(|| format!("no address in the ready line {ready}"))
}

/// An unused address, for servers that cannot choose one themselves.
fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot find a free port")?;
    Ok(listener.local_addr()?)
}

fn scratch() -> Result<TempDir> {
    tempfile::Builder::new()
        .prefix("innkeeper-bench-")
        .tempdir()
        .context("cannot create a temporary directory")
}
