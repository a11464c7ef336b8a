//! Options of a session.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::requests::{RefuseAll, RequestHandler};
use crate::clock::{Clock, SystemClock};
use crate::options::LaunchOptions;
use crate::transport::Transport;

/// Options of a session.
#[derive(Clone)]
pub struct SessionOptions {
    /// Launch options of its runtimes.
    pub launch: LaunchOptions,
    /// Where its runtimes run.
    pub transport: Transport,
    /// Answers requests from the runtime.
    pub handler: Arc<dyn RequestHandler>,
    /// Default timeout of a turn, excluding the time in the queue; `None` for no limit.
    pub send_timeout: Option<Duration>,
    /// Whether to send SIGINT to a runtime that ignores an interrupt, before closing its stdin.
    pub sigint: bool,
    /// Source of wall-clock time.
    pub clock: Arc<dyn Clock>,
}

impl SessionOptions {
    /// A local session without timeout that rejects every request from the runtime.
    pub fn new(launch: LaunchOptions) -> Self {
        Self {
            launch,
            transport: Transport::LocalProcess,
            handler: Arc::new(RefuseAll),
            send_timeout: None,
            sigint: false,
            clock: Arc::new(SystemClock),
        }
    }

    /// Sets the request handler.
    #[must_use]
    pub fn with_handler(mut self, handler: impl RequestHandler) -> Self {
        self.handler = Arc::new(handler);
        self
    }
}

impl fmt::Debug for SessionOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SessionOptions")
            .field("launch", &self.launch)
            .field("transport", &self.transport)
            .field("send_timeout", &self.send_timeout)
            .field("sigint", &self.sigint)
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}
