//! The HTTP client for the checked endpoint.
//!
//! Owns the client, the credentials and the size limits. It does not evaluate
//! responses. Credentials are sent only to the given address: redirects are
//! not followed.

use std::error::Error;
use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Method};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, Url};
use secrecy::{ExposeSecret, SecretString};

/// The endpoint to check, and the credentials for it.
#[derive(Debug)]
pub struct CheckTarget {
    /// The base address, without `/v1/messages`.
    pub base_url: String,
    /// The credentials for requests.
    pub credentials: Credentials,
    /// The model for requests; by default the first in the endpoint's list.
    pub model: Option<String>,
}

/// The credentials of a request.
#[derive(Debug)]
pub enum Credentials {
    /// No credentials.
    None,
    /// `Authorization: Bearer`.
    Bearer(SecretString),
    /// `x-api-key`.
    ApiKey(SecretString),
}

impl Credentials {
    /// The secret, if there is one.
    pub(super) fn secret(&self) -> Option<&str> {
        match self {
            Self::None => None,
            Self::Bearer(secret) | Self::ApiKey(secret) => Some(secret.expose_secret()),
        }
    }

    /// The header of this kind of credentials for a secret.
    fn header(&self, secret: &str) -> Result<Option<(HeaderName, HeaderValue)>, CheckError> {
        let (name, value) = match self {
            Self::None => return Ok(None),
            Self::Bearer(_) => (AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {secret}"))),
            Self::ApiKey(_) => (API_KEY, HeaderValue::from_str(secret)),
        };
        let mut value = value.map_err(|_| CheckError::Credentials)?;
        value.set_sensitive(true);
        Ok(Some((name, value)))
    }
}

/// Why an endpoint could not be checked.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The base address is invalid.
    #[error("invalid base address `{url}`: {reason}; expected one such as http://127.0.0.1:8080")]
    BaseUrl {
        /// The given address.
        url: String,
        /// Why it is invalid.
        reason: String,
    },
    /// The credentials contain characters that are invalid in a header.
    #[error("the credentials contain characters that are invalid in an HTTP header; check for line breaks")]
    Credentials,
    /// The HTTP client could not be created.
    #[error("cannot create the HTTP client")]
    Client(#[source] reqwest::Error),
    /// The connection failed.
    #[error("cannot connect to {url}; check the address and that the endpoint is running")]
    Unreachable {
        /// The base address.
        url: String,
        /// The cause.
        #[source]
        source: reqwest::Error,
    },
}

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The checked version of the wire format.
const VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");

/// The secret for requests with wrong credentials. It has the form of a gateway
/// bearer, so that it is rejected because of its content.
const WRONG_SECRET: &str = "innkeeper-check.wrong-credentials";

/// Limit for establishing a connection.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// Largest response that is read at once: a model list, the longest kind, has
/// some hundred bytes per model.
const RESPONSE_CAP: usize = 4 * 1024 * 1024;

/// The credentials of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CheckIdentity {
    /// The given credentials.
    Own,
    /// Wrong credentials of the same kind.
    Wrong,
    /// No credentials.
    None,
}

/// One request.
#[derive(Debug)]
pub(super) struct CheckRequest {
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) identity: CheckIdentity,
    pub(super) body: Option<String>,
}

impl CheckRequest {
    pub(super) fn get(path: &'static str) -> Self {
        Self { method: Method::GET, path, identity: CheckIdentity::Own, body: None }
    }

    pub(super) fn post(path: &'static str, body: impl ToString) -> Self {
        Self { method: Method::POST, path, identity: CheckIdentity::Own, body: Some(body.to_string()) }
    }

    #[must_use]
    pub(super) fn by(mut self, identity: CheckIdentity) -> Self {
        self.identity = identity;
        self
    }
}

/// A complete response.
#[derive(Debug)]
pub(super) struct CheckResponse {
    pub(super) status: u16,
    pub(super) content_type: String,
    pub(super) has_request_id: bool,
    pub(super) body: Vec<u8>,
}

/// Why a request got no response.
#[derive(Debug)]
pub(super) struct RequestFailed(pub(super) String);

/// The checked endpoint.
#[derive(Debug)]
pub(super) struct CheckedEndpoint {
    client: Client,
    /// The base address, without a trailing slash.
    base: String,
    own: Option<(HeaderName, HeaderValue)>,
    wrong: Option<(HeaderName, HeaderValue)>,
}

impl CheckedEndpoint {
    /// Creates the client; sends nothing.
    pub(super) fn new(target: &CheckTarget, idle: Duration) -> Result<Self, CheckError> {
        let url = parse_base(&target.base_url)?;
        let mut client = Client::builder()
            .redirect(Policy::none())
            .connect_timeout(CONNECT_TIME)
            .read_timeout(idle)
            .user_agent(concat!("innkeeper-check/", env!("CARGO_PKG_VERSION")));
        if url.host_str().is_some_and(is_loopback) {
            // A proxy from the environment would resolve loopback to its own machine.
            client = client.no_proxy();
        }
        let credentials = &target.credentials;
        Ok(Self {
            client: client.build().map_err(CheckError::Client)?,
            base: url.as_str().trim_end_matches('/').to_owned(),
            own: credentials.header(credentials.secret().unwrap_or_default())?,
            wrong: credentials.header(WRONG_SECRET)?,
        })
    }

    /// Fails if the address does not accept connections.
    pub(super) async fn reach(&self) -> Result<(), CheckError> {
        match self.client.head(&self.base).send().await {
            Err(source) if source.is_connect() => {
                Err(CheckError::Unreachable { url: self.base.clone(), source })
            }
            // Other failures are found by the checks.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Sends a request and waits for the head of its response.
    pub(super) async fn send(&self, request: CheckRequest) -> Result<Response, RequestFailed> {
        let mut builder = self
            .client
            .request(request.method, format!("{}{}", self.base, request.path))
            .header(VERSION.0, VERSION.1);
        let header = match request.identity {
            CheckIdentity::Own => &self.own,
            CheckIdentity::Wrong => &self.wrong,
            CheckIdentity::None => &None,
        };
        if let Some((name, value)) = header {
            builder = builder.header(name, value);
        }
        if let Some(body) = request.body {
            builder = builder.header(CONTENT_TYPE, "application/json").body(body);
        }
        builder.send().await.map_err(|error| RequestFailed(words(&error)))
    }

    /// Sends a request and reads its complete response.
    pub(super) async fn ask(&self, request: CheckRequest) -> Result<CheckResponse, RequestFailed> {
        let response = self.send(request).await?;
        read(response).await
    }
}

/// Reads a response to its end.
pub(super) async fn read(mut response: Response) -> Result<CheckResponse, RequestFailed> {
    let mut complete = CheckResponse {
        status: response.status().as_u16(),
        content_type: content_type(&response),
        has_request_id: response.headers().contains_key("request-id"),
        body: Vec::new(),
    };
    while let Some(chunk) = response.chunk().await.map_err(|error| RequestFailed(words(&error)))? {
        if complete.body.len() + chunk.len() > RESPONSE_CAP {
            return Err(RequestFailed(format!("response of more than {RESPONSE_CAP} bytes")));
        }
        complete.body.extend_from_slice(&chunk);
    }
    Ok(complete)
}

/// The media type of a response, without parameters.
pub(super) fn content_type(response: &Response) -> String {
    let value = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media = value.and_then(|value| value.split(';').next()).unwrap_or_default();
    media.trim().to_ascii_lowercase()
}

/// An error with its causes, which contain the details.
pub(super) fn words(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

fn parse_base(text: &str) -> Result<Url, CheckError> {
    let wrong = |reason: &str| CheckError::BaseUrl { url: text.to_owned(), reason: reason.to_owned() };
    let url = Url::parse(text).map_err(|error| wrong(&error.to_string()))?;
    if !url.username().is_empty() || url.password().is_some() {
        // The address is not repeated, because it contains a password.
        let reason = "credentials are not allowed in the address".to_owned();
        return Err(CheckError::BaseUrl { url: "…@…".to_owned(), reason });
    }
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(wrong("it must start with http:// or https://"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("it must not have a query or a fragment"));
    }
    if url.path().trim_end_matches('/').ends_with("/v1") || url.path().contains("/v1/messages") {
        return Err(wrong("it must end before /v1"));
    }
    Ok(url)
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(base_url: &str, credentials: Credentials) -> CheckTarget {
        CheckTarget { base_url: base_url.to_owned(), credentials, model: None }
    }

    #[test]
    fn invalid_base_address_is_rejected_with_reason() {
        for (url, reason) in [
            ("127.0.0.1:80", "relative URL"),
            ("ftp://host", "start with http"),
            ("http://host/?a=b", "query"),
            ("http://host/v1", "before /v1"),
            ("http://host/v1/messages", "before /v1"),
        ] {
            let error =
                CheckedEndpoint::new(&target(url, Credentials::None), CONNECT_TIME).unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains(url), "{url}: {error}");
        }
    }

    #[test]
    fn password_in_address_is_rejected_and_not_repeated() {
        let url = "http://me:hunter2@host/";
        let error = CheckedEndpoint::new(&target(url, Credentials::None), CONNECT_TIME).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"));
    }

    #[test]
    fn base_address_keeps_path_without_trailing_slash() {
        let endpoint =
            CheckedEndpoint::new(&target("http://host/a/b/", Credentials::None), CONNECT_TIME).unwrap();
        assert_eq!(endpoint.base, "http://host/a/b");
    }

    #[test]
    fn credentials_are_hidden_in_debug_output_and_line_breaks_are_rejected() {
        let credentials = Credentials::Bearer("hunter2".into());
        assert!(!format!("{credentials:?}").contains("hunter2"));
        let endpoint = CheckedEndpoint::new(&target("http://host", credentials), CONNECT_TIME).unwrap();
        assert!(!format!("{endpoint:?}").contains("hunter2"));
        let broken = Credentials::ApiKey("a\nb".into());
        let error = CheckedEndpoint::new(&target("http://host", broken), CONNECT_TIME).unwrap_err();
        assert!(error.to_string().contains("line breaks"), "{error}");
    }
}
