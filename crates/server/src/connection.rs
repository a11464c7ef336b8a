//! A client connection: its handshake and the in-order handling of its messages.
//!
//! Responses and envelopes share the connection's outbox, so they are sent in the order
//! in which they were queued. Only slow requests, such as disposing a session, are
//! answered out of order by a separate task.

use std::sync::Arc;

use innkeeper_core::Host;
use innkeeper_core::attachments::AttachmentSources;
use innkeeper_core::client_resources::ClientResources;
use innkeeper_core::files::Files;
use innkeeper_core::ids::{ClientId, ConnectionId};
use innkeeper_core::state::{CloseReason, Frame, Outbox, notification};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::client_requests::{ClientConnections, ClientRequests};
use crate::concurrent::ConcurrentRequests;
use crate::limits::{self, ServerLimits};
use crate::metrics::{Counters, UsageSource};
use crate::rpc::{self, Incoming, RpcError};
use crate::wire_log::WireLog;

/// Frames that are not JSON-RPC after which the connection is closed: the peer is not an
/// AHP client.
const MAX_GARBAGE: u32 = 16;

/// State shared by all connections of a server.
#[derive(Debug)]
pub(crate) struct ServerContext {
    /// The host that handles the requests.
    pub(crate) host: Arc<Host>,
    /// Version reported to clients.
    pub(crate) version: String,
    /// Start directory of a client's folder picker.
    pub(crate) default_directory: Option<String>,
    /// File access for clients.
    pub(crate) files: Arc<dyn Files>,
    /// Connected clients, for requests from the host.
    pub(crate) clients: Arc<ClientConnections>,
    /// Where attachments of clients' messages are read.
    pub(crate) attachments: AttachmentSources,
    /// Tasks that shutdown waits for.
    pub(crate) tasks: TaskTracker,
    /// Cancelled when the server stops.
    pub(crate) stop: CancellationToken,
    /// Limits on clients.
    pub(crate) limits: ServerLimits,
    /// Counters for `/metrics`.
    pub(crate) counters: Counters,
    /// The usage in `/metrics`.
    pub(crate) usage: Option<UsageSource>,
    /// Log of all frames.
    pub(crate) wire_log: Option<WireLog>,
    /// Free connection slots.
    pub(crate) connections: Arc<Semaphore>,
    /// Free watches of stored contents.
    pub(crate) content_watches: Arc<Semaphore>,
}

impl ServerContext {
    /// Where attachments of clients' messages are read.
    pub(crate) fn attachments(files: &Arc<dyn Files>, clients: &Arc<ClientConnections>) -> AttachmentSources {
        let clients = Arc::clone(clients) as Arc<dyn ClientResources>;
        AttachmentSources { files: Arc::clone(files), clients }
    }

    /// The watches of stored contents of all clients: as many as of files.
    pub(crate) fn content_watches() -> Arc<Semaphore> {
        Arc::new(Semaphore::new(256))
    }
}

#[cfg(test)]
impl ServerContext {
    /// Creates the state for a host without agents.
    pub(crate) async fn without_agents() -> Arc<Self> {
        use innkeeper_core::clock::SystemClock;
        use innkeeper_core::storage::Nowhere;
        use innkeeper_core::{AgentLifetimes, EditConfig, HostConfig, HostServices, PermissionConfig};
        use innkeeper_workspace::{FilesConfig, LocalFiles};
        let config = HostConfig {
            providers: Vec::new(),
            clock: Arc::new(SystemClock),
            storage: Arc::new(Nowhere),
            permissions: PermissionConfig::default(),
            edits: EditConfig::none(),
            lifetimes: AgentLifetimes::default(),
            services: HostServices::default(),
        };
        let host = Host::start(config).await.unwrap();
        let limits = ServerLimits::default();
        let files: Arc<dyn Files> = Arc::new(LocalFiles::new(FilesConfig::sessions_of(&host)));
        let clients = Arc::new(ClientConnections::default());
        Arc::new(Self {
            attachments: Self::attachments(&files, &clients),
            files,
            clients,
            stop: CancellationToken::new(),
            host,
            version: String::new(),
            default_directory: None,
            tasks: TaskTracker::new(),
            limits,
            counters: Counters::default(),
            usage: None,
            wire_log: None,
            connections: Arc::new(Semaphore::new(limits.connections)),
            content_watches: Self::content_watches(),
        })
    }
}

/// A connection from its acceptance to its end.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) shared: Arc<ServerContext>,
    pub(crate) id: ConnectionId,
    pub(crate) outbox: Arc<Outbox>,
    /// The client, after the handshake.
    pub(crate) client: Option<ClientId>,
    /// Requests that run concurrently.
    pub(crate) concurrent: ConcurrentRequests,
    /// Requests from the host to this client.
    pub(crate) client_requests: Arc<ClientRequests>,
    /// The client that `client_requests` is registered for.
    reachable_as: Option<ClientId>,
    garbage: u32,
}

impl Connection {
    /// Registers a new connection with the host.
    pub(crate) fn open(shared: Arc<ServerContext>) -> Self {
        let outbox = Arc::new(Outbox::default());
        let id = shared.host.store().attach(Arc::clone(&outbox));
        Self {
            concurrent: ConcurrentRequests::new(shared.tasks.clone(), Arc::clone(&outbox)),
            client_requests: Arc::new(ClientRequests::new(id, Arc::clone(&outbox))),
            shared,
            id,
            outbox,
            client: None,
            reachable_as: None,
            garbage: 0,
        }
    }

    /// Handles one message. Later messages of the connection wait for it.
    pub(crate) async fn receive(&mut self, text: &str) {
        let message = match Incoming::read(text) {
            Ok(message) => message,
            Err(error) if error.is_data() => {
                self.refuse_garbage(&RpcError::invalid_request("the message is not a JSON-RPC object"));
                return;
            }
            Err(error) => {
                self.refuse_garbage(&RpcError::parse(&error));
                return;
            }
        };
        if limits::too_deep(text) {
            let error = RpcError::invalid_request("the message is nested too deeply");
            match (message.id, &message.method) {
                (Some(id), Some(_)) => self.push(rpc::error_response(Some(id), &error)),
                // An id without a method is a response, which must not be answered.
                (_, None) | (None, _) => self.refuse_garbage(&error),
            }
            return;
        }
        let Some(method) = message.method.as_deref() else {
            match message.id {
                Some(id) => self.client_requests.complete(id, message.result, message.error),
                None => self.refuse_garbage(&RpcError::invalid_request("the message has no method")),
            }
            return;
        };
        match message.id {
            Some(id) => {
                if let Err(error) = self.request(method, id, message.params).await {
                    self.push(rpc::error_response(Some(id), &error));
                }
                self.become_reachable();
            }
            None => self.notification(method, message.params).await,
        }
    }

    /// After the handshake, registers the client for requests from the host.
    fn become_reachable(&mut self) {
        if let (Some(client), None) = (&self.client, &self.reachable_as) {
            self.shared.clients.add(client, Arc::clone(&self.client_requests));
            self.reachable_as = Some(client.clone());
        }
    }

    /// Answers a malformed frame, and closes the connection after too many of them.
    pub(crate) fn refuse_garbage(&mut self, error: &RpcError) {
        self.push(rpc::error_response(None, error));
        self.garbage += 1;
        if self.garbage >= MAX_GARBAGE {
            self.outbox.close(CloseReason::TooMuchGarbage);
        }
    }

    /// Queues a response.
    pub(crate) fn reply(&self, id: &RawValue, result: &impl Serialize) -> Result<(), RpcError> {
        self.outbox.push(rpc::response(id, result)?);
        Ok(())
    }

    /// Queues a notification for this connection only.
    pub(crate) fn notify(&self, method: &str, params: &impl Serialize) {
        self.push(notification(method, params));
    }

    fn push(&self, frame: Result<Frame, serde_json::Error>) {
        match frame {
            Ok(frame) => self.outbox.push(frame),
            Err(error) => tracing::error!(%error, "cannot encode response"),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(client) = &self.reachable_as {
            self.shared.clients.remove(client, &self.client_requests);
        }
        self.shared.host.store().detach(self.id);
        if let Some(client) = &self.client {
            self.shared.host.disconnected(client);
        }
    }
}
