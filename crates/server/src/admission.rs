//! Decides which requests may connect: checks the token, `Origin` and `Host`.
//!
//! Checked before the upgrade, so that a foreign page in the user's browser cannot reach
//! the host through `localhost` or DNS rebinding.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderMap;
use http::header::{AUTHORIZATION, HOST, ORIGIN};
use subtle::ConstantTimeEq;
use tokio_rustls::TlsAcceptor;
use url::{Host, Url};

use crate::tls::TlsIdentity;

/// The credentials that a connection must present.
pub struct Admission {
    token: Option<String>,
}

/// Why a request was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("missing or wrong token; use the address that the host printed at startup")]
    Token,
    #[error("origin not allowed; this host only serves pages from its own address")]
    Origin,
    #[error("host name not allowed; use a loopback address, or with TLS a name in the host's certificate")]
    Host,
}

impl Admission {
    /// Requires this token from every connection.
    pub fn with_token(token: String) -> Self {
        Self { token: Some(token) }
    }

    /// Admits every connection without a token.
    pub fn open() -> Self {
        Self { token: None }
    }

    /// Whether connections must present a token.
    pub(crate) fn needs_token(&self) -> bool {
        self.token.is_some()
    }

    /// Checks a request over TCP. Unix sockets need no check: only their user can open them.
    pub(crate) fn check_socket(
        &self,
        own: &OwnAddresses,
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

/// The addresses that belong to the host.
#[derive(Clone, Debug)]
pub(crate) enum OwnAddresses {
    /// Loopback addresses only.
    Loopback,
    /// Loopback addresses and the names in the certificate.
    Certified(Arc<TlsIdentity>),
}

impl OwnAddresses {
    /// The TLS acceptor, if connections use TLS.
    pub(crate) fn acceptor(&self) -> Option<TlsAcceptor> {
        match self {
            Self::Loopback => None,
            Self::Certified(identity) => Some(identity.acceptor()),
        }
    }

    /// Checks that the `Host` header names this host.
    pub(crate) fn check_host(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let asked = asked_for(headers).ok_or(Refusal::Host)?;
        // Any port is accepted: the host may be reached through an SSH forward.
        let known = is_loopback(&asked)
            || match (self, asked.host()) {
                (Self::Certified(identity), Some(Host::Domain(name))) => identity.names(name),
                // Without a DNS lookup there is no DNS rebinding.
                (Self::Certified(_), Some(Host::Ipv4(_) | Host::Ipv6(_))) => true,
                (Self::Loopback, _) | (_, None) => false,
            };
        if known { Ok(()) } else { Err(Refusal::Host) }
    }

    /// Checks that a browser sent the request from a page on this host or this machine.
    /// Clients other than browsers send no `Origin`.
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

/// The address in the `Host` header. The scheme only determines the default port, which
/// matters only with TLS, so `https` is assumed.
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
    fn token_is_read_from_query_or_header_and_must_match() {
        let admission = Admission::with_token("secret".to_owned());
        let local = headers(&[(HOST, "127.0.0.1:7433")]);
        assert_eq!(admission.check_socket(&OwnAddresses::Loopback, &local, Some("a=b&tkn=secret")), Ok(()));
        assert_eq!(
            admission.check_socket(&OwnAddresses::Loopback, &local, Some("tkn=secre")),
            Err(Refusal::Token)
        );
        assert_eq!(admission.check_socket(&OwnAddresses::Loopback, &local, None), Err(Refusal::Token));
        let bearer = headers(&[(HOST, "localhost"), (AUTHORIZATION, "Bearer secret")]);
        assert_eq!(admission.check_socket(&OwnAddresses::Loopback, &bearer, None), Ok(()));
        assert_eq!(Admission::open().check_socket(&OwnAddresses::Loopback, &local, None), Ok(()));
    }

    #[test]
    fn rejects_hosts_and_origins_that_are_not_loopback() {
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
            assert_eq!(
                open.check_socket(&OwnAddresses::Loopback, &request, None),
                expected,
                "{host} {origin:?}"
            );
        }
        assert_eq!(open.check_socket(&OwnAddresses::Loopback, &HeaderMap::new(), None), Err(Refusal::Host));
    }
}
