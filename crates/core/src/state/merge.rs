//! Merges queued frames when the result is equivalent for the client.
//!
//! Only adjacent frames are merged, and the merged frame keeps the later sequence number.
//! If a frame of another channel were between them, a client that disconnects right after
//! that frame would reconnect with a sequence number that covers text it never received.
//! Two kinds of frames are never merged: an action with an origin, because its sender
//! waits for the echo, and a frame that is not an action, because it may contain a
//! snapshot.

use std::mem::{Discriminant, discriminant};
use std::sync::Arc;

use ahp_types::actions::StateAction;
use bytes::Bytes;

use super::frame::{BEFORE_ENVELOPE, Frame};
use crate::action::{Merging, TextDelta, meaning};
use crate::channel::ChannelUri;
use crate::ids::ServerSeq;

/// Size from which a frame does not accept more text. Bounds the cost of copying for a
/// client that is far behind.
const MAX_MERGED: usize = 64 * 1024;

/// Space for the fixed text of an envelope and a sequence number.
const ENVELOPE_WORDS: usize = 192;

/// How a frame can be merged with the next one.
#[derive(Clone, Debug)]
pub(super) enum Merge {
    /// Never merged.
    Never,
    /// The texts are concatenated.
    Append(Text),
    /// The later frame replaces the earlier one.
    Replace(Arc<Replaced>),
}

/// The byte range of the streamed text in a frame, as JSON without its quotes.
///
/// The bytes before it contain the channel, action type, turn and part, so two frames
/// that are equal up to there append to the same part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text {
    start: usize,
    end: usize,
}

/// The value that an action replaces. Actions with equal keys replace each other.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Replaced {
    channel: ChannelUri,
    action: Discriminant<StateAction>,
    turn: Option<String>,
}

impl Replaced {
    /// Returns the replaced value, if the action does nothing else.
    pub(super) fn by(channel: &ChannelUri, action: &StateAction) -> Option<Self> {
        let Merging::Replace { turn } = meaning(action).merging else { return None };
        Some(Self { channel: channel.clone(), action: discriminant(action), turn: turn.map(str::to_owned) })
    }
}

/// An action that appends text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream<'a>(TextDelta<'a>);

impl<'a> Stream<'a> {
    /// Returns the action's fields, if it appends text and does nothing else.
    pub(super) fn of(action: &'a StateAction) -> Option<Self> {
        let Merging::Append(delta) = meaning(action).merging else { return None };
        Some(Self(delta))
    }

    /// Encodes the action's envelope. Written by hand to know the position of the text;
    /// it is also the most frequent operation of a busy host.
    pub(super) fn encode(self, channel: &ChannelUri, seq: ServerSeq) -> Result<Frame, serde_json::Error> {
        let TextDelta { kind, turn, target_field, target, content } = self.0;
        let names = channel.as_str().len() + turn.len() + target.len();
        let mut json = Vec::with_capacity(ENVELOPE_WORDS + names + content.len());
        json.extend_from_slice(BEFORE_ENVELOPE.as_bytes());
        json.extend_from_slice(br#"{"channel":"#);
        serde_json::to_writer(&mut json, channel.as_str())?;
        json.extend_from_slice(br#","action":{"type":""#);
        json.extend_from_slice(kind.as_bytes());
        json.extend_from_slice(br#"","turnId":"#);
        serde_json::to_writer(&mut json, turn)?;
        json.extend_from_slice(br#",""#);
        json.extend_from_slice(target_field.as_bytes());
        json.extend_from_slice(br#"":"#);
        serde_json::to_writer(&mut json, target)?;
        json.extend_from_slice(br#","content":"#);
        let start = json.len() + 1;
        serde_json::to_writer(&mut json, content)?;
        let end = json.len() - 1;
        json.extend_from_slice(br#"},"serverSeq":"#);
        serde_json::to_writer(&mut json, &seq.0)?;
        json.extend_from_slice(b"}}");
        Ok(Frame::with_merge(json.into(), Merge::Append(Text { start, end })))
    }
}

/// Merges adjacent frames, starting at index `from`.
pub(super) fn coalesce(frames: &mut Vec<Frame>, from: usize) {
    let mut rest = frames.split_off(from.min(frames.len())).into_iter();
    let Some(mut first) = rest.next() else { return };
    // The frames that will be merged into `first`, all of one kind.
    let mut run: Vec<Frame> = Vec::new();
    let mut size = first.len();
    for frame in rest {
        let last = run.last().unwrap_or(&first);
        match (last.merge(), frame.merge()) {
            (Merge::Replace(old), Merge::Replace(new)) if old == new => {
                first = frame;
                continue;
            }
            (Merge::Append(_), Merge::Append(text)) if size < MAX_MERGED && head(last) == head(&frame) => {
                size += text.end - text.start;
                run.push(frame);
                continue;
            }
            _ => {}
        }
        size = frame.len();
        frames.push(joined(std::mem::replace(&mut first, frame), &run));
        run.clear();
    }
    frames.push(joined(first, &run));
}

/// The bytes before a frame's text, which identify its target.
fn head(frame: &Frame) -> Option<&[u8]> {
    match frame.merge() {
        Merge::Append(text) => frame.bytes().get(..text.start),
        Merge::Never | Merge::Replace(_) => None,
    }
}

/// Merges frames into one: the start of the first, all texts, and the end of the last.
fn joined(first: Frame, run: &[Frame]) -> Frame {
    let joined = run.last().and_then(|last| {
        let (Merge::Append(begin), Merge::Append(end)) = (first.merge(), last.merge()) else { return None };
        let more: usize = run.iter().map(|frame| text(frame).map_or(0, <[u8]>::len)).sum();
        let mut json = Vec::with_capacity(first.len() + more + ENVELOPE_WORDS);
        json.extend_from_slice(first.bytes().get(..begin.end)?);
        for frame in run {
            json.extend_from_slice(text(frame)?);
        }
        let whole = Text { start: begin.start, end: json.len() };
        json.extend_from_slice(last.bytes().get(end.end..)?);
        Some(Frame::with_merge(Bytes::from(json), Merge::Append(whole)))
    });
    joined.unwrap_or(first)
}

fn text(frame: &Frame) -> Option<&[u8]> {
    match frame.merge() {
        Merge::Append(text) => frame.bytes().get(text.start..text.end),
        Merge::Never | Merge::Replace(_) => None,
    }
}

#[cfg(test)]
#[path = "merge_tests.rs"]
mod tests;
