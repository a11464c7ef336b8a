//! Runs a gateway on its own thread.
//!
//! Owns the thread and its single-threaded runtime. The whole gateway runs
//! there: forwarding an event wakes no other thread, and other work in the
//! process does not delay events. The thread ends shortly after the gateway
//! was told to shut down.

use std::thread;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::server::{Gateway, GatewayConfig, GatewayError, GatewayHandle, GatewayLimits, SHUTDOWN_TIME};

/// The name of the thread, at most 15 bytes.
const THREAD_NAME: &str = "gateway";

type StartResult = Result<GatewayHandle, GatewayError>;

impl Gateway {
    /// Binds the port and serves it on a new thread.
    pub async fn start_on_thread(config: GatewayConfig, limits: GatewayLimits) -> StartResult {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(GatewayError::Thread)?;
        let (sender, started) = oneshot::channel();
        thread::Builder::new()
            .name(THREAD_NAME.to_owned())
            .spawn(move || run(runtime, config, limits, sender))
            .map_err(GatewayError::Thread)?;
        started.await.unwrap_or(Err(GatewayError::Ended))
    }
}

fn run(runtime: Runtime, config: GatewayConfig, limits: GatewayLimits, sender: oneshot::Sender<StartResult>) {
    runtime.block_on(async move {
        let started = Gateway::start_with(config, limits).await;
        let ending = started.as_ref().ok().map(|handle| (handle.shutdown_token(), handle.ended()));
        // If the caller was dropped, the handle is dropped here, which stops the gateway.
        sender.send(started).ok();
        if let Some((shutdown, tasks)) = ending {
            shutdown.cancelled().await;
            // Dropping the runtime ends tasks that are still running after this.
            timeout(SHUTDOWN_TIME, tasks.wait()).await.ok();
        }
    });
    // Do not wait for blocking tasks such as DNS lookups.
    runtime.shutdown_background();
}
