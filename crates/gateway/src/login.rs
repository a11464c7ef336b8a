//! Signing in to GitHub with a code that the user types into a browser.
//!
//! Owns the device flow: asking for a code, and asking whether it was typed
//! in, no faster than GitHub allows. It keeps no token; the caller does. Any
//! wait ends when it is cancelled.

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

use crate::client::{ClientOptions, HttpClient, Outgoing};
use crate::credentials::{self, CopilotAccount, GithubEndpoints, LOOKUP_TIME, OWN_NAME};
use crate::endpoint::Endpoint;
use crate::error::ApiError;
use crate::forward::{read_all, unreachable_upstream};

/// The public id of the sign-in that Copilot accepts tokens of. An id is no
/// secret; an enterprise may have its own.
pub const DEFAULT_CLIENT_ID: &str = "Iv1.b507a08c87ecfe98";

/// What the token may do: read the name of the account.
const SCOPE: &str = "read:user";

/// The pause between two questions if GitHub names none.
const DEFAULT_INTERVAL: u64 = 5;

/// What GitHub's rules add to the pause after `slow_down`.
const SLOW_DOWN: u64 = 5;

/// The longest pause that is believed, so that an odd answer cannot hang us.
const MAX_INTERVAL: u64 = 60;

/// How long a code is good for if GitHub does not say.
const DEFAULT_EXPIRY: u64 = 15 * 60;

/// The longest text of a code; real ones have nine characters.
const MAX_CODE: usize = 64;

/// The largest answer to a question.
const MAX_ANSWER: usize = 64 * 1024;

/// Why nobody is signed in.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// GitHub could not be asked.
    #[error("GitHub could not be asked")]
    Unreachable(#[source] ApiError),
    /// GitHub's answer makes no sense.
    #[error("GitHub's answer cannot be used: {0}")]
    Answer(String),
    /// The user said no.
    #[error("the sign-in was refused in the browser; start again with `innkeeper login`")]
    Denied,
    /// The code was not typed in in time.
    #[error("the code was not entered in time; start again with `innkeeper login`")]
    Expired,
    /// GitHub does not do this sign-in.
    #[error("GitHub refuses this sign-in: {0}")]
    Refused(String),
    /// The caller did not want to wait.
    #[error("the sign-in was cancelled")]
    Cancelled,
}

/// A code that waits to be typed in.
pub struct DeviceCode {
    user_code: String,
    verification_uri: String,
    device_code: SecretString,
    interval: Duration,
    expires: Instant,
}

impl DeviceCode {
    /// What the user types in.
    pub fn user_code(&self) -> &str {
        &self.user_code
    }

    /// Where.
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

/// The sign-in at one GitHub.
#[derive(Debug)]
pub struct DeviceLogin {
    client: HttpClient,
    github: GithubEndpoints,
    client_id: String,
}

impl DeviceLogin {
    /// Makes the sign-in; nothing is sent yet.
    pub fn new(github: GithubEndpoints, client_id: impl Into<String>, options: ClientOptions) -> Self {
        Self { client: HttpClient::new(options), github, client_id: client_id.into() }
    }

    /// Asks for a code.
    pub async fn begin(&self) -> Result<DeviceCode, LoginError> {
        let form = [("client_id", self.client_id.as_str()), ("scope", SCOPE)];
        let answer: CodeAnswer = self.ask("/login/device/code", &form).await?;
        if let Some(error) = answer.error {
            return Err(LoginError::Refused(plain(&answer.error_description.unwrap_or(error))));
        }
        let (Some(device_code), Some(user_code), Some(uri)) =
            (answer.device_code, answer.user_code, answer.verification_uri)
        else {
            return Err(LoginError::Answer("it has no code".to_owned()));
        };
        if user_code.len() > MAX_CODE
            || !user_code.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        {
            return Err(LoginError::Answer("its code is not one that can be typed".to_owned()));
        }
        let place =
            Endpoint::from_configuration(&uri).map_err(|error| LoginError::Answer(error.to_string()))?;
        Ok(DeviceCode {
            user_code,
            verification_uri: place.to_string(),
            device_code: device_code.into(),
            interval: seconds(answer.interval.unwrap_or(DEFAULT_INTERVAL)),
            expires: Instant::now()
                + Duration::from_secs(answer.expires_in.unwrap_or(DEFAULT_EXPIRY).min(3600)),
        })
    }

    /// Waits until the code was typed in and returns the token.
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
                asked = self.ask::<TokenAnswer>("/login/oauth/access_token", &form) => asked,
            };
            match asked.map(TokenAnswer::read) {
                Ok(Progress::Done(token)) => return Ok(token),
                Ok(Progress::Pending) => {}
                Ok(Progress::SlowDown(named)) => interval = slower(interval, named),
                Ok(Progress::Failed(error)) => return Err(error),
                // The network may be away for a moment; the code's end bounds this.
                Err(LoginError::Unreachable(error)) => {
                    tracing::warn!(%error, "GitHub could not be asked; trying again")
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Asks whose a token is, and which Copilot it has.
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
            Outgoing { method: Method::POST, target: web.target(path, None), headers, body: body.into() };
        let (status, body) = timeout(LOOKUP_TIME, self.exchange(web, &outgoing))
            .await
            .unwrap_or_else(|_| Err(ApiError::timed_out(format!("no answer within {LOOKUP_TIME:?}"))))
            .map_err(LoginError::Unreachable)?;
        if status.is_server_error() {
            return Err(LoginError::Unreachable(ApiError::from_status(
                status,
                format!("{web} answered {status}"),
            )));
        }
        // The errors of the flow come with status 200 or 400, both with JSON.
        serde_json::from_slice(&body).map_err(|_| {
            LoginError::Answer(format!("{web}{path} answered {status} without the expected JSON"))
        })
    }

    async fn exchange(&self, web: &Endpoint, outgoing: &Outgoing) -> Result<(StatusCode, Bytes), ApiError> {
        let answer = self.client.send(web, outgoing).await.map_err(|error| unreachable_upstream(&error))?;
        Ok((answer.status, read_all(answer.data, MAX_ANSWER, LOOKUP_TIME).await?))
    }
}

/// The pause after GitHub wanted fewer questions: what it names, and longer
/// than before in any case.
fn slower(interval: Duration, named: Option<u64>) -> Duration {
    let longer = interval.as_secs() + SLOW_DOWN;
    seconds(named.unwrap_or(longer).max(longer))
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count.clamp(1, MAX_INTERVAL))
}

/// A text of GitHub's without anything that a terminal would obey.
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
struct CodeAnswer {
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
struct TokenAnswer {
    #[serde(default)]
    access_token: Option<String>,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    error_description: Option<String>,
    #[serde(default)]
    interval: Option<u64>,
}

impl TokenAnswer {
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
                Progress::Failed(LoginError::Answer("it has neither a token nor a reason".to_owned()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asking_too_fast_makes_every_later_pause_longer() {
        let five = Duration::from_secs(5);
        assert_eq!(slower(five, None), Duration::from_secs(10));
        assert_eq!(slower(five, Some(30)), Duration::from_secs(30));
        assert_eq!(slower(five, Some(1)), Duration::from_secs(10));
        assert_eq!(slower(five, Some(u64::MAX)), Duration::from_secs(MAX_INTERVAL));
        let answer = TokenAnswer {
            access_token: None,
            error: Some("slow_down".to_owned()),
            error_description: None,
            interval: Some(12),
        };
        assert!(matches!(answer.read(), Progress::SlowDown(Some(12))));
    }
}
