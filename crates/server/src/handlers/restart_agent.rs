//! `innkeeper/restartAgent`: ends the process of a chat's agent.

use innkeeper_core::ChannelUri;
use serde_json::json;
use serde_json::value::RawValue;

use crate::connection::Connection;
use crate::params::ChannelParams;
use crate::rpc::RpcError;

/// The name of the method.
pub(super) const METHOD: &str = "innkeeper/restartAgent";

impl Connection {
    /// Restarts the agent. The running turn ends before any later message is handled; a
    /// separate task waits until the process has exited.
    pub(super) async fn restart_agent(&self, id: &RawValue, params: &ChannelParams) -> Result<(), RpcError> {
        let exited = self.shared.host.restart_agent(&ChannelUri::new(&params.channel)).await?;
        self.reply_later(id, async move {
            exited.await?;
            Ok(json!({}))
        });
        Ok(())
    }
}
