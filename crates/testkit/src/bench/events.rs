//! The events of a benchmark's answer, in Anthropic's stream grammar.
//!
//! Invariant: every delta has the same length, whatever its time stamp, so that the
//! length of an answer follows from its number of events and a lost byte shows.

use bytes::Bytes;

/// Events around the deltas: the message's start and end, and those of its one block.
pub const FRAME: u32 = 5;

/// What comes before a delta's time stamp.
const MARK: u8 = b'@';

/// Digits of a time stamp: enough for every nanosecond of 64 bits but the last centuries.
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

/// The event at a place of an answer of so many events; the deltas are the caller's.
///
/// `None` after the last one. An answer has at least its frame.
pub fn event(place: u32, events: u32, delta: impl FnOnce() -> Bytes) -> Option<Bytes> {
    let place = usize::try_from(place).ok()?;
    let deltas = usize::try_from(events.saturating_sub(FRAME)).ok()?;
    if let Some(opening) = OPENING.get(place) {
        return Some(Bytes::from_static(opening.as_bytes()));
    }
    let place = place.checked_sub(OPENING.len())?;
    if place < deltas {
        return Some(delta());
    }
    CLOSING.get(place.checked_sub(deltas)?).map(|closing| Bytes::from_static(closing.as_bytes()))
}

/// A delta that carries a time stamp.
pub fn delta(stamp: u64) -> Bytes {
    Bytes::from(format!("{DELTA_BEFORE}{}{stamp:0DIGITS$}{DELTA_AFTER}", char::from(MARK)))
}

/// The bytes of an answer of so many events.
pub fn answer_length(events: u32) -> u64 {
    let frame: usize = OPENING.iter().chain(&CLOSING).map(|event| event.len()).sum();
    let deltas = u64::from(events.saturating_sub(FRAME));
    let delta = u64::try_from(delta(0).len()).unwrap_or(u64::MAX);
    deltas.saturating_mul(delta).saturating_add(u64::try_from(frame).unwrap_or(u64::MAX))
}

/// The time stamp in an event's bytes, if it carries one.
pub fn stamp_of(event: &[u8]) -> Option<u64> {
    let mark = memchr::memchr(MARK, event)?;
    let digits = event.get(mark.checked_add(1)?..)?.get(..DIGITS)?;
    digits.iter().try_fold(0_u64, |number, digit| {
        digit.is_ascii_digit().then(|| number.wrapping_mul(10).wrapping_add(u64::from(digit - b'0')))
    })
}

/// Whether an event is the last one of a whole answer.
pub fn is_last(event: &[u8]) -> bool {
    // Only deltas are many, and the length tells them apart without looking for the word.
    event.len() < DELTA_BEFORE.len() && memchr::memmem::find(event, b"message_stop").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_the_events_and_the_bytes_it_was_asked_for() {
        for events in [FRAME, 6, 20, 2_000] {
            let answer: Vec<Bytes> =
                (0..).map_while(|place| event(place, events, || delta(u64::from(place)))).collect();
            assert_eq!(answer.len(), events as usize);
            let bytes: usize = answer.iter().map(Bytes::len).sum();
            assert_eq!(bytes as u64, answer_length(events));
            assert!(answer.iter().rev().skip(1).all(|event| !is_last(event)));
            assert!(is_last(answer.last().unwrap()));
        }
    }

    #[test]
    fn every_event_is_a_name_and_an_object_of_that_type() {
        for place in 0..8 {
            let event = event(place, 8, || delta(7)).unwrap();
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
    fn a_stamp_is_read_back_and_its_absence_is_seen() {
        for stamp in [0, 1, 9_999_999_999_999_999_999] {
            assert_eq!(stamp_of(&delta(stamp)), Some(stamp));
        }
        assert_eq!(stamp_of(OPENING[0].as_bytes()), None);
        assert_eq!(stamp_of(b"@12"), None);
        assert_eq!(stamp_of(b"@12345678901234x6789"), None);
    }
}
