//! Which paths clients may access.

use super::*;

#[tokio::test]
async fn rejects_paths_outside_roots() {
    let world = World::new();
    symlink(world.path("outside"), world.path("root/out")).unwrap();
    symlink(world.path("outside/secret"), world.path("root/leak")).unwrap();
    symlink("../outside/secret", world.path("root/relative")).unwrap();
    symlink(world.path("outside/new"), world.path("root/dangling")).unwrap();
    symlink("/proc/self/root", world.path("root/magic")).unwrap();
    let below_magic = format!("root/magic{}", world.path("outside/secret").display());
    for path in [
        "outside/secret",
        "outside/none",
        "root/../outside/secret",
        "root/sub/../../outside/secret",
        "root/%2e%2e/outside/secret",
        "root/%2E%2E%2foutside%2Fsecret",
        "root/sub/..%2f..%2foutside/secret",
        "root/out/secret",
        "root/out/none",
        "root/leak",
        "root/relative",
        "root/./out/./secret",
        "ROOT/file.txt",
        "root2/file.txt",
        "roo",
        "",
        &below_magic,
    ] {
        assert_denied(world.read(path).await);
        assert_denied(world.write(path, "changed").await);
        assert_denied(world.files.list(world.uri(path)).await);
        assert_denied(world.files.resolve(world.uri(path), Links::Follow).await);
        assert_denied(world.files.make_directory(world.uri(path)).await);
        assert_denied(world.files.check(world.uri(path)).await);
        let watch = WatchRequest {
            uri: world.uri(path),
            reach: innkeeper_core::files::Reach::Descendants,
            includes: Vec::new(),
            excludes: Vec::new(),
        };
        assert_denied(world.files.watch(watch).await);
        assert_denied(world.files.copy(world.transfer(path, "root/copy", Existing::Replace)).await);
    }
    for path in ["outside/secret", "root/../outside/secret", "root/out/secret", "root/magic/etc"] {
        assert_denied(world.files.delete(world.uri(path), Extent::Recursive).await);
        assert_denied(world.files.relocate(world.transfer(path, "root/copy", Existing::Replace)).await);
        assert_denied(world.files.relocate(world.transfer("root/file.txt", path, Existing::Replace)).await);
        assert_denied(world.files.copy(world.transfer("root/file.txt", path, Existing::Replace)).await);
    }
    assert_denied(world.write("root/dangling", "x").await);
    assert_denied(world.write("root/dangling/x", "x").await);
    assert_denied(world.files.make_directory(world.uri("root/dangling/x")).await);
    assert!(world.read("root/missing/../../outside/secret").await.is_err());
    assert_denied(world.files.read("file:///etc/passwd".to_owned()).await);
    assert_eq!(std::fs::read_to_string(world.path("outside/secret")).unwrap(), "secret");
    assert_eq!(std::fs::read_dir(world.path("outside")).unwrap().count(), 1);
    assert!(!world.path("root/copy").exists());
}

#[tokio::test]
async fn denial_names_uri_and_access() {
    let world = World::new();
    let access = |error: FileError| {
        let FileError::Denied { uri, access, .. } = error else { panic!("{error:?}") };
        (uri, access)
    };
    let uri = world.uri("outside/x");
    assert_eq!(access(world.read("outside/x").await.unwrap_err()), (uri.clone(), Access::Read));
    assert_eq!(access(world.write("outside/x", "").await.unwrap_err()), (uri, Access::Write));
}

#[tokio::test]
async fn links_inside_roots_are_followed() {
    let world = World::new();
    symlink("sub", world.path("root/link")).unwrap();
    symlink(world.path("root/file.txt"), world.path("root/absolute")).unwrap();
    world.write("root/link/deep.txt", "deep").await.unwrap();
    assert_eq!(std::fs::read_to_string(world.path("root/sub/deep.txt")).unwrap(), "deep");
    world.write("root/absolute", "through").await.unwrap();
    assert_eq!(world.read("root/file.txt").await.unwrap(), "through");
    assert!(world.path("root/absolute").is_symlink());
    let canonical = uri_of(&world.path("root/sub/deep.txt").canonicalize().unwrap());
    let found = world.files.resolve(world.uri("root/link/deep.txt"), Links::Follow).await.unwrap();
    assert_eq!((found.uri, found.kind, found.size), (canonical, FileKind::File, Some(4)));
    let link = world.files.resolve(world.uri("root/link"), Links::Keep).await.unwrap();
    assert_eq!((link.uri, link.kind, link.etag), (world.uri("root/link"), FileKind::Symlink, None));
    // Deletes the link, not its target.
    world.files.delete(world.uri("root/link"), Extent::Recursive).await.unwrap();
    assert!(world.path("root/sub/deep.txt").exists());
}

#[tokio::test]
async fn root_behind_link_keeps_its_first_target() {
    let world = World::new();
    symlink(world.path("root"), world.path("link")).unwrap();
    let link = world.path("link");
    let files = LocalFiles::new(FilesConfig {
        sessions: Arc::new(Vec::new),
        granted: vec![link.clone()],
        closed: Vec::new(),
    });
    files.read(world.uri("link/file.txt")).await.unwrap();
    files.read(world.uri("root/file.txt")).await.unwrap();
    std::fs::remove_file(&link).unwrap();
    symlink(world.path("outside"), &link).unwrap();
    assert_denied(files.read(world.uri("link/secret")).await);
    // Nor does a directory that was replaced.
    world.read("root/file.txt").await.unwrap();
    std::fs::rename(world.path("root"), world.path("old")).unwrap();
    symlink(world.path("outside"), world.path("root")).unwrap();
    assert_denied(world.read("root/secret").await);
}

#[tokio::test]
async fn roots_follow_session_directories() {
    let dir = tempfile::tempdir().unwrap();
    let roots = Arc::new(Mutex::new(Vec::new()));
    let listed = Arc::clone(&roots);
    let files = LocalFiles::new(FilesConfig {
        sessions: Arc::new(move || listed.lock().unwrap().clone()),
        granted: Vec::new(),
        closed: Vec::new(),
    });
    let uri = uri_of(&dir.path().join("x"));
    assert_denied(files.write(write(uri.clone(), "1")).await);
    roots.lock().unwrap().push(dir.path().to_owned());
    files.write(write(uri.clone(), "1")).await.unwrap();
    roots.lock().unwrap().clear();
    assert_denied(files.read(uri).await);
}

#[tokio::test]
async fn host_directories_are_hidden_inside_allowed_directory() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("home/data/content")).unwrap();
    std::fs::write(dir.path().join("home/data/token"), "t").unwrap();
    std::fs::write(dir.path().join("home/data/content/ok"), "ok").unwrap();
    let files = LocalFiles::new(FilesConfig {
        sessions: Arc::new(Vec::new),
        granted: vec![dir.path().join("home"), dir.path().join("home/data/content")],
        closed: vec![dir.path().join("home/data")],
    });
    let uri = |path: &str| uri_of(&dir.path().join(path));
    files.read(uri("home/data/content/ok")).await.unwrap();
    assert_denied(files.read(uri("home/data/token")).await);
    assert_denied(files.list(uri("home/data")).await);
    std::fs::create_dir(dir.path().join("home/x")).unwrap();
    let transfer =
        Transfer { source: uri("home"), destination: uri("home/x/y"), existing: Existing::Replace };
    assert_denied(files.copy(transfer).await);
}

#[tokio::test]
async fn session_in_host_directory_does_not_allow_it() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("home/data/content/own")).unwrap();
    std::fs::write(dir.path().join("home/data/token"), "t").unwrap();
    std::fs::write(dir.path().join("home/data/content/own/ok"), "ok").unwrap();
    symlink(dir.path().join("home/data"), dir.path().join("link")).unwrap();
    symlink(dir.path().join("home/data/token"), dir.path().join("home/leak")).unwrap();
    for session in ["home/data", "home", "link", "", "home/data/content/own"] {
        let session = dir.path().join(session);
        let files = LocalFiles::new(FilesConfig {
            sessions: Arc::new(move || vec![session.clone()]),
            granted: vec![dir.path().join("home/data/content")],
            closed: vec![dir.path().join("home/data")],
        });
        let uri = |path: &str| uri_of(&dir.path().join(path));
        for path in ["home/data/token", "link/token", "home/leak", "home/data/new"] {
            assert_denied(files.read(uri(path)).await);
            assert_denied(files.write(write(uri(path), "mine")).await);
            assert_denied(files.check(uri(path)).await);
        }
        assert_denied(files.list(uri("home/data")).await);
        assert_denied(files.delete(uri("home/data/token"), Extent::Recursive).await);
        files.read(uri("home/data/content/own/ok")).await.unwrap();
    }
    assert_eq!(std::fs::read_to_string(dir.path().join("home/data/token")).unwrap(), "t");
    assert!(!dir.path().join("home/data/new").exists());
}

#[tokio::test]
async fn rejects_invalid_file_names() {
    let world = World::new();
    assert_invalid(world.read("root/a%00b").await);
    assert_invalid(world.read("root/a\0b").await);
    assert_invalid(world.write(&format!("root/{}", "x".repeat(300)), "").await);
    assert_invalid(world.read(&format!("root/{}", "x/".repeat(4_000))).await);
    assert_invalid(world.write(&format!("root/{}", "x".repeat(100_000)), "").await);
    assert_invalid(world.files.read("http://localhost/root/file.txt".to_owned()).await);
    assert_invalid(world.files.read(format!("file://host{}", world.path("root/file.txt").display())).await);
    assert_invalid(world.files.read("file:root/file.txt".to_owned()).await);
    // A doubly encoded name is a regular name.
    assert!(matches!(world.read("root/%252e%252e/outside").await, Err(FileError::NotFound(_))));
}

#[tokio::test]
async fn pipes_and_devices_are_never_opened() {
    let world = World::new();
    nix::unistd::mkfifo(&world.path("root/pipe"), nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(world.path("root/socket")).unwrap();
    for path in ["root/pipe", "root/socket"] {
        assert_invalid(world.read(path).await);
        assert_invalid(world.write(path, "x").await);
        assert_invalid(world.files.copy(world.transfer(path, "root/copy", Existing::Replace)).await);
        let found = world.files.resolve(world.uri(path), Links::Follow).await.unwrap();
        assert_eq!(found.kind, FileKind::Other);
    }
    drop(socket);
    let devices = LocalFiles::new(FilesConfig {
        sessions: Arc::new(Vec::new),
        granted: vec!["/dev".into()],
        closed: Vec::new(),
    });
    assert_invalid(devices.read("file:///dev/zero".to_owned()).await);
    assert_invalid(devices.write(write("file:///dev/null".to_owned(), "x")).await);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn rejects_kernel_file_systems() {
    let files = |granted: &str| {
        LocalFiles::new(FilesConfig {
            sessions: Arc::new(|| vec!["/".into()]),
            granted: vec![granted.into()],
            closed: Vec::new(),
        })
    };
    let world = World::new();
    symlink("/proc/self/environ", world.path("root/leak")).unwrap();
    // Not allowed even if they are granted.
    for files in [files("/"), files("/proc"), files("/sys")] {
        for uri in [
            "file:///proc/self/environ".to_owned(),
            format!("file:///proc/{}/environ", std::process::id()),
            "file:///proc/self/task/self/environ".to_owned(),
            "file:///dev/fd".to_owned(),
            "file:///proc".to_owned(),
            "file:///sys/kernel".to_owned(),
            world.uri("root/leak"),
        ] {
            assert_denied(files.read(uri.clone()).await);
            assert_denied(files.list(uri.clone()).await);
            assert_denied(files.resolve(uri.clone(), Links::Follow).await);
            let append = FileWrite { place: WritePlace::Append(0), ..write(uri.clone(), "x") };
            assert_denied(files.write(append).await);
            let watch = WatchRequest {
                uri: uri.clone(),
                reach: innkeeper_core::files::Reach::Entries,
                includes: Vec::new(),
                excludes: Vec::new(),
            };
            assert_denied(files.watch(watch).await);
            let copy =
                Transfer { source: uri, destination: world.uri("root/copy"), existing: Existing::Replace };
            assert_denied(files.copy(copy).await);
        }
        assert_eq!(files.read(world.uri("root/file.txt")).await.unwrap().bytes, "inside");
    }
    assert!(!world.path("root/copy").exists());
}

#[tokio::test]
async fn rejects_content_above_size_limit() {
    let world = World::new();
    let large = std::fs::File::create(world.path("root/large")).unwrap();
    large.set_len(look::MAX_CONTENT + 1).unwrap();
    assert!(matches!(world.read("root/large").await, Err(FileError::TooLarge { .. })));
    let insert = FileWrite { place: WritePlace::Insert(0), ..write(world.uri("root/large"), "x") };
    assert!(matches!(world.files.write(insert).await, Err(FileError::TooLarge { .. })));
    large.set_len(look::MAX_CONTENT).unwrap();
    assert_eq!(world.read("root/large").await.unwrap().len(), 32 * 1024 * 1024);
    let data = vec![0; 32 * 1024 * 1024 + 1];
    let write = FileWrite { data: data.into(), ..write(world.uri("root/new"), "") };
    assert!(matches!(world.files.write(write).await, Err(FileError::TooLarge { .. })));
    assert!(!world.path("root/new").exists());
}
