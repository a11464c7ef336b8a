//! The folder of runtimes on disk: its lock, its scratch folders, and what is installed.
//!
//! Owns all names inside the folder. Invariant: a scratch folder exists only while the lock is held, so whoever
//! gets the lock may sweep every scratch folder it finds: its owner is dead.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::InstallError;
use super::version::RuntimeVersion;
use super::{InstallProgress, InstalledRuntime};

/// The lock file. It is never deleted: a lock on a deleted file would exclude nobody.
const LOCK: &str = ".lock";
/// How names of scratch folders start.
const SCRATCH: &str = ".scratch-";
/// How often a waiting install asks for the lock. Waiting in the kernel instead would hold a thread that
/// cannot be cancelled.
const LOCK_POLL: Duration = Duration::from_millis(100);

/// The exclusive right to change the folder. Ends with this value, and with the process at the latest.
#[derive(Debug)]
pub(super) struct Claim {
    /// The folder of runtimes.
    dir: PathBuf,
    /// The open lock file, which the lock is tied to.
    _lock: File,
}

impl Claim {
    /// Takes the lock if nobody has it, and sweeps what a dead owner left.
    pub(super) fn try_take(dir: &Path) -> Result<Option<Self>, InstallError> {
        fs::create_dir_all(dir).map_err(InstallError::disk("create", dir))?;
        let path = dir.join(LOCK);
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(InstallError::disk("open", &path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(source)) => {
                return Err(InstallError::disk("lock", &path)(source));
            }
        }
        sweep(dir)?;
        Ok(Some(Self { dir: dir.to_owned(), _lock: lock }))
    }
}

/// How waiting for the folder ended.
pub(super) enum Turn {
    /// The folder is ours to change.
    Ours(Claim),
    /// Somebody else installed the version in the meantime.
    Done(InstalledRuntime),
}

/// Waits until the folder may be changed, or until there is no need to.
pub(super) async fn wait_for_turn(
    dir: &Path,
    target: &Path,
    version: RuntimeVersion,
    progress: &(dyn Fn(InstallProgress) + Send + Sync),
) -> Result<Turn, InstallError> {
    let mut told = false;
    loop {
        // The lock comes before the look, or the version could appear between the two.
        let claim = Claim::try_take(dir)?;
        if let Some(installed) = inspect(target, version)? {
            return Ok(Turn::Done(installed));
        }
        if let Some(claim) = claim {
            return Ok(Turn::Ours(claim));
        }
        if !told {
            progress(InstallProgress::Waiting);
            told = true;
        }
        tokio::time::sleep(LOCK_POLL).await;
    }
}

/// A scratch folder beside the runtimes, on the same file system, which goes away unless it is published.
#[derive(Debug)]
pub(super) struct Scratch {
    /// Where the download goes.
    tarball: PathBuf,
    /// Where the content goes.
    package: PathBuf,
    /// The folder itself. It stands before the claim because fields are dropped in order: the folder has to be
    /// gone before somebody else gets the lock.
    folder: tempfile::TempDir,
    /// The right to have it.
    claim: Claim,
}

impl Scratch {
    /// Makes an empty one.
    pub(super) fn create(claim: Claim) -> Result<Self, InstallError> {
        let folder = tempfile::Builder::new()
            .prefix(SCRATCH)
            .tempdir_in(&claim.dir)
            .map_err(InstallError::disk("write in", &claim.dir))?;
        Ok(Self {
            tarball: folder.path().join("package.tgz"),
            package: folder.path().join("package"),
            folder,
            claim,
        })
    }

    /// Where the download goes.
    pub(super) fn tarball(&self) -> &Path {
        &self.tarball
    }

    /// Where the content goes.
    pub(super) fn package(&self) -> &Path {
        &self.package
    }

    /// Gives the unpacked content its final name, durably.
    pub(super) fn publish(self, target: &Path) -> Result<(), InstallError> {
        if target.exists() {
            // No program was found in it, so it is a leftover that somebody made by hand.
            self.move_away(target)?;
        }
        fs::rename(&self.package, target).map_err(InstallError::disk("create", target))?;
        sync_folder(&self.claim.dir)
    }

    /// Takes a runtime out of its place; its files go with the scratch folder.
    pub(super) fn retire(self, target: &Path) -> Result<(), InstallError> {
        self.move_away(target)?;
        sync_folder(&self.claim.dir)?;
        let place = self.folder.path().to_owned();
        self.folder.close().map_err(InstallError::disk("delete", &place))
    }

    /// Moves a folder into the scratch folder.
    fn move_away(&self, target: &Path) -> Result<(), InstallError> {
        fs::rename(target, self.folder.path().join("retired")).map_err(InstallError::disk("move", target))
    }
}

/// Makes the names in a folder durable.
pub(super) fn sync_folder(dir: &Path) -> Result<(), InstallError> {
    File::open(dir).and_then(|folder| folder.sync_all()).map_err(InstallError::disk("write to disk", dir))
}

/// Lists the installed runtimes, oldest version first.
pub(super) fn list(dir: &Path) -> Result<Vec<InstalledRuntime>, InstallError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(InstallError::disk("read", dir)(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(InstallError::disk("read", dir))?;
        // Names that are no version are the lock, scratch folders, or none of our business.
        let version = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(version) = version {
            found.extend(inspect(&entry.path(), version)?);
        }
    }
    found.sort_by_key(|runtime| runtime.version);
    Ok(found)
}

/// What is installed in a version's folder, if it is a runtime.
pub(super) fn inspect(
    target: &Path,
    version: RuntimeVersion,
) -> Result<Option<InstalledRuntime>, InstallError> {
    let program = target.join(version.program());
    if !program.is_file() {
        return Ok(None);
    }
    let size = size_of(target).map_err(InstallError::disk("read", target))?;
    Ok(Some(InstalledRuntime { version, program, size }))
}

/// Bytes of all files below a folder; links count as themselves and are not followed.
fn size_of(dir: &Path) -> io::Result<u64> {
    let mut sum = 0;
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if metadata.is_dir() {
                folders.push(entry.path());
            } else {
                sum += metadata.len();
            }
        }
    }
    Ok(sum)
}

/// Deletes all scratch folders. Only for the holder of the lock.
fn sweep(dir: &Path) -> Result<(), InstallError> {
    for entry in fs::read_dir(dir).map_err(InstallError::disk("read", dir))? {
        let entry = entry.map_err(InstallError::disk("read", dir))?;
        if entry.file_name().to_string_lossy().starts_with(SCRATCH) {
            let path = entry.path();
            tracing::info!(path = %path.display(), "sweeping what an interrupted install left");
            fs::remove_dir_all(&path).map_err(InstallError::disk("delete", &path))?;
        }
    }
    Ok(())
}
