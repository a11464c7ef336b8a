//! One content block of a streamed answer, from its start to its stop.
//!
//! Owns what a block of each type starts with, takes and amounts to. Where a
//! block stands among the others is not its business. Types that are not
//! known here are let through with whatever they bring.

use serde_json::{Map, Value};

use super::excerpt;
use super::rule::Rule;

/// A rule that a block breaks, and how.
pub(super) type Fault = (Rule, String);

/// The types of blocks that are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Thinking,
    /// A tool call, whoever runs the tool.
    ToolCall,
    Compaction,
    /// All of it is in its start.
    Whole,
    Unknown,
}

/// How a delta of a known type is called and what it carries.
struct DeltaType {
    name: &'static str,
    fits: Kind,
    field: &'static str,
    carries: Carries,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Carries {
    Text,
    Object,
    /// Text, or nothing if there was nothing to say.
    OptionalText,
}

const DELTA_TYPES: [DeltaType; 6] = [
    DeltaType { name: "text_delta", fits: Kind::Text, field: "text", carries: Carries::Text },
    DeltaType { name: "citations_delta", fits: Kind::Text, field: "citation", carries: Carries::Object },
    DeltaType { name: "thinking_delta", fits: Kind::Thinking, field: "thinking", carries: Carries::Text },
    DeltaType { name: SIGNATURE, fits: Kind::Thinking, field: "signature", carries: Carries::Text },
    DeltaType {
        name: "input_json_delta",
        fits: Kind::ToolCall,
        field: "partial_json",
        carries: Carries::Text,
    },
    DeltaType {
        name: "compaction_delta",
        fits: Kind::Compaction,
        field: "content",
        carries: Carries::OptionalText,
    },
];

const SIGNATURE: &str = "signature_delta";

/// A block that was started and not yet stopped.
#[derive(Debug)]
pub(super) struct OpenBlock {
    pub(super) index: u64,
    /// The type as the stream spells it.
    pub(super) name: String,
    kind: Kind,
    /// Pieces of a tool's input so far.
    input: String,
    signed: bool,
}

/// What starting a block found.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) block: OpenBlock,
    pub(super) faults: Vec<Fault>,
    pub(super) note: Option<String>,
}

/// What a stopped block amounts to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stopped {
    Whole,
    /// A tool's input that is not an object.
    BadInput(String),
    /// A tool's input that lacks its end: right only if tokens ran out.
    CutInput(String),
    /// Thinking that no later request can bring back.
    Unsigned,
}

impl OpenBlock {
    /// Starts a block from its `content_block`.
    pub(super) fn start(index: u64, content: Option<&Value>) -> Started {
        let Some(content) = content.and_then(Value::as_object) else {
            let faults = vec![(Rule::BlockShape, "no content_block object".to_owned())];
            return Started { block: Self::new(index, String::new(), Kind::Unknown), faults, note: None };
        };
        let name = content.get("type").and_then(Value::as_str).unwrap_or_default();
        let kind = kind_of(name);
        let mut faults = Vec::new();
        if name.is_empty() {
            faults.push((Rule::BlockShape, "a content_block without a type".to_owned()));
        }
        faults.extend(shape_fault(name, content).map(|seen| (Rule::BlockShape, seen)));
        if kind == Kind::ToolCall {
            let input = content.get("input");
            if !input.and_then(Value::as_object).is_some_and(Map::is_empty) {
                let shown = input.map_or_else(|| "no input".to_owned(), |input| excerpt(&input.to_string()));
                faults.push((Rule::ToolInputInDeltas, format!("a {name} block that starts with {shown}")));
            }
        }
        let unknown = kind == Kind::Unknown && !name.is_empty();
        let note = unknown.then(|| format!("content block of an unknown type `{}`", excerpt(name)));
        let mut block = Self::new(index, excerpt(name), kind);
        block.signed = signature_at_start(content);
        Started { block, faults, note }
    }

    fn new(index: u64, name: String, kind: Kind) -> Self {
        Self { index, name, kind, input: String::new(), signed: false }
    }

    /// Whether the client has to run a tool.
    pub(super) fn is_client_tool(&self) -> bool {
        self.name == "tool_use"
    }

    /// Takes a `delta`; gives what is wrong with it, or a note if it is unknown.
    pub(super) fn delta(&mut self, delta: Option<&Value>) -> Result<Option<String>, Fault> {
        let delta = delta.and_then(Value::as_object);
        let name = delta.and_then(|delta| delta.get("type")).and_then(Value::as_str);
        let (Some(delta), Some(name)) = (delta, name) else {
            return Err((Rule::DeltaShape, "no delta object with a type".to_owned()));
        };
        let Some(known) = DELTA_TYPES.iter().find(|known| known.name == name) else {
            return Ok(Some(format!("delta of an unknown type `{}`", excerpt(name))));
        };
        if self.kind != Kind::Unknown && known.fits != self.kind {
            return Err((Rule::DeltaKind, format!("{name} in a block of type `{}`", self.name)));
        }
        let value = delta.get(known.field);
        let fits = match known.carries {
            Carries::Text => value.is_some_and(Value::is_string),
            Carries::Object => value.is_some_and(Value::is_object),
            Carries::OptionalText => value.is_none_or(|value| value.is_string() || value.is_null()),
        };
        if !fits {
            return Err((Rule::DeltaShape, format!("a {name} without `{}`", known.field)));
        }
        let text = value.and_then(Value::as_str).unwrap_or_default();
        match self.kind {
            Kind::ToolCall => self.input.push_str(text),
            Kind::Thinking if self.signed => {
                return Err((Rule::ThinkingOrder, format!("a {name} after the signature")));
            }
            Kind::Thinking => self.signed = name == SIGNATURE && !text.is_empty(),
            Kind::Text | Kind::Compaction | Kind::Whole | Kind::Unknown => {}
        }
        Ok(None)
    }

    /// Stops the block.
    pub(super) fn stop(self) -> Stopped {
        match self.kind {
            // No piece at all stands for an empty object.
            Kind::ToolCall if !self.input.is_empty() => judge_input(&self.input),
            Kind::Thinking if !self.signed => Stopped::Unsigned,
            Kind::Text | Kind::Thinking | Kind::ToolCall | Kind::Compaction | Kind::Whole | Kind::Unknown => {
                Stopped::Whole
            }
        }
    }
}

/// What a content block lacks, streamed or whole; nothing for unknown types.
pub(super) fn shape_fault(name: &str, content: &Map<String, Value>) -> Option<String> {
    let text = |field: &str| content.get(field).is_some_and(Value::is_string);
    let filled =
        |field: &str| content.get(field).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
    let lacking = match kind_of(name) {
        Kind::Text if !text("text") => "text",
        Kind::Thinking if !text("thinking") => "thinking",
        Kind::ToolCall if !filled("id") => "id",
        Kind::ToolCall if !filled("name") => "name",
        Kind::Whole if name == REDACTED && !filled("data") => "data",
        Kind::Whole if name != REDACTED && !filled("tool_use_id") => "tool_use_id",
        Kind::Text | Kind::Thinking | Kind::ToolCall | Kind::Compaction | Kind::Whole | Kind::Unknown => {
            return None;
        }
    };
    Some(format!("a {name} block without `{lacking}`"))
}

const REDACTED: &str = "redacted_thinking";

fn kind_of(name: &str) -> Kind {
    match name {
        "text" => Kind::Text,
        "thinking" => Kind::Thinking,
        "tool_use" | "server_tool_use" | "mcp_tool_use" => Kind::ToolCall,
        "compaction" => Kind::Compaction,
        REDACTED => Kind::Whole,
        _ if name.ends_with("_tool_result") => Kind::Whole,
        _ => Kind::Unknown,
    }
}

fn signature_at_start(content: &Map<String, Value>) -> bool {
    content.get("signature").and_then(Value::as_str).is_some_and(|signature| !signature.is_empty())
}

fn judge_input(input: &str) -> Stopped {
    match serde_json::from_str::<Value>(input) {
        Ok(Value::Object(_)) => Stopped::Whole,
        Ok(_) => Stopped::BadInput(format!("not an object: {}", excerpt(input))),
        Err(error) if error.is_eof() => Stopped::CutInput(format!("without an end: {}", excerpt(input))),
        Err(error) => Stopped::BadInput(format!("not JSON ({error}): {}", excerpt(input))),
    }
}
