//! What a session is made of beside the launch of its runtimes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::requests::{RefuseAll, RequestHandler};
use crate::clock::{Clock, SystemClock};
use crate::options::LaunchOptions;
use crate::transport::Transport;

/// Everything that a session depends on.
#[derive(Clone)]
pub struct SessionOptions {
    /// How its runtimes are started.
    pub launch: LaunchOptions,
    /// Where its runtimes run.
    pub transport: Transport,
    /// Who answers the runtime's questions.
    pub handler: Arc<dyn RequestHandler>,
    /// How long a turn may take, unless its send says otherwise; without one, for ever. The wait behind other
    /// sends does not count.
    pub send_timeout: Option<Duration>,
    /// Whether a runtime that does not heed an interrupt gets SIGINT before its stdin is closed.
    pub sigint: bool,
    /// Where times come from.
    pub clock: Arc<dyn Clock>,
}

impl SessionOptions {
    /// A session on this machine that refuses every question, with turns of any length.
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

    /// The same with another answerer of questions.
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
