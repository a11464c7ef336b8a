//! AHP over stdin and stdout: one JSON-RPC message per line, one client.
//!
//! Implements the framing. The process that started the host is the client, so no token
//! is checked. Only protocol messages are written to stdout.

use std::io;
use std::pin::pin;
use std::sync::Arc;

use axum::extract::ws::Utf8Bytes;
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use innkeeper_core::state::{CloseReason, Frame};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::drive::{FrameWriter, Handshake, Inbound, drive};
use super::progress::{CountedSocket, WriteProgress};
use crate::connection::ServerContext;
use crate::limits::MAX_MESSAGE;

/// Minimum buffer space per read.
const READ: usize = 64 * 1024;

/// Serves the client until it closes stdin.
pub(crate) async fn serve(
    shared: Arc<ServerContext>,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin + Send,
) {
    let incoming = stream::unfold(LineReader::new(input), |mut lines| async {
        lines.next().await.map(|line| (line, lines))
    });
    drive(shared, pin!(incoming), LineWriter::new(output), Handshake::AnyTime).await;
}

/// Splits the input into lines.
struct LineReader<R> {
    input: R,
    buffer: BytesMut,
    /// Bytes of the buffer that were searched and contain no line end.
    scanned: usize,
    /// Whether the rest of an over-long line is being discarded.
    skipping: bool,
    /// Longest accepted line.
    cap: usize,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    fn new(input: R) -> Self {
        Self { input, buffer: BytesMut::new(), scanned: 0, skipping: false, cap: MAX_MESSAGE }
    }

    /// Returns the next line that is not empty, or `None` at the end of the input.
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
                    // The last line may lack a newline.
                    let rest = self.buffer.split().freeze();
                    self.scanned = 0;
                    return self.message(rest);
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::info!(%error, "cannot read stdin");
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
            return Some(Inbound::Unusable("ignored a line longer than 16 MiB"));
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

/// Writes one frame per line.
struct LineWriter<W> {
    output: CountedSocket<W>,
    progress: WriteProgress,
}

impl<W> LineWriter<W> {
    fn new(output: W) -> Self {
        let progress = WriteProgress::default();
        Self { output: CountedSocket::new(output, &progress), progress }
    }
}

impl<W: AsyncWrite + Unpin + Send> FrameWriter for LineWriter<W> {
    type Error = io::Error;

    async fn write(&mut self, frames: Vec<Frame>) -> Result<(), io::Error> {
        let mut batch = Vec::with_capacity(frames.iter().map(|frame| frame.len() + 1).sum());
        for frame in &frames {
            push_line(&mut batch, frame.bytes());
        }
        self.output.write_all(&batch).await?;
        self.output.flush().await
    }

    fn progress(&self) -> WriteProgress {
        self.progress.clone()
    }

    async fn close(&mut self, reason: CloseReason) {
        match reason {
            CloseReason::ClientGone | CloseReason::Shutdown => {}
            // The protocol has no message for these, so they are logged instead.
            CloseReason::TooSlow
            | CloseReason::NoCommonVersion
            | CloseReason::MessageTooLarge
            | CloseReason::ProtocolViolation
            | CloseReason::InvalidText
            | CloseReason::TooMuchGarbage
            | CloseReason::NoHandshake
            | CloseReason::StateLost => {
                tracing::warn!(reason = super::close_message(reason), "stdio connection closed");
            }
        }
    }
}

/// Appends a frame as one line. Another client's action is forwarded unchanged and may
/// contain line breaks; between JSON tokens a space is equivalent.
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
        let mut lines = LineReader { cap, ..LineReader::new(input) };
        let mut seen = Vec::new();
        while let Some(line) = lines.next().await {
            seen.push(match line {
                Inbound::Text(text) => text.as_str().trim().to_owned(),
                Inbound::Unusable(why) => format!("! {why}"),
                Inbound::Control => "! control".to_owned(),
                Inbound::Fatal(reason) => format!("! {reason:?}"),
            });
        }
        seen
    }

    #[tokio::test]
    async fn each_line_is_a_message_and_last_may_lack_newline() {
        assert_eq!(lines(b"one\r\n\n  \ntwo\nthree", 100).await, ["one", "two", "three"]);
        assert_eq!(lines(b"one\n\xff\xfe\ntwo\n", 100).await, ["one", "! the line is not UTF-8", "two"]);
        assert!(lines(b"", 100).await.is_empty());
    }

    #[tokio::test]
    async fn only_over_long_line_is_skipped() {
        let long = format!("one\n{}\ntwo\n{}", "x".repeat(3 * READ), "y".repeat(3 * READ));
        let skipped = "! ignored a line longer than 16 MiB";
        assert_eq!(lines(long.as_bytes(), 10).await, ["one", skipped, "two", skipped]);
        assert_eq!(lines(b"0123456789\n0123456789a\n", 10).await, ["0123456789", skipped]);
    }

    #[test]
    fn frame_with_line_breaks_is_written_as_one_line() {
        let mut batch = Vec::new();
        push_line(&mut batch, b"{\"a\":\r\n 1}");
        push_line(&mut batch, b"{\"b\":\"\\n\"}");
        assert_eq!(batch, b"{\"a\":   1}\n{\"b\":\"\\n\"}\n");
    }
}
