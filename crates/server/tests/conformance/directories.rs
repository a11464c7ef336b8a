//! Working directories of sessions and chats, for agents that support one directory, several
//! equal directories, and several with a primary one.

use std::path::PathBuf;
use std::sync::Arc;

use ahp_types::state::{AgentCapabilities, MultipleChatsCapability, MultipleWorkingDirectoriesCapability};
use innkeeper_core::agent::AgentCommand;
use innkeeper_core::storage::{Change, Storage as _};
use innkeeper_core_fakes::{MemoryStorage, Player, Stage, StageTraits};
use serde_json::{Value, json};

use crate::scene::{DIRECTORY, Scene, message, started};
use crate::stage_host::{StageHost, StageOptions};
use crate::wire::Wire;

const OTHER: &str = "file:///other";
const THIRD: &str = "file:///third";

/// How an agent treats its first directory.
#[derive(Clone, Copy)]
enum FirstDirectory {
    Peer,
    Fixed,
    Replaceable,
}

/// Traits of an agent that supports several directories.
fn several_directories(first: FirstDirectory) -> StageTraits {
    let capability = MultipleWorkingDirectoriesCapability {
        immutable_primary: matches!(first, FirstDirectory::Fixed).then_some(true),
        primary_replacement: matches!(first, FirstDirectory::Replaceable).then_some(true),
    };
    StageTraits {
        capabilities: Some(AgentCapabilities {
            multiple_working_directories: Some(capability),
            ..AgentCapabilities::default()
        }),
        ..StageTraits::default()
    }
}

fn set(directory: &str) -> Value {
    json!({"type": "session/workingDirectorySet", "directory": directory})
}

fn removed(directory: &str) -> Value {
    json!({"type": "session/workingDirectoryRemoved", "directory": directory})
}

fn replaced(directory: &str, replacement: &str) -> Value {
    json!({"type": "session/workingDirectoryReplaced", "directory": directory, "replacement": replacement})
}

fn chat_set(directory: &str) -> Value {
    json!({"type": "chat/workingDirectorySet", "directory": directory})
}

fn chat_removed(directory: &str) -> Value {
    json!({"type": "chat/workingDirectoryRemoved", "directory": directory})
}

/// The directories of the session. Checks that its row, if any, has the same.
fn of_session(scene: &Scene) -> Value {
    let held = json!(scene.bob.session(&scene.session).unwrap().working_directories);
    if let Some(row) = scene.bob.rows.get(&scene.session) {
        assert_eq!(json!(row.working_directories), held, "the row differs from the session");
    }
    held
}

/// The directories of the chat.
fn of_chat(scene: &Scene) -> Value {
    json!(scene.bob.chat(&scene.chat).unwrap().working_directories)
}

/// Dispatches an action. Returns the rejection reason, if any.
async fn answer(wire: &mut Wire, channel: &str, action: Value) -> Option<Value> {
    let seq = wire.dispatch(channel, action).await;
    wire.envelope(seq).await.get("rejectionReason").cloned()
}

/// Checks that the agent is next told these directories.
async fn expect_directories(player: &mut Player, paths: &[&str]) {
    let paths = paths.iter().map(PathBuf::from).collect();
    assert_eq!(player.command().await.unwrap(), AgentCommand::Directories(paths));
}

#[tokio::test]
async fn rejects_directory_changes_for_a_single_directory_agent() {
    let mut scene = Scene::new().await;
    for action in [
        set(OTHER),
        set(DIRECTORY),
        removed(DIRECTORY),
        replaced(DIRECTORY, OTHER),
        chat_set(DIRECTORY),
        chat_removed(DIRECTORY),
    ] {
        let channel = if action["type"].as_str().unwrap().starts_with("chat/") {
            scene.chat.clone()
        } else {
            scene.session.clone()
        };
        scene.rejected(&channel, action).await;
    }
}

#[tokio::test]
async fn added_and_removed_directories_are_sent_to_the_agent() {
    let mut scene = Scene::with(several_directories(FirstDirectory::Peer)).await;
    scene.session_accepts(set(OTHER)).await;
    let mut player = scene.begin("t1").await;
    assert_eq!(
        scene.host.stage().openings()[0].working_directories,
        [PathBuf::from("/w"), PathBuf::from("/other")]
    );
    scene.session_accepts(set(THIRD)).await;
    expect_directories(&mut player, &["/w", "/other", "/third"]).await;
    assert_eq!(of_session(&scene), json!([DIRECTORY, OTHER, THIRD]));
    scene.session_accepts(set(OTHER)).await;
    assert_eq!(of_session(&scene), json!([DIRECTORY, OTHER, THIRD]), "the directory was added twice");
    scene.session_accepts(removed(DIRECTORY)).await;
    expect_directories(&mut player, &["/other", "/third"]).await;
    assert_eq!(of_session(&scene), json!([OTHER, THIRD]));
    for action in
        [removed(DIRECTORY), removed("file:///never"), json!({"type": "session/workingDirectoryRemoved"})]
    {
        scene.session_rejects(action).await;
    }
    for wrong in ["", "relative", "/absolute", "https://example.com/", "file://elsewhere/w", "file:///w%00"] {
        scene.session_rejects(set(wrong)).await;
    }
    scene.session_rejects(json!({"type": "session/workingDirectorySet"})).await;
    assert_eq!(player.waiting_command(), None, "the agent was told although nothing changed");
}

#[tokio::test]
async fn number_of_session_directories_is_limited() {
    let mut scene = Scene::with(several_directories(FirstDirectory::Peer)).await;
    let more = |number: usize| format!("file:///d{number}");
    for number in 1..63 {
        scene.wire.dispatch(&scene.session.clone(), set(&more(number))).await;
    }
    scene.session_accepts(set(&more(63))).await;
    assert_eq!(of_session(&scene).as_array().unwrap().len(), 64);
    scene.session_rejects(set(&more(64))).await;
    scene.session_accepts(set(&more(5))).await;
    scene.session_accepts(replaced(&more(5), &more(64))).await;
}

#[tokio::test]
async fn immutable_primary_directory_cannot_be_changed() {
    let mut scene = Scene::with(several_directories(FirstDirectory::Fixed)).await;
    scene.session_rejects(removed(DIRECTORY)).await;
    scene.session_rejects(replaced(DIRECTORY, OTHER)).await;
    scene.session_accepts(set(OTHER)).await;
    scene.session_accepts(replaced(OTHER, THIRD)).await;
    assert_eq!(of_session(&scene), json!([DIRECTORY, THIRD]));
    scene.session_rejects(replaced(DIRECTORY, THIRD)).await;
    scene.session_accepts(removed(THIRD)).await;
    assert_eq!(of_session(&scene), json!([DIRECTORY]));
}

#[tokio::test]
async fn rejects_first_directory_after_the_agent_started_without_one() {
    let mut scene = Scene::with(several_directories(FirstDirectory::Fixed)).await;
    for (session, begun) in [("scripted:/before", false), ("scripted:/after", true)] {
        scene.alice.create(session, &[]).await.unwrap();
        let chat = scene.alice.open_session(session).await.unwrap();
        if begun {
            scene.alice.dispatch(&chat, started("t1")).await.unwrap();
            let mut player = scene.host.stage().player().await.unwrap();
            player.prompt().await.unwrap();
        }
        let rejection = scene.alice_dispatches(session, set(OTHER)).await;
        assert_eq!(rejection.is_some(), begun, "{rejection:?}");
    }
}

#[tokio::test]
async fn replaceable_primary_directory_is_replaced() {
    let mut scene = Scene::with(several_directories(FirstDirectory::Replaceable)).await;
    scene.session_accepts(set(OTHER)).await;
    let mut player = scene.begin("t1").await;
    scene.session_rejects(removed(DIRECTORY)).await;
    scene.session_accepts(replaced(DIRECTORY, THIRD)).await;
    expect_directories(&mut player, &["/third", "/other"]).await;
    assert_eq!(of_session(&scene), json!([THIRD, OTHER]));
    scene.session_accepts(replaced(THIRD, OTHER)).await;
    expect_directories(&mut player, &["/other"]).await;
    assert_eq!(of_session(&scene), json!([OTHER]), "the existing directory takes the first place");
    scene.session_accepts(replaced(OTHER, OTHER)).await;
    scene.session_rejects(replaced(THIRD, DIRECTORY)).await;
    scene.session_rejects(replaced(OTHER, "relative")).await;
    scene.session_rejects(json!({"type": "session/workingDirectoryReplaced", "directory": OTHER})).await;
    assert_eq!(player.waiting_command(), None);
}

#[tokio::test]
async fn rejects_replacement_of_the_first_of_equal_directories() {
    let mut scene = Scene::with(several_directories(FirstDirectory::Peer)).await;
    scene.session_accepts(set(OTHER)).await;
    scene.session_rejects(replaced(DIRECTORY, THIRD)).await;
    scene.session_accepts(replaced(OTHER, DIRECTORY)).await;
    assert_eq!(of_session(&scene), json!([DIRECTORY]), "the directory keeps its earlier place");
}

#[tokio::test]
async fn chat_directories_are_a_subset_of_the_session_directories() {
    let mut scene = Scene::with(several_directories(FirstDirectory::Peer)).await;
    scene.session_accepts(set(OTHER)).await;
    let mut player = scene.begin("t1").await;
    scene.chat_rejects(chat_set(THIRD)).await;
    scene.chat_rejects(chat_removed(DIRECTORY)).await;
    scene.chat_accepts(chat_set(OTHER)).await;
    expect_directories(&mut player, &["/other"]).await;
    assert_eq!(of_chat(&scene), json!([OTHER]));
    scene.chat_accepts(chat_set(DIRECTORY)).await;
    expect_directories(&mut player, &["/w", "/other"]).await;
    scene.chat_accepts(chat_removed(OTHER)).await;
    expect_directories(&mut player, &["/w"]).await;
    scene.chat_accepts(chat_removed(DIRECTORY)).await;
    expect_directories(&mut player, &[]).await;
    assert_eq!((of_chat(&scene), of_session(&scene)), (json!([]), json!([DIRECTORY, OTHER])));
    scene.chat_rejects(json!({"type": "chat/workingDirectorySet"})).await;
    scene.chat_rejects(json!({"type": "chat/workingDirectoryRemoved"})).await;
}

#[tokio::test]
async fn directory_removed_from_a_session_is_removed_from_its_chat() {
    let mut scene = Scene::with(several_directories(FirstDirectory::Fixed)).await;
    let mut player = scene.begin("t1").await;
    scene.session_accepts(set(OTHER)).await;
    expect_directories(&mut player, &["/w", "/other"]).await;
    scene.chat_accepts(chat_set(OTHER)).await;
    assert_eq!(player.waiting_command(), None, "the agent keeps its primary directory");
    scene.session_accepts(replaced(OTHER, THIRD)).await;
    expect_directories(&mut player, &["/w", "/third"]).await;
    assert_eq!(of_chat(&scene), json!([THIRD]));
    scene.session_accepts(removed(THIRD)).await;
    expect_directories(&mut player, &["/w"]).await;
    assert_eq!((of_chat(&scene), of_session(&scene)), (json!([]), json!([DIRECTORY])));
    let chat = scene.chat.clone();
    let follows = [
        "chat/workingDirectorySet",
        "chat/workingDirectorySet",
        "chat/workingDirectoryRemoved",
        "chat/workingDirectoryRemoved",
    ];
    let seen: Vec<&str> =
        scene.wire.actions(&chat).into_iter().filter(|kind| kind.contains("workingDirectory")).collect();
    assert_eq!(seen, follows, "the change is not published on the chat");
}

#[tokio::test]
async fn session_directory_changes_apply_to_all_chats() {
    let mut traits = several_directories(FirstDirectory::Peer);
    if let Some(capabilities) = &mut traits.capabilities {
        capabilities.multiple_chats = Some(MultipleChatsCapability::default());
    }
    let mut scene = Scene::with(traits).await;
    scene.session_accepts(set(OTHER)).await;
    let mut first = scene.begin("t1").await;
    let create = json!({
        "channel": scene.session, "chat": "ahp-chat:/second", "workingDirectories": [OTHER],
        "initialMessage": message("begin"),
    });
    scene.wire.ask("createChat", create).await;
    let mut second = scene.host.stage().player().await.unwrap();
    let turn = second.prompt().await.unwrap().0;
    assert_eq!(scene.host.stage().openings()[1].working_directories, [PathBuf::from("/other")]);
    let of_second = async |scene: &mut Scene| {
        let state = scene.wire.snapshot("ahp-chat:/second").await;
        let session = scene.wire.snapshot(&scene.session.clone()).await;
        let entry =
            session["chats"].as_array().unwrap().iter().find(|chat| chat["resource"] == "ahp-chat:/second");
        assert_eq!(
            entry.unwrap()["workingDirectories"],
            state["workingDirectories"],
            "the entry in the session differs"
        );
        state["workingDirectories"].clone()
    };
    let session = scene.session.clone();
    assert_eq!(answer(&mut scene.wire, &session, replaced(OTHER, THIRD)).await, None);
    expect_directories(&mut first, &["/w", "/third"]).await;
    expect_directories(&mut second, &["/third"]).await;
    assert_eq!(of_second(&mut scene).await, json!([THIRD]));
    assert_eq!(answer(&mut scene.wire, &session, removed(THIRD)).await, None);
    expect_directories(&mut first, &["/w"]).await;
    expect_directories(&mut second, &[]).await;
    assert_eq!(of_second(&mut scene).await, json!([]));
    second.complete(&turn).await.unwrap();
}

#[tokio::test]
async fn directory_change_during_opening_is_sent_before_the_prompt() {
    let mut scene = Scene::with(several_directories(FirstDirectory::Peer)).await;
    scene.host.stage().hold_openings();
    scene.chat_accepts(started("t1")).await;
    scene.host.stage().opened(1).await.unwrap();
    scene.session_accepts(set(OTHER)).await;
    scene.host.stage().release_openings();
    let mut player = scene.host.stage().player().await.unwrap();
    expect_directories(&mut player, &["/w", "/other"]).await;
    assert_eq!(player.prompt().await.unwrap().0, "t1");
}

#[tokio::test]
async fn session_is_created_with_several_directories_if_the_agent_supports_them() {
    let mut scene = Scene::with(several_directories(FirstDirectory::Fixed)).await;
    let many: Vec<String> = (0..65).map(|number| format!("file:///d{number}")).collect();
    let params = |directories: Value| json!({"channel": "scripted:/2", "workingDirectories": directories});
    for wrong in [json!([OTHER, OTHER]), json!([OTHER, "relative"]), json!(many)] {
        assert_eq!(scene.wire.refused("createSession", params(wrong)).await, -32602);
    }
    scene.wire.ask("createSession", params(json!([OTHER, THIRD]))).await;
    let state = scene.wire.snapshot("scripted:/2").await;
    assert_eq!(state["workingDirectories"], json!([OTHER, THIRD]));
    scene.wire.dispatch(state["defaultChat"].as_str().unwrap(), started("t1")).await;
    let mut player = scene.host.stage().player().await.unwrap();
    player.prompt().await.unwrap();
    let opened = &scene.host.stage().openings()[0].working_directories;
    assert_eq!(*opened, [PathBuf::from("/other"), PathBuf::from("/third")]);
}

#[tokio::test]
async fn clients_can_read_files_in_current_session_directories_only() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("found"), "here").unwrap();
    let directory = format!("file://{}", folder.path().display());
    let read = json!({"channel": "ahp-root://", "uri": format!("{directory}/found")});
    let mut scene = Scene::with(several_directories(FirstDirectory::Peer)).await;
    for listed in [false, true] {
        let player = if listed { Some(scene.begin("t1").await) } else { None };
        assert_eq!(scene.wire.refused("resourceRead", read.clone()).await, -32009);
        scene.session_accepts(set(&directory)).await;
        assert_eq!(scene.wire.ask("resourceRead", read.clone()).await["data"], "here");
        // The removal is in effect as soon as it is answered.
        let session = scene.session.clone();
        let seq = scene.wire.dispatch(&session, removed(&directory)).await;
        scene.wire.envelope(seq).await;
        assert_eq!(scene.wire.refused("resourceRead", read.clone()).await, -32009);
        drop(player);
    }
}

#[tokio::test]
async fn directories_survive_a_restart_and_a_crash() {
    for clean in [true, false] {
        let storage = MemoryStorage::new();
        let options = |storage: &MemoryStorage| StageOptions {
            stage: Stage::new(several_directories(FirstDirectory::Replaceable)),
            storage: Arc::new(storage.clone()),
            ..StageOptions::default()
        };
        let host = StageHost::start(options(&storage)).await.unwrap();
        let mut wire = Wire::open(&host, "wire", &["1.0.0"]).await;
        let session = "scripted:/1";
        let params = json!({"channel": session, "workingDirectories": [DIRECTORY, OTHER]});
        wire.ask("createSession", params).await;
        let chat = wire.snapshot(session).await["defaultChat"].as_str().unwrap().to_owned();
        wire.dispatch(&chat, started("t1")).await;
        let mut player = host.stage().player().await.unwrap();
        player.prompt().await.unwrap();
        player.complete("t1").await.unwrap();
        let replaced = wire.dispatch(session, replaced(DIRECTORY, THIRD)).await;
        assert_eq!(wire.envelope(replaced).await.get("rejectionReason"), None);
        let own = wire.dispatch(&chat, chat_set(OTHER)).await;
        assert_eq!(wire.envelope(own).await.get("rejectionReason"), None);
        let left = if clean {
            let (_, left) = tokio::join!(host.stop(), player.leave_when_told());
            left.unwrap();
            storage
        } else {
            storage.after_a_crash()
        };
        let host = StageHost::start(options(&left)).await.unwrap();
        let mut wire = Wire::open(&host, "wire", &["1.0.0"]).await;
        let listed = wire.ask("listSessions", json!({})).await["items"][0]["workingDirectories"].clone();
        let state = wire.snapshot(session).await;
        assert_eq!((&state["workingDirectories"], &listed), (&json!([THIRD, OTHER]), &json!([THIRD, OTHER])));
        assert_eq!(state["chats"][0]["workingDirectories"], json!([OTHER]));
        assert_eq!(wire.snapshot(&chat).await["workingDirectories"], json!([OTHER]));
        wire.dispatch(&chat, started("t2")).await;
        let mut player = host.stage().player().await.unwrap();
        player.prompt().await.unwrap();
        let opened = &host.stage().openings()[0].working_directories;
        assert_eq!(*opened, [PathBuf::from("/third"), PathBuf::from("/other")]);
    }
}

#[tokio::test]
async fn loaded_chat_drops_directories_that_its_session_lacks() {
    let storage = MemoryStorage::new();
    let options = StageOptions {
        stage: Stage::new(several_directories(FirstDirectory::Peer)),
        storage: Arc::new(storage.clone()),
        ..StageOptions::default()
    };
    let host = StageHost::start(options.clone()).await.unwrap();
    let mut wire = Wire::open(&host, "wire", &["1.0.0"]).await;
    let session = "scripted:/1";
    wire.ask("createSession", json!({"channel": session, "workingDirectories": [DIRECTORY, OTHER]})).await;
    let chat = wire.snapshot(session).await["defaultChat"].as_str().unwrap().to_owned();
    for directory in [DIRECTORY, OTHER] {
        assert_eq!(answer(&mut wire, &chat, chat_set(directory)).await, None);
    }
    host.stop().await;
    // As if the host had crashed after it stored the removal in the session and before it
    // stored the chat.
    let put = storage.log().into_iter().rev().find(|change| matches!(change, Change::PutSession { .. }));
    let Some(Change::PutSession { session: uri, created_at, row, state }) = put else { panic!("not stored") };
    let mut document: Value = serde_json::from_str(state.get()).unwrap();
    document["workingDirectories"] = json!([DIRECTORY]);
    let state = serde_json::value::to_raw_value(&document).unwrap().into();
    storage.write(vec![Change::PutSession { session: uri, created_at, row, state }]).await.unwrap();
    let host = StageHost::start(options).await.unwrap();
    let mut wire = Wire::open(&host, "wire", &["1.0.0"]).await;
    assert_eq!(wire.snapshot(&chat).await["workingDirectories"], json!([DIRECTORY]));
    assert_eq!(wire.snapshot(session).await["chats"][0]["workingDirectories"], json!([DIRECTORY]));
}
