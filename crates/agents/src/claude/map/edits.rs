//! Compact progress of edits while their input is streamed.
//!
//! Clients see the file and the number of lines, never the file's content. The input is scanned
//! once, as it arrives; the scanner keeps the path and counters only.

use serde_json::{Value, json};

/// Longest path that is kept.
const PATH_LENGTH: usize = 4096;

/// Fewest new lines between two messages.
const STEP: usize = 20;

/// Whether the input of a tool consists mostly of file content.
pub(super) fn is_edit(name: &str) -> bool {
    matches!(name, "Write" | "Edit" | "MultiEdit" | "NotebookEdit")
}

/// Progress of one edit.
#[derive(Debug, Default)]
pub(super) struct EditProgress {
    scanner: InputScanner,
    /// The counts of the last message.
    shown: Option<LineCounts>,
    /// The number of lines at which the next message is due.
    next: usize,
}

/// The lines that an edit adds and removes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LineCounts {
    added: usize,
    removed: usize,
}

impl EditProgress {
    /// Adds a part of the input. Returns whether a message is due: when the file is known, and
    /// then in growing steps, so that a long edit causes few messages.
    pub(super) fn add(&mut self, json: &str) -> bool {
        self.scanner.add(json);
        let total = self.scanner.counts.added + self.scanner.counts.removed;
        if !self.scanner.has_path || (self.shown.is_some() && total < self.next) {
            return false;
        }
        self.next = total + (total / 2).max(STEP);
        self.shown.replace(self.scanner.counts) != Some(self.scanner.counts)
    }

    /// Whether the end of the input changes the message.
    pub(super) fn finish(&mut self) -> bool {
        self.scanner.has_path && self.shown.replace(self.scanner.counts) != Some(self.scanner.counts)
    }

    /// The known part of the input, for the description of the call.
    pub(super) fn input(&self) -> Value {
        json!({ "file_path": self.scanner.path })
    }

    /// The number of lines, as a note after the description.
    pub(super) fn note(&self) -> String {
        let LineCounts { added, removed } = self.scanner.counts;
        match (added, removed) {
            (0, 0) => String::new(),
            (added, 0) => format!(" (+{added})"),
            (added, removed) => format!(" (+{added} -{removed})"),
        }
    }
}

/// Reads JSON in pieces. Invalid JSON yields wrong counts, never an error.
#[derive(Debug, Default)]
struct InputScanner {
    state: ScanState,
    /// The last key or the current one.
    key: String,
    path: String,
    has_path: bool,
    counts: LineCounts,
    /// Whether the next character of the value starts a line.
    at_line_start: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ScanState {
    /// Between strings; a string is a key.
    #[default]
    BeforeKey,
    /// After a colon; a string is a value.
    BeforeValue,
    Key(EscapeState),
    Value(EscapeState),
}

/// The position relative to an escape sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EscapeState {
    Outside,
    /// After a backslash.
    Started,
    /// Inside `\u`, with the digits that are missing and the value so far.
    Unicode(u8, u32),
}

impl InputScanner {
    fn add(&mut self, json: &str) {
        for character in json.chars() {
            self.state = match (self.state, character) {
                (ScanState::BeforeKey, '"') => {
                    self.key.clear();
                    ScanState::Key(EscapeState::Outside)
                }
                (ScanState::BeforeKey, ':') => ScanState::BeforeValue,
                (ScanState::BeforeValue, '"') => {
                    self.begin_value();
                    ScanState::Value(EscapeState::Outside)
                }
                (ScanState::BeforeValue, ',' | '{' | '}' | '[') => ScanState::BeforeKey,
                (ScanState::Key(EscapeState::Outside), '"') => ScanState::BeforeKey,
                (ScanState::Value(EscapeState::Outside), '"') => {
                    self.has_path |= self.is_path();
                    ScanState::BeforeKey
                }
                (ScanState::Key(escape), character) => {
                    let (escape, read) = escape.next(character);
                    self.key.extend(read.filter(|_| self.key.len() < PATH_LENGTH));
                    ScanState::Key(escape)
                }
                (ScanState::Value(escape), character) => {
                    let (escape, read) = escape.next(character);
                    if let Some(read) = read {
                        self.value_character(read);
                    }
                    ScanState::Value(escape)
                }
                (state @ (ScanState::BeforeKey | ScanState::BeforeValue), _) => state,
            };
        }
    }

    fn is_path(&self) -> bool {
        matches!(self.key.as_str(), "file_path" | "notebook_path")
    }

    /// The counter of the current value.
    fn counter(&mut self) -> Option<&mut usize> {
        match self.key.as_str() {
            "content" | "new_string" | "new_source" => Some(&mut self.counts.added),
            "old_string" => Some(&mut self.counts.removed),
            _ => None,
        }
    }

    fn begin_value(&mut self) {
        if self.is_path() && !self.has_path {
            self.path.clear();
        }
        self.at_line_start = true;
    }

    fn value_character(&mut self, character: char) {
        if std::mem::replace(&mut self.at_line_start, character == '\n')
            && let Some(counter) = self.counter()
        {
            *counter += 1;
        }
        if self.is_path() && !self.has_path && self.path.len() < PATH_LENGTH {
            self.path.push(character);
        }
    }
}

impl EscapeState {
    /// The state after a character, and the character that the text contains.
    fn next(self, character: char) -> (Self, Option<char>) {
        match (self, character) {
            (Self::Outside, '\\') => (Self::Started, None),
            (Self::Outside, other) => (Self::Outside, Some(other)),
            (Self::Started, 'n') => (Self::Outside, Some('\n')),
            (Self::Started, 't' | 'r' | 'b' | 'f') => (Self::Outside, Some(' ')),
            (Self::Started, 'u') => (Self::Unicode(4, 0), None),
            (Self::Started, other) => (Self::Outside, Some(other)),
            (Self::Unicode(missing, value), digit) => {
                let value = value * 16 + digit.to_digit(16).unwrap_or(0);
                if missing > 1 {
                    (Self::Unicode(missing - 1, value), None)
                } else {
                    (Self::Outside, Some(char::from_u32(value).unwrap_or(char::REPLACEMENT_CHARACTER)))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanned(input: &Value) -> InputScanner {
        let mut whole = InputScanner::default();
        whole.add(&input.to_string());
        let mut pieces = InputScanner::default();
        for character in input.to_string().chars() {
            pieces.add(&character.to_string());
        }
        assert_eq!((&whole.path, whole.counts), (&pieces.path, pieces.counts));
        whole
    }

    #[test]
    fn path_and_lines_are_found_in_pieces_of_input() {
        let write =
            scanned(&json!({"file_path": "/a \"b\"é.rs", "content": "one\ntwo\n\"file_path\": \"x\""}));
        assert_eq!(
            (write.path.as_str(), write.counts),
            ("/a \"b\"é.rs", LineCounts { added: 3, removed: 0 })
        );
        let edits =
            json!([{"old_string": "a\nb", "new_string": "c"}, {"old_string": "d", "new_string": "e\nf"}]);
        let edit = scanned(&json!({"edits": edits, "file_path": "/m", "replace_all": false}));
        assert_eq!((edit.path.as_str(), edit.counts), ("/m", LineCounts { added: 3, removed: 3 }));
        let mut escaped = InputScanner::default();
        escaped.add(r#"{"file_path":"\u002ftmp\/x\u00e9","content":"a\u000ab"#);
        assert_eq!((escaped.path.as_str(), escaped.counts.added), ("/tmp/xé", 2));
    }

    #[test]
    fn long_edit_is_reported_few_times_and_at_its_end() {
        let mut progress = EditProgress::default();
        let mut due = usize::from(progress.add(r#"{"file_path":"/a","content":""#));
        assert_eq!(due, 1, "the file is known");
        for _ in 0..10_000 {
            due += usize::from(progress.add("line\\n"));
        }
        assert!((5..40).contains(&due), "{due} messages");
        assert!(progress.finish());
        assert!(!progress.finish());
        assert_eq!(progress.note(), " (+10000)");
    }

    #[test]
    fn invalid_input_is_harmless() {
        let mut progress = EditProgress::default();
        for piece in ["}{]:\"\\u12", "zz\\uD800\"", ":::\"file_path\":[1,\"content\":\"\n", "\\"] {
            progress.add(piece);
        }
        assert!(!progress.finish());
    }
}
