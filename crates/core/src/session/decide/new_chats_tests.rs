use ahp_types::state::Turn;
use serde_json::{Value, json};

use super::*;
use crate::agent::{MessageLink, TurnLink};
use crate::channel::ChannelUri;

const TIME: &str = "2026-11-15T10:00:00.000Z";

fn session() -> SessionState {
    serde_json::from_value(json!({
        "provider": "claude", "title": "Session", "status": 1, "lifecycle": "ready", "activeClients": [],
        "chats": [], "defaultChat": "ahp-chat:/source", "workingDirectories": ["file:///a", "file:///b"],
    }))
    .unwrap()
}

fn stored(id: &str) -> StoredTurn {
    let message = json!({"text": id, "origin": {"kind": "user"}});
    let turn = json!({"id": id, "message": message, "state": "complete", "responseParts": []});
    let turn: Turn = serde_json::from_value(turn).unwrap();
    StoredTurn { id: id.to_owned(), body: serde_json::value::to_raw_value(&turn).unwrap().into() }
}

/// A chat with three finished turns and a running one.
fn source_doc() -> ChatDoc {
    let mut state = chat_state(&ChannelUri::new("ahp-chat:/source"), TIME);
    state.working_directories = Some(vec!["file:///a".to_owned()]);
    let message = json!({"text": "r", "origin": {"kind": "user"}});
    let running = json!({"id": "running", "startedAt": TIME, "message": message, "responseParts": []});
    state.active_turn = Some(serde_json::from_value(running).unwrap());
    ChatDoc::from_stored(state, ["1", "2", "3"].map(stored).to_vec()).unwrap()
}

fn links() -> TurnLinks {
    let mut links = TurnLinks::default();
    for turn in ["1", "2", "3"] {
        links.add(turn, MessageLink::Prompt(format!("prompt {turn}")));
    }
    links
}

fn link(turn: &str) -> Option<TurnLink> {
    links().get(turn).cloned()
}

fn new(source: Value) -> NewChat {
    NewChat {
        uri: ChannelUri::new("ahp-chat:/new"),
        source: serde_json::from_value(source).unwrap(),
        initial_message: None,
        working_directories: None,
    }
}

fn empty() -> NewChat {
    new(Value::Null)
}

fn fork(turn: &str) -> NewChat {
    new(json!({"kind": "fork", "chat": "ahp-chat:/source", "turnId": turn}))
}

fn side_chat(turn: &str, selection: Value) -> NewChat {
    let mut source = json!({"kind": "sideChat", "chat": "ahp-chat:/source", "turnId": turn});
    if !selection.is_null() {
        source["selection"] = selection;
    }
    new(source)
}

/// The conversation of the source chat.
const CONVERSATION: Uuid = Uuid::from_u128(1);
/// The conversation that the source chat was forked from.
const ORIGIN: Uuid = Uuid::from_u128(2);

fn decided(new: &NewChat, history: &History) -> Result<NewChatContent, ChatError> {
    let (session, doc, links) = (session(), source_doc(), links());
    let capabilities = MultipleChatsCapability { fork: Some(true), side_chat: Some(true) };
    let resume_token = ResumeToken::new("token");
    let source = BranchSource {
        doc: &doc,
        history,
        conversation: CONVERSATION,
        resume_token: Some(&resume_token),
        links: &links,
    };
    let view =
        NewChatView { session: &session, source: Some(source), capabilities: &capabilities, time: TIME };
    new_chat(new, view)
}

fn reason(outcome: Result<NewChatContent, ChatError>) -> String {
    outcome.map_or_else(|error| error.to_string(), |_| "ok".to_owned())
}

#[test]
fn invalid_chats_are_refused() {
    let unknown_turn = "the source chat does not have this turn, or the turn is still running";
    let mut foreign = empty();
    foreign.working_directories = Some(vec!["file:///c".to_owned()]);
    let long = json!({"text": "x".repeat(MAX_SELECTION + 1)});
    for (chat, expected) in [
        (empty(), "ok"),
        (foreign, "the directory \"file:///c\" does not belong to the session"),
        (fork("2"), "ok"),
        (fork("gone"), unknown_turn),
        (fork("running"), unknown_turn),
        (side_chat("2", Value::Null), "ok"),
        (side_chat("running", Value::Null), "ok"),
        (side_chat("gone", Value::Null), unknown_turn),
        (side_chat("2", json!({"text": "some"})), "ok"),
        (side_chat("2", json!({"text": ""})), "the selection is empty; leave it out instead"),
        (side_chat("2", long), "the selection is longer than 65536 bytes; select less text"),
        (new(json!({"kind": "later"})), "unknown kind of chat source"),
    ] {
        assert_eq!(reason(decided(&chat, &History::Resume)), expected, "{chat:?}");
    }
}

#[test]
fn branches_need_a_source_and_a_capable_agent() {
    let session = session();
    let view = |capabilities| NewChatView { session: &session, source: None, capabilities, time: TIME };
    let all = MultipleChatsCapability { fork: Some(true), side_chat: Some(true) };
    let none = MultipleChatsCapability { fork: None, side_chat: Some(false) };
    let foreign = "the source must be a chat of this session and not a subagent's chat";
    for (new, capabilities, expected) in [
        (fork("1"), &all, foreign),
        (side_chat("1", Value::Null), &all, foreign),
        (fork("1"), &none, "this agent does not support forks"),
        (side_chat("1", Value::Null), &none, "this agent does not support side chats"),
        (new(Value::Null), &none, "ok"),
    ] {
        assert_eq!(reason(new_chat(&new, view(capabilities))), expected, "{new:?}");
    }
}

#[test]
fn fork_has_turns_links_title_and_directories_of_its_source() {
    let content = decided(&fork("2"), &History::Resume).unwrap();
    let turns: Vec<&str> = content.turns.iter().map(|turn| turn.id.as_str()).collect();
    assert_eq!(turns, ["1", "2"]);
    assert!(content.links.get("2").is_some() && content.links.get("3").is_none());
    assert_eq!(content.state.title, "Session");
    assert_eq!(content.state.working_directories, Some(vec!["file:///a".to_owned()]));
    assert_eq!(content.state.movable, Some(true));
}

#[test]
fn side_chat_has_neither_turns_nor_directories_of_its_source() {
    let content = decided(&side_chat("running", Value::Null), &History::Resume).unwrap();
    assert!(content.turns.is_empty() && content.links.iter().next().is_none());
    assert_eq!((content.state.title.as_str(), content.state.working_directories), ("Session", None));
    let History::Branch(branch) = content.history else { panic!("not a branch") };
    let BranchKind::SideChat { running: Some(running), .. } = branch.kind else { panic!("not running") };
    assert_eq!(running.id, "running");
}

#[test]
fn branch_starts_where_the_agent_of_the_source_has_a_record() {
    let origin = |turn: &str| {
        let origin = Branch {
            conversation: ORIGIN,
            resume_token: None,
            turn: turn.to_owned(),
            link: link("3"),
            kind: BranchKind::Fork,
        };
        History::Branch(Box::new(origin))
    };
    for (history, turn, expected) in [
        (History::Fresh, "2", None),
        (History::Resume, "2", Some((CONVERSATION, "2", link("2")))),
        // The source was not opened: turns up to its origin are inherited.
        (origin("2"), "1", Some((ORIGIN, "1", link("1")))),
        (origin("2"), "2", Some((ORIGIN, "2", link("2")))),
        (origin("2"), "3", Some((ORIGIN, "2", link("2")))),
        // The source does not have the origin's turn: the link comes from the origin.
        (origin("elsewhere"), "3", Some((ORIGIN, "elsewhere", link("3")))),
    ] {
        let content = decided(&fork(turn), &history).unwrap();
        let branch = match content.history {
            History::Branch(branch) => Some((branch.conversation, branch.turn, branch.link)),
            History::Fresh | History::Resume | History::Rebuild(_) => None,
        };
        let expected = expected.map(|(conversation, turn, link)| (conversation, turn.to_owned(), link));
        assert_eq!(branch, expected, "{history:?} {turn}");
    }
}

#[test]
fn initial_message_is_queued_and_names_the_chat() {
    let mut new = new(Value::Null);
    let message = json!({"text": "Fix the build", "origin": {"kind": "user"}});
    new.initial_message = Some(serde_json::from_value(message).unwrap());
    check_initial_message(&new).unwrap();
    let state = decided(&new, &History::Fresh).unwrap().state;
    let queued = state.queued_messages.unwrap_or_default();
    assert_eq!(state.title, "Fix the build");
    assert_eq!(queued.iter().map(|queued| queued.id.as_str()).collect::<Vec<_>>(), [INITIAL_MESSAGE]);

    let message = json!({"text": "x", "origin": {"kind": "agent"}});
    new.initial_message = Some(serde_json::from_value(message).unwrap());
    let refused = check_initial_message(&new).unwrap_err().to_string();
    assert_eq!(refused, "a client can only send messages of origin \"user\"");
}
