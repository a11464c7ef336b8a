//! One content block of a streamed response, from its start to its stop.
//!
//! Checks what a block of each type starts with and which deltas it accepts.
//! The order of blocks is checked in `grammar`. Unknown types are accepted
//! with any content.

use serde_json::{Map, Value};

use crate::excerpt::excerpt;
use crate::rule::Rule;

/// A violated rule, and the observed text.
pub(super) type Fault = (Rule, String);

/// The known types of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockKind {
    Text,
    Thinking,
    /// A tool call, run by the client or the server.
    ToolCall,
    Compaction,
    /// Complete in its start event.
    Whole,
    Unknown,
}

/// The name and content of a known delta type.
struct DeltaType {
    name: &'static str,
    fits: BlockKind,
    field: &'static str,
    carries: Carries,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Carries {
    Text,
    Object,
    /// Text, or null or missing if it is empty.
    OptionalText,
}

const DELTA_TYPES: [DeltaType; 6] = [
    DeltaType { name: "text_delta", fits: BlockKind::Text, field: "text", carries: Carries::Text },
    DeltaType { name: "citations_delta", fits: BlockKind::Text, field: "citation", carries: Carries::Object },
    DeltaType {
        name: "thinking_delta",
        fits: BlockKind::Thinking,
        field: "thinking",
        carries: Carries::Text,
    },
    DeltaType { name: SIGNATURE, fits: BlockKind::Thinking, field: "signature", carries: Carries::Text },
    DeltaType {
        name: "input_json_delta",
        fits: BlockKind::ToolCall,
        field: "partial_json",
        carries: Carries::Text,
    },
    DeltaType {
        name: "compaction_delta",
        fits: BlockKind::Compaction,
        field: "content",
        carries: Carries::OptionalText,
    },
];

const SIGNATURE: &str = "signature_delta";

/// A block that was started and not yet stopped.
#[derive(Debug)]
pub(super) struct OpenBlock {
    pub(super) index: u64,
    /// The type as in the stream.
    pub(super) name: String,
    kind: BlockKind,
    /// The tool input received so far.
    input: String,
    signed: bool,
}

/// The result of starting a block.
#[derive(Debug)]
pub(super) struct StartedBlock {
    pub(super) block: OpenBlock,
    pub(super) faults: Vec<Fault>,
    pub(super) note: Option<String>,
}

/// The result of stopping a block.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stopped {
    Whole,
    /// The tool input is not a JSON object.
    BadInput(String),
    /// The tool input is truncated; valid only if the token limit was reached.
    CutInput(String),
    /// Thinking without a signature, which cannot be sent back in later requests.
    Unsigned,
}

impl OpenBlock {
    /// Starts a block from its `content_block`.
    pub(super) fn start(index: u64, content: Option<&Value>) -> StartedBlock {
        let Some(content) = content.and_then(Value::as_object) else {
            let faults = vec![(Rule::BlockShape, "missing content_block object".to_owned())];
            return StartedBlock {
                block: Self::new(index, String::new(), BlockKind::Unknown),
                faults,
                note: None,
            };
        };
        let name = content.get("type").and_then(Value::as_str).unwrap_or_default();
        let kind = kind_of(name);
        let mut faults = Vec::new();
        if name.is_empty() {
            faults.push((Rule::BlockShape, "content_block without a type".to_owned()));
        }
        faults.extend(shape_fault(name, content).map(|seen| (Rule::BlockShape, seen)));
        if kind == BlockKind::ToolCall {
            let input = content.get("input");
            if !input.and_then(Value::as_object).is_some_and(Map::is_empty) {
                let shown = input.map_or_else(|| "no input".to_owned(), |input| excerpt(&input.to_string()));
                faults.push((Rule::ToolInputInDeltas, format!("{name} block starts with {shown}")));
            }
        }
        let unknown = kind == BlockKind::Unknown && !name.is_empty();
        let note = unknown.then(|| format!("content block of unknown type `{}`", excerpt(name)));
        let mut block = Self::new(index, excerpt(name), kind);
        block.signed = signature_at_start(content);
        StartedBlock { block, faults, note }
    }

    fn new(index: u64, name: String, kind: BlockKind) -> Self {
        Self { index, name, kind, input: String::new(), signed: false }
    }

    /// Whether this is a tool call that the client runs.
    pub(super) fn is_client_tool(&self) -> bool {
        self.name == "tool_use"
    }

    /// Processes a `delta`; returns a violation, or a note if its type is unknown.
    pub(super) fn delta(&mut self, delta: Option<&Value>) -> Result<Option<String>, Fault> {
        let delta = delta.and_then(Value::as_object);
        let name = delta.and_then(|delta| delta.get("type")).and_then(Value::as_str);
        let (Some(delta), Some(name)) = (delta, name) else {
            return Err((Rule::DeltaShape, "missing delta object with a type".to_owned()));
        };
        let Some(known) = DELTA_TYPES.iter().find(|known| known.name == name) else {
            return Ok(Some(format!("delta of unknown type `{}`", excerpt(name))));
        };
        if self.kind != BlockKind::Unknown && known.fits != self.kind {
            return Err((Rule::DeltaKind, format!("{name} in a block of type `{}`", self.name)));
        }
        let value = delta.get(known.field);
        let fits = match known.carries {
            Carries::Text => value.is_some_and(Value::is_string),
            Carries::Object => value.is_some_and(Value::is_object),
            Carries::OptionalText => value.is_none_or(|value| value.is_string() || value.is_null()),
        };
        if !fits {
            return Err((Rule::DeltaShape, format!("{name} without `{}`", known.field)));
        }
        let text = value.and_then(Value::as_str).unwrap_or_default();
        match self.kind {
            BlockKind::ToolCall => self.input.push_str(text),
            BlockKind::Thinking if self.signed => {
                return Err((Rule::ThinkingOrder, format!("{name} after the signature")));
            }
            BlockKind::Thinking => self.signed = name == SIGNATURE && !text.is_empty(),
            BlockKind::Text | BlockKind::Compaction | BlockKind::Whole | BlockKind::Unknown => {}
        }
        Ok(None)
    }

    /// Stops the block.
    pub(super) fn stop(self) -> Stopped {
        match self.kind {
            // No delta at all means an empty object.
            BlockKind::ToolCall if !self.input.is_empty() => judge_input(&self.input),
            BlockKind::Thinking if !self.signed => Stopped::Unsigned,
            BlockKind::Text
            | BlockKind::Thinking
            | BlockKind::ToolCall
            | BlockKind::Compaction
            | BlockKind::Whole
            | BlockKind::Unknown => Stopped::Whole,
        }
    }
}

/// The missing field of a content block, streamed or complete; `None` for unknown types.
pub(super) fn shape_fault(name: &str, content: &Map<String, Value>) -> Option<String> {
    let text = |field: &str| content.get(field).is_some_and(Value::is_string);
    let filled =
        |field: &str| content.get(field).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
    let lacking = match kind_of(name) {
        BlockKind::Text if !text("text") => "text",
        BlockKind::Thinking if !text("thinking") => "thinking",
        BlockKind::ToolCall if !filled("id") => "id",
        BlockKind::ToolCall if !filled("name") => "name",
        BlockKind::Whole if name == REDACTED && !filled("data") => "data",
        BlockKind::Whole if name != REDACTED && !filled("tool_use_id") => "tool_use_id",
        BlockKind::Text
        | BlockKind::Thinking
        | BlockKind::ToolCall
        | BlockKind::Compaction
        | BlockKind::Whole
        | BlockKind::Unknown => {
            return None;
        }
    };
    Some(format!("{name} block without `{lacking}`"))
}

const REDACTED: &str = "redacted_thinking";

fn kind_of(name: &str) -> BlockKind {
    match name {
        "text" => BlockKind::Text,
        "thinking" => BlockKind::Thinking,
        "tool_use" | "server_tool_use" | "mcp_tool_use" => BlockKind::ToolCall,
        "compaction" => BlockKind::Compaction,
        REDACTED => BlockKind::Whole,
        _ if name.ends_with("_tool_result") => BlockKind::Whole,
        _ => BlockKind::Unknown,
    }
}

fn signature_at_start(content: &Map<String, Value>) -> bool {
    content.get("signature").and_then(Value::as_str).is_some_and(|signature| !signature.is_empty())
}

fn judge_input(input: &str) -> Stopped {
    match serde_json::from_str::<Value>(input) {
        Ok(Value::Object(_)) => Stopped::Whole,
        Ok(_) => Stopped::BadInput(format!("not an object: {}", excerpt(input))),
        Err(error) if error.is_eof() => Stopped::CutInput(format!("truncated: {}", excerpt(input))),
        Err(error) => Stopped::BadInput(format!("not JSON ({error}): {}", excerpt(input))),
    }
}
