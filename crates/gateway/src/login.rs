//! Signs in to GitHub with the OAuth device flow.
//!
//! Requests a code and polls for the token at the interval that GitHub allows.
//! The token is returned to the caller and not stored here. Waiting can be
//! cancelled at any time.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use url::form_urlencoded;

use crate::client::{ClientOptions, HttpClient, HttpRequest};
use crate::credentials::{self, CopilotAccount, GithubEndpoints, LOOKUP_TIME, OWN_NAME};
use crate::endpoint::Endpoint;
use crate::error::ApiError;
use crate::forward::{read_all, unreachable_upstream};

/// The public OAuth client id whose tokens Copilot accepts. It is not a secret;
/// an enterprise may have its own.
pub const DEFAULT_CLIENT_ID: &str = "Iv1.b507a08c87ecfe98";

/// The requested scope: read the name of the account.
const SCOPE: &str = "read:user";

/// Seconds between two polls if GitHub sends no interval.
const DEFAULT_INTERVAL: u64 = 5;

/// Seconds added to the interval after `slow_down`, as RFC 8628 requires.
const SLOW_DOWN: u64 = 5;

/// Upper bound of the interval in seconds, so that an odd response cannot block the login.
const MAX_INTERVAL: u64 = 60;

/// Seconds until a code expires if GitHub sends no expiry.
const DEFAULT_EXPIRY: u64 = 15 * 60;

/// Longest accepted user code; real ones have nine characters.
const MAX_CODE: usize = 64;

/// Largest response.
const MAX_RESPONSE: usize = 64 * 1024;

/// Why the sign-in failed.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// GitHub could not be reached.
    #[error("cannot reach GitHub")]
    Unreachable(#[source] ApiError),
    /// GitHub's response is unusable.
    #[error("unexpected response from GitHub: {0}")]
    InvalidResponse(String),
    /// The user denied access.
    #[error("access was denied in the browser; start again with `innkeeper login`")]
    Denied,
    /// The code expired.
    #[error("the code was not entered in time; start again with `innkeeper login`")]
    Expired,
    /// GitHub rejected the request.
    #[error("GitHub rejected the sign-in: {0}")]
    Refused(String),
    /// The caller cancelled.
    #[error("the sign-in was cancelled")]
    Cancelled,
}

/// A code for the user to enter in a browser.
pub struct DeviceCode {
    user_code: String,
    verification_uri: String,
    device_code: SecretString,
    interval: Duration,
    expires: Instant,
}

impl DeviceCode {
    /// The code that the user enters.
    pub fn user_code(&self) -> &str {
        &self.user_code
    }

    /// The page on which the user enters the code.
    pub fn verification_uri(&self) -> &str {
        &self.verification_uri
    }
}

impl fmt::Debug for DeviceCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("DeviceCode")
            .field("verification_uri", &self.verification_uri)
            .finish_non_exhaustive()
    }
}

/// The device flow for one GitHub instance.
#[derive(Debug)]
pub struct DeviceLogin {
    client: HttpClient,
    github: GithubEndpoints,
    client_id: String,
}

impl DeviceLogin {
    /// Creates the login; sends nothing yet.
    pub fn new(github: GithubEndpoints, client_id: impl Into<String>, options: ClientOptions) -> Self {
        Self { client: HttpClient::new(options), github, client_id: client_id.into() }
    }

    /// Requests a code.
    pub async fn begin(&self) -> Result<DeviceCode, LoginError> {
        let form = [("client_id", self.client_id.as_str()), ("scope", SCOPE)];
        let response: DeviceCodeResponse = self.ask("/login/device/code", &form).await?;
        if let Some(error) = response.error {
            return Err(LoginError::Refused(plain(&response.error_description.unwrap_or(error))));
        }
        let (Some(device_code), Some(user_code), Some(uri)) =
            (response.device_code, response.user_code, response.verification_uri)
        else {
            return Err(LoginError::InvalidResponse("missing code".to_owned()));
        };
        if user_code.len() > MAX_CODE
            || !user_code.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        {
            return Err(LoginError::InvalidResponse("invalid characters in the code".to_owned()));
        }
        let place = Endpoint::from_configuration(&uri)
            .map_err(|error| LoginError::InvalidResponse(error.to_string()))?;
        Ok(DeviceCode {
            user_code,
            verification_uri: place.to_string(),
            device_code: device_code.into(),
            interval: seconds(response.interval.unwrap_or(DEFAULT_INTERVAL)),
            expires: Instant::now()
                + Duration::from_secs(response.expires_in.unwrap_or(DEFAULT_EXPIRY).min(3600)),
        })
    }

    /// Waits until the user entered the code and returns the token.
    pub async fn wait(
        &self,
        code: DeviceCode,
        cancel: &CancellationToken,
    ) -> Result<SecretString, LoginError> {
        let mut interval = code.interval;
        loop {
            let next = Instant::now() + interval;
            if next > code.expires {
                return Err(LoginError::Expired);
            }
            tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(LoginError::Cancelled),
                () = sleep(interval) => {}
            }
            let form = [
                ("client_id", self.client_id.as_str()),
                ("device_code", code.device_code.expose_secret()),
                ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
            ];
            let asked = tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(LoginError::Cancelled),
                asked = self.ask::<TokenResponse>("/login/oauth/access_token", &form) => asked,
            };
            match asked.map(TokenResponse::read) {
                Ok(Progress::Done(token)) => return Ok(token),
                Ok(Progress::Pending) => {}
                Ok(Progress::SlowDown(named)) => interval = slower(interval, named),
                Ok(Progress::Failed(error)) => return Err(error),
                // A network failure may be transient; the code's expiry bounds the retries.
                Err(LoginError::Unreachable(error)) => {
                    tracing::warn!(%error, "cannot reach GitHub; retrying")
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the account of a token and its Copilot endpoint.
    pub async fn account(&self, token: &SecretString) -> Result<CopilotAccount, LoginError> {
        credentials::discover(&self.client, &self.github.api, token).await.map_err(LoginError::Unreachable)
    }

    async fn ask<T: DeserializeOwned>(&self, path: &str, form: &[(&str, &str)]) -> Result<T, LoginError> {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        headers.insert(USER_AGENT, OWN_NAME);
        let web = &self.github.web;
        let outgoing =
            HttpRequest { method: Method::POST, target: web.target(path, None), headers, body: body.into() };
        let (status, body) = timeout(LOOKUP_TIME, self.exchange(web, &outgoing))
            .await
            .unwrap_or_else(|_| Err(ApiError::timed_out(format!("no response within {LOOKUP_TIME:?}"))))
            .map_err(LoginError::Unreachable)?;
        if status.is_server_error() {
            return Err(LoginError::Unreachable(ApiError::from_status(
                status,
                format!("{web} returned {status}"),
            )));
        }
        // The flow's errors are JSON with status 200 or 400.
        serde_json::from_slice(&body).map_err(|_| {
            LoginError::InvalidResponse(format!("{web}{path} returned {status} without the expected JSON"))
        })
    }

    async fn exchange(
        &self,
        web: &Endpoint,
        outgoing: &HttpRequest,
    ) -> Result<(StatusCode, Bytes), ApiError> {
        let response = self.client.send(web, outgoing).await.map_err(|error| unreachable_upstream(&error))?;
        Ok((response.status, read_all(response.data, MAX_RESPONSE, LOOKUP_TIME).await?))
    }
}

/// The interval after `slow_down`: the one GitHub sent, but always longer than
/// before.
fn slower(interval: Duration, named: Option<u64>) -> Duration {
    let longer = interval.as_secs() + SLOW_DOWN;
    seconds(named.unwrap_or(longer).max(longer))
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count.clamp(1, MAX_INTERVAL))
}

/// Removes control characters from a text of GitHub before it is printed to a terminal.
fn plain(text: &str) -> String {
    text.chars().filter(|character| !character.is_control()).take(300).collect()
}

enum Progress {
    Done(SecretString),
    Pending,
    SlowDown(Option<u64>),
    Failed(LoginError),
}

#[derive(Deserialize)]
struct DeviceCodeResponse {
    #[serde(default)]
    device_code: Option<String>,
    #[serde(default)]
    user_code: Option<String>,
    #[serde(default)]
    verification_uri: Option<String>,
    #[serde(default)]
    interval: Option<u64>,
    #[serde(default)]
    expires_in: Option<u64>,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    error_description: Option<String>,
}

#[derive(Deserialize)]
struct TokenResponse {
    #[serde(default)]
    access_token: Option<String>,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    error_description: Option<String>,
    #[serde(default)]
    interval: Option<u64>,
}

impl TokenResponse {
    fn read(self) -> Progress {
        match (self.access_token, self.error.as_deref()) {
            (_, Some("authorization_pending")) => Progress::Pending,
            (_, Some("slow_down")) => Progress::SlowDown(self.interval),
            (_, Some("expired_token")) => Progress::Failed(LoginError::Expired),
            (_, Some("access_denied")) => Progress::Failed(LoginError::Denied),
            (_, Some(other)) => Progress::Failed(LoginError::Refused(plain(
                &self.error_description.unwrap_or_else(|| other.to_owned()),
            ))),
            (Some(token), None) if !token.is_empty() => Progress::Done(token.into()),
            (_, None) => {
                Progress::Failed(LoginError::InvalidResponse("neither a token nor an error".to_owned()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_down_increases_interval() {
        let five = Duration::from_secs(5);
        assert_eq!(slower(five, None), Duration::from_secs(10));
        assert_eq!(slower(five, Some(30)), Duration::from_secs(30));
        assert_eq!(slower(five, Some(1)), Duration::from_secs(10));
        assert_eq!(slower(five, Some(u64::MAX)), Duration::from_secs(MAX_INTERVAL));
        let response = TokenResponse {
            access_token: None,
            error: Some("slow_down".to_owned()),
            error_description: None,
            interval: Some(12),
        };
        assert!(matches!(response.read(), Progress::SlowDown(Some(12))));
    }
}
