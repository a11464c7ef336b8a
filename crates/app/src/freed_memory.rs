//! Returns freed memory to the system.
//!
//! The allocator keeps freed memory for later use. After clients that did not read are
//! gone, that can be hundreds of megabytes.

use std::convert::Infallible;
use std::time::Duration;

use innkeeper_core::Host;

/// How long the last batches of closed connections may take to be dropped.
const SETTLE: Duration = Duration::from_secs(3);

/// Returns memory each time the outboxes have released much of it.
pub(crate) async fn return_to_system(host: &Host) -> Infallible {
    loop {
        host.store().outboxes_drained().await;
        tokio::time::sleep(SETTLE).await;
        if let Err(error) = tokio::task::spawn_blocking(trim).await {
            tracing::error!(%error, "returning memory to the system panicked");
        }
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn trim() {
    #[expect(unsafe_code, reason = "no safe wrapper exists")]
    // SAFETY: the function has no preconditions and is thread-safe.
    let trimmed = unsafe { nix::libc::malloc_trim(0) };
    tracing::debug!(trimmed, "returned freed memory to the system");
}

/// Other allocators return memory by themselves.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn trim() {}
