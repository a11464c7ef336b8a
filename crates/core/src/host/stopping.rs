//! Stops the work of chats and restarts their agents.

use std::time::Duration;

use super::Host;
use crate::agent::{StopTarget, StoppedWork};
use crate::channel::ChannelUri;
use crate::session::{ChatError, ChatOrder, PendingReply};

/// How long an agent may take to stop work.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an agent's process may take to exit, which includes killing it.
const RESTART_TIMEOUT: Duration = Duration::from_secs(30);

const NOT_STOPPED: &str = "the agent did not stop the work in time; try again, or restart the agent";

const NOT_RESTARTED: &str = "the agent's process did not exit in time; try again, or restart the host";

impl Host {
    /// Stops work of a chat: the work of one tool call, one piece of work in the background,
    /// or, with `StopTarget::Background`, the running turn and all work in the background. The
    /// turn is cancelled when this returns; the returned future waits for the agent's answer.
    pub async fn stop_work(
        &self,
        chat: &ChannelUri,
        target: StopTarget,
    ) -> Result<impl Future<Output = Result<Vec<StoppedWork>, ChatError>> + Send + use<>, ChatError> {
        let reply = match self.stop_work_once(chat, target.clone()).await {
            // The session may just have been unloaded.
            Err(ChatError::Gone) => self.stop_work_once(chat, target).await?,
            outcome => outcome?,
        };
        Ok(reply.wait_for(STOP_TIMEOUT, NOT_STOPPED))
    }

    async fn stop_work_once(
        &self,
        chat: &ChannelUri,
        target: StopTarget,
    ) -> Result<PendingReply<Vec<StoppedWork>>, ChatError> {
        let (_, handle) = self.session_of_chat(chat).await?;
        handle.begin(|done| ChatOrder::Stop { chat: chat.clone(), target, done }).await
    }

    /// Ends the process of a chat's agent; the next message starts another one. A running turn
    /// fails and can be resumed. The returned future waits until the process has exited.
    pub async fn restart_agent(
        &self,
        chat: &ChannelUri,
    ) -> Result<impl Future<Output = Result<(), ChatError>> + Send + use<>, ChatError> {
        let reply = match self.restart_agent_once(chat).await {
            Err(ChatError::Gone) => self.restart_agent_once(chat).await?,
            outcome => outcome?,
        };
        Ok(reply.wait_for(RESTART_TIMEOUT, NOT_RESTARTED))
    }

    async fn restart_agent_once(&self, chat: &ChannelUri) -> Result<PendingReply<()>, ChatError> {
        let (_, handle) = self.session_of_chat(chat).await?;
        handle.begin(|done| ChatOrder::RestartAgent { chat: chat.clone(), done }).await
    }
}
