//! The output of a runtime: split into lines, decoded, classified and encoded again.
//!
//! The first byte of an input selects the size of the pieces in which the rest arrives, the second byte the
//! maximum line length.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use innkeeper_claude::wire::{DecodeError, DecodedFrame, FrameDecoder, decode};
use innkeeper_claude::{Message, classify};
use serde_json::Value;
use serde_json::value::RawValue;

use super::FuzzTarget;

pub(super) const TARGET: FuzzTarget =
    FuzzTarget { name: "line-decoder", run: line_decoder, seeds: recorded_lines, words: WORDS };

/// Longer than any input.
const NO_LIMIT: usize = 1 << 20;

fn line_decoder(input: &[u8]) {
    let [piece, limit, stream @ ..] = input else { return };
    let piece = usize::from(*piece % 64) + 1;
    let limit = if limit.is_multiple_of(2) { NO_LIMIT } else { usize::from(*limit) * 8 };
    let arrived = frames([stream], limit, check);
    assert_eq!(arrived, lines(stream, limit), "lines differ from the reference implementation");
    assert_eq!(
        frames(stream.chunks(piece), limit, |_| ()),
        arrived,
        "pieces of {piece} bytes change the lines"
    );
}

/// The received lines, and the length of the unfinished line at the end; `None` if a line is too long.
type Arrived = (Vec<Vec<u8>>, Option<usize>);

fn frames<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    limit: usize,
    mut look: impl FnMut(&DecodedFrame),
) -> Arrived {
    let mut frames = FrameDecoder::new(limit);
    let mut lines = Vec::new();
    for piece in pieces {
        frames.buffer().extend_from_slice(piece);
        loop {
            match frames.next_frame() {
                Ok(Some(frame)) => {
                    look(&frame);
                    lines.push(frame.line.to_vec());
                }
                Ok(None) => break,
                Err(_) => return (lines, None),
            }
        }
    }
    (lines, Some(frames.unfinished()))
}

/// Reference implementation of [`frames`].
fn lines(stream: &[u8], limit: usize) -> Arrived {
    let mut pieces: Vec<&[u8]> = stream.split(|byte| *byte == b'\n').collect();
    let unfinished = pieces.pop().unwrap_or_default();
    let mut lines = Vec::new();
    for piece in pieces {
        if piece.len() > limit {
            return (lines, None);
        }
        if !piece.trim_ascii().is_empty() {
            lines.push(piece.to_vec());
        }
    }
    (lines, (unfinished.len() <= limit).then_some(unfinished.len()))
}

/// A line is a message exactly if it is a JSON object, and a message keeps every field of it.
fn check(frame: &DecodedFrame) {
    let Ok(text) = std::str::from_utf8(&frame.line) else {
        assert!(matches!(frame.message, Err(DecodeError::NotUtf8(_))), "{:?}", frame.message);
        return;
    };
    let text = text.trim();
    let is_object = serde_json::from_str::<&RawValue>(text).is_ok_and(|raw| raw.get().starts_with('{'));
    assert_eq!(frame.message.is_ok(), is_object, "{text}");
    let Ok(message) = &frame.message else { return };
    assert!(!classify(message).is_empty());
    let encoded = encode(message);
    // Some objects cannot be represented as a `Value`: out-of-range numbers, lone surrogates, deep nesting.
    if let Ok(value) = serde_json::from_str::<Value>(text) {
        let again: Result<Value, _> = serde_json::from_str(&encoded);
        assert_eq!(again.ok(), Some(value), "{text} is encoded as {encoded}");
    }
    let again = decode(encoded.as_bytes()).ok();
    let kind = again.as_ref().map(Message::kind);
    assert_eq!(kind, Some(message.kind()), "{text} is encoded as {encoded}");
    assert_eq!(again.as_ref().map(encode), Some(encoded), "encoding {text} twice gives different results");
}

fn encode(message: &Message) -> String {
    let encoded = serde_json::to_string(message);
    assert!(encoded.is_ok(), "cannot encode {message:?}");
    encoded.unwrap_or_default()
}

/// Recorded lines of both runtimes, one per shape, and a seed with several lines.
fn recorded_lines() -> io::Result<Vec<Vec<u8>>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings");
    let mut shapes = BTreeSet::new();
    let mut seeds = Vec::new();
    for version in ["0.2.112", "0.3.325"] {
        for scenario in sorted_entries(&root.join(version))? {
            let recorded = std::fs::read_to_string(scenario.join("wire.jsonl"))?;
            for line in recorded.lines() {
                let mut line: Value = serde_json::from_str(line)?;
                let is_output = line.get("dir").and_then(Value::as_str) == Some("cli->host");
                let frame = line.get_mut("msg").map(Value::take).unwrap_or_default();
                if is_output && shapes.insert(shape(&frame)) {
                    seeds.push(format!("\x3f\0{frame}\n").into_bytes());
                }
            }
        }
    }
    // Small pieces and limits, invalid lines, an incomplete line and a CRLF line break.
    seeds.push(
        b"\x04\x05{\"type\":\"keep_alive\"}\r\nnoise\n\n[1]\n\xff\xfe{}\n{\"type\":\"x\",\"a\":1}\n{\"ty"
            .to_vec(),
    );
    Ok(seeds)
}

fn sorted_entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut entries =
        std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    entries.sort();
    Ok(entries)
}

/// A string that describes the fields and kinds of a value, without its content.
fn shape(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::Bool(_) => "b".to_owned(),
        Value::Number(_) => "n".to_owned(),
        Value::String(_) => "s".to_owned(),
        Value::Array(items) => format!("[{}]", items.first().map(shape).unwrap_or_default()),
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| match value.as_str() {
                Some(kind) if key == "type" || key == "subtype" => format!("{key}={kind}"),
                _ => format!("{key}:{}", shape(value)),
            };
            format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(","))
        }
    }
}

const WORDS: &[&str] = &[
    "\n",
    "{\"type\":\"",
    "\"type\":",
    "\"subtype\":",
    "\"message\":",
    "\"content\":",
    "\"event\":",
    "\"delta\":",
    "\"request\":",
    "\"response\":",
    "\"usage\":",
    "\"uuid\":",
    "\"is_error\":",
    "\"index\":",
    "system",
    "stream_event",
    "assistant",
    "user",
    "result",
    "control_request",
    "control_response",
    "control_cancel_request",
    "keep_alive",
    "command_lifecycle",
    "rate_limit_event",
    "conversation_reset",
    "prompt_suggestion",
    "transcript_mirror",
    "tool_progress",
    "init",
    "status",
    "api_retry",
    "session_state_changed",
    "compact_boundary",
    "task_started",
    "task_notification",
    "hook_response",
    "can_use_tool",
    "hook_callback",
    "mcp_message",
    "elicitation",
    "text",
    "thinking",
    "tool_use",
    "tool_result",
    "message_start",
    "content_block_start",
    "content_block_delta",
    "message_delta",
    "text_delta",
    "input_json_delta",
    "null",
    "true",
    "false",
    "0",
    "-0",
    "1e999",
    "18446744073709551616",
    "0.5",
    "\"\"",
    "{}",
    "[]",
    "[[[[[[[[[[[[[[[[",
    "]]]]]]]]]]]]]]]]",
    "\\ud800",
    "\\u0000",
    "\\u0074",
    "\\\"",
];
