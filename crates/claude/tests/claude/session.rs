//! Sessions with scripted runtimes: order, timeouts, interrupts, hooks, exits.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use innkeeper_claude::{
    ClaudeSession, EnqueueError, EventKind, ForkError, IncomingRequest, Interrupted, LaunchOptions,
    PermissionAnswer, Prompt, RestartError, SessionOptions, StartError, Status, TurnEnding, TurnFailure,
    UserContent,
};
use innkeeper_testkit::in_time;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::support::*;

/// Shared script: a runtime that echoes and answers one message at a time, and exits with 99 if it receives a
/// second one.
const TURNS: &str = r#"
const state = (state) => out({ type: 'system', subtype: 'session_state_changed', state });
const init = () => out({ type: 'system', subtype: 'init' });
const echo = (frame) => out({ ...frame, isReplay: true });
const text = (text) => out({ type: 'assistant', message: { id: 'm', role: 'assistant', content: [{ type: 'text', text }] } });
const result = (result, more = {}) => out({ type: 'result', subtype: 'success', is_error: false, result,
  terminal_reason: 'completed', usage: { input_tokens: 3, output_tokens: 4 }, ...more });
const words = (frame) => typeof frame.message.content === 'string' ? frame.message.content : frame.message.content[0].text;
const ok = (frame, response) => out({ type: 'control_response', response: { subtype: 'success', request_id: frame.request_id, response } });
let open = 0;
const begin = (frame) => { if (++open > 1) process.exit(99); state('running'); init(); echo(frame); };
const end = (words, more) => { open--; result(words, more); state('idle'); };
const answer = (frame, words) => { begin(frame); text(words); end(words); };
const aborted = () => end(undefined, { subtype: 'error_during_execution', is_error: true, terminal_reason: 'aborted_streaming' });
handlers.user = (frame) => setTimeout(() => answer(frame, 'answer to ' + words(frame)), 5);
handlers.interrupt = (frame) => ok(frame);
"#;

/// Options for a scripted runtime that supports turns.
fn turns(place: &Place, script: &str) -> LaunchOptions {
    place.scripted(&format!("{TURNS}\n{script}"))
}

async fn start(options: LaunchOptions) -> ClaudeSession {
    start_with(SessionOptions::new(options)).await
}

async fn start_with(options: SessionOptions) -> ClaudeSession {
    ClaudeSession::start(options, CancellationToken::new()).await.unwrap()
}

async fn answer(session: &ClaudeSession, prompt: impl Into<Prompt>) -> String {
    soon(session.send(prompt).unwrap().result()).await.unwrap().text
}

/// A runtime that works on `slow` until it is interrupted, and answers everything else.
const SLOW: &str = r#"
handlers.user = (frame) => words(frame) === 'slow' ? begin(frame) : answer(frame, 'answer to ' + words(frame));
handlers.interrupt = (frame) => { ok(frame); if (open) aborted(); };
"#;

/// Collects the events of a session as text.
fn follow(session: &ClaudeSession) -> (Arc<Mutex<Vec<String>>>, innkeeper_claude::SessionSubscription) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let subscription = session.on_event(move |event| {
        let words = match &event.kind {
            EventKind::SessionStart { .. } => "start".to_owned(),
            EventKind::SessionEnd { exit } => format!("end: {exit}"),
            EventKind::Text { text } => format!("text: {text}"),
            EventKind::Result { text, .. } => format!("result: {text}"),
            _ => return,
        };
        log.lock().unwrap().push(words);
    });
    (seen, subscription)
}

async fn becomes(session: &ClaudeSession, status: impl FnMut(&Status) -> bool) -> Status {
    soon(session.status().wait_for(status)).await.unwrap().clone()
}

#[tokio::test]
async fn sends_are_answered_in_order_by_one_process() {
    let place = Place::new();
    let session = start(turns(&place, "")).await;
    let pid = session.pid().unwrap();
    let turns: Vec<_> = (0..20).map(|n| session.send(format!("{n}")).unwrap()).collect();
    for (n, turn) in turns.into_iter().enumerate() {
        assert_eq!(soon(turn.result()).await.unwrap().text, format!("answer to {n}"));
    }
    assert_eq!(session.pid(), Some(pid));
    let artifact = session.artifact();
    assert_eq!((artifact.turns, artifact.tokens.input, artifact.tokens.output), (20, 60, 80));
}

#[tokio::test]
async fn turn_streams_its_events_and_ends() {
    let place = Place::new();
    let session = start(turns(&place, "")).await;
    let mut turn = session.send("one").unwrap();
    let mut kinds = Vec::new();
    while let Some(event) = soon(turn.next()).await {
        let event = event.unwrap();
        assert_eq!(event.turn, Some(turn.uuid()));
        kinds.push(event.kind.clone());
    }
    assert!(
        matches!(&kinds[..], [.., EventKind::Text { text }, EventKind::Result { .. }] if text == "answer to one")
    );
    let result = soon(turn.result()).await.unwrap();
    assert_eq!((result.ending, result.tokens.output), (TurnEnding::Completed, 4));
    assert_eq!(result.conversation, session.conversation());
}

#[tokio::test]
async fn late_result_of_timed_out_turn_does_not_settle_the_next() {
    let place = Place::new();
    // The interrupt is acknowledged immediately; the result arrives much later.
    let session = start(turns(
        &place,
        r#"let late = false;
        handlers.user = (frame) => words(frame) === 'slow' ? begin(frame) : answer(frame, 'answer to ' + words(frame));
        handlers.interrupt = (frame) => { ok(frame); if (!late) { late = true; setTimeout(() => end('too late'), 700); } };"#,
    ))
    .await;
    let slow = session.send(Prompt::from("slow").within(Duration::from_millis(100))).unwrap();
    let next = session.send("next").unwrap();
    let error = soon(slow.result()).await.unwrap_err();
    assert!(matches!(error, TurnFailure::TimedOut { .. }), "{error:?}");
    assert_eq!(error.to_string(), "the turn took longer than 0.1 s and was interrupted");
    assert_eq!(soon(next.result()).await.unwrap().text, "answer to next");
    assert_eq!(answer(&session, "more").await, "answer to more");
    assert_eq!(session.artifact().turns, 2);
}

#[tokio::test]
async fn session_timeout_applies_to_sends_without_one() {
    let place = Place::new();
    let options = SessionOptions {
        send_timeout: Some(Duration::from_secs(60)),
        ..SessionOptions::new(turns(&place, SLOW))
    };
    let session = start_with(options).await;
    let slow = session.send("slow").unwrap();
    becomes(&session, |status| *status == Status::Streaming).await;
    // The clock skips to the deadline; the next send has its own.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
    assert!(matches!(soon(slow.result()).await, Err(TurnFailure::TimedOut { .. })));
    assert_eq!(answer(&session, "quick").await, "answer to quick");
}

#[tokio::test]
async fn interrupt_fails_only_the_running_send() {
    let place = Place::new();
    let session = start(turns(&place, SLOW)).await;
    let pid = session.pid();
    let (slow, next) = (session.send("slow").unwrap(), session.send("next").unwrap());
    becomes(&session, |status| *status == Status::Streaming).await;
    assert_eq!(soon(session.interrupt()).await, Interrupted::Turn);
    assert!(matches!(soon(slow.result()).await, Err(TurnFailure::Interrupted)));
    assert_eq!(soon(next.result()).await.unwrap().text, "answer to next");
    assert_eq!(session.pid(), pid);
    becomes(&session, |status| *status == Status::Idle).await;
    assert_eq!(soon(session.interrupt()).await, Interrupted::Nothing);
}

#[tokio::test]
async fn interrupt_before_the_turn_begins_still_ends_it() {
    let place = Place::new();
    // As with newer runtimes, the first interrupt is acknowledged before the turn begins, which it then does.
    let session = start(turns(
        &place,
        r#"handlers.user = (frame) => { frame.seen = setTimeout(() => begin(frame), 100); };
        handlers.interrupt = (frame) => { ok(frame); if (open) aborted(); };"#,
    ))
    .await;
    let turn = session.send("one").unwrap();
    assert_eq!(soon(session.interrupt()).await, Interrupted::Turn);
    assert!(matches!(soon(turn.result()).await, Err(TurnFailure::Interrupted)));
}

#[tokio::test]
async fn session_is_usable_after_200_interrupts() {
    let place = Place::new();
    let session = start(turns(&place, SLOW)).await;
    let pid = session.pid().unwrap();
    for _ in 0..200 {
        let turn = session.send("slow").unwrap();
        assert_ne!(soon(session.interrupt()).await, Interrupted::Nothing);
        assert!(matches!(soon(turn.result()).await, Err(TurnFailure::Interrupted)));
    }
    assert_eq!(session.pid(), Some(pid));
    assert_eq!(answer(&session, "still there?").await, "answer to still there?");
    soon(session.terminate()).await;
    assert!(!lives(pid));
}

#[tokio::test]
async fn hung_runtime_is_killed_within_the_deadlines_and_next_send_restarts_it() {
    for sigint in [false, true] {
        let place = Place::new();
        let options = SessionOptions { sigint, ..SessionOptions::new(turns(&place, SLOW)) };
        let session = start_with(options).await;
        let pid = session.pid().unwrap();
        let turn = session.send("slow").unwrap();
        becomes(&session, |status| *status == Status::Streaming).await;
        kill(Pid::from_raw(pid.try_into().unwrap()), Signal::SIGSTOP).unwrap();
        let began = Instant::now();
        let limit = Duration::from_secs(8);
        let interrupted = in_time(limit, "interrupt", session.interrupt()).await.unwrap();
        assert!(
            matches!(&interrupted, Interrupted::Runtime(exit) if exit.signal == Some(9)),
            "{interrupted:?}"
        );
        assert!(began.elapsed() >= Duration::from_secs(5), "a step was skipped");
        assert!(matches!(soon(turn.result()).await, Err(TurnFailure::Interrupted)));
        assert!(!lives(pid));
        assert_eq!(answer(&session, "next").await, "answer to next");
        assert_ne!(session.pid(), Some(pid));
    }
}

#[tokio::test]
async fn background_tasks_that_delay_a_result_are_stopped_before_the_runtime() {
    let place = Place::new();
    // As with older runtimes, the result is withheld while an agent works in the background.
    let session = start(turns(
        &place,
        r#"handlers.user = (frame) => {
            if (words(frame) !== 'delegate') return answer(frame, 'answer to ' + words(frame));
            begin(frame); out({ type: 'system', subtype: 'task_started', task_id: 't1' });
        };
        handlers.stop_task = (frame) => { ok(frame, {});
            out({ type: 'system', subtype: 'task_notification', task_id: frame.request.task_id, status: 'stopped' });
            end('stopped'); };"#,
    ))
    .await;
    let pid = session.pid();
    let turn = session.send("delegate").unwrap();
    becomes(&session, |status| *status == Status::Streaming).await;
    assert_eq!(soon(session.interrupt()).await, Interrupted::Turn);
    assert!(matches!(soon(turn.result()).await, Err(TurnFailure::Interrupted)));
    assert_eq!(answer(&session, "next").await, "answer to next");
    assert_eq!(session.pid(), pid);
}

#[tokio::test]
async fn exit_without_result_is_an_error_and_next_send_restarts_the_runtime() {
    let place = Place::new();
    let session = start(turns(
        &place,
        r#"handlers.user = (frame) => {
            if (words(frame) !== 'crash') return answer(frame, 'answer to ' + words(frame));
            begin(frame); process.stderr.write('out of beer', () => process.exit(7));
        };"#,
    ))
    .await;
    let (seen, _following) = follow(&session);
    let (crash, next) = (session.send("crash").unwrap(), session.send("next").unwrap());
    let error = soon(crash.result()).await.unwrap_err();
    let TurnFailure::UnexpectedExit(exit) = &error else { panic!("{error:?}") };
    assert_eq!((exit.exit.code, exit.exit.stderr_tail.as_str()), (Some(7), "out of beer"));
    assert_eq!(exit.to_string(), "the runtime exited with code 7; stderr: out of beer");
    assert_eq!(soon(next.result()).await.unwrap().text, "answer to next");
    assert_eq!(
        seen.lock().unwrap().clone(),
        ["end: exited with code 7", "start", "text: answer to next", "result: answer to next"]
    );
}

#[tokio::test]
async fn idle_runtime_exit_is_an_error_and_next_send_restarts_the_runtime() {
    let place = Place::new();
    let session = start(turns(&place, "")).await;
    assert_eq!(answer(&session, "one").await, "answer to one");
    let pid = session.pid().unwrap();
    kill(Pid::from_raw(pid.try_into().unwrap()), Signal::SIGKILL).unwrap();
    let status = becomes(&session, |status| matches!(status, Status::Error(_))).await;
    let Status::Error(error) = status else { panic!("{status:?}") };
    assert_eq!(error.to_string(), "the runtime was killed by signal 9 (SIGKILL)");
    assert_eq!((session.pid(), session.controls().is_none()), (None, true));
    assert_eq!(answer(&session, "two").await, "answer to two");
}

#[tokio::test]
async fn hooks_run_in_order_and_hook_error_fails_only_its_send() {
    let place = Place::new();
    let session = start(turns(&place, "")).await;
    let adding = |suffix: &'static str| {
        move |prompt: UserContent| -> innkeeper_claude::BoxFuture<'static, _> {
            Box::pin(async move {
                let UserContent::Text(text) = prompt else { panic!("{prompt:?}") };
                if text.starts_with("bad") {
                    return Err(innkeeper_claude::HookError::from("rejected by the hook"));
                }
                Ok(UserContent::Text(text + suffix))
            })
        }
    };
    session.before_send(adding(" a")).keep();
    let second = session.before_send(adding(" b"));
    let (bad, good) = (session.send("bad").unwrap(), session.send("good").unwrap());
    let error = soon(bad.result()).await.unwrap_err();
    let TurnFailure::Hook(cause) = &error else { panic!("{error:?}") };
    assert_eq!(cause.to_string(), "rejected by the hook");
    assert_eq!(soon(good.result()).await.unwrap().text, "answer to good a b");
    second.unsubscribe();
    assert_eq!(answer(&session, "good").await, "answer to good a");
    let broken = session.before_send(|_| panic!("a bug in the hook"));
    assert!(matches!(soon(session.send("good").unwrap().result()).await, Err(TurnFailure::Hook(_))));
    drop(broken);
    assert_eq!(answer(&session, "good").await, "answer to good a");
}

#[tokio::test]
async fn hanging_hook_is_ended_by_interrupt_or_timeout() {
    let place = Place::new();
    let session = start(turns(&place, "")).await;
    let hook = session.before_send(|_| Box::pin(std::future::pending()));
    let turn = session.send("one").unwrap();
    becomes(&session, |status| *status == Status::Streaming).await;
    assert_eq!(soon(session.interrupt()).await, Interrupted::Turn);
    assert!(matches!(soon(turn.result()).await, Err(TurnFailure::Interrupted)));
    let turn = session.send(Prompt::from("two").within(Duration::from_millis(50))).unwrap();
    assert!(matches!(soon(turn.result()).await, Err(TurnFailure::TimedOut { .. })));
    drop(hook);
    assert_eq!(answer(&session, "three").await, "answer to three");
}

#[tokio::test]
async fn subscribers_receive_events_in_order_until_dropped() {
    let place = Place::new();
    let session = ClaudeSession::new(SessionOptions::new(turns(&place, "")), CancellationToken::new());
    let (seen, following) = follow(&session);
    session.on_event(|_| panic!("a bug in the subscriber")).keep();
    session.warm_up().await.unwrap();
    answer(&session, "one").await;
    following.unsubscribe();
    answer(&session, "two").await;
    assert_eq!(seen.lock().unwrap().clone(), ["start", "text: answer to one", "result: answer to one"]);
}

#[tokio::test]
async fn permission_request_does_not_block_the_stream_and_shows_in_status() {
    let place = Place::new();
    let launch = turns(
        &place,
        r#"handlers.user = (frame) => { begin(frame);
            out({ type: 'control_request', request_id: 'q', request: { subtype: 'can_use_tool', tool_name: 'Bash', input: {}, tool_use_id: 't' } });
            text('still talking'); };
        handlers.control_response = (frame) => end(frame.response.response.behavior);"#,
    );
    let gate = Arc::new(tokio::sync::Notify::new());
    let opened = Arc::clone(&gate);
    let options = SessionOptions::new(launch).with_handler(
        move |request, _cancel| -> innkeeper_claude::BoxFuture<'static, _> {
            let gate = Arc::clone(&opened);
            Box::pin(async move {
                let IncomingRequest::CanUseTool(question) = request else { panic!("{request:?}") };
                gate.notified().await;
                Ok(PermissionAnswer::allow().to_json(&question))
            })
        },
    );
    let session = start_with(options).await;
    let mut turn = session.send("go").unwrap();
    loop {
        let event = soon(turn.next()).await.unwrap().unwrap();
        if matches!(&event.kind, EventKind::Text { text } if text == "still talking") {
            break;
        }
    }
    becomes(&session, |status| *status == Status::AwaitingApproval).await;
    gate.notify_one();
    assert_eq!(soon(turn.result()).await.unwrap().text, "allow");
    becomes(&session, |status| *status == Status::Idle).await;
}

#[tokio::test]
async fn panicking_handler_returns_an_error_and_cancelled_request_is_cancelled() {
    let place = Place::new();
    let launch = turns(
        &place,
        r#"const ask = (id, tool_name) => out({ type: 'control_request', request_id: id, request: { subtype: 'can_use_tool', tool_name, input: {} } });
        handlers.user = (frame) => { begin(frame); ask('a', 'Hang'); ask('b', 'Panic'); };
        handlers.control_response = (frame) => { out({ type: 'control_cancel_request', request_id: 'a' }); end(frame.response.error); };"#,
    );
    let dropped = CancellationToken::new();
    let guard = Arc::new(Mutex::new(Some(dropped.clone().drop_guard())));
    let options = SessionOptions::new(launch).with_handler(
        move |request, _cancel| -> innkeeper_claude::BoxFuture<'static, _> {
            let IncomingRequest::CanUseTool(question) = request else { panic!("{request:?}") };
            let guard = Arc::clone(&guard);
            Box::pin(async move {
                if question.tool_name.as_deref() == Some("Panic") {
                    panic!("a bug in the handler");
                }
                let _held = guard.lock().unwrap().take();
                std::future::pending().await
            })
        },
    );
    let session = start_with(options).await;
    assert_eq!(answer(&session, "go").await, "the host failed to answer");
    soon(dropped.cancelled()).await;
    becomes(&session, |status| *status == Status::Idle).await;
}

#[tokio::test]
async fn restart_is_queued_and_changes_options() {
    let place = Place::new();
    let session = start(turns(
        &place,
        "handlers.user = (frame) => setTimeout(() => answer(frame, process.argv.filter((it) => it.startsWith('--model')).join()), 50);",
    ))
    .await;
    let before = session.send("one").unwrap();
    let restarting = session.restart(|launch| launch.model = Some("opus".to_owned()));
    let (restarted, ()) = tokio::join!(restarting, async {
        assert_eq!(soon(before.result()).await.unwrap().text, "");
    });
    restarted.unwrap();
    assert_eq!(answer(&session, "two").await, "--model=opus");
}

#[tokio::test]
async fn failed_restart_keeps_the_options() {
    let place = Place::new();
    let session = start(turns(&place, "")).await;
    let missing = place.path("nowhere");
    let error = session.restart(move |launch| launch.cwd = missing).await.unwrap_err();
    assert!(matches!(error, RestartError::Start(StartError::WorkingDirectory { .. })), "{error:?}");
    assert_eq!(answer(&session, "one").await, "answer to one");
}

#[tokio::test]
async fn terminate_fails_all_sends_and_leaves_no_process() {
    let place = Place::new();
    let session = start(turns(&place, SLOW)).await;
    let pid = session.pid().unwrap();
    let (running, waiting) = (session.send("slow").unwrap(), session.send("next").unwrap());
    becomes(&session, |status| *status == Status::Streaming).await;
    soon(session.terminate()).await;
    assert!(!lives(pid));
    for turn in [running, waiting] {
        assert!(matches!(soon(turn.result()).await, Err(TurnFailure::Terminated)));
    }
    assert_eq!(session.send("more").unwrap_err(), EnqueueError::Terminated);
    assert_eq!(*session.status().borrow(), Status::Terminated);
    assert_eq!(soon(session.interrupt()).await, Interrupted::Nothing);
    assert!(matches!(session.warm_up().await, Err(RestartError::Terminated)));
    assert!(session.artifact().ended_at.is_some());
    soon(session.terminate()).await;
    assert!(place.scratch_files().is_empty());
}

#[tokio::test]
async fn terminate_during_start_leaves_no_process() {
    let place = Place::new();
    let pid_file = place.path("pid");
    let options = place.scripted(&format!(
        "require('node:fs').writeFileSync({pid_file:?}, String(process.pid)); handlers.initialize = () => {{}};"
    ));
    let session = ClaudeSession::new(SessionOptions::new(options), CancellationToken::new());
    let turn = session.send("one").unwrap();
    until(|| std::fs::read_to_string(&pid_file).is_ok_and(|pid| !pid.is_empty())).await;
    soon(session.terminate()).await;
    assert!(matches!(soon(turn.result()).await, Err(TurnFailure::Terminated)));
    assert!(!lives(std::fs::read_to_string(pid_file).unwrap().parse().unwrap()));
}

#[tokio::test]
async fn cancelled_token_ends_the_session() {
    let place = Place::new();
    let cancel = CancellationToken::new();
    let session =
        ClaudeSession::start(SessionOptions::new(turns(&place, SLOW)), cancel.clone()).await.unwrap();
    let pid = session.pid().unwrap();
    let turn = session.send("slow").unwrap();
    becomes(&session, |status| *status == Status::Streaming).await;
    cancel.cancel();
    assert!(matches!(soon(turn.result()).await, Err(TurnFailure::Terminated)));
    becomes(&session, |status| *status == Status::Terminated).await;
    assert!(!lives(pid));
}

#[tokio::test]
async fn turn_keeps_session_alive_and_dropping_both_stops_the_runtime() {
    let place = Place::new();
    let session = start(turns(&place, "")).await;
    let pid = session.pid().unwrap();
    let turn = session.send("one").unwrap();
    drop(session);
    assert_eq!(soon(turn.result()).await.unwrap().text, "answer to one");
    until(|| !lives(pid)).await;
}

#[tokio::test]
async fn turn_with_unread_events_reports_lag_and_has_its_result() {
    let place = Place::new();
    let session = start(turns(
        &place,
        "handlers.user = (frame) => { begin(frame); for (let i = 0; i < 40; i++) text('x'.repeat(1 << 20)); end('done'); };",
    ))
    .await;
    let mut turn = session.send("go").unwrap();
    becomes(&session, |status| *status == Status::Streaming).await;
    becomes(&session, |status| *status == Status::Idle).await;
    let mut lagged = false;
    while let Some(event) = soon(turn.next()).await {
        lagged |= event.is_err();
    }
    assert!(lagged);
    assert_eq!(soon(turn.result()).await.unwrap().text, "done");
}

#[tokio::test]
async fn rejects_send_when_1000_are_queued() {
    let place = Place::new();
    let session = start(turns(&place, SLOW)).await;
    let turns: Vec<_> = (0..1024).map(|_| session.send("slow").unwrap()).collect();
    assert_eq!(session.send("one too many").unwrap_err(), EnqueueError::Full);
    soon(session.terminate()).await;
    for turn in turns {
        assert!(matches!(soon(turn.result()).await, Err(TurnFailure::Terminated)));
    }
}

#[tokio::test]
async fn rejects_fork_before_the_first_message() {
    let place = Place::new();
    let session = start(turns(&place, "")).await;
    let error = session.fork(|_| (), CancellationToken::new()).await.unwrap_err();
    assert!(matches!(error, ForkError::Empty));
    assert_eq!(error.to_string(), "the conversation has no messages yet; send one before forking it");
}

#[tokio::test]
async fn conversation_has_at_most_one_runtime() {
    let place = Place::new();
    let options = LaunchOptions { registry: Some(place.path("running")), ..turns(&place, "") };
    let first = start(options.clone()).await;
    let second = ClaudeSession::start(SessionOptions::new(options.clone()), CancellationToken::new()).await;
    let error = second.unwrap_err();
    assert!(error.to_string().contains("is in use by the runtime with warden process"), "{error}");
    // A restart releases the conversation and leases it again.
    first.restart(|_| ()).await.unwrap();
    assert_eq!(answer(&first, "one").await, "answer to one");
    soon(first.terminate()).await;
    let third = start(options).await;
    assert_eq!(answer(&third, "two").await, "answer to two");
}

/// A runtime that switches to another conversation on `/clear`, as newer ones do.
const CLEARS: &str = r#"
handlers.user = (frame) => {
  begin(frame);
  const new_conversation_id = '00000000-0000-4000-8000-000000000001';
  if (words(frame) === '/clear') out({ type: 'conversation_reset', new_conversation_id });
  end(process.argv.slice(2).join(' '));
};
"#;

#[tokio::test]
async fn conversation_id_after_clear_is_leased() {
    let place = Place::new();
    let options = LaunchOptions { registry: Some(place.path("running")), ..turns(&place, CLEARS) };
    let registry = innkeeper_claude::process_registry::ProcessRegistry::new(place.path("running"));
    let in_use = || -> Vec<_> {
        let running = registry.list().unwrap();
        running.iter().map(|runtime| (runtime.conversation, runtime.warden.is_some())).collect()
    };
    let session = start(options.clone()).await;
    answer(&session, "one").await;
    assert_eq!(in_use(), [(options.conversation.id(), true)]);
    answer(&session, "/clear").await;
    let cleared = session.conversation();
    assert_ne!(cleared, options.conversation.id());
    until(|| in_use() == [(cleared, true)]).await;
    assert!(matches!(session.fork(|_| (), CancellationToken::new()).await, Err(ForkError::Empty)));

    // The first conversation is free, the new one is leased.
    let mut other = options.clone();
    let old = start(other.clone()).await;
    other.conversation = innkeeper_claude::Conversation::New(cleared);
    let error = ClaudeSession::start(SessionOptions::new(other), CancellationToken::new()).await.unwrap_err();
    assert!(error.to_string().contains(&format!("{cleared} is in use")), "{error}");
    soon(old.terminate()).await;

    // The next runtime resumes the new conversation.
    session.restart(|_| ()).await.unwrap();
    assert!(answer(&session, "two").await.contains(&cleared.to_string()));
    assert_eq!((session.conversation(), in_use()), (cleared, vec![(cleared, true)]));
    soon(session.terminate()).await;
    assert_eq!(in_use(), []);
}

#[tokio::test]
async fn send_dropped_by_the_runtime_is_cancelled() {
    let place = Place::new();
    let session = start(turns(
        &place,
        r#"handlers.user = (frame) => out({ type: 'command_lifecycle', command_uuid: frame.uuid, state: 'queued' });
        handlers.cancel_async_message = (frame) => {
            out({ type: 'command_lifecycle', command_uuid: frame.request.message_uuid, state: 'cancelled' });
            ok(frame, { cancelled: true }); };"#,
    ))
    .await;
    let turn = session.send("one").unwrap();
    let uuid = turn.uuid();
    assert!(soon(session.controls().unwrap().cancel_message(uuid)).await.unwrap());
    assert!(matches!(soon(turn.result()).await, Err(TurnFailure::Cancelled)));
}

#[tokio::test]
async fn requests_without_handler_are_rejected() {
    let place = Place::new();
    let session = start(turns(
        &place,
        r#"handlers.user = (frame) => { begin(frame);
            out({ type: 'control_request', request_id: 'q', request: { subtype: 'can_use_tool', tool_name: 'Bash', input: {}, tool_use_id: 't' } }); };
        handlers.control_response = (frame) => end(JSON.stringify(frame.response.response));"#,
    ))
    .await;
    let refusal: serde_json::Value = serde_json::from_str(&answer(&session, "go").await).unwrap();
    let expected =
        json!({ "behavior": "deny", "message": "no permission handler is available", "toolUseID": "t" });
    assert_eq!(refusal, expected);
}
