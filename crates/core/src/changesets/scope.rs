//! Finds the chat, the turns and the directories that an address stands for.

use ahp_types::state::SessionState;

use super::address::ChangesetView;
use super::{ChangesetUri, Changesets, OpenChangeset, lock};
use crate::channel::ChannelUri;
use crate::directories::path_of;
use crate::edits::{ChangeScope, ChangeSelection, EditError};
use crate::state::ChannelState;

/// Why a changeset cannot be opened or an operation on it failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangesetError {
    /// The channel is not a changeset, or its session does not exist.
    #[error("unknown changeset {0}")]
    Unknown(ChannelUri),
    /// The session does not have this chat.
    #[error("the session has no chat {0}")]
    UnknownChat(ChannelUri),
    /// No chat of the session has this turn.
    #[error("unknown turn {0:?}")]
    UnknownTurn(String),
    /// The turns are in the wrong order.
    #[error("turn {modified:?} is before turn {original:?}; exchange them")]
    Reversed {
        /// The turn that should be first.
        original: String,
        /// The turn that should be last.
        modified: String,
    },
    /// Too many changesets are open.
    #[error("too many changesets are open (limit {limit}); unsubscribe from some first")]
    TooMany {
        /// The limit.
        limit: usize,
    },
    /// The operation cannot be run this way; the text gives the reason.
    #[error("{0}")]
    Refused(String),
    /// The edit log failed.
    #[error(transparent)]
    Edit(#[from] EditError),
}

/// A chat of a session and its turns, oldest first.
struct ChatTurns {
    chat: ChannelUri,
    turns: Vec<String>,
}

impl ChatTurns {
    fn position(&self, turn: &str) -> Option<usize> {
        self.turns.iter().position(|known| known == turn)
    }

    fn slice(&self, turns: impl std::slice::SliceIndex<[String], Output = [String]>) -> ChangeSelection {
        ChangeSelection::Turns(self.turns.get(turns).unwrap_or_default().to_vec())
    }
}

impl Changesets {
    /// The part of the log that an address stands for. Its session must be in memory.
    pub(super) fn scope(&self, address: &ChangesetUri) -> Result<ChangeScope, ChangesetError> {
        let chats = self.chats(address)?;
        let (chat, selection) = match &address.view {
            ChangesetView::All => (address.chat.clone(), ChangeSelection::All),
            ChangesetView::Uncommitted => (address.chat.clone(), ChangeSelection::Uncommitted),
            ChangesetView::Turn(turn) => {
                let (chat, at) = self.find(&chats, turn)?;
                (Some(chat.chat.clone()), chat.slice(at..=at))
            }
            ChangesetView::Compare { original, modified } => {
                let (chat, first) = self.find(&chats, original)?;
                let last = chat.position(modified);
                let last = last.ok_or_else(|| ChangesetError::UnknownTurn(modified.clone()))?;
                if last < first {
                    let (original, modified) = (original.clone(), modified.clone());
                    return Err(ChangesetError::Reversed { original, modified });
                }
                (Some(chat.chat.clone()), chat.slice(first + 1..last + 1))
            }
        };
        let roots = self.roots(&address.session, chat.as_ref());
        Ok(ChangeScope { session: address.session.clone(), chat, roots, selection })
    }

    /// The turn of a changeset and all later ones.
    pub(super) fn scope_from_turn(&self, address: &ChangesetUri) -> Result<ChangeScope, ChangesetError> {
        let scope = self.scope(address)?;
        let (ChangesetView::Turn(turn), Some(chat)) = (&address.view, &scope.chat) else {
            return Err(ChangesetError::Refused("only a turn's changeset can be restored".to_owned()));
        };
        let chat = ChatTurns { turns: self.turns(chat), chat: chat.clone() };
        let at = chat.position(turn).ok_or_else(|| ChangesetError::UnknownTurn(turn.clone()))?;
        Ok(ChangeScope { selection: chat.slice(at..), ..scope })
    }

    /// The current scope of an open changeset. While its session is not in memory or a turn
    /// was removed, the last known one.
    pub(super) fn current_scope(&self, changeset: &OpenChangeset) -> ChangeScope {
        let current = self.scope(&changeset.address);
        let mut known = lock(&changeset.scope);
        if let Ok(current) = current {
            known.clone_from(&current);
        }
        known.clone()
    }

    /// The chats in which the turns of an address are looked for, the default chat first: a
    /// fork has the turns of its source.
    fn chats(&self, address: &ChangesetUri) -> Result<Vec<ChannelUri>, ChangesetError> {
        let chats = |session: &SessionState| {
            let default = session.default_chat.iter();
            let all = default.chain(session.chats.iter().map(|chat| &chat.resource));
            all.map(|chat| ChannelUri::new(chat)).collect::<Vec<_>>()
        };
        let look = |state: &ChannelState| state.session().map(chats);
        let chats = self.store.read(&address.session, look).flatten();
        let chats = chats.ok_or_else(|| ChangesetError::Unknown(ChannelUri::new(&address.to_string())))?;
        match &address.chat {
            None => Ok(chats),
            Some(chat) if chats.contains(chat) => Ok(vec![chat.clone()]),
            Some(chat) => Err(ChangesetError::UnknownChat(chat.clone())),
        }
    }

    /// The first chat that has a turn, and the turn's position.
    fn find(&self, chats: &[ChannelUri], turn: &str) -> Result<(ChatTurns, usize), ChangesetError> {
        let found = chats.iter().find_map(|chat| {
            let chat = ChatTurns { turns: self.turns(chat), chat: chat.clone() };
            let at = chat.position(turn)?;
            Some((chat, at))
        });
        found.ok_or_else(|| ChangesetError::UnknownTurn(turn.to_owned()))
    }

    /// The turns of a chat, oldest first, including the running one.
    fn turns(&self, chat: &ChannelUri) -> Vec<String> {
        let look = |state: &ChannelState| {
            let doc = state.chat_doc()?;
            let running = doc.open().active_turn.as_ref().map(|turn| turn.id.clone());
            Some(doc.turns().iter().map(|turn| turn.id.clone()).chain(running).collect())
        };
        self.store.read(chat, look).flatten().unwrap_or_default()
    }

    /// The directories of a chat or of its whole session.
    fn roots(&self, session: &ChannelUri, chat: Option<&ChannelUri>) -> Vec<std::path::PathBuf> {
        let of_chat = chat.and_then(|chat| {
            self.store.read(chat, |state| state.chat()?.working_directories.clone()).flatten()
        });
        let of_session =
            || self.store.read(session, |state| state.session()?.working_directories.clone()).flatten();
        let directories = of_chat.or_else(of_session).unwrap_or_default();
        let roots: Vec<_> = directories.iter().filter_map(|directory| path_of(directory)).collect();
        if roots.is_empty() { self.default_directory.iter().cloned().collect() } else { roots }
    }
}
