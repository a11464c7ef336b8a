use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use innkeeper_core::files::{Existing, Extent, FileError, Files as _, Transfer};
use tempfile::TempDir;

use super::*;
use crate::{FilesConfig, LocalFiles, uri_of};

/// Timeout for slow test machines.
const PATIENCE: Duration = Duration::from_secs(20);

/// The working directory of a session.
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

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn uri(&self, path: &str) -> String {
        uri_of(&self.path(path))
    }

    /// Creates a sparse file of this size.
    fn sparse(&self, path: &str, size: u64) {
        File::create(self.path(path)).unwrap().set_len(size).unwrap();
    }

    fn transfer(&self, source: &str, destination: &str) -> Transfer {
        Transfer { source: self.uri(source), destination: self.uri(destination), existing: Existing::Replace }
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort_unstable();
        names
    }
}

async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let wait = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect(what);
}

fn is_stopped(result: &Result<(), FileError>) -> bool {
    matches!(result, Err(FileError::Io { reason, .. }) if reason.contains("shutting down"))
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_cancels_deletion_of_large_tree() {
    let world = World::new();
    for outer in 0..50 {
        let dir = world.path(&format!("tree/{outer}"));
        std::fs::create_dir_all(&dir).unwrap();
        for inner in 0..40 {
            File::create(dir.join(inner.to_string())).unwrap();
        }
    }
    let before = count(&world.path("tree"));
    let (deleted, left) = tokio::join!(world.files.delete(world.uri("tree"), Extent::Recursive), async {
        eventually("it begins", || count(&world.path("tree")) < before).await;
        world.files.stop().await;
        count(&world.path("tree"))
    });
    // It was either stopped or finished before that.
    assert_eq!(is_stopped(&deleted), left > 0, "{deleted:?}, {left} left");
    assert_eq!(count(&world.path("tree")), left, "the deletion has stopped");
}

/// Number of entries in a directory.
fn count(dir: &std::path::Path) -> usize {
    std::fs::read_dir(dir).map_or(0, Iterator::count)
}

#[test]
fn tree_operations_fail_after_stop() {
    let world = World::new();
    std::fs::create_dir(world.path("tree")).unwrap();
    let stop = StopFlag::default();
    stop.request();
    let dir = beneath::directory(&world.dir.path().canonicalize().unwrap()).unwrap();
    let (from, to) = ((dir.as_fd(), OsStr::new("tree")), (dir.as_fd(), OsStr::new("copy")));
    assert_eq!(Copying::until(&stop).copy(from, to, Level::default()), Err(TreeError::Stopped));
    assert_eq!(remove(from.0, from.1, Removal::Wanted(&stop), Level::default()), Err(TreeError::Stopped));
    assert_eq!(world.names(), ["tree"]);
}

#[test]
fn copy_of_large_file_ends_after_stop() {
    let world = World::new();
    world.sparse("large", CHUNK * 2);
    let (mut source, mut target) =
        (File::open(world.path("large")).unwrap(), File::create(world.path("copy")).unwrap());
    let stop = StopFlag::default();
    let mut copying = Copying::until(&stop);
    assert_eq!(copying.copy_chunk(&mut source, &mut target, CHUNK), Ok(CHUNK));
    stop.request();
    assert_eq!(copying.copy_chunk(&mut source, &mut target, CHUNK), Err(TreeError::Stopped));
    assert_eq!(target.metadata().unwrap().len(), CHUNK);
}

#[tokio::test]
async fn copy_above_byte_limit_is_rejected_and_removed() {
    let world = World::new();
    std::fs::create_dir(world.path("tree")).unwrap();
    world.sparse("tree/large", MAX_BYTES + 1);
    let copied = world.files.copy(world.transfer("tree", "copy")).await;
    assert_eq!(copied, Err(FileError::TooLarge { what: world.uri("tree"), limit: MAX_BYTES_TEXT }));
    assert_eq!(world.names(), ["tree"]);
}

#[test]
fn byte_limit_includes_all_files_and_growth_during_copy() {
    let world = World::new();
    std::fs::create_dir(world.path("tree")).unwrap();
    for name in ["tree/one", "tree/two"] {
        world.sparse(name, 1_000);
    }
    let stop = StopFlag::default();
    let dir = beneath::directory(&world.dir.path().canonicalize().unwrap()).unwrap();
    let copy = |bytes_left, name: &str| {
        let mut copying = Copying { bytes_left, ..Copying::until(&stop) };
        copying.copy((dir.as_fd(), OsStr::new("tree")), (dir.as_fd(), OsStr::new(name)), Level::default())
    };
    assert_eq!(copy(2_000, "enough"), Ok(()));
    assert_eq!(copy(1_999, "less"), Err(TreeError::TooLarge));
    let mut copying = Copying { bytes_left: 999, ..Copying::until(&stop) };
    let (mut source, mut target) =
        (File::open(world.path("tree/one")).unwrap(), File::create(world.path("grown")).unwrap());
    assert_eq!(copying.copy_chunk(&mut source, &mut target, CHUNK), Err(TreeError::TooLarge));
}

#[test]
fn copy_leaves_reserved_disk_space_free() {
    const MIB: u64 = 1024 * 1024;
    for (all, free, more, room) in [
        (100 * MIB, 9 * MIB, 4 * MIB, true),
        (100 * MIB, 9 * MIB - 1, 4 * MIB, false),
        (100 * MIB, 5 * MIB + 1, 1, true),
        (1024 * 1024 * MIB, 260 * MIB, 4 * MIB, true),
        (1024 * 1024 * MIB, 260 * MIB - 1, 4 * MIB, false),
        (MIB, 0, 0, false),
        (0, 0, 4 * MIB, true),
    ] {
        assert_eq!(has_room(all, free, more), room, "{more} of {free} of {all}");
    }
}

#[test]
fn write_protected_leftovers_are_removed() {
    let world = World::new();
    std::fs::create_dir_all(world.path("tree/protected")).unwrap();
    std::fs::write(world.path("tree/protected/file"), "").unwrap();
    symlink("/", world.path("tree/protected/link")).unwrap();
    for path in ["tree/protected", "tree"] {
        std::fs::set_permissions(world.path(path), Permissions::from_mode(0o555)).unwrap();
    }
    let dir = beneath::directory(&world.dir.path().canonicalize().unwrap()).unwrap();
    remove(dir.as_fd(), OsStr::new("tree"), Removal::Leftover, Level::default()).unwrap();
    assert!(world.names().is_empty());
}

#[tokio::test]
async fn directory_with_many_entries_is_removed() {
    let world = World::new();
    std::fs::create_dir(world.path("tree")).unwrap();
    for number in 0..2 * BATCH + 1 {
        std::fs::write(world.path("tree").join(number.to_string()), "").unwrap();
    }
    world.files.delete(world.uri("tree"), Extent::Recursive).await.unwrap();
    assert_eq!(world.names(), [""; 0]);
}

#[test]
fn rejects_copy_of_too_many_entries_before_start() {
    let world = World::new();
    std::fs::create_dir(world.path("tree")).unwrap();
    for name in ["tree/one", "tree/two", "tree/three"] {
        std::fs::write(world.path(name), "").unwrap();
    }
    let dir = beneath::directory(&world.dir.path().canonicalize().unwrap()).unwrap();
    let stop = StopFlag::default();
    let copied = |left: usize, name: &str| {
        let mut copying = Copying { left, ..Copying::until(&stop) };
        copying.copy((dir.as_fd(), OsStr::new("tree")), (dir.as_fd(), OsStr::new(name)), Level::default())
    };
    assert_eq!(copied(3, "less"), Err(TreeError::TooMany), "the directory itself counts");
    assert!(!world.path("less").exists());
    assert_eq!(copied(4, "all"), Ok(()));
    assert_eq!(std::fs::read_dir(world.path("all")).unwrap().count(), 3);
}
