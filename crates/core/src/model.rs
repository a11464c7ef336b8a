//! The interface between agent drivers and the model endpoint.

use secrecy::SecretString;
use uuid::Uuid;

/// How one conversation reaches the model endpoint.
#[derive(Clone, Debug)]
pub struct ModelAccess {
    /// Root of an Anthropic-compatible API, on this machine.
    pub base_url: String,
    /// Authorizes this conversation only.
    pub bearer: SecretString,
}

/// The model endpoint that the host runs for its agents.
pub trait ModelEndpoint: Send + Sync + 'static {
    /// Returns the access data for one conversation.
    fn access(&self, conversation: Uuid) -> ModelAccess;

    /// Announces that a user message with this text is about to be sent to the agent.
    /// Model requests that follow from it are attributed to the user; all others are
    /// attributed to the agent.
    fn mark_turn(&self, conversation: Uuid, text: &str);
}
