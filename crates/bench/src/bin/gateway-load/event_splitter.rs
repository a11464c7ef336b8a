//! Splits a stream into server-sent events.
//!
//! Invariant: the result does not depend on how the input is split. An event within one
//! piece of input is not copied.

/// The state of the splitter.
#[derive(Debug, Default)]
pub(crate) struct EventSplitter {
    /// The start of an incomplete event.
    begun: Vec<u8>,
    /// Whether the incomplete line has content.
    line_has_text: bool,
}

impl EventSplitter {
    /// Parses more bytes and passes each complete event to `each`.
    pub(crate) fn feed(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) {
        let (mut event, mut line) = (0, 0);
        for end in memchr::memchr_iter(b'\n', bytes) {
            let text = bytes.get(line..end).unwrap_or_default();
            let is_blank = !self.line_has_text && matches!(text, [] | [b'\r']);
            line = end + 1;
            self.line_has_text = false;
            if is_blank {
                let piece = bytes.get(event..line).unwrap_or_default();
                event = line;
                if self.begun.is_empty() {
                    each(piece);
                } else {
                    self.begun.extend_from_slice(piece);
                    each(&self.begun);
                    self.begun.clear();
                }
            }
        }
        let rest = bytes.get(line..).unwrap_or_default();
        self.line_has_text |= rest.iter().any(|byte| *byte != b'\r');
        self.begun.extend_from_slice(bytes.get(event..).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_do_not_depend_on_input_split() {
        let stream = "event: a\ndata: 1\n\ndata: 2\r\n\r\ndata: 3\n\ndata: unfinished\n";
        for size in 1..=stream.len() {
            let (mut splitter, mut events) = (EventSplitter::default(), Vec::new());
            for piece in stream.as_bytes().chunks(size) {
                splitter.feed(piece, |event| events.push(String::from_utf8(event.to_vec()).unwrap()));
            }
            assert_eq!(
                events,
                ["event: a\ndata: 1\n\n", "data: 2\r\n\r\n", "data: 3\n\n"],
                "pieces of {size}"
            );
        }
    }
}
