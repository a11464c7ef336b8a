//! Listening, and what is served where.
//!
//! `/` is the socket for those who ask for an upgrade and the page for those who
//! do not; `/healthz` says that the host is there. The page's files need no
//! token: they contain nothing, and the socket does.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{RawQuery, Request, State};
use axum::routing::{any, get};
use axum::serve::{Listener, ListenerExt as _};
use http::header::{CONTENT_TYPE, IF_NONE_MATCH, UPGRADE};
use http::{HeaderMap, Method, Response, StatusCode};
use innkeeper_core::Host;
use innkeeper_core::files::Files;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission::{Admission, Refusal, check_host};
use crate::connection::Shared;
use crate::reverse::ClientConnections;
use crate::transport::unix::SocketFile;
use crate::{page, transport};

/// How long connections may take to end after they were told to.
const DRAIN: Duration = Duration::from_secs(3);

/// What a server needs to know.
#[derive(Debug)]
pub struct ServerConfig {
    /// Where to listen, all at once.
    pub listen: Vec<Listen>,
    /// Who may connect over TCP.
    pub admission: Admission,
    /// The version that clients are told.
    pub version: String,
    /// Where a client's folder picker starts: a `file:` address.
    pub default_directory: Option<String>,
    /// The files that clients may reach.
    pub files: Arc<dyn Files>,
    /// Where the clients that are connected can be asked for files of their own.
    pub clients: Arc<ClientConnections>,
}

/// A place to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A loopback address; port 0 takes any free one.
    Tcp(SocketAddr),
    /// A unix socket at this path, for its user alone; it needs no token.
    Unix(PathBuf),
}

impl fmt::Display for Listen {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(formatter),
            Self::Unix(path) => path.display().fmt(formatter),
        }
    }
}

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address would be reachable from other machines.
    #[error("{0} is not a loopback address; other machines must not reach the host without TLS")]
    NotLoopback(SocketAddr),
    /// The address cannot be had.
    #[error("cannot listen on {place}")]
    Listen {
        /// The place.
        place: Listen,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
}

/// A listening server.
#[derive(Debug)]
pub struct Server {
    /// Where it listens, with the ports that it got.
    places: Vec<Listen>,
    /// The files of its unix sockets.
    files: Vec<SocketFile>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

#[derive(Clone, Debug)]
struct Routes {
    shared: Arc<Shared>,
    /// What a connection must bring; nothing over a unix socket.
    admission: Option<Arc<Admission>>,
}

impl Server {
    /// Listens and accepts connections for a host, everywhere or nowhere.
    pub async fn start(config: ServerConfig, host: Arc<Host>) -> Result<Self, ServerError> {
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let shared = Arc::new(Shared {
            host,
            version: config.version,
            default_directory: config.default_directory,
            files: config.files,
            clients: config.clients,
            tasks: tasks.clone(),
            stop: stop.clone(),
        });
        let admission = Arc::new(config.admission);
        let mut server = Self { places: Vec::new(), files: Vec::new(), stop, tasks };
        for place in config.listen {
            match &place {
                Listen::Tcp(address) => server.listen_tcp(*address, &shared, &admission).await?,
                Listen::Unix(path) => {
                    let bound = transport::unix::bind(path).await;
                    let (listener, file) =
                        bound.map_err(|source| ServerError::Listen { place: place.clone(), source })?;
                    server.files.push(file);
                    server.serve(listener, Routes { shared: Arc::clone(&shared), admission: None });
                    server.places.push(place);
                }
            }
        }
        Ok(server)
    }

    async fn listen_tcp(
        &mut self,
        address: SocketAddr,
        shared: &Arc<Shared>,
        admission: &Arc<Admission>,
    ) -> Result<(), ServerError> {
        if !address.ip().is_loopback() {
            return Err(ServerError::NotLoopback(address));
        }
        let failed = |source| ServerError::Listen { place: Listen::Tcp(address), source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        self.places.push(Listen::Tcp(listener.local_addr().map_err(failed)?));
        // Small frames must not wait for more to come.
        let listener = listener.tap_io(|stream| {
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "TCP_NODELAY could not be set");
            }
        });
        self.serve(listener, Routes { shared: Arc::clone(shared), admission: Some(Arc::clone(admission)) });
        Ok(())
    }

    fn serve<L>(&self, listener: L, routes: Routes)
    where
        L: Listener,
        L::Addr: fmt::Debug,
    {
        let router = Router::new().route("/healthz", get(healthz)).fallback(any(root)).with_state(routes);
        let serve = axum::serve(listener, router).with_graceful_shutdown(self.stop.clone().cancelled_owned());
        self.tasks.spawn(async move {
            if let Err(error) = serve.await {
                tracing::error!(%error, "the server stopped");
            }
        });
    }

    /// Where it listens, with the ports that it got.
    pub fn places(&self) -> &[Listen] {
        &self.places
    }

    /// Accepts no connections any more; those that exist go on.
    pub fn stop_accepting(&self) {
        self.stop.cancel();
    }

    /// Waits for the connections to end, but not for long.
    pub async fn drain(&self) {
        self.stop.cancel();
        self.tasks.close();
        if tokio::time::timeout(DRAIN, self.tasks.wait()).await.is_err() {
            tracing::warn!("some connections did not end in time");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn healthz() -> &'static str {
    "ok"
}

async fn root(
    State(routes): State<Routes>,
    RawQuery(query): RawQuery,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
    request: Request,
) -> Response<Body> {
    let headers = request.headers();
    if headers.contains_key(UPGRADE) && request.uri().path() == "/" {
        let admitted = match &routes.admission {
            Some(admission) => admission.check_socket(headers, query.as_deref()),
            None => Ok(()),
        };
        return match (upgrade, admitted) {
            (_, Err(refusal)) => refused(refusal),
            (Ok(upgrade), Ok(())) => transport::ws::upgrade(upgrade, routes.shared),
            (Err(_), Ok(())) => text(StatusCode::BAD_REQUEST, "this address takes WebSocket upgrades only"),
        };
    }
    if routes.admission.is_some()
        && let Err(refusal) = check_host(headers)
    {
        return refused(refusal);
    }
    serve_page(request.method(), request.uri().path(), headers)
}

fn serve_page(method: &Method, path: &str, headers: &HeaderMap) -> Response<Body> {
    if method != Method::GET && method != Method::HEAD {
        return text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD");
    }
    let known = headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    page::serve(path, known)
}

fn refused(refusal: Refusal) -> Response<Body> {
    tracing::warn!(%refusal, "refused a request");
    text(StatusCode::FORBIDDEN, &refusal.to_string())
}

fn text(status: StatusCode, message: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(message.to_owned()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
