//! Helpers for process tests: private directories, scripted runtimes, and process inspection.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use innkeeper_claude::{
    ApiEndpoint, Conversation, Directories, Exit, LaunchOptions, Message, Program, Runtime, RuntimeEvent,
    RuntimeEvents, StartError, UserMessage, WardenProgram,
};
use nix::sys::signal::kill;
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Timeout for events that must happen.
const PATIENCE: Duration = Duration::from_secs(30);

/// A home, configuration, working and scratch directory for one test.
pub(crate) struct Place {
    root: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let place = Self { root: tempfile::tempdir().unwrap() };
        for directory in ["home", "config", "work/.claude"] {
            std::fs::create_dir_all(place.path(directory)).unwrap();
        }
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Writes a file.
    pub(crate) fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Writes an executable file.
    pub(crate) fn program(&self, name: &str, content: &str) -> PathBuf {
        let path = self.write(name, content);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// Options for a new conversation of `program`. Of the test's environment only `PATH` is inherited.
    pub(crate) fn options(&self, program: Program) -> LaunchOptions {
        let warden = WardenProgram { path: env!("CARGO_BIN_EXE_innkeeper-warden").into(), args: Vec::new() };
        let directories = Directories { cwd: self.path("work"), scratch: self.path("scratch") };
        LaunchOptions {
            endpoint: Some(ApiEndpoint {
                base_url: "http://127.0.0.1:9".to_owned(),
                bearer: "nonce.conversation".to_owned().into(),
            }),
            environment: BTreeMap::from([
                ("PATH".into(), std::env::var_os("PATH").unwrap()),
                ("HOME".into(), self.path("home").into()),
                ("CLAUDE_CONFIG_DIR".into(), self.path("config").into()),
                ("CLAUDE_CODE_MAX_RETRIES".into(), "0".into()),
            ]),
            ..LaunchOptions::new(program, warden, Conversation::New(Uuid::new_v4()), directories)
        }
    }

    /// Options for a runtime that is a Node script speaking stream-json. It responds to `initialize` unless the
    /// script changes `handlers`; `out` writes a frame.
    pub(crate) fn scripted(&self, script: &str) -> LaunchOptions {
        let source = format!("{PRELUDE}\n{script}");
        self.options(Program::from_path(self.write("runtime.js", &source)))
    }

    /// Options for a runtime that is a bash script.
    pub(crate) fn shell(&self, script: &str) -> LaunchOptions {
        self.options(Program::Native(self.program("runtime", &format!("#!/usr/bin/env bash\n{script}"))))
    }

    /// Names of the files in the scratch directory.
    pub(crate) fn scratch_files(&self) -> Vec<OsString> {
        match std::fs::read_dir(self.path("scratch")) {
            Ok(entries) => entries.map(|entry| entry.unwrap().file_name()).collect(),
            Err(_) => Vec::new(),
        }
    }
}

/// Common part of all scripted runtimes.
const PRELUDE: &str = r#"
const { spawn } = require('node:child_process');
const out = (frame) => process.stdout.write(JSON.stringify(frame) + '\n');
const say = (text) => out({ type: 'said', text });
const handlers = {
  initialize: (frame) => out({ type: 'control_response',
    response: { subtype: 'success', request_id: frame.request_id, response: { claude_code_version: 'fake' } } }),
  user: (frame) => {},
  other: (frame) => {},
};
require('node:readline').createInterface({ input: process.stdin }).on('line', (line) => {
  const frame = JSON.parse(line);
  const kind = frame.type === 'control_request' ? frame.request.subtype : frame.type;
  (handlers[kind] ?? handlers.other)(frame);
});
"#;

/// Script that starts a daemon without environment, in its own session and with a dead parent.
pub(crate) const DAEMON: &str = r#"
const daemon = spawn('env',
  ['-i', 'setsid', '-f', '/bin/sh', '-c', 'echo $$; exec sleep 600 </dev/null >/dev/null 2>&1'],
  { stdio: ['ignore', 'pipe', 'ignore'] });
daemon.stdout.once('data', (pid) => say(String(pid).trim()));
"#;

/// Starts a runtime; panics if it fails.
pub(crate) async fn start(options: LaunchOptions) -> (Runtime, RuntimeEvents) {
    Runtime::start(options, CancellationToken::new()).await.unwrap()
}

/// Starts a runtime that must fail to start; returns the error.
pub(crate) async fn start_fails(options: LaunchOptions) -> StartError {
    match Runtime::start(options, CancellationToken::new()).await {
        Ok(_) => panic!("the runtime started"),
        Err(error) => error,
    }
}

/// Formats an error with its causes.
pub(crate) fn explained(error: &StartError) -> String {
    let cause = std::error::Error::source(error);
    cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

pub(crate) fn prompt(text: &str) -> UserMessage {
    UserMessage::new(Uuid::new_v4(), text)
}

/// Awaits a future with a timeout.
#[track_caller]
pub(crate) fn soon<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let place = std::panic::Location::caller();
    async move {
        match tokio::time::timeout(PATIENCE, future).await {
            Ok(output) => output,
            Err(_) => panic!("timed out at {place}"),
        }
    }
}

/// Returns the next event that `pick` accepts; skips those before it.
#[track_caller]
pub(crate) fn event<T>(
    events: &mut RuntimeEvents,
    mut pick: impl FnMut(&RuntimeEvent) -> Option<T>,
) -> impl Future<Output = T> {
    soon(async move {
        loop {
            let event = events.next().await.expect("no more events");
            if let Some(picked) = pick(&event) {
                return picked;
            }
        }
    })
}

/// Returns the text of the next frame that a scripted runtime writes with `say`.
#[track_caller]
pub(crate) fn said(events: &mut RuntimeEvents) -> impl Future<Output = String> {
    event(events, |event| match event {
        RuntimeEvent::Message(Message::Unknown(message)) if message.kind == "said" => {
            let frame: serde_json::Value = serde_json::from_str(message.raw.get()).unwrap();
            Some(frame["text"].as_str().unwrap().to_owned())
        }
        _ => None,
    })
}

/// Returns the next process id that a scripted runtime writes with `say`.
#[track_caller]
pub(crate) fn said_pid(events: &mut RuntimeEvents) -> impl Future<Output = u32> {
    let said = said(events);
    async move { said.await.parse().unwrap() }
}

/// Waits for the exit event.
#[track_caller]
pub(crate) fn exit(events: &mut RuntimeEvents) -> impl Future<Output = Exit> {
    event(events, |event| match event {
        RuntimeEvent::Exited(exit) => Some(exit.clone()),
        _ => None,
    })
}

/// Whether a process exists and is not a zombie.
pub(crate) fn lives(pid: u32) -> bool {
    if kill(Pid::from_raw(pid.try_into().unwrap()), None).is_err() {
        return false;
    }
    // In a container an orphan may never be reaped, but a zombie does not run.
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => !stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z')),
        Err(_) => !Path::new("/proc/self").exists(),
    }
}

/// Returns the parent of a process.
pub(crate) fn parent(pid: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(')').unwrap().1.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Waits until the predicate holds.
#[track_caller]
pub(crate) fn until(mut predicate: impl FnMut() -> bool) -> impl Future<Output = ()> {
    soon(async move {
        while !predicate() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
}

/// Runs each test with both pinned runtimes.
#[macro_export]
macro_rules! for_both_runtimes {
    ($($name:ident),* $(,)?) => {
        mod native {
            $(#[tokio::test]
            async fn $name() {
                super::$name($crate::support::runtime("INNKEEPER_TEST_CLAUDE_NATIVE")).await;
            })*
        }

        mod node {
            $(#[tokio::test]
            async fn $name() {
                super::$name($crate::support::runtime("INNKEEPER_TEST_CLAUDE_NODE")).await;
            })*
        }
    };
}

/// Returns a pinned runtime.
pub(crate) fn runtime(variable: &str) -> Program {
    let path = std::env::var_os(variable)
        .unwrap_or_else(|| panic!("{variable} is not set; run scripts/test, which installs both runtimes"));
    assert!(
        Path::new(&path).is_file(),
        "{variable} is not a file; run scripts/test, which installs both runtimes"
    );
    Program::from_path(path)
}
