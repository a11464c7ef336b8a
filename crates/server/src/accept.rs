//! Taking connections in: from a listener to HTTP, with or without TLS.
//!
//! Owns the bounds before anybody is known: how many sockets there may be at once,
//! and how long one may take to come to the point. Each has a task of its own, so
//! that a slow one holds nobody up.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Sockets of one listener that may be busy with TLS or HTTP at once. When there
/// are more, the next wait in the system's queue; a client's own socket leaves
/// here with its upgrade and is counted elsewhere.
const MAX_SOCKETS: usize = 256;

/// What becomes of the sockets of a listener.
#[derive(Clone)]
pub(crate) struct Acceptor {
    /// What is served.
    pub(crate) router: Router,
    /// Whether it is served over TLS.
    pub(crate) tls: Option<TlsAcceptor>,
    /// How long the handshake of TLS and the head of a request may take.
    pub(crate) patience: Duration,
    /// No socket is taken any more, and no request after the one that is answered.
    pub(crate) stop: CancellationToken,
    /// Where the sockets' tasks are.
    pub(crate) tasks: TaskTracker,
}

impl Acceptor {
    /// Takes sockets until it is told to stop.
    pub(crate) async fn run(self, mut listener: impl Listener) {
        let sockets = Arc::new(Semaphore::new(MAX_SOCKETS));
        let stop = self.stop.clone();
        let taking = async {
            while let Ok(permit) = Arc::clone(&sockets).acquire_owned().await {
                let (socket, _) = listener.accept().await;
                let acceptor = self.clone();
                self.tasks.spawn(async move {
                    acceptor.serve(socket).await;
                    drop(permit);
                });
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
            () = self.stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = served {
            tracing::debug!(%error, "a request was not served to its end");
        }
    }
}
