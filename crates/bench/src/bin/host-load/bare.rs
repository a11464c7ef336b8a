//! A runtime without a host, started with the host's options and driven over stdin and
//! stdout. Its permission requests are allowed at once. Dropping it kills the process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail, ensure};
use innkeeper_bench::monotonic_nanos;
use innkeeper_testkit::TestHost;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use uuid::Uuid;

use crate::call_times::CallTimes;
use crate::turn_times::TurnTimes;

/// The command and environment of one of the host's runtimes.
#[derive(Clone, Debug)]
pub(crate) struct RuntimeLaunch {
    /// Program and arguments.
    command: Vec<String>,
    environment: BTreeMap<String, String>,
    /// Content of the settings file, which the host removes with its runtime.
    settings: Option<String>,
    work_dir: PathBuf,
}

impl RuntimeLaunch {
    /// Reads them from the warden of the host's only runtime, which was started with the
    /// same values.
    pub(crate) fn of(host: &TestHost) -> Result<Self> {
        let processes = host.processes();
        let warden =
            processes.iter().find(|process| process.is_warden()).context("the host has no runtime")?;
        let command: Vec<String> =
            warden.arguments.iter().skip_while(|argument| *argument != "--").skip(1).cloned().collect();
        let settings = command.iter().find_map(|argument| argument.strip_prefix("--settings="));
        let settings = settings.map(std::fs::read_to_string).transpose();
        let settings = settings.context("cannot read the host's settings")?;
        let environment = std::fs::read(format!("/proc/{}/environ", warden.pid))?;
        let environment = environment
            .split(|byte| *byte == 0)
            .filter_map(|entry| std::str::from_utf8(entry).ok()?.split_once('='))
            // With this variable the process would count as a process of the host.
            .filter(|(name, _)| *name != "INNKEEPER_RUNTIME")
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        Ok(Self { command, environment, settings, work_dir: host.work_dir() })
    }

    /// Changes the conversation id and copies private files to `folder`.
    fn for_new_conversation(mut self, folder: &Path) -> Result<Self> {
        let id = self.command.iter().find_map(|argument| argument.strip_prefix("--session-id="));
        let (old, new) = (id.context("the runtime was started without --session-id")?, Uuid::new_v4());
        let (old, new) = (old.to_owned(), new.to_string());
        for argument in &mut self.command {
            if let Some(settings) = self.settings.as_ref().filter(|_| argument.starts_with("--settings=")) {
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
    process: Child,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
    launch: RuntimeLaunch,
    files: TempDir,
}

/// A conversation without a runtime.
#[derive(Debug)]
pub(crate) struct SuspendedRuntime {
    launch: RuntimeLaunch,
    files: TempDir,
}

impl SuspendedRuntime {
    /// Starts another runtime that resumes the conversation.
    pub(crate) async fn resume(self) -> Result<BareRuntime> {
        BareRuntime::spawn(self.launch, HookUse::None, self.files).await
    }
}

impl BareRuntime {
    /// Starts a runtime with the options of the host's runtime.
    pub(crate) async fn beside(host: &TestHost, hook: HookUse) -> Result<Self> {
        Self::start(&RuntimeLaunch::of(host)?, hook).await
    }

    /// Starts a runtime with a new conversation and waits until it is ready.
    pub(crate) async fn start(launch: &RuntimeLaunch, hook: HookUse) -> Result<Self> {
        let files = tempfile::tempdir().context("cannot create a temporary directory")?;
        let launch = launch.clone().for_new_conversation(files.path())?;
        Self::spawn(launch, hook, files).await
    }

    /// Kills the runtime and returns what another one needs to resume its conversation.
    pub(crate) async fn suspend(mut self) -> Result<SuspendedRuntime> {
        self.process.kill().await.context("cannot kill the runtime")?;
        let Self { mut launch, files, .. } = self;
        for argument in &mut launch.command {
            *argument = argument.replace("--session-id=", "--resume=");
        }
        Ok(SuspendedRuntime { launch, files })
    }

    async fn spawn(launch: RuntimeLaunch, hook: HookUse, files: TempDir) -> Result<Self> {
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
            .current_dir(&launch.work_dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let mut process = command.spawn().with_context(|| format!("cannot start {program}"))?;
        let stdin = process.stdin.take().context("the runtime has no stdin")?;
        let stdout = process.stdout.take().context("the runtime has no stdout")?;
        let stdout = BufReader::new(stdout).lines();
        let mut runtime = Self { process, stdin, stdout, launch, files };
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

    /// Kills the runtime and waits for its end.
    pub(crate) async fn stop(mut self) -> Result<()> {
        self.process.kill().await.context("cannot kill the runtime")
    }

    pub(crate) fn pid(&self) -> Result<u32> {
        self.process.id().context("the runtime has exited")
    }

    /// Runs a turn.
    pub(crate) async fn turn(&mut self, text: &str) -> Result<TurnTimes> {
        let message = user_message(text);
        let since = monotonic_nanos();
        self.write(&message).await?;
        self.line_with(r#""type":"content_block_delta""#).await?;
        let first_delta = monotonic_nanos();
        let result = self.line_with(r#""type":"result""#).await?;
        let end = monotonic_nanos();
        ensure!(result.contains(r#""subtype":"success""#), "the turn failed: {result}");
        Ok(TurnTimes::new(since, first_delta, end))
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

/// Starts a runtime and runs its first turn. The times include the start.
pub(crate) async fn first_turn(
    start: impl Future<Output = Result<BareRuntime>>,
    text: &str,
) -> Result<(BareRuntime, TurnTimes)> {
    let since = monotonic_nanos();
    let mut runtime = start.await?;
    let started = monotonic_nanos().saturating_sub(since) as f64 / 1e6;
    let TurnTimes { first_delta, end } = runtime.turn(text).await?;
    Ok((runtime, TurnTimes { first_delta: started + first_delta, end: started + end }))
}

/// A user's message in the runtime's format.
fn user_message(text: &str) -> String {
    let message = json!({"type": "user", "session_id": "", "parent_tool_use_id": null, "uuid": Uuid::new_v4(),
        "message": {"role": "user", "content": text}});
    message.to_string()
}
