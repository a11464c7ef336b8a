//! Client connections: accepting, serving HTTP, closing.
//!
//! Owns each client's socket; request handling is in `front`. A connection is
//! one task, and everything that serves it runs inside that task. When the
//! client disconnects or the gateway stops, the task is dropped, which cancels
//! all work for that client; no further byte is written.

use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::front::{self, Front};

/// Connections open at once. A runtime keeps a handful open, so this serves
/// about a thousand runtimes; above it new connections wait in the kernel's
/// accept queue until one closes.
const MAX_CONNECTIONS: usize = 4096;

/// Pause after a failed accept. The usual cause is that the process is out of
/// file descriptors, and an immediate retry would only waste CPU.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Largest buffer of a connection in each direction, also the longest request
/// head. Large enough that a body of megabytes arrives in few reads, small
/// enough that a thousand open streams are cheap. While the write buffer is
/// full the response stream is not polled.
const BUFFER: usize = 32 * 1024;

/// Accepts connections until the gateway stops.
pub(crate) async fn accept(
    listener: TcpListener,
    front: Arc<Front>,
    gateway: CancellationToken,
    tasks: TaskTracker,
) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            biased;
            () = gateway.cancelled() => return,
            accepted = next(&listener, &permits) => accepted,
        };
        let (socket, permit) = accepted;
        let (front, gateway) = (Arc::clone(&front), gateway.clone());
        tasks.spawn(async move {
            tokio::select! {
                biased;
                () = gateway.cancelled() => {}
                () = serve(socket, front) => {}
            }
            drop(permit);
        });
    }
}

async fn next(listener: &TcpListener, permits: &Arc<Semaphore>) -> (TcpStream, Option<OwnedSemaphorePermit>) {
    // The semaphore is never closed; if it were, accepting would continue without a limit.
    let permit = Arc::clone(permits).acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok((socket, _)) => return (socket, permit),
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve(socket: TcpStream, front: Arc<Front>) {
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "could not disable Nagle's algorithm on a client connection");
    }
    let service = service_fn(move |request| front::serve(Arc::clone(&front), request));
    // Events are small, so copying them into one buffer is cheaper than a
    // vectored write.
    let connection = http1::Builder::new()
        .max_buf_size(BUFFER)
        .writev(false)
        .serve_connection(TokioIo::new(socket), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "client connection closed with an error");
    }
}
