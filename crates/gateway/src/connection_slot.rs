//! The state of a client connection: without a valid bearer, or with a slot.
//!
//! Any local process can open a socket, so sockets without a valid bearer are
//! few and short-lived. The first request with a valid bearer takes one of the
//! slots, which are for runtimes only.

use std::sync::Arc;

use http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SetOnce};

use crate::error::ApiError;

/// The slot of one connection, taken with its first valid bearer.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    free: Arc<Semaphore>,
    taken: SetOnce<OwnedSemaphorePermit>,
}

impl ConnectionSlot {
    pub(crate) fn new(free: &Arc<Semaphore>) -> Self {
        Self { free: Arc::clone(free), taken: SetOnce::new() }
    }

    /// Takes a slot, once per connection. Fails if none is free.
    pub(crate) fn take(&self) -> Result<(), ApiError> {
        if self.is_taken() {
            return Ok(());
        }
        let permit = Arc::clone(&self.free).try_acquire_owned().map_err(|_| {
            ApiError::from_status(StatusCode::SERVICE_UNAVAILABLE, "too many connections; try again later")
        })?;
        // A connection handles one request at a time, so no other request has set it since.
        self.taken.set(permit).ok();
        Ok(())
    }

    /// Whether a request with a valid bearer has arrived.
    pub(crate) fn is_taken(&self) -> bool {
        self.taken.initialized()
    }

    /// Waits for the first request with a valid bearer.
    pub(crate) async fn taken(&self) {
        self.taken.wait().await;
    }
}
