//! How bytes come and go: one file per transport, and what they have in common.

pub(crate) mod drive;
pub(crate) mod lane;
pub(crate) mod stdio;
pub(crate) mod tcp;
pub(crate) mod unix;
pub(crate) mod ws;

use innkeeper_core::state::CloseReason;

/// What a client is told when its connection ends.
fn farewell(reason: CloseReason) -> &'static str {
    match reason {
        CloseReason::TooSlow => "the client does not read fast enough; reconnect",
        CloseReason::Shutdown => "the host is shutting down",
        CloseReason::ClientGone => "goodbye",
        CloseReason::NoCommonVersion => "no common protocol version",
        CloseReason::MessageTooLarge => "the message is larger than 16 MiB",
        CloseReason::TooMuchGarbage => "too many frames that are no JSON-RPC message",
        CloseReason::NoHandshake => "the client sent no initialize in time",
        CloseReason::StateLost => "a fault of the host's; come back and take what there is",
    }
}
