//! Serves the web page from files that were embedded at build time.
//!
//! Sets the page's headers (caching, content security policy). It does not handle sockets, tokens or sessions:
//! the files contain no secrets and are the same for every client. Only paths in the table are served, so a
//! request cannot name any other file.

use axum::body::Body;
use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, Response, StatusCode};

/// One file of the page; `build.rs` generates the table.
#[derive(Debug)]
struct PageFile {
    /// Request path, with a leading slash.
    path: &'static str,
    /// The value of the `content-type` header.
    content_type: &'static str,
    /// Strong validator of the content, with the quotes that the header requires.
    etag: &'static str,
    /// The content.
    body: &'static [u8],
}

static FILES: &[PageFile] = include!(concat!(env!("OUT_DIR"), "/page_files.rs"));

const INDEX: &str = "/index.html";

/// Every file below this path has a content hash in its name.
const HASHED: &str = "/assets/";

const FOR_A_YEAR: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
/// May be cached but must be revalidated, so that a new host serves a new page at once.
const ASK_FIRST: HeaderValue = HeaderValue::from_static("no-cache");

/// Allows scripts and styles from the host only, and nothing inline. `'self'` covers the page's own socket in
/// current browsers; the loopback entries are for browsers that do not treat a `ws:` address as the same origin.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'self'; connect-src 'self' ws://127.0.0.1:* ws://localhost:*; style-src 'self'; \
     img-src 'self' data:; object-src 'none'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
);

/// Responds to a `GET` for a path of the page, given the request's `if-none-match` header.
pub(crate) fn serve(path: &str, if_none_match: Option<&str>) -> Response<Body> {
    respond(FILES, path, if_none_match)
}

fn respond(files: &[PageFile], path: &str, if_none_match: Option<&str>) -> Response<Body> {
    let wanted = if path == "/" { INDEX } else { path };
    let Some(file) = files.iter().find(|file| file.path == wanted) else {
        return not_found();
    };
    let unchanged = if_none_match.is_some_and(|header| names(header, file.etag));
    let body = if unchanged { Body::empty() } else { Body::from(Bytes::from_static(file.body)) };
    let mut response = with_policy(body);
    let headers = response.headers_mut();
    headers.insert(ETAG, HeaderValue::from_static(file.etag));
    headers.insert(CACHE_CONTROL, if wanted.starts_with(HASHED) { FOR_A_YEAR } else { ASK_FIRST });
    if unchanged {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    } else {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(file.content_type));
    }
    response
}

fn not_found() -> Response<Body> {
    let mut response = with_policy(Body::from("Not found. The page is at /\n"));
    *response.status_mut() = StatusCode::NOT_FOUND;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Creates a response with the headers that all page responses have.
fn with_policy(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // The page's address contains the token, which must not be sent to the target of a link.
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

/// Whether an `if-none-match` header matches this validator, with the weak comparison that the header requires.
fn names(header: &str, etag: &str) -> bool {
    header
        .split(',')
        .map(str::trim)
        .any(|each| each == "*" || each.strip_prefix("W/").unwrap_or(each) == etag)
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;
