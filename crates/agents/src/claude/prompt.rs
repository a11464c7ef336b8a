//! A user's message in the form that the runtime takes.
//!
//! Files and selections are named for the agent to read itself; what a client
//! embedded goes along as it is.

use ahp_types::state::{
    Message, MessageAttachment, MessageEmbeddedResourceAttachment, MessageResourceAttachment,
};
use serde_json::{Value, json};

/// The content blocks of a message.
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
                tracing::info!("skipping a kind of attachment that has no mapping");
            }
        }
    }
    if !references.is_empty() {
        let text = format!("The user attached these, to be read as needed:\n{}", references.join("\n"));
        blocks.push(json!({"type": "text", "text": text}));
    }
    // The user's own words come last: the runtime looks there for its commands.
    blocks.push(json!({"type": "text", "text": message.text}));
    blocks
}

fn embedded(resource: &MessageEmbeddedResourceAttachment) -> Value {
    let source = json!({"type": "base64", "media_type": resource.content_type, "data": resource.data});
    match resource.content_type.as_str() {
        "image/png" | "image/jpeg" | "image/gif" | "image/webp" => json!({"type": "image", "source": source}),
        "application/pdf" => json!({"type": "document", "source": source}),
        other => {
            let text =
                format!("The user attached {:?} ({other}), which cannot be shown here.", resource.label);
            json!({"type": "text", "text": text})
        }
    }
}

fn reference(resource: &MessageResourceAttachment) -> String {
    let name = resource.uri.strip_prefix("file://").unwrap_or(&resource.uri);
    match &resource.selection {
        // The protocol counts lines from zero, people and the runtime's tools from one.
        Some(selection) => {
            format!("- {name} (lines {}-{})", selection.range.start.line + 1, selection.range.end.line + 1)
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
    fn the_words_come_last_behind_what_is_attached() {
        let message = message(json!([
            {"type": "resource", "label": "a", "uri": "file:///src/a.rs",
             "selection": {"range": {"start": {"line": 1, "character": 0}, "end": {"line": 3, "character": 0}}}},
            {"type": "embeddedResource", "label": "shot", "data": "AAAA", "contentType": "image/png"},
            {"type": "simple", "label": "note", "modelRepresentation": "a note"},
            {"type": "fromTheFuture", "label": "?"},
        ]));
        assert_eq!(
            Value::Array(content_blocks(&message)),
            json!([
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
                {"type": "text", "text": "a note"},
                {"type": "text", "text": "The user attached these, to be read as needed:\n- /src/a.rs (lines 2-4)"},
                {"type": "text", "text": "look"},
            ])
        );
    }
}
