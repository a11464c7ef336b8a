//! Cuts text at character boundaries, by its size in JSON.
//!
//! Sizes count the escapes of a JSON string, because a limit on plain bytes would let
//! control characters exceed it sixfold in a snapshot.

use bytes::Bytes;

/// Largest piece of stored text, in bytes.
pub(super) const PIECE: usize = 1024 * 1024;

/// The size of a text in JSON, without quotes.
pub(super) fn json_size(text: &str) -> usize {
    text.chars().map(char_size).sum()
}

/// The longest start of a text that fits, in JSON.
pub(super) fn head(text: &str, room: usize) -> &str {
    let mut size = 0;
    let end = text.char_indices().find(|(_, char)| {
        size += char_size(*char);
        size > room
    });
    end.and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}

/// The longest end of a text that fits, in JSON.
pub(super) fn tail(text: &str, room: usize) -> &str {
    let mut size = 0;
    let start = text.char_indices().rev().find(|(_, char)| {
        size += char_size(*char);
        size > room
    });
    start.and_then(|(start, char)| text.get(start + char.len_utf8()..)).unwrap_or(text)
}

/// Shortens a text that is not stored anywhere else.
pub(super) fn shorten(text: &mut String, room: usize) {
    let kept = head(text, room).len();
    if kept < text.len() {
        let omitted = text.len() - kept;
        text.truncate(kept);
        text.push_str(&format!("… [{omitted} bytes omitted]"));
    }
}

/// The start and the end of a text, with the number of bytes between them.
pub(super) fn head_and_tail(text: &str, room: usize) -> String {
    let (start, end) = (head(text, room / 4 * 3), tail(text, room / 4));
    let omitted = text.len().saturating_sub(start.len() + end.len());
    format!("{start}\n[… {omitted} bytes omitted …]\n{end}")
}

/// Splits text into pieces at character boundaries, without copying it.
pub(super) fn text_pieces(text: String) -> Vec<Bytes> {
    let ends = std::iter::successors(Some(0), |start| {
        let rest = text.get(*start..).filter(|rest| !rest.is_empty())?;
        Some(start + rest.floor_char_boundary(PIECE))
    });
    let ends: Vec<usize> = ends.collect();
    let body = Bytes::from(text);
    ends.array_windows().map(|[start, end]| body.slice(*start..*end)).collect()
}

/// Splits bytes into pieces of this size, without copying them.
pub(super) fn byte_pieces(bytes: Bytes, size: usize) -> Vec<Bytes> {
    let starts = (0..bytes.len()).step_by(size.max(1));
    starts.map(|start| bytes.slice(start..bytes.len().min(start + size))).collect()
}

/// The size of a character in a JSON string.
fn char_size(char: char) -> usize {
    match char {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..' ' => 6,
        _ => char.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn json_size_is_that_of_the_encoder(text in any::<String>()) {
            prop_assert_eq!(json_size(&text) + 2, serde_json::to_string(&text).unwrap().len());
        }

        #[test]
        fn head_and_tail_are_the_longest_that_fit(text in any::<String>(), room in 0_usize..80) {
            let (start, end) = (head(&text, room), tail(&text, room));
            prop_assert!(text.starts_with(start) && text.ends_with(end));
            prop_assert!(json_size(start) <= room && json_size(end) <= room);
            let next = text.strip_prefix(start).unwrap().chars().next();
            prop_assert!(next.is_none_or(|next| json_size(start) + char_size(next) > room));
            let before = text.strip_suffix(end).unwrap().chars().next_back();
            prop_assert!(before.is_none_or(|before| json_size(end) + char_size(before) > room));
        }
    }

    #[test]
    fn pieces_are_cut_at_character_boundaries() {
        let text = format!("x{}", "ü".repeat(PIECE));
        let pieces = text_pieces(text.clone());
        assert_eq!(pieces.len(), 3);
        assert!(pieces.iter().all(|piece| piece.len() <= PIECE && std::str::from_utf8(piece).is_ok()));
        assert_eq!(pieces.concat(), text.as_bytes());
        assert!(text_pieces(String::new()).is_empty());
        let bytes = Bytes::from_static(&[1, 2, 3, 4, 5]);
        assert_eq!(byte_pieces(bytes, 2), [&[1, 2][..], &[3, 4], &[5]]);
    }

    #[test]
    fn omitted_bytes_are_counted() {
        let mut text = "ab\u{1}cd".to_owned();
        shorten(&mut text, 8);
        assert_eq!(text, "ab\u{1}… [2 bytes omitted]");
        let text = format!("{}{}", "a".repeat(50), "z".repeat(50));
        assert_eq!(head_and_tail(&text, 8), "aaaaaa\n[… 92 bytes omitted …]\nzz");
    }
}
