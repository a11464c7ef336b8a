//! Renders a conversation as text, for an agent that has lost its own record, or for another chat that it is
//! attached to.

use std::sync::Arc;

use ahp_types::state::{ActiveTurn, ResponsePart, ToolCallState, ToolInput, Turn};

use crate::storage::StoredTurn;

/// Longest record in bytes, well below the context size of current models. The oldest turns
/// are omitted first.
const MAX_RECORD: usize = 200 * 1024;

/// Longest transcript of an attached chat in bytes. A message may have several.
const MAX_TRANSCRIPT: usize = 64 * 1024;

/// Longest text of one message, in characters.
const MAX_MESSAGE: usize = 20_000;

const HEADING: &str = "The conversation so far follows. Its original context was lost, so this is a record \
    of what was said. Treat it as the history of this conversation; files may have changed since.";

/// Renders the turns as text; the newest ones if there are too many. The running turn's
/// message is sent again by the caller, so only its response is included.
pub(super) fn record_of(turns: &[StoredTurn], running: Option<&ActiveTurn>) -> Arc<str> {
    let done: Vec<String> =
        running.iter().flat_map(|turn| &turn.response_parts).filter_map(part_text).collect();
    let kept: Vec<String> = (!done.is_empty()).then(|| done.join("\n\n")).into_iter().collect();
    render(HEADING, turns, kept, MAX_RECORD).into()
}

/// Renders the turns of an attached chat as text; the newest ones if there are too many.
pub(super) fn transcript_of(turns: &[StoredTurn], heading: &str) -> String {
    render(heading, turns, Vec::new(), MAX_TRANSCRIPT)
}

/// Renders turns between a heading and what follows them, within this size.
fn render(heading: &str, turns: &[StoredTurn], mut kept: Vec<String>, limit: usize) -> String {
    let mut length = 0;
    for stored in turns.iter().rev() {
        let Ok(turn) = serde_json::from_str::<Turn>(stored.body.get()) else { continue };
        let text = turn_text(&turn);
        length += text.len();
        if length > limit {
            kept.push("[Earlier messages are left out.]".to_owned());
            break;
        }
        kept.push(text);
    }
    kept.push(heading.to_owned());
    kept.reverse();
    kept.join("\n\n")
}

fn turn_text(turn: &Turn) -> String {
    let mut lines = vec![format!("User: {}", cut(&turn.message.text))];
    for part in &turn.response_parts {
        lines.extend(part_text(part));
    }
    lines.join("\n\n")
}

fn part_text(part: &ResponsePart) -> Option<String> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the record contains only text and tool calls")]
    match part {
        ResponsePart::Markdown(part) if !part.content.is_empty() => {
            Some(format!("Assistant: {}", cut(&part.content)))
        }
        ResponsePart::ToolCall(part) => tool_text(&part.tool_call),
        _ => None,
    }
}

fn tool_text(call: &ToolCallState) -> Option<String> {
    let (name, input) = match call {
        ToolCallState::Completed(call) => (&call.tool_name, &call.tool_input),
        ToolCallState::Cancelled(call) => (&call.tool_name, &call.tool_input),
        ToolCallState::Streaming(_)
        | ToolCallState::PendingConfirmation(_)
        | ToolCallState::Running(_)
        | ToolCallState::AuthRequired(_)
        | ToolCallState::PendingResultConfirmation(_)
        | ToolCallState::Unknown(_) => return None,
    };
    let input = match input {
        Some(ToolInput::Inline(input)) => input.as_str(),
        Some(ToolInput::ContentRef(_)) | None => "",
    };
    Some(format!("[Tool {name}: {}]", cut(input)))
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_MESSAGE) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn turn(text: &str, answer: &str) -> StoredTurn {
        let body = json!({
            "id": text, "message": {"text": text, "origin": {"kind": "user"}}, "state": "complete",
            "responseParts": [
                {"kind": "reasoning", "id": "r", "content": "hm"},
                {"kind": "markdown", "id": "p", "content": answer},
            ],
        });
        StoredTurn { id: text.to_owned(), body: serde_json::value::to_raw_value(&body).unwrap().into() }
    }

    #[test]
    fn record_contains_messages_and_responses_in_order() {
        let record = record_of(&[turn("one", "first"), turn("two", "second")], None);
        let expected =
            format!("{HEADING}\n\nUser: one\n\nAssistant: first\n\nUser: two\n\nAssistant: second");
        assert_eq!(&*record, expected);
    }

    #[test]
    fn oldest_turns_are_omitted_when_record_is_too_long() {
        let long = "x".repeat(MAX_MESSAGE * 2);
        let turns: Vec<StoredTurn> = (0..20).map(|number| turn(&format!("m{number}"), &long)).collect();
        let record = record_of(&turns, None);
        assert!(record.len() <= MAX_RECORD + 1024, "{}", record.len());
        assert!(record.contains("m19") && !record.contains("User: m0\n"));
        assert!(record.contains("left out"));
    }
}
