//! A runtime without a host, started with the host's options and driven over stdin and
//! stdout. Its permission requests are allowed at once. Dropping it kills the process.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use innkeeper_bench::monotonic_nanos;
use innkeeper_testkit::TestHost;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use uuid::Uuid;

use crate::call_times::CallTimes;

/// The command and environment of one of the host's runtimes.
#[derive(Debug)]
struct RuntimeLaunch {
    /// Program and arguments.
    command: Vec<String>,
    environment: BTreeMap<String, String>,
}

impl RuntimeLaunch {
    /// Reads them from the warden of the host's only runtime, which was started with the
    /// same values.
    fn of(host: &TestHost) -> Result<Self> {
        let processes = host.processes();
        let warden =
            processes.iter().find(|process| process.is_warden()).context("the host has no runtime")?;
        let command =
            warden.arguments.iter().skip_while(|argument| *argument != "--").skip(1).cloned().collect();
        let environment = std::fs::read(format!("/proc/{}/environ", warden.pid))?;
        let environment = environment
            .split(|byte| *byte == 0)
            .filter_map(|entry| std::str::from_utf8(entry).ok()?.split_once('='))
            // With this variable the process would count as a process of the host.
            .filter(|(name, _)| *name != "INNKEEPER_RUNTIME")
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        Ok(Self { command, environment })
    }

    /// Changes the conversation id and copies private files to `folder`.
    fn for_new_conversation(mut self, folder: &Path) -> Result<Self> {
        let id = self.command.iter().find_map(|argument| argument.strip_prefix("--session-id="));
        let (old, new) = (id.context("the runtime was started without --session-id")?, Uuid::new_v4());
        let (old, new) = (old.to_owned(), new.to_string());
        for argument in &mut self.command {
            if let Some(path) = argument.strip_prefix("--settings=") {
                let settings = std::fs::read_to_string(path).context("cannot read the host's settings")?;
                let copy = folder.join("settings.json");
                std::fs::write(&copy, settings.replace(&old, &new))?;
                *argument = format!("--settings={}", copy.display());
            } else {
                *argument = argument.replace(&old, &new);
            }
        }
        for value in self.environment.values_mut() {
            *value = value.replace(&old, &new);
        }
        Ok(self)
    }
}

/// Whether the runtime calls a hook before each use of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HookUse {
    None,
    BeforeEachUse,
}

/// A running runtime.
#[derive(Debug)]
pub(crate) struct BareRuntime {
    _process: Child,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
    _files: TempDir,
}

impl BareRuntime {
    /// Starts a runtime with the options of the host's runtime.
    pub(crate) async fn beside(host: &TestHost, hook: HookUse) -> Result<Self> {
        let files = tempfile::tempdir().context("cannot create a temporary directory")?;
        let launch = RuntimeLaunch::of(host)?.for_new_conversation(files.path())?;
        let (program, arguments) =
            launch.command.split_first().context("no program in the warden's arguments")?;
        #[expect(
            clippy::disallowed_methods,
            reason = "the benchmark measures the runtime without the claude crate"
        )]
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .envs(&launch.environment)
            .current_dir(host.work_dir())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let mut process = command.spawn().with_context(|| format!("cannot start {program}"))?;
        let stdin = process.stdin.take().context("the runtime has no stdin")?;
        let stdout = process.stdout.take().context("the runtime has no stdout")?;
        let mut runtime =
            Self { _process: process, stdin, stdout: BufReader::new(stdout).lines(), _files: files };
        let initialize = match hook {
            HookUse::None => json!({"subtype": "initialize"}),
            HookUse::BeforeEachUse => {
                let hooks = json!({"PreToolUse": [{"hookCallbackIds": ["before-use"]}]});
                json!({"subtype": "initialize", "hooks": hooks})
            }
        };
        let request = json!({"type": "control_request", "request_id": "1", "request": initialize});
        runtime.write(&request.to_string()).await?;
        runtime.line_with(r#""type":"control_response""#).await?;
        Ok(runtime)
    }

    /// Runs a turn; returns the time to its first delta.
    pub(crate) async fn turn(&mut self, text: &str) -> Result<Duration> {
        let message = user_message(text);
        let since = monotonic_nanos();
        self.write(&message).await?;
        self.line_with(r#""type":"content_block_delta""#).await?;
        let took = Duration::from_nanos(monotonic_nanos().saturating_sub(since));
        let result = self.line_with(r#""type":"result""#).await?;
        ensure!(result.contains(r#""subtype":"success""#), "the turn failed: {result}");
        Ok(took)
    }

    /// Runs a turn with tool calls; returns their times. The hook has no objections, and every
    /// permission request is allowed.
    pub(crate) async fn tool_calls(&mut self, text: &str) -> Result<CallTimes> {
        self.write(&user_message(text)).await?;
        let mut times = CallTimes::default();
        loop {
            let line = self.next_line().await?;
            let is = |kind: &str| line.contains(kind);
            if is(r#""type":"control_request""#) {
                self.answer(&line, &mut times).await?;
            } else if is(r#""type":"content_block_start""#) && is(r#""type":"tool_use""#) {
                times.start();
            } else if is(r#""type":"tool_result""#) {
                ensure!(!is(r#""is_error":true"#), "a tool call failed: {line}");
                times.complete()?;
            } else if is(r#""type":"result""#) {
                ensure!(is(r#""subtype":"success""#), "the turn failed: {line}");
                return Ok(times);
            }
        }
    }

    async fn answer(&mut self, line: &str, times: &mut CallTimes) -> Result<()> {
        let message: Value = serde_json::from_str(line)?;
        let request = message.get("request").context("the runtime sent a request without content")?;
        let answer = match request.get("subtype").and_then(Value::as_str) {
            Some("hook_callback") => json!({}),
            Some("can_use_tool") => {
                times.allowed += 1;
                json!({"behavior": "allow", "updatedInput": request.get("input")})
            }
            Some(_) | None => bail!("unexpected request of the runtime: {line}"),
        };
        let id = message.get("request_id");
        let response = json!({"subtype": "success", "request_id": id, "response": answer});
        self.write(&json!({"type": "control_response", "response": response}).to_string()).await
    }

    async fn write(&mut self, line: &str) -> Result<()> {
        self.stdin.write_all(format!("{line}\n").as_bytes()).await.context("cannot write to the runtime")
    }

    async fn line_with(&mut self, part: &str) -> Result<String> {
        loop {
            let line = self.next_line().await?;
            if line.contains(part) {
                return Ok(line);
            }
        }
    }

    async fn next_line(&mut self) -> Result<String> {
        self.stdout.next_line().await?.context("the runtime exited")
    }
}

/// A user's message in the runtime's format.
fn user_message(text: &str) -> String {
    let message = json!({"type": "user", "session_id": "", "parent_tool_use_id": null, "uuid": Uuid::new_v4(),
        "message": {"role": "user", "content": text}});
    message.to_string()
}
