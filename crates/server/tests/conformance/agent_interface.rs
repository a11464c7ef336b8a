//! The agent interface as clients see it: what agents offer, resume tokens and message
//! links, turns that agents start, and behaviour without a capability.

use ahp_types::state::{MessageKind, SessionModelInfo};
use innkeeper_core::agent::{
    AgentCommand, AgentEvent, AgentFeatures, ConversationSummary, History, MessageLink, RecordedTurn,
    ResumeToken, TurnLink, TurnOutcome,
};
use innkeeper_core::channel::ChannelUri;
use innkeeper_core::ids::TurnId;
use innkeeper_core::storage::Storage as _;
use innkeeper_core_fakes::StageTraits;
use innkeeper_testkit::Observer;
use serde_json::{Value, json};

use crate::room::{ONE, Room, SIDE};
use crate::scene::{Scene, cancelled, message, pending, started};
use crate::stored_host::{SESSION, StoredHost, said_by};
use crate::wire::Wire;

fn model(id: &str) -> SessionModelInfo {
    serde_json::from_value(json!({"id": id, "provider": "scripted", "name": id})).unwrap()
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
        "type": "chat/turnStarted", "turnId": "t1", "startedAt": "2025-11-15T09:00:05.000Z",
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
    player.steered("t1", "s1", "do this instead").await.unwrap();
    kept.alice.until("the steering message is removed", |alice| !queued(alice)).await.unwrap();
    let shown = |alice: &Observer| alice.chat(&kept.chat).is_ok_and(|chat| chat.turns.len() == 2);
    kept.alice.until("the message is shown", shown).await.unwrap();
    let turn = kept.last_turn();
    assert_eq!((&turn["message"]["text"], &turn["state"]), (&json!("do this instead"), &json!("cancelled")));
    assert_eq!(player.waiting_command(), None);
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
