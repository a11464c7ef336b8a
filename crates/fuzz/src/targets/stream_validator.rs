//! The validator of complete streams.

use innkeeper_gateway_check::{StreamLimits, StreamValidator, StreamVerdict};

use super::FuzzTarget;

pub(super) const TARGET: FuzzTarget = FuzzTarget {
    name: "stream-validator",
    run: stream_validator,
    seeds: || Ok(STREAMS.map(Vec::from).to_vec()),
    words: STREAM_WORDS,
};

/// Limits small enough for short inputs to exceed.
const SMALL: StreamLimits = StreamLimits { event: 300, stream: 2000 };

/// The verdict does not depend on how the input is split, and only a complete message
/// passes.
///
/// The first byte selects the size of the pieces.
fn stream_validator(input: &[u8]) {
    let Some((first, stream)) = input.split_first() else { return };
    let length = usize::from(*first % 64) + 1;
    for limits in [StreamLimits::default(), SMALL] {
        let whole = judge(limits, [stream]);
        let pieces = judge(limits, stream.chunks(length));
        assert_eq!(whole, pieces, "pieces of {length} bytes change the verdict");
        if whole.is_ok() {
            for name in ["message_start", "message_delta", "message_stop"] {
                assert!(holds(stream, name), "a stream without {name} passes: {whole:?}");
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

pub(super) const STREAMS: [&str; 4] = [
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

pub(super) const STREAM_WORDS: &[&str] = &[
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
