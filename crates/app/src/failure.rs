//! Failures of commands: the exit code and the message on stderr.

use std::io::Write as _;
use std::process::ExitCode;

/// Exit code for invalid arguments or configuration.
pub(crate) const USAGE: u8 = 2;

/// Exit code after a signal.
const INTERRUPTED: u8 = 130;

/// Exit code for all other failures.
const FAILED: u8 = 1;

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum CommandFailure {
    /// The operation failed.
    Work(anyhow::Error),
    /// The arguments or the configuration are invalid.
    Usage(anyhow::Error),
    /// The user interrupted the command.
    Interrupted,
}

impl CommandFailure {
    /// The operation failed.
    pub(crate) fn work(error: impl Into<anyhow::Error>) -> Self {
        Self::Work(error.into())
    }

    /// The arguments or the configuration are invalid.
    pub(crate) fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self::Usage(error.into())
    }

    /// Prints the error and returns the exit code.
    pub(crate) fn report(self) -> ExitCode {
        let (code, error) = match self {
            Self::Work(error) => (FAILED, error),
            Self::Usage(error) => (USAGE, error),
            Self::Interrupted => return ExitCode::from(INTERRUPTED),
        };
        // Nothing can be reported if stderr is closed.
        writeln!(std::io::stderr(), "error: {error:#}").ok();
        ExitCode::from(code)
    }
}
