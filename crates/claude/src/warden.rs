//! The warden: the process between the host and a runtime that terminates all processes of the runtime.
//!
//! Owns the runtime as its child and, as a child subreaper, adopts all orphaned descendants, including
//! those in sessions of their own. Passes the standard streams through and keeps no copy. Invariant: when
//! the host exits, for any reason, no descendant survives. Single-threaded, without an async runtime.

mod leftovers;
mod report;
mod tree;

use std::ffi::{CString, OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawnp};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, dup2_stderr, dup2_stdin, dup2_stdout, setsid};

pub(crate) use report::{Order, Report, RuntimeStatus};

use crate::inherited_fd;
use crate::process_mark::ProcessMark;

/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_millis(500);

/// Pause between two rounds of SIGKILL, during which orphans of killed processes become children of the
/// warden.
const KILL_ROUND: Duration = Duration::from_millis(10);

/// Time after which remaining processes cannot be killed (uninterruptible sleep, processes of another
/// user). A warden that kept waiting would be a leftover itself.
const GIVE_UP: Duration = Duration::from_secs(5);

/// Polling interval for children on systems without signal descriptors.
#[cfg(not(target_os = "linux"))]
const TICK: Duration = Duration::from_millis(50);

/// Runs the warden. `arguments` are `--control-fd N [--remove FILE]… -- PROGRAM [ARGUMENT…]`, without the
/// program's own name. The caller must not have started a thread or an async runtime.
pub fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    match WardenArguments::parse(arguments) {
        Ok(arguments) => supervise(arguments),
        Err(message) => {
            // A failure to write to stderr cannot be reported.
            writeln!(io::stderr(), "warden: {message}").ok();
            ExitCode::from(2)
        }
    }
}

/// Arguments from the host.
struct WardenArguments {
    control: RawFd,
    remove: Vec<PathBuf>,
    program: OsString,
    arguments: Vec<OsString>,
}

impl WardenArguments {
    fn parse(mut arguments: impl Iterator<Item = OsString>) -> Result<Self, &'static str> {
        let mut control = None;
        let mut remove = Vec::new();
        loop {
            let argument = arguments.next().ok_or("missing program after --")?;
            match argument.to_str() {
                Some("--control-fd") => {
                    let number = arguments.next().and_then(|value| value.to_str()?.parse().ok());
                    control = Some(number.ok_or("--control-fd requires the number of an open descriptor")?);
                }
                Some("--remove") => {
                    remove.push(arguments.next().map(PathBuf::from).ok_or("--remove requires a file")?);
                }
                Some("--") => break,
                _ => return Err("unknown argument; the warden is started by the host, not manually"),
            }
        }
        Ok(Self {
            control: control.ok_or("missing --control-fd")?,
            remove,
            program: arguments.next().ok_or("missing program after --")?,
            arguments: arguments.collect(),
        })
    }
}

fn supervise(arguments: WardenArguments) -> ExitCode {
    let Ok(control) = inherited_fd::take(arguments.control) else {
        writeln!(io::stderr(), "warden: the control descriptor is not open").ok();
        return ExitCode::from(2);
    };
    let mut control = UnixStream::from(control);
    // A new session, so that the terminal's signals do not reach the runtime and it cannot prompt there.
    // Fails only for a process group leader, which the terminal's signals do not reach anyway.
    setsid().ok();
    tree::resume_when_host_exits();
    if let Some(mark) = ProcessMark::of_environment() {
        // The environment variable remains, with which most leftover processes are found.
        mark.apply().ok();
    }
    let prepared = tree::adopt_orphans().and_then(|()| Wakeups::new());
    let wakeups = match prepared {
        Ok(wakeups) => wakeups,
        Err(error) => return refuse(&mut control, &io::Error::from(error)),
    };
    let runtime = match start(&arguments) {
        Ok(runtime) => runtime,
        Err(error) => return refuse(&mut control, &error),
    };
    let mut warden = Warden { control, wakeups, runtime, status: None, phase: WardenPhase::Watching };
    // If the host is already gone, the loop sees the end of the control stream.
    warden.control.write_all(Report::Started(runtime.as_raw()).to_line().as_bytes()).ok();
    warden.control.set_nonblocking(true).ok();
    warden.run_until_nothing_lives();
    leftovers::remove_socket(runtime);
    for file in &arguments.remove {
        // The host may have removed it already.
        std::fs::remove_file(file).ok();
    }
    let status = warden.status.unwrap_or(RuntimeStatus::Lost);
    warden.control.set_nonblocking(false).ok();
    warden.control.write_all(Report::Exited(status).to_line().as_bytes()).ok();
    ExitCode::SUCCESS
}

fn refuse(control: &mut UnixStream, error: &io::Error) -> ExitCode {
    let number = error.raw_os_error().unwrap_or(Errno::EIO as i32);
    // If the host is gone, the report is lost, but no process was started.
    control.write_all(Report::Failed(number).to_line().as_bytes()).ok();
    ExitCode::FAILURE
}

/// Starts the runtime on the warden's standard streams and then replaces them, so that the host sees the
/// end of a stream as soon as the runtime closes it.
fn start(arguments: &WardenArguments) -> io::Result<Pid> {
    let nothing = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    let mut words = vec![c_string(&arguments.program)?];
    for argument in &arguments.arguments {
        words.push(c_string(argument)?);
    }
    let mut environment = Vec::new();
    for (mut entry, value) in std::env::vars_os() {
        entry.push("=");
        entry.push(value);
        environment.push(c_string(&entry)?);
    }
    let program = words.first().ok_or(Errno::EINVAL)?;
    let runtime =
        posix_spawnp(program, &PosixSpawnFileActions::init()?, &attributes()?, &words, &environment)?;
    // A failure only delays the end of a stream until the warden exits.
    dup2_stdin(&nothing).ok();
    dup2_stdout(&nothing).ok();
    dup2_stderr(&nothing).ok();
    Ok(runtime)
}

/// A new process group and default signal handling. The standard library would pass on the signals that
/// the warden blocks.
fn attributes() -> Result<PosixSpawnAttr, Errno> {
    let mut attributes = PosixSpawnAttr::init()?;
    attributes.set_flags(
        PosixSpawnFlags::POSIX_SPAWN_SETPGROUP
            | PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK
            | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF,
    )?;
    attributes.set_pgroup(Pid::from_raw(0))?;
    attributes.set_sigmask(&SigSet::empty())?;
    attributes.set_sigdefault(&SigSet::from(Signal::SIGPIPE))?;
    Ok(attributes)
}

fn c_string(text: &OsStr) -> Result<CString, Errno> {
    CString::new(text.as_bytes()).map_err(|_| Errno::EINVAL)
}

/// Progress of terminating the tree.
#[derive(Clone, Copy)]
enum WardenPhase {
    Watching,
    Terminating { kill_at: Instant },
    Killing { give_up_at: Instant },
}

struct Warden {
    control: UnixStream,
    wakeups: Wakeups,
    runtime: Pid,
    status: Option<RuntimeStatus>,
    phase: WardenPhase,
}

impl Warden {
    fn run_until_nothing_lives(&mut self) {
        while self.reap() {
            let now = now();
            match self.phase {
                // The remaining processes of the runtime are terminated with it.
                WardenPhase::Watching if self.status.is_some() => self.terminate(now),
                WardenPhase::Terminating { kill_at } if now >= kill_at => self.kill(now),
                WardenPhase::Killing { give_up_at } if now >= give_up_at => return,
                WardenPhase::Killing { .. } => tree::signal(self.runtime, Signal::SIGKILL),
                WardenPhase::Watching | WardenPhase::Terminating { .. } => {}
            }
            self.wait(now);
        }
    }

    /// Reaps all exited children; returns false if no child is left.
    fn reap(&mut self) -> bool {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) if pid == self.runtime => {
                    self.status = Some(RuntimeStatus::Code(code));
                }
                Ok(WaitStatus::Signaled(pid, signal, _)) if pid == self.runtime => {
                    self.status = Some(RuntimeStatus::Signal(signal as i32));
                }
                Ok(WaitStatus::StillAlive) => return true,
                Ok(_) | Err(Errno::EINTR) => {}
                Err(_) => return false,
            }
        }
    }

    fn terminate(&mut self, now: Instant) {
        tree::signal(self.runtime, Signal::SIGTERM);
        self.phase = WardenPhase::Terminating { kill_at: now + GRACE };
    }

    fn kill(&mut self, now: Instant) {
        tree::signal(self.runtime, Signal::SIGKILL);
        self.phase = WardenPhase::Killing { give_up_at: now + GIVE_UP };
    }

    /// Waits for the exit of a child, an order, the end of the control stream, or the deadline of the
    /// phase.
    fn wait(&mut self, now: Instant) {
        let timeout = match self.phase {
            WardenPhase::Watching => None,
            WardenPhase::Terminating { kill_at } => Some(kill_at.saturating_duration_since(now)),
            WardenPhase::Killing { .. } => Some(KILL_ROUND),
        };
        let watching = matches!(self.phase, WardenPhase::Watching);
        // After the host is gone its stream is always readable and provides no more information.
        let control = (!matches!(self.phase, WardenPhase::Killing { .. })).then(|| self.control.as_fd());
        let Wakeup { control: said_something, told_to_stop } = self.wakeups.wait(control, timeout);
        if told_to_stop && watching {
            self.terminate(now);
        }
        if said_something {
            self.take_orders(now);
        }
    }

    fn take_orders(&mut self, now: Instant) {
        let mut orders = [0_u8; 16];
        match self.control.read(&mut orders) {
            Ok(0) => self.host_gone(now),
            Ok(count) => {
                for order in orders.iter().take(count) {
                    match Order::from_byte(*order) {
                        Some(Order::Interrupt) => tree::signal(self.runtime, Signal::SIGINT),
                        Some(Order::Terminate) => tree::signal(self.runtime, Signal::SIGTERM),
                        Some(Order::Kill) => self.kill(now),
                        None => {}
                    }
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => self.host_gone(now),
        }
    }

    fn host_gone(&mut self, now: Instant) {
        match self.phase {
            WardenPhase::Watching => self.terminate(now),
            // The stream is always readable from now on; this pause prevents a busy loop.
            WardenPhase::Terminating { .. } => {
                self.wakeups.wait(None, Some(KILL_ROUND));
            }
            WardenPhase::Killing { .. } => {}
        }
    }
}

/// Why the warden woke up.
struct Wakeup {
    control: bool,
    told_to_stop: bool,
}

/// Wakes the warden, in addition to the control stream.
struct Wakeups {
    #[cfg(target_os = "linux")]
    signals: nix::sys::signalfd::SignalFd,
}

impl Wakeups {
    #[cfg(target_os = "linux")]
    fn new() -> Result<Self, Errno> {
        use nix::sys::signalfd::{SfdFlags, SignalFd};
        let mut signals = SigSet::empty();
        for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
            signals.add(signal);
        }
        signals.thread_block()?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Self { signals: SignalFd::with_flags(&signals, flags)? })
    }

    #[cfg(not(target_os = "linux"))]
    fn new() -> Result<Self, Errno> {
        Ok(Self {})
    }

    #[cfg(target_os = "linux")]
    fn wait(&self, control: Option<std::os::fd::BorrowedFd<'_>>, timeout: Option<Duration>) -> Wakeup {
        let mut sources = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        sources.extend(control.map(|control| PollFd::new(control, PollFlags::POLLIN)));
        let readable = poll_sources(&mut sources, timeout);
        let mut told_to_stop = false;
        while let Ok(Some(signal)) = self.signals.read_signal() {
            told_to_stop |= signal.ssi_signo != Signal::SIGCHLD as u32;
        }
        Wakeup { control: readable.get(1).copied().unwrap_or(false), told_to_stop }
    }

    #[cfg(not(target_os = "linux"))]
    fn wait(&self, control: Option<std::os::fd::BorrowedFd<'_>>, timeout: Option<Duration>) -> Wakeup {
        let mut sources = Vec::new();
        sources.extend(control.map(|control| PollFd::new(control, PollFlags::POLLIN)));
        let timeout = timeout.map_or(TICK, |timeout| timeout.min(TICK));
        let readable = poll_sources(&mut sources, Some(timeout));
        Wakeup { control: readable.first().copied().unwrap_or(false), told_to_stop: false }
    }
}

fn poll_sources(sources: &mut [PollFd<'_>], timeout: Option<Duration>) -> Vec<bool> {
    let timeout = match timeout {
        None => PollTimeout::NONE,
        // Rounded up to avoid a busy loop during the last fraction of a millisecond.
        Some(timeout) => {
            PollTimeout::try_from(timeout + Duration::from_micros(999)).unwrap_or(PollTimeout::MAX)
        }
    };
    match poll(sources, timeout) {
        Ok(_) => sources.iter().map(|source| source.any().unwrap_or(false)).collect(),
        // An interrupted wait counts as a wakeup.
        Err(_) => Vec::new(),
    }
}

#[expect(clippy::disallowed_methods, reason = "the warden has no async runtime whose clock could be paused")]
fn now() -> Instant {
    Instant::now()
}
