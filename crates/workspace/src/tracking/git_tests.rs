//! Contents of tracked files come from git's objects.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::index::KnownContent;
use super::testing::{Fixture, content, git};
use super::*;

fn repository(fixture: &Fixture) {
    git(&fixture.tracker.core.root, &["init", "-q"]).unwrap();
}

fn commit(fixture: &Fixture) {
    git(&fixture.tracker.core.root, &["add", "-A"]).unwrap();
    git(&fixture.tracker.core.root, &["commit", "-qm", "more"]).unwrap();
}

/// Whether the content of a file is not read yet, but known to git.
fn is_lazy(fixture: &Fixture, path: &str) -> bool {
    let index = fixture.tracker.core.index();
    matches!(index.get(Path::new(path)).unwrap().content, KnownContent::Git(_))
}

fn text_before(fixture: &Fixture, path: &str) -> Vec<u8> {
    let changes = fixture.changes();
    let [(changed, before, ..)] = &changes[..] else { panic!("one change expected: {changes:?}") };
    assert_eq!(changed, Path::new(path));
    content(&*fixture.storage, before).expect("a stored content").to_vec()
}

#[test]
fn clean_tracked_file_is_read_from_its_object() {
    let fixture = Fixture::new();
    repository(&fixture);
    fixture.write("clean", "clean\n");
    fixture.write("dirty", "old\n");
    fs::set_permissions(fixture.path("clean"), fs::Permissions::from_mode(0o755)).unwrap();
    commit(&fixture);
    fixture.write("dirty", "new\n");
    fixture.write("untracked", "x");
    fixture.record();
    assert!(is_lazy(&fixture, "clean"));
    assert!(!is_lazy(&fixture, "dirty"));
    assert!(!is_lazy(&fixture, "untracked"));
    assert_eq!(fixture.tracker.held_blobs().len(), 2);
    fixture.write("clean", "CLEAN\n");
    let changes = fixture.changes();
    let expected = FileVersion::File { blob: BlobDigest::of(b"clean\n"), size: 6, mode: 0o755, stored: true };
    assert_eq!(changes[0].1, expected);
    assert_eq!(content(&*fixture.storage, &expected).as_deref(), Some(&b"clean\n"[..]));
}

#[test]
fn touched_file_in_git_is_not_a_change() {
    let fixture = Fixture::new();
    repository(&fixture);
    fixture.write("clean", "clean\n");
    commit(&fixture);
    fixture.record();
    fixture.write("clean", "clean\n");
    assert_eq!(fixture.changes(), []);
}

#[test]
fn version_of_lazy_file_is_stored_when_asked_for() {
    let fixture = Fixture::new();
    repository(&fixture);
    fixture.write("clean", "clean\n");
    commit(&fixture);
    fixture.record();
    let version = fixture.tracker.version(&fixture.path("clean")).unwrap();
    assert_eq!(content(&*fixture.storage, &version).as_deref(), Some(&b"clean\n"[..]));
    assert!(!is_lazy(&fixture, "clean"));
    assert_eq!(fixture.tracker.version(&fixture.path("missing")), Some(FileVersion::Absent));
}

#[test]
fn missing_object_makes_the_content_unknown() {
    let fixture = Fixture::new();
    repository(&fixture);
    fixture.write("clean", "clean\n");
    commit(&fixture);
    fixture.record();
    fs::remove_dir_all(fixture.path(".git/objects")).unwrap();
    fs::create_dir(fixture.path(".git/objects")).unwrap();
    fixture.write("clean", "other\n");
    assert_eq!(fixture.changes()[0].1, FileVersion::Unknown(UnknownContent::Unreadable));
}

#[test]
fn files_with_other_bytes_than_their_object_are_read() {
    let fixture = Fixture::new();
    repository(&fixture);
    fixture.write(".gitattributes", "*.txt text eol=lf\n*.rot filter=rot\n*.id ident\n");
    git(&fixture.tracker.core.root, &["config", "filter.rot.clean", "tr a-z n-za-m"]).unwrap();
    git(&fixture.tracker.core.root, &["config", "filter.rot.smudge", "tr a-z n-za-m"]).unwrap();
    fixture.write("lines.txt", "a\r\nb\r\n");
    fixture.write("code.rot", "hello\n");
    fixture.write("name.id", "$Id$\n");
    commit(&fixture);
    fixture.record();
    for (path, text) in [("lines.txt", "a\r\nb\r\n"), ("code.rot", "hello\n"), ("name.id", "$Id$\n")] {
        assert!(!is_lazy(&fixture, path), "{path}");
        fixture.write(path, "changed\n");
        assert_eq!(text_before(&fixture, path), text.as_bytes());
    }
}

#[test]
fn files_that_git_does_not_compare_are_read() {
    let fixture = Fixture::new();
    repository(&fixture);
    fixture.write("assumed", "one\n");
    fixture.write("skipped", "one\n");
    commit(&fixture);
    git(&fixture.tracker.core.root, &["update-index", "--assume-unchanged", "assumed"]).unwrap();
    git(&fixture.tracker.core.root, &["update-index", "--skip-worktree", "skipped"]).unwrap();
    fixture.write("assumed", "two\n");
    fixture.write("skipped", "two\n");
    fixture.record();
    for path in ["assumed", "skipped"] {
        fixture.write(path, "changed\n");
        assert_eq!(text_before(&fixture, path), b"two\n");
    }
}

#[test]
fn root_in_a_subdirectory_uses_the_rules_and_objects_of_the_repository() {
    let fixture = Fixture::below("project/part", TrackingLimits::default());
    let top = fixture.path("..").canonicalize().unwrap();
    git(&top, &["init", "-q"]).unwrap();
    fixture.write("../.gitignore", "*.log\n/part/out\n");
    fixture.write("../outside", "x");
    fixture.write("deep/clean", "clean\n");
    git(&top, &["add", "-A"]).unwrap();
    git(&top, &["commit", "-qm", "more"]).unwrap();
    // The rules are read when the tracker is created.
    let fixture = fixture.reopened();
    fixture.record();
    assert!(is_lazy(&fixture, "deep/clean"));
    fixture.write("x.log", "x");
    fixture.write("out/file", "x");
    fixture.write("deep/clean", "other\n");
    assert_eq!(text_before(&fixture, "deep/clean"), b"clean\n");
}

#[test]
fn root_that_is_ignored_by_its_repository_is_tracked() {
    let fixture = Fixture::below("project/target/part", TrackingLimits::default());
    git(&fixture.path("../.."), &["init", "-q"]).unwrap();
    fixture.write("../../.gitignore", "target\n");
    let fixture = fixture.reopened();
    fixture.write("file", "one");
    fixture.record();
    fixture.write("file", "two");
    assert_eq!(text_before(&fixture, "file"), b"one");
}

#[test]
fn linked_work_tree_and_submodule_contents_are_known() {
    let outer = Fixture::below("main", TrackingLimits::default());
    repository(&outer);
    outer.write("clean", "clean\n");
    commit(&outer);
    let root = outer.tracker.core.root.clone();
    git(&root, &["worktree", "add", "-q", "../linked"]).unwrap();
    let source = root.to_str().unwrap();
    outer.write(".git/info/exclude", "excluded\n");
    let linked = outer.sibling("linked");
    linked.write("excluded", "x");
    let add = ["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", source, "module"];
    git(&linked.tracker.core.root, &add).unwrap();
    commit(&linked);
    linked.record();
    assert!(is_lazy(&linked, "clean"));
    assert!(linked.tracker.core.index().get(Path::new("excluded")).is_none());
    for path in ["clean", "module/clean"] {
        linked.write(path, "other\n");
        assert_eq!(text_before(&linked, path), b"clean\n");
    }
}

#[test]
fn broken_and_bare_repositories_are_read_as_files() {
    for bare in [false, true] {
        let fixture = Fixture::new();
        if bare {
            git(&fixture.tracker.core.root, &["init", "-q", "--bare", ".git"]).unwrap();
        } else {
            fixture.write(".git", "gitdir: /nonexistent\n");
        }
        fixture.write("file", "one");
        fixture.record();
        fixture.write("file", "two");
        assert_eq!(text_before(&fixture, "file"), b"one");
    }
}

#[test]
fn tracked_file_that_the_rules_ignore_is_observed() {
    let fixture = Fixture::new();
    repository(&fixture);
    fixture.write(".gitignore", "*.log\n");
    fixture.write("kept.log", "one");
    git(&fixture.tracker.core.root, &["add", "-f", "kept.log"]).unwrap();
    commit(&fixture);
    fixture.write("other.log", "one");
    fixture.record();
    fixture.write("kept.log", "two");
    fixture.write("other.log", "two");
    assert_eq!(text_before(&fixture, "kept.log"), b"one");
}
