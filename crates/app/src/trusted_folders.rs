//! The user's decisions about folders, in a file of the data directory.
//!
//! The host and `innkeeper trust` both change the file, under a lock. It is read at every
//! use, so that a change by one is seen by the other. A decision counts for the settings
//! that the folder had at the time; a subfolder of a trusted folder is trusted with the
//! settings that it has when it is first used. Folders in `config.toml` are always trusted.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use innkeeper_core::trust::{FolderTrust, TrustDecision};
use serde::{Deserialize, Serialize};

/// Stored decisions about folders.
#[derive(Debug)]
pub(crate) struct TrustFile {
    path: PathBuf,
    /// Folders that the configuration file trusts, as real paths.
    configured: Vec<PathBuf>,
}

/// Contents of the file: decisions by real path.
#[derive(Debug, Default, Deserialize, Serialize)]
struct Decisions {
    folders: BTreeMap<PathBuf, FolderEntry>,
}

/// The decision about one folder.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct FolderEntry {
    /// The decision.
    pub(crate) trusted: bool,
    /// Identifies the settings that it counts for; `None` for those at the first use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) settings: Option<String>,
}

impl FolderEntry {
    fn decision(&self) -> TrustDecision {
        if self.trusted { TrustDecision::Trusted } else { TrustDecision::Restricted }
    }
}

impl TrustFile {
    /// The decisions in the file at `path`, which need not exist.
    pub(crate) fn new(path: PathBuf, configured: &[PathBuf]) -> Self {
        Self { path, configured: configured.iter().map(|folder| real_path(folder)).collect() }
    }

    /// All decisions in the file.
    pub(crate) fn list(&self) -> Result<BTreeMap<PathBuf, FolderEntry>> {
        Ok(self.read()?.folders)
    }

    /// Trusts a folder and its subfolders.
    pub(crate) fn add(&self, folder: &Path) -> Result<PathBuf> {
        let folder =
            std::fs::canonicalize(folder).with_context(|| format!("cannot trust {}", folder.display()))?;
        self.change(|decisions| {
            decisions.folders.insert(folder.clone(), FolderEntry { trusted: true, settings: None });
        })?;
        Ok(folder)
    }

    /// Removes the decisions about a folder and its subfolders. Returns how many there were.
    pub(crate) fn remove(&self, folder: &Path) -> Result<usize> {
        let folder = real_path(&std::path::absolute(folder)?);
        self.change(|decisions| {
            let before = decisions.folders.len();
            decisions.folders.retain(|known, _| !known.starts_with(&folder));
            before - decisions.folders.len()
        })
    }

    fn read(&self) -> Result<Decisions> {
        match std::fs::read(&self.path) {
            Ok(content) => serde_json::from_slice(&content)
                .with_context(|| format!("invalid {}; correct or remove it", self.path.display())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Decisions::default()),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", self.path.display())),
        }
    }

    fn change<R>(&self, change: impl FnOnce(&mut Decisions) -> R) -> Result<R> {
        let _lock = self.lock()?;
        let mut decisions = self.read()?;
        let result = change(&mut decisions);
        // A reader sees the old or the new file.
        let draft = self.path.with_extension("json.new");
        let write = || -> Result<()> {
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
            file.write_all(&serde_json::to_vec_pretty(&decisions)?)?;
            file.sync_all()?;
            Ok(std::fs::rename(&draft, &self.path)?)
        };
        write().with_context(|| format!("cannot write {}", self.path.display()))?;
        Ok(result)
    }

    fn lock(&self) -> Result<File> {
        let path = self.path.with_extension("lock");
        let lock = || -> std::io::Result<File> {
            let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path)?;
            file.lock()?;
            Ok(file)
        };
        lock().with_context(|| format!("cannot lock {}", path.display()))
    }

    fn stored_decision(&self, folder: &Path, digest: &str) -> Result<Option<TrustDecision>> {
        let decisions = self.read()?.folders;
        let settings_of_first_use = match decisions.get(folder) {
            Some(FolderEntry { settings: Some(settings), .. }) if settings != digest => return Ok(None),
            Some(entry @ FolderEntry { settings: Some(_), .. }) => return Ok(Some(entry.decision())),
            Some(entry) => entry.clone(),
            None => {
                let parent = folder.ancestors().skip(1).find_map(|parent| decisions.get(parent));
                match parent.filter(|parent| parent.trusted) {
                    Some(parent) => parent.clone(),
                    None => return Ok(None),
                }
            }
        };
        self.put(folder, digest, settings_of_first_use.decision())?;
        Ok(Some(settings_of_first_use.decision()))
    }

    fn put(&self, folder: &Path, digest: &str, decision: TrustDecision) -> Result<()> {
        let trusted = decision == TrustDecision::Trusted;
        let entry = FolderEntry { trusted, settings: Some(digest.to_owned()) };
        self.change(|decisions| {
            decisions.folders.insert(folder.to_owned(), entry);
        })
    }
}

impl FolderTrust for TrustFile {
    fn decision(&self, folder: &Path, digest: &str) -> Option<TrustDecision> {
        if self.configured.iter().any(|trusted| folder.starts_with(trusted)) {
            return Some(TrustDecision::Trusted);
        }
        self.stored_decision(folder, digest).unwrap_or_else(|error| {
            tracing::error!(error = format!("{error:#}"), "cannot use the stored trust decisions");
            None
        })
    }

    fn decide(&self, folder: &Path, digest: &str, decision: TrustDecision) -> Result<(), String> {
        self.put(folder, digest, decision).map_err(|error| format!("{error:#}"))
    }
}

fn real_path(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(dir: &tempfile::TempDir) -> TrustFile {
        TrustFile::new(dir.path().join("trust.json"), &[])
    }

    #[test]
    fn decision_counts_for_its_settings_only() {
        let dir = tempfile::tempdir().unwrap();
        let (file, folder) = (file(&dir), Path::new("/a"));
        assert_eq!(file.decision(folder, "1"), None);
        for decision in [TrustDecision::Trusted, TrustDecision::Restricted] {
            file.decide(folder, "1", decision).unwrap();
            assert_eq!(file.decision(folder, "1"), Some(decision));
            assert_eq!(file.decision(folder, "2"), None);
        }
    }

    #[test]
    fn subfolder_inherits_trust_with_settings_of_first_use() {
        let dir = tempfile::tempdir().unwrap();
        let file = file(&dir);
        file.decide(Path::new("/a"), "1", TrustDecision::Trusted).unwrap();
        file.decide(Path::new("/r"), "1", TrustDecision::Restricted).unwrap();
        let inside = Path::new("/a/b/c");
        assert_eq!(file.decision(inside, "7"), Some(TrustDecision::Trusted));
        assert_eq!(file.decision(inside, "8"), None);
        assert_eq!(file.decision(Path::new("/ab"), "7"), None);
        assert_eq!(file.decision(Path::new("/r/s"), "7"), None);
        assert_eq!(file.remove(Path::new("/a")).unwrap(), 2);
        assert_eq!(file.decision(inside, "7"), None);
    }

    #[test]
    fn added_folder_is_trusted_by_real_path() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real"), dir.path().join("link"));
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let file = file(&dir);
        let real = real.canonicalize().unwrap();
        assert_eq!(file.add(&link).unwrap(), real);
        assert_eq!(file.decision(&real, "1"), Some(TrustDecision::Trusted));
        assert_eq!(file.decision(&real, "2"), None);
        assert_eq!(file.remove(&link).unwrap(), 1);
    }

    #[test]
    fn configured_folder_is_trusted_with_any_settings() {
        let dir = tempfile::tempdir().unwrap();
        let configured = TrustFile::new(dir.path().join("trust.json"), &["/a".into()]);
        for digest in ["1", "2"] {
            assert_eq!(configured.decision(Path::new("/a/b"), digest), Some(TrustDecision::Trusted));
        }
        assert_eq!(configured.decision(Path::new("/b"), "1"), None);
    }

    #[test]
    fn invalid_file_trusts_nothing_and_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trust.json");
        std::fs::write(&path, "{").unwrap();
        assert_eq!(file(&dir).decision(Path::new("/a"), "1"), None);
        let error = file(&dir).decide(Path::new("/a"), "1", TrustDecision::Trusted).unwrap_err();
        assert!(error.contains("correct or remove it"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{");
    }
}
