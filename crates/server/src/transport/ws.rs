//! AHP over WebSocket: one JSON-RPC message per text frame.

use std::pin::pin;
use std::sync::Arc;

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade};
use futures_util::stream::SplitSink;
use futures_util::{SinkExt, StreamExt, future};
use http::Response;
use innkeeper_core::state::{CloseReason, Frame};
use tokio::sync::OwnedSemaphorePermit;
use tokio_tungstenite::tungstenite::{self, error::ProtocolError};

use super::drive::{CLOSE_GRACE, FrameWriter, Handshake, Inbound, drive};
use super::progress::WriteProgress;
use crate::connection::ServerContext;
use crate::limits::MAX_MESSAGE;

/// Largest message that is read completely. A larger one closes the connection before it
/// has arrived, so that the client may not receive the close frame.
const MAX_READ: usize = 4 * MAX_MESSAGE;

/// Read buffer size. The WebSocket library zeroes a buffer of this size on every read; its
/// default is 32 times as large.
const READ_BUFFER: usize = 4 * 1024;

/// Upgrades an admitted request. The connection holds its slot until it ends.
pub(crate) fn upgrade(
    upgrade: WebSocketUpgrade,
    shared: Arc<ServerContext>,
    slot: OwnedSemaphorePermit,
    progress: WriteProgress,
) -> Response<axum::body::Body> {
    let tasks = shared.tasks.clone();
    upgrade.max_message_size(MAX_READ).max_frame_size(MAX_READ).read_buffer_size(READ_BUFFER).on_upgrade(
        move |socket| {
            tasks.track_future(async move {
                serve(socket, shared, progress).await;
                drop(slot);
            })
        },
    )
}

async fn serve(socket: WebSocket, shared: Arc<ServerContext>, progress: WriteProgress) {
    let (mut sink, stream) = socket.split();
    // The stream ends after an error.
    let incoming = stream.map(inbound).take_while(|message| future::ready(message.is_some()));
    let incoming = incoming.filter_map(future::ready);
    let writer = WebSocketWriter { sink: &mut sink, progress };
    drive(shared, pin!(incoming), writer, Handshake::InTime).await;
    // Also flushes the response to the client's close frame. Fails if the client has
    // already disconnected.
    tokio::time::timeout(CLOSE_GRACE, sink.close()).await.ok();
}

/// Converts a frame; `None` if the client has closed the connection.
fn inbound(frame: Result<Message, axum::Error>) -> Option<Inbound> {
    Some(match frame {
        Ok(Message::Text(text)) if text.len() > MAX_MESSAGE => Inbound::Fatal(CloseReason::MessageTooLarge),
        Ok(Message::Text(text)) => Inbound::Text(text),
        Ok(Message::Binary(_)) => Inbound::Unusable("send text frames, not binary ones"),
        Ok(Message::Ping(_) | Message::Pong(_)) => Inbound::Control,
        Ok(Message::Close(_)) => return None,
        Err(error) => Inbound::Fatal(violation(error)?),
    })
}

/// The reason to close the connection after a read error; `None` if it is already closed.
fn violation(error: axum::Error) -> Option<CloseReason> {
    let error = error.into_inner().downcast::<tungstenite::Error>().ok()?;
    #[expect(clippy::wildcard_enum_match_arm, reason = "the others say that the connection is closed")]
    match *error {
        tungstenite::Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => None,
        tungstenite::Error::Protocol(_) => Some(CloseReason::ProtocolViolation),
        tungstenite::Error::Utf8(_) => Some(CloseReason::InvalidText),
        tungstenite::Error::Capacity(_) => Some(CloseReason::MessageTooLarge),
        _ => None,
    }
}

/// Writes frames as WebSocket messages.
struct WebSocketWriter<'a> {
    sink: &'a mut SplitSink<WebSocket, Message>,
    progress: WriteProgress,
}

impl FrameWriter for WebSocketWriter<'_> {
    type Error = axum::Error;

    async fn write(&mut self, frames: Vec<Frame>) -> Result<(), axum::Error> {
        for frame in frames {
            let text = Utf8Bytes::try_from(frame.bytes().clone()).map_err(axum::Error::new)?;
            self.sink.feed(Message::Text(text)).await?;
        }
        self.sink.flush().await
    }

    fn progress(&self) -> WriteProgress {
        self.progress.clone()
    }

    async fn close(&mut self, reason: CloseReason) {
        // Fails if the client has already disconnected.
        self.sink.send(Message::Close(Some(close_frame(reason)))).await.ok();
    }
}

fn close_frame(reason: CloseReason) -> CloseFrame {
    let code = match reason {
        CloseReason::TooSlow => 4003,
        CloseReason::Shutdown => 1001,
        CloseReason::ClientGone => 1000,
        CloseReason::ProtocolViolation | CloseReason::NoCommonVersion => 1002,
        CloseReason::InvalidText => 1007,
        CloseReason::MessageTooLarge => 1009,
        CloseReason::TooMuchGarbage => 4002,
        CloseReason::NoHandshake => 4004,
        CloseReason::StateLost => 1011,
    };
    CloseFrame { code, reason: Utf8Bytes::from_static(super::close_message(reason)) }
}
