//! Relays the bytes of one streamed response from upstream to client.
//!
//! Pure: chunks go in, chunks come out, no I/O. Only complete events come out,
//! so that an interrupted stream can still be ended with an `error` event.
//! Complete events of one input chunk stay one chunk and are not copied. The
//! output bytes do not depend on how the input is split. A stream ends with
//! the upstream's `message_stop` or with exactly one `error` event, never both.

use std::collections::VecDeque;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use secrecy::SecretString;

use crate::envelope::{self, ErrorEnvelope};
use crate::error::ApiError;
use crate::head;
use crate::sse::{EventFields, EventScanner};
use crate::tap::{EventVerdict, ModelPlace, Reading, Tap};

/// Largest event. An event contains some text or at most a tool result. An
/// incomplete event is buffered, so this bounds the memory of a stream; a
/// larger event ends the stream with an error.
const MAX_EVENT: usize = 8 * 1024 * 1024;

/// Translates a model id for the client; `None` leaves it unchanged.
pub(crate) type NameModel = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The settings of a relay for its request.
#[derive(Clone, Default)]
pub(crate) struct RelayOptions {
    pub(crate) request_id: String,
    pub(crate) name_model: Option<NameModel>,
    /// The credential, which must not reach the client even if the upstream repeats it.
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
    /// With `message_stop`.
    Complete,
    /// With an error; `object` is the error object for the client.
    Failed { error: ApiError, object: Bytes },
}

/// The state of one stream.
#[derive(Debug)]
pub(crate) struct Relay {
    options: RelayOptions,
    scanner: EventScanner,
    /// The start of an incomplete event.
    held: BytesMut,
    tap: Tap,
    /// Chunks for the client. Bounded by the number of changed events in one
    /// input chunk: no further input is taken before this is empty.
    out: VecDeque<Bytes>,
    /// Whether any event was seen.
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

    /// Adds a chunk from the upstream.
    pub(crate) fn push(&mut self, chunk: &Bytes) {
        if self.closing.is_some() {
            return;
        }
        let (mut begin, mut sent) = (0, 0);
        while let Some(length) = self.scanner.next_end(chunk.get(begin..).unwrap_or_default()) {
            let end = begin + length;
            let placed = if self.held.is_empty() {
                self.place(chunk, &mut sent, begin, end)
            } else {
                self.held.extend_from_slice(chunk.get(begin..end).unwrap_or_default());
                sent = end;
                self.release()
            };
            if placed.is_break() {
                return;
            }
            begin = end;
        }
        self.send(chunk, sent, begin);
        self.held.extend_from_slice(chunk.get(begin..).unwrap_or_default());
        if self.held.len() > MAX_EVENT {
            self.fail(too_large());
        }
    }

    /// Ends the stream; `cause` is the error if the upstream failed.
    pub(crate) fn end(&mut self, cause: Option<ApiError>) {
        if self.closing.is_none() && cause.is_none() && self.scanner.ends_event() && self.release().is_break()
        {
            return;
        }
        self.fail(cause.unwrap_or_else(|| {
            ApiError::bad_gateway("the upstream's response ended early; send the request again")
        }));
    }

    /// The next chunk for the client.
    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        self.out.pop_front()
    }

    /// How many chunks are queued for the client.
    pub(crate) fn waiting(&self) -> usize {
        self.out.len()
    }

    /// Whether an event was seen, so that the response status is decided.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun
    }

    /// How the stream ended, if it has.
    pub(crate) fn closing(&self) -> Option<&Closing> {
        self.closing.as_ref()
    }

    pub(crate) fn reading(&self) -> &Reading {
        self.tap.reading()
    }

    /// Processes an event that arrived in several chunks.
    fn release(&mut self) -> ControlFlow<()> {
        let event = self.held.split().freeze();
        // Frees the memory of a large event.
        self.held = BytesMut::new();
        let mut sent = 0;
        self.place(&event, &mut sent, 0, event.len())?;
        self.send(&event, sent, event.len());
        ControlFlow::Continue(())
    }

    /// Processes the event at `begin..end` of a chunk; the bytes before `sent`
    /// are already processed.
    fn place(&mut self, chunk: &Bytes, sent: &mut usize, begin: usize, end: usize) -> ControlFlow<()> {
        let event = chunk.get(begin..end).unwrap_or_default();
        let verdict = if event.len() > MAX_EVENT { None } else { Some(self.tap.read(event)) };
        self.begun |= !matches!(
            verdict,
            None | Some(EventVerdict::Nothing | EventVerdict::Error(_) | EventVerdict::Broken(_))
        );
        match verdict {
            Some(EventVerdict::Nothing | EventVerdict::Pass | EventVerdict::Start(None)) => {
                ControlFlow::Continue(())
            }
            Some(EventVerdict::Start(Some(place))) => {
                self.rename(chunk, sent, begin, &place);
                ControlFlow::Continue(())
            }
            Some(EventVerdict::Stop) => {
                self.send(chunk, *sent, end);
                self.closing = Some(Closing::Complete);
                ControlFlow::Break(())
            }
            Some(EventVerdict::Error(envelope)) => {
                self.send(chunk, *sent, begin);
                self.pass_error(&chunk.slice(begin..end), envelope);
                ControlFlow::Break(())
            }
            Some(EventVerdict::Broken(what)) => {
                self.send(chunk, *sent, begin);
                self.fail(ApiError::bad_gateway(format!("invalid upstream response: {what}")));
                ControlFlow::Break(())
            }
            None => {
                self.send(chunk, *sent, begin);
                self.fail(too_large());
                ControlFlow::Break(())
            }
        }
    }

    fn rename(&mut self, chunk: &Bytes, sent: &mut usize, begin: usize, place: &ModelPlace) {
        let Some(name) = self.options.name_model.as_ref().and_then(|name| name(&place.model)) else { return };
        self.send(chunk, *sent, begin + place.span.start);
        self.out.push_back(head::quoted(&name).into());
        *sent = begin + place.span.end;
    }

    /// Passes on an `error` event of the upstream. Rewrites it if it is not an
    /// Anthropic error object or contains the credential.
    fn pass_error(&mut self, event: &Bytes, envelope: ErrorEnvelope) {
        let kind = envelope.kind.unwrap_or_else(|| "api_error".to_owned());
        let message = envelope.message.unwrap_or_else(|| "the upstream reported an error".to_owned());
        let secret = self.options.secret.as_ref();
        let error = ApiError::bad_gateway(envelope::scrub(&message, secret)).with_kind(kind);
        if !envelope.conforms || envelope::reveals(event, secret) {
            return self.fail(error);
        }
        let object = EventFields::read(event).data().unwrap_or_default().into_owned().into();
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

    fn send(&mut self, chunk: &Bytes, from: usize, to: usize) {
        if from < to && to <= chunk.len() {
            self.out.push_back(chunk.slice(from..to));
        }
    }
}

fn too_large() -> ApiError {
    ApiError::bad_gateway(format!("the upstream sent an event larger than {} MiB", MAX_EVENT / (1024 * 1024)))
}

#[cfg(test)]
#[path = "relay_tests.rs"]
mod tests;
