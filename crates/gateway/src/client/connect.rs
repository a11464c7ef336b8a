//! Establishes connections: TCP, an optional proxy tunnel, TLS.
//!
//! Owns the TLS trust settings, which are loaded from the system once and only
//! when needed. Every connection attempt has a time limit, and a proxy is
//! never used for loopback addresses.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::coalescing::CoalescingSocket;
use super::upstream_connection::{UpstreamConnection, UpstreamStream};
use crate::endpoint::Endpoint;

/// Longest response of a proxy to `CONNECT`; usually a few lines.
const MAX_PROXY_RESPONSE: usize = 8 * 1024;

/// Which proxies are used.
#[derive(Clone)]
pub struct ProxyRules(Arc<Matcher>);

impl ProxyRules {
    /// No proxy at all.
    pub fn none() -> Self {
        Self(Arc::new(Matcher::builder().build()))
    }

    /// Reads `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY` from the environment.
    pub fn of_environment() -> Self {
        Self(Arc::new(Matcher::from_env()))
    }

    /// One proxy for everything except loopback addresses.
    pub fn everything_through(proxy: &Endpoint) -> Self {
        Self(Arc::new(Matcher::builder().all(proxy.to_string()).build()))
    }

    /// The proxy for an endpoint. Plain HTTP connects directly: without a TLS
    /// tunnel the proxy would see the whole request.
    fn proxy_for(&self, endpoint: &Endpoint) -> Option<Intercept> {
        if endpoint.is_loopback() || !endpoint.is_secure() {
            return None;
        }
        self.0.intercept(&endpoint.to_string().parse().ok()?)
    }
}

impl fmt::Debug for ProxyRules {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address of a proxy may contain a password.
        formatter.write_str("ProxyRules")
    }
}

/// Establishes connections.
pub(super) struct Connector {
    limit: Duration,
    proxy: ProxyRules,
    /// Loaded on first use, because reading the system's certificates is slow and may fail.
    tls: OnceLock<Result<TlsConnector, String>>,
}

impl Connector {
    pub(super) fn new(limit: Duration, proxy: ProxyRules) -> Self {
        Self { limit, proxy, tls: OnceLock::new() }
    }

    /// Connects, or returns the reason as text.
    pub(super) async fn connect(&self, endpoint: &Endpoint) -> Result<UpstreamConnection, String> {
        match timeout(self.limit, self.open(endpoint)).await {
            Ok(result) => result,
            Err(_) => Err(format!("timed out after {:?}", self.limit)),
        }
    }

    async fn open(&self, endpoint: &Endpoint) -> Result<UpstreamConnection, String> {
        let socket = match self.proxy.proxy_for(endpoint) {
            Some(proxy) => tunnel(&proxy, endpoint).await?,
            None => dial(endpoint.host(), endpoint.port()).await?,
        };
        let socket = CoalescingSocket::new(socket);
        let stream: Box<dyn UpstreamStream> = if endpoint.is_secure() {
            let name = ServerName::try_from(endpoint.host().to_owned())
                .map_err(|_| format!("invalid server name {} for TLS", endpoint.host()))?;
            let tls = self.tls.get_or_init(trust_of_system).clone()?;
            Box::new(
                tls.connect(name, socket).await.map_err(|error| format!("TLS handshake failed: {error}"))?,
            )
        } else {
            Box::new(socket)
        };
        UpstreamConnection::open(stream).await.map_err(|error| error.to_string())
    }
}

async fn dial(host: &str, port: u16) -> Result<TcpStream, String> {
    let socket = TcpStream::connect((host, port)).await.map_err(|error| error.to_string())?;
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "could not disable Nagle's algorithm on an upstream connection");
    }
    Ok(socket)
}

fn trust_of_system() -> Result<TlsConnector, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(BuilderVerifierExt::with_platform_verifier)
        .map_err(|error| format!("cannot load the system's certificates: {error}"))?;
    let mut config = config.with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Opens a tunnel through a proxy.
async fn tunnel(proxy: &Intercept, endpoint: &Endpoint) -> Result<TcpStream, String> {
    let uri = proxy.uri();
    if uri.scheme_str() != Some("http") {
        return Err("unsupported proxy scheme; set HTTPS_PROXY to an http:// address".to_owned());
    }
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let mut socket = dial(host, uri.port_u16().unwrap_or(80))
        .await
        .map_err(|error| format!("cannot reach the proxy: {error}"))?;
    let target = if endpoint.host().contains(':') {
        format!("[{}]:{}", endpoint.host(), endpoint.port())
    } else {
        format!("{}:{}", endpoint.host(), endpoint.port())
    };
    let mut request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n").into_bytes();
    if let Some(credentials) = proxy.basic_auth() {
        request.extend_from_slice(b"Proxy-Authorization: ");
        request.extend_from_slice(credentials.as_bytes());
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    socket.write_all(&request).await.map_err(|error| format!("cannot write to the proxy: {error}"))?;
    let status = tunnel_status(&mut socket).await?;
    if status.starts_with('2') { Ok(socket) } else { Err(format!("the proxy returned status {status}")) }
}

/// Reads a proxy's response byte by byte, because the bytes after it belong to the tunnel.
async fn tunnel_status(socket: &mut TcpStream) -> Result<String, String> {
    let mut response = Vec::new();
    while !response.ends_with(b"\r\n\r\n") {
        if response.len() >= MAX_PROXY_RESPONSE {
            return Err("the proxy's response is too long".to_owned());
        }
        response
            .push(socket.read_u8().await.map_err(|error| format!("cannot read from the proxy: {error}"))?);
    }
    let text = String::from_utf8_lossy(&response);
    let mut words = text.split(' ');
    let status = words.next().filter(|version| version.starts_with("HTTP/1.")).and_then(|_| words.next());
    status
        .map(|status| status.trim().to_owned())
        .ok_or_else(|| "the proxy sent an invalid HTTP response".to_owned())
}
