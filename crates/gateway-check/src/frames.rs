//! Splits bytes into server-sent events, for checking them.
//!
//! Owns the text framing and its limits; does not interpret events. It works
//! byte by byte, so chunk boundaries cannot matter. It shares no code with the
//! gateway's event forwarding, which it is used to check.

/// One framed event.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SseFrame {
    /// The value of the `event:` line.
    pub(super) name: Option<String>,
    /// The `data:` lines, joined.
    pub(super) data: String,
}

/// Why bytes are not a valid event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FrameFault {
    NotUtf8,
    /// A name without data; clients drop such an event.
    NoData {
        name: String,
    },
    TooLarge,
    /// The bytes ended inside an event; clients drop it.
    Unfinished,
}

/// Reads events byte by byte.
#[derive(Debug)]
pub(super) struct FrameReader {
    /// Maximum bytes of one event.
    limit: usize,
    /// The current line.
    line: Vec<u8>,
    /// The fields of the current event.
    name: Option<String>,
    data: Option<String>,
    not_utf8: bool,
    /// Bytes of the current event.
    size: usize,
    /// A line feed now belongs to the preceding line break.
    after_carriage_return: bool,
    /// No line was read yet, so a byte order mark is allowed.
    at_start: bool,
}

impl FrameReader {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            name: None,
            data: None,
            not_utf8: false,
            size: 0,
            after_carriage_return: false,
            at_start: true,
        }
    }

    /// Processes one byte; returns the event that it completes.
    ///
    /// Must not be called again after [`FrameFault::TooLarge`].
    pub(super) fn push(&mut self, byte: u8) -> Option<Result<SseFrame, FrameFault>> {
        if std::mem::take(&mut self.after_carriage_return) && byte == b'\n' {
            return None;
        }
        self.size += 1;
        if self.size > self.limit {
            self.line = Vec::new();
            return Some(Err(FrameFault::TooLarge));
        }
        match byte {
            b'\n' => self.end_line(),
            b'\r' => {
                self.after_carriage_return = true;
                self.end_line()
            }
            other => {
                self.line.push(other);
                None
            }
        }
    }

    /// Checks that the bytes may end here.
    pub(super) fn finish(&self) -> Result<(), FrameFault> {
        let inside = !self.line.is_empty() || self.name.is_some() || self.data.is_some() || self.not_utf8;
        if inside { Err(FrameFault::Unfinished) } else { Ok(()) }
    }

    fn end_line(&mut self) -> Option<Result<SseFrame, FrameFault>> {
        let at_start = std::mem::take(&mut self.at_start);
        if self.line.is_empty() {
            return self.end_event();
        }
        let line = std::mem::take(&mut self.line);
        match str::from_utf8(&line) {
            Ok(text) => {
                let text = if at_start { text.trim_start_matches('\u{feff}') } else { text };
                self.field(text);
            }
            Err(_) => self.not_utf8 = true,
        }
        // The buffer is reused, because most streams have many short lines.
        self.line = line;
        self.line.clear();
        None
    }

    fn field(&mut self, line: &str) {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.name = Some(value.to_owned()),
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            // Comments, ids, retry times and unknown fields.
            _ => {}
        }
    }

    fn end_event(&mut self) -> Option<Result<SseFrame, FrameFault>> {
        self.size = 0;
        let (name, data) = (self.name.take(), self.data.take());
        if std::mem::take(&mut self.not_utf8) {
            return Some(Err(FrameFault::NotUtf8));
        }
        match (name, data) {
            (name, Some(data)) => Some(Ok(SseFrame { name, data })),
            (Some(name), None) => Some(Err(FrameFault::NoData { name })),
            (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(limit: usize, bytes: &[u8]) -> (Vec<Result<SseFrame, FrameFault>>, Result<(), FrameFault>) {
        let mut reader = FrameReader::new(limit);
        let mut frames = Vec::new();
        for byte in bytes {
            frames.extend(reader.push(*byte));
            if frames.last() == Some(&Err(FrameFault::TooLarge)) {
                break;
            }
        }
        (frames, reader.finish())
    }

    fn frame(name: Option<&str>, data: &str) -> Result<SseFrame, FrameFault> {
        Ok(SseFrame { name: name.map(str::to_owned), data: data.to_owned() })
    }

    #[test]
    fn all_line_breaks_end_a_line() {
        for bytes in [
            "event: a\ndata: 1\n\ndata:2\n\n",
            "event: a\rdata: 1\r\rdata:2\r\r",
            "event: a\r\ndata: 1\r\n\r\ndata:2\r\n\r\n",
            "\u{feff}event: a\n: comment\nid: 7\ndata: 1\n\n\n\n: comment\n\ndata:2\n\n",
        ] {
            let expected = vec![frame(Some("a"), "1"), frame(None, "2")];
            assert_eq!(read(1000, bytes.as_bytes()), (expected, Ok(())), "{bytes:?}");
        }
    }

    #[test]
    fn data_lines_join_with_a_line_feed() {
        assert_eq!(read(1000, b"data: a\ndata:  b\ndata\n\n").0, [frame(None, "a\n b\n")]);
    }

    #[test]
    fn rejects_bytes_that_are_not_an_event() {
        assert_eq!(read(1000, b"data: \xff\n\n").0, [Err(FrameFault::NotUtf8)]);
        assert_eq!(read(1000, b"event: a\n\n").0, [Err(FrameFault::NoData { name: "a".into() })]);
        for unfinished in ["data: a\n", "data: a", "event: a\n", "da"] {
            assert_eq!(read(1000, unfinished.as_bytes()).1, Err(FrameFault::Unfinished), "{unfinished:?}");
        }
    }

    #[test]
    fn rejects_event_above_size_limit() {
        let bytes = b"data: abc\n\n";
        assert_eq!(read(bytes.len(), bytes).0, [frame(None, "abc")]);
        assert_eq!(read(bytes.len() - 1, bytes).0, [Err(FrameFault::TooLarge)]);
    }
}
