//! The bytes of one streamed answer on their way from upstream to client.
//!
//! Pure: pieces go in, pieces come out, no I/O. Only whole events come out,
//! so that a stream that breaks off can still be ended properly; within one
//! piece they stay one piece, uncopied. However the pieces are cut, the same
//! bytes come out. A stream ends in the upstream's `message_stop` or in
//! exactly one `error` event, never in both.

use std::collections::VecDeque;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use secrecy::SecretString;

use crate::envelope::{self, Envelope};
use crate::error::ApiError;
use crate::head;
use crate::sse::{EventScanner, Fields};
use crate::tap::{ModelPlace, Reading, Tap, Verdict};

/// The largest event. One holds a piece of text or at most a tool's result;
/// as a part of one is held back until it is whole, this bounds the memory of
/// a stream. A larger one ends the stream in an error.
const MAX_EVENT: usize = 8 * 1024 * 1024;

/// How models are named towards the client; nothing leaves a name as it is.
pub(crate) type NameModel = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// What a relay needs to know about its request.
#[derive(Clone, Default)]
pub(crate) struct RelayOptions {
    pub(crate) request_id: String,
    pub(crate) name_model: Option<NameModel>,
    /// What must not get out, even if the upstream repeats it.
    pub(crate) secret: Option<SecretString>,
}

impl fmt::Debug for RelayOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("RelayOptions").field("request_id", &self.request_id).finish_non_exhaustive()
    }
}

/// How a stream ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    /// In its `message_stop`.
    Complete,
    /// In an error; its object as the client gets it.
    Failed { error: ApiError, object: Bytes },
}

/// One stream.
#[derive(Debug)]
pub(crate) struct Relay {
    options: RelayOptions,
    scanner: EventScanner,
    /// The beginning of an event that is not whole yet.
    held: BytesMut,
    tap: Tap,
    /// Pieces for the client. As many as one piece from upstream holds
    /// events to be changed, at most; no more is taken in before it is empty.
    out: VecDeque<Bytes>,
    /// Whether there was any event.
    begun: bool,
    closing: Option<Closing>,
}

impl Relay {
    pub(crate) fn new(options: RelayOptions) -> Self {
        Self {
            options,
            scanner: EventScanner::default(),
            held: BytesMut::new(),
            tap: Tap::default(),
            out: VecDeque::new(),
            begun: false,
            closing: None,
        }
    }

    /// Takes in what came from upstream.
    pub(crate) fn push(&mut self, piece: &Bytes) {
        if self.closing.is_some() {
            return;
        }
        let (mut begin, mut sent) = (0, 0);
        while let Some(length) = self.scanner.next_end(piece.get(begin..).unwrap_or_default()) {
            let end = begin + length;
            let placed = if self.held.is_empty() {
                self.place(piece, &mut sent, begin, end)
            } else {
                self.held.extend_from_slice(piece.get(begin..end).unwrap_or_default());
                sent = end;
                self.release()
            };
            if placed.is_break() {
                return;
            }
            begin = end;
        }
        self.send(piece, sent, begin);
        self.held.extend_from_slice(piece.get(begin..).unwrap_or_default());
        if self.held.len() > MAX_EVENT {
            self.fail(too_large());
        }
    }

    /// The upstream's stream is over, well or not.
    pub(crate) fn end(&mut self, cause: Option<ApiError>) {
        if self.closing.is_none() && cause.is_none() && self.scanner.ends_event() && self.release().is_break()
        {
            return;
        }
        self.fail(cause.unwrap_or_else(|| {
            ApiError::bad_gateway("the upstream's answer broke off before its end; send the request again")
        }));
    }

    /// The next piece for the client.
    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        self.out.pop_front()
    }

    /// How many pieces wait for the client.
    pub(crate) fn waiting(&self) -> usize {
        self.out.len()
    }

    /// Whether there was an event, so that the answer's status is decided.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun
    }

    /// How the stream ended, if it did.
    pub(crate) fn closing(&self) -> Option<&Closing> {
        self.closing.as_ref()
    }

    pub(crate) fn reading(&self) -> &Reading {
        self.tap.reading()
    }

    /// Decides about an event that came in several pieces.
    fn release(&mut self) -> ControlFlow<()> {
        let event = self.held.split().freeze();
        // What a large event took is not kept for the rest of the stream.
        self.held = BytesMut::new();
        let mut sent = 0;
        self.place(&event, &mut sent, 0, event.len())?;
        self.send(&event, sent, event.len());
        ControlFlow::Continue(())
    }

    /// Decides about the event at `begin..end` of a piece, of which
    /// everything up to `sent` was dealt with.
    fn place(&mut self, piece: &Bytes, sent: &mut usize, begin: usize, end: usize) -> ControlFlow<()> {
        let event = piece.get(begin..end).unwrap_or_default();
        let verdict = if event.len() > MAX_EVENT { None } else { Some(self.tap.read(event)) };
        self.begun |=
            !matches!(verdict, None | Some(Verdict::Nothing | Verdict::Error(_) | Verdict::Broken(_)));
        match verdict {
            Some(Verdict::Nothing | Verdict::Pass | Verdict::Start(None)) => ControlFlow::Continue(()),
            Some(Verdict::Start(Some(place))) => {
                self.rename(piece, sent, begin, &place);
                ControlFlow::Continue(())
            }
            Some(Verdict::Stop) => {
                self.send(piece, *sent, end);
                self.closing = Some(Closing::Complete);
                ControlFlow::Break(())
            }
            Some(Verdict::Error(envelope)) => {
                self.send(piece, *sent, begin);
                self.pass_error(&piece.slice(begin..end), envelope);
                ControlFlow::Break(())
            }
            Some(Verdict::Broken(what)) => {
                self.send(piece, *sent, begin);
                self.fail(ApiError::bad_gateway(format!("the upstream's answer has {what}")));
                ControlFlow::Break(())
            }
            None => {
                self.send(piece, *sent, begin);
                self.fail(too_large());
                ControlFlow::Break(())
            }
        }
    }

    fn rename(&mut self, piece: &Bytes, sent: &mut usize, begin: usize, place: &ModelPlace) {
        let Some(name) = self.options.name_model.as_ref().and_then(|name| name(&place.model)) else { return };
        self.send(piece, *sent, begin + place.span.start);
        self.out.push_back(head::quoted(&name).into());
        *sent = begin + place.span.end;
    }

    /// Passes on an error of the upstream's; spelled anew if clients would not
    /// understand it, or if it repeats the credential.
    fn pass_error(&mut self, event: &Bytes, envelope: Envelope) {
        let kind = envelope.kind.unwrap_or_else(|| "api_error".to_owned());
        let message = envelope.message.unwrap_or_else(|| "the upstream reported an error".to_owned());
        let secret = self.options.secret.as_ref();
        let error = ApiError::bad_gateway(envelope::scrub(&message, secret)).with_kind(kind);
        if !envelope.conforms || envelope::reveals(event, secret) {
            return self.fail(error);
        }
        let object = Fields::read(event).data().unwrap_or_default().into_owned().into();
        self.out.push_back(event.clone());
        self.closing = Some(Closing::Failed { error, object });
    }

    fn fail(&mut self, error: ApiError) {
        if self.closing.is_some() {
            return;
        }
        self.held = BytesMut::new();
        let object = error.body(&self.options.request_id);
        self.out.push_back(error.event(&self.options.request_id));
        self.closing = Some(Closing::Failed { error, object });
    }

    fn send(&mut self, piece: &Bytes, from: usize, to: usize) {
        if from < to && to <= piece.len() {
            self.out.push_back(piece.slice(from..to));
        }
    }
}

fn too_large() -> ApiError {
    ApiError::bad_gateway(format!(
        "an event of the upstream's answer is larger than {} MiB",
        MAX_EVENT / (1024 * 1024)
    ))
}

#[cfg(test)]
#[path = "relay_tests.rs"]
mod tests;
