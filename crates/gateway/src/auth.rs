//! Authentication: the nonce, the session id in the bearer, the Host header.
//!
//! Owns the secret of one running gateway and the checks against it; routing
//! is in `front`. The nonce is compared in constant time and never appears in
//! `Debug` output.

use std::fmt;

use http::HeaderMap;
use http::header::{AUTHORIZATION, HOST};
use rand::RngCore;
use secrecy::{ExposeSecret, SecretString};
use subtle::ConstantTimeEq;

use crate::error::ApiError;

/// Random bytes in a nonce: 256 bits, because the nonce is the only protection
/// of the user's account against other local processes.
const NONCE_BYTES: usize = 32;

/// The session id from a request's bearer. The host uses a conversation's id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SessionId(String);

impl SessionId {
    /// Wraps an id; `None` if it is empty, which no valid bearer contains.
    pub fn new(id: impl Into<String>) -> Option<Self> {
        Some(Self(id.into())).filter(|id| !id.0.is_empty())
    }

    /// The id as in the bearer; never empty, may contain dots.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for SessionId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The secret of one running gateway, generated at each start.
pub(crate) struct Nonce(SecretString);

impl Nonce {
    pub(crate) fn random() -> Self {
        let mut bytes = [0_u8; NONCE_BYTES];
        rand::rng().fill_bytes(&mut bytes);
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Self(text.into())
    }

    pub(crate) fn secret(&self) -> SecretString {
        self.0.clone()
    }

    pub(crate) fn bearer_for(&self, session: &str) -> SecretString {
        format!("{}.{session}", self.0.expose_secret()).into()
    }

    /// Returns the session of a request, or an error that says what is wrong with its bearer.
    pub(crate) fn authenticate(&self, headers: &HeaderMap) -> Result<SessionId, ApiError> {
        let value = headers.get(AUTHORIZATION).ok_or_else(|| {
            ApiError::authentication(
                "missing Authorization header; send `Authorization: Bearer <nonce>.<session id>`",
            )
        })?;
        let (nonce, session) = value
            .to_str()
            .ok()
            .and_then(|text| text.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .and_then(|(_, token)| token.trim().split_once('.'))
            .ok_or_else(|| {
                ApiError::authentication(
                    "invalid Authorization header; expected `Bearer <nonce>.<session id>`",
                )
            })?;
        let same = nonce.as_bytes().ct_eq(self.0.expose_secret().as_bytes());
        if !bool::from(same) {
            return Err(ApiError::authentication("wrong nonce in the bearer"));
        }
        if session.is_empty() {
            return Err(ApiError::authentication(
                "missing session id in the bearer; expected `<nonce>.<session id>`",
            ));
        }
        Ok(SessionId(session.to_owned()))
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Nonce([REDACTED])")
    }
}

/// Rejects a request whose Host header does not name this machine.
///
/// In a DNS rebinding attack a web page makes a browser send requests to
/// 127.0.0.1, but with the page's own domain in the Host header.
pub(crate) fn check_host(headers: &HeaderMap) -> Result<(), ApiError> {
    let mut hosts = headers.get_all(HOST).iter();
    // A second header could be the one that a proxy or a client acted on.
    let only = hosts.next().filter(|_| hosts.next().is_none());
    if only.and_then(|value| value.to_str().ok()).is_some_and(is_loopback_authority) {
        return Ok(());
    }
    Err(ApiError::permission("invalid Host header; expected 127.0.0.1, localhost or [::1]"))
}

/// Whether the text is exactly a loopback name, optionally with a port.
fn is_loopback_authority(text: &str) -> bool {
    ["127.0.0.1", "[::1]", "localhost"].iter().any(|name| {
        let (host, rest) = text.split_at_checked(name.len()).unwrap_or_default();
        host.eq_ignore_ascii_case(name) && (rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port))
    })
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(name: http::HeaderName, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_str(value).unwrap());
        headers
    }

    #[test]
    fn session_id_is_everything_after_the_first_dot() {
        let nonce = Nonce::random();
        let bearer = nonce.bearer_for("a.b.c");
        let got = nonce.authenticate(&headers(AUTHORIZATION, &format!("bearer {}", bearer.expose_secret())));
        assert_eq!(got.unwrap().as_str(), "a.b.c");
    }

    #[test]
    fn rejects_malformed_and_wrong_bearers() {
        let nonce = Nonce::random();
        let secret = nonce.secret();
        let good = secret.expose_secret();
        for value in [
            String::new(),
            "Bearer".into(),
            format!("Bearer {good}"),
            format!("Bearer {good}."),
            "Bearer .session".into(),
            format!("Bearer {}.session", Nonce::random().secret().expose_secret()),
            format!("Bearer x{good}.session"),
            format!("Basic {good}.session"),
        ] {
            let error = nonce.authenticate(&headers(AUTHORIZATION, &value)).unwrap_err();
            assert_eq!(error.status().as_u16(), 401, "{value}");
            assert!(!error.to_string().contains(good), "message for {value} contains the secret");
        }
        assert!(nonce.authenticate(&HeaderMap::new()).is_err());
    }

    #[test]
    fn host_check_accepts_loopback_names_only() {
        for good in ["127.0.0.1", "127.0.0.1:80", "localhost:7", "LocalHost", "[::1]", "[::1]:9"] {
            assert!(check_host(&headers(HOST, good)).is_ok(), "{good}");
        }
        for bad in [
            "evil.example",
            "evil.example:80",
            "127.0.0.1.evil.example",
            "127.0.0.1@evil",
            "evil@127.0.0.1",
            "127.0.0.1:",
            "127.0.0.1:80x",
            "127.0.0.1:+80",
            "127.0.0.1:65536",
            "127.0.0.1/x",
            "127.0.0.1,evil.example",
            "",
            "::1",
        ] {
            assert!(check_host(&headers(HOST, bad)).is_err(), "{bad}");
        }
        let mut twice = headers(HOST, "127.0.0.1");
        twice.append(HOST, HeaderValue::from_static("127.0.0.1"));
        assert!(check_host(&twice).is_err());
        assert!(check_host(&HeaderMap::new()).is_err());
    }

    #[test]
    fn debug_output_hides_the_nonce() {
        let nonce = Nonce::random();
        assert!(!format!("{nonce:?}").contains(nonce.secret().expose_secret()));
    }
}
