//! The project of a session, and the state of its repository.

use std::sync::Arc;

use ahp_types::state::{AgentCapabilities, MultipleWorkingDirectoriesCapability};
use innkeeper_core::HostServices;
use innkeeper_core::projects::{GitReading, GitState};
use innkeeper_core_fakes::{MemoryStorage, ScriptedProjects, Stage, StageTraits};
use innkeeper_testkit::Observer;
use serde_json::{Value, json};

use crate::scene::{DIRECTORY, Scene};
use crate::stage_host::{StageHost, StageOptions};

const PROJECT: &str = "file:///repository";

fn options(projects: &ScriptedProjects) -> StageOptions {
    projects.set_project("/w", PROJECT, "repository");
    StageOptions {
        services: HostServices { projects: Arc::new(projects.clone()), ..HostServices::default() },
        ..StageOptions::default()
    }
}

fn on(branch: &str, uncommitted: u64) -> GitReading {
    GitReading::Known(GitState { branch: Some(branch.to_owned()), uncommitted, ..GitState::default() })
}

fn published(branch: &str, uncommitted: u64) -> Value {
    json!({"git": {"branchName": branch, "uncommittedChanges": uncommitted}})
}

fn meta(observer: &Observer, session: &str) -> Value {
    json!(observer.session(session).unwrap().meta)
}

#[tokio::test]
async fn project_is_in_the_session_and_in_its_row() {
    let projects = ScriptedProjects::default();
    let mut scene = Scene::of(options(&projects)).await;
    let project = json!({"uri": PROJECT, "displayName": "repository"});
    assert_eq!(json!(scene.bob.session(&scene.session).unwrap().project), project);
    let player = scene.begin("t1").await;
    player.complete("t1").await.unwrap();
    scene.until_over("t1").await;
    assert_eq!(json!(scene.alice.rows[&scene.session].project), project);
}

#[tokio::test]
async fn git_state_is_published_when_it_changes() {
    let projects = ScriptedProjects::default();
    let mut scene = Scene::of(options(&projects)).await;
    let session = scene.session.clone();
    let shown = |value: Value| {
        let session = session.clone();
        move |observer: &Observer| meta(observer, &session) == value
    };
    projects.read("/w", on("main", 0));
    scene.alice.until("the state", shown(published("main", 0))).await.unwrap();
    scene.agree().await;
    assert_eq!(projects.refreshes("/w"), 0);
    let player = scene.begin("t1").await;
    player.complete("t1").await.unwrap();
    scene.until_over("t1").await;
    assert_eq!(projects.refreshes("/w"), 1, "a turn may have changed files");
    projects.read("/w", on("main", 2));
    scene.alice.until("the change", shown(published("main", 2))).await.unwrap();
    scene.agree().await;
    assert_eq!(json!(scene.bob.rows[&session].meta), published("main", 2));

    // An unknown state keeps what is known; without a repository there is no state.
    let changes = |observer: &Observer| {
        observer.actions(&session).unwrap().iter().filter(|action| *action == "session/metaChanged").count()
    };
    projects.read("/w", GitReading::Unknown);
    projects.read("/w", on("main", 2));
    projects.read("/w", GitReading::NoRepository);
    scene.alice.until("no state", shown(Value::Null)).await.unwrap();
    scene.agree().await;
    assert_eq!(changes(&scene.alice), 3);
}

#[tokio::test]
async fn other_first_directory_is_followed_instead() {
    let projects = ScriptedProjects::default();
    let capability =
        MultipleWorkingDirectoriesCapability { immutable_primary: None, primary_replacement: Some(true) };
    let traits = StageTraits {
        capabilities: Some(AgentCapabilities {
            multiple_working_directories: Some(capability),
            ..AgentCapabilities::default()
        }),
        ..StageTraits::default()
    };
    let mut scene = Scene::of(StageOptions { stage: Stage::new(traits), ..options(&projects) }).await;
    projects.read("/w", on("main", 1));
    projects.read("/other", on("next", 0));
    let session = scene.session.clone();
    scene.alice.until("the state", |alice| meta(alice, &session) == published("main", 1)).await.unwrap();
    let replaced = json!({"type": "session/workingDirectoryReplaced", "directory": DIRECTORY,
        "replacement": "file:///other"});
    scene.wire.dispatch(&session, replaced).await;
    scene.alice.until("the other", |alice| meta(alice, &session) == published("next", 0)).await.unwrap();
    scene.agree().await;
    assert_eq!((projects.followers("/w"), projects.followers("/other")), (0, 1));
}

#[tokio::test]
async fn hanging_file_system_delays_neither_sessions_nor_messages() {
    let projects = ScriptedProjects::default();
    projects.set_hanging(true);
    let mut scene = Scene::of(options(&projects)).await;
    assert_eq!(scene.bob.session(&scene.session).unwrap().project, None);
    let player = scene.begin("t1").await;
    player.complete("t1").await.unwrap();
    scene.until_over("t1").await;
}

#[tokio::test]
async fn stored_state_is_kept_until_it_is_read_and_the_project_is_found_again() {
    let projects = ScriptedProjects::default();
    let storage = MemoryStorage::new();
    let stored = || StageOptions { storage: Arc::new(storage.clone()), ..options(&projects) };
    let mut scene = Scene::of(stored()).await;
    let session = scene.session.clone();
    projects.read("/w", on("main", 1));
    let player = scene.begin("t1").await;
    player.complete("t1").await.unwrap();
    scene.until_over("t1").await;
    scene.alice.until("the state", |alice| meta(alice, &session) == published("main", 1)).await.unwrap();
    let Scene { host, .. } = scene;
    let ((), left) = tokio::join!(host.stop(), player.leave_when_told());
    left.unwrap();
    assert_eq!(projects.followers("/w"), 0);

    projects.read("/w", GitReading::Unknown);
    projects.set_project("/w", "file:///moved", "moved");
    let services = HostServices { projects: Arc::new(projects.clone()), ..HostServices::default() };
    let options = StageOptions { services, storage: Arc::new(storage.clone()), ..StageOptions::default() };
    let host = StageHost::start(options).await.unwrap();
    let mut again = host.observer("again").await.unwrap();
    again.open_session(&session).await.unwrap();
    assert_eq!(meta(&again, &session), published("main", 1));
    let project = json!({"uri": "file:///moved", "displayName": "moved"});
    assert_eq!(json!(again.session(&session).unwrap().project), project);
    projects.read("/w", on("next", 0));
    again.until("the state", |again| meta(again, &session) == published("next", 0)).await.unwrap();
}
