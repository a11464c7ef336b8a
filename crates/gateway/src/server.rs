//! Starts and stops the gateway.
//!
//! Owns the bound port, the nonce and the serving tasks. Request handling is
//! in `front`. A shutdown cancels every request and leaves no task running;
//! dropping the handle has the same effect.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use secrecy::SecretString;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::auth::{Nonce, SessionId};
use crate::body::DEFAULT_BODY_CAP;
use crate::connection;
use crate::error::ApiError;
use crate::front::Front;
use crate::initiator::TurnMark;
use crate::model_list::ModelList;
use crate::upstream::Upstream;
use crate::usage_ledger::{HelperAccount, LastError, SessionUsage, TooManyCredentials, UsageLedger};

/// How long shutdown waits for cancelled connections. They stop at their next
/// poll, so only a stuck upstream could take this long.
pub(crate) const SHUTDOWN_TIME: Duration = Duration::from_secs(5);

/// Starts gateways.
#[derive(Debug)]
pub struct Gateway;

/// The configuration of a gateway.
#[derive(Debug)]
pub struct GatewayConfig {
    /// The listen address; must be loopback, port 0 picks any free port.
    pub listen: SocketAddr,
    /// Answers the requests.
    pub upstream: Arc<dyn Upstream>,
}

/// Limits on client requests.
#[derive(Clone, Copy, Debug)]
pub struct GatewayLimits {
    /// Largest request body in bytes; larger ones are rejected with 413.
    pub body_cap: usize,
    /// Connections with a valid bearer; above it, requests on new ones are
    /// rejected with 503. A runtime keeps a handful open.
    pub connections: usize,
    /// Sockets without a valid bearer; above it, the oldest is closed.
    pub unauthenticated: usize,
}

impl Default for GatewayLimits {
    fn default() -> Self {
        Self { body_cap: DEFAULT_BODY_CAP, connections: 4096, unauthenticated: 256 }
    }
}

/// Why a gateway could not start.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The address can be reached from other machines.
    #[error("cannot listen on {0}: the gateway accepts loopback addresses only; use 127.0.0.1")]
    NotLoopback(SocketAddr),
    /// The address could not be bound.
    #[error("cannot listen on {address}; choose another port, or 0 for any free one")]
    Listen {
        /// The requested address.
        address: SocketAddr,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The thread or its tokio runtime could not be created.
    #[error("cannot start the gateway thread")]
    Thread(#[source] io::Error),
    /// The gateway was shut down permanently.
    #[error("the gateway has been shut down")]
    Ended,
}

impl Gateway {
    /// Binds the port and starts serving with the default limits.
    pub async fn start(config: GatewayConfig) -> Result<GatewayHandle, GatewayError> {
        Self::start_with(config, GatewayLimits::default()).await
    }

    /// Binds the port and starts serving with the given limits.
    pub async fn start_with(
        config: GatewayConfig,
        limits: GatewayLimits,
    ) -> Result<GatewayHandle, GatewayError> {
        let GatewayConfig { listen, upstream } = config;
        if !listen.ip().is_loopback() {
            return Err(GatewayError::NotLoopback(listen));
        }
        let failed = |source| GatewayError::Listen { address: listen, source };
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;

        let weak_upstream = Arc::downgrade(&upstream);
        let nonce = Arc::new(Nonce::random());
        let ledger = Arc::new(UsageLedger::default());
        let cancel = CancellationToken::new();
        let tasks = TaskTracker::new();
        let front = Arc::new(Front {
            nonce: Arc::clone(&nonce),
            upstream,
            ledger: Arc::clone(&ledger),
            body_cap: limits.body_cap,
        });
        tasks.spawn(connection::accept(listener, front, limits, cancel.clone(), tasks.clone()));
        tasks.close();
        tracing::debug!(%address, "gateway listening");
        let (base_url, runtime) = (format!("http://{address}"), Handle::current());
        Ok(GatewayHandle { base_url, nonce, upstream: weak_upstream, ledger, runtime, cancel, tasks })
    }
}

/// A running gateway.
pub struct GatewayHandle {
    base_url: String,
    nonce: Arc<Nonce>,
    /// Owned by the tasks of the gateway.
    upstream: Weak<dyn Upstream>,
    ledger: Arc<UsageLedger>,
    /// Where the gateway runs, and its connections to the upstream.
    runtime: Handle,
    /// Cancels the accept loop, every connection and every request.
    cancel: CancellationToken,
    /// The accept loop and the open connections.
    tasks: TaskTracker,
}

impl GatewayHandle {
    /// The value for `ANTHROPIC_BASE_URL`, without a trailing slash.
    pub fn base_url(&self) -> &str {
        &self.base_url
    }

    /// The secret part of every bearer.
    ///
    /// For the ready line of the stand-alone gateway; a session gets its own
    /// bearer from [`Self::bearer_for`].
    pub fn nonce(&self) -> SecretString {
        self.nonce.secret()
    }

    /// The value of `ANTHROPIC_AUTH_TOKEN` for one session; the id must not be empty.
    pub fn bearer_for(&self, session: &str) -> SecretString {
        self.nonce.bearer_for(session)
    }

    /// The accumulated usage of a session; `None` before its first request.
    pub fn usage(&self, session: &str) -> Option<SessionUsage> {
        self.ledger.usage(session)
    }

    /// The usage of the session's requests that ended since the last call. Contains every request whose
    /// response the client has received.
    pub fn take_usage(&self, session: &str) -> SessionUsage {
        self.ledger.take_usage(session)
    }

    /// The accumulated usage of all sessions since the start.
    pub fn total_usage(&self) -> SessionUsage {
        self.ledger.total()
    }

    /// The last failed messages request of a session. `None` if a later one has succeeded, or
    /// a user message was announced since.
    pub fn last_error(&self, session: &str) -> Option<LastError> {
        self.ledger.last_error(session)
    }

    /// Asks the upstream for the models of its own credentials.
    pub async fn model_list(&self) -> Result<ModelList, ApiError> {
        let ended = || Err(ApiError::internal("the gateway has been shut down"));
        let Some(upstream) = self.upstream.upgrade() else { return ended() };
        let cancel = self.cancel.clone();
        // The upstream's connections belong to the runtime of the gateway.
        let asking = async move { cancel.run_until_cancelled(upstream.model_list()).await };
        let asked = self.tasks.spawn_on(asking, &self.runtime).await;
        asked.ok().flatten().unwrap_or_else(ended)
    }

    /// Completes when the upstream's own credentials were replaced since the last call. Only one
    /// task may wait.
    pub async fn credentials_replaced(&self) {
        match self.upstream.upgrade() {
            Some(upstream) => upstream.credentials_replaced().await,
            None => std::future::pending().await,
        }
    }

    /// Announces a user message in a session.
    ///
    /// The one request that contains the message is then sent with the user as
    /// its initiator, and all others with the agent. For a session without
    /// marks the last message of each request decides.
    pub fn mark_turn(&self, session: &str, turn: TurnMark) {
        if let Some(session) = SessionId::new(session) {
            self.ledger.mark_turn(&session, turn);
        }
    }

    /// Sets a session's own credential, which replaces the upstream's.
    pub fn set_credential(&self, session: &str, credential: SecretString) -> Result<(), TooManyCredentials> {
        match SessionId::new(session) {
            Some(session) => self.ledger.set_credential(&session, credential),
            None => Ok(()),
        }
    }

    /// The account of the host's own requests for a session.
    pub(crate) fn open_helper(
        &self,
        session: &str,
        helper: &SessionId,
    ) -> Result<HelperAccount, TooManyCredentials> {
        self.ledger.open_helper(session, helper)
    }

    /// Removes the usage and the credential of a closed session.
    pub fn forget(&self, session: &str) {
        self.ledger.forget(session);
    }

    /// A tracker whose `wait` completes when all tasks have ended after a shutdown.
    pub(crate) fn ended(&self) -> TaskTracker {
        self.tasks.clone()
    }

    /// Cancelled when the gateway shuts down.
    pub(crate) fn shutdown_token(&self) -> CancellationToken {
        self.cancel.clone()
    }

    /// Stops accepting, cancels every request and waits for their tasks.
    ///
    /// Idempotent; returns within five seconds even if an upstream is stuck.
    pub async fn shutdown(&self) {
        self.cancel.cancel();
        if timeout(SHUTDOWN_TIME, self.tasks.wait()).await.is_err() {
            tracing::warn!(
                open = self.tasks.len(),
                waited = ?SHUTDOWN_TIME,
                "gateway connections still open after shutdown"
            );
        }
    }
}

impl Drop for GatewayHandle {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl fmt::Debug for GatewayHandle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("GatewayHandle")
            .field("base_url", &self.base_url)
            .field("nonce", &self.nonce)
            .finish_non_exhaustive()
    }
}
