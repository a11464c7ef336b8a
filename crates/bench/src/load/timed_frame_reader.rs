//! A client that counts the frames of a chat, records their ages and detects the end of
//! the turn.

use std::time::Duration;

use anyhow::Result;
use memchr::memmem::Finder;

use super::histogram::Histogram;
use super::socket::Socket;
use crate::monotonic_nanos;

/// The type of a frame is within this many bytes; the rest may be megabytes.
const HEAD: usize = 512;

/// What a reader recorded.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// Ages of text deltas on arrival.
    pub ages: Histogram,
    /// Whether the turn has ended.
    pub ended: bool,
    /// Sequence number of the last action.
    pub last_seq: u64,
}

/// Inspects frames by substring search, without parsing JSON.
#[derive(Debug)]
pub struct TimedFrameReader {
    delta: Finder<'static>,
    content: Finder<'static>,
    seq: Finder<'static>,
    end: Finder<'static>,
}

impl Default for TimedFrameReader {
    fn default() -> Self {
        Self {
            delta: Finder::new(r#""type":"chat/delta""#),
            content: Finder::new(r#""content":""#),
            seq: Finder::new(r#""serverSeq":"#),
            end: Finder::new(r#""type":"chat/turnComplete""#),
        }
    }
}

impl TimedFrameReader {
    /// Reads until the turn ends.
    pub async fn watch(&self, socket: &mut Socket, watch: &mut Watch) -> Result<()> {
        while !watch.ended {
            self.read(socket, watch).await?;
        }
        Ok(())
    }

    /// Reads the next frames.
    pub async fn read(&self, socket: &mut Socket, watch: &mut Watch) -> Result<()> {
        let mut now = 0;
        socket
            .read(|text| {
                if now == 0 {
                    now = monotonic_nanos();
                }
                self.inspect(text, now, watch);
            })
            .await
    }

    fn inspect(&self, text: &[u8], now: u64, watch: &mut Watch) {
        // The sequence number is the last field of a frame.
        let tail = &text[text.len().saturating_sub(40)..];
        if let Some(at) = self.seq.find(tail) {
            watch.last_seq = digits(&tail[at + self.seq.needle().len()..]);
        }
        let head = &text[..text.len().min(HEAD)];
        if self.delta.find(head).is_some() {
            // Merged text contains several timestamps; the first is the oldest.
            if let Some(at) = self.content.find(head) {
                let made = digits(&head[at + self.content.needle().len()..]);
                watch.ages.add(Duration::from_nanos(now.saturating_sub(made)));
            }
        } else if self.end.find(head).is_some() {
            watch.ended = true;
        }
    }
}

/// Parses the leading digits.
fn digits(text: &[u8]) -> u64 {
    text.iter()
        .take_while(|byte| byte.is_ascii_digit())
        .fold(0, |number, digit| number * 10 + u64::from(digit - b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_yields_age_sequence_number_and_turn_end() {
        let (reader, mut watch) = (TimedFrameReader::default(), Watch::default());
        let delta = br#"{"params":{"action":{"type":"chat/delta","content":"00000000000000000007 words"},"serverSeq":12}}"#;
        reader.inspect(delta, 1_000_007, &mut watch);
        assert_eq!((watch.ages.total(), watch.last_seq, watch.ended), (1, 12, false));
        assert_eq!(watch.ages.per_mille(1000), Some(Duration::from_millis(1)));
        let end = br#"{"params":{"action":{"type":"chat/turnComplete","turnId":"t"},"serverSeq":13}}"#;
        reader.inspect(end, 2, &mut watch);
        assert_eq!((watch.ages.total(), watch.last_seq, watch.ended), (1, 13, true));
    }
}
