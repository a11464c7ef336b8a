//! Which folders may configure an agent.
//!
//! A folder of unknown origin can contain agent settings that run programs. An agent uses
//! them only if the folder is trusted: by the user's answer, by the host's configuration
//! ([`FolderTrust`]), or by a client that manages trust itself ([`TrustedFolders`]).
//! Trust in a folder includes its subfolders.

use std::path::{Path, PathBuf};

use serde_json::Value;
use url::Url;

use crate::state::ChannelState;

/// The key of the host-wide configuration in which VS Code publishes its trusted folders.
const WORKSPACE_TRUST: &str = "workspaceTrust";

/// The folders that clients trust.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TrustedFolders {
    /// Clients do not trust any folder, or do not manage trust.
    #[default]
    None,
    /// These folders, as real or client-side paths.
    These(Vec<PathBuf>),
    /// All: the user has turned off trust checks in the client.
    All,
}

impl TrustedFolders {
    /// Reads the value that clients set in the host-wide configuration.
    pub(crate) fn of_root(root: &ChannelState) -> Self {
        let value = root.root().and_then(|root| root.config.as_ref()?.values.get(WORKSPACE_TRUST));
        value.map(Self::of_value).unwrap_or_default()
    }

    fn of_value(value: &Value) -> Self {
        if value.get("enabled").and_then(Value::as_bool) == Some(false) {
            return Self::All;
        }
        let uris = value.get("trustedUris").and_then(Value::as_array).into_iter().flatten();
        let folder = |uri: &Value| {
            let url = Url::parse(uri.as_str()?).ok().filter(|url| url.scheme() == "file")?;
            url.to_file_path().ok()
        };
        let folders: Vec<PathBuf> = uris.filter_map(folder).collect();
        if folders.is_empty() { Self::None } else { Self::These(folders) }
    }

    /// Whether a folder or one of its parents is trusted. `real_path` resolves links.
    pub fn contain(&self, folder: &Path, real_path: impl Fn(&Path) -> PathBuf) -> bool {
        match self {
            Self::None => false,
            Self::These(trusted) => trusted.iter().any(|trusted| folder.starts_with(real_path(trusted))),
            Self::All => true,
        }
    }
}

/// The user's decision about a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrustDecision {
    /// The folder's settings may be used.
    Trusted,
    /// The folder's settings are ignored.
    Restricted,
}

/// Stored decisions about folders. Paths are real paths.
pub trait FolderTrust: Send + Sync {
    /// The decision about a folder whose settings have this digest; `None` if the user must
    /// be asked, because nothing was decided or the settings have changed since.
    fn decision(&self, folder: &Path, digest: &str) -> Option<TrustDecision>;

    /// Stores the user's decision about a folder. The error is a message for the user.
    fn decide(&self, folder: &Path, digest: &str, decision: TrustDecision) -> Result<(), String>;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn trusted(value: &Value, folder: &str) -> bool {
        TrustedFolders::of_value(value).contain(Path::new(folder), Path::to_path_buf)
    }

    #[test]
    fn client_trust_includes_subfolders_and_nothing_else() {
        let value = json!({"enabled": true, "trustedUris": ["file:///a/b%20c", "vscode-remote://x/d", 7]});
        assert!(trusted(&value, "/a/b c"));
        assert!(trusted(&value, "/a/b c/sub/folder"));
        assert!(!trusted(&value, "/a/b c-other"));
        assert!(!trusted(&value, "/a"));
        assert!(!trusted(&value, "/d"));
    }

    #[test]
    fn client_without_trust_checks_trusts_everything() {
        assert!(trusted(&json!({"enabled": false}), "/a"));
        for none in [json!({"enabled": true}), json!({}), json!(null), json!([1])] {
            assert!(!trusted(&none, "/a"), "{none}");
        }
    }
}
