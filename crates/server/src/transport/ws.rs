//! AHP over WebSocket: one JSON-RPC message a text frame.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use http::Response;
use innkeeper_core::state::{CloseReason, Frame, Outbox};

use crate::connection::{Connection, Shared};
use crate::rpc::RpcError;

/// Largest message that a client may send: an image or two in a prompt.
const MAX_MESSAGE: usize = 16 * 1024 * 1024;

/// Largest message that is read at all. A client that sends a little too much is
/// told so; whoever sends more than this is cut off in the middle.
const MAX_READ: usize = 4 * MAX_MESSAGE;

/// What is read at once. The library clears as much whenever it looks for something to
/// read, which is whenever something is written, too; its own choice is 32 times this.
const READ_BUFFER: usize = 4 * 1024;

/// How long a client that is told to go may take to read the last frames.
const CLOSE_GRACE: Duration = Duration::from_secs(2);

/// Takes over an admitted connection.
pub(crate) fn upgrade(upgrade: WebSocketUpgrade, shared: Arc<Shared>) -> Response<axum::body::Body> {
    let tasks = shared.tasks.clone();
    upgrade
        .max_message_size(MAX_READ)
        .max_frame_size(MAX_READ)
        .read_buffer_size(READ_BUFFER)
        .on_upgrade(move |socket| tasks.track_future(serve(socket, shared)))
}

async fn serve(socket: WebSocket, shared: Arc<Shared>) {
    let connection = Connection::open(shared);
    let outbox = Arc::clone(&connection.outbox);
    let (mut sink, stream) = socket.split();
    {
        let mut writing = pin!(write(&mut sink, &outbox));
        // Reading ends when the client is gone, writing also when it has to go.
        // Either ends the connection; the reader takes it out of the host.
        let read_ended = tokio::select! {
            () = read(stream, connection) => true,
            () = &mut writing => false,
        };
        if read_ended {
            // Answers to what the client asked last still go out, if it reads them.
            outbox.close(CloseReason::ClientGone);
            tokio::time::timeout(CLOSE_GRACE, writing).await.ok();
        }
    }
    // Also flushes the answer to a close of the client's. It may be gone already.
    tokio::time::timeout(CLOSE_GRACE, sink.close()).await.ok();
}

async fn read(mut stream: SplitStream<WebSocket>, mut connection: Connection) {
    while let Some(frame) = stream.next().await {
        match frame {
            Ok(Message::Text(text)) if text.len() > MAX_MESSAGE => {
                connection.outbox.close(CloseReason::MessageTooLarge);
            }
            Ok(Message::Text(text)) => connection.receive(text.as_str()).await,
            Ok(Message::Binary(_)) => {
                connection.refuse_garbage(&RpcError::invalid_request("send text frames, not binary ones"));
            }
            Ok(Message::Ping(_) | Message::Pong(_)) => {}
            Ok(Message::Close(_)) => return,
            Err(error) => {
                tracing::info!(connection = %connection.id, %error, "the connection broke");
                return;
            }
        }
    }
}

async fn write(sink: &mut SplitSink<WebSocket, Message>, outbox: &Outbox) {
    loop {
        match outbox.next_batch().await {
            Ok(frames) => {
                if let Err(error) = write_in_time(sink, frames, outbox).await {
                    tracing::debug!(%error, "a client is gone");
                    return;
                }
            }
            Err(reason) => {
                let close = Message::Close(Some(close_frame(reason)));
                // The client may be gone already; then there is nobody to tell.
                tokio::time::timeout(CLOSE_GRACE, sink.send(close)).await.ok();
                return;
            }
        }
    }
}

/// Writes a batch, for as long as it takes; but a client that has to go gets little
/// time, since one that does not read at all would never go.
async fn write_in_time(
    sink: &mut SplitSink<WebSocket, Message>,
    frames: Vec<Frame>,
    outbox: &Outbox,
) -> Result<(), axum::Error> {
    let mut writing = pin!(write_batch(sink, frames));
    tokio::select! {
        written = &mut writing => written,
        () = outbox.closing() => {
            tokio::time::timeout(CLOSE_GRACE, writing).await.unwrap_or_else(|late| Err(axum::Error::new(late)))
        }
    }
}

/// Writes everything that waits before it flushes once.
async fn write_batch(
    sink: &mut SplitSink<WebSocket, Message>,
    frames: Vec<Frame>,
) -> Result<(), axum::Error> {
    for frame in frames {
        let text = Utf8Bytes::try_from(frame.bytes().clone()).map_err(axum::Error::new)?;
        sink.feed(Message::Text(text)).await?;
    }
    sink.flush().await
}

fn close_frame(reason: CloseReason) -> CloseFrame {
    let (code, text) = match reason {
        CloseReason::TooSlow => (4003, "the client does not read fast enough; reconnect"),
        CloseReason::Shutdown => (1001, "the host is shutting down"),
        CloseReason::ClientGone => (1000, "goodbye"),
        CloseReason::NoCommonVersion => (1000, "no common protocol version"),
        CloseReason::MessageTooLarge => (1009, "the message is larger than 16 MiB"),
        CloseReason::TooMuchGarbage => (4002, "too many frames that are no JSON-RPC message"),
    };
    CloseFrame { code, reason: Utf8Bytes::from_static(text) }
}
