//! A log of all frames between clients and host, as JSON lines in a file.
//!
//! A thread writes the file and reads from a bounded queue. If the disk is too slow, frames
//! are dropped from the log and counted; clients are never delayed. The host's token and
//! the credentials that clients send are never written.

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

/// Frames that may be queued for the disk: several seconds of a busy host. Further frames
/// are dropped and counted.
const MAX_LINES: usize = 16_384;

/// Bytes that may be queued for the disk. Further frames are dropped and counted.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// How long shutdown waits for the queue to be written.
const FINISH: Duration = Duration::from_secs(1);

/// Replaces a secret.
const HIDDEN: &str = "(hidden)";

/// Direction of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Direction {
    /// Client to host.
    In,
    /// Host to client.
    Out,
}

/// A log of frames.
pub struct WireLog {
    /// `None` after the log is finished.
    lines: Mutex<Option<SyncSender<LoggedFrame>>>,
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

/// State of the queue, shared with the thread.
#[derive(Debug, Default)]
struct Backlog {
    bytes: AtomicUsize,
    dropped: AtomicU64,
}

/// A queued frame.
struct LoggedFrame {
    at: String,
    connection: u64,
    direction: Direction,
    frame: Bytes,
}

impl WireLog {
    /// Opens a file for appending, readable by its user only. `token` is removed from what
    /// is written.
    pub fn open(path: &Path, token: Option<&str>, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        if file.metadata()?.is_file() {
            // An existing file may have been readable by others.
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
        let mut writer = WireLogWriter {
            output,
            backlog: Arc::clone(&backlog),
            clock: Arc::clone(&clock),
            token: token.map(str::to_owned),
        };
        std::thread::Builder::new().name("wire-log".to_owned()).spawn(move || {
            if let Err(error) = writer.run(&receiver) {
                tracing::error!(%error, "wire log stopped: write failed");
            }
            // The receiver is dropped if the log was never finished.
            done.send(()).ok();
        })?;
        Ok(Self { lines: Mutex::new(Some(sender)), backlog, clock, finished: Mutex::new(Some(finished)) })
    }

    /// Queues a frame, or counts it as dropped.
    pub(crate) fn record(&self, connection: ConnectionId, direction: Direction, frame: Bytes) {
        let size = frame.len();
        let waiting = self.backlog.bytes.fetch_add(size, Ordering::Relaxed);
        let line = LoggedFrame {
            at: wire_time(self.clock.now()),
            connection: connection.number(),
            direction,
            frame,
        };
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let queued =
            waiting + size <= MAX_BYTES && lines.as_ref().is_some_and(|lines| lines.try_send(line).is_ok());
        drop(lines);
        if !queued {
            self.backlog.bytes.fetch_sub(size, Ordering::Relaxed);
            self.backlog.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Writes the queued frames, with a timeout. Later frames are dropped.
    pub(crate) async fn finish(&self) {
        drop(self.lines.lock().unwrap_or_else(PoisonError::into_inner).take());
        let finished = self.finished.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(finished) = finished
            && tokio::time::timeout(FINISH, finished).await.is_err()
        {
            tracing::warn!("wire log timed out; the last frames are not written");
        }
    }
}

/// Writes the queued frames, on its own thread.
struct WireLogWriter<W> {
    output: W,
    backlog: Arc<Backlog>,
    clock: Arc<dyn Clock>,
    token: Option<String>,
}

impl<W: Write> WireLogWriter<W> {
    fn run(&mut self, lines: &Receiver<LoggedFrame>) -> io::Result<()> {
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

    fn write(&mut self, line: &LoggedFrame) -> io::Result<()> {
        #[derive(Serialize)]
        struct WireLogRecord<'a, F> {
            at: &'a str,
            connection: u64,
            dir: Direction,
            frame: F,
        }
        let text = self.without_secrets(line.direction, &line.frame);
        let (at, connection, dir) = (line.at.as_str(), line.connection, line.direction);
        let encoded = match serde_json::from_str::<&RawValue>(&text) {
            // A frame may contain line breaks.
            Ok(frame) if memchr::memchr2(b'\n', b'\r', text.as_bytes()).is_none() => {
                serde_json::to_string(&WireLogRecord { at, connection, dir, frame })
            }
            Ok(_) => {
                let frame: Box<RawValue> = RawValue::from_string(text.replace(['\n', '\r'], " "))?;
                serde_json::to_string(&WireLogRecord { at, connection, dir, frame })
            }
            Err(_) => serde_json::to_string(&WireLogRecord { at, connection, dir, frame: text.as_str() }),
        };
        writeln!(self.output, "{}", encoded?)
    }

    /// Returns the frame as text, without secrets.
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

    /// Writes how many frames were dropped here, if any.
    fn admit_gaps(&mut self) -> io::Result<()> {
        let dropped = self.backlog.dropped.swap(0, Ordering::Relaxed);
        if dropped == 0 {
            return Ok(());
        }
        let record = serde_json::json!({"at": wire_time(self.clock.now()), "dropped": dropped});
        writeln!(self.output, "{record}")
    }
}

/// Whether a client's message contains a user's credential, or seems to. The host rejects
/// malformed messages, but the log would contain them.
fn may_carry_credential(text: &str) -> bool {
    match Incoming::read(text) {
        Ok(message) => message.method.is_some_and(|method| method == "authenticate"),
        // The method name may contain escapes.
        Err(_) => text.contains("authenticate") || text.contains("\\u"),
    }
}

#[cfg(test)]
#[path = "wire_log_tests.rs"]
mod tests;
