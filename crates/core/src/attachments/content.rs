//! Decides what is stored of a resource that was read.

use ahp_types::state::MessageResourceAttachment;
use bytes::Bytes;

use super::{is_picture_type, path_in, selected};
use crate::media;
use crate::output::StoredOutput;

/// Largest snapshot in bytes. Models do not accept larger images.
pub(super) const MAX_SNAPSHOT: usize = 5 * 1024 * 1024;

/// Longest text in bytes that is put into a message: a third of the context of current models.
const MAX_TEXT: usize = 256 * 1024;

const PDF: &str = "application/pdf";

/// Makes the snapshot of a resource. The error says why the model cannot get it.
pub(super) fn snapshot(
    attachment: &MessageResourceAttachment,
    bytes: Bytes,
    reported_type: Option<&str>,
) -> Result<StoredOutput, String> {
    check_size(bytes.len())?;
    let declared = reported_type.or(attachment.content_type.as_deref());
    let named = || media::type_of(path_in(&attachment.uri).as_ref());
    let content_type = type_in(&bytes).or(declared).or_else(named);
    let content_type = match content_type {
        Some(shown) if is_picture_type(shown) || shown == PDF => shown.to_owned(),
        other => {
            let text = std::str::from_utf8(&bytes).ok().filter(|text| !text.contains('\0'));
            let text = text.ok_or("it is neither text nor an image nor a PDF document")?;
            check_text(attachment, text)?;
            other.filter(|other| other.starts_with("text/")).unwrap_or("text/plain").to_owned()
        }
    };
    Ok(StoredOutput { content_type, body: bytes })
}

/// Rejects content that is larger than a snapshot.
pub(super) fn check_size(bytes: usize) -> Result<(), String> {
    if bytes > MAX_SNAPSHOT {
        return Err(too_large(bytes, "", MAX_SNAPSHOT));
    }
    Ok(())
}

fn check_text(attachment: &MessageResourceAttachment, text: &str) -> Result<(), String> {
    let length = selected(text, attachment.selection.as_ref()).len();
    if length > MAX_TEXT {
        return Err(format!("{}; select a part of it", too_large(length, " of text", MAX_TEXT)));
    }
    Ok(())
}

fn too_large(bytes: usize, unit: &str, limit: usize) -> String {
    const MEGABYTE: usize = 1024 * 1024;
    let shown = |bytes: usize| match bytes {
        MEGABYTE.. => format!("{}.{} MB", bytes / MEGABYTE, bytes % MEGABYTE * 10 / MEGABYTE),
        _ => format!("{} KB", bytes / 1024),
    };
    format!("it has {}{unit}, and the limit is {}", shown(bytes), shown(limit))
}

/// The media type that the content itself names.
fn type_in(bytes: &[u8]) -> Option<&'static str> {
    let starts: [(&[u8], &str); 5] = [
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff", "image/jpeg"),
        (b"GIF87a", "image/gif"),
        (b"GIF89a", "image/gif"),
        (b"%PDF-", PDF),
    ];
    let is_webp = bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP");
    let named = starts.iter().find(|(start, _)| bytes.starts_with(start)).map(|(_, named)| *named);
    named.or(is_webp.then_some("image/webp"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn attachment(uri: &str, content_type: Option<&str>, lines: Option<i64>) -> MessageResourceAttachment {
        let mut attachment = json!({"label": "it", "uri": uri});
        if let Some(content_type) = content_type {
            attachment["contentType"] = json!(content_type);
        }
        if let Some(lines) = lines {
            let range =
                json!({"start": {"line": 0, "character": 0}, "end": {"line": lines - 1, "character": 0}});
            attachment["selection"] = json!({ "range": range });
        }
        serde_json::from_value::<Value>(attachment).map(|it| serde_json::from_value(it).unwrap()).unwrap()
    }

    #[test]
    fn type_of_snapshot_is_found_in_content_then_declaration_then_name() {
        /// URI, declared and reported type, content, and the expected type.
        type Case = (&'static str, Option<&'static str>, Option<&'static str>, &'static [u8], &'static str);
        let cases: [Case; 10] = [
            ("x:/a", None, None, b"hello", "text/plain"),
            ("x:/a.rs", None, None, b"hello", "text/x-rust"),
            ("x:/a.rs", Some("text/markdown"), None, b"hello", "text/markdown"),
            ("x:/a.rs", Some("text/markdown"), Some("text/html"), b"hello", "text/html"),
            ("x:/a.json", None, None, b"{}", "text/plain"),
            ("x:/a.svg", None, None, b"<svg/>", "text/plain"),
            ("x:/a.txt", None, None, b"\x89PNG\r\n\x1a\n", "image/png"),
            ("x:/a", None, None, b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
            ("x:/a", None, None, b"%PDF-1.7 \xff", "application/pdf"),
            // Rejected later, with the reason.
            ("x:/a.png", None, None, b"hello", "image/png"),
        ];
        for (uri, declared, reported, bytes, expected) in cases {
            let stored = snapshot(&attachment(uri, declared, None), bytes.into(), reported).unwrap();
            assert_eq!(stored.content_type, expected, "{uri} {declared:?} {reported:?}");
            assert_eq!(stored.body, bytes);
        }
    }

    #[test]
    fn content_that_the_model_cannot_get_is_rejected_with_the_cause() {
        let line = format!("{}\n", "x".repeat(1023));
        let long = line.repeat(257);
        for (bytes, lines, expected) in [
            (&b"a\0b"[..], None, "it is neither text nor an image nor a PDF document"),
            (b"\xff\xfe", None, "it is neither text nor an image nor a PDF document"),
            (&vec![b'x'; MAX_SNAPSHOT + 1], None, "it has 5.0 MB, and the limit is 5.0 MB"),
            (long.as_bytes(), None, "it has 257 KB of text, and the limit is 256 KB; select a part of it"),
            (
                long.as_bytes(),
                Some(257),
                "it has 257 KB of text, and the limit is 256 KB; select a part of it",
            ),
        ] {
            let found = snapshot(&attachment("x:/a", None, lines), bytes.to_vec().into(), None);
            assert_eq!(found.unwrap_err(), expected);
        }
        let part = snapshot(&attachment("x:/a", None, Some(256)), long.clone().into(), None).unwrap();
        assert_eq!(part.body.len(), long.len(), "positions in the snapshot would differ");
        assert_eq!(check_size(50 * 1024 * 1024).unwrap_err(), "it has 50.0 MB, and the limit is 5.0 MB");
    }
}
