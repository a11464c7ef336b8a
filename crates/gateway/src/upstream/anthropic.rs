//! Anthropic's API, or a compatible service, as an upstream.
//!
//! Replaces the credentials of a request and nothing else: all other end-to-end
//! headers, the query and every byte of the body are forwarded unchanged, and
//! so is the response.

use std::sync::{PoisonError, RwLock};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::header::USER_AGENT;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Notify;
use tokio::time::timeout;

use self::model_page::ModelPage;
use crate::client::{ClientOptions, HttpClient, HttpRequest};
use crate::credentials::{LOOKUP_TIME, OWN_NAME};
use crate::endpoint::Endpoint;
use crate::error::ApiError;
use crate::forward::{Forward, failure_response, read_all, unreachable_upstream};
use crate::head::RequestHead;
use crate::headers;
use crate::model_list::ModelList;
use crate::relay::RelayOptions;
use crate::upstream::{
    ModelListFuture, Upstream, UpstreamBody, UpstreamFailure, UpstreamFuture, UpstreamRequest,
    UpstreamResponse,
};
use crate::usage_ledger::Account;

mod model_page;

/// The version of Anthropic's API, for the gateway's own requests.
const VERSION: HeaderValue = HeaderValue::from_static("2023-06-01");

const ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");

/// The query for all models on one page.
const ALL_MODELS: &str = "limit=1000";

/// Largest response other than to a messages request.
const MAX_RESPONSE: usize = 4 * 1024 * 1024;

/// The configuration of the upstream.
#[derive(Debug)]
pub struct AnthropicConfig {
    /// The base address of the API.
    pub api: Endpoint,
    /// The key for sessions without their own.
    pub key: Option<SecretString>,
    /// The settings for connections.
    pub client: ClientOptions,
}

/// Anthropic's API.
#[derive(Debug)]
pub struct AnthropicUpstream {
    client: HttpClient,
    api: Endpoint,
    key: RwLock<Option<SecretString>>,
    /// Notified when the key was replaced.
    replaced: Notify,
}

impl AnthropicUpstream {
    /// Creates the upstream; sends nothing before the first request.
    pub fn new(config: AnthropicConfig) -> Self {
        let AnthropicConfig { api, key, client } = config;
        Self { client: HttpClient::new(client), api, key: RwLock::new(key), replaced: Notify::new() }
    }

    /// Replaces the key, also for running sessions.
    pub fn set_key(&self, key: Option<SecretString>) {
        *self.key.write().unwrap_or_else(PoisonError::into_inner) = key;
        self.replaced.notify_one();
    }

    fn key(&self, account: &Account) -> Result<SecretString, ApiError> {
        account.credential().map_or_else(|| self.shared_key(), Ok)
    }

    fn shared_key(&self) -> Result<SecretString, ApiError> {
        self.key.read().unwrap_or_else(PoisonError::into_inner).clone().ok_or_else(|| {
            ApiError::authentication("missing Anthropic key; set ANTHROPIC_API_KEY and restart")
        })
    }

    /// Asks for the models of the upstream's own key.
    async fn fetch_list(&self) -> Result<ModelList, ApiError> {
        let key = self.shared_key()?;
        let mut headers = HeaderMap::new();
        headers.insert(ANTHROPIC_VERSION, VERSION);
        headers.insert(USER_AGENT, OWN_NAME);
        let outgoing = HttpRequest {
            method: Method::GET,
            target: self.api.target("/v1/models", Some(ALL_MODELS)),
            headers: with_key(&headers, &key)?,
            body: Bytes::new(),
        };
        let late = |_| ApiError::timed_out(format!("{} sent no response within {LOOKUP_TIME:?}", self.api));
        let sent = timeout(LOOKUP_TIME, self.client.send(&self.api, &outgoing)).await.map_err(late)?;
        let response = sent.map_err(|error| unreachable_upstream(&error))?;
        let options = RelayOptions { request_id: String::new(), name_model: None, secret: Some(key) };
        if !response.status.is_success() {
            let headers = headers::response_end_to_end;
            return Err(failure_response(response, headers, &options, LOOKUP_TIME).await.1);
        }
        let body = read_all(response.data, MAX_RESPONSE, LOOKUP_TIME).await?;
        ModelPage::read(&body).map(ModelPage::model_list)
    }

    async fn respond(&self, request: UpstreamRequest) -> Result<UpstreamResponse, UpstreamFailure> {
        // Reject an invalid body here, with an error that says why.
        RequestHead::parse(&request.body)?;
        let key = self.key(&request.account)?;
        let open = request.account.open(&request.request_id);
        let options = RelayOptions {
            request_id: request.request_id.clone(),
            name_model: None,
            secret: Some(key.clone()),
        };
        let outgoing = self.outgoing(Method::POST, "/v1/messages", request, &key)?;
        let forward = Forward {
            client: &self.client,
            endpoint: &self.api,
            outgoing,
            options,
            response_headers: headers::response_end_to_end,
            open,
        };
        Ok(forward.run().await?)
    }

    /// Forwards a request whose response is small.
    async fn pass(
        &self,
        method: Method,
        path: &str,
        request: UpstreamRequest,
    ) -> Result<UpstreamResponse, UpstreamFailure> {
        let key = self.key(&request.account)?;
        let options = RelayOptions {
            request_id: request.request_id.clone(),
            name_model: None,
            secret: Some(key.clone()),
        };
        let outgoing = self.outgoing(method, path, request, &key)?;
        let sent = self.client.send(&self.api, &outgoing).await;
        let response = sent.map_err(|error| unreachable_upstream(&error))?;
        let idle_timeout = self.client.idle_timeout();
        if !response.status.is_success() {
            return Ok(failure_response(response, headers::response_end_to_end, &options, idle_timeout)
                .await
                .0);
        }
        let headers = headers::response_end_to_end(&response.headers);
        let body = read_all(response.data, MAX_RESPONSE, idle_timeout).await?;
        Ok(UpstreamResponse { status: response.status, headers, body: UpstreamBody::Full(body) })
    }

    fn outgoing(
        &self,
        method: Method,
        path: &str,
        request: UpstreamRequest,
        key: &SecretString,
    ) -> Result<HttpRequest, ApiError> {
        Ok(HttpRequest {
            method,
            target: self.api.target(path, request.query.as_deref()),
            headers: with_key(&request.headers, key)?,
            body: request.body,
        })
    }
}

fn with_key(client: &HeaderMap, key: &SecretString) -> Result<HeaderMap, ApiError> {
    let mut value = HeaderValue::from_str(key.expose_secret()).map_err(|_| {
        ApiError::authentication("the Anthropic key contains characters that are invalid in a header")
    })?;
    value.set_sensitive(true);
    let mut headers = headers::request_end_to_end(client);
    headers.insert(headers::API_KEY, value);
    Ok(headers)
}

impl Upstream for AnthropicUpstream {
    fn messages(&self, request: UpstreamRequest) -> UpstreamFuture<'_> {
        self.respond(request).boxed()
    }

    fn count_tokens(&self, request: UpstreamRequest) -> UpstreamFuture<'_> {
        self.pass(Method::POST, "/v1/messages/count_tokens", request).boxed()
    }

    fn models(&self, request: UpstreamRequest) -> UpstreamFuture<'_> {
        self.pass(Method::GET, "/v1/models", request).boxed()
    }

    fn model_list(&self) -> ModelListFuture<'_> {
        self.fetch_list().boxed()
    }

    fn credentials_replaced(&self) -> BoxFuture<'_, ()> {
        self.replaced.notified().boxed()
    }
}
