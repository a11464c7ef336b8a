//! Converts a user's message to the runtime's format.
//!
//! Files and selections of files are passed by path for the agent to read; embedded content, which
//! includes what the host has read for the agent, is passed as it is.

use ahp_types::state::{
    Message, MessageAttachment, MessageEmbeddedResourceAttachment, MessageResourceAttachment, TextSelection,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use innkeeper_core::attachments::{self, problem, selected};
use serde_json::{Value, json};
use url::Url;

use super::images::is_image;

/// Returns the content blocks of a message.
pub(super) fn content_blocks(message: &Message) -> Vec<Value> {
    let mut blocks = Vec::new();
    let (mut references, mut unread) = (Vec::new(), Vec::new());
    for attachment in message.attachments.iter().flatten() {
        match attachment {
            MessageAttachment::Simple(simple) => {
                blocks.extend(
                    simple.model_representation.as_ref().map(|text| json!({"type": "text", "text": text})),
                );
            }
            MessageAttachment::EmbeddedResource(resource) => blocks.push(embedded(resource)),
            MessageAttachment::Resource(resource) => match problem(resource.meta.as_ref()) {
                Some(problem) => unread.push(format!("{}: {problem}", reference(resource))),
                None => references.push(reference(resource)),
            },
            MessageAttachment::Annotations(_)
            | MessageAttachment::Chat(_)
            | MessageAttachment::Unknown(_) => {
                tracing::info!("ignoring an attachment of a kind without a mapping");
            }
        }
    }
    for (heading, named) in [
        ("The user attached these, to be read as needed:", references),
        ("The user attached these, but they could not be read:", unread),
    ] {
        if !named.is_empty() {
            let text = format!("{heading}\n{}", named.join("\n"));
            blocks.push(json!({"type": "text", "text": text}));
        }
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
                Some(text) => {
                    let selection = resource.selection.as_ref();
                    let source = attachments::source(resource.meta.as_ref());
                    let details = [source.map(str::to_owned), selection.map(lines)];
                    let details: Vec<String> = details.into_iter().flatten().collect();
                    let details =
                        if details.is_empty() { String::new() } else { format!(" ({})", details.join(", ")) };
                    format!(
                        "The user attached {:?}{details}:\n{}",
                        resource.label,
                        selected(&text, selection)
                    )
                }
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
    let url = Url::parse(&resource.uri).ok().filter(|url| url.scheme() == "file");
    let path = url.and_then(|url| url.to_file_path().ok());
    let name = path.map_or_else(|| resource.uri.clone(), |path| path.display().to_string());
    match &resource.selection {
        Some(selection) => format!("- {name} ({})", lines(selection)),
        None => format!("- {name}"),
    }
}

/// The lines of a selection. The protocol counts them from zero, the runtime's tools from one.
fn lines(selection: &TextSelection) -> String {
    let line = |line: i64| line.saturating_add(1);
    format!("lines {}-{}", line(selection.range.start.line), line(selection.range.end.line))
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
    fn content_that_the_host_read_names_its_source_and_selected_lines() {
        let meta = json!({"innkeeper.attachment": {"source": "vscode-remote://host/w/a.py"}});
        let range = json!({"start": {"line": 1, "character": 2}, "end": {"line": 2, "character": 0}});
        let attachment = |fields: Value| {
            let mut attachment = json!({
                "type": "embeddedResource", "label": "a.py", "contentType": "text/x-python", "_meta": meta,
                "data": STANDARD.encode("one\ntwo\nthree\nfour\n"),
            });
            attachment.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            attachment
        };
        let blocks = content_blocks(&message(json!([
            attachment(json!({})),
            attachment(json!({"selection": {"range": range}})),
            attachment(json!({"selection": {"range": range}, "_meta": null})),
        ])));
        let texts: Vec<&str> = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
        let expected = [
            "The user attached \"a.py\" (vscode-remote://host/w/a.py):\none\ntwo\nthree\nfour\n",
            "The user attached \"a.py\" (vscode-remote://host/w/a.py, lines 2-3):\ntwo\nthree\n",
            "The user attached \"a.py\" (lines 2-3):\ntwo\nthree\n",
            "look",
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn attachments_that_could_not_be_read_are_named_with_the_cause() {
        let unread = |uri: &str, problem: &str| {
            let meta = json!({"innkeeper.attachment": {"problem": problem}});
            json!({"type": "resource", "label": "a", "uri": uri, "_meta": meta})
        };
        let blocks = content_blocks(&message(json!([
            unread("file:///w/a", "it does not exist"),
            unread("memory:/1", "the client did not respond in time"),
            {"type": "resource", "label": "b", "uri": "https://example.com/b"},
        ])));
        let texts: Vec<&str> = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
        let expected = [
            "The user attached these, to be read as needed:\n- https://example.com/b",
            "The user attached these, but they could not be read:\n- /w/a: it does not exist\n\
             - memory:/1: the client did not respond in time",
            "look",
        ];
        assert_eq!(texts, expected);
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
