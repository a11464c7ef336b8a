//! Puts the content of attachments into messages that are sent to an agent.
//!
//! Clients see a reference to a snapshot or to a chat; the agent receives the content. Only the copy in the
//! command changes, so the content is in neither the documents nor the journal.

use std::sync::Arc;

use ahp_types::common::JsonObject;
use ahp_types::state::{
    Message, MessageAttachment, MessageChatAttachment, MessageEmbeddedResourceAttachment,
    MessageResourceAttachment, SimpleMessageAttachment,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::addresses::ChatAddresses;
use super::decide::Effect;
use super::record::transcript_of;
use crate::agent::AgentCommand;
use crate::attachments::{MAX_READS, MAX_TOTAL, TOO_LARGE, TOO_MANY, with_problem};
use crate::channel::ChannelUri;
use crate::output::{OutputUri, StoredOutput};
use crate::state::StateStore;
use crate::storage::{Storage, StoredTurn};

/// Where the content of attachments is read when a message is sent.
pub(super) struct ContentSources {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) store: Arc<StateStore>,
    pub(super) addresses: Arc<ChatAddresses>,
}

impl ContentSources {
    /// Adds the content of attachments to the message of a command.
    pub(super) async fn with_content(&self, mut effect: Effect) -> Effect {
        if let Effect::Agent(AgentCommand::Prompt { message, .. } | AgentCommand::Steer { message, .. }) =
            &mut effect
        {
            self.add_content(message).await;
        }
        effect
    }

    async fn add_content(&self, message: &mut Message) {
        // A client can refer to snapshots and chats any number of times.
        let (mut contents, mut size) = (0, 0);
        for attachment in message.attachments.iter_mut().flatten() {
            let replacement = match attachment {
                MessageAttachment::Resource(resource) => {
                    let Some(uri) = OutputUri::parse(&resource.uri) else { continue };
                    contents += 1;
                    let loaded =
                        if contents > MAX_READS { Err(TOO_MANY.to_owned()) } else { self.load(uri).await };
                    match loaded {
                        Ok(stored) if size + stored.body.len() > MAX_TOTAL => {
                            unavailable(resource, TOO_LARGE)
                        }
                        Ok(stored) => {
                            size += stored.body.len();
                            MessageAttachment::EmbeddedResource(embedded(resource, &stored))
                        }
                        Err(problem) => unavailable(resource, &problem),
                    }
                }
                MessageAttachment::Chat(chat) => {
                    contents += 1;
                    let text = if contents > MAX_READS {
                        format!("The user attached the chat {:?}, but {TOO_MANY}.", chat.label)
                    } else {
                        let turns = self.turns_of(&ChannelUri::new(&chat.resource)).await;
                        transcript(chat, turns.as_deref())
                    };
                    MessageAttachment::Simple(with_transcript(chat, text))
                }
                MessageAttachment::Simple(_)
                | MessageAttachment::EmbeddedResource(_)
                | MessageAttachment::Annotations(_)
                | MessageAttachment::Unknown(_) => continue,
            };
            *attachment = replacement;
        }
    }

    /// Loads a snapshot. The error says why it is not available.
    async fn load(&self, uri: OutputUri) -> Result<StoredOutput, String> {
        let found = match uri {
            OutputUri::Piece(id) => self.storage.load_output(id).await,
            OutputUri::Malformed => Ok(None),
        };
        match found {
            Ok(stored) => stored.ok_or_else(|| "its stored content no longer exists".to_owned()),
            Err(error) => {
                tracing::error!(%error, "cannot load an attachment");
                Err(error.to_string())
            }
        }
    }

    /// The finished turns of a chat, which may belong to another session.
    async fn turns_of(&self, chat: &ChannelUri) -> Option<Vec<StoredTurn>> {
        let turns = |turns: &[StoredTurn]| turns.to_vec();
        let loaded = self.store.read(chat, |state| state.chat_doc().map(|doc| turns(doc.turns())));
        if let Some(loaded) = loaded {
            return loaded;
        }
        let session = self.addresses.session_of(chat)?;
        match self.storage.load_session(session).await {
            Ok(stored) => stored?.chats.into_iter().find(|stored| stored.uri == *chat).map(|chat| chat.turns),
            Err(error) => {
                tracing::error!(%chat, %error, "cannot load an attached chat");
                None
            }
        }
    }
}

fn embedded(
    resource: &MessageResourceAttachment,
    stored: &StoredOutput,
) -> MessageEmbeddedResourceAttachment {
    MessageEmbeddedResourceAttachment {
        label: resource.label.clone(),
        range: resource.range.clone(),
        display_kind: resource.display_kind.clone(),
        meta: resource.meta.clone(),
        data: STANDARD.encode(&stored.body),
        content_type: stored.content_type.clone(),
        selection: resource.selection.clone(),
    }
}

fn unavailable(resource: &MessageResourceAttachment, problem: &str) -> MessageAttachment {
    let meta: JsonObject = with_problem(resource.meta.as_ref(), problem);
    MessageAttachment::Resource(MessageResourceAttachment { meta: Some(meta), ..resource.clone() })
}

/// The attached chat as text, up to its last turn. Attachments of its messages are not included.
fn transcript(chat: &MessageChatAttachment, turns: Option<&[StoredTurn]>) -> String {
    let label = &chat.label;
    let end = chat.end_turn.as_deref();
    let last = turns.and_then(|turns| turns.iter().position(|turn| Some(turn.id.as_str()) == end));
    match (turns, end, last) {
        (None, ..) => format!("The user attached the chat {label:?}, which no longer exists."),
        (Some(_), None, _) => format!("The user attached the chat {label:?}, which has no messages."),
        (Some(_), Some(_), None) => {
            format!("The user attached the chat {label:?}, but the attached part was removed from it.")
        }
        (Some(turns), Some(_), Some(last)) => {
            let heading =
                format!("The user attached the chat {label:?}. It is not a part of this conversation:");
            let included = turns.get(..=last).unwrap_or_default();
            format!("{}\n\n[End of the attached chat.]", transcript_of(included, &heading))
        }
    }
}

fn with_transcript(chat: &MessageChatAttachment, transcript: String) -> SimpleMessageAttachment {
    SimpleMessageAttachment {
        label: chat.label.clone(),
        range: chat.range.clone(),
        display_kind: chat.display_kind.clone(),
        meta: chat.meta.clone(),
        model_representation: Some(transcript),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::agent::BoxFuture;
    use crate::audit::{AuditPage, AuditQuery};
    use crate::output::OutputId;
    use crate::storage::{Change, Index, Nowhere, StorageError, StoredSession};

    fn turns(texts: &[&str]) -> Vec<StoredTurn> {
        let turn = |text: &&str| {
            let attached = json!({"type": "chat", "label": "nested", "resource": "ahp-chat:/other"});
            let body = json!({
                "id": text, "state": "complete",
                "message": {"text": text, "origin": {"kind": "user"}, "attachments": [attached]},
                "responseParts": [{"kind": "markdown", "id": "p", "content": format!("re: {text}")}],
            });
            StoredTurn {
                id: (*text).to_owned(),
                body: serde_json::value::to_raw_value(&body).unwrap().into(),
            }
        };
        texts.iter().map(turn).collect()
    }

    /// A storage with one piece of output.
    struct OnePiece(OutputId, StoredOutput);

    impl Storage for OnePiece {
        fn load_index(&self) -> BoxFuture<Result<Index, StorageError>> {
            Nowhere.load_index()
        }

        fn load_session(&self, uri: ChannelUri) -> BoxFuture<Result<Option<StoredSession>, StorageError>> {
            Nowhere.load_session(uri)
        }

        fn load_output(&self, id: OutputId) -> BoxFuture<Result<Option<StoredOutput>, StorageError>> {
            Box::pin(std::future::ready(Ok((id == self.0).then(|| self.1.clone()))))
        }

        fn load_audit(&self, query: AuditQuery) -> BoxFuture<Result<AuditPage, StorageError>> {
            Nowhere.load_audit(query)
        }

        fn write(&self, changes: Vec<Change>) -> BoxFuture<Result<(), StorageError>> {
            Nowhere.write(changes)
        }
    }

    async fn with_content(size: usize, attachments: Vec<Value>) -> Vec<MessageAttachment> {
        let stored = StoredOutput { content_type: "text/plain".to_owned(), body: vec![b'x'; size].into() };
        let root = serde_json::from_value(json!({"agents": []})).unwrap();
        let sources = ContentSources {
            storage: Arc::new(OnePiece(OutputId::from_number(1), stored)),
            store: Arc::new(StateStore::new(root)),
            addresses: Arc::default(),
        };
        let message = json!({"text": "x", "origin": {"kind": "user"}, "attachments": attachments});
        let mut message = serde_json::from_value(message).unwrap();
        sources.add_content(&mut message).await;
        message.attachments.unwrap()
    }

    fn problem_of(attachment: &MessageAttachment) -> Option<&str> {
        let MessageAttachment::Resource(resource) = attachment else { return None };
        crate::attachments::problem(resource.meta.as_ref())
    }

    #[tokio::test]
    async fn content_of_a_message_is_limited() {
        let piece = |number: u128| json!({"type": "resource", "label": "it", "uri": OutputId::from_number(number).uri()});
        let chat = json!({"type": "chat", "label": "it", "resource": "ahp-chat:/none"});
        let found = with_content(1, vec![piece(1), piece(2), chat.clone(), piece(1)]).await;
        let problems: Vec<Option<&str>> = found.iter().map(problem_of).collect();
        assert_eq!(problems, [None, Some("its stored content no longer exists"), None, None]);

        let mut many = vec![piece(1); MAX_READS];
        many.extend([piece(1), chat]);
        let found = with_content(1, many).await;
        assert_eq!(
            (problem_of(&found[MAX_READS - 1]), problem_of(&found[MAX_READS])),
            (None, Some(TOO_MANY))
        );
        let MessageAttachment::Simple(simple) = &found[MAX_READS + 1] else { panic!("{found:?}") };
        assert!(simple.model_representation.as_ref().unwrap().contains(TOO_MANY));

        let found = with_content(MAX_TOTAL / 2, vec![piece(1); 3]).await;
        let problems: Vec<Option<&str>> = found.iter().map(problem_of).collect();
        assert_eq!(problems, [None, None, Some(TOO_LARGE)]);
    }

    #[test]
    fn attached_chat_is_shown_up_to_its_end_turn() {
        let shown = |end: Option<&str>, turns: Option<&[StoredTurn]>| {
            let mut chat = json!({"label": "it", "resource": "ahp-chat:/1"});
            if let Some(end) = end {
                chat["endTurn"] = json!(end);
            }
            transcript(&serde_json::from_value(chat).unwrap(), turns)
        };
        let three = turns(&["one", "two", "three"]);
        assert_eq!(
            shown(Some("two"), Some(&three)),
            "The user attached the chat \"it\". It is not a part of this conversation:\n\nUser: one\n\n\
             Assistant: re: one\n\nUser: two\n\nAssistant: re: two\n\n[End of the attached chat.]"
        );
        assert!(shown(None, Some(&[])).contains("has no messages"));
        assert!(shown(Some("four"), Some(&three)).contains("was removed"));
        assert!(shown(Some("two"), None).contains("no longer exists"));
        let long = "x".repeat(15_000);
        let ids: Vec<String> = (0..9).map(|number| format!("{number}{long}")).collect();
        let many = turns(&ids.iter().map(String::as_str).collect::<Vec<_>>());
        let text = shown(Some(&ids[8]), Some(&many));
        assert!(
            text.len() < 70 * 1024 && text.contains("left out") && text.contains("User: 8"),
            "{}",
            text.len()
        );
    }
}
