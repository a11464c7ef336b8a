use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use innkeeper_core::files::{
    ChangeKind, Existing, FileWrite, Files as _, Transfer, WriteCondition, WritePlace,
};
use tempfile::TempDir;

use super::*;
use crate::pending_changes::MAX_PATHS;
use crate::{FilesConfig, LocalFiles, uri_of};

/// Timeout for system events on slow test machines.
const PATIENCE: Duration = Duration::from_secs(20);

struct World {
    dir: TempDir,
    files: LocalFiles,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().to_owned();
        let files = LocalFiles::new(FilesConfig {
            sessions: Arc::new(move || vec![root.clone()]),
            granted: Vec::new(),
            closed: Vec::new(),
        });
        Self { dir, files }
    }

    fn uri(&self, path: &str) -> String {
        uri_of(&self.dir.path().join(path))
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    async fn watch(&self, path: &str, reach: Reach) -> Box<dyn FileWatch> {
        let request = WatchRequest { uri: self.uri(path), reach, includes: Vec::new(), excludes: Vec::new() };
        self.files.watch(request).await.unwrap()
    }

    async fn write(&self, path: &str) {
        let write = FileWrite {
            uri: self.uri(path),
            data: "x".into(),
            place: WritePlace::Truncate(0),
            condition: WriteCondition::Always,
        };
        self.files.write(write).await.unwrap();
    }
}

async fn next(watch: &mut Box<dyn FileWatch>) -> Vec<FileChange> {
    let changes = within(watch.changes()).await.expect("the watch ended");
    assert_ne!(changes, []);
    changes
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("timed out waiting for the watch")
}

/// Reads batches until all of these changes were reported; fails on any other path.
#[track_caller]
fn expect(world: &World, expected: &[(&str, ChangeKind)]) -> Vec<FileChange> {
    expected.iter().map(|(path, kind)| FileChange { uri: world.uri(path), kind: *kind }).collect()
}

async fn reported(watch: &mut Box<dyn FileWatch>, expected: Vec<FileChange>) {
    let mut missing = expected.clone();
    while !missing.is_empty() {
        for change in next(watch).await {
            assert!(expected.iter().any(|one| one.uri == change.uri), "{change:?}");
            missing.retain(|one| *one != change);
        }
    }
}

#[tokio::test]
async fn changes_below_a_directory_are_reported() {
    let world = World::new();
    world.put("old", "");
    world.put("gone", "");
    let mut watch = world.watch("", Reach::Descendants).await;
    world.put("old", "changed");
    std::fs::remove_file(world.dir.path().join("gone")).unwrap();
    world.put("new", "");
    let changes = [("old", ChangeKind::Updated), ("gone", ChangeKind::Deleted), ("new", ChangeKind::Added)];
    reported(&mut watch, expect(&world, &changes)).await;
    std::fs::create_dir_all(world.dir.path().join("a")).unwrap();
    reported(&mut watch, expect(&world, &[("a", ChangeKind::Added)])).await;
    world.put("a/deep", "");
    reported(&mut watch, expect(&world, &[("a/deep", ChangeKind::Added)])).await;
}

#[tokio::test]
async fn shallow_watch_ignores_deeper_changes() {
    let world = World::new();
    world.put("sub/file", "");
    let mut watch = world.watch("", Reach::Entries).await;
    world.put("sub/file", "changed");
    world.put("last", "");
    reported(&mut watch, expect(&world, &[("last", ChangeKind::Added)])).await;
}

#[tokio::test]
async fn replaced_file_is_still_watched() {
    let world = World::new();
    world.put("file", "1");
    world.put("other", "1");
    let mut watch = world.watch("file", Reach::Entries).await;
    world.put("other", "2");
    world.write("file").await;
    reported(&mut watch, expect(&world, &[("file", ChangeKind::Updated)])).await;
    // It is a new file now, and still watched.
    world.write("file").await;
    reported(&mut watch, expect(&world, &[("file", ChangeKind::Updated)])).await;
    std::fs::remove_file(world.dir.path().join("file")).unwrap();
    reported(&mut watch, expect(&world, &[("file", ChangeKind::Deleted)])).await;
}

#[tokio::test]
async fn own_writes_are_reported_without_temporary_files() {
    let world = World::new();
    world.put("known", "1");
    let mut watch = world.watch("", Reach::Descendants).await;
    world.write("known").await;
    world.write("new").await;
    let changes = [("known", ChangeKind::Updated), ("new", ChangeKind::Added)];
    reported(&mut watch, expect(&world, &changes)).await;
    let transfer =
        Transfer { source: world.uri("new"), destination: world.uri("copy"), existing: Existing::Keep };
    world.files.copy(transfer).await.unwrap();
    reported(&mut watch, expect(&world, &[("copy", ChangeKind::Added)])).await;
}

#[tokio::test]
async fn patterns_filter_reported_changes() {
    let world = World::new();
    world.put("node_modules/x/y.ts", "");
    world.put("src/z.ts", "");
    let request = WatchRequest {
        uri: world.uri(""),
        reach: Reach::Descendants,
        includes: vec!["**/*.ts".to_owned()],
        excludes: vec!["**/node_modules/**".to_owned()],
    };
    let mut watch = world.files.watch(request.clone()).await.unwrap();
    world.put("node_modules/x/y.ts", "1");
    world.put("src/readme.md", "1");
    world.put("src/z.ts", "1");
    reported(&mut watch, expect(&world, &[("src/z.ts", ChangeKind::Updated)])).await;
    let wrong = WatchRequest { includes: vec!["{".to_owned()], ..request };
    assert!(matches!(world.files.watch(wrong).await, Err(FileError::Invalid(_))));
}

#[tokio::test]
async fn too_many_changes_are_reported_as_one() {
    let world = World::new();
    let mut watch = world.watch("", Reach::Entries).await;
    for number in 0..MAX_PATHS + 500 {
        world.put(&format!("file{number}"), "");
    }
    // The first batches may be taken while files are still being created.
    loop {
        let changes = next(&mut watch).await;
        assert!(changes.len() <= MAX_PATHS);
        if changes == [FileChange { uri: world.uri(""), kind: ChangeKind::Updated }] {
            break;
        }
    }
}

#[tokio::test]
async fn changes_behind_links_are_not_reported() {
    let world = World::new();
    let outside = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(outside.path(), world.dir.path().join("out")).unwrap();
    let mut watch = world.watch("", Reach::Descendants).await;
    std::fs::write(outside.path().join("secret"), "").unwrap();
    world.put("last", "");
    reported(&mut watch, expect(&world, &[("last", ChangeKind::Added)])).await;
}

#[tokio::test]
async fn watch_ends_when_path_is_no_longer_allowed() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("sub")).unwrap();
    let roots = Arc::new(Mutex::new(vec![dir.path().to_owned(), dir.path().join("sub")]));
    let listed = Arc::clone(&roots);
    let files = LocalFiles::new(FilesConfig {
        sessions: Arc::new(move || listed.lock().unwrap().clone()),
        granted: Vec::new(),
        closed: Vec::new(),
    });
    let world = World { dir, files };
    let mut whole = world.watch("", Reach::Descendants).await;
    let mut part = world.watch("sub", Reach::Descendants).await;
    world.put("sub/one", "");
    reported(&mut part, expect(&world, &[("sub/one", ChangeKind::Added)])).await;
    reported(&mut whole, expect(&world, &[("sub/one", ChangeKind::Added)])).await;
    roots.lock().unwrap().remove(0);
    world.put("sub/two", "");
    assert_eq!(within(whole.changes()).await, None);
    // Another session works in this subdirectory.
    reported(&mut part, expect(&world, &[("sub/two", ChangeKind::Added)])).await;
    roots.lock().unwrap().clear();
    world.put("sub/three", "");
    assert_eq!(within(part.changes()).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_check_uses_one_slot_and_survives_cancelled_calls() {
    let dir = tempfile::tempdir().unwrap();
    let (root, gate) = (dir.path().to_owned(), Arc::new((Mutex::new(false), Condvar::new())));
    let checks = Arc::new(AtomicUsize::new(0));
    let (passed, count) = (Arc::clone(&gate), Arc::clone(&checks));
    let files = LocalFiles::new(FilesConfig {
        sessions: Arc::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
            let shut = passed.0.lock().unwrap();
            drop(passed.1.wait_timeout_while(shut, PATIENCE, |shut| *shut).unwrap());
            vec![root.clone()]
        }),
        granted: Vec::new(),
        closed: Vec::new(),
    });
    let world = World { dir, files };
    let mut watch = world.watch("", Reach::Descendants).await;
    let before = checks.load(Ordering::SeqCst);
    *gate.0.lock().unwrap() = true;
    world.put("new", "");
    // Repeated calls that do not wait for the result.
    within(async {
        while checks.load(Ordering::SeqCst) == before {
            assert!(tokio::time::timeout(GATHER * 2, watch.changes()).await.is_err());
        }
    })
    .await;
    for _ in 0..5 {
        assert!(tokio::time::timeout(GATHER * 2, watch.changes()).await.is_err());
    }
    assert_eq!(checks.load(Ordering::SeqCst), before + 1, "only one check runs");
    let stopped = tokio::time::timeout(GATHER, world.files.stop()).await;
    assert!(stopped.is_err(), "stop waits for the check");
    *gate.0.lock().unwrap() = false;
    gate.1.notify_all();
    reported(&mut watch, expect(&world, &[("new", ChangeKind::Added)])).await;
    within(world.files.stop()).await;
}

#[tokio::test]
async fn changes_in_hidden_directories_are_not_reported() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("data/content")).unwrap();
    let (root, data) = (dir.path().to_owned(), dir.path().join("data"));
    let files = LocalFiles::new(FilesConfig {
        sessions: Arc::new(move || vec![root.clone()]),
        granted: vec![data.join("content")],
        closed: vec![data],
    });
    let world = World { dir, files };
    let mut watch = world.watch("", Reach::Descendants).await;
    world.put("data/token", "1");
    world.put("data/content/shown", "");
    world.put("data2", "");
    let changes = [("data/content/shown", ChangeKind::Added), ("data2", ChangeKind::Added)];
    reported(&mut watch, expect(&world, &changes)).await;
}

/// Number of inotify handles and of watcher threads of this process.
#[cfg(target_os = "linux")]
fn system_watchers() -> (usize, usize) {
    let entries = |directory| std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let handles = entries("/proc/self/fd")
        .filter_map(|path| std::fs::read_link(path).ok())
        .filter(|target| target.to_string_lossy().contains("inotify"));
    let threads = entries("/proc/self/task")
        .filter_map(|path| std::fs::read_to_string(path.join("comm")).ok())
        .filter(|name| name.starts_with("notify-rs"));
    (handles.count(), threads.count())
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn all_watches_share_one_system_watcher_that_ends_with_the_last() {
    let world = World::new();
    let before = system_watchers();
    let mut watches = Vec::new();
    for number in 0..200 {
        world.put(&format!("{number}/file"), "");
        watches.push(world.watch(&number.to_string(), Reach::Descendants).await);
    }
    assert_eq!((world.files.watches(), system_watchers()), (200, (before.0 + 1, before.1 + 1)));
    for number in [0, 100, 199] {
        world.put(&format!("{number}/file"), "changed");
        let changed = format!("{number}/file");
        reported(&mut watches[number], expect(&world, &[(&changed, ChangeKind::Updated)])).await;
    }
    drop(watches);
    assert_eq!(world.files.watches(), 0);
    // The watcher's thread ends asynchronously.
    within(async {
        while system_watchers() != before {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn rejects_watch_of_missing_path_without_using_a_slot() {
    let world = World::new();
    let missing = WatchRequest {
        uri: world.uri("none"),
        reach: Reach::Entries,
        includes: Vec::new(),
        excludes: Vec::new(),
    };
    assert!(matches!(world.files.watch(missing).await, Err(FileError::NotFound(_))));
    assert_eq!(world.files.watches(), 0);
}
