//! Runs a connection over any transport: its reader, message handler and writer.
//!
//! A transport supplies a stream of incoming messages and a [`FrameWriter`]. When either
//! direction ends, so does the other: reading ends when the client disconnects, writing
//! also when the host closes the connection.

use std::fmt::Display;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::Utf8Bytes;
use bytes::Bytes;
use futures_util::stream::FuturesUnordered;
use futures_util::{Stream, StreamExt as _};
use innkeeper_core::ids::ConnectionId;
use innkeeper_core::state::{CloseReason, Frame, Outbox};
use tokio::time::Instant;

use super::message_queue;
use super::progress::WriteProgress;
use crate::client_requests::ClientRequests;
use crate::connection::{Connection, ServerContext};
use crate::wire_log::Direction;

/// How long a client may take to read the last frames after the host closes the connection.
pub(crate) const CLOSE_GRACE: Duration = Duration::from_secs(2);

/// An item read by a transport.
#[derive(Debug)]
pub(crate) enum Inbound {
    /// A message.
    Text(Utf8Bytes),
    /// Data that cannot be a message, and why.
    Unusable(&'static str),
    /// A control frame that the transport has already answered, such as a WebSocket ping.
    /// Only counts toward the rate limit.
    Control,
    /// A violation of the protocol, after which the connection is closed.
    Fatal(CloseReason),
}

impl Inbound {
    /// Size of the message.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Unusable(_) | Self::Control | Self::Fatal(_) => 0,
        }
    }
}

/// The writing side of a transport. The outbox decides which frames are batched into one
/// write, and when.
pub(crate) trait FrameWriter: Send {
    /// A write error.
    type Error: Display + Send;

    /// Writes and flushes frames with as few system calls as possible.
    fn write(&mut self, frames: Vec<Frame>) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Counts what the client's socket accepts.
    fn progress(&self) -> WriteProgress;

    /// Sends the close reason to the client, if the transport supports it.
    fn close(&mut self, reason: CloseReason) -> impl Future<Output = ()> + Send;
}

/// Whether the AHP handshake has a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handshake {
    /// It has, because an idle connection takes a slot from other clients.
    InTime,
    /// It has not, because no other client can use this connection.
    AnyTime,
}

/// Handles shared by the reader, message handler and writer of a connection.
#[derive(Debug)]
pub(crate) struct ConnectionHandles {
    pub(super) shared: Arc<ServerContext>,
    pub(super) outbox: Arc<Outbox>,
    pub(super) client_requests: Arc<ClientRequests>,
    connection: ConnectionId,
}

impl ConnectionHandles {
    pub(super) fn to(connection: &Connection) -> Self {
        Self {
            shared: Arc::clone(&connection.shared),
            outbox: Arc::clone(&connection.outbox),
            client_requests: Arc::clone(&connection.client_requests),
            connection: connection.id,
        }
    }

    /// Writes a frame to the wire log, if enabled.
    pub(super) fn log(&self, direction: Direction, frame: impl FnOnce() -> Bytes) {
        if let Some(log) = &self.shared.wire_log {
            log.record(self.connection, direction, frame());
        }
    }
}

/// Serves one client until the connection ends.
pub(crate) async fn drive(
    shared: Arc<ServerContext>,
    incoming: impl Stream<Item = Inbound> + Unpin,
    mut outgoing: impl FrameWriter,
    handshake: Handshake,
) {
    let deadline = (handshake == Handshake::InTime).then(|| Instant::now() + shared.limits.handshake);
    let connection = Connection::open(shared);
    let handles = ConnectionHandles::to(&connection);
    let (reader, queued) = message_queue::create();
    {
        let mut writing = pin!(write(&mut outgoing, &handles));
        let reading = async {
            tokio::join!(
                reader.read(incoming, &handles),
                message_queue::handle(connection, queued, &handles, deadline)
            );
        };
        // `FuturesUnordered` polls the reader only when it is woken. Otherwise each of the
        // writer's wake-ups, up to a thousand per second, would also poll the reader.
        let mut reading = FuturesUnordered::from_iter([reading]);
        let read_ended = tokio::select! {
            _ = reading.next() => true,
            () = &mut writing => false,
        };
        if read_ended {
            // Send the remaining responses, if the client still reads.
            handles.outbox.close(CloseReason::ClientGone);
            tokio::time::timeout(CLOSE_GRACE, writing).await.ok();
        }
    }
    let reason = handles.outbox.close_reason().unwrap_or(CloseReason::ClientGone);
    handles.shared.counters.closed(reason);
    tracing::debug!(connection = %handles.connection, ?reason, "connection closed");
}

async fn write(outgoing: &mut impl FrameWriter, handles: &ConnectionHandles) {
    loop {
        match handles.outbox.next_batch().await {
            Ok(frames) => {
                handles.shared.counters.frames_out(frames.len());
                for frame in &frames {
                    handles.log(Direction::Out, || frame.bytes().clone());
                }
                if let Err(error) = write_in_time(outgoing, frames, &handles.outbox).await {
                    tracing::debug!(%error, "write failed");
                    return;
                }
            }
            Err(reason) => {
                // Fails if the client has already disconnected.
                tokio::time::timeout(CLOSE_GRACE, outgoing.close(reason)).await.ok();
                return;
            }
        }
    }
}

/// Writes a batch, as long as the client reads some of it from time to time. Once the
/// connection is closing there is a timeout for the rest.
async fn write_in_time<W: FrameWriter>(
    outgoing: &mut W,
    frames: Vec<Frame>,
    outbox: &Outbox,
) -> Result<(), String> {
    let progress = outgoing.progress();
    let mut writing = pin!(outgoing.write(frames));
    let written = tokio::select! {
        // A write that completes at once needs no timer.
        biased;
        written = &mut writing => written,
        () = progress.stalled() => {
            outbox.close(CloseReason::TooSlow);
            return Err("the client does not read".to_owned());
        }
        () = outbox.closing() => match tokio::time::timeout(CLOSE_GRACE, writing).await {
            Ok(written) => written,
            Err(late) => return Err(late.to_string()),
        },
    };
    written.map_err(|error| error.to_string())
}

#[cfg(test)]
#[path = "drive_tests.rs"]
mod tests;
