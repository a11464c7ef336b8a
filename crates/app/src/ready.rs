//! The ready line: what a client needs to connect.
//!
//! Also decides where to print it: with `--listen stdio`, stdout carries the protocol, so the
//! ready line goes to stdout only as JSON and to stderr otherwise.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ahp_types::version::SUPPORTED_PROTOCOL_VERSIONS;
use innkeeper_server::Listen;
use serde_json::json;

use crate::cli::UpstreamName;

/// Whether TCP connections use TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// `ws` and `http`.
    Plain,
    /// `wss` and `https`.
    Tls,
}

impl Scheme {
    fn socket(self) -> &'static str {
        match self {
            Self::Plain => "ws",
            Self::Tls => "wss",
        }
    }

    fn page(self) -> &'static str {
        match self {
            Self::Plain => "http",
            Self::Tls => "https",
        }
    }
}

/// Connection details for clients.
#[derive(Debug)]
pub(crate) struct ReadyLine {
    pub(crate) places: Vec<Listen>,
    pub(crate) scheme: Scheme,
    pub(crate) token: Option<String>,
    pub(crate) upstream: UpstreamName,
}

impl ReadyLine {
    /// URL of the web page, if the host listens on TCP.
    pub(crate) fn page(&self) -> Option<String> {
        let address = self.places.iter().find_map(|place| match place {
            Listen::Tcp(address) => Some(reachable(*address)),
            Listen::Unix(_) | Listen::Stdio => None,
        })?;
        let scheme = self.scheme.page();
        Some(match &self.token {
            Some(token) => format!("{scheme}://{address}/?tkn={token}"),
            None => format!("{scheme}://{address}/"),
        })
    }

    /// Prints the ready line.
    pub(crate) fn print(&self, json: bool) -> std::io::Result<()> {
        if json {
            return print_to(&mut std::io::stdout().lock(), &format!("{}\n", self.as_json()));
        }
        let text = self.as_text();
        if self.places.contains(&Listen::Stdio) {
            print_to(&mut std::io::stderr().lock(), &text)
        } else {
            print_to(&mut std::io::stdout().lock(), &text)
        }
    }

    fn as_text(&self) -> String {
        let model = match self.upstream {
            UpstreamName::Demo => "demo (built in, offline)",
            UpstreamName::Copilot => "copilot",
            UpstreamName::Anthropic => "anthropic",
        };
        let mut lines = vec![format!("Innkeeper {} is ready.", env!("CARGO_PKG_VERSION"))];
        lines.extend(self.page().map(|page| format!("  page    {page}")));
        lines.extend(self.places.iter().map(|place| match place {
            Listen::Tcp(address) => format!("  socket  {}", self.socket(*address)),
            Listen::Unix(path) => format!("  socket  {}", path.display()),
            Listen::Stdio => "  socket  stdin and stdout, one JSON message per line".to_owned(),
        }));
        lines.push(format!("  model   {model}"));
        lines.push("Press Ctrl-C to stop.\n".to_owned());
        lines.join("\n")
    }

    fn as_json(&self) -> serde_json::Value {
        let endpoint = |place: &Listen| match place {
            Listen::Tcp(address) => json!({"transport": "ws", "url": self.socket(*address)}),
            Listen::Unix(path) => json!({"transport": "unix", "path": path}),
            Listen::Stdio => json!({"transport": "stdio"}),
        };
        json!({
            "event": "ready",
            "pid": std::process::id(),
            "version": env!("CARGO_PKG_VERSION"),
            "protocol": SUPPORTED_PROTOCOL_VERSIONS,
            "endpoints": self.places.iter().map(endpoint).collect::<Vec<_>>(),
            "token": self.token,
            "page": self.page(),
        })
    }

    fn socket(&self, address: SocketAddr) -> String {
        format!("{}://{}/", self.scheme.socket(), reachable(address))
    }
}

/// Replaces an unspecified address by the loopback address, since clients cannot connect to
/// the former.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn print_to(out: &mut dyn Write, text: &str) -> std::io::Result<()> {
    out.write_all(text.as_bytes())?;
    out.flush()
}
