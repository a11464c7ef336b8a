//! The turn machine over recordings of both runtimes.

use std::path::PathBuf;

use serde_json::Value;

use super::*;
use crate::wire::decode;

const OLDER: &str = "0.2.112";
const NEWER: &str = "0.3.325";

/// Counts of the turns and messages that the machine reported.
#[derive(Debug, Default, PartialEq)]
struct Played {
    /// Turns requested by the host that ended with a result.
    answered: usize,
    /// Steering messages that were taken up.
    steered: usize,
    /// Turns started by the runtime that ended with a result.
    background: usize,
}

/// Plays a recording. A message that is written during a turn steers it. For recordings without uuids, an
/// echo is added after the `init` that follows a message.
fn play(version: &str, scenario: &str) -> Played {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../recordings");
    let text = std::fs::read_to_string(root.join(version).join(scenario).join("wire.jsonl")).unwrap();
    let (mut machine, mut played, mut written, mut unechoed) =
        (TurnMachine::default(), Played::default(), 0, None);
    let mut open = None;
    for line in text.lines() {
        let frame: Value = serde_json::from_str(line).unwrap();
        let message = &frame["msg"];
        if frame["dir"] == "host->cli" {
            if message["type"] == "user" {
                written += 1;
                let recorded: Option<Uuid> = message["uuid"].as_str().and_then(|uuid| uuid.parse().ok());
                let uuid = recorded.unwrap_or(Uuid::from_u128(written));
                unechoed = recorded.is_none().then_some(uuid);
                match open {
                    Some(turn) => machine.steer(turn, uuid, PromptKind::Text).unwrap(),
                    None => open = Some(machine.open(uuid, PromptKind::Text)),
                }
            }
            continue;
        }
        let message = decode(message.to_string().as_bytes()).unwrap();
        let mut verdicts = machine.judge(machine.generation(), &message);
        if message.kind() == "system/init"
            && let Some(uuid) = unechoed.take()
        {
            let echo = serde_json::json!({ "type": "user", "uuid": uuid, "isReplay": true });
            verdicts
                .extend(machine.judge(machine.generation(), &decode(echo.to_string().as_bytes()).unwrap()));
        }
        for verdict in verdicts {
            match verdict {
                Verdict::TakenUp { origin: TurnOrigin::Steering, .. } => played.steered += 1,
                Verdict::Ends(end) if Some(end.turn) == open => {
                    assert!(matches!(end.reason, EndReason::Result(_)), "{end:?}");
                    assert!(end.untaken.is_empty(), "{end:?}");
                    played.answered += 1;
                    open = None;
                }
                Verdict::Ends(end) if matches!(end.reason, EndReason::Result(_)) => played.background += 1,
                Verdict::Begins { .. }
                | Verdict::TakenUp { .. }
                | Verdict::Belongs(_)
                | Verdict::Ends(_)
                | Verdict::Drained(_) => {}
            }
        }
    }
    assert_eq!(open, None, "{version} {scenario}: turn did not end");
    played
}

#[test]
fn steered_turn_ends_once_whether_or_not_message_was_folded_in() {
    let scenarios = [
        "steer_stream_default",
        "steer_tool_default",
        "steer_tool_now",
        "steer_tool_later",
        "steer_tool_replay",
    ];
    for scenario in scenarios {
        assert_eq!(play(NEWER, scenario), Played { answered: 1, steered: 1, background: 0 }, "{scenario}");
    }
    assert_eq!(play(OLDER, "steer_tool_replay"), Played { answered: 1, steered: 1, background: 0 });
}

#[test]
fn merged_messages_are_all_taken_up() {
    for version in [OLDER, NEWER] {
        assert_eq!(
            play(version, "queue_three"),
            Played { answered: 1, steered: 3, background: 0 },
            "{version}"
        );
    }
}

#[test]
fn turn_after_a_background_task_is_a_background_turn() {
    for version in [OLDER, NEWER] {
        assert_eq!(
            play(version, "bash_background"),
            Played { answered: 1, steered: 0, background: 1 },
            "{version}"
        );
    }
    assert_eq!(play(NEWER, "subagent_background"), Played { answered: 1, steered: 0, background: 1 });
    // The result is withheld while the subagent runs, and the following turn ends both.
    assert_eq!(play(OLDER, "subagent_background"), Played { answered: 1, steered: 0, background: 0 });
}
