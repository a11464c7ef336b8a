//! Fixtures for the page: the actions of every recording, and the chat that the official
//! reducers make of them. The page's own reducers must produce the same chat.
//!
//! `INNKEEPER_UPDATE_FIXTURES=1 cargo test -p innkeeper-agents page_fixtures` writes them.

use std::fs;

use ahp::reducers::apply_action_to_chat;
use serde_json::json;

use super::recorded_play::{VERSIONS, empty_chat, play, root, scenarios};
use super::*;

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
    for version in VERSIONS {
        for scenario in scenarios(version) {
            let actions = neutral(&play(version, &scenario).actions);
            let mut chat = empty_chat();
            for action in &actions {
                apply_action_to_chat(&mut chat, action);
            }
            let name = format!("{version}/{scenario}");
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
