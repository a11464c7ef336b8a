//! AHP over WebSocket: one JSON-RPC message per text frame.

use std::pin::pin;
use std::sync::Arc;

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade};
use futures_util::stream::SplitSink;
use futures_util::{SinkExt, StreamExt, future};
use http::Response;
use innkeeper_core::state::{CloseReason, Frame};
use tokio::sync::OwnedSemaphorePermit;

use super::drive::{CLOSE_GRACE, FrameWriter, Handshake, Inbound, drive};
use crate::connection::ServerContext;
use crate::limits::MAX_MESSAGE;

/// Largest message that is read. A message between `MAX_MESSAGE` and this limit closes the
/// connection with a reason; a larger one drops it without a reason.
const MAX_READ: usize = 4 * MAX_MESSAGE;

/// Read buffer size. The WebSocket library zeroes a buffer of this size on every read; its
/// default is 32 times as large.
const READ_BUFFER: usize = 4 * 1024;

/// Upgrades an admitted request. The connection holds its slot until it ends.
pub(crate) fn upgrade(
    upgrade: WebSocketUpgrade,
    shared: Arc<ServerContext>,
    slot: OwnedSemaphorePermit,
) -> Response<axum::body::Body> {
    let tasks = shared.tasks.clone();
    upgrade.max_message_size(MAX_READ).max_frame_size(MAX_READ).read_buffer_size(READ_BUFFER).on_upgrade(
        move |socket| {
            tasks.track_future(async move {
                serve(socket, shared).await;
                drop(slot);
            })
        },
    )
}

async fn serve(socket: WebSocket, shared: Arc<ServerContext>) {
    let (mut sink, stream) = socket.split();
    let incoming = stream
        .take_while(|frame| future::ready(!matches!(frame, Ok(Message::Close(_)) | Err(_))))
        .filter_map(|frame| future::ready(frame.ok().map(inbound)));
    drive(shared, pin!(incoming), WebSocketWriter(&mut sink), Handshake::InTime).await;
    // Also flushes the response to the client's close frame. Fails if the client has
    // already disconnected.
    tokio::time::timeout(CLOSE_GRACE, sink.close()).await.ok();
}

fn inbound(frame: Message) -> Inbound {
    match frame {
        Message::Text(text) if text.len() > MAX_MESSAGE => Inbound::TooLarge,
        Message::Text(text) => Inbound::Text(text),
        Message::Binary(_) => Inbound::Unusable("send text frames, not binary ones"),
        Message::Ping(_) | Message::Pong(_) | Message::Close(_) => Inbound::Control,
    }
}

/// Writes frames as WebSocket messages.
struct WebSocketWriter<'a>(&'a mut SplitSink<WebSocket, Message>);

impl FrameWriter for WebSocketWriter<'_> {
    type Error = axum::Error;

    async fn write(&mut self, frames: Vec<Frame>) -> Result<(), axum::Error> {
        for frame in frames {
            let text = Utf8Bytes::try_from(frame.bytes().clone()).map_err(axum::Error::new)?;
            self.0.feed(Message::Text(text)).await?;
        }
        self.0.flush().await
    }

    async fn close(&mut self, reason: CloseReason) {
        // Fails if the client has already disconnected.
        self.0.send(Message::Close(Some(close_frame(reason)))).await.ok();
    }
}

fn close_frame(reason: CloseReason) -> CloseFrame {
    let code = match reason {
        CloseReason::TooSlow => 4003,
        CloseReason::Shutdown => 1001,
        CloseReason::ClientGone | CloseReason::NoCommonVersion => 1000,
        CloseReason::MessageTooLarge => 1009,
        CloseReason::TooMuchGarbage => 4002,
        CloseReason::NoHandshake => 4004,
        CloseReason::StateLost => 1011,
    };
    CloseFrame { code, reason: Utf8Bytes::from_static(super::close_message(reason)) }
}
