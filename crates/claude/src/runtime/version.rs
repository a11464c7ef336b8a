//! The version of a runtime's program, to explain a failed start.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::options::Program;

/// Time limit for a program to print its version.
const VERSION_DEADLINE: Duration = Duration::from_secs(5);

/// Maximum length of the line with the version in bytes.
const MAX_LINE: u64 = 4096;

/// A version of the runtime, for example 2.1.325.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuntimeVersion {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
    /// Third number.
    pub patch: u32,
}

impl RuntimeVersion {
    /// The oldest version that this library supports.
    pub const OLDEST_SUPPORTED: Self = Self { major: 2, minor: 1, patch: 112 };

    /// Asks a program for its version. Takes as long as a start of the program, so it is for failed starts
    /// only. `None` if the program does not print a version within 5 s. Ends the program and its children.
    pub async fn of(program: &Program, environment: &BTreeMap<OsString, OsString>) -> Option<Self> {
        #[expect(clippy::disallowed_methods, reason = "waited for here, and killed when dropped")]
        let mut command = Command::new(program.executable());
        if let Program::Node { script, .. } = program {
            command.arg(script);
        }
        command
            .arg("--version")
            .env_clear()
            .envs(environment)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .kill_on_drop(true);
        let mut child = command.spawn().ok()?;
        let stdout = child.stdout.take()?;
        let _group = KilledGroup::of(&child);
        let mut line = String::new();
        let mut output = BufReader::new(stdout.take(MAX_LINE));
        tokio::time::timeout(VERSION_DEADLINE, output.read_line(&mut line)).await.ok()?.ok()?;
        Self::parse(&line)
    }

    /// Parses the first word of a text, such as `2.1.325 (Claude Code)`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_whitespace().next()?.split('.').map(|number| number.parse().ok());
        let mut next = || numbers.next().flatten();
        Some(Self { major: next()?, minor: next()?, patch: next()? })
    }
}

/// Kills the process group of a child when dropped. Must be dropped before the child is reaped.
struct KilledGroup(Option<Pid>);

impl KilledGroup {
    fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw))
    }
}

impl Drop for KilledGroup {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // Fails if all processes have exited.
            killpg(group, Signal::SIGKILL).ok();
        }
    }
}

impl fmt::Display for RuntimeVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[tokio::test]
    async fn first_line_of_a_program_that_prints_without_end_is_read_and_its_children_are_ended() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("claude");
        let script =
            "#!/bin/sh\nsleep 60 &\necho $! > \"$0.pid\"\necho 2.1.5 x\nwhile :; do echo more; done\n";
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let environment = BTreeMap::from([("PATH".into(), std::env::var_os("PATH").unwrap())]);
        let version = RuntimeVersion::of(&Program::Native(program.clone()), &environment).await;
        assert_eq!(version, RuntimeVersion::parse("2.1.5"));
        let child: i32 =
            std::fs::read_to_string(folder.path().join("claude.pid")).unwrap().trim().parse().unwrap();
        let stat = format!("/proc/{child}/stat");
        let is_gone = || std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z"));
        for _ in 0..500 {
            if is_gone() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the child is still running");
    }

    #[test]
    fn version_is_parsed_and_compared() {
        let version = RuntimeVersion::parse("2.1.325 (Claude Code)\n").unwrap();
        assert_eq!(version.to_string(), "2.1.325");
        assert!(version > RuntimeVersion::OLDEST_SUPPORTED);
        assert!(RuntimeVersion::parse("1.0.3").unwrap() < RuntimeVersion::OLDEST_SUPPORTED);
        for text in ["", "v2", "2.1", "hello there", "2.x.1"] {
            assert_eq!(RuntimeVersion::parse(text), None, "{text}");
        }
    }
}
