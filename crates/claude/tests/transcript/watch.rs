//! The watched list equals a fresh list once the system has reported a change.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use innkeeper_claude::transcript::{
    ListOptions, Scope, SessionSummary, WatchedTranscripts, Worktrees, delete, project_key, rename,
};
use serde_json::json;
use uuid::Uuid;

use super::store::{Store, user, with};

/// Waits until the watched list equals a fresh list.
#[track_caller]
fn settles(store: &Store, watched: &WatchedTranscripts) -> Arc<[Arc<SessionSummary>]> {
    // The system reports changes with a delay; ten seconds suffice on a very busy machine.
    for _ in 0..10_000 {
        let listed = watched.all();
        if listed.to_vec() == store.transcripts().list(&ListOptions::default()) {
            return listed;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("the watched list is {:?}", watched.all());
}

#[test]
fn watched_list_reflects_every_kind_of_change() {
    let store = Store::new();
    let one = store.write("-a", Uuid::from_u128(1), &[user("one", None)]);
    let watched = WatchedTranscripts::new(store.transcripts());
    assert_eq!(watched.all().len(), 1);
    assert!(watched.is_watching());

    rename(&one, "renamed").unwrap();
    assert_eq!(settles(&store, &watched)[0].summary, "renamed");
    store.write("-a", Uuid::from_u128(2), &[user("two", None)]);
    assert_eq!(settles(&store, &watched).len(), 2);
    store.write("-new", Uuid::from_u128(3), &[user("three", None)]);
    assert_eq!(settles(&store, &watched).len(), 3);
    store.write("-new", Uuid::from_u128(4), &[user("four", None)]);
    assert_eq!(settles(&store, &watched).len(), 4);
    delete(&one).unwrap();
    assert_eq!(settles(&store, &watched).len(), 3);
    fs::remove_dir_all(store.project("-new")).unwrap();
    assert_eq!(settles(&store, &watched).len(), 1);
    store.write("-new", Uuid::from_u128(3), &[user("back", None)]);
    assert_eq!(settles(&store, &watched).len(), 2);
}

#[test]
fn watched_list_reflects_sidecar_changes() {
    let store = Store::new();
    let before = store.write("-a", Uuid::from_u128(1), &[user("one", None)]);
    let later = store.write("-a", Uuid::from_u128(2), &[user("two", None)]);
    fs::create_dir(before.with_extension("")).unwrap();
    let watched = WatchedTranscripts::new(store.transcripts());
    assert_eq!(watched.all().len(), 2);
    for path in [before, later] {
        let beside = path.with_extension("");
        fs::create_dir_all(&beside).unwrap();
        settles(&store, &watched);
        fs::write(beside.join("custom-title.json"), r#"{"customTitle":"beside"}"#).unwrap();
        let listed = settles(&store, &watched);
        assert_eq!(listed.iter().find(|summary| summary.path == path).unwrap().summary, "beside");
    }
}

#[test]
fn watching_starts_once_the_directory_exists() {
    let store = Store::new();
    fs::remove_dir(store.dir.path().join("projects")).unwrap();
    let watched = WatchedTranscripts::new(store.transcripts());
    assert_eq!((watched.all().len(), watched.is_watching()), (0, false));
    store.write("-a", Uuid::from_u128(1), &[user("one", None)]);
    assert_eq!((watched.all().len(), watched.is_watching()), (1, true));
}

#[test]
fn nothing_is_read_without_changes() {
    let store = Store::new();
    store.write("-a", Uuid::from_u128(1), &[user("one", None)]);
    let watched = WatchedTranscripts::new(store.transcripts());
    let first = settles(&store, &watched);
    assert!(Arc::ptr_eq(&first, &watched.all()));
}

#[test]
fn directory_is_listed_from_the_watched_list() {
    let store = Store::new();
    let work = tempfile::tempdir().unwrap();
    let directory = work.path().canonicalize().unwrap();
    let prompt = with(user("one", None), &json!({"cwd": directory}));
    store.write(&project_key(&directory), Uuid::from_u128(1), &[prompt]);
    store.write("-other", Uuid::from_u128(2), &[user("two", None)]);
    let watched = WatchedTranscripts::new(store.transcripts());
    let scope = Scope::Directory { path: directory, worktrees: Worktrees::Included };
    let listed = watched.list(&ListOptions { scope, ..ListOptions::default() });
    assert_eq!(listed.iter().map(|summary| summary.summary.as_str()).collect::<Vec<_>>(), ["one"]);
    assert_eq!(watched.list(&ListOptions { limit: Some(1), ..ListOptions::default() }).len(), 1);
    assert!(watched.transcripts().find(Uuid::from_u128(2), &Scope::Everything).is_some());
}
