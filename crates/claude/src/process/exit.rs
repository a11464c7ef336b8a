//! How a runtime exited, with a readable description.
//!
//! Owns `Exit`; the owner task determines the reason.

use std::fmt;

use nix::sys::signal::Signal;

use crate::warden::RuntimeStatus;

/// How a runtime exited. Displays as a predicate for the subject "the runtime".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// Exit code, if it exited normally.
    pub code: Option<i32>,
    /// Signal that killed it, if any.
    pub signal: Option<i32>,
    /// End of its stderr output.
    pub stderr_tail: String,
    /// Why it exited.
    pub reason: ExitReason,
}

/// Why a runtime exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitReason {
    /// Not requested by the host.
    OnItsOwn,
    /// Stopped through its session.
    Stopped,
    /// Its cancellation token was cancelled.
    Cancelled,
    /// Its session was dropped.
    Dropped,
    /// It wrote a line above the limit.
    LineTooLong {
        /// The limit in bytes.
        limit: usize,
    },
    /// Its unread output exceeded the capacity of the inbox.
    InboxFull,
    /// It closed its output but kept running.
    OutputClosed,
    /// Its warden was killed.
    WardenLost,
}

impl Exit {
    pub(crate) fn new(status: RuntimeStatus, stderr_tail: String, reason: ExitReason) -> Self {
        let (code, signal) = match status {
            RuntimeStatus::Code(code) => (Some(code), None),
            RuntimeStatus::Signal(signal) => (None, Some(signal)),
            RuntimeStatus::Lost => (None, None),
        };
        Self { code, signal, stderr_tail, reason }
    }

    pub(crate) fn unknown() -> Self {
        Self::new(RuntimeStatus::Lost, String::new(), ExitReason::Dropped)
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code, self.signal) {
            (Some(code), _) => write!(formatter, "exited with code {code}")?,
            (None, Some(signal)) => match Signal::try_from(signal) {
                Ok(name) => write!(formatter, "was killed by signal {signal} ({name})")?,
                Err(_) => write!(formatter, "was killed by signal {signal}")?,
            },
            (None, None) => formatter.write_str("exited with unknown status")?,
        }
        match self.reason {
            ExitReason::OnItsOwn => Ok(()),
            ExitReason::Stopped => formatter.write_str(" after it was stopped"),
            ExitReason::Cancelled => formatter.write_str(" after it was cancelled"),
            ExitReason::Dropped => formatter.write_str(" because its session was dropped"),
            ExitReason::LineTooLong { limit } => {
                write!(formatter, " because a line of its output exceeded {} MiB", limit >> 20)
            }
            ExitReason::InboxFull => formatter.write_str(" because its output was not read"),
            ExitReason::OutputClosed => formatter.write_str(" because it had closed its output"),
            ExitReason::WardenLost => formatter.write_str(" because its warden process was killed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_displays_status_and_reason() {
        let exit = |status, reason| Exit::new(status, String::new(), reason).to_string();
        assert_eq!(exit(RuntimeStatus::Code(3), ExitReason::OnItsOwn), "exited with code 3");
        assert_eq!(exit(RuntimeStatus::Signal(9), ExitReason::OnItsOwn), "was killed by signal 9 (SIGKILL)");
        assert_eq!(
            exit(RuntimeStatus::Signal(15), ExitReason::LineTooLong { limit: 64 << 20 }),
            "was killed by signal 15 (SIGTERM) because a line of its output exceeded 64 MiB"
        );
    }
}
