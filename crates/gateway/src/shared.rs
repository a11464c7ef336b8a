//! One gateway shared by several users.
//!
//! Counts the users by reference: the first starts the gateway and the last
//! one to drop its handle stops it. Port and nonce stay the same while any
//! handle exists. After a stop the next user gets a new port and a new nonce.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use crate::server::{Gateway, GatewayConfig, GatewayError, GatewayHandle, GatewayLimits, SHUTDOWN_TIME};
use crate::upstream::Upstream;

/// A gateway that runs while at least one handle exists.
#[derive(Debug)]
pub struct SharedGateway {
    listen: SocketAddr,
    upstream: Arc<dyn Upstream>,
    limits: GatewayLimits,
    state: Mutex<SharedState>,
    /// Serialises starts; closed by [`Self::dispose`].
    starting: Semaphore,
}

#[derive(Debug, Default)]
struct SharedState {
    running: Weak<GatewayHandle>,
    /// The tasks of the previous gateway, which may still be shutting down.
    last: Option<TaskTracker>,
}

impl SharedGateway {
    /// Stores the configuration; the first [`Self::acquire`] starts the gateway.
    pub fn new(config: GatewayConfig, limits: GatewayLimits) -> Self {
        let GatewayConfig { listen, upstream } = config;
        Self { listen, upstream, limits, state: Mutex::default(), starting: Semaphore::new(1) }
    }

    /// Returns a handle to the gateway and starts it if it is not running. The
    /// gateway stops when the last handle is dropped.
    pub async fn acquire(&self) -> Result<Arc<GatewayHandle>, GatewayError> {
        let permit = self.starting.acquire().await.map_err(|_| GatewayError::Ended)?;
        let last = {
            let mut state = self.lock();
            if let Some(running) = state.running.upgrade() {
                return Ok(running);
            }
            state.last.take()
        };
        if let Some(last) = last {
            // A fixed port is free again only after the old listener closed.
            timeout(SHUTDOWN_TIME, last.wait()).await.ok();
        }
        let config = GatewayConfig { listen: self.listen, upstream: Arc::clone(&self.upstream) };
        let handle = Arc::new(Gateway::start_with(config, self.limits).await?);
        if self.starting.is_closed() {
            return Err(GatewayError::Ended);
        }
        let mut state = self.lock();
        state.running = Arc::downgrade(&handle);
        state.last = Some(handle.ended());
        drop(state);
        drop(permit);
        Ok(handle)
    }

    /// Stops the gateway permanently, even if handles exist: aborts running
    /// requests and fails pending and later calls of [`Self::acquire`].
    pub async fn dispose(&self) {
        self.starting.close();
        let running = self.lock().running.upgrade();
        if let Some(running) = running {
            running.shutdown().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, SharedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
