//! What a client leaves to the host to say, and how it comes into its action.
//!
//! Everybody reduces the echo and nobody what was sent, so that what depends on the
//! moment is written into the action when it is accepted: how far an attached chat is
//! meant, and where messages go that a new order of the queue does not name. All else in
//! the action stays as it came.

use std::collections::HashSet;

use ahp_types::actions::StateAction;
use ahp_types::state::{Message, MessageAttachment, PendingMessage};
use serde_json::json;

use super::actor::SessionActor;
use crate::channel::ChannelUri;
use crate::state::{Action, Amendment, ChannelState};

/// Chats that a message may leave it to the host to say of how far they are meant: for
/// each, its session is loaded. A message with more is refused.
pub(super) const MAX_CHATS_TO_PIN: usize = 32;

impl SessionActor {
    /// A client's action as everybody shall get it, if that is not how it came.
    pub(super) fn amended(&self, chat: &ChannelUri, action: &Action) -> Option<Action> {
        let amendments = match message_in(action.typed()) {
            Some(message) => self.pins_of(message),
            None => self.order_of(chat, action.typed()).into_iter().collect(),
        };
        if amendments.is_empty() {
            return None;
        }
        action
            .amended(&amendments)
            .inspect_err(|error| tracing::error!(%error, "an action could not be completed"))
            .ok()
    }

    /// Writes into a message how far the chats are meant that are attached to it.
    pub(super) fn pin(&self, message: &mut Message) {
        for attachment in message.attachments.iter_mut().flatten() {
            if let MessageAttachment::Chat(chat) = attachment
                && chat.end_turn.is_none()
            {
                chat.end_turn = self.last_turn(&chat.resource);
            }
        }
    }

    fn pins_of(&self, message: &Message) -> Vec<Amendment> {
        if has_too_many_chats(message) {
            return Vec::new();
        }
        unpinned(message)
            .filter_map(|(at, chat)| {
                Some((format!("/message/attachments/{at}"), "endTurn", json!(self.last_turn(chat)?)))
            })
            .collect()
    }

    /// The last finished turn of any chat in memory. One that has none cannot be pinned,
    /// and neither can one that nobody knows; the message is taken all the same.
    fn last_turn(&self, chat: &str) -> Option<String> {
        let last = |state: &ChannelState| Some(state.chat_doc()?.turns().last()?.id.clone());
        self.store.read(&ChannelUri::new(chat), last).flatten()
    }

    fn order_of(&self, chat: &ChannelUri, action: &StateAction) -> Option<Amendment> {
        let StateAction::ChatQueuedMessagesReordered(reordered) = action else { return None };
        let complete = |state: &ChannelState| {
            let queued = state.chat()?.queued_messages.as_deref().unwrap_or_default();
            Some(complete_order(&reordered.order, queued))
        };
        let order = self.store.read(chat, complete).flatten()?;
        (order != reordered.order).then(|| (String::new(), "order", json!(order)))
    }
}

/// The chats that are meant as far as they have come when this action is accepted. None of
/// a message that will be refused for having too many.
pub(crate) fn chats_to_pin(message: Option<&Message>) -> Vec<ChannelUri> {
    let message = message.filter(|message| !has_too_many_chats(message));
    message.into_iter().flat_map(unpinned).map(|(_, chat)| ChannelUri::new(chat)).collect()
}

/// Whether there are more chats to pin in a message than it may have.
pub(super) fn has_too_many_chats(message: &Message) -> bool {
    unpinned(message).nth(MAX_CHATS_TO_PIN).is_some()
}

/// The message that a client sends with an action.
pub(crate) fn message_in(action: &StateAction) -> Option<&Message> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "nothing else is accepted with a message in it")]
    match action {
        StateAction::ChatTurnStarted(started) => Some(&started.message),
        StateAction::ChatPendingMessageSet(set) => Some(&set.message),
        _ => None,
    }
}

/// The attached chats that nobody has said of how far they are meant, and their places.
fn unpinned(message: &Message) -> impl Iterator<Item = (usize, &str)> {
    message.attachments.iter().flatten().enumerate().filter_map(|(at, attachment)| {
        let MessageAttachment::Chat(chat) = attachment else { return None };
        chat.end_turn.is_none().then_some((at, chat.resource.as_str()))
    })
}

/// The order that is wanted, of the messages that wait and of no others. A client that does
/// not know of some has not asked for them to go: they come last, as they were. It names
/// each, because reducers do not agree on the order of the others.
fn complete_order(wanted: &[String], queued: &[PendingMessage]) -> Vec<String> {
    let mut left: HashSet<&str> = queued.iter().map(|message| message.id.as_str()).collect();
    let waiting = queued.iter().map(|message| &message.id);
    wanted.iter().chain(waiting).filter(|id| left.remove(id.as_str())).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_completed_with_what_waits_and_rid_of_what_does_not() {
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
