//! The session list: one encoded row for each session, in the order that clients see.
//!
//! Rows are encoded when they change, not when they are read, because every client reads
//! all of them when it starts.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Bound;
use std::str::FromStr;

use ahp_types::common::JsonObject;
use ahp_types::notifications::PartialSessionSummary;
use ahp_types::state::SessionSummary;
use jiff::Timestamp;

use crate::channel::ChannelUri;
use crate::storage::{Json, StoredRow};

/// The list of all sessions that were ever used.
#[derive(Debug, Default)]
pub(super) struct Rows {
    by_session: HashMap<ChannelUri, SessionRow>,
    /// Most recently changed first; ties are ordered by address.
    in_order: BTreeMap<RowKey, Json>,
    /// Incremented when the directories in the list change.
    directories_edition: u64,
}

/// A position in the list: the time of a session's last change, and its address. It stays
/// a valid position after the session has moved or was removed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowKey(Reverse<i64>, ChannelUri);

impl fmt::Display for RowKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.0.0, self.1)
    }
}

/// A text is not a valid list position.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid session list cursor")]
pub struct BadRowKey;

impl FromStr for RowKey {
    type Err = BadRowKey;

    fn from_str(text: &str) -> Result<Self, BadRowKey> {
        let (modified_at, session) = text.split_once('/').ok_or(BadRowKey)?;
        let modified_at = modified_at.parse().map_err(|_| BadRowKey)?;
        if session.is_empty() {
            return Err(BadRowKey);
        }
        Ok(Self(Reverse(modified_at), ChannelUri::new(session)))
    }
}

#[derive(Debug)]
struct SessionRow {
    modified_at: i64,
    /// Decoded on demand: most rows never change again.
    summary: Option<Box<SessionSummary>>,
}

impl Rows {
    /// Adds a row from storage.
    pub(super) fn restore(&mut self, row: StoredRow) {
        let StoredRow { session, modified_at, summary } = row;
        self.by_session.insert(session.clone(), SessionRow { modified_at, summary: None });
        self.in_order.insert(RowKey(Reverse(modified_at), session), summary);
    }

    /// Adds or replaces a row and returns the difference.
    pub(super) fn put(
        &mut self,
        session: &ChannelUri,
        mut summary: SessionSummary,
    ) -> Result<RowChange, serde_json::Error> {
        let old = self.get(session);
        // Clients do not remove a field that is absent; they replace it by an empty object.
        if old.as_ref().is_some_and(|old| old.meta.is_some()) {
            summary.meta.get_or_insert_default();
        }
        if old.as_ref() == Some(&summary) {
            return Ok(RowChange::None);
        }
        let change = match &old {
            Some(old) => RowChange::Fields(changed_fields(old, &summary)?),
            None => RowChange::New,
        };
        let encoded = serde_json::value::to_raw_value(&summary)?;
        if old.is_none_or(|old| old.working_directories != summary.working_directories) {
            self.directories_edition += 1;
        }
        self.take_out(session);
        let modified_at = milliseconds(&summary.modified_at);
        self.in_order.insert(RowKey(Reverse(modified_at), session.clone()), encoded.into());
        self.by_session.insert(session.clone(), SessionRow { modified_at, summary: Some(Box::new(summary)) });
        Ok(change)
    }

    /// Removes a row. Returns whether it existed.
    pub(super) fn remove(&mut self, session: &ChannelUri) -> bool {
        self.directories_edition += 1;
        self.take_out(session)
    }

    fn take_out(&mut self, session: &ChannelUri) -> bool {
        let Some(row) = self.by_session.remove(session) else { return false };
        self.in_order.remove(&RowKey(Reverse(row.modified_at), session.clone()));
        true
    }

    /// A number that changes whenever the directories in the list change.
    pub(super) fn directories_edition(&self) -> u64 {
        self.directories_edition
    }

    /// Whether a session is in the list.
    pub(super) fn contains(&self, session: &ChannelUri) -> bool {
        self.by_session.contains_key(session)
    }

    /// A session's row in stored form.
    pub(super) fn stored(&self, session: &ChannelUri) -> Option<StoredRow> {
        let modified_at = self.by_session.get(session)?.modified_at;
        let summary = self.in_order.get(&RowKey(Reverse(modified_at), session.clone()))?;
        Some(StoredRow { session: session.clone(), modified_at, summary: summary.clone() })
    }

    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        self.in_order.len()
    }

    /// The rows after a position, or all rows, most recently changed first.
    pub(super) fn list(&self, after: Option<&RowKey>) -> impl Iterator<Item = (&RowKey, &Json)> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.in_order.range((start, Bound::Unbounded))
    }

    /// A session's row.
    pub(super) fn get(&self, session: &ChannelUri) -> Option<SessionSummary> {
        let row = self.by_session.get(session)?;
        if let Some(summary) = &row.summary {
            return Some(SessionSummary::clone(summary));
        }
        let encoded = self.in_order.get(&RowKey(Reverse(row.modified_at), session.clone()))?;
        serde_json::from_str(encoded.get()).ok()
    }
}

/// Converts a protocol time to milliseconds. Times are compared as numbers, because their
/// text may be in any time zone.
fn milliseconds(time: &str) -> i64 {
    time.parse::<Timestamp>().unwrap_or_default().as_millisecond()
}

/// The result of [`Rows::put`].
#[derive(Debug)]
pub(super) enum RowChange {
    /// The row did not change.
    None,
    /// The row is new.
    New,
    /// The fields that changed.
    Fields(JsonObject),
}

/// Returns the fields of a row that differ.
fn changed_fields(old: &SessionSummary, new: &SessionSummary) -> Result<JsonObject, serde_json::Error> {
    let changes = PartialSessionSummary {
        title: (old.title != new.title).then(|| new.title.clone()),
        status: (old.status != new.status).then_some(new.status),
        activity: changed(&old.activity, &new.activity),
        project: changed(&old.project, &new.project),
        working_directories: changed(&old.working_directories, &new.working_directories),
        annotations: changed(&old.annotations, &new.annotations),
        modified_at: (old.modified_at != new.modified_at).then(|| new.modified_at.clone()),
        changes: changed(&old.changes, &new.changes),
        meta: changed(&old.meta, &new.meta),
        chats: changed(&old.chats, &new.chats),
        ..PartialSessionSummary::default()
    };
    let mut changes: JsonObject = serde_json::from_value(serde_json::to_value(changes)?)?;
    // The typed form cannot express a removed value; every decoder accepts null.
    if old.activity.is_some() && new.activity.is_none() {
        changes.insert("activity".to_owned(), serde_json::Value::Null);
    }
    Ok(changes)
}

fn changed<T: Clone + PartialEq>(old: &Option<T>, new: &Option<T>) -> Option<T> {
    if old == new { None } else { new.clone() }
}
