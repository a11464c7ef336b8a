//! Maps chats to sessions.
//!
//! The first chat of a session has a URI that contains the session's URI, and stays with
//! it. All other chats are in this map, whether their session is in memory or not. A chat
//! belongs to one session at a time.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::channel::ChannelUri;

/// The sessions of chats whose URI does not name the session.
#[derive(Debug, Default)]
pub(crate) struct ChatAddresses(Mutex<HashMap<ChannelUri, ChannelUri>>);

impl ChatAddresses {
    /// Creates the map from stored pairs of chat and session.
    pub(crate) fn new(stored: Vec<(ChannelUri, ChannelUri)>) -> Self {
        Self(Mutex::new(stored.into_iter().collect()))
    }

    /// The session of a chat, if the URI is a chat's.
    pub(crate) fn session_of(&self, chat: &ChannelUri) -> Option<ChannelUri> {
        self.lock().get(chat).cloned().or_else(|| chat.session_of_default_chat())
    }

    /// Whether the map contains this chat.
    pub(crate) fn contains(&self, chat: &ChannelUri) -> bool {
        self.lock().contains_key(chat)
    }

    /// Reserves a URI for a chat of a session. Returns whether it was free.
    pub(crate) fn claim(&self, chat: &ChannelUri, session: &ChannelUri) -> bool {
        // URIs of this form are reserved for the first chat of a session.
        if chat.session_of_default_chat().is_some() {
            return false;
        }
        match self.lock().entry(chat.clone()) {
            Entry::Occupied(_) => false,
            Entry::Vacant(free) => {
                free.insert(session.clone());
                true
            }
        }
    }

    /// Assigns a chat to another session.
    pub(crate) fn reassign(&self, chat: &ChannelUri, session: &ChannelUri) {
        self.lock().insert(chat.clone(), session.clone());
    }

    /// Removes a chat.
    pub(crate) fn release(&self, chat: &ChannelUri) {
        self.lock().remove(chat);
    }

    /// The chats of a session, including the URI of its first chat, which may be gone.
    pub(crate) fn chats_of(&self, session: &ChannelUri) -> Vec<ChannelUri> {
        let chats = self.lock();
        let further = chats.iter().filter(|(_, owner)| *owner == session).map(|(chat, _)| chat.clone());
        further.chain([ChannelUri::default_chat_of(session)]).collect()
    }

    /// Removes all chats of a session except these.
    pub(crate) fn keep_only(&self, session: &ChannelUri, chats: &[ChannelUri]) {
        self.lock().retain(|chat, owner| owner != session || chats.contains(chat));
    }

    /// Removes all chats of a session.
    pub(crate) fn release_all_of(&self, session: &ChannelUri) {
        self.lock().retain(|_, owner| owner != session);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ChannelUri, ChannelUri>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
