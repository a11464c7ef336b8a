//! One gateway for all who need one.
//!
//! Owns the count of its users: the first starts it, the last ends it. As
//! long as anyone has it, port and nonce stay the same. After the end the
//! next user gets a new port and a new nonce.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use crate::server::{Gateway, GatewayConfig, GatewayError, GatewayHandle, GatewayLimits, SHUTDOWN_TIME};
use crate::upstream::Upstream;

/// A gateway that runs while somebody uses it.
#[derive(Debug)]
pub struct SharedGateway {
    listen: SocketAddr,
    upstream: Arc<dyn Upstream>,
    limits: GatewayLimits,
    state: Mutex<State>,
    /// One at a time may start it; closed when it was disposed of.
    starting: Semaphore,
}

#[derive(Debug, Default)]
struct State {
    running: Weak<GatewayHandle>,
    /// Of the last gateway, which may still be ending.
    last: Option<TaskTracker>,
}

impl SharedGateway {
    /// Describes the gateway; it starts with its first user.
    pub fn new(config: GatewayConfig, limits: GatewayLimits) -> Self {
        let GatewayConfig { listen, upstream } = config;
        Self { listen, upstream, limits, state: Mutex::default(), starting: Semaphore::new(1) }
    }

    /// Gives out the gateway, and starts it if nobody has it. It ends when
    /// the last one that was given out is dropped.
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
            // A port of the caller's choice is only free again after this.
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

    /// Ends the gateway for good, whoever still has it: what runs is aborted,
    /// and who waits for it is refused.
    pub async fn dispose(&self) {
        self.starting.close();
        let running = self.lock().running.upgrade();
        if let Some(running) = running {
            running.shutdown().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
