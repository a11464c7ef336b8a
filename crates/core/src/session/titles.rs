//! Asks for a title of the session after its first exchange, once.

use std::sync::Arc;
use std::time::Duration;

use ahp_types::actions::StateAction;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::actor::SessionActor;
use super::decide::{DecisionInput, FirstExchange};
use super::handle::SessionInput;
use crate::channel::ChannelUri;
use crate::titles::{TitleWriter, TitledConversation};

/// How long a title may take. After that the provisional one stays.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// The generated title of one session.
pub(super) struct SessionTitle {
    writer: Arc<dyn TitleWriter>,
    /// Whether a title was asked for, or is not wanted: a client set one.
    settled: bool,
    /// Cancels the request when the session ends, or when a client sets a title.
    request: Option<DropGuard>,
}

impl SessionTitle {
    pub(super) fn new(writer: Arc<dyn TitleWriter>) -> Self {
        Self { writer, settled: false, request: None }
    }

    /// Notes a client's action on the session or its default chat. A title that equals the provisional one is the client's, too.
    pub(super) fn note(&mut self, action: &StateAction) {
        if matches!(action, StateAction::SessionTitleChanged(_)) {
            self.settled = true;
            self.request = None;
        }
    }
}

impl SessionActor {
    /// Asks for a title if the chat's first exchange has just been completed.
    pub(super) fn request_title(&mut self, chat: &ChannelUri) {
        if self.title.settled {
            return;
        }
        let Some(FirstExchange { message, reply }) = self.first_exchange(chat) else { return };
        let Some(conversation) = self.chats.get(chat).map(|chat| chat.conversation) else { return };
        let cancel = CancellationToken::new();
        self.title.settled = true;
        self.title.request = Some(cancel.clone().drop_guard());
        let writing = self.title.writer.write_title(TitledConversation { conversation, message, reply });
        let (inputs, chat) = (self.opener.inputs.clone(), chat.clone());
        self.opener.tasks.spawn(async move {
            let written = tokio::select! {
                () = cancel.cancelled() => None,
                written = tokio::time::timeout(TIME_LIMIT, writing) => written.ok().flatten(),
            };
            if let Some(title) = written
                && let Some(inputs) = inputs.upgrade()
            {
                // A session that has ended needs no title.
                inputs.send(SessionInput::TitleWritten(chat, title)).await.ok();
            }
        });
    }

    /// Sets the title, unless a client has set one in the meantime.
    pub(super) async fn handle_title(&mut self, chat: &ChannelUri, title: &str) {
        if self.title.request.take().is_some() {
            self.decide_and_apply(chat, DecisionInput::TitleWritten(title)).await;
        }
    }
}
