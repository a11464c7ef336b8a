//! Installs from a fake registry on 127.0.0.1, which can be slow, disconnect, or send invalid data.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "test helpers fail the test by panicking")]

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use futures_util::{StreamExt as _, stream};
use innkeeper_claude::install::{
    InstallError, InstallLimits, InstallProgress, InstalledRuntime, NpmRegistry, RuntimeVersion, Runtimes,
};
use sha2::Digest as _;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A version that is one package for all platforms.
const VERSION: RuntimeVersion = RuntimeVersion::new(0, 2, 7);

/// How the registry sends a package.
#[derive(Clone)]
enum Delivery {
    Whole,
    /// Half of the bytes; the connection is closed when the gate opens.
    Cut(Arc<Notify>),
    /// Half of the bytes, then the rest when the gate opens.
    Gated(Arc<Notify>),
    /// An HTTP status.
    Status(StatusCode),
}

/// Content of the registry.
struct Shelf {
    /// Version metadata by path.
    descriptions: Mutex<HashMap<String, String>>,
    /// Packages by path.
    packages: Mutex<HashMap<String, (Bytes, Delivery)>>,
    /// Number of package downloads.
    downloads: AtomicUsize,
}

/// A registry whose URL has a path.
struct FakeRegistry {
    shelf: Arc<Shelf>,
    address: String,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl FakeRegistry {
    async fn start() -> Self {
        let shelf = Arc::new(Shelf {
            descriptions: Mutex::default(),
            packages: Mutex::default(),
            downloads: AtomicUsize::new(0),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}/npm/all", listener.local_addr().unwrap());
        let router = Router::new().fallback(serve).with_state(Arc::clone(&shelf));
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let stopped = stop.clone().cancelled_owned();
        tasks.spawn(async move {
            tokio::select! {
                () = stopped => {}
                served = axum::serve(listener, router) => served.unwrap(),
            }
        });
        Self { shelf, address, tasks, stop }
    }

    fn registry(&self) -> NpmRegistry {
        NpmRegistry::parse(&self.address).unwrap()
    }

    /// Adds a package whose metadata has the correct checksum.
    fn offer(&self, version: RuntimeVersion, package: Vec<u8>, delivery: Delivery) {
        let integrity = integrity(&package);
        self.offer_described(version, package, delivery, &integrity, &self.address);
    }

    /// Adds a package with any metadata.
    fn offer_described(
        &self,
        version: RuntimeVersion,
        package: Vec<u8>,
        delivery: Delivery,
        integrity: &str,
        described_at: &str,
    ) {
        let name = version.package().unwrap();
        let file = format!("{name}/-/{}-{version}.tgz", name.rsplit('/').next().unwrap());
        let description = serde_json::json!({
            "name": name,
            "dist": { "tarball": format!("{described_at}/{file}"), "integrity": integrity },
        });
        let path = format!("/npm/all/{name}/{version}");
        self.shelf.descriptions.lock().unwrap().insert(path, description.to_string());
        let path = format!("/npm/all/{file}");
        self.shelf.packages.lock().unwrap().insert(path, (package.into(), delivery));
    }

    fn downloads(&self) -> usize {
        self.shelf.downloads.load(Ordering::SeqCst)
    }

    async fn stop(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

async fn serve(State(shelf): State<Arc<Shelf>>, uri: Uri) -> Response {
    if let Some(description) = shelf.descriptions.lock().unwrap().get(uri.path()) {
        return description.clone().into_response();
    }
    let found = shelf.packages.lock().unwrap().get(uri.path()).cloned();
    let Some((bytes, delivery)) = found else {
        return StatusCode::NOT_FOUND.into_response();
    };
    shelf.downloads.fetch_add(1, Ordering::SeqCst);
    let half = bytes.slice(..bytes.len() / 2);
    let rest = bytes.slice(bytes.len() / 2..);
    let first = stream::iter([Ok(half)]);
    let body = match delivery {
        Delivery::Whole => Body::from(bytes.clone()),
        Delivery::Cut(gate) => {
            let later = stream::once(async move {
                gate.notified().await;
                Err(std::io::Error::other("cut"))
            });
            Body::from_stream(first.chain(later))
        }
        Delivery::Gated(gate) => {
            let later = stream::once(async move {
                gate.notified().await;
                Ok::<_, std::io::Error>(rest)
            });
            Body::from_stream(first.chain(later))
        }
        Delivery::Status(status) => return status.into_response(),
    };
    ([("content-length", bytes.len().to_string())], body).into_response()
}

fn integrity(package: &[u8]) -> String {
    let hash = sha2::Sha512::digest(package);
    format!("sha512-{}", base64::engine::general_purpose::STANDARD.encode(hash))
}

/// Builds a package with these files, as npm does.
fn package(files: &[(&str, &[u8])]) -> Vec<u8> {
    let gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let mut builder = tar::Builder::new(gzip);
    for (path, content) in files {
        let mut header = tar::Header::new_ustar();
        header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        header.set_cksum();
        builder.append(&header, *content).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}

fn good_package() -> Vec<u8> {
    package(&[("package/cli.js", b"run me"), ("package/vendor/tool", b"tool")])
}

async fn install(
    runtimes: &Runtimes,
    version: RuntimeVersion,
    registry: &FakeRegistry,
) -> Result<InstalledRuntime, InstallError> {
    let cancel = CancellationToken::new();
    runtimes.install(version, &registry.registry(), &|_| {}, &cancel).await
}

/// Names of all entries in the runtimes directory except the lock.
#[track_caller]
fn names_in(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != ".lock")
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn installed_runtime_can_be_listed_found_and_removed() {
    let registry = FakeRegistry::start().await;
    registry.offer(VERSION, good_package(), Delivery::Whole);
    let native = RuntimeVersion::PINNED_NATIVE;
    registry.offer(native, package(&[("package/claude", b"native")]), Delivery::Whole);
    let dir = tempfile::tempdir().unwrap();
    let runtimes = Runtimes::new(dir.path().join("not/yet/there"));
    assert_eq!(runtimes.list().unwrap(), []);
    assert_eq!((runtimes.path(VERSION), runtimes.default_program()), (None, None));

    let steps = Mutex::new(Vec::new());
    let first = runtimes
        .install(
            VERSION,
            &registry.registry(),
            &|step| steps.lock().unwrap().push(step),
            &CancellationToken::new(),
        )
        .await
        .unwrap();
    let second = install(&runtimes, native, &registry).await.unwrap();

    let program = runtimes.dir().join("0.2.7/cli.js");
    assert_eq!(first, InstalledRuntime { version: VERSION, program: program.clone(), size: 10 });
    assert_eq!(std::fs::read(&program).unwrap(), b"run me");
    assert_eq!(runtimes.list().unwrap(), [first, second.clone()]);
    assert_eq!(runtimes.path(VERSION), Some(program));
    assert_eq!(runtimes.default_program(), Some(second.program.clone()));
    let mode = std::fs::metadata(&second.program).unwrap().permissions().mode();
    assert_ne!(mode & 0o100, 0, "a native program must be executable regardless of the archive");
    let size = good_package().len() as u64;
    let total = Some(size);
    let steps = steps.into_inner().unwrap();
    assert_eq!(steps.first(), Some(&InstallProgress::Downloading { received: 0, total }));
    assert!(steps.contains(&InstallProgress::Downloading { received: size, total }));
    assert_eq!(steps.last(), Some(&InstallProgress::Unpacking));

    runtimes.remove(VERSION).unwrap();
    assert_eq!(names_in(runtimes.dir()), [native.to_string()]);
    let error = runtimes.remove(VERSION).unwrap_err();
    assert!(matches!(error, InstallError::NotInstalled { version } if version == VERSION));
    registry.stop().await;
}

#[tokio::test]
async fn installed_version_needs_no_registry() {
    let registry = FakeRegistry::start().await;
    registry.offer(VERSION, good_package(), Delivery::Whole);
    let dir = tempfile::tempdir().unwrap();
    let runtimes = Runtimes::new(dir.path());
    let first = install(&runtimes, VERSION, &registry).await.unwrap();
    let address = registry.registry();
    registry.stop().await;
    let again = runtimes.install(VERSION, &address, &|_| {}, &CancellationToken::new()).await;
    assert_eq!(again.unwrap(), first);
}

#[tokio::test]
async fn failed_install_says_why_and_leaves_no_files() {
    let whole = good_package();
    let escape = package(&[("package/cli.js", b"x"), ("package/../../../escaped", b"x")]);
    let other = integrity(b"something else");
    // The package, its delivery and checksum, and the expected message.
    let cases: [(Vec<u8>, Delivery, &str, &str); 6] = [
        (whole.clone(), Delivery::Whole, &other, "checksum mismatch"),
        (whole.clone(), Delivery::Cut(Arc::default()), &integrity(&whole), "was interrupted after"),
        (whole.clone(), Delivery::Whole, "sha1-AAAA", "no sha512 checksum"),
        (whole.clone(), Delivery::Status(StatusCode::FORBIDDEN), &integrity(&whole), "returned status 403"),
        (escape.clone(), Delivery::Whole, &integrity(&escape), "leaves the folder"),
        (b"no archive".to_vec(), Delivery::Whole, &integrity(b"no archive"), "not a readable archive"),
    ];
    let outer = tempfile::tempdir().unwrap();
    let runtimes = Runtimes::new(outer.path().join("a/b/runtimes"));
    for (package, delivery, integrity, expected) in cases {
        let gate = if let Delivery::Cut(gate) = &delivery { Some(Arc::clone(gate)) } else { None };
        let registry = FakeRegistry::start().await;
        registry.offer_described(VERSION, package, delivery, integrity, &registry.address);
        let cut_in_the_middle = |step| {
            if let (Some(gate), InstallProgress::Downloading { received: 1.., .. }) = (&gate, step) {
                gate.notify_one();
            }
        };
        let cancel = CancellationToken::new();
        let result = runtimes.install(VERSION, &registry.registry(), &cut_in_the_middle, &cancel).await;
        let error = result.unwrap_err().to_string();
        assert!(error.contains(expected), "expected `{expected}` in: {error}");
        assert_eq!(names_in(runtimes.dir()), [""; 0], "after: {error}");
        assert!(!outer.path().join("a/escaped").exists() && !outer.path().join("a/b/escaped").exists());
        registry.stop().await;
    }

    // The directory is still usable.
    let registry = FakeRegistry::start().await;
    registry.offer(VERSION, whole, Delivery::Whole);
    install(&runtimes, VERSION, &registry).await.unwrap();
    registry.stop().await;
}

#[tokio::test]
async fn unknown_version_error_says_what_to_do() {
    let registry = FakeRegistry::start().await;
    let dir = tempfile::tempdir().unwrap();
    let runtimes = Runtimes::new(dir.path());
    let error = install(&runtimes, VERSION, &registry).await.unwrap_err().to_string();
    for words in ["0.2.7", "@anthropic-ai/claude-agent-sdk", "/npm/all/", "--registry"] {
        assert!(error.contains(words), "no `{words}` in: {error}");
    }
    assert_eq!(names_in(dir.path()), [""; 0]);
    registry.stop().await;
}

#[tokio::test]
async fn unreachable_registry_error_names_it() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let dir = tempfile::tempdir().unwrap();
    let registry = NpmRegistry::parse(&address).unwrap();
    let error = Runtimes::new(dir.path())
        .install(VERSION, &registry, &|_| {}, &CancellationToken::new())
        .await
        .unwrap_err();
    assert!(matches!(error, InstallError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains(&address), "{error}");
}

#[tokio::test]
async fn rejects_package_over_the_limit_before_storing_it() {
    let registry = FakeRegistry::start().await;
    registry.offer(VERSION, good_package(), Delivery::Whole);
    let dir = tempfile::tempdir().unwrap();
    let limits = InstallLimits { download: 20, ..InstallLimits::default() };
    let runtimes = Runtimes::new(dir.path()).with_limits(limits);
    let error = install(&runtimes, VERSION, &registry).await.unwrap_err();
    assert!(matches!(error, InstallError::TooLarge { limit: 20, .. }), "{error}");
    assert_eq!(names_in(dir.path()), [""; 0]);
    registry.stop().await;
}

#[tokio::test]
async fn stalled_download_times_out() {
    let registry = FakeRegistry::start().await;
    registry.offer(VERSION, good_package(), Delivery::Gated(Arc::new(Notify::new())));
    let dir = tempfile::tempdir().unwrap();
    let limits = InstallLimits { idle: Duration::from_secs(60), ..InstallLimits::default() };
    let runtimes = Runtimes::new(dir.path()).with_limits(limits);
    let half_done = Notify::new();
    let tell_when_half_done = |step| {
        if let InstallProgress::Downloading { received: 1.., .. } = step {
            half_done.notify_one();
        }
    };
    let (address, cancel) = (registry.registry(), CancellationToken::new());
    let passing = async {
        half_done.notified().await;
        // The clock skips to the timeout; the registry continues at its own pace.
        tokio::time::pause();
        tokio::time::advance(limits.idle).await;
        tokio::time::resume();
    };
    let installing = runtimes.install(VERSION, &address, &tell_when_half_done, &cancel);
    let (installed, ()) = tokio::join!(installing, passing);
    let error = installed.unwrap_err();
    assert!(matches!(&error, InstallError::Interrupted { source, .. } if source.is_timeout()), "{error:?}");
    assert_eq!(names_in(dir.path()), [""; 0]);
    registry.stop().await;
}

#[tokio::test]
async fn concurrent_installs_download_once() {
    let registry = FakeRegistry::start().await;
    let gate = Arc::new(Notify::new());
    registry.offer(VERSION, good_package(), Delivery::Gated(Arc::clone(&gate)));
    let dir = tempfile::tempdir().unwrap();
    let runtimes = Runtimes::new(dir.path());
    // The gate opens when one install is half done and the other one waits for it.
    let open_when_both_are_there = |step| {
        if step == InstallProgress::Waiting {
            gate.notify_one();
        }
    };
    let (address, cancel) = (registry.registry(), CancellationToken::new());
    let install = || runtimes.install(VERSION, &address, &open_when_both_are_there, &cancel);
    let (one, other) = tokio::join!(install(), install());
    assert_eq!(one.unwrap(), other.unwrap());
    assert_eq!(registry.downloads(), 1);
    assert_eq!(names_in(dir.path()), ["0.2.7"]);
    registry.stop().await;
}

#[tokio::test]
async fn rejects_remove_during_install() {
    let registry = FakeRegistry::start().await;
    let gate = Arc::new(Notify::new());
    let other = RuntimeVersion::new(0, 2, 8);
    registry.offer(other, good_package(), Delivery::Whole);
    registry.offer(VERSION, good_package(), Delivery::Gated(Arc::clone(&gate)));
    let dir = tempfile::tempdir().unwrap();
    let runtimes = Runtimes::new(dir.path());
    install(&runtimes, other, &registry).await.unwrap();
    let refused = Mutex::new(None);
    let remove_once_downloading = |step| {
        if let InstallProgress::Downloading { received: 1.., .. } = step {
            refused.lock().unwrap().get_or_insert_with(|| runtimes.remove(other));
            gate.notify_one();
        }
    };
    let cancel = CancellationToken::new();
    runtimes.install(VERSION, &registry.registry(), &remove_once_downloading, &cancel).await.unwrap();
    assert!(matches!(refused.into_inner().unwrap(), Some(Err(InstallError::Busy { .. }))));
    assert_eq!(names_in(dir.path()), ["0.2.7", "0.2.8"]);
    registry.stop().await;
}

#[tokio::test]
async fn cancelled_download_leaves_no_files() {
    let registry = FakeRegistry::start().await;
    registry.offer(VERSION, good_package(), Delivery::Gated(Arc::new(Notify::new())));
    let dir = tempfile::tempdir().unwrap();
    let cancel = CancellationToken::new();
    let seen = Mutex::new(Vec::new());
    let cancel_in_the_middle = |step| {
        if let InstallProgress::Downloading { received: 1.., .. } = step {
            *seen.lock().unwrap() = names_in(dir.path());
            cancel.cancel();
        }
    };
    let runtimes = Runtimes::new(dir.path());
    let result = runtimes.install(VERSION, &registry.registry(), &cancel_in_the_middle, &cancel).await;
    assert!(matches!(result, Err(InstallError::Cancelled)), "{result:?}");
    assert_eq!(seen.into_inner().unwrap().len(), 1, "expected a scratch directory during the download");
    assert_eq!(names_in(dir.path()), [""; 0]);
    registry.stop().await;
}

#[tokio::test]
async fn leftovers_of_a_killed_install_are_removed() {
    let registry = FakeRegistry::start().await;
    registry.offer(VERSION, good_package(), Delivery::Whole);
    let dir = tempfile::tempdir().unwrap();
    let stale = dir.path().join(".scratch-dead/package");
    std::fs::create_dir_all(&stale).unwrap();
    std::fs::write(stale.join("claude"), "half").unwrap();
    // A directory with the version's name but without the program, which is not a complete install.
    std::fs::create_dir(dir.path().join(VERSION.to_string())).unwrap();
    let runtimes = Runtimes::new(dir.path());
    assert_eq!(runtimes.list().unwrap(), []);
    let installed = install(&runtimes, VERSION, &registry).await.unwrap();
    assert_eq!(runtimes.list().unwrap(), [installed]);
    assert_eq!(names_in(dir.path()), ["0.2.7"]);
    registry.stop().await;
}

#[tokio::test]
async fn mirror_is_used_although_its_metadata_names_the_original() {
    let registry = FakeRegistry::start().await;
    let package = good_package();
    let integrity = integrity(&package);
    let original = "http://original.invalid";
    registry.offer_described(VERSION, package, Delivery::Whole, &integrity, original);
    let dir = tempfile::tempdir().unwrap();
    install(&Runtimes::new(dir.path()), VERSION, &registry).await.unwrap();
    assert_eq!(registry.downloads(), 1);
    registry.stop().await;
}
