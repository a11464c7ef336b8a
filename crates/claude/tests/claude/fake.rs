//! Scripted runtimes for behaviour that the real ones cannot be made to show.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use innkeeper_claude::{
    ExitReason, IncomingRequest, Message, Program, Runtime, RuntimeEvent, SendError, StartError,
};
use innkeeper_testkit::in_time;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::support::*;

/// Starts a child in its own session that ignores SIGTERM, and prints its process id.
const DETACHED_CHILD: &str = r#"
const child = spawn('bash', ['-c', 'trap "" TERM; echo ready; while :; do sleep 1; done'],
  { detached: true, stdio: ['ignore', 'pipe', 'ignore'] });
child.stdout.once('data', () => say(String(child.pid)));
"#;

#[tokio::test]
async fn exit_before_handshake_is_an_error_with_code_and_stderr() {
    let place = Place::new();
    let error = start_fails(place.shell("echo 'the disk is on fire' >&2; exit 3")).await;
    let StartError::Exited { exit, .. } = &error else { panic!("{error:?}") };
    assert_eq!((exit.code, exit.signal, exit.reason), (Some(3), None, ExitReason::OnItsOwn));
    assert_eq!(
        error.to_string(),
        "the runtime exited with code 3 before it was ready; stderr: the disk is on fire"
    );
    assert!(place.scratch_files().is_empty());
}

#[tokio::test]
async fn start_error_names_the_program() {
    let place = Place::new();
    let missing = place.path("no-such-runtime");
    let error = start_fails(place.options(Program::Native(missing.clone()))).await;
    assert!(matches!(&error, StartError::Program { path, .. } if *path == missing), "{error:?}");
    assert!(explained(&error).contains("No such file"), "{}", explained(&error));

    let not_executable = place.write("data", "x");
    let error = start_fails(place.options(Program::Native(not_executable.clone()))).await;
    assert!(matches!(&error, StartError::Program { path, .. } if *path == not_executable), "{error:?}");
    assert!(explained(&error).contains("Permission denied"), "{}", explained(&error));

    let script = place.path("missing.js");
    let error = start_fails(place.options(Program::from_path(&script))).await;
    assert!(matches!(&error, StartError::Program { path, .. } if *path == script), "{error:?}");
    assert!(place.scratch_files().is_empty());
}

#[tokio::test]
async fn start_error_names_missing_working_directory_or_warden() {
    let place = Place::new();
    let mut options = place.scripted("");
    options.cwd = place.path("nowhere");
    let error = start_fails(options).await;
    assert!(matches!(&error, StartError::WorkingDirectory { path } if *path == place.path("nowhere")));

    let mut options = place.scripted("");
    options.warden.path = place.path("no-such-warden");
    let error = start_fails(options).await;
    assert!(matches!(&error, StartError::Warden { path, .. } if *path == place.path("no-such-warden")));
}

#[tokio::test]
async fn rejected_handshake_is_an_error_and_leaves_no_process() {
    let place = Place::new();
    let pid_file = place.path("pid");
    let error = start_fails(place.scripted(&format!(
        "require('node:fs').writeFileSync({pid_file:?}, String(process.pid));
         handlers.initialize = (frame) => out({{ type: 'control_response',
           response: {{ subtype: 'error', request_id: frame.request_id, error: 'not today' }} }});"
    )))
    .await;
    assert_eq!(error.to_string(), "the runtime rejected the handshake: not today");
    assert!(!lives(std::fs::read_to_string(pid_file).unwrap().parse().unwrap()));
}

#[tokio::test]
async fn noise_and_partial_line_at_exit_are_skipped() {
    let place = Place::new();
    let (session, mut events) = start(place.scripted(
        r#"handlers.user = () => {
            process.stdout.write('warning: not JSON\n\n');
            process.stdout.write(Buffer.from([0x7b, 0xff, 0xfe, 0x0a]));
            say('after the noise');
            process.stderr.write('going down');
            process.stdout.write('{"type":"said","text":"hal', () => process.exit(7));
        };"#,
    ))
    .await;
    session.send(&prompt("go")).unwrap();
    assert_eq!(said(&mut events).await, "after the noise");
    let event = soon(events.next()).await;
    let Some(RuntimeEvent::Exited(exit)) = event else { panic!("{event:?}") };
    assert_eq!((exit.code, exit.stderr_tail.as_str()), (Some(7), "going down"));
    assert!(soon(events.next()).await.is_none());
    assert_eq!(session.send(&prompt("more")), Err(SendError::Exited));
    assert_eq!(session.exit(), Some(exit));
}

#[tokio::test]
async fn runtime_that_closes_its_output_is_stopped() {
    let place = Place::new();
    let (session, mut events) = start(place.scripted(
        r#"handlers.user = () => {
            process.stderr.write('nothing more to say');
            require('node:fs').closeSync(1);
            setInterval(() => {}, 1000);
        };"#,
    ))
    .await;
    session.send(&prompt("go")).unwrap();
    let exit = exit(&mut events).await;
    assert_eq!((exit.reason, exit.stderr_tail.as_str()), (ExitReason::OutputClosed, "nothing more to say"));
    assert!(!lives(session.pid().unwrap()));
}

#[tokio::test]
async fn line_over_the_limit_stops_the_runtime() {
    let place = Place::new();
    let (session, mut events) = start(place.scripted(
        r#"handlers.user = () => {
            const chunk = Buffer.alloc(1 << 20, 'x');
            const more = () => process.stdout.write(chunk, more);
            more();
        };"#,
    ))
    .await;
    session.send(&prompt("go")).unwrap();
    let exit = exit(&mut events).await;
    assert_eq!(exit.reason, ExitReason::LineTooLong { limit: 64 << 20 });
    assert!(exit.to_string().ends_with("because a line of its output exceeded 64 MiB"), "{exit}");
    assert!(!lives(session.pid().unwrap()));
}

#[tokio::test]
async fn runtime_whose_output_is_not_read_is_stopped() {
    let place = Place::new();
    let (session, mut events) = start(place.scripted(
        r#"handlers.user = () => {
            const line = JSON.stringify({ type: 'keep_alive', text: 'x'.repeat(1 << 20) }) + '\n';
            const more = () => process.stdout.write(line, more);
            more();
        };"#,
    ))
    .await;
    session.send(&prompt("go")).unwrap();
    until(|| session.exit().is_some()).await;
    assert!(!lives(session.pid().unwrap()));
    let exit = exit(&mut events).await;
    assert_eq!(exit.reason, ExitReason::InboxFull);
    assert!(exit.to_string().ends_with("because its output was not read"), "{exit}");
}

#[tokio::test]
async fn detached_child_is_killed_when_handle_and_events_are_dropped() {
    let place = Place::new();
    let (session, mut events) = start(place.scripted(DETACHED_CHILD)).await;
    let child = said_pid(&mut events).await;
    let runtime = session.pid().unwrap();
    let clone = session.clone();
    drop(session);
    drop(events);
    assert!(lives(child) && lives(runtime), "stopped although a handle is still held");
    drop(clone);
    until(|| !lives(child) && !lives(runtime)).await;
    until(|| place.scratch_files().is_empty()).await;
}

#[tokio::test]
async fn leftover_children_are_killed_before_exit_is_reported() {
    let place = Place::new();
    let script = format!("{DETACHED_CHILD}\nhandlers.user = () => process.exit(5);");
    let (session, mut events) = start(place.scripted(&script)).await;
    let child = said_pid(&mut events).await;
    session.send(&prompt("exit")).unwrap();
    let exit = exit(&mut events).await;
    assert_eq!((exit.code, exit.reason), (Some(5), ExitReason::OnItsOwn));
    assert!(!lives(child));
}

#[tokio::test]
async fn stop_kills_an_unresponsive_runtime_within_the_deadlines() {
    let place = Place::new();
    let script = format!(
        "{DETACHED_CHILD}
         process.on('SIGTERM', () => {{}});
         setInterval(() => {{}}, 1000);
         handlers.user = () => say('busy now');"
    );
    let (session, mut events) = start(place.scripted(&script)).await;
    let child = said_pid(&mut events).await;
    session.send(&prompt("work forever")).unwrap();
    said(&mut events).await;
    let began = Instant::now();
    let stopping = async { tokio::join!(session.stop(), session.stop()) };
    let (first, second) = in_time(Duration::from_secs(8), "stop", stopping).await.unwrap();
    assert!(began.elapsed() >= Duration::from_secs(5), "a step was skipped");
    assert_eq!((first.signal, first.reason), (Some(9), ExitReason::Stopped));
    assert_eq!(first, second);
    assert!(!lives(child) && !lives(session.pid().unwrap()));
    assert_eq!(session.stop().await, first);
}

#[tokio::test]
async fn stop_interrupts_stops_tasks_and_closes_stdin() {
    let place = Place::new();
    let log = place.path("log");
    let (session, mut events) = start(place.scripted(&format!(
        r#"const note = (text) => require('node:fs').appendFileSync({log:?}, text + '\n');
        const ok = (frame) => out({{ type: 'control_response',
          response: {{ subtype: 'success', request_id: frame.request_id }} }});
        handlers.user = () => {{
          out({{ type: 'system', subtype: 'task_started', task_id: 't1' }});
          say('busy now');
        }};
        handlers.interrupt = (frame) => {{
          note('interrupt'); ok(frame); out({{ type: 'result', subtype: 'error_during_execution' }});
        }};
        handlers.stop_task = (frame) => {{ note('stop_task ' + frame.request.task_id); ok(frame); }};
        process.stdin.on('end', () => {{ note('end'); process.exit(0); }});"#
    )))
    .await;
    session.send(&prompt("go")).unwrap();
    said(&mut events).await;
    let exit = soon(session.stop()).await;
    assert_eq!((exit.code, exit.reason), (Some(0), ExitReason::Stopped));
    assert_eq!(std::fs::read_to_string(log).unwrap(), "interrupt\nstop_task t1\nend\n");
}

#[tokio::test]
async fn dropped_stop_future_still_stops_the_runtime() {
    let place = Place::new();
    let (session, mut events) = start(place.scripted("")).await;
    assert!(futures_util::FutureExt::now_or_never(session.stop()).is_none());
    assert_eq!(exit(&mut events).await.reason, ExitReason::Stopped);
}

/// A runtime that never responds to the handshake and writes its process id to a file.
fn silent(place: &Place) -> (innkeeper_claude::LaunchOptions, PathBuf) {
    let pid_file = place.path("pid");
    // Renamed into place, so that an existing file is complete.
    let script = format!(
        "{DETACHED_CHILD}
         handlers.initialize = () => {{}};
         child.stdout.once('data', () => {{
           const fs = require('node:fs');
           fs.writeFileSync({pid_file:?} + '.part', process.pid + ' ' + child.pid);
           fs.renameSync({pid_file:?} + '.part', {pid_file:?});
         }});"
    );
    (place.scripted(&script), pid_file)
}

fn pids_in(pid_file: &PathBuf) -> Vec<u32> {
    let text = std::fs::read_to_string(pid_file).unwrap();
    text.split(' ').map(|pid| pid.parse().unwrap()).collect()
}

#[tokio::test]
async fn cancelled_start_kills_the_process_tree_before_it_returns() {
    let place = Place::new();
    let (options, pid_file) = silent(&place);
    let cancel = CancellationToken::new();
    let cancelling = async {
        until(|| pid_file.exists()).await;
        cancel.cancel();
    };
    let (started, ()) = tokio::join!(soon(Runtime::start(options, cancel.clone())), cancelling);
    assert!(matches!(started, Err(StartError::Cancelled)));
    assert!(pids_in(&pid_file).into_iter().all(|pid| !lives(pid)));
    assert!(place.scratch_files().is_empty());
}

#[tokio::test]
async fn start_with_cancelled_token_starts_no_process() {
    let place = Place::new();
    let cancel = CancellationToken::new();
    cancel.cancel();
    let started = Runtime::start(place.scripted(""), cancel).await;
    assert!(matches!(started, Err(StartError::Cancelled)));
    assert!(!place.path("scratch").exists());
}

#[tokio::test]
async fn dropped_start_leaves_no_process() {
    let place = Place::new();
    let (options, pid_file) = silent(&place);
    tokio::select! {
        _ = Runtime::start(options, CancellationToken::new()) => panic!("the session started"),
        () = until(|| pid_file.exists()) => {}
    }
    let pids = pids_in(&pid_file);
    until(|| pids.iter().all(|pid| !lives(*pid))).await;
    until(|| place.scratch_files().is_empty()).await;
}

#[tokio::test]
async fn cancel_after_start_kills_the_process_tree() {
    let place = Place::new();
    let cancel = CancellationToken::new();
    let options = place.scripted(DETACHED_CHILD);
    let (_session, mut events) = Runtime::start(options, cancel.clone()).await.unwrap();
    let child = said_pid(&mut events).await;
    cancel.cancel();
    assert_eq!(exit(&mut events).await.reason, ExitReason::Cancelled);
    assert!(!lives(child));
}

#[tokio::test]
async fn handshake_timeout_kills_the_runtime() {
    let place = Place::new();
    let (options, pid_file) = silent(&place);
    let starting = Runtime::start(options, CancellationToken::new());
    let hurrying = async {
        until(|| pid_file.exists()).await;
        // The clock skips to the deadline; processes continue at their own pace.
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(61)).await;
        tokio::time::resume();
    };
    let (started, ()) = tokio::join!(starting, hurrying);
    assert!(matches!(started, Err(StartError::TimedOut { .. })), "{started:?}");
    assert!(pids_in(&pid_file).into_iter().all(|pid| !lives(pid)));
}

#[tokio::test]
async fn settings_file_is_private_and_removed_after_exit() {
    let place = Place::new();
    let (session, _events) = start(place.scripted("")).await;
    let files = place.scratch_files();
    assert_eq!(files.len(), 1);
    let path = place.path("scratch").join(&files[0]);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(std::fs::read_to_string(&path).unwrap().contains("nonce.conversation"));
    soon(session.stop()).await;
    assert!(place.scratch_files().is_empty());
}

/// Descriptors that this process passes on to every child.
fn inheritable() -> Vec<String> {
    const CLOSE_ON_EXEC: u32 = 0o2_000_000;
    let flags = |number: &str| {
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
        u32::from_str_radix(flags.trim(), 8).ok()
    };
    let numbers = std::fs::read_dir("/proc/self/fd").unwrap();
    let numbers = numbers.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    numbers.filter(|number| flags(number).is_some_and(|flags| flags & CLOSE_ON_EXEC == 0)).collect()
}

#[tokio::test]
async fn runtime_inherits_empty_signal_mask_and_no_descriptors() {
    let place = Place::new();
    let error = start_fails(place.shell(
        "grep SigBlk /proc/self/status >&2; for fd in /proc/$$/fd/*; do [ -e $fd ] && echo ${fd##*/} >&2; done; exit 1",
    ))
    .await;
    let StartError::Exited { exit, .. } = error else { panic!("{error:?}") };
    let mut lines: Vec<&str> = exit.stderr_tail.lines().collect();
    assert_eq!(lines.remove(0), "SigBlk:\t0000000000000000");
    // Descriptor 255 is the script itself.
    lines.retain(|number| *number != "255" && !inheritable().iter().any(|inherited| inherited == number));
    assert!(lines.iter().all(|number| ["0", "1", "2"].contains(number)), "{lines:?}");
}

#[tokio::test]
async fn unknown_request_is_rejected_without_the_consumer() {
    let place = Place::new();
    let (session, mut events) = start(place.scripted(
        r#"handlers.user = () => {
            out({ type: 'control_request', request_id: 'u', request: { subtype: 'ui_dance' } });
            out({ type: 'control_request', request_id: 'q',
              request: { subtype: 'can_use_tool', tool_name: 'Bash', input: { command: 'ls' }, tool_use_id: 't' } });
        };
        handlers.control_response = (frame) => say(JSON.stringify(frame.response));"#,
    ))
    .await;
    session.send(&prompt("go")).unwrap();
    let id = event(&mut events, |event| match event {
        RuntimeEvent::Request { id, request: IncomingRequest::CanUseTool(request) } => {
            assert_eq!(request.tool_name.as_deref(), Some("Bash"));
            assert_eq!(request.input.as_ref().unwrap().get(), r#"{"command":"ls"}"#);
            Some(id.clone())
        }
        _ => None,
    })
    .await;
    let refusal: serde_json::Value = serde_json::from_str(&said(&mut events).await).unwrap();
    assert_eq!((&refusal["request_id"], &refusal["subtype"]), (&json!("u"), &json!("error")));
    session.respond(&id, Ok(json!({ "behavior": "deny", "message": "no" }))).unwrap();
    let answer: serde_json::Value = serde_json::from_str(&said(&mut events).await).unwrap();
    assert_eq!(answer["response"]["behavior"], "deny");
    assert!(matches!(session.respond(&id, Ok(json!({}))), Err(SendError::NoSuchRequest { .. })));
}

#[tokio::test]
async fn pending_request_fails_when_runtime_exits() {
    let place = Place::new();
    let (session, _events) = start(place.scripted("handlers.mcp_status = () => process.exit(1);")).await;
    let error = soon(session.request("mcp_status", serde_json::Map::new())).await.unwrap_err();
    assert_eq!(error, innkeeper_claude::RequestError::Exited);
}

#[tokio::test]
async fn runtime_that_does_not_read_can_be_stopped() {
    let place = Place::new();
    let (session, _events) = start(place.scripted("handlers.user = () => { for (;;) {} };")).await;
    let large = "x".repeat(16 << 20);
    let refused = (0..8).find_map(|_| session.send(&prompt(&large)).err());
    assert_eq!(refused, Some(SendError::QueueFull));
    assert_eq!(soon(session.stop()).await.reason, ExitReason::Stopped);
    assert!(!lives(session.pid().unwrap()));
}

#[tokio::test]
async fn slow_consumer_receives_all_of_100000_messages() {
    let place = Place::new();
    let (session, mut events) = start(place.scripted(
        "handlers.user = () => {
            const frames = [];
            for (let i = 0; i < 100000; i++) frames.push(JSON.stringify({ type: 'keep_alive', i }));
            process.stdout.write(frames.join('\\n') + '\\n', () => process.exit(0));
        };",
    ))
    .await;
    session.send(&prompt("go")).unwrap();
    until(|| session.exit().is_some()).await;
    let mut count = 0;
    while let Some(RuntimeEvent::Message(Message::KeepAlive(_))) = events.try_next() {
        count += 1;
    }
    assert_eq!(count, 100_000);
}

fn send_signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.try_into().unwrap()), signal).unwrap();
}

#[tokio::test]
async fn terminated_warden_kills_the_process_tree() {
    let place = Place::new();
    let (session, mut events) = start(place.scripted(DETACHED_CHILD)).await;
    let child = said_pid(&mut events).await;
    send_signal(parent(session.pid().unwrap()), Signal::SIGTERM);
    let exit = exit(&mut events).await;
    assert_eq!(exit.signal, Some(15));
    assert!(!lives(child));
}

#[tokio::test]
async fn killed_warden_is_detected_and_its_process_tree_killed() {
    let place = Place::new();
    let (session, mut events) = start(place.scripted(DETACHED_CHILD)).await;
    let (runtime, child) = (session.pid().unwrap(), said_pid(&mut events).await);
    send_signal(parent(runtime), Signal::SIGKILL);
    assert_eq!(exit(&mut events).await.reason, ExitReason::WardenLost);
    assert!(!lives(runtime) && !lives(child));
}

#[tokio::test]
async fn killed_runtime_is_reported_with_its_signal() {
    let place = Place::new();
    let (session, mut events) = start(place.scripted(DETACHED_CHILD)).await;
    let child = said_pid(&mut events).await;
    send_signal(session.pid().unwrap(), Signal::SIGKILL);
    let exit = exit(&mut events).await;
    assert_eq!(exit.to_string(), "was killed by signal 9 (SIGKILL)");
    assert!(!lives(child));
}

#[tokio::test]
async fn concurrent_sessions_do_not_share_descriptors_or_files() {
    let place = Place::new();
    let options = place.scripted("");
    let mut sessions = Vec::new();
    let mut starting = tokio::task::JoinSet::new();
    for _ in 0..20 {
        starting.spawn(start(options.clone()));
    }
    while let Some(session) = soon(starting.join_next()).await {
        sessions.push(session.unwrap());
    }
    assert_eq!(place.scratch_files().len(), 20);
    // The exit of each must be seen immediately; a descriptor inherited by another runtime would delay it.
    for (session, _events) in &sessions {
        assert_eq!(soon(session.stop()).await.code, Some(0));
    }
    assert!(place.scratch_files().is_empty());
}
