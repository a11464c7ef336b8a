//! The interface between agent drivers and the model endpoint.

use std::time::Duration;

use secrecy::SecretString;
use uuid::Uuid;

use crate::usage::ModelUse;

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

    /// Whether the conversation's model costs nothing, whatever the agent computes from list prices.
    fn is_free(&self, conversation: Uuid) -> bool {
        let _ = conversation;
        false
    }

    /// What the conversation's model requests used since the last call. Contains every request whose
    /// response the agent has received.
    fn take_usage(&self, conversation: Uuid) -> ModelUse {
        let _ = conversation;
        ModelUse::default()
    }

    /// The last failed model request of the conversation, if no later request has succeeded.
    /// The model endpoint knows more about the cause than the agent.
    fn last_failure(&self, conversation: Uuid) -> Option<ModelFailure> {
        let _ = conversation;
        None
    }
}

/// A failed model request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFailure {
    /// The service that the request was sent to, as a name for the user.
    pub service: String,
    /// How the user corrects the credentials for the service.
    pub credentials_advice: String,
    /// The HTTP status that the agent received.
    pub status: u16,
    /// The error type in the model API's format, for example `rate_limit_error`.
    pub kind: String,
    /// The cause, as text for the user.
    pub message: String,
    /// When a further request may succeed.
    pub retry_after: Option<Duration>,
}
