//! The installed Claude runtimes: which ones are there, and how a new one gets there.
//!
//! Owns the folder of runtimes (`<runtimes>/<version>/`), its lock and its scratch folders. Does not start
//! a runtime and does not choose one for a session. A version's folder appears by one rename, so it is
//! either complete or absent, and only [`Runtimes::install`] ever uses the network.

mod download;
mod error;
mod folder;
mod platform;
mod registry;
mod unpack;
mod version;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

pub use self::error::InstallError;
pub use self::registry::{Registry, RegistryError, RegistrySearch};
pub use self::version::{ParseVersionError, RuntimeVersion};

use self::download::Download;
use self::folder::{Claim, Scratch, Turn};

/// A runtime that is installed and ready to be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledRuntime {
    /// Its version, which is also the name of its folder.
    pub version: RuntimeVersion,
    /// What to start: a native binary, or a `.js` file to be run with Node.
    pub program: PathBuf,
    /// Bytes of all its files.
    pub size: u64,
}

/// What an install is doing at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstallProgress {
    /// Another install or removal in the same folder is under way; this one goes on after it.
    Waiting,
    /// The package is being downloaded.
    Downloading {
        /// Bytes so far.
        received: u64,
        /// Bytes in all, where the registry says so.
        total: Option<u64>,
    },
    /// The download is verified and is being unpacked.
    Unpacking,
}

/// Bounds of one install.
#[derive(Debug, Clone, Copy)]
pub struct InstallLimits {
    /// How long a connection may take to come about.
    pub connect: Duration,
    /// How long the registry may send nothing. There is no limit on the whole: lines may be slow.
    pub idle: Duration,
    /// The largest package that is downloaded, in bytes.
    pub download: u64,
    /// The largest content that is unpacked, in bytes; the guard against a decompression bomb.
    pub unpacked: u64,
}

impl Default for InstallLimits {
    /// The native packages of today are 170 MB and unpack to 370 MB: four times that leaves room to grow.
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(15),
            idle: Duration::from_secs(30),
            download: 700_000_000,
            unpacked: 1_500_000_000,
        }
    }
}

/// The folder in which runtimes are installed side by side.
#[derive(Debug, Clone)]
pub struct Runtimes {
    /// The folder; it need not exist before the first install.
    dir: PathBuf,
    /// Bounds of every install into it.
    limits: InstallLimits,
}

impl Runtimes {
    /// Names the folder, without touching it.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), limits: InstallLimits::default() }
    }

    /// Replaces the bounds of installs.
    #[must_use]
    pub fn with_limits(mut self, limits: InstallLimits) -> Self {
        self.limits = limits;
        self
    }

    /// The folder itself.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Lists what is installed, oldest version first.
    ///
    /// # Errors
    /// When the folder exists but cannot be read.
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
    /// When it is not installed, when an install is under way in the same folder, or when the disk refuses.
    pub fn remove(&self, version: RuntimeVersion) -> Result<(), InstallError> {
        let target = self.dir.join(version.to_string());
        if !target.exists() {
            return Err(InstallError::NotInstalled { version });
        }
        let claim =
            Claim::try_take(&self.dir)?.ok_or_else(|| InstallError::Busy { dir: self.dir.clone() })?;
        // The folder leaves its name before its files go, so that nobody sees half a runtime.
        Scratch::create(claim)?.retire(&target)
    }

    /// Installs a version, or returns at once if it is installed already.
    ///
    /// Of several installs into the same folder, in this process or in others, one works and the others wait
    /// for it. Cancelling, a failure and dropping the future all leave the folder as it was.
    ///
    /// # Errors
    /// See [`InstallError`]; every message says what to do.
    pub async fn install(
        &self,
        version: RuntimeVersion,
        registry: &Registry,
        progress: &(dyn Fn(InstallProgress) + Send + Sync),
        cancel: &CancellationToken,
    ) -> Result<InstalledRuntime, InstallError> {
        let package = version.package()?;
        let target = self.dir.join(version.to_string());
        if let Some(installed) = folder::inspect(&target, version)? {
            return Ok(installed);
        }
        // The unpacking thread outlives this future, so it watches a token that dropping the future cancels.
        let stop = cancel.child_token();
        let _stop_on_drop = stop.clone().drop_guard();

        let download = Download { registry, package: &package, version, limits: self.limits, progress };
        let fetched = stop.run_until_cancelled(async {
            let claim = match folder::wait_for_turn(&self.dir, &target, version, progress).await? {
                Turn::Ours(claim) => claim,
                Turn::Done(installed) => return Ok(Fetched::Meanwhile(installed)),
            };
            let scratch = Scratch::create(claim)?;
            download.fetch(scratch.tarball()).await?;
            Ok(Fetched::Tarball(scratch))
        });
        let scratch = match fetched.await.ok_or(InstallError::Cancelled)?? {
            Fetched::Meanwhile(installed) => return Ok(installed),
            Fetched::Tarball(scratch) => scratch,
        };

        progress(InstallProgress::Unpacking);
        let limit = self.limits.unpacked;
        // The thread owns the scratch folder and with it the lock: neither is given up while it still writes.
        tokio::task::spawn_blocking(move || {
            unpack::unpack(scratch.tarball(), scratch.package(), version, limit, &stop)?;
            scratch.publish(&target)?;
            folder::inspect(&target, version)?.ok_or(InstallError::NotInstalled { version })
        })
        .await
        .map_err(InstallError::Worker)?
    }
}

/// How the first half of an install ended.
enum Fetched {
    /// Somebody else installed the version while this install waited.
    Meanwhile(InstalledRuntime),
    /// The verified package lies in the scratch folder.
    Tarball(Scratch),
}
