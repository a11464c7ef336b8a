//! Reads attachments of a message that a client sends: images from the host's files, other resources from
//! the client.
//!
//! The client waits, because its later actions must not overtake the message. So the time for all
//! attachments of a message is limited, and so are their number and size. What cannot be read does not
//! reject the message: the attachment then says why.

use std::sync::Arc;
use std::time::Duration;

use ahp_types::commands::{ContentEncoding, ResourceReadResult};
use ahp_types::common::JsonObject;
use ahp_types::state::{Message, MessageAttachment, MessageResourceAttachment};
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use serde_json::json;
use tokio::time::Instant;

use super::content::{MAX_SNAPSHOT, check_size, snapshot};
use super::{is_picture, is_picture_type, known, with_known, with_problem};
use crate::client_resources::{ClientResourceError, ClientResources};
use crate::files::{FileError, FileKind, Files, Links};
use crate::ids::ClientId;
use crate::output::{OutputId, StoredOutput};
use crate::state::{Action, Amendment};

/// How long reading the attachments of one message may take.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Attachments of one message that are read. Further ones are marked as not read.
pub(crate) const MAX_READS: usize = 32;

/// Total size of the snapshots of one message.
pub(crate) const MAX_TOTAL: usize = 4 * MAX_SNAPSHOT;

/// Why an attachment above [`MAX_READS`] is not read.
pub(crate) const TOO_MANY: &str = "the message has too many attachments";

/// Why an attachment above [`MAX_TOTAL`] is not read.
pub(crate) const TOO_LARGE: &str = "the attachments of the message are too large together";

/// Longest reason that is published, in characters: part of it is the client's text.
const MAX_REASON: usize = 300;

/// Standard base64; padding is optional.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Where attachments are read.
#[derive(Clone)]
pub struct AttachmentSources {
    /// The files that clients may access.
    pub files: Arc<dyn Files>,
    /// The resources of connected clients.
    pub clients: Arc<dyn ClientResources>,
}

impl std::fmt::Debug for AttachmentSources {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("AttachmentSources").finish_non_exhaustive()
    }
}

/// The client disconnected before its resources were read. It sends the message again when it reconnects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientGone;

/// What was read of a message's attachments.
#[derive(Debug, Default)]
pub(crate) struct ReadAttachments {
    changes: Vec<AttachmentChange>,
    /// The snapshots to store before the message is published.
    pub(crate) snapshots: Vec<(OutputId, StoredOutput)>,
}

/// A change of one attachment.
#[derive(Debug, PartialEq)]
struct AttachmentChange {
    /// The position in the message.
    index: usize,
    /// The snapshot that the attachment refers to.
    snapshot: Option<SnapshotReference>,
    meta: JsonObject,
}

#[derive(Debug, PartialEq)]
struct SnapshotReference {
    uri: String,
    content_type: String,
    size: usize,
}

/// Why an attachment is not stored as a snapshot.
#[derive(Debug)]
enum Unread {
    /// The agent opens it itself.
    ByName,
    /// It cannot be read, for this reason.
    Problem(String),
    /// The client is gone.
    Gone,
}

/// The side that opens a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opener {
    /// The host, as a file.
    Host,
    /// Only the client.
    Client,
    /// The agent, which gets only the name. The host's own resources are stored already.
    Agent,
}

impl ReadAttachments {
    /// The action that contains the message, with the attachments changed.
    pub(crate) fn rewritten(&self, action: Action) -> Action {
        if self.changes.is_empty() {
            return action;
        }
        action.amended(&self.amendments()).unwrap_or_else(|error| {
            tracing::error!(%error, "cannot change the attachments of a message");
            action
        })
    }

    fn amendments(&self) -> Vec<Amendment> {
        let amendments = self.changes.iter().flat_map(|change| {
            let object = format!("/message/attachments/{}", change.index);
            let snapshot = change.snapshot.iter().flat_map(|snapshot| {
                [
                    ("uri", json!(snapshot.uri)),
                    ("contentType", json!(snapshot.content_type)),
                    ("sizeHint", json!(snapshot.size)),
                ]
            });
            let fields: Vec<_> = snapshot.chain([("_meta", json!(change.meta))]).collect();
            fields.into_iter().map(move |(field, value)| (object.clone(), field, value))
        });
        amendments.collect()
    }

    /// Changes the message.
    pub(crate) fn apply(&self, message: &mut Message) {
        for change in &self.changes {
            let attachment = message.attachments.iter_mut().flatten().nth(change.index);
            let Some(MessageAttachment::Resource(resource)) = attachment else { continue };
            if let Some(snapshot) = &change.snapshot {
                resource.uri.clone_from(&snapshot.uri);
                resource.content_type = Some(snapshot.content_type.clone());
                resource.size_hint = i64::try_from(snapshot.size).ok();
            }
            resource.meta = Some(change.meta.clone());
        }
    }

    fn size(&self) -> usize {
        self.snapshots.iter().map(|(_, snapshot)| snapshot.body.len()).sum()
    }

    fn add(&mut self, index: usize, attachment: &MessageResourceAttachment, stored: StoredOutput) {
        let id = OutputId::unique();
        let reference = SnapshotReference {
            uri: id.uri(),
            content_type: stored.content_type.clone(),
            size: stored.body.len(),
        };
        let meta = with_known(attachment.meta.as_ref(), "source", &attachment.uri);
        self.changes.push(AttachmentChange { index, snapshot: Some(reference), meta });
        self.snapshots.push((id, stored));
    }
}

impl AttachmentSources {
    /// Reads the attachments of a client's message.
    pub(crate) async fn read(
        &self,
        client: &ClientId,
        message: &Message,
    ) -> Result<ReadAttachments, ClientGone> {
        let deadline = Instant::now() + TIME_LIMIT;
        let mut read = ReadAttachments::default();
        let mut reads = 0;
        for (index, attachment) in message.attachments.iter().flatten().enumerate() {
            let MessageAttachment::Resource(resource) = attachment else { continue };
            let opener = opener_of(&resource.uri);
            if opener == Opener::Agent {
                continue;
            }
            reads += 1;
            let reading = async {
                if reads > MAX_READS {
                    return Err(Unread::Problem(TOO_MANY.to_owned()));
                }
                let stored = match opener {
                    Opener::Host => self.read_file(resource).await?,
                    Opener::Client | Opener::Agent => self.read_from_client(client, resource).await?,
                };
                if read.size() + stored.body.len() > MAX_TOTAL {
                    return Err(Unread::Problem(TOO_LARGE.to_owned()));
                }
                Ok(stored)
            };
            let outcome = tokio::time::timeout_at(deadline, reading).await.unwrap_or_else(|_| {
                let late = match opener {
                    Opener::Client => ClientResourceError::TimedOut.to_string(),
                    Opener::Host | Opener::Agent => "the file system did not respond in time".to_owned(),
                };
                Err(Unread::Problem(late))
            });
            match outcome {
                Ok(stored) => read.add(index, resource, stored),
                Err(Unread::Problem(reason)) => {
                    let reason: String = reason.chars().take(MAX_REASON).collect();
                    let meta = with_problem(resource.meta.as_ref(), &reason);
                    read.changes.push(AttachmentChange { index, snapshot: None, meta });
                }
                Err(Unread::ByName) => {
                    // A client may send an attachment again that could not be read before.
                    if known(resource.meta.as_ref(), "problem").is_some() {
                        let meta = with_known(resource.meta.as_ref(), "source", &resource.uri);
                        read.changes.push(AttachmentChange { index, snapshot: None, meta });
                    }
                }
                Err(Unread::Gone) => return Err(ClientGone),
            }
        }
        Ok(read)
    }

    /// Reads an image. Other files and directories are read by the agent, which has its own rules for what
    /// it may read.
    async fn read_file(&self, attachment: &MessageResourceAttachment) -> Result<StoredOutput, Unread> {
        let uri = attachment.uri.clone();
        let status = match self.files.resolve(uri.clone(), Links::Follow).await {
            Ok(status) => status,
            Err(FileError::Denied { .. } | FileError::Io { .. }) if !is_picture(attachment) => {
                return Err(Unread::ByName);
            }
            Err(error) => return Err(Unread::Problem(reason(error))),
        };
        let named = status.content_type.is_some_and(is_picture_type);
        match status.kind {
            FileKind::File if named || is_picture(attachment) => {}
            FileKind::File | FileKind::Directory => return Err(Unread::ByName),
            FileKind::Symlink | FileKind::Other => {
                return Err(Unread::Problem("it is not a regular file".to_owned()));
            }
        }
        let size = status.size.unwrap_or_default();
        check_size(usize::try_from(size).unwrap_or(usize::MAX)).map_err(Unread::Problem)?;
        let content = self.files.read(uri).await.map_err(|error| Unread::Problem(reason(error)))?;
        snapshot(attachment, content.bytes, content.content_type).map_err(Unread::Problem)
    }

    async fn read_from_client(
        &self,
        client: &ClientId,
        attachment: &MessageResourceAttachment,
    ) -> Result<StoredOutput, Unread> {
        let answer = self.clients.read(client.clone(), attachment.uri.clone()).await;
        let ResourceReadResult { data, encoding, content_type } = answer.map_err(|error| match error {
            ClientResourceError::Gone => Unread::Gone,
            error @ (ClientResourceError::TimedOut
            | ClientResourceError::Busy
            | ClientResourceError::TooLarge
            | ClientResourceError::Refused { .. }
            | ClientResourceError::Unreadable(_)) => Unread::Problem(error.to_string()),
        })?;
        let bytes = match encoding {
            ContentEncoding::Utf8 => Bytes::from(data),
            ContentEncoding::Base64 => {
                let invalid = |_| Unread::Problem("the client's response is not valid base64".to_owned());
                Bytes::from(BASE64.decode(data).map_err(invalid)?)
            }
        };
        snapshot(attachment, bytes, content_type.as_deref()).map_err(Unread::Problem)
    }
}

fn opener_of(uri: &str) -> Opener {
    let Some((scheme, _)) = uri.split_once(':') else { return Opener::Agent };
    let scheme = scheme.to_ascii_lowercase();
    match scheme.as_str() {
        "file" => Opener::Host,
        "http" | "https" => Opener::Agent,
        own if own.starts_with("innkeeper") || own.starts_with("ahp") => Opener::Agent,
        _ => Opener::Client,
    }
}

/// Why a file cannot be read, without its URI.
fn reason(error: FileError) -> String {
    match error {
        FileError::NotFound(_) => "it does not exist".to_owned(),
        FileError::Denied { reason, .. } => reason.to_owned(),
        FileError::Io { reason, .. } => reason,
        FileError::TooLarge { limit, .. } => format!("it is too large; the limit is {limit}"),
        error @ (FileError::Exists(_)
        | FileError::Conflict(_)
        | FileError::NotADirectory(_)
        | FileError::Invalid(_)) => error.to_string(),
    }
}

#[cfg(test)]
#[path = "reading_tests.rs"]
mod tests;
