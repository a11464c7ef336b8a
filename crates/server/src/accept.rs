//! Taking connections in: from a listener to HTTP, with or without TLS.
//!
//! Owns the bounds before anybody is known: how many sockets there may be at once,
//! and how long one may take to come to the point. Each has a task of its own, so
//! that a slow one holds nobody up; and many of them cannot keep others out, since
//! the one that is there for the longest time makes room for a new one.

use std::collections::VecDeque;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Sockets of one listener that may be busy with TLS or HTTP at once. When there
/// are more, the oldest is closed: whoever is in earnest needs a moment only, and a
/// client's own socket leaves here with its upgrade and is counted elsewhere.
pub(crate) const MAX_SOCKETS: usize = 256;

/// How long the last answer over a socket may take: the page over a slow line.
const ANSWER: Duration = Duration::from_secs(30);

/// What becomes of the sockets of a listener.
#[derive(Clone)]
pub(crate) struct Acceptor {
    /// What is served.
    pub(crate) router: Router,
    /// Whether it is served over TLS.
    pub(crate) tls: Option<TlsAcceptor>,
    /// How many sockets there may be at once.
    pub(crate) sockets: usize,
    /// How long the handshake of TLS and the head of a request may take, and for how
    /// long more requests are taken over a socket.
    pub(crate) patience: Duration,
    /// No socket is taken any more, and no request after the one that is answered.
    pub(crate) stop: CancellationToken,
    /// Where the sockets' tasks are.
    pub(crate) tasks: TaskTracker,
}

impl Acceptor {
    /// Takes sockets until it is told to stop.
    pub(crate) async fn run(self, mut listener: impl Listener) {
        let stop = self.stop.clone();
        let taking = async {
            let mut busy = VecDeque::<JoinHandle<()>>::new();
            loop {
                let (socket, _) = listener.accept().await;
                busy.retain(|task| !task.is_finished());
                if busy.len() >= self.sockets {
                    tracing::debug!(limit = self.sockets, "too many sockets; the oldest is closed");
                    end_oldest(&mut busy).await;
                }
                let acceptor = self.clone();
                busy.push_back(self.tasks.spawn(async move { acceptor.serve(socket).await }));
            }
        };
        tokio::select! {
            () = taking => {}
            () = stop.cancelled() => {}
        }
    }

    async fn serve(&self, socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let Some(tls) = &self.tls else { return self.http(socket).await };
        match tokio::time::timeout(self.patience, tls.accept(socket)).await {
            Ok(Ok(socket)) => self.http(socket).await,
            Ok(Err(error)) => tracing::debug!(%error, "no TLS connection came about"),
            Err(_) => tracing::debug!("a TLS handshake took too long"),
        }
    }

    async fn http(&self, socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let service = TowerToHyperService::new(self.router.clone());
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.patience)
            .serve_connection(TokioIo::new(socket), service)
            .with_upgrades();
        let mut connection = pin!(connection);
        let served = tokio::select! {
            served = connection.as_mut() => served,
            () = self.last_request() => {
                connection.as_mut().graceful_shutdown();
                match tokio::time::timeout(ANSWER, connection).await {
                    Ok(served) => served,
                    Err(_) => return tracing::debug!("an answer was not read in time"),
                }
            }
        };
        if let Err(error) = served {
            tracing::debug!(%error, "a request was not served to its end");
        }
    }

    /// Waits until no further request is taken over a socket.
    async fn last_request(&self) {
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = tokio::time::sleep(self.patience) => {}
        }
    }
}

/// Ends the task that is there for the longest time, and waits until its socket is closed.
async fn end_oldest(tasks: &mut VecDeque<JoinHandle<()>>) {
    let Some(oldest) = tasks.pop_front() else { return };
    oldest.abort();
    // That it was ended is no failure.
    oldest.await.ok();
}

#[cfg(test)]
#[path = "accept_tests.rs"]
mod tests;
