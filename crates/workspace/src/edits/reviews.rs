//! Which changes the user reviewed.
//!
//! A review covers the records of a file up to a number: those of one turn or of all turns,
//! of one chat or of all chats. A file is reviewed in a scope if all of its records there
//! are covered, so a review in one changeset also counts in the others. A review of an
//! uncommitted file, which has no records, has an empty turn and contains a part of the
//! file's digest instead of a number.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use innkeeper_core::edits::{
    BlobDigest, ChangeScope, ChangeSelection, EditError, EditRecord, EditSource, EditStorageError,
    FileReview, FileVersion,
};

use super::changes::{ScopeChanges, contains};
use super::folding::{self, NetChange, ShownChange};
use super::shared::LogParts;
use super::view;

/// The reviews of the files of a scope.
#[derive(Debug)]
pub(crate) struct ScopeReviews {
    is_uncommitted: bool,
    by_path: HashMap<PathBuf, Vec<FileReview>>,
    records: HashMap<PathBuf, Vec<Arc<EditRecord>>>,
}

impl ScopeReviews {
    pub(crate) fn read(
        log: &LogParts,
        scope: &ChangeScope,
        changes: &ScopeChanges,
    ) -> Result<Self, EditStorageError> {
        let mut by_path: HashMap<PathBuf, Vec<FileReview>> = HashMap::new();
        for review in log.storage.reviews(&scope.session)? {
            by_path.entry(review.path.clone()).or_default().push(review);
        }
        let mut records: HashMap<PathBuf, Vec<Arc<EditRecord>>> = HashMap::new();
        if !by_path.is_empty() {
            for record in changes.records.iter().filter(|record| is_reviewable(record)) {
                if by_path.contains_key(&record.path) {
                    records.entry(record.path.clone()).or_default().push(Arc::clone(record));
                }
            }
        }
        Ok(Self { is_uncommitted: scope.selection == ChangeSelection::Uncommitted, by_path, records })
    }

    /// Whether the user reviewed all of a change.
    pub(crate) fn is_reviewed(&self, change: &ShownChange<'_>) -> bool {
        change.files().all(|net| self.covers(net))
    }

    fn covers(&self, net: &NetChange) -> bool {
        let Some(reviews) = self.by_path.get(&net.path) else { return false };
        if self.is_uncommitted {
            let state = state_number(&net.after);
            return reviews
                .iter()
                .any(|review| review.turn.as_deref() == Some("") && review.through == state);
        }
        let records = self.records.get(&net.path).map_or(&[][..], Vec::as_slice);
        !records.is_empty()
            && records.iter().all(|record| reviews.iter().any(|review| covers(review, record)))
    }
}

fn is_reviewable(record: &EditRecord) -> bool {
    record.source != EditSource::External && !record.turn.is_empty()
}

fn covers(review: &FileReview, record: &EditRecord) -> bool {
    review.path == record.path
        && review.chat.as_ref().is_none_or(|chat| *chat == record.chat)
        && review.turn.as_ref().is_none_or(|turn| *turn == record.turn)
        && record.number <= review.through
}

/// Identifies the state of a file that has no records.
fn state_number(version: &FileVersion) -> u64 {
    let digest = match version {
        FileVersion::File { blob, .. } => *blob,
        FileVersion::Link { target } => view::link_content(target).digest,
        FileVersion::Absent | FileVersion::Unknown(_) => BlobDigest::of(&[]),
    };
    // Storage keeps signed numbers.
    let bytes = digest.as_bytes().iter().take(8);
    bytes.fold(0_u64, |number, byte| number << 8 | u64::from(*byte)) >> 1
}

/// Sets whether the files of a scope are reviewed.
pub(crate) fn set(
    log: &LogParts,
    scope: &ChangeScope,
    uris: &[String],
    reviewed: bool,
) -> Result<(), EditError> {
    let changes = ScopeChanges::read(log, scope)?;
    let shown = folding::shown(changes.nets.values());
    let mut selected = Vec::new();
    for uri in uris {
        let change = ScopeChanges::find(&shown, uri)
            .ok_or_else(|| EditError::Invalid(format!("the file {uri} is not in this changeset")))?;
        selected.extend(change.files());
    }
    let added = new_reviews(scope, &changes, &selected);
    if reviewed {
        log.storage.set_reviews(&scope.session, added, true)?;
    } else {
        clear(log, scope, &selected, added)?;
    }
    log.changed.add([scope.session.clone()]);
    Ok(())
}

/// The reviews that cover files in a scope.
fn new_reviews(scope: &ChangeScope, changes: &ScopeChanges, files: &[&NetChange]) -> Vec<FileReview> {
    let mut reviews = Vec::new();
    for net in files {
        let review = |turn: Option<&str>, through: u64| FileReview {
            chat: scope.chat.clone(),
            turn: turn.map(str::to_owned),
            path: net.path.clone(),
            through,
        };
        match &scope.selection {
            ChangeSelection::Uncommitted => reviews.push(review(Some(""), state_number(&net.after))),
            ChangeSelection::All => reviews.push(review(None, net.last)),
            ChangeSelection::Turns(_) => {
                let of_file = changes.records.iter().filter(|record| record.path == net.path);
                let mut through: BTreeMap<&str, u64> = BTreeMap::new();
                for record in of_file.filter(|record| is_reviewable(record)) {
                    let last = through.entry(&record.turn).or_default();
                    *last = record.number.max(*last);
                }
                reviews.extend(through.into_iter().map(|(turn, number)| review(Some(turn), number)));
            }
        }
    }
    reviews
}

/// Removes all reviews that cover files in a scope. What they cover outside of the scope
/// stays reviewed.
fn clear(
    log: &LogParts,
    scope: &ChangeScope,
    files: &[&NetChange],
    exact: Vec<FileReview>,
) -> Result<(), EditError> {
    let is_uncommitted = scope.selection == ChangeSelection::Uncommitted;
    let is_selected = |path: &Path| files.iter().any(|net| net.path == path);
    let all = log.sessions.entry(&scope.session).records()?;
    let mut removed = exact;
    let mut narrower: BTreeMap<(String, String, PathBuf), FileReview> = BTreeMap::new();
    for review in log.storage.reviews(&scope.session)? {
        let of_state = review.turn.as_deref() == Some("");
        if !is_selected(&review.path) || of_state != is_uncommitted {
            continue;
        }
        let covered: Vec<_> = all.iter().filter(|record| covers(&review, record)).collect();
        if !is_uncommitted && !covered.iter().any(|record| contains(scope, record)) {
            continue;
        }
        for record in covered.iter().filter(|record| is_reviewable(record) && !contains(scope, record)) {
            let key = (record.chat.as_str().to_owned(), record.turn.clone(), record.path.clone());
            let kept = narrower.entry(key).or_insert_with(|| FileReview {
                chat: Some(record.chat.clone()),
                turn: Some(record.turn.clone()),
                path: record.path.clone(),
                through: 0,
            });
            kept.through = kept.through.max(record.number);
        }
        removed.push(review);
    }
    log.storage.set_reviews(&scope.session, removed, false)?;
    if !narrower.is_empty() {
        log.storage.set_reviews(&scope.session, narrower.into_values().collect(), true)?;
    }
    Ok(())
}
