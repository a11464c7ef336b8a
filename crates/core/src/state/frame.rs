//! Messages that are encoded once and shared by everyone who gets them.
//!
//! An action that came from a client is spliced into its envelope as it came, so
//! that fields which our types do not know survive the echo, also where the host
//! completes it. An action of the host's
//! own that streams text or replaces a value is marked so that frames of its kind can
//! be merged; what comes from a client never is.

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

/// One encoded JSON-RPC message: UTF-8 text, cheap to clone.
#[derive(Clone, Debug)]
pub struct Frame {
    bytes: Bytes,
    /// How it can be merged with its neighbours.
    merge: Merge,
}

impl Frame {
    /// Encodes a message. Fails only if the value cannot be JSON (a map with
    /// keys that are not text), which our types rule out.
    pub fn encode(message: &impl Serialize) -> Result<Self, serde_json::Error> {
        Ok(Self::with_merge(serde_json::to_vec(message)?.into(), Merge::Never))
    }

    pub(super) fn with_merge(bytes: Bytes, merge: Merge) -> Self {
        Self { bytes, merge }
    }

    pub(super) fn merge(&self) -> &Merge {
        &self.merge
    }

    /// The same frame, which keeps `guard` until nobody needs its text any more.
    #[must_use]
    pub fn holding(self, guard: impl Send + 'static) -> Self {
        struct Held<G>(Bytes, G);
        impl<G> AsRef<[u8]> for Held<G> {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }
        Self::with_merge(Bytes::from_owner(Held(self.bytes, guard)), self.merge)
    }

    /// A frame of this size, quickly.
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

    /// Whether there is no text at all.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// An action envelope inside a frame: shares the frame's bytes, and goes into an
/// answer as it is.
#[derive(Clone, Debug)]
pub struct EncodedEnvelope(Bytes);

/// What comes before an envelope in a frame.
pub(super) const BEFORE_ENVELOPE: &str = r#"{"jsonrpc":"2.0","method":"action","params":"#;

impl EncodedEnvelope {
    /// The envelope in a frame made by [`envelope`].
    pub(super) fn of(frame: &Frame) -> Self {
        let end = frame.len().saturating_sub(1);
        Self(frame.bytes().slice(BEFORE_ENVELOPE.len().min(end)..end))
    }

    /// An envelope as it was stored.
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

/// A value that an action shall have: the object that it is for, as a JSON pointer, the
/// field in there, and the value.
pub(crate) type Amendment = (String, &'static str, Value);

/// An action together with its text: as it came, if it came from a client.
#[derive(Clone, Debug)]
pub struct Action {
    /// Shared with the observers that get the action.
    typed: Arc<StateAction>,
    /// Shared by the envelope and the journal; nothing if it cannot be JSON.
    encoded: Option<Json>,
}

impl Action {
    /// An action of the host's own.
    pub fn own(typed: StateAction) -> Self {
        let encoded = to_raw_value(&typed).ok().map(Json::from);
        Self { typed: Arc::new(typed), encoded }
    }

    /// An action as a client sent it.
    pub fn from_client(raw: Box<RawValue>) -> Result<Self, serde_json::Error> {
        let typed = Arc::new(serde_json::from_str(raw.get())?);
        Ok(Self { typed, encoded: Some(raw.into()) })
    }

    /// The same action with other values in some places, and everything else as it came.
    pub(crate) fn amended(&self, amendments: &[Amendment]) -> Result<Self, serde_json::Error> {
        let mut action: Value = serde_json::from_str(self.encoded()?.get())?;
        for (object, field, value) in amendments {
            if let Some(Value::Object(fields)) = action.pointer_mut(object) {
                fields.insert((*field).to_owned(), value.clone());
            }
        }
        Self::from_client(to_raw_value(&action)?)
    }

    /// What the action says.
    pub fn typed(&self) -> &StateAction {
        &self.typed
    }

    /// What the action says, to be kept without a copy.
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
            // To get the error again, since errors cannot be cloned.
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

/// Who dispatched an action, and over which connection the answer goes back.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The connection the dispatch came over.
    pub connection: ConnectionId,
    /// The client behind it.
    pub client: ClientId,
    /// The client's own number for the dispatch. Not unique.
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

/// Encodes an envelope around whatever is JSON for an action.
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
    fn an_envelope_is_cut_out_of_its_frame_without_copying() {
        let action = Action::own(StateAction::SessionReady(SessionReadyAction {}));
        let frame = envelope(&ChannelUri::new("x:/1"), &action, ServerSeq(7), None, None).unwrap();
        let inner = serde_json::to_value(EncodedEnvelope::of(&frame)).unwrap();
        let whole: serde_json::Value = serde_json::from_slice(frame.bytes()).unwrap();
        assert_eq!(inner, whole["params"]);
    }
}
