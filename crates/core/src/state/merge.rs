//! Which frames can become one without anybody noticing, and how.
//!
//! Only neighbours are merged, and the later one's sequence number stays. Were a frame
//! of another channel between them, a client that lost its connection right behind that
//! frame would come back with a number that covers text which it never got. What has an
//! origin is an echo that its sender counts on, and what is no action may hold a
//! snapshot: neither is ever merged.

use std::mem::{Discriminant, discriminant};
use std::sync::Arc;

use ahp_types::actions::StateAction;
use bytes::Bytes;

use super::frame::{BEFORE_ENVELOPE, Frame};
use crate::action::{Merging, TextDelta, meaning};
use crate::channel::ChannelUri;
use crate::ids::ServerSeq;

/// Size from which a frame takes in no more text, so that a client which is far behind
/// costs its share of copying and not more with every frame.
const MAX_MERGED: usize = 64 * 1024;

/// Room for the fixed words of a text envelope and a sequence number.
const ENVELOPE_WORDS: usize = 192;

/// How a frame can be merged with its neighbour.
#[derive(Clone, Debug)]
pub(super) enum Merge {
    /// Not at all.
    Never,
    /// Their texts are put together.
    Append(Text),
    /// The later one says all that counts.
    Replace(Arc<Replaced>),
}

/// Where the streamed text is in a frame, as JSON without its quotes.
///
/// Everything before it names the channel, the kind of action, the turn and the part, so
/// that two frames which are equal up to there stream into the same part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text {
    start: usize,
    end: usize,
}

/// What an action replaces as a whole: two equal values replace each other.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Replaced {
    channel: ChannelUri,
    action: Discriminant<StateAction>,
    turn: Option<String>,
}

impl Replaced {
    /// What the action replaces, if that is all that it does.
    pub(super) fn by(channel: &ChannelUri, action: &StateAction) -> Option<Self> {
        let Merging::Replace { turn } = meaning(action).merging else { return None };
        Some(Self { channel: channel.clone(), action: discriminant(action), turn: turn.map(str::to_owned) })
    }
}

/// An action that adds text to something, in its parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream<'a>(TextDelta<'a>);

impl<'a> Stream<'a> {
    /// The action, if it adds text and does nothing else.
    pub(super) fn of(action: &'a StateAction) -> Option<Self> {
        let Merging::Append(delta) = meaning(action).merging else { return None };
        Some(Self(delta))
    }

    /// Encodes the action's envelope. By hand, because that is how the place of the text
    /// is known; it is also what a busy host does most.
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

/// Merges the neighbours among the frames from `from` on.
pub(super) fn coalesce(frames: &mut Vec<Frame>, from: usize) {
    let mut rest = frames.split_off(from.min(frames.len())).into_iter();
    let Some(mut first) = rest.next() else { return };
    // The frames behind `first` that go into it, all of one kind.
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

/// What comes before a frame's text and says what it is for.
fn head(frame: &Frame) -> Option<&[u8]> {
    match frame.merge() {
        Merge::Append(text) => frame.bytes().get(..text.start),
        Merge::Never | Merge::Replace(_) => None,
    }
}

/// One frame with the texts of all of them, and what the last one has behind its text.
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
