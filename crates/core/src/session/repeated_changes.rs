//! Changes that are part of every checkpoint until one succeeds: removals of chats that may
//! be in storage, and output that could not be stored.

use bytes::Bytes;

use crate::channel::ChannelUri;
use crate::output::StoredOutput;
use crate::storage::Change;

/// Most bytes of output that wait for storage to work again. The oldest is then dropped,
/// and clients that read it are told that it does not exist.
const MAX_OUTPUT: usize = 16 * 1024 * 1024;

/// The repeated changes of one session.
#[derive(Debug, Default)]
pub(super) struct RepeatedChanges {
    /// With increasing numbers.
    changes: Vec<(u64, Change)>,
    last: u64,
}

impl RepeatedChanges {
    /// Adds a change.
    pub(super) fn add(&mut self, mut change: Change) {
        if let Change::PutOutput { output: StoredOutput { body, .. }, .. } = &mut change {
            // It may be a slice of a much larger text.
            *body = Bytes::copy_from_slice(body);
        }
        self.last += 1;
        self.changes.push((self.last, change));
        while self.output() > MAX_OUTPUT {
            let oldest = self.changes.iter().position(|(_, change)| output_size(change) > 0);
            let Some(oldest) = oldest else { return };
            self.changes.remove(oldest);
            tracing::error!("dropping output that could not be stored");
        }
    }

    /// Drops the removal of a chat.
    pub(super) fn cancel_removal(&mut self, chat: &ChannelUri) {
        let is_removal =
            |change: &Change| matches!(change, Change::RemoveChat { chat: removed } if removed == chat);
        self.changes.retain(|(_, change)| !is_removal(change));
    }

    /// Drops the changes up to this number, which have been written.
    pub(super) fn written(&mut self, through: u64) {
        self.changes.retain(|(number, _)| *number > through);
    }

    /// The changes, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Change> {
        self.changes.iter().map(|(_, change)| change.clone())
    }

    /// The number of the last change.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Bytes of output that could not be stored.
    pub(super) fn output(&self) -> usize {
        self.changes.iter().map(|(_, change)| output_size(change)).sum()
    }
}

/// The size of a piece of output.
fn output_size(change: &Change) -> usize {
    if let Change::PutOutput { output, .. } = change { output.body.len().max(1) } else { 0 }
}
