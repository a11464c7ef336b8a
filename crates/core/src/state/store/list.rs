//! The session list: its rows, and notifications about changes.

use ahp_types::common::JsonObject;
use ahp_types::notifications::{SessionAddedParams, SessionRemovedParams};
use ahp_types::state::{ChangesSummary, SessionSummary};
use serde::Serialize;

use super::{StateStore, StoreInner};
use crate::channel::ChannelUri;
use crate::state::frame::notification;
use crate::state::rows::{RowChange, RowKey};
use crate::storage::{Json, StoredRow};

/// A page of the session list.
#[derive(Debug)]
pub struct RowsPage {
    /// The encoded rows, most recently changed first.
    pub rows: Vec<Json>,
    /// The position of the last row, if more follow.
    pub next: Option<RowKey>,
}

impl StateStore {
    /// The rows of the session list after a position, most recently changed first. A
    /// change between two pages does not move any other row between them.
    pub fn list(&self, after: Option<&RowKey>, limit: Option<usize>) -> RowsPage {
        let inner = self.lock();
        let limit = limit.unwrap_or(usize::MAX);
        let mut rows = Vec::with_capacity(limit.min(inner.rows.len()));
        let (mut listed, mut last) = (inner.rows.list(after), None);
        for (key, row) in listed.by_ref().take(limit) {
            rows.push(row.clone());
            last = Some(key);
        }
        let next = listed.next().and(last).cloned();
        RowsPage { rows, next }
    }

    /// A number that changes whenever the directories in the list change.
    pub(crate) fn directories_edition(&self) -> u64 {
        self.lock().rows.directories_edition()
    }

    /// Number of sessions in the list.
    pub fn row_count(&self) -> usize {
        self.lock().rows.len()
    }

    /// Whether a session is in the list.
    pub fn is_listed(&self, session: &ChannelUri) -> bool {
        self.lock().rows.contains(session)
    }

    /// The counts of changes in a session's row.
    pub(crate) fn row_changes(&self, session: &ChannelUri) -> Option<ChangesSummary> {
        self.lock().rows.get(session)?.changes
    }

    /// Adds a session to the list or replaces its row, and notifies the subscribers of
    /// the root channel. Returns the row if it changed.
    pub fn put_row(&self, session: &ChannelUri, summary: SessionSummary) -> Option<StoredRow> {
        #[derive(Serialize)]
        struct Changed<'a> {
            channel: &'a str,
            session: &'a str,
            changes: JsonObject,
        }
        let mut inner = self.lock();
        let root = ChannelUri::root();
        match inner.rows.put(session, summary.clone()) {
            Ok(RowChange::None) => return None,
            Ok(RowChange::New) => {
                let params = SessionAddedParams { channel: root.as_str().to_owned(), summary };
                inner.notify_root("root/sessionAdded", &params);
            }
            Ok(RowChange::Fields(changes)) => {
                let params = Changed { channel: root.as_str(), session: session.as_str(), changes };
                inner.notify_root("root/sessionSummaryChanged", &params);
            }
            Err(error) => {
                tracing::error!(%error, %session, "could not encode a session list row");
                return None;
            }
        }
        inner.rows.stored(session)
    }

    /// Removes a session from the list and notifies the subscribers of the root channel.
    pub fn remove_row(&self, session: &ChannelUri) {
        let mut inner = self.lock();
        if inner.rows.remove(session) {
            let params = SessionRemovedParams {
                channel: ChannelUri::root().as_str().to_owned(),
                session: session.as_str().to_owned(),
            };
            inner.notify_root("root/sessionRemoved", &params);
        }
    }
}

impl StoreInner {
    fn notify_root(&self, method: &str, params: &impl Serialize) {
        let Some(root) = self.channels.get(&ChannelUri::root()) else { return };
        match notification(method, params) {
            Ok(frame) => {
                for subscriber in &root.subscribers {
                    subscriber.outbox.push(frame.clone());
                }
            }
            Err(error) => tracing::error!(%error, method, "could not encode a notification"),
        }
    }
}
