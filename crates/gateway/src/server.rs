//! Starting and ending the gateway.
//!
//! Owns the bound port, the nonce and the tasks that serve it. The front
//! decides about requests. Ending the gateway cancels every request on it and
//! leaves no task behind; dropping the handle ends it too.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::auth::{Nonce, SessionId};
use crate::body::DEFAULT_BODY_CAP;
use crate::connection;
use crate::front::Front;
use crate::initiator::TurnMark;
use crate::ledger::{LastError, Ledger, SessionUsage, TooManyCredentials};
use crate::upstream::Upstream;

/// How long shutdown waits for connections that were told to end. They stop
/// at their next poll, so only a stuck upstream could take this long.
pub(crate) const SHUTDOWN_TIME: Duration = Duration::from_secs(5);

/// The gateway before it runs.
#[derive(Debug)]
pub struct Gateway;

/// What a gateway needs to run.
#[derive(Debug)]
pub struct GatewayConfig {
    /// Where to listen; a loopback address, port 0 for any free one.
    pub listen: SocketAddr,
    /// What answers the requests.
    pub upstream: Arc<dyn Upstream>,
}

/// What a gateway allows a client.
#[derive(Clone, Copy, Debug)]
pub struct GatewayLimits {
    /// Largest request body in bytes; a larger one is answered with 413.
    pub body_cap: usize,
}

impl Default for GatewayLimits {
    fn default() -> Self {
        Self { body_cap: DEFAULT_BODY_CAP }
    }
}

/// Why a gateway did not start.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The address can be reached from other machines.
    #[error("the gateway listens on this machine only and {0} is not a loopback address; use 127.0.0.1")]
    NotLoopback(SocketAddr),
    /// The port could not be had.
    #[error("the gateway cannot listen on {address}; choose another port, or 0 for any free one")]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The system gave it no thread, or the thread no way to wait for sockets.
    #[error("the gateway's thread could not start")]
    Thread(#[source] io::Error),
    /// It was ended for good.
    #[error("the gateway has been shut down")]
    Ended,
}

impl Gateway {
    /// Binds the port and starts to serve it.
    pub async fn start(config: GatewayConfig) -> Result<GatewayHandle, GatewayError> {
        Self::start_with(config, GatewayLimits::default()).await
    }

    /// Binds the port and starts to serve it, with limits of the caller's.
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

        let nonce = Arc::new(Nonce::random());
        let ledger = Arc::new(Ledger::default());
        let cancel = CancellationToken::new();
        let tasks = TaskTracker::new();
        let front = Arc::new(Front {
            nonce: Arc::clone(&nonce),
            upstream,
            ledger: Arc::clone(&ledger),
            body_cap: limits.body_cap,
        });
        tasks.spawn(connection::accept(listener, front, cancel.clone(), tasks.clone()));
        tasks.close();
        tracing::debug!(%address, "the gateway accepts connections");
        Ok(GatewayHandle { base_url: format!("http://{address}"), nonce, ledger, cancel, tasks })
    }
}

/// A running gateway.
pub struct GatewayHandle {
    base_url: String,
    nonce: Arc<Nonce>,
    ledger: Arc<Ledger>,
    /// Ends the accept loop, every connection and every request.
    cancel: CancellationToken,
    /// The accept loop and the open connections.
    tasks: TaskTracker,
}

impl GatewayHandle {
    /// The address for `ANTHROPIC_BASE_URL`, without a slash at the end.
    pub fn base_url(&self) -> &str {
        &self.base_url
    }

    /// The secret half of every bearer.
    ///
    /// For the ready line of the stand-alone gateway; a session is given
    /// [`Self::bearer_for`] its own id.
    pub fn nonce(&self) -> SecretString {
        self.nonce.secret()
    }

    /// The value for `ANTHROPIC_AUTH_TOKEN` of one session, whose id is not empty.
    pub fn bearer_for(&self, session: &str) -> SecretString {
        self.nonce.bearer_for(session)
    }

    /// What the requests of a session came to; nothing before its first.
    pub fn usage(&self, session: &str) -> Option<SessionUsage> {
        self.ledger.usage(session)
    }

    /// What a session was told last when something failed.
    pub fn last_error(&self, session: &str) -> Option<LastError> {
        self.ledger.last_error(session)
    }

    /// Tells that a person is about to say something in a session.
    ///
    /// One request of the session, the one that has the message, is then made
    /// in the user's name; all its others are the agent's. A session without
    /// marks is judged by the last message of each request.
    pub fn mark_turn(&self, session: &str, turn: TurnMark) {
        if let Some(session) = SessionId::new(session) {
            self.ledger.mark_turn(&session, turn);
        }
    }

    /// Gives a session a credential of its own, instead of the upstream's.
    pub fn set_credential(&self, session: &str, credential: SecretString) -> Result<(), TooManyCredentials> {
        match SessionId::new(session) {
            Some(session) => self.ledger.set_credential(&session, credential),
            None => Ok(()),
        }
    }

    /// Forgets the books and the credential of a session that has ended.
    pub fn forget(&self, session: &str) {
        self.ledger.forget(session);
    }

    /// Completes when every connection and task has ended after a shutdown.
    pub(crate) fn ended(&self) -> TaskTracker {
        self.tasks.clone()
    }

    /// Cancelled when the gateway is to end.
    pub(crate) fn told_to_end(&self) -> CancellationToken {
        self.cancel.clone()
    }

    /// Stops accepting, cancels every request and waits for their tasks.
    ///
    /// Idempotent; comes back within seconds even if an upstream is stuck.
    pub async fn shutdown(&self) {
        self.cancel.cancel();
        if timeout(SHUTDOWN_TIME, self.tasks.wait()).await.is_err() {
            tracing::warn!(open = self.tasks.len(), "gateway connections did not end in {SHUTDOWN_TIME:?}");
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
