//! Reads and writes a runtime's standard streams.
//!
//! Owns the I/O loops and their limits. Invalid stdout lines (not UTF-8, not JSON, or incomplete at the
//! end) are skipped with a warning. A line above the limit or a full inbox stops reading.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::intake::{InboxFull, Intake};
use crate::queue::ByteQueue;
use crate::wire::{DecodedFrame, FrameDecoder, LineTooLong};

/// Longest accepted line of a runtime. The longest known lines are transcripts and images of a few
/// megabytes.
const LINE_LIMIT: usize = 64 * 1024 * 1024;

/// Minimum read size.
const READ_CHUNK: usize = 64 * 1024;

/// Bytes of stderr to keep: enough for an error with its stack; a crash may print a whole source file.
const TAIL_LIMIT: usize = 4 * 1024;

/// Number of invalid lines logged as warnings; later ones are logged at debug level.
const NOISE_WARNINGS: u32 = 10;

/// Why reading stdout stopped.
#[derive(Debug)]
pub(super) enum ReadEnd {
    /// End of the stream.
    Closed,
    /// A line exceeded the limit.
    LineTooLong(LineTooLong),
    /// The inbox is full.
    InboxFull,
}

/// Passes every message on stdout to the intake; waits only for the stream.
pub(super) async fn read_messages(mut stdout: impl AsyncRead + Unpin, intake: &Intake) -> ReadEnd {
    let mut frames = FrameDecoder::new(LINE_LIMIT);
    let mut noise = 0;
    loop {
        frames.buffer().reserve(READ_CHUNK);
        match stdout.read_buf(frames.buffer()).await {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot read the runtime's output");
                break;
            }
        }
        loop {
            match frames.next_frame() {
                Ok(None) => break,
                Ok(Some(frame)) => {
                    if take(frame, intake, &mut noise).is_err() {
                        return ReadEnd::InboxFull;
                    }
                }
                Err(error) => return ReadEnd::LineTooLong(error),
            }
        }
    }
    if frames.unfinished() > 0 {
        let rest = frames.buffer();
        intake.noise(&String::from_utf8_lossy(rest.get(..80).unwrap_or(rest)));
        tracing::warn!(
            bytes = frames.unfinished(),
            "ignoring incomplete line at the end of the runtime's output"
        );
    }
    ReadEnd::Closed
}

fn take(
    DecodedFrame { line, message }: DecodedFrame,
    intake: &Intake,
    noise: &mut u32,
) -> Result<(), InboxFull> {
    match message {
        Ok(message) => intake.take(message, line.len()),
        Err(error) => {
            *noise += 1;
            let start = String::from_utf8_lossy(line.get(..80).unwrap_or(&line)).into_owned();
            intake.noise(&start);
            if *noise <= NOISE_WARNINGS {
                tracing::warn!(%error, start, "ignoring unparsable line from the runtime");
            } else {
                tracing::debug!(%error, start, "ignoring unparsable line from the runtime");
            }
            Ok(())
        }
    }
}

/// Writes queued lines to stdin until the queue is closed and empty, or writing fails. Returning closes
/// stdin.
pub(super) async fn write_lines(outgoing: &ByteQueue<Bytes>, mut stdin: impl AsyncWrite + Unpin) {
    while let Some(line) = outgoing.pop().await {
        if let Err(error) = stdin.write_all(&line).await {
            tracing::debug!(%error, "cannot write to the runtime's stdin");
            return;
        }
    }
}

/// Reads a stream to its end and keeps its last bytes.
pub(super) async fn read_tail(mut stream: impl AsyncRead + Unpin, tail: &Tail) {
    let mut chunk = vec![0; READ_CHUNK];
    loop {
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return,
            Ok(count) => tail.append(chunk.get(..count).unwrap_or_default()),
        }
    }
}

/// The last bytes of a stream.
#[derive(Debug, Clone, Default)]
pub(super) struct Tail(Arc<Mutex<Vec<u8>>>);

impl Tail {
    fn append(&self, chunk: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(chunk);
        let excess = kept.len().saturating_sub(TAIL_LIMIT);
        kept.drain(..excess);
    }

    pub(super) fn text(&self) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&kept).trim().to_owned()
    }
}

#[cfg(test)]
#[path = "streams_tests.rs"]
mod tests;
