//! A host in its own process. Dropping it kills the process.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result};
use innkeeper_bench::monotonic_nanos;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child as Process, Command};

/// Timeout for start and exit.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A running host.
#[derive(Debug)]
pub(crate) struct Child {
    process: Process,
    /// The data directory, removed on drop.
    _data: Option<TempDir>,
    /// The ready line.
    pub(crate) ready: Value,
    /// Time from before the process was spawned to the ready line.
    pub(crate) took: Duration,
}

impl Child {
    /// Starts this program as the host under load.
    pub(crate) async fn under_load() -> Result<Self> {
        let program = std::env::current_exe().context("cannot find the path of this program")?;
        let data = tempfile::tempdir().context("cannot create a temporary directory")?;
        let arguments = [OsStr::new("serve"), OsStr::new("--data"), data.path().as_os_str()];
        let mut child = Self::start(&program, arguments, None).await?;
        child._data = Some(data);
        Ok(child)
    }

    /// Starts a program and waits for its ready line.
    pub(crate) async fn start<'a>(
        program: &Path,
        arguments: impl IntoIterator<Item = &'a OsStr>,
        home: Option<&Path>,
    ) -> Result<Self> {
        #[expect(clippy::disallowed_methods, reason = "the only place where this program starts a process")]
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true);
        if let Some(home) = home {
            command.env("HOME", home).env("INNKEEPER_LOG", "error");
        }
        let since = monotonic_nanos();
        let mut process = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let stdout = process.stdout.take().context("the host has no stdout")?;
        let mut lines = BufReader::new(stdout).lines();
        let line = tokio::time::timeout(TIMEOUT, lines.next_line())
            .await
            .context("timed out waiting for the ready line")??;
        let took = Duration::from_nanos(monotonic_nanos().saturating_sub(since));
        let ready = serde_json::from_str(&line.context("the host exited before it was ready")?)?;
        Ok(Self { process, _data: None, ready, took })
    }

    pub(crate) fn pid(&self) -> Result<u32> {
        self.process.id().context("the host has exited")
    }

    /// Waits until the process exits.
    pub(crate) async fn ended(&mut self) -> Result<()> {
        tokio::time::timeout(TIMEOUT, self.process.wait())
            .await
            .context("timed out waiting for the host to exit")??;
        Ok(())
    }

    /// The listen address.
    pub(crate) fn address(&self) -> Result<SocketAddr> {
        let ready = &self.ready;
        let given = ready.get("address").or_else(|| ready.pointer("/endpoints/0/url"));
        let text = given.and_then(Value::as_str).context("no address in the ready line")?;
        let text = text.trim_start_matches("ws://").trim_end_matches('/');
        text.parse().with_context(|| format!("invalid address {text:?} in the ready line"))
    }
}
