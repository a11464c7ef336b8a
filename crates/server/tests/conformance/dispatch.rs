//! How the host answers each kind of dispatch: the decision table of the protocol.
//!
//! | action | not accepted when | test |
//! |---|---|---|
//! | any action | only hosts may publish it | `host_only_actions_are_rejected_from_clients` |
//! | any action | it is malformed | `malformed_action_is_rejected` |
//! | any action | its type is unknown | `unknown_action_is_rejected` |
//! | any action | it is for another kind of channel | `action_on_the_wrong_channel_is_rejected` |
//! | any action | the channel does not exist (ignored) | `action_for_an_unknown_channel_is_ignored` |
//! | any action | its channel is read-only | `watch_channel_rejects_client_actions` |
//! | any action | its session cannot be loaded | `rejects_action_for_an_unreadable_session_with_the_reason` |
//! | any action | it repeats an earlier dispatch | `repeated_dispatch_is_rejected_if_its_echo_is_not_sent` |
//! | `chat/turnStarted` | a turn is active | `rejects_turn_start_while_a_turn_is_active` |
//! |  | its message is not from a user | `rejects_turn_start_of_non_user_origin` |
//! |  | the chat is read-only or hidden | `rejects_turn_start_in_a_read_only_or_hidden_chat` |
//! |  | its id is already used in the chat | `rejects_turn_start_with_a_used_id` |
//! |  | its time is invalid | `rejects_turn_start_with_an_invalid_time` |
//! | `chat/turnCancelled` | the turn is not running | `rejects_cancellation_of_a_turn_that_is_not_running` |
//! | `chat/turnResume` | a turn is active, the turn is not the last one, or its error is not resumable | `only_the_last_turn_is_resumed_and_only_after_a_resumable_error` |
//! | `chat/toolCallConfirmed` | the call is not pending in the active turn | `rejects_confirmation_of_a_call_that_is_not_pending` |
//! |  | the input is not editable or the option was not offered | `tool_input_is_edited_only_if_it_is_editable` |
//! | `chat/toolCallComplete`, `chat/toolCallContentChanged` | the tool belongs to another client | `client_tool_is_completed_only_by_its_client` |
//! |  | the tool belongs to the host | `host_tool_cannot_be_completed_by_a_client` |
//! |  | the call waits for a sign-in and the result is a success | `call_awaiting_sign_in_can_be_failed_but_not_completed` |
//! | `chat/toolCallResultConfirmed` | the result is not pending | `tool_result_waits_for_its_confirmation` |
//! | `chat/inputAnswerChanged`, `chat/inputCompleted` | the request or question is unknown | `rejects_answer_to_an_unknown_request_or_question` |
//! |  | the answer has another kind than the question | `rejects_answer_of_another_kind_than_its_question` |
//! |  | a required answer is missing | `rejects_acceptance_without_the_required_answers` |
//! | `chat/pendingMessageRemoved` | the message is unknown | `rejects_removal_of_an_unknown_pending_message` |
//! | `chat/truncated` | the turn is unknown, or a turn is active | `truncation_rewinds_the_agent` |
//! |  | the agent cannot rewind | `rejects_truncation_if_the_agent_cannot_rewind` |
//! | `chat/workingDirectorySet` | the session does not have the directory | `chat_directories_are_a_subset_of_the_session_directories` |
//! | `session/workingDirectory*` | the agent supports one directory only | `rejects_directory_changes_for_a_single_directory_agent` |
//! |  | the directory is the primary one and immutable | `immutable_primary_directory_cannot_be_changed` |
//! | `session/activeClient*` | it names another client | `client_can_activate_and_remove_only_itself` |
//! | `session/customizationToggled` | the customization is unknown | `customizations_are_toggled_only_if_they_exist` |
//! | `session/mcpServer*` | the server is unknown | `mcp_servers_are_started_and_stopped_only_if_they_exist` |
//! | `session/configChanged` | the schema does not allow the change | `configuration_changes_only_where_the_schema_allows_it` |
//! |  | the value has another type | `rejects_configuration_value_of_another_type` |
//! | `terminal/*`, `changeset/*`, `annotations/*`, `automation/*`, `automationRun/*` | always: this host does not support them | `rejects_actions_for_unsupported_kinds_of_channels` |
//!
//! The suite checks that the tests in this table exist.

use serde_json::{Value, json};

use crate::scene::{Scene, message, pending, started};
use crate::wire::Wire;

#[tokio::test]
async fn action_for_an_unknown_channel_is_ignored() {
    let mut scene = Scene::new().await;
    let seq = scene.wire.dispatch("ahp-chat:/gone", started("t1")).await;
    scene.agree().await;
    assert_eq!(scene.wire.answers("wire", seq), 0);
}

#[tokio::test]
async fn unknown_action_is_rejected() {
    let mut scene = Scene::new().await;
    for channel in [scene.session.clone(), scene.chat.clone(), "ahp-root://".to_owned()] {
        for action in [
            json!({"type": "chat/unheardOf", "x": 1}),
            json!({"type": ""}),
            json!({"type": 7}),
            json!({"no": "type"}),
            json!([]),
            json!("text"),
            Value::Null,
        ] {
            scene.rejected(&channel, action).await;
        }
    }
}

#[tokio::test]
async fn malformed_action_is_rejected() {
    let mut scene = Scene::new().await;
    let malformed = [
        json!({"type": "chat/turnStarted"}),
        json!({"type": "chat/turnStarted", "turnId": "t1", "startedAt": "2025-11-15T09:00:05.000Z", "message": "x"}),
        json!({"type": "chat/turnCancelled", "turnId": 7, "duration": 1}),
        json!({"type": "chat/pendingMessageSet", "kind": "sometime", "id": "m", "message": message("x")}),
        json!({"type": "chat/toolCallConfirmed", "turnId": "t1", "toolCallId": "k1", "approved": "yes"}),
        json!({"type": "chat/queuedMessagesReordered", "order": "m1"}),
    ];
    for action in malformed {
        scene.chat_rejects(action).await;
    }
    scene.session_rejects(json!({"type": "session/titleChanged", "title": 7})).await;
    scene.session_rejects(json!({"type": "session/isReadChanged"})).await;
    scene.rejected("ahp-root://", json!({"type": "root/configChanged", "config": []})).await;
}

#[tokio::test]
async fn host_only_actions_are_rejected_from_clients() {
    let (mut scene, _player) = Scene::in_turn("t1").await;
    let (chat, session) = (scene.chat.clone(), scene.session.clone());
    let summary = json!({"resource": "ahp-chat:/2", "title": "", "status": 1, "modifiedAt": "2025-11-15T09:00:05.000Z"});
    let part = json!({"kind": "markdown", "id": "p1", "content": "x"});
    let error = json!({"errorType": "x", "message": "x"});
    let call = json!({"turnId": "t1", "toolCallId": "k1"});
    let with = |kind: &str, mut more: Value| {
        more["type"] = json!(kind);
        more
    };
    let of_chat = [
        json!({"type": "chat/responsePart", "turnId": "t1", "part": part}),
        json!({"type": "chat/delta", "turnId": "t1", "partId": "p1", "content": "x"}),
        json!({"type": "chat/reasoning", "turnId": "t1", "partId": "p1", "content": "x"}),
        json!({"type": "chat/usage", "turnId": "t1", "usage": {"inputTokens": 1}}),
        json!({"type": "chat/activityChanged", "activity": "x"}),
        json!({"type": "chat/turnComplete", "turnId": "t1", "duration": 1}),
        json!({"type": "chat/error", "turnId": "t1", "duration": 1, "part": {"kind": "error", "error": error}}),
        json!({"type": "chat/toolCallStart", "turnId": "t1", "toolCallId": "k1", "toolName": "x", "displayName": "x"}),
        with("chat/toolCallDelta", call.clone()),
        json!({"type": "chat/toolCallReady", "turnId": "t1", "toolCallId": "k1", "invocationMessage": "x"}),
        with("chat/toolCallAuthResolved", call),
        json!({"type": "chat/inputRequested", "request": {"id": "q"}}),
        json!({"type": "chat/turnsLoaded", "turns": []}),
        json!({"type": "chat/movableChanged", "movable": true}),
        json!({"type": "chat/changesetsChanged"}),
        json!({"type": "chat/canvasesChanged"}),
        json!({"type": "chat/backgroundWorkRemoved", "id": "x"}),
    ];
    for action in of_chat {
        scene.rejected(&chat, action).await;
    }
    let of_session = [
        json!({"type": "session/ready"}),
        json!({"type": "session/creationFailed", "error": error}),
        json!({"type": "session/chatAdded", "summary": summary}),
        json!({"type": "session/chatRemoved", "chat": chat}),
        json!({"type": "session/chatUpdated", "chat": chat, "changes": {"title": "x"}}),
        json!({"type": "session/chatsReordered", "chats": [chat]}),
        json!({"type": "session/defaultChatChanged"}),
        json!({"type": "session/activityChanged", "activity": "x"}),
        json!({"type": "session/serverToolsChanged", "tools": []}),
        json!({"type": "session/inputNeededRemoved", "id": "x"}),
        json!({"type": "session/customizationsChanged", "customizations": []}),
        json!({"type": "session/customizationRemoved", "id": "x"}),
        json!({"type": "session/mcpServerStateChanged", "id": "x", "state": {"kind": "ready"}}),
        json!({"type": "session/changesetsChanged"}),
        json!({"type": "session/metaChanged"}),
    ];
    for action in of_session {
        scene.rejected(&session, action).await;
    }
    for action in [
        json!({"type": "root/agentsChanged", "agents": []}),
        json!({"type": "root/activeSessionsChanged", "activeSessions": 9}),
        json!({"type": "root/terminalsChanged", "terminals": []}),
    ] {
        scene.rejected("ahp-root://", action).await;
    }
}

#[tokio::test]
async fn action_on_the_wrong_channel_is_rejected() {
    let mut scene = Scene::new().await;
    let (chat, session) = (scene.chat.clone(), scene.session.clone());
    let rename = json!({"type": "session/titleChanged", "title": "x"});
    scene.rejected(&session, started("t1")).await;
    scene.rejected("ahp-root://", started("t1")).await;
    scene.rejected("ahp-root://", rename).await;
    scene.rejected(&session, json!({"type": "root/configChanged", "config": {}})).await;
    scene.rejected(&chat, json!({"type": "terminal/input", "data": "x"})).await;
    assert!(scene.host.stage().openings().is_empty());
}

#[tokio::test]
async fn client_without_a_subscription_may_dispatch_and_is_answered() {
    let mut scene = Scene::new().await;
    let mut stranger = Wire::open(&scene.host, "stranger", &["0.9.0"]).await;
    let active =
        json!({"type": "session/activeClientSet", "activeClient": {"clientId": "stranger", "tools": []}});
    let set = stranger.dispatch(&scene.session, active.clone()).await;
    let turn = stranger.dispatch(&scene.chat, started("t1")).await;
    let again = stranger.dispatch(&scene.chat, started("t2")).await;
    assert_eq!(stranger.envelope(set).await["action"], active);
    assert_eq!(stranger.envelope(turn).await.get("rejectionReason"), None);
    assert!(stranger.envelope(again).await["rejectionReason"].is_string());
    scene.agree().await;
    stranger.settle().await;
    let own = stranger.envelopes().filter(|envelope| envelope["channel"] != "ahp-root://").count();
    assert_eq!(own, 3, "received more than the answers: {:?}", stranger.log);
    assert_eq!(scene.alice.session(&scene.session).unwrap().active_clients[0].client_id, "stranger");
}

#[tokio::test]
async fn action_without_effect_is_echoed_once_and_causes_no_other_action() {
    let (mut scene, _player) = Scene::after_turn("t1").await;
    let same = [
        (scene.session.clone(), json!({"type": "session/titleChanged", "title": "list files"})),
        (scene.session.clone(), json!({"type": "session/isReadChanged", "isRead": false})),
        (scene.session.clone(), json!({"type": "session/activeClientRemoved", "clientId": "wire"})),
        (scene.session.clone(), json!({"type": "session/configChanged", "config": {"mode": "careful"}})),
        (scene.chat.clone(), json!({"type": "chat/draftChanged"})),
        (scene.chat.clone(), json!({"type": "chat/queuedMessagesReordered", "order": []})),
    ];
    for (channel, action) in same {
        let before =
            scene.wire.envelopes().filter(|envelope| envelope.get("rejectionReason").is_none()).count();
        scene.accepted(&channel, action.clone()).await;
        let after =
            scene.wire.envelopes().filter(|envelope| envelope.get("rejectionReason").is_none()).count();
        assert_eq!(after - before, 1, "{action}");
    }
}

#[tokio::test]
async fn dispatch_with_sequence_number_zero_is_never_deduplicated() {
    let mut scene = Scene::new().await;
    for value in ["a", "a", "b"] {
        let action = json!({"type": "root/configChanged", "config": {"k": value}});
        scene.wire.dispatch_as(0, "ahp-root://", action).await;
    }
    scene.agree().await;
    assert_eq!(scene.wire.answers("wire", 0), 3);
    assert_eq!(scene.alice.root().unwrap().config.as_ref().unwrap().values["k"], "b");
}

#[tokio::test]
async fn echoes_and_rejections_arrive_in_dispatch_order() {
    let mut scene = Scene::new().await;
    let chat = scene.chat.clone();
    let mut sent = Vec::new();
    for number in 0..20 {
        let id = format!("m{number}");
        sent.push(
            scene.wire.dispatch(&chat, json!({"type": "chat/draftChanged", "draft": message(&id)})).await,
        );
        let unknown = json!({"type": "chat/pendingMessageRemoved", "kind": "queued", "id": id});
        sent.push(scene.wire.dispatch(&chat, unknown).await);
    }
    scene.agree().await;
    let answered: Vec<i64> = scene
        .wire
        .envelopes()
        .filter(|envelope| {
            envelope["action"]["type"] != "test/barrier" && envelope["origin"]["clientId"] == "wire"
        })
        .map(|envelope| envelope["origin"]["clientSeq"].as_i64().unwrap())
        .collect();
    assert_eq!(answered, sent);
    let numbers: Vec<u64> =
        scene.wire.envelopes().map(|envelope| envelope["serverSeq"].as_u64().unwrap()).collect();
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
}

#[tokio::test]
async fn rejects_dispatch_to_a_disposed_session() {
    let (mut scene, player) = Scene::in_turn("t1").await;
    let (session, chat) = (scene.session.clone(), scene.chat.clone());
    let dispose =
        json!({"jsonrpc": "2.0", "id": "end", "method": "disposeSession", "params": {"channel": session}});
    scene.wire.send(&dispose.to_string()).await;
    let late = scene.wire.dispatch(&chat, pending("queued", "m1", "too late")).await;
    let envelope = scene.wire.envelope(late).await;
    assert!(envelope["rejectionReason"].is_string(), "{envelope}");
    player.leave_when_told().await.unwrap();
    assert_eq!(scene.wire.answer(&json!("end")).await["result"], Value::Null);
    scene.wire.dispatch(&chat, started("t2")).await;
    scene.wire.settle().await;
}

#[tokio::test]
async fn malformed_notification_is_ignored() {
    let mut scene = Scene::new().await;
    let rename = json!({"type": "session/titleChanged", "title": "x"});
    for params in [
        json!({}),
        json!({"channel": 7, "clientSeq": 1, "action": rename}),
        json!({"channel": scene.session, "clientSeq": "one", "action": rename}),
        json!({"channel": scene.session, "clientSeq": 1}),
        json!([]),
    ] {
        scene.wire.notify("dispatchAction", params.clone()).await;
        scene.wire.notify("unsubscribe", params).await;
    }
    scene.wire.notify("unsubscribe", json!({"channel": 7})).await;
    scene.agree().await;
    assert_eq!(scene.alice.session(&scene.session).unwrap().title, "");
    scene.session_accepts(rename).await;
}

#[tokio::test]
async fn dispatch_sent_as_a_request_gets_a_response() {
    let mut scene = Scene::new().await;
    let rename = json!({"type": "session/titleChanged", "title": "asked"});
    let params = json!({"channel": scene.session, "clientSeq": 900, "action": rename});
    assert_eq!(scene.wire.ask("dispatchAction", params).await, Value::Null);
    assert_eq!(scene.wire.envelope(900).await["action"]["title"], "asked");
}

#[tokio::test]
async fn rejects_actions_for_unsupported_kinds_of_channels() {
    let mut scene = Scene::new().await;
    let kinds = [
        "terminal/input",
        "terminal/resized",
        "terminal/claimed",
        "terminal/titleChanged",
        "terminal/cleared",
        "changeset/filesReviewChanged",
        "annotations/set",
        "annotations/updated",
        "annotations/removed",
        "annotations/entrySet",
        "annotations/entryRemoved",
        "automation/createRequested",
        "automation/updateRequested",
        "automation/removed",
        "automationRun/cancelRequested",
    ];
    // All fields that any of them needs, so that none is rejected for a missing field.
    let annotation = json!({
        "id": "a", "resource": "file:///w/a", "resolved": false, "turnId": "t1",
        "entries": [{"id": "e", "text": "x"}],
    });
    let all = json!({
        "data": "x", "cols": 80, "rows": 24, "claim": {"kind": "client", "clientId": "wire"}, "title": "x",
        "files": [], "reviewed": true, "id": "a", "annotationId": "a", "entryId": "e", "annotation": annotation,
        "entry": {"id": "e", "text": "x"}, "automation": {}, "requestId": "r", "resource": "file:///w/a",
    });
    for kind in kinds {
        let mut action = all.clone();
        action["type"] = json!(kind);
        for channel in [scene.session.clone(), scene.chat.clone(), "ahp-root://".to_owned()] {
            scene.rejected(&channel, action.clone()).await;
        }
        // The channel does not exist, so the dispatch is ignored.
        let channel = format!("ahp-{}:/1", kind.split('/').next().unwrap());
        let seq = scene.wire.dispatch(&channel, action).await;
        scene.agree().await;
        assert_eq!(scene.wire.answers("wire", seq), 0, "{kind}");
    }
}
