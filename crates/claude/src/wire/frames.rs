//! A runtime's output as it arrives, taken apart into messages.
//!
//! Owns the order of the steps: cut into lines below a cap, leave out blank ones, decode. Does not read, and does
//! not decide what becomes of noise. How the bytes were chunked never shows in the frames.

use bytes::{Bytes, BytesMut};

use super::message::{DecodeError, Message, decode};
use crate::lines::{LineTooLong, Lines};

/// Collects bytes and gives frames.
#[derive(Debug)]
pub struct Frames {
    lines: Lines,
}

/// One line of a runtime's output that is not blank.
#[derive(Debug)]
pub struct Frame {
    /// The line without its end.
    pub line: Bytes,
    /// What it says; an error if it is noise, which is no reason to stop.
    pub message: Result<Message, DecodeError>,
}

impl Frames {
    /// Takes lines of at most `line_limit` bytes.
    pub fn new(line_limit: usize) -> Self {
        Self { lines: Lines::new(line_limit) }
    }

    /// Where the next bytes are to be appended.
    pub fn buffer(&mut self) -> &mut BytesMut {
        self.lines.buffer()
    }

    /// The next whole line; nothing until more bytes came. After a line that is too long the rest means nothing.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, LineTooLong> {
        while let Some(line) = self.lines.next()? {
            if !line.trim_ascii().is_empty() {
                let message = decode(&line);
                return Ok(Some(Frame { line, message }));
            }
        }
        Ok(None)
    }

    /// How many bytes of an unfinished line there are.
    pub fn unfinished(&self) -> usize {
        self.lines.unfinished()
    }
}
