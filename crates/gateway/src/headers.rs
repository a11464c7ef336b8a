//! Selects the headers that are forwarded, in both directions.
//!
//! Owns the lists. Hop-by-hop headers and credentials of the other side are
//! never forwarded.

use std::time::Duration;

use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH,
    CONTENT_TYPE, EXPECT, HOST, RETRY_AFTER,
};
use http::{HeaderMap, HeaderName, HeaderValue};

/// Header for an Anthropic API key.
pub(crate) const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// When a further request may succeed, in milliseconds.
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

/// Longest accepted `Retry-After`; a longer one is most likely a mistake.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(31 * 86_400);

/// Headers that apply to a single connection.
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Headers of a Copilot response that are forwarded, besides those by prefix.
const RESPONSE_NAMES: [&str; 8] = [
    "content-type",
    "cache-control",
    "retry-after",
    "retry-after-ms",
    "request-id",
    "x-request-id",
    "x-github-request-id",
    "x-should-retry",
];

/// Prefixes of further forwarded response headers.
const RESPONSE_PREFIXES: [&str; 2] = ["anthropic-", "x-ratelimit-"];

/// The request headers for an Anthropic-compatible server.
///
/// Besides hop-by-hop headers this removes the client's credentials and its
/// `Accept-Encoding`, since a compressed stream cannot be parsed.
pub(crate) fn request_end_to_end(headers: &HeaderMap) -> HeaderMap {
    let mut kept = end_to_end(headers);
    for name in [HOST, CONTENT_LENGTH, EXPECT, ACCEPT_ENCODING, AUTHORIZATION, API_KEY] {
        kept.remove(name);
    }
    kept
}

/// The response headers except hop-by-hop headers and those about the body's length and encoding.
pub(crate) fn response_end_to_end(headers: &HeaderMap) -> HeaderMap {
    let mut kept = end_to_end(headers);
    kept.remove(CONTENT_LENGTH);
    kept.remove(CONTENT_ENCODING);
    kept
}

/// The allowed headers of a Copilot response.
pub(crate) fn response_allowed(headers: &HeaderMap) -> HeaderMap {
    keep(headers, |name| {
        RESPONSE_NAMES.contains(&name) || RESPONSE_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    })
}

/// Whether a response is an event stream.
pub(crate) fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let expected = b"text/event-stream";
    kind.get(..expected.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(expected))
}

/// Whether a response is compressed, which was not requested.
pub(crate) fn is_encoded(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_ENCODING).is_some_and(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// When a further request may succeed. The form with a date is not used by model services.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: HeaderName| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let seconds = number(RETRY_AFTER_MS).map(|milliseconds| milliseconds / 1000.0);
    let wait = Duration::try_from_secs_f64(seconds.or_else(|| number(RETRY_AFTER))?).ok()?;
    (wait <= MAX_RETRY_AFTER).then_some(wait)
}

/// Prevents caches from buffering a stream.
pub(crate) fn mark_stream(headers: &mut HeaderMap) {
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache"));
}

/// Sets the content type to JSON.
pub(crate) fn mark_json(headers: &mut HeaderMap) {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
}

fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let named: Vec<String> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    keep(headers, |name| !HOP_BY_HOP.contains(&name) && !named.iter().any(|other| other == name))
}

fn keep(headers: &HeaderMap, wanted: impl Fn(&str) -> bool) -> HeaderMap {
    let mut kept = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers.iter().filter(|(name, _)| wanted(name.as_str())) {
        kept.append(name.clone(), value.clone());
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        list.iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn retry_after_is_read_in_seconds_and_milliseconds() {
        let wait = |list: &[(&'static str, &'static str)]| retry_after(&headers(list));
        assert_eq!(wait(&[("retry-after", "42")]), Some(Duration::from_secs(42)));
        assert_eq!(
            wait(&[("retry-after", "2"), ("retry-after-ms", "1500")]),
            Some(Duration::from_millis(1500))
        );
        for value in ["", "-1", "NaN", "inf", "1e12", "Wed, 21 Oct 2026 07:28:00 GMT"] {
            assert_eq!(wait(&[("retry-after", value)]), None, "{value}");
        }
        assert_eq!(wait(&[]), None);
    }

    #[test]
    fn request_headers_exclude_hop_by_hop_headers_and_client_credentials() {
        let came = headers(&[
            ("host", "127.0.0.1:1"),
            ("connection", "keep-alive, X-Private"),
            ("x-private", "1"),
            ("te", "trailers"),
            ("authorization", "Bearer nonce.session"),
            ("x-api-key", "the client's"),
            ("accept-encoding", "gzip"),
            ("content-length", "3"),
            ("anthropic-beta", "a,b"),
            ("x-stainless-os", "Linux"),
        ]);
        let expected = headers(&[("anthropic-beta", "a,b"), ("x-stainless-os", "Linux")]);
        assert_eq!(request_end_to_end(&came), expected);
    }

    #[test]
    fn copilot_response_keeps_retry_and_rate_limit_headers() {
        let came = headers(&[
            ("content-type", "application/json"),
            ("retry-after", "3"),
            ("request-id", "r"),
            ("anthropic-ratelimit-requests-remaining", "0"),
            ("set-cookie", "x"),
            ("server", "y"),
            ("transfer-encoding", "chunked"),
        ]);
        let kept = response_allowed(&came);
        let expected = headers(&[
            ("content-type", "application/json"),
            ("retry-after", "3"),
            ("request-id", "r"),
            ("anthropic-ratelimit-requests-remaining", "0"),
        ]);
        assert_eq!(kept, expected);
    }

    #[test]
    fn event_stream_is_recognised_by_content_type() {
        assert!(is_event_stream(&headers(&[("content-type", "Text/Event-Stream; charset=utf-8")])));
        assert!(!is_event_stream(&headers(&[("content-type", "application/json")])));
        assert!(!is_event_stream(&HeaderMap::new()));
        assert!(is_encoded(&headers(&[("content-encoding", "gzip")])));
        assert!(!is_encoded(&headers(&[("content-encoding", "identity")])));
    }
}
