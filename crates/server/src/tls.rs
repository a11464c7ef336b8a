//! The TLS certificate of the host.
//!
//! Reads the two PEM files and checks which names the certificate covers. Allows TLS 1.2
//! and newer, with the default cipher suites of rustls.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::client::verify_server_name;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::ParsedCertificate;
use tokio_rustls::TlsAcceptor;

/// A certificate chain with its private key.
pub struct TlsIdentity {
    config: Arc<ServerConfig>,
    certificate: CertificateDer<'static>,
}

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or does not contain the expected item.
    #[error("cannot read {what} from {}; it must be a PEM file", path.display())]
    File {
        /// The expected item.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: pem::Error,
    },
    /// The certificate and the key do not match.
    #[error("cannot use the certificate with the private key; check that they belong together")]
    Pair(#[source] rustls::Error),
}

impl TlsIdentity {
    /// Reads a certificate chain, the host's certificate first, and its private key.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let failed = |what, path: &Path| {
            let path = path.to_owned();
            move |source| TlsError::File { what, path, source }
        };
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect)
            .map_err(failed("the certificate", certificate))?;
        let own = chain.first().cloned().ok_or(pem::Error::NoItemsFound);
        let own = own.map_err(failed("the certificate", certificate))?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(failed("the private key", key))?;
        // Explicit, because rustls has no default if several providers are compiled in.
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .map_err(TlsError::Pair)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), certificate: own })
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.config))
    }

    /// Whether the certificate covers this name.
    pub(crate) fn names(&self, name: &str) -> bool {
        let Ok(name) = ServerName::try_from(name) else { return false };
        ParsedCertificate::try_from(&self.certificate)
            .is_ok_and(|certificate| verify_server_name(&certificate, &name).is_ok())
    }
}

impl fmt::Debug for TlsIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TlsIdentity").finish_non_exhaustive()
    }
}
