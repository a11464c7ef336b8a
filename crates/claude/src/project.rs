//! The parts of a project's Claude configuration that run programs or grant permissions.
//!
//! A runtime that reads the project's settings runs their hooks and helpers without asking,
//! and reloads changed settings while it runs. A host must therefore know what a folder would
//! run before it starts a runtime there, and use [`restrict`] for a folder that is not trusted.
//!
//! Files that the runtime reads, as observed with both supported versions: settings in the
//! working directory only; MCP servers in the working directory and its parents; agents,
//! commands and skills in these and in the additional directories.

mod entries;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::Metadata;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::options::{LaunchOptions, SettingSource};
use crate::transcript::config_dir;

pub use entries::ProjectEntry;

/// Maximum number of bytes read from one file. The rest of a larger file is represented by its
/// size and modification time.
const MAX_FILE: u64 = 1024 * 1024;

/// Maximum number of files and folders that are examined. A project with more is reported with
/// an entry that never has the same digest again, so that it is asked about at every start.
const MAX_FILES: usize = 4_096;

/// Maximum depth of folders with agents, commands and skills.
const MAX_DEPTH: usize = 8;

/// Folders below `.claude` whose Markdown files can contain commands and hooks.
const DEFINITION_FOLDERS: [(&str, &str); 3] =
    [("agents", "agent"), ("commands", "command"), ("skills", "skill")];

/// Variable with which the runtime reads CLAUDE.md from additional directories.
const CLAUDE_MD_VARIABLE: &str = "CLAUDE_CODE_ADDITIONAL_DIRECTORIES_CLAUDE_MD";

/// What a project's configuration would run.
#[derive(Clone, Debug, Default)]
pub struct ProjectSettings {
    /// The entries, in the order of the files.
    pub entries: Vec<ProjectEntry>,
    /// Identifies the content of all files with entries.
    pub digest: String,
    stamps: Vec<(PathBuf, Option<SettingsStamp>)>,
}

/// The identity of a file's content, without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SettingsStamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl SettingsStamp {
    fn of(metadata: &Metadata) -> Self {
        let modified = (metadata.mtime(), metadata.mtime_nsec());
        Self { inode: metadata.ino(), size: metadata.size(), modified }
    }

    fn read(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().map(|metadata| Self::of(&metadata))
    }
}

impl ProjectSettings {
    /// Reads the configuration of the project in `cwd`, with the additional directories
    /// `others`. `environment` is the runtime's: files in the user's own configuration directory
    /// do not belong to the project.
    pub fn read(cwd: &Path, others: &[PathBuf], environment: &BTreeMap<OsString, OsString>) -> Self {
        let user = config_dir(environment).map(|path| real_path(&path));
        let mut reader =
            Reader { root: cwd, user, found: Self::default(), hash: Sha256::new(), files_left: MAX_FILES };
        for name in ["settings.json", "settings.local.json"] {
            reader.file(&cwd.join(".claude").join(name), entries::of_settings);
        }
        for folder in cwd.ancestors() {
            reader.file(&folder.join(".mcp.json"), entries::of_mcp_file);
        }
        for folder in cwd.ancestors().chain(others.iter().map(PathBuf::as_path)) {
            for (name, kind) in DEFINITION_FOLDERS {
                reader.definitions(&folder.join(".claude").join(name), kind, MAX_DEPTH);
            }
        }
        reader.finish()
    }

    /// Whether a file may have changed since it was read. Does not read files.
    pub fn may_have_changed(&self) -> bool {
        self.stamps.iter().any(|(path, stamp)| SettingsStamp::read(path) != *stamp)
    }
}

/// Starts the runtime without the project's settings. Instructions in the working directory's
/// CLAUDE.md still apply: they are text, and a model can read them anyway.
pub fn restrict(options: &mut LaunchOptions) {
    options.setting_sources = vec![SettingSource::User];
    options.directories.insert(0, options.cwd.clone());
    options.overrides.insert(CLAUDE_MD_VARIABLE.into(), "1".into());
}

struct Reader<'a> {
    root: &'a Path,
    /// The user's configuration directory.
    user: Option<PathBuf>,
    found: ProjectSettings,
    hash: Sha256,
    files_left: usize,
}

impl Reader<'_> {
    /// Reads a file, if it exists, and adds its entries.
    fn file(&mut self, path: &Path, entries: impl FnOnce(&str, &[u8]) -> Vec<ProjectEntry>) {
        let is_users = path.parent().is_some_and(|parent| self.user.as_deref() == Some(&real_path(parent)));
        if is_users || self.files_left == 0 {
            return;
        }
        self.files_left -= 1;
        let stamp = SettingsStamp::read(path);
        self.found.stamps.push((path.to_owned(), stamp));
        let Some(stamp) = stamp else { return };
        let name = path.strip_prefix(self.root).unwrap_or(path).display().to_string();
        let content = match read_start(path) {
            Ok(content) => content,
            Err(error) => {
                // The runtime may be able to read it later.
                self.add(vec![ProjectEntry::unreadable(&name, &error)], path, stamp, b"");
                return;
            }
        };
        self.add(entries(&name, &content), path, stamp, &content);
    }

    fn add(&mut self, entries: Vec<ProjectEntry>, path: &Path, stamp: SettingsStamp, content: &[u8]) {
        if entries.is_empty() {
            return;
        }
        self.found.entries.extend(entries);
        let path = path.as_os_str().as_encoded_bytes();
        for part in [path, content] {
            self.hash.update(part.len().to_le_bytes());
            self.hash.update(part);
        }
        if stamp.size > MAX_FILE {
            self.hash.update(format!("{stamp:?}"));
        }
    }

    /// Adds the Markdown files of a folder with agents, commands or skills.
    fn definitions(&mut self, folder: &Path, kind: &str, depth: usize) {
        let is_users = folder.parent().is_some_and(|parent| self.user.as_deref() == Some(&real_path(parent)));
        if is_users || self.files_left == 0 {
            return;
        }
        self.files_left -= 1;
        self.found.stamps.push((folder.to_owned(), SettingsStamp::read(folder)));
        let Ok(list) = std::fs::read_dir(folder) else { return };
        let mut paths: Vec<PathBuf> = list.flatten().map(|entry| entry.path()).take(MAX_FILES).collect();
        paths.sort();
        for path in paths {
            // Follows links, as the runtime does.
            if path.is_dir() {
                match depth.checked_sub(1) {
                    Some(depth) => self.definitions(&path, kind, depth),
                    None => self.files_left = 0,
                }
            } else if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("md")) {
                self.file(&path, |name, content| entries::of_definition(kind, name, content));
            }
        }
    }

    fn finish(mut self) -> ProjectSettings {
        if self.files_left == 0 {
            self.found.entries.push(ProjectEntry::too_many());
            self.hash.update(uuid::Uuid::new_v4());
        }
        self.found.digest = format!("{:x}", self.hash.finalize());
        self.found
    }
}

fn read_start(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut content = Vec::new();
    let file = std::fs::File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("not a regular file"));
    }
    file.take(MAX_FILE).read_to_end(&mut content)?;
    Ok(content)
}

fn real_path(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
#[path = "project_tests.rs"]
mod tests;
