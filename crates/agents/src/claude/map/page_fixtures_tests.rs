//! Fixtures for the page: the actions of every recording, and the chat that the official
//! reducers make of them. The page's own reducers must produce the same chat.
//!
//! `INNKEEPER_UPDATE_FIXTURES=1 cargo test -p innkeeper-agents page_fixtures` writes them.

use std::fs;
use std::path::{Path, PathBuf};

use ahp::reducers::apply_action_to_chat;
use ahp_types::actions::{ChatTurnCompleteAction, ChatTurnStartedAction};
use ahp_types::state::ChatState;
use innkeeper_claude::wire::decode;
use serde_json::{Value, json};

use super::*;

const START: &str = "2026-11-15T09:00:05.000Z";

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn empty_chat() -> ChatState {
    let chat = json!({"resource": "ahp-chat:/1", "title": "", "status": 1, "modifiedAt": START, "turns": []});
    serde_json::from_value(chat).unwrap()
}

fn started(turn: &TurnId) -> StateAction {
    let message = json!({"text": turn.as_str(), "origin": {"kind": "user"}});
    StateAction::ChatTurnStarted(ChatTurnStartedAction {
        turn_id: turn.as_str().to_owned(),
        started_at: START.to_owned(),
        message: serde_json::from_value(message).unwrap(),
        queued_message_id: None,
        meta: None,
    })
}

fn completed(turn: &TurnId) -> StateAction {
    let turn_id = turn.as_str().to_owned();
    StateAction::ChatTurnComplete(ChatTurnCompleteAction { turn_id, duration: 1500, meta: None })
}

/// The actions of a recording: each prompt starts a turn, each result ends it.
fn actions(wire: &Path) -> Vec<StateAction> {
    let (mut mapper, mut actions, mut turns) = (Mapper::default(), Vec::new(), 0);
    let mut running: Option<TurnId> = None;
    for line in fs::read_to_string(wire).unwrap().lines() {
        let frame: Value = serde_json::from_str(line).unwrap();
        let message = &frame["msg"];
        if frame["dir"] == "host->cli" {
            if message["type"] == "user" && running.is_none() {
                turns += 1;
                let turn = TurnId::new(&format!("turn-{turns}"));
                mapper.begin_turn();
                actions.push(started(&turn));
                running = Some(turn);
            }
            continue;
        }
        let Ok(message) = decode(message.to_string().as_bytes()) else { continue };
        let Some(turn) = &running else { continue };
        actions.extend(mapper.map(turn, &message));
        if matches!(message, Message::Result(_)) {
            actions.extend(running.take().map(|turn| completed(&turn)));
        }
    }
    actions
}

/// The actions without the temporary directories of the recorded runs. Replaced before the actions are reduced,
/// so that actions and chat agree.
fn neutral(actions: &[StateAction]) -> Vec<StateAction> {
    let mut text = serde_json::to_string(actions).unwrap();
    for (from, to) in [("/tmp/claude-l", "/home/gues"), ("/tmp/", "/scratch/"), ("tmp-home-", "home-")] {
        text = text.replace(from, to);
    }
    serde_json::from_str(&text).unwrap()
}

fn fixtures() -> String {
    let mut lines = Vec::new();
    for version in ["0.2.112", "0.3.325"] {
        let mut scenarios: Vec<PathBuf> = fs::read_dir(root().join("recordings").join(version))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        scenarios.sort();
        for scenario in scenarios {
            let actions = neutral(&actions(&scenario.join("wire.jsonl")));
            let mut chat = empty_chat();
            for action in &actions {
                apply_action_to_chat(&mut chat, action);
            }
            let name = format!("{version}/{}", scenario.file_name().unwrap().to_string_lossy());
            lines.push(json!({"name": name, "actions": actions, "chat": chat}).to_string());
        }
    }
    lines.join("\n") + "\n"
}

#[test]
fn page_fixtures_are_current() {
    let path = root().join("web/tests/fixtures/chats.jsonl");
    let expected = fixtures();
    if std::env::var_os("INNKEEPER_UPDATE_FIXTURES").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &expected).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == expected, "the fixtures are outdated; run this test with INNKEEPER_UPDATE_FIXTURES=1");
}
