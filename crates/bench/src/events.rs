//! The events of a benchmark response, in the Anthropic stream format.
//!
//! Invariant: every delta has the same length regardless of its timestamp, so that the
//! length of a response follows from its number of events and a lost byte is detected.

use bytes::Bytes;

/// Number of events other than deltas: start and end of the message and of its only
/// block.
pub const FRAMING_EVENTS: u32 = 5;

/// Marks the start of a timestamp in a delta.
const MARK: u8 = b'@';

/// Digits of a timestamp: enough for all but the last centuries of 64-bit nanoseconds.
const DIGITS: usize = 19;

const OPENING: [&str; 2] = [
    concat!(
        "event: message_start\n",
        r#"data: {"type":"message_start","message":{"id":"msg_bench","type":"message","role":"assistant","#,
        r#""model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"#,
        r#""usage":{"input_tokens":9,"output_tokens":1}}}"#,
        "\n\n"
    ),
    concat!(
        "event: content_block_start\n",
        r#"data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        "\n\n"
    ),
];

const CLOSING: [&str; 3] = [
    concat!("event: content_block_stop\n", r#"data: {"type":"content_block_stop","index":0}"#, "\n\n"),
    concat!(
        "event: message_delta\n",
        r#"data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"#,
        r#""usage":{"output_tokens":2000}}"#,
        "\n\n"
    ),
    concat!("event: message_stop\n", r#"data: {"type":"message_stop"}"#, "\n\n"),
];

const DELTA_BEFORE: &str = concat!(
    "event: content_block_delta\n",
    r#"data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":""#,
);
const DELTA_AFTER: &str = concat!(" a few words more\"}}", "\n\n");

/// The event at a position in a response of `events` events; `delta` creates the deltas.
///
/// `None` after the last event. A response always contains its framing events.
pub fn event(position: u32, events: u32, delta: impl FnOnce() -> Bytes) -> Option<Bytes> {
    let position = usize::try_from(position).ok()?;
    let deltas = usize::try_from(events.saturating_sub(FRAMING_EVENTS)).ok()?;
    if let Some(opening) = OPENING.get(position) {
        return Some(Bytes::from_static(opening.as_bytes()));
    }
    let position = position.checked_sub(OPENING.len())?;
    if position < deltas {
        return Some(delta());
    }
    CLOSING.get(position.checked_sub(deltas)?).map(|closing| Bytes::from_static(closing.as_bytes()))
}

/// Creates a delta with a timestamp.
pub fn delta(stamp: u64) -> Bytes {
    Bytes::from(format!("{DELTA_BEFORE}{}{stamp:0DIGITS$}{DELTA_AFTER}", char::from(MARK)))
}

/// Length in bytes of a response of `events` events.
pub fn response_length(events: u32) -> u64 {
    let frame: usize = OPENING.iter().chain(&CLOSING).map(|event| event.len()).sum();
    let deltas = u64::from(events.saturating_sub(FRAMING_EVENTS));
    let delta = u64::try_from(delta(0).len()).unwrap_or(u64::MAX);
    deltas.saturating_mul(delta).saturating_add(u64::try_from(frame).unwrap_or(u64::MAX))
}

/// The timestamp of an event, if it contains one.
pub fn stamp_of(event: &[u8]) -> Option<u64> {
    let mark = memchr::memchr(MARK, event)?;
    let digits = event.get(mark.checked_add(1)?..)?.get(..DIGITS)?;
    digits.iter().try_fold(0_u64, |number, digit| {
        digit.is_ascii_digit().then(|| number.wrapping_mul(10).wrapping_add(u64::from(digit - b'0')))
    })
}

/// Whether an event is the last one of a complete response.
pub fn is_last(event: &[u8]) -> bool {
    // Deltas are the most frequent events, and their length excludes them without a
    // search.
    event.len() < DELTA_BEFORE.len() && memchr::memmem::find(event, b"message_stop").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_has_requested_events_and_bytes() {
        for events in [FRAMING_EVENTS, 6, 20, 2_000] {
            let response: Vec<Bytes> =
                (0..).map_while(|position| event(position, events, || delta(u64::from(position)))).collect();
            assert_eq!(response.len(), events as usize);
            let bytes: usize = response.iter().map(Bytes::len).sum();
            assert_eq!(bytes as u64, response_length(events));
            assert!(response.iter().rev().skip(1).all(|event| !is_last(event)));
            assert!(is_last(response.last().unwrap()));
        }
    }

    #[test]
    fn every_event_name_equals_its_data_type() {
        for position in 0..8 {
            let event = event(position, 8, || delta(7)).unwrap();
            let text = std::str::from_utf8(&event).unwrap();
            let (name, data) = text
                .strip_prefix("event: ")
                .and_then(|rest| rest.strip_suffix("\n\n"))
                .and_then(|rest| rest.split_once("\ndata: "))
                .unwrap();
            let data: serde_json::Value = serde_json::from_str(data).unwrap();
            assert_eq!(data["type"], name);
        }
    }

    #[test]
    fn stamp_of_reads_timestamp_of_delta_only() {
        for stamp in [0, 1, 9_999_999_999_999_999_999] {
            assert_eq!(stamp_of(&delta(stamp)), Some(stamp));
        }
        assert_eq!(stamp_of(OPENING[0].as_bytes()), None);
        assert_eq!(stamp_of(b"@12"), None);
        assert_eq!(stamp_of(b"@12345678901234x6789"), None);
    }
}
