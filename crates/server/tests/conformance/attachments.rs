//! Attachments of messages: what clients see of them, and what the agent gets.

use std::sync::Arc;

use ahp_types::commands::ContentEncoding;
use ahp_types::state::{AgentCapabilities, MultipleChatsCapability};
use innkeeper_core::agent::AgentCommand;
use innkeeper_core_fakes::{MemoryStorage, Player, Stage, StageTraits};
use innkeeper_testkit::Observer;
use innkeeper_workspace::uri_of;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::scene::{message, pending, started};
use crate::stage_host::{StageHost, StageOptions};
use crate::wire::Wire;

const SESSION: &str = "scripted:/1";

/// A file that only the client has.
const REMOTE: &str = "vscode-remote://host/w/a.py";

/// A host with one session in a real directory, and a client that serves its own files.
struct World {
    directory: TempDir,
    host: StageHost,
    alice: Observer,
    chat: String,
}

impl World {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let work = directory.path().join("work");
        std::fs::create_dir(&work).unwrap();
        let chats = MultipleChatsCapability::default();
        let capabilities = AgentCapabilities { multiple_chats: Some(chats), ..AgentCapabilities::default() };
        let options = StageOptions {
            stage: Stage::new(StageTraits { capabilities: Some(capabilities), ..StageTraits::default() }),
            storage: Arc::new(MemoryStorage::new()),
            ..StageOptions::default()
        };
        let host = StageHost::start(options).await.unwrap();
        let mut alice = host.observer("alice").await.unwrap();
        alice.serve_files(&[
            (REMOTE, "one\ntwo\nthree\n", ContentEncoding::Utf8),
            ("memory:/shot.png", "iVBORw0KGgo=", ContentEncoding::Base64),
        ]);
        alice.create(SESSION, &[&uri_of(&work)]).await.unwrap();
        let chat = alice.open_session(SESSION).await.unwrap();
        Self { directory, host, alice, chat }
    }

    fn uri(&self, name: &str) -> String {
        uri_of(&self.directory.path().join("work").join(name))
    }

    fn write(&self, name: &str, content: &[u8]) {
        std::fs::write(self.directory.path().join("work").join(name), content).unwrap();
    }

    /// Dispatches an action with attachments. Returns the attachments that clients see.
    async fn send(&mut self, mut action: Value, attachments: Value) -> Value {
        action["message"]["attachments"] = attachments;
        let seq = self.alice.dispatch(&self.chat, action).await.unwrap();
        let answered = |alice: &Observer| !alice.answers("alice", seq).is_empty();
        self.alice.until("the answer", answered).await.unwrap();
        let answer = &self.alice.answers("alice", seq)[0];
        assert_eq!(answer.rejection_reason, None);
        json!(answer.action)["message"]["attachments"].clone()
    }

    /// Starts the first turn with attachments. Returns what clients see, the agent, and what it gets.
    async fn begin(&mut self, attachments: Value) -> (Value, Player, Value) {
        let seen = self.send(started("t1"), attachments).await;
        let mut player = self.host.stage().player().await.unwrap();
        let received = received(&mut player).await;
        (seen, player, received)
    }
}

/// The attachments of the next message to the agent.
async fn received(player: &mut Player) -> Value {
    match player.command().await.unwrap() {
        AgentCommand::Prompt { message, .. } | AgentCommand::Steer { message, .. } => {
            json!(message)["attachments"].clone()
        }
        other => panic!("not a message: {other:?}"),
    }
}

fn resource(uri: &str) -> Value {
    json!({"type": "resource", "label": "it", "uri": uri})
}

fn problem(attachment: &Value) -> &str {
    attachment["_meta"]["innkeeper.attachment"]["problem"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn client_files_reach_the_agent_and_stay_readable() {
    let mut world = World::new().await;
    let range = json!({"start": {"line": 1, "character": 0}, "end": {"line": 1, "character": 2}});
    let mut sent = resource(REMOTE);
    sent["selection"] = json!({ "range": range });
    sent["_meta"] = json!({"kept": 1});
    let shot = resource("memory:/shot.png");
    let (seen, player, received) = world.begin(json!([sent, shot])).await;
    let uri = seen[0]["uri"].as_str().unwrap().to_owned();
    assert!(uri.starts_with("innkeeper-output:/"), "{uri}");
    let source = json!({"kept": 1, "innkeeper.attachment": {"source": REMOTE}});
    let expected = json!({
        "type": "resource", "label": "it", "uri": uri, "contentType": "text/x-python", "sizeHint": 14,
        "selection": {"range": range}, "_meta": source,
    });
    assert_eq!(seen[0], expected);
    assert_eq!(
        received[0],
        json!({
            "type": "embeddedResource", "label": "it", "contentType": "text/x-python",
            "data": "b25lCnR3bwp0aHJlZQo=", "selection": {"range": range}, "_meta": source,
        })
    );
    let image = json!([received[1]["type"], received[1]["contentType"], received[1]["data"]]);
    assert_eq!(image, json!(["embeddedResource", "image/png", "iVBORw0KGgo="]));
    player.complete("t1").await.unwrap();
    world.alice.until_turn_over(&world.chat, "t1").await.unwrap();
    let turn = json!(world.alice.chat(&world.chat).unwrap().turns[0]);
    assert_eq!(turn["responseParts"], json!([]), "nothing is missing");

    // The client and its file are gone.
    let World { host, alice, chat, .. } = world;
    drop(alice);
    let (host, left) = tokio::join!(host.restart(), player.leave_when_told());
    left.unwrap();
    let host = host.unwrap();
    let mut wire = Wire::open(&host, "judge", &["1.0.0"]).await;
    assert_eq!(wire.snapshot(&chat).await["turns"][0]["message"]["attachments"], seen);
    let read = wire.ask("resourceRead", json!({"uri": uri, "encoding": "utf-8"})).await;
    assert_eq!(read["data"], "one\ntwo\nthree\n");
}

#[tokio::test]
async fn queued_and_steering_messages_get_client_files_and_deliver_them_later() {
    let mut world = World::new().await;
    let (_, mut player, _) = world.begin(json!([])).await;
    let seen = world.send(pending("queued", "m1", "later"), json!([resource(REMOTE)])).await;
    let steering = world.send(pending("steering", "s1", "now"), json!([resource(REMOTE)])).await;
    assert!(steering[0]["uri"].as_str().unwrap().starts_with("innkeeper-output:/"));
    assert_eq!(received(&mut player).await[0]["data"], "b25lCnR3bwp0aHJlZQo=");
    player.steered("t1", "s1", "now").await.unwrap();
    // Only the host has the content now.
    world.alice.serve_files(&[]);
    player.complete("t1").await.unwrap();
    let command = received(&mut player).await;
    assert_eq!(command[0]["data"], "b25lCnR3bwp0aHJlZQo=");
    let chat = world.chat.clone();
    let starts = |alice: &Observer| {
        let active = json!(alice.chat(&chat).unwrap().active_turn);
        active["message"]["attachments"] == seen
    };
    world.alice.until("the queued message", starts).await.unwrap();

    // A client may send the attachment again as it sees it, for example in a message that it moves.
    let again = world.send(pending("steering", "s2", "again"), seen.clone()).await;
    assert_eq!(again, seen);
    assert_eq!(received(&mut player).await[0]["data"], "b25lCnR3bwp0aHJlZQo=");
}

#[tokio::test]
async fn first_message_of_a_new_chat_gets_client_files() {
    let mut world = World::new().await;
    let mut first = message("look");
    first["attachments"] = json!([resource("vscode-remote://host/w/none.py"), resource(REMOTE)]);
    // Another client that never serves files.
    let mut wire = Wire::open(&world.host, "alice-2", &["1.0.0"]).await;
    let side = "ahp-chat:/side";
    let params = json!({"channel": SESSION, "chat": side, "initialMessage": first});
    let asked = wire.send_request("createChat", params).await;
    for uri in ["vscode-remote://host/w/none.py", REMOTE] {
        let request = wire.until(|message| message["params"]["uri"] == uri).await;
        assert_eq!(request["method"], "resourceRead");
        let result = json!({"data": "from the second client", "encoding": "utf-8"});
        let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
        wire.send(&answer.to_string()).await;
    }
    assert!(wire.answer(&asked).await.get("error").is_none());
    let mut player = world.host.stage().player().await.unwrap();
    let attachments = received(&mut player).await;
    assert_eq!(attachments[1]["data"], "ZnJvbSB0aGUgc2Vjb25kIGNsaWVudA==");
    world.alice.settle().await.unwrap();
}

#[tokio::test]
async fn unreadable_attachments_are_named_in_the_turn() {
    let mut world = World::new().await;
    world.write("a.txt", b"hello");
    std::fs::create_dir(world.directory.path().join("work/src")).unwrap();
    std::fs::write(world.directory.path().join("secret.png"), b"secret").unwrap();
    let work = world.directory.path().join("work");
    std::os::unix::fs::symlink(world.directory.path().join("secret.png"), work.join("link.png")).unwrap();
    std::fs::File::create(work.join("huge.png")).unwrap().set_len(50 * 1024 * 1024).unwrap();
    let names = ["a.txt", "src", "none.txt", "link.png", "huge.png"];
    let mut attachments: Vec<Value> = names.iter().map(|name| resource(&world.uri(name))).collect();
    attachments.push(resource("vscode-remote://host/w/none.py"));
    let (seen, _player, received) = world.begin(json!(attachments)).await;
    let problems: Vec<&str> = seen.as_array().unwrap().iter().map(problem).collect();
    let expected = [
        "",
        "",
        "it does not exist",
        "it is not in a session's directory or a granted directory",
        "it has 50.0 MB, and the limit is 5.0 MB",
        "the client returned an error: no such file (-32008)",
    ];
    assert_eq!(problems, expected);
    assert_eq!(received, seen, "the agent gets no content");
    assert!(!json!(received).to_string().contains("secret\""));
    let chat = world.chat.clone();
    let parts = |alice: &Observer| json!(alice.chat(&chat).unwrap().active_turn)["responseParts"].clone();
    let told = |alice: &Observer| parts(alice)[0]["kind"] == "systemNotification";
    world.alice.until("the notice", told).await.unwrap();
    let text = parts(&world.alice)[0]["content"].as_str().unwrap().to_owned();
    assert!(text.ends_with(
        "be read:\n- it: it does not exist\n- it: the client returned an error: no such file (-32008)"
    ));
}

#[tokio::test]
async fn message_is_handled_after_reconnect_if_the_client_left_during_the_read() {
    let world = World::new().await;
    let mut action = started("t1");
    action["message"]["attachments"] = json!([resource(REMOTE)]);
    let mut wire = Wire::open(&world.host, "mobile", &["1.0.0"]).await;
    wire.dispatch_as(7, &world.chat, action.clone()).await;
    wire.until(|message| message["method"] == "resourceRead").await;
    drop(wire);
    // The repeated dispatch waits until the first one is dropped.
    let mut wire = Wire::open(&world.host, "mobile", &["1.0.0"]).await;
    wire.snapshot(&world.chat).await;
    wire.dispatch_as(7, &world.chat, action).await;
    let request = wire.until(|message| message["method"] == "resourceRead").await;
    let result = json!({"data": "here", "encoding": "utf-8"});
    wire.send(&json!({"jsonrpc": "2.0", "id": request["id"], "result": result}).to_string()).await;
    assert_eq!(wire.envelope(7).await.get("rejectionReason"), None);
    let mut player = world.host.stage().player().await.unwrap();
    assert_eq!(received(&mut player).await[0]["data"], "aGVyZQ==");
    assert_eq!(wire.actions(&world.chat).iter().filter(|kind| **kind == "chat/turnStarted").count(), 1);
}

#[tokio::test]
async fn attached_chat_reaches_the_agent_as_text_up_to_its_end_turn() {
    let mut world = World::new().await;
    let (_, mut player, _) = world.begin(json!([])).await;
    for (turn, next) in [("t1", Some("t2")), ("t2", None)] {
        player.text(turn, &format!("{turn}-p"), &[&format!("answer of {turn}")]).await.unwrap();
        player.complete(turn).await.unwrap();
        world.alice.until_turn_over(&world.chat, turn).await.unwrap();
        if let Some(next) = next {
            world.send(started(next), json!([])).await;
            received(&mut player).await;
        }
    }
    let attached = |chat: &str, end: Option<&str>| {
        let mut attached = json!({"type": "chat", "label": "earlier", "resource": chat});
        if let Some(end) = end {
            attached["endTurn"] = json!(end);
        }
        attached
    };
    let chat = world.chat.clone();
    let attachments = [attached(&chat, Some("t1")), attached(&chat, None), attached("ahp-chat:/none", None)];
    let seen = world.send(started("t3"), json!(attachments)).await;
    assert_eq!((&seen[0]["endTurn"], &seen[1]["endTurn"]), (&json!("t1"), &json!("t2")));
    let received = received(&mut player).await;
    let text = |index: usize| received[index]["modelRepresentation"].as_str().unwrap().to_owned();
    let both = [text(0).contains("answer of t1"), text(0).contains("answer of t2")];
    assert_eq!((both, received[0]["type"].as_str()), ([true, false], Some("simple")));
    assert!(text(1).contains("answer of t1") && text(1).contains("answer of t2"));
    assert!(text(2).contains("no longer exists"), "{}", text(2));
}
