//! The text framing of server-sent events.
//!
//! Writes events; does not know which events there are. One event is one
//! `Bytes`, so that a stream that yields them keeps event and chunk the same.

use bytes::Bytes;
use serde::Serialize;

/// Encodes one event: its name, its JSON on a single line, a blank line.
///
/// JSON text holds no raw line break, so one `data:` line is always enough.
pub(crate) fn encode(name: &str, data: &impl Serialize) -> Result<Bytes, serde_json::Error> {
    let mut frame = Vec::with_capacity(FRAME_GUESS);
    frame.extend_from_slice(b"event: ");
    frame.extend_from_slice(name.as_bytes());
    frame.extend_from_slice(b"\ndata: ");
    serde_json::to_writer(&mut frame, data)?;
    frame.extend_from_slice(b"\n\n");
    Ok(frame.into())
}

/// A text delta with its framing is about 130 bytes; one allocation holds it.
const FRAME_GUESS: usize = 192;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_two_lines_and_a_blank_one() {
        let frame = encode("ping", &serde_json::json!({"type": "ping", "text": "a\nb"})).unwrap();
        assert_eq!(&frame[..], b"event: ping\ndata: {\"text\":\"a\\nb\",\"type\":\"ping\"}\n\n");
    }
}
