//! What can go wrong with an install, sorted by what a person can do about it.

use std::io;
use std::path::{Path, PathBuf};

use super::version::RuntimeVersion;

/// Why a runtime was not installed, listed or removed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// There is no native package for the machine.
    #[error(
        "there is no native runtime for {platform}; install {sdk} instead, which runs on Node",
        sdk = RuntimeVersion::PINNED_SDK
    )]
    UnsupportedPlatform {
        /// System and processor.
        platform: String,
    },
    /// The version to remove or to use is not there.
    #[error("runtime {version} is not installed; `innkeeper runtime list` shows what is")]
    NotInstalled {
        /// The version asked for.
        version: RuntimeVersion,
    },
    /// Somebody else is changing the folder.
    #[error(
        "another install is under way in {}; try again when it has ended",
        dir.display()
    )]
    Busy {
        /// The folder of runtimes.
        dir: PathBuf,
    },
    /// The HTTP client could not be set up, as with a broken certificate file or proxy variable.
    #[error("cannot set up the download; check the proxy variables, SSL_CERT_FILE and SSL_CERT_DIR")]
    Client(#[source] reqwest::Error),
    /// No answer came from the registry.
    #[error(
        "the registry {registry} does not answer; check the network, the proxy variables and `--registry`"
    )]
    Unreachable {
        /// The registry, without credentials.
        registry: String,
        /// What the HTTP client says.
        #[source]
        source: reqwest::Error,
    },
    /// The registry does not know the version.
    #[error(
        "the registry {registry} has no version {version} of {package}; \
         check the version, leave it out for the pinned one, or name another registry with `--registry`"
    )]
    UnknownVersion {
        /// The registry, without credentials.
        registry: String,
        /// The package that was looked for.
        package: String,
        /// The version that was looked for.
        version: RuntimeVersion,
    },
    /// The registry answered with another status than was hoped for.
    #[error(
        "the registry {registry} answered {status} for {package}; \
         401 and 403 mean that it wants credentials in its address, others that it has trouble of its own: \
         try again, or name another registry with `--registry`"
    )]
    Status {
        /// The registry, without credentials.
        registry: String,
        /// The package that was asked for.
        package: String,
        /// The HTTP status.
        status: u16,
    },
    /// The registry's description of the version cannot be used.
    #[error(
        "the registry {registry} describes {package} in a way that cannot be used ({reason}); \
         name another registry with `--registry`"
    )]
    Description {
        /// The registry, without credentials.
        registry: String,
        /// The package that was asked for.
        package: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The download stopped before its end.
    #[error("the download of {package} broke off after {received} bytes; nothing was kept, try again")]
    BrokenOff {
        /// The package.
        package: String,
        /// Bytes that had come.
        received: u64,
        /// What the HTTP client says.
        #[source]
        source: reqwest::Error,
    },
    /// Package or content are larger than any runtime.
    #[error("{package} is larger than {limit} bytes and was refused; check the registry")]
    TooLarge {
        /// The package.
        package: String,
        /// The bound that was exceeded.
        limit: u64,
    },
    /// The bytes are not those that the registry describes.
    #[error(
        "the download of {package} does not have the checksum that the registry names \
         (expected sha512-{expected}, got sha512-{actual}); nothing was kept, \
         try again, and check the registry and proxies on the way if it stays so"
    )]
    Integrity {
        /// The package.
        package: String,
        /// The checksum in the registry's description, in base64.
        expected: String,
        /// The checksum of what came, in base64.
        actual: String,
    },
    /// The archive holds something that a package must not hold.
    #[error("the package holds `{entry}`, which {reason}; it was not installed, check the registry")]
    UnsafeArchive {
        /// The entry's path as the archive spells it.
        entry: String,
        /// Why it is refused.
        reason: &'static str,
    },
    /// The archive cannot be read.
    #[error("the package is not a readable archive; it was not installed, check the registry")]
    Archive(#[source] io::Error),
    /// The package lacks the program.
    #[error(
        "version {version} holds no `{}`, so it cannot be run by Innkeeper; install another version",
        program.display()
    )]
    NoProgram {
        /// The version.
        version: RuntimeVersion,
        /// The file that was looked for.
        program: PathBuf,
    },
    /// The disk refuses.
    #[error("cannot {action} {}; check its permissions and the free space", path.display())]
    Disk {
        /// What was tried, as in "cannot …".
        action: &'static str,
        /// With which file or folder.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The caller cancelled it.
    #[error("the install was cancelled; nothing was kept")]
    Cancelled,
    /// The unpacking thread ended without an answer.
    #[error("the unpacking ended unexpectedly; nothing was kept, try again")]
    Worker(#[source] tokio::task::JoinError),
}

impl InstallError {
    /// Wraps what the system says about a file, for `map_err`.
    pub(super) fn disk(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Disk { action, path, source }
    }
}
