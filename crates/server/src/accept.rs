//! Accepts connections: from a listener to HTTP, with or without TLS.
//!
//! Enforces the limits on unauthenticated sockets: how many may be open at once, and
//! how long each may take to send a request. Each socket has its own task, so a slow
//! socket does not delay others. When the limit is reached, the oldest socket is closed,
//! so idle sockets cannot block new ones.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd as _};
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::transport::progress::{CountedSocket, WriteProgress};

/// How long the last response on a socket may take: the page over a slow connection.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves the sockets of one listener.
#[derive(Clone)]
pub(crate) struct Acceptor {
    /// The HTTP service.
    pub(crate) router: Router,
    /// Set if the listener uses TLS.
    pub(crate) tls: Option<TlsAcceptor>,
    /// Limit of open sockets. Above it the oldest is closed: a real client needs this
    /// only briefly, because its socket leaves the count with the WebSocket upgrade and is
    /// limited separately.
    pub(crate) sockets: usize,
    /// Number of open descriptors from which clients are rejected.
    pub(crate) descriptors: usize,
    /// Timeout of the TLS handshake and of each request head; also how long a socket may
    /// send further requests.
    pub(crate) request_timeout: Duration,
    /// When cancelled, no more sockets are accepted and each socket ends after its
    /// current response.
    pub(crate) stop: CancellationToken,
    /// Tracks the socket tasks.
    pub(crate) tasks: TaskTracker,
}

/// What a handler can learn about the socket of a request, as a request extension.
#[derive(Clone, Debug)]
pub(crate) struct SocketInfo {
    /// The bytes that the socket accepts.
    pub(crate) progress: WriteProgress,
    /// Whether the process has a free descriptor for a client.
    pub(crate) descriptors: Descriptors,
}

/// Whether the process has enough free file descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Descriptors {
    Enough,
    /// The rest is reserved for turns.
    Scarce,
}

impl SocketInfo {
    /// The system assigns the lowest free number, so at least as many descriptors are open
    /// as a new socket's number.
    fn of(socket: &impl AsFd, limit: usize) -> Self {
        let number = usize::try_from(socket.as_fd().as_raw_fd()).unwrap_or(usize::MAX);
        let descriptors = if number < limit { Descriptors::Enough } else { Descriptors::Scarce };
        Self { progress: WriteProgress::default(), descriptors }
    }
}

impl Acceptor {
    /// Accepts sockets until stopped.
    pub(crate) async fn run<L: Listener<Io: AsFd>>(self, mut listener: L) {
        let stop = self.stop.clone();
        let taking = async {
            let mut busy = VecDeque::<JoinHandle<()>>::new();
            loop {
                let (socket, _) = listener.accept().await;
                busy.retain(|task| !task.is_finished());
                if busy.len() >= self.sockets {
                    tracing::debug!(limit = self.sockets, "too many sockets; closing the oldest");
                    end_oldest(&mut busy).await;
                }
                let info = SocketInfo::of(&socket, self.descriptors);
                let acceptor = self.clone();
                busy.push_back(self.tasks.spawn(async move { acceptor.serve(socket, info).await }));
            }
        };
        tokio::select! {
            () = taking => {}
            () = stop.cancelled() => {}
        }
    }

    async fn serve(&self, socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, info: SocketInfo) {
        let socket = CountedSocket::new(socket, &info.progress);
        let Some(tls) = &self.tls else { return self.http(socket, info).await };
        match tokio::time::timeout(self.request_timeout, tls.accept(socket)).await {
            Ok(Ok(socket)) => self.http(socket, info).await,
            Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
            Err(_) => tracing::debug!("TLS handshake timed out"),
        }
    }

    async fn http(&self, socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, info: SocketInfo) {
        let router = TowerToHyperService::new(self.router.clone());
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(info.clone());
            router.call(request)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.request_timeout)
            .serve_connection(TokioIo::new(socket), service)
            .with_upgrades();
        let mut connection = pin!(connection);
        let served = tokio::select! {
            served = connection.as_mut() => served,
            () = self.last_request() => {
                connection.as_mut().graceful_shutdown();
                match tokio::time::timeout(RESPONSE_TIMEOUT, connection).await {
                    Ok(served) => served,
                    Err(_) => return tracing::debug!("response timed out"),
                }
            }
        };
        if let Err(error) = served {
            tracing::debug!(%error, "HTTP connection failed");
        }
    }

    /// Waits until the socket may send no further requests.
    async fn last_request(&self) {
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = tokio::time::sleep(self.request_timeout) => {}
        }
    }
}

/// Aborts the oldest task and waits until its socket is closed.
async fn end_oldest(tasks: &mut VecDeque<JoinHandle<()>>) {
    let Some(oldest) = tasks.pop_front() else { return };
    oldest.abort();
    // The join error only says that the task was aborted.
    oldest.await.ok();
}

#[cfg(test)]
#[path = "accept_tests.rs"]
mod tests;
