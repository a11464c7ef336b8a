use std::collections::BTreeSet;

use ahp_types::actions::StateAction;
use serde_json::{Value, json};

use super::*;

/// Returns the protocol type of the action in the named row.
fn wire_name(row: &str) -> String {
    let channels = [
        ("Root", "root"),
        ("Session", "session"),
        ("Chat", "chat"),
        ("Canvas", "canvas"),
        ("Changeset", "changeset"),
        ("Annotations", "annotations"),
        ("Terminal", "terminal"),
        ("ResourceWatch", "resourceWatch"),
        ("AutomationRun", "automationRun"),
        ("Automation", "automation"),
    ];
    let strip = |(prefix, channel)| Some((channel, row.strip_prefix(prefix)?));
    let (channel, rest) = channels.into_iter().find_map(strip).unwrap();
    let mut rest = rest.chars();
    let first = rest.next().unwrap().to_ascii_lowercase();
    format!("{channel}/{first}{}", rest.as_str())
}

/// Builds an action of this type from an object that has the required fields of every
/// action.
fn action(kind: &str) -> StateAction {
    let time = "2026-11-15T09:00:05.000Z";
    let message = json!({"text": "x", "origin": {"kind": "user"}});
    let error = json!({"errorType": "x", "message": "x"});
    let mut fields = json!({
        "type": kind, "title": "x", "config": {}, "isRead": true, "isArchived": true, "id": "x",
        "activeClient": {"clientId": "c", "tools": []}, "clientId": "c", "directory": "file:///w",
        "replacement": "file:///v", "enablement": [], "turnId": "t", "startedAt": time, "message": &message,
        "duration": 1, "toolCallId": "k", "approved": true, "confirmed": "user-action", "kind": "queued",
        "order": [], "result": {"success": true, "pastTenseMessage": "x"}, "content": [], "requestId": "q",
        "questionId": "q", "response": "decline",
    });
    fields.as_object_mut().unwrap().extend(fields_of_hosts());
    fields.as_object_mut().unwrap().extend(fields_of_other_channels(message));
    match kind {
        "chat/delta" | "chat/reasoning" | "chat/toolCallDelta" => fields["content"] = json!("x"),
        "chat/error" => fields["part"] = json!({"kind": "error", "error": error}),
        "chat/inputRequested" => fields["request"] = json!({"id": "q"}),
        _ => {}
    }
    let action: StateAction = serde_json::from_value(fields).unwrap();
    assert!(!matches!(action, StateAction::Unknown(_)), "{kind}");
    action
}

/// The required fields of actions that only hosts send on the root, a session or a chat.
fn fields_of_hosts() -> serde_json::Map<String, Value> {
    let time = "2026-11-15T09:00:05.000Z";
    let call = json!({"status": "streaming", "toolCallId": "k", "toolName": "x", "displayName": "X"});
    let fields = json!({
        "agents": [], "activeSessions": 1, "terminals": [],
        "error": {"errorType": "x", "message": "x"}, "changes": {}, "chats": [], "chat": "ahp-chat:/c", "tools": [],
        "summary": {"resource": "ahp-chat:/c", "title": "", "status": 1, "modifiedAt": time},
        "customizations": [], "state": {"kind": "stopped"}, "activity": "x", "movable": true,
        "customization": {"type": "skill", "id": "s", "uri": "file:///s", "name": "S"},
        "request": {"kind": "toolConfirmation", "id": "n", "chat": "ahp-chat:/c", "turnId": "t", "toolCall": call},
        "partId": "p", "part": {"kind": "markdown", "id": "p", "content": ""}, "usage": {"inputTokens": 1},
        "turns": [], "toolName": "x", "displayName": "X", "invocationMessage": "x",
        "work": {"kind": "unheardOf", "id": "w"},
        "auth": {"reason": "required", "resource": {"resource": "https://x"}},
    });
    fields.as_object().unwrap().clone()
}

/// The required fields of actions on channels other than root, session and chat.
fn fields_of_other_channels(message: Value) -> serde_json::Map<String, Value> {
    let time = "2026-11-15T09:00:05.000Z";
    let definition =
        json!({"title": "x", "message": message, "session": {}, "enabled": true, "triggers": []});
    let fields = json!({
        "canvas": {"instanceId": "i", "extensionId": "e", "canvasId": "c"}, "canvases": [],
        "status": "ready", "file": {"id": "f", "edit": {}}, "fileId": "f", "files": [], "reviewed": true,
        "operationId": "o", "annotationId": "a", "entryId": "e", "entry": {"id": "e", "text": "x"},
        "annotation": {"id": "a", "origin": {"kind": "user", "turnId": "t", "session": "x:/s", "chat": "ahp-chat:/c"},
            "resource": "file:///f", "resolved": false, "entries": []},
        "data": "x", "cols": 80, "rows": 24, "claim": {"kind": "client", "clientId": "c"}, "cwd": "file:///w",
        "commandId": "c", "commandLine": "x", "timestamp": 1, "resource": "ahp-automation:/a",
        "definition": definition, "lifecycle": {"kind": "pending", "status": "pending", "createdAt": time}, "session": "x:/s",
        "automation": {"resource": "ahp-automation:/a", "definition": definition, "runs": [], "operations": [],
            "createdAt": time, "modifiedAt": time},
    });
    fields.as_object().unwrap().clone()
}

/// Every action except `Unknown`, with its type.
fn all() -> Vec<(String, StateAction)> {
    let names = table::NAMES.iter().filter(|name| **name != "Unknown");
    names.map(|name| wire_name(name)).map(|kind| (kind.clone(), action(&kind))).collect()
}

fn kinds_where(holds: impl Fn(&ActionMeaning<'_>) -> bool) -> BTreeSet<String> {
    all().into_iter().filter(|(_, action)| holds(&meaning(action))).map(|(kind, _)| kind).collect()
}

fn kinds(channel: &str, names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| format!("{channel}/{name}")).collect()
}

#[test]
fn action_channel_matches_type_prefix() {
    for (kind, action) in all() {
        let channel = match kind.split_once('/').unwrap().0 {
            "root" => ChannelKind::Root,
            "session" => ChannelKind::Session,
            "chat" => ChannelKind::Chat,
            "canvas" => ChannelKind::Canvas,
            "changeset" => ChannelKind::Changeset,
            "annotations" => ChannelKind::Annotations,
            "terminal" => ChannelKind::Terminal,
            "resourceWatch" => ChannelKind::ResourceWatch,
            "automation" => ChannelKind::Automations,
            _ => ChannelKind::AutomationRun,
        };
        assert_eq!(meaning(&action).channel, Some(channel), "{kind}");
    }
}

#[test]
fn rejects_unknown_action_from_clients_and_agents() {
    let unknown = StateAction::Unknown(Value::Null);
    let meaning = meaning(&unknown);
    assert!(meaning.channel.is_none() && meaning.client.is_none() && meaning.agent.is_none());
}

/// The protocol's list, limited to the channels of this host.
#[test]
fn client_actions_match_protocol_list() {
    let mut allowed = kinds("root", &["configChanged"]);
    allowed.extend(kinds(
        "session",
        &[
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
    ));
    allowed.extend(kinds(
        "chat",
        &[
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
    ));
    allowed.extend(kinds("changeset", &["filesReviewChanged"]));
    assert_eq!(kinds_where(|meaning| meaning.client.is_some()), allowed);
}

#[test]
fn queue_is_resumed_only_by_client_turn_and_queue_actions() {
    let resuming = ["turnStarted", "turnResume", "pendingMessageSet", "queuedMessagesReordered"];
    assert_eq!(kinds_where(|meaning| meaning.resumes_queue), kinds("chat", &resuming));
    assert!(kinds_where(|meaning| meaning.resumes_queue && meaning.client.is_none()).is_empty());
}

#[test]
fn turn_boundaries_are_stored_before_publication() {
    for (kind, action) in all() {
        let meaning = meaning(&action);
        let stored = meaning.client.is_none_or(|rule| rule.durability == Durability::Ahead);
        // The host itself never resumes a turn.
        let by_host = meaning.host == Durability::Ahead || meaning.turn == Some(TurnEffect::Resumes);
        assert!(meaning.turn.is_none() || (stored && by_host && meaning.shows_in_list), "{kind}");
    }
}

#[test]
fn merged_and_unlisted_actions_are_not_stored_ahead() {
    for (kind, action) in all() {
        let meaning = meaning(&action);
        let frequent = meaning.merging != Merging::Never || !meaning.shows_in_list;
        assert!(!frequent || meaning.host == Durability::After, "{kind}");
    }
}

#[test]
fn agent_actions_exist_only_on_sessions_and_chats() {
    for (kind, action) in all() {
        let meaning = meaning(&action);
        match meaning.agent {
            Some(AgentRule::InTurn(turn)) => {
                assert_eq!((meaning.channel, turn), (Some(ChannelKind::Chat), "t"))
            }
            Some(AgentRule::Running) => assert_eq!(meaning.channel, Some(ChannelKind::Chat), "{kind}"),
            Some(AgentRule::Anytime) => {
                assert!(matches!(meaning.channel, Some(ChannelKind::Session | ChannelKind::Chat)), "{kind}");
            }
            None => {}
        }
    }
}

#[test]
fn agents_are_updated_only_after_client_actions_on_session() {
    for (kind, action) in all() {
        let meaning = meaning(&action);
        let on_session = meaning.client.is_some() && meaning.channel == Some(ChannelKind::Session);
        assert!(meaning.agent_update.is_none() || on_session, "{kind}");
    }
}

#[test]
fn action_with_metadata_is_not_merged() {
    let with_meta = |kind: &str| {
        let mut fields = serde_json::to_value(action(kind)).unwrap();
        fields["_meta"] = json!({"a": 1});
        serde_json::from_value::<StateAction>(fields).unwrap()
    };
    for kind in ["chat/delta", "chat/reasoning", "chat/usage"] {
        assert_ne!(meaning(&action(kind)).merging, Merging::Never, "{kind}");
        assert_eq!(meaning(&with_meta(kind)).merging, Merging::Never, "{kind}");
    }
    // The test action has an invocation message.
    assert_eq!(meaning(&action("chat/toolCallDelta")).merging, Merging::Never);
}
