//! The scanner for event boundaries, compared with a simple reference implementation.

use innkeeper_gateway::EventScanner;

use super::FuzzTarget;
use super::stream_validator::{STREAM_WORDS, STREAMS};

pub(super) const TARGET: FuzzTarget = FuzzTarget {
    name: "sse-scanner",
    run: sse_scanner,
    seeds: || Ok(STREAMS.map(Vec::from).to_vec()),
    words: STREAM_WORDS,
};

/// Event boundaries are correct and do not depend on how the input is split.
///
/// The first byte selects the size of the pieces.
fn sse_scanner(input: &[u8]) {
    let Some((first, stream)) = input.split_first() else { return };
    let length = usize::from(*first % 64) + 1;
    let expected = event_ends(stream);
    assert_eq!(scan([stream]), expected, "event ends differ from the reference implementation");
    assert_eq!(scan(stream.chunks(length)), expected, "pieces of {length} bytes change the ends");
}

/// The event ends that the scanner finds, and whether the input ends at an event
/// boundary.
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

/// Reference implementation: an event ends with the line break of an empty line, and a
/// carriage return at the very end may be the first half of a line break.
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
