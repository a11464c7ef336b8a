//! What shows that each command, and each action that clients may dispatch, works and
//! fails as it must: the names of the tests, for whoever looks for one.
//!
//! The tables are checked against the sources of the suite, so that no name in them can
//! be of a test that is not there (any more), and against a host, which must know every
//! command, and must take exactly these actions from a client. `ping` cannot fail, and a dispatch or an `unsubscribe` cannot be
//! answered by an error: their failures are that nothing happens.

use std::collections::BTreeSet;

use innkeeper_testkit::{StageHost, StageOptions};
use serde_json::{Value, json};

use crate::scene::{Scene, message};
use crate::wire::Wire;

/// A command or an action, a test of its success and a test of its failure.
type Row = (&'static str, &'static str, &'static str);

/// The sources of the suite, and of the one about files.
const SOURCES: [&str; 18] = [
    include_str!("branches.rs"),
    include_str!("chats.rs"),
    include_str!("commands.rs"),
    include_str!("directories.rs"),
    include_str!("dispatch.rs"),
    include_str!("grace.rs"),
    include_str!("inputs.rs"),
    include_str!("moves.rs"),
    include_str!("order.rs"),
    include_str!("queue.rs"),
    include_str!("reconnect.rs"),
    include_str!("repeats.rs"),
    include_str!("settings.rs"),
    include_str!("storage.rs"),
    include_str!("tokens.rs"),
    include_str!("tools.rs"),
    include_str!("turns.rs"),
    include_str!("../files.rs"),
];

const FILES: &str = "official_client_reads_and_changes_files";
const FILE_ERRORS: &str = "file_errors_map_to_protocol_error_codes";

/// The commands of root, session, chat, resource and resource watch.
const COMMANDS: [Row; 28] = [
    (
        "initialize",
        "initialize_answers_what_a_client_needs_and_leaves_out_what_is_not_there",
        "initialize_refuses_what_it_cannot_read",
    ),
    (
        "ping",
        "ids_of_requests_come_back_as_they_were",
        "ping_is_answered_before_the_handshake_and_nothing_else_is",
    ),
    (
        "reconnect",
        "who_comes_back_is_told_exactly_what_it_missed",
        "who_is_not_known_has_to_introduce_itself",
    ),
    (
        "subscribe",
        "subscribe_answers_a_snapshot_or_that_there_is_no_such_channel",
        "subscribe_answers_a_snapshot_or_that_there_is_no_such_channel",
    ),
    (
        "unsubscribe",
        "who_unsubscribes_hears_no_more_and_who_subscribes_twice_hears_once",
        "a_notification_that_cannot_be_read_changes_nothing_and_ends_nothing",
    ),
    (
        "dispatchAction",
        "echoes_come_in_the_order_of_the_dispatches_with_rejections_in_between",
        "a_notification_that_cannot_be_read_changes_nothing_and_ends_nothing",
    ),
    (
        "listSessions",
        "the_list_has_the_newest_change_first_and_can_be_paged",
        "the_list_has_the_newest_change_first_and_can_be_paged",
    ),
    (
        "createSession",
        "a_session_is_created_as_asked_and_known_to_nobody_until_it_is_used",
        "a_session_that_cannot_be_is_refused_with_the_right_code",
    ),
    (
        "disposeSession",
        "disposing_ends_the_agent_tells_everybody_and_happens_once",
        "disposing_ends_the_agent_tells_everybody_and_happens_once",
    ),
    (
        "createChat",
        "a_new_chat_is_shown_to_all_and_has_an_agent_of_its_own",
        "a_chat_that_cannot_be_is_refused_with_the_reason",
    ),
    (
        "disposeChat",
        "a_chat_that_is_disposed_takes_its_turn_and_its_agent_with_it",
        "the_default_chat_is_created_by_its_session_and_stays_with_it",
    ),
    (
        "moveChat",
        "a_chat_moves_to_another_session_with_its_turns_its_clients_and_its_conversation",
        "chats_can_be_put_into_another_order",
    ),
    (
        "fetchTurns",
        "a_client_with_the_newest_turns_of_a_chat_pages_back_and_comes_back_to_a_snapshot",
        "a_client_with_the_newest_turns_of_a_chat_pages_back_and_comes_back_to_a_snapshot",
    ),
    (
        "resolveSessionConfig",
        "the_form_of_a_new_session_comes_with_the_values_in_effect",
        "the_form_of_a_new_session_comes_with_the_values_in_effect",
    ),
    (
        "sessionConfigCompletions",
        "completions_list_files_and_commands",
        "completions_list_files_and_commands",
    ),
    ("completions", "completions_list_files_and_commands", "completions_list_files_and_commands"),
    (
        "authenticate",
        "an_agent_that_needs_a_token_works_once_it_has_one_and_as_long_as_it_has",
        "a_token_that_nobody_can_use_is_refused_without_being_repeated",
    ),
    ("resourceRead", FILES, FILE_ERRORS),
    ("resourceWrite", FILES, FILE_ERRORS),
    ("resourceList", FILES, FILE_ERRORS),
    ("resourceResolve", FILES, FILE_ERRORS),
    ("resourceCopy", FILES, FILE_ERRORS),
    ("resourceMove", FILES, FILE_ERRORS),
    ("resourceDelete", FILES, FILE_ERRORS),
    ("resourceMkdir", FILES, FILE_ERRORS),
    ("resourceRequest", FILES, FILE_ERRORS),
    ("createResourceWatch", "watch_reports_changes_until_last_subscriber_leaves", FILE_ERRORS),
    // The watch's own channel.
    (
        "subscribe",
        "watch_reports_changes_until_last_subscriber_leaves",
        "watch_reports_changes_until_last_subscriber_leaves",
    ),
];

const IN_ONE: &str = "the_directories_stay_where_the_agent_works_in_one";
const READ: &str = "a_session_is_read_until_something_happens_in_it";
const ARCHIVED: &str = "a_session_is_archived_and_brought_back";
const SERVERS: &str = "servers_are_started_and_stopped_where_there_are_any";
const TAKES_PART: &str = "a_client_takes_part_for_itself_only_and_exactly_as_it_says";
const OWN_TOOL: &str = "a_tool_of_a_clients_is_completed_by_that_client_alone";

/// The actions that clients may dispatch.
const ACTIONS: [Row; 32] = [
    (
        "root/configChanged",
        "the_root_configuration_takes_any_key_and_merges_or_replaces",
        "the_root_configuration_takes_any_key_and_merges_or_replaces",
    ),
    (
        "session/titleChanged",
        "a_name_that_a_user_gave_stays",
        "names_are_not_of_any_length_since_everybody_gets_them_in_the_list",
    ),
    ("session/activeClientSet", TAKES_PART, TAKES_PART),
    ("session/activeClientRemoved", TAKES_PART, TAKES_PART),
    ("session/workingDirectorySet", "a_session_gets_and_loses_directories_and_its_agent_is_told", IN_ONE),
    (
        "session/workingDirectoryRemoved",
        "a_session_gets_and_loses_directories_and_its_agent_is_told",
        "the_directory_that_an_agent_lives_in_stays",
    ),
    (
        "session/workingDirectoryReplaced",
        "the_directory_that_an_agent_lives_in_is_replaced_where_it_can_move",
        "agents_whose_directories_are_alike_have_no_first_one_to_replace",
    ),
    (
        "session/customizationToggled",
        "customizations_are_switched_where_there_are_any",
        "customizations_are_switched_where_there_are_any",
    ),
    ("session/mcpServerStartRequested", SERVERS, SERVERS),
    ("session/mcpServerStopRequested", SERVERS, SERVERS),
    ("session/mcpServerBackgroundRequested", SERVERS, SERVERS),
    ("session/isReadChanged", READ, READ),
    ("session/isArchivedChanged", ARCHIVED, ARCHIVED),
    (
        "session/configChanged",
        "configuration_is_changed_where_the_form_allows_it",
        "a_configured_value_is_of_its_type",
    ),
    (
        "chat/turnStarted",
        "a_turn_runs_from_its_start_to_its_end",
        "a_turn_is_not_started_while_one_is_active",
    ),
    (
        "chat/turnCancelled",
        "a_cancelled_turn_is_over_at_once_and_what_comes_late_for_it_is_dropped",
        "a_turn_that_does_not_run_cannot_be_cancelled",
    ),
    (
        "chat/turnResume",
        "a_turn_that_failed_with_its_agent_is_resumed_as_the_same_turn",
        "only_the_last_turn_is_resumed_and_only_after_an_error_that_allows_it",
    ),
    (
        "chat/toolCallConfirmed",
        "an_approved_call_runs_with_the_input_that_was_shown",
        "a_call_that_does_not_wait_cannot_be_confirmed",
    ),
    ("chat/toolCallComplete", OWN_TOOL, "a_tool_of_the_hosts_is_completed_by_no_client"),
    ("chat/toolCallContentChanged", OWN_TOOL, OWN_TOOL),
    (
        "chat/toolCallResultConfirmed",
        "a_result_waits_for_its_confirmation",
        "a_result_waits_for_its_confirmation",
    ),
    (
        "chat/pendingMessageSet",
        "queued_messages_start_turns_one_after_the_other",
        "a_message_of_nobodys_does_not_wait",
    ),
    (
        "chat/pendingMessageRemoved",
        "removal_wins_over_consumption",
        "a_message_that_does_not_wait_cannot_be_removed",
    ),
    (
        "chat/queuedMessagesReordered",
        "the_queue_is_put_into_another_order",
        "an_order_of_an_older_queue_is_completed_for_all_to_see",
    ),
    ("chat/draftChanged", "a_draft_is_everybodys", "a_draft_is_everybodys"),
    ("chat/isReadChanged", READ, READ),
    ("chat/isArchivedChanged", ARCHIVED, ARCHIVED),
    (
        "chat/inputAnswerChanged",
        "drafts_are_shared_and_complete_what_the_completion_leaves_out",
        "an_answer_is_of_its_questions_kind",
    ),
    (
        "chat/inputCompleted",
        "a_request_is_declined_or_cancelled_without_answers",
        "an_accepted_request_answers_what_is_required",
    ),
    (
        "chat/truncated",
        "an_agent_that_can_go_back_is_told_how_far",
        "an_agent_that_cannot_go_back_keeps_its_history",
    ),
    ("chat/workingDirectorySet", "a_chats_directories_are_some_of_its_sessions", IN_ONE),
    (
        "chat/workingDirectoryRemoved",
        "what_a_session_loses_its_chat_loses_too",
        "a_chats_directories_are_some_of_its_sessions",
    ),
];

#[test]
fn every_command_and_client_action_has_a_test_of_its_success_and_one_of_its_failure() {
    for (name, success, failure) in COMMANDS.into_iter().chain(ACTIONS) {
        for test in [success, failure] {
            assert!(is_there(test), "{name}: there is no test {test}");
        }
    }
}

#[tokio::test]
async fn the_host_knows_every_command_in_the_table() {
    let host = StageHost::start(StageOptions::default()).await.unwrap();
    let mut wire = Wire::open(&host, "wire", &["1.0.0"]).await;
    for (command, ..) in COMMANDS {
        let answer = wire.request(command, json!({})).await;
        assert_ne!(answer["error"]["code"], -32601, "{command}");
    }
}

/// Whether the suite has a test of this name.
fn is_there(test: &str) -> bool {
    let declared = format!("async fn {test}()");
    SOURCES.iter().any(|source| source.contains(&declared))
}

#[test]
fn the_tables_of_orders_and_decisions_name_tests_that_are_there() {
    for (source, rows) in [(include_str!("order.rs"), 11), (include_str!("dispatch.rs"), 36)] {
        let table = source.lines().filter(|line| line.starts_with("//! |"));
        // The first two lines are the table's head.
        let named: Vec<&str> = table.skip(2).filter_map(|line| line.rsplit('`').nth(1)).collect();
        assert_eq!(named.len(), rows);
        for test in named {
            assert!(is_there(test), "there is no test {test}");
        }
    }
}

/// What the protocol lets clients dispatch on the channels that this host has, and what
/// only a host says on them.
struct Channel {
    prefix: &'static str,
    of_clients: &'static [&'static str],
    of_hosts: &'static [&'static str],
}

const CHANNELS: [Channel; 3] = [
    Channel {
        prefix: "root",
        of_clients: &["configChanged"],
        of_hosts: &["agentsChanged", "activeSessionsChanged", "terminalsChanged"],
    },
    Channel {
        prefix: "session",
        of_clients: &[
            "titleChanged",
            "activeClientSet",
            "activeClientRemoved",
            "workingDirectorySet",
            "workingDirectoryRemoved",
            "workingDirectoryReplaced",
            "customizationToggled",
            "mcpServerStartRequested",
            "mcpServerStopRequested",
            "mcpServerBackgroundRequested",
            "isReadChanged",
            "isArchivedChanged",
            "configChanged",
        ],
        of_hosts: &[
            "ready",
            "creationFailed",
            "chatAdded",
            "chatRemoved",
            "chatUpdated",
            "chatsReordered",
            "defaultChatChanged",
            "activityChanged",
            "changesetsChanged",
            "serverToolsChanged",
            "inputNeededSet",
            "inputNeededRemoved",
            "customizationsChanged",
            "customizationUpdated",
            "customizationRemoved",
            "mcpServerStateChanged",
            "metaChanged",
        ],
    },
    Channel {
        prefix: "chat",
        of_clients: &[
            "turnStarted",
            "turnCancelled",
            "turnResume",
            "toolCallConfirmed",
            "toolCallComplete",
            "toolCallContentChanged",
            "toolCallResultConfirmed",
            "pendingMessageSet",
            "pendingMessageRemoved",
            "queuedMessagesReordered",
            "draftChanged",
            "isReadChanged",
            "isArchivedChanged",
            "inputAnswerChanged",
            "inputCompleted",
            "truncated",
            "workingDirectorySet",
            "workingDirectoryRemoved",
        ],
        of_hosts: &[
            "delta",
            "responsePart",
            "reasoning",
            "usage",
            "error",
            "turnComplete",
            "turnsLoaded",
            "toolCallStart",
            "toolCallDelta",
            "toolCallReady",
            "toolCallAuthRequired",
            "toolCallAuthResolved",
            "inputRequested",
            "activityChanged",
            "backgroundWorkSet",
            "backgroundWorkRemoved",
            "movableChanged",
            "changesetsChanged",
            "canvasesChanged",
        ],
    },
];

#[test]
fn the_table_has_exactly_the_actions_that_the_protocol_lets_clients_dispatch() {
    let of_protocol: BTreeSet<String> = CHANNELS
        .iter()
        .flat_map(|channel| channel.of_clients.iter().map(|name| format!("{}/{name}", channel.prefix)))
        .collect();
    let of_table: BTreeSet<String> = ACTIONS.iter().map(|(action, ..)| (*action).to_owned()).collect();
    assert_eq!(of_table, of_protocol);
    assert_eq!(of_table.len(), ACTIONS.len(), "one row each");
}

/// An action with all that any action of its channel needs, so that none is refused for
/// what it lacks.
fn complete(kind: &str, chat: &str) -> Value {
    let time = "2026-11-15T09:00:05.000Z";
    let call = json!({
        "status": "streaming", "toolCallId": "k", "toolName": "x", "displayName": "X",
    });
    let error = json!({"errorType": "x", "message": "x"});
    let from_clients = json!({
        "type": kind, "title": "x", "config": {}, "isRead": true, "isArchived": true, "id": "x",
        "activeClient": {"clientId": "wire", "tools": []}, "clientId": "wire", "directory": "file:///w",
        "replacement": "file:///v", "enablement": [], "turnId": "t", "startedAt": time, "message": message("x"), "duration": 1,
        "toolCallId": "k", "approved": true, "confirmed": "user-action", "kind": "queued", "order": [],
        "result": {"success": true, "pastTenseMessage": "x"}, "content": [], "requestId": "q",
        "questionId": "q", "response": "decline",
    });
    let from_hosts = json!({
        "agents": [], "activeSessions": 1, "terminals": [], "error": error, "changes": {}, "chats": [],
        "summary": {"resource": chat, "title": "", "status": 1, "modifiedAt": time}, "chat": chat,
        "tools": [], "customizations": [], "state": {"kind": "stopped"}, "activity": "x", "movable": true,
        "customization": {"type": "skill", "id": "s", "uri": "file:///s", "name": "S"},
        "request": {"kind": "toolConfirmation", "id": "n", "chat": chat, "turnId": "t", "toolCall": call},
        "partId": "p", "part": {"kind": "markdown", "id": "p", "content": ""}, "usage": {"inputTokens": 1},
        "turns": [], "toolName": "x", "displayName": "X", "invocationMessage": "x",
        "work": {"kind": "unheardOf", "id": "w"}, "auth": {"reason": "required", "resource": {"resource": "https://x"}},
    });
    let mut action = from_clients;
    action.as_object_mut().unwrap().extend(from_hosts.as_object().unwrap().clone());
    match kind {
        "chat/delta" | "chat/reasoning" | "chat/toolCallDelta" => action["content"] = json!("x"),
        "chat/error" => action["part"] = json!({"kind": "error", "error": error}),
        "chat/inputRequested" => action["request"] = json!({"id": "q"}),
        _ => {}
    }
    action
}

#[tokio::test]
async fn the_host_takes_the_actions_of_the_table_from_a_client_and_no_others() {
    let mut scene = Scene::new().await;
    let mut wrong = Vec::new();
    for Channel { prefix, of_clients, of_hosts } in CHANNELS {
        let channel = match prefix {
            "root" => "ahp-root://",
            "session" => scene.session.as_str(),
            _ => scene.chat.as_str(),
        }
        .to_owned();
        let of_hosts = of_hosts.iter().map(|name| (name, false));
        for (name, taken) in of_clients.iter().map(|name| (name, true)).chain(of_hosts) {
            let action = complete(&format!("{prefix}/{name}"), &scene.chat);
            let seq = scene.wire.dispatch(&channel, action).await;
            let envelope = scene.wire.envelope(seq).await;
            let reason = envelope["rejectionReason"].as_str().unwrap_or_default();
            let understood = !reason.contains("malformed");
            if !understood || reason.contains("does not take this action from a client") == taken {
                wrong.push(format!("{prefix}/{name}: {reason:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
