//! The mapper and the turn machine over recordings of the real runtimes.

use std::path::PathBuf;

use innkeeper_claude::wire::decode;
use serde_json::{Value, json};

use innkeeper_claude::turns::{EndReason, PromptKind, TurnMachine, Verdict};
use uuid::Uuid;

use super::*;

/// Each scenario is recorded with both versions.
const SCENARIOS: [&str; 10] = [
    "hello",
    "thinking",
    "two_turns",
    "bash",
    "parallel_tools",
    "interrupt_stream",
    "midstream_drop",
    "upstream_400",
    "subagent",
    "session_state_env",
];

fn recordings() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../recordings")
}

/// The echo of a user message.
fn echo(uuid: Uuid) -> Message {
    let frame = json!({"type": "user", "uuid": uuid, "isReplay": true, "message": {}});
    decode(frame.to_string().as_bytes()).unwrap()
}

/// Feeds a recording to the turn machine and the mapper; returns what the session would
/// receive. The recordings have no echoes, and most have no uuids, so an echo is added for
/// each message.
fn play(version: &str, scenario: &str) -> Vec<Value> {
    let path = recordings().join(version).join(scenario).join("wire.jsonl");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (mut turns, mut mapper, mut told) = (TurnMachine::default(), Mapper::default(), Vec::new());
    let (mut started, mut unechoed) = (0, None);
    for line in text.lines() {
        let frame: Value = serde_json::from_str(line).unwrap();
        let message = &frame["msg"];
        if frame["dir"] == "host->cli" {
            if message["type"] == "user" {
                started += 1;
                mapper.begin_turn();
                let recorded = message["uuid"].as_str().and_then(|uuid| uuid.parse().ok());
                let uuid = recorded.unwrap_or(Uuid::from_u128(started));
                turns.open(uuid, PromptKind::Text);
                unechoed = Some(uuid);
                told.push(json!({"wrote": format!("turn-{started}")}));
            }
            continue;
        }
        if message.is_null() {
            continue;
        }
        let message = decode(message.to_string().as_bytes()).unwrap();
        if message.kind() == "system/init"
            && let Some(uuid) = unechoed.take()
        {
            turns.judge(turns.generation(), &echo(uuid));
        }
        let turn = TurnId::new(&format!("turn-{started}"));
        for verdict in turns.judge(turns.generation(), &message) {
            match verdict {
                Verdict::Belongs(_) => tell(&mut told, mapper.map(&turn, &message)),
                Verdict::Ends(end) => {
                    let EndReason::Result(result) = end.reason else { panic!("{end:?}") };
                    let outcome = format!("{:?}", mapper.outcome(&result));
                    told.push(json!({"ended": turn.as_str(), "outcome": outcome}));
                }
                Verdict::TakenUp { .. } => {}
                Verdict::Begins { .. } | Verdict::Drained(_) => panic!("{verdict:?}"),
            }
        }
    }
    told
}

fn tell(told: &mut Vec<Value>, actions: Vec<StateAction>) {
    told.extend(actions.iter().map(|action| serde_json::to_value(action).unwrap()));
}

#[test]
fn recordings_map_to_reviewed_actions() {
    for version in ["0.2.112", "0.3.325"] {
        for scenario in SCENARIOS {
            let told = play(version, scenario);
            let lines: Vec<String> = told.iter().map(Value::to_string).collect();
            insta::assert_snapshot!(format!("{version}-{scenario}"), lines.join("\n"));
        }
    }
}

#[test]
fn recorded_actions_arrive_in_an_order_that_reducers_accept() {
    for version in ["0.2.112", "0.3.325"] {
        for scenario in SCENARIOS {
            let mut parts = HashSet::new();
            let mut usage = false;
            for told in play(version, scenario) {
                let context = format!("{version}/{scenario}: {told}");
                match told["type"].as_str() {
                    Some("chat/responsePart") => {
                        let new = parts.insert(told["part"]["id"].as_str().unwrap().to_owned());
                        assert!(new, "duplicate part id: {context}");
                    }
                    Some("chat/delta" | "chat/reasoning") => {
                        assert!(
                            parts.contains(told["partId"].as_str().unwrap()),
                            "delta before its part: {context}"
                        );
                    }
                    Some("chat/usage") => usage = true,
                    Some(_) => {}
                    None if told["ended"].is_string() => {
                        assert!(usage, "turn ended before its usage: {context}");
                        usage = false;
                    }
                    None => {}
                }
            }
        }
    }
}

#[test]
fn complete_message_does_not_repeat_streamed_text() {
    for version in ["0.2.112", "0.3.325"] {
        let words: String = play(version, "hello")
            .iter()
            .filter_map(|told| match told["type"].as_str() {
                Some("chat/delta") => told["content"].as_str(),
                Some("chat/responsePart") => told["part"]["content"].as_str(),
                _ => None,
            })
            .collect();
        let path = recordings().join(version).join("hello/wire.jsonl");
        let recorded = std::fs::read_to_string(path).unwrap();
        let result = recorded
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .find(|frame| frame["msg"]["type"] == "result")
            .unwrap();
        assert_eq!(words, result["msg"]["result"].as_str().unwrap());
    }
}

#[test]
fn unmapped_kinds_are_logged_once_with_subtype() {
    let mut mapper = Mapper::default();
    for subtype in ["status", "notification", "files_persisted", "brand_new"] {
        let frame = json!({"type": "system", "subtype": subtype});
        mapper.unowned(&decode(frame.to_string().as_bytes()).unwrap());
        assert!(mapper.skipped.contains(&format!("system/{subtype}")), "{subtype}: {:?}", mapper.skipped);
    }
    assert!(
        mapper
            .map(&TurnId::new("t"), &decode(br#"{"type":"system","subtype":"status"}"#).unwrap())
            .is_empty()
    );
    mapper.unowned(&decode(br#"{"type":"tool_progress"}"#).unwrap());
    assert_eq!(mapper.skipped.len(), 5, "{:?}", mapper.skipped);
}
