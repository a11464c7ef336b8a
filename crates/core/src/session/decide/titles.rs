//! Titles of sessions: the provisional one of the first message, and those that an agent or a model
//! suggests for it. A title that a client set is never replaced.

use ahp_types::actions::{SessionTitleChangedAction, StateAction};
use ahp_types::state::{MessageKind, ResponsePart, Turn, TurnState};

use super::{ActionTarget, Decision, DecisionView, names};

/// Longest title that is derived from a message, in characters.
const TITLE_LENGTH: usize = 60;

/// Longest part of a message from which a title is written, in characters.
const MAX_MESSAGE: usize = 2000;

/// Longest part of an answer from which a title is written, in characters.
const MAX_REPLY: usize = 1000;

/// The first message and the answer, from which a title is written.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::session) struct FirstExchange {
    pub(in crate::session) message: String,
    pub(in crate::session) reply: String,
}

/// The first exchange of a session, if it has just been completed and the session has only a
/// provisional title.
pub(in crate::session) fn first_exchange(view: DecisionView<'_>) -> Option<FirstExchange> {
    let [_] = view.turns else { return None };
    let turn = view.chat.turns.last().filter(|_| view.chat.active_turn.is_none())?;
    let is_first = turn.state == TurnState::Complete && turn.message.origin.kind == MessageKind::User;
    if !is_first || turn.message.text.trim().is_empty() || !can_suggest(view) {
        return None;
    }
    let texts = turn.response_parts.iter().filter_map(|part| {
        if let ResponsePart::Markdown(part) = part { Some(part.content.as_str()) } else { None }
    });
    Some(FirstExchange {
        message: turn.message.text.chars().take(MAX_MESSAGE).collect(),
        reply: texts.collect::<Vec<_>>().join("\n\n").chars().take(MAX_REPLY).collect(),
    })
}

/// Whether the session's title may be replaced by a suggestion about this chat.
fn can_suggest(view: DecisionView<'_>) -> bool {
    // The title of another chat must not become the session's title.
    let of_default = view.session.default_chat.as_ref() == Some(&view.chat.resource);
    of_default && view.chat.title.is_empty() && is_provisional(view)
}

/// Handles a suggestion of the agent.
pub(super) fn suggested(view: DecisionView<'_>, title: String) -> Decision {
    let mut decision = Decision::default();
    if !title.is_empty() && can_suggest(view) {
        let title = names::cut(title);
        let action = StateAction::SessionTitleChanged(SessionTitleChangedAction { title });
        decision.actions.push((ActionTarget::Session, action));
    }
    decision
}

/// Handles the answer of a model that was asked for a title.
pub(super) fn written(view: DecisionView<'_>, answer: &str) -> Decision {
    suggested(view, tidied(answer))
}

/// The first line of an answer without quotes, marks of Markdown and a final full stop.
fn tidied(answer: &str) -> String {
    let line = title_from(answer);
    let is_mark = |mark: char| mark.is_whitespace() || "\"'`*#_“”„«»".contains(mark);
    let title = line.trim_matches(is_mark);
    title.strip_suffix('.').unwrap_or(title).trim_end_matches(is_mark).to_owned()
}

/// Whether the session title is still the one derived from its first message.
fn is_provisional(view: DecisionView<'_>) -> bool {
    let title = view.session.title.as_str();
    if title.is_empty() {
        return true;
    }
    let first = match (view.turns, view.chat.turns.last()) {
        // The document contains the last turn, and parsing another copy takes time.
        ([_], Some(turn)) => Some(turn.message.text.clone()),
        ([turn, ..], _) => serde_json::from_str::<Turn>(turn.body.get()).ok().map(|turn| turn.message.text),
        ([], _) => view.chat.active_turn.as_ref().map(|turn| turn.message.text.clone()),
    };
    first.is_some_and(|text| title_from(&text) == title)
}

/// A provisional title: the first line of the message, cut at a word boundary.
pub(in crate::session) fn title_from(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    if line.chars().count() <= TITLE_LENGTH {
        return line.to_owned();
    }
    let cut: String = line.chars().take(TITLE_LENGTH).collect();
    let kept = cut.rsplit_once(' ').map_or(cut.as_str(), |(kept, _)| kept);
    format!("{kept}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn title_is_first_line_cut_at_word_boundary() {
        assert_eq!(title_from("\n  hi  \nthere"), "hi");
        assert_eq!(title_from(""), "");
        let long = "word ".repeat(30);
        let title = title_from(&long);
        assert!(title.chars().count() <= TITLE_LENGTH + 1 && title.ends_with("word…"), "{title}");
        assert_eq!(title_from(&"ü".repeat(80)).chars().count(), TITLE_LENGTH + 1);
    }

    #[test]
    fn answer_becomes_one_plain_line() {
        for (answer, title) in [
            ("Fixing the parser", "Fixing the parser"),
            ("\n# **\"Fixing the parser.\"**\n\nThis title…", "Fixing the parser"),
            ("“Den Parser reparieren”.", "Den Parser reparieren"),
            ("`cargo test` in C++", "cargo test` in C++"),
            ("\"\"", ""),
            (" \n\t", ""),
        ] {
            assert_eq!(tidied(answer), title, "{answer:?}");
        }
    }
}
