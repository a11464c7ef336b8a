//! The most recent actions, kept for clients that reconnect.
//!
//! Bounded in bytes and time: a client that missed more receives a snapshot. The log
//! holds every action in order, so the range that it covers has no gaps.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::frame::EncodedEnvelope;
use crate::channel::ChannelUri;
use crate::ids::{ClientId, ServerSeq};
use crate::storage::StoredEnvelope;

/// Maximum total size of envelopes. The oldest are evicted first.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// Maximum age of an envelope, enough for a short network interruption or a brief
/// suspend.
const MAX_AGE: Duration = Duration::from_secs(15 * 60);

/// Recently published actions.
#[derive(Debug, Default)]
pub(super) struct ReplayLog {
    entries: VecDeque<ReplayEntry>,
    bytes: usize,
    /// Sequence number of the last evicted action.
    forgotten: ServerSeq,
}

#[derive(Debug)]
struct ReplayEntry {
    seq: ServerSeq,
    at: Instant,
    channel: ChannelUri,
    /// Set for a rejection, which only its sender receives.
    only_for: Option<ClientId>,
    envelope: EncodedEnvelope,
}

impl ReplayLog {
    /// Restores the log of an earlier host that shut down cleanly after `seq`.
    pub(super) fn restored(seq: ServerSeq, stored: Vec<StoredEnvelope>) -> Self {
        let at = Instant::now();
        let first = stored.first().map_or(seq.0, |entry| entry.seq.0.saturating_sub(1));
        let mut log = Self { forgotten: ServerSeq(first), ..Self::default() };
        for StoredEnvelope { seq, channel, only_for, envelope } in stored {
            log.bytes += envelope.len();
            log.entries.push_back(ReplayEntry {
                seq,
                at,
                channel,
                only_for,
                envelope: EncodedEnvelope::restore(envelope),
            });
        }
        log
    }

    /// The log in stored form.
    pub(super) fn stored(&self) -> Vec<StoredEnvelope> {
        let stored = |entry: &ReplayEntry| StoredEnvelope {
            seq: entry.seq,
            channel: entry.channel.clone(),
            only_for: entry.only_for.clone(),
            envelope: entry.envelope.bytes().clone(),
        };
        self.entries.iter().map(stored).collect()
    }

    /// Appends an action.
    pub(super) fn push(
        &mut self,
        seq: ServerSeq,
        channel: &ChannelUri,
        only_for: Option<&ClientId>,
        envelope: EncodedEnvelope,
    ) {
        let at = Instant::now();
        self.bytes += envelope.len();
        self.entries.push_back(ReplayEntry {
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

    /// Whether the log contains every action after `seen`.
    pub(super) fn covers(&self, seen: ServerSeq) -> bool {
        seen >= self.forgotten
    }

    /// The actions that a client missed: those after its mark of each channel.
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
    async fn old_or_excess_envelopes_are_evicted_oldest_first() {
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
    async fn missed_actions_follow_marks_without_rejections_of_others() {
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
