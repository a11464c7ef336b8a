//! Agent providers: their capabilities and how agents are opened.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ahp_types::common::JsonObject;
use ahp_types::state::{AgentInfo, ProtectedResourceMetadata, SessionConfigSchema};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{AgentConnection, BoxFuture, ConversationRecords, OpenAgent, OpenError};

/// A kind of agent that sessions can use.
pub trait AgentProvider: Send + Sync + 'static {
    /// The provider's current offer and its later changes. The provider id in the offer
    /// never changes.
    fn offer(&self) -> watch::Receiver<AgentOffer>;

    /// Returns the configuration form for a new session and the effective values, given
    /// the values chosen so far. Called often, so it must be pure and cheap. The default
    /// is an empty form that keeps the chosen values.
    fn resolve_config(&self, chosen: &JsonObject) -> ResolvedConfig {
        let schema =
            SessionConfigSchema { r#type: "object".to_owned(), properties: HashMap::new(), required: None };
        ResolvedConfig { schema, values: chosen.clone() }
    }

    /// Starts an agent. Resolves when the agent is ready for a prompt. If `cancel` fires
    /// or the future is dropped, every process that was started is stopped.
    fn open(
        &self,
        request: OpenAgent,
        cancel: CancellationToken,
    ) -> BoxFuture<Result<AgentConnection, OpenError>>;

    /// The resources whose required token is missing. Sessions cannot be created until
    /// the tokens are provided. Called often.
    fn needs_tokens(&self) -> Vec<ProtectedResourceMetadata> {
        Vec::new()
    }

    /// Accepts a token for a resource that the offer advertises or that a session of this
    /// provider waits for. It replaces an earlier token; passing the same token again
    /// succeeds.
    fn authenticate(&self, token: ResourceToken) -> BoxFuture<Result<(), TokenRefused>> {
        drop(token);
        Box::pin(std::future::ready(Ok(())))
    }

    /// The agent's own conversation records, if it keeps any. Reading them does not start
    /// a process.
    fn records(&self) -> Option<Arc<dyn ConversationRecords>> {
        None
    }
}

/// The capabilities of a provider. The host publishes `info` again when it changes.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentOffer {
    /// The description sent to clients.
    pub info: AgentInfo,
    /// Slash commands that a message can start with.
    pub commands: Arc<[CommandInfo]>,
    /// The optional agent commands that the agents handle.
    pub features: AgentFeatures,
}

impl AgentOffer {
    /// An offer without slash commands and features.
    pub fn new(info: AgentInfo) -> Self {
        Self { info, commands: Arc::new([]), features: AgentFeatures::default() }
    }
}

/// The optional agent commands that an agent handles. The session never sends a command
/// whose feature is off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentFeatures {
    /// `Steer` and `Unsteer`. If off, a steering message is queued and starts the next
    /// turn.
    pub steering: bool,
    /// `StopWork`. If off, only whole turns can be stopped.
    pub stop_work: bool,
    /// `Release`. If off, an idle agent keeps its process.
    pub release: bool,
    /// `Rewind`. If off, a client's truncation is rejected.
    pub rewind: bool,
    /// `ClientTools`. If off, clients can register tools, but the agent does not receive
    /// them.
    pub client_tools: bool,
    /// `Config`. If off, configuration properties cannot be changed in a running session.
    pub live_config: bool,
    /// `Toggle`. If off, a changed customization takes effect when the agent is next
    /// opened.
    pub live_customizations: bool,
    /// `McpServer`. If off, a client's request is rejected.
    pub mcp_servers: bool,
    /// `Token`. If off, only the provider receives the token.
    pub tokens: bool,
    /// `PermissionVerdict`, `ToolAnswer` and `InputAnswer`. If off, the agent may not ask the
    /// user.
    pub questions: bool,
}

impl AgentFeatures {
    /// All features.
    pub const ALL: Self = Self {
        steering: true,
        stop_work: true,
        release: true,
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
    /// The protected resource.
    pub resource: String,
    /// The token; `None` revokes earlier tokens.
    pub token: Option<SecretString>,
    /// Remaining lifetime of the token, if known.
    pub expires_in: Option<Duration>,
    /// The scopes that the token grants, if known.
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

/// A token was rejected.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct TokenRefused {
    /// The reason, as text for the user.
    pub reason: String,
}

/// Returns the description of an agent that has only a name.
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

/// A slash command that a message can start with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandInfo {
    /// The text after the slash.
    pub name: String,
    /// A description for the user.
    pub description: String,
}

/// A configuration form and its values.
#[derive(Clone, Debug)]
pub struct ResolvedConfig {
    /// The properties that can be set.
    pub schema: SessionConfigSchema,
    /// The values: the chosen value where it is valid, the default otherwise.
    pub values: JsonObject,
}

impl ResolvedConfig {
    /// Adapts the form to agents with these features: without `live_config`, properties
    /// cannot be changed in a running session.
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
