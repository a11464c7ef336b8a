//! Discovery of a GitHub account's Copilot endpoint.
//!
//! Owns the discovery request. The token is sent to GitHub and to the address
//! that GitHub returns, in a header marked as sensitive, and never appears in
//! logs, errors or `Debug` output.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use crate::client::{HttpClient, HttpRequest, HttpResponse};
use crate::endpoint::Endpoint;
use crate::envelope::{self, ErrorEnvelope};
use crate::error::ApiError;
use crate::forward::{read_all, unreachable_upstream};

/// GitHub's API version header.
pub(crate) const API_VERSION: HeaderName = HeaderName::from_static("x-github-api-version");

/// The API version for discovery.
const DISCOVERY_VERSION: HeaderValue = HeaderValue::from_static("2025-04-01");

/// The user agent for requests that do not belong to a client request.
pub(crate) const OWN_NAME: HeaderValue =
    HeaderValue::from_static(concat!("innkeeper/", env!("CARGO_PKG_VERSION")));

/// Largest lookup response; a model list has some hundred kilobytes.
const MAX_RESPONSE: usize = 4 * 1024 * 1024;

/// Limit for a whole lookup; requests wait for it.
pub(crate) const LOOKUP_TIME: Duration = Duration::from_secs(20);

/// The Copilot endpoint for accounts of github.com.
const DEFAULT_COPILOT: &str = "https://api.githubcopilot.com";

/// The addresses of github.com or of an enterprise instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GithubEndpoints {
    /// Where users sign in.
    pub web: Endpoint,
    /// The REST API.
    pub api: Endpoint,
}

impl GithubEndpoints {
    /// Derives the API address from the sign-in address.
    pub fn of(web: Endpoint) -> Self {
        let api = if web.host() == "github.com" || web.host().ends_with(".ghe.com") {
            web.with_subdomain("api").unwrap_or_else(|| web.clone())
        } else {
            web.with_prefix("/api/v3")
        };
        Self { web, api }
    }
}

/// The result of discovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopilotAccount {
    /// The account's Copilot endpoint.
    pub api: Endpoint,
    /// The name of the account.
    pub login: Option<String>,
    /// The Copilot plan.
    pub plan: Option<String>,
}

/// Asks GitHub for the Copilot endpoint of an account.
pub(crate) async fn discover(
    client: &HttpClient,
    github: &Endpoint,
    token: &SecretString,
) -> Result<CopilotAccount, ApiError> {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(API_VERSION, DISCOVERY_VERSION);
    let body = fetch(client, github, "/copilot_internal/user", headers, token).await?;
    let response: DiscoveryResponse = serde_json::from_slice(&body).map_err(|error| {
        ApiError::bad_gateway(format!("cannot parse GitHub's Copilot discovery response: {error}"))
    })?;
    let api = match response.endpoints.and_then(|endpoints| endpoints.api) {
        Some(text) => copilot_endpoint(&text)?,
        None => default_copilot(github)?,
    };
    Ok(CopilotAccount { api, login: response.login, plan: response.copilot_plan })
}

/// Sends a GET request with the token as bearer.
pub(crate) async fn fetch(
    client: &HttpClient,
    endpoint: &Endpoint,
    path: &str,
    mut headers: HeaderMap,
    token: &SecretString,
) -> Result<Bytes, ApiError> {
    headers.insert(AUTHORIZATION, bearer(token)?);
    headers.entry(USER_AGENT).or_insert(OWN_NAME);
    let outgoing =
        HttpRequest { method: Method::GET, target: endpoint.target(path, None), headers, body: Bytes::new() };
    let response = tokio::time::timeout(LOOKUP_TIME, client.send(endpoint, &outgoing)).await;
    let response = match response {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => return Err(unreachable_upstream(&error)),
        Err(_) => {
            return Err(ApiError::timed_out(format!("{endpoint} sent no response within {LOOKUP_TIME:?}")));
        }
    };
    let HttpResponse { status, data, .. } = response;
    let body = read_all(data, MAX_RESPONSE, LOOKUP_TIME).await?;
    if status.is_success() {
        return Ok(body);
    }
    let ErrorEnvelope { kind, message, conforms } = ErrorEnvelope::read(&body);
    let said = message.unwrap_or_else(|| "no reason given".to_owned());
    let said = envelope::scrub(&said, Some(token));
    if let Some(kind) = kind.filter(|_| conforms) {
        return Err(ApiError::from_status(status, said).with_kind(kind));
    }
    let hint = match status.as_u16() {
        401 => "; sign in again with `innkeeper login`",
        403 => "; this account may not be allowed to use Copilot, check `innkeeper whoami`",
        404 => "; this account has no Copilot",
        _ => "",
    };
    Err(ApiError::from_status(status, format!("{endpoint}{path} returned {status}: {said}{hint}")))
}

/// The `Authorization` header for a token.
pub(crate) fn bearer(token: &SecretString) -> Result<HeaderValue, ApiError> {
    let mut value = HeaderValue::from_str(&format!("Bearer {}", token.expose_secret())).map_err(|_| {
        ApiError::authentication(
            "the GitHub token contains characters that are invalid in a header; \
             sign in again with `innkeeper login`",
        )
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// Parses an address returned by GitHub. The token is sent there, so it must use TLS.
fn copilot_endpoint(text: &str) -> Result<Endpoint, ApiError> {
    let endpoint =
        Endpoint::from_configuration(text).map_err(|error| ApiError::bad_gateway(error.to_string()))?;
    if endpoint.is_secure() || endpoint.is_loopback() {
        return Ok(endpoint);
    }
    Err(ApiError::bad_gateway(format!(
        "GitHub returned {endpoint} as Copilot endpoint, which does not use TLS"
    )))
}

fn default_copilot(github: &Endpoint) -> Result<Endpoint, ApiError> {
    match github.host().strip_prefix("api.").filter(|host| host.ends_with(".ghe.com")) {
        Some(host) => copilot_endpoint(&format!("https://copilot-api.{host}")),
        None => copilot_endpoint(DEFAULT_COPILOT),
    }
}

#[derive(Deserialize)]
struct DiscoveryResponse {
    #[serde(default)]
    endpoints: Option<DiscoveredEndpoints>,
    #[serde(default)]
    login: Option<String>,
    #[serde(default)]
    copilot_plan: Option<String>,
}

#[derive(Deserialize)]
struct DiscoveredEndpoints {
    #[serde(default)]
    api: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enterprise_instance_has_its_own_addresses() {
        for (web, api, copilot) in [
            ("https://github.com", "https://api.github.com", DEFAULT_COPILOT),
            ("https://house.ghe.com", "https://api.house.ghe.com", "https://copilot-api.house.ghe.com"),
            ("https://git.house.example", "https://git.house.example/api/v3", DEFAULT_COPILOT),
        ] {
            let github = GithubEndpoints::of(Endpoint::from_configuration(web).unwrap());
            assert_eq!(github.api.to_string(), api);
            assert_eq!(default_copilot(&github.api).unwrap().to_string(), copilot);
        }
    }

    #[test]
    fn rejects_endpoint_without_tls() {
        assert!(copilot_endpoint("http://copilot.example").is_err());
        assert!(copilot_endpoint("http://127.0.0.1:1").is_ok());
        assert!(copilot_endpoint("https://copilot.example").is_ok());
    }

    #[test]
    fn invalid_token_is_not_in_error_message() {
        let error = bearer(&"sesame\n".to_owned().into()).unwrap_err();
        assert!(!error.to_string().contains("sesame"));
        assert!(!format!("{:?}", bearer(&"sesame".to_owned().into()).unwrap()).contains("sesame"));
    }
}
