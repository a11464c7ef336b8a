//! Chats beside the default one, and tokens: what no agent here offers yet. Clients
//! are told so in a way that they can act on.

use innkeeper_core::ChannelUri;
use serde_json::value::RawValue;

use crate::connection::Connection;
use crate::params::{AuthenticateParams, ChannelParams, CreateChatParams, MoveChatParams};
use crate::rpc::RpcError;

impl Connection {
    /// Creating the chat that a session has from the start is no mistake.
    pub(super) fn create_chat(&self, id: &RawValue, params: &CreateChatParams) -> Result<(), RpcError> {
        let session = ChannelUri::new(&params.channel);
        if !self.shared.host.has_session(&session) {
            return Err(RpcError::session_not_found(&params.channel));
        }
        if ChannelUri::default_chat_of(&session).as_str() == params.chat {
            return self.reply(id, &());
        }
        Err(RpcError::invalid_params("the agent has one chat a session; create another session instead"))
    }

    /// Why a chat cannot be disposed.
    pub(super) fn dispose_chat(&self, params: &ChannelParams) -> RpcError {
        self.default_chat_or_none(
            &params.channel,
            "the default chat goes with its session; dispose that instead",
        )
    }

    /// Why a chat cannot be moved.
    pub(super) fn move_chat(&self, params: &MoveChatParams) -> RpcError {
        self.default_chat_or_none(&params.channel, "the default chat stays in its session")
    }

    /// Why a token is not taken.
    pub(super) fn authenticate(params: &AuthenticateParams) -> RpcError {
        RpcError::invalid_params(format!("no agent here asks clients for a token for {:?}", params.resource))
    }

    fn default_chat_or_none(&self, chat: &str, why_not: &str) -> RpcError {
        if self.shared.host.has_chat(&ChannelUri::new(chat)) {
            RpcError::invalid_params(why_not)
        } else {
            RpcError::not_found(format!("there is no chat {chat}"))
        }
    }
}
