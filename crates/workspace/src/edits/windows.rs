//! Decides which calls made the changes that an observation of a directory found.
//!
//! A pure state machine: it knows the open windows and the claimed files of one directory,
//! and assigns transitions to them. Invariant: a directory is observed before a window
//! opens or closes, so the set of windows is constant between two observations.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use innkeeper_core::channel::ChannelUri;
use innkeeper_core::edits::FileVersion;

/// Identifies a call of a recorder.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CallKey {
    /// The recorder.
    pub(crate) recorder: u64,
    /// The call.
    pub(crate) tool_call: String,
}

/// A call that may change any file below its roots while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallWindow {
    /// The call.
    pub(crate) key: CallKey,
    /// Its session.
    pub(crate) session: ChannelUri,
    /// Its chat.
    pub(crate) chat: ChannelUri,
    /// Its turn.
    pub(crate) turn: String,
    /// The canonical working directories of its session.
    pub(crate) roots: Vec<PathBuf>,
    /// Whether it continues in the background.
    pub(crate) in_background: bool,
}

impl CallWindow {
    fn covers(&self, path: &Path) -> bool {
        self.roots.iter().any(|root| path.starts_with(root))
    }
}

/// The files that a running call named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClaimedFile {
    /// Transitions that other observations saw since the call was announced.
    pub(crate) steps: u32,
    /// Parent directories that these transitions created.
    pub(crate) new_parents: u32,
    /// Whether another call changed the file at the same time.
    pub(crate) overlaps: bool,
    /// The file when the call was announced.
    pub(crate) start: Option<FileVersion>,
}

/// What made a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Attribution {
    /// A call that named the file is running, and records the change when it ends.
    Claimed,
    /// These calls, any of which may have made it.
    Windows(Vec<CallWindow>),
    /// None of the calls.
    External,
}

/// The open windows and claimed files of a directory.
#[derive(Debug, Default)]
pub(crate) struct WindowSet {
    open: Vec<CallWindow>,
    claims: Vec<(CallKey, BTreeMap<PathBuf, ClaimedFile>)>,
}

impl WindowSet {
    /// Opens a window. A window of the same call is replaced.
    pub(crate) fn open(&mut self, window: CallWindow) {
        self.close(&window.key);
        self.open.push(window);
    }

    /// Closes the window of a call.
    pub(crate) fn close(&mut self, key: &CallKey) -> Option<CallWindow> {
        let index = self.open.iter().position(|window| window.key == *key)?;
        Some(self.open.remove(index))
    }

    /// Marks a call as running in the background.
    pub(crate) fn continue_in_background(&mut self, key: &CallKey) {
        for window in self.open.iter_mut().filter(|window| window.key == *key) {
            window.in_background = true;
        }
    }

    /// The open windows.
    pub(crate) fn windows(&self) -> &[CallWindow] {
        &self.open
    }

    /// Removes the windows and claims of recorders that no longer exist.
    pub(crate) fn retain(&mut self, mut is_live: impl FnMut(u64) -> bool) {
        self.open.retain(|window| is_live(window.key.recorder));
        self.claims.retain(|(key, _)| is_live(key.recorder));
    }

    /// Claims files for a call that named them. Earlier claims of the call are replaced.
    pub(crate) fn claim(&mut self, key: &CallKey, files: impl IntoIterator<Item = (PathBuf, FileVersion)>) {
        self.release(key);
        let files = files
            .into_iter()
            .map(|(path, version)| (path, ClaimedFile { start: Some(version), ..ClaimedFile::default() }));
        self.claims.push((key.clone(), files.collect()));
    }

    /// Ends the claims of a call.
    pub(crate) fn release(&mut self, key: &CallKey) -> Option<BTreeMap<PathBuf, ClaimedFile>> {
        let index = self.claims.iter().position(|(claimant, _)| claimant == key)?;
        Some(self.claims.remove(index).1)
    }

    /// Tells the other calls that claim a file that a call changed it: their own change
    /// begins with this version.
    pub(crate) fn restart_claims(&mut self, path: &Path, version: &FileVersion) -> bool {
        let mut found = false;
        for (_, files) in &mut self.claims {
            if let Some(claimed) = files.get_mut(path) {
                let start = Some(version.clone());
                *claimed = ClaimedFile { overlaps: true, start, ..ClaimedFile::default() };
                found = true;
            }
        }
        found
    }

    /// The windows of calls other than `key` that may change a file at the moment.
    pub(crate) fn sharing(&self, path: &Path, key: &CallKey) -> Vec<CallWindow> {
        self.open.iter().filter(|window| window.key != *key && window.covers(path)).cloned().collect()
    }

    /// Assigns a change that an observation found.
    pub(crate) fn attribute(&mut self, path: &Path, new_parents: u32) -> Attribution {
        let mut claimed = false;
        for file in self.claims.iter_mut().filter_map(|(_, files)| files.get_mut(path)) {
            file.steps = file.steps.saturating_add(1);
            file.new_parents = file.new_parents.max(new_parents);
            claimed = true;
        }
        if claimed {
            return Attribution::Claimed;
        }
        let windows: Vec<_> = self.open.iter().filter(|window| window.covers(path)).cloned().collect();
        if windows.is_empty() { Attribution::External } else { Attribution::Windows(windows) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(recorder: u64, call: &str) -> CallKey {
        CallKey { recorder, tool_call: call.to_owned() }
    }

    fn window(recorder: u64, call: &str, root: &str) -> CallWindow {
        CallWindow {
            key: key(recorder, call),
            session: ChannelUri::new("s:/1"),
            chat: ChannelUri::new("c:/1"),
            turn: "t".to_owned(),
            roots: vec![PathBuf::from(root)],
            in_background: false,
        }
    }

    fn calls(attribution: Attribution) -> Vec<String> {
        match attribution {
            Attribution::Windows(windows) => windows.into_iter().map(|window| window.key.tool_call).collect(),
            Attribution::External => vec!["external".to_owned()],
            Attribution::Claimed => vec!["claimed".to_owned()],
        }
    }

    #[test]
    fn change_belongs_to_all_open_windows_that_cover_it() {
        let mut set = WindowSet::default();
        let path = Path::new("/p/sub/x");
        assert_eq!(calls(set.attribute(path, 0)), ["external"]);
        set.open(window(1, "a", "/p"));
        assert_eq!(calls(set.attribute(path, 0)), ["a"]);
        set.open(window(2, "b", "/p/sub"));
        set.open(window(3, "c", "/p/su"));
        assert_eq!(calls(set.attribute(path, 0)), ["a", "b"]);
        assert_eq!(calls(set.attribute(Path::new("/p/x"), 0)), ["a"]);
        assert!(set.close(&key(1, "a")).is_some());
        assert_eq!(calls(set.attribute(path, 0)), ["b"]);
        set.retain(|recorder| recorder != 2);
        assert_eq!(calls(set.attribute(path, 0)), ["external"]);
    }

    #[test]
    fn claimed_file_is_left_to_the_call_that_named_it() {
        let mut set = WindowSet::default();
        let path = Path::new("/p/x");
        set.open(window(1, "a", "/p"));
        set.claim(&key(2, "edit"), [(path.to_owned(), FileVersion::Absent)]);
        assert_eq!(calls(set.attribute(path, 0)), ["claimed"]);
        assert_eq!(set.sharing(path, &key(2, "edit")).len(), 1);
        let claimed = set.release(&key(2, "edit")).unwrap();
        assert_eq!(claimed.get(path).unwrap().steps, 1);
        assert_eq!(calls(set.attribute(path, 0)), ["a"]);
    }

    #[test]
    fn second_claim_begins_with_the_first_calls_result() {
        let mut set = WindowSet::default();
        let path = Path::new("/p/x");
        set.claim(&key(1, "a"), [(path.to_owned(), FileVersion::Absent)]);
        set.claim(&key(2, "b"), [(path.to_owned(), FileVersion::Absent)]);
        assert!(set.release(&key(1, "a")).is_some());
        let link = FileVersion::Link { target: PathBuf::from("y") };
        assert!(set.restart_claims(path, &link));
        let claimed = set.release(&key(2, "b")).unwrap();
        assert_eq!(claimed.get(path).unwrap().start, Some(link));
        assert!(claimed.get(path).unwrap().overlaps);
    }
}
