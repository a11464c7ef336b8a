use serde_json::{Value, json};

use super::*;

fn uri(name: &str) -> ChannelUri {
    ChannelUri::new(&format!("ahp-chat:/{name}"))
}

fn session(chats: &[&str]) -> SessionState {
    let chats: Vec<Value> = chats
        .iter()
        .map(|chat| {
            json!({"resource": uri(chat).as_str(), "title": "", "status": 1, "modifiedAt": "2026-11-15T09:00:00.000Z"})
        })
        .collect();
    serde_json::from_value(json!({
        "provider": "claude", "title": "", "status": 1, "lifecycle": "ready", "activeClients": [],
        "chats": chats, "workingDirectories": ["file:///a"],
    }))
    .unwrap()
}

fn chat(name: &str, title: &str) -> ChatState {
    serde_json::from_value(json!({
        "resource": uri(name).as_str(), "title": title, "status": 1, "turns": [],
        "modifiedAt": "2026-11-15T09:00:00.000Z",
        "workingDirectories": ["file:///a", "file:///b"],
    }))
    .unwrap()
}

fn reason(outcome: Result<(), ChatError>) -> String {
    outcome.map_or_else(|error| error.to_string(), |()| "ok".to_owned())
}

#[test]
fn change_of_chat_depends_on_its_role_and_state() {
    use ChatChange::{Dispose, Place, Release};
    let free = ChatFacts { is_default: false, is_child: false, has_running_turn: false, leaving: None };
    let default = ChatFacts { is_default: true, ..free };
    let child = ChatFacts { is_child: true, ..free };
    let busy = ChatFacts { has_running_turn: true, ..free };
    let busy_child = ChatFacts { has_running_turn: true, ..child };
    let (disposed, in_transit) = (Leaving::Disposed(Vec::new()), Leaving::InTransit);
    let disposed = ChatFacts { leaving: Some(&disposed), ..free };
    let moving = ChatFacts { leaving: Some(&in_transit), ..free };
    for (facts, change, expected) in [
        (free, Place, "ok"),
        (free, Dispose, "ok"),
        (free, Release, "ok"),
        (default, Place, "the default chat cannot be moved"),
        (default, Dispose, "the default chat cannot be disposed; dispose the session instead"),
        (default, Release, "the default chat cannot be moved to another session"),
        (child, Place, "ok"),
        (child, Dispose, "ok"),
        (child, Release, "a subagent's chat cannot be moved to another session"),
        (busy, Place, "ok"),
        (busy, Dispose, "ok"),
        (busy, Release, "a turn is running in ahp-chat:/1; wait until it ends or cancel it first"),
        (busy_child, Place, "ok"),
        (busy_child, Dispose, "the subagent is still working; cancel its turn first"),
        (disposed, Place, "unknown chat ahp-chat:/1"),
        (disposed, Dispose, "unknown chat ahp-chat:/1"),
        (disposed, Release, "unknown chat ahp-chat:/1"),
        (moving, Place, "the chat is being moved; try again later"),
        (moving, Dispose, "the chat is being moved; try again later"),
        (moving, Release, "the chat is being moved; try again later"),
    ] {
        assert_eq!(reason(check_change(&uri("1"), facts, change)), expected, "{facts:?} {change:?}");
    }
}

#[test]
fn full_or_ending_session_gets_no_chat() {
    let full = "a session can have at most 64 chats; dispose of some first";
    for (chats, ending, expected) in [
        (0, None, "ok"),
        (MAX_CHATS - 1, None, "ok"),
        (MAX_CHATS, None, full),
        (0, Some(SessionEnding::Suspend), "the session is closing"),
        (MAX_CHATS, Some(SessionEnding::Dispose), "the session is closing"),
    ] {
        assert_eq!(reason(check_room(chats, ending)), expected, "{chats} {ending:?}");
    }
}

#[test]
fn anchor_must_be_another_chat_of_the_session() {
    let (one, two, gone) = (uri("1"), uri("2"), uri("gone"));
    let is_here = |after: &ChannelUri| *after != gone;
    let missing = "the chat to place it after is not in the session";
    for (after, expected) in [
        (None, "ok"),
        (Some(&two), "ok"),
        (Some(&one), "cannot move a chat after itself"),
        (Some(&gone), missing),
    ] {
        assert_eq!(reason(check_placement(&one, after, is_here)), expected, "{after:?}");
    }
    for (after, expected) in [(None, "ok"), (Some(&one), "ok"), (Some(&gone), missing)] {
        assert_eq!(reason(check_anchor(after, is_here)), expected, "{after:?}");
    }
}

#[test]
fn order_changes_only_if_chat_is_elsewhere() {
    let session = session(&["1", "2", "3"]);
    for (chat, after, expected) in [
        ("3", Some("1"), Some(vec!["1", "3", "2"])),
        ("3", None, Some(vec!["3", "1", "2"])),
        ("1", Some("3"), Some(vec!["2", "3", "1"])),
        ("1", Some("gone"), Some(vec!["2", "3", "1"])),
        ("1", None, None),
        ("3", Some("2"), None),
        ("3", Some("gone"), None),
        // About to be added, at the end.
        ("new", Some("3"), None),
        ("new", Some("1"), Some(vec!["1", "new", "2", "3"])),
    ] {
        let order = order_after(&session, &uri(chat), after.map(uri).as_ref());
        let expected = expected.map(|chats| {
            let chats = chats.into_iter().map(|chat| uri(chat).as_str().to_owned()).collect();
            StateAction::SessionChatsReordered(SessionChatsReorderedAction { chats })
        });
        assert_eq!(order, expected, "{chat} after {after:?}");
    }
}

/// The actions of an adoption as JSON, each with its channel.
fn adopted(
    listed: bool,
    chat: &ChatState,
    placement: &ChatPlacement,
    replaced: Option<&ChannelUri>,
) -> Vec<Value> {
    let actions = adoption((&session(&["1", "2"]), listed), chat, placement, replaced);
    let shown = |(target, action): (ActionTarget, StateAction)| {
        let mut shown = serde_json::to_value(action).unwrap();
        shown["on"] = json!(if target == ActionTarget::Session { "session" } else { "chat" });
        // The summary is compared in part: the fields that depend on the session.
        if let Some(summary) = shown.get_mut("summary") {
            *summary = json!([summary["movable"], summary["workingDirectories"]]);
        }
        shown
    };
    actions.into_iter().map(shown).collect()
}

#[test]
fn adopted_chat_loses_foreign_directories_and_takes_its_place() {
    let placement = ChatPlacement::After(Some(uri("1")));
    let order = ["1", "new", "2"].map(|chat| uri(chat).as_str().to_owned());
    let expected = [
        json!({"on": "chat", "type": "chat/workingDirectoryRemoved", "directory": "file:///b"}),
        json!({"on": "session", "type": "session/chatAdded", "summary": [null, ["file:///a"]]}),
        json!({"on": "session", "type": "session/chatsReordered", "chats": order}),
    ];
    assert_eq!(adopted(true, &chat("new", ""), &placement, None), expected);
}

#[test]
fn adopted_default_chat_replaces_the_unused_one() {
    let placement = ChatPlacement::AsDefault { title: "Old session".to_owned() };
    for (title, expected) in [("", "Old session"), ("Own", "Own")] {
        let expected = [
            json!({"on": "chat", "type": "chat/movableChanged", "movable": false}),
            json!({"on": "chat", "type": "chat/workingDirectoryRemoved", "directory": "file:///b"}),
            json!({"on": "session", "type": "session/chatAdded", "summary": [false, ["file:///a"]]}),
            json!({
                "on": "session", "type": "session/defaultChatChanged",
                "defaultChat": uri("new").as_str(),
            }),
            json!({"on": "session", "type": "session/titleChanged", "title": expected}),
            json!({"on": "session", "type": "session/ready"}),
            json!({"on": "session", "type": "session/chatRemoved", "chat": uri("1").as_str()}),
        ];
        assert_eq!(adopted(false, &chat("new", title), &placement, Some(&uri("1"))), expected);
    }
}
