//! The interface between agent drivers and the model endpoint.

use std::time::Duration;

pub use ahp_types::state::PolicyState;
use jiff::Timestamp;
use secrecy::SecretString;
use tokio::sync::watch;
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

    /// The models that can be selected, and later changes. The sender is dropped when there are
    /// no more changes. The default is a catalogue without models.
    fn catalogue(&self) -> watch::Receiver<ModelCatalogue> {
        watch::Sender::new(ModelCatalogue::default()).subscribe()
    }

    /// Finds a model of the catalogue by an id in any spelling. Sends nothing.
    fn find_model(&self, id: &str) -> ModelLookup {
        let _ = id;
        ModelLookup::Accepted
    }
}

/// The models that can be selected.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelCatalogue {
    /// The service that lists the models, as a name for the user.
    pub service: String,
    /// The models, in the order of the service. Without models any id is accepted.
    pub models: Vec<OfferedModel>,
    /// Set while the list cannot be refreshed.
    pub problem: Option<CatalogueProblem>,
}

/// Why the models are those of an earlier time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogueProblem {
    /// The cause, as text for the user.
    pub message: String,
    /// When the models were listed; `None` if they never were.
    pub listed_at: Option<Timestamp>,
}

/// A model that can be selected. Values that the service does not report are `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OfferedModel {
    /// The id that selects the model.
    pub id: String,
    /// The name for users.
    pub name: String,
    /// Short name of the source of the model, for example `copilot`.
    pub source: String,
    /// The company that made the model.
    pub vendor: Option<String>,
    /// Tokens of a conversation with its answer.
    pub context_window: Option<u64>,
    /// Most tokens of a request.
    pub max_prompt_tokens: Option<u64>,
    /// Most tokens of an answer.
    pub max_output_tokens: Option<u64>,
    /// Whether the model reads images.
    pub vision: Option<bool>,
    /// The effort levels that can be selected, lowest first; empty if none can.
    pub efforts: Option<Vec<String>>,
    /// How many of the account's premium requests a request counts as.
    pub multiplier: Option<f64>,
    /// Whether the account may use the model.
    pub policy: Option<PolicyState>,
}

/// The result of a search for a model.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelLookup {
    /// The catalogue has the model.
    Listed(Box<OfferedModel>),
    /// The catalogue does not have the model, but the service may accept it.
    Accepted,
    /// The service does not have the model. Contains the nearest ids, best first.
    Unknown(Vec<String>),
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
