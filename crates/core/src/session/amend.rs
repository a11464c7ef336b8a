//! Completes client actions with data that only the host knows.
//!
//! All clients reduce the echoed action, not the one that was sent. Values that depend on
//! the moment of acceptance are therefore written into the action: the last turn of an
//! attached chat, the positions of queued messages that a new order does not name, the
//! client that denied a tool call, and the kind of an answered one.
//! Everything else in the action stays unchanged.

use std::collections::HashSet;

use ahp_types::actions::StateAction;
use ahp_types::state::{Message, MessageAttachment, PendingMessage};
use serde_json::json;

use crate::channel::ChannelUri;
use crate::ids::ClientId;
use crate::session::call_kind;
use crate::session::decide::{meta_of, tool_call_in};
use crate::state::{Action, Amendment, ChannelState, StateStore};

/// Most attached chats without an `endTurn` in one message: the host loads the session of
/// each to fill it in. A message with more is refused.
pub(super) const MAX_CHATS_TO_PIN: usize = 32;

/// A client's action as it is published, if it has to be changed.
pub(super) fn amended(
    store: &StateStore,
    (session, chat): (&ChannelUri, &ChannelUri),
    client: &ClientId,
    action: &Action,
) -> Option<Action> {
    let amendments = match message_in(action.typed()) {
        Some(message) => pins_of(store, message),
        None => {
            let order = order_of(store, chat, action.typed());
            let denier = denier_of(store, session, client, action.typed());
            [order, denier, kind_of(store, chat, action.typed())].into_iter().flatten().collect()
        }
    };
    if amendments.is_empty() {
        return None;
    }
    action
        .amended(&amendments)
        .inspect_err(|error| tracing::error!(%error, "cannot amend client action"))
        .ok()
}

/// Fills in the `endTurn` of the chats that are attached to a message.
pub(super) fn pin(store: &StateStore, message: &mut Message) {
    for attachment in message.attachments.iter_mut().flatten() {
        if let MessageAttachment::Chat(chat) = attachment
            && chat.end_turn.is_none()
        {
            chat.end_turn = last_turn(store, &chat.resource);
        }
    }
}

fn pins_of(store: &StateStore, message: &Message) -> Vec<Amendment> {
    if has_too_many_chats(message) {
        return Vec::new();
    }
    unpinned(message)
        .filter_map(|(at, chat)| {
            Some((format!("/message/attachments/{at}"), "endTurn", json!(last_turn(store, chat)?)))
        })
        .collect()
}

/// The last finished turn of a chat in memory. A chat without one, or an unknown chat,
/// cannot be pinned; the message is accepted anyway.
fn last_turn(store: &StateStore, chat: &str) -> Option<String> {
    let last = |state: &ChannelState| Some(state.chat_doc()?.turns().last()?.id.clone());
    store.read(&ChannelUri::new(chat), last).flatten()
}

fn order_of(store: &StateStore, chat: &ChannelUri, action: &StateAction) -> Option<Amendment> {
    let StateAction::ChatQueuedMessagesReordered(reordered) = action else { return None };
    let complete = |state: &ChannelState| {
        let queued = state.chat()?.queued_messages.as_deref().unwrap_or_default();
        Some(complete_order(&reordered.order, queued))
    };
    let order = store.read(chat, complete).flatten()?;
    (order != reordered.order).then(|| (String::new(), "order", json!(order)))
}

/// Names the client that denies a tool call, unless the client gives a reason itself.
fn denier_of(
    store: &StateStore,
    session: &ChannelUri,
    client: &ClientId,
    action: &StateAction,
) -> Option<Amendment> {
    let StateAction::ChatToolCallConfirmed(confirmed) = action else { return None };
    if confirmed.approved || confirmed.reason_message.is_some() {
        return None;
    }
    let name = |state: &ChannelState| {
        let mut clients = state.session()?.active_clients.iter();
        clients.find(|active| active.client_id == client.as_str())?.display_name.clone()
    };
    let name = store.read(session, name).flatten().filter(|name| !name.trim().is_empty());
    let message = name.map_or_else(|| "Denied by a client".to_owned(), |name| format!("Denied in {name}"));
    Some((String::new(), "reasonMessage", json!(message)))
}

/// Shows the kind of an answered tool call again.
fn kind_of(store: &StateStore, chat: &ChannelUri, action: &StateAction) -> Option<Amendment> {
    let StateAction::ChatToolCallConfirmed(confirmed) = action else { return None };
    let meta = |state: &ChannelState| {
        let call = tool_call_in(state.chat()?, &confirmed.turn_id, &confirmed.tool_call_id)?;
        call_kind::shown(meta_of(call))
    };
    Some((String::new(), "_meta", json!(store.read(chat, meta).flatten()?)))
}

/// The attached chats whose `endTurn` the host has to fill in. Empty for a message that
/// will be refused because it has too many.
pub(crate) fn chats_to_pin(message: Option<&Message>) -> Vec<ChannelUri> {
    let message = message.filter(|message| !has_too_many_chats(message));
    message.into_iter().flat_map(unpinned).map(|(_, chat)| ChannelUri::new(chat)).collect()
}

/// Whether a message has too many attached chats without an `endTurn`.
pub(super) fn has_too_many_chats(message: &Message) -> bool {
    unpinned(message).nth(MAX_CHATS_TO_PIN).is_some()
}

/// The message that a client sends with an action.
pub(crate) fn message_in(action: &StateAction) -> Option<&Message> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "only these client actions contain a message")]
    match action {
        StateAction::ChatTurnStarted(started) => Some(&started.message),
        StateAction::ChatPendingMessageSet(set) => Some(&set.message),
        _ => None,
    }
}

/// The attached chats without an `endTurn`, with their indexes.
fn unpinned(message: &Message) -> impl Iterator<Item = (usize, &str)> {
    message.attachments.iter().flatten().enumerate().filter_map(|(at, attachment)| {
        let MessageAttachment::Chat(chat) = attachment else { return None };
        chat.end_turn.is_none().then_some((at, chat.resource.as_str()))
    })
}

/// Completes a requested queue order: unknown ids are dropped, and messages that it does not
/// name are appended in their current order. The result names all messages, because reducers
/// differ in how they order unnamed ones.
fn complete_order(wanted: &[String], queued: &[PendingMessage]) -> Vec<String> {
    let mut left: HashSet<&str> = queued.iter().map(|message| message.id.as_str()).collect();
    let waiting = queued.iter().map(|message| &message.id);
    wanted.iter().chain(waiting).filter(|id| left.remove(id.as_str())).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_order_gets_missing_messages_and_loses_unknown_ones() {
        let queued: Vec<PendingMessage> = serde_json::from_value(json!(
            ["c", "a", "b"]
                .map(|id| { json!({"id": id, "message": {"text": id, "origin": {"kind": "user"}}}) })
        ))
        .unwrap();
        for (wanted, complete) in [
            (&["b", "a", "c"][..], ["b", "a", "c"]),
            (&["b", "gone", "a", "c"], ["b", "a", "c"]),
            (&["b"], ["b", "c", "a"]),
            (&["b", "b", "c", "b"], ["b", "c", "a"]),
            (&[], ["c", "a", "b"]),
        ] {
            let wanted: Vec<String> = wanted.iter().map(|id| (*id).to_owned()).collect();
            assert_eq!(complete_order(&wanted, &queued), complete, "{wanted:?}");
        }
    }
}
