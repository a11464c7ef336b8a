//! Where the runtime keeps its transcripts.
//!
//! Knows the layout of the configuration directory as far as finding a conversation goes; what is in a
//! transcript is not read here. Never starts a runtime.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use uuid::Uuid;

/// The runtime's configuration directory in an environment.
pub fn config_dir(environment: &BTreeMap<OsString, OsString>) -> Option<PathBuf> {
    let variable = |name: &str| environment.get(OsStr::new(name)).filter(|value| !value.is_empty());
    variable("CLAUDE_CONFIG_DIR")
        .map(PathBuf::from)
        .or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(".claude")))
}

/// The transcript of a conversation, if the runtime has written one. It does so some time after the first
/// message, so a runtime that died early leaves none, and there is nothing to resume.
pub fn find(environment: &BTreeMap<OsString, OsString>, conversation: Uuid) -> Option<PathBuf> {
    let projects = config_dir(environment)?.join("projects");
    let name = format!("{conversation}.jsonl");
    let mut candidates =
        std::fs::read_dir(projects).ok()?.flatten().map(|project| project.path().join(&name));
    candidates.find(|path| std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_is_found_in_any_project_and_only_if_something_was_written() {
        let home = tempfile::tempdir().unwrap();
        let environment = BTreeMap::from([("HOME".into(), home.path().as_os_str().to_owned())]);
        let id = Uuid::new_v4();
        assert_eq!(find(&environment, id), None);
        let project = home.path().join(".claude/projects/-some-where");
        std::fs::create_dir_all(&project).unwrap();
        let path = project.join(format!("{id}.jsonl"));
        std::fs::write(&path, "").unwrap();
        assert_eq!(find(&environment, id), None);
        std::fs::write(&path, "{}\n").unwrap();
        assert_eq!(find(&environment, id), Some(path));
        assert_eq!(find(&environment, Uuid::new_v4()), None);
    }
}
