//! Links that lead out of the allowed directories do not reveal what exists there.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use innkeeper_core::files::{
    Existing, Extent, FileWrite, Files as _, Links, Reach, Transfer, WatchRequest, WriteCondition, WritePlace,
};

use crate::address::uri_of;
use crate::{FilesConfig, LocalFiles};

/// Names of the target; replaced in responses.
const NAMES: [&str; 2] = ["exists", "absent"];

/// Creates a root with a link to `target`, in a new directory. The target is `outside/{name}` or a path
/// through it.
fn root_with_link(target: &str, name: &str, is_directory: bool) -> (tempfile::TempDir, LocalFiles) {
    let dir = tempfile::tempdir().unwrap();
    for folder in ["allowed", "outside", "closed"] {
        std::fs::create_dir(dir.path().join(folder)).unwrap();
        let existing = dir.path().join(folder).join("exists");
        if is_directory {
            std::fs::create_dir(&existing).unwrap();
            std::fs::write(existing.join("inner"), "x").unwrap();
        } else {
            std::fs::write(existing, "x").unwrap();
        }
    }
    std::fs::write(dir.path().join("allowed/file.txt"), "inside").unwrap();
    let target = target.replace("{dir}", &dir.path().display().to_string()).replace("{name}", name);
    symlink(target, dir.path().join("allowed/link")).unwrap();
    let (root, closed) = (dir.path().join("allowed"), dir.path().join("closed"));
    let config = FilesConfig {
        sessions: Arc::new(move || vec![root.clone()]),
        granted: Vec::new(),
        closed: vec![closed],
    };
    (dir, LocalFiles::new(config))
}

/// Results of all operations that follow the link `allowed/link`, as text without the temporary path.
async fn responses(dir: &Path, files: &LocalFiles, below: &str) -> Vec<String> {
    let uri = uri_of(&dir.join(format!("allowed/link{below}")));
    let inside = uri_of(&dir.join("allowed/file.txt"));
    let transfer = |source: &str, destination: &str| Transfer {
        source: source.to_owned(),
        destination: destination.to_owned(),
        existing: Existing::Replace,
    };
    let write = |place| FileWrite {
        uri: uri.clone(),
        data: "changed".into(),
        place,
        condition: WriteCondition::Always,
    };
    let watch = WatchRequest {
        uri: uri.clone(),
        reach: Reach::Descendants,
        includes: Vec::new(),
        excludes: Vec::new(),
    };
    let copied = uri_of(&dir.join("allowed/copied"));
    let mut seen = vec![
        format!("read {:?}", files.read(uri.clone()).await),
        format!("list {:?}", files.list(uri.clone()).await),
        format!("resolve {:?}", files.resolve(uri.clone(), Links::Follow).await),
        format!("check {:?}", files.check(uri.clone()).await),
        format!("watch {:?}", files.watch(watch).await.map(drop)),
        format!("write {:?}", files.write(write(WritePlace::Truncate(0))).await),
        format!("append {:?}", files.write(write(WritePlace::Append(0))).await),
        format!("make {:?}", files.make_directory(uri.clone()).await),
        format!("copy from {:?}", files.copy(transfer(&uri, &copied)).await),
        format!("search {:?}", files.search(dir.join("allowed"), "inner".to_owned()).await),
    ];
    // For the link itself these operations change the link, which is inside.
    if !below.is_empty() {
        seen.push(format!("copy to {:?}", files.copy(transfer(&inside, &uri)).await));
        seen.push(format!("move from {:?}", files.relocate(transfer(&uri, &copied)).await));
        seen.push(format!("move to {:?}", files.relocate(transfer(&inside, &uri)).await));
        seen.push(format!("delete {:?}", files.delete(uri.clone(), Extent::Recursive).await));
        seen.push(format!("resolve link {:?}", files.resolve(uri, Links::Keep).await));
    }
    seen.iter().map(|text| text.replace(&*dir.to_string_lossy(), "")).collect()
}

#[tokio::test]
async fn responses_do_not_depend_on_what_exists_outside() {
    for target in [
        "{dir}/outside/{name}",
        "../outside/{name}",
        "{dir}/outside/{name}/../../allowed/file.txt",
        "../outside/{name}/../../allowed/file.txt",
        "{dir}/closed/{name}",
        "{dir}/outside/{name}/inner",
        "/proc/self/root{dir}/outside/{name}",
    ] {
        for is_directory in [false, true] {
            for below in ["", "/inner", "/inner/deeper", "/../exists", "/../../allowed/file.txt"] {
                let [existing, absent] = NAMES.map(|name| async move {
                    let (dir, files) = root_with_link(target, name, is_directory);
                    responses(dir.path(), &files, below).await
                });
                let (existing, absent) = (existing.await, absent.await);
                assert_eq!(existing, absent, "{target} {is_directory} {below}");
                let denied = existing.iter().filter(|text| text.contains("Denied")).count();
                assert!(denied + 1 >= existing.len(), "not all denied: {existing:?}");
            }
        }
    }
}

#[tokio::test]
async fn path_through_outside_is_denied_whether_or_not_it_exists() {
    let (dir, files) = root_with_link("{dir}/outside/{name}", "exists", true);
    for path in [
        "allowed/../outside/exists/../../allowed/file.txt",
        "allowed/../outside/absent/../../allowed/file.txt",
    ] {
        let denied = files.read(format!("{}/{path}", uri_of(dir.path()))).await.unwrap_err();
        assert!(denied.to_string().contains("not in a session's directory"), "{denied}");
    }
}

#[tokio::test]
async fn link_to_missing_file_inside_is_not_found_and_can_be_written() {
    let (dir, files) = root_with_link("missing.txt", "", false);
    let uri = uri_of(&dir.path().join("allowed/link"));
    let missing = files.read(uri.clone()).await.unwrap_err();
    assert!(matches!(missing, innkeeper_core::files::FileError::NotFound(_)), "{missing:?}");
    let data = FileWrite {
        uri,
        data: "through".into(),
        place: WritePlace::Truncate(0),
        condition: WriteCondition::Always,
    };
    files.write(data).await.unwrap();
    assert_eq!(std::fs::read_to_string(dir.path().join("allowed/missing.txt")).unwrap(), "through");
}
