//! Turns: start, cancel, resume, truncate and end; and clients' titles.

use ahp_types::actions::{
    ChatErrorAction, ChatResponsePartAction, ChatTurnCancelledAction, ChatTurnCompleteAction,
    ChatTurnStartedAction, SessionTitleChangedAction, StateAction,
};
use ahp_types::common::StringOrMarkdown;
use ahp_types::state::{
    ChatInteractivity, ErrorInfo, ErrorResponsePart, Message, MessageKind, ResponsePart,
    SystemNotificationResponsePart, Turn, TurnState,
};

use super::children::is_child;
use super::{
    ActionTarget, AgentState, CLOSING, Decision, DecisionView, Effect, Phase, leftovers, names, queue, ready,
    reject, times, titles,
};
use crate::agent::{AgentCommand, History, TurnMessage, TurnOutcome};
use crate::attachments::notice;
use crate::ids::TurnId;
use crate::session::amend::has_too_many_chats;
use crate::session::record::record_of;
use crate::storage::{Rewind, StoredTurn};

/// Why an action on the turn of a subagent is rejected.
const NOT_IN_CHILD: &str = "this chat belongs to a subagent; cancel or resume the turn of its parent chat";

/// What an agent is told to resume a turn that it started itself.
const CONTINUE: &str = "Continue from where you left off.";

/// Handles a client's start of a turn.
pub(super) fn started(
    agent: &AgentState,
    view: DecisionView<'_>,
    started: &ChatTurnStartedAction,
) -> Decision {
    if view.chat.active_turn.is_some() {
        return reject("a turn is already running in this chat");
    }
    if view.turns.iter().any(|turn| turn.id == started.turn_id) {
        return reject("the chat already has a turn with this id");
    }
    if let Some(refused) = names::reject_too_long("the turn's id", &started.turn_id) {
        return refused;
    }
    if let Some(reason) = rejection_reason(view, &started.message) {
        return reject(reason);
    }
    if let Some(reason) = times::rejection_reason(&started.started_at, view.time) {
        return reject(&format!("invalid startedAt: {reason}"));
    }
    let prompt = TurnMessage { turn: TurnId::new(&started.turn_id), message: started.message.clone() };
    let mut decision = send_with_steering(agent, view, prompt);
    decision.actions.extend(unread_attachments(&started.turn_id, &started.message));
    decision
}

/// Shows in a turn which attachments the model does not have.
pub(super) fn unread_attachments(turn: &str, message: &Message) -> Option<(ActionTarget, StateAction)> {
    let content = StringOrMarkdown::from(notice(message)?);
    let part = ResponsePart::SystemNotification(SystemNotificationResponsePart { content, meta: None });
    let part = ChatResponsePartAction { turn_id: turn.to_owned(), part, meta: None };
    Some((ActionTarget::Chat, StateAction::ChatResponsePart(part)))
}

/// Starts a turn for a queued message.
pub(super) fn start(
    agent: &AgentState,
    view: DecisionView<'_>,
    name: &str,
    message: Message,
    queued_message_id: Option<String>,
) -> Decision {
    let turn_id = new_turn_id(view.turns, name);
    let prompt = TurnMessage { turn: TurnId::new(&turn_id), message: message.clone() };
    let mut decision = send(agent, view, prompt);
    decision.actions.extend(unread_attachments(&turn_id, &message));
    let started_at = view.time.to_owned();
    let started = ChatTurnStartedAction { turn_id, started_at, message, queued_message_id, meta: None };
    decision.actions.insert(0, (ActionTarget::Chat, StateAction::ChatTurnStarted(started)));
    decision
}

/// The actions that show a waiting message as a cancelled turn, in a chat without a running
/// turn.
pub(super) fn cancelled_at_once(view: DecisionView<'_>, id: &str, message: Message) -> [StateAction; 2] {
    let turn_id = new_turn_id(view.turns, id);
    let started = ChatTurnStartedAction {
        turn_id: turn_id.clone(),
        started_at: view.time.to_owned(),
        message,
        queued_message_id: Some(id.to_owned()),
        meta: None,
    };
    let cancelled = ChatTurnCancelledAction { turn_id, duration: 0, meta: None };
    [StateAction::ChatTurnStarted(started), StateAction::ChatTurnCancelled(cancelled)]
}

/// A turn id that is unique in the chat and deterministic. Clients choose their own turn
/// ids, so any id may be in use.
pub(super) fn new_turn_id(turns: &[StoredTurn], name: &str) -> String {
    let mut candidates = (turns.len()..).map(|number| format!("{name}-{number}"));
    // There are more candidates than turns.
    candidates.find(|id| turns.iter().all(|turn| turn.id != *id)).unwrap_or_default()
}

/// Why a client's message is rejected, if it is.
pub(super) fn rejection_reason(view: DecisionView<'_>, message: &Message) -> Option<&'static str> {
    if message.origin.kind != MessageKind::User {
        return Some("a client can only send messages of origin \"user\"");
    }
    if has_too_many_chats(message) {
        return Some("the message has too many attached chats without an endTurn; the limit is 32");
    }
    let closed =
        matches!(view.chat.interactivity, Some(ChatInteractivity::ReadOnly | ChatInteractivity::Hidden));
    closed.then_some("this chat is read-only")
}

/// Sends a message to the agent, opening the agent if necessary, and derives the session
/// title from the first message.
pub(super) fn send(agent: &AgentState, view: DecisionView<'_>, prompt: TurnMessage) -> Decision {
    let mut decision = Decision::default();
    if view.session.title.is_empty() {
        let title = titles::title_from(&prompt.message.text);
        if !title.is_empty() {
            let action = StateAction::SessionTitleChanged(SessionTitleChangedAction { title });
            decision.actions.push((ActionTarget::Session, action));
        }
    }
    decision.reopened = Some(false);
    match &agent.phase {
        Phase::Cold(history) => {
            let prompt = Some(Box::new(prompt));
            decision.phase = Some(Phase::Opening { history: history.clone(), prompt });
            decision.effects.push(Effect::open(history.clone()));
        }
        // The turn for which the agent is being opened was cancelled.
        Phase::Opening { history, prompt: _ } => {
            let prompt = Some(Box::new(prompt));
            decision.phase = Some(Phase::Opening { history: history.clone(), prompt });
        }
        Phase::Live(history) => {
            if *history == History::Fresh {
                // The agent was opened in advance, and this is its first message.
                decision.phase = Some(Phase::Live(History::Resume));
            }
            decision.actions.extend(ready(view));
            decision.effects.push(Effect::Agent(prompt.into()));
        }
        Phase::Asking { .. } | Phase::Closing(_) => return reject(CLOSING),
    }
    decision
}

/// Sends a message to the agent, followed by the steering message that is waiting. An agent
/// that is not open gets the steering message after it has opened.
fn send_with_steering(agent: &AgentState, view: DecisionView<'_>, prompt: TurnMessage) -> Decision {
    let turn = prompt.turn.clone();
    let mut decision = send(agent, view, prompt);
    if matches!(agent.phase, Phase::Live(_)) {
        decision.effects.extend(queue::send_waiting_steering(agent, view, turn.as_str()));
    }
    decision
}

/// Handles a client's cancellation of a turn.
pub(super) fn cancelled(agent: &AgentState, view: DecisionView<'_>, turn: &str) -> Decision {
    if running(view) != Some(turn) {
        return reject("this turn is not running");
    }
    if is_child(view.chat) {
        return reject(NOT_IN_CHILD);
    }
    let mut decision = Decision::default();
    let leftovers = leftovers::clear_turn(view.chat).into_iter().chain(queue::requeue_steering(view));
    decision.actions.extend(leftovers.map(|action| (ActionTarget::Chat, action)));
    match &agent.phase {
        Phase::Opening { history, prompt: _ } => {
            decision.phase = Some(Phase::Opening { history: history.clone(), prompt: None });
        }
        Phase::Live(_) => {
            decision.effects.push(Effect::Agent(AgentCommand::Cancel { turn: TurnId::new(turn) }));
            if let Some(folded) = &agent.folded {
                decision.folded = Some(None);
                decision.effects.push(Effect::Agent(AgentCommand::Cancel { turn: folded.turn.clone() }));
            }
        }
        Phase::Asking { history, .. } => decision.phase = Some(Phase::Cold(history.clone())),
        Phase::Cold(_) | Phase::Closing(_) => {}
    }
    decision
}

/// Handles a client's renaming of a chat. The default chat's title is the session's title.
pub(super) fn renamed(view: DecisionView<'_>, changed: &SessionTitleChangedAction) -> Decision {
    if let Some(refused) = names::reject_too_long("the title", &changed.title) {
        return refused;
    }
    let mut decision = Decision::default();
    if view.session.default_chat.as_ref() == Some(&view.chat.resource) && view.session.title != changed.title
    {
        decision.actions.push((ActionTarget::Session, StateAction::SessionTitleChanged(changed.clone())));
    }
    decision
}

/// Handles a client's renaming of a session. A default chat with its own title is renamed
/// too.
pub(super) fn session_renamed(view: DecisionView<'_>, changed: &SessionTitleChangedAction) -> Decision {
    if let Some(refused) = names::reject_too_long("the title", &changed.title) {
        return refused;
    }
    let mut decision = Decision::default();
    let of_default = view.session.default_chat.as_ref() == Some(&view.chat.resource);
    if of_default && !view.chat.title.is_empty() && view.chat.title != changed.title {
        decision.actions.push((ActionTarget::Chat, StateAction::SessionTitleChanged(changed.clone())));
    }
    decision
}

/// Resumes a failed turn: the same turn is reopened and its message is sent again. The message of a turn
/// that the agent started itself is only for clients, so the agent is told to continue.
pub(super) fn resumed(agent: &AgentState, view: DecisionView<'_>, turn: &str) -> Decision {
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
    let mut message = last.message.clone();
    if message.origin.kind == MessageKind::SystemNotification {
        CONTINUE.clone_into(&mut message.text);
    }
    let prompt = TurnMessage { turn: TurnId::new(turn), message };
    let mut decision = send_with_steering(agent, view, prompt);
    decision.reopened = Some(true);
    decision
}

/// Truncates a chat after a turn, or before the first. The agent has to rewind, too.
pub(super) fn truncated(agent: &AgentState, view: DecisionView<'_>, turn: Option<&str>) -> Decision {
    if !agent.features.rewind || is_child(view.chat) {
        return reject("this agent cannot go back to an earlier turn");
    }
    if view.chat.active_turn.is_some() {
        return reject("a turn is running in this chat; cancel it first");
    }
    if turn.is_some_and(|turn| view.turns.iter().all(|known| known.id != turn)) {
        return reject("the chat does not have this turn");
    }
    let mut decision = Decision::default();
    match &agent.phase {
        // An agent without history does not need to rewind.
        Phase::Cold(History::Fresh) | Phase::Live(History::Fresh) | Phase::Closing(_) => return decision,
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

/// Whether a turn ended in a resumable error.
pub(super) fn is_resumable(turn: &Turn) -> bool {
    matches!(
        (turn.state, turn.response_parts.last()),
        (TurnState::Error, Some(ResponsePart::Error(error))) if error.resumable == Some(true)
    )
}

/// The id of the running turn.
pub(super) fn running(view: DecisionView<'_>) -> Option<&str> {
    view.chat.active_turn.as_ref().map(|active| active.id.as_str())
}

/// The action that ends a turn.
pub(super) fn ended(
    agent: &AgentState,
    view: DecisionView<'_>,
    turn: &str,
    outcome: TurnOutcome,
) -> StateAction {
    let turn_id = turn.to_owned();
    let duration = duration(agent, view);
    match outcome {
        TurnOutcome::Completed => {
            StateAction::ChatTurnComplete(ChatTurnCompleteAction { turn_id, duration, meta: None })
        }
        TurnOutcome::Cancelled => {
            StateAction::ChatTurnCancelled(ChatTurnCancelledAction { turn_id, duration, meta: None })
        }
        TurnOutcome::Failed(info) => failed(agent, view, turn, info, Resumable::No),
        TurnOutcome::Interrupted(info) => failed(agent, view, turn, info, Resumable::Yes),
    }
}

/// Whether a failed turn can be resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resumable {
    /// Sending the message again would fail the same way.
    No,
    /// The message did not cause the failure.
    Yes,
}

/// The action that ends a turn with an error.
pub(super) fn failed(
    agent: &AgentState,
    view: DecisionView<'_>,
    turn: &str,
    error: ErrorInfo,
    resumable: Resumable,
) -> StateAction {
    failed_after(duration(agent, view), turn, error, resumable)
}

/// The action that ends a turn with an error after this many milliseconds.
pub(super) fn failed_after(duration: i64, turn: &str, error: ErrorInfo, resumable: Resumable) -> StateAction {
    StateAction::ChatError(ChatErrorAction {
        turn_id: turn.to_owned(),
        duration,
        part: ErrorResponsePart { error, resumable: (resumable == Resumable::Yes).then_some(true) },
        meta: None,
    })
}

fn duration(agent: &AgentState, view: DecisionView<'_>) -> i64 {
    i64::try_from(view.now.saturating_sub(agent.turn_began).as_millis()).unwrap_or(i64::MAX)
}
