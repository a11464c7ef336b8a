//! Settings of a session and of the root: titles, flags, drafts, active clients,
//! configuration, customizations.

use std::path::PathBuf;
use std::sync::Arc;

use innkeeper_core::agent::{AgentCommand, AgentEvent, AgentFeatures, ClientTool, McpServerRequest};
use innkeeper_core_fakes::{MemoryStorage, Stage, StageTraits};
use innkeeper_testkit::{CameBack, Observer};
use serde_json::{Value, json};

use crate::scene::{DIRECTORY, Scene, message, pending, started};
use crate::stage_host::{StageHost, StageOptions};

const ROOT: &str = "ahp-root://";

fn rename(title: &str) -> Value {
    json!({"type": "session/titleChanged", "title": title})
}

fn config(values: Value) -> Value {
    json!({"type": "session/configChanged", "config": values})
}

fn values(scene: &Scene) -> Value {
    json!(scene.alice.session(&scene.session).unwrap().config.as_ref().unwrap().values)
}

#[tokio::test]
async fn root_configuration_accepts_any_key_and_merges_or_replaces() {
    let mut scene = Scene::new().await;
    let change = |config: Value| json!({"type": "root/configChanged", "config": config});
    scene.accepted(ROOT, change(json!({"http.proxy": "x", "sandbox": {"on": true}}))).await;
    scene.accepted(ROOT, change(json!({"sandbox": {"on": false}, "nothing": null}))).await;
    let held = |scene: &Scene| json!(scene.bob.root().unwrap().config.as_ref().unwrap().values);
    assert_eq!(held(&scene), json!({"http.proxy": "x", "sandbox": {"on": false}, "nothing": null}));
    let replace = json!({"type": "root/configChanged", "config": {"only": 1}, "replace": true});
    scene.accepted(ROOT, replace).await;
    assert_eq!(held(&scene), json!({"only": 1}));
    scene.rejected(ROOT, json!({"type": "root/configChanged", "config": 7})).await;
    scene.rejected(ROOT, json!({"type": "root/configChanged"})).await;
}

#[tokio::test]
async fn unchanged_root_configuration_is_echoed_to_its_sender_only() {
    let mut scene = Scene::new().await;
    let change = |config: Value| json!({"type": "root/configChanged", "config": config});
    scene.accepted(ROOT, change(json!({"http.proxy": "x", "sandbox": {"on": true}}))).await;
    let replace = json!({"type": "root/configChanged", "replace": true,
        "config": {"sandbox": {"on": true}, "http.proxy": "x"}});
    for unchanged in [change(json!({"http.proxy": "x"})), change(json!({})), replace] {
        scene.echoed_to_sender(ROOT, unchanged).await;
    }
    scene.accepted(ROOT, change(json!({"http.proxy": "y"}))).await;
}

#[tokio::test]
async fn session_title_comes_from_the_first_message_and_then_from_the_agent() {
    let (mut scene, player) = Scene::in_turn("t1").await;
    let title = |scene: &Scene| scene.bob.session(&scene.session).unwrap().title.clone();
    assert_eq!(title(&scene), "list files");
    player.send(AgentEvent::TitleSuggested { title: String::new() }).await.unwrap();
    player.send(AgentEvent::TitleSuggested { title: "Listing the files".to_owned() }).await.unwrap();
    player.send(AgentEvent::TitleSuggested { title: "Another idea".to_owned() }).await.unwrap();
    player.complete("t1").await.unwrap();
    scene.until_over("t1").await;
    assert_eq!(title(&scene), "Listing the files");
}

#[tokio::test]
async fn title_set_by_a_user_is_kept() {
    let mut scene = Scene::new().await;
    scene.session_accepts(rename("Mine")).await;
    let player = scene.begin("t1").await;
    player.send(AgentEvent::TitleSuggested { title: "Not mine".to_owned() }).await.unwrap();
    player.complete("t1").await.unwrap();
    scene.until_over("t1").await;
    assert_eq!(scene.bob.session(&scene.session).unwrap().title, "Mine");
    scene.session_accepts(rename("")).await;
    scene.session_accepts(rename("ünïcode 🎉")).await;
    scene.session_rejects(json!({"type": "session/titleChanged"})).await;
}

#[tokio::test]
async fn length_of_titles_and_ids_is_limited() {
    let mut scene = Scene::new().await;
    let long = "ü".repeat(513);
    let reason = scene.session_rejects(rename(&long)).await;
    assert!(reason.contains("1024"), "{reason}");
    for action in [started(&long), pending("queued", &long, "x")] {
        scene.chat_rejects(action).await;
    }
    let mut ages = started("t1");
    ages["startedAt"] = json!(format!("2025-11-15T09:00:05.000Z[a={}]", "x".repeat(64)));
    scene.chat_rejects(ages).await;
    let player = scene.begin("t1").await;
    player.send(AgentEvent::TitleSuggested { title: "🎉".repeat(500) }).await.unwrap();
    player.act(json!({"type": "chat/activityChanged", "activity": "🎉".repeat(500)})).await.unwrap();
    scene.until("the activity", |chat| chat.activity.is_some()).await;
    let session = scene.bob.session(&scene.session).unwrap();
    let cut = format!("{}…", "🎉".repeat(255));
    assert_eq!((&session.title, session.activity.as_ref()), (&cut, Some(&cut)));
    scene.session_accepts(rename(&"ü".repeat(512))).await;
}

#[tokio::test]
async fn read_flag_is_cleared_by_new_output() {
    let (mut scene, mut player) = Scene::after_turn("t1").await;
    let modified = scene.bob.rows[&scene.session].modified_at.clone();
    scene.session_accepts(json!({"type": "session/isReadChanged", "isRead": true})).await;
    scene.chat_accepts(json!({"type": "chat/isReadChanged", "isRead": true})).await;
    let row = &scene.bob.rows[&scene.session];
    assert_eq!((row.status, &row.modified_at), (33, &modified), "reading changed the row");
    scene.chat_accepts(started("t2")).await;
    player.prompt().await.unwrap();
    assert_eq!(scene.bob.rows[&scene.session].status, 8 | 32, "the user's own message cleared the read flag");
    player.ask("q1", json!([])).await.unwrap();
    scene.until("the question", |chat| chat.status == 24).await;
    assert_eq!(scene.bob.rows[&scene.session].status, 24);
    scene.session_accepts(json!({"type": "session/isReadChanged", "isRead": true})).await;
    player.complete("t2").await.unwrap();
    scene.until_over("t2").await;
    assert_eq!(scene.bob.rows[&scene.session].status, 1, "the output did not clear the read flag");
    scene.session_rejects(json!({"type": "session/isReadChanged", "isRead": "yes"})).await;
    scene.chat_rejects(json!({"type": "chat/isReadChanged"})).await;
}

#[tokio::test]
async fn session_is_archived_and_restored() {
    let (mut scene, _player) = Scene::after_turn("t1").await;
    for (archived, status) in [(true, 65), (false, 1)] {
        scene.session_accepts(json!({"type": "session/isArchivedChanged", "isArchived": archived})).await;
        assert_eq!(scene.bob.rows[&scene.session].status, status);
        scene.chat_accepts(json!({"type": "chat/isArchivedChanged", "isArchived": archived})).await;
        assert_eq!(scene.bob.chat(&scene.chat).unwrap().status, status);
    }
    scene.session_rejects(json!({"type": "session/isArchivedChanged"})).await;
    scene.chat_rejects(json!({"type": "chat/isArchivedChanged", "isArchived": 1})).await;
}

#[tokio::test]
async fn draft_is_shared_by_all_clients() {
    let mut scene = Scene::new().await;
    let mut draft = message("half a thou");
    draft["attachments"] = json!([{"type": "simple", "label": "x", "_meta": {"kept": true}}]);
    scene.chat_accepts(json!({"type": "chat/draftChanged", "draft": draft})).await;
    assert_eq!(json!(scene.bob.chat(&scene.chat).unwrap().draft), draft);
    assert!(scene.bob.rows.is_empty(), "a draft listed the session");
    scene.chat_accepts(json!({"type": "chat/draftChanged"})).await;
    assert_eq!(scene.bob.chat(&scene.chat).unwrap().draft, None);
    scene.chat_rejects(json!({"type": "chat/draftChanged", "draft": "text"})).await;
}

#[tokio::test]
async fn client_can_activate_and_remove_only_itself() {
    let mut scene = Scene::new().await;
    let tools = json!([{"name": "usages", "inputSchema": {"type": "object"}, "_meta": {"kept": 1}}]);
    let active = |client: &str| {
        json!({"type": "session/activeClientSet", "activeClient": {
            "clientId": client, "displayName": "W", "tools": tools, "customizations": [],
        }})
    };
    scene.session_accepts(active("wire")).await;
    scene.session_accepts(active("wire")).await;
    let held = json!(scene.bob.session(&scene.session).unwrap().active_clients);
    assert_eq!(held, json!([active("wire")["activeClient"]]));
    scene.session_rejects(active("alice")).await;
    scene.session_rejects(json!({"type": "session/activeClientRemoved", "clientId": "alice"})).await;
    let session = scene.session.clone();
    assert_eq!(scene.alice_dispatches(&session, active("alice")).await, None);
    assert_eq!(scene.bob.session(&scene.session).unwrap().active_clients.len(), 2);
    scene.session_accepts(json!({"type": "session/activeClientRemoved", "clientId": "wire"})).await;
    let left = json!(scene.bob.session(&scene.session).unwrap().active_clients);
    assert_eq!(left, json!([active("alice")["activeClient"]]));
}

#[tokio::test]
async fn configuration_changes_only_where_the_schema_allows_it() {
    let mut scene = Scene::new().await;
    assert_eq!(values(&scene), json!({"fixed": "at first", "mode": "careful"}));
    scene.session_accepts(config(json!({"mode": "bold", "effort": 3, "loud": true, "names": ["a"]}))).await;
    scene.session_accepts(config(json!({"effort": 4}))).await;
    assert_eq!(
        values(&scene),
        json!({"fixed": "at first", "mode": "bold", "effort": 4, "loud": true, "names": ["a"]})
    );
    scene.session_rejects(config(json!({"fixed": "another"}))).await;
    scene.session_rejects(config(json!({"unknown": 1}))).await;
    scene.session_rejects(config(json!({"mode": "bold", "fixed": "another"}))).await;
    let mut replace = config(json!({"mode": "bold"}));
    replace["replace"] = json!(true);
    scene.session_rejects(replace).await;
}

#[tokio::test]
async fn rejects_configuration_value_of_another_type() {
    let mut scene = Scene::new().await;
    for wrong in [
        json!({"mode": 7}),
        json!({"mode": "reckless"}),
        json!({"mode": null}),
        json!({"effort": 1.5}),
        json!({"effort": "3"}),
        json!({"loud": "yes"}),
        json!({"names": "a"}),
        json!({"names": ["a", 7]}),
        json!({"names": ["a", "b", "c"]}),
    ] {
        scene.session_rejects(config(wrong)).await;
    }
    scene.session_rejects(config(json!([]))).await;
    scene.session_accepts(config(json!({"effort": 2.0}))).await;
}

#[tokio::test]
async fn agent_is_opened_with_the_current_configuration() {
    let mut scene = Scene::new().await;
    scene.session_accepts(config(json!({"mode": "bold"}))).await;
    let _player = scene.begin("t1").await;
    let request = &scene.host.stage().openings()[0];
    assert_eq!(request.config["mode"], "bold");
    assert_eq!(request.working_directories, [PathBuf::from("/w")]);
}

#[tokio::test]
async fn resuming_client_receives_a_schema_that_changed_between_hosts() {
    const SESSION: &str = "scripted:/1";
    let options = StageOptions { storage: Arc::new(MemoryStorage::new()), ..StageOptions::default() };
    let mut host = StageHost::start(options.clone()).await.unwrap();
    let mut alice = host.observer("alice").await.unwrap();
    alice.create(SESSION, &[DIRECTORY]).await.unwrap();
    alice.open_session(SESSION).await.unwrap();
    let features = AgentFeatures { live_config: false, ..StageTraits::default().features };
    let upgraded = Stage::new(StageTraits { features, ..StageTraits::default() });
    // The second host stores the changed schema, so the third one sends no snapshots.
    for (stage, came_back) in [
        (options.stage.clone(), CameBack::Replay),
        (upgraded.clone(), CameBack::Snapshots),
        (upgraded, CameBack::Replay),
    ] {
        host.stop().await;
        host = StageHost::start(StageOptions { stage, ..options.clone() }).await.unwrap();
        alice.reconnect(host.address(), "alice").await.unwrap();
        let mut judge = host.observer("judge").await.unwrap();
        judge.subscribe(SESSION).await.unwrap();
        let config = |client: &Observer| client.session(SESSION).unwrap().config.clone();
        assert_eq!(config(&alice), config(&judge));
        assert_eq!(alice.came_back, Some(came_back));
        // An action after the snapshots shows the next host that they arrived.
        let title = format!("after {came_back:?}");
        alice.dispatch(SESSION, rename(&title)).await.unwrap();
        let is_renamed =
            |alice: &Observer| alice.session(SESSION).is_ok_and(|session| session.title == title);
        alice.until("the new title", is_renamed).await.unwrap();
    }
}

fn activated(client: &str, tools: &[&str]) -> Value {
    let tools: Vec<Value> = tools.iter().map(|name| json!({"name": name})).collect();
    json!({"type": "session/activeClientSet", "activeClient": {"clientId": client, "tools": tools}})
}

/// The client and the name of each tool.
fn named(tools: &[ClientTool]) -> Vec<(&str, &str)> {
    tools.iter().map(|tool| (tool.client.as_str(), tool.tool.name.as_str())).collect()
}

#[tokio::test]
async fn agent_receives_changes_of_configuration_and_client_tools() {
    let mut scene = Scene::new().await;
    let session = scene.session.clone();
    scene.session_accepts(activated("wire", &["usages", "rename"])).await;
    let mut player = scene.begin("t1").await;
    assert_eq!(
        named(&scene.host.stage().openings()[0].client_tools),
        [("wire", "usages"), ("wire", "rename")]
    );
    scene.session_accepts(activated("wire", &["usages", "rename"])).await;
    scene.session_accepts(config(json!({"mode": "careful"}))).await;
    assert_eq!(player.waiting_command(), None, "the agent was told although nothing changed");

    scene.session_accepts(config(json!({"mode": "bold"}))).await;
    let AgentCommand::Config(told) = player.command().await.unwrap() else { panic!("unexpected command") };
    assert_eq!(json!(told), json!({"fixed": "at first", "mode": "bold"}));
    assert_eq!(scene.alice_dispatches(&session, activated("alice", &["usages"])).await, None);
    let AgentCommand::ClientTools(told) = player.command().await.unwrap() else {
        panic!("unexpected command")
    };
    assert_eq!(named(&told), [("wire", "usages"), ("wire", "rename"), ("alice", "usages")]);
    scene.session_accepts(json!({"type": "session/activeClientRemoved", "clientId": "wire"})).await;
    let AgentCommand::ClientTools(told) = player.command().await.unwrap() else {
        panic!("unexpected command")
    };
    assert_eq!(named(&told), [("alice", "usages")]);
    assert_eq!(player.waiting_command(), None);
}

#[tokio::test]
async fn slow_agent_receives_only_the_latest_configuration() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    for effort in 0..100 {
        scene.wire.dispatch(&scene.session.clone(), config(json!({"effort": effort}))).await;
    }
    scene.agree().await;
    assert!(!player.close().is_cancelled());
    let mut told = Vec::new();
    while let Some(command) = player.waiting_command() {
        told.push(command);
    }
    assert!(told.len() < 16, "{}", told.len());
    player.complete("t1").await.unwrap();
    scene.until_over("t1").await;
    let AgentCommand::Config(values) = player.command().await.unwrap() else { panic!("unexpected command") };
    assert_eq!(values["effort"], 99, "the agent did not receive the latest value");
}

#[tokio::test]
async fn changes_during_opening_are_sent_once_the_agent_is_open() {
    let (mut scene, player) = Scene::in_turn("t1").await;
    let offer = json!({"type": "session/customizationsChanged", "customizations": customizations()});
    player.act(offer).await.unwrap();
    player.complete("t1").await.unwrap();
    scene.until_over("t1").await;
    player.crash().await.unwrap();
    scene.session_accepts(disabled("plugin")).await;
    scene.session_accepts(disabled("skill")).await;

    scene.host.stage().hold_openings();
    scene.chat_accepts(started("t2")).await;
    scene.host.stage().opened(2).await.unwrap();
    let mut switched = scene.host.stage().openings()[1].switches.clone();
    switched.sort_by(|one, other| one.id.cmp(&other.id));
    let ids: Vec<&str> = switched.iter().map(|switch| switch.id.as_str()).collect();
    assert_eq!(ids, ["plugin", "skill"], "toggles without an agent were lost");
    assert_eq!(json!(switched[1].enablement), json!([{"kind": "session", "enabled": false}]));
    scene.session_accepts(config(json!({"mode": "bold"}))).await;
    scene.session_accepts(activated("wire", &["usages"])).await;
    scene.session_accepts(disabled("server")).await;
    let on = json!({"type": "session/customizationToggled", "id": "plugin", "enablement": []});
    scene.session_accepts(on).await;

    scene.host.stage().release_openings();
    let mut player = scene.host.stage().player().await.unwrap();
    assert!(matches!(player.command().await.unwrap(), AgentCommand::Config(_)));
    assert!(matches!(player.command().await.unwrap(), AgentCommand::ClientTools(_)));
    let AgentCommand::Toggle(told) = player.command().await.unwrap() else { panic!("unexpected command") };
    let told: Vec<(&str, usize)> =
        told.iter().map(|told| (told.id.as_str(), told.enablement.len())).collect();
    assert_eq!(told, [("server", 1), ("plugin", 0)]);
    player.prompt().await.unwrap();
}

fn disabled(id: &str) -> Value {
    let enablement = json!([{"kind": "session", "enabled": false}]);
    json!({"type": "session/customizationToggled", "id": id, "enablement": enablement})
}

fn customizations() -> Value {
    let skill = json!({"type": "skill", "id": "skill", "uri": "file:///s", "name": "S", "enabled": true});
    let inner = json!({
        "type": "mcpServer", "id": "inner", "uri": "file:///i", "name": "I", "state": {"kind": "stopped"},
    });
    json!([
        {"type": "plugin", "id": "plugin", "uri": "file:///p", "name": "P", "children": [skill, inner]},
        {"type": "mcpServer", "id": "server", "uri": "file:///m", "name": "M",
         "state": {"kind": "starting", "blocking": true}},
    ])
}

#[tokio::test]
async fn customizations_are_toggled_only_if_they_exist() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    scene.session_rejects(disabled("plugin")).await;
    player
        .act(json!({"type": "session/customizationsChanged", "customizations": customizations()}))
        .await
        .unwrap();
    player.text("t1", "p1", &["x"]).await.unwrap();
    scene
        .until("the customizations", |chat| json!(chat.active_turn)["responseParts"][0]["content"] == "x")
        .await;
    for id in ["plugin", "skill", "server", "inner"] {
        scene.session_accepts(disabled(id)).await;
        let AgentCommand::Toggle(told) = player.command().await.unwrap() else {
            panic!("unexpected command")
        };
        assert_eq!((told.len(), told[0].id.as_str(), told[0].enablement.len()), (1, id, 1));
    }
    scene.session_rejects(disabled("unknown")).await;
    assert_eq!(player.waiting_command(), None);
}

#[tokio::test]
async fn mcp_servers_are_started_and_stopped_only_if_they_exist() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    let ask = |kind: &str, id: &str| json!({"type": format!("session/mcpServer{kind}Requested"), "id": id});
    let kinds = [
        ("Background", McpServerRequest::Background),
        ("Start", McpServerRequest::Start),
        ("Stop", McpServerRequest::Stop),
    ];
    for (kind, _) in kinds {
        scene.session_rejects(ask(kind, "server")).await;
    }
    player
        .act(json!({"type": "session/customizationsChanged", "customizations": customizations()}))
        .await
        .unwrap();
    player.text("t1", "p1", &["x"]).await.unwrap();
    scene
        .until("the customizations", |chat| json!(chat.active_turn)["responseParts"][0]["content"] == "x")
        .await;
    for (kind, request) in kinds {
        for id in ["server", "inner"] {
            scene.session_accepts(ask(kind, id)).await;
            let told = AgentCommand::McpServer { id: id.to_owned(), request };
            assert_eq!(player.command().await.unwrap(), told);
        }
        scene.session_rejects(ask(kind, "plugin")).await;
        scene.session_rejects(ask(kind, "unknown")).await;
    }
    let ready = json!({"type": "session/mcpServerStateChanged", "id": "server", "state": {"kind": "ready"}});
    player.act(ready).await.unwrap();
    player.complete("t1").await.unwrap();
    scene.until_over("t1").await;
    let held = json!(scene.bob.session(&scene.session).unwrap().customizations);
    assert_eq!(held[1]["state"]["kind"], "ready");
    player.crash().await.unwrap();
    for (kind, _) in kinds {
        let reason = scene.session_rejects(ask(kind, "server")).await;
        assert!(reason.contains("no agent is running"), "{reason}");
    }
}
