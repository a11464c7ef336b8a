//! Install errors, grouped by the remedy available to the user.

use std::io;
use std::path::{Path, PathBuf};

use super::version::RuntimeVersion;

/// Why a runtime could not be installed, listed or removed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// No native package exists for this platform.
    #[error(
        "no native runtime for {platform}; install {sdk} instead, which runs on Node",
        sdk = RuntimeVersion::PINNED_SDK
    )]
    UnsupportedPlatform {
        /// Operating system and processor.
        platform: String,
    },
    /// The version is not installed.
    #[error("runtime {version} is not installed; `innkeeper runtime list` lists installed runtimes")]
    NotInstalled {
        /// The requested version.
        version: RuntimeVersion,
    },
    /// Another process is changing the folder.
    #[error(
        "another install is running in {}; retry when it has finished",
        dir.display()
    )]
    Busy {
        /// The runtimes folder.
        dir: PathBuf,
    },
    /// The HTTP client could not be created, for example because of an invalid certificate file or proxy
    /// variable.
    #[error("cannot set up the download; check the proxy variables, SSL_CERT_FILE and SSL_CERT_DIR")]
    Client(#[source] reqwest::Error),
    /// The request to the registry failed.
    #[error("cannot reach the registry {registry}; check the network, the proxy variables and `--registry`")]
    Unreachable {
        /// The registry, without credentials.
        registry: String,
        /// Error of the HTTP client.
        #[source]
        source: reqwest::Error,
    },
    /// The registry does not have the version.
    #[error(
        "the registry {registry} has no version {version} of {package}; \
         check the version, leave it out for the pinned one, or name another registry with `--registry`"
    )]
    UnknownVersion {
        /// The registry, without credentials.
        registry: String,
        /// The requested package.
        package: String,
        /// The requested version.
        version: RuntimeVersion,
    },
    /// The registry returned an unexpected status.
    #[error(
        "the registry {registry} returned status {status} for {package}; \
         for 401 and 403, add credentials to its address; otherwise \
         retry, or choose another registry with `--registry`"
    )]
    Status {
        /// The registry, without credentials.
        registry: String,
        /// The requested package.
        package: String,
        /// The HTTP status.
        status: u16,
    },
    /// The registry's metadata of the version is unusable.
    #[error(
        "the registry {registry} returned unusable metadata for {package} ({reason}); \
         choose another registry with `--registry`"
    )]
    Description {
        /// The registry, without credentials.
        registry: String,
        /// The requested package.
        package: String,
        /// Why the metadata is unusable.
        reason: String,
    },
    /// The download was interrupted.
    #[error("the download of {package} was interrupted after {received} bytes; nothing was installed, retry")]
    Interrupted {
        /// The package.
        package: String,
        /// Bytes received.
        received: u64,
        /// Error of the HTTP client.
        #[source]
        source: reqwest::Error,
    },
    /// The package or its content exceeds the size limit.
    #[error("{package} exceeds the limit of {limit} bytes; check the registry")]
    TooLarge {
        /// The package.
        package: String,
        /// The exceeded limit.
        limit: u64,
    },
    /// The checksum of the download differs from the registry's.
    #[error(
        "checksum mismatch for {package} \
         (expected sha512-{expected}, got sha512-{actual}); nothing was installed, \
         retry; if it persists, check the registry and proxies"
    )]
    Integrity {
        /// The package.
        package: String,
        /// The registry's checksum, in base64.
        expected: String,
        /// The checksum of the download, in base64.
        actual: String,
    },
    /// The archive contains a disallowed entry.
    #[error("the package contains `{entry}`, which {reason}; nothing was installed, check the registry")]
    UnsafeArchive {
        /// The entry's path in the archive.
        entry: String,
        /// Why the entry is disallowed.
        reason: &'static str,
    },
    /// The archive cannot be read.
    #[error("the package is not a readable archive; nothing was installed, check the registry")]
    Archive(#[source] io::Error),
    /// The package does not contain the program.
    #[error(
        "version {version} does not contain `{}` and cannot be used; install another version",
        program.display()
    )]
    NoProgram {
        /// The version.
        version: RuntimeVersion,
        /// The missing file.
        program: PathBuf,
    },
    /// A file system operation failed.
    #[error("cannot {action} {}; check its permissions and the free space", path.display())]
    Disk {
        /// The operation, as in "cannot …".
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system error.
        #[source]
        source: io::Error,
    },
    /// The caller cancelled the install.
    #[error("the install was cancelled; nothing was installed")]
    Cancelled,
    /// The unpacking task panicked or was aborted.
    #[error("unpacking stopped unexpectedly; nothing was installed, retry")]
    Worker(#[source] tokio::task::JoinError),
}

impl InstallError {
    /// Wraps a system error on a file, for `map_err`.
    pub(super) fn disk(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Disk { action, path, source }
    }
}
