//! Downloads a package from a registry into a file.
//!
//! Owns the HTTP part: package metadata, download, limits and checksum. Does not unpack. After
//! [`Download::fetch`] succeeds, the file contains exactly the bytes that the registry describes.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use reqwest::{Client, Response, StatusCode};
use serde::Deserialize;
use sha2::{Digest as _, Sha512};
use tokio::fs::File;
use tokio::io::AsyncWriteExt as _;
use url::Url;

use super::error::InstallError;
use super::npm_registry::NpmRegistry;
use super::version::RuntimeVersion;
use super::{InstallLimits, InstallProgress};

/// Largest version metadata to read. Typical metadata has 2 KB.
const MAX_DESCRIPTION: usize = 1024 * 1024;

/// A package to download.
pub(super) struct Download<'a> {
    /// The registry to download from.
    pub(super) registry: &'a NpmRegistry,
    /// Package name, including its scope.
    pub(super) package: &'a str,
    /// Package version.
    pub(super) version: RuntimeVersion,
    /// Time and size limits.
    pub(super) limits: InstallLimits,
    /// Called with the progress of the download.
    pub(super) progress: &'a (dyn Fn(InstallProgress) + Send + Sync),
}

/// The registry's metadata of a version; only the fields used here.
#[derive(Debug, Deserialize)]
struct DescriptionMessage {
    dist: DistMessage,
}

/// Address and checksum of the package.
#[derive(Debug, Deserialize)]
struct DistMessage {
    tarball: String,
    integrity: String,
}

impl Download<'_> {
    /// Downloads the package to `target` and verifies it.
    pub(super) async fn fetch(&self, target: &Path) -> Result<(), InstallError> {
        let client = self.client()?;
        let dist = self.describe(&client).await?;
        let expected = sha512_of(&dist.integrity).ok_or_else(|| self.unusable("no sha512 checksum"))?;
        let tarball = Url::parse(&dist.tarball)
            .map_err(|error| self.unusable(format!("invalid tarball address: {error}")))?;
        let response = self.open(&client, tarball).await?;
        let actual = self.save(response, target).await?;
        if actual == expected {
            return Ok(());
        }
        Err(InstallError::Integrity {
            package: self.package.to_owned(),
            expected: BASE64.encode(expected),
            actual: BASE64.encode(actual),
        })
    }

    /// The HTTP client. Uses proxies from the environment and `SSL_CERT_FILE`.
    fn client(&self) -> Result<Client, InstallError> {
        let mut builder = Client::builder()
            .user_agent(concat!("innkeeper/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(self.limits.connect)
            .read_timeout(self.limits.idle);
        if self.registry.is_loopback() {
            // On a proxy, a loopback address refers to the proxy's machine.
            builder = builder.no_proxy();
        }
        trust_named_certificates(builder).build().map_err(InstallError::Client)
    }

    /// Requests the version's metadata from the registry.
    async fn describe(&self, client: &Client) -> Result<DistMessage, InstallError> {
        let url = self.registry.join(&format!("{}/{}", self.package, self.version));
        let mut response = self.get(client, url).await?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => {
                return Err(InstallError::UnknownVersion {
                    registry: self.registry.to_string(),
                    package: self.package.to_owned(),
                    version: self.version,
                });
            }
            status => return Err(self.status(status)),
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.unreachable(error))? {
            if body.len() + chunk.len() > MAX_DESCRIPTION {
                return Err(self.unusable("longer than 1 MB"));
            }
            body.extend_from_slice(&chunk);
        }
        let description: DescriptionMessage =
            serde_json::from_slice(&body).map_err(|error| self.unusable(error.to_string()))?;
        Ok(description.dist)
    }

    /// Starts the download.
    ///
    /// Metadata from a mirror may still contain addresses of the original registry. The user chose the
    /// mirror, so this tries the mirror's standard path first.
    async fn open(&self, client: &Client, described: Url) -> Result<Response, InstallError> {
        if !self.registry.is_origin_of(&described) {
            let name = self.package.rsplit('/').next().unwrap_or_default();
            let url = self.registry.join(&format!("{}/-/{name}-{}.tgz", self.package, self.version));
            let response = self.get(client, url).await?;
            if response.status().is_success() {
                return Ok(response);
            }
            tracing::debug!(status = %response.status(), "package not found at the standard path of the mirror");
        }
        let response = self.get(client, described).await?;
        if response.status() == StatusCode::OK { Ok(response) } else { Err(self.status(response.status())) }
    }

    /// Writes the body to `target` and returns its checksum.
    async fn save(&self, mut response: Response, target: &Path) -> Result<Vec<u8>, InstallError> {
        let limit = self.limits.download;
        let too_large = || InstallError::TooLarge { package: self.package.to_owned(), limit };
        let total = response.content_length();
        if total.is_some_and(|total| total > limit) {
            return Err(too_large());
        }
        let mut file = File::create_new(target).await.map_err(InstallError::disk("create", target))?;
        let mut hash = Sha512::new();
        let mut received = 0;
        (self.progress)(InstallProgress::Downloading { received, total });
        loop {
            let chunk = match response.chunk().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => break,
                Err(error) => {
                    return Err(InstallError::Interrupted {
                        package: self.package.to_owned(),
                        received,
                        source: error.without_url(),
                    });
                }
            };
            received += chunk.len() as u64;
            if received > limit {
                return Err(too_large());
            }
            hash.update(&chunk);
            file.write_all(&chunk).await.map_err(InstallError::disk("write", target))?;
            (self.progress)(InstallProgress::Downloading { received, total });
        }
        file.flush().await.map_err(InstallError::disk("write", target))?;
        Ok(hash.finalize().to_vec())
    }

    /// Sends a request and waits for the response headers.
    async fn get(&self, client: &Client, url: Url) -> Result<Response, InstallError> {
        client.get(url).send().await.map_err(|error| self.unreachable(error))
    }

    /// The error for a failed request, without the address, which may contain credentials.
    fn unreachable(&self, source: reqwest::Error) -> InstallError {
        InstallError::Unreachable { registry: self.registry.to_string(), source: source.without_url() }
    }

    /// The error for an unexpected status.
    fn status(&self, status: StatusCode) -> InstallError {
        InstallError::Status {
            registry: self.registry.to_string(),
            package: self.package.to_owned(),
            status: status.as_u16(),
        }
    }

    /// The error for unusable metadata.
    fn unusable(&self, reason: impl Into<String>) -> InstallError {
        InstallError::Description {
            registry: self.registry.to_string(),
            package: self.package.to_owned(),
            reason: reason.into(),
        }
    }
}

/// On Linux, the certificate verifier itself reads `SSL_CERT_FILE` and `SSL_CERT_DIR`.
#[cfg(not(target_os = "macos"))]
fn trust_named_certificates(builder: reqwest::ClientBuilder) -> reqwest::ClientBuilder {
    builder
}

/// On macOS, the certificate verifier uses only system certificates, so this adds those from
/// `SSL_CERT_FILE`.
#[cfg(target_os = "macos")]
fn trust_named_certificates(builder: reqwest::ClientBuilder) -> reqwest::ClientBuilder {
    let Some(path) = std::env::var_os("SSL_CERT_FILE") else {
        return builder;
    };
    let certificates =
        std::fs::read(&path).ok().and_then(|bundle| reqwest::Certificate::from_pem_bundle(&bundle).ok());
    match certificates {
        Some(certificates) => builder.tls_certs_merge(certificates),
        None => {
            tracing::warn!(path = %std::path::Path::new(&path).display(), "no certificates found in SSL_CERT_FILE");
            builder
        }
    }
}

/// Finds the sha512 checksum in an integrity string, which may list several hashes with options after
/// `?`.
fn sha512_of(integrity: &str) -> Option<Vec<u8>> {
    integrity.split_whitespace().find_map(|item| {
        let encoded = item.strip_prefix("sha512-")?;
        let encoded = encoded.split('?').next()?;
        let bytes = BASE64.decode(encoded).ok()?;
        (bytes.len() == Sha512::output_size()).then_some(bytes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_sha512_among_other_checksums() {
        let bytes = Sha512::digest(b"x").to_vec();
        let encoded = BASE64.encode(&bytes);
        for integrity in [
            format!("sha512-{encoded}"),
            format!("sha1-abcd sha512-{encoded}"),
            format!("sha512-{encoded}?opt sha256-abcd"),
        ] {
            assert_eq!(sha512_of(&integrity).as_ref(), Some(&bytes), "{integrity}");
        }
    }

    #[test]
    fn ignores_weaker_and_invalid_checksums() {
        for integrity in ["", "sha1-abcd", "sha512-", "sha512-AAAA", "sha512-***"] {
            assert_eq!(sha512_of(integrity), None, "{integrity}");
        }
    }
}
