//! Attachments of messages whose content the agent cannot open itself.
//!
//! Files of the host are passed to the agent by path. Images, and resources that only the client has, are
//! read when the message is accepted (`reading`): a snapshot is stored, and the attachment is changed so
//! that it refers to the snapshot. Its `_meta` then names the original resource, or why the resource
//! could not be read. The content is put into the message when it is sent to the agent.

mod content;
mod reading;

use ahp_types::common::JsonObject;
use ahp_types::state::{Message, MessageAttachment, MessageResourceAttachment, TextSelection};
use serde_json::{Value, json};
use url::Url;

use crate::media;
pub use reading::AttachmentSources;
pub(crate) use reading::{ClientGone, MAX_READS, MAX_TOTAL, ReadAttachments, TOO_LARGE, TOO_MANY};

/// The key of an attachment's `_meta` with what the host knows about it.
const META: &str = "innkeeper.attachment";

/// The resource that an attachment referred to before the host stored a snapshot.
pub fn source(meta: Option<&JsonObject>) -> Option<&str> {
    known(meta, "source")
}

/// Why the host could not read an attachment.
pub fn problem(meta: Option<&JsonObject>) -> Option<&str> {
    known(meta, "problem")
}

/// Whether an attachment is shown to the model as an image. Without its image, a message is not sent.
pub fn is_picture(attachment: &MessageResourceAttachment) -> bool {
    let named = || media::type_of(path_in(&attachment.uri).as_ref());
    attachment.content_type.as_deref().or_else(named).is_some_and(is_picture_type)
}

/// The lines of a text that a selection touches; all of them without a valid selection.
pub fn selected<'a>(text: &'a str, selection: Option<&TextSelection>) -> &'a str {
    let Some(range) = selection.map(|selection| &selection.range) else { return text };
    let start_of = |line: i64| {
        let line = usize::try_from(line).ok()?;
        let ends = text.match_indices('\n').map(|(at, _)| at + 1);
        std::iter::once(0).chain(ends).nth(line)
    };
    let Some(start) = start_of(range.start.line) else { return text };
    let end = start_of(range.end.line.saturating_add(1)).unwrap_or(text.len());
    text.get(start..end).filter(|lines| !lines.is_empty()).unwrap_or(text)
}

/// Changes what `_meta` says about an attachment.
fn with_known(meta: Option<&JsonObject>, field: &str, value: &str) -> JsonObject {
    let mut meta = meta.cloned().unwrap_or_default();
    meta.insert(META.to_owned(), json!({ (field): value }));
    meta
}

/// Marks an attachment as one that could not be read.
pub(crate) fn with_problem(meta: Option<&JsonObject>, problem: &str) -> JsonObject {
    with_known(meta, "problem", problem)
}

/// Tells the user which attachments of a message the model does not have. Images are not among them: a
/// turn whose image cannot be sent fails.
pub(crate) fn notice(message: &Message) -> Option<String> {
    let unread = message.attachments.iter().flatten().filter_map(|attachment| match attachment {
        MessageAttachment::Resource(resource) if !is_picture(resource) => {
            Some(format!("- {}: {}", resource.label, problem(resource.meta.as_ref())?))
        }
        MessageAttachment::Resource(_)
        | MessageAttachment::Simple(_)
        | MessageAttachment::EmbeddedResource(_)
        | MessageAttachment::Annotations(_)
        | MessageAttachment::Chat(_)
        | MessageAttachment::Unknown(_) => None,
    });
    let unread: Vec<String> = unread.collect();
    let heading = "The model does not have these attachments, because they could not be read:";
    (!unread.is_empty()).then(|| format!("{heading}\n{}", unread.join("\n")))
}

fn known<'a>(meta: Option<&'a JsonObject>, field: &str) -> Option<&'a str> {
    meta?.get(META)?.get(field).and_then(Value::as_str)
}

/// Whether a media type is that of an image. SVG is text.
fn is_picture_type(content_type: &str) -> bool {
    content_type.starts_with("image/") && !content_type.starts_with("image/svg")
}

/// The path of a URI, for the ending of its name.
fn path_in(uri: &str) -> String {
    Url::parse(uri).map_or_else(|_| uri.to_owned(), |url| url.path().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(fields: Value) -> MessageResourceAttachment {
        let mut attachment = json!({"label": "it", "uri": "vscode-remote://host/w/a"});
        attachment.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        serde_json::from_value(attachment).unwrap()
    }

    #[test]
    fn selection_names_whole_lines() {
        let select = |start: i64, end: i64| -> TextSelection {
            let place = |line: i64| json!({"line": line, "character": 2});
            serde_json::from_value(json!({"range": {"start": place(start), "end": place(end)}})).unwrap()
        };
        let text = "one\r\ntwo\nthree";
        for (start, end, wanted) in [
            (0, 0, "one\r\n"),
            (0, 1, "one\r\ntwo\n"),
            (1, 2, "two\nthree"),
            (2, 9, "three"),
            (2, i64::MAX, "three"),
            // Not in the text.
            (3, 3, text),
            (-1, 0, text),
            (2, 0, text),
        ] {
            assert_eq!(selected(text, Some(&select(start, end))), wanted, "{start}-{end}");
        }
        assert_eq!(selected(text, None), text);
        assert_eq!(selected("", Some(&select(0, 0))), "");
    }

    #[test]
    fn images_are_known_by_type_or_else_by_name() {
        for (fields, expected) in [
            (json!({"contentType": "image/png"}), true),
            (json!({"contentType": "image/bmp"}), true),
            (json!({"uri": "file:///w/Shot.PNG"}), true),
            (json!({"uri": "vscode-remote://host/w/shot.jpg?x=1#y"}), true),
            (json!({"uri": "file:///w/a.svg"}), false),
            (json!({"contentType": "image/svg+xml"}), false),
            (json!({"uri": "file:///w/a.png", "contentType": "text/plain"}), false),
            (json!({}), false),
            (json!({"uri": "not a URI"}), false),
        ] {
            assert_eq!(is_picture(&resource(fields.clone())), expected, "{fields}");
        }
    }

    #[test]
    fn notice_names_unread_attachments_except_images() {
        let attachment = |fields: Value, problem: Option<&str>| {
            let mut resource = resource(fields);
            resource.meta = problem.map(|problem| with_problem(None, problem));
            MessageAttachment::Resource(resource)
        };
        let message = |attachments: Vec<MessageAttachment>| {
            let message = json!({"text": "look", "origin": {"kind": "user"}});
            Message { attachments: Some(attachments), ..serde_json::from_value(message).unwrap() }
        };
        let read = attachment(json!({}), None);
        let image = attachment(json!({"contentType": "image/png"}), Some("it does not exist"));
        assert_eq!(notice(&message(vec![read.clone(), image.clone()])), None);
        let unread = attachment(json!({"label": "a.rs"}), Some("it does not exist"));
        let text = notice(&message(vec![read, unread, image])).unwrap();
        assert!(text.ends_with("be read:\n- a.rs: it does not exist"), "{text}");
    }
}
