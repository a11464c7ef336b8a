//! Resolves the paths of tool calls for the permission policy.

use std::path::{Component, Path, PathBuf};

use innkeeper_core::policy::{PathResolver, ResolvedPath};

/// Resolves paths on the local file system.
#[derive(Clone, Debug)]
pub struct LocalPaths {
    home: Option<PathBuf>,
}

impl LocalPaths {
    /// Resolves `~` to this directory.
    pub fn new(home: Option<PathBuf>) -> Self {
        Self { home }
    }
}

impl PathResolver for LocalPaths {
    fn resolve(&self, path: &str, base: &Path) -> ResolvedPath {
        let expanded = match (path.strip_prefix('~'), &self.home) {
            (Some(""), Some(home)) => home.clone(),
            (Some(rest), Some(home)) if rest.starts_with('/') => home.join(rest.trim_start_matches('/')),
            _ => base.join(path),
        };
        let lexical = normalized(&expanded);
        let real = real_path(&lexical);
        ResolvedPath { given: path.to_owned(), lexical, real }
    }
}

fn normalized(path: &Path) -> PathBuf {
    let mut normalized = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                normalized.pop();
            }
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => normalized.push(component),
        }
    }
    normalized
}

fn real_path(path: &Path) -> Option<PathBuf> {
    let mut rest = Vec::new();
    let mut existing = path;
    loop {
        match existing.canonicalize() {
            Ok(real) => return Some(rest.iter().rev().fold(real, |path, name| path.join(name))),
            // A link that leads nowhere could be created later, anywhere.
            Err(_) if existing.symlink_metadata().is_ok() => return None,
            Err(_) => {
                rest.push(existing.file_name()?);
                existing = existing.parent()?;
            }
        }
    }
}
