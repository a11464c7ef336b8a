//! Maps working directories to folders of the configuration directory.
//!
//! Owns the runtime's naming rule: different directories may map to the same name, and long names are
//! truncated and get a checksum.

use std::fs;
use std::path::{Path, PathBuf};

use super::worktrees::worktrees_of;

/// Length in bytes above which a name is truncated.
const KEY_LIMIT: usize = 200;

/// A folder of transcripts.
#[derive(Debug, Clone)]
pub(super) struct Project {
    /// Path of the folder.
    pub(super) folder: PathBuf,
    /// Which sessions of the folder are included.
    pub(super) filter: SessionFilter,
}

/// Which sessions of a folder are included.
#[derive(Debug, Clone)]
pub(super) enum SessionFilter {
    /// All sessions.
    All,
    /// Sessions of this directory; excludes sessions of other directories with the same folder name.
    Directory(PathBuf),
    /// Sessions that recorded this directory. The folder name was truncated, so it is not sufficient.
    Recorded(PathBuf),
}

impl SessionFilter {
    /// Whether a session that ran in `cwd` is included.
    pub(super) fn includes(&self, cwd: Option<&str>) -> bool {
        match (self, cwd) {
            (Self::All, _) | (Self::Directory(_), None) => true,
            (Self::Directory(directory), Some(cwd)) => {
                Path::new(cwd) == directory || key_of_path(cwd) != project_key(directory)
            }
            (Self::Recorded(directory), cwd) => cwd.is_some_and(|cwd| Path::new(cwd) == directory),
        }
    }
}

/// The name of the folder in which the runtime stores the transcripts of a working directory. Does not
/// resolve links, which the runtime does first.
pub fn project_key(directory: &Path) -> String {
    key_of_path(&directory.to_string_lossy())
}

fn key_of_path(path: &str) -> String {
    // The rule is defined on UTF-16, where a character beyond the basic plane counts twice.
    let mut key = String::with_capacity(path.len());
    for character in path.chars() {
        if character.is_ascii_alphanumeric() {
            key.push(character);
        } else {
            (0..character.len_utf16()).for_each(|_| key.push('-'));
        }
    }
    if key.len() > KEY_LIMIT {
        key.truncate(KEY_LIMIT);
        key.push('-');
        key.push_str(&base36(checksum(path).unsigned_abs()));
    }
    key
}

fn checksum(path: &str) -> i32 {
    path.encode_utf16().fold(0_i32, |sum, unit| sum.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

fn base36(mut number: u32) -> String {
    let mut digits = Vec::new();
    loop {
        digits.push(char::from_digit(number % 36, 36).unwrap_or('0'));
        number /= 36;
        if number == 0 {
            return digits.iter().rev().collect();
        }
    }
}

/// All folders of transcripts.
pub(super) fn all_projects(projects: &Path) -> Vec<Project> {
    let entries = fs::read_dir(projects).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_file()));
    folders.map(|entry| Project { folder: entry.path(), filter: SessionFilter::All }).collect()
}

/// The folders that may contain transcripts of a directory, most likely first.
pub(super) fn projects_of(projects: &Path, directory: &Path) -> Vec<Project> {
    let directory = fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
    let key = project_key(&directory);
    let exact = projects.join(&key);
    let mut found =
        vec![Project { folder: exact.clone(), filter: SessionFilter::Directory(directory.clone()) }];
    if let Some(prefix) = key.get(..=KEY_LIMIT) {
        // Other builds of the runtime use other checksums.
        let siblings = all_projects(projects).into_iter().filter(|project| {
            let name = project.folder.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with(prefix)) && project.folder != exact
        });
        found.extend(
            siblings.map(|project| Project { filter: SessionFilter::Recorded(directory.clone()), ..project }),
        );
    }
    found
}

/// Like [`projects_of`], for the directory and all worktrees of its repository.
pub(super) fn projects_of_worktrees(projects: &Path, directory: &Path) -> Vec<Project> {
    let mut found = projects_of(projects, directory);
    let resolved = fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
    for root in worktrees_of(&resolved) {
        for project in projects_of(projects, &root) {
            if !found.iter().any(|known| known.folder == project.folder) {
                found.push(project);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn non_alphanumeric_characters_become_dashes() {
        assert_eq!(project_key(Path::new("/home/guest/my_app.v2")), "-home-guest-my-app-v2");
        assert_eq!(project_key(Path::new("/ä/😀")), "----".to_owned() + "-");
    }

    #[test]
    fn long_name_is_truncated_and_gets_a_checksum() {
        let path = format!("/{}", "a".repeat(250));
        let key = project_key(Path::new(&path));
        assert_eq!(key.len(), 201 + base36(checksum(&path).unsigned_abs()).len());
        assert!(key.starts_with(&format!("-{}-", "a".repeat(199))));
        assert_eq!(
            (checksum("ab"), base36(0), base36(35), base36(36)),
            (97 * 31 + 98, "0".into(), "z".into(), "10".into())
        );
    }

    #[test]
    fn directories_with_same_folder_name_are_separated() {
        let filter = SessionFilter::Directory(PathBuf::from("/a/b"));
        assert!(filter.includes(Some("/a/b")) && filter.includes(None) && filter.includes(Some("/a/b/sub")));
        assert!(!filter.includes(Some("/a-b")));
        let cut = SessionFilter::Recorded(PathBuf::from("/a/b"));
        assert!(cut.includes(Some("/a/b")) && !cut.includes(None) && !cut.includes(Some("/a/c")));
    }
}
