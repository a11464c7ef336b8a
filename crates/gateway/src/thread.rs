//! A gateway on a thread of its own.
//!
//! Owns the thread and the runtime on it. All that the gateway does happens
//! there, one thing after the other: passing on an event wakes no other
//! thread, and nothing else in the process holds an event up. The thread ends
//! soon after the gateway was told to.

use std::thread;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::server::{Gateway, GatewayConfig, GatewayError, GatewayHandle, GatewayLimits, SHUTDOWN_TIME};

/// What the thread is called where threads are listed, at most 15 bytes.
const THREAD_NAME: &str = "gateway";

type Started = Result<GatewayHandle, GatewayError>;

impl Gateway {
    /// Binds the port and serves it on a new thread.
    pub async fn start_on_thread(config: GatewayConfig, limits: GatewayLimits) -> Started {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(GatewayError::Thread)?;
        let (tell, started) = oneshot::channel();
        thread::Builder::new()
            .name(THREAD_NAME.to_owned())
            .spawn(move || run(runtime, config, limits, tell))
            .map_err(GatewayError::Thread)?;
        started.await.unwrap_or(Err(GatewayError::Ended))
    }
}

fn run(runtime: Runtime, config: GatewayConfig, limits: GatewayLimits, tell: oneshot::Sender<Started>) {
    runtime.block_on(async move {
        let started = Gateway::start_with(config, limits).await;
        let ending = started.as_ref().ok().map(|handle| (handle.told_to_end(), handle.ended()));
        // If nobody waits for it any more, the handle is dropped, which ends the gateway.
        tell.send(started).ok();
        if let Some((told, tasks)) = ending {
            told.cancelled().await;
            // What does not end by itself ends with its runtime.
            timeout(SHUTDOWN_TIME, tasks.wait()).await.ok();
        }
    });
    // A name that is being looked up must not hold up the end.
    runtime.shutdown_background();
}
