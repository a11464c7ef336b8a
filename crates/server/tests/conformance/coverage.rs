//! Tables that name, for each command and each client action, a test of its success and a
//! test of its failure.
//!
//! The tables are checked against the sources of the suite, so that every name is an existing
//! test, and against a host, which must implement every command and accept exactly these
//! actions from clients. `ping` cannot fail. `dispatchAction` and `unsubscribe` have no error
//! response; they fail by having no effect.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::changesets::{changeset, scripted};
use crate::scene::{Scene, message};
use crate::stage_host::{StageHost, StageOptions};
use crate::wire::Wire;

/// The name of a command or an action, a test of its success and a test of its failure.
type CoverageRow = (&'static str, &'static str, &'static str);

/// The sources of this suite and of the file suite.
const SOURCES: [&str; 22] = [
    include_str!("audit.rs"),
    include_str!("branches.rs"),
    include_str!("changeset_operations.rs"),
    include_str!("changesets.rs"),
    include_str!("chats.rs"),
    include_str!("commands.rs"),
    include_str!("directories.rs"),
    include_str!("dispatch.rs"),
    include_str!("timeouts.rs"),
    include_str!("inputs.rs"),
    include_str!("moves.rs"),
    include_str!("order.rs"),
    include_str!("queue.rs"),
    include_str!("reconnect.rs"),
    include_str!("deduplication.rs"),
    include_str!("settings.rs"),
    include_str!("stopping.rs"),
    include_str!("storage.rs"),
    include_str!("tokens.rs"),
    include_str!("tools.rs"),
    include_str!("turns.rs"),
    include_str!("../files.rs"),
];

const FILES: &str = "official_client_reads_and_changes_files";
const FILE_ERRORS: &str = "file_errors_map_to_protocol_error_codes";

/// The commands of the root, session, chat, changeset, resource and resource watch channels, and the
/// requests beyond the protocol.
const COMMANDS: [CoverageRow; 33] = [
    (
        "innkeeper/stop",
        "stop_of_everything_cancels_the_turn_and_stops_the_background_work",
        "rejects_stop_of_work_that_is_unknown_or_not_running",
    ),
    (
        "innkeeper/restartAgent",
        "restart_fails_the_turn_and_the_resumed_turn_gets_a_new_agent",
        "rejects_stop_and_restart_in_the_chat_of_a_subagent",
    ),
    (
        "initialize",
        "initialize_returns_snapshots_and_omits_unknown_channels",
        "initialize_rejects_invalid_params",
    ),
    ("ping", "response_has_the_id_of_its_request", "only_ping_is_answered_before_the_handshake"),
    (
        "reconnect",
        "reconnected_client_receives_exactly_the_missed_actions",
        "reconnect_of_an_unknown_client_is_rejected",
    ),
    (
        "subscribe",
        "subscribe_returns_a_snapshot_and_rejects_unknown_channels",
        "subscribe_returns_a_snapshot_and_rejects_unknown_channels",
    ),
    (
        "unsubscribe",
        "unsubscribe_stops_actions_and_second_subscribe_does_not_duplicate_them",
        "malformed_notification_is_ignored",
    ),
    ("dispatchAction", "echoes_and_rejections_arrive_in_dispatch_order", "malformed_notification_is_ignored"),
    (
        "listSessions",
        "list_is_sorted_by_newest_change_and_paged",
        "list_is_sorted_by_newest_change_and_paged",
    ),
    (
        "createSession",
        "created_session_has_the_requested_settings_and_is_not_listed_before_use",
        "rejects_invalid_session_creation_with_the_matching_code",
    ),
    (
        "disposeSession",
        "disposed_session_ends_its_agent_and_is_removed_for_all_clients",
        "disposed_session_ends_its_agent_and_is_removed_for_all_clients",
    ),
    (
        "createChat",
        "new_chat_is_published_and_has_its_own_agent",
        "rejects_invalid_chat_creation_with_the_matching_code",
    ),
    ("disposeChat", "disposed_chat_ends_its_turn_and_its_agent", "default_chat_cannot_be_disposed_or_moved"),
    (
        "moveChat",
        "moved_chat_keeps_its_turns_subscribers_and_conversation",
        "chats_are_reordered_and_invalid_moves_are_rejected",
    ),
    (
        "fetchTurns",
        "windowed_client_pages_back_and_gets_a_snapshot_on_reconnect",
        "windowed_client_pages_back_and_gets_a_snapshot_on_reconnect",
    ),
    (
        "resolveSessionConfig",
        "session_config_schema_is_returned_with_the_effective_values",
        "session_config_schema_is_returned_with_the_effective_values",
    ),
    (
        "sessionConfigCompletions",
        "completions_list_files_and_commands",
        "completions_list_files_and_commands",
    ),
    ("completions", "completions_list_files_and_commands", "completions_list_files_and_commands"),
    (
        "authenticate",
        "session_creation_requires_the_token_of_the_agent",
        "rejected_token_is_not_repeated_in_the_error",
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
    (
        "innkeeper/audit",
        "audit_records_are_returned_newest_first_in_pages",
        "audit_rejects_invalid_params_and_ignores_unknown_ones",
    ),
    (
        "invokeChangesetOperation",
        "operation_runs_and_its_status_is_published",
        "invalid_operations_are_rejected",
    ),
    // The channel of a changeset.
    (
        "subscribe",
        "subscribed_changeset_is_computed_and_follows_the_log",
        "subscribe_rejects_changesets_of_unknown_sessions_chats_and_turns",
    ),
    // The watch's own channel.
    (
        "subscribe",
        "watch_reports_changes_until_last_subscriber_leaves",
        "watch_reports_changes_until_last_subscriber_leaves",
    ),
];

const SINGLE_DIRECTORY: &str = "rejects_directory_changes_for_a_single_directory_agent";
const READ: &str = "read_flag_is_cleared_by_new_output";
const ARCHIVED: &str = "session_is_archived_and_restored";
const MCP_SERVERS: &str = "mcp_servers_are_started_and_stopped_only_if_they_exist";
const ACTIVE_CLIENT: &str = "client_can_activate_and_remove_only_itself";
const CLIENT_TOOL: &str = "client_tool_is_completed_only_by_its_client";

/// The actions that clients may dispatch.
const ACTIONS: [CoverageRow; 33] = [
    (
        "root/configChanged",
        "root_configuration_accepts_any_key_and_merges_or_replaces",
        "root_configuration_accepts_any_key_and_merges_or_replaces",
    ),
    ("session/titleChanged", "title_set_by_a_user_is_kept", "length_of_titles_and_ids_is_limited"),
    ("session/activeClientSet", ACTIVE_CLIENT, ACTIVE_CLIENT),
    ("session/activeClientRemoved", ACTIVE_CLIENT, ACTIVE_CLIENT),
    ("session/workingDirectorySet", "added_and_removed_directories_are_sent_to_the_agent", SINGLE_DIRECTORY),
    (
        "session/workingDirectoryRemoved",
        "added_and_removed_directories_are_sent_to_the_agent",
        "immutable_primary_directory_cannot_be_changed",
    ),
    (
        "session/workingDirectoryReplaced",
        "replaceable_primary_directory_is_replaced",
        "rejects_replacement_of_the_first_of_equal_directories",
    ),
    (
        "session/customizationToggled",
        "customizations_are_toggled_only_if_they_exist",
        "customizations_are_toggled_only_if_they_exist",
    ),
    ("session/mcpServerStartRequested", MCP_SERVERS, MCP_SERVERS),
    ("session/mcpServerStopRequested", MCP_SERVERS, MCP_SERVERS),
    ("session/mcpServerBackgroundRequested", MCP_SERVERS, MCP_SERVERS),
    ("session/isReadChanged", READ, READ),
    ("session/isArchivedChanged", ARCHIVED, ARCHIVED),
    (
        "session/configChanged",
        "configuration_changes_only_where_the_schema_allows_it",
        "rejects_configuration_value_of_another_type",
    ),
    ("chat/turnStarted", "turn_runs_from_start_to_completion", "rejects_turn_start_while_a_turn_is_active"),
    (
        "chat/turnCancelled",
        "cancelled_turn_ends_immediately_and_its_late_output_is_dropped",
        "rejects_cancellation_of_a_turn_that_is_not_running",
    ),
    (
        "chat/turnResume",
        "turn_that_failed_with_its_agent_is_resumed_under_its_id",
        "only_the_last_turn_is_resumed_and_only_after_a_resumable_error",
    ),
    (
        "chat/toolCallConfirmed",
        "approved_call_runs_with_the_displayed_input",
        "rejects_confirmation_of_a_call_that_is_not_pending",
    ),
    ("chat/toolCallComplete", CLIENT_TOOL, "host_tool_cannot_be_completed_by_a_client"),
    ("chat/toolCallContentChanged", CLIENT_TOOL, CLIENT_TOOL),
    (
        "chat/toolCallResultConfirmed",
        "tool_result_waits_for_its_confirmation",
        "tool_result_waits_for_its_confirmation",
    ),
    (
        "chat/pendingMessageSet",
        "queued_messages_start_turns_in_order",
        "rejects_pending_message_of_non_user_origin",
    ),
    (
        "chat/pendingMessageRemoved",
        "removed_queued_message_is_never_sent",
        "rejects_removal_of_an_unknown_pending_message",
    ),
    ("chat/queuedMessagesReordered", "queue_is_reordered", "outdated_queue_order_is_completed_in_the_echo"),
    ("chat/draftChanged", "draft_is_shared_by_all_clients", "draft_is_shared_by_all_clients"),
    ("chat/isReadChanged", READ, READ),
    ("chat/isArchivedChanged", ARCHIVED, ARCHIVED),
    (
        "chat/inputAnswerChanged",
        "draft_answers_are_shared_and_fill_in_missing_answers",
        "rejects_answer_of_another_kind_than_its_question",
    ),
    (
        "chat/inputCompleted",
        "request_is_declined_or_cancelled_without_answers",
        "rejects_acceptance_without_the_required_answers",
    ),
    ("chat/truncated", "truncation_rewinds_the_agent", "rejects_truncation_if_the_agent_cannot_rewind"),
    (
        "chat/workingDirectorySet",
        "chat_directories_are_a_subset_of_the_session_directories",
        SINGLE_DIRECTORY,
    ),
    (
        "chat/workingDirectoryRemoved",
        "directory_removed_from_a_session_is_removed_from_its_chat",
        "chat_directories_are_a_subset_of_the_session_directories",
    ),
    (
        "changeset/filesReviewChanged",
        "review_is_stored_and_published_only_for_known_files",
        "review_is_stored_and_published_only_for_known_files",
    ),
];

#[test]
fn every_command_and_client_action_names_existing_tests() {
    for (name, success, failure) in COMMANDS.into_iter().chain(ACTIONS) {
        for test in [success, failure] {
            assert!(exists(test), "{name}: unknown test {test}");
        }
    }
}

#[tokio::test]
async fn host_implements_every_command_in_the_table() {
    let host = StageHost::start(StageOptions::default()).await.unwrap();
    let mut wire = Wire::open(&host, "wire", &["1.0.0"]).await;
    for (command, ..) in COMMANDS {
        let answer = wire.request(command, json!({})).await;
        assert_ne!(answer["error"]["code"], -32601, "{command}");
    }
}

/// Whether the suite has a test with this name.
fn exists(test: &str) -> bool {
    let declared = format!("async fn {test}()");
    SOURCES.iter().any(|source| source.contains(&declared))
}

#[test]
fn doc_tables_name_existing_tests() {
    for (source, rows) in [(include_str!("order.rs"), 11), (include_str!("dispatch.rs"), 36)] {
        let table = source.lines().filter(|line| line.starts_with("//! |"));
        // The first two lines are the header of the table.
        let tests: Vec<&str> = table.skip(2).filter_map(|line| line.rsplit('`').nth(1)).collect();
        assert_eq!(tests.len(), rows);
        for test in tests {
            assert!(exists(test), "unknown test {test}");
        }
    }
}

/// The actions of one kind of channel: those that clients may dispatch and those that only
/// hosts publish.
struct ChannelActions {
    prefix: &'static str,
    client_actions: &'static [&'static str],
    host_actions: &'static [&'static str],
}

const CHANNELS: [ChannelActions; 4] = [
    ChannelActions {
        prefix: "root",
        client_actions: &["configChanged"],
        host_actions: &["agentsChanged", "activeSessionsChanged", "terminalsChanged"],
    },
    ChannelActions {
        prefix: "session",
        client_actions: &[
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
        host_actions: &[
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
    ChannelActions {
        prefix: "chat",
        client_actions: &[
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
        host_actions: &[
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
    ChannelActions {
        prefix: "changeset",
        client_actions: &["filesReviewChanged"],
        host_actions: &[
            "statusChanged",
            "fileSet",
            "fileRemoved",
            "contentChanged",
            "operationsChanged",
            "operationStatusChanged",
            "cleared",
        ],
    },
];

#[test]
fn action_table_matches_the_client_actions_of_the_protocol() {
    let of_protocol: BTreeSet<String> = CHANNELS
        .iter()
        .flat_map(|channel| channel.client_actions.iter().map(|name| format!("{}/{name}", channel.prefix)))
        .collect();
    let of_table: BTreeSet<String> = ACTIONS.iter().map(|(action, ..)| (*action).to_owned()).collect();
    assert_eq!(of_table, of_protocol);
    assert_eq!(of_table.len(), ACTIONS.len(), "one row each");
}

/// An action with all fields that any action of its channel needs, so that none is rejected
/// for a missing field.
fn complete(kind: &str, chat: &str) -> Value {
    let time = "2025-11-15T09:00:05.000Z";
    let call = json!({
        "status": "streaming", "toolCallId": "k", "toolName": "x", "displayName": "X",
    });
    let error = json!({"errorType": "x", "message": "x"});
    let client_fields = json!({
        "type": kind, "title": "x", "config": {}, "isRead": true, "isArchived": true, "id": "x",
        "activeClient": {"clientId": "wire", "tools": []}, "clientId": "wire", "directory": "file:///w",
        "replacement": "file:///v", "enablement": [], "turnId": "t", "startedAt": time, "message": message("x"), "duration": 1,
        "toolCallId": "k", "approved": true, "confirmed": "user-action", "kind": "queued", "order": [],
        "result": {"success": true, "pastTenseMessage": "x"}, "content": [], "requestId": "q",
        "questionId": "q", "response": "decline",
    });
    let host_fields = json!({
        "agents": [], "activeSessions": 1, "terminals": [], "error": error, "changes": {}, "chats": [],
        "summary": {"resource": chat, "title": "", "status": 1, "modifiedAt": time}, "chat": chat,
        "tools": [], "customizations": [], "state": {"kind": "stopped"}, "activity": "x", "movable": true,
        "customization": {"type": "skill", "id": "s", "uri": "file:///s", "name": "S"},
        "request": {"kind": "toolConfirmation", "id": "n", "chat": chat, "turnId": "t", "toolCall": call},
        "partId": "p", "part": {"kind": "markdown", "id": "p", "content": ""}, "usage": {"inputTokens": 1},
        "turns": [], "toolName": "x", "displayName": "X", "invocationMessage": "x",
        "files": [], "reviewed": true, "file": {"id": "f", "edit": {}}, "fileId": "f", "operationId": "undo",
        "status": "ready", "work": {"kind": "unheardOf", "id": "w"}, "auth": {"reason": "required", "resource": {"resource": "https://x"}},
    });
    let mut action = client_fields;
    action.as_object_mut().unwrap().extend(host_fields.as_object().unwrap().clone());
    match kind {
        "chat/delta" | "chat/reasoning" | "chat/toolCallDelta" => action["content"] = json!("x"),
        "chat/error" => action["part"] = json!({"kind": "error", "error": error}),
        "chat/inputRequested" => action["request"] = json!({"id": "q"}),
        _ => {}
    }
    action
}

#[tokio::test]
async fn host_accepts_only_client_actions_from_clients() {
    let (options, _log) = scripted();
    let mut scene = Scene::of(options).await;
    let changeset = changeset("session");
    scene.wire.snapshot(&changeset).await;
    let mut wrong = Vec::new();
    for ChannelActions { prefix, client_actions, host_actions } in CHANNELS {
        let channel = match prefix {
            "root" => "ahp-root://",
            "session" => scene.session.as_str(),
            "changeset" => &changeset,
            _ => scene.chat.as_str(),
        }
        .to_owned();
        let host_actions = host_actions.iter().map(|name| (name, false));
        for (name, taken) in client_actions.iter().map(|name| (name, true)).chain(host_actions) {
            let action = complete(&format!("{prefix}/{name}"), &scene.chat);
            let seq = scene.wire.dispatch(&channel, action).await;
            let envelope = scene.wire.envelope(seq).await;
            let reason = envelope["rejectionReason"].as_str().unwrap_or_default();
            let understood = !reason.contains("malformed");
            if !understood || reason.contains("clients may not dispatch this action") == taken {
                wrong.push(format!("{prefix}/{name}: {reason:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
