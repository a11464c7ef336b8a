//! The HTTP client for upstreams.
//!
//! Owns idle connections and retries. A connection is driven by the task that
//! waits for its response, so that forwarding an event wakes no other task.
//! Dropping a response closes its connection, which tells the upstream that
//! the request was cancelled.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderMap, Method, Request, Version};
use http_body_util::Full;
use rand::Rng;
use tokio::time::{Instant, sleep, sleep_until};

use self::connect::Connector;
use self::upstream_connection::{RequestFailure, UpstreamConnection};
use crate::background::Background;
use crate::endpoint::Endpoint;

mod coalescing;
mod connect;
mod upstream_connection;
mod wake_filter;

pub use self::connect::ProxyRules;
pub(crate) use self::upstream_connection::{HttpResponse, ResponseData};

/// Idle connections kept per upstream; further ones are closed.
const MAX_IDLE: usize = 128;

/// How long an idle connection is kept: less than the limit of common servers
/// (60 s and more), so that the server seldom closes it while it is reused.
const IDLE_TIME: Duration = Duration::from_secs(50);

/// Attempts per request. A failed connect is usually transient or lasting;
/// retrying a lasting failure is left to the agent runtime.
const MAX_TRIES: u32 = 3;

/// The pause before the second attempt, doubled for each further one. Up to
/// half of it is randomly left out, so that clients do not retry in step.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Timeouts and proxies of the client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Limit for establishing a connection.
    pub connect_timeout: Duration,
    /// How long an upstream may send nothing; the whole response has no limit.
    pub idle_timeout: Duration,
    /// Which proxies are used.
    pub proxy: ProxyRules,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(5 * 60),
            proxy: ProxyRules::none(),
        }
    }
}

/// Why no response was received.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpSendError {
    /// The connection could not be established.
    #[error("cannot connect to {endpoint}: {reason}")]
    Connect { endpoint: Endpoint, reason: String },
    /// The connection closed before the first byte of a response.
    #[error("{endpoint} closed the connection before sending a response")]
    Reset { endpoint: Endpoint },
    /// The response is not valid HTTP, or its head is truncated.
    #[error("invalid HTTP response from {endpoint}: {source}")]
    Protocol {
        endpoint: Endpoint,
        #[source]
        source: hyper::Error,
    },
    /// The idle timeout expired.
    #[error("{endpoint} sent no response within {waited:?}")]
    Silent { endpoint: Endpoint, waited: Duration },
}

impl HttpSendError {
    /// Whether the upstream cannot have started to respond.
    fn is_before_any_byte(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::Reset { .. })
    }
}

/// A request that may be sent more than once.
#[derive(Clone, Debug)]
pub(crate) struct HttpRequest {
    pub(crate) method: Method,
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// An HTTP client; clones share their connections.
#[derive(Clone)]
pub(crate) struct HttpClient(Arc<ClientState>);

struct ClientState {
    options: ClientOptions,
    connector: Connector,
    idle: Mutex<HashMap<Endpoint, Vec<IdleConnection>>>,
    /// Closes expired idle connections, and reads responses to their end.
    background: Background,
}

struct IdleConnection {
    connection: UpstreamConnection,
    since: Instant,
}

impl HttpClient {
    pub(crate) fn new(options: ClientOptions) -> Self {
        let connector = Connector::new(options.connect_timeout, options.proxy.clone());
        Self(Arc::new(ClientState {
            options,
            connector,
            idle: Mutex::default(),
            background: Background::default(),
        }))
    }

    /// How long an upstream may send nothing.
    pub(crate) fn idle_timeout(&self) -> Duration {
        self.0.options.idle_timeout
    }

    /// Sends a request and waits for the head of its response.
    ///
    /// Retries after a failed connect and after a connection that closed before
    /// the first byte of a response. A response with any status is not retried.
    pub(crate) async fn send(
        &self,
        endpoint: &Endpoint,
        request: &HttpRequest,
    ) -> Result<HttpResponse, HttpSendError> {
        let (mut tries, mut stale) = (0, false);
        loop {
            // An idle connection may have been closed by the server. After
            // one such failure only a new connection is used.
            let reused = if stale { None } else { self.take_idle(endpoint) };
            let fresh = reused.is_none();
            let result = match reused {
                Some(connection) => self.send_on(connection, endpoint, request).await,
                None => match self.0.connector.connect(endpoint).await {
                    Ok(connection) => self.send_on(connection, endpoint, request).await,
                    Err(reason) => Err(HttpSendError::Connect { endpoint: endpoint.clone(), reason }),
                },
            };
            let error = match result {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            tries += 1;
            stale = true;
            if !error.is_before_any_byte() || tries >= MAX_TRIES {
                return Err(error);
            }
            tracing::debug!(%error, tries, "retrying request");
            if fresh {
                sleep(pause(tries)).await;
            }
        }
    }

    async fn send_on(
        &self,
        mut connection: UpstreamConnection,
        endpoint: &Endpoint,
        request: &HttpRequest,
    ) -> Result<HttpResponse, HttpSendError> {
        let message = message(endpoint, request).map_err(|error| HttpSendError::Connect {
            endpoint: endpoint.clone(),
            reason: error.to_string(),
        })?;
        let waited = self.0.options.idle_timeout;
        let sent = connection.send(message, waited).await;
        match sent {
            Ok(response) => Ok(HttpResponse::new(response, connection, endpoint.clone(), self.clone())),
            Err(RequestFailure::Silent) => Err(HttpSendError::Silent { endpoint: endpoint.clone(), waited }),
            Err(RequestFailure::Reset) => Err(HttpSendError::Reset { endpoint: endpoint.clone() }),
            Err(RequestFailure::Protocol(source)) => {
                Err(HttpSendError::Protocol { endpoint: endpoint.clone(), source })
            }
        }
    }

    fn take_idle(&self, endpoint: &Endpoint) -> Option<UpstreamConnection> {
        let mut idle = self.lock();
        let kept = idle.get_mut(endpoint)?;
        while let Some(mut candidate) = kept.pop() {
            if candidate.since.elapsed() < IDLE_TIME && candidate.connection.is_usable() {
                return Some(candidate.connection);
            }
        }
        idle.remove(endpoint);
        None
    }

    /// Keeps a connection whose response was read to its end.
    fn keep(&self, endpoint: Endpoint, mut connection: UpstreamConnection) {
        if !connection.is_usable() {
            return;
        }
        let mut idle = self.lock();
        let sweep = idle.is_empty();
        let kept = idle.entry(endpoint).or_default();
        if kept.len() < MAX_IDLE {
            kept.push(IdleConnection { connection, since: Instant::now() });
        }
        drop(idle);
        if sweep {
            self.0.background.spawn(close_idle(Arc::downgrade(&self.0)));
        }
    }

    /// Reads the rest of a response in the background.
    fn finish_later(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.0.background.spawn(work);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Endpoint, Vec<IdleConnection>>> {
        self.0.lock()
    }
}

impl ClientState {
    fn lock(&self) -> MutexGuard<'_, HashMap<Endpoint, Vec<IdleConnection>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes expired connections; returns when the next one expires.
    fn sweep(&self) -> Option<Instant> {
        let mut idle = self.lock();
        idle.retain(|_, kept| {
            kept.retain_mut(|entry| entry.since.elapsed() < IDLE_TIME && entry.connection.is_usable());
            !kept.is_empty()
        });
        idle.values().flatten().map(|entry| entry.since + IDLE_TIME).min()
    }
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("HttpClient").field("options", &self.0.options).finish_non_exhaustive()
    }
}

/// Closes expired connections until none is left.
async fn close_idle(client: Weak<ClientState>) {
    while let Some(next) = client.upgrade().and_then(|client| client.sweep()) {
        sleep_until(next).await;
    }
}

fn message(endpoint: &Endpoint, request: &HttpRequest) -> Result<Request<Full<Bytes>>, http::Error> {
    let mut message = Request::builder()
        .method(request.method.clone())
        .uri(request.target.as_str())
        .version(Version::HTTP_11)
        .body(Full::new(request.body.clone()))?;
    *message.headers_mut() = request.headers.clone();
    if let Some(host) = endpoint.host_header() {
        message.headers_mut().insert(HOST, host);
    }
    Ok(message)
}

/// The pause before the next attempt.
fn pause(tries: u32) -> Duration {
    let whole = FIRST_PAUSE * 2_u32.saturating_pow(tries.saturating_sub(1));
    whole.mul_f64(rand::rng().random_range(0.5..=1.0))
}
