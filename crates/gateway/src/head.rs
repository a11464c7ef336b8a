//! Reads the top level of a request body, and edits it in place.
//!
//! Parses the few fields that a proxy needs and splices new values into the
//! bytes. The rest of the body is forwarded byte for byte; it is never
//! re-serialised from parsed values.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::error::ApiError;
use crate::request;

/// The parsed top level of a Messages request.
#[derive(Debug)]
pub(crate) struct RequestHead<'a> {
    pub(crate) model: String,
    pub(crate) max_tokens: Option<u64>,
    pub(crate) offers_tools: bool,
    pub(crate) message_count: usize,
    /// The last message whose role is not `system`.
    pub(crate) last_message: Option<LastMessage<'a>>,
    model_span: Range<usize>,
    system: Option<&'a RawValue>,
    system_span: Option<Range<usize>>,
}

/// One message with unparsed content.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct LastMessage<'a> {
    #[serde(borrow)]
    pub(crate) role: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) content: &'a RawValue,
}

impl<'a> RequestHead<'a> {
    /// Parses a body, or returns an error that says what is wrong with it.
    pub(crate) fn parse(body: &'a [u8]) -> Result<Self, ApiError> {
        let top: RequestFields<'a> = request::parse_body(body)?;
        let model: String = serde_json::from_str(top.model.get())
            .map_err(|_| ApiError::invalid_request("model: must be a string"))?;
        request::check_required(&model, top.messages.count)?;
        Ok(Self {
            model,
            max_tokens: top.max_tokens.and_then(|raw| raw.get().parse().ok()),
            offers_tools: top.tools.is_some_and(|raw| is_filled_list(raw.get())),
            message_count: top.messages.count,
            last_message: top.messages.last,
            model_span: span(body, top.model),
            system_span: top.system.map(|raw| span(body, raw)),
            system: top.system,
        })
    }

    /// Whether the first `within` bytes of the system prompt contain a text.
    pub(crate) fn system_begins_with(&self, within: usize, text: &str) -> bool {
        let Some(system) = self.system else { return false };
        let bytes = system.get().as_bytes();
        let begin = bytes.get(..within.min(bytes.len())).unwrap_or_default();
        memchr::memmem::find(begin, text.as_bytes()).is_some()
    }

    /// The edit that replaces the model.
    pub(crate) fn replace_model(&self, model: &str) -> Edit {
        Edit { span: self.model_span.clone(), text: quoted(model) }
    }

    /// The edit that turns a plain-text system prompt into a list of blocks;
    /// `None` if it is not a plain text.
    pub(crate) fn system_as_blocks(&self) -> Option<Edit> {
        let text = self.system?.get();
        let span = self.system_span.clone()?;
        text.starts_with('"').then(|| Edit { span, text: format!(r#"[{{"type":"text","text":{text}}}]"#) })
    }
}

/// A replacement for a part of a body.
#[derive(Clone, Debug)]
pub(crate) struct Edit {
    pub(crate) span: Range<usize>,
    pub(crate) text: String,
}

/// Applies edits to a body; the bytes between them are copied unchanged.
pub(crate) fn splice(body: &Bytes, mut edits: Vec<Edit>) -> Bytes {
    if edits.is_empty() {
        return body.clone();
    }
    edits.sort_by_key(|edit| edit.span.start);
    let added: usize = edits.iter().map(|edit| edit.text.len()).sum();
    let mut spliced = BytesMut::with_capacity(body.len() + added);
    let mut copied = 0;
    for edit in edits {
        spliced.extend_from_slice(body.get(copied..edit.span.start).unwrap_or_default());
        spliced.extend_from_slice(edit.text.as_bytes());
        copied = edit.span.end;
    }
    spliced.extend_from_slice(body.get(copied..).unwrap_or_default());
    spliced.freeze()
}

/// Encodes a text as a JSON string.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The byte range in `body` of a value that was parsed from it.
pub(crate) fn span(body: &[u8], value: &RawValue) -> Range<usize> {
    let start = (value.get().as_ptr() as usize).saturating_sub(body.as_ptr() as usize);
    start..start + value.get().len()
}

/// Parses a JSON object; `None` for a list, which derived structs would also
/// accept as a list of field values.
pub(crate) fn object<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Option<T> {
    if !text.trim_ascii_start().starts_with(b"{") {
        return None;
    }
    serde_json::from_slice(text).ok()
}

#[derive(Deserialize)]
struct RequestFields<'a> {
    #[serde(borrow)]
    model: &'a RawValue,
    #[serde(borrow)]
    messages: Messages<'a>,
    #[serde(borrow, default)]
    max_tokens: Option<&'a RawValue>,
    #[serde(borrow, default)]
    system: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tools: Option<&'a RawValue>,
}

/// The messages; only the last one is kept.
struct Messages<'a> {
    count: usize,
    last: Option<LastMessage<'a>>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Messages<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(MessagesVisitor)
    }
}

struct MessagesVisitor;

impl<'de> Visitor<'de> for MessagesVisitor {
    type Value = Messages<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("`messages` as a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut messages = Messages { count: 0, last: None };
        while let Some(message) = items.next_element::<LastMessage<'de>>()? {
            messages.count += 1;
            if message.role != "system" {
                messages.last = Some(message);
            }
        }
        Ok(messages)
    }
}

fn is_filled_list(raw: &str) -> bool {
    raw.strip_prefix('[').is_some_and(|rest| !rest.trim_start().starts_with(']'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splice_changes_only_replaced_values() {
        let body = Bytes::from_static(
            "{ \"b\" : 1.50e1, \"model\" :  \"claude-x\" ,\"messages\":[ {\"role\":\"user\",\"content\":\"ä\\u00e4\"} ],\n\"system\":\"be \\\"kind\\\"\",\"z\":[1 , 2]}".as_bytes(),
        );
        let head = RequestHead::parse(&body).unwrap();
        let edits = vec![head.system_as_blocks().unwrap(), head.replace_model("claude-y")];
        let expected = "{ \"b\" : 1.50e1, \"model\" :  \"claude-y\" ,\"messages\":[ {\"role\":\"user\",\"content\":\"ä\\u00e4\"} ],\n\"system\":[{\"type\":\"text\",\"text\":\"be \\\"kind\\\"\"}],\"z\":[1 , 2]}";
        assert_eq!(splice(&body, edits), expected);
        assert_eq!(splice(&body, Vec::new()), body);
    }

    #[test]
    fn system_prompt_that_is_not_text_stays_unchanged() {
        for system in ["null", "[]", r#"[{"type":"text","text":"x"}]"#] {
            let body =
                format!(r#"{{"model":"m","system":{system},"messages":[{{"role":"user","content":"x"}}]}}"#);
            assert!(RequestHead::parse(body.as_bytes()).unwrap().system_as_blocks().is_none(), "{system}");
        }
    }

    #[test]
    fn last_message_skips_system_messages() {
        let body = br#"{"tools":[ ],"max_tokens":1,"messages":[{"role":"user","content":"a"},{"role":"user","content":"b","x":1},{"role":"system","content":"c"}],"model":"m"}"#;
        let head = RequestHead::parse(body).unwrap();
        let last = head.last_message.unwrap();
        assert_eq!((last.role.as_ref(), last.content.get()), ("user", "\"b\""));
        assert_eq!((head.message_count, head.offers_tools, head.max_tokens), (3, false, Some(1)));
    }

    #[test]
    fn invalid_body_is_rejected_with_a_reason() {
        for (body, names) in [
            ("", "not JSON"),
            ("{", "not JSON"),
            ("[1]", "not a Messages request"),
            ("null", "not a Messages request"),
            (r#"{"messages":[]}"#, "model"),
            (r#"{"model":7,"messages":[{"role":"user","content":"x"}]}"#, "model"),
            (r#"{"model":"","messages":[{"role":"user","content":"x"}]}"#, "model"),
            (r#"{"model":"m"}"#, "messages"),
            (r#"{"model":"m","messages":[]}"#, "messages"),
            (r#"{"model":"m","messages":{}}"#, "messages"),
            (r#"{"model":"m","model":"n","messages":[]}"#, "duplicate"),
        ] {
            let error = RequestHead::parse(body.as_bytes()).unwrap_err();
            assert_eq!(error.status().as_u16(), 400);
            assert!(error.to_string().contains(names), "{body}: {error}");
        }
    }
}
