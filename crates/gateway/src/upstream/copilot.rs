//! GitHub Copilot as an upstream.
//!
//! Owns what makes Copilot different from Anthropic's own service: the GitHub
//! token as the bearer, where the account's Copilot lives, the spelling of
//! models, which headers and beta features go on, and who started a request.
//! It never changes more of a body than the model and a plain system prompt.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures_util::FutureExt;
use http::header::{AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use secrecy::SecretString;
use tokio::time::timeout;
use uuid::Uuid;

use crate::betas::{ANTHROPIC_BETA, BetaFilter};
use crate::cache::Cache;
use crate::catalogue::Catalogue;
use crate::client::{ClientOptions, HttpClient, Outgoing};
use crate::credentials::{self, API_VERSION, CopilotAccount};
use crate::endpoint::Endpoint;
use crate::error::ApiError;
use crate::forward::Forward;
use crate::head::{self, RequestHead};
use crate::headers;
use crate::initiator::{Ask, Initiator};
use crate::ledger::Account;
use crate::model_id::ModelId;
use crate::relay::RelayOptions;
use crate::upstream::{
    Upstream, UpstreamBody, UpstreamFailure, UpstreamFuture, UpstreamRequest, UpstreamResponse,
};

/// The version of Copilot's interface.
const COPILOT_VERSION: HeaderValue = HeaderValue::from_static("2026-01-09");

/// What messages requests are for, in the words of Copilot's interface.
const INTENT: HeaderValue = HeaderValue::from_static("messages-proxy");

/// What replaces the first word of a client's name.
const CLIENT_NAME: &str = "vscode_claude_code";

const ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");
const INTEGRATION_ID: HeaderName = HeaderName::from_static("copilot-integration-id");
const INTERACTION_TYPE: HeaderName = HeaderName::from_static("x-interaction-type");
const OPENAI_INTENT: HeaderName = HeaderName::from_static("openai-intent");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const X_INITIATOR: HeaderName = HeaderName::from_static("x-initiator");

/// How long a request waits for the list of models. Without it the grammar
/// answers, which is right for all but a few ids.
const CATALOGUE_PATIENCE: Duration = Duration::from_secs(3);

/// How Copilot is reached.
#[derive(Debug)]
pub struct CopilotConfig {
    /// GitHub's interface for programs.
    pub github_api: Endpoint,
    /// Where Copilot lives, instead of where GitHub says.
    pub copilot_api: Option<Endpoint>,
    /// Whether GitHub is asked about the account although `copilot_api` is known.
    pub discovery: Discovery,
    /// The GitHub token of sessions without one of their own.
    pub token: Option<SecretString>,
    /// Which beta features go on.
    pub betas: BetaFilter,
    /// Sent as the integration's name; premium models are refused with one.
    pub integration_id: Option<HeaderValue>,
    /// How connections are made.
    pub client: ClientOptions,
}

/// When GitHub is asked about an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discovery {
    /// Before its first request, and now and then.
    Always,
    /// Never: the address of Copilot is known, and GitHub need not see the token.
    Never,
}

/// GitHub Copilot.
#[derive(Debug)]
pub struct CopilotUpstream {
    client: HttpClient,
    config: CopilotConfig,
    /// Changes when the user signs in or out.
    token: RwLock<Option<SecretString>>,
    accounts: Cache<CopilotAccount>,
    catalogues: Cache<Arc<Catalogue>>,
}

impl CopilotUpstream {
    /// Makes the upstream; nothing is sent before the first request.
    pub fn new(mut config: CopilotConfig) -> Self {
        let token = RwLock::new(config.token.take());
        let client = HttpClient::new(config.client.clone());
        Self { client, config, token, accounts: Cache::new(), catalogues: Cache::new() }
    }

    /// The user signed in, or out. Running sessions go on with it.
    pub fn set_token(&self, token: Option<SecretString>) {
        *self.token.write().unwrap_or_else(PoisonError::into_inner) = token;
    }

    fn token(&self, account: &Account) -> Result<SecretString, ApiError> {
        let shared = || self.token.read().unwrap_or_else(PoisonError::into_inner).clone();
        account.credential().or_else(shared).ok_or_else(|| {
            ApiError::authentication("nobody is signed in to GitHub; run `innkeeper login`, then try again")
        })
    }

    async fn answer(&self, request: UpstreamRequest) -> Result<UpstreamResponse, UpstreamFailure> {
        let head = RequestHead::parse(&request.body)?;
        let token = self.token(&request.account)?;
        self.check_model(&head.model, &token)?;
        let api = self.api_of(&token).await?;
        let catalogue = self.catalogue_soon(&token, &api).await;
        let model = catalogue.endpoint_id(&head.model).ok_or_else(|| unknown_model(&head.model))?;

        let mut open = request.account.open(&request.request_id);
        let (initiator, ticket) = request.account.initiator(&Ask::read(&head, &request.headers));
        open.hold(ticket);
        let renamed = (model != head.model).then(|| head.replace_model(&model));
        let edits = renamed.into_iter().chain(head.system_as_blocks()).collect();
        let outgoing = Outgoing {
            method: Method::POST,
            target: api.target("/v1/messages", None),
            headers: self.request_headers(&request.headers, &token, initiator)?,
            body: head::splice(&request.body, edits),
        };
        let options = RelayOptions {
            request_id: request.request_id.clone(),
            name_model: Some(Arc::new(move |id: &str| catalogue.client_id(id).filter(|name| name != id))),
            secret: Some(token.clone()),
        };
        let forward = Forward {
            client: &self.client,
            endpoint: &api,
            outgoing,
            options,
            answer_headers: headers::answer_allowed,
            open,
        };
        let response = forward.run().await?;
        self.evict_if_refused(response.status, &token);
        Ok(response)
    }

    /// Refuses what cannot be a model before anything is sent for it.
    fn check_model(&self, model: &str, token: &SecretString) -> Result<(), ApiError> {
        let listed = || self.catalogues.peek(token).is_some_and(|list| list.endpoint_id(model).is_some());
        if ModelId::parse(model).is_some() || listed() { Ok(()) } else { Err(unknown_model(model)) }
    }

    /// Where Copilot lives for a token.
    async fn api_of(&self, token: &SecretString) -> Result<Endpoint, ApiError> {
        let fixed = self.config.copilot_api.clone();
        if self.config.discovery == Discovery::Never
            && let Some(api) = fixed
        {
            return Ok(api);
        }
        let (client, github, owned) = (self.client.clone(), self.config.github_api.clone(), token.clone());
        let look_up = || async move { credentials::discover(&client, &github, &owned).await }.boxed();
        let account = self.accounts.get(token, look_up).await?;
        Ok(fixed.unwrap_or(account.api))
    }

    /// The models of a token's account.
    async fn catalogue(&self, token: &SecretString, api: &Endpoint) -> Result<Arc<Catalogue>, ApiError> {
        let (client, api, owned) = (self.client.clone(), api.clone(), token.clone());
        let look_up = || {
            async move {
                let mut headers = HeaderMap::new();
                headers.insert(API_VERSION, COPILOT_VERSION);
                let body = credentials::fetch(&client, &api, "/models", headers, &owned).await?;
                Catalogue::read(&body).map(Arc::new)
            }
            .boxed()
        };
        let result = self.catalogues.get(token, look_up).await;
        if let Err(error) = &result {
            self.evict_if_refused(error.status(), token);
        }
        result
    }

    /// The models if they can be had soon; a lookup that takes longer goes on
    /// for the requests that follow.
    async fn catalogue_soon(&self, token: &SecretString, api: &Endpoint) -> Arc<Catalogue> {
        match timeout(CATALOGUE_PATIENCE, self.catalogue(token, api)).await {
            Ok(Ok(catalogue)) => catalogue,
            Ok(Err(error)) => {
                tracing::warn!(%error, "Copilot's models are not known; ids are translated by their form");
                Arc::default()
            }
            Err(_) => Arc::default(),
        }
    }

    /// A refused token may have moved to another address.
    fn evict_if_refused(&self, status: StatusCode, token: &SecretString) {
        if status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN {
            self.accounts.evict(token);
            self.catalogues.evict(token);
        }
    }

    /// What goes on of a client's headers, and what Copilot wants beside it.
    fn request_headers(
        &self,
        client: &HeaderMap,
        token: &SecretString,
        initiator: Initiator,
    ) -> Result<HeaderMap, ApiError> {
        let mut headers = HeaderMap::new();
        if let Some(version) = client.get(ANTHROPIC_VERSION) {
            headers.insert(ANTHROPIC_VERSION, version.clone());
        }
        if let Some(betas) = self.config.betas.header(client) {
            headers.insert(ANTHROPIC_BETA, betas);
        }
        if let Some(id) = &self.config.integration_id {
            headers.insert(INTEGRATION_ID, id.clone());
        }
        headers.insert(USER_AGENT, client_name(client.get(USER_AGENT)));
        headers.insert(AUTHORIZATION, credentials::bearer(token)?);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(API_VERSION, COPILOT_VERSION);
        headers.insert(OPENAI_INTENT, INTENT);
        headers.insert(INTERACTION_TYPE, INTENT);
        headers.insert(X_INITIATOR, HeaderValue::from_static(initiator.as_str()));
        if let Ok(id) = HeaderValue::from_str(&Uuid::new_v4().to_string()) {
            headers.insert(REQUEST_ID, id);
        }
        Ok(headers)
    }

    async fn list(&self, request: UpstreamRequest) -> Result<UpstreamResponse, UpstreamFailure> {
        let token = self.token(&request.account)?;
        let api = self.api_of(&token).await?;
        let catalogue = self.catalogue(&token, &api).await?;
        let mut headers = HeaderMap::new();
        headers::mark_json(&mut headers);
        Ok(UpstreamResponse { status: StatusCode::OK, headers, body: UpstreamBody::Full(catalogue.page()) })
    }
}

impl Upstream for CopilotUpstream {
    fn messages(&self, request: UpstreamRequest) -> UpstreamFuture<'_> {
        self.answer(request).boxed()
    }

    fn count_tokens(&self, _: UpstreamRequest) -> UpstreamFuture<'_> {
        async { Err(ApiError::not_implemented("GitHub Copilot does not count tokens").into()) }.boxed()
    }

    fn models(&self, request: UpstreamRequest) -> UpstreamFuture<'_> {
        self.list(request).boxed()
    }
}

fn unknown_model(model: &str) -> ApiError {
    ApiError::not_found(format!("model: {model} (GET /v1/models lists those of this account)"))
}

/// A client's name with its first word replaced, so that Copilot knows which
/// kind of client it serves and the version stays.
fn client_name(name: Option<&HeaderValue>) -> HeaderValue {
    let version = name.and_then(|name| name.to_str().ok()).and_then(|name| name.split_once('/'));
    let name = match version {
        Some((_, version)) => format!("{CLIENT_NAME}/{version}"),
        None => CLIENT_NAME.to_owned(),
    };
    HeaderValue::from_str(&name).unwrap_or(HeaderValue::from_static(CLIENT_NAME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clients_name_keeps_its_version() {
        for (name, expected) in [
            (Some("claude-cli/2.1.3 (external, cli)"), "vscode_claude_code/2.1.3 (external, cli)"),
            (Some("a/b/c"), "vscode_claude_code/b/c"),
            (Some("curl"), "vscode_claude_code"),
            (None, "vscode_claude_code"),
        ] {
            let name = name.map(HeaderValue::from_static);
            assert_eq!(client_name(name.as_ref()), expected);
        }
    }
}
