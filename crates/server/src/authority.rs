//! Strict parsing of the `Host` and `Origin` headers.
//!
//! Accepts only what a browser sends: one header with a name or an address in canonical
//! form, and optionally a port. A lenient parser could find another host in the text than
//! the client connected to.

use http::header::{AsHeaderName, HOST, ORIGIN};
use http::{HeaderMap, HeaderValue};
use url::Host;

/// A host and an optional port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Authority {
    pub(crate) host: Host<String>,
    pub(crate) port: Option<u16>,
}

/// The scheme of an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OriginScheme {
    Http,
    Https,
}

/// A header that is not exactly one valid value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidHeader;

impl Authority {
    /// The address in the `Host` header.
    pub(crate) fn of_host(headers: &HeaderMap) -> Result<Self, InvalidHeader> {
        only(headers, HOST)?.and_then(Self::parse).ok_or(InvalidHeader)
    }

    /// The scheme and address in the `Origin` header; `None` without the header.
    pub(crate) fn of_origin(headers: &HeaderMap) -> Result<Option<(OriginScheme, Self)>, InvalidHeader> {
        let Some(origin) = only(headers, ORIGIN)? else { return Ok(None) };
        let (scheme, rest) = match origin.split_once("://") {
            Some(("http", rest)) => (OriginScheme::Http, rest),
            Some(("https", rest)) => (OriginScheme::Https, rest),
            Some(_) | None => return Err(InvalidHeader),
        };
        Self::parse(rest).map(|authority| Some((scheme, authority))).ok_or(InvalidHeader)
    }

    fn parse(text: &str) -> Option<Self> {
        // The last colon, unless it is inside of the brackets of an IPv6 address.
        let (name, port) = match text.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
            Some(_) | None => (text, None),
        };
        let port = match port {
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => Some(digits.parse().ok()?),
            Some(_) => return None,
            None => None,
        };
        let host = Host::parse(name).ok()?;
        host.to_string().eq_ignore_ascii_case(name).then_some(Self { host, port })
    }

    /// Whether the host is this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        match &self.host {
            Host::Domain(name) => name == "localhost",
            Host::Ipv4(address) => address.is_loopback(),
            Host::Ipv6(address) => address.is_loopback(),
        }
    }
}

/// The only value of a header; `None` without the header.
fn only(headers: &HeaderMap, name: impl AsHeaderName) -> Result<Option<&str>, InvalidHeader> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value_text(value).map(Some),
        (Some(_), Some(_)) => Err(InvalidHeader),
    }
}

fn value_text(value: &HeaderValue) -> Result<&str, InvalidHeader> {
    value.to_str().map_err(|_| InvalidHeader)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_names_and_addresses_in_canonical_form_only() {
        for (text, host, port) in [
            ("127.0.0.1", "127.0.0.1", None),
            ("127.0.0.1:7433", "127.0.0.1", Some(7433)),
            ("LocalHost:1", "localhost", Some(1)),
            ("[::1]", "[::1]", None),
            ("[::1]:65535", "[::1]", Some(65535)),
            ("example.com", "example.com", None),
        ] {
            let parsed = Authority::parse(text).unwrap();
            assert_eq!((parsed.host.to_string().as_str(), parsed.port), (host, port), "{text}");
        }
        for text in [
            "",
            ":80",
            "evil@127.0.0.1",
            "evil:x@127.0.0.1",
            "127.0.0.1:",
            "127.0.0.1:80:80",
            "127.0.0.1:+80",
            "127.0.0.1:65536",
            "127.0.0.1:80 ",
            "127.0.0.1/",
            "127.0.0.1?x",
            "127.0.0.1#x",
            "127.0.0.1\\x",
            "127.0.0.1, evil.example",
            "127.0.0.1%2e",
            "127.1",
            "2130706433",
            "0x7f.0.0.1",
            "::1",
            "[::1",
            "[::1]x",
            "[0:0:0:0:0:0:0:1]",
        ] {
            assert_eq!(Authority::parse(text), None, "{text}");
        }
    }
}
