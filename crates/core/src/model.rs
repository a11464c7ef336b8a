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
}
