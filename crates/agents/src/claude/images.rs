//! Checks the images of a user's message before the runtime receives them.
//!
//! The older runtime exits on an image that is empty or too large, and the newer one silently removes
//! an image that it cannot read, so the model would answer without it. Only headers are read.

use ahp_types::state::{ErrorInfo, Message, MessageAttachment, MessageEmbeddedResourceAttachment};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use innkeeper_core::attachments::{is_picture, problem};

/// Largest image in bytes, a limit of the model services.
const MAX_BYTES: usize = 5 * 1024 * 1024;

/// Whether an attachment is sent as an image.
pub(super) fn is_image(content_type: &str) -> bool {
    matches!(content_type, "image/png" | "image/jpeg" | "image/gif" | "image/webp")
}

/// Rejects a message with an image that could not be read, or that no model service accepts.
pub(super) fn check(message: &Message) -> Result<(), ErrorInfo> {
    for attachment in message.attachments.iter().flatten() {
        match attachment {
            MessageAttachment::EmbeddedResource(resource) if resource.content_type.starts_with("image/") => {
                check_image(resource).map_err(|problem| invalid_image(&resource.label, &problem))?;
            }
            MessageAttachment::Resource(resource) if is_picture(resource) => {
                if let Some(problem) = problem(resource.meta.as_ref()) {
                    return Err(invalid_image(&resource.label, problem));
                }
            }
            MessageAttachment::EmbeddedResource(_)
            | MessageAttachment::Resource(_)
            | MessageAttachment::Simple(_)
            | MessageAttachment::Annotations(_)
            | MessageAttachment::Chat(_)
            | MessageAttachment::Unknown(_) => {}
        }
    }
    Ok(())
}

fn invalid_image(label: &str, problem: &str) -> ErrorInfo {
    ErrorInfo {
        error_type: "invalid_image".to_owned(),
        message: format!(
            "The image {label:?} cannot be sent: {problem}.\n\
             Remove it, or attach another one, and send the message again."
        ),
        stack: None,
        meta: None,
    }
}

fn check_image(resource: &MessageEmbeddedResourceAttachment) -> Result<(), String> {
    if !is_image(&resource.content_type) {
        return Err(format!("{} is not supported; use PNG, JPEG, GIF or WebP", resource.content_type));
    }
    // Decoding a much larger text would only cost memory.
    if resource.data.len() / 4 * 3 > MAX_BYTES + 3 {
        return Err(too_large(resource.data.len() / 4 * 3));
    }
    let bytes = STANDARD.decode(&resource.data).map_err(|_| "its data is not valid base64".to_owned())?;
    if bytes.is_empty() {
        return Err("it is empty".to_owned());
    }
    if bytes.len() > MAX_BYTES {
        return Err(too_large(bytes.len()));
    }
    match dimensions(&bytes) {
        None => Err("its data is not a PNG, JPEG, GIF or WebP image".to_owned()),
        Some((0, _) | (_, 0)) => Err("it has no pixels".to_owned()),
        Some(_) => Ok(()),
    }
}

fn too_large(bytes: usize) -> String {
    #[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
    let megabytes = bytes as f64 / (1024.0 * 1024.0);
    format!("it has {megabytes:.1} MB, and the limit is {} MB", MAX_BYTES / (1024 * 1024))
}

/// Width and height, by the format that the data itself names. The declared type may differ: both
/// runtimes correct it.
fn dimensions(bytes: &[u8]) -> Option<(u32, u32)> {
    if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        return (bytes.get(12..16)? == b"IHDR").then_some((big(bytes, 16, 4)?, big(bytes, 20, 4)?));
    }
    if bytes.starts_with(b"GIF87a") || bytes.starts_with(b"GIF89a") {
        return Some((little(bytes, 6, 2)?, little(bytes, 8, 2)?));
    }
    if bytes.starts_with(b"\xff\xd8") {
        return jpeg_dimensions(bytes);
    }
    if bytes.starts_with(b"RIFF") && bytes.get(8..12)? == b"WEBP" {
        return webp_dimensions(bytes);
    }
    None
}

/// The size in the first frame header.
fn jpeg_dimensions(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut at = 2;
    loop {
        let (mark, kind) = (*bytes.get(at)?, *bytes.get(at + 1)?);
        if mark != 0xff {
            return None;
        }
        match kind {
            // Padding.
            0xff => at += 1,
            // Markers without a length.
            0x01 | 0xd0..=0xd8 => at += 2,
            // Frame headers; the other values between them are tables.
            0xc0..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf => {
                return Some((big(bytes, at + 7, 2)?, big(bytes, at + 5, 2)?));
            }
            _ => {
                let length = usize::try_from(big(bytes, at + 2, 2)?).ok()?;
                if length < 2 {
                    return None;
                }
                at += 2 + length;
            }
        }
    }
}

fn webp_dimensions(bytes: &[u8]) -> Option<(u32, u32)> {
    match bytes.get(12..16)? {
        b"VP8 " => {
            let is_key_frame = bytes.get(23..26)? == [0x9d, 0x01, 0x2a];
            is_key_frame.then_some((little(bytes, 26, 2)? & 0x3fff, little(bytes, 28, 2)? & 0x3fff))
        }
        b"VP8L" => {
            let packed = little(bytes, 21, 4)?;
            (*bytes.get(20)? == 0x2f).then_some(((packed & 0x3fff) + 1, ((packed >> 14) & 0x3fff) + 1))
        }
        b"VP8X" => Some((little(bytes, 24, 3)? + 1, little(bytes, 27, 3)? + 1)),
        _ => None,
    }
}

fn big(bytes: &[u8], at: usize, count: usize) -> Option<u32> {
    let field = bytes.get(at..at.checked_add(count)?)?;
    Some(field.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
}

fn little(bytes: &[u8], at: usize, count: usize) -> Option<u32> {
    let field = bytes.get(at..at.checked_add(count)?)?;
    Some(field.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn png(width: u32, height: u32) -> Vec<u8> {
        let size = [width.to_be_bytes(), height.to_be_bytes()].concat();
        [&b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..], &size, &[8, 2, 0, 0, 0]].concat()
    }

    fn problem(content_type: &str, data: &str) -> Option<String> {
        let attachment =
            json!({"type": "embeddedResource", "label": "shot", "data": data, "contentType": content_type});
        let message = json!({"text": "x", "origin": {"kind": "user"}, "attachments": [attachment]});
        check(&serde_json::from_value(message).unwrap()).err().map(|error| {
            assert_eq!(error.error_type, "invalid_image");
            error.message
        })
    }

    #[test]
    fn image_that_could_not_be_read_is_rejected_with_the_cause() {
        let check_resource = |uri: &str, problem: Option<&str>| {
            let mut attachment = json!({"type": "resource", "label": "shot", "uri": uri});
            if let Some(problem) = problem {
                attachment["_meta"] = json!({"innkeeper.attachment": {"problem": problem}});
            }
            let message = json!({"text": "x", "origin": {"kind": "user"}, "attachments": [attachment]});
            check(&serde_json::from_value(message).unwrap()).err().map(|error| error.message)
        };
        assert_eq!(check_resource("https://example.com/a.png", None), None);
        assert_eq!(check_resource("file:///w/a.txt", Some("it does not exist")), None);
        let said = check_resource("file:///w/a.png", Some("it does not exist")).unwrap();
        assert!(said.starts_with("The image \"shot\" cannot be sent: it does not exist.\n"), "{said}");
    }

    #[track_caller]
    fn rejected(content_type: &str, data: &[u8], wanted: &str) {
        let said = problem(content_type, &STANDARD.encode(data)).unwrap();
        assert!(said.contains(wanted), "{said}");
    }

    #[test]
    fn headers_of_all_formats_are_read() {
        assert_eq!(dimensions(&png(3, 2)), Some((3, 2)));
        assert_eq!(dimensions(b"GIF89a\x03\0\x02\0\0\0\0"), Some((3, 2)));
        let jpeg = b"\xff\xd8\xff\xe0\0\x04ab\xff\xff\xc0\0\x11\x08\0\x02\0\x03\x03";
        assert_eq!(dimensions(jpeg), Some((3, 2)));
        let lossy = b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a\x03\0\x02\0";
        assert_eq!(dimensions(lossy), Some((3, 2)));
        let lossless = b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f\x02\x40\0\0";
        assert_eq!(dimensions(lossless), Some((3, 2)));
        let extended = b"RIFF\0\0\0\0WEBPVP8X\0\0\0\0\0\0\0\0\x02\0\0\x01\0\0";
        assert_eq!(dimensions(extended), Some((3, 2)));
        for data in
            [&b""[..], b"\xff\xd8", b"\xff\xd8\xff\xe0\0\0", b"RIFF\0\0\0\0WEBP", b"GIF89a", b"<svg/>"]
        {
            assert_eq!(dimensions(data), None, "{data:?}");
        }
    }

    #[test]
    fn valid_image_and_other_attachments_are_accepted() {
        assert_eq!(problem("image/png", &STANDARD.encode(png(1, 1))), None);
        assert_eq!(problem("image/jpeg", &STANDARD.encode(png(1, 1))), None);
        assert_eq!(problem("text/plain", "not base64!"), None);
    }

    #[test]
    fn invalid_images_are_rejected_with_the_cause() {
        rejected("image/svg+xml", b"<svg/>", "not supported");
        rejected("image/png", b"", "empty");
        rejected("image/png", b"\0\0\0", "not a PNG");
        rejected("image/png", &png(0, 4), "no pixels");
        let mut large = png(1, 1);
        large.resize(MAX_BYTES + 1, 0);
        rejected("image/png", &large, "the limit is 5 MB");
        large.resize(MAX_BYTES, 0);
        assert_eq!(problem("image/png", &STANDARD.encode(&large)), None);
        assert!(problem("image/png", "!!!").unwrap().contains("base64"));
    }
}
