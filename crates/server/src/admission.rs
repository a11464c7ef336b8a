//! Decides which requests may connect: checks the token, `Origin` and `Host`.
//!
//! Checked before the upgrade, so that a foreign page in the user's browser cannot reach
//! the host through `localhost` or DNS rebinding.

use std::fmt;
use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use subtle::ConstantTimeEq;
use tokio_rustls::TlsAcceptor;
use url::Host;

use crate::authority::{Authority, OriginScheme};
use crate::tls::TlsIdentity;

/// The port of an address without one. Only matters with TLS.
const HTTPS_PORT: u16 = 443;

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
        own.check(headers)?;
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

    /// Checks that a request was sent to this host, and if a browser sent it, from a page
    /// on this host or this machine.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let asked = Authority::of_host(headers).map_err(|_| Refusal::Host)?;
        if !self.includes(&asked) {
            return Err(Refusal::Host);
        }
        // Clients other than browsers send no `Origin`.
        match Authority::of_origin(headers) {
            Ok(None) => Ok(()),
            Ok(Some((scheme, origin))) if self.may_open(scheme, &origin, &asked) => Ok(()),
            Ok(Some(_)) | Err(_) => Err(Refusal::Origin),
        }
    }

    /// Whether an address is the host's. Any port is accepted: the host may be reached
    /// through an SSH forward.
    fn includes(&self, asked: &Authority) -> bool {
        asked.is_loopback()
            || match (self, &asked.host) {
                (Self::Certified(identity), Host::Domain(name)) => identity.names(name),
                // Without a DNS lookup there is no DNS rebinding.
                (Self::Certified(_), Host::Ipv4(_) | Host::Ipv6(_)) => true,
                (Self::Loopback, _) => false,
            }
    }

    /// Whether pages of this origin may connect to the address that they asked for.
    fn may_open(&self, scheme: OriginScheme, origin: &Authority, asked: &Authority) -> bool {
        let port = |authority: &Authority| authority.port.unwrap_or(HTTPS_PORT);
        let same =
            || scheme == OriginScheme::Https && origin.host == asked.host && port(origin) == port(asked);
        origin.is_loopback() || (matches!(self, Self::Certified(_)) && same())
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
    use http::header::{HOST, ORIGIN};

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
            ("localhost:1", Some("http://evil@127.0.0.1"), Err(Refusal::Origin)),
            ("localhost:1", Some("http://127.0.0.1/x"), Err(Refusal::Origin)),
            ("localhost:1", Some("ftp://127.0.0.1"), Err(Refusal::Origin)),
            ("localhost:1", Some(""), Err(Refusal::Origin)),
            ("evil@127.0.0.1", None, Err(Refusal::Host)),
            ("127.0.0.1:1x", None, Err(Refusal::Host)),
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
        let mut twice = headers(&[(HOST, "localhost")]);
        for (name, value, refusal) in
            [(ORIGIN, "http://localhost", Refusal::Origin), (HOST, "localhost", Refusal::Host)]
        {
            twice.append(name.clone(), value.parse().unwrap());
            twice.append(name, value.parse().unwrap());
            assert_eq!(open.check_socket(&OwnAddresses::Loopback, &twice, None), Err(refusal));
        }
    }
}
