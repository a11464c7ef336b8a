//! A host that is killed leaves nothing behind.

use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::*;

const SCRIPT: &str = "HOST_TEST_SCRIPT";

/// The host of the test below, run as a process of its own. It prints the ids of a runtime and of its child
/// in another session, then waits to be killed.
#[tokio::test]
#[ignore = "run by the test below in a process of its own"]
async fn host_that_waits_to_be_killed() {
    let directory = std::env::var(SCRIPT).expect("it is run by the test below");
    let place = Place::new();
    let mut options = place.scripted(
        "const child = spawn('sleep', ['600'], { detached: true, stdio: 'ignore' });
         child.once('spawn', () => say(String(child.pid)));",
    );
    options.scratch_dir = directory.clone().into();
    let (session, mut events) = start(options).await;
    let child = said_pid(&mut events).await;
    let report = std::path::Path::new(&directory).join("pids.part");
    std::fs::write(&report, format!("{} {child}", session.pid())).unwrap();
    std::fs::rename(&report, report.with_extension("ready")).unwrap();
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_host_ended_by_sigkill_leaves_no_process_and_no_secret_behind() {
    let place = Place::new();
    let directory = place.path("reports");
    std::fs::create_dir(&directory).unwrap();
    #[expect(clippy::disallowed_methods, reason = "the host itself is the subject of the test")]
    let mut host = tokio::process::Command::new(std::env::current_exe().unwrap());
    let mut host = host
        .args(["--exact", "host::host_that_waits_to_be_killed", "--ignored"])
        .env(SCRIPT, &directory)
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let report = directory.join("pids.ready");
    until(|| report.exists()).await;
    let text = std::fs::read_to_string(&report).unwrap();
    std::fs::remove_file(&report).unwrap();
    let pids: Vec<u32> = text.split(' ').map(|pid| pid.parse().unwrap()).collect();
    assert!(pids.iter().all(|pid| lives(*pid)));
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1, "the settings file");

    kill(Pid::from_raw(host.id().unwrap().try_into().unwrap()), Signal::SIGKILL).unwrap();
    host.wait().await.unwrap();
    let gone = until(|| pids.iter().all(|pid| !lives(*pid)));
    tokio::time::timeout(Duration::from_secs(2), gone).await.expect("gone within two seconds");
    until(|| std::fs::read_dir(&directory).unwrap().count() == 0).await;
}
