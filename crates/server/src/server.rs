//! Listeners and HTTP routes.
//!
//! `/` serves WebSocket upgrades and, for other requests, the page; `/healthz` is the
//! health check and `/metrics` the metrics. The page's files need no token, because they
//! contain no data; the socket does.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{RawQuery, Request, State};
use axum::routing::{any, get};
use axum::serve::{Listener, ListenerExt as _};
use axum::{Extension, Router};
use http::header::{CONTENT_TYPE, IF_NONE_MATCH, UPGRADE};
use http::{HeaderMap, Method, Response, StatusCode};
use innkeeper_core::Host;
use innkeeper_core::files::Files;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::accept::{Acceptor, Descriptors, SocketInfo};
use crate::admission::{Admission, OwnAddresses, Refusal};
use crate::client_requests::ClientConnections;
use crate::connection::ServerContext;
use crate::limits::ServerLimits;
use crate::metrics::{Counters, UsageSource};
use crate::tls::TlsIdentity;
use crate::transport::unix::SocketFile;
use crate::wire_log::WireLog;
use crate::{page, transport};

/// How long connections may take to end after a stop.
const DRAIN: Duration = Duration::from_secs(3);

/// Configuration of a server.
#[derive(Debug)]
pub struct ServerConfig {
    /// Where to listen; all of them are used.
    pub listen: Vec<Listen>,
    /// Required credentials over TCP.
    pub admission: Admission,
    /// Version reported to clients.
    pub version: String,
    /// Start directory of a client's folder picker: a `file:` URI.
    pub default_directory: Option<String>,
    /// File access for clients.
    pub files: Arc<dyn Files>,
    /// Connected clients, for requests from the host.
    pub clients: Arc<ClientConnections>,
}

/// Optional settings of a server.
#[derive(Debug, Default)]
pub struct ServerOptions {
    /// Certificate for TCP. Without it, only loopback addresses are allowed.
    pub tls: Option<TlsIdentity>,
    /// Limits on clients.
    pub limits: ServerLimits,
    /// Log of all frames.
    pub wire_log: Option<WireLog>,
    /// What model requests used, for `/metrics`.
    pub usage: Option<UsageSource>,
}

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A TCP address, loopback unless TLS is used; port 0 selects a free port.
    Tcp(SocketAddr),
    /// A unix socket at this path, accessible to its user only; needs no token.
    Unix(PathBuf),
    /// Stdin and stdout, for one client.
    Stdio,
}

impl fmt::Display for Listen {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(formatter),
            Self::Unix(path) => path.display().fmt(formatter),
            Self::Stdio => formatter.write_str("stdio"),
        }
    }
}

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address would be reachable from other machines.
    #[error("cannot listen on {0}: not a loopback address; other machines require TLS and a token")]
    NotLoopback(SocketAddr),
    /// The address is in use.
    #[error(
        "cannot listen on {0}: address in use, maybe by another innkeeper; choose another port with --listen, such as {free} for any free one",
        free = SocketAddr::new(.0.ip(), 0)
    )]
    Taken(SocketAddr),
    /// The system cannot listen on the address.
    #[error("cannot listen on {place}")]
    Listen {
        /// The address.
        place: Listen,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    /// The listen addresses, with the assigned ports.
    places: Vec<Listen>,
    /// Files of the unix sockets.
    files: Vec<SocketFile>,
    shared: Arc<ServerContext>,
    stop: CancellationToken,
    /// Cancelled when the stdio connection ends.
    stdio_ended: CancellationToken,
}

#[derive(Clone, Debug)]
struct Routes {
    shared: Arc<ServerContext>,
    /// Required credentials; `None` for unix sockets.
    policy: Option<TcpPolicy>,
}

/// The checks for all requests over TCP.
#[derive(Clone, Debug)]
struct TcpPolicy {
    admission: Arc<Admission>,
    own: OwnAddresses,
}

/// A bound address that does not accept connections yet.
enum Bound {
    /// With the assigned port.
    Tcp(TcpListener, SocketAddr),
    Unix(UnixListener, SocketFile, PathBuf),
    Stdio,
}

impl Bound {
    async fn at(place: Listen, policy: &TcpPolicy) -> Result<Self, ServerError> {
        match place {
            Listen::Tcp(address) => Self::tcp(address, policy).await,
            Listen::Unix(path) => match transport::unix::bind(&path).await {
                Ok((listener, file)) => Ok(Self::Unix(listener, file, path)),
                Err(source) => Err(ServerError::Listen { place: Listen::Unix(path), source }),
            },
            Listen::Stdio => Ok(Self::Stdio),
        }
    }

    async fn tcp(address: SocketAddr, policy: &TcpPolicy) -> Result<Self, ServerError> {
        let guarded = matches!(policy.own, OwnAddresses::Certified(_)) && policy.admission.needs_token();
        if !guarded && !address.ip().is_loopback() {
            return Err(ServerError::NotLoopback(address));
        }
        let failed = |source: io::Error| {
            if source.kind() == ErrorKind::AddrInUse {
                return ServerError::Taken(address);
            }
            ServerError::Listen { place: Listen::Tcp(address), source }
        };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self::Tcp(listener, address))
    }
}

impl Server {
    /// Starts a server. If any listener cannot be bound, none accepts connections.
    pub async fn start(config: ServerConfig, host: Arc<Host>) -> Result<Self, ServerError> {
        Self::start_with(config, ServerOptions::default(), host).await
    }

    /// Like [`Server::start`], with optional settings.
    pub async fn start_with(
        config: ServerConfig,
        options: ServerOptions,
        host: Arc<Host>,
    ) -> Result<Self, ServerError> {
        let (stop, stdio_ended) = (CancellationToken::new(), CancellationToken::new());
        let shared = Arc::new(ServerContext {
            host,
            version: config.version,
            default_directory: config.default_directory,
            attachments: ServerContext::attachments(&config.files, &config.clients),
            files: config.files,
            clients: config.clients,
            stop: stop.clone(),
            tasks: TaskTracker::new(),
            limits: options.limits,
            counters: Counters::default(),
            usage: options.usage,
            wire_log: options.wire_log,
            connections: Arc::new(Semaphore::new(options.limits.connections)),
            content_watches: ServerContext::content_watches(),
        });
        let policy = TcpPolicy {
            admission: Arc::new(config.admission),
            own: options.tls.map_or(OwnAddresses::Loopback, |tls| OwnAddresses::Certified(Arc::new(tls))),
        };
        // Bind every listener before accepting connections, so that no client connects to
        // a server that then fails to start.
        let mut bound = Vec::with_capacity(config.listen.len());
        for place in config.listen {
            bound.push(Bound::at(place, &policy).await?);
        }
        let mut server = Self { places: Vec::new(), files: Vec::new(), shared, stop, stdio_ended };
        for bound in bound {
            server.open(bound, &policy);
        }
        Ok(server)
    }

    /// Starts to accept connections.
    fn open(&mut self, bound: Bound, policy: &TcpPolicy) {
        let place = match bound {
            Bound::Tcp(listener, address) => {
                let listener = listener.tap_io(|stream| {
                    if let Err(error) = transport::tcp::prepare(stream) {
                        tracing::debug!(%error, "cannot set socket option");
                    }
                });
                self.serve(listener, Some(policy.clone()));
                Listen::Tcp(address)
            }
            Bound::Unix(listener, file, path) => {
                self.files.push(file);
                self.serve(listener, None);
                Listen::Unix(path)
            }
            Bound::Stdio => Listen::Stdio,
        };
        self.places.push(place);
    }

    fn serve<L: Listener<Io: AsFd>>(&self, listener: L, policy: Option<TcpPolicy>) {
        let tls = policy.as_ref().and_then(|policy| policy.own.acceptor());
        let routes = Routes { shared: Arc::clone(&self.shared), policy };
        let router = Router::new()
            .route("/healthz", get(healthz))
            .route("/metrics", get(metrics))
            .fallback(any(root))
            .with_state(routes);
        let acceptor = Acceptor {
            router,
            tls,
            sockets: self.shared.limits.unauthenticated,
            descriptors: self.shared.limits.descriptors,
            request_timeout: self.shared.limits.handshake,
            stop: self.stop.clone(),
            tasks: self.shared.tasks.clone(),
        };
        self.shared.tasks.spawn(acceptor.run(listener));
    }

    /// Starts the connection on stdio. `output` is dropped when the connection ends.
    pub fn open_stdio(
        &self,
        input: impl AsyncRead + Unpin + Send + 'static,
        output: impl AsyncWrite + Unpin + Send + 'static,
    ) {
        let (shared, ended) = (Arc::clone(&self.shared), self.stdio_ended.clone());
        self.shared.tasks.spawn(async move {
            transport::stdio::serve(shared, input, output).await;
            ended.cancel();
        });
    }

    /// Resolves when no client can connect again: stdio is the only listener and its
    /// connection has ended.
    pub async fn deserted(&self) {
        if self.places.iter().all(|place| *place == Listen::Stdio) {
            self.stdio_ended.cancelled().await;
        } else {
            std::future::pending().await
        }
    }

    /// The listen addresses, with the assigned ports.
    pub fn places(&self) -> &[Listen] {
        &self.places
    }

    /// Stops accepting connections; existing ones continue.
    pub fn stop_accepting(&self) {
        self.stop.cancel();
    }

    /// Waits for the connections to end, with a timeout.
    pub async fn drain(&self) {
        self.stop.cancel();
        let tasks = &self.shared.tasks;
        tasks.close();
        if tokio::time::timeout(DRAIN, tasks.wait()).await.is_err() {
            tracing::warn!("drain timed out; some connections are still open");
        }
        if let Some(log) = &self.shared.wire_log {
            log.finish().await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn healthz(State(routes): State<Routes>, headers: HeaderMap) -> Response<Body> {
    match routes.check_addresses(&headers) {
        Ok(()) => text(StatusCode::OK, "ok"),
        Err(refusal) => routes.refused(refusal),
    }
}

async fn metrics(
    State(routes): State<Routes>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response<Body> {
    if let Err(refusal) = routes.admit(&headers, query.as_deref()) {
        return routes.refused(refusal);
    }
    let ServerContext { counters, host, usage, .. } = &*routes.shared;
    let mut response = text(StatusCode::OK, &counters.render(host, usage.as_ref()));
    let format = http::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, format);
    response
}

async fn root(
    State(routes): State<Routes>,
    RawQuery(query): RawQuery,
    Extension(socket): Extension<SocketInfo>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
    request: Request,
) -> Response<Body> {
    let headers = request.headers();
    if headers.contains_key(UPGRADE) && request.uri().path() == "/" {
        return match (upgrade, routes.admit(headers, query.as_deref())) {
            (_, Err(refusal)) => routes.refused(refusal),
            (Ok(upgrade), Ok(())) => routes.connect(upgrade, socket),
            (Err(_), Ok(())) => text(StatusCode::BAD_REQUEST, "not a WebSocket upgrade request"),
        };
    }
    match routes.check_addresses(headers) {
        Ok(()) => serve_page(request.method(), request.uri().path(), headers),
        Err(refusal) => routes.refused(refusal),
    }
}

impl Routes {
    fn admit(&self, headers: &HeaderMap, query: Option<&str>) -> Result<(), Refusal> {
        match &self.policy {
            Some(policy) => policy.admission.check_socket(&policy.own, headers, query),
            None => Ok(()),
        }
    }

    /// Checks `Host` and `Origin` of a request that needs no token.
    fn check_addresses(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        self.policy.as_ref().map_or(Ok(()), |policy| policy.own.check(headers))
    }

    /// Upgrades an admitted request to a connection, within the limits of connections and
    /// of open files.
    fn connect(self, upgrade: WebSocketUpgrade, socket: SocketInfo) -> Response<Body> {
        if socket.descriptors == Descriptors::Scarce {
            let limit = self.shared.limits.descriptors;
            return self.unavailable(&format!(
                "too many open files (limit for clients {limit}); close a connection, or raise the host's limit of open files"
            ));
        }
        match Arc::clone(&self.shared.connections).try_acquire_owned() {
            Ok(slot) => transport::ws::upgrade(upgrade, self.shared, slot, socket.progress),
            Err(_) => {
                let limit = self.shared.limits.connections;
                self.unavailable(&format!(
                    "too many connections (limit {limit}); close one, or raise limits.connections in the host's configuration"
                ))
            }
        }
    }

    fn unavailable(&self, message: &str) -> Response<Body> {
        tracing::warn!(message, "connection rejected");
        self.shared.counters.refused();
        text(StatusCode::SERVICE_UNAVAILABLE, message)
    }

    fn refused(&self, refusal: Refusal) -> Response<Body> {
        tracing::warn!(%refusal, "request rejected");
        self.shared.counters.refused();
        text(StatusCode::FORBIDDEN, &refusal.to_string())
    }
}

fn serve_page(method: &Method, path: &str, headers: &HeaderMap) -> Response<Body> {
    if method != Method::GET && method != Method::HEAD {
        return text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed; use GET or HEAD");
    }
    let known = headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    page::serve(path, known)
}

fn text(status: StatusCode, message: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(message.to_owned()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
