//! Records the edits of calls that name their files.

use std::path::PathBuf;

use bytes::Bytes;
use innkeeper_core::edits::{CallOutcome, EditRecord, EditSource, EditStorageError, FileVersion, StoredBlob};

use super::attribution::{Attributor, below, lock_all};
use super::folding::same;
use super::paths;
use super::recorder::RecorderState;
use super::registry::TrackedRoot;
use super::shared::LogParts;
use super::windows::{CallKey, ClaimedFile, WindowSet};
use crate::tracking::{Observed, Transition};

/// Permission bits of a file whose own bits are not known.
const USUAL_MODE: u32 = 0o644;

/// Reads the files that a call names, and claims them.
pub(crate) fn begin(log: &LogParts, recorder: &RecorderState, key: &CallKey, files: &[PathBuf]) {
    let involved = log.registry.involved(files);
    let mut locked = lock_all(log, &involved);
    let mut attributor = Attributor::new(log);
    for (root, windows) in &mut locked {
        let here = below(files, &root.path);
        if here.is_empty() {
            continue;
        }
        // A call that is announced again may not own what happened meanwhile.
        drop(windows.release(key));
        match root.tracker.observe(&here) {
            Ok(observed) => {
                attributor.assign(root, windows, observed.transitions);
                // Another observation may replace them in the tracker before the call ends.
                let contents = observed.versions.iter().filter_map(|(_, version)| version.stored_blob());
                recorder.hold_for_call(&key.tool_call, contents);
                windows.claim(key, observed.versions);
            }
            Err(error) => tracing::warn!(%error, root = %root.path.display(), "cannot record edits"),
        }
    }
    drop(attributor.finish());
}

/// Ends the claims of a call without records.
pub(crate) fn withdraw(log: &LogParts, key: &CallKey, files: &[PathBuf]) {
    let involved = log.registry.involved(files);
    for (_, windows) in &mut lock_all(log, &involved) {
        drop(windows.release(key));
    }
}

/// Reads the files of a call again, and records the changes as its edits.
pub(crate) fn end(
    log: &LogParts,
    recorder: &RecorderState,
    turn: &str,
    key: &CallKey,
    files: &[PathBuf],
    outcome: &CallOutcome,
) -> Vec<EditRecord> {
    let original = outcome.original.as_ref().and_then(|(path, content)| {
        let resolved = paths::resolved(path)?;
        // A tool follows a link, so its original content is that of the target.
        let file = if resolved.is_symlink() { resolved.canonicalize().ok()? } else { resolved };
        Some((file, content.clone()))
    });
    let involved = log.registry.involved(files);
    let mut locked = lock_all(log, &involved);
    let mut attributor = Attributor::new(log);
    for (root, windows) in &mut locked {
        let here = below(files, &root.path);
        let claims = windows.release(key).unwrap_or_default();
        if here.is_empty() {
            continue;
        }
        let observed = match root.tracker.observe(&here) {
            Ok(observed) => observed,
            Err(error) => {
                tracing::warn!(%error, root = %root.path.display(), "cannot record edits");
                continue;
            }
        };
        let call = EndedCall { log, recorder, turn, key, original: original.as_ref() };
        for (path, now) in &observed.versions {
            call.record(
                &mut attributor,
                root,
                windows,
                FileAfterCall { path, now, claimed: claims.get(path), observed: &observed },
            );
        }
    }
    let stored = attributor.finish();
    stored.into_iter().filter(|(found, _)| found.as_ref() == Some(key)).map(|(_, record)| record).collect()
}

struct EndedCall<'a> {
    log: &'a LogParts,
    recorder: &'a RecorderState,
    turn: &'a str,
    key: &'a CallKey,
    original: Option<&'a (PathBuf, Option<Bytes>)>,
}

struct FileAfterCall<'a> {
    path: &'a PathBuf,
    now: &'a FileVersion,
    claimed: Option<&'a ClaimedFile>,
    observed: &'a Observed,
}

impl EndedCall<'_> {
    fn record(
        &self,
        attributor: &mut Attributor<'_>,
        root: &TrackedRoot,
        windows: &mut WindowSet,
        file: FileAfterCall<'_>,
    ) {
        let transition = file.observed.transitions.iter().find(|transition| transition.path == *file.path);
        let claimed = file.claimed.cloned().unwrap_or_default();
        let announced = claimed.start.is_some();
        let start = claimed.start.or_else(|| transition.map(|transition| transition.before.clone()));
        let original = self.original.filter(|(path, _)| path == file.path).map(|(_, content)| content);
        if start.is_none() && original.is_none() {
            return;
        }
        let origin = self.origin(start.as_ref(), original, announced, file.now);
        let origin = origin.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot store the original content of an edit");
            CallOrigin { between: None, before: start.clone().unwrap_or_else(|| file.now.clone()) }
        });
        let was_seen = transition.is_some() || claimed.steps > 0;
        let is_known = |version: &FileVersion| !matches!(version, FileVersion::Unknown(_));
        let differs = is_known(&origin.before) && is_known(file.now);
        if same(&origin.before, file.now) || !(was_seen || differs) {
            return;
        }
        let new_parents = transition.map_or(0, |transition| transition.new_parents).max(claimed.new_parents);
        let change = |before: &FileVersion, after: &FileVersion| Transition {
            path: file.path.clone(),
            before: before.clone(),
            after: after.clone(),
            new_parents,
        };
        if let (Some(between), Some(start)) = (&origin.between, &start) {
            attributor.add_external(root, &change(start, between), &[]);
        }
        // More than one change was seen, so one of the commands that run may have made a part.
        let several_steps = claimed.steps > 1 || (claimed.steps > 0 && transition.is_some());
        let sharing = if several_steps { windows.sharing(file.path, self.key) } else { Vec::new() };
        let is_claimed = windows.restart_claims(file.path, file.now);
        let change = change(&origin.before, file.now);
        let mut sessions = vec![self.recorder.scope.session.clone()];
        if self.recorder.works_in(&root.path) {
            let overlaps = claimed.overlaps || is_claimed || !sharing.is_empty();
            attributor.add(Some(self.key.clone()), self.edit(&change, overlaps));
        }
        for window in sharing.iter().filter(|window| window.roots.contains(&root.path)) {
            attributor.add_shell(window, &change, true);
            sessions.push(window.session.clone());
        }
        attributor.add_external(root, &change, &sessions);
    }

    fn edit(&self, change: &Transition, overlaps: bool) -> EditRecord {
        EditRecord {
            number: 0,
            session: self.recorder.scope.session.clone(),
            chat: self.recorder.scope.chat.clone(),
            turn: self.turn.to_owned(),
            tool_call: Some(self.key.tool_call.clone()),
            source: EditSource::Tool,
            path: change.path.clone(),
            before: change.before.clone(),
            after: change.after.clone(),
            new_parents: change.new_parents,
            overlaps,
            operation: None,
            recorded_at: self.log.now(),
        }
    }

    /// What the call found. The agent's own report is used if the file was not read before
    /// the call, or if something else changed it after that. An agent that reports that the
    /// file did not exist is not believed if it was read: the content would be lost.
    fn origin(
        &self,
        start: Option<&FileVersion>,
        original: Option<&Option<Bytes>>,
        announced: bool,
        now: &FileVersion,
    ) -> Result<CallOrigin, EditStorageError> {
        let unchanged = |version: &FileVersion| CallOrigin { between: None, before: version.clone() };
        let (start, content) = match (start, original) {
            (None, None) => return Ok(unchanged(now)),
            (Some(start), None) => return Ok(unchanged(start)),
            (Some(start @ (FileVersion::File { .. } | FileVersion::Link { .. })), Some(None)) => {
                return Ok(unchanged(start));
            }
            (_, Some(None)) => return Ok(unchanged(&FileVersion::Absent)),
            (start, Some(Some(content))) => (start, content),
        };
        let size = u64::try_from(content.len()).unwrap_or(u64::MAX);
        if size > self.log.config.limits.max_file_size {
            return Ok(unchanged(start.unwrap_or(now)));
        }
        if let Some(start) = start
            && self.is_reported(start, content)?
        {
            return Ok(unchanged(start));
        }
        let mode = [start, Some(now)].into_iter().flatten().find_map(|version| match version {
            FileVersion::File { mode, .. } => Some(*mode),
            FileVersion::Absent | FileVersion::Link { .. } | FileVersion::Unknown(_) => None,
        });
        let blob = StoredBlob::new(content.clone());
        let before =
            FileVersion::File { blob: blob.digest, size, mode: mode.unwrap_or(USUAL_MODE), stored: true };
        self.log.storage.put_blobs(vec![blob])?;
        let was_read = announced && !matches!(start, None | Some(FileVersion::Unknown(_)));
        Ok(CallOrigin { between: was_read.then(|| before.clone()), before })
    }

    /// Whether a reported content can be the one that was read. Agents report text, with
    /// other line ends and without a byte order mark.
    fn is_reported(&self, version: &FileVersion, reported: &[u8]) -> Result<bool, EditStorageError> {
        let FileVersion::File { blob, stored, .. } = version else {
            return Ok(matches!(version, FileVersion::Link { .. }));
        };
        if !stored || *blob == innkeeper_core::edits::BlobDigest::of(reported) {
            return Ok(true);
        }
        let Some(content) = self.log.storage.read_blob(*blob)? else { return Ok(true) };
        let Ok(text) = std::str::from_utf8(&content) else { return Ok(true) };
        let plain = |text: &str| text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
        Ok(std::str::from_utf8(reported).is_ok_and(|reported| plain(reported) == plain(text)))
    }
}

struct CallOrigin {
    /// What another program made of the file after it was read.
    between: Option<FileVersion>,
    /// The file that the call changed.
    before: FileVersion,
}
