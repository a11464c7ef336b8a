//! The text framing of server-sent events.
//!
//! Finds event boundaries and parses fields; does not interpret events. The
//! scanner copies nothing, and its boundaries do not depend on how the bytes
//! are split into chunks.

use std::borrow::Cow;

use bytes::Bytes;
use memchr::memchr2;
use serde::Serialize;

/// Encodes one event: its name, its JSON on a single line, an empty line.
///
/// JSON contains no raw line break, so one `data:` line is always enough.
pub(crate) fn encode(name: &str, data: &impl Serialize) -> Result<Bytes, serde_json::Error> {
    let mut frame = Vec::with_capacity(FRAME_GUESS);
    frame.extend_from_slice(b"event: ");
    frame.extend_from_slice(name.as_bytes());
    frame.extend_from_slice(b"\ndata: ");
    serde_json::to_writer(&mut frame, data)?;
    frame.extend_from_slice(b"\n\n");
    Ok(frame.into())
}

/// Initial capacity: a text delta with its framing is about 130 bytes.
const FRAME_GUESS: usize = 192;

/// Finds the ends of events in a stream that arrives in chunks.
///
/// Lines end with a line feed, a carriage return or both. A carriage return
/// that ends an event may be followed by a line feed that belongs to it, so
/// such an event ends only when the next byte is known.
#[derive(Clone, Debug, Default)]
pub struct EventScanner {
    position: LinePosition,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LinePosition {
    /// At the start of a line.
    #[default]
    LineStart,
    /// Inside a line that is not empty.
    Line,
    /// After a carriage return that ended a non-empty line.
    AfterReturn,
    /// After a carriage return that ended an empty line, and therefore the event.
    AfterLastReturn,
}

impl EventScanner {
    /// Scans to the end of the current event and returns its length in `bytes`,
    /// or scans all bytes and returns `None` if the event does not end here.
    ///
    /// The next call must start with the byte after the end.
    pub fn next_end(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let first = rest.first().copied()?;
            match self.position {
                LinePosition::AfterLastReturn => {
                    self.position = LinePosition::LineStart;
                    return Some(if first == b'\n' { at + 1 } else { at });
                }
                LinePosition::AfterReturn => {
                    self.position = LinePosition::LineStart;
                    at += usize::from(first == b'\n');
                }
                LinePosition::LineStart if first == b'\n' => return Some(at + 1),
                LinePosition::LineStart if first == b'\r' => {
                    self.position = LinePosition::AfterLastReturn;
                    at += 1;
                }
                LinePosition::LineStart | LinePosition::Line => match memchr2(b'\n', b'\r', rest) {
                    Some(end) => {
                        let feed = rest.get(end) == Some(&b'\n');
                        self.position =
                            if feed { LinePosition::LineStart } else { LinePosition::AfterReturn };
                        at += end + 1;
                    }
                    None => {
                        self.position = LinePosition::Line;
                        return None;
                    }
                },
            }
        }
        None
    }

    /// Whether the last event is complete if the stream ends here.
    pub fn ends_event(&self) -> bool {
        self.position == LinePosition::AfterLastReturn
    }
}

/// The parsed fields of one event.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct EventFields<'a> {
    /// The last `event` field.
    pub(crate) name: Option<&'a [u8]>,
    /// The first `data` field.
    first: Option<&'a [u8]>,
    /// Further `data` fields, which are rare.
    more: Vec<&'a [u8]>,
}

impl<'a> EventFields<'a> {
    /// Parses a complete event.
    pub(crate) fn read(event: &'a [u8]) -> Self {
        let mut fields = Self::default();
        // A byte order mark is allowed only at the start of a stream.
        let mut rest = event.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(event);
        while !rest.is_empty() {
            let end = memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
            let (line, after) = rest.split_at_checked(end).unwrap_or((rest, &[]));
            rest = after.get(1..).unwrap_or_default();
            if let Some(value) = value_of(b"event", line) {
                fields.name = Some(value);
            } else if let Some(value) = value_of(b"data", line) {
                if fields.first.is_none() {
                    fields.first = Some(value);
                } else {
                    fields.more.push(value);
                }
            }
        }
        fields
    }

    /// The data, if any; several lines are joined.
    pub(crate) fn data(&self) -> Option<Cow<'a, [u8]>> {
        let first = self.first?;
        if self.more.is_empty() {
            return Some(Cow::Borrowed(first));
        }
        let mut joined = first.to_vec();
        for line in &self.more {
            joined.push(b'\n');
            joined.extend_from_slice(line);
        }
        Some(Cow::Owned(joined))
    }

    /// The `data` lines.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &'a [u8]> {
        self.first.into_iter().chain(self.more.iter().copied())
    }
}

/// The value of a line with this field name, without one space after the colon.
fn value_of<'a>(field: &[u8], line: &'a [u8]) -> Option<&'a [u8]> {
    let rest = line.strip_prefix(field)?;
    if rest.is_empty() {
        return Some(rest);
    }
    let value = rest.strip_prefix(b":")?;
    Some(value.strip_prefix(b" ").unwrap_or(value))
}

#[cfg(test)]
#[path = "sse_tests.rs"]
mod tests;
