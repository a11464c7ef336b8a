//! What clients ask of the host about chats: create, dispose, move.
//!
//! A chat that moves is let go by its session, then given to the other one in the
//! storage, and only then taken out of the one list and put into the other. A host that
//! is killed in between finds the chat where the storage says.

use std::sync::Arc;
use std::time::Duration;

use ahp_types::commands::ChatMoveDestination;
use ahp_types::state::SessionState;
use uuid::Uuid;

use super::{CreateError, Host, LoadError, NewSession, lock};
use crate::channel::ChannelUri;
use crate::session::{
    Berth, ChatError, ChatOrder, ChatSeed, Ending, NewChat, Outcome, SessionHandle, chats_to_pin,
};
use crate::state::ChannelState;
use crate::storage::{Change, StorageError};

/// How long it may take to write down whose a chat is, before it stays where it was.
const GIVE_PATIENCE: Duration = Duration::from_secs(5);

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
        }
    }
}

impl Host {
    /// Creates a chat in a session. A session's first chat is there from the start, and
    /// creating it is no mistake.
    pub async fn create_chat(&self, session: &ChannelUri, new: NewChat) -> Result<(), ChatError> {
        self.reach(session).await?;
        if ChannelUri::default_chat_of(session) == new.uri && self.store.has(&new.uri) {
            return Ok(());
        }
        let _reserved = self.reserve(&new.uri).map_err(ChatError::from)?;
        self.load_or_log(&chats_to_pin(new.initial_message.as_ref())).await;
        match self.create_chat_once(session, new.clone()).await {
            // It may have left the memory at this very moment.
            Err(ChatError::Gone) => self.create_chat_once(session, new).await,
            outcome => outcome,
        }
    }

    async fn create_chat_once(&self, session: &ChannelUri, new: NewChat) -> Result<(), ChatError> {
        let handle = self.reach(session).await?;
        handle.order(|done| ChatOrder::Create { new: Box::new(new), done }).await
    }

    /// Ends a chat, its agent and everything of it. What is dispatched after this has
    /// returned comes too late; the end itself is to be waited for.
    pub async fn dispose_chat(&self, chat: &ChannelUri) -> Result<Outcome<()>, ChatError> {
        match self.dispose_chat_once(chat).await {
            Err(ChatError::Gone) => self.dispose_chat_once(chat).await,
            outcome => outcome,
        }
    }

    async fn dispose_chat_once(&self, chat: &ChannelUri) -> Result<Outcome<()>, ChatError> {
        let (_, handle) = self.reach_chat(chat).await?;
        handle.begin(|done| ChatOrder::Dispose { chat: chat.clone(), done }).await
    }

    /// Moves a chat within its session, to another one or to a new one. Goes on when the
    /// caller does not wait for it, which gives the session that the chat is in then.
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
        // One at a time: two sessions that give each other chats must not wait for each other.
        let _alone = self.moves.acquire().await;
        let (source, from) = self.reach_chat(chat).await?;
        match to {
            ChatMoveDestination::Session(to) => {
                let session = ChannelUri::new(&to.session);
                let after = to.after.as_deref().map(ChannelUri::new);
                if session == source {
                    let chat = chat.clone();
                    from.order(|done| ChatOrder::Place { chat, after, done }).await?;
                } else {
                    let to = self.reach(&session).await?;
                    self.are_alike(&source, &session)?;
                    self.move_over(chat, &from, (&session, &to), Berth::Behind(after)).await?;
                }
                Ok(session)
            }
            ChatMoveDestination::NewSession(_) => self.move_out(chat, &source, &from).await,
            ChatMoveDestination::Unknown(_) => {
                Err(ChatError::Refused("this host does not know such a destination".to_owned()))
            }
        }
    }

    /// Moves a chat into another session. An error means that it stays.
    async fn move_over(
        &self,
        chat: &ChannelUri,
        from: &SessionHandle,
        (session, to): (&ChannelUri, &SessionHandle),
        berth: Berth,
    ) -> Result<(), ChatError> {
        let expected = berth.clone();
        to.order(|done| ChatOrder::Expect { berth: expected, done }).await?;
        let seed = match self.take_out(chat, from, session).await {
            Ok(seed) => seed,
            Err(error) => {
                to.order(|done| ChatOrder::Unexpect { done }).await?;
                return Err(error);
            }
        };
        // From here on it is the other session's, which does not end before it has it.
        let forgotten = from.order(|done| ChatOrder::Forget { chat: chat.clone(), done }).await;
        let adopted = to.order(|done| ChatOrder::Adopt { seed: Box::new(seed), berth, done }).await;
        // Last of all the rows, so that nobody sees the chat in none.
        // A session that has ended meanwhile has done so itself.
        from.order(|done| ChatOrder::ShowRow { done }).await.ok();
        if let Err(error) = forgotten.and(adopted) {
            tracing::error!(%chat, %session, %error, "a chat has moved, and not every client was told");
        }
        Ok(())
    }

    /// Takes a chat out of its session, for another one.
    async fn take_out(
        &self,
        chat: &ChannelUri,
        from: &SessionHandle,
        session: &ChannelUri,
    ) -> Result<ChatSeed, ChatError> {
        let seed = from.order(|done| ChatOrder::Release { chat: chat.clone(), done }).await?;
        let given = tokio::time::timeout(GIVE_PATIENCE, self.give(&seed, session)).await;
        if let Err(error) = given.unwrap_or(Err(StorageError::TimedOut)) {
            // Its session writes it down as its own again, behind whatever may still be written.
            let back = from.order(|done| ChatOrder::TakeBack { chat: chat.clone(), done }).await;
            // If that is not written either, nobody knows whose it is.
            return Err(back.map_or(StorageError::TimedOut, |()| error).into());
        }
        self.addresses.reassign(chat, session);
        Ok(seed)
    }

    /// Moves a chat into a session of its own, whose default chat it is then.
    async fn move_out(
        &self,
        chat: &ChannelUri,
        source: &ChannelUri,
        from: &SessionHandle,
    ) -> Result<ChannelUri, ChatError> {
        let model = self.session_state(source)?;
        let session = ChannelUri::new(&format!("{}:/{}", model.provider, Uuid::now_v7()));
        let created = self.create_session(NewSession {
            uri: session.clone(),
            provider: Some(model.provider),
            working_directories: model.working_directories.unwrap_or_default(),
            config: model.config.map(|config| config.values).unwrap_or_default(),
            active_client: None,
            creator: None,
        });
        created.await?;
        let to = self.reach(&session).await?;
        let berth = Berth::Default { title: model.title };
        if let Err(error) = self.move_over(chat, from, (&session, &to), berth).await {
            // As long as nobody knows whose the chat is, no session of the two may go. An
            // unused one goes by itself, later.
            if !matches!(error, ChatError::Storage(StorageError::TimedOut))
                && let Err(left) = to.end(Ending::Dispose).await.wait().await
            {
                tracing::error!(%session, error = %left, "a session that nobody needs could not be removed");
            }
            return Err(error);
        }
        Ok(session)
    }

    /// Writes down whose a chat is from now on. It is in the storage as it is in memory.
    async fn give(&self, seed: &ChatSeed, session: &ChannelUri) -> Result<(), StorageError> {
        let look =
            |state: &ChannelState| state.chat_doc().map(|doc| serde_json::value::to_raw_value(&doc.header()));
        let state = self.store.read(&seed.uri, look).flatten();
        let gone = || StorageError::Failed("the chat is gone".to_owned());
        let state = state.ok_or_else(gone)?.map_err(|error| StorageError::Failed(error.to_string()))?;
        let put = Change::PutChat {
            chat: seed.uri.clone(),
            session: session.clone(),
            conversation: seed.conversation.clone(),
            state: state.into(),
        };
        self.storage.write(vec![put]).await
    }

    /// Checks that a chat of one session can go on in the other.
    fn are_alike(&self, one: &ChannelUri, other: &ChannelUri) -> Result<(), ChatError> {
        let (one, other) = (self.session_state(one)?, self.session_state(other)?);
        if one.provider != other.provider {
            return Err(ChatError::Refused("the other session has another agent".to_owned()));
        }
        if one.working_directories.unwrap_or_default() != other.working_directories.unwrap_or_default() {
            return Err(ChatError::Refused(
                "the other session works in another directory, where the agent would not find the conversation"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    fn session_state(&self, uri: &ChannelUri) -> Result<SessionState, ChatError> {
        self.store.read(uri, |state| state.session().cloned()).flatten().ok_or(ChatError::Gone)
    }

    /// A session in memory, which is loaded if need be.
    async fn reach(&self, session: &ChannelUri) -> Result<SessionHandle, ChatError> {
        let unknown = || ChatError::UnknownSession(session.clone());
        self.load(session).await?;
        lock(&self.sessions).by_uri.get(session).cloned().ok_or_else(unknown)
    }

    /// The session of a chat that exists.
    async fn reach_chat(&self, chat: &ChannelUri) -> Result<(ChannelUri, SessionHandle), ChatError> {
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
