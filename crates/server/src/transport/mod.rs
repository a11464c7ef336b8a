//! Transports, one file each, and the code that they share.

pub(crate) mod drive;
pub(crate) mod message_queue;
pub(crate) mod progress;
pub(crate) mod stdio;
pub(crate) mod tcp;
pub(crate) mod unix;
pub(crate) mod ws;

use innkeeper_core::state::CloseReason;

/// The message for a client when its connection is closed.
fn close_message(reason: CloseReason) -> &'static str {
    match reason {
        CloseReason::TooSlow => "the client reads too slowly; reconnect",
        CloseReason::Shutdown => "the host is shutting down",
        CloseReason::ClientGone => "connection closed",
        CloseReason::NoCommonVersion => "no common protocol version",
        CloseReason::MessageTooLarge => "the message is larger than 16 MiB",
        CloseReason::TooMuchGarbage => "too many frames that are not JSON-RPC messages",
        CloseReason::ProtocolViolation => "invalid WebSocket frame",
        CloseReason::InvalidText => "a text frame is not UTF-8",
        CloseReason::NoHandshake => "handshake timed out: no initialize or reconnect",
        CloseReason::StateLost => "internal error; reconnect for a fresh snapshot",
    }
}
