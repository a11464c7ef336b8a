use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use innkeeper_core::files::{Access, Existing, FileKind, WriteCondition, WritePlace};
use tempfile::TempDir;

use super::*;
use crate::address::uri_of;

#[path = "files_tests/access.rs"]
mod access;

/// A root with a file in it, and a directory next to it that is not allowed.
struct World {
    dir: TempDir,
    files: LocalFiles,
    /// How often operations asked for the session directories.
    lookups: Arc<AtomicUsize>,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["root", "outside", "root/sub"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        std::fs::write(dir.path().join("root/file.txt"), "inside").unwrap();
        std::fs::write(dir.path().join("outside/secret"), "secret").unwrap();
        let root = dir.path().join("root");
        let lookups = Arc::new(AtomicUsize::new(0));
        let asks = Arc::clone(&lookups);
        let sessions = Arc::new(move || {
            asks.fetch_add(1, Ordering::SeqCst);
            vec![root.clone()]
        });
        let files = LocalFiles::new(FilesConfig { sessions, granted: Vec::new(), closed: Vec::new() });
        Self { dir, files, lookups }
    }

    /// Waits until one more operation has started.
    async fn begins(&self, before: usize) {
        while self.lookups.load(Ordering::SeqCst) == before {
            tokio::task::yield_now().await;
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    /// The URI of a path, without normalisation.
    fn uri(&self, path: &str) -> String {
        format!("{}/{path}", uri_of(self.dir.path()))
    }

    async fn read(&self, path: &str) -> Result<String, FileError> {
        let content = self.files.read(self.uri(path)).await?;
        Ok(String::from_utf8(content.bytes.to_vec()).unwrap())
    }

    async fn write(&self, path: &str, data: &str) -> Result<(), FileError> {
        self.files.write(write(self.uri(path), data)).await
    }

    fn transfer(&self, source: &str, destination: &str, existing: Existing) -> Transfer {
        Transfer { source: self.uri(source), destination: self.uri(destination), existing }
    }
}

fn write(uri: String, data: &str) -> FileWrite {
    FileWrite {
        uri,
        data: data.to_owned().into(),
        place: WritePlace::Truncate(0),
        condition: WriteCondition::Always,
    }
}

#[track_caller]
fn assert_denied<T: std::fmt::Debug>(result: Result<T, FileError>) {
    assert!(matches!(result, Err(FileError::Denied { .. })), "{result:?}");
}

#[track_caller]
fn assert_invalid<T: std::fmt::Debug>(result: Result<T, FileError>) {
    assert!(matches!(result, Err(FileError::Invalid(_))), "{result:?}");
}

#[tokio::test]
async fn session_file_is_read_and_written() {
    let world = World::new();
    assert_eq!(world.read("root/file.txt").await.unwrap(), "inside");
    world.write("root/file.txt", "new").await.unwrap();
    world.write("root/sub/other", "x").await.unwrap();
    assert_eq!(world.read("root/file.txt").await.unwrap(), "new");
    let content = world.files.read(world.uri("root/file.txt")).await.unwrap();
    assert_eq!(content.content_type, Some("text/plain"));
    assert_eq!(world.read("root/none").await, Err(FileError::NotFound(world.uri("root/none"))));
    assert_eq!(world.write("root/none/x", "").await, Err(FileError::NotFound(world.uri("root/none/x"))));
    assert_eq!(world.read("root/file.txt/x").await, Err(FileError::NotFound(world.uri("root/file.txt/x"))));
    assert_invalid(world.read("root/sub").await);
    assert_invalid(world.write("root/sub", "").await);
    let names: Vec<_> = std::fs::read_dir(world.path("root")).unwrap().collect();
    assert_eq!(names.len(), 2, "temporary files are removed: {names:?}");
}

#[tokio::test]
async fn directory_is_listed_by_name_with_kinds() {
    let world = World::new();
    symlink("nowhere", world.path("root/link")).unwrap();
    nix::unistd::mkfifo(&world.path("root/pipe"), nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    std::fs::write(world.path("root").join(OsString::from_vec(vec![b'z', 0xff])), "").unwrap();
    let entries = world.files.list(world.uri("root")).await.unwrap();
    let entries: Vec<_> = entries.iter().map(|entry| (entry.name.as_str(), entry.kind)).collect();
    assert_eq!(
        entries,
        [
            ("file.txt", FileKind::File),
            ("link", FileKind::Symlink),
            ("pipe", FileKind::Other),
            ("sub", FileKind::Directory),
            ("z\u{fffd}", FileKind::File),
        ]
    );
    assert_eq!(world.files.list(world.uri("root/sub/")).await.unwrap(), []);
    let not = world.files.list(world.uri("root/file.txt")).await;
    assert_eq!(not, Err(FileError::NotADirectory(world.uri("root/file.txt"))));
    assert!(matches!(world.files.list(world.uri("root/none")).await, Err(FileError::NotFound(_))));
}

#[tokio::test]
async fn resolve_returns_metadata_and_etag() {
    let world = World::new();
    let resolve = || world.files.resolve(world.uri("root/file.txt"), Links::Follow);
    let first = resolve().await.unwrap();
    assert_eq!(first.uri, world.uri("root/file.txt"));
    assert!(first.modified.is_some());
    assert_eq!(resolve().await.unwrap().etag, first.etag);
    world.write("root/file.txt", "others").await.unwrap();
    assert_ne!(resolve().await.unwrap().etag, first.etag);
    let dir = world.files.resolve(world.uri("root"), Links::Follow).await.unwrap();
    assert_eq!((dir.kind, dir.size, dir.etag), (FileKind::Directory, None, None));
    symlink("nowhere", world.path("root/dangling")).unwrap();
    let dangling = world.uri("root/dangling");
    assert!(matches!(
        world.files.resolve(dangling.clone(), Links::Follow).await,
        Err(FileError::NotFound(_))
    ));
    assert_eq!(world.files.resolve(dangling, Links::Keep).await.unwrap().kind, FileKind::Symlink);
}

#[tokio::test]
async fn replaced_file_keeps_permissions_and_read_only_file_is_kept() {
    let world = World::new();
    let path = world.path("root/script");
    std::fs::write(&path, "old").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o750)).unwrap();
    world.write("root/script", "new").await.unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o750);
    if nix::unistd::geteuid().is_root() {
        return; // The root user ignores permissions.
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).unwrap();
    assert_denied(world.write("root/script", "newer").await);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
}

/// Checks the mode of temporary files in a loop while a private file is replaced.
#[tokio::test(flavor = "multi_thread")]
async fn replacement_of_private_file_is_never_readable_by_others() {
    let world = World::new();
    let path = world.path("root/private");
    std::fs::write(&path, "old").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let (over, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
    let (root, ended, modes) = (world.path("root"), Arc::clone(&over), Arc::clone(&seen));
    let looker = std::thread::spawn(move || {
        while !ended.load(Ordering::Relaxed) {
            let drafts = std::fs::read_dir(&root)
                .unwrap()
                .flatten()
                .filter(|entry| entry.file_name().to_string_lossy().starts_with(write::REPLACING_DRAFT));
            let found = drafts.filter_map(|draft| Some(draft.metadata().ok()?.permissions().mode() & 0o777));
            modes.lock().unwrap().extend(found);
        }
    });
    let data = Bytes::from(vec![b'x'; 8 * 1024 * 1024]);
    while seen.lock().unwrap().len() < 20 {
        let write = FileWrite { data: data.clone(), ..write(world.uri("root/private"), "") };
        world.files.write(write).await.unwrap();
    }
    over.store(true, Ordering::Relaxed);
    looker.join().unwrap();
    assert!(seen.lock().unwrap().iter().all(|mode| *mode == 0o600), "{seen:?}");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    world.write("root/new", "x").await.unwrap();
    std::fs::write(world.path("root/other"), "").unwrap();
    let mode = |path| std::fs::metadata(world.path(path)).unwrap().permissions().mode();
    assert_eq!(mode("root/new"), mode("root/other"), "a new file has the default mode");
}

#[tokio::test]
async fn write_conditions_are_checked() {
    let world = World::new();
    let with = |path: &str, condition: WriteCondition| FileWrite { condition, ..write(world.uri(path), "x") };
    let exists = world.files.write(with("root/file.txt", WriteCondition::IsNew)).await;
    assert_eq!(exists, Err(FileError::Exists(world.uri("root/file.txt"))));
    world.files.write(with("root/fresh", WriteCondition::IsNew)).await.unwrap();
    let stale = || WriteCondition::Matches("stale".to_owned());
    let conflict = world.files.write(with("root/file.txt", stale())).await;
    assert_eq!(conflict, Err(FileError::Conflict(world.uri("root/file.txt"))));
    let conflict = world.files.write(with("root/none", stale())).await;
    assert_eq!(conflict, Err(FileError::Conflict(world.uri("root/none"))));
    let status = world.files.resolve(world.uri("root/file.txt"), Links::Follow).await.unwrap();
    let matching = WriteCondition::Matches(status.etag.unwrap());
    world.files.write(with("root/file.txt", matching.clone())).await.unwrap();
    assert!(matches!(world.files.write(with("root/file.txt", matching)).await, Err(FileError::Conflict(_))));
    assert!(!world.path("root/none").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_one_of_two_conditional_writers_succeeds() {
    let world = World::new();
    for round in 0..200 {
        let uri = world.uri(&format!("root/race{round}"));
        let attempt = |condition: &WriteCondition, data: &str| {
            world.files.write(FileWrite { condition: condition.clone(), ..write(uri.clone(), data) })
        };
        let (one, two) =
            tokio::join!(attempt(&WriteCondition::IsNew, "1"), attempt(&WriteCondition::IsNew, "2"));
        assert!(one.is_ok() != two.is_ok(), "{one:?} {two:?}");
        let mark = world.files.resolve(uri.clone(), Links::Follow).await.unwrap().etag.unwrap();
        let matches = WriteCondition::Matches(mark);
        let (three, four) = tokio::join!(attempt(&matches, "3"), attempt(&matches, "4"));
        assert!(three.is_ok() != four.is_ok(), "{three:?} {four:?}");
        let winner = if three.is_ok() { "3" } else { "4" };
        assert_eq!(world.read(&format!("root/race{round}")).await.unwrap(), winner);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_appends_are_complete() {
    let world = World::new();
    let append = |place, text: String| FileWrite { place, ..write(world.uri("root/log"), &text) };
    let writes: Vec<_> = (0..200)
        .map(|number| {
            let place = if number % 3 == 0 { WritePlace::Insert(0) } else { WritePlace::Append(0) };
            world.files.write(append(place, format!("line {number:03}\n")))
        })
        .collect();
    let mut running = tokio::task::JoinSet::new();
    for write in writes {
        running.spawn(write);
    }
    for written in running.join_all().await {
        written.unwrap();
    }
    let text = world.read("root/log").await.unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    let expected: Vec<String> = (0..200).map(|number| format!("line {number:03}")).collect();
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn copy_is_complete_and_replaces_destination() {
    let world = World::new();
    std::fs::create_dir_all(world.path("root/tree/inner")).unwrap();
    std::fs::write(world.path("root/tree/inner/leaf"), "leaf").unwrap();
    symlink(world.path("outside"), world.path("root/tree/link")).unwrap();
    let copy =
        |source, destination, existing| world.files.copy(world.transfer(source, destination, existing));
    copy("root/tree", "root/copy", Existing::Keep).await.unwrap();
    assert_eq!(world.read("root/copy/inner/leaf").await.unwrap(), "leaf");
    assert!(world.path("root/copy/link").is_symlink(), "a link is copied as a link");
    assert_denied(world.read("root/copy/link/secret").await);
    assert!(matches!(copy("root/tree", "root/copy", Existing::Keep).await, Err(FileError::Exists(_))));
    std::fs::write(world.path("root/copy/extra"), "").unwrap();
    copy("root/tree", "root/copy", Existing::Replace).await.unwrap();
    assert!(!world.path("root/copy/extra").exists());
    copy("root/file.txt", "root/copy", Existing::Replace).await.unwrap();
    assert_eq!(world.read("root/copy").await.unwrap(), "inside");
    assert!(matches!(copy("root/none", "root/x", Existing::Replace).await, Err(FileError::NotFound(_))));
    assert_invalid(copy("root/tree", "root/tree/inner/again", Existing::Replace).await);
    assert_invalid(copy("root/tree/inner", "root/tree", Existing::Replace).await);
    assert_denied(copy("root/file.txt", "root", Existing::Replace).await);
    assert_eq!(std::fs::read_dir(world.path("root")).unwrap().count(), 4, "temporary files are removed");
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_waits_for_running_operations_and_rejects_new_ones() {
    let world = World::new();
    let root = world.path("root").canonicalize().unwrap();
    std::fs::create_dir(world.path("root/kept")).unwrap();
    let is_stopped = |result: &Result<(), FileError>| matches!(result, Err(FileError::Io { reason, .. }) if reason == STOPPING);
    // Both wait for the lock on the same file.
    let held = world.files.parts.locks.hold(&[&root.join("sub"), &root.join("file.txt")]);
    let mut running = tokio::task::JoinSet::new();
    let write = world.files.write(write(world.uri("root/file.txt"), "written"));
    running.spawn(async move { (write.await, "write") });
    world.begins(0).await;
    // A write asks once, so the next request is the copy.
    let copy = world.files.copy(world.transfer("root/sub", "root/kept", Existing::Replace));
    running.spawn(async move { (copy.await, "copy") });
    world.begins(1).await;
    let mut stopping = std::pin::pin!(world.files.stop());
    let stopped = tokio::time::timeout(Duration::from_millis(50), stopping.as_mut()).await;
    assert!(stopped.is_err(), "it waits");
    drop(held);
    stopping.await;
    let mut ended = running.join_all().await;
    ended.sort_by_key(|(_, what)| *what);
    let [(copied, _), (written, _)] = &*ended else { panic!("{ended:?}") };
    assert!(is_stopped(copied), "a copy is cancelled: {copied:?}");
    assert_eq!(*written, Ok(()), "a write is not cancelled");
    assert_eq!(std::fs::read_to_string(world.path("root/file.txt")).unwrap(), "written");
    assert!(is_stopped(&world.files.make_directory(world.uri("root/new")).await));
    world.files.stop().await;
    assert_eq!(std::fs::read_dir(&root).unwrap().count(), 3, "temporary files are removed");
}

#[tokio::test]
async fn move_includes_directory_content() {
    let world = World::new();
    let go =
        |source, destination, existing| world.files.relocate(world.transfer(source, destination, existing));
    go("root/file.txt", "root/sub/moved", Existing::Keep).await.unwrap();
    assert_eq!(world.read("root/sub/moved").await.unwrap(), "inside");
    assert!(!world.path("root/file.txt").exists());
    world.write("root/other", "other").await.unwrap();
    assert!(matches!(go("root/other", "root/sub/moved", Existing::Keep).await, Err(FileError::Exists(_))));
    go("root/other", "root/sub/moved", Existing::Replace).await.unwrap();
    assert_eq!(world.read("root/sub/moved").await.unwrap(), "other");
    std::fs::create_dir_all(world.path("root/full/x")).unwrap();
    go("root/sub", "root/full", Existing::Replace).await.unwrap();
    assert_eq!(world.read("root/full/moved").await.unwrap(), "other");
    assert!(matches!(go("root/none", "root/x", Existing::Replace).await, Err(FileError::NotFound(_))));
    assert_invalid(go("root/full", "root/full/in", Existing::Replace).await);
    assert_denied(go("root", "root/x", Existing::Replace).await);
    go("root/full", "root/full", Existing::Replace).await.unwrap();
    assert_eq!(std::fs::read_dir(world.path("root")).unwrap().count(), 1, "temporary files are removed");
}

#[tokio::test]
async fn deleting_non_empty_directory_requires_recursive() {
    let world = World::new();
    std::fs::create_dir_all(world.path("root/tree/inner")).unwrap();
    symlink(world.path("outside"), world.path("root/tree/inner/link")).unwrap();
    let delete = |path, extent| world.files.delete(world.uri(path), extent);
    assert_invalid(delete("root/tree", Extent::Single).await);
    delete("root/tree", Extent::Recursive).await.unwrap();
    delete("root/file.txt", Extent::Single).await.unwrap();
    delete("root/sub", Extent::Single).await.unwrap();
    assert!(matches!(delete("root/sub", Extent::Single).await, Err(FileError::NotFound(_))));
    assert_denied(delete("root", Extent::Recursive).await);
    assert_denied(delete("root/.", Extent::Recursive).await);
    assert_eq!(std::fs::read_dir(world.path("root")).unwrap().count(), 0);
    assert!(world.path("outside/secret").exists());
}

#[tokio::test]
async fn directory_is_created_with_parents() {
    let world = World::new();
    let make = |path| world.files.make_directory(world.uri(path));
    make("root/a/b/c").await.unwrap();
    make("root/a/b/c").await.unwrap();
    make("root").await.unwrap();
    assert!(world.path("root/a/b/c").is_dir());
    assert_eq!(make("root/file.txt").await, Err(FileError::Exists(world.uri("root/file.txt"))));
    assert!(matches!(make("root/file.txt/x").await, Err(FileError::NotADirectory(_))));
}

#[tokio::test]
async fn search_follows_gitignore() {
    let world = World::new();
    std::fs::create_dir_all(world.path("root/src/deep")).unwrap();
    std::fs::create_dir_all(world.path("root/target")).unwrap();
    std::fs::write(world.path("root/.gitignore"), "target/\n").unwrap();
    for path in ["src/main.rs", "src/deep/Main.txt", "src/domain.rs", "target/main.o"] {
        std::fs::write(world.path("root").join(path), "").unwrap();
    }
    let search = |dir: &str, partial: &str| world.files.search(world.path(dir), partial.to_owned());
    let paths: Vec<String> = search("root", "main").await.into_iter().map(|found| found.path).collect();
    assert_eq!(paths, ["src/main.rs", "src/deep/Main.txt", "src/domain.rs"]);
    let found = search("root", "src/").await;
    assert_eq!(found[0].path, "src/deep");
    assert_eq!(
        (found[1].uri.as_str(), found[1].kind),
        (world.uri("root/src/main.rs").as_str(), FileKind::File)
    );
    assert_eq!(search("outside", "secret").await, []);
    assert_eq!(search("none", "").await, []);
}

#[tokio::test]
async fn search_omits_hidden_directories() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("data/content")).unwrap();
    for path in ["data/host.db", "data/content/host.txt", "host.md"] {
        std::fs::write(dir.path().join(path), "").unwrap();
    }
    let root = dir.path().to_owned();
    let files = LocalFiles::new(FilesConfig {
        sessions: Arc::new(move || vec![root.clone()]),
        granted: vec![dir.path().join("data/content")],
        closed: vec![dir.path().join("data")],
    });
    let search = async |place: PathBuf| -> Vec<String> {
        files.search(place, "host".to_owned()).await.into_iter().map(|found| found.path).collect()
    };
    assert_eq!(search(dir.path().to_owned()).await, ["host.md"]);
    assert_eq!(search(dir.path().join("data")).await, [""; 0]);
    assert_eq!(search(dir.path().join("data/content")).await, ["host.txt"]);
}

/// Replaces a directory by a link in a loop while files are read and written through it.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[tokio::test(flavor = "multi_thread")]
async fn link_swapped_during_call_is_not_followed() {
    use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
    let world = World::new();
    std::fs::create_dir(world.path("root/door")).unwrap();
    std::fs::write(world.path("root/door/secret"), "inside").unwrap();
    symlink(world.path("outside"), world.path("root/evil")).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (swapping, root) = (Arc::clone(&stop), world.path("root"));
    let swapper = std::thread::spawn(move || {
        let mut swaps = 0_u64;
        while !swapping.load(Ordering::Relaxed) {
            let (door, evil, flags) = (root.join("door"), root.join("evil"), RenameFlags::RENAME_EXCHANGE);
            renameat2(AT_FDCWD, &door, AT_FDCWD, &evil, flags).unwrap();
            swaps += 1;
        }
        swaps
    });
    let (mut reached, mut refused) = (0, 0);
    for round in 0..2_500 {
        let mut count = |ok: bool| if ok { reached += 1 } else { refused += 1 };
        let read = world.read("root/door/secret").await;
        assert_ne!(read.as_deref(), Ok("secret"), "round {round}");
        count(read.is_ok());
        count(world.write("root/door/secret", "inside").await.is_ok());
        count(world.write("root/door/new", "inside").await.is_ok());
        if round % 2 == 0 {
            count(world.files.delete(world.uri("root/door/new"), Extent::Recursive).await.is_ok());
        } else {
            count(world.files.make_directory(world.uri("root/door/dir")).await.is_ok());
        }
    }
    stop.store(true, Ordering::Relaxed);
    let swaps = swapper.join().unwrap();
    assert_eq!(std::fs::read_to_string(world.path("outside/secret")).unwrap(), "secret");
    let outside: Vec<_> = std::fs::read_dir(world.path("outside")).unwrap().collect();
    assert_eq!(outside.len(), 1, "{outside:?}");
    assert!(reached > 0 && refused > 0 && swaps > 0, "{reached} reached, {refused} refused, {swaps} swaps");
}

/// The protocol's definition of write positions, for bytes in memory.
fn expected(before: &[u8], place: WritePlace, data: &[u8]) -> Option<Vec<u8>> {
    let at = |position: u64| usize::try_from(position).ok().filter(|at| *at <= before.len());
    Some(match place {
        WritePlace::Truncate(position) => [&before[..at(position)?], data].concat(),
        WritePlace::Insert(position) => {
            let (head, tail) = before.split_at(at(position)?);
            [head, data, tail].concat()
        }
        WritePlace::Append(back) => {
            let (head, tail) = before.split_at(before.len() - at(back)?);
            [head, data, tail].concat()
        }
    })
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    #[test]
    fn write_positions_match_in_memory_model(
        steps in proptest::collection::vec(
            (0_u8..3, 0_u64..40, proptest::collection::vec(proptest::num::u8::ANY, 0..24)), 1..12
        )
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let world = World::new();
            let uri = world.uri("root/model");
            let mut model: Option<Vec<u8>> = None;
            for (kind, position, data) in steps {
                let place = match kind {
                    0 => WritePlace::Truncate(position),
                    1 => WritePlace::Insert(position),
                    _ => WritePlace::Append(position),
                };
                let write = FileWrite {
                    uri: uri.clone(), data: data.clone().into(), place, condition: WriteCondition::Always,
                };
                let wanted = expected(model.as_deref().unwrap_or_default(), place, &data);
                let written = world.files.write(write).await;
                assert_eq!(written.is_ok(), wanted.is_some(), "{written:?}");
                model = wanted.or(model);
                let now = std::fs::read(world.path("root/model")).ok();
                assert_eq!(now, model);
            }
        });
    }
}

#[test]
fn path_prefix_is_compared_by_component() {
    // Relies on the component-wise `starts_with` of paths.
    assert!(!Path::new("/root2").starts_with("/root"));
}
