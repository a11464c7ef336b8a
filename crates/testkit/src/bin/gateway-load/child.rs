//! A server that this program has started, in a process group of its own.
//!
//! Invariant: dropping it ends the whole group, and nothing else.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::Instant;

/// How long a server may take to end when it is asked to.
const GRACE: Duration = Duration::from_secs(1);

/// How much of what a failed server said is shown.
const TAIL: usize = 600;

/// Variables that would lead a server's own requests to somewhere else.
const PROXY_VARIABLES: [&str; 6] =
    ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    pid: u32,
    stdout: Lines<BufReader<ChildStdout>>,
    /// Open as long as the server is wanted; ours end with it.
    _stdin: Option<ChildStdin>,
    /// What it says on stderr.
    log: PathBuf,
}

/// How a server is started.
#[derive(Debug)]
pub(crate) struct Launch<'a> {
    pub(crate) program: &'a Path,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(&'static str, String)>,
    /// A folder of its own, which is also its home.
    pub(crate) folder: &'a Path,
}

impl Server {
    pub(crate) fn start(launch: Launch<'_>) -> Result<Self> {
        let log = launch.folder.join("stderr.log");
        let stderr = File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        #[expect(clippy::disallowed_methods, reason = "the one place where this program starts others")]
        let mut command = Command::new(launch.program);
        for name in PROXY_VARIABLES {
            command.env_remove(name);
        }
        let mut child = command
            .args(launch.arguments)
            .env("HOME", launch.folder)
            .envs(launch.environment)
            .current_dir(launch.folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", launch.program.display()))?;
        let pid = child.id().context("the server has ended at once")?;
        let stdout = child.stdout.take().context("the server has no stdout")?;
        let stdin = child.stdin.take();
        Ok(Self { child, pid, stdout: BufReader::new(stdout).lines(), _stdin: stdin, log })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// The first line on stdout, which says where the server is.
    pub(crate) async fn ready_line(&mut self, patience: Duration) -> Result<Value> {
        let line = match tokio::time::timeout(patience, self.stdout.next_line()).await {
            Err(_) => bail!("it was not ready in time: {}", self.last_words()),
            Ok(Err(error)) => return Err(error).context("its stdout cannot be read"),
            Ok(Ok(None)) => bail!("it ended before it was ready: {}", self.last_words()),
            Ok(Ok(Some(line))) => line,
        };
        serde_json::from_str(&line).with_context(|| format!("`{line}` is no ready line"))
    }

    /// Whether it has ended, with what it said.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait().context("cannot ask after a server")? {
            None => Ok(()),
            Some(status) => bail!("it ended ({status}): {}", self.last_words()),
        }
    }

    /// The end of what it said on stderr.
    pub(crate) fn last_words(&self) -> String {
        let said = std::fs::read(&self.log).unwrap_or_default();
        let tail = said.get(said.len().saturating_sub(TAIL)..).unwrap_or_default();
        let words = String::from_utf8_lossy(tail).trim().to_owned();
        if words.is_empty() { "it said nothing".to_owned() } else { words }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Ok(pid) = i32::try_from(self.pid).map(Pid::from_raw) else { return };
        if !matches!(waitpid(pid, Some(WaitPidFlag::WNOHANG)), Ok(WaitStatus::StillAlive)) {
            return;
        }
        // Asked first, so that a server with children of its own ends them and sees them end.
        killpg(pid, Signal::SIGTERM).ok();
        let deadline = Instant::now() + GRACE;
        while Instant::now() < deadline {
            if !matches!(waitpid(pid, Some(WaitPidFlag::WNOHANG)), Ok(WaitStatus::StillAlive)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        killpg(pid, Signal::SIGKILL).ok();
        waitpid(pid, None).ok();
    }
}
