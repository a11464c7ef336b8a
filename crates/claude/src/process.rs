//! A runtime process and its resources.
//!
//! The only place in the crate where the host spawns a process. One owner task holds the warden, its
//! control stream and the settings file; separate tasks write stdin, read stdout and read stderr.
//! Invariants: the stdout reader never waits for a consumer, and the process tree is terminated when the
//! last [`Process`] is dropped.

mod attached;
mod exit;
mod files;
mod lease_holder;
mod streams;

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::process::{Child, Command};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

pub use exit::{Exit, ExitReason};
pub(crate) use files::PrivateFiles;
use lease_holder::{LeaseHolder, LeasedProcess};
use streams::{ReadEnd, Tail};

use crate::countdown::{self, Countdown};
use crate::intake::Intake;
use crate::options::{LaunchPlan, MARK, WardenProgram};
use crate::process_mark::ProcessMark;
use crate::process_registry::{Lease, end_marked};
use crate::queue::ByteQueue;
use crate::warden::{Order, Report, RuntimeStatus};

/// Time for the warden to terminate the tree after the order, before the host does it. The warden's own
/// steps take at most 5.5 s.
const WARDEN_DEADLINE: Duration = Duration::from_secs(7);

/// Time for the streams to close after the tree has exited. Only a descriptor leaked outside the tree
/// keeps them open.
const DRAIN_DEADLINE: Duration = Duration::from_secs(1);

/// Time for a runtime to exit after it closed its output; exiting closes the output as well.
const SILENT_DEADLINE: Duration = Duration::from_secs(2);

/// Spawning clears close-on-exec of one descriptor for a moment. Without this lock, two concurrent spawns
/// would pass their control streams to each other's wardens.
static SPAWNING: Mutex<()> = Mutex::new(());

/// Parameters for starting a process.
#[derive(Debug)]
pub(crate) struct Spawn<'a> {
    pub(crate) plan: &'a LaunchPlan,
    pub(crate) warden: &'a WardenProgram,
    pub(crate) cwd: &'a std::path::Path,
    /// Deleted after the runtime exits.
    pub(crate) files: PrivateFiles,
    /// Identifies the runtime's processes.
    pub(crate) mark: Uuid,
    /// Released after the runtime exits.
    pub(crate) lease: Option<Lease>,
    pub(crate) links: SessionLinks,
}

/// Connections between a process and its session, for local and remote processes.
#[derive(Debug)]
pub(crate) struct SessionLinks {
    /// Receives the runtime's messages.
    pub(crate) intake: Arc<Intake>,
    /// Lines to write to the runtime's stdin.
    pub(crate) outgoing: Arc<ByteQueue<Bytes>>,
    /// Terminates the tree.
    pub(crate) cancel: CancellationToken,
}

/// Requested way to end the runtime. Only escalates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum StopLevel {
    NotRequested,
    Interrupt,
    Terminate,
    Kill,
}

/// A runtime process, running or exited. Dropping it terminates the tree.
#[derive(Debug)]
pub(crate) struct Process {
    ending: watch::Sender<StopLevel>,
    exit: watch::Receiver<Option<Exit>>,
    outgoing: Arc<ByteQueue<Bytes>>,
    /// Set when a stop was requested, to distinguish it from an exit of the runtime's own accord.
    stopping: CancellationToken,
    /// The tasks of this process; the stop sequence waits for them.
    tasks: TaskTracker,
}

/// The runtime's process id, or the error number if it could not be started.
pub(crate) type StartedReceiver = oneshot::Receiver<Result<u32, i32>>;

impl Process {
    /// Starts the warden, which starts the runtime.
    pub(crate) fn spawn(spawn: Spawn<'_>) -> std::io::Result<(Self, StartedReceiver)> {
        let (host_end, warden_end) = StdUnixStream::pair()?;
        host_end.set_nonblocking(true)?;
        let control = UnixStream::from_std(host_end)?;
        let mut child = spawn_warden(&spawn, warden_end.into())?;
        let tasks = TaskTracker::new();
        let process = child.id().map(|warden| LeasedProcess { warden, mark: spawn.mark });
        let lease_holder = LeaseHolder::start(&tasks, spawn.lease, process, &spawn.links.intake);
        let done = CancellationToken::new();
        let tail = Tail::default();

        if let Some(stdin) = child.stdin.take() {
            let outgoing = Arc::clone(&spawn.links.outgoing);
            let done = done.clone();
            tasks.spawn(async move {
                done.run_until_cancelled(streams::write_lines(&outgoing, stdin)).await;
                // The remaining lines are not written, so later sends must fail.
                outgoing.abandon();
            });
        }
        let reader = child.stdout.take().map(|stdout| {
            let intake = Arc::clone(&spawn.links.intake);
            tasks.spawn(async move { streams::read_messages(stdout, &intake).await })
        });
        let errors = child.stderr.take().map(|stderr| {
            let tail = tail.clone();
            tasks.spawn(async move { streams::read_tail(stderr, &tail).await })
        });

        let (ending, ending_asked) = watch::channel(StopLevel::NotRequested);
        let (exit_sender, exit) = watch::channel(None);
        let (started_sender, started) = oneshot::channel();
        let stopping = CancellationToken::new();
        let owner = ProcessOwner {
            child,
            orders: None,
            ending: ending_asked,
            started: Some(started_sender),
            pid: None,
            reader,
            errors,
            tail,
            reason: None,
            cancel: spawn.links.cancel,
            stopping: stopping.clone(),
            files: spawn.files,
            mark: spawn.mark,
        };
        let intake = spawn.links.intake;
        tasks.spawn(async move {
            let exit = owner.run(control, &done).await;
            lease_holder.end().await;
            intake.exited(exit.clone());
            exit_sender.send_replace(Some(exit));
        });
        Ok((Self { ending, exit, outgoing: spawn.links.outgoing, stopping, tasks }, started))
    }

    /// Runs `work` as a task of the process.
    pub(crate) fn run(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(work);
    }

    /// Marks the following exit as requested; returns true the first time.
    pub(crate) fn begin_stop(&self) -> bool {
        let first = !self.stopping.is_cancelled();
        self.stopping.cancel();
        first
    }

    /// Closes the runtime's stdin after all queued lines are written.
    pub(crate) fn close_stdin(&self) {
        self.outgoing.close();
    }

    /// Sends SIGINT to the whole tree.
    pub(crate) fn interrupt(&self) {
        self.escalate(StopLevel::Interrupt);
    }

    /// Sends SIGTERM to the whole tree.
    pub(crate) fn terminate(&self) {
        self.escalate(StopLevel::Terminate);
    }

    /// Sends SIGKILL to the whole tree until all processes are gone.
    pub(crate) fn kill(&self) {
        self.escalate(StopLevel::Kill);
    }

    fn escalate(&self, to: StopLevel) {
        self.ending.send_if_modified(|ending| {
            let higher = to > *ending;
            if higher {
                *ending = to;
            }
            higher
        });
    }

    /// Waits until the runtime and all its descendants have exited.
    pub(crate) async fn exited(&self) -> Exit {
        let mut exit = self.exit.clone();
        let exit = exit.wait_for(Option::is_some).await.ok().and_then(|exit| exit.clone());
        // The owner disappears without a result only if the async runtime is shut down.
        exit.unwrap_or_else(Exit::unknown)
    }

    /// The exit, if the runtime has exited.
    pub(crate) fn exit_so_far(&self) -> Option<Exit> {
        self.exit.borrow().clone()
    }
}

fn spawn_warden(spawn: &Spawn<'_>, warden_end: OwnedFd) -> std::io::Result<Child> {
    #[expect(clippy::disallowed_methods, reason = "the only place that spawns; the owner task is below")]
    let mut command = Command::new(&spawn.warden.path);
    command.args(&spawn.warden.args).arg("--control-fd").arg(warden_end.as_raw_fd().to_string());
    for path in spawn.files.paths() {
        command.arg("--remove").arg(path);
    }
    command
        .arg("--")
        .arg(&spawn.plan.executable)
        .args(spawn.plan.arguments(spawn.files.as_launch_files()))
        .env_clear()
        .envs(&spawn.plan.environment)
        .env(MARK, spawn.mark.to_string())
        .current_dir(spawn.cwd)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let _one_at_a_time = SPAWNING.lock().unwrap_or_else(PoisonError::into_inner);
    // A process spawned concurrently elsewhere may inherit the warden's end as well. That is harmless:
    // the host's end is never inherited, and only closing that end has a meaning.
    fcntl(&warden_end, FcntlArg::F_SETFD(FdFlag::empty()))?;
    let child = command.spawn();
    drop(warden_end);
    child
}

/// The task that owns the warden.
struct ProcessOwner {
    child: Child,
    /// Control stream to the warden; `None` after the order to terminate the tree.
    orders: Option<OwnedWriteHalf>,
    ending: watch::Receiver<StopLevel>,
    started: Option<oneshot::Sender<Result<u32, i32>>>,
    pid: Option<i32>,
    reader: Option<JoinHandle<ReadEnd>>,
    errors: Option<JoinHandle<()>>,
    tail: Tail,
    /// Why the host terminated the tree, if it did.
    reason: Option<ExitReason>,
    cancel: CancellationToken,
    stopping: CancellationToken,
    /// Deleted after the tree has exited.
    files: PrivateFiles,
    /// The mark in the environment of the tree's processes.
    mark: Uuid,
}

/// Events that the owner task handles.
enum ProcessEvent {
    Report(Option<Report>),
    StopLevel(Option<StopLevel>),
    Read(ReadEnd),
    Cancelled,
    WardenGone,
    Overdue,
    Silent,
}

impl ProcessOwner {
    async fn run(mut self, control: UnixStream, done: &CancellationToken) -> Exit {
        let (reports, orders) = control.into_split();
        self.orders = Some(orders);
        let status = self.watch(reports).await;
        done.cancel();
        if status == RuntimeStatus::Lost {
            self.end_without_warden().await;
        }
        self.reap_warden().await;
        self.drain().await;
        drop(std::mem::take(&mut self.files));
        let reason = match self.reason {
            Some(reason) => reason,
            None if self.stopping.is_cancelled() => ExitReason::Stopped,
            None if status == RuntimeStatus::Lost => ExitReason::WardenLost,
            None => ExitReason::OnItsOwn,
        };
        Exit::new(status, self.tail.text(), reason)
    }

    /// Follows the warden's reports until the tree is gone.
    async fn watch(&mut self, reports: tokio::net::unix::OwnedReadHalf) -> RuntimeStatus {
        let mut reports = BufReader::new(reports).lines();
        let (mut overdue, mut silent) = (None, None);
        let cancel = self.cancel.clone();
        loop {
            let told_to_end = self.orders.is_none();
            let input = tokio::select! {
                // Reports come first: after the final report nothing else matters.
                biased;
                line = reports.next_line() => {
                    let line = line.ok().flatten();
                    ProcessEvent::Report(line.as_deref().and_then(Report::from_line))
                }
                () = cancel.cancelled(), if !told_to_end => ProcessEvent::Cancelled,
                end = join(&mut self.reader) => ProcessEvent::Read(end),
                changed = self.ending.changed(), if !told_to_end => {
                    ProcessEvent::StopLevel(changed.ok().map(|()| *self.ending.borrow_and_update()))
                }
                _ = self.child.wait(), if self.child.id().is_some() => ProcessEvent::WardenGone,
                () = countdown::over(&mut overdue) => ProcessEvent::Overdue,
                () = countdown::over(&mut silent), if !told_to_end => ProcessEvent::Silent,
            };
            match input {
                ProcessEvent::Report(Some(Report::Exited(status))) => return status,
                ProcessEvent::Report(Some(Report::Started(pid))) => self.runtime_started(pid),
                ProcessEvent::Report(Some(Report::Failed(error))) => {
                    self.tell_started(Err(error));
                    return RuntimeStatus::Lost;
                }
                ProcessEvent::Report(None) | ProcessEvent::Overdue => return RuntimeStatus::Lost,
                // Its final report may still be in the buffer.
                ProcessEvent::WardenGone => overdue = Some(Countdown::of(DRAIN_DEADLINE)),
                ProcessEvent::Cancelled => self.end(ExitReason::Cancelled),
                ProcessEvent::StopLevel(None) => self.end(ExitReason::Dropped),
                ProcessEvent::StopLevel(Some(ending)) => self.apply(ending).await,
                ProcessEvent::Read(ReadEnd::Closed) => silent = Some(Countdown::of(SILENT_DEADLINE)),
                // The stop sequence has its own deadlines.
                ProcessEvent::Silent if self.stopping.is_cancelled() => silent = None,
                ProcessEvent::Silent => self.end(ExitReason::OutputClosed),
                ProcessEvent::Read(ReadEnd::LineTooLong(error)) => {
                    self.end(ExitReason::LineTooLong { limit: error.limit });
                }
                ProcessEvent::Read(ReadEnd::InboxFull) => self.end(ExitReason::InboxFull),
            }
            if self.orders.is_none() && overdue.is_none() {
                overdue = Some(Countdown::of(WARDEN_DEADLINE));
            }
        }
    }

    fn runtime_started(&mut self, pid: i32) {
        self.pid = Some(pid);
        self.tell_started(Ok(pid.unsigned_abs()));
    }

    fn tell_started(&mut self, started: Result<u32, i32>) {
        if let Some(sender) = self.started.take() {
            // The receiver may have been dropped, in which case the tree is terminated by other means.
            sender.send(started).ok();
        }
    }

    /// Closes the control stream: the warden then terminates the tree, first with SIGTERM.
    fn end(&mut self, reason: ExitReason) {
        self.reason.get_or_insert(reason);
        self.orders = None;
        self.resume_warden();
    }

    /// Lets a stopped warden run, so that it receives its orders.
    fn resume_warden(&self) {
        let warden = self.child.id().and_then(|pid| i32::try_from(pid).ok());
        if let Some(warden) = warden {
            // The warden is not reaped yet, so the id still belongs to it.
            kill(Pid::from_raw(warden), Signal::SIGCONT).ok();
        }
    }

    async fn apply(&mut self, ending: StopLevel) {
        let order = match ending {
            StopLevel::NotRequested => return,
            StopLevel::Interrupt => Order::Interrupt,
            StopLevel::Terminate => Order::Terminate,
            StopLevel::Kill => Order::Kill,
        };
        let Some(orders) = &mut self.orders else { return };
        // Writing one byte to an empty socket buffer does not block. If the warden is gone, its missing
        // report shows it.
        orders.write_all(&[order.to_byte()]).await.ok();
        self.resume_warden();
        if ending == StopLevel::Kill {
            self.orders = None;
        }
    }

    /// Kills the remaining processes of a tree whose warden is gone. The runtime is not a child of this
    /// process, so only its process group can be signalled and, on Linux, all processes with its mark.
    async fn end_without_warden(&self) {
        if let Some(pid) = self.pid {
            killpg(Pid::from_raw(pid), Signal::SIGKILL).ok();
        }
        let mark = ProcessMark(self.mark);
        if tokio::task::spawn_blocking(move || end_marked(mark)).await.is_err() {
            tracing::warn!("search for leftover runtime processes failed");
        }
    }

    /// Reaps the warden to avoid a zombie.
    async fn reap_warden(&mut self) {
        if countdown::within(DRAIN_DEADLINE, self.child.wait()).await.is_none() {
            tracing::warn!("killed a warden that did not exit");
            self.child.kill().await.ok();
        }
    }

    /// Waits until the readers have processed all remaining output, so that the exit is the last event.
    async fn drain(&mut self) {
        let drained = countdown::within(DRAIN_DEADLINE, async {
            if self.reader.is_some() {
                join(&mut self.reader).await;
            }
            if let Some(errors) = &mut self.errors {
                errors.await.ok();
            }
        });
        if drained.await.is_none() {
            tracing::warn!("output stream of an exited runtime is still open in another process");
            if let Some(reader) = &self.reader {
                reader.abort();
            }
            if let Some(errors) = &self.errors {
                errors.abort();
            }
        }
    }
}

/// Waits for a task once; never returns after that.
async fn join(task: &mut Option<JoinHandle<ReadEnd>>) -> ReadEnd {
    match task {
        Some(running) => {
            let end = running.await.unwrap_or(ReadEnd::Closed);
            *task = None;
            end
        }
        None => std::future::pending().await,
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
