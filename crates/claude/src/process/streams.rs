//! The loops over a runtime's three standard streams.
//!
//! Owns reading, writing and the bounds on them. Noise on stdout (what is not UTF-8, not JSON, or half a
//! line at the end) is skipped with a warning; a line beyond the cap, or an inbox that overflows, ends the
//! reading with the reason.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::intake::{InboxFull, Intake};
use crate::queue::ByteQueue;
use crate::wire::{Frame, Frames, LineTooLong};

/// The longest line that is taken from a runtime. The longest ever met were transcripts and images of a few
/// megabytes.
const LINE_LIMIT: usize = 64 * 1024 * 1024;

/// How much is read at once, at least.
const READ_CHUNK: usize = 64 * 1024;

/// How much of stderr is kept: enough for an error and its stack, while a crash can print its whole source.
const TAIL_LIMIT: usize = 4 * 1024;

/// After so many lines of noise the rest is only logged for those who look for it.
const NOISE_WARNINGS: u32 = 10;

/// Why reading stdout ended.
#[derive(Debug)]
pub(super) enum ReadEnd {
    /// The stream is at its end.
    Closed,
    /// A line was too long.
    LineTooLong(LineTooLong),
    /// Nobody takes the messages.
    InboxFull,
}

/// Hands every message on stdout to the intake, waiting for nothing but the stream.
pub(super) async fn read_messages(mut stdout: impl AsyncRead + Unpin, intake: &Intake) -> ReadEnd {
    let mut frames = Frames::new(LINE_LIMIT);
    let mut noise = 0;
    loop {
        frames.buffer().reserve(READ_CHUNK);
        match stdout.read_buf(frames.buffer()).await {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, "reading a runtime's output failed");
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
        tracing::warn!(
            bytes = frames.unfinished(),
            "a runtime's output ended within a line, which is skipped"
        );
    }
    ReadEnd::Closed
}

fn take(Frame { line, message }: Frame, intake: &Intake, noise: &mut u32) -> Result<(), InboxFull> {
    match message {
        Ok(message) => intake.take(message, line.len()),
        Err(error) => {
            *noise += 1;
            let start = String::from_utf8_lossy(line.get(..80).unwrap_or(&line)).into_owned();
            if *noise <= NOISE_WARNINGS {
                tracing::warn!(%error, start, "a line of a runtime's output is no message and is skipped");
            } else {
                tracing::debug!(%error, start, "a line of a runtime's output is no message and is skipped");
            }
            Ok(())
        }
    }
}

/// Writes queued lines to stdin until the queue is closed and empty, or the runtime reads no more. Returning
/// closes stdin.
pub(super) async fn write_lines(outgoing: &ByteQueue<Bytes>, mut stdin: impl AsyncWrite + Unpin) {
    while let Some(line) = outgoing.pop().await {
        if let Err(error) = stdin.write_all(&line).await {
            tracing::debug!(%error, "a runtime's input is closed");
            return;
        }
    }
}

/// Reads a stream to its end and keeps the last of it.
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
