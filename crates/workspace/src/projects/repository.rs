//! Finds the repository around a directory. Reads a few small files and starts no process.

use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Longest content of a file that names a directory.
const MAX_POINTER: u64 = 8 * 1024;

/// A repository, as seen from one of its working trees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Repository {
    /// The root of the working tree.
    pub(super) root: PathBuf,
    /// The directory with the state of this working tree.
    pub(super) git_dir: PathBuf,
    /// The directory with what all working trees share, such as branches.
    pub(super) common_dir: PathBuf,
    /// The root of the main working tree, or the repository itself if it has none.
    pub(super) main: PathBuf,
}

impl Repository {
    /// The repository around a directory.
    pub(super) fn around(directory: &Path) -> Option<Self> {
        let directory = directory.canonicalize().ok()?;
        let root = directory.ancestors().find(|ancestor| ancestor.join(".git").symlink_metadata().is_ok())?;
        let entry = root.join(".git");
        let git_dir = if entry.is_dir() { entry.clone() } else { named_in(&entry, "gitdir:")? };
        let git_dir = git_dir.canonicalize().ok()?;
        let alone = Self {
            root: root.to_owned(),
            git_dir: git_dir.clone(),
            common_dir: git_dir.clone(),
            main: root.to_owned(),
        };
        let Some(common_dir) =
            named_in(&git_dir.join("commondir"), "").and_then(|dir| dir.canonicalize().ok())
        else {
            return Some(alone);
        };
        // A folder could name the repository of another one, which would then be its project.
        let back = named_in(&git_dir.join("gitdir"), "").and_then(|back| back.canonicalize().ok());
        if back.as_deref() != Some(&*entry) || !git_dir.starts_with(&common_dir) {
            return Some(alone);
        }
        let is_inside = common_dir.file_name().is_some_and(|name| name == ".git");
        let main = common_dir.parent().filter(|_| is_inside).unwrap_or(&common_dir).to_owned();
        Some(Self { common_dir, main, ..alone })
    }

    /// Whether the working tree is linked to another, main one.
    pub(super) fn is_linked(&self) -> bool {
        self.root != self.main
    }

    /// The name for users.
    pub(super) fn name(&self) -> String {
        let name = self.main.file_name().unwrap_or(self.main.as_os_str()).to_string_lossy();
        let bare = name.strip_suffix(".git").filter(|stem| !stem.is_empty());
        bare.unwrap_or(&name).to_owned()
    }
}

/// The directory that a file names, relative to the file's own directory.
fn named_in(file: &Path, label: &str) -> Option<PathBuf> {
    // Opening a pipe must not wait for a writer.
    let opened =
        std::fs::OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(file).ok()?;
    if !opened.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    opened.take(MAX_POINTER).read_to_string(&mut text).ok()?;
    let named = text.strip_prefix(label)?.trim();
    (!named.is_empty()).then(|| file.parent().unwrap_or(file).join(named))
}
