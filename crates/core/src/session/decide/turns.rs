//! Turns: how they start, are cancelled, resumed and ended.

use ahp_types::actions::{
    ChatErrorAction, ChatTurnCancelledAction, ChatTurnCompleteAction, ChatTurnStartedAction,
    SessionTitleChangedAction, StateAction,
};
use ahp_types::state::{
    ChatInteractivity, ErrorInfo, ErrorResponsePart, Message, MessageKind, ResponsePart, Turn, TurnState,
};
use jiff::{SignedDuration, Timestamp};

use super::children::is_child;
use super::{CLOSING, Decision, Effect, Model, Phase, Target, View, names, reject};
use crate::agent::{AgentCommand, History, TurnOutcome, Unsent};
use crate::ids::TurnId;
use crate::session::amend::has_too_many_chats;
use crate::session::record::record_of;
use crate::storage::Rewind;

/// Why a client's order about a turn of a subagent is rejected.
const NOT_IN_CHILD: &str = "this chat belongs to a subagent; cancel or resume the turn of its parent chat";

/// Longest title that is made from a message, in characters.
const TITLE_LENGTH: usize = 60;

/// Bytes of a time. One to the nanosecond with its offset has 35; what may stand behind it
/// has no end.
const MAX_TIME: usize = 64;

/// Room for a turn's duration at the end of the calendar: a hundred years.
const HEADROOM: SignedDuration = SignedDuration::from_hours(100 * 365 * 24);

/// A client starts a turn.
pub(super) fn started(model: &Model, view: View<'_>, started: &ChatTurnStartedAction) -> Decision {
    if view.chat.active_turn.is_some() {
        return reject("a turn is already running in this chat");
    }
    if view.turns.iter().any(|turn| turn.id == started.turn_id) {
        return reject("the chat already has a turn with this id");
    }
    if let Some(refused) = names::refused("the turn's id", &started.turn_id) {
        return refused;
    }
    if let Some(reason) = unfit(view, &started.message) {
        return reject(reason);
    }
    // The reducers add the turn's duration to it; a time at the end of the calendar
    // would make the turn unable to end.
    let time = Some(&started.started_at).filter(|time| time.len() <= MAX_TIME);
    let time = time.and_then(|time| time.parse::<Timestamp>().ok());
    if time.is_none_or(|time| time >= Timestamp::MAX - HEADROOM) {
        return reject("startedAt is not an RFC 3339 time, or too far in the future");
    }
    let prompt = Unsent { turn: TurnId::new(&started.turn_id), message: started.message.clone() };
    send(model, view, prompt)
}

/// The host itself starts a turn, with a message that waited for it.
pub(super) fn start(
    model: &Model,
    view: View<'_>,
    name: &str,
    message: Message,
    queued_message_id: Option<String>,
) -> Decision {
    let turn_id = new_turn_id(view, name);
    let prompt = Unsent { turn: TurnId::new(&turn_id), message: message.clone() };
    let mut decision = send(model, view, prompt);
    let started_at = view.time.to_owned();
    let started = ChatTurnStartedAction { turn_id, started_at, message, queued_message_id, meta: None };
    decision.actions.insert(0, (Target::Chat, StateAction::ChatTurnStarted(started)));
    decision
}

/// An id for a turn that is unique in the chat, and the same whenever this is decided
/// again. A client may have chosen any id for a turn of its own.
fn new_turn_id(view: View<'_>, name: &str) -> String {
    let turns = view.turns;
    let mut candidates = (turns.len()..).map(|number| format!("{name}-{number}"));
    // There are more candidates than turns.
    candidates.find(|id| turns.iter().all(|turn| turn.id != *id)).unwrap_or_default()
}

/// Why a message of a client's cannot be taken, if it cannot.
pub(super) fn unfit(view: View<'_>, message: &Message) -> Option<&'static str> {
    if message.origin.kind != MessageKind::User {
        return Some("a client can only send messages of origin \"user\"");
    }
    if has_too_many_chats(message) {
        return Some("the message has too many chats attached without an endTurn; at most 32 are taken");
    }
    let closed =
        matches!(view.chat.interactivity, Some(ChatInteractivity::ReadOnly | ChatInteractivity::Hidden));
    closed.then_some("this chat takes no messages")
}

/// Brings a message to the agent, which is opened for it if need be, and names the
/// session after the first one.
pub(super) fn send(model: &Model, view: View<'_>, prompt: Unsent) -> Decision {
    let mut decision = Decision::default();
    if view.session.title.is_empty() {
        let title = title_from(&prompt.message.text);
        if !title.is_empty() {
            let action = StateAction::SessionTitleChanged(SessionTitleChangedAction { title });
            decision.actions.push((Target::Session, action));
        }
    }
    decision.reopened = Some(false);
    match &model.phase {
        Phase::Cold(history) => {
            let prompt = Some(Box::new(prompt));
            decision.phase = Some(Phase::Opening { history: history.clone(), prompt });
            decision.effects.push(Effect::OpenAgent(history.clone()));
        }
        // The turn that started the opening was cancelled meanwhile.
        Phase::Opening { history, prompt: _ } => {
            let prompt = Some(Box::new(prompt));
            decision.phase = Some(Phase::Opening { history: history.clone(), prompt });
        }
        Phase::Live(_) => decision.effects.push(Effect::Agent(prompt.into())),
        Phase::Asking { .. } | Phase::Closing(_) => return reject(CLOSING),
    }
    decision
}

/// A client cancels a turn.
pub(super) fn cancelled(model: &Model, view: View<'_>, turn: &str) -> Decision {
    if running(view) != Some(turn) {
        return reject("this turn is not running");
    }
    if is_child(view.chat) {
        return reject(NOT_IN_CHILD);
    }
    let mut decision = Decision::default();
    match &model.phase {
        Phase::Opening { history, prompt: _ } => {
            decision.phase = Some(Phase::Opening { history: history.clone(), prompt: None });
        }
        Phase::Live(_) => {
            decision.effects.push(Effect::Agent(AgentCommand::Cancel { turn: TurnId::new(turn) }));
            if let Some(folded) = &model.folded {
                decision.folded = Some(None);
                decision.effects.push(Effect::Agent(AgentCommand::Cancel { turn: folded.turn.clone() }));
            }
        }
        Phase::Asking { history, .. } => decision.phase = Some(Phase::Cold(history.clone())),
        Phase::Cold(_) | Phase::Closing(_) => {}
    }
    decision
}

/// A client renames a chat. The default chat has the session's title.
pub(super) fn renamed(view: View<'_>, changed: &SessionTitleChangedAction) -> Decision {
    if let Some(refused) = names::refused("the title", &changed.title) {
        return refused;
    }
    let mut decision = Decision::default();
    if view.session.default_chat.as_ref() == Some(&view.chat.resource) && view.session.title != changed.title
    {
        decision.actions.push((Target::Session, StateAction::SessionTitleChanged(changed.clone())));
    }
    decision
}

/// A client renames a session. A default chat that has a title of its own follows.
pub(super) fn session_renamed(view: View<'_>, changed: &SessionTitleChangedAction) -> Decision {
    if let Some(refused) = names::refused("the title", &changed.title) {
        return refused;
    }
    let mut decision = Decision::default();
    let of_default = view.session.default_chat.as_ref() == Some(&view.chat.resource);
    if of_default && !view.chat.title.is_empty() && view.chat.title != changed.title {
        decision.actions.push((Target::Chat, StateAction::SessionTitleChanged(changed.clone())));
    }
    decision
}

/// A client wants a turn that failed to go on. The same turn opens again, and its
/// message goes to the agent once more.
pub(super) fn resumed(model: &Model, view: View<'_>, turn: &str) -> Decision {
    if view.chat.active_turn.is_some() {
        return reject("a turn is already running in this chat");
    }
    let Some(last) = view.chat.turns.last().filter(|last| last.id == turn) else {
        return reject("only the last turn can be resumed");
    };
    if !is_resumable(last) {
        return reject("the turn did not end in an error that can be resumed");
    }
    if is_child(view.chat) {
        return reject(NOT_IN_CHILD);
    }
    let mut decision = send(model, view, Unsent { turn: TurnId::new(turn), message: last.message.clone() });
    decision.reopened = Some(true);
    decision
}

/// A client goes back to an earlier turn, or to before the first. The agent has to
/// forget what came after it, too.
pub(super) fn truncated(model: &Model, view: View<'_>, turn: Option<&str>) -> Decision {
    if !model.features.rewind || is_child(view.chat) {
        return reject("this agent cannot go back to an earlier turn");
    }
    if view.chat.active_turn.is_some() {
        return reject("a turn is running in this chat; cancel it first");
    }
    if turn.is_some_and(|turn| view.turns.iter().all(|known| known.id != turn)) {
        return reject("the chat has no such turn");
    }
    let mut decision = Decision::default();
    match &model.phase {
        // An agent that starts from nothing has nothing to forget.
        Phase::Cold(History::Fresh) | Phase::Closing(_) => return decision,
        Phase::Live(_) => {
            let to = turn.map(TurnId::new);
            decision.effects.push(Effect::Agent(AgentCommand::Rewind { to }));
        }
        Phase::Cold(History::Rebuild(_)) => {
            let kept = turn.and_then(|turn| view.turns.iter().position(|known| known.id == turn));
            let kept = view.turns.get(..kept.map_or(0, |last| last + 1)).unwrap_or_default();
            decision.phase = Some(Phase::Cold(History::Rebuild(record_of(kept, None))));
        }
        Phase::Cold(History::Resume | History::Branch(_)) | Phase::Opening { .. } | Phase::Asking { .. } => {}
    }
    decision.rewind = Some(Rewind { to: turn.map(str::to_owned) });
    decision
}

/// Whether a turn ended in an error that a user can make go on.
pub(super) fn is_resumable(turn: &Turn) -> bool {
    matches!(
        (turn.state, turn.response_parts.last()),
        (TurnState::Error, Some(ResponsePart::Error(error))) if error.resumable == Some(true)
    )
}

/// The turn that is running.
pub(super) fn running(view: View<'_>) -> Option<&str> {
    view.chat.active_turn.as_ref().map(|active| active.id.as_str())
}

/// The action that ends a turn.
pub(super) fn ended(model: &Model, view: View<'_>, turn: &str, outcome: TurnOutcome) -> StateAction {
    let turn_id = turn.to_owned();
    let duration = duration(model, view);
    match outcome {
        TurnOutcome::Completed => {
            StateAction::ChatTurnComplete(ChatTurnCompleteAction { turn_id, duration, meta: None })
        }
        TurnOutcome::Cancelled => {
            StateAction::ChatTurnCancelled(ChatTurnCancelledAction { turn_id, duration, meta: None })
        }
        TurnOutcome::Failed(info) => failed(model, view, turn, info, Resumable::No),
        TurnOutcome::Interrupted(info) => failed(model, view, turn, info, Resumable::Yes),
    }
}

/// Whether a user can make a failed turn go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resumable {
    /// Sending the message again would do the same again.
    No,
    /// The failure was not the message's.
    Yes,
}

/// The action that ends a turn with an error.
pub(super) fn failed(
    model: &Model,
    view: View<'_>,
    turn: &str,
    error: ErrorInfo,
    resumable: Resumable,
) -> StateAction {
    failed_after(duration(model, view), turn, error, resumable)
}

/// The action that ends a turn with an error after so many milliseconds.
pub(super) fn failed_after(duration: i64, turn: &str, error: ErrorInfo, resumable: Resumable) -> StateAction {
    StateAction::ChatError(ChatErrorAction {
        turn_id: turn.to_owned(),
        duration,
        part: ErrorResponsePart { error, resumable: (resumable == Resumable::Yes).then_some(true) },
        meta: None,
    })
}

fn duration(model: &Model, view: View<'_>) -> i64 {
    i64::try_from(view.now.saturating_sub(model.turn_began).as_millis()).unwrap_or(i64::MAX)
}

/// Whether the session still has the name that was made from its first message.
pub(super) fn has_provisional_title(view: View<'_>) -> bool {
    let title = view.session.title.as_str();
    if title.is_empty() {
        return true;
    }
    let first = match view.turns.first() {
        Some(turn) => serde_json::from_str::<Turn>(turn.body.get()).ok().map(|turn| turn.message.text),
        None => view.chat.active_turn.as_ref().map(|turn| turn.message.text.clone()),
    };
    first.is_some_and(|text| title_from(&text) == title)
}

/// A provisional title: the message's first line, cut at a word.
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
    fn a_title_is_the_first_line_cut_at_a_word() {
        assert_eq!(title_from("\n  hi  \nthere"), "hi");
        assert_eq!(title_from(""), "");
        let long = "word ".repeat(30);
        let title = title_from(&long);
        assert!(title.chars().count() <= TITLE_LENGTH + 1 && title.ends_with("word…"), "{title}");
        assert_eq!(title_from(&"ü".repeat(80)).chars().count(), TITLE_LENGTH + 1);
    }
}
