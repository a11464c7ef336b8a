//! A client connection that can be ended from outside.
//!
//! Owns the listener's accept loop settings and the socket of each client,
//! not what is said on it. Once a connection's scope is cut, neither a byte
//! is read nor written on it any more, whatever the HTTP layer is doing.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Connections open at once. A runtime keeps a handful alive, so this serves
/// about a thousand of them; above it new connections wait in the kernel's
/// accept queue until one closes.
const MAX_CONNECTIONS: usize = 4096;

/// Pause after a failed accept, which mostly means that the process is out of
/// file descriptors: trying again at once would only burn a core.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The right to end one connection, shared with the requests on it.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionScope(CancellationToken);

impl ConnectionScope {
    /// Ends the connection without another byte.
    pub(crate) fn cut(&self) {
        self.0.cancel();
    }

    /// Completes when the connection is to end.
    pub(crate) fn ended(&self) -> WaitForCancellationFutureOwned {
        self.0.clone().cancelled_owned()
    }
}

impl Connected<IncomingStream<'_, GatewayListener>> for ConnectionScope {
    fn connect_info(stream: IncomingStream<'_, GatewayListener>) -> Self {
        stream.io().scope.clone()
    }
}

/// Accepts connections that end with the gateway.
#[derive(Debug)]
pub(crate) struct GatewayListener {
    listener: TcpListener,
    /// Cancelled when the gateway ends; parent of every connection's token.
    gateway: CancellationToken,
    /// Counts open connections, so that shutdown can wait for them.
    open: TaskTracker,
    /// Bounds open connections to `MAX_CONNECTIONS`.
    permits: Arc<Semaphore>,
}

impl GatewayListener {
    pub(crate) fn new(listener: TcpListener, gateway: CancellationToken, open: TaskTracker) -> Self {
        Self { listener, gateway, open, permits: Arc::new(Semaphore::new(MAX_CONNECTIONS)) }
    }
}

impl Listener for GatewayListener {
    type Io = GatewayStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        // The semaphore is never closed; without it accepting goes on unbounded.
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok();
        loop {
            match self.listener.accept().await {
                Ok((socket, address)) => {
                    if let Err(error) = socket.set_nodelay(true) {
                        tracing::debug!(%error, "streamed events of a connection will be delayed");
                    }
                    let scope = ConnectionScope(self.gateway.child_token());
                    let ended = Box::pin(scope.ended());
                    let open = self.open.token();
                    return (GatewayStream { socket, scope, ended, _open: open, _permit: permit }, address);
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// A client's socket, dead as soon as its scope is cut.
#[derive(Debug)]
pub(crate) struct GatewayStream {
    socket: TcpStream,
    scope: ConnectionScope,
    /// Wakes a reader or writer that waits for the client when the scope is cut.
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
    _open: TaskTrackerToken,
    _permit: Option<OwnedSemaphorePermit>,
}

impl GatewayStream {
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.ended.as_mut().poll(context) {
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionAborted.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for GatewayStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.socket).poll_read(context, buffer)
    }
}

impl AsyncWrite for GatewayStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.socket).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }
}
