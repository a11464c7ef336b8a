//! The agent interface as clients see it: what agents offer, resume tokens and message
//! links, turns and chats that agents start, and behaviour without a capability.

use std::sync::Arc;

use ahp_types::state::{Message, MessageKind, MessageOrigin, SessionModelInfo};
use innkeeper_core::agent::{
    AgentCommand, AgentEvent, AgentFeatures, ChildChat, ChildId, ConversationSummary, History, MessageLink,
    RecordedTurn, ResumeToken, TurnLink, TurnOutcome,
};
use innkeeper_core::channel::ChannelUri;
use innkeeper_core::ids::TurnId;
use innkeeper_core::storage::Storage as _;
use innkeeper_testkit::{MemoryStorage, Observer, Player, Stage, StageHost, StageOptions, StageTraits};
use serde_json::{Value, json};

use crate::room::{ONE, Room, SIDE};
use crate::scene::{Scene, cancelled, message, pending, started};
use crate::wire::Wire;

const SESSION: &str = "scripted:/1";

/// A host with persistent storage, one session and one client.
struct StoredHost {
    host: StageHost,
    storage: MemoryStorage,
    alice: Observer,
    chat: String,
}

impl StoredHost {
    async fn start(traits: StageTraits) -> Self {
        let storage = MemoryStorage::new();
        let options = StageOptions {
            stage: Stage::new(traits),
            storage: Arc::new(storage.clone()),
            ..StageOptions::default()
        };
        let host = StageHost::start(options).await.unwrap();
        let mut alice = host.observer("alice").await.unwrap();
        alice.create(SESSION, &["file:///w"]).await.unwrap();
        let chat = alice.open_session(SESSION).await.unwrap();
        Self { host, storage, alice, chat }
    }

    async fn restart(self) -> Self {
        let Self { host, storage, alice, chat } = self;
        drop(alice);
        let host = host.restart().await.unwrap();
        let mut alice = host.observer("alice").await.unwrap();
        alice.open_session(SESSION).await.unwrap();
        Self { host, storage, alice, chat }
    }

    /// Starts a turn. Returns the agent that was opened for it.
    async fn begin(&mut self, turn: &str) -> Player {
        self.alice.say(&self.chat, turn, "hello").await.unwrap();
        let mut player = self.host.stage().player().await.unwrap();
        assert_eq!(player.prompt().await.unwrap().0, turn);
        player
    }

    async fn finish(&mut self, player: &Player, turn: &str) {
        player.text(turn, &format!("{turn}-p"), &["answer"]).await.unwrap();
        player.complete(turn).await.unwrap();
        self.alice.until_turn_over(&self.chat, turn).await.unwrap();
    }

    /// The last turn of the chat as the client sees it.
    fn last_turn(&self) -> Value {
        json!(self.alice.chat(&self.chat).unwrap().turns.last())
    }

    /// Waits until these links are stored, which takes up to 100 ms.
    async fn wait_for_links(&self, wanted: &[(String, TurnLink)]) {
        while self.links().await != wanted {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    async fn links(&self) -> Vec<(String, TurnLink)> {
        let session = self.storage.load_session(ChannelUri::new(SESSION)).await.unwrap().unwrap();
        let mut links = session.chats[0].links.clone();
        links.sort_by(|one, other| one.0.cmp(&other.0));
        links
    }
}

fn model(id: &str) -> SessionModelInfo {
    serde_json::from_value(json!({"id": id, "provider": "scripted", "name": id})).unwrap()
}

fn said_by(kind: MessageKind, text: &str) -> Message {
    Message {
        text: text.to_owned(),
        origin: MessageOrigin { kind },
        attachments: None,
        model: None,
        agent: None,
        meta: None,
    }
}

#[tokio::test]
async fn changed_models_reach_a_subscribed_client() {
    let mut kept = StoredHost::start(StageTraits::default()).await;
    assert!(kept.alice.root().unwrap().agents[0].models.is_empty());
    kept.host.stage().change_offer(|offer| offer.info.models = vec![model("new")]);
    let shown =
        |alice: &Observer| alice.root().unwrap().agents[0].models.iter().any(|model| model.id == "new");
    kept.alice.until("the new model", shown).await.unwrap();
    // A change of features is not published to clients.
    let before = kept.alice.last_seq();
    kept.host.stage().change_offer(|offer| offer.features = AgentFeatures::default());
    kept.host.stage().change_offer(|offer| offer.info.models.push(model("newer")));
    let shown = |alice: &Observer| alice.root().unwrap().agents[0].models.len() == 2;
    kept.alice.until("the newer model", shown).await.unwrap();
    assert_eq!(kept.alice.last_seq(), before + 1);
}

#[tokio::test]
async fn resume_token_survives_a_host_restart() {
    let mut kept = StoredHost::start(StageTraits::default()).await;
    let player = kept.begin("t1").await;
    assert_eq!(kept.host.stage().openings()[0].resume_token, None);
    player.send(AgentEvent::ResumeToken(ResumeToken::new("first"))).await.unwrap();
    player.send(AgentEvent::ResumeToken(ResumeToken::new("second"))).await.unwrap();
    kept.finish(&player, "t1").await;
    // The token is also stored if the host crashes.
    let crashed = kept.storage.after_a_crash();
    let session = crashed.load_session(ChannelUri::new(SESSION)).await.unwrap().unwrap();
    assert_eq!(session.chats[0].conversation.resume_token, Some(ResumeToken::new("second")));
    let stop = tokio::join!(kept.restart(), player.leave_when_told());
    let (mut kept, left) = stop;
    left.unwrap();
    let _player = kept.begin("t2").await;
    let opening = kept.host.stage().openings().pop().unwrap();
    assert_eq!(opening.history, History::Resume);
    assert_eq!(opening.resume_token, Some(ResumeToken::new("second")));
}

#[tokio::test]
async fn agent_is_opened_with_the_last_selection_after_a_restart() {
    let mut kept = StoredHost::start(StageTraits::default()).await;
    let chosen = json!({
        "type": "chat/turnStarted", "turnId": "t1", "startedAt": "2026-11-15T09:00:05.000Z",
        "message": {
            "text": "hi", "origin": {"kind": "user"}, "agent": {"uri": "file:///w/.claude/agents/reviewer.md"},
            "model": {"id": "opus", "config": {"thinkingLevel": "high"}},
        },
    });
    kept.alice.dispatch(&kept.chat, chosen.clone()).await.unwrap();
    let mut player = kept.host.stage().player().await.unwrap();
    player.prompt().await.unwrap();
    kept.finish(&player, "t1").await;
    let (mut kept, left) = tokio::join!(kept.restart(), player.leave_when_told());
    left.unwrap();
    let player = kept.begin("t2").await;
    let openings = kept.host.stage().openings();
    for opening in &openings {
        assert_eq!(json!(opening.selection.model), chosen["message"]["model"]);
    }
    // A message without an agent selects none.
    assert_eq!(json!(openings[0].selection.agent), chosen["message"]["agent"]);
    assert_eq!(openings[1].selection.agent, None);
    kept.finish(&player, "t2").await;
}

#[tokio::test]
async fn child_chat_appears_streams_and_ends() {
    let mut kept = StoredHost::start(StageTraits::default()).await;
    let player = kept.begin("t1").await;
    player.run("t1", "call1").await.unwrap();
    let child = ChildId::of_tool_call("call1");
    let started = ChildChat {
        id: child.clone(),
        title: "Look around".to_owned(),
        turn: TurnId::new("c1"),
        message: said_by(MessageKind::Agent, "look around"),
    };
    player.send(AgentEvent::ChildStarted(Box::new(started))).await.unwrap();
    let chats = |alice: &Observer| alice.session(SESSION).unwrap().chats.len();
    kept.alice.until("the child chat", |alice| chats(alice) == 2).await.unwrap();
    let uri = kept.alice.session(SESSION).unwrap().chats[1].resource.clone();
    assert_eq!(uri, "ahp-chat://subagent/c2NyaXB0ZWQ6LzE/call1");
    kept.alice.subscribe(&uri).await.unwrap();
    let act = |action: Value| {
        let action = serde_json::from_value(action).unwrap();
        player.send(AgentEvent::ChildAction { child: child.clone(), action })
    };
    let part = json!({"kind": "markdown", "id": "p", "content": ""});
    act(json!({"type": "chat/responsePart", "turnId": "c1", "part": part})).await.unwrap();
    act(json!({"type": "chat/delta", "turnId": "c1", "partId": "p", "content": "found it"})).await.unwrap();
    let streamed = |alice: &Observer| alice.text_so_far(&uri).is_ok_and(|text| text == "found it");
    kept.alice.until("the text of the child", streamed).await.unwrap();
    let chat = kept.alice.chat(&uri).unwrap();
    assert_eq!(json!(chat.interactivity), "read-only");
    assert_eq!(json!(chat.origin), json!({"kind": "tool", "chat": kept.chat, "toolCallId": "call1"}));
    // Clients can watch the child chat but not control it.
    let mut wire = Wire::open(&kept.host, "wire", &["1.0.0"]).await;
    for action in [crate::scene::started("x"), cancelled("c1"), pending("queued", "m", "x")] {
        let seq = wire.dispatch(&uri, action.clone()).await;
        assert!(wire.envelope(seq).await["rejectionReason"].is_string(), "{action}");
    }
    let ended = AgentEvent::ChildEnded { child: child.clone(), outcome: TurnOutcome::Completed };
    player.send(ended).await.unwrap();
    kept.alice.until_turn_over(&uri, "c1").await.unwrap();
    act(json!({"type": "chat/delta", "turnId": "c1", "partId": "p", "content": "late"})).await.unwrap();
    kept.finish(&player, "t1").await;
    kept.alice.agrees_with_a_fresh_client(kept.host.address()).await.unwrap();
    let (mut kept, left) = tokio::join!(kept.restart(), player.leave_when_told());
    left.unwrap();
    kept.alice.subscribe(&uri).await.unwrap();
    let turns = json!(kept.alice.chat(&uri).unwrap().turns);
    assert_eq!(turns[0]["responseParts"][0]["content"], "found it");
    assert_eq!(turns[0]["state"], "complete");
}

#[tokio::test]
async fn child_turns_end_with_the_agent_and_cannot_be_resumed() {
    let mut kept = StoredHost::start(StageTraits::default()).await;
    let player = kept.begin("t1").await;
    let started = ChildChat {
        id: ChildId::of_tool_call("call1"),
        title: String::new(),
        turn: TurnId::new("c1"),
        message: said_by(MessageKind::Agent, "look around"),
    };
    player.send(AgentEvent::ChildStarted(Box::new(started))).await.unwrap();
    let chats = |alice: &Observer| alice.session(SESSION).unwrap().chats.len();
    kept.alice.until("the child chat", |alice| chats(alice) == 2).await.unwrap();
    let uri = kept.alice.session(SESSION).unwrap().chats[1].resource.clone();
    kept.alice.subscribe(&uri).await.unwrap();
    player.crash().await.unwrap();
    kept.alice.until_turn_over(&uri, "c1").await.unwrap();
    let turn = json!(kept.alice.chat(&uri).unwrap().turns[0]);
    assert_eq!((&turn["state"], turn["responseParts"][0].get("resumable")), (&json!("error"), None));
    kept.alice.until_turn_over(&kept.chat, "t1").await.unwrap();
    assert_eq!(kept.last_turn()["responseParts"][0]["resumable"], true);
}

#[tokio::test]
async fn turn_started_by_the_agent_is_stored_and_restored() {
    let mut kept = StoredHost::start(StageTraits::default()).await;
    let player = kept.begin("t1").await;
    kept.finish(&player, "t1").await;
    let notice = said_by(MessageKind::SystemNotification, "The build has finished");
    let started = AgentEvent::TurnStarted { turn: TurnId::new("task-1"), message: notice };
    player.send(started).await.unwrap();
    kept.finish(&player, "task-1").await;
    let turn = kept.last_turn();
    assert_eq!(turn["message"]["origin"]["kind"], "systemNotification");
    assert_eq!(turn["responseParts"][0]["content"], "answer");
    let (kept, left) = tokio::join!(kept.restart(), player.leave_when_told());
    left.unwrap();
    assert_eq!(kept.last_turn(), turn);
}

#[tokio::test]
async fn turn_started_by_the_agent_during_a_users_turn_is_shown_in_that_turn() {
    let mut kept = StoredHost::start(StageTraits::default()).await;
    let player = kept.begin("t1").await;
    let message = said_by(MessageKind::SystemNotification, "The build has finished");
    player.send(AgentEvent::TurnStarted { turn: TurnId::new("task-1"), message }).await.unwrap();
    player.text("task-1", "p0", &["built"]).await.unwrap();
    player.end("task-1", TurnOutcome::Completed).await.unwrap();
    player.text("task-1", "p1", &["too late"]).await.unwrap();
    kept.finish(&player, "t1").await;
    let parts = &kept.last_turn()["responseParts"];
    assert_eq!(parts.as_array().unwrap().len(), 2, "{parts}");
    assert_eq!((&parts[0]["content"], &parts[1]["content"]), (&json!("built"), &json!("answer")));
}

#[tokio::test]
async fn configuration_changed_by_the_agent_is_published() {
    let mut kept = StoredHost::start(StageTraits::default()).await;
    let player = kept.begin("t1").await;
    let values = json!({"mode": "bold", "unheardOf": 1}).as_object().unwrap().clone();
    player.send(AgentEvent::ConfigChanged { values: values.into_iter().collect() }).await.unwrap();
    let values = |alice: &Observer| json!(alice.session(SESSION).unwrap().config)["values"].clone();
    kept.alice.until("the new mode", |alice| values(alice)["mode"] == "bold").await.unwrap();
    assert_eq!(values(&kept.alice).get("unheardOf"), None);
}

#[tokio::test]
async fn message_links_of_a_turn_are_stored_and_dropped_with_it() {
    let traits = StageTraits { features: AgentFeatures::ALL, ..StageTraits::default() };
    let mut kept = StoredHost::start(traits).await;
    let mut player = kept.begin("t1").await;
    let link = |turn: &str, link| AgentEvent::MessageLinked { turn: TurnId::new(turn), link };
    player.send(link("t1", MessageLink::Prompt("u1".to_owned()))).await.unwrap();
    player.send(link("t1", MessageLink::Answer("a1".to_owned()))).await.unwrap();
    player.send(link("t1", MessageLink::Answer("a2".to_owned()))).await.unwrap();
    kept.finish(&player, "t1").await;
    kept.alice.say(&kept.chat, "t2", "more").await.unwrap();
    player.prompt().await.unwrap();
    player.send(link("t2", MessageLink::Prompt("u2".to_owned()))).await.unwrap();
    kept.finish(&player, "t2").await;
    let whole = |prompt: &str, answer: Option<&str>| TurnLink {
        prompts: vec![prompt.to_owned()],
        answer: answer.map(str::to_owned),
        by_order: false,
    };
    let (one, two) = (("t1".to_owned(), whole("u1", Some("a2"))), ("t2".to_owned(), whole("u2", None)));
    kept.wait_for_links(&[one.clone(), two]).await;
    kept.alice.dispatch(&kept.chat, json!({"type": "chat/truncated", "turnId": "t1"})).await.unwrap();
    let gone = |alice: &Observer| alice.chat(&kept.chat).is_ok_and(|chat| chat.turns.len() == 1);
    kept.alice.until("the truncation", gone).await.unwrap();
    kept.wait_for_links(&[one]).await;
}

#[tokio::test]
async fn turns_without_links_are_matched_by_order() {
    let mut kept = StoredHost::start(StageTraits::default()).await;
    let player = kept.begin("t1").await;
    player.send(AgentEvent::ResumeToken(ResumeToken::new("own"))).await.unwrap();
    kept.finish(&player, "t1").await;
    assert_eq!(kept.links().await, []);
    let link = TurnLink { prompts: vec!["u1".to_owned()], answer: Some("a1".to_owned()), by_order: false };
    let turn = serde_json::from_value(json!({
        "id": "u1", "message": message("hello"), "responseParts": [], "state": "complete",
    }));
    let summary = ConversationSummary {
        token: ResumeToken::new("own"),
        title: "hello".to_owned(),
        directory: None,
        modified_at: jiff::Timestamp::UNIX_EPOCH,
    };
    let record = RecordedTurn { link: link.clone(), turn: turn.unwrap() };
    kept.host.stage().keep_records(vec![(summary, vec![record])]);
    player.crash().await.unwrap();
    let _player = kept.begin("t2").await;
    // The record is read while the agent is opened.
    kept.wait_for_links(&[("t1".to_owned(), TurnLink { by_order: true, ..link })]).await;
}

/// A conversation with one completed turn whose record is lost, so that the next turn failed.
async fn with_lost_history() -> StoredHost {
    let mut kept = StoredHost::start(StageTraits::default()).await;
    let player = kept.begin("t1").await;
    kept.finish(&player, "t1").await;
    player.crash().await.unwrap();
    kept.host.stage().lose_history("The transcript is gone.");
    kept.alice.say(&kept.chat, "t2", "more").await.unwrap();
    kept.alice.until_turn_over(&kept.chat, "t2").await.unwrap();
    kept
}

/// Resumes the failed turn while the record is still lost and answers the question.
async fn resume_and_answer(kept: &mut StoredHost, answer: Value) {
    kept.host.stage().lose_history("The transcript is gone.");
    kept.alice.dispatch(&kept.chat, json!({"type": "chat/turnResume", "turnId": "t2"})).await.unwrap();
    let chat = kept.chat.clone();
    let asked = |alice: &Observer| !json!(alice.session(SESSION).unwrap().input_needed).is_null();
    kept.alice.until("the question", asked).await.unwrap();
    let request = json!(kept.alice.session(SESSION).unwrap().input_needed)[0]["request"].clone();
    let question = &request["questions"][0];
    let options: Vec<&str> =
        question["options"].as_array().unwrap().iter().map(|option| option["id"].as_str().unwrap()).collect();
    assert_eq!(
        (question["kind"].as_str(), options),
        (Some("single-select"), vec!["rebuild", "fresh", "cancel"])
    );
    let answers = json!({"history": {"state": "submitted", "value": {"kind": "selected", "value": answer}}});
    let completed = json!({
        "type": "chat/inputCompleted", "requestId": request["id"], "response": "accept", "answers": answers,
    });
    kept.alice.dispatch(&chat, completed).await.unwrap();
}

#[tokio::test]
async fn lost_history_fails_the_turn_with_the_choices_and_can_be_resumed() {
    let mut kept = with_lost_history().await;
    let part = kept.last_turn()["responseParts"][0].clone();
    assert_eq!(part["resumable"], true);
    let text = part["error"]["message"].as_str().unwrap();
    for choice in ["The transcript is gone.", "Resume", "rebuild", "start fresh", "cancel"] {
        assert!(text.contains(choice), "{text}");
    }
    assert_eq!(kept.host.stage().openings().len(), 2, "an agent was started without the history");
    // If the record is available again, the turn continues.
    kept.alice.dispatch(&kept.chat, json!({"type": "chat/turnResume", "turnId": "t2"})).await.unwrap();
    let mut player = kept.host.stage().player().await.unwrap();
    assert_eq!(player.prompt().await.unwrap(), ("t2".to_owned(), "more".to_owned()));
    assert_eq!(kept.host.stage().openings().pop().unwrap().history, History::Resume);
    kept.finish(&player, "t2").await;
}

#[tokio::test]
async fn lost_history_is_rebuilt_from_the_hosts_record_by_choice() {
    let mut kept = with_lost_history().await;
    resume_and_answer(&mut kept, json!("rebuild")).await;
    let mut player = kept.host.stage().player().await.unwrap();
    assert_eq!(player.prompt().await.unwrap(), ("t2".to_owned(), "more".to_owned()));
    let opening = kept.host.stage().openings().pop().unwrap();
    let History::Rebuild(record) = &opening.history else { panic!("{opening:?}") };
    assert!(record.contains("User: hello") && record.contains("Assistant: answer"), "{record}");
    assert_eq!(opening.resume_token, None);
    kept.finish(&player, "t2").await;
    // The agent has its own record again.
    player.crash().await.unwrap();
    let _player = kept.begin("t3").await;
    assert_eq!(kept.host.stage().openings().pop().unwrap().history, History::Resume);
}

#[tokio::test]
async fn lost_history_is_discarded_or_the_turn_cancelled_by_choice() {
    let mut kept = with_lost_history().await;
    resume_and_answer(&mut kept, json!("cancel")).await;
    kept.alice.until_turn_over(&kept.chat, "t2").await.unwrap();
    assert_eq!(kept.last_turn()["state"], "cancelled");
    assert_eq!(kept.host.stage().asked(), 3);
    let mut kept = with_lost_history().await;
    resume_and_answer(&mut kept, json!("fresh")).await;
    let mut player = kept.host.stage().player().await.unwrap();
    player.prompt().await.unwrap();
    assert_eq!(kept.host.stage().openings().pop().unwrap().history, History::Fresh);
    kept.finish(&player, "t2").await;
    assert_eq!(json!(kept.alice.session(SESSION).unwrap().input_needed), Value::Null);
}

#[tokio::test]
async fn conversation_that_never_answered_starts_fresh_without_a_question() {
    let mut kept = StoredHost::start(StageTraits::default()).await;
    let player = kept.begin("t1").await;
    player.crash().await.unwrap();
    kept.alice.until_turn_over(&kept.chat, "t1").await.unwrap();
    kept.host.stage().lose_history("The transcript is gone.");
    let player = kept.begin("t2").await;
    let histories: Vec<History> =
        kept.host.stage().openings().into_iter().map(|opening| opening.history).collect();
    assert_eq!(histories, [History::Fresh, History::Resume, History::Fresh]);
    kept.finish(&player, "t2").await;
}

#[tokio::test]
async fn question_about_lost_history_is_dropped_by_cancel_and_repeated_after_a_restart() {
    let mut kept = with_lost_history().await;
    kept.host.stage().lose_history("The transcript is gone.");
    let resume = json!({"type": "chat/turnResume", "turnId": "t2"});
    kept.alice.dispatch(&kept.chat, resume.clone()).await.unwrap();
    let asked = |alice: &Observer| !json!(alice.session(SESSION).unwrap().input_needed).is_null();
    kept.alice.until("the question", asked).await.unwrap();
    let mut kept = kept.restart().await;
    assert_eq!(kept.last_turn()["responseParts"].as_array().unwrap().last().unwrap()["resumable"], true);
    resume_and_answer(&mut kept, json!("fresh")).await;
    let mut player = kept.host.stage().player().await.unwrap();
    player.prompt().await.unwrap();
    kept.finish(&player, "t2").await;
    let mut kept = with_lost_history().await;
    kept.host.stage().lose_history("The transcript is gone.");
    kept.alice.dispatch(&kept.chat, resume).await.unwrap();
    kept.alice.until("the question", asked).await.unwrap();
    kept.alice.dispatch(&kept.chat, cancelled("t2")).await.unwrap();
    kept.alice.until_turn_over(&kept.chat, "t2").await.unwrap();
    let player = kept.begin("t3").await;
    kept.finish(&player, "t3").await;
}

#[tokio::test]
async fn steering_without_the_capability_becomes_the_next_message() {
    let traits = StageTraits { features: AgentFeatures::default(), ..StageTraits::default() };
    let mut scene = Scene::with(traits).await;
    let mut player = scene.begin("t1").await;
    scene.chat_accepts(pending("steering", "s1", "do this instead")).await;
    assert_eq!(player.waiting_command(), None);
    player.complete("t1").await.unwrap();
    assert_eq!(player.prompt().await.unwrap().1, "do this instead");
}

#[tokio::test]
async fn actions_without_the_capability_are_rejected_or_not_forwarded() {
    let traits = StageTraits { features: AgentFeatures::default(), ..StageTraits::default() };
    let mut scene = Scene::with(traits).await;
    let tool = json!({"name": "look", "description": "Looks", "inputSchema": {"type": "object"}});
    let active =
        json!({"type": "session/activeClientSet", "activeClient": {"clientId": "wire", "tools": [tool]}});
    scene.session_accepts(active.clone()).await;
    let mut player = scene.begin("t1").await;
    let opening = scene.host.stage().openings().pop().unwrap();
    assert!(opening.client_tools.is_empty(), "client tools were offered to the agent");
    scene.session_accepts(json!({"type": "session/activeClientRemoved", "clientId": "wire"})).await;
    scene.session_accepts(active).await;
    // Without `live_config` no property is mutable.
    let config = json!(scene.alice.session(&scene.session).unwrap().config);
    let mutable = |property: &Value| property.get("sessionMutable").is_some();
    assert!(!config["schema"]["properties"].as_object().unwrap().values().any(mutable), "{config}");
    scene.session_rejects(json!({"type": "session/configChanged", "config": {"mode": "bold"}})).await;
    assert_eq!(player.waiting_command(), None);
    player.complete("t1").await.unwrap();
    scene.until_over("t1").await;
    scene.chat_rejects(json!({"type": "chat/truncated", "turnId": "t1"})).await;
    assert_eq!(player.waiting_command(), None);
}

#[tokio::test]
async fn added_capabilities_apply_from_the_next_opening() {
    let traits = StageTraits { features: AgentFeatures::default(), ..StageTraits::default() };
    let mut scene = Scene::with(traits).await;
    let player = scene.begin("t1").await;
    player.crash().await.unwrap();
    scene.until_over("t1").await;
    scene.host.stage().change_offer(|offer| offer.features = AgentFeatures::ALL);
    scene.chat_accepts(started("t2")).await;
    let mut player = scene.host.stage().player().await.unwrap();
    player.prompt().await.unwrap();
    scene.chat_accepts(pending("steering", "s1", "do this instead")).await;
    assert!(matches!(player.command().await.unwrap(), AgentCommand::Steer { .. }));
}

/// VS Code renames a session on the channel of its chat.
#[tokio::test]
async fn rename_on_the_chat_channel_renames_the_session_of_a_default_chat() {
    let mut kept = StoredHost::start(StageTraits::default()).await;
    let player = kept.begin("t1").await;
    kept.finish(&player, "t1").await;
    let mut wire = Wire::open(&kept.host, "wire", &["0.9.0"]).await;
    wire.snapshot(SESSION).await;
    wire.snapshot(&kept.chat).await;
    let rename = json!({"type": "session/titleChanged", "title": "Better"});
    let seq = wire.dispatch(&kept.chat, rename.clone()).await;
    let echo = wire.envelope(seq).await;
    assert_eq!((&echo["action"], echo["channel"].as_str()), (&rename, Some(kept.chat.as_str())));
    let on_session = |message: &Value| {
        message["params"]["channel"] == SESSION
            && message["params"]["action"]["type"] == "session/titleChanged"
    };
    wire.until(on_session).await;
    let updated = |message: &Value| message["params"]["action"]["changes"]["title"] == "Better";
    wire.until(updated).await;
    let row = |message: &Value| {
        message["method"] == "root/sessionSummaryChanged" && message["params"]["changes"]["title"] == "Better"
    };
    wire.until(row).await;
    // Later snapshots have the new title, also after a restart.
    assert_eq!(wire.snapshot(&kept.chat).await["title"], "Better");
    let (kept, left) = tokio::join!(kept.restart(), player.leave_when_told());
    left.unwrap();
    let mut wire = Wire::open(&kept.host, "wire", &["0.9.0"]).await;
    let (session, chat) = (wire.snapshot(SESSION).await, wire.snapshot(&kept.chat).await);
    assert_eq!((&session["title"], &session["chats"][0]["title"]), (&json!("Better"), &json!("Better")));
    assert_eq!(chat["title"], "Better");
    let long = json!({"type": "session/titleChanged", "title": "x".repeat(2000)});
    let seq = wire.dispatch(&kept.chat, long).await;
    assert!(wire.envelope(seq).await["rejectionReason"].is_string());
}

#[tokio::test]
async fn rename_of_another_chat_renames_only_that_chat() {
    let mut room = Room::with_side().await;
    let mut wire = Wire::open(&room.host, "renames", &["1.0.0"]).await;
    let before = wire.snapshot(ONE).await["title"].clone();
    let seq = wire.dispatch(SIDE, json!({"type": "session/titleChanged", "title": "Side"})).await;
    assert_eq!(wire.envelope(seq).await.get("rejectionReason"), None);
    wire.barrier(SIDE).await;
    let session = wire.snapshot(ONE).await;
    let titles: Vec<&Value> =
        session["chats"].as_array().unwrap().iter().map(|chat| &chat["title"]).collect();
    assert_eq!((&session["title"], titles), (&before, vec![&json!(""), &json!("Side")]));
    assert_eq!(wire.snapshot(SIDE).await["title"], "Side");
    room.alice.settle().await.unwrap();
}

#[tokio::test]
async fn forked_chat_keeps_the_message_links_of_its_turns() {
    let mut room = Room::new().await;
    let main = room.chat.clone();
    let player = room.turn(&main, "t1").await;
    let link = MessageLink::Prompt("u1".to_owned());
    player.send(AgentEvent::MessageLinked { turn: TurnId::new("t1"), link }).await.unwrap();
    player.send(AgentEvent::ResumeToken(ResumeToken::new("own"))).await.unwrap();
    player.send(AgentEvent::TitleSuggested { title: "Known".to_owned() }).await.unwrap();
    let named = |alice: &Observer| alice.session(ONE).is_ok_and(|session| session.title == "Known");
    room.alice.until("the last event", named).await.unwrap();
    room.create(json!({"source": {"kind": "fork", "chat": main, "turnId": "t1"}})).await;
    let stored = room.storage.load_session(ChannelUri::new(ONE)).await.unwrap().unwrap();
    let fork = stored.chats.iter().find(|chat| chat.uri.as_str() == SIDE).unwrap();
    assert_eq!((fork.links.len(), &fork.links[0].1.prompts), (1, &vec!["u1".to_owned()]));
    let _player = room.begin(SIDE, "t2").await;
    let opening = room.host.stage().openings().pop().unwrap();
    let History::Branch(branch) = opening.history else { panic!("not a branch: {opening:?}") };
    assert_eq!(branch.link.unwrap().prompts, ["u1"]);
    assert_eq!((branch.resume_token, opening.resume_token), (Some(ResumeToken::new("own")), None));
}

fn child(call: &str, turn: &str) -> AgentEvent {
    AgentEvent::ChildStarted(Box::new(ChildChat {
        id: ChildId::of_tool_call(call),
        title: String::new(),
        turn: TurnId::new(turn),
        message: said_by(MessageKind::Agent, "look around"),
    }))
}

/// Creates a session with a running turn and a subagent. Returns the URI of the child chat.
async fn with_child() -> (StoredHost, Player, String) {
    let mut kept = StoredHost::start(StageTraits::default()).await;
    let player = kept.begin("t1").await;
    player.send(child("call1", "c1")).await.unwrap();
    let chats = |alice: &Observer| alice.session(SESSION).unwrap().chats.len();
    kept.alice.until("the child chat", |alice| chats(alice) == 2).await.unwrap();
    let uri = kept.alice.session(SESSION).unwrap().chats[1].resource.clone();
    kept.alice.subscribe(&uri).await.unwrap();
    (kept, player, uri)
}

#[tokio::test]
async fn answer_in_a_child_chat_reaches_the_parents_agent() {
    let (mut kept, mut player, uri) = with_child().await;
    let request = json!({"id": "q1", "message": "Which one?", "questions": []});
    let asked = serde_json::from_value(json!({"type": "chat/inputRequested", "request": request})).unwrap();
    let event = AgentEvent::ChildAction { child: ChildId::of_tool_call("call1"), action: asked };
    player.send(event).await.unwrap();
    let needed = |alice: &Observer| !json!(alice.session(SESSION).unwrap().input_needed).is_null();
    kept.alice.until("the question", needed).await.unwrap();
    let completed = json!({"type": "chat/inputCompleted", "requestId": "q1", "response": "decline"});
    kept.alice.dispatch(&uri, completed).await.unwrap();
    assert!(
        matches!(player.command().await.unwrap(), AgentCommand::InputAnswer(answer) if answer.request == "q1")
    );
}

#[tokio::test]
async fn failed_subagent_does_not_set_the_status_of_its_session() {
    let (mut kept, player, uri) = with_child().await;
    let error = serde_json::from_value(json!({"errorType": "x", "message": "y"})).unwrap();
    let outcome = TurnOutcome::Failed(error);
    player.send(AgentEvent::ChildEnded { child: ChildId::of_tool_call("call1"), outcome }).await.unwrap();
    kept.alice.until_turn_over(&uri, "c1").await.unwrap();
    kept.finish(&player, "t1").await;
    kept.alice.settle().await.unwrap();
    assert_eq!(kept.alice.chat(&uri).unwrap().status & 2, 2);
    assert_eq!(kept.alice.rows[SESSION].status & 31, 1, "the session is idle");
}

#[tokio::test]
async fn child_chat_is_started_once_and_only_by_its_parent() {
    let (mut kept, player, uri) = with_child().await;
    player.send(child("call1", "c1")).await.unwrap();
    player.send(child("call1", "c2")).await.unwrap();
    player.send(child(&"x".repeat(300), "c3")).await.unwrap();
    kept.finish(&player, "t1").await;
    assert_eq!(kept.alice.session(SESSION).unwrap().chats.len(), 2);
    assert_eq!(kept.alice.chat(&uri).unwrap().active_turn.as_ref().unwrap().id, "c1");
}

#[tokio::test]
async fn finished_child_chats_are_evicted_and_can_be_disposed() {
    let (mut kept, player, uri) = with_child().await;
    let mut wire = Wire::open(&kept.host, "wire", &["1.0.0"]).await;
    assert_eq!(
        wire.refused("disposeChat", json!({"channel": uri})).await,
        -32602,
        "disposed while its turn runs"
    );
    let ended = |call: &str| AgentEvent::ChildEnded {
        child: ChildId::of_tool_call(call),
        outcome: TurnOutcome::Completed,
    };
    player.send(ended("call1")).await.unwrap();
    for number in 0..256 {
        let call = format!("more{number}");
        player.send(child(&call, "c1")).await.unwrap();
        player.send(ended(&call)).await.unwrap();
    }
    kept.finish(&player, "t1").await;
    let chats = &kept.alice.session(SESSION).unwrap().chats;
    assert_eq!(chats.len(), 257);
    assert!(chats.iter().all(|chat| chat.resource != uri), "the oldest child chat was not evicted");
    let last = chats.last().unwrap().resource.clone();
    assert_eq!(wire.ask("disposeChat", json!({"channel": last})).await, Value::Null);
    let gone = |alice: &Observer| alice.session(SESSION).unwrap().chats.len() == 256;
    kept.alice.until("the removal of the disposed chat", gone).await.unwrap();
}

#[tokio::test]
async fn cancel_of_a_turn_cancels_the_agents_turn_in_it() {
    let mut kept = StoredHost::start(StageTraits::default()).await;
    let mut player = kept.begin("t1").await;
    let message = said_by(MessageKind::SystemNotification, "The build has finished");
    player.send(AgentEvent::TurnStarted { turn: TurnId::new("task-1"), message }).await.unwrap();
    player.text("task-1", "p0", &["built"]).await.unwrap();
    let shown = |alice: &Observer| alice.text_so_far(&kept.chat).is_ok_and(|text| text == "built");
    kept.alice.until("the output", shown).await.unwrap();
    kept.alice.dispatch(&kept.chat, cancelled("t1")).await.unwrap();
    for turn in ["t1", "task-1"] {
        assert_eq!(player.command().await.unwrap(), AgentCommand::Cancel { turn: TurnId::new(turn) });
    }
    kept.alice.say(&kept.chat, "t2", "more").await.unwrap();
    player.prompt().await.unwrap();
    player.text("task-1", "p1", &["too late"]).await.unwrap();
    player
        .send(AgentEvent::MessageLinked {
            turn: TurnId::new("task-1"),
            link: MessageLink::Answer("a".to_owned()),
        })
        .await
        .unwrap();
    kept.finish(&player, "t2").await;
    let parts = kept.last_turn()["responseParts"].as_array().unwrap().len();
    assert_eq!((parts, kept.links().await), (1, vec![]), "late output and its ids are dropped");
}

#[tokio::test]
async fn agents_turn_continues_after_the_turn_it_was_shown_in() {
    let mut kept = StoredHost::start(StageTraits::default()).await;
    let player = kept.begin("t1").await;
    let message = said_by(MessageKind::SystemNotification, "The build has finished");
    player.send(AgentEvent::TurnStarted { turn: TurnId::new("task-1"), message }).await.unwrap();
    player.text("task-1", "p0", &["built"]).await.unwrap();
    let link = MessageLink::Answer("a0".to_owned());
    player.send(AgentEvent::MessageLinked { turn: TurnId::new("task-1"), link }).await.unwrap();
    kept.finish(&player, "t1").await;
    player.text("task-1", "p1", &["and tested"]).await.unwrap();
    player.complete("task-1").await.unwrap();
    kept.alice.until_turn_over(&kept.chat, "task-1").await.unwrap();
    let turns = json!(kept.alice.chat(&kept.chat).unwrap().turns);
    assert_eq!(turns[0]["responseParts"][0]["content"], "built");
    assert_eq!(turns[1]["responseParts"][0]["content"], "and tested");
    assert_eq!(turns[1]["message"]["text"], "The build has finished");
    assert_eq!(kept.links().await[0].0, "t1", "the link belongs to the turn that shows the output");
}

#[tokio::test]
async fn agents_own_turn_does_not_release_a_held_queue() {
    let mut kept = StoredHost::start(StageTraits::default()).await;
    let mut player = kept.begin("t1").await;
    kept.alice.dispatch(&kept.chat, pending("queued", "m1", "later")).await.unwrap();
    kept.alice.dispatch(&kept.chat, cancelled("t1")).await.unwrap();
    assert!(matches!(player.command().await.unwrap(), AgentCommand::Cancel { .. }));
    let message = said_by(MessageKind::SystemNotification, "done");
    player.send(AgentEvent::TurnStarted { turn: TurnId::new("task-1"), message }).await.unwrap();
    kept.finish(&player, "task-1").await;
    kept.alice.settle().await.unwrap();
    assert_eq!(player.waiting_command(), None);
    assert!(kept.alice.chat(&kept.chat).unwrap().queued_messages.is_some());
}

#[tokio::test]
async fn steering_message_that_was_taken_just_before_a_cancel_is_not_sent_again() {
    let mut kept = StoredHost::start(StageTraits::default()).await;
    let mut player = kept.begin("t1").await;
    kept.alice.dispatch(&kept.chat, pending("steering", "s1", "do this instead")).await.unwrap();
    assert!(matches!(player.command().await.unwrap(), AgentCommand::Steer { .. }));
    kept.alice.dispatch(&kept.chat, cancelled("t1")).await.unwrap();
    assert!(matches!(player.command().await.unwrap(), AgentCommand::Cancel { .. }));
    let queued = |alice: &Observer| alice.chat(&kept.chat).is_ok_and(|chat| chat.queued_messages.is_some());
    kept.alice.until("the steering message is queued", queued).await.unwrap();
    player.steered("s1").await.unwrap();
    kept.alice.until("the steering message is removed", |alice| !queued(alice)).await.unwrap();
}

#[tokio::test]
async fn queue_that_waits_after_a_truncation_waits_after_a_restart() {
    let traits = StageTraits { features: AgentFeatures::ALL, ..StageTraits::default() };
    let mut kept = StoredHost::start(traits).await;
    let mut player = kept.begin("t1").await;
    kept.finish(&player, "t1").await;
    kept.alice.say(&kept.chat, "t2", "more").await.unwrap();
    player.prompt().await.unwrap();
    kept.alice.dispatch(&kept.chat, pending("queued", "m1", "later")).await.unwrap();
    kept.alice.dispatch(&kept.chat, cancelled("t2")).await.unwrap();
    kept.alice.until_turn_over(&kept.chat, "t2").await.unwrap();
    kept.alice.dispatch(&kept.chat, json!({"type": "chat/truncated", "turnId": "t1"})).await.unwrap();
    let gone = |alice: &Observer| alice.chat(&kept.chat).is_ok_and(|chat| chat.turns.len() == 1);
    kept.alice.until("the truncation", gone).await.unwrap();
    let (kept, left) = tokio::join!(kept.restart(), player.leave_when_told());
    left.unwrap();
    let read = json!({"type": "session/isReadChanged", "isRead": true});
    let mut wire = Wire::open(&kept.host, "wire", &["1.0.0"]).await;
    let seq = wire.dispatch(SESSION, read).await;
    wire.envelope(seq).await;
    wire.barrier(&kept.chat).await;
    assert!(wire.snapshot(&kept.chat).await.get("activeTurn").is_none());
}

#[tokio::test]
async fn first_of_two_answers_about_lost_history_wins() {
    let mut kept = with_lost_history().await;
    kept.host.stage().lose_history("The transcript is gone.");
    kept.alice.dispatch(&kept.chat, pending("queued", "m1", "later")).await.unwrap();
    let queued = |alice: &Observer| {
        alice.chat(&kept.chat).is_ok_and(|chat| chat.turns.len() > 2 || chat.active_turn.is_some())
    };
    // A queued message continues the queue; its turn fails for the same reason.
    kept.alice.until("the queue continues", queued).await.unwrap();
    kept.alice
        .until("the turn fails", |alice| alice.chat(&kept.chat).unwrap().turns.len() == 3)
        .await
        .unwrap();
    let turn = kept.alice.chat(&kept.chat).unwrap().turns[2].id.clone();
    kept.host.stage().lose_history("The transcript is gone.");
    kept.alice.dispatch(&kept.chat, json!({"type": "chat/turnResume", "turnId": turn})).await.unwrap();
    let asked = |alice: &Observer| !json!(alice.session(SESSION).unwrap().input_needed).is_null();
    kept.alice.until("the question", asked).await.unwrap();
    let request = json!(kept.alice.session(SESSION).unwrap().input_needed)[0]["request"]["id"].clone();
    let mut wire = Wire::open(&kept.host, "wire", &["1.0.0"]).await;
    let mut verdicts = Vec::new();
    for choice in ["fresh", "rebuild"] {
        let answers =
            json!({"history": {"state": "submitted", "value": {"kind": "selected", "value": choice}}});
        let completed = json!({
            "type": "chat/inputCompleted", "requestId": request, "response": "accept", "answers": answers,
        });
        let seq = wire.dispatch(&kept.chat, completed).await;
        verdicts.push(wire.envelope(seq).await.get("rejectionReason").is_none());
    }
    assert_eq!(verdicts, [true, false]);
    let mut player = kept.host.stage().player().await.unwrap();
    player.prompt().await.unwrap();
    assert_eq!(kept.host.stage().openings().pop().unwrap().history, History::Fresh);
}
