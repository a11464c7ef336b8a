//! A connection at work: reader, lane and writer side by side, over any transport.
//!
//! A transport brings a stream of what came in and a way to write frames. Who ends
//! first ends the others: reading ends when the client is gone, writing also when
//! it has to go.

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

use super::lane;
use crate::connection::{Connection, Shared};
use crate::reverse::Line;
use crate::wire_log::Direction;

/// How long a client that is told to go may take to read the last frames.
pub(crate) const CLOSE_GRACE: Duration = Duration::from_secs(2);

/// Something that a transport read.
#[derive(Debug)]
pub(crate) enum Inbound {
    /// A message.
    Text(Utf8Bytes),
    /// Something that cannot be a message, and why.
    Unusable(&'static str),
    /// A frame of the transport's own, such as a ping of a WebSocket, which it answered
    /// itself. It only takes time.
    Nothing,
    /// A message that is larger than this host takes, after which the connection ends.
    TooLarge,
}

impl Inbound {
    /// Size of the message.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Unusable(_) | Self::Nothing | Self::TooLarge => 0,
        }
    }
}

/// The writing side of a transport. What is gathered into one write, and when it is
/// due, is the outbox's to say.
pub(crate) trait Outgoing: Send {
    /// Why writing failed.
    type Error: Display + Send;

    /// Writes frames with as few system calls as it can, and flushes.
    fn write(&mut self, frames: Vec<Frame>) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Tells the client that this is the end, if the transport can.
    fn close(&mut self, reason: CloseReason) -> impl Future<Output = ()> + Send;
}

/// Whether a client must say who it is before long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handshake {
    /// It must, since its place could be another's.
    InTime,
    /// It may take its time: nobody else could have its place.
    AnyTime,
}

/// What reader, lane and writer of a connection share.
#[derive(Debug)]
pub(crate) struct Link {
    pub(super) shared: Arc<Shared>,
    pub(super) outbox: Arc<Outbox>,
    pub(super) line: Arc<Line>,
    connection: ConnectionId,
}

impl Link {
    pub(super) fn to(connection: &Connection) -> Self {
        Self {
            shared: Arc::clone(&connection.shared),
            outbox: Arc::clone(&connection.outbox),
            line: Arc::clone(&connection.line),
            connection: connection.id,
        }
    }

    /// Writes a frame into the wire log, if there is one.
    pub(super) fn log(&self, direction: Direction, frame: impl FnOnce() -> Bytes) {
        if let Some(log) = &self.shared.wire_log {
            log.record(self.connection, direction, frame());
        }
    }
}

/// Serves one client from its first message to its last.
pub(crate) async fn drive(
    shared: Arc<Shared>,
    incoming: impl Stream<Item = Inbound> + Unpin,
    mut outgoing: impl Outgoing,
    handshake: Handshake,
) {
    let deadline = (handshake == Handshake::InTime).then(|| Instant::now() + shared.limits.handshake);
    let connection = Connection::open(shared);
    let link = Link::to(&connection);
    let (entry, queued) = lane::lane();
    {
        let mut writing = pin!(write(&mut outgoing, &link));
        let reading = async {
            tokio::join!(entry.read(incoming, &link), lane::handle(connection, queued, &link, deadline));
        };
        // Asked only when there is something for it: a client that is written to a thousand
        // times a second would otherwise be looked at for messages as often.
        let mut reading = FuturesUnordered::from_iter([reading]);
        let read_ended = tokio::select! {
            _ = reading.next() => true,
            () = &mut writing => false,
        };
        if read_ended {
            // Answers to what the client asked last still go out, if it reads them.
            link.outbox.close(CloseReason::ClientGone);
            tokio::time::timeout(CLOSE_GRACE, writing).await.ok();
        }
    }
    let reason = link.outbox.close_reason().unwrap_or(CloseReason::ClientGone);
    link.shared.counters.closed(reason);
    tracing::debug!(connection = %link.connection, ?reason, "a connection ended");
}

async fn write(outgoing: &mut impl Outgoing, link: &Link) {
    loop {
        match link.outbox.next_batch().await {
            Ok(frames) => {
                link.shared.counters.frames_out(frames.len());
                for frame in &frames {
                    link.log(Direction::Out, || frame.bytes().clone());
                }
                if let Err(error) = write_in_time(outgoing, frames, &link.outbox).await {
                    tracing::debug!(%error, "a client is gone");
                    return;
                }
            }
            Err(reason) => {
                // The client may be gone already; then there is nobody to tell.
                tokio::time::timeout(CLOSE_GRACE, outgoing.close(reason)).await.ok();
                return;
            }
        }
    }
}

/// Writes a batch, for as long as it takes; but a client that has to go gets little
/// time, since one that does not read at all would never go.
async fn write_in_time<W: Outgoing>(
    outgoing: &mut W,
    frames: Vec<Frame>,
    outbox: &Outbox,
) -> Result<(), String> {
    let mut writing = pin!(outgoing.write(frames));
    let written = tokio::select! {
        written = &mut writing => written,
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
