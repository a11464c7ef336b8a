//! Methods for additional chats: create, dispose, move.

use ahp_types::commands::ChatMoveDestination;
use innkeeper_core::ChannelUri;
use innkeeper_core::session::NewChat;
use serde_json::json;
use serde_json::value::RawValue;

use crate::connection::Connection;
use crate::params::{ChannelParams, CreateChatParams, MoveChatParams};
use crate::rpc::RpcError;

impl Connection {
    pub(super) async fn create_chat(&self, id: &RawValue, params: CreateChatParams) -> Result<(), RpcError> {
        let new = NewChat {
            uri: ChannelUri::new(&params.chat),
            source: params.source,
            initial_message: params.initial_message,
            working_directories: params.working_directories,
        };
        let sender = self.client.as_ref().map(|client| (client, &self.shared.attachments));
        self.shared.host.create_chat(&ChannelUri::new(&params.channel), new, sender).await?;
        self.reply(id, &())
    }

    /// Disposes a chat. As with a session, a separate task waits for its end.
    pub(super) async fn dispose_chat(&self, id: &RawValue, params: &ChannelParams) -> Result<(), RpcError> {
        let end = self.shared.host.dispose_chat(&ChannelUri::new(&params.channel)).await?;
        self.reply_later(id, async move { Ok(end.wait().await?) });
        Ok(())
    }

    pub(super) fn move_chat(&self, id: &RawValue, params: MoveChatParams) -> Result<(), RpcError> {
        if matches!(params.destination, ChatMoveDestination::NewSession(_)) {
            self.may_create_session()?;
        }
        let chat = ChannelUri::new(&params.channel);
        let moved = self.shared.host.move_chat(chat, params.destination);
        self.reply_later(id, async move { Ok(json!({ "session": moved.await?.as_str() })) });
        Ok(())
    }
}
