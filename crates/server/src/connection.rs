//! One client's connection: its handshake, and the one lane in which its messages
//! are handled in order.
//!
//! Answers and envelopes share the connection's outbox, so what is queued first
//! arrives first. Only what takes long (the end of a session) is answered by a
//! task beside the lane.

use std::sync::Arc;

use innkeeper_core::Host;
use innkeeper_core::files::Files;
use innkeeper_core::ids::{ClientId, ConnectionId};
use innkeeper_core::state::{CloseReason, Frame, Outbox};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::beside::Beside;
use crate::limits::{self, ServerLimits};
use crate::metrics::Counters;
use crate::reverse::{ClientConnections, Line};
use crate::rpc::{self, Incoming, RpcError};
use crate::wire_log::WireLog;

/// Frames that are not JSON-RPC at all, after which a connection is closed: its
/// other end is no client.
const MAX_GARBAGE: u32 = 16;

/// What every connection of a server has in common.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The host behind the server.
    pub(crate) host: Arc<Host>,
    /// The version that clients are told.
    pub(crate) version: String,
    /// Where a client's folder picker starts.
    pub(crate) default_directory: Option<String>,
    /// The files that clients may reach.
    pub(crate) files: Arc<dyn Files>,
    /// The clients that can be asked.
    pub(crate) clients: Arc<ClientConnections>,
    /// Tasks that shutdown waits for.
    pub(crate) tasks: TaskTracker,
    /// Fires when the server stops.
    pub(crate) stop: CancellationToken,
    /// How much clients may have and send.
    pub(crate) limits: ServerLimits,
    /// What is counted as it happens.
    pub(crate) counters: Counters,
    /// Where all frames are written down.
    pub(crate) wire_log: Option<WireLog>,
    /// The places for sockets of clients.
    pub(crate) connections: Arc<Semaphore>,
}

#[cfg(test)]
impl Shared {
    /// What tests need that are about connections alone.
    pub(crate) async fn without_agents() -> Arc<Self> {
        use innkeeper_core::HostConfig;
        use innkeeper_core::clock::SystemClock;
        use innkeeper_core::storage::Nowhere;
        let config =
            HostConfig { providers: Vec::new(), clock: Arc::new(SystemClock), storage: Arc::new(Nowhere) };
        let host = Host::start(config).await.unwrap();
        let limits = ServerLimits::default();
        Arc::new(Self {
            files: Arc::new(innkeeper_testkit::files_of(&host)),
            clients: Arc::new(ClientConnections::default()),
            stop: CancellationToken::new(),
            host,
            version: String::new(),
            default_directory: None,
            tasks: TaskTracker::new(),
            limits,
            counters: Counters::default(),
            wire_log: None,
            connections: Arc::new(Semaphore::new(limits.connections)),
        })
    }
}

/// A connection, from its acceptance to its end.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) shared: Arc<Shared>,
    pub(crate) id: ConnectionId,
    pub(crate) outbox: Arc<Outbox>,
    /// Who is at the other end, once it said so.
    pub(crate) client: Option<ClientId>,
    /// What runs beside the lane.
    pub(crate) beside: Beside,
    /// What the client was asked.
    pub(crate) line: Arc<Line>,
    /// As whom the line is known.
    reachable_as: Option<ClientId>,
    garbage: u32,
}

impl Connection {
    /// Registers a new connection with the host.
    pub(crate) fn open(shared: Arc<Shared>) -> Self {
        let outbox = Arc::new(Outbox::default());
        let id = shared.host.store().attach(Arc::clone(&outbox));
        Self {
            beside: Beside::new(shared.tasks.clone(), Arc::clone(&outbox)),
            line: Arc::new(Line::new(id, Arc::clone(&outbox))),
            shared,
            id,
            outbox,
            client: None,
            reachable_as: None,
            garbage: 0,
        }
    }

    /// Handles one message. Waits only while the session that it is for is behind.
    pub(crate) async fn receive(&mut self, text: &str) {
        let message = match Incoming::read(text) {
            Ok(message) => message,
            Err(error) if error.is_data() => {
                self.refuse_garbage(&RpcError::invalid_request("the message is no JSON-RPC object"));
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
                // An id alone is one of ours, to which no answer belongs.
                (_, None) | (None, _) => self.refuse_garbage(&error),
            }
            return;
        }
        let Some(method) = message.method.as_deref() else {
            match message.id {
                Some(id) => self.line.answer(id, message.result, message.error),
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

    /// Once it is known who the client is, it can be asked.
    fn become_reachable(&mut self) {
        if let (Some(client), None) = (&self.client, &self.reachable_as) {
            self.shared.clients.add(client, Arc::clone(&self.line));
            self.reachable_as = Some(client.clone());
        }
    }

    /// Answers a frame that is no message, and closes a connection that sends many.
    pub(crate) fn refuse_garbage(&mut self, error: &RpcError) {
        self.push(rpc::error_response(None, error));
        self.garbage += 1;
        if self.garbage >= MAX_GARBAGE {
            self.outbox.close(CloseReason::TooMuchGarbage);
        }
    }

    /// Queues an answer.
    pub(crate) fn reply(&self, id: &RawValue, result: &impl Serialize) -> Result<(), RpcError> {
        self.outbox.push(rpc::response(id, result)?);
        Ok(())
    }

    fn push(&self, frame: Result<Frame, serde_json::Error>) {
        match frame {
            Ok(frame) => self.outbox.push(frame),
            Err(error) => tracing::error!(%error, "an answer could not be encoded"),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(client) = &self.reachable_as {
            self.shared.clients.remove(client, &self.line);
        }
        self.shared.host.store().detach(self.id);
        if let Some(client) = &self.client {
            self.shared.host.disconnected(client);
        }
    }
}
