//! Conversations that branch from another one, and rewinds: what the agent is told, also
//! after a restart of the host.

use ahp_types::state::ChatOrigin;
use innkeeper_core::agent::{AgentCommand, BranchKind, History};
use serde_json::json;

use crate::room::{ONE, Room, SIDE, TWO, host_on};
use crate::scene::{DIRECTORY, started};

#[tokio::test]
async fn fork_has_the_turns_up_to_its_source_and_is_opened_as_a_branch() {
    let mut room = Room::new().await;
    let main = room.chat.clone();
    let mut player = room.turn(&main, "t1").await;
    for turn in ["t2", "t3"] {
        room.again(&mut player, &main, turn).await;
        player.complete(turn).await.unwrap();
        room.alice.until_turn_over(&main, turn).await.unwrap();
    }
    let source = |chat: &str, turn: &str| json!({"kind": "fork", "chat": chat, "turnId": turn});
    room.alice.create(TWO, &[DIRECTORY]).await.unwrap();
    let elsewhere = room.alice.open_session(TWO).await.unwrap();
    room.alice.dispatch(&main, started("t4")).await.unwrap();
    room.alice
        .until("the turn runs", |alice| alice.chat(&main).is_ok_and(|chat| chat.active_turn.is_some()))
        .await
        .unwrap();
    for source in
        [source(&main, "no"), source(&main, "t4"), source(&elsewhere, "t1"), source("ahp-chat:/no", "t1")]
    {
        let params = json!({"channel": ONE, "chat": SIDE, "source": source});
        assert_eq!(room.wire.refused("createChat", params).await, -32602, "{source}");
    }
    room.create(json!({"source": source(&main, "t2")})).await;
    room.alice.subscribe(SIDE).await.unwrap();
    let (fork, model) = (room.alice.chat(SIDE).unwrap(), room.alice.chat(&main).unwrap());
    assert_eq!(fork.turns, model.turns[..2]);
    assert_eq!(fork.origin, Some(ChatOrigin::Fork { chat: main.clone(), turn_id: "t2".to_owned() }));
    room.agree().await;

    // After a restart the chat is still opened as a branch, until its agent has worked on it.
    let (storage, kept) = (room.storage.clone(), room.alice.chat(SIDE).unwrap().turns.clone());
    drop(player);
    room.host.stop().await;
    for expected in [false, true] {
        let host = host_on(&storage).await;
        let mut alice = host.observer("alice").await.unwrap();
        alice.subscribe(SIDE).await.unwrap();
        assert_eq!(alice.chat(SIDE).unwrap().turns[..2], kept);
        alice.dispatch(SIDE, started(if expected { "t6" } else { "t5" })).await.unwrap();
        let player = host.stage().player().await.unwrap();
        let history = host.stage().openings().last().unwrap().history.clone();
        match &history {
            History::Branch(branch) if !expected => {
                assert_eq!((branch.turn.as_str(), &branch.kind), ("t2", &BranchKind::Fork));
                assert_ne!(branch.conversation, player.conversation);
                player.complete("t5").await.unwrap();
                alice.until_turn_over(SIDE, "t5").await.unwrap();
            }
            History::Resume if expected => {}
            other => panic!("{other:?}"),
        }
        let (left, ()) = tokio::join!(player.leave_when_told(), host.stop());
        left.unwrap();
    }
}

#[tokio::test]
async fn side_chat_passes_a_running_turn_to_its_agent_without_showing_it() {
    let mut room = Room::new().await;
    let main = room.chat.clone();
    let player = room.begin(&main, "t1").await;
    player.text("t1", "p", &["so ", "far"]).await.unwrap();
    room.alice
        .until("the text", |alice| alice.text_so_far(&main).is_ok_and(|text| text == "so far"))
        .await
        .unwrap();
    let selection = json!({"text": " far ", "responsePartId": "p"});
    let source = json!({"kind": "sideChat", "chat": main, "turnId": "t1", "selection": selection});
    let empty = json!({"kind": "sideChat", "chat": main, "turnId": "t1", "selection": {"text": ""}});
    let endless =
        json!({"kind": "sideChat", "chat": main, "turnId": "t1", "selection": {"text": "x".repeat(65_537)}});
    let gone = json!({"kind": "sideChat", "chat": main, "turnId": "no"});
    for source in [empty, endless, gone] {
        let params = json!({"channel": ONE, "chat": SIDE, "source": source});
        assert_eq!(room.wire.refused("createChat", params).await, -32602, "{source}");
    }
    room.create(json!({"source": source})).await;
    player.text("t1", "q", &["more"]).await.unwrap();
    room.alice.subscribe(SIDE).await.unwrap();
    let side = room.alice.chat(SIDE).unwrap();
    assert_eq!(
        json!(side.origin),
        json!({"kind": "sideChat", "chat": main, "turnId": "t1", "selection": selection})
    );
    assert_eq!(side.turns, []);
    room.begin(SIDE, "s1").await;
    let opened = room.host.stage().openings().last().unwrap().history.clone();
    let History::Branch(branch) = opened else { panic!("{opened:?}") };
    let BranchKind::SideChat { selection: Some(selection), running: Some(running) } = branch.kind else {
        panic!()
    };
    assert_eq!((selection.text.as_str(), branch.turn.as_str(), running.id.as_str()), (" far ", "t1", "t1"));
    assert_eq!(json!(running.response_parts)[0]["content"], "so far");
    assert_eq!(running.response_parts.len(), 1, "later output is included");
    assert_eq!(branch.conversation, player.conversation);
    room.agree().await;
}

#[tokio::test]
async fn pending_rewind_survives_a_restart_and_a_crash() {
    let mut room = Room::new().await;
    let main = room.chat.clone();
    let mut player = room.turn(&main, "t1").await;
    room.again(&mut player, &main, "t2").await;
    player.complete("t2").await.unwrap();
    room.alice.until_turn_over(&main, "t2").await.unwrap();
    player.crash().await.unwrap();
    room.alice.dispatch(&main, json!({"type": "chat/truncated", "turnId": "t1"})).await.unwrap();
    room.alice
        .until("the truncation", |alice| alice.chat(&main).is_ok_and(|chat| chat.turns.len() == 1))
        .await
        .unwrap();
    let killed = room.storage.after_a_crash();
    room.host.stop().await;
    for storage in [killed, room.storage] {
        let host = host_on(&storage).await;
        let mut alice = host.observer("alice").await.unwrap();
        alice.subscribe(&main).await.unwrap();
        assert_eq!(alice.chat(&main).unwrap().turns.len(), 1);
        alice.dispatch(&main, started("t3")).await.unwrap();
        let mut player = host.stage().player().await.unwrap();
        let AgentCommand::Rewind { to } = player.command().await.unwrap() else {
            panic!("no rewind before the prompt")
        };
        assert_eq!(to.unwrap().as_str(), "t1");
        player.prompt().await.unwrap();
    }
}

#[tokio::test]
async fn branch_is_opened_as_a_branch_until_its_agent_produces_output() {
    let mut room = Room::new().await;
    let main = room.chat.clone();
    let mut first = room.turn(&main, "t1").await;
    room.create(json!({"source": {"kind": "fork", "chat": main, "turnId": "t1"}})).await;
    room.alice.subscribe(SIDE).await.unwrap();
    // A fork of a branch that no agent has worked on branches from the original conversation.
    let source = json!({"kind": "fork", "chat": SIDE, "turnId": "t1"});
    room.wire.ask("createChat", json!({"channel": ONE, "chat": "ahp-chat:/twice", "source": source})).await;
    room.begin(SIDE, "s1").await;
    room.alice.subscribe("ahp-chat:/twice").await.unwrap();
    room.begin("ahp-chat:/twice", "w1").await;
    for opening in &room.host.stage().openings()[1..] {
        let History::Branch(branch) = &opening.history else { panic!("{opening:?}") };
        assert_eq!(branch.conversation, first.conversation);
    }
    // The end of a turn in another chat stores all chats.
    room.again(&mut first, &main, "t2").await;
    first.complete("t2").await.unwrap();
    room.alice.until_turn_over(&main, "t2").await.unwrap();
    room.alice.dispatch(ONE, json!({"type": "session/titleChanged", "title": "stored"})).await.unwrap();
    room.alice.until("the title", |alice| alice.session(ONE).unwrap().title == "stored").await.unwrap();
    let host = host_on(&room.storage.after_a_crash()).await;
    let alice = host.observer("alice").await.unwrap();
    alice.dispatch(SIDE, started("s2")).await.unwrap();
    host.stage().player().await.unwrap();
    assert!(matches!(host.stage().openings()[0].history, History::Branch(_)));
}

#[tokio::test]
async fn rewind_is_repeated_until_an_agent_produces_output() {
    let mut room = Room::new().await;
    let main = room.chat.clone();
    let mut player = room.turn(&main, "t1").await;
    room.again(&mut player, &main, "t2").await;
    player.complete("t2").await.unwrap();
    room.alice.until_turn_over(&main, "t2").await.unwrap();
    room.alice.dispatch(&main, json!({"type": "chat/truncated", "turnId": "t1"})).await.unwrap();
    assert!(matches!(player.command().await.unwrap(), AgentCommand::Rewind { .. }));
    player.crash().await.unwrap();
    room.alice.dispatch(&main, started("t3")).await.unwrap();
    for turn in ["t3", "t4"] {
        let mut player = room.host.stage().player().await.unwrap();
        let AgentCommand::Rewind { to } = player.command().await.unwrap() else {
            panic!("no rewind before the prompt")
        };
        assert_eq!(to.unwrap().as_str(), "t1");
        assert_eq!(player.prompt().await.unwrap().0, turn);
        player.crash().await.unwrap();
        room.alice.until_turn_over(&main, turn).await.unwrap();
        if turn == "t3" {
            room.alice.dispatch(&main, started("t4")).await.unwrap();
        }
    }
    // An agent that produces output has rewound, so the next one is not told again.
    room.alice.dispatch(&main, started("t5")).await.unwrap();
    let mut player = room.host.stage().player().await.unwrap();
    assert!(matches!(player.command().await.unwrap(), AgentCommand::Rewind { .. }));
    player.prompt().await.unwrap();
    player.text("t5", "p", &["it works"]).await.unwrap();
    room.alice
        .until("the text", |alice| alice.text_so_far(&main).is_ok_and(|text| !text.is_empty()))
        .await
        .unwrap();
    player.crash().await.unwrap();
    room.alice.until_turn_over(&main, "t5").await.unwrap();
    room.begin(&main, "t6").await;
}
