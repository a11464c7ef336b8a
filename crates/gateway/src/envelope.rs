//! Parses error responses of upstreams.
//!
//! Decides whether a text is an Anthropic error object, and extracts type and
//! message from other texts where possible. Removes credentials that an
//! upstream repeats in its error.

use std::borrow::Cow;

use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::head;

/// Characters kept of a plain error text: enough for a sentence, too few for
/// the HTML page of a proxy.
const EXCERPT: usize = 500;

/// A parsed error response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ErrorEnvelope {
    /// The error type, if present.
    pub(crate) kind: Option<String>,
    /// The message, if present.
    pub(crate) message: Option<String>,
    /// Whether the text is an Anthropic error object and can be passed on unchanged.
    pub(crate) conforms: bool,
}

impl ErrorEnvelope {
    /// Parses an error body or the data of an `error` event.
    pub(crate) fn read(text: &[u8]) -> Self {
        let Some(top) = head::object::<ErrorFields<'_>>(text) else {
            let text = String::from_utf8_lossy(text);
            let text = text.trim();
            let is_plain = !text.is_empty() && !text.starts_with('<');
            return Self { kind: None, message: is_plain.then(|| excerpt(text)), conforms: false };
        };
        let detail: Option<Detail<'_>> = top.error.and_then(|raw| head::object(raw.get().as_bytes()));
        let plain: Option<String> = top.error.and_then(|raw| serde_json::from_str(raw.get()).ok());
        let named = |raw: Option<&RawValue>| -> Option<String> { serde_json::from_str(raw?.get()).ok() };
        let kind = detail.as_ref().and_then(|detail| named(detail.kind));
        let message = detail.as_ref().and_then(|detail| named(detail.message));
        let conforms = named(top.kind).as_deref() == Some("error") && kind.is_some() && message.is_some();
        let message = message.or(plain).or_else(|| named(top.message));
        Self { kind, message: message.filter(|text| !text.is_empty()), conforms }
    }
}

/// Replaces a credential in a text.
pub(crate) fn scrub<'a>(text: &'a str, secret: Option<&SecretString>) -> Cow<'a, str> {
    match secret.map(SecretString::expose_secret) {
        Some(secret) if !secret.is_empty() && text.contains(secret) => {
            Cow::Owned(text.replace(secret, "[redacted]"))
        }
        _ => Cow::Borrowed(text),
    }
}

/// Whether a text contains a credential.
pub(crate) fn reveals(text: &[u8], secret: Option<&SecretString>) -> bool {
    secret
        .map(SecretString::expose_secret)
        .is_some_and(|secret| !secret.is_empty() && memchr::memmem::find(text, secret.as_bytes()).is_some())
}

fn excerpt(text: &str) -> String {
    match text.char_indices().nth(EXCERPT) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[derive(Deserialize)]
struct ErrorFields<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Detail<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Option<&'a RawValue>,
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, kind: Option<&str>, message: Option<&str>, conforms: bool) {
        let expected =
            ErrorEnvelope { kind: kind.map(str::to_owned), message: message.map(str::to_owned), conforms };
        assert_eq!(ErrorEnvelope::read(text.as_bytes()), expected, "{text}");
    }

    #[test]
    fn anthropic_error_object_with_extra_fields_conforms() {
        check(
            r#"{"type":"error","error":{"type":"overloaded_error","message":"busy","more":1},"request_id":"r"}"#,
            Some("overloaded_error"),
            Some("busy"),
            true,
        );
    }

    #[test]
    fn extracts_type_and_message_from_other_formats() {
        check(r#"{"type":"error","error":{"message":"no type"}}"#, None, Some("no type"), false);
        check(r#"{"type":"error","error":{"type":"api_error"}}"#, Some("api_error"), None, false);
        check(r#"{"error":{"type":"x","message":"y"}}"#, Some("x"), Some("y"), false);
        check(r#"{"error":"plain"}"#, None, Some("plain"), false);
        check(r#"{"message":"GitHub's way"}"#, None, Some("GitHub's way"), false);
        check("Bad Gateway\n", None, Some("Bad Gateway"), false);
        check("<html>", None, None, false);
        check("", None, None, false);
        check("[]", None, Some("[]"), false);
    }

    #[test]
    fn repeated_credential_is_redacted() {
        let secret = SecretString::from("sesame");
        assert_eq!(scrub("open sesame, sesame!", Some(&secret)), "open [redacted], [redacted]!");
        assert!(reveals(b"xsesamex", Some(&secret)) && !reveals(b"x", Some(&secret)) && !reveals(b"", None));
        assert_eq!(scrub("x", Some(&SecretString::from(""))), "x");
    }
}
