//! The first prompt of a conversation.
//!
//! Owns the rules for identifying user prompts: excludes tool results, text added by the runtime, and
//! markers of commands and interruptions. Works on the first bytes of a transcript.

use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::entry::{MessageHead, flag, lenient};

/// Length in characters above which a prompt is truncated in a list.
const PROMPT_LIMIT: usize = 200;

/// The first prompt of a conversation.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FirstPrompt {
    /// The text on one line, truncated.
    pub(super) text: Option<String>,
    /// The kind of media sent instead of text.
    pub(super) media: Option<&'static str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PromptLine<'a> {
    #[serde(rename = "type", default, deserialize_with = "lenient")]
    kind: Option<String>,
    #[serde(default, deserialize_with = "flag")]
    is_meta: bool,
    #[serde(default, deserialize_with = "flag")]
    is_compact_summary: bool,
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "lenient")]
    timestamp: Option<String>,
}

impl FirstPrompt {
    /// Finds the first prompt in the first bytes of a transcript.
    pub(super) fn find(head: &[u8]) -> Self {
        let mut command = None;
        let mut media = None;
        for message in head.split(|byte| *byte == b'\n').filter_map(prompt_of).map(|(message, _)| message) {
            for text in message.texts() {
                match judge(text) {
                    PromptText::Prompt(text) => return Self { text: Some(text), media },
                    PromptText::Command(name) => command = command.or(Some(name)),
                    PromptText::NotAPrompt => {}
                }
            }
            media =
                media.or_else(|| message.content.iter().find_map(|block| media_name(block.kind.as_deref())));
        }
        Self { text: command, media }
    }
}

/// The time of the last prompt in these bytes.
pub(super) fn last_prompt_time(tail: &[u8]) -> Option<String> {
    tail.rsplit(|byte| *byte == b'\n').filter_map(prompt_of).find_map(|(_, time)| time)
}

/// The message and time of a line, if it is a user prompt.
fn prompt_of(line: &[u8]) -> Option<(MessageHead, Option<String>)> {
    // Most lines are excluded by a byte search, which is much cheaper than parsing. Inside a JSON string
    // the quotes would be escaped, so these matches can only be fields.
    memmem::find(line, b"\"user\"")?;
    if memmem::find(line, b"\"tool_result\"").is_some() {
        return None;
    }
    let line: PromptLine<'_> = serde_json::from_slice(line).ok()?;
    if line.kind.as_deref() != Some("user") || line.is_meta || line.is_compact_summary {
        return None;
    }
    Some((MessageHead::parse(line.message), line.timestamp))
}

enum PromptText {
    Prompt(String),
    Command(String),
    NotAPrompt,
}

fn judge(text: &str) -> PromptText {
    let text = text.replace(['\n', '\r'], " ");
    let text = text.trim();
    if text.is_empty() {
        PromptText::NotAPrompt
    } else if let Some(name) = between(text, "<command-name>", "</command-name>") {
        PromptText::Command(name.to_owned())
    } else if let Some(input) = between(text, "<bash-input>", "</bash-input>") {
        PromptText::Prompt(format!("! {}", input.trim()))
    } else if starts_with_tag(text) || text.starts_with("[Request interrupted by user") {
        PromptText::NotAPrompt
    } else {
        PromptText::Prompt(cut(text))
    }
}

fn between<'a>(text: &'a str, open: &str, close: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(open)?;
    rest.split_once(close).map(|(inner, _)| inner)
}

/// Whether a text starts with a tag such as `<some-tag>`, like text added by the runtime.
fn starts_with_tag(text: &str) -> bool {
    let Some(rest) = text.strip_prefix('<') else { return false };
    let name = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_');
    rest.starts_with(|first: char| first.is_ascii_lowercase())
        && rest.trim_start_matches(name).starts_with(|next: char| next == '>' || next.is_whitespace())
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(PROMPT_LIMIT) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or(text).trim_end()),
        None => text.to_owned(),
    }
}

fn media_name(kind: Option<&str>) -> Option<&'static str> {
    match kind? {
        "image" => Some("Image"),
        "document" => Some("Document"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_of(contents: &[&str]) -> FirstPrompt {
        let line = |content: &&str| format!(r#"{{"type":"user","message":{{"content":{content}}}}}"#);
        FirstPrompt::find(contents.iter().map(line).collect::<Vec<_>>().join("\n").as_bytes())
    }

    #[test]
    fn user_prompts_are_distinguished_from_markers_and_results() {
        let text = |contents: &[&str]| first_of(contents).text;
        assert_eq!(text(&[r#""  a\nb ""#]).as_deref(), Some("a b"));
        assert_eq!(
            text(&[r#""<system-reminder>x""#, r#""[Request interrupted by user for tool use]""#, r#""ok""#])
                .as_deref(),
            Some("ok")
        );
        assert_eq!(text(&[r#""<3 this""#]).as_deref(), Some("<3 this"));
        assert_eq!(text(&[r#"[{"type":"tool_result","content":"x"},{"type":"text","text":"y"}]"#]), None);
        assert_eq!(
            text(&[r#""<command-message>x</command-message><command-name>/x</command-name>""#]).as_deref(),
            Some("/x")
        );
        assert_eq!(text(&[r#""<command-name>/x</command-name>""#, r#""real""#]).as_deref(), Some("real"));
        assert_eq!(text(&[r#""<bash-input> ls </bash-input>""#]).as_deref(), Some("! ls"));
    }

    #[test]
    fn long_prompt_is_truncated_at_character_boundary() {
        let prompt = first_of(&[&format!("\"{}\"", "ä".repeat(300))]).text.unwrap();
        assert_eq!(prompt, format!("{}…", "ä".repeat(200)));
    }

    #[test]
    fn image_without_text_has_media_name() {
        let prompt = first_of(&[r#"[{"type":"image","source":{}}]"#]);
        assert_eq!(prompt, FirstPrompt { text: None, media: Some("Image") });
    }
}
