//! Scripted replies of a fake server.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::events::EventStream;

/// Delays the pieces of a reply until the test releases them.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Semaphore>);

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Gate {
    /// Creates a closed gate.
    pub fn new() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    /// Releases this many more pieces.
    pub fn open(&self, pieces: usize) {
        self.0.add_permits(pieces);
    }

    /// Waits for a permit and consumes it.
    pub(super) async fn pass(&self) {
        // The semaphore is never closed, so acquiring cannot fail.
        if let Ok(permit) = self.0.acquire().await {
            permit.forget();
        }
    }
}

/// How a reply ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ending {
    /// The reply is complete.
    #[default]
    Whole,
    /// The connection is closed before the end of the body.
    Cut,
    /// The connection is reset.
    Reset,
    /// The reply stops and the connection stays open.
    Silence,
}

/// One reply.
#[derive(Clone, Debug)]
pub struct Reply {
    pub(super) kind: ReplyBody,
    pub(super) gate: Option<Gate>,
    pub(super) ending: Ending,
}

#[derive(Clone, Debug)]
pub(super) enum ReplyBody {
    /// Status, headers and a body of known length.
    Whole(Head, Bytes),
    /// Status, headers and a chunked body; each piece is written separately.
    Pieces(Head, Vec<Bytes>),
    /// Raw bytes instead of an HTTP response.
    Raw(Bytes),
    /// The response of another gateway.
    Relay { address: String, bearer: String },
}

#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
}

impl Reply {
    /// A JSON reply.
    pub fn json(status: u16, body: &Value) -> Self {
        Self::text(status, "application/json", body.to_string())
    }

    /// A text reply with a content type.
    pub fn text(status: u16, kind: &str, body: impl Into<Bytes>) -> Self {
        Self::new(ReplyBody::Whole(head(status, kind), body.into()))
    }

    /// A streamed reply, one piece per event.
    pub fn events(stream: &EventStream) -> Self {
        Self::pieces(stream.events.iter().map(|event| Bytes::from(event.clone())))
    }

    /// A streamed reply in these pieces.
    pub fn pieces(pieces: impl IntoIterator<Item = Bytes>) -> Self {
        Self::new(ReplyBody::Pieces(
            head(200, "text/event-stream; charset=utf-8"),
            pieces.into_iter().collect(),
        ))
    }

    /// Raw bytes instead of an HTTP response. With no bytes the connection ends without a
    /// response.
    pub fn raw(bytes: impl Into<Bytes>, ending: Ending) -> Self {
        Self { ending, ..Self::new(ReplyBody::Raw(bytes.into())) }
    }

    /// Relays the response of the gateway at `base_url` to `bearer`.
    pub fn relay(base_url: &str, bearer: &str) -> Self {
        let address = base_url.trim_start_matches("http://").trim_end_matches('/').to_owned();
        Self::new(ReplyBody::Relay { address, bearer: bearer.to_owned() })
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        if let ReplyBody::Whole(head, _) | ReplyBody::Pieces(head, _) = &mut self.kind {
            head.headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    /// Waits for the gate before each piece, or before the whole reply if it has no
    /// pieces.
    #[must_use]
    pub fn gated(mut self, gate: &Gate) -> Self {
        self.gate = Some(gate.clone());
        self
    }

    /// Sets how the reply ends.
    #[must_use]
    pub fn ending(mut self, ending: Ending) -> Self {
        self.ending = ending;
        self
    }

    fn new(kind: ReplyBody) -> Self {
        Self { kind, gate: None, ending: Ending::Whole }
    }
}

fn head(status: u16, kind: &str) -> Head {
    Head { status, headers: vec![("content-type".to_owned(), kind.to_owned())] }
}
