//! TLS, which is required for connections from other machines.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use innkeeper_testkit::{RawClient, TestHost};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::command_line::innkeeper;
use crate::{certificate, without_runtime};

/// Host name in the certificate.
const NAME: &str = "inn.example";

/// A self-signed certificate with its key.
struct Certificate {
    certificate: PathBuf,
    key: PathBuf,
}

impl Certificate {
    fn make(dir: &Path) -> Result<Self> {
        let (certificate, key) = (dir.join("cert.pem"), dir.join("key.pem"));
        let made = certificate::self_signed(NAME)?;
        std::fs::write(&certificate, made.certificate)?;
        std::fs::write(&key, made.key)?;
        std::fs::set_permissions(&key, Permissions::from_mode(0o600))?;
        Ok(Self { certificate, key })
    }

    fn arguments(&self) -> Result<Vec<String>> {
        let text = |path: &Path| path.to_str().map(str::to_owned).context("path is not UTF-8");
        Ok(vec!["--tls-cert".to_owned(), text(&self.certificate)?, "--tls-key".to_owned(), text(&self.key)?])
    }

    /// Connects as a client that trusts only this certificate.
    async fn connect(&self, port: u16) -> Result<TlsStream<TcpStream>> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&self.certificate)?)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        let name = ServerName::try_from(NAME)?;
        Ok(TlsConnector::from(Arc::new(config)).connect(name, stream).await?)
    }
}

/// Returns the port in the host's ready line.
fn port(host: &TestHost) -> Result<u16> {
    let socket = host.socket()?;
    let port = socket.trim_end_matches('/').rsplit(':').next().context("no port")?;
    Ok(port.parse()?)
}

/// Sends an upgrade request with these headers; returns the status line.
async fn upgrade(stream: TlsStream<TcpStream>, target: &str, headers: &str) -> Result<String> {
    let mut stream = stream;
    let request = format!(
        "GET {target} HTTP/1.1\r\n{headers}connection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut head = [0; 12];
    stream.read_exact(&mut head).await?;
    Ok(String::from_utf8_lossy(&head).into_owned())
}

#[tokio::test]
async fn host_with_certificate_accepts_other_machines_by_its_name() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let certificate = Certificate::make(dir.path())?;
    let mut options = without_runtime();
    options.listen = vec!["0.0.0.0:0".to_owned()];
    options.arguments = certificate.arguments()?;
    let host = TestHost::start(options).await?;
    let port = port(&host)?;
    let token = host.ready()["token"].as_str().context("no token")?.to_owned();
    assert_eq!(host.socket()?, format!("wss://127.0.0.1:{port}/"));
    assert_eq!(host.ready()["page"], format!("https://127.0.0.1:{port}/?tkn={token}"));

    let stream = certificate.connect(port).await?;
    let address = format!("ws://{NAME}:{port}/?tkn={token}");
    let mut client = RawClient::over(&address, Box::new(stream)).await?;
    let result = client.initialize("c1", &["ahp-root://"]).await?;
    assert_eq!(result["result"]["snapshots"][0]["resource"], "ahp-root://");

    let own = format!("host: {NAME}:{port}\r\n");
    let cases = [
        ("/?tkn=TOKEN", own.clone(), "101"),
        ("/", own.clone(), "403"),
        ("/?tkn=TOKEN", format!("{own}origin: https://{NAME}:{port}\r\n"), "101"),
        ("/?tkn=TOKEN", format!("{own}origin: http://{NAME}:{port}\r\n"), "403"),
        ("/?tkn=TOKEN", format!("{own}origin: https://{NAME}:1\r\n"), "403"),
        ("/?tkn=TOKEN", format!("{own}origin: https://evil.example\r\n"), "403"),
        ("/?tkn=TOKEN", "host: rebound.example\r\n".to_owned(), "403"),
        ("/?tkn=TOKEN", "host: 10.1.2.3:9\r\norigin: https://10.1.2.3:9\r\n".to_owned(), "101"),
    ];
    for (target, headers, expected) in cases {
        let target = target.replace("TOKEN", &token);
        let status = upgrade(certificate.connect(port).await?, &target, &headers).await?;
        assert_eq!(status, format!("HTTP/1.1 {expected}"), "{headers:?}");
    }

    // A client without TLS gets no response and does not affect others.
    let mut plain = TcpStream::connect(("127.0.0.1", port)).await?;
    plain.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await?;
    let mut answer = Vec::new();
    plain.read_to_end(&mut answer).await.ok();
    assert!(!String::from_utf8_lossy(&answer).contains("HTTP"), "{answer:?}");
    assert_eq!(client.request("ping", json!({})).await?["result"], Value::Null);
    Ok(())
}

#[test]
fn rejects_non_loopback_address_without_tls_or_token() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let made = Certificate::make(dir.path())?.arguments()?;
    let [_, certificate, _, key] = made.as_slice() else { anyhow::bail!("{made:?}") };
    let empty = dir.path().join("empty.pem");
    std::fs::write(&empty, "")?;
    std::fs::set_permissions(&empty, Permissions::from_mode(0o600))?;
    let empty = empty.to_str().context("path is not UTF-8")?;
    let other = tempfile::tempdir()?;
    let others = Certificate::make(other.path())?.key;
    let others = others.to_str().context("path is not UTF-8")?;
    let wide = ["serve", "--listen", "0.0.0.0:0"];
    let cases: &[(&[&str], &str)] = &[
        (&[], "--tls-cert"),
        (&["--tls-cert", certificate], "--tls-key"),
        (&["--tls-cert", certificate, "--tls-key", key, "--no-token"], "--no-token"),
        (&["--tls-cert", empty, "--tls-key", key], "cannot read the certificate from"),
        (&["--tls-cert", certificate, "--tls-key", empty], "cannot read the private key from"),
        (&["--tls-cert", certificate, "--tls-key", others], "together"),
    ];
    for (arguments, expected) in cases {
        let output: Output = innkeeper(dir.path(), &[&wide[..], arguments].concat())?;
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
    Ok(())
}
