//! Overlapping watches: each keeps its own reach while another starts and ends.

use std::collections::HashSet;
use std::time::Duration;

use innkeeper_core::files::{ChangeKind, FileChange, Reach};
use tempfile::TempDir;

use super::*;
use crate::glob::Globs;
use crate::pending_changes::PendingChanges;
use crate::roots::HiddenPaths;
use crate::uri_of;

/// Timeout for system events on slow test machines.
const PATIENCE: Duration = Duration::from_secs(20);

struct Tree {
    directory: TempDir,
    watcher: Arc<SharedWatcher>,
}

/// A registered watch and its changes.
struct TestWatch {
    registration: WatchRegistration,
    pending: Arc<PendingChanges>,
}

impl Tree {
    /// Creates a tree with the directory `sub/deep`.
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(directory.path().join("sub/deep")).unwrap();
        Self { directory, watcher: Arc::default() }
    }

    fn watch(&self, path: &str, reach: Reach) -> TestWatch {
        let root =
            if path.is_empty() { self.directory.path().to_owned() } else { self.directory.path().join(path) };
        let pending = Arc::new(PendingChanges {
            uri: uri_of(&root),
            root: root.clone(),
            reach,
            closed: HiddenPaths::default(),
            includes: Globs::parse(&[]).unwrap(),
            excludes: Globs::parse(&[]).unwrap(),
            batch: Mutex::default(),
            ready: tokio::sync::Notify::new(),
        });
        let mode = match reach {
            Reach::Entries => RecursiveMode::NonRecursive,
            Reach::Descendants => RecursiveMode::Recursive,
        };
        let registration = self.watcher.register(&root, mode, Arc::clone(&pending)).unwrap();
        TestWatch { registration, pending }
    }

    fn end(&self, watch: &TestWatch) {
        self.watcher.release(watch.registration.id);
    }

    fn put(&self, path: &str) {
        std::fs::write(self.directory.path().join(path), "").unwrap();
    }

    /// Waits until this path was reported; fails on any path that is not listed.
    async fn reported(&self, watch: &TestWatch, path: &str, others: &[&str]) {
        let uri = |path: &str| uri_of(&self.directory.path().join(path));
        let wait = async {
            loop {
                for FileChange { uri: changed, kind } in watch.pending.take() {
                    if changed == uri(path) {
                        assert_ne!(kind, ChangeKind::Deleted);
                        return;
                    }
                    assert!(others.iter().any(|other| uri(other) == changed), "{changed}");
                }
                watch.pending.ready.notified().await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.expect("timed out waiting for the watch");
    }
}

#[tokio::test]
async fn entries_watch_below_recursive_one_ignores_deeper_changes() {
    let tree = Tree::new();
    let outer = tree.watch("", Reach::Descendants);
    let inner = tree.watch("sub", Reach::Entries);
    tree.put("sub/deep/one");
    tree.put("sub/two");
    // The directory itself changes when an entry is added to it.
    tree.reported(&inner, "sub/two", &["sub", "sub/deep"]).await;
    tree.end(&outer);
    tree.put("sub/deep/three");
    tree.put("sub/four");
    tree.reported(&inner, "sub/four", &["sub", "sub/deep", "sub/two"]).await;
}

#[tokio::test]
async fn recursive_watch_survives_end_of_outer_one() {
    let tree = Tree::new();
    let inner = tree.watch("sub", Reach::Descendants);
    let outer = tree.watch("", Reach::Descendants);
    tree.end(&outer);
    tree.put("sub/deep/one");
    tree.reported(&inner, "sub/deep/one", &["sub", "sub/deep"]).await;
}

#[tokio::test]
async fn recursive_watch_sees_new_directories_after_watch_below_it_started_and_ended() {
    let tree = Tree::new();
    let outer = tree.watch("", Reach::Descendants);
    let inner = tree.watch("sub", Reach::Entries);
    for (name, file) in [("sub/new", "sub/new/one"), ("sub/newer", "sub/newer/two")] {
        std::fs::create_dir(tree.directory.path().join(name)).unwrap();
        tree.reported(&outer, name, &["sub", "sub/new", "sub/new/one"]).await;
        tree.put(file);
        tree.reported(&outer, file, &["sub", "sub/new", "sub/newer"]).await;
        tree.end(&inner);
    }
}

#[tokio::test]
async fn watch_of_renamed_directory_survives_end_of_watch_by_its_old_name() {
    let tree = Tree::new();
    let (old, new) = (tree.directory.path().join("sub"), tree.directory.path().join("renamed"));
    let first = tree.watch("sub", Reach::Entries);
    std::fs::rename(old, new).unwrap();
    let second = tree.watch("renamed", Reach::Entries);
    tree.end(&first);
    tree.put("renamed/one");
    tree.reported(&second, "renamed/one", &["renamed"]).await;
}

#[tokio::test]
async fn two_watches_of_one_directory_end_independently() {
    let tree = Tree::new();
    let (entries, descendants) = (tree.watch("sub", Reach::Entries), tree.watch("sub", Reach::Descendants));
    tree.end(&descendants);
    tree.put("sub/one");
    tree.reported(&entries, "sub/one", &["sub"]).await;
    let descendants = tree.watch("sub", Reach::Descendants);
    tree.end(&entries);
    tree.put("sub/deep/two");
    tree.reported(&descendants, "sub/deep/two", &["sub", "sub/deep"]).await;
}

#[tokio::test]
async fn entries_that_are_created_with_their_directories_are_reported() {
    let tree = Tree::new();
    let watch = tree.watch("", Reach::Descendants);
    let mut added = HashSet::<String>::new();
    for number in 0..50 {
        let directory = format!("new-{number}/deeper");
        std::fs::create_dir_all(tree.directory.path().join(&directory)).unwrap();
        let file = format!("{directory}/file");
        tree.put(&file);
        let uri = uri_of(&tree.directory.path().join(file));
        let wait = async {
            while !added.contains(&uri) {
                let changes = watch.pending.take();
                if changes.is_empty() {
                    watch.pending.ready.notified().await;
                }
                for change in changes.into_iter().filter(|change| change.uri.ends_with("/file")) {
                    assert_eq!(change.kind, ChangeKind::Added);
                    added.insert(change.uri);
                }
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.expect("timed out waiting for the watch");
    }
}
