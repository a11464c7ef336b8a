//! Parameters of the AHP methods, as lenient as existing clients need.
//!
//! The generated types require a `channel` everywhere. Existing clients omit it from
//! connection-wide methods, so it defaults to the root channel here. Unknown fields are
//! ignored.

use ahp_types::commands::{
    ChangesetOperationTarget, ChatMoveDestination, ChatSource, SubscriptionDeliveryOptions,
};
use ahp_types::common::{JsonObject, ROOT_RESOURCE_URI, Uri};
use ahp_types::state::{Message, SessionActiveClient};
use secrecy::SecretString;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::limits::MAX_NAME;

fn root() -> Uri {
    ROOT_RESOURCE_URI.to_owned()
}

/// Reads a channel URI and checks its length, because it is stored and repeated in every
/// envelope.
pub(crate) fn channel<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Uri, D::Error> {
    let uri = Uri::deserialize(deserializer)?;
    check(&uri)?;
    Ok(uri)
}

fn check<E: serde::de::Error>(uri: &str) -> Result<(), E> {
    if uri.len() > MAX_NAME {
        return Err(E::custom(format!("the channel URI is longer than {MAX_NAME} bytes")));
    }
    Ok(())
}

/// Like [`channel`], for a parameter that may be absent.
fn optional_channel<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Uri>, D::Error> {
    let uri = Option::<Uri>::deserialize(deserializer)?;
    uri.as_deref().map_or(Ok(()), check)?;
    Ok(uri)
}

/// Reads the source of a new chat, which contains the URI of another chat.
fn source<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ChatSource>, D::Error> {
    let source = Option::<ChatSource>::deserialize(deserializer)?;
    match &source {
        Some(ChatSource::Fork(fork)) => check(&fork.chat)?,
        Some(ChatSource::SideChat(side)) => check(&side.chat)?,
        Some(ChatSource::Unknown(_)) | None => {}
    }
    Ok(source)
}

/// Reads the destination of a chat, which contains the URI of a session and maybe of a chat.
fn destination<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ChatMoveDestination, D::Error> {
    let destination = ChatMoveDestination::deserialize(deserializer)?;
    if let ChatMoveDestination::Session(place) = &destination {
        check(&place.session)?;
        place.after.as_deref().map_or(Ok(()), check)?;
    }
    Ok(destination)
}

/// Reads channel URIs. One that is too long cannot exist, and is omitted like any other
/// unknown channel.
fn channels<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Uri>, D::Error> {
    let mut uris = Option::<Vec<Uri>>::deserialize(deserializer)?.unwrap_or_default();
    uris.retain(|uri| uri.len() <= MAX_NAME);
    Ok(uris)
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InitializeParams {
    pub(crate) protocol_versions: Vec<String>,
    pub(crate) client_id: String,
    #[serde(default, deserialize_with = "channels")]
    pub(crate) initial_subscriptions: Vec<Uri>,
    #[serde(default)]
    pub(crate) client_info: Option<ClientInfo>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ClientInfo {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) version: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReconnectParams {
    pub(crate) client_id: String,
    #[serde(default)]
    pub(crate) last_seen_server_seq: u64,
    #[serde(default, deserialize_with = "channels")]
    pub(crate) subscriptions: Vec<Uri>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ChannelParams {
    #[serde(default = "root", deserialize_with = "channel")]
    pub(crate) channel: Uri,
}

#[derive(Debug, Deserialize)]
pub(crate) struct SubscribeParams {
    #[serde(default = "root", deserialize_with = "channel")]
    pub(crate) channel: Uri,
    #[serde(default)]
    pub(crate) delivery: Option<SubscriptionDeliveryOptions>,
    #[serde(default)]
    pub(crate) view: Option<View>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct View {
    #[serde(default)]
    pub(crate) turns: Option<usize>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct FetchTurnsParams {
    #[serde(deserialize_with = "channel")]
    pub(crate) channel: Uri,
    #[serde(default)]
    pub(crate) cursor: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DispatchActionParams {
    #[serde(default = "root", deserialize_with = "channel")]
    pub(crate) channel: Uri,
    #[serde(default)]
    pub(crate) client_seq: i64,
    pub(crate) action: Box<RawValue>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ListSessionsParams {
    #[serde(default)]
    pub(crate) limit: Option<u32>,
    #[serde(default)]
    pub(crate) cursor: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CreateSessionParams {
    #[serde(deserialize_with = "channel")]
    pub(crate) channel: Uri,
    #[serde(default)]
    pub(crate) provider: Option<String>,
    #[serde(default)]
    pub(crate) working_directories: Option<Vec<Uri>>,
    #[serde(default)]
    pub(crate) config: Option<JsonObject>,
    #[serde(default)]
    pub(crate) active_client: Option<SessionActiveClient>,
    #[serde(default)]
    pub(crate) progress_token: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ResolveSessionConfigParams {
    #[serde(default)]
    pub(crate) provider: Option<String>,
    #[serde(default)]
    pub(crate) config: Option<JsonObject>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CreateChatParams {
    #[serde(deserialize_with = "channel")]
    pub(crate) channel: Uri,
    #[serde(deserialize_with = "channel")]
    pub(crate) chat: Uri,
    #[serde(default)]
    pub(crate) initial_message: Option<Message>,
    #[serde(default, deserialize_with = "source")]
    pub(crate) source: Option<ChatSource>,
    #[serde(default)]
    pub(crate) working_directories: Option<Vec<Uri>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InvokeOperationParams {
    #[serde(deserialize_with = "channel")]
    pub(crate) channel: Uri,
    pub(crate) operation_id: String,
    #[serde(default)]
    pub(crate) target: Option<ChangesetOperationTarget>,
    #[serde(rename = "_meta", default)]
    pub(crate) meta: Option<JsonObject>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct MoveChatParams {
    #[serde(deserialize_with = "channel")]
    pub(crate) channel: Uri,
    #[serde(deserialize_with = "destination")]
    pub(crate) destination: ChatMoveDestination,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AuthenticateParams {
    pub(crate) resource: String,
    #[serde(deserialize_with = "secret")]
    pub(crate) token: SecretString,
    #[serde(default)]
    pub(crate) expires_in: Option<i64>,
    #[serde(default)]
    pub(crate) scopes: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct StopParams {
    #[serde(deserialize_with = "channel")]
    pub(crate) channel: Uri,
    /// Read by the handler, which knows a better error message.
    #[serde(default)]
    pub(crate) what: serde_json::Value,
}

#[derive(Debug, Deserialize)]
pub(crate) struct AuditParams {
    #[serde(default, deserialize_with = "optional_channel")]
    pub(crate) session: Option<Uri>,
    #[serde(default)]
    pub(crate) before: Option<String>,
    /// Signed, so that a negative number gets the same error as one that is too large.
    #[serde(default)]
    pub(crate) limit: Option<i64>,
}

fn secret<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SecretString, D::Error> {
    String::deserialize(deserializer).map(SecretString::from)
}
