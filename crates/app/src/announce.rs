//! `--announce`: writes the record by which VS Code discovers the host, on this machine
//! and over SSH.
//!
//! Owns one file in the registry that VS Code reads. The file is written atomically once
//! connections are accepted, with mode 0600, and removed when the host stops. Files of
//! other hosts, running or not, are not touched.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use ahp_types::version::SUPPORTED_PROTOCOL_VERSIONS;
use innkeeper_server::Listen;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::config::Environment;
use crate::ready::{ReadyLine, Scheme};

/// The kind of host that several clients may share.
const KIND: &str = "standalone";

/// Version of the record format.
const SCHEMA: u32 = 2;

/// Directory of the records, relative to the user data directory.
const ENTRIES: &str = "agent-host/local-endpoint/entries";

/// A discovery record. Dropping it removes the file.
#[derive(Debug)]
pub(crate) struct Announced {
    path: PathBuf,
}

/// Whether one of the addresses can be announced. The record format does not support TLS.
pub(crate) fn can_announce(places: &[Listen], scheme: Scheme) -> bool {
    endpoint(places, scheme).is_some()
}

/// Returns the user data directory of VS Code, determined by the same rules as VS Code.
pub(crate) fn user_data_directory(named: Option<&Path>, environment: Environment<'_>) -> Option<PathBuf> {
    if let Some(named) = named {
        return std::path::absolute(named).ok();
    }
    if let Some(portable) = environment("VSCODE_PORTABLE") {
        return Some(PathBuf::from(portable).join("user-data"));
    }
    let home = || environment("HOME").map(PathBuf::from);
    let base = match environment("VSCODE_APPDATA") {
        Some(base) => PathBuf::from(base),
        None if cfg!(target_os = "macos") => home()?.join("Library/Application Support"),
        None => match environment("XDG_CONFIG_HOME") {
            Some(base) => PathBuf::from(base),
            None => home()?.join(".config"),
        },
    };
    Some(base.join("Code"))
}

/// Writes the discovery record. The host works without it, so a failure is only logged.
pub(crate) fn write(user_data: &Path, ready: &ReadyLine) -> Option<Announced> {
    let endpoint = endpoint(&ready.places, ready.scheme)?;
    match write_record(user_data, ready.token.as_deref(), &endpoint) {
        Ok(announced) => Some(announced),
        Err(error) => {
            let directory = user_data.display();
            tracing::warn!(%error, %directory, "cannot write the discovery record; VS Code will not discover this host");
            None
        }
    }
}

fn write_record(user_data: &Path, token: Option<&str>, endpoint: &Value) -> std::io::Result<Announced> {
    let (pid, instance) = (std::process::id(), Uuid::new_v4());
    let mut record = json!({
        "schemaVersion": SCHEMA,
        "type": KIND,
        "pid": pid,
        "instanceId": instance.to_string(),
        "protocolVersion": SUPPORTED_PROTOCOL_VERSIONS.first(),
        "endpoint": endpoint,
    });
    if let (Some(token), Some(fields)) = (token, record.as_object_mut()) {
        fields.insert("connectionToken".to_owned(), token.into());
    }
    let entries = user_data.join(ENTRIES);
    DirBuilder::new().recursive(true).mode(0o700).create(&entries)?;
    let path = entries.join(format!("{}.json", record_name(pid, &instance)));
    let draft = path.with_extension("tmp");
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    let written = file.write_all(record.to_string().as_bytes()).and_then(|()| std::fs::rename(&draft, &path));
    match written {
        Ok(()) => Ok(Announced { path }),
        Err(error) => {
            // The first error is more useful than one about the temporary file.
            std::fs::remove_file(&draft).ok();
            Err(error)
        }
    }
}

/// Returns the file name that VS Code computes to validate a record.
fn record_name(pid: u32, instance: &Uuid) -> String {
    let digest = Sha256::digest(format!("{KIND}\0{pid}\0{instance}"));
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the endpoint for the record, which holds only one. Prefers TCP to a Unix socket,
/// since it can be forwarded over SSH unchanged.
fn endpoint(places: &[Listen], scheme: Scheme) -> Option<Value> {
    let tcp = places.iter().find_map(|place| match place {
        Listen::Tcp(address) if scheme == Scheme::Plain => {
            Some(json!({"type": "tcp", "host": address.ip().to_string(), "port": address.port()}))
        }
        Listen::Tcp(_) | Listen::Unix(_) | Listen::Stdio => None,
    });
    tcp.or_else(|| {
        places.iter().find_map(|place| match place {
            Listen::Unix(path) => Some(json!({"type": "socket", "path": path})),
            Listen::Tcp(_) | Listen::Stdio => None,
        })
    })
}

impl Drop for Announced {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(%error, path = %self.path.display(), "cannot remove the discovery record");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::cli::UpstreamName;

    fn ready(places: Vec<Listen>) -> ReadyLine {
        ReadyLine {
            places,
            scheme: Scheme::Plain,
            token: Some("secret".to_owned()),
            upstream: UpstreamName::Demo,
        }
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn record_is_private_and_removed_with_the_host() {
        let dir = tempfile::tempdir().unwrap();
        let address = Listen::Tcp("127.0.0.1:7433".parse().unwrap());
        let announced = write(dir.path(), &ready(vec![Listen::Unix("/s".into()), address])).unwrap();
        let entries = dir.path().join(ENTRIES);
        // The record of another host that is no longer running.
        std::fs::write(entries.join("other.json"), "{}").unwrap();
        let record: Value = serde_json::from_slice(&std::fs::read(&announced.path).unwrap()).unwrap();
        let instance = record["instanceId"].as_str().unwrap().to_owned();
        let expected = json!({
            "schemaVersion": 2, "type": "standalone", "pid": std::process::id(), "instanceId": instance,
            "protocolVersion": "1.0.0", "connectionToken": "secret",
            "endpoint": {"type": "tcp", "host": "127.0.0.1", "port": 7433},
        });
        assert_eq!(record, expected);
        let named = format!("{}.json", record_name(std::process::id(), &instance.parse().unwrap()));
        assert_eq!(announced.path, entries.join(named));
        assert_eq!((mode(&announced.path), mode(&entries)), (0o600, 0o700));
        drop(announced);
        let left: Vec<_> =
            std::fs::read_dir(&entries).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["other.json"]);
    }

    #[test]
    fn record_name_is_the_expected_digest() {
        // Computed with: printf 'standalone\\0007\\000f81d4fae-7dec-41d0-8765-00a0c91e6bf6' | sha256sum
        let instance = "f81d4fae-7dec-41d0-8765-00a0c91e6bf6".parse().unwrap();
        let expected = "f67a0568367509af6f66349f7daa90e83717583330139d112a83690c2ad7c5f3";
        assert_eq!(record_name(7, &instance), expected);
    }

    #[test]
    fn only_plain_tcp_and_unix_sockets_can_be_announced() {
        let tcp = || Listen::Tcp("127.0.0.1:1".parse().unwrap());
        assert!(can_announce(&[tcp()], Scheme::Plain));
        assert!(!can_announce(&[tcp()], Scheme::Tls));
        assert!(can_announce(&[tcp(), Listen::Unix("/s".into())], Scheme::Tls));
        assert!(!can_announce(&[Listen::Stdio], Scheme::Plain));
    }

    #[test]
    fn user_data_directory_follows_the_rules_of_vs_code() {
        let all = [
            ("VSCODE_PORTABLE", "/portable"),
            ("VSCODE_APPDATA", "/appdata"),
            ("XDG_CONFIG_HOME", "/xdg"),
            ("HOME", "/home/me"),
        ];
        let found = |skip: usize| {
            let set = all.iter().skip(skip);
            user_data_directory(None, &|name| {
                set.clone().find(|(each, _)| *each == name).map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(found(0), Some("/portable/user-data".into()));
        assert_eq!(found(1), Some("/appdata/Code".into()));
        if cfg!(target_os = "linux") {
            assert_eq!(found(2), Some("/xdg/Code".into()));
            assert_eq!(found(3), Some("/home/me/.config/Code".into()));
        }
        assert_eq!(found(4), None);
        assert_eq!(user_data_directory(Some(Path::new("/named")), &|_| None), Some("/named".into()));
    }
}
