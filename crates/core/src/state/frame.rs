//! Messages that are encoded once and shared by all recipients.
//!
//! A client's action is inserted into its envelope as raw JSON, so that fields unknown to
//! our types survive the echo, even if the host adds values. A host action that appends
//! text or replaces a value is marked as mergeable; an action from a client never is.

use std::sync::Arc;

use ahp_types::actions::StateAction;
use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::merge::{Merge, Replaced, Stream};
use crate::channel::ChannelUri;
use crate::ids::{ClientId, ConnectionId, ServerSeq};
use crate::storage::Json;

/// Unused memory that a frame may keep, to avoid copies of small frames.
const MAX_SLACK: usize = 4 * 1024;

/// One encoded JSON-RPC message: UTF-8 text, cheap to clone.
#[derive(Clone, Debug)]
pub struct Frame {
    bytes: Bytes,
    /// How the frame can be merged with adjacent frames.
    merge: Merge,
}

impl Frame {
    /// Encodes a message. Fails only if the value cannot be JSON (a map with non-string
    /// keys), which our types rule out.
    pub fn encode(message: &impl Serialize) -> Result<Self, serde_json::Error> {
        let mut text = serde_json::to_vec(message)?;
        // The encoder doubles its buffer, and a frame may be queued for long.
        if text.capacity() - text.len() > MAX_SLACK {
            text.shrink_to_fit();
        }
        Ok(Self::with_merge(text.into(), Merge::Never))
    }

    pub(super) fn with_merge(bytes: Bytes, merge: Merge) -> Self {
        Self { bytes, merge }
    }

    pub(super) fn merge(&self) -> &Merge {
        &self.merge
    }

    /// Attaches `guard` to the frame. It is dropped with the last reference to the
    /// frame's text.
    #[must_use]
    pub fn holding(self, guard: impl Send + 'static) -> Self {
        struct GuardedBytes<G>(Bytes, G);
        impl<G> AsRef<[u8]> for GuardedBytes<G> {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }
        Self::with_merge(Bytes::from_owner(GuardedBytes(self.bytes, guard)), self.merge)
    }

    /// A frame of this size, without encoding.
    #[cfg(test)]
    pub(super) fn of_size(size: usize) -> Self {
        Self::with_merge(vec![b' '; size].into(), Merge::Never)
    }

    /// The encoded text.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Size of the encoded text.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether the frame is empty.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// An action envelope inside a frame. Shares the frame's bytes and can be embedded in a
/// response.
#[derive(Clone, Debug)]
pub struct EncodedEnvelope(Bytes);

/// The part of a frame before its envelope.
pub(super) const BEFORE_ENVELOPE: &str = r#"{"jsonrpc":"2.0","method":"action","params":"#;

impl EncodedEnvelope {
    /// The envelope in a frame created by [`envelope`].
    pub(super) fn of(frame: &Frame) -> Self {
        let end = frame.len().saturating_sub(1);
        Self(frame.bytes().slice(BEFORE_ENVELOPE.len().min(end)..end))
    }

    /// Restores an envelope from storage.
    pub(super) fn restore(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// The encoded text.
    pub(super) fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// Size of the encoded text.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl Serialize for EncodedEnvelope {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = std::str::from_utf8(&self.0).map_err(serde::ser::Error::custom)?;
        let raw: &RawValue = serde_json::from_str(text).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

/// A value to set in an action: the object as a JSON pointer, the field, and the value.
pub(crate) type Amendment = (String, &'static str, Value);

/// An action with its JSON text, which for a client's action is the text as received.
#[derive(Clone, Debug)]
pub struct Action {
    /// Shared with the observers of the action.
    typed: Arc<StateAction>,
    /// Shared by the envelope and the journal; `None` if the action cannot be encoded.
    encoded: Option<Json>,
}

impl Action {
    /// Wraps an action created by the host.
    pub fn own(typed: StateAction) -> Self {
        let encoded = to_raw_value(&typed).ok().map(Json::from);
        Self { typed: Arc::new(typed), encoded }
    }

    /// Decodes an action received from a client.
    pub fn from_client(raw: Box<RawValue>) -> Result<Self, serde_json::Error> {
        let typed = Arc::new(serde_json::from_str(raw.get())?);
        Ok(Self { typed, encoded: Some(raw.into()) })
    }

    /// Returns a copy with some values replaced and the rest of the text unchanged.
    pub(crate) fn amended(&self, amendments: &[Amendment]) -> Result<Self, serde_json::Error> {
        let mut action: Value = serde_json::from_str(self.encoded()?.get())?;
        for (object, field, value) in amendments {
            if let Some(Value::Object(fields)) = action.pointer_mut(object) {
                fields.insert((*field).to_owned(), value.clone());
            }
        }
        Self::from_client(to_raw_value(&action)?)
    }

    /// The decoded action.
    pub fn typed(&self) -> &StateAction {
        &self.typed
    }

    /// The decoded action as a shared reference.
    pub(super) fn shared(&self) -> &Arc<StateAction> {
        &self.typed
    }

    /// Size of the action as JSON.
    pub(super) fn encoded_len(&self) -> usize {
        self.encoded.as_ref().map_or(0, |encoded| encoded.get().len())
    }

    /// The action as JSON.
    pub(crate) fn encoded(&self) -> Result<Json, serde_json::Error> {
        match &self.encoded {
            Some(encoded) => Ok(encoded.clone()),
            // Encode again to return the error, since errors cannot be cloned.
            None => to_raw_value(self.typed()).map(Json::from),
        }
    }
}

impl Serialize for Action {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.encoded {
            Some(encoded) => encoded.serialize(serializer),
            None => self.typed().serialize(serializer),
        }
    }
}

/// The client and connection that dispatched an action.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The connection that the dispatch was received on.
    pub connection: ConnectionId,
    /// The client on that connection.
    pub client: ClientId,
    /// The client's own number of the dispatch. Not unique.
    pub client_seq: i64,
}

/// Encodes an action envelope.
pub(super) fn envelope(
    channel: &ChannelUri,
    action: &Action,
    seq: ServerSeq,
    origin: Option<&Origin>,
    rejection_reason: Option<&str>,
) -> Result<Frame, serde_json::Error> {
    let own = origin.is_none() && rejection_reason.is_none();
    if own && let Some(stream) = Stream::of(action.typed()) {
        return stream.encode(channel, seq);
    }
    let mut frame = raw_envelope(channel, action, seq, origin, rejection_reason)?;
    if own && let Some(replaced) = Replaced::by(channel, action.typed()) {
        frame.merge = Merge::Replace(replaced.into());
    }
    Ok(frame)
}

/// Encodes an envelope around any value that serializes as an action.
pub(super) fn raw_envelope(
    channel: &ChannelUri,
    action: &impl Serialize,
    seq: ServerSeq,
    origin: Option<&Origin>,
    rejection_reason: Option<&str>,
) -> Result<Frame, serde_json::Error> {
    Frame::encode(&Notification {
        jsonrpc: "2.0",
        method: "action",
        params: Envelope {
            channel: channel.as_str(),
            action,
            server_seq: seq.0,
            origin: origin.map(|origin| OriginFields {
                client_id: origin.client.as_str(),
                client_seq: origin.client_seq,
            }),
            rejection_reason,
        },
    })
}

/// Encodes a JSON-RPC notification.
pub fn notification(method: &str, params: &impl Serialize) -> Result<Frame, serde_json::Error> {
    Frame::encode(&Notification { jsonrpc: "2.0", method, params })
}

#[derive(Serialize)]
struct Notification<'a, P> {
    jsonrpc: &'static str,
    method: &'a str,
    params: P,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a, A> {
    channel: &'a str,
    action: &'a A,
    server_seq: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<OriginFields<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rejection_reason: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OriginFields<'a> {
    client_id: &'a str,
    client_seq: i64,
}

#[cfg(test)]
mod tests {
    use ahp_types::actions::SessionReadyAction;

    use super::*;

    #[test]
    fn envelope_is_sliced_from_frame_without_copying() {
        let action = Action::own(StateAction::SessionReady(SessionReadyAction {}));
        let frame = envelope(&ChannelUri::new("x:/1"), &action, ServerSeq(7), None, None).unwrap();
        let inner = serde_json::to_value(EncodedEnvelope::of(&frame)).unwrap();
        let whole: serde_json::Value = serde_json::from_slice(frame.bytes()).unwrap();
        assert_eq!(inner, whole["params"]);
    }
}
