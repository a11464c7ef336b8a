//! Resolves the paths of permission requests.
//!
//! In contrast to `resolution`, paths outside of the allowed directories are resolved, too: the policy
//! decides about them. Nothing is opened.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

use innkeeper_core::policy::{PathResolver, ResolvedPath};

/// Number of links in one path, as in the kernel.
const MAX_LINKS: u32 = 40;

/// Longest path in bytes, as in the kernel.
const MAX_LENGTH: usize = 4_096;

/// Resolves paths on the local file system.
#[derive(Clone, Debug)]
pub struct LocalPathResolver {
    home: Option<PathBuf>,
}

impl LocalPathResolver {
    /// `home` replaces a leading `~`.
    pub fn new(home: Option<PathBuf>) -> Self {
        Self { home }
    }

    /// The absolute path that a text names.
    fn absolute(&self, path: &str, base: &Path) -> PathBuf {
        let in_home = match path.strip_prefix('~') {
            Some("") => Some(""),
            Some(rest) => rest.strip_prefix('/').map(|rest| rest.trim_start_matches('/')),
            None => None,
        };
        match (in_home, &self.home) {
            (Some(rest), Some(home)) => home.join(rest),
            (Some(_), None) | (None, _) => base.join(path),
        }
    }
}

impl PathResolver for LocalPathResolver {
    fn resolve(&self, path: &str, base: &Path) -> ResolvedPath {
        let absolute = self.absolute(path, base);
        let is_home = path == "~" || path.starts_with("~/");
        let is_valid = !path.contains('\0')
            && absolute.is_absolute()
            && absolute.as_os_str().len() <= MAX_LENGTH
            && (!is_home || self.home.is_some());
        let real = if is_valid { real_path(&absolute) } else { None };
        ResolvedPath { given: path.to_owned(), lexical: lexical(&absolute), real }
    }
}

/// Removes `.` and `..` without looking at the file system.
fn lexical(path: &Path) -> PathBuf {
    let mut lexical = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                lexical.pop();
            }
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => lexical.push(component),
        }
    }
    lexical
}

/// Resolves links as the kernel does: `..` after a link leaves the link's target. Components that do not
/// exist are kept. `None` if a link cannot be read, there are too many, or a directory cannot be searched.
fn real_path(path: &Path) -> Option<PathBuf> {
    let mut at = PathBuf::new();
    let mut rest: VecDeque<OsString> = VecDeque::new();
    start(path, &mut at, &mut rest);
    let mut links_left = MAX_LINKS;
    while let Some(name) = rest.pop_front() {
        if name == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&name);
        match std::fs::symlink_metadata(&next) {
            Ok(found) if found.is_symlink() => {
                links_left = links_left.checked_sub(1)?;
                let target = std::fs::read_link(&next).ok()?;
                start(&target, &mut at, &mut rest);
            }
            Ok(_) => at = next,
            Err(error) if error.kind() == io::ErrorKind::NotFound => at = next,
            // A file is used as a directory: nothing below it can be created.
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => at = next,
            Err(_) => return None,
        }
    }
    Some(at)
}

/// Puts the components of a path before the remaining ones. An absolute path starts again at the root.
fn start(path: &Path, at: &mut PathBuf, rest: &mut VecDeque<OsString>) {
    for component in path.components().rev() {
        match component {
            Component::Normal(name) => rest.push_front(name.to_owned()),
            Component::ParentDir => rest.push_front(OsString::from("..")),
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => {
                // The components after it are in `rest` already; the root is the last one in this order.
                if matches!(component, Component::RootDir) {
                    *at = PathBuf::from(component.as_os_str());
                } else {
                    *at = Path::new(component.as_os_str()).join(&*at);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    struct Folder {
        /// Deleted at the end of the test.
        _temporary: tempfile::TempDir,
        path: PathBuf,
    }

    fn folder() -> Folder {
        let temporary = tempfile::tempdir().unwrap();
        let path = fs::canonicalize(temporary.path()).unwrap();
        Folder { _temporary: temporary, path }
    }

    #[test]
    fn resolves_home_relative_and_absolute_paths() {
        let folder = folder();
        let base = folder.path.join("base");
        let home = folder.path.join("home");
        let resolver = LocalPathResolver::new(Some(home.clone()));
        for (given, expected) in [
            ("a", base.join("a")),
            ("./a/../b", base.join("b")),
            ("", base.clone()),
            ("~", home.clone()),
            ("~/x", home.join("x")),
            ("~//etc", home.join("etc")),
            ("~other", base.join("~other")),
            ("../x", folder.path.join("x")),
            ("/../../etc", PathBuf::from("/etc")),
        ] {
            let resolved = resolver.resolve(given, &base);
            assert_eq!(resolved.lexical, expected, "{given}");
            assert_eq!(resolved.given, given);
        }
        assert_eq!(resolver.resolve("a/b", &base).real, Some(base.join("a/b")));
        assert_eq!(LocalPathResolver::new(None).resolve("~/x", &base).real, None);
    }

    #[test]
    fn resolves_links_of_existing_ancestors() {
        let folder = folder();
        let root = &folder.path;
        fs::create_dir_all(root.join("real/sub")).unwrap();
        fs::write(root.join("real/file"), "").unwrap();
        symlink("real", root.join("relative")).unwrap();
        symlink(root.join("real/sub"), root.join("absolute")).unwrap();
        symlink("relative/missing", root.join("dangling")).unwrap();
        let resolver = LocalPathResolver::new(None);
        for (given, expected) in [
            ("relative/file", "real/file"),
            ("relative/new/deep", "real/new/deep"),
            ("absolute/x", "real/sub/x"),
            // The kernel leaves the link's target, not the directory of the link.
            ("absolute/../file", "real/file"),
            ("dangling", "real/missing"),
            ("dangling/x", "real/missing/x"),
            ("real/file/x", "real/file/x"),
        ] {
            assert_eq!(resolver.resolve(given, root).real, Some(root.join(expected)), "{given}");
        }
        assert_eq!(resolver.resolve("absolute/../file", root).lexical, root.join("file"));
    }

    #[test]
    fn unresolvable_paths_have_no_real_path() {
        let folder = folder();
        let root = &folder.path;
        symlink("b", root.join("a")).unwrap();
        symlink("a", root.join("b")).unwrap();
        for number in 0..41 {
            symlink(format!("chain{}", number + 1), root.join(format!("chain{number}"))).unwrap();
        }
        let resolver = LocalPathResolver::new(None);
        for given in ["a", "a/x", "x\0y", &"x/".repeat(3_000), "chain0", &"n".repeat(300)] {
            assert_eq!(resolver.resolve(given, root).real, None, "{given:?}");
        }
        assert_eq!(resolver.resolve("chain1", root).real, Some(root.join("chain41")));
        assert_eq!(resolver.resolve("x", Path::new("relative")).real, None);
    }
}
