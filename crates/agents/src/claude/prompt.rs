//! Converts a user's message to the runtime's format.
//!
//! Files and selections are passed by path for the agent to read; embedded content is
//! passed as it is.

use ahp_types::state::{
    Message, MessageAttachment, MessageEmbeddedResourceAttachment, MessageResourceAttachment,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use url::Url;

use super::images::is_image;

/// Returns the content blocks of a message.
pub(super) fn content_blocks(message: &Message) -> Vec<Value> {
    let mut blocks = Vec::new();
    let mut references = Vec::new();
    for attachment in message.attachments.iter().flatten() {
        match attachment {
            MessageAttachment::Simple(simple) => {
                blocks.extend(
                    simple.model_representation.as_ref().map(|text| json!({"type": "text", "text": text})),
                );
            }
            MessageAttachment::EmbeddedResource(resource) => blocks.push(embedded(resource)),
            MessageAttachment::Resource(resource) => references.push(reference(resource)),
            MessageAttachment::Annotations(_)
            | MessageAttachment::Chat(_)
            | MessageAttachment::Unknown(_) => {
                tracing::info!("ignoring an attachment of a kind without a mapping");
            }
        }
    }
    if !references.is_empty() {
        let text = format!("The user attached these, to be read as needed:\n{}", references.join("\n"));
        blocks.push(json!({"type": "text", "text": text}));
    }
    // The user's text comes last, because the runtime looks there for its commands.
    blocks.push(json!({"type": "text", "text": message.text}));
    blocks
}

fn embedded(resource: &MessageEmbeddedResourceAttachment) -> Value {
    let source = json!({"type": "base64", "media_type": resource.content_type, "data": resource.data});
    match resource.content_type.as_str() {
        image if is_image(image) => json!({"type": "image", "source": source}),
        "application/pdf" => json!({"type": "document", "source": source}),
        other => {
            let text = match embedded_text(resource) {
                Some(text) => format!("The user attached {:?}:\n{text}", resource.label),
                None => {
                    format!("The user attached {:?} ({other}), which cannot be shown here.", resource.label)
                }
            };
            json!({"type": "text", "text": text})
        }
    }
}

fn embedded_text(resource: &MessageEmbeddedResourceAttachment) -> Option<String> {
    let is_text = resource.content_type.starts_with("text/") || resource.content_type == "application/json";
    let bytes = is_text.then(|| STANDARD.decode(&resource.data).ok()).flatten()?;
    String::from_utf8(bytes).ok()
}

fn reference(resource: &MessageResourceAttachment) -> String {
    let path = Url::parse(&resource.uri).ok().and_then(|url| url.to_file_path().ok());
    let name = path.map_or_else(|| resource.uri.clone(), |path| path.display().to_string());
    // The protocol counts lines from zero, the runtime's tools from one.
    let line = |line: i64| line.saturating_add(1);
    match &resource.selection {
        Some(selection) => {
            format!(
                "- {name} (lines {}-{})",
                line(selection.range.start.line),
                line(selection.range.end.line)
            )
        }
        None => format!("- {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(attachments: Value) -> Message {
        serde_json::from_value(
            json!({"text": "look", "origin": {"kind": "user"}, "attachments": attachments}),
        )
        .unwrap()
    }

    #[test]
    fn user_text_comes_after_attachments() {
        let message = message(json!([
            {"type": "resource", "label": "a", "uri": "file:///src%20x/a.rs",
             "selection": {"range": {"start": {"line": 1, "character": 0}, "end": {"line": 3, "character": 0}}}},
            {"type": "embeddedResource", "label": "shot", "data": "AAAA", "contentType": "image/png"},
            {"type": "embeddedResource", "label": "log", "data": "aGk=", "contentType": "text/plain"},
            {"type": "embeddedResource", "label": "bin", "data": "AAAA", "contentType": "application/x"},
            {"type": "simple", "label": "note", "modelRepresentation": "a note"},
            {"type": "fromTheFuture", "label": "?"},
        ]));
        assert_eq!(
            Value::Array(content_blocks(&message)),
            json!([
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
                {"type": "text", "text": "The user attached \"log\":\nhi"},
                {"type": "text", "text": "The user attached \"bin\" (application/x), which cannot be shown here."},
                {"type": "text", "text": "a note"},
                {"type": "text", "text": "The user attached these, to be read as needed:\n- /src x/a.rs (lines 2-4)"},
                {"type": "text", "text": "look"},
            ])
        );
    }
}
