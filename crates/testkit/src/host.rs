//! A real host in its own process, with its own home directory.

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
use crate::processes::{self, TestProcess};
use crate::raw::RawClient;
use crate::wait::{eventually, in_time};

/// Startup timeout, generous for busy machines.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(30);

/// Options of a [`TestHost`].
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// The `innkeeper` binary.
    pub binary: PathBuf,
    /// The Claude runtime; `None` for a host without a runtime.
    pub claude: Option<PathBuf>,
    /// The `--upstream` value.
    pub upstream: String,
    /// Additional environment variables.
    pub environment: Vec<(String, String)>,
    /// Listen addresses; [`TestHost::address`] returns the first.
    pub listen: Vec<String>,
    /// Additional arguments of `serve`.
    pub arguments: Vec<String>,
    /// The user's runtime settings (`settings.json`).
    pub user_settings: Option<Value>,
    /// Data directory; by default inside the host's home.
    pub data_dir: Option<PathBuf>,
    /// File for the host's stderr; by default the test's stderr.
    pub log_file: Option<PathBuf>,
    /// The user that the host runs as; by default the user of the test. Only root can change it.
    pub user: Option<u32>,
}

impl HostOptions {
    /// Options with this runtime and the demo upstream.
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
            log_file: None,
            user: None,
        }
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn with_variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// A running host. Dropping it kills the process and removes its files.
#[derive(Debug)]
pub struct TestHost {
    child: Child,
    ready: Value,
    home: TempDir,
    /// The client on stdin and stdout, if the host listens there.
    stdio: Option<RawClient>,
}

impl TestHost {
    /// Starts a host and waits until it is ready.
    pub async fn start(options: HostOptions) -> Result<Self> {
        Self::start_in(tempfile::tempdir().context("cannot create a temporary directory")?, options).await
    }

    /// Kills this host with SIGKILL if it is still running, and starts another one with
    /// the same home directory.
    pub async fn start_again(self, options: HostOptions) -> Result<Self> {
        let Self { mut child, home, .. } = self;
        child.kill().await.context("cannot kill the host")?;
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
            .stderr(match &options.log_file {
                Some(path) => Stdio::from(std::fs::File::create(path)?),
                None => Stdio::inherit(),
            })
            .kill_on_drop(true);
        if let Some(user) = options.user {
            give_to(home.path(), user)?;
            command.uid(user).gid(user);
        }
        if let Some(claude) = &options.claude {
            command.arg("--claude").arg(claude);
        }
        let mut child = command.spawn().context("cannot start the host")?;
        let stdout = child.stdout.take().context("the host has no stdout")?;
        let mut lines = BufReader::new(stdout).lines();
        let line = tokio::time::timeout(STARTUP_TIMEOUT, lines.next_line())
            .await
            .context("timed out waiting for the ready line")??;
        let ready = serde_json::from_str(&line.context("the host exited before it was ready")?)?;
        let stdio = child.stdin.take().map(|stdin| RawClient::over_stdio(stdin, lines));
        Ok(Self { child, ready, home, stdio })
    }

    /// The ready line.
    pub fn ready(&self) -> &Value {
        &self.ready
    }

    /// The host's process id.
    pub fn pid(&self) -> Result<u32> {
        self.child.id().context("the host has exited")
    }

    /// The WebSocket URL without the token.
    pub fn socket(&self) -> Result<&str> {
        self.ready["endpoints"][0]["url"].as_str().context("no endpoint URL in the ready line")
    }

    /// The WebSocket URL with the token.
    pub fn address(&self) -> Result<String> {
        let token = self.ready["token"].as_str().context("no token in the ready line")?;
        Ok(format!("{}?tkn={token}", self.socket()?))
    }

    /// The test's working directory as a `file:` URI.
    pub fn work_uri(&self) -> String {
        format!("file://{}", self.work_dir().display())
    }

    /// The test's working directory.
    pub fn work_dir(&self) -> PathBuf {
        self.home.path().join("work")
    }

    /// The runtime's configuration directory.
    pub fn config_dir(&self) -> PathBuf {
        self.home.path().join("claude")
    }

    /// The host's default data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.home.path().join("data")
    }

    /// The host's home directory.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// An official client, connected and subscribed to the root channel.
    pub async fn observer(&self, client_id: &str) -> Result<Observer> {
        Observer::connect(&self.address()?, client_id).await
    }

    /// The client on stdin and stdout; the host must listen there.
    pub fn take_stdio(&mut self) -> Result<RawClient> {
        self.stdio.take().context("the host does not listen on stdio, or the client was already taken")
    }

    /// A raw connection.
    pub async fn raw(&self) -> Result<RawClient> {
        RawClient::connect(&self.address()?).await
    }

    /// All live processes that this host started, directly or indirectly.
    pub fn processes(&self) -> Vec<TestProcess> {
        let own = self.child.id();
        let mut processes = processes::with_variable("CLAUDE_CONFIG_DIR", &self.config_dir());
        processes.retain(|process| Some(process.pid) != own);
        processes
    }

    /// Process ids of the live runtimes: the children of wardens that lead a process group. The Node
    /// runtime rewrites its command line and cannot be identified by it. Processes of tools that
    /// lost their parent become children of the warden, too, in the groups of their shells.
    pub fn runtimes(&self) -> Vec<u32> {
        let processes = self.processes();
        let wardens: Vec<u32> =
            processes.iter().filter(|process| process.is_warden()).map(|warden| warden.pid).collect();
        processes
            .iter()
            .filter(|process| wardens.contains(&process.parent) && process.group == process.pid)
            .map(|process| process.pid)
            .collect()
    }

    /// Waits until every process that this host started has exited.
    pub async fn no_processes(&self, within: Duration) -> Result<()> {
        let gone = eventually(within, "all processes exited", || self.processes().is_empty()).await;
        gone.with_context(|| format!("still alive: {:?}", self.processes()))
    }

    /// Sends a signal to the host.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        send_signal(self.pid()?, signal)
    }

    /// Waits for the host to exit; returns its exit code.
    pub async fn exit_code(&mut self, within: Duration) -> Result<Option<i32>> {
        let status = in_time(within, "the host exited", self.child.wait()).await??;
        Ok(status.code())
    }
}

/// Makes a user the owner of a folder and its content.
fn give_to(folder: &Path, user: u32) -> Result<()> {
    std::os::unix::fs::lchown(folder, Some(user), Some(user))?;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            give_to(&entry.path(), user)?;
        } else {
            std::os::unix::fs::lchown(entry.path(), Some(user), Some(user))?;
        }
    }
    Ok(())
}

/// Sends a signal to a process that the test started.
pub(crate) fn send_signal(pid: u32, signal: Signal) -> Result<()> {
    let pid = i32::try_from(pid)?;
    if pid <= 1 {
        bail!("{pid} is not a process of a test");
    }
    Ok(kill(Pid::from_raw(pid), signal)?)
}
