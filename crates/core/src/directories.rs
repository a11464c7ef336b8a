//! The directories that agents work in: which addresses can be one, and which of a
//! session's directories the agent of a chat gets. All pure: whether a directory
//! exists is seen by whoever works in it.

use std::path::PathBuf;

use ahp_types::state::{AgentInfo, ChatState, SessionState};
use url::Url;

/// Directories that a session can have. Each of them is an argument of its agent's
/// process and a place that clients may reach, and nobody works in more.
pub(crate) const MAX_DIRECTORIES: usize = 64;

/// The longest address of a directory, in bytes: no path of this machine is longer.
const MAX_ADDRESS: usize = 4096;

/// What an agent that works in several directories makes of the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Primary {
    /// It is one like the others.
    Peer,
    /// The agent lives in it and cannot move.
    Fixed,
    /// The agent lives in it and can move to another one.
    Replaceable,
}

impl Primary {
    /// What a kind of agent says about itself; nothing if it works in one directory.
    pub(crate) fn of(info: &AgentInfo) -> Option<Self> {
        let several = info.capabilities.as_ref()?.multiple_working_directories.as_ref()?;
        // A kind that says both protects older clients, which know the first one only.
        Some(match (several.immutable_primary, several.primary_replacement) {
            (_, Some(true)) => Self::Replaceable,
            (Some(true), _) => Self::Fixed,
            _ => Self::Peer,
        })
    }
}

/// The path of a directory's address, if it can be one of this machine.
pub(crate) fn path_of(address: &str) -> Option<PathBuf> {
    let url =
        Url::parse(address).ok().filter(|url| url.scheme() == "file" && address.len() <= MAX_ADDRESS)?;
    // No system knows a path with a zero byte in it.
    url.to_file_path().ok().filter(|path| !path.as_os_str().as_encoded_bytes().contains(&0))
}

/// The directories for the agent of a chat, the one to work in first.
///
/// A chat has all of the session's directories or some of them. The directory that an
/// agent lives in is always there, since its process cannot do without.
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
        // An earlier host may have had an agent that could work in more.
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
    fn a_chat_works_in_all_directories_or_in_some_and_an_agent_keeps_the_one_it_lives_in() {
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(chosen(None, Some(Primary::Peer)), paths(&["/a", "/b c"]));
        assert_eq!(chosen(None, None), paths(&["/a"]));
        assert_eq!(chosen(Some(&["file:///b%20c"]), Some(Primary::Peer)), paths(&["/b c"]));
        assert_eq!(chosen(Some(&["file:///b%20c"]), Some(Primary::Fixed)), paths(&["/a", "/b c"]));
        assert_eq!(chosen(Some(&[]), Some(Primary::Peer)), paths(&[]));
        assert_eq!(chosen(Some(&[]), Some(Primary::Replaceable)), paths(&["/a"]));
    }

    #[test]
    fn a_directory_is_an_absolute_path_of_this_machine() {
        assert_eq!(path_of("file:///w/x%20y"), Some("/w/x y".into()));
        assert_eq!(path_of("file://localhost/w"), Some("/w".into()));
        let long = format!("file:///{}", "x".repeat(MAX_ADDRESS));
        for wrong in ["", "/w", "w", "https://example.com/w", "file://elsewhere/w", "file:///w%00x", &long] {
            assert_eq!(path_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_a_kind_of_agent_says_decides_about_its_first_directory() {
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
