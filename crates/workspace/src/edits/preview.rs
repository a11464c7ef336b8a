//! What planned edits would change.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use innkeeper_core::edits::{
    EditSource, EditStorageError, FileVersion, PlannedChange, PlannedEdit, PlannedReplacement, RecordedEdit,
    StoredBlob,
};

use super::attribution::{Attributor, below, lock_all};
use super::paths;
use super::recorder::RecorderState;
use super::shared::LogParts;
use super::view;

/// Edits of one preview.
const MAX_PREVIEWS: usize = 100;

/// Computes planned edits. An edit that would fail has no preview.
pub(crate) fn preview(
    log: &LogParts,
    recorder: &RecorderState,
    turn: &str,
    planned: Vec<PlannedEdit>,
) -> Vec<RecordedEdit> {
    let roots = recorder.roots(log);
    let mut current: HashMap<PathBuf, FileVersion> = HashMap::new();
    let mut edits = Vec::new();
    for edit in planned.into_iter().take(MAX_PREVIEWS) {
        // The last target is the file itself, after its links.
        let Some(path) = paths::targets(std::slice::from_ref(&edit.path), &roots).pop() else { continue };
        let found = current.get(&path).cloned().or_else(|| observe(log, &path));
        let Some(before) = found else { continue };
        match plan(log, &before, &edit.change) {
            Ok(Some(planned)) => {
                recorder.hold(turn, planned.digest);
                edits.extend(planned.show(log, &path, &before));
                current.insert(path, planned.version);
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "cannot preview an edit"),
        }
    }
    edits
}

fn observe(log: &LogParts, path: &PathBuf) -> Option<FileVersion> {
    let files = std::slice::from_ref(path);
    let involved = log.registry.involved(files);
    let mut locked = lock_all(log, &involved);
    let mut attributor = Attributor::new(log);
    let mut version = None;
    for (root, windows) in &mut locked {
        let here = below(files, &root.path);
        if here.is_empty() {
            continue;
        }
        match root.tracker.observe(&here) {
            Ok(observed) => {
                attributor.assign(root, windows, observed.transitions);
                version = observed.versions.into_iter().next().map(|(_, version)| version);
            }
            Err(error) => tracing::warn!(%error, "cannot read a file for a preview"),
        }
    }
    drop(attributor.finish());
    version
}

struct PlannedVersion {
    version: FileVersion,
    digest: innkeeper_core::edits::BlobDigest,
}

impl PlannedVersion {
    fn show(&self, log: &LogParts, path: &Path, before: &FileVersion) -> Option<RecordedEdit> {
        let counts = log.line_counts.counts(before, &self.version, log).ok()?;
        let edit = view::edit_of((path, before), (path, &self.version), counts);
        Some(RecordedEdit { edit, source: EditSource::Tool })
    }
}

fn plan(
    log: &LogParts,
    before: &FileVersion,
    change: &PlannedChange,
) -> Result<Option<PlannedVersion>, EditStorageError> {
    let old = match before {
        FileVersion::File { blob, stored: true, .. } => log.storage.read_blob(*blob)?,
        FileVersion::Absent => Some(Bytes::new()),
        FileVersion::File { .. } | FileVersion::Link { .. } | FileVersion::Unknown(_) => None,
    };
    let content = match change {
        PlannedChange::Write(content) => Some(content.clone()),
        PlannedChange::Replace(replacements) => old.and_then(|old| replace_all(&old, replacements)),
    };
    let limit = usize::try_from(log.config.limits.max_file_size).unwrap_or(usize::MAX);
    let Some(content) = content.filter(|content| content.len() <= limit) else { return Ok(None) };
    let mode = match before {
        FileVersion::File { mode, .. } => *mode,
        FileVersion::Absent | FileVersion::Link { .. } | FileVersion::Unknown(_) => 0o644,
    };
    let size = u64::try_from(content.len()).unwrap_or(u64::MAX);
    let blob = StoredBlob::new(content);
    let digest = blob.digest;
    log.storage.put_blobs(vec![blob])?;
    Ok(Some(PlannedVersion { version: FileVersion::File { blob: digest, size, mode, stored: true }, digest }))
}

/// Replaces text as the agent's tool does; `None` if the tool would fail.
fn replace_all(content: &[u8], replacements: &[PlannedReplacement]) -> Option<Bytes> {
    let text = std::str::from_utf8(content).ok()?;
    // The tool works with line feeds, and writes the file's own line ends.
    let has_returns = text.contains("\r\n");
    let mut text = if has_returns { text.replace("\r\n", "\n") } else { text.to_owned() };
    for replacement in replacements {
        text = replace(&text, replacement)?;
    }
    Some(if has_returns { text.replace('\n', "\r\n").into() } else { text.into() })
}

fn replace(text: &str, replacement: &PlannedReplacement) -> Option<String> {
    let PlannedReplacement { old, new, all } = replacement;
    if old.is_empty() {
        return text.is_empty().then(|| new.clone());
    }
    // The tool removes the line end, too, if it removes the text before it.
    let with_end = format!("{old}\n");
    let removes_line = new.is_empty() && !old.ends_with('\n') && text.contains(&with_end);
    let old = if removes_line { &with_end } else { old };
    if !text.contains(old.as_str()) {
        return None;
    }
    Some(if *all { text.replace(old.as_str(), new) } else { text.replacen(old.as_str(), new, 1) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(content: &str, old: &str, new: &str, all: bool) -> Option<String> {
        let replacement = PlannedReplacement { old: old.to_owned(), new: new.to_owned(), all };
        let content = replace_all(content.as_bytes(), &[replacement])?;
        Some(String::from_utf8(content.to_vec()).unwrap())
    }

    #[test]
    fn text_is_replaced_as_by_the_tool() {
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(replaced("a b a\n", "a", "c", false), text("c b a\n"));
        assert_eq!(replaced("a b a\n", "a", "c", true), text("c b c\n"));
        assert_eq!(replaced("a\nb\nc\n", "b", "", false), text("a\nc\n"));
        assert_eq!(replaced("a\r\nb\r\n", "a\nb", "c\nd", false), text("c\r\nd\r\n"));
        assert_eq!(replaced("", "", "new\n", false), text("new\n"));
        assert_eq!(replaced("x", "", "new\n", false), None);
        assert_eq!(replaced("x", "y", "z", false), None);
    }
}
