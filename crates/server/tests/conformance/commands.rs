//! Commands: success, each error, request ids, and fields that real clients omit.

use std::sync::Arc;

use innkeeper_core_fakes::{MemoryStorage, Player};
use serde_json::{Value, json};

use crate::scene::{Scene, started};
use crate::stage_host::{StageHost, StageOptions};
use crate::wire::Wire;

const ROOT: &str = "ahp-root://";

async fn host() -> StageHost {
    StageHost::start(StageOptions::default()).await.unwrap()
}

async fn wire() -> (StageHost, Wire) {
    let host = host().await;
    let wire = Wire::open(&host, "wire", &["1.0.0"]).await;
    (host, wire)
}

fn initialize_params(versions: &[&str]) -> Value {
    json!({"channel": ROOT, "protocolVersions": versions, "clientId": "c1"})
}

#[tokio::test]
async fn response_has_the_id_of_its_request() {
    let (_host, mut wire) = wire().await;
    for id in [json!(0), json!(7), json!(9_007_199_254_740_991_u64), json!("seven"), json!(""), json!(-3)] {
        let answer = wire.request_as(id.clone(), "ping", json!({"channel": ROOT})).await;
        assert_eq!((&answer["id"], answer.get("result")), (&id, Some(&Value::Null)));
        let refused = wire.request_as(id.clone(), "nonsense", json!({})).await;
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&id, &json!(-32601)));
    }
}

#[tokio::test]
async fn only_ping_is_answered_before_the_handshake() {
    let host = host().await;
    let mut wire = Wire::connect(&host, "c1").await;
    assert_eq!(wire.ask("ping", json!({"channel": ROOT})).await, Value::Null);
    for method in ["subscribe", "listSessions", "createSession", "resolveSessionConfig", "nonsense"] {
        assert_eq!(wire.refused(method, json!({"channel": ROOT})).await, -32601, "{method}");
    }
    wire.notify("dispatchAction", json!({"channel": ROOT, "clientSeq": 1, "action": {"type": "x"}})).await;
    assert_eq!(wire.ask("initialize", initialize_params(&["1.0.0"])).await["protocolVersion"], "1.0.0");
}

#[tokio::test]
async fn initialize_returns_snapshots_and_omits_unknown_channels() {
    let host = host().await;
    let mut wire = Wire::connect(&host, "c1").await;
    let mut params = initialize_params(&["1.0.0", "0.9.0"]);
    params["initialSubscriptions"] = json!([ROOT, "scripted:/gone", "ahp-chat:/gone"]);
    params["locale"] = json!("de");
    params["capabilities"] = json!({"mcpApps": {}, "later": {}});
    params["clientInfo"] = json!({"name": "test", "later": 1});
    params["_meta"] = json!({"vscode.telemetryLevel": "off"});
    params["unheardOf"] = json!([1, {"x": null}]);
    let result = wire.ask("initialize", params).await;
    assert_eq!(result["protocolVersion"], "1.0.0");
    assert_eq!(result["serverInfo"]["name"], "innkeeper");
    assert_eq!(result["defaultDirectory"], "file:///home/user");
    assert_eq!(
        result["_meta"]["innkeeper.methods"],
        json!(["innkeeper/audit", "innkeeper/stop", "innkeeper/restartAgent"])
    );
    let snapshots = result["snapshots"].as_array().unwrap();
    assert_eq!(snapshots.len(), 1, "unknown channels are not omitted");
    assert_eq!((&snapshots[0]["resource"], &snapshots[0]["fromSeq"]), (&json!(ROOT), &result["serverSeq"]));
    let root = &snapshots[0]["state"];
    assert_eq!(root["agents"][0]["provider"], "scripted");
    assert_eq!(root["config"], json!({"schema": {"type": "object", "properties": {}}, "values": {}}));
    assert_eq!(root["activeSessions"], 0);
}

#[tokio::test]
async fn second_handshake_is_rejected() {
    let (_host, mut wire) = wire().await;
    assert_eq!(wire.refused("initialize", initialize_params(&["1.0.0"])).await, -32600);
    let again = json!({"clientId": "wire", "lastSeenServerSeq": 0, "subscriptions": []});
    assert_eq!(wire.refused("reconnect", again).await, -32600);
    wire.settle().await;
}

#[tokio::test]
async fn initialize_rejects_invalid_params() {
    let host = host().await;
    let mut wire = Wire::connect(&host, "c1").await;
    let unreadable = [
        json!({"channel": ROOT, "protocolVersions": ["1.0.0"]}),
        json!({"channel": ROOT, "clientId": "c1"}),
        json!({"channel": ROOT, "protocolVersions": ["1.0.0"], "clientId": ""}),
        json!({"channel": ROOT, "protocolVersions": ["1.0.0"], "clientId": 7}),
        json!({"channel": ROOT, "protocolVersions": "1.0.0", "clientId": "c1"}),
        initialize_params(&["1.0"]),
        initialize_params(&["1.0.0", "01.0.0"]),
        initialize_params(&["one"]),
        json!([]),
        json!("text"),
    ];
    for params in unreadable {
        assert_eq!(wire.refused("initialize", params.clone()).await, -32602, "{params}");
    }
    assert_eq!(wire.ask("initialize", initialize_params(&["1.0.0"])).await["protocolVersion"], "1.0.0");
}

#[tokio::test]
async fn unsupported_version_returns_supported_versions_and_closes() {
    let host = host().await;
    for versions in [&["0.8.0", "0.7.0"][..], &["2.0.0"], &[]] {
        let mut wire = Wire::connect(&host, "c1").await;
        let answer = wire.request("initialize", initialize_params(versions)).await;
        assert_eq!(answer["error"]["code"], -32005);
        assert_eq!(answer["error"]["data"]["supportedVersions"], json!(["1.0.0", "0.9.0"]));
        assert_eq!(wire.closed().await, 1002);
    }
}

#[tokio::test]
async fn both_protocol_versions_are_served_at_the_same_time() {
    let host = host().await;
    let offers = [
        (&["1.0.0"][..], "1.0.0"),
        (&["0.9.0"], "0.9.0"),
        (&["0.9.0", "1.0.0"], "1.0.0"),
        (&["0.9.0", "0.7.0", "0.6.0", "0.5.2", "0.5.1"], "0.9.0"),
        (&["1.7.2", "0.9.0"], "1.7.2"),
    ];
    let mut open = Vec::new();
    for (versions, chosen) in offers {
        let mut wire = Wire::connect(&host, "c1").await;
        assert_eq!(
            wire.ask("initialize", initialize_params(versions)).await["protocolVersion"],
            chosen,
            "{versions:?}"
        );
        open.push(wire);
    }
    for wire in &mut open {
        assert!(wire.snapshot(ROOT).await["agents"].is_array());
    }
}

#[tokio::test]
async fn missing_channel_defaults_to_the_root() {
    let (host, mut wire) = wire().await;
    assert_eq!(wire.ask("ping", json!({})).await, Value::Null);
    assert_eq!(wire.ask("listSessions", json!({})).await["items"], json!([]));
    assert!(wire.ask("resolveSessionConfig", json!({})).await["schema"].is_object());
    assert_eq!(wire.ask("subscribe", json!({})).await["snapshot"]["resource"], ROOT);
    drop(wire);
    let mut back = Wire::connect(&host, "wire").await;
    let params = json!({"clientId": "wire", "lastSeenServerSeq": 0, "subscriptions": [ROOT]});
    assert_eq!(back.ask("reconnect", params).await["type"], "replay");
    let without = r#"{"jsonrpc":"2.0","id":"no params","method":"ping"}"#;
    back.send(without).await;
    assert_eq!(back.answer(&json!("no params")).await["result"], Value::Null);
}

#[tokio::test]
async fn unknown_fields_and_meta_are_ignored_in_all_commands() {
    let (_host, mut wire) = wire().await;
    let more = |mut params: Value| {
        params["_meta"] = json!({"vendor.key": {"deep": [1, 2]}});
        params["unheardOf"] = json!({"x": null});
        params
    };
    let session = "scripted:/1";
    wire.ask("createSession", more(json!({"channel": session, "progressToken": "p"}))).await;
    wire.ask("subscribe", more(json!({"channel": session}))).await;
    wire.ask("listSessions", more(json!({"channel": ROOT, "limit": 5}))).await;
    wire.ask("resolveSessionConfig", more(json!({"channel": ROOT, "workingDirectory": "file:///w"}))).await;
    wire.notify("setClientManagedSettingsPermissions", json!({"permissions": {}})).await;
    wire.notify("unsubscribe", more(json!({"channel": session}))).await;
    wire.ask("disposeSession", more(json!({"channel": session}))).await;
}

/// The progress notifications that a client has received.
fn progress(wire: &Wire) -> Vec<&Value> {
    let is_progress = |message: &&Value| message["method"] == "root/progress";
    wire.log.iter().filter(is_progress).map(|message| &message["params"]).collect()
}

#[tokio::test]
async fn creation_with_a_token_reports_progress_to_its_connection_until_the_end() {
    let (host, mut wire) = wire().await;
    let mut other = Wire::open(&host, "other", &["1.0.0"]).await;
    let frames = |token: &str| {
        [
            json!({"channel": ROOT, "progressToken": token, "progress": 0, "total": 1,
                "message": "Creating the session"}),
            json!({"channel": ROOT, "progressToken": token, "progress": 1, "total": 1}),
        ]
    };
    let session = "scripted:/1";
    wire.ask("createSession", json!({"channel": session})).await;
    assert!(progress(&wire).is_empty(), "not requested");
    wire.ask("disposeSession", json!({"channel": session})).await;

    // The answers are received after the notifications.
    wire.ask("createSession", json!({"channel": session, "progressToken": "p1"})).await;
    assert_eq!(progress(&wire), frames("p1").iter().collect::<Vec<_>>());
    wire.log.clear();
    assert_eq!(
        wire.refused("createSession", json!({"channel": session, "progressToken": "p2"})).await,
        -32003
    );
    let unknown = json!({"channel": "scripted:/2", "provider": "missing", "progressToken": "p3"});
    assert_eq!(wire.refused("createSession", unknown).await, -32002);
    let expected = [frames("p2"), frames("p3")].concat();
    assert_eq!(progress(&wire), expected.iter().collect::<Vec<_>>(), "also after a failure");
    wire.log.clear();
    let long = "p".repeat(5000);
    assert_eq!(
        wire.refused("createSession", json!({"channel": "scripted:/2", "progressToken": long})).await,
        -32602
    );
    assert_eq!(
        wire.refused("createSession", json!({"channel": "scripted:/2", "progressToken": 7})).await,
        -32602
    );
    assert!(progress(&wire).is_empty());
    other.ask("ping", json!({})).await;
    assert!(progress(&other).is_empty());
}

#[tokio::test]
async fn subscribe_returns_a_snapshot_and_rejects_unknown_channels() {
    let mut scene = Scene::new().await;
    let wire = &mut scene.wire;
    for channel in [ROOT, &scene.session, &scene.chat] {
        let snapshot = wire.ask("subscribe", json!({"channel": channel})).await["snapshot"].clone();
        assert_eq!(snapshot["resource"], channel);
        assert!(snapshot["fromSeq"].is_u64() && snapshot["state"].is_object());
    }
    for channel in ["scripted:/gone", "ahp-chat:/gone", "ahp-terminal:/x", "no address", ""] {
        assert_eq!(wire.refused("subscribe", json!({"channel": channel})).await, -32008, "{channel}");
    }
    assert_eq!(wire.refused("subscribe", json!({"channel": 7})).await, -32602);
    let state = wire.snapshot(&scene.session).await;
    assert_eq!((&state["lifecycle"], &state["defaultChat"]), (&json!("creating"), &json!(scene.chat)));
    assert_eq!(state["chats"][0]["resource"], json!(scene.chat));
}

#[tokio::test]
async fn unsubscribe_stops_actions_and_second_subscribe_does_not_duplicate_them() {
    let mut scene = Scene::new().await;
    let session = scene.session.clone();
    scene.wire.snapshot(&session).await;
    scene.session_accepts(json!({"type": "session/titleChanged", "title": "heard once"})).await;
    scene.wire.notify("unsubscribe", json!({"channel": session})).await;
    let rename = json!({"type": "session/titleChanged", "title": "not heard"});
    assert_eq!(scene.alice_dispatches(&session, rename).await, None);
    let titles: Vec<&Value> = scene
        .wire
        .envelopes()
        .map(|envelope| &envelope["action"]["title"])
        .filter(|title| title.is_string())
        .collect();
    assert_eq!(titles, ["heard once"]);
    let answer = scene.wire.ask("unsubscribe", json!({"channel": "ahp-chat:/gone"})).await;
    assert_eq!(answer, Value::Null, "a notification sent as a request gets no response");
}

#[tokio::test]
async fn list_is_sorted_by_newest_change_and_paged() {
    let mut scene = Scene::new().await;
    assert_eq!(
        scene.wire.ask("listSessions", json!({"channel": ROOT})).await["items"],
        json!([]),
        "an unused session is listed"
    );
    let _players = start_turns_at(&mut scene, &[9, 11, 10]).await;
    let wire = &mut scene.wire;
    let all = wire.ask("listSessions", json!({"channel": ROOT})).await;
    assert_eq!(session_uris(&all), ["scripted:/11", "scripted:/10", "scripted:/9"]);
    assert_eq!(all.get("nextCursor"), None);
    let row = &all["items"][0];
    assert_eq!(
        (&row["provider"], &row["title"], &row["status"]),
        (&json!("scripted"), &json!("list files"), &json!(8))
    );
    assert_eq!(row["chats"][0]["status"], 8);
    assert!(row["createdAt"].is_string() && row["modifiedAt"].is_string() && row["defaultChat"].is_string());
    let first = wire.ask("listSessions", json!({"channel": ROOT, "limit": 2})).await;
    assert_eq!(session_uris(&first), ["scripted:/11", "scripted:/10"]);
    let rest = json!({"channel": ROOT, "limit": 2, "cursor": first["nextCursor"]});
    let rest = wire.ask("listSessions", rest).await;
    assert_eq!((session_uris(&rest), rest.get("nextCursor")), (vec!["scripted:/9"], None));
    for cursor in
        [json!("elsewhere"), json!("999999"), json!(""), json!("7/"), json!("x/scripted:/9"), json!(7)]
    {
        assert_eq!(wire.refused("listSessions", json!({"cursor": cursor})).await, -32602, "{cursor}");
    }
    for limit in [0, -1] {
        assert_eq!(wire.refused("listSessions", json!({"limit": limit})).await, -32602, "{limit}");
    }
}

#[tokio::test]
async fn changes_between_two_list_pages_hide_or_repeat_no_other_row() {
    let mut scene = Scene::new().await;
    let mut players = start_turns_at(&mut scene, &[9, 10, 11, 12]).await;
    let wire = &mut scene.wire;
    let first = wire.ask("listSessions", json!({"limit": 2})).await;
    assert_eq!(session_uris(&first), ["scripted:/12", "scripted:/11"]);
    // The last row of the page is removed, and a new one is added before all the others.
    let leaving = players.remove(2).leave_when_told();
    let disposing = wire.ask("disposeSession", json!({"channel": "scripted:/11"}));
    tokio::join!(disposing, leaving).1.unwrap();
    let second = wire.ask("listSessions", json!({"limit": 1, "cursor": first["nextCursor"]})).await;
    assert_eq!(session_uris(&second), ["scripted:/10"]);
    let _player = start_turns_at(&mut scene, &[13]).await;
    let third = json!({"limit": 1, "cursor": second["nextCursor"]});
    let third = scene.wire.ask("listSessions", third).await;
    assert_eq!((session_uris(&third), third.get("nextCursor")), (vec!["scripted:/9"], None));
}

/// Starts a turn in a new session at each of these hours. Returns the agents.
async fn start_turns_at(scene: &mut Scene, hours: &[u8]) -> Vec<Player> {
    let mut players = Vec::new();
    for hour in hours {
        let session = format!("scripted:/{hour}");
        scene.alice.create(&session, &[]).await.unwrap();
        let chat = scene.alice.open_session(&session).await.unwrap();
        let mut action = started("t1");
        action["startedAt"] = json!(format!("2025-11-15T{hour:02}:00:00.000Z"));
        scene.alice.dispatch(&chat, action).await.unwrap();
        let mut player = scene.host.stage().player().await.unwrap();
        player.prompt().await.unwrap();
        players.push(player);
    }
    players
}

/// The session URIs of a page of the list.
fn session_uris(answer: &Value) -> Vec<&str> {
    answer["items"].as_array().unwrap().iter().map(|row| row["resource"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn created_session_has_the_requested_settings_and_is_not_listed_before_use() {
    let (host, mut wire) = wire().await;
    let params = json!({
        "channel": "scripted:/1", "provider": "scripted", "workingDirectories": ["file:///w"],
        "config": {"mode": "bold", "fixed": "chosen", "isolation": "folder", "autoApprove": "default"},
        "activeClient": {"clientId": "wire", "tools": [{"name": "usages"}], "displayName": "Wire"},
    });
    assert_eq!(wire.ask("createSession", params).await, Value::Null);
    let state = wire.snapshot("scripted:/1").await;
    assert_eq!(
        state["config"]["values"],
        json!({"mode": "bold", "fixed": "chosen"}),
        "keys outside the schema are dropped"
    );
    assert_eq!(state["activeClients"][0]["tools"][0]["name"], "usages");
    assert_eq!((&state["workingDirectories"], &state["status"]), (&json!(["file:///w"]), &json!(1)));
    assert_eq!((&state["title"], &state["provider"]), (&json!(""), &json!("scripted")));
    assert_eq!(wire.ask("listSessions", json!({})).await["items"], json!([]));
    assert!(host.stage().openings().is_empty(), "an agent was opened");
}

#[tokio::test]
async fn rejects_invalid_session_creation_with_the_matching_code() {
    let (_host, mut wire) = wire().await;
    wire.ask("createSession", json!({"channel": "scripted:/1"})).await;
    let refused = [
        (json!({"channel": "scripted:/1"}), -32003),
        (json!({"channel": "scripted:/2", "provider": "unknown"}), -32002),
        (json!({"channel": "scripted:/2", "workingDirectories": ["file:///a", "file:///b"]}), -32602),
        (json!({"channel": "scripted:/2", "workingDirectories": ["https://example.com/"]}), -32602),
        (json!({"channel": "scripted:/2", "workingDirectories": ["relative"]}), -32602),
        (json!({"channel": "scripted:/2", "workingDirectories": "file:///a"}), -32602),
        (json!({"channel": "scripted:/2", "activeClient": {"clientId": "other", "tools": []}}), -32602),
        (json!({"channel": "scripted:/2", "config": 7}), -32602),
        (json!({"channel": ROOT}), -32602),
        (json!({"channel": "no address"}), -32602),
        (json!({}), -32602),
    ];
    for (params, code) in refused {
        assert_eq!(wire.refused("createSession", params.clone()).await, code, "{params}");
    }
    assert_eq!(
        wire.refused("subscribe", json!({"channel": "scripted:/2"})).await,
        -32008,
        "the rejected session exists"
    );
}

#[tokio::test]
async fn disposed_session_ends_its_agent_and_is_removed_for_all_clients() {
    let (mut scene, player) = Scene::in_turn("t1").await;
    let params = json!({"channel": scene.session});
    let agent = player.leave_when_told();
    let (answer, left) = tokio::join!(scene.wire.ask("disposeSession", params.clone()), agent);
    left.unwrap();
    assert_eq!(answer, Value::Null);
    let removed = scene.wire.log.iter().position(|message| message["method"] == "root/sessionRemoved");
    assert!(removed.is_some(), "the removal follows the response");
    assert_eq!(scene.wire.refused("disposeSession", params).await, -32001);
    assert_eq!(scene.wire.refused("subscribe", json!({"channel": scene.chat})).await, -32008);
    assert_eq!(scene.wire.refused("disposeSession", json!({"channel": "scripted:/never"})).await, -32001);
    assert_eq!(scene.wire.ask("listSessions", json!({})).await["items"], json!([]));
    scene.bob.until("the removal of the row", |bob| bob.rows.is_empty()).await.unwrap();
}

#[tokio::test]
async fn default_chat_cannot_be_disposed_or_moved() {
    let mut scene = Scene::new().await;
    let (session, chat) = (scene.session.clone(), scene.chat.clone());
    let wire = &mut scene.wire;
    assert_eq!(wire.ask("createChat", json!({"channel": session, "chat": chat})).await, Value::Null);
    let refused = [
        ("createChat", json!({"channel": session, "chat": "ahp-chat:/another"}), -32602),
        ("createChat", json!({"channel": "scripted:/gone", "chat": chat}), -32001),
        ("createChat", json!({"channel": session}), -32602),
        ("disposeChat", json!({"channel": chat}), -32602),
        ("disposeChat", json!({"channel": "ahp-chat:/gone"}), -32008),
        ("moveChat", json!({"channel": chat, "destination": {"kind": "newSession"}}), -32602),
        ("moveChat", json!({"channel": "ahp-chat:/gone", "destination": {"kind": "newSession"}}), -32008),
        ("moveChat", json!({"channel": chat}), -32602),
    ];
    for (method, params, code) in refused {
        assert_eq!(wire.refused(method, params.clone()).await, code, "{method} {params}");
    }
    scene.agree().await;
}

#[tokio::test]
async fn stored_session_is_loaded_for_every_command() {
    let options = StageOptions { storage: Arc::new(MemoryStorage::new()), ..StageOptions::default() };
    let host = StageHost::start(options).await.unwrap();
    let mut wire = Wire::open(&host, "wire", &["1.0.0"]).await;
    wire.ask("createSession", json!({"channel": "scripted:/1"})).await;
    let chat = wire.snapshot("scripted:/1").await["defaultChat"].as_str().unwrap().to_owned();
    wire.dispatch(&chat, started("t1")).await;
    let mut player = host.stage().player().await.unwrap();
    player.prompt().await.unwrap();
    let (host, left) = tokio::join!(host.restart(), player.leave_when_told());
    left.unwrap();
    let host = host.unwrap();
    let mut wire = Wire::open(&host, "wire", &["1.0.0"]).await;
    let same = json!({"channel": "scripted:/1", "chat": chat});
    assert_eq!(wire.ask("createChat", same.clone()).await, Value::Null);
    assert_eq!(wire.refused("disposeChat", json!({"channel": chat})).await, -32602);
    assert_eq!(wire.refused("createSession", json!({"channel": "scripted:/1"})).await, -32003);
    assert_eq!(wire.ask("listSessions", json!({})).await["items"].as_array().unwrap().len(), 1);
    assert_eq!(wire.ask("disposeSession", json!({"channel": "scripted:/1"})).await, Value::Null);
    assert_eq!(wire.refused("createChat", same).await, -32001);
}

#[tokio::test]
async fn session_config_schema_is_returned_with_the_effective_values() {
    let (_host, mut wire) = wire().await;
    let burst: Vec<Value> = (0..5).map(|number| json!(format!("r{number}"))).collect();
    for id in &burst {
        let params = json!({"channel": ROOT, "provider": "scripted", "config": {"mode": "bold"}});
        let request = json!({"jsonrpc": "2.0", "id": id, "method": "resolveSessionConfig", "params": params});
        wire.send(&request.to_string()).await;
    }
    for id in &burst {
        let result = wire.answer(id).await["result"].clone();
        assert_eq!(result["values"], json!({"mode": "bold", "fixed": "at first"}));
        assert_eq!(result["schema"]["properties"]["mode"]["sessionMutable"], true);
    }
    assert_eq!(wire.refused("resolveSessionConfig", json!({"provider": "unknown"})).await, -32002);
    assert_eq!(wire.refused("resolveSessionConfig", json!({"config": []})).await, -32602);
}

#[tokio::test]
async fn unsupported_methods_return_method_not_found() {
    let (_host, mut wire) = wire().await;
    let absent = [
        "createTerminal",
        "disposeTerminal",
        "listAutomationTriggerDefinitions",
        "runAutomation",
        "fetchAutomationRuns",
        "shutdown",
        "getNetworkDiagnosticsInfo",
        "vscode/getAgentHostSessionStateFile",
        "_vscodeUpgrade",
        "",
    ];
    for method in absent {
        assert_eq!(wire.refused(method, json!({"channel": ROOT})).await, -32601, "{method}");
    }
}

#[tokio::test]
async fn invalid_message_is_answered_with_a_null_id() {
    let (_host, mut wire) = wire().await;
    for (text, code) in [
        ("{", -32700),
        ("[", -32700),
        ("[]", -32600),
        ("7", -32600),
        (r#"{"jsonrpc":"2.0"}"#, -32600),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, -32600),
        (r#"[1,"ping",{}]"#, -32600),
    ] {
        wire.send(text).await;
        let answer = wire.answer(&Value::Null).await;
        assert_eq!(answer["error"]["code"], code, "{text}");
    }
    wire.send(r#"{"jsonrpc":"2.0","id":99,"result":null}"#).await;
    wire.settle().await;
}
