//! GitHub Copilot as an upstream.
//!
//! Implements the differences from Anthropic's API: the GitHub token as bearer,
//! endpoint discovery, model id translation, header and beta filters, and the
//! initiator of a request. Changes at most the model and a plain-text system
//! prompt in a body.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::header::{AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use secrecy::SecretString;
use tokio::sync::Notify;
use tokio::time::timeout;
use uuid::Uuid;

use crate::betas::{ANTHROPIC_BETA, BetaFilter};
use crate::cache::Cache;
use crate::catalogue::Catalogue;
use crate::client::{ClientOptions, HttpClient, HttpRequest};
use crate::credentials::{self, API_VERSION, CopilotAccount};
use crate::endpoint::Endpoint;
use crate::error::ApiError;
use crate::forward::Forward;
use crate::head::{self, RequestHead};
use crate::headers;
use crate::initiator::{Initiator, RequestTraits};
use crate::model_id::ModelId;
use crate::model_list::ModelList;
use crate::relay::RelayOptions;
use crate::upstream::{
    ModelListFuture, Upstream, UpstreamBody, UpstreamFailure, UpstreamFuture, UpstreamRequest,
    UpstreamResponse,
};
use crate::usage_ledger::Account;

/// The version of Copilot's API.
const COPILOT_VERSION: HeaderValue = HeaderValue::from_static("2026-01-09");

/// The intent of messages requests, as Copilot's API names it.
const INTENT: HeaderValue = HeaderValue::from_static("messages-proxy");

/// Replaces the product name in a client's user agent.
const CLIENT_NAME: &str = "vscode_claude_code";

const ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");
const INTEGRATION_ID: HeaderName = HeaderName::from_static("copilot-integration-id");
const INTERACTION_TYPE: HeaderName = HeaderName::from_static("x-interaction-type");
const OPENAI_INTENT: HeaderName = HeaderName::from_static("openai-intent");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const X_INITIATOR: HeaderName = HeaderName::from_static("x-initiator");

/// How long a request waits for the model list. Without the list the id grammar
/// is used, which is correct for all but a few ids.
const CATALOGUE_TIMEOUT: Duration = Duration::from_secs(3);

/// The configuration of the upstream.
#[derive(Debug)]
pub struct CopilotConfig {
    /// GitHub's REST API.
    pub github_api: Endpoint,
    /// Overrides the Copilot endpoint that GitHub returns.
    pub copilot_api: Option<Endpoint>,
    /// Whether to ask GitHub about the account even if `copilot_api` is set.
    pub discovery: Discovery,
    /// The GitHub token for sessions without their own.
    pub token: Option<SecretString>,
    /// The beta features that are passed on.
    pub betas: BetaFilter,
    /// The integration id; Copilot rejects premium models if one is sent.
    pub integration_id: Option<HeaderValue>,
    /// The settings for connections.
    pub client: ClientOptions,
}

/// When to ask GitHub about an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discovery {
    /// Before the first request, and again when the cached result expires.
    Always,
    /// Never: the Copilot endpoint is configured, and GitHub need not see the token.
    Never,
}

/// GitHub Copilot.
#[derive(Debug)]
pub struct CopilotUpstream {
    client: HttpClient,
    config: CopilotConfig,
    /// Changes when the user signs in or out.
    token: RwLock<Option<SecretString>>,
    /// Notified when the token was replaced.
    replaced: Notify,
    accounts: Cache<CopilotAccount>,
    catalogues: Cache<Arc<Catalogue>>,
}

impl CopilotUpstream {
    /// Creates the upstream; sends nothing before the first request.
    pub fn new(mut config: CopilotConfig) -> Self {
        let token = RwLock::new(config.token.take());
        let client = HttpClient::new(config.client.clone());
        let (accounts, catalogues) = (Cache::new(), Cache::new());
        Self { client, config, token, replaced: Notify::new(), accounts, catalogues }
    }

    /// Replaces the token after a sign-in or sign-out, also for running sessions.
    pub fn set_token(&self, token: Option<SecretString>) {
        *self.token.write().unwrap_or_else(PoisonError::into_inner) = token;
        self.replaced.notify_one();
    }

    fn token(&self, account: &Account) -> Result<SecretString, ApiError> {
        account.credential().map_or_else(|| self.shared_token(), Ok)
    }

    fn shared_token(&self) -> Result<SecretString, ApiError> {
        self.token.read().unwrap_or_else(PoisonError::into_inner).clone().ok_or_else(|| {
            ApiError::authentication("not signed in to GitHub; run `innkeeper login` and try again")
        })
    }

    async fn respond(&self, request: UpstreamRequest) -> Result<UpstreamResponse, UpstreamFailure> {
        let head = RequestHead::parse(&request.body)?;
        let token = self.token(&request.account)?;
        self.check_model(&head.model, &token)?;
        let api = self.api_of(&token).await?;
        let catalogue = self.catalogue_soon(&token, &api).await;
        let model = catalogue.endpoint_id(&head.model).ok_or_else(|| unknown_model(&head.model))?;

        let mut open = request.account.open(&request.request_id);
        let (initiator, reservation) =
            request.account.initiator(&RequestTraits::read(&head, &request.headers));
        open.hold(initiator, reservation);
        let renamed = (model != head.model).then(|| head.replace_model(&model));
        let edits = renamed.into_iter().chain(head.system_as_blocks()).collect();
        let outgoing = HttpRequest {
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
            response_headers: headers::response_allowed,
            open,
        };
        let response = forward.run().await?;
        self.evict_if_refused(response.status, &token);
        Ok(response)
    }

    /// Rejects an invalid model id before anything is sent.
    fn check_model(&self, model: &str, token: &SecretString) -> Result<(), ApiError> {
        let listed = || self.catalogues.peek(token).is_some_and(|list| list.endpoint_id(model).is_some());
        if ModelId::parse(model).is_some() || listed() { Ok(()) } else { Err(unknown_model(model)) }
    }

    /// The Copilot endpoint for a token.
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
        let result = self.catalogues.get(token, || self.fetch_catalogue(token, api)).await;
        if let Err(error) = &result {
            self.evict_if_refused(error.status(), token);
        }
        result
    }

    fn fetch_catalogue(
        &self,
        token: &SecretString,
        api: &Endpoint,
    ) -> BoxFuture<'static, Result<Arc<Catalogue>, ApiError>> {
        let (client, api, token) = (self.client.clone(), api.clone(), token.clone());
        async move {
            let mut headers = HeaderMap::new();
            headers.insert(API_VERSION, COPILOT_VERSION);
            let body = credentials::fetch(&client, &api, "/models", headers, &token).await?;
            Catalogue::read(&body).map(Arc::new)
        }
        .boxed()
    }

    /// Fetches the models of the account again; later requests use them, too.
    async fn refreshed_list(&self) -> Result<ModelList, ApiError> {
        let token = self.shared_token()?;
        let api = self.api_of(&token).await?;
        let result = self.catalogues.refresh(&token, || self.fetch_catalogue(&token, &api)).await;
        if let Err(error) = &result {
            self.evict_if_refused(error.status(), &token);
        }
        result.map(|catalogue| catalogue.model_list())
    }

    /// The models if they are available soon; a slower lookup continues in the
    /// background for later requests.
    async fn catalogue_soon(&self, token: &SecretString, api: &Endpoint) -> Arc<Catalogue> {
        match timeout(CATALOGUE_TIMEOUT, self.catalogue(token, api)).await {
            Ok(Ok(catalogue)) => catalogue,
            Ok(Err(error)) => {
                tracing::warn!(%error, "Copilot model list unavailable; translating model ids by their form");
                Arc::default()
            }
            Err(_) => Arc::default(),
        }
    }

    /// Discards the cached account and models if the token was rejected: the account may have moved.
    fn evict_if_refused(&self, status: StatusCode, token: &SecretString) {
        if status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN {
            self.accounts.evict(token);
            self.catalogues.evict(token);
        }
    }

    /// The forwarded client headers, and those that Copilot requires.
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
        self.respond(request).boxed()
    }

    fn count_tokens(&self, _: UpstreamRequest) -> UpstreamFuture<'_> {
        async { Err(ApiError::not_implemented("GitHub Copilot does not count tokens").into()) }.boxed()
    }

    fn models(&self, request: UpstreamRequest) -> UpstreamFuture<'_> {
        self.list(request).boxed()
    }

    fn model_list(&self) -> ModelListFuture<'_> {
        self.refreshed_list().boxed()
    }

    fn credentials_replaced(&self) -> BoxFuture<'_, ()> {
        self.replaced.notified().boxed()
    }
}

fn unknown_model(model: &str) -> ApiError {
    ApiError::not_found(format!("model: {model} (GET /v1/models lists the models of this account)"))
}

/// A user agent with its product name replaced, so that Copilot knows the kind
/// of client and still sees the version.
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
    fn user_agent_keeps_version() {
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
