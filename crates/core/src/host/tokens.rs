//! Tokens that clients provide for protected resources.
//!
//! A token applies to the whole host, which serves one user; any client may provide it. It
//! is passed on to agents, not kept here, and never written or logged.

use std::sync::Arc;
use std::time::Duration;

use ahp_types::state::ProtectedResourceMetadata;
use secrecy::ExposeSecret as _;

use super::{Host, lock};
use crate::agent::{AgentProvider, ResourceToken, TokenRefused};
use crate::channel::ChannelUri;
use crate::session::{SessionHandle, awaited};

/// How long an agent may take to accept a token. Only the client that sent it waits.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a token was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum AuthenticateError {
    /// No agent needs a token for this resource.
    #[error("unknown resource {resource:?}; {}", list_known(known))]
    UnknownResource {
        /// The resource of the token.
        resource: String,
        /// The resources for which tokens are needed now.
        known: Vec<String>,
    },
    /// The agent rejected the token.
    #[error("the token for {:?} was rejected: {reason}", resource.resource)]
    Refused {
        /// The resource that needs another token.
        resource: Box<ProtectedResourceMetadata>,
        /// The reason, without the token itself.
        reason: String,
    },
    /// The agent did not respond.
    #[error("the agent did not accept the token in time; try again")]
    TimedOut,
}

/// The agents and sessions that need a token.
#[derive(Default)]
struct TokenDemand {
    resource: Option<ProtectedResourceMetadata>,
    providers: Vec<Arc<dyn AgentProvider>>,
    sessions: Vec<SessionHandle>,
    /// All resources for which tokens are needed.
    known: Vec<String>,
}

impl Host {
    /// Passes a token, or its withdrawal, to the agents that need it: to each provider that
    /// declares the resource, and to the sessions that wait for it.
    pub async fn authenticate(&self, token: ResourceToken) -> Result<(), AuthenticateError> {
        let TokenDemand { resource, providers, sessions, known } = self.token_demand(&token.resource);
        let Some(resource) = resource else {
            return Err(AuthenticateError::UnknownResource { resource: token.resource, known });
        };
        for provider in providers {
            match tokio::time::timeout(ACCEPT_TIMEOUT, provider.authenticate(token.clone())).await {
                Ok(Ok(())) => {}
                Ok(Err(TokenRefused { reason })) => {
                    let reason = without_secret(reason, &token);
                    return Err(AuthenticateError::Refused { resource: Box::new(resource), reason });
                }
                Err(_) => return Err(AuthenticateError::TimedOut),
            }
        }
        for session in sessions {
            session.token(token.clone()).await;
        }
        Ok(())
    }

    fn token_demand(&self, wanted: &str) -> TokenDemand {
        let mut token_demand = TokenDemand::default();
        for provider in &self.providers {
            for resource in provider.offer().borrow().info.protected_resources.iter().flatten() {
                token_demand.add(resource.clone(), wanted, provider);
            }
        }
        let sessions: Vec<(ChannelUri, SessionHandle)> =
            lock(&self.sessions).by_uri.iter().map(|(uri, handle)| (uri.clone(), handle.clone())).collect();
        for (uri, handle) in sessions {
            let look = |(provider, resources): (String, Vec<ProtectedResourceMetadata>)| {
                Some((self.provider(Some(&provider)).ok()?, resources))
            };
            let Some((provider, resources)) = self.awaited(&uri).and_then(look) else { continue };
            if resources.iter().any(|resource| resource.resource == wanted) {
                token_demand.sessions.push(handle);
            }
            for resource in resources {
                token_demand.add(resource, wanted, &provider);
            }
        }
        token_demand
    }

    /// The provider of a session in memory, and the resources it waits for.
    fn awaited(&self, session: &ChannelUri) -> Option<(String, Vec<ProtectedResourceMetadata>)> {
        self.store.read(session, |state| {
            let state = state.session()?;
            Some((state.provider.clone(), awaited(state).cloned().collect()))
        })?
    }
}

impl TokenDemand {
    fn add(&mut self, resource: ProtectedResourceMetadata, wanted: &str, provider: &Arc<dyn AgentProvider>) {
        if !self.known.contains(&resource.resource) {
            self.known.push(resource.resource.clone());
        }
        if resource.resource == wanted {
            self.resource.get_or_insert(resource);
            if !self.providers.iter().any(|known| Arc::ptr_eq(known, provider)) {
                self.providers.push(Arc::clone(provider));
            }
        }
    }
}

fn list_known(known: &[String]) -> String {
    if known.is_empty() {
        "no tokens are needed now".to_owned()
    } else {
        format!("known: {}", known.join(", "))
    }
}

/// Removes the token from an agent's message, in case the agent repeats it.
fn without_secret(reason: String, token: &ResourceToken) -> String {
    match &token.token {
        Some(token) => reason.replace(token.expose_secret(), "(hidden)"),
        None => reason,
    }
}
