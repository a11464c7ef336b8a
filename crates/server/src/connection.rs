//! One client's connection: its handshake, and the one lane in which its messages
//! are handled in order.
//!
//! Answers and envelopes share the connection's outbox, so what is queued first
//! arrives first. Only what takes long (the end of a session) is answered by a
//! task beside the lane.

use std::sync::Arc;

use innkeeper_core::Host;
use innkeeper_core::ids::{ClientId, ConnectionId};
use innkeeper_core::state::{CloseReason, Frame, Outbox};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::limits::{self, ServerLimits};
use crate::metrics::Counters;
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
    /// Tasks that shutdown waits for.
    pub(crate) tasks: TaskTracker,
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
    garbage: u32,
}

impl Connection {
    /// Registers a new connection with the host.
    pub(crate) fn open(shared: Arc<Shared>) -> Self {
        let outbox = Arc::new(Outbox::default());
        let id = shared.host.store().attach(Arc::clone(&outbox));
        Self { shared, id, outbox, client: None, garbage: 0 }
    }

    /// Handles one message. Waits only while the session that it is for is behind.
    pub(crate) async fn receive(&mut self, text: &str) {
        let message: Incoming<'_> = match serde_json::from_str(text) {
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
            match message.id {
                Some(id) => self.push(rpc::error_response(Some(id), &error)),
                None => self.refuse_garbage(&error),
            }
            return;
        }
        let Some(method) = message.method.as_deref() else {
            // The host asks nothing of clients yet, so an answer has no question.
            if message.id.is_none() {
                self.refuse_garbage(&RpcError::invalid_request("the message has no method"));
            }
            return;
        };
        match message.id {
            Some(id) => {
                if let Err(error) = self.request(method, id, message.params).await {
                    self.push(rpc::error_response(Some(id), &error));
                }
            }
            None => self.notification(method, message.params).await,
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
        self.shared.host.store().detach(self.id);
        if let Some(client) = &self.client {
            self.shared.host.disconnected(client);
        }
    }
}
