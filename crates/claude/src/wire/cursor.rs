//! A single-pass JSON reader.
//!
//! Owns the position in the text. Every `read` either consumes exactly one value or returns `None` with
//! an unspecified position, so a caller that wants to continue must save the position first. Consumed
//! text is valid JSON: anything that is not simple enough to validate here is validated by `serde_json`.

use std::borrow::Cow;

use serde::de::Deserialize;
use serde_json::value::RawValue;

/// Maximum nesting depth; deeper values are kept as raw JSON. The runtime's messages are a tenth as deep;
/// without a limit a malicious line could exhaust the stack.
const DEPTH_LIMIT: u16 = 64;

/// A position in a JSON text.
#[derive(Debug, Clone)]
pub struct Cursor<'a> {
    text: &'a str,
    at: usize,
    depth: u16,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0, depth: 0 }
    }

    /// The unread text.
    pub(crate) fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Whether only whitespace is left.
    pub(crate) fn is_at_end(&mut self) -> bool {
        self.peek().is_none()
    }

    /// The next byte that is not whitespace.
    fn peek(&mut self) -> Option<u8> {
        loop {
            let byte = *self.text.as_bytes().get(self.at)?;
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// Reads an object; `visit` gets each key and must consume the value. If it returns `None`, reading
    /// stops.
    #[inline]
    pub(crate) fn object(
        &mut self,
        mut visit: impl FnMut(Cow<'a, str>, &mut Self) -> Option<()>,
    ) -> Option<()> {
        self.enter(b'{')?;
        if !self.eat(b'}') {
            loop {
                let key = self.string()?;
                if !self.eat(b':') {
                    return None;
                }
                visit(key, self)?;
                if self.eat(b'}') {
                    break;
                }
                if !self.eat(b',') {
                    return None;
                }
            }
        }
        self.depth -= 1;
        Some(())
    }

    /// Reads the next field of an object without braces.
    pub(crate) fn member(&mut self) -> Option<(Cow<'a, str>, &'a RawValue)> {
        let key = self.string()?;
        let value = if self.eat(b':') { self.raw() } else { None }?;
        self.eat(b',');
        Some((key, value))
    }

    /// Reads a list; `visit` must consume each item. If it returns `None`, reading stops.
    #[inline]
    pub(crate) fn list(&mut self, mut visit: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.enter(b'[')?;
        if !self.eat(b']') {
            loop {
                visit(self)?;
                if self.eat(b']') {
                    break;
                }
                if !self.eat(b',') {
                    return None;
                }
            }
        }
        self.depth -= 1;
        Some(())
    }

    fn enter(&mut self, open: u8) -> Option<()> {
        let entered = self.depth < DEPTH_LIMIT && self.eat(open);
        self.depth += u16::from(entered);
        entered.then_some(())
    }

    /// Reads a value into a field. Does not consume a value of another type.
    #[inline]
    pub(crate) fn field<T: super::fields::Wire>(&mut self, field: &mut Option<T>) -> bool {
        let (at, depth) = (self.at, self.depth);
        *field = T::read(self);
        if field.is_none() {
            (self.at, self.depth) = (at, depth);
        }
        field.is_some()
    }

    /// Reads a string.
    pub(crate) fn string(&mut self) -> Option<Cow<'a, str>> {
        if self.peek() != Some(b'"') {
            return None;
        }
        match self.plain_string() {
            Some(quoted) => {
                let inner = quoted.get(1..quoted.len() - 1);
                inner.map(Cow::Borrowed)
            }
            None => self.through_serde::<String>().map(Cow::Owned),
        }
    }

    /// Reads a string without escapes, including its quotes; does not consume any other.
    #[inline]
    fn plain_string(&mut self) -> Option<&'a str> {
        let start = self.at;
        let inner = self.text.as_bytes().get(start + 1..)?;
        let length = plain_length(inner)?;
        self.at = start + length + 2;
        self.text.get(start..self.at)
    }

    /// Reads a value as raw JSON.
    pub(crate) fn raw(&mut self) -> Option<&'a RawValue> {
        self.through_serde()
    }

    /// Reads the text of a value; faster than [`Cursor::raw`] for short values.
    pub(crate) fn value_text(&mut self) -> Option<&'a str> {
        match self.peek()? {
            b'"' => {
                if let Some(text) = self.plain_string() {
                    return Some(text);
                }
            }
            b'n' | b't' | b'f' => {
                let word =
                    ["null", "true", "false"].into_iter().find(|word| self.rest().starts_with(word))?;
                let text = self.rest().get(..word.len());
                self.at += word.len();
                return text;
            }
            _ => {}
        }
        self.raw().map(RawValue::get)
    }

    /// Reads `true` or `false`.
    pub(crate) fn boolean(&mut self) -> Option<bool> {
        match self.peek()? {
            b't' | b'f' => self.value_text().map(|text| text == "true"),
            _ => None,
        }
    }

    /// Reads a non-negative integer.
    pub(crate) fn unsigned(&mut self) -> Option<u64> {
        let first = self.peek()?;
        let mut number = 0_u64;
        let mut count = 0;
        while let Some(digit) = self.text.as_bytes().get(self.at).filter(|byte| byte.is_ascii_digit()) {
            number = number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
            self.at += 1;
            count += 1;
        }
        let more = self.text.as_bytes().get(self.at).is_some_and(|byte| matches!(byte, b'.' | b'e' | b'E'));
        (count == 1 || (count > 1 && first != b'0')).then_some(number).filter(|_| !more)
    }

    /// Whether the next value is a string.
    pub(crate) fn is_at_string(&mut self) -> bool {
        self.peek() == Some(b'"')
    }

    /// Reads a value with `serde_json`, which supports the complete format.
    pub(crate) fn through_serde<T: Deserialize<'a>>(&mut self) -> Option<T> {
        let mut values = serde_json::Deserializer::from_str(self.rest()).into_iter::<T>();
        let value = values.next()?.ok()?;
        self.at += values.byte_offset();
        Some(value)
    }
}

/// The length of a string before its closing quote, if it contains no escapes or control characters.
/// Checks eight bytes at once; most strings are keys and ids, for which a search routine takes too long
/// to set up.
pub(super) fn plain_length(text: &[u8]) -> Option<usize> {
    const EACH: u64 = u64::from_le_bytes([1; 8]);
    // The high bit of each byte below `limit`; above the first such byte there may be false positives.
    let below = |word: u64, limit: u8| word.wrapping_sub(EACH * u64::from(limit)) & !word & (EACH << 7);
    let (words, rest) = text.as_chunks::<8>();
    let found = words.iter().enumerate().find_map(|(at, word)| {
        let word = u64::from_le_bytes(*word);
        let quote = below(word ^ (EACH * u64::from(b'"')), 1);
        let escape = below(word ^ (EACH * u64::from(b'\\')), 1);
        let special = quote | escape | below(word, 0x20);
        (special != 0).then(|| at * 8 + special.trailing_zeros() as usize / 8)
    });
    let in_rest = || rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20));
    let end = found.or_else(|| in_rest().map(|at| words.len() * 8 + at))?;
    (text.get(end) == Some(&b'"')).then_some(end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value};

    use super::*;

    fn all<T>(text: &str, read: impl Fn(&mut Cursor<'_>) -> Option<T>) -> Option<T> {
        let mut cursor = Cursor::new(text);
        let value = read(&mut cursor)?;
        cursor.is_at_end().then_some(value)
    }

    #[test]
    fn only_non_negative_integers_are_read() {
        let number = |text: &str| all(text, |cursor| cursor.unsigned());
        assert_eq!((number(" 0 "), number("18446744073709551615")), (Some(0), Some(u64::MAX)));
        for text in ["", "-1", "01", "1.0", "1e3", "18446744073709551616", "x", "\"1\""] {
            assert_eq!(number(text), None, "{text}");
        }
    }

    #[test]
    fn strings_are_unescaped_and_control_characters_rejected() {
        let string = |text: &str| all(text, |cursor| cursor.string().map(Cow::into_owned));
        assert_eq!(string(r#" "a\"\u00e4\n" "#).as_deref(), Some("a\"ä\n"));
        assert_eq!(string("\"plain ä\"").as_deref(), Some("plain ä"));
        for text in ["\"", "\"a", "\"a\u{1}b\"", "\"\\x\"", "a", "\"\\"] {
            assert_eq!(string(text), None, "{text}");
        }
    }

    #[test]
    fn finds_end_of_plain_string_of_any_length() {
        for length in 0..40 {
            let text = "aé~\u{7f}".chars().cycle().take(length).collect::<String>();
            assert_eq!(
                plain_length(format!("{text}\"rest, \"more\"").as_bytes()),
                Some(text.len()),
                "{text}"
            );
            assert_eq!(plain_length(text.as_bytes()), None);
            for special in ["\\\"", "\u{1f}", "\n", "\0"] {
                assert_eq!(plain_length(format!("{text}{special}x\"").as_bytes()), None, "{text}{special}");
            }
        }
    }

    #[test]
    fn value_text_accepts_only_valid_json() {
        let value = |text: &str| all(text, |cursor| cursor.value_text().map(str::to_owned));
        for text in ["null", "true", "false", "\"a\"", "1.50e+3", "[1, {\"a\":[]}]", "{\"a\\u0041\":null}"] {
            assert_eq!(value(text).as_deref(), Some(text));
        }
        for text in ["", "nul", "nulll", "tru", "[1,]", "{\"a\"}", "{a:1}", "01", "1.", "\"\u{7}\"", "[1}"] {
            assert_eq!(value(text), None, "{text}");
        }
    }

    #[test]
    fn rejects_nesting_above_the_limit() {
        fn depth(cursor: &mut Cursor<'_>) -> Option<u32> {
            let mut deepest = 0;
            cursor.list(|cursor| {
                deepest = depth(cursor)?;
                Some(())
            })?;
            Some(deepest + 1)
        }
        let nested = |count: usize| format!("{}{}", "[".repeat(count), "]".repeat(count));
        assert_eq!(all(&nested(64), depth), Some(64));
        assert_eq!(all(&nested(65), depth), None);
    }

    /// Messages, near-messages and invalid lines. Keys are unique.
    fn lines() -> impl Strategy<Value = String> {
        let value = prop_oneof![
            "[-0-9.]{1,6}",
            prop::sample::select(vec!["1e5", "1E", "-0", "0.50", "null", "tru", "false"])
                .prop_map(str::to_owned),
            r#""[a-zé\\\\"/u0-9]{0,12}""#,
            Just(r#"{"type":"tool_result","content":[{"type":"text","text":"a"}]}"#.to_owned()),
            r#"[\[\]{}",: 0-9a-z]{0,12}"#,
        ];
        let kinds = prop::sample::select(vec!["user", "assistant", "result", "stream_event", "other"]);
        let keys =
            prop::sample::subsequence(vec!["message", "uuid", "event", "is_error", "k\\u0065y"], 0..=3);
        (kinds, keys, prop::collection::vec(value, 3), "[ }]{0,2}").prop_map(|(kind, keys, values, end)| {
            let fields = keys.iter().zip(values).map(|(key, value)| format!(",\"{key}\":{value}"));
            format!("{{\"type\":\"{kind}\"{}}}{end}", fields.collect::<String>())
        })
    }

    proptest! {
        #[test]
        fn decodes_exactly_json_objects_and_keeps_their_fields(line in lines()) {
            let object = serde_json::from_str::<Map<String, Value>>(&line).ok();
            let message = crate::wire::decode(line.as_bytes()).ok();
            prop_assert_eq!(message.is_some(), object.is_some());
            if let (Some(message), Some(object)) = (message, object) {
                prop_assert_eq!(serde_json::to_value(&message).unwrap(), Value::Object(object));
            }
        }
    }
}
