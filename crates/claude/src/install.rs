//! Installed Claude runtimes: listing, installing and removing.
//!
//! Owns the runtimes folder (`<runtimes>/<version>/`), its lock and its scratch folders. Does not start a
//! runtime or choose one for a session. A version's folder is created by one rename, so it is either
//! complete or absent. Only [`Runtimes::install`] uses the network.

mod download;
mod error;
mod folder;
mod npm_registry;
mod platform;
mod unpack;
mod version;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

pub use self::error::InstallError;
pub use self::npm_registry::{NpmRegistry, RegistryError, RegistrySearch};
pub use self::version::{ParseVersionError, RuntimeVersion};

use self::download::Download;
use self::folder::{FolderLock, LockOutcome, Scratch};

/// An installed runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledRuntime {
    /// Version, also the name of its folder.
    pub version: RuntimeVersion,
    /// The program: a native binary, or a `.js` file to run with Node.
    pub program: PathBuf,
    /// Total size of its files in bytes.
    pub size: u64,
}

/// Progress of an install.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstallProgress {
    /// Waiting for another install or removal in the same folder.
    Waiting,
    /// The package is being downloaded.
    Downloading {
        /// Bytes received so far.
        received: u64,
        /// Total bytes, if the registry sends them.
        total: Option<u64>,
    },
    /// The download was verified and is being unpacked.
    Unpacking,
}

/// Limits of one install.
#[derive(Debug, Clone, Copy)]
pub struct InstallLimits {
    /// Connect timeout.
    pub connect: Duration,
    /// Read timeout. There is no total timeout, because connections may be slow.
    pub idle: Duration,
    /// Largest package to download, in bytes.
    pub download: u64,
    /// Largest content to unpack, in bytes; protects against decompression bombs.
    pub unpacked: u64,
}

impl Default for InstallLimits {
    /// Native packages are 170 MB and unpack to 370 MB; the limits are four times that.
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(15),
            idle: Duration::from_secs(30),
            download: 700_000_000,
            unpacked: 1_500_000_000,
        }
    }
}

/// The folder that contains all installed runtimes.
#[derive(Debug, Clone)]
pub struct Runtimes {
    /// The folder; created by the first install.
    dir: PathBuf,
    /// Limits of every install.
    limits: InstallLimits,
}

impl Runtimes {
    /// Uses this folder. Does not access the file system.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), limits: InstallLimits::default() }
    }

    /// Replaces the install limits.
    #[must_use]
    pub fn with_limits(mut self, limits: InstallLimits) -> Self {
        self.limits = limits;
        self
    }

    /// The runtimes folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Lists installed runtimes, oldest version first.
    ///
    /// # Errors
    /// If the folder exists but cannot be read.
    pub fn list(&self) -> Result<Vec<InstalledRuntime>, InstallError> {
        folder::list(&self.dir)
    }

    /// The program of a version, if that version is installed.
    pub fn path(&self, version: RuntimeVersion) -> Option<PathBuf> {
        let program = self.dir.join(version.to_string()).join(version.program());
        program.is_file().then_some(program)
    }

    /// The program of the pinned native version, if it is installed.
    pub fn default_program(&self) -> Option<PathBuf> {
        self.path(RuntimeVersion::PINNED_NATIVE)
    }

    /// Removes an installed version.
    ///
    /// # Errors
    /// If the version is not installed, another install is running in the same folder, or a file system
    /// operation fails.
    pub fn remove(&self, version: RuntimeVersion) -> Result<(), InstallError> {
        let target = self.dir.join(version.to_string());
        if !target.exists() {
            return Err(InstallError::NotInstalled { version });
        }
        let lock =
            FolderLock::try_take(&self.dir)?.ok_or_else(|| InstallError::Busy { dir: self.dir.clone() })?;
        // Renames the folder before its files are deleted, so that no reader sees a partial runtime.
        Scratch::create(lock)?.retire(&target)
    }

    /// Installs a version; returns immediately if it is already installed.
    ///
    /// Installs into the same folder, in this process or in others, run one at a time. A cancelled,
    /// failed or dropped install leaves the folder unchanged.
    ///
    /// # Errors
    /// See [`InstallError`]; every message suggests a remedy.
    pub async fn install(
        &self,
        version: RuntimeVersion,
        registry: &NpmRegistry,
        progress: &(dyn Fn(InstallProgress) + Send + Sync),
        cancel: &CancellationToken,
    ) -> Result<InstalledRuntime, InstallError> {
        let package = version.package()?;
        let target = self.dir.join(version.to_string());
        if let Some(installed) = folder::inspect(&target, version)? {
            return Ok(installed);
        }
        // The unpacking thread outlives this future; dropping the future cancels the thread's token.
        let stop = cancel.child_token();
        let _stop_on_drop = stop.clone().drop_guard();

        let download = Download { registry, package: &package, version, limits: self.limits, progress };
        let fetched = stop.run_until_cancelled(async {
            let lock = match folder::wait_for_lock(&self.dir, &target, version, progress).await? {
                LockOutcome::Acquired(lock) => lock,
                LockOutcome::AlreadyInstalled(installed) => return Ok(Fetched::Meanwhile(installed)),
            };
            let scratch = Scratch::create(lock)?;
            download.fetch(scratch.tarball()).await?;
            Ok(Fetched::Tarball(scratch))
        });
        let scratch = match fetched.await.ok_or(InstallError::Cancelled)?? {
            Fetched::Meanwhile(installed) => return Ok(installed),
            Fetched::Tarball(scratch) => scratch,
        };

        progress(InstallProgress::Unpacking);
        let limit = self.limits.unpacked;
        // The thread owns the scratch folder and the lock, so both are held until it stops writing.
        tokio::task::spawn_blocking(move || {
            unpack::unpack(scratch.tarball(), scratch.package(), version, limit, &stop)?;
            scratch.publish(&target)?;
            folder::inspect(&target, version)?.ok_or(InstallError::NotInstalled { version })
        })
        .await
        .map_err(InstallError::Worker)?
    }
}

/// Result of the download step.
enum Fetched {
    /// Another process installed the version while this install waited.
    Meanwhile(InstalledRuntime),
    /// The scratch folder with the verified package.
    Tarball(Scratch),
}
