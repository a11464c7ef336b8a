//! The few things about a request that a proxy must know, and changing them
//! in place.
//!
//! Owns the reading of a body's top level and the splicing of new values into
//! its bytes. Everything else in the body stays byte for byte as it came; it
//! is never written anew from parsed values.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::error::ApiError;

/// What is known of a Messages request.
#[derive(Debug)]
pub(crate) struct RequestHead<'a> {
    pub(crate) model: String,
    pub(crate) max_tokens: Option<u64>,
    pub(crate) offers_tools: bool,
    pub(crate) message_count: usize,
    /// The last message that is not the system's.
    pub(crate) last_message: Option<MessageHead<'a>>,
    model_span: Range<usize>,
    system: Option<&'a RawValue>,
    system_span: Option<Range<usize>>,
}

/// One message, its content not looked into.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct MessageHead<'a> {
    #[serde(borrow)]
    pub(crate) role: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) content: &'a RawValue,
}

impl<'a> RequestHead<'a> {
    /// Reads a body, or says what is wrong with it.
    pub(crate) fn parse(body: &'a [u8]) -> Result<Self, ApiError> {
        // Derived structs also read from a list, field by field; nobody means that.
        if body.trim_ascii_start().starts_with(b"[") {
            return Err(ApiError::invalid_request("the request body is not a Messages request but a list"));
        }
        let top: Top<'a> = serde_json::from_slice(body).map_err(|error| {
            let what = if error.is_data() { "a Messages request" } else { "JSON" };
            ApiError::invalid_request(format!("the request body is not {what}: {error}"))
        })?;
        let model: String = serde_json::from_str(top.model.get())
            .map_err(|_| ApiError::invalid_request("model: must be a text"))?;
        if model.is_empty() {
            return Err(ApiError::invalid_request("model: must not be empty"));
        }
        if top.messages.count == 0 {
            return Err(ApiError::invalid_request("messages: at least one message is required"));
        }
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

    /// Whether a text is within the first bytes of the system prompt.
    pub(crate) fn system_begins_with(&self, within: usize, text: &str) -> bool {
        let Some(system) = self.system else { return false };
        let bytes = system.get().as_bytes();
        let begin = bytes.get(..within.min(bytes.len())).unwrap_or_default();
        memchr::memmem::find(begin, text.as_bytes()).is_some()
    }

    /// The change that replaces the model.
    pub(crate) fn replace_model(&self, model: &str) -> Edit {
        Edit { span: self.model_span.clone(), text: quoted(model) }
    }

    /// The change that makes a list of blocks of a system prompt that is a
    /// plain text; nothing if it is something else already.
    pub(crate) fn system_as_blocks(&self) -> Option<Edit> {
        let text = self.system?.get();
        let span = self.system_span.clone()?;
        text.starts_with('"').then(|| Edit { span, text: format!(r#"[{{"type":"text","text":{text}}}]"#) })
    }
}

/// A new text for a part of a body.
#[derive(Clone, Debug)]
pub(crate) struct Edit {
    pub(crate) span: Range<usize>,
    pub(crate) text: String,
}

/// Puts new texts into a body; what is between them is copied as it is.
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

/// A text as JSON.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Where a value that was parsed out of `body` stands in it.
pub(crate) fn span(body: &[u8], value: &RawValue) -> Range<usize> {
    let start = (value.get().as_ptr() as usize).saturating_sub(body.as_ptr() as usize);
    start..start + value.get().len()
}

/// Reads a JSON object. Derived structs also read from a list, field by
/// field, which nobody means.
pub(crate) fn object<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Option<T> {
    if !text.trim_ascii_start().starts_with(b"{") {
        return None;
    }
    serde_json::from_slice(text).ok()
}

#[derive(Deserialize)]
struct Top<'a> {
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

/// The messages, of which only the last is kept.
struct Messages<'a> {
    count: usize,
    last: Option<MessageHead<'a>>,
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
        while let Some(message) = items.next_element::<MessageHead<'de>>()? {
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
    fn only_the_replaced_values_change() {
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
    fn a_system_prompt_that_is_no_text_stays() {
        for system in ["null", "[]", r#"[{"type":"text","text":"x"}]"#] {
            let body =
                format!(r#"{{"model":"m","system":{system},"messages":[{{"role":"user","content":"x"}}]}}"#);
            assert!(RequestHead::parse(body.as_bytes()).unwrap().system_as_blocks().is_none(), "{system}");
        }
    }

    #[test]
    fn the_last_message_is_the_last_that_is_not_the_systems() {
        let body = br#"{"tools":[ ],"max_tokens":1,"messages":[{"role":"user","content":"a"},{"role":"user","content":"b","x":1},{"role":"system","content":"c"}],"model":"m"}"#;
        let head = RequestHead::parse(body).unwrap();
        let last = head.last_message.unwrap();
        assert_eq!((last.role.as_ref(), last.content.get()), ("user", "\"b\""));
        assert_eq!((head.message_count, head.offers_tools, head.max_tokens), (3, false, Some(1)));
    }

    #[test]
    fn a_bad_body_is_an_invalid_request_that_names_the_problem() {
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
