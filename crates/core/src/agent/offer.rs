//! Kinds of agents: what each offers, and how it is opened.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ahp_types::common::JsonObject;
use ahp_types::state::{AgentInfo, ProtectedResourceMetadata, SessionConfigSchema};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{AgentLink, BoxFuture, ConversationRecords, OpenAgent, OpenError};

/// A kind of agent that sessions can be opened with.
pub trait AgentProvider: Send + Sync + 'static {
    /// What this kind of agent offers, now and whenever it changes. The provider id
    /// in it never changes.
    fn offer(&self) -> watch::Receiver<AgentOffer>;

    /// The configuration form for a new session and the values in effect, given
    /// what was chosen so far. Called often: pure and cheap. The default is an empty
    /// form that keeps what was chosen.
    fn resolve_config(&self, chosen: &JsonObject) -> ResolvedConfig {
        let schema =
            SessionConfigSchema { r#type: "object".to_owned(), properties: HashMap::new(), required: None };
        ResolvedConfig { schema, values: chosen.clone() }
    }

    /// Starts the agent. Resolves when it is ready for a prompt. When `cancel`
    /// fires, or the future is dropped, everything that it started is stopped.
    fn open(&self, request: OpenAgent, cancel: CancellationToken) -> BoxFuture<Result<AgentLink, OpenError>>;

    /// The resources for which a token is required and missing: no session can be
    /// created before it is there. Called often.
    fn needs_tokens(&self) -> Vec<ProtectedResourceMetadata> {
        Vec::new()
    }

    /// Takes a token for a resource that the offer advertises, or that a session of
    /// this kind waits for. It replaces an earlier one; the same token again is fine.
    fn authenticate(&self, token: ResourceToken) -> BoxFuture<Result<(), TokenRefused>> {
        drop(token);
        Box::pin(std::future::ready(Ok(())))
    }

    /// The agent's own records of conversations, if it keeps any. Reading them
    /// starts no process.
    fn records(&self) -> Option<Arc<dyn ConversationRecords>> {
        None
    }
}

/// What a kind of agent offers. The host publishes `info` again when it changes.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentOffer {
    /// What clients are told.
    pub info: AgentInfo,
    /// Commands that a message can start with.
    pub commands: Arc<[CommandInfo]>,
    /// Which commands of the seam its agents handle.
    pub features: AgentFeatures,
}

impl AgentOffer {
    /// An offer without commands and features.
    pub fn new(info: AgentInfo) -> Self {
        Self { info, commands: Arc::new([]), features: AgentFeatures::default() }
    }
}

/// Which optional commands of the seam an agent handles. The session never sends one
/// whose feature is off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentFeatures {
    /// `Steer` and `Unsteer`. Without it a steering message waits and starts the next
    /// turn.
    pub steering: bool,
    /// `Rewind`. Without it a client's truncation is rejected.
    pub rewind: bool,
    /// `ClientTools`. Without it clients can register tools, but the agent is not
    /// offered them.
    pub client_tools: bool,
    /// `Config`. Without it no configuration property is mutable in a running session.
    pub live_config: bool,
    /// `Toggle`. Without it a changed customization takes effect at the next opening.
    pub live_customizations: bool,
    /// `McpServer`. Without it a client's request is rejected.
    pub mcp_servers: bool,
    /// `Token`. Without it only the provider gets the token.
    pub tokens: bool,
    /// `ToolAnswer` and `InputAnswer`. Without it the agent may not ask the user.
    pub questions: bool,
}

impl AgentFeatures {
    /// Every feature.
    pub const ALL: Self = Self {
        steering: true,
        rewind: true,
        client_tools: true,
        live_config: true,
        live_customizations: true,
        mcp_servers: true,
        tokens: true,
        questions: true,
    };
}

/// A user's token for a resource.
#[derive(Clone, Debug)]
pub struct ResourceToken {
    /// The resource.
    pub resource: String,
    /// The token; `None` revokes those that were given before.
    pub token: Option<SecretString>,
    /// How long it can be used from now on, if that is known.
    pub expires_in: Option<Duration>,
    /// What it allows, if that is known.
    pub scopes: Option<Vec<String>>,
}

impl PartialEq for ResourceToken {
    fn eq(&self, other: &Self) -> bool {
        let secret = |token: &Self| token.token.as_ref().map(|token| token.expose_secret().to_owned());
        self.resource == other.resource
            && secret(self) == secret(other)
            && self.expires_in == other.expires_in
            && self.scopes == other.scopes
    }
}

/// Why a token was not accepted.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct TokenRefused {
    /// What is wrong with it, for a person.
    pub reason: String,
}

/// The description of an agent that has only a name.
pub fn plain_info(provider: &str, display_name: &str) -> AgentInfo {
    AgentInfo {
        provider: provider.to_owned(),
        display_name: display_name.to_owned(),
        description: String::new(),
        models: Vec::new(),
        protected_resources: None,
        customizations: None,
        capabilities: None,
    }
}

/// A command that a message can start with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandInfo {
    /// What is typed after the slash.
    pub name: String,
    /// What it does, for a person.
    pub description: String,
}

/// A configuration form and the values in it.
#[derive(Clone, Debug)]
pub struct ResolvedConfig {
    /// The properties that can be chosen.
    pub schema: SessionConfigSchema,
    /// Their values: chosen where valid, defaults otherwise.
    pub values: JsonObject,
}

impl ResolvedConfig {
    /// The form for agents with these features: without `live_config` no property can
    /// be changed in a running session.
    #[must_use]
    pub fn for_features(mut self, features: AgentFeatures) -> Self {
        if !features.live_config {
            for property in self.schema.properties.values_mut() {
                property.session_mutable = None;
            }
        }
        self
    }
}
