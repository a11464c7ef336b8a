//! Signals: the first asks for an orderly end, the second does not wait for it.

use anyhow::{Context as _, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that end a command.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Starts to listen; from here on the signals do not end the process by themselves.
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
