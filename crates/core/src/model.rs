//! The port to the model endpoint: what an agent driver needs of it, without seeing it.

use secrecy::SecretString;
use uuid::Uuid;

/// How one conversation reaches the model.
#[derive(Clone, Debug)]
pub struct ModelAccess {
    /// Root of an Anthropic-compatible API, on this machine.
    pub base_url: String,
    /// Authorizes this conversation, and no other, at that address.
    pub bearer: SecretString,
}

/// The model endpoint that the host runs beside its agents.
pub trait ModelEndpoint: Send + Sync + 'static {
    /// Access for one conversation.
    fn access(&self, conversation: Uuid) -> ModelAccess;

    /// A message of the user's with this text is about to go to the agent. What the
    /// agent then asks the model for it asks in the user's name; all else is its own.
    fn mark_turn(&self, conversation: Uuid, text: &str);
}
