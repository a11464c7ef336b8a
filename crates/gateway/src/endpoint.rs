//! Addresses of upstream services.
//!
//! Owns the rules for addresses that credentials are sent to. An address from
//! the environment must be loopback, so that a manipulated environment
//! variable cannot redirect a credential to another machine.

use std::fmt;
use std::net::IpAddr;

use http::HeaderValue;
use url::{Host, Url};

/// The base address of a service.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    secure: bool,
    /// IPv6 addresses are without brackets.
    host: String,
    port: u16,
    /// Host and port as in the `Host` header.
    authority: String,
    /// Prepended to every path, without a trailing slash.
    prefix: String,
    loopback: bool,
}

/// Why an address was rejected.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// Not a valid address.
    #[error("invalid service address {0:?}; expected https://HOST or http://127.0.0.1:PORT")]
    Invalid(String),
    /// The address is from the environment and is not loopback.
    #[error(
        "{0:?} is not a loopback address; set other addresses in the configuration file, not in the environment"
    )]
    NotLoopback(String),
}

impl Endpoint {
    /// Parses an address from the user's configuration file or from this program.
    pub fn from_configuration(text: &str) -> Result<Self, EndpointError> {
        Self::parse(text).ok_or_else(|| EndpointError::Invalid(without_secrets(text)))
    }

    /// Parses an address from the environment; it must be loopback.
    pub fn from_environment(text: &str) -> Result<Self, EndpointError> {
        let endpoint = Self::from_configuration(text)?;
        if endpoint.loopback {
            return Ok(endpoint);
        }
        Err(EndpointError::NotLoopback(without_secrets(text)))
    }

    /// Whether the address is on this machine.
    pub fn is_loopback(&self) -> bool {
        self.loopback
    }

    fn parse(text: &str) -> Option<Self> {
        let url = Url::parse(text.trim()).ok()?;
        let secure = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let is_plain = url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none();
        if !is_plain {
            return None;
        }
        let (host, loopback) = match url.host()? {
            Host::Domain(name) => (name.to_owned(), name.eq_ignore_ascii_case("localhost")),
            Host::Ipv4(address) => (address.to_string(), IpAddr::from(address).is_loopback()),
            Host::Ipv6(address) => (address.to_string(), IpAddr::from(address).is_loopback()),
        };
        let port = url.port_or_known_default()?;
        let authority = match url.port() {
            Some(port) => format!("{}:{port}", url.host_str()?),
            None => url.host_str()?.to_owned(),
        };
        let prefix = url.path().trim_end_matches('/').to_owned();
        Some(Self { secure, host, port, authority, prefix, loopback })
    }

    pub(crate) fn is_secure(&self) -> bool {
        self.secure
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn host_header(&self) -> Option<HeaderValue> {
        HeaderValue::from_str(&self.authority).ok()
    }

    /// The request target for a path.
    pub(crate) fn target(&self, path: &str, query: Option<&str>) -> String {
        match query {
            Some(query) => format!("{}{path}?{query}", self.prefix),
            None => format!("{}{path}", self.prefix),
        }
    }

    /// The same service with a subdomain prepended to the host.
    pub(crate) fn with_subdomain(&self, name: &str) -> Option<Self> {
        Self::parse(&format!("{}://{name}.{}", self.scheme(), self.authority))
    }

    /// The same service with a further path prefix.
    pub(crate) fn with_prefix(&self, prefix: &str) -> Self {
        Self { prefix: format!("{}{prefix}", self.prefix), ..self.clone() }
    }

    fn scheme(&self) -> &'static str {
        if self.secure { "https" } else { "http" }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}://{}{}", self.scheme(), self.authority, self.prefix)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Endpoint({self})")
    }
}

/// Removes user and password from an address for error messages.
fn without_secrets(text: &str) -> String {
    match text.rsplit_once('@') {
        Some((_, rest)) => format!("…@{rest}"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_scheme_host_port_and_path() {
        let endpoint = Endpoint::from_configuration(" https://Example.com/base/ ").unwrap();
        assert_eq!(endpoint.to_string(), "https://example.com/base");
        assert_eq!((endpoint.host(), endpoint.port(), endpoint.is_secure()), ("example.com", 443, true));
        assert_eq!(endpoint.target("/v1/x", Some("a=b")), "/base/v1/x?a=b");
        let local = Endpoint::from_configuration("http://[::1]:8080").unwrap();
        assert_eq!((local.host(), local.port(), local.is_loopback()), ("::1", 8080, true));
        assert_eq!(local.host_header().unwrap(), "[::1]:8080");
    }

    #[test]
    fn environment_accepts_loopback_addresses_only() {
        for good in ["http://127.0.0.1:1", "http://127.8.0.1", "https://localhost:2", "http://[::1]"] {
            assert!(Endpoint::from_environment(good).is_ok(), "{good}");
        }
        for bad in [
            "https://example.com",
            "http://127.0.0.1.example.com",
            "http://10.0.0.1",
            "http://localhost.evil",
        ] {
            let error = Endpoint::from_environment(bad).unwrap_err();
            assert!(matches!(error, EndpointError::NotLoopback(_)), "{bad}");
            assert!(error.to_string().contains("configuration file"));
        }
    }

    #[test]
    fn invalid_address_is_rejected_without_its_password() {
        for bad in
            ["", "example.com", "ftp://x", "http://", "https://u:secret@x", "https://x?q", "https://x#f"]
        {
            let error = Endpoint::from_configuration(bad).unwrap_err();
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
