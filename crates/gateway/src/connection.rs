//! Client connections: accepting, serving HTTP, closing.
//!
//! Owns each client's socket; request handling is in `front`. A connection is
//! one task, and everything that serves it runs inside that task. When the
//! client disconnects or the gateway stops, the task is dropped, which cancels
//! all work for that client; no further byte is written. A socket without a
//! valid bearer is closed after a timeout, or earlier if there are too many.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connection_slot::ConnectionSlot;
use crate::front::{self, Front};
use crate::server::GatewayLimits;

/// How long a socket may be open without a request with a valid bearer. A
/// runtime sends its first request at once.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

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
    limits: GatewayLimits,
    gateway: CancellationToken,
    tasks: TaskTracker,
) {
    let slots = Arc::new(Semaphore::new(limits.connections));
    let mut unauthenticated = VecDeque::<UnauthenticatedSocket>::new();
    loop {
        let socket = tokio::select! {
            biased;
            () = gateway.cancelled() => return,
            socket = next(&listener) => socket,
        };
        unauthenticated.retain(|socket| !socket.task.is_finished() && !socket.slot.is_taken());
        if unauthenticated.len() >= limits.unauthenticated
            && let Some(oldest) = unauthenticated.pop_front()
        {
            tracing::debug!(
                limit = limits.unauthenticated,
                "too many sockets without a bearer; closing the oldest"
            );
            oldest.task.abort();
        }
        let slot = Arc::new(ConnectionSlot::new(&slots));
        let (front, gateway, served) = (Arc::clone(&front), gateway.clone(), Arc::clone(&slot));
        let task = tasks.spawn(async move {
            tokio::select! {
                biased;
                () = gateway.cancelled() => {}
                () = serve(socket, front, served) => {}
            }
        });
        unauthenticated.push_back(UnauthenticatedSocket { slot, task });
    }
}

/// A socket that had no valid bearer when it was last checked.
struct UnauthenticatedSocket {
    slot: Arc<ConnectionSlot>,
    task: JoinHandle<()>,
}

async fn next(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((socket, _)) => return socket,
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve(socket: TcpStream, front: Arc<Front>, slot: Arc<ConnectionSlot>) {
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "could not disable Nagle's algorithm on a client connection");
    }
    let first = Arc::clone(&slot);
    let service = service_fn(move |request| front::serve(Arc::clone(&front), Arc::clone(&slot), request));
    // Events are small, so copying them into one buffer is cheaper than a
    // vectored write.
    let connection = http1::Builder::new()
        .max_buf_size(BUFFER)
        .writev(false)
        .serve_connection(TokioIo::new(socket), service);
    let mut connection = pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = first.taken() => connection.await,
        () = tokio::time::sleep(FIRST_REQUEST_TIMEOUT) => {
            return tracing::debug!("closing a socket without a valid bearer");
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "client connection closed with an error");
    }
}
