//! Abstract files on disk.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::model::{ModelContent, ModelFile, ModelTree};

/// Blocks of a text.
pub(crate) const BLOCKS: usize = 5;

/// A directory that is removed after the test, in memory if possible.
pub(crate) fn temporary_directory() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir()
        && let Ok(directory) = tempfile::tempdir_in(memory)
    {
        return directory;
    }
    tempfile::tempdir().unwrap()
}

fn bytes_of(content: &ModelContent) -> Vec<u8> {
    match content {
        ModelContent::Binary(id) => format!("\0binary {id}\0").into_bytes(),
        ModelContent::Text(blocks) => {
            let block = |(index, block): (usize, &String)| {
                format!("{block}\n-- {index} a\n-- {index} b\n-- {index} c\n")
            };
            blocks.iter().enumerate().map(block).collect::<String>().into_bytes()
        }
    }
}

/// Writes a file. An existing regular file is kept and overwritten, unless it is replaced
/// by something else.
pub(crate) fn write(root: &Path, name: &str, value: &ModelFile) {
    let path = root.join(name);
    let is_regular = path.symlink_metadata().is_ok_and(|found| found.is_file());
    if path.symlink_metadata().is_ok() && !(is_regular && matches!(value, ModelFile::File(..))) {
        std::fs::remove_file(&path).unwrap();
    }
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    match value {
        ModelFile::Absent => {}
        ModelFile::Link(target) => std::os::unix::fs::symlink(target, &path).unwrap(),
        ModelFile::File(content, mode) => {
            std::fs::write(&path, bytes_of(content)).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(*mode)).unwrap();
        }
    }
}

/// Moves a file.
pub(crate) fn rename(root: &Path, from: &str, to: &str) {
    std::fs::create_dir_all(root.join(to).parent().unwrap()).unwrap();
    std::fs::rename(root.join(from), root.join(to)).unwrap();
}

/// Compares all files with a model.
pub(crate) fn assert_equal(root: &Path, expected: &ModelTree, context: &str) {
    let mut found = Vec::new();
    walk(root, &mut found);
    found.sort();
    let names: Vec<String> =
        found.iter().map(|path| path.strip_prefix(root).unwrap().to_str().unwrap().to_owned()).collect();
    assert_eq!(names, expected.keys().cloned().collect::<Vec<_>>(), "{context}");
    for (name, value) in expected {
        let path = root.join(name);
        match value {
            ModelFile::Absent => panic!("{context}: {name}"),
            ModelFile::Link(target) => {
                assert_eq!(std::fs::read_link(&path).unwrap(), Path::new(target), "{context}: {name}");
            }
            ModelFile::File(content, mode) => {
                let found = path.symlink_metadata().unwrap();
                assert!(found.is_file(), "{context}: {name}");
                assert_eq!(found.permissions().mode() & 0o7777, *mode, "{context}: mode of {name}");
                let bytes = std::fs::read(&path).unwrap();
                let expected = bytes_of(content);
                assert!(
                    bytes == expected,
                    "{context}: {name} is\n{}\nand not\n{}",
                    String::from_utf8_lossy(&bytes),
                    String::from_utf8_lossy(&expected)
                );
            }
        }
    }
}

fn walk(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            if entry.file_name() != ".git" {
                walk(&entry.path(), found);
            }
        } else {
            found.push(entry.path());
        }
    }
}

/// A repository without commits, which is copied: that is faster than a run of git.
pub(crate) struct GitTemplate {
    directory: PathBuf,
    home: PathBuf,
}

impl GitTemplate {
    pub(crate) fn create(directory: &Path) -> Self {
        let template = Self { directory: directory.join("template"), home: directory.join("home") };
        std::fs::create_dir(&template.directory).unwrap();
        std::fs::create_dir(&template.home).unwrap();
        template.git(&template.directory, &["init", "-q", "--template="]);
        template
    }

    /// Makes a directory a repository with one commit of all its files.
    pub(crate) fn commit(&self, root: &Path) {
        copy(&self.directory.join(".git"), &root.join(".git"));
        self.git(root, &["add", "-A"]);
        self.git(root, &["-c", "gc.auto=0", "commit", "-q", "--allow-empty", "-m", "first"]);
    }

    #[expect(clippy::disallowed_methods, reason = "a test runs git")]
    fn git(&self, directory: &Path, arguments: &[&str]) -> String {
        let output = std::process::Command::new("git")
            .args(arguments)
            .current_dir(directory)
            .env("HOME", &self.home)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .env("GIT_AUTHOR_NAME", "a")
            .env("GIT_AUTHOR_EMAIL", "a@example.com")
            .env("GIT_COMMITTER_NAME", "a")
            .env("GIT_COMMITTER_EMAIL", "a@example.com")
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
