//! Types for the parts of a Messages request that an upstream may need.
//!
//! Tolerant: unknown fields and block types are accepted, and values that are
//! only forwarded or measured stay raw. Owns the parsing of a body, which
//! `head` shares, and distinguishes text that the runtime adds from text that
//! the user wrote.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::error::ApiError;

/// Prefixes of text blocks that the runtime adds.
///
/// The notification of a finished background task is one of them: newer
/// runtimes wrap it in a reminder, older ones send it bare.
const RUNTIME_MARKS: [&str; 4] = ["<system-reminder>", "<local-command", "<command-", "<task-notification>"];

/// First line of the text that newer runtimes add after tools were loaded;
/// further lines are in brackets.
const TOOLS_LOADED: &str = "Tool loaded.";

/// Part of the prompt with which both runtimes request a summary of the history.
const SUMMARY_REQUEST: &str = "create a detailed summary of";

/// Whether the runtime wrote a text, rather than the user.
pub(crate) fn is_runtime_text(text: &str) -> bool {
    let text = text.trim_start();
    RUNTIME_MARKS.iter().any(|mark| text.starts_with(mark)) || is_tools_loaded(text)
}

fn is_tools_loaded(text: &str) -> bool {
    text.strip_prefix(TOOLS_LOADED).is_some_and(|rest| {
        (rest.is_empty() || rest.starts_with('\n'))
            && rest.lines().all(|line| line.is_empty() || line.starts_with("[id:"))
    })
}

/// Whether a text is the runtime's request for a summary of the conversation.
pub(crate) fn is_summary_request(text: &str) -> bool {
    text.contains(SUMMARY_REQUEST)
}

/// Parses a JSON body, or returns an error that says what is wrong with it.
pub(crate) fn parse_body<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, ApiError> {
    // Derived structs can also be deserialised from a list of field values.
    if body.trim_ascii_start().starts_with(b"[") {
        return Err(ApiError::invalid_request("the request body is not a Messages request: it is a list"));
    }
    serde_json::from_slice(body).map_err(|error| {
        let what = if error.is_data() { "a Messages request" } else { "JSON" };
        ApiError::invalid_request(format!("the request body is not {what}: {error}"))
    })
}

/// Rejects a request without a model or without messages.
pub(crate) fn check_required(model: &str, message_count: usize) -> Result<(), ApiError> {
    if model.is_empty() {
        return Err(ApiError::invalid_request("model: must not be empty"));
    }
    if message_count == 0 {
        return Err(ApiError::invalid_request("messages: at least one message is required"));
    }
    Ok(())
}

/// A request to `/v1/messages` or `/v1/messages/count_tokens`.
#[derive(Debug, serde::Deserialize)]
pub(crate) struct MessagesRequest {
    pub(crate) model: String,
    pub(crate) messages: Vec<RequestMessage>,
    #[serde(default)]
    pub(crate) stream: Option<bool>,
    #[serde(default)]
    pub(crate) max_tokens: Option<u64>,
    #[serde(default)]
    pub(crate) system: Option<Box<RawValue>>,
    #[serde(default)]
    pub(crate) tools: Option<Box<RawValue>>,
}

impl MessagesRequest {
    /// Parses a body, or returns an error that says what is wrong with it.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let request: Self = parse_body(body)?;
        check_required(&request.model, request.messages.len())?;
        Ok(request)
    }

    /// Names of the offered tools; empty if the list cannot be parsed.
    pub(crate) fn tool_names(&self) -> Vec<String> {
        let Some(raw) = &self.tools else { return Vec::new() };
        let tools: Vec<ToolHead> = serde_json::from_str(raw.get()).unwrap_or_default();
        tools.into_iter().filter_map(|tool| tool.name).collect()
    }
}

#[derive(Debug, serde::Deserialize)]
struct ToolHead {
    #[serde(default)]
    name: Option<String>,
}

/// One message of the conversation.
#[derive(Debug, serde::Deserialize)]
pub(crate) struct RequestMessage {
    pub(crate) role: String,
    pub(crate) content: RequestContent,
}

/// Content blocks; a plain string becomes one text block.
#[derive(Debug, Default)]
pub(crate) struct RequestContent(pub(crate) Vec<RequestBlock>);

impl<'de> Deserialize<'de> for RequestContent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

/// Accepts both formats; an untagged enum would buffer the whole value first.
struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = RequestContent;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("`content` as a string or a list of blocks")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<RequestContent, E> {
        self.visit_string(text.to_owned())
    }

    fn visit_string<E: de::Error>(self, text: String) -> Result<RequestContent, E> {
        Ok(RequestContent(vec![RequestBlock {
            kind: "text".to_owned(),
            text: Some(text),
            ..RequestBlock::default()
        }]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<RequestContent, A::Error> {
        let mut blocks = Vec::new();
        while let Some(block) = items.next_element()? {
            blocks.push(block);
        }
        Ok(RequestContent(blocks))
    }
}

/// One content block of any type.
#[derive(Debug, Default, serde::Deserialize)]
pub(crate) struct RequestBlock {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// In text blocks.
    #[serde(default)]
    pub(crate) text: Option<String>,
    /// In thinking blocks.
    #[serde(default)]
    pub(crate) thinking: Option<String>,
    /// In tool uses.
    #[serde(default)]
    pub(crate) id: Option<String>,
    /// In tool uses.
    #[serde(default)]
    pub(crate) name: Option<String>,
    /// In tool uses.
    #[serde(default)]
    pub(crate) input: Option<Box<RawValue>>,
    /// In tool results: the id of the tool use.
    #[serde(default)]
    pub(crate) tool_use_id: Option<String>,
    /// In tool results.
    #[serde(default)]
    pub(crate) is_error: Option<bool>,
    /// In tool results.
    #[serde(default)]
    pub(crate) content: Option<Box<RawValue>>,
}

impl RequestBlock {
    /// The text of a text block.
    pub(crate) fn as_text(&self) -> Option<&str> {
        if self.kind == "text" { self.text.as_deref() } else { None }
    }

    /// The text of a tool result, its text blocks joined by line breaks.
    pub(crate) fn result_text(&self) -> String {
        let Some(raw) = &self.content else { return String::new() };
        let content: RequestContent = serde_json::from_str(raw.get()).unwrap_or_default();
        let texts: Vec<&str> = content.0.iter().filter_map(RequestBlock::as_text).collect();
        texts.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn string_content_and_block_content_parse_equally() {
        for content in [r#""hi""#, r#"[{"type":"text","text":"hi","cache_control":{"type":"ephemeral"}}]"#] {
            let body = format!(
                r#"{{"model":"m","messages":[{{"role":"user","content":{content}}}],"metadata":{{}}}}"#
            );
            let request = MessagesRequest::parse(body.as_bytes()).unwrap();
            assert_eq!(request.messages[0].content.0[0].as_text(), Some("hi"));
        }
    }

    #[test]
    fn text_of_the_runtime_is_distinguished_from_user_text() {
        for text in
            ["<system-reminder>x", " <command-name>", "Tool loaded.", "Tool loaded.\n[id:a]\n[id:b]\n"]
        {
            assert!(is_runtime_text(text), "{text:?}");
        }
        for text in ["", "hi", "Tool loaded. Why?", "Tool loaded.\nWhy?", "Tool loaded.[id:a]"] {
            assert!(!is_runtime_text(text), "{text:?}");
        }
    }

    #[test]
    fn invalid_body_is_rejected_with_a_reason() {
        for (body, names) in [
            ("", "not JSON"),
            ("{", "not JSON"),
            ("[1]", "not a Messages request"),
            (r#"{"messages":[]}"#, "model"),
            (r#"{"model":"","messages":[]}"#, "model"),
            (r#"{"model":"m"}"#, "messages"),
            (r#"{"model":"m","messages":[]}"#, "messages"),
            (r#"{"model":"m","messages":{}}"#, "sequence"),
            (r#"{"model":"m","messages":[{"role":"user","content":5}]}"#, "content"),
            (r#"{"model":"m","messages":[{"role":"user"}]}"#, "content"),
        ] {
            let error = MessagesRequest::parse(body.as_bytes()).unwrap_err();
            assert_eq!(error.status().as_u16(), 400);
            assert!(error.to_string().contains(names), "{body}: {error}");
        }
    }
}
