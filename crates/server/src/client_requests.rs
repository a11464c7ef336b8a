//! Requests from the host to clients, over the clients' connections.
//!
//! Assigns the request ids and matches responses to pending requests. A client may be
//! slow, silent or malicious, so each response has a timeout and a size limit, the number
//! of pending requests is limited, and all of them fail when the connection ends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use innkeeper_core::agent::BoxFuture;
use innkeeper_core::client_resources::{ClientQuestion, ClientResourceError, ClientResources};
use innkeeper_core::ids::{ClientId, ConnectionId};
use innkeeper_core::state::{Frame, Outbox};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use crate::rpc;

/// How long a client may take to respond; a user may have to grant permission first.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Largest accepted response.
const MAX_RESPONSE: usize = 16 * 1024 * 1024;

/// Pending requests per connection. Further ones are rejected.
const MAX_PENDING: usize = 32;

/// A client's response.
type ClientResponse = Result<Box<RawValue>, ClientResourceError>;

/// The connected clients, for requests from the host.
#[derive(Debug, Default)]
pub struct ClientConnections {
    /// Connections by client, the newest last: older ones are usually about to close.
    connections: Mutex<HashMap<ClientId, Vec<Arc<ClientRequests>>>>,
}

/// Pending requests of one connection.
#[derive(Debug)]
pub(crate) struct ClientRequests {
    connection: ConnectionId,
    outbox: Arc<Outbox>,
    table: Mutex<PendingTable>,
}

#[derive(Debug, Default)]
struct PendingTable {
    last_id: u64,
    pending: HashMap<u64, oneshot::Sender<ClientResponse>>,
    /// Whether the connection has ended.
    closed: bool,
}

/// Removes a pending request when dropped.
#[derive(Debug)]
struct RequestGuard {
    requests: Arc<ClientRequests>,
    id: u64,
}

impl ClientConnections {
    /// Registers a connection of a client.
    pub(crate) fn add(&self, client: &ClientId, requests: Arc<ClientRequests>) {
        lock(&self.connections).entry(client.clone()).or_default().push(requests);
    }

    /// Removes a client's connection; its pending requests fail.
    pub(crate) fn remove(&self, client: &ClientId, requests: &ClientRequests) {
        let mut connections = lock(&self.connections);
        if let Some(of_client) = connections.get_mut(client) {
            of_client.retain(|other| other.connection != requests.connection);
            if of_client.is_empty() {
                connections.remove(client);
            }
        }
        drop(connections);
        requests.close();
    }

    fn requests(&self, client: &ClientId) -> Option<Arc<ClientRequests>> {
        lock(&self.connections).get(client)?.last().cloned()
    }
}

impl ClientResources for ClientConnections {
    fn ask(&self, client: ClientId, request: ClientQuestion) -> BoxFuture<ClientResponse> {
        let requests = self.requests(&client);
        Box::pin(async move {
            let requests = requests.ok_or(ClientResourceError::Gone)?;
            let (guard, response) = requests.begin()?;
            let frame = encoded(guard.id, &request)
                .map_err(|error| ClientResourceError::Unreadable(error.to_string()))?;
            guard.requests.outbox.push(frame);
            match tokio::time::timeout(RESPONSE_TIMEOUT, response).await {
                Ok(Ok(response)) => response,
                Ok(Err(_)) => Err(ClientResourceError::Gone),
                Err(_) => Err(ClientResourceError::TimedOut),
            }
        })
    }
}

impl ClientRequests {
    pub(crate) fn new(connection: ConnectionId, outbox: Arc<Outbox>) -> Self {
        Self { connection, outbox, table: Mutex::default() }
    }

    /// Whether any request is pending.
    pub(crate) fn any_pending(&self) -> bool {
        !lock(&self.table).pending.is_empty()
    }

    /// Handles a client's response. A late or unexpected one is ignored.
    pub(crate) fn complete(&self, id: &RawValue, result: Option<&RawValue>, error: Option<&RawValue>) {
        let sender = id.get().parse().ok().and_then(|id: u64| lock(&self.table).pending.remove(&id));
        let Some(sender) = sender else {
            tracing::debug!(connection = %self.connection, id = %id, "ignoring response without a pending request");
            return;
        };
        let response = match (error, result) {
            (Some(error), _) => Err(client_error(error)),
            (None, Some(result)) if result.get().len() > MAX_RESPONSE => Err(ClientResourceError::TooLarge),
            (None, Some(result)) => Ok(result.to_owned()),
            (None, None) => Ok(RawValue::NULL.to_owned()),
        };
        // The caller may have timed out.
        sender.send(response).ok();
    }

    fn begin(
        self: &Arc<Self>,
    ) -> Result<(RequestGuard, oneshot::Receiver<ClientResponse>), ClientResourceError> {
        let mut table = lock(&self.table);
        if table.closed {
            return Err(ClientResourceError::Gone);
        }
        if table.pending.len() >= MAX_PENDING {
            return Err(ClientResourceError::Busy);
        }
        table.last_id += 1;
        let id = table.last_id;
        let (sender, receiver) = oneshot::channel();
        table.pending.insert(id, sender);
        Ok((RequestGuard { requests: Arc::clone(self), id }, receiver))
    }

    /// Fails all pending and later requests.
    pub(crate) fn close(&self) {
        let mut table = lock(&self.table);
        table.closed = true;
        table.pending.clear();
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        lock(&self.requests.table).pending.remove(&self.id);
    }
}

fn encoded(id: u64, request: &ClientQuestion) -> Result<Frame, serde_json::Error> {
    match request {
        ClientQuestion::Read(params) => rpc::request(id, "resourceRead", params),
        ClientQuestion::Write(params) => rpc::request(id, "resourceWrite", params),
        ClientQuestion::List(params) => rpc::request(id, "resourceList", params),
        ClientQuestion::Resolve(params) => rpc::request(id, "resourceResolve", params),
        ClientQuestion::Copy(params) => rpc::request(id, "resourceCopy", params),
        ClientQuestion::Move(params) => rpc::request(id, "resourceMove", params),
        ClientQuestion::Delete(params) => rpc::request(id, "resourceDelete", params),
        ClientQuestion::Mkdir(params) => rpc::request(id, "resourceMkdir", params),
        ClientQuestion::Request(params) => rpc::request(id, "resourceRequest", params),
    }
}

fn client_error(error: &RawValue) -> ClientResourceError {
    #[derive(Deserialize)]
    struct ClientErrorBody {
        #[serde(default)]
        code: i64,
        #[serde(default)]
        message: String,
    }
    match serde_json::from_str(error.get()) {
        Ok(ClientErrorBody { code, message }) => ClientResourceError::Refused { code, message },
        Err(error) => ClientResourceError::Unreadable(error.to_string()),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "client_requests_tests.rs"]
mod tests;
