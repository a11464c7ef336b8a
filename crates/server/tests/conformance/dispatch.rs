//! What becomes of a dispatch, whatever it says: the decision table of the protocol.
//!
//! | action | not accepted when | shown by |
//! |---|---|---|
//! | any action | it is not for clients | `actions_of_the_hosts_own_are_rejected_from_clients` |
//! | any action | it is malformed | `a_malformed_action_is_rejected` |
//! | any action | nobody knows it | `an_unknown_action_is_rejected_so_that_its_sender_stops_waiting` |
//! | any action | it is for another kind of channel | `an_action_on_the_wrong_channel_is_rejected` |
//! | any action | there is no such channel (ignored) | `an_action_for_an_unknown_channel_is_ignored_silently` |
//! | any action | its channel only informs | `watch_channel_rejects_client_actions` |
//! | any action | its session cannot be read | `an_action_for_a_session_that_cannot_be_read_is_refused_with_the_reason` |
//! | any action | it was made before | `a_repetition_is_answered_where_no_echo_of_it_is_told` |
//! | `chat/turnStarted` | a turn is active | `a_turn_is_not_started_while_one_is_active` |
//! |  | its message is not a user's | `a_turn_is_not_started_by_anybody_but_a_user` |
//! |  | the chat is read-only or hidden | `a_turn_is_not_started_in_a_chat_that_is_not_for_writing` |
//! |  | the chat has had its id | `a_turn_is_not_started_under_an_id_that_the_chat_has_had` |
//! |  | nobody can read its time | `a_turn_is_not_started_at_a_time_that_nobody_can_read` |
//! | `chat/turnCancelled` | that turn does not run | `a_turn_that_does_not_run_cannot_be_cancelled` |
//! | `chat/turnResume` | a turn is active, or it is not the last, or its error does not allow it | `only_the_last_turn_is_resumed_and_only_after_an_error_that_allows_it` |
//! | `chat/toolCallConfirmed` | the call does not wait in the active turn | `a_call_that_does_not_wait_cannot_be_confirmed` |
//! |  | its input or option is not one that was offered | `an_input_is_edited_only_if_it_may_be` |
//! | `chat/toolCallComplete`, `chat/toolCallContentChanged` | the tool is another client's | `a_tool_of_a_clients_is_completed_by_that_client_alone` |
//! |  | the tool is the host's | `a_tool_of_the_hosts_is_completed_by_no_client` |
//! |  | it succeeds without the sign-in that it waits for | `a_call_that_needs_a_sign_in_is_given_up_by_anybody_and_completed_by_nobody` |
//! | `chat/toolCallResultConfirmed` | the result does not wait | `a_result_waits_for_its_confirmation` |
//! | `chat/inputAnswerChanged`, `chat/inputCompleted` | there is no such request or question | `an_unknown_request_or_question_is_not_answered` |
//! |  | the answer is of another kind | `an_answer_is_of_its_questions_kind` |
//! |  | what is required is missing | `an_accepted_request_answers_what_is_required` |
//! | `chat/pendingMessageRemoved` | there is no such message | `a_message_that_does_not_wait_cannot_be_removed` |
//! | `chat/truncated` | there is no such turn, or one is active | `an_agent_that_can_go_back_is_told_how_far` |
//! |  | the agent cannot go back | `an_agent_that_cannot_go_back_keeps_its_history` |
//! | `chat/workingDirectorySet` | the session does not have the directory | `a_chats_directories_are_some_of_its_sessions` |
//! | `session/workingDirectory*` | the agent works in one directory | `the_directories_stay_where_the_agent_works_in_one` |
//! |  | the agent lives in the directory | `the_directory_that_an_agent_lives_in_stays` |
//! | `session/activeClient*` | it is about another client | `a_client_takes_part_for_itself_only_and_exactly_as_it_says` |
//! | `session/customizationToggled` | there is no such customization | `customizations_are_switched_where_there_are_any` |
//! | `session/mcpServer*` | there is no such server | `servers_are_started_and_stopped_where_there_are_any` |
//! | `session/configChanged` | the form does not let it be changed | `configuration_is_changed_where_the_form_allows_it` |
//! |  | the value is of another type | `a_configured_value_is_of_its_type` |
//! | `terminal/*`, `changeset/*`, `annotations/*`, `automation/*`, `automationRun/*` | always: this host has none | `what_is_about_things_that_this_host_does_not_have_is_never_accepted` |
//!
//! The suite checks that the tests in this table are there.

use serde_json::{Value, json};

use crate::scene::{Scene, message, pending, started};
use crate::wire::Wire;

#[tokio::test]
async fn an_action_for_an_unknown_channel_is_ignored_silently() {
    let mut scene = Scene::new().await;
    let seq = scene.wire.dispatch("ahp-chat:/gone", started("t1")).await;
    scene.agree().await;
    assert_eq!(scene.wire.answers("wire", seq), 0);
}

#[tokio::test]
async fn an_unknown_action_is_rejected_so_that_its_sender_stops_waiting() {
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
async fn a_malformed_action_is_rejected() {
    let mut scene = Scene::new().await;
    let malformed = [
        json!({"type": "chat/turnStarted"}),
        json!({"type": "chat/turnStarted", "turnId": "t1", "startedAt": "2026-11-15T09:00:05.000Z", "message": "x"}),
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
async fn actions_of_the_hosts_own_are_rejected_from_clients() {
    let (mut scene, _player) = Scene::in_turn("t1").await;
    let (chat, session) = (scene.chat.clone(), scene.session.clone());
    let summary = json!({"resource": "ahp-chat:/2", "title": "", "status": 1, "modifiedAt": "2026-11-15T09:00:05.000Z"});
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
async fn an_action_on_the_wrong_channel_is_rejected() {
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
async fn who_does_not_subscribe_may_dispatch_and_is_answered() {
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
    assert_eq!(own, 3, "the answers and nothing else: {:?}", stranger.log);
    assert_eq!(scene.alice.session(&scene.session).unwrap().active_clients[0].client_id, "stranger");
}

#[tokio::test]
async fn an_action_without_effect_is_echoed_once_and_followed_by_nothing() {
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
async fn number_zero_is_no_identity_and_is_handled_each_time() {
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
async fn echoes_come_in_the_order_of_the_dispatches_with_rejections_in_between() {
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
async fn a_disposed_session_takes_no_more_actions() {
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
async fn a_notification_that_cannot_be_read_changes_nothing_and_ends_nothing() {
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
async fn a_dispatch_that_wants_an_answer_gets_one_after_its_echo() {
    let mut scene = Scene::new().await;
    let rename = json!({"type": "session/titleChanged", "title": "asked"});
    let params = json!({"channel": scene.session, "clientSeq": 900, "action": rename});
    assert_eq!(scene.wire.ask("dispatchAction", params).await, Value::Null);
    assert_eq!(scene.wire.envelope(900).await["action"]["title"], "asked");
}

#[tokio::test]
async fn what_is_about_things_that_this_host_does_not_have_is_never_accepted() {
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
    // All that any of them needs, so that none is refused for what it lacks.
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
        // Nobody is there who could answer for such a channel.
        let channel = format!("ahp-{}:/1", kind.split('/').next().unwrap());
        let seq = scene.wire.dispatch(&channel, action).await;
        scene.agree().await;
        assert_eq!(scene.wire.answers("wire", seq), 0, "{kind}");
    }
}
