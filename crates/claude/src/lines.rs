//! Splits a byte stream into lines.
//!
//! Owns the bytes of the incomplete line and the limit on its length. Does not read or decode. The lines
//! do not depend on the chunking of the stream.

use bytes::{Bytes, BytesMut};
use thiserror::Error;

/// A line exceeds the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a line of the runtime's output exceeds {limit} bytes")]
pub struct LineTooLong {
    /// The limit in bytes.
    pub limit: usize,
}

/// Collects chunks and returns lines.
#[derive(Debug)]
pub(crate) struct Lines {
    /// Received bytes that were not returned yet.
    buffer: BytesMut,
    /// Length of the prefix of `buffer` without a line end; prevents searching bytes twice.
    searched: usize,
    /// Longest accepted line, without its line end.
    limit: usize,
}

impl Lines {
    pub(crate) fn new(limit: usize) -> Self {
        Self { buffer: BytesMut::new(), searched: 0, limit }
    }

    /// The buffer to append the next chunk to.
    pub(crate) fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// The next complete line, without its line end.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, LineTooLong> {
        let fresh = self.buffer.get(self.searched..).unwrap_or_default();
        match memchr::memchr(b'\n', fresh).map(|at| self.searched + at) {
            Some(end) if end > self.limit => Err(LineTooLong { limit: self.limit }),
            Some(end) => {
                let mut line = self.buffer.split_to(end + 1);
                line.truncate(end);
                self.searched = 0;
                Ok(Some(line.freeze()))
            }
            None if self.buffer.len() > self.limit => Err(LineTooLong { limit: self.limit }),
            None => {
                self.searched = self.buffer.len();
                Ok(None)
            }
        }
    }

    /// Length of the incomplete line in bytes.
    pub(crate) fn unfinished(&self) -> usize {
        self.buffer.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines_of(chunks: &[&[u8]], limit: usize) -> Result<Vec<Bytes>, LineTooLong> {
        let mut lines = Lines::new(limit);
        let mut out = Vec::new();
        for chunk in chunks {
            lines.buffer().extend_from_slice(chunk);
            while let Some(line) = lines.next()? {
                out.push(line);
            }
        }
        Ok(out)
    }

    #[test]
    fn rejects_line_above_limit_before_its_end_arrives() {
        assert_eq!(lines_of(&[b"abc\n"], 3), Ok(vec![Bytes::from_static(b"abc")]));
        assert_eq!(lines_of(&[b"abcd"], 3), Err(LineTooLong { limit: 3 }));
        assert_eq!(lines_of(&[b"abcd\n"], 3), Err(LineTooLong { limit: 3 }));
    }

    #[test]
    fn incomplete_line_is_not_returned() {
        let mut lines = Lines::new(100);
        lines.buffer().extend_from_slice(b"one\ntwo");
        assert_eq!(lines.next(), Ok(Some(Bytes::from_static(b"one"))));
        assert_eq!(lines.next(), Ok(None));
        assert_eq!(lines.unfinished(), 3);
    }

    proptest! {
        #[test]
        fn chunking_does_not_change_the_lines(
            text in "[a-z\n]{0,200}",
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        ) {
            let bytes = text.as_bytes();
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            at.extend([0, bytes.len()]);
            at.sort_unstable();
            let chunks: Vec<&[u8]> = at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(lines_of(&chunks, 300), lines_of(&[bytes], 300));
        }
    }
}
