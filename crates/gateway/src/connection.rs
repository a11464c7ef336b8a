//! Client connections: accepting them, serving HTTP on them, ending them.
//!
//! Owns each client's socket, not what is said on it. A connection is one
//! task, and whatever answers on it runs inside that task: when the task is
//! dropped, because the client left or the gateway ends, so is everything
//! that was being done for it, and not another byte is written.

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

/// Connections open at once. A runtime keeps a handful alive, so this serves
/// about a thousand of them; above it new connections wait in the kernel's
/// accept queue until one closes.
const MAX_CONNECTIONS: usize = 4096;

/// Pause after a failed accept, which mostly means that the process is out of
/// file descriptors: trying again at once would only burn a core.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Most bytes that a connection buffers in each direction, also the longest
/// request head. Large enough that a body of megabytes arrives in few reads,
/// small enough that a thousand open streams are cheap. When the write buffer
/// is full the answer's source is not asked for more.
const BUFFER: usize = 32 * 1024;

/// Accepts connections until the gateway ends.
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
    // The semaphore is never closed; without it accepting goes on unbounded.
    let permit = Arc::clone(permits).acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok((socket, _)) => return (socket, permit),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve(socket: TcpStream, front: Arc<Front>) {
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "streamed events of a connection will be delayed");
    }
    let service = service_fn(move |request| front::serve(Arc::clone(&front), request));
    // An event is far smaller than what gathering pieces for one write costs,
    // so the pieces are copied together instead.
    let connection = http1::Builder::new()
        .max_buf_size(BUFFER)
        .writev(false)
        .serve_connection(TokioIo::new(socket), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a client connection ended early");
    }
}
