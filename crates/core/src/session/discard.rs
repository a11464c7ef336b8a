//! Deletes the agent's own records of conversations whose chats were deleted.
//!
//! Runs after the chats are deleted from storage, so that a failure leaves a record without a
//! chat, not a chat without its record. A record that cannot be deleted is logged.

use std::sync::Arc;

use super::actor::SessionActor;
use super::chats::Chat;
use crate::agent::{ConversationRecords, HostConversation};

impl SessionActor {
    /// The records of the session's agent.
    pub(super) fn records(&self) -> Option<Arc<dyn ConversationRecords>> {
        self.opener.provider.records()
    }
}

impl Chat {
    /// The ids of the chat's conversation.
    pub(super) fn host_conversation(&self) -> HostConversation {
        HostConversation { id: self.conversation, token: self.resume_token.clone() }
    }
}

/// Deletes the records of conversations.
pub(crate) async fn discard(
    records: Option<Arc<dyn ConversationRecords>>,
    conversations: Vec<HostConversation>,
) {
    let Some(records) = records else { return };
    for conversation in conversations {
        let id = conversation.id;
        if let Err(error) = records.delete(conversation).await {
            tracing::warn!(conversation = %id, %error, "cannot delete the agent's record of a deleted chat");
        }
    }
}
