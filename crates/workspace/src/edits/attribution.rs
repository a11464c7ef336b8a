//! Turns what an observation found into records.
//!
//! Works while the observed directories are locked, so that records are in the order of
//! the observations. A session gets records only from the trackers of its own directories.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard, RwLockReadGuard};

use innkeeper_core::channel::ChannelUri;
use innkeeper_core::edits::{EditRecord, EditSource};

use super::recorder::RecorderState;
use super::registry::TrackedRoot;
use super::shared::LogParts;
use super::windows::{Attribution, CallKey, CallWindow, WindowSet};
use crate::tracking::Transition;

/// The directories that an observation is about, locked.
pub(crate) type LockedRoots<'a> = Vec<(&'a Arc<TrackedRoot>, MutexGuard<'a, WindowSet>)>;

/// Locks directories, which must be in the order of the registry.
pub(crate) fn lock_all<'a>(log: &LogParts, roots: &'a [Arc<TrackedRoot>]) -> LockedRoots<'a> {
    let mut locked: LockedRoots<'a> = roots.iter().map(|root| (root, root.lock())).collect();
    for (_, windows) in &mut locked {
        windows.retain(|id| log.registry.recorder(id).is_some());
    }
    locked
}

/// Collects the records of one observation.
#[derive(Debug)]
pub(crate) struct Attributor<'a> {
    log: &'a LogParts,
    recorders: Vec<Arc<RecorderState>>,
    records: BTreeMap<ChannelUri, Vec<(Option<CallKey>, EditRecord)>>,
    /// Sessions that work in the observed directories, if something changed there.
    affected: BTreeSet<ChannelUri>,
    /// Keeps the contents of the observed versions until the records refer to them.
    _transit: RwLockReadGuard<'a, ()>,
}

impl<'a> Attributor<'a> {
    pub(crate) fn new(log: &'a LogParts) -> Self {
        let recorders = log.registry.recorders();
        Self {
            log,
            recorders,
            records: BTreeMap::new(),
            affected: BTreeSet::new(),
            _transit: log.begin_transit(),
        }
    }

    /// Observes all files of the directories, and assigns the changes.
    pub(crate) fn observe_all(&mut self, locked: &mut LockedRoots<'_>) {
        for (root, windows) in locked {
            match root.tracker.observe_all() {
                Ok(transitions) => self.assign(root, windows, transitions),
                Err(error) => tracing::warn!(%error, root = %root.path.display(), "cannot record edits"),
            }
        }
    }

    /// Assigns changes to the open windows.
    pub(crate) fn assign(
        &mut self,
        root: &TrackedRoot,
        windows: &mut WindowSet,
        transitions: Vec<Transition>,
    ) {
        for transition in transitions {
            self.mark_affected(root);
            match windows.attribute(&transition.path, transition.new_parents) {
                Attribution::Claimed => {}
                Attribution::External => self.add_external(root, &transition, &[]),
                Attribution::Windows(open) => {
                    for window in open.iter().filter(|window| window.roots.contains(&root.path)) {
                        // The user works while a command such as a server runs for hours.
                        let overlaps = open.len() > 1 || window.in_background;
                        self.add_shell(window, &transition, overlaps);
                    }
                    let sessions: Vec<_> = open.into_iter().map(|window| window.session).collect();
                    self.add_external(root, &transition, &sessions);
                }
            }
        }
    }

    fn mark_affected(&mut self, root: &TrackedRoot) {
        for recorder in self.recorders.iter().filter(|recorder| recorder.works_in(&root.path)) {
            self.affected.insert(recorder.scope.session.clone());
        }
    }

    /// Adds the record of a change that a command may have made.
    pub(crate) fn add_shell(&mut self, window: &CallWindow, transition: &Transition, overlaps: bool) {
        let record = EditRecord {
            number: 0,
            session: window.session.clone(),
            chat: window.chat.clone(),
            turn: window.turn.clone(),
            tool_call: Some(window.key.tool_call.clone()),
            source: EditSource::Shell,
            path: transition.path.clone(),
            before: transition.before.clone(),
            after: transition.after.clone(),
            new_parents: transition.new_parents,
            overlaps,
            operation: None,
            recorded_at: self.log.now(),
        };
        self.add(Some(window.key.clone()), record);
    }

    /// Adds a record.
    pub(crate) fn add(&mut self, key: Option<CallKey>, record: EditRecord) {
        self.affected.insert(record.session.clone());
        self.records.entry(record.session.clone()).or_default().push((key, record));
    }

    /// Adds records of a change for the sessions whose agents changed the file before, except
    /// for those that made this change.
    pub(crate) fn add_external(
        &mut self,
        root: &TrackedRoot,
        transition: &Transition,
        except: &[ChannelUri],
    ) {
        let mut done: BTreeSet<ChannelUri> = except.iter().cloned().collect();
        for recorder in self.recorders.clone() {
            if !recorder.works_in(&root.path) || !done.insert(recorder.scope.session.clone()) {
                continue;
            }
            let chat = match recorder.entry.touched_by(&transition.path) {
                Ok(Some(chat)) => chat,
                Ok(None) => continue,
                Err(error) => {
                    tracing::warn!(%error, "cannot read the edit log");
                    continue;
                }
            };
            let turn = self.running_turn(&chat);
            let record = EditRecord {
                number: 0,
                session: recorder.scope.session.clone(),
                chat,
                turn,
                tool_call: None,
                source: EditSource::External,
                path: transition.path.clone(),
                before: transition.before.clone(),
                after: transition.after.clone(),
                new_parents: transition.new_parents,
                overlaps: false,
                operation: None,
                recorded_at: self.log.now(),
            };
            self.add(None, record);
        }
    }

    fn running_turn(&self, chat: &ChannelUri) -> String {
        let of_chat = self.recorders.iter().filter(|recorder| recorder.scope.chat == *chat);
        of_chat.filter_map(|recorder| recorder.running_turn()).next_back().unwrap_or_default()
    }

    /// Stores the records, passes them to the calls that made them, and returns those of
    /// other origin.
    pub(crate) fn finish(self) -> Vec<(Option<CallKey>, EditRecord)> {
        let mut stored = Vec::new();
        for (session, records) in self.records {
            let entry = self.log.sessions.entry(&session);
            let (keys, records): (Vec<_>, Vec<_>) = records.into_iter().unzip();
            match entry.append(records) {
                Ok(records) => stored.extend(keys.into_iter().zip(records)),
                Err(error) => tracing::warn!(%error, %session, "cannot record edits"),
            }
        }
        for (key, record) in &stored {
            if let Some(key) = key
                && let Some(recorder) = self.log.registry.recorder(key.recorder)
            {
                recorder.deliver(&key.tool_call, record);
            }
        }
        self.log.changed.add(self.affected);
        stored
    }
}

/// The paths that are below a directory.
pub(crate) fn below(paths: &[PathBuf], root: &Path) -> Vec<PathBuf> {
    paths.iter().filter(|path| path.starts_with(root)).cloned().collect()
}
