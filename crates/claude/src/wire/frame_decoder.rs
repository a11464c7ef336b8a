//! Splits a runtime's output into messages.
//!
//! Owns the steps: split into lines up to a limit, skip blank lines, decode. Does not do I/O and does not
//! handle invalid lines. The frames do not depend on the chunking of the bytes.

use bytes::{Bytes, BytesMut};

use super::message::{DecodeError, Message, decode};
use crate::lines::{LineTooLong, Lines};

/// Collects bytes and returns frames.
#[derive(Debug)]
pub struct FrameDecoder {
    lines: Lines,
}

/// A non-blank line of a runtime's output.
#[derive(Debug)]
pub struct DecodedFrame {
    /// The line without its line end.
    pub line: Bytes,
    /// The decoded message, or an error for an invalid line, after which decoding can continue.
    pub message: Result<Message, DecodeError>,
}

impl FrameDecoder {
    /// Accepts lines of up to `line_limit` bytes.
    pub fn new(line_limit: usize) -> Self {
        Self { lines: Lines::new(line_limit) }
    }

    /// The buffer to append the next bytes to.
    pub fn buffer(&mut self) -> &mut BytesMut {
        self.lines.buffer()
    }

    /// The next complete line; `None` until more bytes arrive. After an error the remaining bytes are
    /// unusable.
    pub fn next_frame(&mut self) -> Result<Option<DecodedFrame>, LineTooLong> {
        while let Some(line) = self.lines.next()? {
            if !line.trim_ascii().is_empty() {
                let message = decode(&line);
                return Ok(Some(DecodedFrame { line, message }));
            }
        }
        Ok(None)
    }

    /// Length of the incomplete line in bytes.
    pub fn unfinished(&self) -> usize {
        self.lines.unfinished()
    }
}
