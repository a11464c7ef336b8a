//! Extracts usage, stop reason and errors from responses, and checks that a
//! stream ends properly.
//!
//! Pure and bounded: it parses one complete event at a time and keeps a few
//! numbers. It does not change events; it returns how to handle them.

use std::ops::Range;

use serde::Deserialize;
use serde_json::Number;
use serde_json::value::RawValue;

use crate::envelope::ErrorEnvelope;
use crate::head;
use crate::sse::EventFields;

/// The usage of one response so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) input_tokens: u64,
    pub(crate) output_tokens: u64,
    pub(crate) cache_creation_input_tokens: u64,
    pub(crate) cache_read_input_tokens: u64,
    /// Copilot credits in billionths; the last value counts.
    pub(crate) nano_aiu: Option<u64>,
    pub(crate) stop_reason: Option<String>,
}

/// How to handle an event.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum EventVerdict {
    /// A comment or an empty line, not an event.
    Nothing,
    /// Pass the event on.
    Pass,
    /// The message starts; the position of its model in the event.
    Start(Option<ModelPlace>),
    /// The message is complete.
    Stop,
    /// The upstream reports an error.
    Error(ErrorEnvelope),
    /// The event is invalid in a response.
    Broken(&'static str),
}

/// The position of the model id in an event or a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ModelPlace {
    pub(crate) model: String,
    /// The range of the value, including its quotes.
    pub(crate) span: Range<usize>,
}

/// Tracks one response.
#[derive(Debug, Default)]
pub(crate) struct Tap {
    reading: Reading,
    started: bool,
}

impl Tap {
    pub(crate) fn reading(&self) -> &Reading {
        &self.reading
    }

    /// Parses one complete event.
    pub(crate) fn read(&mut self, event: &[u8]) -> EventVerdict {
        let fields = EventFields::read(event);
        let Some(name) = fields.name else { return self.read_unnamed(event, &fields) };
        self.read_named(name, event, &fields)
    }

    fn read_named(&mut self, name: &[u8], event: &[u8], fields: &EventFields<'_>) -> EventVerdict {
        match name {
            b"content_block_delta" | b"content_block_start" | b"content_block_stop" | b"ping" => {
                EventVerdict::Pass
            }
            b"message_start" => self.start(event, fields),
            b"message_delta" => self.delta(fields),
            b"message_stop" => self.stop(fields),
            b"error" => EventVerdict::Error(ErrorEnvelope::read(&fields.data().unwrap_or_default())),
            _ => {
                self.look_for_credits(fields);
                EventVerdict::Pass
            }
        }
    }

    /// Handles an event without a name, by the `type` in its data. Some servers omit the name.
    fn read_unnamed(&mut self, event: &[u8], fields: &EventFields<'_>) -> EventVerdict {
        let Some(data) = fields.data() else { return EventVerdict::Nothing };
        match head::object::<EventType>(&data) {
            Some(kind) => self.read_named(kind.kind.as_bytes(), event, fields),
            None => EventVerdict::Pass,
        }
    }

    fn start(&mut self, event: &[u8], fields: &EventFields<'_>) -> EventVerdict {
        if self.started {
            return EventVerdict::Broken("second message_start");
        }
        let data = fields.data().unwrap_or_default();
        let Some(top) = parse(&data, "message_start") else {
            return EventVerdict::Broken("unparsable message_start");
        };
        let message: Option<MessageData<'_>> = top.message.and_then(|raw| head::object(raw.get().as_bytes()));
        let Some(message) = message else {
            return EventVerdict::Broken("message_start without message");
        };
        self.started = true;
        self.add_usage(message.usage);
        self.add_credits(top.copilot_usage.or(message.copilot_usage));
        let model = message.model.and_then(|raw| {
            let model = serde_json::from_str(raw.get()).ok()?;
            Some(ModelPlace { model, span: place_in(event, fields, &data, raw)? })
        });
        EventVerdict::Start(model)
    }

    fn delta(&mut self, fields: &EventFields<'_>) -> EventVerdict {
        let data = fields.data().unwrap_or_default();
        let Some(top) = parse(&data, "message_delta") else {
            return EventVerdict::Broken("unparsable message_delta");
        };
        self.add_usage(top.usage);
        self.add_credits(top.copilot_usage);
        let delta: Option<StopData> = top.delta.and_then(|raw| head::object(raw.get().as_bytes()));
        if let Some(reason) = delta.and_then(|delta| delta.stop_reason) {
            self.reading.stop_reason = Some(reason);
        }
        EventVerdict::Pass
    }

    fn stop(&mut self, fields: &EventFields<'_>) -> EventVerdict {
        let data = fields.data().unwrap_or_default();
        let Some(top) = parse(&data, "message_stop") else {
            return EventVerdict::Broken("unparsable message_stop");
        };
        if !self.started {
            return EventVerdict::Broken("message_stop before message_start");
        }
        self.add_credits(top.copilot_usage);
        EventVerdict::Stop
    }

    fn look_for_credits(&mut self, fields: &EventFields<'_>) {
        let data = fields.data().unwrap_or_default();
        if memchr::memmem::find(&data, b"copilot_usage").is_some()
            && let Some(top) = head::object::<EventData<'_>>(&data)
        {
            self.add_credits(top.copilot_usage);
        }
    }

    /// Parses a response that is not streamed; returns the position of its model.
    pub(crate) fn read_whole(&mut self, body: &[u8]) -> Option<ModelPlace> {
        let message: MessageData<'_> = head::object(body)?;
        self.add_usage(message.usage);
        self.add_credits(message.copilot_usage);
        self.reading.stop_reason = message.stop_reason.and_then(|raw| serde_json::from_str(raw.get()).ok());
        let raw = message.model?;
        Some(ModelPlace { model: serde_json::from_str(raw.get()).ok()?, span: head::span(body, raw) })
    }

    fn add_usage(&mut self, usage: Option<&RawValue>) {
        let usage: Option<UsageData> = usage.and_then(|raw| head::object(raw.get().as_bytes()));
        let Some(usage) = usage else { return };
        let reading = &mut self.reading;
        for (kept, new) in [
            (&mut reading.input_tokens, usage.input_tokens),
            (&mut reading.output_tokens, usage.output_tokens),
            (&mut reading.cache_creation_input_tokens, usage.cache_creation_input_tokens),
            (&mut reading.cache_read_input_tokens, usage.cache_read_input_tokens),
        ] {
            // The counts of later events include those of earlier ones.
            *kept = new.unwrap_or(*kept);
        }
    }

    fn add_credits(&mut self, usage: Option<&RawValue>) {
        let usage: Option<CopilotUsage> = usage.and_then(|raw| head::object(raw.get().as_bytes()));
        if let Some(credits) = usage.and_then(|usage| whole(&usage.total_nano_aiu)) {
            self.reading.nano_aiu = Some(credits);
        }
    }
}

fn parse<'a>(data: &'a [u8], kind: &str) -> Option<EventData<'a>> {
    let top: EventData<'a> = head::object(data)?;
    (top.kind.as_deref() == Some(kind)).then_some(top)
}

/// The range in the event of a value parsed from its joined data.
fn place_in(event: &[u8], fields: &EventFields<'_>, data: &[u8], value: &RawValue) -> Option<Range<usize>> {
    let Range { mut start, .. } = head::span(data, value);
    for line in fields.lines() {
        if start < line.len() {
            let start = start + (line.as_ptr() as usize).checked_sub(event.as_ptr() as usize)?;
            return Some(start..start + value.get().len());
        }
        start = start.checked_sub(line.len() + 1)?;
    }
    None
}

/// A count that may be written as a decimal fraction; `None` if it is negative
/// or not a finite number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be positive, and a cast from a float saturates"
)]
fn whole(number: &Number) -> Option<u64> {
    number.as_u64().or_else(|| {
        number.as_f64().filter(|value| value.is_finite() && *value >= 0.0).map(|value| value as u64)
    })
}

#[derive(Deserialize)]
struct EventType {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct EventData<'a> {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
    #[serde(borrow, default)]
    delta: Option<&'a RawValue>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    copilot_usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct MessageData<'a> {
    #[serde(borrow, default)]
    model: Option<&'a RawValue>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    stop_reason: Option<&'a RawValue>,
    #[serde(borrow, default)]
    copilot_usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct StopData {
    #[serde(default)]
    stop_reason: Option<String>,
}

#[derive(Deserialize)]
struct UsageData {
    #[serde(default)]
    input_tokens: Option<u64>,
    #[serde(default)]
    output_tokens: Option<u64>,
    #[serde(default)]
    cache_creation_input_tokens: Option<u64>,
    #[serde(default)]
    cache_read_input_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct CopilotUsage {
    total_nano_aiu: Number,
}

#[cfg(test)]
#[path = "tap_tests.rs"]
mod tests;
