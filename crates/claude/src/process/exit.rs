//! How a runtime ended, in a form that people can read.
//!
//! Owns `Exit`; deciding why something ended is the owner task's work.

use std::fmt;

use nix::sys::signal::Signal;

use crate::warden::RuntimeStatus;

/// How a runtime ended. Displays as the end of a sentence that begins with "the runtime".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// The exit code, if it ended by itself.
    pub code: Option<i32>,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
    /// The last of what it wrote to stderr.
    pub stderr_tail: String,
    /// Why it ended.
    pub reason: ExitReason,
}

/// Why a runtime ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitReason {
    /// Nobody here asked for it.
    OnItsOwn,
    /// It was stopped through its session.
    Stopped,
    /// The token that it was started with was cancelled.
    Cancelled,
    /// Nobody held its session any more.
    Dropped,
    /// It wrote a line that is longer than any that is taken.
    LineTooLong {
        /// The longest line that is taken, in bytes.
        limit: usize,
    },
    /// It wrote more than its session's owner took, up to the bound on what is kept.
    InboxFull,
    /// It closed its output and lived on, so that nothing could be heard of it any more.
    OutputClosed,
    /// The warden that watched over it was ended from outside.
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
                Ok(name) => write!(formatter, "was ended by signal {signal} ({name})")?,
                Err(_) => write!(formatter, "was ended by signal {signal}")?,
            },
            (None, None) => formatter.write_str("ended in an unknown way")?,
        }
        match self.reason {
            ExitReason::OnItsOwn => Ok(()),
            ExitReason::Stopped => formatter.write_str(" after it was stopped"),
            ExitReason::Cancelled => formatter.write_str(" after its start was cancelled"),
            ExitReason::Dropped => formatter.write_str(" because nobody used it any more"),
            ExitReason::LineTooLong { limit } => {
                write!(formatter, " because a line of its output was longer than {} MiB", limit >> 20)
            }
            ExitReason::InboxFull => formatter.write_str(" because its output was not read any more"),
            ExitReason::OutputClosed => formatter.write_str(" because it had closed its output"),
            ExitReason::WardenLost => formatter.write_str(", because the process watching over it was ended"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_reads_as_the_end_of_a_sentence() {
        let exit = |status, reason| Exit::new(status, String::new(), reason).to_string();
        assert_eq!(exit(RuntimeStatus::Code(3), ExitReason::OnItsOwn), "exited with code 3");
        assert_eq!(exit(RuntimeStatus::Signal(9), ExitReason::OnItsOwn), "was ended by signal 9 (SIGKILL)");
        assert_eq!(
            exit(RuntimeStatus::Signal(15), ExitReason::LineTooLong { limit: 64 << 20 }),
            "was ended by signal 15 (SIGTERM) because a line of its output was longer than 64 MiB"
        );
    }
}
