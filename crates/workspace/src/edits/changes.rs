//! The files and counts of changesets.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use innkeeper_core::channel::ChannelUri;
use innkeeper_core::edits::{
    BlobDigest, ChangeCounts, ChangeList, ChangeScope, ChangeSelection, ChangedFile, EditError, EditRecord,
    EditSource, EditStorageError, FileVersion, OperationRecord, SessionChangeCounts, UnknownContent,
};

use super::folding::{self, NetChange, ShownChange};
use super::reviews::ScopeReviews;
use super::shared::LogParts;
use super::uncommitted;
use super::view;
use crate::uri_of;

/// The net changes of a scope, with the records they come from.
#[derive(Debug)]
pub(crate) struct ScopeChanges {
    /// The changed files.
    pub(crate) nets: BTreeMap<PathBuf, NetChange>,
    /// All records of the scope. Empty for changes that are not in the log.
    pub(crate) records: Vec<Arc<EditRecord>>,
    /// Changed files that are left out because there are too many.
    pub(crate) omitted: usize,
}

impl ScopeChanges {
    /// Reads the changes of a scope.
    pub(crate) fn read(log: &LogParts, scope: &ChangeScope) -> Result<Self, EditError> {
        let entry = log.sessions.entry(&scope.session);
        let records: Vec<_> = entry.records()?.into_iter().filter(|record| contains(scope, record)).collect();
        let mut nets = match &scope.selection {
            ChangeSelection::All => {
                entry.with_folded(log, |folded| folded.get(&scope.chat).cloned())?.unwrap_or_default()
            }
            ChangeSelection::Turns(_) => folding::fold(records.iter().map(Arc::as_ref), log)?,
            ChangeSelection::Uncommitted => {
                let (nets, omitted) = uncommitted::changes(log, scope, &records)?;
                return Ok(Self { nets, records: Vec::new(), omitted });
            }
        };
        nets.retain(|_, net| !net.is_unchanged());
        Ok(Self { nets, records, omitted: 0 })
    }

    /// Leaves out files that are as they were before, because of the user or another program.
    /// Not from a changeset of turns after which an agent or a client changed the file again:
    /// it shows what these turns changed.
    fn leave_out_restored(&mut self, log: &LogParts, scope: &ChangeScope) -> Result<(), EditStorageError> {
        if scope.selection == ChangeSelection::Uncommitted {
            return Ok(());
        }
        let mut last: HashMap<&Path, u64> = HashMap::new();
        let records = log.sessions.entry(&scope.session).records()?;
        if matches!(scope.selection, ChangeSelection::Turns(_)) {
            for record in records.iter().filter(|record| record.source != EditSource::External) {
                last.insert(&record.path, record.number);
            }
        }
        self.nets.retain(|path, net| {
            let is_last = last.get(path.as_path()).is_none_or(|number| *number <= net.last);
            !is_last || !log.restored.is_restored(net)
        });
        Ok(())
    }

    /// Replaces versions whose contents were removed from storage.
    fn mark_evicted(&mut self, log: &LogParts) -> Result<(), EditStorageError> {
        let versions = self.nets.values().flat_map(|net| [&net.before, &net.after]);
        let needed: HashSet<BlobDigest> = versions.filter_map(FileVersion::stored_blob).collect();
        let needed: Vec<_> = needed.into_iter().collect();
        let stored = log.storage.stored_blobs(&needed)?;
        for version in self.nets.values_mut().flat_map(|net| [&mut net.before, &mut net.after]) {
            if version.stored_blob().is_some_and(|digest| !stored.contains(&digest)) {
                *version = FileVersion::Unknown(UnknownContent::Evicted);
            }
        }
        Ok(())
    }

    /// The change that an address identifies.
    pub(crate) fn find<'a>(shown: &[ShownChange<'a>], uri: &str) -> Option<ShownChange<'a>> {
        let path = crate::path_of(uri).ok()?;
        shown.iter().find(|change| change.main().path == path).copied()
    }
}

/// Whether a record is in a scope. All of a session's records are relevant for changes that
/// are not in the log.
pub(crate) fn contains(scope: &ChangeScope, record: &EditRecord) -> bool {
    let of_chat = scope.chat.as_ref().is_none_or(|chat| record.chat == *chat);
    match &scope.selection {
        ChangeSelection::All => of_chat,
        ChangeSelection::Turns(turns) => of_chat && turns.contains(&record.turn),
        ChangeSelection::Uncommitted => true,
    }
}

/// Lists the files of a scope.
pub(crate) fn list(log: &LogParts, scope: &ChangeScope) -> Result<ChangeList, EditError> {
    let mut changes = ScopeChanges::read(log, scope)?;
    changes.leave_out_restored(log, scope)?;
    changes.mark_evicted(log)?;
    view::store_links(log.storage.as_ref(), changes.nets.values())?;
    let reviews = ScopeReviews::read(log, scope, &changes)?;
    let shown = folding::shown(changes.nets.values());
    let omitted = shown.len().saturating_sub(log.config.max_listed_files);
    let mut files = Vec::new();
    for change in shown.into_iter().take(log.config.max_listed_files) {
        let (before, after) = view::versions_of(&change);
        let counts = log.line_counts.counts(before, after, log)?;
        files.push(ChangedFile {
            uri: uri_of(&change.main().path),
            edit: view::file_edit(&change, counts),
            sources: sources_of(&change),
            reviewed: reviews.is_reviewed(&change),
            overlaps: change.files().any(|net| net.overlaps),
            mixed: change.files().any(|net| net.mixed),
            not_undoable: change.files().find_map(NetChange::not_undoable).map(str::to_owned),
        });
    }
    let omitted = omitted + changes.omitted;
    let limits = log.registry.reached_limits(&scope.roots);
    Ok(ChangeList { files, omitted, limits, redo: redo_label(log, &scope.session)? })
}

fn sources_of(change: &ShownChange<'_>) -> Vec<EditSource> {
    let mut sources = Vec::new();
    for source in change.files().flat_map(|net| net.sources.iter().copied()) {
        if !sources.contains(&source) {
            sources.push(source);
        }
    }
    sources
}

/// The last operation of a session that a redo can take back, with the files that agents
/// edited since.
pub(crate) fn last_operation(
    log: &LogParts,
    session: &ChannelUri,
) -> Result<Option<(OperationRecord, HashSet<PathBuf>)>, EditStorageError> {
    let Some(operation) = log.storage.last_operation(session)? else { return Ok(None) };
    let records = log.sessions.entry(session).records()?;
    let own = records.iter().filter(|record| record.operation == Some(operation.id));
    let last = own.map(|record| record.number).max().unwrap_or(0);
    let paths: Vec<PathBuf> = operation.steps.iter().map(|step| step.path.clone()).collect();
    let later = log.storage.records_of_paths(&paths, last)?;
    let by_agent = |record: &EditRecord| matches!(record.source, EditSource::Tool | EditSource::Shell);
    let edited = later.into_iter().filter(by_agent).map(|record| record.path).collect();
    Ok(Some((operation, edited)))
}

fn redo_label(log: &LogParts, session: &ChannelUri) -> Result<Option<String>, EditStorageError> {
    let last = last_operation(log, session)?;
    Ok(last.filter(|(_, edited)| edited.is_empty()).map(|(operation, _)| operation.label))
}

/// Counts the net changes of a session and its chats.
pub(crate) fn counts(log: &LogParts, session: &ChannelUri) -> Result<SessionChangeCounts, EditError> {
    let entry = log.sessions.entry(session);
    // Files are read and lines are counted without the lock, so that recorders do not wait for
    // it.
    let scopes: Vec<(Option<ChannelUri>, Vec<NetChange>)> = entry.with_folded(log, |folded| {
        let changed = |nets: &BTreeMap<PathBuf, NetChange>| {
            nets.values().filter(|net| !net.is_unchanged()).cloned().collect()
        };
        folded.iter().map(|(chat, nets)| (chat.clone(), changed(nets))).collect()
    })?;
    let mut counts = SessionChangeCounts::default();
    for (chat, nets) in scopes {
        let mut sum = ChangeCounts::default();
        for change in folding::shown(nets.iter().filter(|net| !log.restored.is_restored(net))) {
            let (before, after) = view::versions_of(&change);
            sum.files += 1;
            if let Some(lines) = log.line_counts.counts(before, after, log)? {
                sum.added += lines.added;
                sum.removed += lines.removed;
            }
        }
        match chat {
            None => counts.session = sum,
            Some(chat) if sum.files > 0 => counts.chats.push((chat, sum)),
            Some(_) => {}
        }
    }
    counts.chats.sort_by(|left, right| left.0.cmp(&right.0));
    Ok(counts)
}

/// The file name of a path, for labels.
pub(crate) fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
