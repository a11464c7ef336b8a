//! Which session a chat belongs to.
//!
//! The chat that a session is created with has an address that names the session, and
//! stays with it; all others are found here, whether their session is in memory or not.
//! A chat has one session at a time, and an address one chat.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::channel::ChannelUri;

/// The sessions of chats whose address does not say it.
#[derive(Debug, Default)]
pub(crate) struct ChatAddresses(Mutex<HashMap<ChannelUri, ChannelUri>>);

impl ChatAddresses {
    /// The addresses that were stored: chats and their sessions.
    pub(crate) fn new(stored: Vec<(ChannelUri, ChannelUri)>) -> Self {
        Self(Mutex::new(stored.into_iter().collect()))
    }

    /// The session that a chat belongs to, if it is a chat's address.
    pub(crate) fn session_of(&self, chat: &ChannelUri) -> Option<ChannelUri> {
        self.lock().get(chat).cloned().or_else(|| chat.session_of_default_chat())
    }

    /// Whether there is a chat at this address that it does not follow from.
    pub(crate) fn contains(&self, chat: &ChannelUri) -> bool {
        self.lock().contains_key(chat)
    }

    /// Takes an address for a chat of a session. Answers whether it was free.
    pub(crate) fn claim(&self, chat: &ChannelUri, session: &ChannelUri) -> bool {
        // Such an address is another kind's, whether there is that session or not.
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

    /// A chat has another session from now on.
    pub(crate) fn reassign(&self, chat: &ChannelUri, session: &ChannelUri) {
        self.lock().insert(chat.clone(), session.clone());
    }

    /// A chat is gone.
    pub(crate) fn release(&self, chat: &ChannelUri) {
        self.lock().remove(chat);
    }

    /// The chats of a session, and where its first one is if it still has it.
    pub(crate) fn chats_of(&self, session: &ChannelUri) -> Vec<ChannelUri> {
        let chats = self.lock();
        let further = chats.iter().filter(|(_, owner)| *owner == session).map(|(chat, _)| chat.clone());
        further.chain([ChannelUri::default_chat_of(session)]).collect()
    }

    /// Of a session's chats these are left.
    pub(crate) fn keep_only(&self, session: &ChannelUri, chats: &[ChannelUri]) {
        self.lock().retain(|chat, owner| owner != session || chats.contains(chat));
    }

    /// A session is gone, with all of its chats.
    pub(crate) fn release_all_of(&self, session: &ChannelUri) {
        self.lock().retain(|_, owner| owner != session);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ChannelUri, ChannelUri>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
