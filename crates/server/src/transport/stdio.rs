//! AHP over stdin and stdout: one JSON-RPC message a line, one client.
//!
//! Owns the framing. Whoever started the host is its client, so that there is
//! nobody to admit; and stdout belongs to the protocol alone.

use std::io;
use std::pin::pin;
use std::sync::Arc;

use axum::extract::ws::Utf8Bytes;
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use innkeeper_core::state::{CloseReason, Frame};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::drive::{Handshake, Inbound, Outgoing, drive};
use crate::connection::Shared;
use crate::limits::MAX_MESSAGE;

/// Bytes that are asked for at once.
const READ: usize = 64 * 1024;

/// Serves the one client until it closes its end.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin + Send,
) {
    let incoming =
        stream::unfold(Lines::new(input), |mut lines| async { lines.next().await.map(|line| (line, lines)) });
    drive(shared, pin!(incoming), LineWriter(output), Handshake::AnyTime).await;
}

/// Cuts what comes in into lines.
struct Lines<R> {
    input: R,
    buffer: BytesMut,
    /// How much of the buffer was looked at already, and has no end of a line.
    scanned: usize,
    /// The line became too long: nothing of it is kept up to its end.
    skipping: bool,
    /// What an over-long line may have at most.
    cap: usize,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    fn new(input: R) -> Self {
        Self { input, buffer: BytesMut::new(), scanned: 0, skipping: false, cap: MAX_MESSAGE }
    }

    /// The next line that is not empty; nothing after the last.
    async fn next(&mut self) -> Option<Inbound> {
        loop {
            while let Some(line) = self.take_line() {
                if let Some(message) = self.message(line) {
                    return Some(message);
                }
            }
            if self.buffer.len() > self.cap {
                self.skipping = true;
                self.buffer.clear();
                self.scanned = 0;
            }
            self.buffer.reserve(READ);
            match self.input.read_buf(&mut self.buffer).await {
                Ok(0) => {
                    // A last line may lack its end.
                    let rest = self.buffer.split().freeze();
                    self.scanned = 0;
                    return self.message(rest);
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::info!(%error, "stdin cannot be read any more");
                    return None;
                }
            }
        }
    }

    fn take_line(&mut self) -> Option<Bytes> {
        let end = memchr::memchr(b'\n', self.buffer.get(self.scanned..)?);
        let Some(end) = end.map(|end| self.scanned + end) else {
            self.scanned = self.buffer.len();
            return None;
        };
        self.scanned = 0;
        let mut line = self.buffer.split_to(end + 1);
        line.truncate(end);
        Some(line.freeze())
    }

    fn message(&mut self, line: Bytes) -> Option<Inbound> {
        if std::mem::take(&mut self.skipping) || line.len() > self.cap {
            return Some(Inbound::Unusable("the line is longer than 16 MiB; it was skipped"));
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            return None;
        }
        Some(match Utf8Bytes::try_from(line) {
            Ok(text) => Inbound::Text(text),
            Err(_) => Inbound::Unusable("the line is not UTF-8"),
        })
    }
}

/// Writes a frame a line.
struct LineWriter<W>(W);

impl<W: AsyncWrite + Unpin + Send> Outgoing for LineWriter<W> {
    type Error = io::Error;

    async fn write(&mut self, frames: Vec<Frame>) -> Result<(), io::Error> {
        let mut batch = Vec::with_capacity(frames.iter().map(|frame| frame.len() + 1).sum());
        for frame in &frames {
            push_line(&mut batch, frame.bytes());
        }
        self.0.write_all(&batch).await?;
        self.0.flush().await
    }

    async fn close(&mut self, reason: CloseReason) {
        match reason {
            CloseReason::ClientGone | CloseReason::Shutdown => {}
            // The protocol has no message for it, but the client's log may have it.
            CloseReason::TooSlow
            | CloseReason::NoCommonVersion
            | CloseReason::MessageTooLarge
            | CloseReason::TooMuchGarbage
            | CloseReason::NoHandshake
            | CloseReason::StateLost => {
                tracing::warn!("the connection on stdio ends: {}", super::farewell(reason));
            }
        }
    }
}

/// Adds a frame as one line. An action of another client is passed on as it came,
/// maybe over several lines; between JSON's tokens a space means the same.
fn push_line(batch: &mut Vec<u8>, frame: &[u8]) {
    let start = batch.len();
    batch.extend_from_slice(frame);
    if memchr::memchr2(b'\n', b'\r', frame).is_some() {
        for byte in batch.iter_mut().skip(start) {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
    }
    batch.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(input: &[u8], cap: usize) -> Vec<String> {
        let mut lines = Lines { cap, ..Lines::new(input) };
        let mut seen = Vec::new();
        while let Some(line) = lines.next().await {
            seen.push(match line {
                Inbound::Text(text) => text.as_str().trim().to_owned(),
                Inbound::Unusable(why) => format!("! {why}"),
                Inbound::Nothing => "! nothing".to_owned(),
                Inbound::TooLarge => "! too large".to_owned(),
            });
        }
        seen
    }

    #[tokio::test]
    async fn a_line_is_a_message_and_the_last_may_lack_its_end() {
        assert_eq!(lines(b"one\r\n\n  \ntwo\nthree", 100).await, ["one", "two", "three"]);
        assert_eq!(lines(b"one\n\xff\xfe\ntwo\n", 100).await, ["one", "! the line is not UTF-8", "two"]);
        assert!(lines(b"", 100).await.is_empty());
    }

    #[tokio::test]
    async fn an_over_long_line_is_skipped_alone() {
        let long = format!("one\n{}\ntwo\n{}", "x".repeat(3 * READ), "y".repeat(3 * READ));
        let skipped = "! the line is longer than 16 MiB; it was skipped";
        assert_eq!(lines(long.as_bytes(), 10).await, ["one", skipped, "two", skipped]);
        assert_eq!(lines(b"0123456789\n0123456789a\n", 10).await, ["0123456789", skipped]);
    }

    #[test]
    fn a_frame_is_one_line_whatever_it_was_made_from() {
        let mut batch = Vec::new();
        push_line(&mut batch, b"{\"a\":\r\n 1}");
        push_line(&mut batch, b"{\"b\":\"\\n\"}");
        assert_eq!(batch, b"{\"a\":   1}\n{\"b\":\"\\n\"}\n");
    }
}
