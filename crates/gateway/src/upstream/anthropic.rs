//! Anthropic's API, or a compatible service, as an upstream.
//!
//! Replaces the credentials of a request and nothing else: all other end-to-end
//! headers, the query and every byte of the body are forwarded unchanged, and
//! so is the response.

use std::sync::{PoisonError, RwLock};

use futures_util::FutureExt;
use http::{HeaderMap, HeaderValue, Method};
use secrecy::{ExposeSecret, SecretString};

use crate::client::{ClientOptions, HttpClient, HttpRequest};
use crate::endpoint::Endpoint;
use crate::error::ApiError;
use crate::forward::{Forward, failure_response, read_all, unreachable_upstream};
use crate::head::RequestHead;
use crate::headers;
use crate::relay::RelayOptions;
use crate::upstream::{
    Upstream, UpstreamBody, UpstreamFailure, UpstreamFuture, UpstreamRequest, UpstreamResponse,
};
use crate::usage_ledger::Account;

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
}

impl AnthropicUpstream {
    /// Creates the upstream; sends nothing before the first request.
    pub fn new(config: AnthropicConfig) -> Self {
        Self { client: HttpClient::new(config.client), api: config.api, key: RwLock::new(config.key) }
    }

    /// Replaces the key, also for running sessions.
    pub fn set_key(&self, key: Option<SecretString>) {
        *self.key.write().unwrap_or_else(PoisonError::into_inner) = key;
    }

    fn key(&self, account: &Account) -> Result<SecretString, ApiError> {
        let shared = || self.key.read().unwrap_or_else(PoisonError::into_inner).clone();
        account.credential().or_else(shared).ok_or_else(|| {
            ApiError::authentication("missing Anthropic key; set ANTHROPIC_API_KEY and restart")
        })
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
}
