//! A storm of random operations on many sessions with both pinned runtimes: afterwards every
//! session works, every message is accounted for, and nothing is left over.
//!
//! The test suite runs a short form; `scripts/soak storm` runs a long one.

mod judge;
mod plan;
mod session;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ahp_types::actions::ActionEnvelope;
use anyhow::{Context as _, Result, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _};
use innkeeper_gateway::{DemoUpstream, Gateway, GatewayConfig};
use innkeeper_testkit::fakes::{FakeAnthropic, Outcome};
use innkeeper_testkit::{HostOptions, Observer, Seen, TestHost, eventually, runtimes};
use nix::sys::signal::Signal;
use secrecy::ExposeSecret as _;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::options;
use judge::MessageLedger;
use plan::{StormOptions, plan};
use session::StormSession;

/// Sessions that start at the same time. Each starts a process.
const STARTS_AT_ONCE: usize = 4;

/// Time for the turns that are still running and for the messages that still wait.
const CALM: Duration = Duration::from_secs(120);

/// Time for the answer to one more message.
const ANSWER: Duration = Duration::from_secs(60);

/// Memory that the host may use in addition for the finished turns and for caches.
const MEMORY_MARGIN: u64 = 24 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storm_leaves_every_session_usable_and_every_message_accounted_for() -> Result<()> {
    let options = StormOptions::from_environment()?;
    let outcome = storm(options).await;
    outcome.with_context(|| format!("{options:?}; set INNKEEPER_STORM_SEED={} to repeat it", options.seed))
}

async fn storm(options: StormOptions) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let upstream =
        GatewayConfig { listen: ([127, 0, 0, 1], 0).into(), upstream: Arc::new(DemoUpstream::new()) };
    let model = Gateway::start(upstream).await?;
    let service = FakeAnthropic::in_front_of(model.base_url(), model.bearer_for("x").expose_secret()).await?;
    let mut host = TestHost::start(host_options(folder.path(), &service)?).await?;
    let mut sessions = start_sessions(&host, options).await?;
    let recorder = Recorder::start(&host, &sessions).await?;
    let before = HostUsage::of(&host)?;

    let began = Instant::now();
    sessions = run_all(sessions, plan(options), began).await?;
    let storm_time = began.elapsed();
    let recorded = recorder.stop().await?;
    let after = HostUsage::of(&host)?;
    let requests = service
        .wait_for("all requests to the model have ended", |requests| {
            requests.iter().all(|request| request.outcome != Outcome::Open)
        })
        .await?;

    let mut counts = BTreeMap::new();
    for session in &sessions {
        let ledger = ledger(&recorded, session);
        let fates = ledger.close(&session.sent).with_context(|| session.history())?;
        for (fate, count) in fates {
            *counts.entry(fate).or_insert(0) += count;
        }
    }
    report(&format!(
        "seed {}: {} operations in {} sessions, {} s until all is quiet; {counts:?}; {} requests; {before:?} → {after:?}",
        options.seed,
        options.operations,
        options.sessions,
        storm_time.as_secs(),
        requests.len()
    ));
    ensure!(after.memory <= before.memory + MEMORY_MARGIN, "memory: {before:?} → {after:?}");
    ensure!(after.descriptors <= before.descriptors + 16, "descriptors: {before:?} → {after:?}");

    drop((sessions, recorded));
    host.signal(Signal::SIGTERM)?;
    ensure!(host.exit_code(Duration::from_secs(20)).await? == Some(0), "the host did not stop cleanly");
    host.no_processes(Duration::ZERO).await?;
    eventually(Duration::from_secs(5), "no connection to the model", || service.open_connections() == 0)
        .await?;
    check_log(&folder.path().join("host.log"))
}

/// A host whose runtime depends on the folder of the session, and whose model is the fake
/// service.
fn host_options(folder: &Path, service: &FakeAnthropic) -> Result<HostOptions> {
    let [native, node] = runtimes()?;
    let program = folder.join("claude");
    let text = format!(
        "#!/bin/sh\ncase \"$PWD\" in */older-*) exec node {node:?} \"$@\";; *) exec {native:?} \"$@\";; esac\n"
    );
    std::fs::write(&program, text)?;
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
    let mut options = options(program)
        .with_variable("ANTHROPIC_API_KEY", "the-hosts-key")
        .with_variable("INNKEEPER_ANTHROPIC_URL", &service.url());
    options.upstream = "anthropic".to_owned();
    options.log_file = Some(folder.join("host.log"));
    Ok(options)
}

async fn start_sessions(host: &TestHost, options: StormOptions) -> Result<Vec<StormSession>> {
    let names = (0..options.sessions).map(|number| {
        let version = if number % 2 == 0 { "newer" } else { "older" };
        format!("{version}-{number:02}")
    });
    let starts = futures_util::stream::iter(names).map(|name| StormSession::start(host, name));
    starts.buffered(STARTS_AT_ONCE).try_collect().await
}

/// Runs the steps of all sessions at the same time, then checks each session.
async fn run_all(
    sessions: Vec<StormSession>,
    plan: Vec<Vec<plan::Step>>,
    start: Instant,
) -> Result<Vec<StormSession>> {
    let mut tasks = JoinSet::new();
    for (mut session, steps) in sessions.into_iter().zip(plan) {
        tasks.spawn(async move {
            let outcome = async {
                session.run(start, &steps).await?;
                session.calm_down(CALM).await?;
                session.answers_once_more(ANSWER).await?;
                session.check_state().await
            };
            let outcome = outcome.await;
            outcome.with_context(|| session.history()).map(|()| session)
        });
    }
    let mut done = Vec::new();
    while let Some(session) = tasks.join_next().await {
        done.push(session??);
    }
    Ok(done)
}

/// A client that stays connected and records what all sessions publish.
struct Recorder {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Result<Observer>>,
}

impl Recorder {
    async fn start(host: &TestHost, sessions: &[StormSession]) -> Result<Self> {
        let mut observer = host.observer("recorder").await?;
        for session in sessions {
            observer.subscribe(&session.chat).await?;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let task = TaskTracker::new().spawn(async move {
            while !stopped.load(Ordering::Relaxed) {
                observer.follow(Instant::now() + Duration::from_millis(100)).await?;
            }
            observer.settle().await?;
            Ok(observer)
        });
        Ok(Self { stop, task })
    }

    async fn stop(self) -> Result<Observer> {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await?
    }
}

/// The messages of a session, from the recorded actions and the rejections of its clients.
fn ledger(recorded: &Observer, session: &StormSession) -> MessageLedger {
    let mut ledger = MessageLedger::default();
    for envelope in actions(recorded, &session.chat).filter(|envelope| envelope.rejection_reason.is_none()) {
        ledger.apply(envelope);
    }
    for client in &session.clients {
        let rejected = actions(client, &session.chat).filter(|envelope| envelope.rejection_reason.is_some());
        rejected.for_each(|envelope| ledger.reject(envelope));
    }
    ledger
}

fn actions<'a>(observer: &'a Observer, chat: &'a str) -> impl Iterator<Item = &'a ActionEnvelope> {
    observer.seen.iter().filter_map(move |seen| match seen {
        Seen::Action(envelope) if envelope.channel == chat => Some(envelope.as_ref()),
        _ => None,
    })
}

/// Memory and descriptors of the host.
#[derive(Clone, Copy, Debug)]
struct HostUsage {
    /// Proportional set size in bytes, or the resident size if only root may read the former.
    memory: u64,
    descriptors: usize,
}

impl HostUsage {
    fn of(host: &TestHost) -> Result<Self> {
        let process = Path::new("/proc").join(host.pid()?.to_string());
        let (file, name) = match std::fs::read_to_string(process.join("smaps_rollup")) {
            Ok(text) => (text, "Pss:"),
            Err(_) => (std::fs::read_to_string(process.join("status"))?, "VmRSS:"),
        };
        let line = file.lines().find_map(|line| line.strip_prefix(name)).context("no memory size")?;
        let kibibytes: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
        let descriptors = std::fs::read_dir(process.join("fd")).map_or(0, Iterator::count);
        Ok(Self { memory: kibibytes << 10, descriptors })
    }
}

/// Checks that the host has logged no error and no endless repetition.
fn check_log(path: &Path) -> Result<()> {
    let log = std::fs::read_to_string(path)?;
    let errors: Vec<&str> =
        log.lines().filter(|line| line.contains(" ERROR ") || line.contains("panicked")).take(5).collect();
    ensure!(errors.is_empty(), "the host logged errors: {errors:#?}");
    let lines = log.lines().count();
    ensure!(lines < 2_000, "the host logged {lines} lines, the last one is {:?}", log.lines().last());
    Ok(())
}

#[expect(clippy::print_stderr, reason = "the figures of the soak test")]
fn report(line: &str) {
    eprintln!("{line}");
}
