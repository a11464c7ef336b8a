//! Daemons of a runtime, which have left its session and cleared their environment, end with it even if the
//! warden is stopped or killed.

use std::time::Duration;

use innkeeper_claude::ExitReason;
use innkeeper_testkit::in_time;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::*;

fn send_signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.try_into().unwrap()), signal).unwrap();
}

#[tokio::test]
async fn daemon_is_killed_by_the_host_if_the_warden_was_killed() {
    let place = Place::new();
    let (session, mut events) = start(place.scripted(DAEMON)).await;
    let (runtime, daemon) = (session.pid().unwrap(), said_pid(&mut events).await);
    send_signal(parent(runtime), Signal::SIGKILL);
    assert_eq!(exit(&mut events).await.reason, ExitReason::WardenLost);
    assert!(!lives(runtime) && !lives(daemon));
}

#[tokio::test]
async fn stopped_warden_kills_the_daemon_when_the_session_stops() {
    let place = Place::new();
    let (session, mut events) = start(place.scripted(DAEMON)).await;
    let (runtime, daemon) = (session.pid().unwrap(), said_pid(&mut events).await);
    let warden = parent(runtime);
    send_signal(warden, Signal::SIGSTOP);
    // Less than the deadline after which the host kills the tree without the warden.
    in_time(Duration::from_secs(6), "the session stops", session.stop()).await.unwrap();
    assert!(!lives(runtime) && !lives(daemon) && !lives(warden));
}

#[tokio::test]
async fn stopped_warden_kills_the_daemon_when_the_session_is_dropped() {
    let place = Place::new();
    let (session, mut events) = start(place.scripted(DAEMON)).await;
    let (runtime, daemon) = (session.pid().unwrap(), said_pid(&mut events).await);
    send_signal(parent(runtime), Signal::SIGSTOP);
    drop((session, events));
    until(|| !lives(runtime) && !lives(daemon)).await;
}
