//! Converts the results of tool calls: text, images, documents, resources, structured content.
//!
//! What the runtime adds for the model only (markup of errors, reminders, notes about stored
//! output) is removed. Core moves large content out of the document.

use ahp_types::common::JsonObject;
use ahp_types::state::{
    FileEdit, ToolResultContent, ToolResultEmbeddedResourceContent, ToolResultFileEditContent,
    ToolResultResourceContent, ToolResultTextContent,
};
use innkeeper_claude::wire::content::{ContentBlock, MessageContent, ToolResultBlock};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::description::mcp_names;
use super::edits::is_edit;

/// Longest text, in characters, inside of structured content; it is a copy of other content.
const STRUCTURED_TEXT: usize = 1000;

/// Most elements of a list in structured content.
const STRUCTURED_ITEMS: usize = 50;

/// Largest structured content, in bytes of JSON.
const STRUCTURED_SIZE: usize = 16 * 1024;

/// Largest block of an unknown kind that is shown, in bytes of JSON.
const UNKNOWN_SIZE: usize = 4 * 1024;

/// Maximum number of edits in a result.
const MAX_EDITS: usize = 100;

/// Metadata of a call that is not an edit itself: the edits that it made.
const CALL_EDITS: &str = "innkeeper.edits";

/// The result of a call, for clients.
#[derive(Debug, Default)]
pub(super) struct ShownResult {
    pub(super) content: Vec<ToolResultContent>,
    pub(super) structured: Option<JsonObject>,
    /// All text of the content.
    pub(super) text: String,
    /// Whether the work continues in the background.
    pub(super) in_background: bool,
}

impl ShownResult {
    /// Adds the recorded edits of the call. A result shows a limited number; the changeset of the
    /// turn contains all.
    pub(super) fn with_edits(mut self, edits: &[FileEdit]) -> Self {
        self.content.extend(edits.iter().take(MAX_EDITS).map(|edit| {
            let FileEdit { before, after, diff } = edit.clone();
            ToolResultContent::FileEdit(ToolResultFileEditContent { before, after, diff })
        }));
        self
    }

    /// Moves the edits into metadata of the call. Clients such as VS Code show the edits of a
    /// result in place of everything else, so that a command and its output would be hidden.
    pub(super) fn take_edits(&mut self) -> Option<(String, Value)> {
        let is_edit = |content: &mut ToolResultContent| matches!(content, ToolResultContent::FileEdit(_));
        let edits: Vec<ToolResultContent> = self.content.extract_if(.., is_edit).collect();
        (!edits.is_empty()).then(|| (CALL_EDITS.to_owned(), json!(edits)))
    }
}

/// Converts a result. `structured` is the runtime's structured output.
pub(super) fn shown(tool: &str, result: &ToolResultBlock, structured: Option<&Value>) -> ShownResult {
    let mut content = match &result.content {
        None => Vec::new(),
        Some(MessageContent::Text(text)) => vec![text_content(text.clone())],
        Some(MessageContent::Blocks(blocks)) => blocks.iter().filter_map(converted).collect(),
    };
    if let Some(text) = better_text(tool, result, &content, structured) {
        content.retain(|content| !matches!(content, ToolResultContent::Text(_)));
        content.insert(0, text_content(text));
    }
    for content in &mut content {
        if let ToolResultContent::Text(text) = content {
            text.text = without_markup(&text.text);
        }
    }
    content.retain(|content| !matches!(content, ToolResultContent::Text(text) if text.text.is_empty()));
    content.extend(document(structured).filter(|_| !content.iter().any(is_embedded)));
    let in_background = structured.is_some_and(is_in_background);
    let structured = structured.and_then(|structured| structured_content(tool, structured));
    ShownResult { text: joined(&content), content, structured, in_background }
}

/// Converts the result of a server tool, which is a block of the model's own message.
pub(super) fn shown_server_result(content: &Value) -> ShownResult {
    let text = match content {
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            items.iter().map(server_item).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
        }
        other => server_item(other),
    };
    let content = if text.is_empty() { Vec::new() } else { vec![text_content(text.clone())] };
    ShownResult { content, text, ..ShownResult::default() }
}

/// Whether a command or subagent continues after its call is complete.
fn is_in_background(structured: &Value) -> bool {
    let is_async = structured.get("status").and_then(Value::as_str) == Some("async_launched");
    is_async || structured.get("backgroundTaskId").is_some_and(Value::is_string)
}

/// One element of a server tool's result as text.
fn server_item(item: &Value) -> String {
    let field = |name: &str| item.get(name).and_then(Value::as_str);
    match (field("title"), field("url"), field("error_code"), field("text")) {
        (_, _, Some(code), _) => code.to_owned(),
        (Some(title), Some(url), None, _) => format!("{title}: {url}"),
        (None, Some(url), None, _) => url.to_owned(),
        (_, None, None, Some(text)) => text.to_owned(),
        (_, None, None, None) => unknown_text(item),
    }
}

/// A text that says more to the user than the text for the model.
fn better_text(
    tool: &str,
    result: &ToolResultBlock,
    content: &[ToolResultContent],
    structured: Option<&Value>,
) -> Option<String> {
    let structured = structured?;
    if result.is_error == Some(true) {
        // The text for the model may continue with hints about the tool.
        return structured.as_str()?.strip_prefix("Error: ").map(str::to_owned);
    }
    match tool {
        "Task" | "Agent" => return subagent_report(structured),
        // The row says it; the rest of the text is instructions for the model.
        "EnterPlanMode" | "TodoWrite" => return Some(String::new()),
        tool if is_edit(tool) => {
            return joined(content).split_once(" (file state is").map(|(text, _)| text.to_owned());
        }
        _ => {}
    }
    // The text for the model is only the start of a large output.
    let is_persisted = joined(content).starts_with("<persisted-output>");
    let output = |name: &str| structured.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let texts: Vec<&str> = [output("stdout"), output("stderr")].into_iter().flatten().collect();
    (is_persisted && !texts.is_empty()).then(|| texts.join("\n"))
}

/// The report of a subagent. The text for the model contains instructions around it.
fn subagent_report(structured: &Value) -> Option<String> {
    if is_in_background(structured) {
        return Some("The subagent works in the background.".to_owned());
    }
    let report = structured.get("content")?.as_array()?;
    let texts = report.iter().filter_map(|block| block.get("text")?.as_str());
    let texts: Vec<&str> =
        texts.filter(|text| !text.trim_start().starts_with("<tools-used-before-summary>")).collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

fn converted(block: &ContentBlock) -> Option<ToolResultContent> {
    match block {
        ContentBlock::Text(block) => block.text.clone().map(text_content),
        ContentBlock::Unknown(block) => other_content(&block.kind, &block.raw),
        ContentBlock::Thinking(_) | ContentBlock::ToolUse(_) | ContentBlock::ToolResult(_) => None,
    }
}

/// A block of a result that is not text, with the fields of all kinds.
#[derive(Deserialize)]
struct ResultBlock {
    source: Option<Value>,
    resource: Option<ResourceBody>,
    uri: Option<String>,
    #[serde(rename = "mimeType")]
    mime_type: Option<String>,
    tool_name: Option<String>,
    title: Option<String>,
}

/// The contents of an MCP resource.
#[derive(Deserialize)]
struct ResourceBody {
    uri: Option<String>,
    #[serde(rename = "mimeType")]
    mime_type: Option<String>,
    text: Option<String>,
    blob: Option<String>,
}

/// Where the data of an image or document is.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum ResultSource {
    Base64 { media_type: String, data: String },
    Text { data: String },
    Url { url: String },
}

fn other_content(kind: &str, raw: &RawValue) -> Option<ToolResultContent> {
    let unknown = || {
        let value: Value = serde_json::from_str(raw.get()).ok()?;
        Some(text_content(unknown_text(&value)))
    };
    let Ok(block) = serde_json::from_str::<ResultBlock>(raw.get()) else { return unknown() };
    match kind {
        "image" | "document" => {
            let source = block.source.and_then(|source| serde_json::from_value(source).ok());
            Some(match source {
                Some(ResultSource::Base64 { media_type, data }) => embedded(data, media_type),
                Some(ResultSource::Text { data }) => text_content(data),
                Some(ResultSource::Url { url }) => resource(url, None),
                None => return unknown(),
            })
        }
        "resource" => {
            let body = block.resource?;
            match (body.text, body.blob, body.uri) {
                (Some(text), _, _) => Some(text_content(text)),
                (None, Some(blob), _) => {
                    let content_type =
                        body.mime_type.unwrap_or_else(|| "application/octet-stream".to_owned());
                    Some(embedded(blob, content_type))
                }
                (None, None, Some(uri)) => Some(resource(uri, body.mime_type)),
                (None, None, None) => None,
            }
        }
        "resource_link" => Some(resource(block.uri?, block.mime_type)),
        "tool_reference" => Some(text_content(block.tool_name?)),
        "search_result" => Some(text_content(match (block.title, block.source) {
            (Some(title), Some(Value::String(source))) => format!("{title}: {source}"),
            (Some(title), _) => title,
            (None, source) => source?.as_str()?.to_owned(),
        })),
        _ => unknown(),
    }
}

/// A PDF that the runtime read; older runtimes do not include it in the result.
fn document(structured: Option<&Value>) -> Option<ToolResultContent> {
    let structured = structured.filter(|value| value.get("type").and_then(Value::as_str) == Some("pdf"))?;
    let data = structured.get("file")?.get("base64")?.as_str()?;
    Some(embedded(data.to_owned(), "application/pdf".to_owned()))
}

/// Reduces the runtime's structured output to what is not in the content, within limits.
fn structured_content(tool: &str, value: &Value) -> Option<JsonObject> {
    let value = if mcp_names(tool).is_some() { value.get("structuredContent")? } else { value };
    let Value::Object(mut fields) = reduced(value) else { return None };
    if matches!(tool, "Task" | "Agent") {
        // The report is the text of the result.
        fields.remove("content");
    }
    let size = serde_json::to_string(&fields).map_or(usize::MAX, |json| json.len());
    (!fields.is_empty() && size <= STRUCTURED_SIZE).then_some(fields)
}

fn reduced(value: &Value) -> Value {
    match value {
        Value::String(text) if text.chars().nth(STRUCTURED_TEXT).is_some() => {
            Value::String(text.chars().take(STRUCTURED_TEXT).chain(['…']).collect())
        }
        Value::Array(items) => Value::Array(items.iter().take(STRUCTURED_ITEMS).map(reduced).collect()),
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| name.as_str() != "base64");
            Value::Object(kept.map(|(name, value)| (name.clone(), reduced(value))).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// Removes the markup of the runtime's own errors and notes, and reminders after the text.
fn without_markup(text: &str) -> String {
    let mut text = text.trim_end();
    text = text.strip_suffix("[Request interrupted by user for tool use]").unwrap_or(text).trim_end();
    // Only at the end: a file may contain the same words.
    while let Some(rest) = text.strip_suffix("</system-reminder>")
        && let Some((before, _)) = rest.rsplit_once("<system-reminder>")
    {
        text = before.trim_end();
    }
    for tag in ["tool_use_error", "persisted-output"] {
        let inner = text.strip_prefix(&format!("<{tag}>"));
        if let Some(inner) = inner {
            text = inner.strip_suffix(&format!("</{tag}>")).unwrap_or(inner).trim_matches('\n');
        }
    }
    text.to_owned()
}

fn joined(content: &[ToolResultContent]) -> String {
    let mut joined = String::new();
    for content in content {
        if let ToolResultContent::Text(text) = content {
            if !joined.is_empty() {
                joined.push('\n');
            }
            joined.push_str(&text.text);
        }
    }
    joined
}

fn unknown_text(value: &Value) -> String {
    let json = serde_json::to_string_pretty(value).unwrap_or_default();
    if json.len() <= UNKNOWN_SIZE {
        return json;
    }
    let kind = value.get("type").and_then(Value::as_str).unwrap_or("unknown");
    json!({ "type": kind }).to_string()
}

fn is_embedded(content: &ToolResultContent) -> bool {
    matches!(content, ToolResultContent::EmbeddedResource(_))
}

fn text_content(text: String) -> ToolResultContent {
    ToolResultContent::Text(ToolResultTextContent { text })
}

fn embedded(data: String, content_type: String) -> ToolResultContent {
    ToolResultContent::EmbeddedResource(ToolResultEmbeddedResourceContent { data, content_type })
}

fn resource(uri: String, content_type: Option<String>) -> ToolResultContent {
    ToolResultContent::Resource(ToolResultResourceContent { uri, size_hint: None, content_type, nonce: None })
}

#[cfg(test)]
#[path = "tool_results_tests.rs"]
mod tests;
