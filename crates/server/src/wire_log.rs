//! What clients and host say to each other, as JSON lines in a file.
//!
//! Owns a thread that writes, and a bounded queue before it. A disk that is too
//! slow costs lines of the log and says how many, and never time of a client.
//! The host's token and what clients authenticate with are never written.

use std::fs::{OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use innkeeper_core::clock::{Clock, wire_time};
use innkeeper_core::ids::ConnectionId;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use crate::rpc::Incoming;

/// Lines that may wait for the disk: several seconds of a busy host. When there are
/// more they are counted and left out.
const MAX_LINES: usize = 16_384;

/// Bytes that may wait for the disk, over which lines are left out, too.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// How long the end may wait for the last lines.
const FINISH: Duration = Duration::from_secs(1);

/// Stands for a secret.
const HIDDEN: &str = "(hidden)";

/// Whose frame it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Direction {
    /// From a client.
    In,
    /// To a client.
    Out,
}

/// A log of frames. Cheap to write to.
pub struct WireLog {
    /// Taken away when the log ends.
    lines: Mutex<Option<SyncSender<Line>>>,
    backlog: Arc<Backlog>,
    clock: Arc<dyn Clock>,
    /// Resolves when the thread has written everything.
    finished: Mutex<Option<oneshot::Receiver<()>>>,
}

impl std::fmt::Debug for WireLog {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("WireLog").finish_non_exhaustive()
    }
}

/// What is known about the queue on both sides.
#[derive(Debug, Default)]
struct Backlog {
    bytes: AtomicUsize,
    dropped: AtomicU64,
}

/// A frame and when it passed.
struct Line {
    at: String,
    connection: u64,
    direction: Direction,
    frame: Bytes,
}

impl WireLog {
    /// Appends to a file, which only its user can read. The token, if there is one,
    /// is left out of what is written.
    pub fn open(path: &Path, token: Option<&str>, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        if file.metadata()?.is_file() {
            // It may have been there before, for everybody to read.
            file.set_permissions(Permissions::from_mode(0o600))?;
        }
        Self::start(BufWriter::new(file), token, clock)
    }

    fn start<W: Write + Send + 'static>(
        output: W,
        token: Option<&str>,
        clock: Arc<dyn Clock>,
    ) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(MAX_LINES);
        let (done, finished) = oneshot::channel();
        let backlog = Arc::new(Backlog::default());
        let mut writer = Writer {
            output,
            backlog: Arc::clone(&backlog),
            clock: Arc::clone(&clock),
            token: token.map(str::to_owned),
        };
        std::thread::Builder::new().name("wire-log".to_owned()).spawn(move || {
            if let Err(error) = writer.run(&receiver) {
                tracing::error!(%error, "the wire log cannot be written any more");
            }
            // Nobody may wait for it.
            done.send(()).ok();
        })?;
        Ok(Self { lines: Mutex::new(Some(sender)), backlog, clock, finished: Mutex::new(Some(finished)) })
    }

    /// Writes a frame down, or counts that it was not.
    pub(crate) fn record(&self, connection: ConnectionId, direction: Direction, frame: Bytes) {
        let size = frame.len();
        let waiting = self.backlog.bytes.fetch_add(size, Ordering::Relaxed);
        let line =
            Line { at: wire_time(self.clock.now()), connection: connection.number(), direction, frame };
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let queued =
            waiting + size <= MAX_BYTES && lines.as_ref().is_some_and(|lines| lines.try_send(line).is_ok());
        drop(lines);
        if !queued {
            self.backlog.bytes.fetch_sub(size, Ordering::Relaxed);
            self.backlog.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Writes what waits, for a moment at most. What comes later is not written.
    pub(crate) async fn finish(&self) {
        drop(self.lines.lock().unwrap_or_else(PoisonError::into_inner).take());
        let finished = self.finished.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(finished) = finished
            && tokio::time::timeout(FINISH, finished).await.is_err()
        {
            tracing::warn!("the last lines of the wire log are not written");
        }
    }
}

/// The thread's side.
struct Writer<W> {
    output: W,
    backlog: Arc<Backlog>,
    clock: Arc<dyn Clock>,
    token: Option<String>,
}

impl<W: Write> Writer<W> {
    fn run(&mut self, lines: &Receiver<Line>) -> io::Result<()> {
        loop {
            let line = match lines.try_recv() {
                Ok(line) => line,
                Err(TryRecvError::Disconnected) => break,
                Err(TryRecvError::Empty) => {
                    self.admit_gaps()?;
                    self.output.flush()?;
                    let Ok(line) = lines.recv() else { break };
                    line
                }
            };
            self.backlog.bytes.fetch_sub(line.frame.len(), Ordering::Relaxed);
            self.write(&line)?;
            self.admit_gaps()?;
        }
        self.admit_gaps()?;
        self.output.flush()
    }

    fn write(&mut self, line: &Line) -> io::Result<()> {
        #[derive(Serialize)]
        struct Record<'a, F> {
            at: &'a str,
            connection: u64,
            dir: Direction,
            frame: F,
        }
        let text = self.without_secrets(line.direction, &line.frame);
        let (at, connection, dir) = (line.at.as_str(), line.connection, line.direction);
        let encoded = match serde_json::from_str::<&RawValue>(&text) {
            // A frame may have been sent over several lines.
            Ok(frame) if memchr::memchr2(b'\n', b'\r', text.as_bytes()).is_none() => {
                serde_json::to_string(&Record { at, connection, dir, frame })
            }
            Ok(_) => {
                let frame: Box<RawValue> = RawValue::from_string(text.replace(['\n', '\r'], " "))?;
                serde_json::to_string(&Record { at, connection, dir, frame })
            }
            Err(_) => serde_json::to_string(&Record { at, connection, dir, frame: text.as_str() }),
        };
        writeln!(self.output, "{}", encoded?)
    }

    /// The frame as text, with the secrets taken out.
    fn without_secrets(&self, direction: Direction, frame: &[u8]) -> String {
        let text = String::from_utf8_lossy(frame);
        if direction == Direction::In && may_carry_credential(&text) {
            return format!("{{\"jsonrpc\":\"2.0\",\"method\":\"authenticate\",\"params\":\"{HIDDEN}\"}}");
        }
        match &self.token {
            Some(token) if text.contains(token.as_str()) => text.replace(token.as_str(), HIDDEN),
            _ => text.into_owned(),
        }
    }

    /// Says how many lines are missing here.
    fn admit_gaps(&mut self) -> io::Result<()> {
        let dropped = self.backlog.dropped.swap(0, Ordering::Relaxed);
        if dropped == 0 {
            return Ok(());
        }
        let record = serde_json::json!({"at": wire_time(self.clock.now()), "dropped": dropped});
        writeln!(self.output, "{record}")
    }
}

/// Whether a client's message hands over a credential of a user's, or looks like an
/// attempt to do so: the host does not take what is malformed, but the log would.
fn may_carry_credential(text: &str) -> bool {
    match Incoming::read(text) {
        Ok(message) => message.method.is_some_and(|method| method == "authenticate"),
        // The name may be written with escapes.
        Err(_) => text.contains("authenticate") || text.contains("\\u"),
    }
}

#[cfg(test)]
#[path = "wire_log_tests.rs"]
mod tests;
