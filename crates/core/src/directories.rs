//! Working directories: which URIs are valid, and which of a session's directories the
//! agent of a chat gets. All functions are pure; whether a directory exists is found out
//! by the agent that works in it.

use std::path::PathBuf;

use ahp_types::state::{AgentInfo, ChatState, SessionState};
use url::Url;

/// Most directories per session. Each one is an argument of the agent process and a root
/// that clients may read; 64 is far more than users need.
pub(crate) const MAX_DIRECTORIES: usize = 64;

/// Longest directory URI, in bytes; Linux paths are limited to 4096 bytes.
const MAX_ADDRESS: usize = 4096;

/// The role of the first directory for an agent that supports several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Primary {
    /// The same as the others.
    Peer,
    /// The agent process runs in it and cannot change it.
    Fixed,
    /// The agent process runs in it and can change it.
    Replaceable,
}

impl Primary {
    /// The role that an agent declares; `None` if it supports one directory only.
    pub(crate) fn of(info: &AgentInfo) -> Option<Self> {
        let several = info.capabilities.as_ref()?.multiple_working_directories.as_ref()?;
        // An agent that sets both does so for older clients, which know only the first flag.
        Some(match (several.immutable_primary, several.primary_replacement) {
            (_, Some(true)) => Self::Replaceable,
            (Some(true), _) => Self::Fixed,
            _ => Self::Peer,
        })
    }
}

/// The path of a directory URI, if it is a valid path on this machine.
pub(crate) fn path_of(address: &str) -> Option<PathBuf> {
    let url =
        Url::parse(address).ok().filter(|url| url.scheme() == "file" && address.len() <= MAX_ADDRESS)?;
    // Operating systems do not accept a zero byte in a path.
    url.to_file_path().ok().filter(|path| !path.as_os_str().as_encoded_bytes().contains(&0))
}

/// The directories for the agent of a chat, with its working directory first.
///
/// A chat has all of the session's directories or a subset. The directory in which the
/// agent process runs is always included, since the process needs it.
pub(crate) fn of_chat(session: &SessionState, chat: &ChatState, primary: Option<Primary>) -> Vec<PathBuf> {
    let all = session.working_directories.as_deref().unwrap_or_default();
    let lives_in_first = matches!(primary, Some(Primary::Fixed | Primary::Replaceable));
    let mut paths = Vec::new();
    for (place, directory) in all.iter().enumerate() {
        let wanted = chat.working_directories.as_ref().is_none_or(|some| some.contains(directory));
        if (wanted || (place == 0 && lives_in_first))
            && let Some(path) = path_of(directory)
            && !paths.contains(&path)
        {
            paths.push(path);
        }
    }
    if primary.is_none() {
        // The session may have been created with an agent that supported several.
        paths.truncate(1);
    }
    paths
}

#[cfg(test)]
mod tests {
    use ahp_types::state::MultipleWorkingDirectoriesCapability as Several;
    use serde_json::json;

    use super::*;

    fn chosen(some: Option<&[&str]>, primary: Option<Primary>) -> Vec<PathBuf> {
        let session = json!({
            "provider": "x", "title": "", "status": 1, "lifecycle": "ready", "activeClients": [], "chats": [],
            "workingDirectories": ["file:///a", "file:///b%20c", "https://x/", "file:///a/"],
        });
        let mut chat =
            json!({"resource": "ahp-chat:/1", "title": "", "status": 1, "modifiedAt": "", "turns": []});
        if let Some(some) = some {
            chat["workingDirectories"] = json!(some);
        }
        of_chat(&serde_json::from_value(session).unwrap(), &serde_json::from_value(chat).unwrap(), primary)
    }

    #[test]
    fn chat_gets_its_subset_and_primary_directory_is_always_included() {
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(chosen(None, Some(Primary::Peer)), paths(&["/a", "/b c"]));
        assert_eq!(chosen(None, None), paths(&["/a"]));
        assert_eq!(chosen(Some(&["file:///b%20c"]), Some(Primary::Peer)), paths(&["/b c"]));
        assert_eq!(chosen(Some(&["file:///b%20c"]), Some(Primary::Fixed)), paths(&["/a", "/b c"]));
        assert_eq!(chosen(Some(&[]), Some(Primary::Peer)), paths(&[]));
        assert_eq!(chosen(Some(&[]), Some(Primary::Replaceable)), paths(&["/a"]));
    }

    #[test]
    fn only_absolute_local_paths_are_directories() {
        assert_eq!(path_of("file:///w/x%20y"), Some("/w/x y".into()));
        assert_eq!(path_of("file://localhost/w"), Some("/w".into()));
        let long = format!("file:///{}", "x".repeat(MAX_ADDRESS));
        for wrong in ["", "/w", "w", "https://example.com/w", "file://elsewhere/w", "file:///w%00x", &long] {
            assert_eq!(path_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn primary_directory_role_follows_agent_capabilities() {
        let says = |immutable_primary, primary_replacement| {
            let info = json!({"provider": "x", "displayName": "", "description": "", "models": [],
                "capabilities": {"multipleWorkingDirectories": Several { immutable_primary, primary_replacement }}});
            Primary::of(&serde_json::from_value(info).unwrap())
        };
        assert_eq!(says(None, None), Some(Primary::Peer));
        assert_eq!(says(Some(false), Some(false)), Some(Primary::Peer));
        assert_eq!(says(Some(true), None), Some(Primary::Fixed));
        assert_eq!(says(Some(true), Some(true)), Some(Primary::Replaceable));
        assert_eq!(says(None, Some(true)), Some(Primary::Replaceable));
        let plain = json!({"provider": "x", "displayName": "", "description": "", "models": []});
        assert_eq!(Primary::of(&serde_json::from_value(plain).unwrap()), None);
    }
}
