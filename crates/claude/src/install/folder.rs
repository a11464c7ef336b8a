//! The runtimes folder on disk: its lock, its scratch folders and its contents.
//!
//! Owns all names inside the folder. Invariant: a scratch folder exists only while the lock is held. The
//! holder of the lock may therefore delete every scratch folder it finds: their owners are dead.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::InstallError;
use super::version::RuntimeVersion;
use super::{InstallProgress, InstalledRuntime};

/// The lock file. Never deleted: a lock on a deleted file excludes no other process.
const LOCK: &str = ".lock";
/// Name prefix of scratch folders.
const SCRATCH: &str = ".scratch-";
/// Polling interval of a waiting install. Blocking in the kernel would occupy a thread that cannot be
/// cancelled.
const LOCK_POLL: Duration = Duration::from_millis(100);

/// The exclusive right to change the folder. Released on drop, at the latest when the process exits.
#[derive(Debug)]
pub(super) struct FolderLock {
    /// The runtimes folder.
    dir: PathBuf,
    /// The open file that holds the lock.
    _lock: File,
}

impl FolderLock {
    /// Takes the lock if it is free, and deletes the scratch folders of dead owners.
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

/// Result of waiting for the folder.
pub(super) enum LockOutcome {
    /// This process may change the folder.
    Acquired(FolderLock),
    /// Another process installed the version in the meantime.
    AlreadyInstalled(InstalledRuntime),
}

/// Waits for the lock, or until the version is installed.
pub(super) async fn wait_for_lock(
    dir: &Path,
    target: &Path,
    version: RuntimeVersion,
    progress: &(dyn Fn(InstallProgress) + Send + Sync),
) -> Result<LockOutcome, InstallError> {
    let mut told = false;
    loop {
        // Lock first, then check: otherwise the version could appear between the two steps.
        let lock = FolderLock::try_take(dir)?;
        if let Some(installed) = inspect(target, version)? {
            return Ok(LockOutcome::AlreadyInstalled(installed));
        }
        if let Some(lock) = lock {
            return Ok(LockOutcome::Acquired(lock));
        }
        if !told {
            progress(InstallProgress::Waiting);
            told = true;
        }
        tokio::time::sleep(LOCK_POLL).await;
    }
}

/// A scratch folder on the same file system as the runtimes; deleted unless published.
#[derive(Debug)]
pub(super) struct Scratch {
    /// Path of the download.
    tarball: PathBuf,
    /// Path of the unpacked content.
    package: PathBuf,
    /// The folder itself. Declared before the lock because fields are dropped in order: the folder must
    /// be deleted before another process gets the lock.
    folder: tempfile::TempDir,
    /// The lock, held while the folder exists.
    lock: FolderLock,
}

impl Scratch {
    /// Creates an empty scratch folder.
    pub(super) fn create(lock: FolderLock) -> Result<Self, InstallError> {
        let folder = tempfile::Builder::new()
            .prefix(SCRATCH)
            .tempdir_in(&lock.dir)
            .map_err(InstallError::disk("write in", &lock.dir))?;
        Ok(Self {
            tarball: folder.path().join("package.tgz"),
            package: folder.path().join("package"),
            folder,
            lock,
        })
    }

    /// Path of the download.
    pub(super) fn tarball(&self) -> &Path {
        &self.tarball
    }

    /// Path of the unpacked content.
    pub(super) fn package(&self) -> &Path {
        &self.package
    }

    /// Renames the unpacked content to its final name and syncs the folder.
    pub(super) fn publish(self, target: &Path) -> Result<(), InstallError> {
        if target.exists() {
            // The folder contains no program, so it is a leftover that was created manually.
            self.move_away(target)?;
        }
        fs::rename(&self.package, target).map_err(InstallError::disk("create", target))?;
        sync_folder(&self.lock.dir)
    }

    /// Moves a runtime to the scratch folder and deletes it.
    pub(super) fn retire(self, target: &Path) -> Result<(), InstallError> {
        self.move_away(target)?;
        sync_folder(&self.lock.dir)?;
        let place = self.folder.path().to_owned();
        self.folder.close().map_err(InstallError::disk("delete", &place))
    }

    fn move_away(&self, target: &Path) -> Result<(), InstallError> {
        fs::rename(target, self.folder.path().join("retired")).map_err(InstallError::disk("move", target))
    }
}

/// Syncs the entries of a folder to disk.
pub(super) fn sync_folder(dir: &Path) -> Result<(), InstallError> {
    File::open(dir).and_then(|folder| folder.sync_all()).map_err(InstallError::disk("write to disk", dir))
}

/// Lists installed runtimes, oldest version first.
pub(super) fn list(dir: &Path) -> Result<Vec<InstalledRuntime>, InstallError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(InstallError::disk("read", dir)(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(InstallError::disk("read", dir))?;
        // Other names are the lock, scratch folders or unrelated files.
        let version = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(version) = version {
            found.extend(inspect(&entry.path(), version)?);
        }
    }
    found.sort_by_key(|runtime| runtime.version);
    Ok(found)
}

/// The runtime in a version's folder, if it contains one.
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

/// Total size of all files in a folder; does not follow links.
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

/// Deletes all scratch folders. Requires the lock.
fn sweep(dir: &Path) -> Result<(), InstallError> {
    for entry in fs::read_dir(dir).map_err(InstallError::disk("read", dir))? {
        let entry = entry.map_err(InstallError::disk("read", dir))?;
        if entry.file_name().to_string_lossy().starts_with(SCRATCH) {
            let path = entry.path();
            tracing::info!(path = %path.display(), "deleting scratch folder of an interrupted install");
            fs::remove_dir_all(&path).map_err(InstallError::disk("delete", &path))?;
        }
    }
    Ok(())
}
