//! How a command fails: the exit code, and the words on stderr.

use std::io::Write as _;
use std::process::ExitCode;

/// The exit code of a wrong use or configuration.
pub(crate) const USAGE: u8 = 2;

/// The exit code after a signal.
const INTERRUPTED: u8 = 130;

/// The exit code of work that failed.
const FAILED: u8 = 1;

/// Why a command did not do what it was asked for.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The work failed.
    Work(anyhow::Error),
    /// The command line or the configuration cannot be right.
    Usage(anyhow::Error),
    /// The user did not want to wait.
    Interrupted,
}

impl Failure {
    /// The work failed.
    pub(crate) fn work(error: impl Into<anyhow::Error>) -> Self {
        Self::Work(error.into())
    }

    /// The command line or the configuration cannot be right.
    pub(crate) fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self::Usage(error.into())
    }

    /// Tells a person what happened, and the caller by the exit code.
    pub(crate) fn report(self) -> ExitCode {
        let (code, error) = match self {
            Self::Work(error) => (FAILED, error),
            Self::Usage(error) => (USAGE, error),
            Self::Interrupted => return ExitCode::from(INTERRUPTED),
        };
        // If stderr is gone there is nobody to tell.
        writeln!(std::io::stderr(), "error: {error:#}").ok();
        ExitCode::from(code)
    }
}
