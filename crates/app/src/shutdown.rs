//! Signals: the first requests a graceful shutdown, the second exits immediately.

use anyhow::{Context as _, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that stop a command.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Installs the handlers. From then on the signals no longer kill the process.
    pub(crate) fn listen() -> Result<Self> {
        let context = "cannot listen for signals";
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).context(context)?,
            terminate: signal(SignalKind::terminate()).context(context)?,
        })
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
