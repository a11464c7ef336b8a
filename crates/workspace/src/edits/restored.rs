//! Files that were restored to their state before the agent's changes, by the user or another
//! program. They are not listed as changed.

use std::collections::HashMap;
use std::fs::{Metadata, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use innkeeper_core::edits::{BlobDigest, FileVersion};
use nix::libc;
use sha2::{Digest as _, Sha256};

use super::folding::NetChange;

/// Digests that are remembered. All are forgotten beyond that.
const MAX_DIGESTS: usize = 4_096;

/// Compares files with their state before a change. A file is read only if its size is the same,
/// and again only if it changed.
#[derive(Debug, Default)]
pub(crate) struct RestoredFiles {
    digests: Mutex<HashMap<PathBuf, (ReadStamp, BlobDigest)>>,
}

/// Identifies a content that was read: device, inode, size, and the times of the last changes.
type ReadStamp = (u64, u64, u64, (i64, i64), (i64, i64));

impl RestoredFiles {
    /// Whether a changed file is as it was before. `false` if it cannot be read.
    pub(crate) fn is_restored(&self, net: &NetChange) -> bool {
        let found = net.path.symlink_metadata();
        match (&net.before, found) {
            (FileVersion::Absent, Err(error)) => error.kind() == std::io::ErrorKind::NotFound,
            (FileVersion::File { blob, size, mode, .. }, Ok(found)) => {
                found.is_file()
                    && found.len() == *size
                    && found.mode() & 0o7777 == *mode
                    && self.digest(&net.path, &found) == Some(*blob)
            }
            (FileVersion::Link { target }, Ok(found)) => {
                found.is_symlink() && std::fs::read_link(&net.path).is_ok_and(|now| now == *target)
            }
            (
                FileVersion::Absent
                | FileVersion::File { .. }
                | FileVersion::Link { .. }
                | FileVersion::Unknown(_),
                _,
            ) => false,
        }
    }

    fn digest(&self, path: &Path, found: &Metadata) -> Option<BlobDigest> {
        let stamp = stamp(found);
        let digests = || self.digests.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, digest)) = digests().get(path).filter(|(known, _)| *known == stamp) {
            return Some(*digest);
        }
        let digest = read_digest(path, found.len())?;
        // A file that changes now has another stamp later.
        if path.symlink_metadata().is_ok_and(|now| self::stamp(&now) == stamp) && !is_recent(found) {
            let mut digests = digests();
            if digests.len() >= MAX_DIGESTS {
                digests.clear();
            }
            digests.insert(path.to_owned(), (stamp, digest));
        }
        Some(digest)
    }
}

/// Reads a regular file of a size in pieces: it may be large, and another program may replace it
/// by a pipe or by a link at any time.
fn read_digest(path: &Path, size: u64) -> Option<BlobDigest> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut digest = Sha256::new();
    std::io::copy(&mut file.take(size.saturating_add(1)), &mut digest).ok()?;
    Some(BlobDigest::from_bytes(digest.finalize().into()))
}

fn stamp(found: &Metadata) -> ReadStamp {
    let (modified, changed) = ((found.mtime(), found.mtime_nsec()), (found.ctime(), found.ctime_nsec()));
    (found.dev(), found.ino(), found.size(), modified, changed)
}

/// Whether the file may change again without another time stamp.
fn is_recent(found: &Metadata) -> bool {
    let now = innkeeper_core::clock::Clock::now(&innkeeper_core::clock::SystemClock);
    now.as_second().saturating_sub(found.ctime()) < 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_with_earlier_content_and_mode_is_restored() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        let before = FileVersion::File { blob: BlobDigest::of(b"one"), size: 3, mode: 0o640, stored: true };
        let files = RestoredFiles::default();
        let is_restored = |before: &FileVersion| {
            files.is_restored(&NetChange::between(path.clone(), before.clone(), FileVersion::Absent))
        };
        assert!(is_restored(&FileVersion::Absent) && !is_restored(&before));
        std::fs::write(&path, "two").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(!is_restored(&FileVersion::Absent) && !is_restored(&before));
        std::fs::write(&path, "one").unwrap();
        assert!(is_restored(&before));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(!is_restored(&before));
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("x", &path).unwrap();
        assert!(is_restored(&FileVersion::Link { target: "x".into() }));
        assert!(!is_restored(&FileVersion::Link { target: "y".into() }) && !is_restored(&before));
    }
}
