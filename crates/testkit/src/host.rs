//! A real host in a process of its own, with a home of its own.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::observer::Observer;
use crate::processes::{self, Process};
use crate::raw::RawClient;
use crate::wait::{eventually, in_time};

/// How long a host may take to be ready, also on a busy machine.
const READY: Duration = Duration::from_secs(30);

/// What a test's host is started with.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// The `innkeeper` binary.
    pub binary: PathBuf,
    /// The Claude runtime; without one, the host finds none.
    pub claude: Option<PathBuf>,
    /// Where model requests go.
    pub upstream: String,
    /// More variables.
    pub environment: Vec<(String, String)>,
    /// Where it listens; the first of these is what [`TestHost::address`] names.
    pub listen: Vec<String>,
    /// More arguments of `serve`.
    pub arguments: Vec<String>,
    /// The content of the user's own settings of the runtime.
    pub user_settings: Option<Value>,
    /// Another data directory than the one in the host's own home.
    pub data_dir: Option<PathBuf>,
}

impl HostOptions {
    /// A host with this runtime.
    pub fn new(binary: impl Into<PathBuf>, claude: Option<PathBuf>) -> Self {
        Self {
            binary: binary.into(),
            claude,
            upstream: "demo".to_owned(),
            environment: Vec::new(),
            listen: vec!["127.0.0.1:0".to_owned()],
            arguments: Vec::new(),
            user_settings: None,
            data_dir: None,
        }
    }

    /// Sets a variable.
    #[must_use]
    pub fn with_variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// A running host. Dropping it kills it and removes its files.
#[derive(Debug)]
pub struct TestHost {
    child: Child,
    ready: Value,
    home: TempDir,
    /// The client's end of stdin and stdout, if the host talks there.
    stdio: Option<RawClient>,
}

impl TestHost {
    /// Starts a host and waits until it is ready.
    pub async fn start(options: HostOptions) -> Result<Self> {
        Self::start_in(tempfile::tempdir().context("no temporary folder")?, options).await
    }

    /// Kills this host with SIGKILL, if it has not ended yet, and starts another one on
    /// what it left.
    pub async fn start_again(self, options: HostOptions) -> Result<Self> {
        let Self { mut child, home, .. } = self;
        child.kill().await.context("the host could not be killed")?;
        Self::start_in(home, options).await
    }

    async fn start_in(home: TempDir, options: HostOptions) -> Result<Self> {
        let config = home.path().join("claude");
        std::fs::create_dir_all(&config)?;
        std::fs::create_dir_all(home.path().join("work"))?;
        if let Some(settings) = &options.user_settings {
            std::fs::write(config.join("settings.json"), settings.to_string())?;
        }
        #[expect(clippy::disallowed_methods, reason = "the host under test, owned and killed by this type")]
        let mut command = Command::new(&options.binary);
        command
            .args(["serve", "--json", "--no-open", "--upstream", &options.upstream, "--data-dir"])
            .arg(options.data_dir.clone().unwrap_or_else(|| home.path().join("data")))
            .args(options.listen.iter().flat_map(|place| ["--listen", place.as_str()]))
            .args(&options.arguments)
            .env("HOME", home.path())
            .env("CLAUDE_CONFIG_DIR", &config)
            .env("INNKEEPER_RUNTIMES_DIR", home.path().join("runtimes"))
            .env("INNKEEPER_LOG", std::env::var("INNKEEPER_LOG").unwrap_or_else(|_| "warn".to_owned()))
            .env_remove("INNKEEPER_CLAUDE")
            .envs(options.environment)
            .stdin(if options.listen.iter().any(|place| place == "stdio") {
                Stdio::piped()
            } else {
                Stdio::null()
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true);
        if let Some(claude) = &options.claude {
            command.arg("--claude").arg(claude);
        }
        let mut child = command.spawn().context("the host could not be started")?;
        let stdout = child.stdout.take().context("the host has no stdout")?;
        let mut lines = BufReader::new(stdout).lines();
        let line = tokio::time::timeout(READY, lines.next_line())
            .await
            .context("the host is not ready in time")??;
        let ready = serde_json::from_str(&line.context("the host ended before it was ready")?)?;
        let stdio = child.stdin.take().map(|stdin| RawClient::over_stdio(stdin, lines));
        Ok(Self { child, ready, home, stdio })
    }

    /// The ready line.
    pub fn ready(&self) -> &Value {
        &self.ready
    }

    /// The host's process id.
    pub fn pid(&self) -> Result<u32> {
        self.child.id().context("the host has ended")
    }

    /// Where clients connect, without the token.
    pub fn socket(&self) -> Result<&str> {
        self.ready["endpoints"][0]["url"].as_str().context("no socket in the ready line")
    }

    /// Where clients connect, with the token.
    pub fn address(&self) -> Result<String> {
        let token = self.ready["token"].as_str().context("no token in the ready line")?;
        Ok(format!("{}?tkn={token}", self.socket()?))
    }

    /// A folder of the test's own, as the address of a working directory.
    pub fn work_uri(&self) -> String {
        format!("file://{}", self.work_dir().display())
    }

    /// A folder of the test's own.
    pub fn work_dir(&self) -> PathBuf {
        self.home.path().join("work")
    }

    /// The runtime's configuration directory.
    pub fn config_dir(&self) -> PathBuf {
        self.home.path().join("claude")
    }

    /// The data directory of the host.
    pub fn data_dir(&self) -> PathBuf {
        self.home.path().join("data")
    }

    /// The home directory of the host.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// The official client, connected and subscribed to the root channel.
    pub async fn observer(&self, client_id: &str) -> Result<Observer> {
        Observer::connect(&self.address()?, client_id).await
    }

    /// The one client on stdin and stdout; the host must listen there.
    pub fn take_stdio(&mut self) -> Result<RawClient> {
        self.stdio.take().context("the host does not listen on stdio, or the client was taken already")
    }

    /// A raw socket.
    pub async fn raw(&self) -> Result<RawClient> {
        RawClient::connect(&self.address()?).await
    }

    /// All live processes that work for this host, without the host itself.
    pub fn processes(&self) -> Vec<Process> {
        let own = self.child.id();
        let mut processes = processes::with_variable("CLAUDE_CONFIG_DIR", &self.config_dir());
        processes.retain(|process| Some(process.pid) != own);
        processes
    }

    /// The ids of the live runtimes: the children of wardens. The runtime on Node
    /// rewrites its command line, so that it is not to be known by that.
    pub fn runtimes(&self) -> Vec<u32> {
        let processes = self.processes();
        let wardens: Vec<u32> =
            processes.iter().filter(|process| process.is_warden()).map(|warden| warden.pid).collect();
        processes
            .iter()
            .filter(|process| wardens.contains(&process.parent))
            .map(|process| process.pid)
            .collect()
    }

    /// Waits until nothing works for this host any more.
    pub async fn no_processes(&self, within: Duration) -> Result<()> {
        let gone = eventually(within, "no process is left", || self.processes().is_empty()).await;
        gone.with_context(|| format!("still alive: {:?}", self.processes()))
    }

    /// Sends the host a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        send_signal(self.pid()?, signal)
    }

    /// Waits for the host to end; answers its exit code.
    pub async fn exit_code(&mut self, within: Duration) -> Result<Option<i32>> {
        let status = in_time(within, "the host does not end", self.child.wait()).await??;
        Ok(status.code())
    }
}

/// Sends a process of the test's own a signal.
pub(crate) fn send_signal(pid: u32, signal: Signal) -> Result<()> {
    let pid = i32::try_from(pid)?;
    if pid <= 1 {
        bail!("{pid} is no process of a test");
    }
    Ok(kill(Pid::from_raw(pid), signal)?)
}
