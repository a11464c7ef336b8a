//! Talking to the endpoint under check.
//!
//! Owns the HTTP client, the credentials and the limits on what is read. It
//! does not judge answers. Credentials go to the given address alone: no
//! redirect is followed.

use std::error::Error;
use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Method};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, Url};
use secrecy::{ExposeSecret, SecretString};

/// Where to check, and as whom.
#[derive(Debug)]
pub struct Target {
    /// The address in front of `/v1/messages`.
    pub base_url: String,
    /// How to be let in.
    pub credentials: Credentials,
    /// The model to ask; without one the first of the endpoint's list.
    pub model: Option<String>,
}

/// What a request brings to be let in.
#[derive(Debug)]
pub enum Credentials {
    /// Nothing.
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

    /// The header that carries a secret in the place of this one.
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

/// Why an endpoint could not be checked at all.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The address is of no use.
    #[error(
        "`{url}` is not the base address of an endpoint: {reason}; give one such as http://127.0.0.1:8080"
    )]
    BaseUrl {
        /// What was given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The credentials cannot be sent.
    #[error("the credentials hold characters that no HTTP header can carry; look for line breaks in them")]
    Credentials,
    /// There is no HTTP client.
    #[error("the HTTP client could not be set up")]
    Client(#[source] reqwest::Error),
    /// Nobody answers there.
    #[error("nothing can be reached at {url}; is the endpoint running, and is this its address?")]
    Unreachable {
        /// The base address.
        url: String,
        /// What the system said.
        #[source]
        source: reqwest::Error,
    },
}

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The version of the wire format that is checked.
const VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");

/// What is sent where the credentials are to be wrong. It has the form of a
/// gateway's bearer, so that it is refused for its content.
const WRONG_SECRET: &str = "innkeeper-check.wrong-credentials";

/// How long a connection may take to be made.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// Most bytes that are read of an answer in one piece: a models list, the
/// longest of them, has some hundred bytes a model.
const ANSWER_CAP: usize = 4 * 1024 * 1024;

/// As whom a request is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Identity {
    /// With the credentials that were given.
    Own,
    /// With others of the same kind.
    Wrong,
    /// With none.
    Nobody,
}

/// One request.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) identity: Identity,
    pub(super) body: Option<String>,
}

impl Question {
    pub(super) fn get(path: &'static str) -> Self {
        Self { method: Method::GET, path, identity: Identity::Own, body: None }
    }

    pub(super) fn post(path: &'static str, body: impl ToString) -> Self {
        Self { method: Method::POST, path, identity: Identity::Own, body: Some(body.to_string()) }
    }

    #[must_use]
    pub(super) fn by(mut self, identity: Identity) -> Self {
        self.identity = identity;
        self
    }
}

/// An answer in one piece.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) content_type: String,
    pub(super) has_request_id: bool,
    pub(super) body: Vec<u8>,
}

/// A request that got no answer, in words.
#[derive(Debug)]
pub(super) struct Unanswered(pub(super) String);

/// The endpoint under check.
#[derive(Debug)]
pub(super) struct Endpoint {
    client: Client,
    /// The address without a slash at the end.
    base: String,
    own: Option<(HeaderName, HeaderValue)>,
    wrong: Option<(HeaderName, HeaderValue)>,
}

impl Endpoint {
    /// Prepares to talk; nothing is sent.
    pub(super) fn new(target: &Target, idle: Duration) -> Result<Self, CheckError> {
        let url = parse_base(&target.base_url)?;
        let mut client = Client::builder()
            .redirect(Policy::none())
            .connect_timeout(CONNECT_TIME)
            .read_timeout(idle)
            .user_agent(concat!("innkeeper-check/", env!("CARGO_PKG_VERSION")));
        if url.host_str().is_some_and(is_loopback) {
            // A proxy from the environment would look for its own loopback.
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

    /// Fails if nobody listens at the address.
    pub(super) async fn reach(&self) -> Result<(), CheckError> {
        match self.client.head(&self.base).send().await {
            Err(source) if source.is_connect() => {
                Err(CheckError::Unreachable { url: self.base.clone(), source })
            }
            // Whatever else is wrong shows in the checks.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Sends a request and waits for the head of its answer.
    pub(super) async fn send(&self, question: Question) -> Result<Response, Unanswered> {
        let mut request = self
            .client
            .request(question.method, format!("{}{}", self.base, question.path))
            .header(VERSION.0, VERSION.1);
        let header = match question.identity {
            Identity::Own => &self.own,
            Identity::Wrong => &self.wrong,
            Identity::Nobody => &None,
        };
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        if let Some(body) = question.body {
            request = request.header(CONTENT_TYPE, "application/json").body(body);
        }
        request.send().await.map_err(|error| Unanswered(words(&error)))
    }

    /// Sends a request and reads its whole answer.
    pub(super) async fn ask(&self, question: Question) -> Result<Answer, Unanswered> {
        let response = self.send(question).await?;
        read(response).await
    }
}

/// Reads an answer to its end.
pub(super) async fn read(mut response: Response) -> Result<Answer, Unanswered> {
    let mut answer = Answer {
        status: response.status().as_u16(),
        content_type: content_type(&response),
        has_request_id: response.headers().contains_key("request-id"),
        body: Vec::new(),
    };
    while let Some(chunk) = response.chunk().await.map_err(|error| Unanswered(words(&error)))? {
        if answer.body.len() + chunk.len() > ANSWER_CAP {
            return Err(Unanswered(format!("an answer of more than {ANSWER_CAP} bytes")));
        }
        answer.body.extend_from_slice(&chunk);
    }
    Ok(answer)
}

/// The media type of an answer, without its parameters.
pub(super) fn content_type(response: &Response) -> String {
    let value = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media = value.and_then(|value| value.split(';').next()).unwrap_or_default();
    media.trim().to_ascii_lowercase()
}

/// An error with its causes, which say more than it does.
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
        // Not shown, as it may hold a password.
        let reason = "credentials do not belong into an address".to_owned();
        return Err(CheckError::BaseUrl { url: "…@…".to_owned(), reason });
    }
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(wrong("it begins with neither http:// nor https://"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("it has a query or a fragment"));
    }
    if url.path().trim_end_matches('/').ends_with("/v1") || url.path().contains("/v1/messages") {
        return Err(wrong("it must stop before /v1"));
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

    fn target(base_url: &str, credentials: Credentials) -> Target {
        Target { base_url: base_url.to_owned(), credentials, model: None }
    }

    #[test]
    fn addresses_that_cannot_be_a_base_are_refused_with_the_reason() {
        for (url, reason) in [
            ("127.0.0.1:80", "relative URL"),
            ("ftp://host", "neither http"),
            ("http://host/?a=b", "query"),
            ("http://host/v1", "before /v1"),
            ("http://host/v1/messages", "before /v1"),
        ] {
            let error = Endpoint::new(&target(url, Credentials::None), CONNECT_TIME).unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains(url), "{url}: {error}");
        }
    }

    #[test]
    fn a_password_in_an_address_is_refused_and_not_repeated() {
        let url = "http://me:hunter2@host/";
        let error = Endpoint::new(&target(url, Credentials::None), CONNECT_TIME).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"));
    }

    #[test]
    fn a_base_with_a_path_is_kept_without_its_slash() {
        let endpoint = Endpoint::new(&target("http://host/a/b/", Credentials::None), CONNECT_TIME).unwrap();
        assert_eq!(endpoint.base, "http://host/a/b");
    }

    #[test]
    fn credentials_are_in_no_debug_output_and_line_breaks_are_refused() {
        let credentials = Credentials::Bearer("hunter2".into());
        assert!(!format!("{credentials:?}").contains("hunter2"));
        let endpoint = Endpoint::new(&target("http://host", credentials), CONNECT_TIME).unwrap();
        assert!(!format!("{endpoint:?}").contains("hunter2"));
        let broken = Credentials::ApiKey("a\nb".into());
        let error = Endpoint::new(&target("http://host", broken), CONNECT_TIME).unwrap_err();
        assert!(error.to_string().contains("line breaks"), "{error}");
    }
}
