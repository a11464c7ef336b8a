//! How a dispatch is known again that a client makes once more after it came back.
//!
//! By the client's number alone it is not: official clients begin to count anew with
//! every connection. So what it says counts too, as the text that came.

use super::frame::{Action, Origin};
use crate::channel::ChannelUri;

/// Start and factor of the 64-bit FNV-1a hash. It has to be the same in every host that
/// reads the same storage, which the standard library's hashes do not promise.
const START: u64 = 0xcbf2_9ce4_8422_2325;
const FACTOR: u64 = 0x0000_0100_0000_01b3;

/// What a dispatch is, compared with what its client dispatched before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// A new one, which is to be handled and is remembered from now on.
    New,
    /// One that is still on its way to where it is handled, and may not get there.
    UnderWay,
    /// One that will be answered, over this connection too.
    AnswerComes,
    /// One that was answered. The client may have missed it.
    Answered,
}

/// What a dispatch is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DispatchMark(pub(crate) i64);

impl DispatchMark {
    /// The mark of a dispatch; nothing for what its client does not track, and so
    /// numbers with 0 each time.
    pub(crate) fn of(channel: &ChannelUri, action: &Action, origin: &Origin) -> Option<Self> {
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
    fn a_dispatch_is_known_by_its_number_its_channel_and_what_it_says() {
        let one = mark(1, "a:/1", "x");
        assert!(one.is_some());
        assert_eq!(mark(1, "a:/1", "x"), one);
        for other in [mark(2, "a:/1", "x"), mark(1, "a:/2", "x"), mark(1, "a:/1", "y")] {
            assert!(other.is_some() && other != one);
        }
        assert_eq!(mark(0, "a:/1", "x"), None);
    }
}
