//! One connection of the load generator: sends a request, reads the response and counts.
//!
//! It does as little work per read as possible, to leave CPU time to the measured
//! programs.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail, ensure};
use innkeeper_bench::plan::{Plan, StreamPace};
use innkeeper_bench::{events, monotonic_nanos};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::event_splitter::EventSplitter;
use crate::response_parser::ResponseParser;

/// Read buffer size: about a hundred events.
const READ: usize = 16 * 1024;

/// Bytes of an error response that are shown.
const MAX_ERROR_BODY: usize = 500;

/// The address of a server and the bearer token for it.
#[derive(Clone, Debug)]
pub(crate) struct LoadEndpoint {
    pub(crate) address: SocketAddr,
    pub(crate) bearer: String,
}

impl LoadEndpoint {
    /// Formats a request for the response that `plan` describes.
    pub(crate) fn request(&self, plan: Plan) -> Vec<u8> {
        let body = format!(
            r#"{{"model":"claude-sonnet-4-5","max_tokens":4096,"stream":true,"messages":[{{"role":"user","content":"{plan}"}}]}}"#
        );
        format!(
            "POST /v1/messages HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
             anthropic-version: 2023-06-01\r\nContent-Type: application/json\r\n\
             Accept: text/event-stream\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            self.bearer,
            body.len()
        )
        .into_bytes()
    }
}

/// Statistics of a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResponseStats {
    pub(crate) events: u64,
    pub(crate) bytes: u64,
    pub(crate) reads: u64,
    /// Ages of timed events on arrival, in nanoseconds.
    pub(crate) ages: Vec<u64>,
    /// Whether the last event of a complete response arrived.
    pub(crate) finished: bool,
}

impl ResponseStats {
    /// Adds the statistics of another response.
    pub(crate) fn add(&mut self, other: Self) {
        self.events += other.events;
        self.bytes += other.bytes;
        self.reads += other.reads;
        self.ages.extend(other.ages);
        self.finished |= other.finished;
    }
}

/// How closely a response must match what the upstream sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fidelity {
    /// Byte for byte.
    Exact,
    /// Complete, but the proxy may re-encode it.
    Rewritten,
}

/// A connection to a server.
#[derive(Debug)]
pub(crate) struct LoadConnection {
    socket: TcpStream,
    buffer: Vec<u8>,
}

impl LoadConnection {
    pub(crate) async fn open(endpoint: &LoadEndpoint) -> Result<Self> {
        let socket = TcpStream::connect(endpoint.address)
            .await
            .with_context(|| format!("cannot connect to {}", endpoint.address))?;
        socket.set_nodelay(true)?;
        Ok(Self { socket, buffer: vec![0; READ] })
    }

    /// Sends a request and reads the whole response.
    pub(crate) async fn ask(
        &mut self,
        request: &[u8],
        plan: Plan,
        fidelity: Fidelity,
    ) -> Result<ResponseStats> {
        self.send(request).await?;
        let stats = self.read_response(plan).await?;
        ensure!(stats.finished, "a response ended without its last event, after {} events", stats.events);
        if fidelity == Fidelity::Exact {
            ensure!(
                stats.events == u64::from(plan.events) && stats.bytes == events::response_length(plan.events),
                "expected a response of {} events and {} bytes, received {} events and {} bytes",
                plan.events,
                events::response_length(plan.events),
                stats.events,
                stats.bytes
            );
        }
        Ok(stats)
    }

    pub(crate) async fn send(&mut self, request: &[u8]) -> Result<()> {
        self.socket.write_all(request).await.context("cannot send a request")
    }

    /// Reads until the first event has arrived.
    pub(crate) async fn first_event(&mut self) -> Result<()> {
        let (mut response, mut splitter, mut events) =
            (ResponseParser::new(), EventSplitter::default(), 0_u32);
        while events == 0 {
            let bytes = read(&mut self.socket, &mut self.buffer).await?;
            ensure!(!bytes.is_empty(), "the connection closed before the first event");
            response.feed(bytes, |body| splitter.feed(body, |_| events += 1))?;
            ensure!(matches!(response.status(), 0 | 200), "unexpected status {}", response.status());
        }
        Ok(())
    }

    /// Reads until `most` bytes have arrived or the connection closes; returns the number
    /// of bytes.
    pub(crate) async fn read_some(&mut self, most: usize) -> Result<usize> {
        let mut total = 0;
        while total < most {
            let bytes = read(&mut self.socket, &mut self.buffer).await?;
            if bytes.is_empty() {
                break;
            }
            total += bytes.len();
        }
        Ok(total)
    }

    /// Closes the connection with a reset instead of an orderly close.
    pub(crate) fn reset(self) -> Result<()> {
        self.socket.set_zero_linger().context("cannot reset a connection")
    }

    async fn read_response(&mut self, plan: Plan) -> Result<ResponseStats> {
        let timed = matches!(plan.pace, StreamPace::Shared { .. });
        let (mut response, mut splitter, mut stats) =
            (ResponseParser::new(), EventSplitter::default(), ResponseStats::default());
        let mut error_body = Vec::new();
        if timed {
            stats.ages.reserve(usize::try_from(plan.events).unwrap_or(0));
        }
        while !response.is_done() {
            let bytes = read(&mut self.socket, &mut self.buffer).await?;
            if bytes.is_empty() {
                ensure!(response.may_end_here(), "the connection closed after {} events", stats.events);
                break;
            }
            let now = if timed { monotonic_nanos() } else { 0 };
            stats.reads += 1;
            response.feed(bytes, |body| {
                if error_body.len() < MAX_ERROR_BODY {
                    error_body.extend_from_slice(body);
                }
                stats.bytes += u64::try_from(body.len()).unwrap_or(0);
                splitter.feed(body, |event| {
                    stats.events += 1;
                    if timed && let Some(stamp) = events::stamp_of(event) {
                        stats.ages.push(now.saturating_sub(stamp));
                    }
                    stats.finished |= events::is_last(event);
                });
            })?;
        }
        if response.status() != 200 {
            error_body.truncate(MAX_ERROR_BODY);
            bail!("unexpected status {}: {}", response.status(), String::from_utf8_lossy(&error_body));
        }
        Ok(stats)
    }
}

/// Reads the next bytes; empty at the end of the connection.
async fn read<'a>(socket: &mut TcpStream, buffer: &'a mut [u8]) -> Result<&'a [u8]> {
    let count = socket.read(buffer).await.context("cannot read a response")?;
    Ok(buffer.get(..count).unwrap_or_default())
}

/// Sends a `GET` request on a new connection and returns the response body.
pub(crate) async fn get(endpoint: &LoadEndpoint, path: &str) -> Result<Vec<u8>> {
    let mut connection = LoadConnection::open(endpoint).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", endpoint.address);
    connection.send(request.as_bytes()).await?;
    let (mut response, mut body) = (ResponseParser::new(), Vec::new());
    while !response.is_done() {
        let bytes = read(&mut connection.socket, &mut connection.buffer).await?;
        ensure!(!bytes.is_empty(), "the connection closed before the response to GET {path}");
        response.feed(bytes, |piece| body.extend_from_slice(piece))?;
    }
    ensure!(response.status() == 200, "GET {path} returned status {}", response.status());
    Ok(body)
}
