//! Creates, disposes and moves chats.
//!
//! A chat is moved in three steps: its session releases it, storage assigns it to the other
//! session, and then the lists of both sessions are updated. After a crash in between, the
//! chat belongs to the session that storage names.

use std::sync::Arc;
use std::time::Duration;

use ahp_types::commands::ChatMoveDestination;
use ahp_types::state::SessionState;
use uuid::Uuid;

use super::{CreateError, Host, LoadError, NewSession, lock};
use crate::attachments::{AttachmentSources, ClientGone};
use crate::channel::ChannelUri;
use crate::ids::ClientId;
use crate::output::{OutputId, StoredOutput};
use crate::session::{
    ChatError, ChatOrder, ChatPlacement, ChatSeed, ChatTransfer, NewChat, PendingReply, SessionEnding,
    SessionHandle, chats_to_pin,
};
use crate::state::ChannelState;
use crate::storage::{Change, StorageError};

/// How long storage may take to reassign a chat before the move is cancelled.
const REASSIGN_TIMEOUT: Duration = Duration::from_secs(5);

impl From<CreateError> for ChatError {
    fn from(error: CreateError) -> Self {
        match error {
            CreateError::Exists(uri) => Self::Exists(uri),
            CreateError::Closing => Self::Gone,
            CreateError::Storage(error) => Self::Storage(error),
            CreateError::UnknownProvider(_) | CreateError::Invalid(_) | CreateError::TokensNeeded(_) => {
                Self::Refused(error.to_string())
            }
        }
    }
}

impl From<LoadError> for ChatError {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Storage(error) => Self::Storage(error),
            LoadError::Changeset(error) => Self::Refused(error.to_string()),
        }
    }
}

impl Host {
    /// Creates a chat in a session. The first chat of a session always exists, and creating
    /// it again is not an error.
    /// The attachments of its first message are read for the client that sends it.
    pub async fn create_chat(
        &self,
        session: &ChannelUri,
        mut new: NewChat,
        client: Option<(&ClientId, &AttachmentSources)>,
    ) -> Result<(), ChatError> {
        self.session_handle(session).await?;
        if ChannelUri::default_chat_of(session) == new.uri && self.store.has(&new.uri) {
            return Ok(());
        }
        let _reserved = self.reserve(&new.uri).map_err(ChatError::from)?;
        let mut snapshots = Vec::new();
        if let (Some((client, sources)), Some(message)) = (client, &mut new.initial_message) {
            let gone = |ClientGone| ChatError::Refused("the client disconnected".to_owned());
            let read = sources.read(client, message).await.map_err(gone)?;
            read.apply(message);
            snapshots = read.snapshots;
        }
        self.load_or_log(&chats_to_pin(new.initial_message.as_ref())).await;
        match self.create_chat_once(session, new.clone(), snapshots.clone()).await {
            // The session may just have been unloaded.
            Err(ChatError::Gone) => self.create_chat_once(session, new, snapshots).await,
            outcome => outcome,
        }
    }

    async fn create_chat_once(
        &self,
        session: &ChannelUri,
        new: NewChat,
        snapshots: Vec<(OutputId, StoredOutput)>,
    ) -> Result<(), ChatError> {
        let handle = self.session_handle(session).await?;
        handle.order(|done| ChatOrder::Create { new: Box::new(new), snapshots, done }).await
    }

    /// Ends and deletes a chat. Dispatches after this has returned are rejected; the returned
    /// reply arrives when the chat has ended.
    pub async fn dispose_chat(&self, chat: &ChannelUri) -> Result<PendingReply<()>, ChatError> {
        match self.dispose_chat_once(chat).await {
            Err(ChatError::Gone) => self.dispose_chat_once(chat).await,
            outcome => outcome,
        }
    }

    async fn dispose_chat_once(&self, chat: &ChannelUri) -> Result<PendingReply<()>, ChatError> {
        let (_, handle) = self.session_of_chat(chat).await?;
        handle.begin(|done| ChatOrder::Dispose { chat: chat.clone(), done }).await
    }

    /// Moves a chat within its session, to another session or to a new one. Returns its
    /// session. The move continues if the caller stops waiting.
    pub fn move_chat(
        self: &Arc<Self>,
        chat: ChannelUri,
        to: ChatMoveDestination,
    ) -> impl Future<Output = Result<ChannelUri, ChatError>> + Send + use<> {
        let host = Arc::clone(self);
        let moved = self.tasks.spawn(async move { host.move_now(&chat, to).await });
        async { moved.await.unwrap_or(Err(ChatError::Gone)) }
    }

    async fn move_now(&self, chat: &ChannelUri, to: ChatMoveDestination) -> Result<ChannelUri, ChatError> {
        // One at a time, or two sessions that exchange chats could wait for each other.
        let _alone = self.moves.acquire().await;
        let (source, from) = self.session_of_chat(chat).await?;
        match to {
            ChatMoveDestination::Session(to) => {
                let session = ChannelUri::new(&to.session);
                let after = to.after.as_deref().map(ChannelUri::new);
                if session == source {
                    let chat = chat.clone();
                    from.order(|done| ChatOrder::Place { chat, after, done }).await?;
                } else {
                    let to = self.session_handle(&session).await?;
                    self.check_compatible(&source, &session)?;
                    let placement = ChatPlacement::After(after);
                    self.move_to_session(chat, (&source, &from), (&session, &to), placement).await?;
                }
                Ok(session)
            }
            ChatMoveDestination::NewSession(_) => self.move_to_new_session(chat, &source, &from).await,
            ChatMoveDestination::Unknown(_) => {
                Err(ChatError::Refused("unknown kind of destination".to_owned()))
            }
        }
    }

    /// Moves a chat to another session. After an error it stays where it was.
    async fn move_to_session(
        &self,
        chat: &ChannelUri,
        (source, from): (&ChannelUri, &SessionHandle),
        (session, to): (&ChannelUri, &SessionHandle),
        placement: ChatPlacement,
    ) -> Result<(), ChatError> {
        let expected = placement.clone();
        to.order(|done| ChatTransfer::Expect { placement: expected, done }).await?;
        let seed = match self.release_and_reassign(chat, from, session).await {
            Ok(seed) => seed,
            Err(error) => {
                to.order(|done| ChatTransfer::CancelExpected { done }).await?;
                return Err(error);
            }
        };
        // From here on it belongs to the other session, which does not end before adopting it.
        self.move_edits(chat, session).await;
        let forgotten = from.order(|done| ChatTransfer::DropReleased { chat: chat.clone(), done }).await;
        let adopted = to.order(|done| ChatTransfer::Adopt { seed: Box::new(seed), placement, done }).await;
        // The source row is updated last, so that the chat is always in one row. A source
        // that has ended in the meantime has updated its row itself.
        from.order(|done| ChatTransfer::ShowRow { done }).await.ok();
        self.changesets.request_counts(source);
        self.changesets.request_counts(session);
        if let Err(error) = forgotten.and(adopted) {
            tracing::error!(%chat, %session, %error, "chat moved, but its sessions could not be updated");
        }
        Ok(())
    }

    /// Moves the edits of a chat to its new session. The addresses of its changesets change.
    async fn move_edits(&self, chat: &ChannelUri, session: &ChannelUri) {
        self.changesets.end_chat(chat);
        if let Err(error) = self.edits.log.move_chat(chat.clone(), session.clone()).await {
            tracing::error!(%chat, %session, %error, "cannot move the edits of a chat");
        }
    }

    /// Releases a chat from its session and assigns it to another one in storage.
    async fn release_and_reassign(
        &self,
        chat: &ChannelUri,
        from: &SessionHandle,
        session: &ChannelUri,
    ) -> Result<ChatSeed, ChatError> {
        let seed = from.order(|done| ChatTransfer::Release { chat: chat.clone(), done }).await?;
        let given = tokio::time::timeout(REASSIGN_TIMEOUT, self.assign_in_storage(&seed, session)).await;
        if let Err(error) = given.unwrap_or(Err(StorageError::TimedOut)) {
            // The session stores the chat as its own again, after any pending write.
            let back = from.order(|done| ChatTransfer::CancelRelease { chat: chat.clone(), done }).await;
            // If that fails too, it is unknown to which session the chat belongs.
            return Err(back.map_or(StorageError::TimedOut, |()| error).into());
        }
        self.addresses.reassign(chat, session);
        Ok(seed)
    }

    /// Moves a chat to a new session, as its default chat.
    async fn move_to_new_session(
        &self,
        chat: &ChannelUri,
        source: &ChannelUri,
        from: &SessionHandle,
    ) -> Result<ChannelUri, ChatError> {
        let state = self.session_state(source)?;
        let session = ChannelUri::new(&format!("{}:/{}", state.provider, Uuid::now_v7()));
        let created = self.create_session(NewSession {
            uri: session.clone(),
            provider: Some(state.provider),
            working_directories: state.working_directories.unwrap_or_default(),
            config: state.config.map(|config| config.values).unwrap_or_default(),
            active_client: None,
            creator: None,
        });
        created.await?;
        let to = self.session_handle(&session).await?;
        let placement = ChatPlacement::AsDefault { title: state.title };
        let moved = self.move_to_session(chat, (source, from), (&session, &to), placement).await;
        if let Err(error) = moved {
            // While it is unknown to which session the chat belongs, neither may be removed.
            // An unused session is removed later.
            if !matches!(error, ChatError::Storage(StorageError::TimedOut))
                && let Err(left) = to.end(SessionEnding::Dispose).await.wait().await
            {
                tracing::error!(%session, error = %left, "cannot remove unused session");
            }
            return Err(error);
        }
        Ok(session)
    }

    /// Assigns a chat to a session in storage, with its current document.
    async fn assign_in_storage(&self, seed: &ChatSeed, session: &ChannelUri) -> Result<(), StorageError> {
        let look =
            |state: &ChannelState| state.chat_doc().map(|doc| serde_json::value::to_raw_value(&doc.header()));
        let state = self.store.read(&seed.uri, look).flatten();
        let gone = || StorageError::Failed("the chat does not exist".to_owned());
        let state = state.ok_or_else(gone)?.map_err(|error| StorageError::Failed(error.to_string()))?;
        let put = Change::PutChat {
            chat: seed.uri.clone(),
            session: session.clone(),
            conversation: seed.conversation.clone(),
            state: state.into(),
        };
        self.storage.write(vec![put]).await
    }

    /// Checks that a chat of one session can continue in the other.
    fn check_compatible(&self, one: &ChannelUri, other: &ChannelUri) -> Result<(), ChatError> {
        let (one, other) = (self.session_state(one)?, self.session_state(other)?);
        if one.provider != other.provider {
            return Err(ChatError::Refused("the other session uses a different agent".to_owned()));
        }
        if one.working_directories.unwrap_or_default() != other.working_directories.unwrap_or_default() {
            return Err(ChatError::Refused(
                "the other session has different working directories, where the agent cannot find the conversation"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    fn session_state(&self, uri: &ChannelUri) -> Result<SessionState, ChatError> {
        self.store.read(uri, |state| state.session().cloned()).flatten().ok_or(ChatError::Gone)
    }

    /// The handle of a session, which is loaded if necessary.
    async fn session_handle(&self, session: &ChannelUri) -> Result<SessionHandle, ChatError> {
        let unknown = || ChatError::UnknownSession(session.clone());
        self.load(session).await?;
        lock(&self.sessions).by_uri.get(session).cloned().ok_or_else(unknown)
    }

    /// The session of an existing chat, loaded if necessary.
    pub(super) async fn session_of_chat(
        &self,
        chat: &ChannelUri,
    ) -> Result<(ChannelUri, SessionHandle), ChatError> {
        let unknown = || ChatError::Unknown(chat.clone());
        self.load(chat).await?;
        let session = self.addresses.session_of(chat).ok_or_else(unknown)?;
        if !self.store.has(chat) {
            return Err(unknown());
        }
        let handle = lock(&self.sessions).by_uri.get(&session).cloned().ok_or_else(unknown)?;
        Ok((session, handle))
    }
}
