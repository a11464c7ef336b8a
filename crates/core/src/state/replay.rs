//! The most recent actions, kept for clients that come back.
//!
//! Bounded in bytes and in time: a client that missed more gets a snapshot. The
//! log holds every action in order, so that what it covers is covered without a
//! gap.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::frame::EncodedEnvelope;
use crate::channel::ChannelUri;
use crate::ids::{ClientId, ServerSeq};
use crate::storage::StoredEnvelope;

/// Bytes of envelopes that are kept. The oldest go first.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// How long an envelope is kept: a laptop that was carried to the next room.
const MAX_AGE: Duration = Duration::from_secs(15 * 60);

/// Recently published actions.
#[derive(Debug, Default)]
pub(super) struct ReplayLog {
    entries: VecDeque<Entry>,
    bytes: usize,
    /// The number of the last action that is not kept any more.
    forgotten: ServerSeq,
}

#[derive(Debug)]
struct Entry {
    seq: ServerSeq,
    at: Instant,
    channel: ChannelUri,
    /// Set for a rejection, which only its sender is told.
    only_for: Option<ClientId>,
    envelope: EncodedEnvelope,
}

impl ReplayLog {
    /// The log of an earlier host that ended in order: its actions up to `seq`.
    pub(super) fn restored(seq: ServerSeq, stored: Vec<StoredEnvelope>) -> Self {
        let at = Instant::now();
        let first = stored.first().map_or(seq.0, |entry| entry.seq.0.saturating_sub(1));
        let mut log = Self { forgotten: ServerSeq(first), ..Self::default() };
        for StoredEnvelope { seq, channel, only_for, envelope } in stored {
            log.bytes += envelope.len();
            log.entries.push_back(Entry {
                seq,
                at,
                channel,
                only_for,
                envelope: EncodedEnvelope::restore(envelope),
            });
        }
        log
    }

    /// The log as it is stored.
    pub(super) fn stored(&self) -> Vec<StoredEnvelope> {
        let stored = |entry: &Entry| StoredEnvelope {
            seq: entry.seq,
            channel: entry.channel.clone(),
            only_for: entry.only_for.clone(),
            envelope: entry.envelope.bytes().clone(),
        };
        self.entries.iter().map(stored).collect()
    }

    /// Keeps an action.
    pub(super) fn push(
        &mut self,
        seq: ServerSeq,
        channel: &ChannelUri,
        only_for: Option<&ClientId>,
        envelope: EncodedEnvelope,
    ) {
        let at = Instant::now();
        self.bytes += envelope.len();
        self.entries.push_back(Entry {
            seq,
            at,
            channel: channel.clone(),
            only_for: only_for.cloned(),
            envelope,
        });
        while self.bytes > MAX_BYTES || self.entries.front().is_some_and(|entry| at - entry.at > MAX_AGE) {
            let Some(entry) = self.entries.pop_front() else { return };
            self.bytes -= entry.envelope.len();
            self.forgotten = entry.seq;
        }
    }

    /// Whether everything after `seen` is still here.
    pub(super) fn covers(&self, seen: ServerSeq) -> bool {
        seen >= self.forgotten
    }

    /// What a client missed: the actions behind each channel's own mark.
    pub(super) fn missed(
        &self,
        client: &ClientId,
        mark: impl Fn(&ChannelUri) -> Option<ServerSeq>,
    ) -> Vec<EncodedEnvelope> {
        self.entries
            .iter()
            .filter(|entry| entry.only_for.as_ref().is_none_or(|only| only == client))
            .filter(|entry| mark(&entry.channel).is_some_and(|mark| entry.seq > mark))
            .map(|entry| entry.envelope.clone())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::frame::Frame;
    use super::*;

    fn envelope(size: usize) -> EncodedEnvelope {
        EncodedEnvelope::of(&Frame::encode(&json!({"params": "x".repeat(size)})).unwrap())
    }

    fn push(log: &mut ReplayLog, seq: u64, channel: &str, only_for: Option<&str>, size: usize) {
        let only_for = only_for.map(ClientId::new);
        log.push(ServerSeq(seq), &ChannelUri::new(channel), only_for.as_ref(), envelope(size));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_too_old_or_too_much_is_forgotten_oldest_first() {
        let mut log = ReplayLog::default();
        push(&mut log, 1, "a", None, 10);
        assert!(log.covers(ServerSeq(0)));
        tokio::time::advance(MAX_AGE + Duration::from_secs(1)).await;
        push(&mut log, 2, "a", None, 10);
        assert!(!log.covers(ServerSeq(0)) && log.covers(ServerSeq(1)));
        push(&mut log, 3, "a", None, MAX_BYTES - 200);
        assert!(log.covers(ServerSeq(1)));
        push(&mut log, 4, "a", None, 300);
        assert!(!log.covers(ServerSeq(2)) && log.covers(ServerSeq(3)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_is_told_what_is_behind_its_marks_and_no_other_clients_rejections() {
        let mut log = ReplayLog::default();
        push(&mut log, 1, "a", None, 1);
        push(&mut log, 2, "b", None, 2);
        push(&mut log, 3, "a", Some("other"), 3);
        push(&mut log, 4, "a", Some("me"), 4);
        push(&mut log, 5, "c", None, 5);
        let mark = |channel: &ChannelUri| match channel.as_str() {
            "a" => Some(ServerSeq(1)),
            "b" => Some(ServerSeq(0)),
            _ => None,
        };
        let sizes: Vec<usize> =
            log.missed(&ClientId::new("me"), mark).iter().map(EncodedEnvelope::len).collect();
        assert_eq!(sizes, [envelope(2).len(), envelope(4).len()]);
    }
}
