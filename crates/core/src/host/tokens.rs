//! Tokens that clients hand over for resources which agents cannot reach without.
//!
//! A token is for the whole host: it serves one user, whoever of their clients brings
//! it. It is passed on and not kept here, and nothing that is written anywhere has it
//! in it.

use std::sync::Arc;
use std::time::Duration;

use ahp_types::state::ProtectedResourceMetadata;
use secrecy::ExposeSecret as _;

use super::{Host, lock};
use crate::agent::{AgentProvider, ResourceToken, TokenRefused};
use crate::channel::ChannelUri;
use crate::session::{SessionHandle, awaited};

/// How long an agent may think about a token. Its client waits, and no other.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why a token was not taken.
#[derive(Debug, thiserror::Error)]
pub enum AuthenticateError {
    /// Nobody asks for a token for this.
    #[error("no agent here asks for a token for {resource:?}; {}", known_ones(known))]
    UnknownResource {
        /// What it is for.
        resource: String,
        /// What tokens are asked for at the moment.
        known: Vec<String>,
    },
    /// The agent does not want it.
    #[error("the token for {:?} was not accepted: {reason}", resource.resource)]
    Refused {
        /// What another token is needed for.
        resource: Box<ProtectedResourceMetadata>,
        /// Why, without the token itself.
        reason: String,
    },
    /// The agent does not say whether it wants it.
    #[error("the agent did not take the token in time; try again")]
    TimedOut,
}

/// Who wants a token.
#[derive(Default)]
struct Wanting {
    resource: Option<ProtectedResourceMetadata>,
    providers: Vec<Arc<dyn AgentProvider>>,
    sessions: Vec<SessionHandle>,
    /// All that tokens are wanted for.
    known: Vec<String>,
}

impl Host {
    /// Hands a token to the agents that ask for it, or takes one back from them: to each
    /// kind that does in general, and to the sessions that do at the moment.
    pub async fn authenticate(&self, token: ResourceToken) -> Result<(), AuthenticateError> {
        let Wanting { resource, providers, sessions, known } = self.wanting(&token.resource);
        let Some(resource) = resource else {
            return Err(AuthenticateError::UnknownResource { resource: token.resource, known });
        };
        for provider in providers {
            match tokio::time::timeout(PATIENCE, provider.authenticate(token.clone())).await {
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

    fn wanting(&self, wanted: &str) -> Wanting {
        let mut wanting = Wanting::default();
        for provider in &self.providers {
            for resource in provider.offer().borrow().info.protected_resources.iter().flatten() {
                wanting.note(resource.clone(), wanted, provider);
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
                wanting.sessions.push(handle);
            }
            for resource in resources {
                wanting.note(resource, wanted, &provider);
            }
        }
        wanting
    }

    /// The kind of agent of a session in memory, and what it waits for.
    fn awaited(&self, session: &ChannelUri) -> Option<(String, Vec<ProtectedResourceMetadata>)> {
        self.store.read(session, |state| {
            let state = state.session()?;
            Some((state.provider.clone(), awaited(state).cloned().collect()))
        })?
    }
}

impl Wanting {
    fn note(&mut self, resource: ProtectedResourceMetadata, wanted: &str, provider: &Arc<dyn AgentProvider>) {
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

fn known_ones(known: &[String]) -> String {
    if known.is_empty() {
        "none is asked for now".to_owned()
    } else {
        format!("known are {}", known.join(", "))
    }
}

/// What an agent says, in case it repeats what it was given.
fn without_secret(reason: String, token: &ResourceToken) -> String {
    match &token.token {
        Some(token) => reason.replace(token.expose_secret(), "(hidden)"),
        None => reason,
    }
}
