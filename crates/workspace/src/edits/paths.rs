//! The paths of recorded files: absolute, with the links of their directories resolved.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::registry::TrackedRoot;

/// The canonical paths of existing directories, without those inside of others.
pub(crate) fn outermost(directories: &[PathBuf]) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = directories
        .iter()
        .filter_map(|directory| directory.canonicalize().ok())
        .filter(|directory| directory.is_dir())
        .collect();
    found.sort();
    let mut outermost: Vec<PathBuf> = Vec::new();
    for directory in found {
        if !outermost.iter().any(|outer| directory.starts_with(outer)) {
            outermost.push(directory);
        }
    }
    outermost
}

/// The files that a tool changes if it is given these paths, as far as they are below the
/// roots. A tool follows links, so the target of a link may change, too.
pub(crate) fn targets(named: &[PathBuf], roots: &[Arc<TrackedRoot>]) -> Vec<PathBuf> {
    let mut targets = Vec::new();
    for path in named {
        let Some(direct) = resolved(path) else { continue };
        let followed = if direct.is_symlink() { direct.canonicalize().ok() } else { None };
        for target in std::iter::once(direct).chain(followed) {
            let is_inside = roots.iter().any(|root| target != root.path && target.starts_with(&root.path));
            if is_inside && !targets.contains(&target) {
                targets.push(target);
            }
        }
    }
    targets
}

/// The path with the links of its directory resolved, as far as the directory exists.
pub(crate) fn resolved(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?;
    let mut missing = Vec::new();
    let mut directory = path.parent()?;
    let existing = loop {
        match directory.canonicalize() {
            Ok(existing) => break existing,
            Err(_) => {
                // A path that leaves a missing directory again has no meaning.
                let last = directory.components().next_back()?;
                if !matches!(last, Component::Normal(_)) {
                    return None;
                }
                missing.push(last.as_os_str().to_owned());
                directory = directory.parent()?;
            }
        }
    };
    let directory = missing.into_iter().rev().fold(existing, |directory, name| directory.join(name));
    Some(directory.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_the_directory_are_resolved_and_the_file_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().canonicalize().unwrap();
        std::fs::create_dir(top.join("real")).unwrap();
        std::os::unix::fs::symlink("real", top.join("alias")).unwrap();
        std::os::unix::fs::symlink("nowhere", top.join("real/link")).unwrap();
        assert_eq!(resolved(&top.join("alias/link")), Some(top.join("real/link")));
        assert_eq!(resolved(&top.join("alias/a/b/c")), Some(top.join("real/a/b/c")));
        assert_eq!(resolved(&top.join("alias/../x")), Some(top.join("x")));
        assert_eq!(resolved(&top.join("none/../x")), None);
        assert_eq!(resolved(Path::new("/")), None);
    }

    #[test]
    fn nested_and_missing_directories_are_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().canonicalize().unwrap();
        for name in ["a/b", "ab"] {
            std::fs::create_dir_all(top.join(name)).unwrap();
        }
        let given = ["ab", "a/b", "a", "none", "a/../a"].map(|name| top.join(name));
        assert_eq!(outermost(&given), [top.join("a"), top.join("ab")]);
    }
}
