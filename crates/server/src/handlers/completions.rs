//! Completions while a user types: files after `@` or `#`, commands after a leading `/`,
//! and values of session configuration properties.

use ahp_types::commands::{
    CompletionItem, CompletionItemKind, CompletionsResult, SessionConfigCompletionsResult,
};
use ahp_types::common::JsonObject;
use ahp_types::state::{MessageAttachment, MessageResourceAttachment, SimpleMessageAttachment};
use innkeeper_core::ChannelUri;
use innkeeper_core::agent::CommandInfo;
use innkeeper_core::files::{FileKind, FoundFile};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use std::sync::Arc;

use crate::connection::Connection;
use crate::rpc::RpcError;

/// Characters after which clients request completions.
pub(crate) const TRIGGERS: [&str; 3] = ["@", "#", "/"];

#[derive(Debug, Deserialize)]
pub(super) struct CompletionsParams {
    #[serde(deserialize_with = "crate::params::channel")]
    channel: String,
    kind: CompletionItemKind,
    text: String,
    offset: u32,
}

#[derive(Debug, Deserialize)]
pub(super) struct ConfigCompletionsParams {
    #[serde(default)]
    provider: Option<String>,
    #[serde(default)]
    config: Option<JsonObject>,
    property: String,
}

/// The token before the cursor, and its range in UTF-16 code units.
#[derive(Debug, PartialEq, Eq)]
enum Typed {
    /// Part of a path, after `trigger`.
    Path { trigger: char, partial: String, range: (u32, u32) },
    /// Part of a command name.
    Command { partial: String, range: (u32, u32) },
    /// Neither.
    Nothing,
}

impl Connection {
    pub(super) async fn completions(&self, id: &RawValue, params: CompletionsParams) -> Result<(), RpcError> {
        let composing = self.shared.host.composing(&ChannelUri::new(&params.channel)).await?;
        let composing = composing
            .ok_or_else(|| RpcError::not_found(format!("unknown session or chat {}", params.channel)))?;
        let typed = typed(&params.text, params.offset)
            .ok_or_else(|| RpcError::invalid_params("offset is not inside the text"))?;
        let typed = if params.kind == CompletionItemKind::UserMessage { typed } else { Typed::Nothing };
        let files = Arc::clone(&self.shared.files);
        let work = async move {
            let items = match typed {
                Typed::Nothing => Vec::new(),
                Typed::Command { partial, range } => commands(&composing.commands, &partial, range),
                Typed::Path { trigger, partial, range } => {
                    let mut items = Vec::new();
                    for directory in composing.directories {
                        let found = files.search(directory, partial.clone()).await;
                        items.extend(found.into_iter().map(|found| file(found, trigger, range)));
                    }
                    items
                }
            };
            Ok(CompletionsResult { items }.into())
        };
        self.concurrent.run(id, work).await;
        Ok(())
    }

    /// Returns no items: all properties list their values in the schema. Rejects unknown
    /// properties.
    pub(super) fn session_config_completions(
        &self,
        id: &RawValue,
        params: &ConfigCompletionsParams,
    ) -> Result<(), RpcError> {
        let chosen = params.config.clone().unwrap_or_default();
        let config = self.shared.host.resolve_config(params.provider.as_deref(), &chosen)?;
        if !config.schema.properties.contains_key(&params.property) {
            return Err(RpcError::invalid_params(format!(
                "unknown configuration property {:?}",
                params.property
            )));
        }
        self.reply(id, &SessionConfigCompletionsResult { items: Vec::new() })
    }
}

/// Finds the token before `offset`. Returns `None` if `offset` is not a character boundary
/// in the text.
fn typed(text: &str, offset: u32) -> Option<Typed> {
    let mut units = 0_u32;
    let mut word: Option<(u32, String)> = None;
    let mut words = 0_usize;
    for letter in text.chars() {
        if units >= offset {
            break;
        }
        if letter.is_whitespace() {
            word = None;
        } else {
            let (_, letters) = word.get_or_insert_with(|| {
                words += 1;
                (units, String::new())
            });
            letters.push(letter);
        }
        units += u32::try_from(letter.len_utf16()).unwrap_or_default();
    }
    // Also true inside a character that takes two code units.
    if units != offset {
        return None;
    }
    let Some((start, word)) = word else { return Some(Typed::Nothing) };
    let range = (start, offset);
    let mut letters = word.chars();
    Some(match letters.next() {
        Some(trigger @ ('@' | '#')) => Typed::Path { trigger, partial: letters.collect(), range },
        Some('/') if words == 1 && start == 0 => Typed::Command { partial: letters.collect(), range },
        _ => Typed::Nothing,
    })
}

fn file(found: FoundFile, trigger: char, range: (u32, u32)) -> CompletionItem {
    let kind = if found.kind == FileKind::Directory { "directory" } else { "document" };
    let label = found.path.rsplit('/').next().unwrap_or(&found.path).to_owned();
    CompletionItem {
        insert_text: format!("{trigger}{}", found.path),
        range_start: Some(range.0.into()),
        range_end: Some(range.1.into()),
        attachment: MessageAttachment::Resource(MessageResourceAttachment {
            label,
            range: None,
            display_kind: Some(kind.to_owned()),
            meta: None,
            uri: found.uri,
            size_hint: None,
            content_type: None,
            nonce: None,
            selection: None,
        }),
    }
}

fn commands(known: &[CommandInfo], partial: &str, range: (u32, u32)) -> Vec<CompletionItem> {
    let item = |command: &CommandInfo| CompletionItem {
        insert_text: format!("/{} ", command.name),
        range_start: Some(range.0.into()),
        range_end: Some(range.1.into()),
        attachment: MessageAttachment::Simple(SimpleMessageAttachment {
            label: format!("/{}", command.name),
            range: None,
            display_kind: Some("command".to_owned()),
            meta: json!({ "command": command.name, "description": command.description }).as_object().cloned(),
            model_representation: None,
        }),
    };
    known.iter().filter(|command| command.name.starts_with(partial)).map(item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(trigger: char, partial: &str, range: (u32, u32)) -> Option<Typed> {
        Some(Typed::Path { trigger, partial: partial.to_owned(), range })
    }

    #[test]
    fn token_before_cursor_determines_the_kind() {
        assert_eq!(typed("look at @src/ma", 15), path('@', "src/ma", (8, 15)));
        assert_eq!(typed("#a b", 2), path('#', "a", (0, 2)));
        assert_eq!(typed("@a b", 4), Some(Typed::Nothing));
        assert_eq!(typed("@abc", 2), path('@', "a", (0, 2)));
        assert_eq!(typed("a@b", 3), Some(Typed::Nothing), "an email address is not a path");
        let command =
            |partial: &str, end| Some(Typed::Command { partial: partial.to_owned(), range: (0, end) });
        assert_eq!(typed("/", 1), command("", 1));
        assert_eq!(typed("/comp", 5), command("comp", 5));
        assert_eq!(typed("see /comp", 9), Some(Typed::Nothing));
        assert_eq!(typed("", 0), Some(Typed::Nothing));
    }

    #[test]
    fn offsets_count_utf16_code_units() {
        assert_eq!(typed("😀 @ü", 5), path('@', "ü", (3, 5)));
        assert_eq!(typed("😀", 1), None, "inside a character");
        assert_eq!(typed("abc", 4), None);
    }
}
