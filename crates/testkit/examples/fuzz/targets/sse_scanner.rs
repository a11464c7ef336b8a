//! The scanner that finds where events of a stream end, against a slow one that is plainly right.

use innkeeper_gateway::EventScanner;

use super::Target;
use super::stream_validator::{STREAM_WORDS, STREAMS};

pub(super) const TARGET: Target = Target {
    name: "sse-scanner",
    run: sse_scanner,
    seeds: || Ok(STREAMS.map(Vec::from).to_vec()),
    words: STREAM_WORDS,
};

/// However bytes are cut, events end in the same places, and these are the right ones.
///
/// The first byte says how long the pieces are.
fn sse_scanner(input: &[u8]) {
    let Some((first, stream)) = input.split_first() else { return };
    let length = usize::from(*first % 64) + 1;
    let expected = event_ends(stream);
    assert_eq!(scan([stream]), expected, "the scanner finds other ends than there are");
    assert_eq!(scan(stream.chunks(length)), expected, "pieces of {length} bytes change the ends");
}

/// Where the scanner finds ends of events, and whether the last event is whole.
fn scan<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<usize>, bool) {
    let mut scanner = EventScanner::default();
    let mut ends = Vec::new();
    let mut at = 0;
    for piece in pieces {
        let mut rest = piece;
        while let Some(length) = scanner.next_end(rest) {
            at += length;
            ends.push(at);
            assert!(ends.len() <= at, "more events than bytes");
            rest = rest.get(length..).unwrap_or_default();
        }
        at += rest.len();
    }
    (ends, scanner.ends_event())
}

/// The same, told slowly: an event ends with the line break of an empty line, and a carriage
/// return at the very end may be half of one.
fn event_ends(stream: &[u8]) -> (Vec<usize>, bool) {
    let mut ends = Vec::new();
    let mut rest = stream;
    while let Some(length) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
        let after = rest.get(length..).unwrap_or_default();
        if length == 0 && after == b"\r" {
            return (ends, true);
        }
        let line_break = if after.starts_with(b"\r\n") { 2 } else { 1 };
        rest = after.get(line_break..).unwrap_or_default();
        if length == 0 {
            ends.push(stream.len() - rest.len());
        }
    }
    (ends, false)
}
