//! Identifies a dispatch that a client repeats after a reconnect.
//!
//! The client's number alone does not identify it: official clients restart their numbers
//! with every connection. The mark therefore includes the text of the dispatch.

use super::super::frame::{Action, Origin};
use crate::channel::ChannelUri;

/// Offset basis and prime of the 64-bit FNV-1a hash. The hash must be the same in every
/// host that reads the same storage, which the hashers of the standard library do not
/// guarantee.
const START: u64 = 0xcbf2_9ce4_8422_2325;
const FACTOR: u64 = 0x0000_0100_0000_01b3;

/// A hash that identifies a dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DispatchMark(pub(crate) i64);

impl DispatchMark {
    /// The mark of a dispatch; `None` if the client does not track it, which it indicates
    /// with number 0.
    pub(super) fn of(channel: &ChannelUri, action: &Action, origin: &Origin) -> Option<Self> {
        if origin.client_seq == 0 {
            return None;
        }
        let text = action.encoded().ok()?;
        let parts =
            [&origin.client_seq.to_le_bytes()[..], channel.as_str().as_bytes(), text.get().as_bytes()];
        let hash = parts
            .into_iter()
            .flatten()
            .fold(START, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(FACTOR));
        Some(Self(hash.cast_signed()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ids::{ClientId, ConnectionId};

    fn mark(client_seq: i64, channel: &str, title: &str) -> Option<DispatchMark> {
        let action = json!({"type": "session/titleChanged", "title": title});
        let action = Action::from_client(serde_json::value::to_raw_value(&action).unwrap()).unwrap();
        let origin = Origin { connection: ConnectionId(1), client: ClientId::new("c"), client_seq };
        DispatchMark::of(&ChannelUri::new(channel), &action, &origin)
    }

    #[test]
    fn mark_depends_on_number_channel_and_content() {
        let one = mark(1, "a:/1", "x");
        assert!(one.is_some());
        assert_eq!(mark(1, "a:/1", "x"), one);
        for other in [mark(2, "a:/1", "x"), mark(1, "a:/2", "x"), mark(1, "a:/1", "y")] {
            assert!(other.is_some() && other != one);
        }
        assert_eq!(mark(0, "a:/1", "x"), None);
    }
}
