//! Parses an HTTP/1.1 response from a socket: the head, then the body without its chunk
//! framing. Fast rather than complete: it supports the servers that this program starts.
//!
//! Invariant: the result does not depend on how the input is split.

use anyhow::{Context as _, Result, bail};
use memchr::memchr;

/// Maximum size of a head or a chunk line; our servers send less.
const LONGEST_HEAD: usize = 64 * 1024;

/// A response that is being parsed.
#[derive(Debug)]
pub(crate) struct ResponseParser {
    state: ParserState,
    /// The incomplete head or line.
    text: Vec<u8>,
    status: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParserState {
    Head,
    ChunkSize,
    Chunk(u64),
    /// The line break after a chunk.
    ChunkEnd,
    Trailer,
    Length(u64),
    UntilClose,
    Done,
}

impl ResponseParser {
    pub(crate) fn new() -> Self {
        Self { state: ParserState::Head, text: Vec::new(), status: 0 }
    }

    /// The status; 0 until the head is complete.
    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    /// Whether the body is complete.
    pub(crate) fn is_done(&self) -> bool {
        self.state == ParserState::Done
    }

    /// Whether the end of the connection completes the body.
    pub(crate) fn may_end_here(&self) -> bool {
        matches!(self.state, ParserState::UntilClose | ParserState::Done)
    }

    /// Parses more bytes and passes each piece of the body to `body`.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], mut body: impl FnMut(&[u8])) -> Result<()> {
        while !bytes.is_empty() {
            bytes = match self.state {
                ParserState::Head => self.head(bytes)?,
                ParserState::ChunkSize => self.line(bytes, |line| {
                    let size = chunk_size(line)?;
                    Ok(if size == 0 { ParserState::Trailer } else { ParserState::Chunk(size) })
                })?,
                ParserState::Chunk(left) => {
                    self.piece(bytes, left, &mut body, ParserState::ChunkEnd, ParserState::Chunk)
                }
                ParserState::ChunkEnd => self.line(bytes, |_| Ok(ParserState::ChunkSize))?,
                ParserState::Trailer => self.line(bytes, |line| {
                    Ok(if line.is_empty() { ParserState::Done } else { ParserState::Trailer })
                })?,
                ParserState::Length(left) => {
                    self.piece(bytes, left, &mut body, ParserState::Done, ParserState::Length)
                }
                ParserState::UntilClose => {
                    body(bytes);
                    &[]
                }
                ParserState::Done => bail!("unexpected bytes after the end of a response"),
            };
        }
        Ok(())
    }

    /// Passes on the bytes of a piece of known length; returns the remaining bytes.
    fn piece<'a>(
        &mut self,
        bytes: &'a [u8],
        left: u64,
        body: &mut impl FnMut(&[u8]),
        after: ParserState,
        within: impl FnOnce(u64) -> ParserState,
    ) -> &'a [u8] {
        let end = usize::try_from(left).unwrap_or(usize::MAX);
        if let Some((piece, rest)) = bytes.split_at_checked(end) {
            body(piece);
            self.state = after;
            rest
        } else {
            body(bytes);
            self.state = within(left.saturating_sub(u64::try_from(bytes.len()).unwrap_or(u64::MAX)));
            &[]
        }
    }

    /// Reads to the end of a line; returns the remaining bytes.
    fn line<'a>(
        &mut self,
        bytes: &'a [u8],
        next: impl FnOnce(&[u8]) -> Result<ParserState>,
    ) -> Result<&'a [u8]> {
        let Some((line, rest)) = memchr(b'\n', bytes).and_then(|end| bytes.split_at_checked(end + 1)) else {
            self.keep(bytes)?;
            return Ok(&[]);
        };
        self.state = if self.text.is_empty() {
            next(line.trim_ascii())?
        } else {
            self.text.extend_from_slice(line);
            let state = next(self.text.trim_ascii())?;
            self.text.clear();
            state
        };
        Ok(rest)
    }

    fn head<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8]> {
        // The terminator may start in the previous input.
        let from = self.text.len().saturating_sub(3);
        let before = self.text.len();
        self.keep(bytes)?;
        let tail = self.text.get(from..).unwrap_or_default();
        let Some(end) = memchr::memmem::find(tail, b"\r\n\r\n") else { return Ok(&[]) };
        let end = from + end + 4;
        self.text.truncate(end);
        let head = std::str::from_utf8(&self.text).context("response head is not UTF-8")?;
        (self.status, self.state) = parse_head(head)?;
        self.text.clear();
        Ok(bytes.get(end.saturating_sub(before)..).unwrap_or_default())
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<()> {
        self.text.extend_from_slice(bytes);
        if self.text.len() > LONGEST_HEAD {
            bail!("head or line longer than {LONGEST_HEAD} bytes");
        }
        Ok(())
    }
}

fn parse_head(head: &str) -> Result<(u16, ParserState)> {
    let mut lines = head.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let status = first
        .strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.get(..3))
        .and_then(|status| status.parse().ok())
        .with_context(|| format!("invalid HTTP/1.1 status line `{first}`"))?;
    let mut state = ParserState::UntilClose;
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        if name.eq_ignore_ascii_case("transfer-encoding") && value.eq_ignore_ascii_case("chunked") {
            state = ParserState::ChunkSize;
        } else if name.eq_ignore_ascii_case("content-length") {
            let length = value.parse().with_context(|| format!("invalid content-length `{value}`"))?;
            state = if length == 0 { ParserState::Done } else { ParserState::Length(length) };
        }
    }
    Ok((status, state))
}

fn chunk_size(line: &[u8]) -> Result<u64> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    std::str::from_utf8(digits)
        .ok()
        .and_then(|digits| u64::from_str_radix(digits, 16).ok())
        .with_context(|| format!("invalid chunk length `{}`", String::from_utf8_lossy(line)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNKED: &[u8] =
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nb;x=1\r\n, big world\r\n0\r\n\r\n";

    fn read(pieces: &[&[u8]]) -> Result<(u16, String, bool)> {
        let (mut response, mut body) = (ResponseParser::new(), Vec::new());
        for piece in pieces {
            response.feed(piece, |bytes| body.extend_from_slice(bytes))?;
        }
        Ok((response.status(), String::from_utf8(body)?, response.is_done()))
    }

    #[test]
    fn chunked_body_does_not_depend_on_input_split() {
        let whole = (200, "hello, big world".to_owned(), true);
        assert_eq!(read(&[CHUNKED]).unwrap(), whole);
        for size in 1..CHUNKED.len() {
            let pieces: Vec<&[u8]> = CHUNKED.chunks(size).collect();
            assert_eq!(read(&pieces).unwrap(), whole, "pieces of {size}");
        }
    }

    #[test]
    fn body_ends_by_content_length_or_by_close() {
        let length = b"HTTP/1.1 404 Not Found\r\ncontent-length: 3\r\n\r\nabc";
        assert_eq!(read(&[length]).unwrap(), (404, "abc".to_owned(), true));
        let empty = b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(read(&[empty]).unwrap(), (204, String::new(), true));
        let close = b"HTTP/1.1 200 OK\r\n\r\nab";
        assert_eq!(read(&[close, b"c"]).unwrap(), (200, "abc".to_owned(), false));
    }

    #[test]
    fn rejects_invalid_responses() {
        for bytes in [
            b"SSH-2.0-OpenSSH\r\n\r\n".as_slice(),
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab",
        ] {
            assert!(read(&[bytes]).is_err(), "{}", String::from_utf8_lossy(bytes));
        }
        assert!(read(&[&vec![b'x'; LONGEST_HEAD + 1]]).is_err());
    }
}
