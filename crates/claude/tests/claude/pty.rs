//! Sessions over a terminal instead of pipes.

use std::io;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::Arc;

use innkeeper_claude::{
    ApiEndpoint, BoxFuture, ByteStream, ClaudeSession, Interrupted, Peer, PeerExit, PeerSignal, Program,
    RuntimeEvent, SessionOptions, Status, StreamLaunch, StreamOnlyPeer, StreamTransport, Transport,
    TurnFailure,
};
use nix::pty::openpty;
use nix::sys::signal::{Signal, killpg};
use nix::sys::termios::{SetArg, cfmakeraw, tcgetattr, tcsetattr};
use nix::unistd::Pid;
use tokio::process::Child;
use tokio_util::sync::CancellationToken;

use crate::for_both_runtimes;
use crate::scripted_model::ScriptedModel;
use crate::support::*;

for_both_runtimes!(real_runtime_works_over_a_terminal);

/// Runs each runtime on its own terminal.
struct Terminal;

impl StreamTransport for Terminal {
    fn open<'a>(&'a self, launch: StreamLaunch<'a>) -> BoxFuture<'a, io::Result<ByteStream>> {
        Box::pin(async move {
            let pty = openpty(None, None)?;
            let mut mode = tcgetattr(&pty.slave)?;
            cfmakeraw(&mut mode);
            tcsetattr(&pty.slave, SetArg::TCSANOW, &mode)?;
            #[expect(clippy::disallowed_methods, reason = "the test owns the other end of the stream")]
            let mut command = tokio::process::Command::new("bash");
            // The real runtimes do not read prompts from a terminal, so a pipe is put in between.
            let child = command
                .args(["-c", r#"cat | "$0" "$@""#])
                .arg(&launch.plan.executable)
                .args(launch.plan.arguments(launch.files))
                .process_group(0)
                .env_clear()
                .envs(&launch.plan.environment)
                .current_dir(launch.cwd)
                .stdin(Stdio::from(pty.slave.try_clone()?))
                .stdout(Stdio::from(pty.slave.try_clone()?))
                .stderr(Stdio::null())
                .kill_on_drop(true)
                .spawn()?;
            // Only the runtime holds the other side now, so the stream ends when it exits.
            drop((pty.slave, command));
            // Reads block in a thread of tokio and end with the runtime.
            let side = |side: OwnedFd| Box::new(tokio::fs::File::from_std(side.into()));
            let (reader, writer) = (side(pty.master.try_clone()?), side(pty.master));
            let peer = Box::new(OnTerminal { child });
            Ok(ByteStream { reader, writer, peer })
        })
    }
}

struct OnTerminal {
    child: Child,
}

impl Peer for OnTerminal {
    fn signal(&mut self, signal: PeerSignal) {
        let signal = match signal {
            PeerSignal::Interrupt => Signal::SIGINT,
            PeerSignal::Terminate => Signal::SIGTERM,
            PeerSignal::Kill => Signal::SIGKILL,
        };
        if let Some(pid) = self.child.id() {
            killpg(Pid::from_raw(pid.try_into().unwrap()), signal).ok();
        }
    }

    fn exited(&mut self) -> BoxFuture<'_, PeerExit> {
        Box::pin(async {
            use std::os::unix::process::ExitStatusExt;
            match self.child.wait().await {
                Ok(status) => match (status.code(), status.signal()) {
                    (Some(code), _) => PeerExit::Code(code),
                    (None, Some(signal)) => PeerExit::Signal(signal),
                    (None, None) => PeerExit::Unknown,
                },
                Err(_) => PeerExit::Unknown,
            }
        })
    }
}

fn on_terminal(launch: innkeeper_claude::LaunchOptions) -> SessionOptions {
    SessionOptions { transport: Transport::Stream(Arc::new(Terminal)), ..SessionOptions::new(launch) }
}

/// Answers one message after the other, and hangs on `hang` until it receives a signal.
const RUNTIME: &str = r#"
const pid = String(process.pid);
handlers.user = (frame) => {
  out({ type: 'system', subtype: 'init' });
  out({ ...frame, isReplay: true });
  if (frame.message.content === 'hang') return say(pid);
  out({ type: 'result', subtype: 'success', result: frame.message.content.length + ' letters, ' + process.stdout.isTTY,
    terminal_reason: 'completed' });
};
"#;

#[tokio::test]
async fn session_works_over_a_terminal() {
    let place = Place::new();
    let options = on_terminal(place.scripted(RUNTIME));
    let session = ClaudeSession::start(options, CancellationToken::new()).await.unwrap();
    assert_eq!(session.pid(), None);
    let result = soon(session.send("hello").unwrap().result()).await.unwrap();
    assert_eq!(result.text, "5 letters, true");
    // Longer than the buffer of a terminal, in both directions.
    let long = "x".repeat(300_000);
    let result = soon(session.send(long).unwrap().result()).await.unwrap();
    assert_eq!(result.text, "300000 letters, true");

    // The script ignores interrupts, so the runtime is terminated; the next send opens another terminal.
    let turn = session.send("hang").unwrap();
    let mut status = session.status();
    soon(status.wait_for(|status| *status == Status::Streaming)).await.unwrap();
    let interrupted = soon(session.interrupt()).await;
    assert!(matches!(&interrupted, Interrupted::Runtime(exit) if exit.signal == Some(15)), "{interrupted:?}");
    assert!(matches!(soon(turn.result()).await, Err(TurnFailure::Interrupted)));
    assert_eq!(soon(session.send("again").unwrap().result()).await.unwrap().text, "5 letters, true");
    soon(session.terminate()).await;
    assert!(place.scratch_files().is_empty());
}

#[tokio::test]
async fn runtime_on_a_terminal_stops_when_its_handle_is_dropped() {
    let place = Place::new();
    let transport = Transport::Stream(Arc::new(Terminal));
    let (runtime, mut events) =
        innkeeper_claude::Runtime::start_over(place.scripted(RUNTIME), &transport, CancellationToken::new())
            .await
            .unwrap();
    runtime.send(&prompt("hang")).unwrap();
    let pid = said_pid(&mut events).await;
    drop((runtime, events));
    until(|| !lives(pid)).await;
}

/// Transport without a process: it cannot be signalled.
struct Wire;

impl StreamTransport for Wire {
    fn open<'a>(&'a self, _: StreamLaunch<'a>) -> BoxFuture<'a, io::Result<ByteStream>> {
        Box::pin(async {
            let (near, far) = tokio::io::duplex(1 << 16);
            let (reader, writer) = tokio::io::split(near);
            let tasks = tokio_util::task::TaskTracker::new();
            tasks.spawn(async move {
                use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
                let (reader, mut writer) = tokio::io::split(far);
                let mut lines = BufReader::new(reader).lines();
                let line = lines.next_line().await.unwrap().unwrap();
                let request: serde_json::Value = serde_json::from_str(&line).unwrap();
                let answer = serde_json::json!({ "type": "control_response", "response": {
                    "subtype": "success", "request_id": request["request_id"] } });
                writer.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
                // The stream ends after one message.
                lines.next_line().await.unwrap();
            });
            Ok(ByteStream {
                reader: Box::new(reader),
                writer: Box::new(writer),
                peer: Box::new(StreamOnlyPeer),
            })
        })
    }
}

#[tokio::test]
async fn end_of_stream_is_reported_as_exit() {
    let place = Place::new();
    let transport = Transport::Stream(Arc::new(Wire));
    let mut options = place.scripted("");
    options.registry = Some(place.path("running"));
    let start =
        || innkeeper_claude::Runtime::start_over(options.clone(), &transport, CancellationToken::new());
    let (runtime, mut events) = start().await.unwrap();
    let error = start().await.unwrap_err();
    assert!(matches!(error, innkeeper_claude::StartError::Lease(_)), "{error:?}");
    runtime.send(&prompt("go")).unwrap();
    let event = soon(events.next()).await;
    let Some(RuntimeEvent::Exited(exit)) = event else { panic!("{event:?}") };
    assert_eq!(exit.to_string(), "exited with unknown status");
    assert!(place.scratch_files().is_empty());
    start().await.unwrap();
}

async fn real_runtime_works_over_a_terminal(program: Program) {
    let (place, model) = (Place::new(), ScriptedModel::start().await.unwrap());
    let mut launch = place.options(program);
    launch.endpoint = Some(ApiEndpoint {
        base_url: model.base_url().to_owned(),
        bearer: model.bearer(&launch.conversation.id().to_string()),
    });
    let session = ClaudeSession::start(on_terminal(launch), CancellationToken::new()).await.unwrap();
    for words in ["Welcome.", "Welcome again."] {
        let turn = session.send(format!("#demo\ntext {words}")).unwrap();
        assert_eq!(soon(turn.result()).await.unwrap().text, words);
    }
    soon(session.terminate()).await;
}
