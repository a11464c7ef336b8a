//! Who may connect: the token, the Origin and the Host of a request.
//!
//! Checked before the upgrade, so that a page in the user's browser cannot reach
//! the host by way of `localhost` or a rebound name.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderMap;
use http::header::{AUTHORIZATION, HOST, ORIGIN};
use subtle::ConstantTimeEq;
use tokio_rustls::TlsAcceptor;
use url::{Host, Url};

use crate::tls::TlsIdentity;

/// What a connection must bring to be admitted.
pub struct Admission {
    token: Option<String>,
}

/// Why a request is not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("the token is missing or wrong; use the address that the host printed when it started")]
    Token,
    #[error("this host only answers to pages of its own address")]
    Origin,
    #[error("this host only answers to a loopback address, or with TLS to a name in its certificate")]
    Host,
}

impl Admission {
    /// Every connection must bring this token.
    pub fn with_token(token: String) -> Self {
        Self { token: Some(token) }
    }

    /// Whoever reaches the socket is admitted.
    pub fn open() -> Self {
        Self { token: None }
    }

    /// Whether a connection must bring a token.
    pub(crate) fn needs_token(&self) -> bool {
        self.token.is_some()
    }

    /// Checks a request for a socket over TCP. Who reaches a unix socket is its user.
    pub(crate) fn check_socket(
        &self,
        own: &Own,
        headers: &HeaderMap,
        query: Option<&str>,
    ) -> Result<(), Refusal> {
        own.check_host(headers)?;
        own.check_origin(headers)?;
        let Some(expected) = &self.token else { return Ok(()) };
        let from_query = query.and_then(token_in_query);
        let given = from_query.as_deref().or_else(|| bearer(headers)).unwrap_or_default();
        if bool::from(given.as_bytes().ct_eq(expected.as_bytes())) { Ok(()) } else { Err(Refusal::Token) }
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Admission").field("needs_token", &self.token.is_some()).finish()
    }
}

/// Which addresses are the host's own.
#[derive(Clone, Debug)]
pub(crate) enum Own {
    /// Those of this machine alone.
    Loopback,
    /// Those too that the certificate is for.
    Certified(Arc<TlsIdentity>),
}

impl Own {
    /// What a socket goes through first.
    pub(crate) fn acceptor(&self) -> Option<TlsAcceptor> {
        match self {
            Self::Loopback => None,
            Self::Certified(identity) => Some(identity.acceptor()),
        }
    }

    /// Checks that the request was meant for this host.
    pub(crate) fn check_host(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let asked = asked_for(headers).ok_or(Refusal::Host)?;
        // A port is as good as any other: the host may be behind an SSH forward.
        let known = is_loopback(&asked)
            || match (self, asked.host()) {
                (Self::Certified(identity), Some(Host::Domain(name))) => identity.names(name),
                // No name was looked up, so none can have been bent to this address.
                (Self::Certified(_), Some(Host::Ipv4(_) | Host::Ipv6(_))) => true,
                (Self::Loopback, _) | (_, None) => false,
            };
        if known { Ok(()) } else { Err(Refusal::Host) }
    }

    /// Checks that a browser sent the request from a page of this host or this
    /// machine. Programs that are no browsers send no Origin.
    fn check_origin(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
        let origin =
            origin.to_str().ok().and_then(|origin| Url::parse(origin).ok()).ok_or(Refusal::Origin)?;
        let local = matches!(origin.scheme(), "http" | "https") && is_loopback(&origin);
        let same = || {
            asked_for(headers).is_some_and(|asked| {
                origin.scheme() == "https"
                    && origin.host() == asked.host()
                    && origin.port_or_known_default() == asked.port_or_known_default()
            })
        };
        let own = local || (matches!(self, Self::Certified(_)) && same());
        if own { Ok(()) } else { Err(Refusal::Origin) }
    }
}

/// The address that a request names as its goal. The scheme matters for the port
/// that goes without saying; only TLS asks for it.
fn asked_for(headers: &HeaderMap) -> Option<Url> {
    let host = headers.get(HOST)?.to_str().ok()?;
    Url::parse(&format!("https://{host}/")).ok()
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => IpAddr::V4(address).is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::V6(address).is_loopback(),
        None => false,
    }
}

fn token_in_query(query: &str) -> Option<String> {
    url::form_urlencoded::parse(query.as_bytes())
        .find(|(name, _)| name == "tkn")
        .map(|(_, token)| token.into_owned())
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(http::HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_token_is_taken_from_the_query_or_the_header_and_must_match() {
        let admission = Admission::with_token("secret".to_owned());
        let local = headers(&[(HOST, "127.0.0.1:7433")]);
        assert_eq!(admission.check_socket(&Own::Loopback, &local, Some("a=b&tkn=secret")), Ok(()));
        assert_eq!(admission.check_socket(&Own::Loopback, &local, Some("tkn=secre")), Err(Refusal::Token));
        assert_eq!(admission.check_socket(&Own::Loopback, &local, None), Err(Refusal::Token));
        let bearer = headers(&[(HOST, "localhost"), (AUTHORIZATION, "Bearer secret")]);
        assert_eq!(admission.check_socket(&Own::Loopback, &bearer, None), Ok(()));
        assert_eq!(Admission::open().check_socket(&Own::Loopback, &local, None), Ok(()));
    }

    #[test]
    fn only_loopback_names_and_pages_are_answered() {
        let open = Admission::open();
        let cases = [
            ("127.0.0.1:1", None, Ok(())),
            ("[::1]:1", Some("http://localhost:9"), Ok(())),
            ("localhost:1", Some("https://127.0.0.1"), Ok(())),
            ("localhost:1", Some("https://example.com"), Err(Refusal::Origin)),
            ("localhost:1", Some("null"), Err(Refusal::Origin)),
            ("rebound.example.com:1", None, Err(Refusal::Host)),
            ("10.0.0.1", None, Err(Refusal::Host)),
        ];
        for (host, origin, expected) in cases {
            let mut request = headers(&[(HOST, host)]);
            if let Some(origin) = origin {
                request.insert(ORIGIN, origin.parse().unwrap());
            }
            assert_eq!(open.check_socket(&Own::Loopback, &request, None), expected, "{host} {origin:?}");
        }
        assert_eq!(open.check_socket(&Own::Loopback, &HeaderMap::new(), None), Err(Refusal::Host));
    }
}
