//! Output that is too large for a chat's document: clients can open the chat and read all of
//! it, whatever the agent or a client sends.

use ahp_types::actions::{ChatDeltaAction, StateAction};
use ahp_types::errors::{ahp_error_codes, json_rpc_error_codes};
use ahp_types::state::TurnState;
use innkeeper_core::agent::{AgentEvent, TurnOutcome};
use innkeeper_core::storage::StorageError;
use innkeeper_core_fakes::Player;
use innkeeper_testkit::Observer;
use serde_json::{Value, json};

use crate::room::{ONE, Room, SIDE, host_on};
use crate::wire::Wire;

const MIB: usize = 1024 * 1024;

/// A MiB of text that differs from every other one.
fn mib(number: usize) -> String {
    let line = format!("{number:>7} ü\n");
    let mut text = line.repeat(MIB / line.len() + 1);
    text.truncate(text.floor_char_boundary(MIB));
    text
}

async fn send_text(player: &Player, turn: &str, content: String) {
    let delta = ChatDeltaAction { turn_id: turn.to_owned(), part_id: "p".to_owned(), content, meta: None };
    player.send(AgentEvent::Action(Box::new(StateAction::ChatDelta(delta)))).await.unwrap();
}

/// Reads a resource as text.
async fn read(wire: &mut Wire, uri: &Value) -> String {
    let result = wire.ask("resourceRead", json!({"channel": "ahp-root://", "uri": uri})).await;
    assert_eq!(result["encoding"], "utf-8");
    result["data"].as_str().unwrap().to_owned()
}

/// The URIs of the pages in a turn.
fn pages(turn: &Value) -> Vec<Value> {
    let parts = turn["responseParts"].as_array().unwrap().iter();
    parts.filter(|part| part["kind"] == "contentRef").map(|part| part["uri"].clone()).collect()
}

/// The text of a turn, from its first part and its pages.
async fn whole_text(wire: &mut Wire, turn: &Value) -> String {
    let mut text = turn["responseParts"][0]["content"].as_str().unwrap().to_owned();
    for page in pages(turn) {
        text.push_str(&read(wire, &page).await);
    }
    text
}

fn document(client: &Observer, chat: &str) -> Value {
    json!(client.chat(chat).unwrap())
}

#[tokio::test]
async fn answer_of_80_mb_can_be_opened_and_read_completely() {
    let mut room = Room::new().await;
    let chat = room.chat.clone();
    let player = room.begin(&chat, "t1").await;
    player.text("t1", "p", &[]).await.unwrap();
    for number in 0..80 {
        send_text(&player, "t1", mib(number)).await;
    }
    player.complete("t1").await.unwrap();
    room.alice.until_turn_over(&chat, "t1").await.unwrap();
    let seen = document(&room.alice, &chat);
    assert!(seen.to_string().len() < MIB, "{}", seen.to_string().len());

    let window = json!({"channel": chat, "view": {"turns": 1}});
    let snapshot = room.wire.ask("subscribe", window).await["snapshot"]["state"].clone();
    assert_eq!(snapshot["turns"], seen["turns"]);
    let turn = &snapshot["turns"][0];
    let text: String = (0..80).map(mib).collect();
    let mut rest = text.strip_prefix(turn["responseParts"][0]["content"].as_str().unwrap()).unwrap();
    let parts = turn["responseParts"].as_array().unwrap();
    for (number, part) in parts.iter().filter(|part| part["kind"] == "contentRef").enumerate() {
        let (expected, after) = rest.split_at(usize::try_from(part["sizeHint"].as_u64().unwrap()).unwrap());
        // Reading every page would take long in a debug build.
        if number % 20 == 0 {
            assert!(read(&mut room.wire, &part["uri"]).await == expected, "page {number}");
        }
        rest = after;
    }
    assert_eq!(rest, "");
    let shown = parts.last().unwrap()["content"].as_str().unwrap();
    assert!(shown.contains("bytes of this text are stored separately"));
    assert!(text.ends_with(shown.split_once("\n\n").unwrap().1));
}

#[tokio::test]
async fn published_pages_survive_a_crash_during_the_turn() {
    let mut room = Room::new().await;
    let chat = room.chat.clone();
    let player = room.begin(&chat, "t1").await;
    player.text("t1", "p", &[]).await.unwrap();
    for number in 0..4 {
        send_text(&player, "t1", mib(number)).await;
    }
    let has_pages = |client: &Observer| {
        let turn = json!(client.chat(&chat).unwrap().active_turn);
        !turn.is_null() && pages(&turn).len() == 3
    };
    room.alice.until("three pages", has_pages).await.unwrap();
    let seen = document(&room.alice, &chat)["activeTurn"].clone();
    // A page is stored before it is published, so the crash may happen at any time.
    let next = host_on(&room.storage.after_a_crash()).await;
    let mut wire = Wire::open(&next, "again", &["1.0.0"]).await;
    let expected: String = (0..4).map(mib).collect();
    assert!(expected.starts_with(&whole_text(&mut wire, &seen).await));
}

#[tokio::test]
async fn cancelled_text_is_complete_up_to_the_cancellation() {
    let mut room = Room::new().await;
    let chat = room.chat.clone();
    let player = room.begin(&chat, "t1").await;
    player.text("t1", "p", &[]).await.unwrap();
    send_text(&player, "t1", mib(1)).await;
    let started =
        |client: &Observer| document(client, &chat)["activeTurn"]["responseParts"][0]["content"] != json!("");
    room.alice.until("the text", started).await.unwrap();
    room.alice
        .dispatch(&chat, json!({"type": "chat/turnCancelled", "turnId": "t1", "duration": 1}))
        .await
        .unwrap();
    room.alice.until_turn_over(&chat, "t1").await.unwrap();
    let turn = document(&room.alice, &chat)["turns"][0].clone();
    assert_eq!(turn["state"], "cancelled");
    assert!(whole_text(&mut room.wire, &turn).await == mib(1));
}

#[tokio::test]
async fn large_tool_results_of_agents_and_clients_are_limited() {
    let mut room = Room::new().await;
    let chat = room.chat.clone();
    let mut player = room.begin(&chat, "t1").await;
    let client = json!({"clientId": "wire", "displayName": "W", "tools": []});
    let active = json!({"type": "session/activeClientSet", "activeClient": client});
    let seq = room.wire.dispatch(ONE, active).await;
    assert_eq!(room.wire.envelope(seq).await.get("rejectionReason"), None);
    let output: String = (0..3).map(mib).collect();
    let result = json!({
        "success": true, "pastTenseMessage": "Ran", "content": [{"type": "text", "text": output}],
    });
    player.run("t1", "own").await.unwrap();
    player.ran("t1", "own", json!({"result": result})).await.unwrap();
    player.run_at_client("t1", "theirs", "wire").await.unwrap();
    let runs = |client: &Observer| {
        document(client, &chat)["activeTurn"]["responseParts"][1]["toolCall"]["status"] == "running"
    };
    room.alice.until("the call", runs).await.unwrap();
    let completed = json!({
        "type": "chat/toolCallComplete", "turnId": "t1", "toolCallId": "theirs", "result": result,
    });
    let seq = room.wire.dispatch(&chat, completed).await;
    let echo = room.wire.envelope(seq).await;
    assert_eq!(echo.get("rejectionReason"), None);
    // The agent gets the complete result.
    let told = format!("{:?}", player.command().await.unwrap());
    assert!(told.contains("ToolAnswer") && told.len() > 3 * MIB);
    room.alice.settle().await.unwrap();
    let seen = document(&room.alice, &chat);
    assert!(seen.to_string().len() < MIB);
    for call in [0, 1] {
        let call = &seen["activeTurn"]["responseParts"][call]["toolCall"];
        assert_eq!(call["status"], "completed");
        let content = call["content"].as_array().unwrap();
        assert!(content[0]["text"].as_str().unwrap().contains("bytes omitted"));
        let mut whole = String::new();
        for resource in &content[1..] {
            whole.push_str(&read(&mut room.wire, &resource["uri"]).await);
        }
        assert!(whole == output);
    }
}

#[tokio::test]
async fn resumed_turn_counts_its_earlier_output() {
    let mut room = Room::new().await;
    let chat = room.chat.clone();
    let mut player = room.begin(&chat, "t1").await;
    for number in 0..33 {
        let part = json!({"kind": "markdown", "id": format!("p{number}"), "content": "x".repeat(256 * 1024)});
        player.act(json!({"type": "chat/responsePart", "turnId": "t1", "part": part})).await.unwrap();
    }
    let info = serde_json::from_value(json!({"errorType": "e", "message": "m"})).unwrap();
    player.end("t1", TurnOutcome::Interrupted(info)).await.unwrap();
    room.alice.until_turn_over(&chat, "t1").await.unwrap();
    room.alice.dispatch(&chat, json!({"type": "chat/turnResume", "turnId": "t1"})).await.unwrap();
    assert_eq!(player.prompt().await.unwrap().0, "t1");
    player.text("t1", "more", &[&"x".repeat(20_000)]).await.unwrap();
    player.complete("t1").await.unwrap();
    let over = |client: &Observer| {
        client.chat(&chat).unwrap().turns.last().is_some_and(|turn| turn.state == TurnState::Complete)
    };
    room.alice.until("the end", over).await.unwrap();
    let turn = document(&room.alice, &chat)["turns"][0].clone();
    let parts = turn["responseParts"].as_array().unwrap();
    let more = parts.iter().find(|part| part["id"] == "more").unwrap();
    assert_eq!(more["content"].as_str().unwrap().len(), 8 * 1024);
}

#[tokio::test]
async fn fork_keeps_the_output_of_a_disposed_chat() {
    let mut room = Room::with_side().await;
    let player = room.begin(SIDE, "t1").await;
    player.text("t1", "p", &[&mib(1)]).await.unwrap();
    player.complete("t1").await.unwrap();
    room.alice.until_turn_over(SIDE, "t1").await.unwrap();
    let turn = document(&room.alice, SIDE)["turns"][0].clone();
    let fork = json!({"channel": ONE, "chat": "ahp-chat:/fork", "source": {"kind": "fork", "chat": SIDE, "turnId": "t1"}});
    room.wire.ask("createChat", fork).await;
    let (_, disposed) = tokio::join!(
        async { player.leave_when_told().await.unwrap() },
        room.wire.ask("disposeChat", json!({"channel": SIDE}))
    );
    assert_eq!(disposed, Value::Null);
    assert!(whole_text(&mut room.wire, &turn).await == mib(1));
    room.wire.ask("disposeChat", json!({"channel": "ahp-chat:/fork"})).await;
    let gone = json!({"channel": "ahp-root://", "uri": pages(&turn)[0]});
    assert_eq!(room.wire.refused("resourceRead", gone).await, i64::from(ahp_error_codes::NOT_FOUND));
}

#[tokio::test]
async fn output_is_stored_after_the_disk_was_full() {
    let mut room = Room::new().await;
    let chat = room.chat.clone();
    let player = room.begin(&chat, "t1").await;
    room.storage.fail_writes(Some(StorageError::Full));
    player.text("t1", "p", &[&mib(1)]).await.unwrap();
    player.complete("t1").await.unwrap();
    room.alice.until_turn_over(&chat, "t1").await.unwrap();
    room.storage.fail_writes(None);
    let turn = document(&room.alice, &chat)["turns"][0].clone();
    let page = json!({"channel": "ahp-root://", "uri": pages(&turn)[0]});
    // The host retries after a second.
    while room.wire.request("resourceRead", page.clone()).await.get("error").is_some() {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert!(whole_text(&mut room.wire, &turn).await == mib(1));
}

#[tokio::test]
async fn stored_output_can_only_be_read() {
    let mut room = Room::new().await;
    let chat = room.chat.clone();
    let player = room.begin(&chat, "t1").await;
    player.text("t1", "p", &[&mib(1)]).await.unwrap();
    player.complete("t1").await.unwrap();
    room.alice.until_turn_over(&chat, "t1").await.unwrap();
    let uri = pages(&document(&room.alice, &chat)["turns"][0])[0].clone();
    let known = uri.as_str().unwrap();
    for unknown in [&known.replace("-7", "-8"), "innkeeper-output:/", "innkeeper-output:/../1"] {
        let code = room.wire.refused("resourceRead", json!({"channel": "ahp-root://", "uri": unknown})).await;
        assert_eq!(code, i64::from(ahp_error_codes::NOT_FOUND), "{unknown}");
    }
    let other = "file:///w/a";
    for (method, params) in [
        ("resourceWrite", json!({"uri": uri, "data": "x", "encoding": "utf-8"})),
        ("resourceList", json!({"uri": uri})),
        ("resourceResolve", json!({"uri": uri})),
        ("resourceDelete", json!({"uri": uri})),
        ("resourceMkdir", json!({"uri": uri})),
        ("resourceCopy", json!({"source": uri, "destination": other})),
        ("resourceMove", json!({"source": uri, "destination": other})),
        ("createResourceWatch", json!({"uri": uri})),
    ] {
        let answer = room.wire.request(method, params).await;
        assert_eq!(
            answer["error"]["code"],
            i64::from(json_rpc_error_codes::INVALID_PARAMS),
            "{method}: {answer}"
        );
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains("only file: URIs"), "{method}: {message}");
    }
    assert!(!read(&mut room.wire, &uri).await.is_empty());
}
