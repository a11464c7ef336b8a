//! Finds the live processes of a test in `/proc`.
//!
//! They are identified by an environment variable that all of them inherit, so that
//! unrelated processes never match.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// A live process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestProcess {
    /// Process id.
    pub pid: u32,
    /// Parent process id.
    pub parent: u32,
    /// Process group id.
    pub group: u32,
    /// Command line.
    pub arguments: Vec<String>,
}

impl TestProcess {
    /// Whether this is the warden of a runtime.
    pub fn is_warden(&self) -> bool {
        self.arguments.iter().any(|argument| argument == "--control-fd")
    }
}

/// The live processes whose environment has `name=value`.
pub fn with_variable(name: &str, value: &Path) -> Vec<TestProcess> {
    let mut wanted = format!("{name}=").into_bytes();
    wanted.extend_from_slice(value.as_os_str().as_bytes());
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| has_variable(*pid, &wanted))
        .filter_map(|pid| {
            let (parent, group) = parent_and_group(pid)?;
            Some(TestProcess { pid, parent, group, arguments: arguments(pid)? })
        })
        .collect()
}

fn has_variable(pid: u32, wanted: &[u8]) -> bool {
    // Reading fails for processes of other users and for processes that are exiting.
    std::fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|environment| environment.split(|byte| *byte == 0).any(|entry| entry == wanted))
}

fn parent_and_group(pid: u32) -> Option<(u32, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything; the state follows it.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(1);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

fn arguments(pid: u32) -> Option<Vec<String>> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    // A zombie has no command line; it is dead but not yet reaped.
    (!line.is_empty()).then(|| {
        line.split(|byte| *byte == 0)
            .filter(|argument| !argument.is_empty())
            .map(|argument| OsStr::from_bytes(argument).to_string_lossy().into_owned())
            .collect()
    })
}

/// Kills a process that the test started.
pub fn kill(process: u32) -> anyhow::Result<()> {
    crate::host::send_signal(process, nix::sys::signal::Signal::SIGKILL)
}

/// Stops a process that the test started, to simulate a hang.
pub fn stop(process: u32) -> anyhow::Result<()> {
    crate::host::send_signal(process, nix::sys::signal::Signal::SIGSTOP)
}
