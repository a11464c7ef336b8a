//! A server process that this program starts in its own process group.
//!
//! Invariant: dropping it kills the whole group and nothing else.

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

/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(1);

/// Bytes of a failed server's stderr that an error shows.
const TAIL: usize = 600;

/// Variables that would redirect a server's requests.
const PROXY_VARIABLES: [&str; 6] =
    ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

/// A running server.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    child: Child,
    pid: u32,
    stdout: Lines<BufReader<ChildStdout>>,
    /// Kept open while the server runs; our own servers exit when it closes.
    _stdin: Option<ChildStdin>,
    /// The file that receives stderr.
    log: PathBuf,
}

/// How to start a server.
#[derive(Debug)]
pub(crate) struct ServerLaunch<'a> {
    pub(crate) program: &'a Path,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(&'static str, String)>,
    /// Working directory and home.
    pub(crate) folder: &'a Path,
}

impl ServerProcess {
    pub(crate) fn start(launch: ServerLaunch<'_>) -> Result<Self> {
        let log = launch.folder.join("stderr.log");
        let stderr = File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        #[expect(clippy::disallowed_methods, reason = "the only place where this program starts a process")]
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
        let pid = child.id().context("the server exited immediately")?;
        let stdout = child.stdout.take().context("the server has no stdout")?;
        let stdin = child.stdin.take();
        Ok(Self { child, pid, stdout: BufReader::new(stdout).lines(), _stdin: stdin, log })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Reads the ready line, which contains the server's address.
    pub(crate) async fn ready_line(&mut self, limit: Duration) -> Result<Value> {
        let line = match tokio::time::timeout(limit, self.stdout.next_line()).await {
            Err(_) => bail!("timed out waiting for the ready line: {}", self.stderr_tail()),
            Ok(Err(error)) => return Err(error).context("cannot read stdout of the server"),
            Ok(Ok(None)) => bail!("the server exited before it was ready: {}", self.stderr_tail()),
            Ok(Ok(Some(line))) => line,
        };
        serde_json::from_str(&line).with_context(|| format!("invalid ready line `{line}`"))
    }

    /// Returns an error with the end of stderr if the server has exited.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait().context("cannot get the status of a server")? {
            None => Ok(()),
            Some(status) => bail!("the server exited ({status}): {}", self.stderr_tail()),
        }
    }

    /// The end of the server's stderr.
    pub(crate) fn stderr_tail(&self) -> String {
        let stderr = std::fs::read(&self.log).unwrap_or_default();
        let tail = stderr.get(stderr.len().saturating_sub(TAIL)..).unwrap_or_default();
        let text = String::from_utf8_lossy(tail).trim().to_owned();
        if text.is_empty() { "nothing on stderr".to_owned() } else { text }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let Ok(pid) = i32::try_from(self.pid).map(Pid::from_raw) else { return };
        if !matches!(waitpid(pid, Some(WaitPidFlag::WNOHANG)), Ok(WaitStatus::StillAlive)) {
            return;
        }
        // SIGTERM first, so that a server can stop and reap its own children.
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
