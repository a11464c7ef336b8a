//! Tool calls: confirmations, results that need a confirmation, and tools that clients run.

use ahp_types::state::ChatState;
use innkeeper_core::agent::{AgentCommand, Approval, ToolAnswer};
use innkeeper_core::ids::TurnId;
use innkeeper_core_fakes::Player;
use serde_json::{Value, json};

use crate::scene::{Scene, cancelled, confirmed, tool_complete};

/// The state of the first tool call in the chat's latest turn.
fn call(chat: &ChatState) -> Value {
    let turns = json!([chat.active_turn, chat.turns.last()]);
    let turn = if turns[0].is_null() { &turns[1] } else { &turns[0] };
    let parts = turn["responseParts"].as_array().unwrap();
    parts.iter().find(|part| part["kind"] == "toolCall").map_or(Value::Null, |part| part["toolCall"].clone())
}

fn status_is(wanted: &str) -> impl Fn(&ChatState) -> bool {
    move |chat| call(chat)["status"] == wanted
}

/// Creates a turn with a call that waits for confirmation. `more` adds fields to the request.
async fn pending_call(more: Value) -> (Scene, Player) {
    let (mut scene, player) = Scene::in_turn("t1").await;
    player.ask_to_run("t1", "k1", more).await.unwrap();
    scene.until("the confirmation request", status_is("pending-confirmation")).await;
    (scene, player)
}

/// The next answer that the agent receives, skipping updates of the client tools.
async fn answer_of(player: &mut Player) -> ToolAnswer {
    let mut command = player.command().await.unwrap();
    while let AgentCommand::ClientTools(_) = command {
        command = player.command().await.unwrap();
    }
    match command {
        AgentCommand::ToolAnswer { turn, tool_call, answer } => {
            assert_eq!((turn, tool_call.as_str()), (TurnId::new("t1"), "k1"));
            answer
        }
        other => panic!("not an answer: {other:?}"),
    }
}

fn result_confirmed(approved: bool) -> Value {
    json!({"type": "chat/toolCallResultConfirmed", "turnId": "t1", "toolCallId": "k1", "approved": approved})
}

fn content_changed() -> Value {
    json!({
        "type": "chat/toolCallContentChanged", "turnId": "t1", "toolCallId": "k1",
        "content": [{"type": "text", "text": "half"}],
    })
}

fn active(client: &str) -> Value {
    json!({
        "type": "session/activeClientSet",
        "activeClient": {"clientId": client, "tools": [{"name": "usages", "inputSchema": {"type": "object"}}]},
    })
}

#[tokio::test]
async fn approved_call_runs_with_the_displayed_input() {
    let (mut scene, mut player) = pending_call(json!({"confirmationTitle": "Run command?"})).await;
    assert_eq!(scene.alice.chat(&scene.chat).unwrap().status, 24);
    scene.chat_accepts(confirmed("t1", "k1")).await;
    let yes = ToolAnswer::Confirmed {
        approval: Approval::Approved,
        input: Some("ls".to_owned()),
        option: None,
        suggestion: None,
        remembered: Vec::new(),
    };
    assert_eq!(answer_of(&mut player).await, yes);
    assert_eq!(scene.alice.chat(&scene.chat).unwrap().status, 8);
    player.ran("t1", "k1", json!({})).await.unwrap();
    scene.until("the call completes", status_is("completed")).await;
}

#[tokio::test]
async fn denied_call_does_not_run_and_the_agent_receives_the_suggestion() {
    let (mut scene, mut player) = pending_call(json!({})).await;
    let mut no = confirmed("t1", "k1");
    no["approved"] = json!(false);
    no["reason"] = json!("denied");
    no["userSuggestion"] = json!({"text": "use find", "origin": {"kind": "user"}});
    let mut echo = no.clone();
    echo["reasonMessage"] = json!("Denied by a client");
    scene.completed(&scene.chat.clone(), no, echo).await;
    let denied = ToolAnswer::Confirmed {
        approval: Approval::Denied,
        input: Some("ls".to_owned()),
        option: None,
        suggestion: Some("use find".to_owned()),
        remembered: Vec::new(),
    };
    assert_eq!(answer_of(&mut player).await, denied);
    assert_eq!(call(scene.alice.chat(&scene.chat).unwrap())["status"], "cancelled");
}

#[tokio::test]
async fn first_confirmation_of_a_call_wins() {
    let (mut scene, mut player) = pending_call(json!({})).await;
    let chat = scene.chat.clone();
    let mut no = confirmed("t1", "k1");
    no["approved"] = json!(false);
    let first = scene.bob.dispatch(&chat, no).await.unwrap();
    scene.bob.until("the echo", |bob| !bob.answers("bob", first).is_empty()).await.unwrap();
    scene.chat_rejects(confirmed("t1", "k1")).await;
    assert!(scene.alice_dispatches(&chat, confirmed("t1", "k1")).await.is_some());
    let ToolAnswer::Confirmed { approval, .. } = answer_of(&mut player).await else {
        panic!("not a confirmation")
    };
    assert_eq!((approval, player.waiting_command()), (Approval::Denied, None));
}

#[tokio::test]
async fn rejects_confirmation_of_a_call_that_is_not_pending() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    scene.chat_rejects(confirmed("t1", "unknown")).await;
    player.run("t1", "k1").await.unwrap();
    scene.until("the call runs", status_is("running")).await;
    scene.chat_rejects(confirmed("t1", "k1")).await;
    scene.chat_rejects(confirmed("t2", "k1")).await;
    player.ran("t1", "k1", json!({})).await.unwrap();
    scene.until("the call completes", status_is("completed")).await;
    scene.chat_rejects(confirmed("t1", "k1")).await;
    player.complete("t1").await.unwrap();
    scene.until_over("t1").await;
    scene.chat_rejects(confirmed("t1", "k1")).await;
    assert_eq!(player.waiting_command(), None);
}

#[tokio::test]
async fn pending_call_of_a_cancelled_turn_is_skipped() {
    let (mut scene, mut player) = pending_call(json!({})).await;
    scene.chat_accepts(cancelled("t1")).await;
    scene.chat_rejects(confirmed("t1", "k1")).await;
    assert_eq!(player.command().await.unwrap(), AgentCommand::Cancel { turn: TurnId::new("t1") });
    assert_eq!(player.waiting_command(), None);
    let call = call(scene.alice.chat(&scene.chat).unwrap());
    assert_eq!((&call["status"], &call["reason"]), (&json!("cancelled"), &json!("skipped")));
}

#[tokio::test]
async fn tool_input_is_edited_only_if_it_is_editable() {
    let (mut scene, mut player) = pending_call(json!({})).await;
    let mut edited = confirmed("t1", "k1");
    edited["editedToolInput"] = json!("ls -l");
    scene.chat_rejects(edited.clone()).await;
    player.ask_to_run("t1", "k2", json!({"editable": true})).await.unwrap();
    let both = |chat: &ChatState| json!(chat.active_turn)["responseParts"][1]["toolCall"]["editable"] == true;
    scene.until("the second confirmation request", both).await;
    edited["toolCallId"] = json!("k2");
    scene.chat_accepts(edited).await;
    let AgentCommand::ToolAnswer { answer: ToolAnswer::Confirmed { input, .. }, .. } =
        player.command().await.unwrap()
    else {
        panic!("not a confirmation")
    };
    assert_eq!(input.as_deref(), Some("ls -l"));
    let parts = json!(scene.alice.chat(&scene.chat).unwrap().active_turn);
    assert_eq!(
        parts["responseParts"][1]["toolCall"]["toolInput"], "ls -l",
        "the edited input is not published"
    );
}

#[tokio::test]
async fn rejects_edit_of_a_tool_input_given_by_reference() {
    let elsewhere = json!({"editable": true, "toolInput": {"uri": "content:/input"}});
    let (mut scene, mut player) = pending_call(elsewhere).await;
    let mut edited = confirmed("t1", "k1");
    edited["editedToolInput"] = json!("ls -l");
    let reason = scene.chat_rejects(edited).await;
    assert!(reason.contains("approve it as it is"), "{reason}");
    assert_eq!(player.waiting_command(), None);
    scene.chat_accepts(confirmed("t1", "k1")).await;
    let ToolAnswer::Confirmed { input, .. } = answer_of(&mut player).await else {
        panic!("not a confirmation")
    };
    assert_eq!(input, None, "the agent already has the input");
}

#[tokio::test]
async fn rejects_confirmation_with_an_unknown_option() {
    let options = json!([
        {"id": "once", "label": "Allow", "kind": "approve"},
        {"id": "session", "label": "Allow in this session", "kind": "approve"},
        {"id": "no", "label": "Deny", "kind": "deny"},
    ]);
    let (mut scene, mut player) = pending_call(json!({"options": options})).await;
    let mut chosen = confirmed("t1", "k1");
    chosen["selectedOptionId"] = json!("always");
    scene.chat_rejects(chosen.clone()).await;
    chosen["selectedOptionId"] = json!("session");
    scene.chat_accepts(chosen).await;
    let ToolAnswer::Confirmed { option, .. } = answer_of(&mut player).await else {
        panic!("not a confirmation")
    };
    assert_eq!(option.as_deref(), Some("session"));
    assert_eq!(call(scene.alice.chat(&scene.chat).unwrap())["selectedOption"]["id"], "session");
}

#[tokio::test]
async fn tool_result_waits_for_its_confirmation() {
    for (approved, status) in [(true, "completed"), (false, "cancelled")] {
        let (mut scene, mut player) = Scene::in_turn("t1").await;
        player.run("t1", "k1").await.unwrap();
        scene.until("the call runs", status_is("running")).await;
        scene.chat_rejects(result_confirmed(approved)).await;
        player.ran("t1", "k1", json!({"requiresResultConfirmation": true})).await.unwrap();
        scene.until("the result waits", status_is("pending-result-confirmation")).await;
        scene.chat_rejects(confirmed("t1", "k1")).await;
        scene.chat_accepts(result_confirmed(approved)).await;
        let wanted = if approved { Approval::Approved } else { Approval::Denied };
        assert_eq!(answer_of(&mut player).await, ToolAnswer::ResultConfirmed(wanted));
        assert_eq!(call(scene.alice.chat(&scene.chat).unwrap())["status"], status);
        scene.chat_rejects(result_confirmed(approved)).await;
    }
}

#[tokio::test]
async fn client_tool_is_completed_only_by_its_client() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    let (session, chat) = (scene.session.clone(), scene.chat.clone());
    assert_eq!(scene.alice_dispatches(&session, active("alice")).await, None);
    assert!(matches!(player.command().await.unwrap(), AgentCommand::ClientTools(_)));
    player.run_at_client("t1", "k1", "alice").await.unwrap();
    scene.until("the call runs", status_is("running")).await;
    assert_eq!(scene.alice.chat(&scene.chat).unwrap().status, 8, "no user input is needed");
    scene.chat_rejects(content_changed()).await;
    scene.chat_rejects(tool_complete("t1", "k1")).await;
    assert_eq!(scene.alice_dispatches(&chat, content_changed()).await, None);
    assert_eq!(player.waiting_command(), None);
    assert_eq!(scene.alice_dispatches(&chat, tool_complete("t1", "k1")).await, None);
    let ToolAnswer::Completed(result) = answer_of(&mut player).await else { panic!("not a result") };
    assert!(result.success);
    assert!(
        scene.alice_dispatches(&chat, tool_complete("t1", "k1")).await.is_some(),
        "a second completion was accepted"
    );
}

#[tokio::test]
async fn client_tool_result_reaches_the_agent_after_its_confirmation() {
    for approved in [true, false] {
        let (mut scene, mut player) = Scene::in_turn("t1").await;
        scene.session_accepts(active("wire")).await;
        assert!(matches!(player.command().await.unwrap(), AgentCommand::ClientTools(_)));
        player.run_at_client("t1", "k1", "wire").await.unwrap();
        scene.until("the call runs", status_is("running")).await;
        let mut complete = tool_complete("t1", "k1");
        complete["requiresResultConfirmation"] = json!(true);
        let result = complete["result"].clone();
        scene.chat_accepts(complete).await;
        assert_eq!(call(scene.alice.chat(&scene.chat).unwrap())["status"], "pending-result-confirmation");
        assert_eq!(player.waiting_command(), None, "the result reached the agent before its confirmation");
        scene.chat_accepts(result_confirmed(approved)).await;
        let expected = if approved {
            ToolAnswer::Completed(serde_json::from_value(result).unwrap())
        } else {
            ToolAnswer::ResultConfirmed(Approval::Denied)
        };
        assert_eq!(answer_of(&mut player).await, expected);
        assert_eq!(player.waiting_command(), None);
    }
}

#[tokio::test]
async fn host_tool_cannot_be_completed_by_a_client() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    scene.chat_rejects(tool_complete("t1", "k1")).await;
    player.run("t1", "k1").await.unwrap();
    scene.until("the call runs", status_is("running")).await;
    scene.chat_rejects(tool_complete("t1", "k1")).await;
    scene.chat_rejects(content_changed()).await;
    assert_eq!(player.waiting_command(), None);
}

#[tokio::test]
async fn client_tool_runs_after_its_confirmation() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    scene.session_accepts(active("wire")).await;
    let contributor = json!({"kind": "client", "clientId": "wire"});
    player
        .act(json!({
            "type": "chat/toolCallStart", "turnId": "t1", "toolCallId": "k1", "toolName": "usages",
            "displayName": "Usages", "contributor": contributor,
        }))
        .await
        .unwrap();
    player
        .act(json!({"type": "chat/toolCallReady", "turnId": "t1", "toolCallId": "k1", "invocationMessage": "x"}))
        .await
        .unwrap();
    scene.until("the confirmation request", status_is("pending-confirmation")).await;
    scene.chat_rejects(tool_complete("t1", "k1")).await;
    scene.chat_accepts(confirmed("t1", "k1")).await;
    answer_of(&mut player).await;
    scene.chat_accepts(tool_complete("t1", "k1")).await;
    answer_of(&mut player).await;
}

/// A client leaves by removing itself, unsubscribing, or reconnecting without the session.
#[tokio::test]
async fn running_client_tool_fails_when_its_client_leaves() {
    for way in ["removed", "unsubscribed", "reconnected"] {
        let (mut scene, mut player) = Scene::in_turn("t1").await;
        let mut guest = crate::wire::Wire::open(&scene.host, "guest", &["1.0.0"]).await;
        guest.snapshot(&scene.session).await;
        let seq = guest.dispatch(&scene.session, active("guest")).await;
        guest.envelope(seq).await;
        player.run_at_client("t1", "k1", "guest").await.unwrap();
        scene.until("the call runs", status_is("running")).await;
        match way {
            "removed" => {
                let remove = json!({"type": "session/activeClientRemoved", "clientId": "guest"});
                guest.dispatch(&scene.session, remove).await;
            }
            "unsubscribed" => guest.notify("unsubscribe", json!({"channel": scene.session})).await,
            _ => {
                drop(guest);
                guest = crate::wire::Wire::connect(&scene.host, "guest").await;
                let params =
                    json!({"clientId": "guest", "lastSeenServerSeq": 0, "subscriptions": [scene.chat]});
                guest.ask("reconnect", params).await;
            }
        }
        scene.until("the call fails", status_is("completed")).await;
        let failed = call(scene.alice.chat(&scene.chat).unwrap());
        assert_eq!(failed["success"], false, "{way}");
        let ToolAnswer::Completed(result) = answer_of(&mut player).await else { panic!("not a result") };
        assert!(!result.success);
        assert!(scene.alice.session(&scene.session).unwrap().active_clients.is_empty(), "{way}");
        guest.settle().await;
    }
}

#[tokio::test]
async fn tool_of_an_inactive_client_fails_immediately() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    player.run_at_client("t1", "k1", "absent").await.unwrap();
    scene.until("the call fails", status_is("completed")).await;
    let ToolAnswer::Completed(result) = answer_of(&mut player).await else { panic!("not a result") };
    assert!(!result.success);
}

#[tokio::test]
async fn reconnect_with_the_session_keeps_the_client_active() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    let mut guest = crate::wire::Wire::open(&scene.host, "guest", &["1.0.0"]).await;
    guest.snapshot(&scene.session).await;
    let seq = guest.dispatch(&scene.session, active("guest")).await;
    guest.envelope(seq).await;
    player.run_at_client("t1", "k1", "guest").await.unwrap();
    scene.until("the call runs", status_is("running")).await;
    drop(guest);
    let mut guest = crate::wire::Wire::connect(&scene.host, "guest").await;
    let params = json!({"clientId": "guest", "lastSeenServerSeq": 0, "subscriptions": [scene.session]});
    guest.ask("reconnect", params).await;
    scene.agree().await;
    assert_eq!(call(scene.alice.chat(&scene.chat).unwrap())["status"], "running");
    guest.dispatch_as(50, &scene.chat, tool_complete("t1", "k1")).await;
    assert_eq!(guest.envelope(50).await.get("rejectionReason"), None);
    answer_of(&mut player).await;
}

#[tokio::test]
async fn call_awaiting_sign_in_can_be_failed_but_not_completed() {
    let (mut scene, player) = Scene::in_turn("t1").await;
    let contributor = json!({"kind": "mcp", "customizationId": "s"});
    let start = json!({
        "type": "chat/toolCallStart", "turnId": "t1", "toolCallId": "k1", "toolName": "x", "displayName": "X",
        "contributor": contributor,
    });
    let ready = json!({
        "type": "chat/toolCallReady", "turnId": "t1", "toolCallId": "k1", "invocationMessage": "x",
        "confirmed": "not-needed",
    });
    let auth = json!({"reason": "required", "resource": {"resource": "https://mcp.example"}});
    let required =
        json!({"type": "chat/toolCallAuthRequired", "turnId": "t1", "toolCallId": "k1", "auth": auth});
    for action in [start, ready, required] {
        player.act(action).await.unwrap();
    }
    let chat = scene.chat.clone();
    // The official types cannot decode such a call from a snapshot, so this reads the action.
    scene.wire.until(|seen| seen["params"]["action"]["type"] == "chat/toolCallAuthRequired").await;
    let seq = scene.wire.dispatch(&chat, tool_complete("t1", "k1")).await;
    assert!(scene.wire.envelope(seq).await["rejectionReason"].is_string());
    let mut failed = tool_complete("t1", "k1");
    failed["result"]["success"] = json!(false);
    let seq = scene.wire.dispatch(&chat, failed).await;
    assert_eq!(scene.wire.envelope(seq).await.get("rejectionReason"), None);
    scene.until("the call fails", status_is("completed")).await;
}
