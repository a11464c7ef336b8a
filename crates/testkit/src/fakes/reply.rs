//! What a fake answers.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::events::EventStream;

/// Lets pieces pass, as many as the test says.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Semaphore>);

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Gate {
    /// A gate that lets nothing pass yet.
    pub fn new() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    /// Lets so many more pieces pass.
    pub fn open(&self, pieces: usize) {
        self.0.add_permits(pieces);
    }

    /// Waits for a permit and uses it up.
    pub(super) async fn pass(&self) {
        // The gate is never closed; one that were would let everything pass.
        if let Ok(permit) = self.0.acquire().await {
            permit.forget();
        }
    }
}

/// How an answer ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ending {
    /// As it should.
    #[default]
    Whole,
    /// The connection is closed before the end of the body.
    Cut,
    /// The connection is reset.
    Reset,
    /// Nothing follows, and the connection stays open.
    Silence,
}

/// One answer.
#[derive(Clone, Debug)]
pub struct Reply {
    pub(super) kind: Kind,
    pub(super) gate: Option<Gate>,
    pub(super) ending: Ending,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// Status, headers and a body of known length.
    Whole(Head, Bytes),
    /// Status, headers and a body in pieces, each written by itself.
    Pieces(Head, Vec<Bytes>),
    /// These bytes instead of an answer.
    Raw(Bytes),
    /// Whatever another gateway answers.
    Relay { address: String, bearer: String },
}

#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
}

impl Reply {
    /// JSON with a status.
    pub fn json(status: u16, body: &Value) -> Self {
        Self::text(status, "application/json", body.to_string())
    }

    /// A text with a status and a content type.
    pub fn text(status: u16, kind: &str, body: impl Into<Bytes>) -> Self {
        Self::new(Kind::Whole(head(status, kind), body.into()))
    }

    /// A streamed answer, one piece for each event.
    pub fn events(stream: &EventStream) -> Self {
        Self::pieces(stream.events.iter().map(|event| Bytes::from(event.clone())))
    }

    /// A streamed answer in pieces of the test's choice.
    pub fn pieces(pieces: impl IntoIterator<Item = Bytes>) -> Self {
        Self::new(Kind::Pieces(head(200, "text/event-stream; charset=utf-8"), pieces.into_iter().collect()))
    }

    /// Bytes instead of an answer; none at all, and the connection just ends.
    pub fn raw(bytes: impl Into<Bytes>, ending: Ending) -> Self {
        Self { ending, ..Self::new(Kind::Raw(bytes.into())) }
    }

    /// Whatever the gateway at this address answers to this bearer.
    pub fn relay(base_url: &str, bearer: &str) -> Self {
        let address = base_url.trim_start_matches("http://").trim_end_matches('/').to_owned();
        Self::new(Kind::Relay { address, bearer: bearer.to_owned() })
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        if let Kind::Whole(head, _) | Kind::Pieces(head, _) = &mut self.kind {
            head.headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    /// Puts a gate before each piece, and before the answer if it is not in pieces.
    #[must_use]
    pub fn gated(mut self, gate: &Gate) -> Self {
        self.gate = Some(gate.clone());
        self
    }

    /// Says how it ends.
    #[must_use]
    pub fn ending(mut self, ending: Ending) -> Self {
        self.ending = ending;
        self
    }

    fn new(kind: Kind) -> Self {
        Self { kind, gate: None, ending: Ending::Whole }
    }
}

fn head(status: u16, kind: &str) -> Head {
    Head { status, headers: vec![("content-type".to_owned(), kind.to_owned())] }
}
