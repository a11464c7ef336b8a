//! Listing: directories, caching, corrupt files, sidecar files.

use std::fs;
use std::io::Write;
use std::path::Path;

use innkeeper_claude::transcript::{ListOptions, Scope, Worktrees, project_key, rename};
use serde_json::json;
use uuid::Uuid;

use super::store::{Store, assistant, set_modified, text_of, user, with};

fn of_directory(path: &Path, worktrees: Worktrees) -> ListOptions {
    let scope = Scope::Directory { path: path.to_owned(), worktrees };
    ListOptions { scope, ..ListOptions::default() }
}

fn ids(store: &Store, options: &ListOptions) -> Vec<Uuid> {
    store.transcripts().list(options).iter().map(|summary| summary.id).collect()
}

/// A prompt that was sent in a directory.
fn prompt_in(cwd: &Path) -> serde_json::Value {
    with(user("hello", None), &json!({"cwd": cwd}))
}

#[test]
fn directory_without_transcripts_has_empty_list() {
    let dir = tempfile::tempdir().unwrap();
    let transcripts = innkeeper_claude::transcript::Transcripts::new(&dir.path().join("none"));
    assert!(transcripts.list(&ListOptions::default()).is_empty());
}

#[test]
fn directory_excludes_sessions_of_another_with_the_same_encoded_name() {
    let store = Store::new();
    let work = tempfile::tempdir().unwrap();
    let root = work.path().canonicalize().unwrap();
    let (nested, dashed) = (root.join("a/b"), root.join("a-b"));
    fs::create_dir_all(&nested).unwrap();
    fs::create_dir_all(&dashed).unwrap();
    assert_eq!(project_key(&nested), project_key(&dashed));
    let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
    store.write(&project_key(&nested), one, &[prompt_in(&nested)]);
    store.write(&project_key(&nested), other, &[prompt_in(&dashed)]);
    store.write("-else-where", Uuid::from_u128(3), &[prompt_in(Path::new("/else/where"))]);
    assert_eq!(ids(&store, &of_directory(&nested, Worktrees::Included)), [one]);
    assert_eq!(ids(&store, &of_directory(&dashed, Worktrees::Included)), [other]);
    assert_eq!(ids(&store, &ListOptions::default()).len(), 3);
}

#[test]
fn long_directory_is_found_under_any_checksum_if_session_names_it() {
    let store = Store::new();
    let work = tempfile::tempdir().unwrap();
    let long = work.path().canonicalize().unwrap().join("x".repeat(120)).join("y".repeat(120));
    fs::create_dir_all(&long).unwrap();
    let key = project_key(&long);
    let other_build = format!("{}-other", key.get(..200).unwrap());
    let (one, other, strange) = (Uuid::from_u128(1), Uuid::from_u128(2), Uuid::from_u128(3));
    store.write(&key, one, &[prompt_in(&long)]);
    store.write(&other_build, other, &[prompt_in(&long)]);
    store.write(&other_build, strange, &[prompt_in(&long.join("deeper"))]);
    let mut found = ids(&store, &of_directory(&long, Worktrees::Excluded));
    found.sort_unstable();
    assert_eq!(found, [one, other]);
}

#[test]
fn worktrees_are_included_unless_excluded() {
    let store = Store::new();
    let work = tempfile::tempdir().unwrap();
    let root = work.path().canonicalize().unwrap();
    let (main, linked) = (root.join("main"), root.join("linked"));
    let own = main.join(".git/worktrees/linked");
    fs::create_dir_all(&own).unwrap();
    fs::create_dir_all(linked.join("src")).unwrap();
    fs::write(own.join("commondir"), "../..\n").unwrap();
    fs::write(own.join("gitdir"), format!("{}\n", linked.join(".git").display())).unwrap();
    fs::write(linked.join(".git"), format!("gitdir: {}\n", own.display())).unwrap();
    let (in_main, in_linked) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let one = store.write(&project_key(&main), in_main, &[prompt_in(&main)]);
    let other = store.write(&project_key(&linked), in_linked, &[prompt_in(&linked)]);
    set_modified(&one, 1_000);
    set_modified(&other, 2_000);
    for directory in [&main, &linked] {
        assert_eq!(ids(&store, &of_directory(directory, Worktrees::Included)), [in_linked, in_main]);
    }
    assert_eq!(ids(&store, &of_directory(&linked, Worktrees::Excluded)), [in_linked]);
    let scope = Scope::Directory { path: linked.join("src"), worktrees: Worktrees::Included };
    assert_eq!(store.transcripts().find(in_main, &scope), Some(one));
}

#[test]
fn newest_copy_of_a_session_is_listed_and_ties_are_broken_by_id() {
    let store = Store::new();
    let (twice, once) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let old = store.write("-a", twice, &[user("old", None)]);
    let new = store.write("-b", twice, &[user("new", None)]);
    let same_time = store.write("-b", once, &[user("once", None)]);
    set_modified(&old, 1_000);
    set_modified(&new, 2_000);
    set_modified(&same_time, 2_000);
    let listed = store.transcripts().list(&ListOptions::default());
    let found: Vec<(Uuid, &str)> =
        listed.iter().map(|summary| (summary.id, summary.summary.as_str())).collect();
    assert_eq!(found, [(once, "once"), (twice, "new")]);
}

#[test]
fn second_list_reads_only_changed_files() {
    let store = Store::new();
    let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let path = store.write("-a", one, &[user("first", None)]);
    store.write("-a", other, &[user("second", None)]);
    let transcripts = store.transcripts();
    let before = transcripts.list(&ListOptions::default());
    rename(&path, "renamed").unwrap();
    let after = transcripts.list(&ListOptions::default());
    let get = |list: &[std::sync::Arc<_>], id| {
        std::sync::Arc::clone(
            list.iter()
                .find(|summary: &&std::sync::Arc<innkeeper_claude::transcript::SessionSummary>| {
                    summary.id == id
                })
                .unwrap(),
        )
    };
    assert!(
        std::sync::Arc::ptr_eq(&get(&before, other), &get(&after, other)),
        "an unchanged file was read again"
    );
    assert_eq!((get(&before, one).summary.as_str(), get(&after, one).summary.as_str()), ("first", "renamed"));
    fs::remove_file(path).unwrap();
    assert_eq!(transcripts.list(&ListOptions::default()).len(), 1);
}

#[test]
fn all_of_many_projects_are_listed() {
    let store = Store::new();
    for number in 0..200 {
        store.write(&format!("-{number}"), Uuid::from_u128(number), &[user("hello", None)]);
    }
    let transcripts = store.transcripts();
    for _ in 0..2 {
        assert_eq!(transcripts.list(&ListOptions::default()).len(), 200);
    }
}

#[test]
fn symlinked_transcript_is_followed() {
    let store = Store::new();
    let elsewhere = store.dir.path().join("elsewhere.jsonl");
    fs::write(&elsewhere, text_of(&[user("hello", None)])).unwrap();
    let link = store.project("-a").join(format!("{}.jsonl", Uuid::from_u128(1)));
    std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
    let transcripts = store.transcripts();
    assert_eq!(transcripts.list(&ListOptions::default())[0].summary, "hello");
    rename(&link, "renamed").unwrap();
    assert_eq!(transcripts.list(&ListOptions::default())[0].summary, "renamed");
}

#[test]
fn corrupt_files_and_invalid_names_are_skipped() {
    let store = Store::new();
    let good = Uuid::from_u128(1);
    store.write("-a", good, &[user("hello", None)]);
    let project = store.project("-a");
    fs::write(project.join("notes.jsonl"), text_of(&[user("no id", None)])).unwrap();
    fs::write(
        project.join(format!("{}.jsonl", Uuid::from_u128(2).simple())),
        text_of(&[user("other spelling", None)]),
    )
    .unwrap();
    fs::write(project.join(format!("{}.jsonl", Uuid::from_u128(3))), [0xff; 3000]).unwrap();
    fs::write(project.join(format!("{}.jsonl", Uuid::from_u128(4))), "").unwrap();
    fs::create_dir(project.join(format!("{}.jsonl", Uuid::from_u128(5)))).unwrap();
    fs::write(store.dir.path().join("projects/stray.txt"), "x").unwrap();
    assert_eq!(ids(&store, &ListOptions::default()), [good]);
}

#[test]
fn partially_written_file_is_listed() {
    let store = Store::new();
    let id = Uuid::from_u128(1);
    let path = store.write("-a", id, &[user("hello", None)]);
    let mut file = fs::File::options().append(true).open(&path).unwrap();
    file.write_all(br#"{"type":"custom-title","customTitle":"ha"#).unwrap();
    let transcripts = store.transcripts();
    assert_eq!(transcripts.list(&ListOptions::default())[0].summary, "hello");
    file.write_all(b"lf\"}\n").unwrap();
    assert_eq!(transcripts.list(&ListOptions::default())[0].summary, "half");
}

#[test]
fn long_transcript_is_summarized_from_head_and_tail() {
    let store = Store::new();
    let filler = json!({"type": "mode", "mode": "n".repeat(1000)});
    let mut lines = vec![user("hello", None), json!({"type": "custom-title", "customTitle": "in the head"})];
    lines.extend(std::iter::repeat_n(filler, 300));
    let middle = json!({"type": "custom-title", "customTitle": "in the middle"});
    lines.insert(150, middle);
    lines.push(json!({"type": "tag", "tag": "at the end"}));
    lines.push(with(assistant("answer", "hello"), &json!({"gitBranch": "topic"})));
    store.write("-a", Uuid::from_u128(1), &lines);
    let listed = store.transcripts().list(&ListOptions::default());
    let [summary] = listed.as_slice() else { panic!("{listed:?}") };
    assert_eq!(
        (summary.summary.as_str(), summary.tag.as_deref(), summary.git_branch.as_deref()),
        ("in the head", Some("at the end"), Some("topic"))
    );
}

#[test]
fn continued_session_is_listed_only_if_its_continuation_is_missing() {
    let store = Store::new();
    let (first, next) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let continued = json!({"type": "continued-in", "continuedInSessionId": next.to_string()});
    store.write("-a", first, &[user("hello", None), continued]);
    assert_eq!(ids(&store, &ListOptions::default()), [first]);
    store.write("-a", next, &[user("again", None)]);
    assert_eq!(ids(&store, &ListOptions::default()), [next]);
}

#[test]
fn sidecar_files_are_read_and_changes_are_detected() {
    let store = Store::new();
    let id = Uuid::from_u128(1);
    let path = store.write("-a", id, &[user("hello", None)]);
    let transcripts = store.transcripts();
    let listed = || {
        let listed = transcripts.list(&ListOptions::default());
        (listed[0].summary.clone(), listed[0].archived)
    };
    assert_eq!(listed(), ("hello".into(), None));
    let beside = path.with_extension("");
    fs::create_dir(&beside).unwrap();
    fs::write(beside.join("custom-title.json"), r#"{"customTitle":"beside"}"#).unwrap();
    assert_eq!(listed(), ("beside".into(), None));
    fs::write(beside.join("archived.json"), r#"{"archived":true,"at":"2026-11-15T09:00:00.000Z"}"#).unwrap();
    assert_eq!(listed(), ("beside".into(), Some(true)));
    fs::write(beside.join("archived.json"), r#"{"archived":false,"at":"2026-11-15T09:00:00.000Z"}"#).unwrap();
    fs::write(beside.join("custom-title.json"), "broken").unwrap();
    assert_eq!(listed(), ("hello".into(), Some(false)));
}
