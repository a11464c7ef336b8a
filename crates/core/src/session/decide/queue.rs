//! Waiting messages: the queue, and the message that steers the running turn.
//!
//! A queued message starts a turn when the chat is idle, unless the queue is held. It is
//! held after a cancel, a truncation or a resumable failure, until a client sends, edits or
//! reorders a message or resumes the turn. A steering message is sent to the agent at once,
//! or as soon as one is open; the agent reports when it has added the message to the turn, and
//! the message becomes a part of the turn. If the turn ends before that, the message starts the
//! next turn.

use ahp_types::actions::{
    ChatPendingMessageRemovedAction, ChatPendingMessageSetAction, ChatQueuedMessagesReorderedAction,
    ChatResponsePartAction, StateAction,
};
use ahp_types::common::{JsonObject, StringOrMarkdown};
use ahp_types::state::{
    ChatState, Message, PendingMessage, PendingMessageKind, ResponsePart, SystemNotificationResponsePart,
    Turn, TurnState,
};
use serde_json::json;

use super::{ActionTarget, AgentState, Decision, DecisionView, Effect, Phase, names, reject, turns};
use crate::action::{TurnEffect, meaning};
use crate::agent::AgentCommand;
use crate::ids::TurnId;

/// Most queued messages per chat, far more than users need. Further messages are rejected,
/// and the client keeps them.
const MAX_QUEUED: usize = 256;

/// The key of a part's `_meta` that marks it as a steering message.
pub(in crate::session) const STEERING_META: &str = "innkeeper.steering";

/// Handles a client's queued or steering message.
pub(super) fn set(agent: &AgentState, view: DecisionView<'_>, set: &ChatPendingMessageSetAction) -> Decision {
    // The id becomes part of a turn id.
    if let Some(refused) = names::reject_too_long("the message's id", &set.id) {
        return refused;
    }
    if let Some(reason) = turns::rejection_reason(view, &set.message) {
        return reject(reason);
    }
    let steering = view.chat.steering_message.as_ref();
    let elsewhere = match set.kind {
        PendingMessageKind::Steering => queued(view).iter().any(|message| message.id == set.id),
        PendingMessageKind::Queued => steering.is_some_and(|message| message.id == set.id),
    };
    // When a turn starts with a message, reducers remove it by id alone, and would remove
    // both.
    if elsewhere {
        return reject("another message with this id is waiting");
    }
    if set.kind == PendingMessageKind::Queued
        && queued(view).len() >= MAX_QUEUED
        && !queued(view).iter().any(|message| message.id == set.id)
    {
        return reject("too many waiting messages; remove one first");
    }
    let mut decision = Decision::default();
    if set.kind == PendingMessageKind::Steering
        && let Some(replaced) = steering
    {
        decision.effects.push(Effect::Agent(AgentCommand::Unsteer { id: replaced.id.clone() }));
    }
    // Without a running turn it starts one, as soon as it is committed.
    if set.kind == PendingMessageKind::Steering
        && agent.features.steering
        && matches!(agent.phase, Phase::Live(_))
        && let Some(turn) = turns::running(view)
    {
        decision.effects.push(steer(turn, &set.id, &set.message));
    }
    decision
}

/// Sends a waiting steering message to an agent that has just received the message of a
/// turn.
pub(super) fn send_waiting_steering(
    agent: &AgentState,
    view: DecisionView<'_>,
    turn: &str,
) -> Option<Effect> {
    let waiting = view.chat.steering_message.as_ref().filter(|_| agent.features.steering)?;
    Some(steer(turn, &waiting.id, &waiting.message))
}

fn steer(turn: &str, id: &str, message: &Message) -> Effect {
    let (id, turn, message) = (id.to_owned(), TurnId::new(turn), message.clone());
    Effect::Agent(AgentCommand::Steer { id, turn, message })
}

/// Handles a client's removal of a waiting message.
pub(super) fn removed(view: DecisionView<'_>, removed: &ChatPendingMessageRemovedAction) -> Decision {
    let there = match removed.kind {
        PendingMessageKind::Steering => {
            view.chat.steering_message.as_ref().is_some_and(|message| message.id == removed.id)
        }
        PendingMessageKind::Queued => queued(view).iter().any(|message| message.id == removed.id),
    };
    if !there {
        return reject("there is no waiting message with this id");
    }
    let mut decision = Decision::default();
    if removed.kind == PendingMessageKind::Steering {
        decision.effects.push(Effect::Agent(AgentCommand::Unsteer { id: removed.id.clone() }));
    }
    decision
}

/// Shows a steering message that the agent has taken in its turn, and removes it from the
/// waiting messages. If a client has cancelled the turn in the meantime, the message is in the
/// agent's record without an answer: it is shown in the turn that runs now, or else as a
/// cancelled turn. It is not sent again.
pub(super) fn steering_taken(
    agent: &AgentState,
    view: DecisionView<'_>,
    id: &str,
    turn: &TurnId,
    message: &Message,
) -> Decision {
    let mut decision = Decision::default();
    let is_folded = agent.folded.as_ref().is_some_and(|folded| folded.turn == *turn);
    // A client may have replaced the message with another one of the same id.
    let is_same = |waiting: &PendingMessage| waiting.id == id && waiting.message.text == message.text;
    let Some(running) = turns::running(view) else {
        let is_cancelled = |last: &Turn| last.id == turn.as_str() && last.state == TurnState::Cancelled;
        // The agent's copy contains the content of its attachments.
        let waiting = queued(view).iter().find(|waiting| is_same(waiting));
        if view.chat.turns.last().is_some_and(is_cancelled)
            && let Some(waiting) = waiting
        {
            let actions = turns::cancelled_at_once(view, id, waiting.message.clone());
            decision.actions.extend(actions.map(|action| (ActionTarget::Chat, action)));
        }
        return decision;
    };
    let is_own = is_folded || running == turn.as_str();
    if !is_own && !queued(view).iter().any(is_same) {
        return decision;
    }
    decision.works = is_own;
    decision.actions.push((ActionTarget::Chat, steering_part(running, id, message)));
    decision.actions.extend(turns::unread_attachments(running, message));
    let kind = if view.chat.steering_message.as_ref().is_some_and(is_same) {
        Some(PendingMessageKind::Steering)
    } else {
        queued(view).iter().any(is_same).then_some(PendingMessageKind::Queued)
    };
    if let Some(kind) = kind {
        let removed = ChatPendingMessageRemovedAction { kind, id: id.to_owned() };
        decision.actions.push((ActionTarget::Chat, StateAction::ChatPendingMessageRemoved(removed)));
    }
    decision
}

/// The part that shows a steering message in its turn.
fn steering_part(turn: &str, id: &str, message: &Message) -> StateAction {
    let mut steering = json!({ "id": id });
    let attachments = message.attachments.as_ref().map_or(0, Vec::len);
    if attachments > 0
        && let Some(steering) = steering.as_object_mut()
    {
        steering.insert("attachments".to_owned(), json!(attachments));
    }
    let part = ResponsePart::SystemNotification(SystemNotificationResponsePart {
        content: StringOrMarkdown::from(message.text.clone()),
        meta: Some(JsonObject::from_iter([(STEERING_META.to_owned(), steering)])),
    });
    StateAction::ChatResponsePart(ChatResponsePartAction { turn_id: turn.to_owned(), part, meta: None })
}

/// Starts the next waiting message, if the chat is idle and the queue is not held.
pub(super) fn next(agent: &AgentState, view: DecisionView<'_>) -> Decision {
    if view.chat.active_turn.is_some() || agent.queue_held || matches!(agent.phase, Phase::Closing(_)) {
        return Decision::default();
    }
    let Some(next) = view.chat.steering_message.as_ref().or_else(|| queued(view).first()) else {
        return Decision::default();
    };
    turns::start(agent, view, &next.id, next.message.clone(), Some(next.id.clone()))
}

/// Moves a steering message that the agent has not taken to the front of the queue, after
/// its turn was cancelled.
pub(super) fn requeue_steering(view: DecisionView<'_>) -> Vec<StateAction> {
    let Some(PendingMessage { id, message }) = view.chat.steering_message.clone() else { return Vec::new() };
    let order = std::iter::once(&id).chain(queued(view).iter().map(|waiting| &waiting.id)).cloned().collect();
    vec![
        StateAction::ChatPendingMessageRemoved(ChatPendingMessageRemovedAction {
            kind: PendingMessageKind::Steering,
            id: id.clone(),
        }),
        StateAction::ChatPendingMessageSet(ChatPendingMessageSetAction {
            kind: PendingMessageKind::Queued,
            id,
            message,
        }),
        StateAction::ChatQueuedMessagesReordered(ChatQueuedMessagesReorderedAction { order }),
    ]
}

/// The effect of an action on the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum QueueEffect {
    /// Queued messages start when the chat is idle.
    Continues,
    /// Queued messages wait until a client asks to continue.
    Held,
    /// No change.
    None,
}

impl QueueEffect {
    /// The effect of a client's action. Sending, editing or reordering messages continues the
    /// queue.
    pub(in crate::session) fn of_client(action: &StateAction) -> Self {
        if meaning(action).resumes_queue { Self::Continues } else { Self::of_host(action) }
    }

    /// The effect of a host action. A resumable failure holds the queue, because each message
    /// in it would fail the same way.
    pub(in crate::session) fn of_host(action: &StateAction) -> Self {
        match (meaning(action).turn, action) {
            (Some(TurnEffect::Ends), StateAction::ChatTurnCancelled(_)) => Self::Held,
            (Some(TurnEffect::Ends), StateAction::ChatError(error)) if error.part.resumable == Some(true) => {
                Self::Held
            }
            (Some(TurnEffect::Ends), _) => Self::Continues,
            (Some(TurnEffect::Truncates), _) => Self::Held,
            (Some(TurnEffect::Starts | TurnEffect::Resumes) | None, _) => Self::None,
        }
    }
}

/// Whether the queue of a stored chat is held. After a completed turn messages remain in the
/// queue only if it was held, since the host starts them otherwise. So the queue of a chat
/// with turns never continues after a restart without a client.
pub(in crate::session) fn holds_queue(chat: &ChatState) -> bool {
    let waits = chat.queued_messages.is_some() || chat.steering_message.is_some();
    let held = |last: &Turn| waits || last.state == TurnState::Cancelled || turns::is_resumable(last);
    chat.turns.last().is_some_and(held)
}

fn queued(view: DecisionView<'_>) -> &[PendingMessage] {
    view.chat.queued_messages.as_deref().unwrap_or_default()
}
