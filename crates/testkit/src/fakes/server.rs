//! A scripted HTTP server that notes what it is asked.

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
use super::reply::Reply;
use super::wire::{self, Request};

/// How long a test waits for something that another task does.
const PATIENCE: Duration = Duration::from_secs(20);

/// Requests noted; the oldest go first, so that a long load does not fill the memory.
const MAX_NOTED: usize = 20_000;

/// How a request went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is being answered.
    Open,
    /// The answer was given as scripted.
    Finished,
    /// The client left before.
    Cancelled,
}

/// A request as the fake saw it.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    /// Counts from zero.
    pub number: usize,
    /// Which connection it came on, counted from zero.
    pub connection: usize,
    /// The method.
    pub method: String,
    /// The path with its query.
    pub target: String,
    /// The headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// How it went so far.
    pub outcome: Outcome,
    /// Bytes of the answer's body given so far.
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

    /// The body as JSON; null if it is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// Answers what no script answers.
type Fallback = Box<dyn Fn(&RecordedRequest) -> Reply + Send + Sync>;

/// A scripted server on 127.0.0.1. Dropping it closes everything.
pub struct FakeServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    cancel: CancellationToken,
}

struct Shared {
    fallback: Fallback,
    state: Mutex<State>,
    /// Counts changes, for those who wait for one.
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    scripts: HashMap<String, VecDeque<Reply>>,
    requests: VecDeque<RecordedRequest>,
    next: usize,
    open_connections: usize,
    connections: usize,
}

impl FakeServer {
    /// Starts a server on a free port.
    pub async fn start(fallback: impl Fn(&RecordedRequest) -> Reply + Send + Sync + 'static) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("no free port")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            fallback: Box::new(fallback),
            state: Mutex::default(),
            changes: watch::Sender::new(0),
        });
        let (cancel, tasks) = (CancellationToken::new(), TaskTracker::new());
        tasks.spawn(accept(listener, Arc::clone(&shared), cancel.clone(), tasks.clone()));
        Ok(Self { address, shared, cancel })
    }

    /// Its address, without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Answers the next request for a path that has no script yet.
    pub fn script(&self, path: &str, reply: Reply) {
        self.shared.lock().scripts.entry(path.to_owned()).or_default().push_back(reply);
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

    /// Waits until the requests satisfy a condition, and fails if they never do.
    pub async fn wait_for(
        &self,
        what: &str,
        mut holds: impl FnMut(&[RecordedRequest]) -> bool,
    ) -> Result<Vec<RecordedRequest>> {
        self.wait(what, |server| Some(server.requests()).filter(|requests| holds(requests))).await
    }

    /// Waits until a condition on the server holds, and fails if it never does.
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
        let found = tokio::time::timeout(PATIENCE, waiting).await;
        found.with_context(|| format!("not within {PATIENCE:?}: {what}; {:?}", self.requests()))?
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

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.lock());
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
        result
    }

    /// Notes a request and finds its answer.
    fn begin(&self, connection: usize, request: &Request) -> (usize, Reply) {
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
            if state.requests.len() == MAX_NOTED {
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

async fn accept(listener: TcpListener, shared: Arc<Shared>, cancel: CancellationToken, tasks: TaskTracker) {
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

/// Serves one connection until either side ends it.
async fn serve(mut socket: TcpStream, connection: usize, shared: &Shared) {
    // Without this every second piece would wait for an acknowledgement.
    socket.set_nodelay(true).ok();
    while let Ok(Some(request)) = wire::read_request(&mut socket).await {
        let (number, reply) = shared.begin(connection, &request);
        let sent = |count| shared.update(number, |request| request.sent += count);
        let result = exchange::answer(&mut socket, &request, &reply, sent).await;
        let outcome = if result.is_ok() { Outcome::Finished } else { Outcome::Cancelled };
        shared.update(number, |request| request.outcome = outcome);
        if !matches!(result, Ok(After::Keep)) {
            return;
        }
    }
}
