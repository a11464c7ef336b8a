//! A scripted HTTP server that records its requests.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::exchange::{self, After};
use super::http::{self, ReceivedRequest};
use super::reply::Reply;

/// Timeout for conditions in other tasks.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum number of recorded requests. The oldest are dropped, so that a long load does
/// not fill memory.
const MAX_RECORDED: usize = 20_000;

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The reply is being sent.
    Open,
    /// The reply was sent as scripted.
    Finished,
    /// The client disconnected before the end of the reply.
    Cancelled,
}

/// A recorded request.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    /// Request number, from zero.
    pub number: usize,
    /// Connection number, from zero.
    pub connection: usize,
    /// HTTP method.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Headers, with lower-case names.
    pub headers: Vec<(String, String)>,
    /// Request body.
    pub body: Vec<u8>,
    /// Current outcome.
    pub outcome: Outcome,
    /// Bytes of the reply body sent so far.
    pub sent: usize,
}

impl RecordedRequest {
    /// The path without its query.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON; null if it is not valid JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// Creates replies for requests without a script.
type Fallback = Box<dyn Fn(&RecordedRequest) -> Reply + Send + Sync>;

/// A scripted server on 127.0.0.1. Dropping it closes all connections.
pub struct FakeServer {
    address: SocketAddr,
    shared: Arc<FakeServerShared>,
    cancel: CancellationToken,
}

struct FakeServerShared {
    fallback: Fallback,
    state: Mutex<FakeServerState>,
    /// Change counter that waiters subscribe to.
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct FakeServerState {
    scripts: HashMap<String, VecDeque<Reply>>,
    requests: VecDeque<RecordedRequest>,
    next: usize,
    open_connections: usize,
    connections: usize,
}

impl FakeServer {
    /// Starts a server on a free port.
    pub async fn start(fallback: impl Fn(&RecordedRequest) -> Reply + Send + Sync + 'static) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("cannot listen on 127.0.0.1")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(FakeServerShared {
            fallback: Box::new(fallback),
            state: Mutex::default(),
            changes: watch::Sender::new(0),
        });
        let (cancel, tasks) = (CancellationToken::new(), TaskTracker::new());
        tasks.spawn(accept(listener, Arc::clone(&shared), cancel.clone(), tasks.clone()));
        Ok(Self { address, shared, cancel })
    }

    /// The base URL, without a trailing slash.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Scripts the reply to the next request for `path` without a script.
    pub fn script(&self, path: &str, reply: Reply) {
        self.shared.lock().scripts.entry(path.to_owned()).or_default().push_back(reply);
    }

    /// Removes the scripted replies that no request has received.
    pub fn clear_scripts(&self) {
        self.shared.lock().scripts.clear();
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.shared.lock().requests.iter().cloned().collect()
    }

    /// The requests for a path so far.
    pub fn requests_for(&self, path: &str) -> Vec<RecordedRequest> {
        let mut requests = self.requests();
        requests.retain(|request| request.path() == path);
        requests
    }

    /// Connections that are open now.
    pub fn open_connections(&self) -> usize {
        self.shared.lock().open_connections
    }

    /// Waits until the requests satisfy a condition; returns an error after a timeout.
    pub async fn wait_for(
        &self,
        what: &str,
        mut holds: impl FnMut(&[RecordedRequest]) -> bool,
    ) -> Result<Vec<RecordedRequest>> {
        self.wait(what, |server| Some(server.requests()).filter(|requests| holds(requests))).await
    }

    /// Waits until `look` returns a value; returns an error after a timeout.
    pub async fn wait<T>(&self, what: &str, mut look: impl FnMut(&Self) -> Option<T>) -> Result<T> {
        let mut changes = self.shared.changes.subscribe();
        let waiting = async {
            loop {
                if let Some(found) = look(self) {
                    return Ok(found);
                }
                changes.changed().await?;
            }
        };
        let found = tokio::time::timeout(TIMEOUT, waiting).await;
        found.with_context(|| format!("not within {TIMEOUT:?}: {what}; {:?}", self.requests()))?
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl fmt::Debug for FakeServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("FakeServer").field("address", &self.address).finish_non_exhaustive()
    }
}

impl FakeServerShared {
    fn lock(&self) -> MutexGuard<'_, FakeServerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut FakeServerState) -> T) -> T {
        let result = change(&mut self.lock());
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
        result
    }

    /// Records a request and selects its reply.
    fn begin(&self, connection: usize, request: &ReceivedRequest) -> (usize, Reply) {
        self.change(|state| {
            let number = state.next;
            state.next += 1;
            let recorded = RecordedRequest {
                number,
                connection,
                method: request.method.clone(),
                target: request.target.clone(),
                headers: request.headers.clone(),
                body: request.body.clone(),
                outcome: Outcome::Open,
                sent: 0,
            };
            let scripted = state.scripts.get_mut(recorded.path()).and_then(VecDeque::pop_front);
            let reply = scripted.unwrap_or_else(|| (self.fallback)(&recorded));
            if state.requests.len() == MAX_RECORDED {
                state.requests.pop_front();
            }
            state.requests.push_back(recorded);
            (number, reply)
        })
    }

    fn update(&self, number: usize, change: impl FnOnce(&mut RecordedRequest)) {
        self.change(|state| {
            if let Some(request) = state.requests.iter_mut().rev().find(|request| request.number == number) {
                change(request);
            }
        });
    }
}

async fn accept(
    listener: TcpListener,
    shared: Arc<FakeServerShared>,
    cancel: CancellationToken,
    tasks: TaskTracker,
) {
    loop {
        let accepted = tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((socket, _)) = accepted else { continue };
        let (shared, cancel) = (Arc::clone(&shared), cancel.clone());
        tasks.spawn(async move {
            let connection = shared.change(|state| {
                state.open_connections += 1;
                state.connections += 1;
                state.connections - 1
            });
            tokio::select! {
                biased;
                () = cancel.cancelled() => {}
                () = serve(socket, connection, &shared) => {}
            }
            shared.change(|state| state.open_connections -= 1);
        });
    }
}

/// Serves one connection until either side closes it.
async fn serve(mut socket: TcpStream, connection: usize, shared: &FakeServerShared) {
    // With Nagle's algorithm every second piece would wait for an acknowledgement.
    socket.set_nodelay(true).ok();
    while let Ok(Some(request)) = http::read_request(&mut socket).await {
        let (number, reply) = shared.begin(connection, &request);
        let sent = |count| shared.update(number, |request| request.sent += count);
        let result = exchange::send_reply(&mut socket, &request, &reply, sent).await;
        let outcome = if result.is_ok() { Outcome::Finished } else { Outcome::Cancelled };
        shared.update(number, |request| request.outcome = outcome);
        if !matches!(result, Ok(After::Keep)) {
            return;
        }
    }
}
