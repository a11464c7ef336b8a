//! What is fuzzed.
//!
//! Each target is a function of bytes that panics if a property does not
//! hold, with inputs to start from and words to build new ones of.

use innkeeper_gateway::check::{StreamLimits, StreamValidator, StreamVerdict};
use innkeeper_gateway::{EventScanner, ModelId};

/// One thing to fuzz.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) name: &'static str,
    /// Runs one input and panics if the target does not hold.
    pub(crate) run: fn(&[u8]),
    /// Inputs to start from.
    seeds: &'static [&'static str],
    /// Words that the target knows.
    pub(crate) words: &'static [&'static str],
}

impl Target {
    /// The inputs to start from; never none.
    pub(crate) fn seeds(&self) -> Vec<Vec<u8>> {
        let seeds = self.seeds.iter().map(|seed| seed.as_bytes().to_vec());
        seeds.chain([Vec::new()]).collect()
    }
}

/// Every target.
pub(crate) const TARGETS: &[Target] = &[
    Target { name: "sse-scanner", run: sse_scanner, seeds: STREAMS, words: STREAM_WORDS },
    Target { name: "stream-validator", run: stream_validator, seeds: STREAMS, words: STREAM_WORDS },
    Target { name: "model-id", run: model_id, seeds: MODELS, words: MODEL_WORDS },
];

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

/// An id that is understood is spelled in ways that are understood as the same model.
fn model_id(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let Some(id) = ModelId::parse(&text) else { return };
    let forms = (id.client_form(), id.endpoint_form());
    for form in [&forms.0, &forms.1] {
        let again = ModelId::parse(form).map(|id| (id.client_form(), id.endpoint_form()));
        assert_eq!(again.as_ref(), Some(&forms), "{text:?} is spelled {form:?}");
    }
}

/// Limits that short inputs can reach.
const SMALL: StreamLimits = StreamLimits { event: 300, stream: 2000 };

/// However bytes are cut, the verdict is the same, and only a whole message passes.
///
/// The first byte says how long the pieces are.
fn stream_validator(input: &[u8]) {
    let Some((first, stream)) = input.split_first() else { return };
    let length = usize::from(*first % 64) + 1;
    for limits in [StreamLimits::default(), SMALL] {
        let whole = judge(limits, [stream]);
        let pieces = judge(limits, stream.chunks(length));
        assert_eq!(whole, pieces, "pieces of {length} bytes change the verdict");
        if whole.is_ok() {
            for name in ["message_start", "message_delta", "message_stop"] {
                assert!(holds(stream, name), "an answer without {name} passes: {whole:?}");
            }
        }
    }
}

fn judge<'a>(limits: StreamLimits, pieces: impl IntoIterator<Item = &'a [u8]>) -> StreamVerdict {
    let mut validator = StreamValidator::new(limits);
    for piece in pieces {
        validator.feed(piece);
    }
    validator.finish()
}

fn holds(bytes: &[u8], word: &str) -> bool {
    bytes.windows(word.len()).any(|window| window == word.as_bytes())
}

const STREAMS: &[&str] = &[
    "7event: message_start
data: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"type\":\"message\",\"role\":\"assistant\",\
\"model\":\"a\",\"content\":[],\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}}

event: ping
data: {\"type\":\"ping\"}

event: content_block_start
data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\"}}

event: content_block_delta
data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"hm\"}}

event: content_block_delta
data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"signature_delta\",\"signature\":\"s\"}}

event: content_block_stop
data: {\"type\":\"content_block_stop\",\"index\":0}

event: content_block_start
data: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"tool_use\",\"id\":\"t\",\
\"name\":\"n\",\"input\":{}}}

event: content_block_delta
data: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\
\"partial_json\":\"{}\"}}

event: content_block_stop
data: {\"type\":\"content_block_stop\",\"index\":1}

event: message_delta
data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"},\"usage\":{\"output_tokens\":9}}

event: message_stop
data: {\"type\":\"message_stop\"}

",
    "\x01event: message_start\r\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"type\":\"message\",\
\"role\":\"assistant\",\"model\":\"a\",\"content\":[],\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}}\r\n\r\n\
event: error\r\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"no\"}}\r\n\r\n",
    "\x20event: message_start
data: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"type\":\"message\",\"role\":\"assistant\",\
\"model\":\"a\",\"content\":[],\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}}

event: content_block_start
data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}

event: content_block_delta
data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"hello\"}}

event: content_block_stop
data: {\"type\":\"content_block_stop\",\"index\":0}

event: content_block_start
data: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"redacted_thinking\",\
\"data\":\"x\"}}

event: content_block_stop
data: {\"type\":\"content_block_stop\",\"index\":1}

event: content_block_start
data: {\"type\":\"content_block_start\",\"index\":2,\"content_block\":{\"type\":\"compaction\"}}

event: content_block_delta
data: {\"type\":\"content_block_delta\",\"index\":2,\"delta\":{\"type\":\"compaction_delta\",\
\"content\":\"x\"}}

event: content_block_stop
data: {\"type\":\"content_block_stop\",\"index\":2}

event: message_delta
data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":9}}

event: message_stop
data: {\"type\":\"message_stop\"}

",
    "\x02\u{feff}: comment\nid: 1\nretry: 2\ndata: [DONE]\n\ndata\n\nevent: ping\n\n",
];

const STREAM_WORDS: &[&str] = &[
    "event: ",
    "data: ",
    "\n\n",
    "\r\n\r\n",
    "\"type\":",
    "message_start",
    "message_delta",
    "message_stop",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "ping",
    "error",
    "\"index\":",
    "\"text\"",
    "\"thinking\"",
    "redacted_thinking",
    "tool_use",
    "server_tool_use",
    "web_search_tool_result",
    "text_delta",
    "thinking_delta",
    "signature_delta",
    "input_json_delta",
    "citations_delta",
    "compaction",
    "stop_reason",
    "end_turn",
    "max_tokens",
    "usage",
    "output_tokens",
    "18446744073709551615",
    "-1",
    "1e9",
    "null",
    "\\ud800",
    "\\u0000",
];

const MODELS: &[&str] = &[
    "claude-opus-4-6",
    "claude-opus-4.6-1m",
    "claude-sonnet-4-5-20250929[1m]",
    "claude-3.7-sonnet-thought",
    "claude-3-opus",
    "Sonnet",
];

const MODEL_WORDS: &[&str] = &[
    "claude-",
    "opus",
    "sonnet",
    "haiku",
    "-",
    ".",
    "[1m]",
    "-1m",
    "1m",
    "4",
    "4.6",
    "4-6",
    "3-5-",
    "-20250929",
    "-high",
    "-thought",
    "default",
    "_",
    " ",
    "\u{a0}",
];
