//! Server-sent events out of bytes, for judging them.
//!
//! Owns the text framing and its limits, and knows nothing of what events
//! mean. It works byte by byte, so where a chunk ends cannot matter. It is
//! independent of the code that forwards events, which it is used to judge.

/// One event as framed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// What the `event:` line says.
    pub(super) name: Option<String>,
    /// The `data:` lines, joined.
    pub(super) data: String,
}

/// Why bytes are not an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FrameFault {
    NotUtf8,
    /// There is a name and nothing else, which clients drop.
    NoData {
        name: String,
    },
    TooLarge,
    /// The bytes ended inside an event, which clients drop.
    Unfinished,
}

/// Reads events.
#[derive(Debug)]
pub(super) struct FrameReader {
    /// Bytes that one event may have.
    limit: usize,
    /// The line so far.
    line: Vec<u8>,
    /// What the event's lines said so far.
    name: Option<String>,
    data: Option<String>,
    not_utf8: bool,
    /// Bytes of the event so far.
    size: usize,
    /// A line feed now belongs to the line break before it.
    after_carriage_return: bool,
    /// No line was read yet, so there may be a byte order mark.
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

    /// Takes one byte; gives the event that it completes.
    ///
    /// After [`FrameFault::TooLarge`] nothing more is to be pushed.
    pub(super) fn push(&mut self, byte: u8) -> Option<Result<Frame, FrameFault>> {
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

    /// Says whether the bytes may end here.
    pub(super) fn finish(&self) -> Result<(), FrameFault> {
        let inside = !self.line.is_empty() || self.name.is_some() || self.data.is_some() || self.not_utf8;
        if inside { Err(FrameFault::Unfinished) } else { Ok(()) }
    }

    fn end_line(&mut self) -> Option<Result<Frame, FrameFault>> {
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
        // The buffer is used again, because most streams are many short lines.
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
            // Comments, ids, retry times and what is yet to be invented.
            _ => {}
        }
    }

    fn end_event(&mut self) -> Option<Result<Frame, FrameFault>> {
        self.size = 0;
        let (name, data) = (self.name.take(), self.data.take());
        if std::mem::take(&mut self.not_utf8) {
            return Some(Err(FrameFault::NotUtf8));
        }
        match (name, data) {
            (name, Some(data)) => Some(Ok(Frame { name, data })),
            (Some(name), None) => Some(Err(FrameFault::NoData { name })),
            (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(limit: usize, bytes: &[u8]) -> (Vec<Result<Frame, FrameFault>>, Result<(), FrameFault>) {
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

    fn frame(name: Option<&str>, data: &str) -> Result<Frame, FrameFault> {
        Ok(Frame { name: name.map(str::to_owned), data: data.to_owned() })
    }

    #[test]
    fn all_three_line_breaks_end_a_line() {
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
    fn what_is_no_event_is_named() {
        assert_eq!(read(1000, b"data: \xff\n\n").0, [Err(FrameFault::NotUtf8)]);
        assert_eq!(read(1000, b"event: a\n\n").0, [Err(FrameFault::NoData { name: "a".into() })]);
        for unfinished in ["data: a\n", "data: a", "event: a\n", "da"] {
            assert_eq!(read(1000, unfinished.as_bytes()).1, Err(FrameFault::Unfinished), "{unfinished:?}");
        }
    }

    #[test]
    fn an_event_may_be_as_large_as_the_limit_and_no_larger() {
        let bytes = b"data: abc\n\n";
        assert_eq!(read(bytes.len(), bytes).0, [frame(None, "abc")]);
        assert_eq!(read(bytes.len() - 1, bytes).0, [Err(FrameFault::TooLarge)]);
    }
}
