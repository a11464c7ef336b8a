//! A host in a process of its own. Dropping it ends the process.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result};
use innkeeper_testkit::bench::monotonic_nanos;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child as Process, Command};

/// How long a host may take to be ready.
const READY: Duration = Duration::from_secs(30);

/// A running host.
#[derive(Debug)]
pub(crate) struct Child {
    process: Process,
    /// What it keeps goes with it.
    _data: Option<TempDir>,
    /// What it said when it was ready.
    pub(crate) ready: Value,
    /// How long that took, from before its process existed.
    pub(crate) took: Duration,
}

impl Child {
    /// This program as a host.
    pub(crate) async fn under_load() -> Result<Self> {
        let program = std::env::current_exe().context("the path of this program cannot be found")?;
        let data = tempfile::tempdir().context("no temporary folder")?;
        let arguments = [OsStr::new("serve"), OsStr::new("--data"), data.path().as_os_str()];
        let mut child = Self::start(&program, arguments, None).await?;
        child._data = Some(data);
        Ok(child)
    }

    /// Starts a program and waits for the line that says it is ready.
    pub(crate) async fn start<'a>(
        program: &Path,
        arguments: impl IntoIterator<Item = &'a OsStr>,
        home: Option<&Path>,
    ) -> Result<Self> {
        #[expect(clippy::disallowed_methods, reason = "the one place where this program starts others")]
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
        let line = tokio::time::timeout(READY, lines.next_line())
            .await
            .context("the host is not ready in time")??;
        let took = Duration::from_nanos(monotonic_nanos().saturating_sub(since));
        let ready = serde_json::from_str(&line.context("the host ended before it was ready")?)?;
        Ok(Self { process, _data: None, ready, took })
    }

    pub(crate) fn pid(&self) -> Result<u32> {
        self.process.id().context("the host has ended")
    }

    /// Waits until it has ended by itself.
    pub(crate) async fn ended(&mut self) -> Result<()> {
        tokio::time::timeout(READY, self.process.wait()).await.context("the host does not end")??;
        Ok(())
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> Result<SocketAddr> {
        let ready = &self.ready;
        let given = ready.get("address").or_else(|| ready.pointer("/endpoints/0/url"));
        let text = given.and_then(Value::as_str).context("the host does not say where it listens")?;
        let text = text.trim_start_matches("ws://").trim_end_matches('/');
        text.parse().with_context(|| format!("{text:?} is no address"))
    }
}
