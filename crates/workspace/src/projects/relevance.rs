//! Which events of the file system can change the published state of a repository. Pure.

use std::path::{Path, PathBuf};

use notify::{Event, EventKind};

use super::repository::Repository;

/// The entries of git's directories that the state depends on.
const STATE: [&str; 7] = ["HEAD", "index", "refs", "packed-refs", "reftable", "config", "info"];

/// The paths that matter for one directory.
#[derive(Debug)]
pub(super) struct Relevance {
    directory: PathBuf,
    repository: Option<Repository>,
    ignored: Vec<PathBuf>,
}

impl Relevance {
    pub(super) fn new(directory: &Path, repository: Option<&Repository>, ignored: &[PathBuf]) -> Self {
        let (directory, repository) = (directory.to_owned(), repository.cloned());
        Self { directory, repository, ignored: ignored.to_vec() }
    }

    /// Whether an event may be about a change of the state.
    pub(super) fn concerns(&self, event: &notify::Result<Event>) -> bool {
        match event {
            Ok(event) if event.need_rescan() => true,
            Ok(event) if matches!(event.kind, EventKind::Access(_)) => false,
            Ok(event) => event.paths.iter().any(|path| self.wants(path)),
            Err(error) => error.paths.is_empty() || error.paths.iter().any(|path| self.wants(path)),
        }
    }

    fn wants(&self, path: &Path) -> bool {
        if self.ignored.iter().any(|ignored| path.starts_with(ignored)) {
            return false;
        }
        let Some(repository) = &self.repository else {
            return path == self.directory.join(".git") || path == self.directory;
        };
        let git_dirs = [&repository.git_dir, &repository.common_dir];
        if let Some(inside) = git_dirs.into_iter().find_map(|directory| path.strip_prefix(directory).ok()) {
            let is_lock = path.extension().is_some_and(|extension| extension == "lock");
            let first = inside.components().next();
            return !is_lock && first.is_none_or(|first| STATE.iter().any(|name| first.as_os_str() == *name));
        }
        let Ok(inside) = path.strip_prefix(&repository.root) else { return false };
        // Of another repository inside of this one, only its existence matters.
        inside.parent().is_none_or(|parents| parents.components().all(|name| name.as_os_str() != ".git"))
    }
}

#[cfg(test)]
mod tests {
    use notify::event::{AccessKind, CreateKind, Flag, ModifyKind};

    use super::*;

    fn linked() -> Repository {
        Repository {
            root: "/w".into(),
            git_dir: "/main/.git/worktrees/w".into(),
            common_dir: "/main/.git".into(),
            main: "/main".into(),
        }
    }

    #[test]
    fn only_files_of_the_working_tree_and_state_of_git_matter() {
        let relevance = Relevance::new(Path::new("/w/sub"), Some(&linked()), &["/w/data".into()]);
        for (path, wanted) in [
            ("/w/a", true),
            ("/w/sub/a.lock", true),
            ("/w/.git", true),
            ("/w/inner/.git", true),
            ("/w/inner/.git/HEAD", false),
            ("/w/data/x.db", false),
            ("/main/a", false),
            ("/main/.git", true),
            ("/main/.git/refs/heads/x", true),
            ("/main/.git/refs/heads/x.lock", false),
            ("/main/.git/objects/12/34", false),
            ("/main/.git/worktrees/w/index", true),
            ("/main/.git/worktrees/w/index.lock", false),
            ("/main/.git/worktrees/other/HEAD", false),
        ] {
            assert_eq!(relevance.wants(Path::new(path)), wanted, "{path}");
        }
    }

    #[test]
    fn outside_of_a_repository_only_a_new_one_matters() {
        let relevance = Relevance::new(Path::new("/w"), None, &[]);
        for (path, wanted) in [("/w/.git", true), ("/w", true), ("/w/a", false), ("/w/.git/HEAD", false)] {
            assert_eq!(relevance.wants(Path::new(path)), wanted, "{path}");
        }
    }

    #[test]
    fn reading_a_file_is_not_a_change_and_lost_events_are() {
        let relevance = Relevance::new(Path::new("/w"), Some(&linked()), &[]);
        let event = |kind| Event::new(kind).add_path("/w/a".into());
        assert!(!relevance.concerns(&Ok(event(EventKind::Access(AccessKind::Any)))));
        assert!(relevance.concerns(&Ok(event(EventKind::Modify(ModifyKind::Any)))));
        assert!(relevance.concerns(&Ok(event(EventKind::Create(CreateKind::File)))));
        assert!(relevance.concerns(&Ok(Event::new(EventKind::Other).set_flag(Flag::Rescan))));
        assert!(relevance.concerns(&Err(notify::Error::generic("x"))));
        assert!(!relevance.concerns(&Err(notify::Error::generic("x").add_path("/elsewhere".into()))));
    }
}
