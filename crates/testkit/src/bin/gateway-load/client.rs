//! One connection of the load: sends a request, reads the answer, and keeps count.
//!
//! Owns its socket. It does as little as it can with what it reads, so that it takes
//! little of the processors that are being measured.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail, ensure};
use innkeeper_testkit::bench::plan::{Pace, Plan};
use innkeeper_testkit::bench::{events, monotonic_nanos};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::response::Response;
use crate::scanner::Scanner;

/// What one read takes at most: about a hundred events.
const READ: usize = 16 * 1024;

/// How much of a refusal is shown.
const REFUSAL: usize = 500;

/// Where requests go, and as whom.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    pub(crate) address: SocketAddr,
    pub(crate) bearer: String,
}

impl Door {
    /// A request for an answer, as bytes for the socket.
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

/// What came of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) events: u64,
    pub(crate) bytes: u64,
    pub(crate) reads: u64,
    /// How old each timed event was when it came, in nanoseconds.
    pub(crate) ages: Vec<u64>,
    /// Whether the last event of a whole answer came.
    pub(crate) finished: bool,
}

impl Tally {
    /// Adds what came of another answer.
    pub(crate) fn add(&mut self, other: Self) {
        self.events += other.events;
        self.bytes += other.bytes;
        self.reads += other.reads;
        self.ages.extend(other.ages);
        self.finished |= other.finished;
    }
}

/// How exactly an answer must be what the upstream sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fidelity {
    /// Byte for byte.
    Exact,
    /// All of it, but it may be written anew.
    Rewritten,
}

/// A connection to a server.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(door: &Door) -> Result<Self> {
        let socket = TcpStream::connect(door.address)
            .await
            .with_context(|| format!("cannot connect to {}", door.address))?;
        socket.set_nodelay(true)?;
        Ok(Self { socket, buffer: vec![0; READ] })
    }

    /// Asks for an answer and reads all of it.
    pub(crate) async fn ask(&mut self, request: &[u8], plan: Plan, fidelity: Fidelity) -> Result<Tally> {
        self.send(request).await?;
        let tally = self.read_answer(plan).await?;
        ensure!(tally.finished, "an answer ended without its last event, after {} events", tally.events);
        if fidelity == Fidelity::Exact {
            ensure!(
                tally.events == u64::from(plan.events) && tally.bytes == events::answer_length(plan.events),
                "an answer of {} events and {} bytes came as {} events and {} bytes",
                plan.events,
                events::answer_length(plan.events),
                tally.events,
                tally.bytes
            );
        }
        Ok(tally)
    }

    pub(crate) async fn send(&mut self, request: &[u8]) -> Result<()> {
        self.socket.write_all(request).await.context("cannot send a request")
    }

    /// Reads until the first event has come, and leaves the rest.
    pub(crate) async fn first_event(&mut self) -> Result<()> {
        let (mut response, mut scanner, mut events) = (Response::new(), Scanner::default(), 0_u32);
        while events == 0 {
            let bytes = read(&mut self.socket, &mut self.buffer).await?;
            ensure!(!bytes.is_empty(), "the connection ended before the first event");
            response.feed(bytes, |body| scanner.feed(body, |_| events += 1))?;
            ensure!(matches!(response.status(), 0 | 200), "the status is {}", response.status());
        }
        Ok(())
    }

    /// Reads at most so many bytes of whatever comes, and returns how many came.
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

    /// Ends the connection so that the other side gets a reset instead of an end.
    pub(crate) fn reset(self) -> Result<()> {
        self.socket.set_zero_linger().context("cannot reset a connection")
    }

    async fn read_answer(&mut self, plan: Plan) -> Result<Tally> {
        let timed = matches!(plan.pace, Pace::Shared { .. });
        let (mut response, mut scanner, mut tally) = (Response::new(), Scanner::default(), Tally::default());
        let mut refusal = Vec::new();
        if timed {
            tally.ages.reserve(usize::try_from(plan.events).unwrap_or(0));
        }
        while !response.is_done() {
            let bytes = read(&mut self.socket, &mut self.buffer).await?;
            if bytes.is_empty() {
                ensure!(response.may_end_here(), "the connection ended after {} events", tally.events);
                break;
            }
            let now = if timed { monotonic_nanos() } else { 0 };
            tally.reads += 1;
            response.feed(bytes, |body| {
                if refusal.len() < REFUSAL {
                    refusal.extend_from_slice(body);
                }
                tally.bytes += u64::try_from(body.len()).unwrap_or(0);
                scanner.feed(body, |event| {
                    tally.events += 1;
                    if timed && let Some(stamp) = events::stamp_of(event) {
                        tally.ages.push(now.saturating_sub(stamp));
                    }
                    tally.finished |= events::is_last(event);
                });
            })?;
        }
        if response.status() != 200 {
            refusal.truncate(REFUSAL);
            bail!("the status is {}: {}", response.status(), String::from_utf8_lossy(&refusal));
        }
        Ok(tally)
    }
}

/// The next bytes; none at the end of the connection.
async fn read<'a>(socket: &mut TcpStream, buffer: &'a mut [u8]) -> Result<&'a [u8]> {
    let count = socket.read(buffer).await.context("cannot read an answer")?;
    Ok(buffer.get(..count).unwrap_or_default())
}

/// The body of a small answer to a `GET`, on a connection of its own.
pub(crate) async fn get(door: &Door, path: &str) -> Result<Vec<u8>> {
    let mut connection = Connection::open(door).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", door.address);
    connection.send(request.as_bytes()).await?;
    let (mut response, mut body) = (Response::new(), Vec::new());
    while !response.is_done() {
        let bytes = read(&mut connection.socket, &mut connection.buffer).await?;
        ensure!(!bytes.is_empty(), "the connection ended before the answer to GET {path}");
        response.feed(bytes, |piece| body.extend_from_slice(piece))?;
    }
    ensure!(response.status() == 200, "GET {path} is answered with {}", response.status());
    Ok(body)
}
