//! The mapper over all recordings of the real runtimes.

use ahp_types::state::{ResponsePart, Turn};
use innkeeper_claude::wire::decode;
use serde_json::{Value, json};

use super::recorded_play::{RecordedPlay, SeenStep, VERSIONS, play, scenarios};
use super::*;

/// Longest text in a snapshot, in characters.
const SNAPSHOT_TEXT: usize = 160;

/// Replaces what differs from run to run, and shortens long texts.
#[derive(Default)]
struct Neutral {
    /// Message ids and uuids, in the order of their occurrence.
    ids: Vec<String>,
}

impl Neutral {
    fn text(&mut self, text: &str) -> String {
        let mut neutral = String::new();
        let is_word = |character: char| character.is_ascii_alphanumeric() || "-_".contains(character);
        let mut rest = text;
        while !rest.is_empty() {
            let end = rest.find(|character| !is_word(character)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            let is_uuid = word.len() == 36 && word.matches('-').count() == 4;
            if is_uuid || word.starts_with("msg_fake_") {
                let known = self.ids.iter().position(|id| id == word);
                let number = known.unwrap_or_else(|| {
                    self.ids.push(word.to_owned());
                    self.ids.len() - 1
                });
                neutral.push_str(&format!("id{}", number + 1));
            } else {
                neutral.push_str(word);
            }
            let mut characters = after.chars();
            neutral.extend(characters.next());
            rest = characters.as_str();
        }
        let left = neutral.chars().count().saturating_sub(SNAPSHOT_TEXT);
        if left > 0 {
            let short: String = neutral.chars().take(SNAPSHOT_TEXT).collect();
            neutral = format!("{short}…[+{left}]");
        }
        neutral
    }

    fn value(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(fields) => {
                fields.remove("turnId");
                fields.retain(|name, _| !name.ends_with("durationMs"));
                fields.values_mut().for_each(|field| self.value(field));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn line(&mut self, seen: &SeenStep) -> String {
        let mut action = |word: &str, action: &StateAction| {
            let mut value = serde_json::to_value(action).unwrap();
            let kind = value.as_object_mut().unwrap().remove("type").unwrap();
            self.value(&mut value);
            format!("{word}{} {value}", kind.as_str().unwrap().trim_start_matches("chat/"))
        };
        match seen {
            SeenStep::Began(turn) => format!("=== {turn}"),
            SeenStep::Event(AgentEvent::Action(mapped)) => action("", mapped),
            SeenStep::Event(AgentEvent::PartsDiscarded { parts, .. }) => {
                let parts: Vec<String> = parts.iter().map(|part| self.text(part)).collect();
                format!("DISCARDED {parts:?}")
            }
            SeenStep::Event(AgentEvent::TodoChanged { list }) => format!("TODO {list:?}"),
            SeenStep::Event(AgentEvent::Used { report, .. }) => used(report),
            SeenStep::Event(other) => panic!("unexpected event {other:?}"),
            SeenStep::Asked(asked) => action("(driver) ", asked),
            SeenStep::Answered(answered) => action("(client) ", answered),
            SeenStep::Ended(turn, outcome, _) => self.text(&format!("=== {turn} ends: {outcome:?}")),
        }
    }
}

/// One line about what was used.
fn used(report: &UsageReport) -> String {
    let UsageReport { used, context, model } = report;
    let mut line = "USED".to_owned();
    if let Some(context) = context {
        line += &format!(" context {} ({} cached)", context.input_tokens, context.cache_read_tokens);
    }
    if let Some(cost) = used.nano_dollars {
        line += &format!(" cost {cost} nano dollars");
    }
    line + &model.as_ref().map(|model| format!(" {model}")).unwrap_or_default()
}

fn lines(version: &str, scenario: &str) -> Option<String> {
    if !scenarios(version).iter().any(|name| name == scenario) {
        return None;
    }
    let mut neutral = Neutral::default();
    let lines: Vec<String> = play(version, scenario).seen.iter().map(|seen| neutral.line(seen)).collect();
    Some(lines.join("\n"))
}

/// All scenarios of both versions.
fn all_scenarios() -> Vec<String> {
    let mut names: Vec<String> = VERSIONS.iter().flat_map(|version| scenarios(version)).collect();
    names.sort();
    names.dedup();
    names
}

#[test]
fn recordings_map_to_reviewed_actions() {
    insta::with_settings!({omit_expression => true, prepend_module_to_snapshot => false}, {
        for scenario in all_scenarios() {
            let [older, newer] = VERSIONS.map(|version| lines(version, &scenario));
            let text = match (older, newer) {
                (Some(older), Some(newer)) if older == newer => format!("# both versions\n{older}"),
                (older, newer) => {
                    let section = |version, text: Option<String>| {
                        text.map(|text| format!("# {version}\n{text}\n")).unwrap_or_default()
                    };
                    section(VERSIONS[0], older) + &section(VERSIONS[1], newer)
                }
            };
            insta::assert_snapshot!(scenario.as_str(), text);
        }
    });
}

/// Plays all recordings.
fn plays() -> impl Iterator<Item = (String, RecordedPlay)> {
    VERSIONS.into_iter().flat_map(|version| {
        let play_one = move |name: String| (format!("{version}/{name}"), play(version, &name));
        scenarios(version).into_iter().map(play_one)
    })
}

#[test]
fn recorded_actions_arrive_in_an_order_that_reducers_accept() {
    for (name, play) in plays() {
        let (mut parts, mut usage) = (HashSet::new(), false);
        for seen in &play.seen {
            let context = || format!("{name}: {seen:?}");
            match seen {
                SeenStep::Event(AgentEvent::Action(action)) => match action.as_ref() {
                    StateAction::ChatResponsePart(added) => {
                        let id = match &added.part {
                            ResponsePart::Markdown(part) => &part.id,
                            ResponsePart::Reasoning(part) => &part.id,
                            _ => continue,
                        };
                        assert!(parts.insert(id.clone()), "duplicate part id: {}", context());
                    }
                    StateAction::ChatDelta(delta) => assert!(parts.contains(&delta.part_id), "{}", context()),
                    StateAction::ChatReasoning(delta) => {
                        assert!(parts.contains(&delta.part_id), "{}", context());
                    }
                    _ => {}
                },
                SeenStep::Event(AgentEvent::Used { .. }) => usage = true,
                SeenStep::Ended(_, TurnOutcome::Completed, Some(_)) => {
                    assert!(std::mem::take(&mut usage), "turn ended before its usage: {}", context());
                }
                _ => {}
            }
        }
    }
}

/// All texts of a turn.
fn texts(turn: &Turn) -> String {
    let parts = turn.response_parts.iter();
    let texts = parts.filter_map(|part| match part {
        ResponsePart::Markdown(part) => Some(part.content.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

#[test]
fn answer_is_shown_exactly_once() {
    // In one scenario, the scripted model says the same twice.
    for (name, play) in plays().filter(|(name, _)| !name.ends_with("/structured_output_never")) {
        for seen in &play.seen {
            let SeenStep::Ended(turn, TurnOutcome::Completed, Some(answer)) = seen else { continue };
            let Some(turn) = play.chat.turns.iter().find(|recorded| recorded.id == *turn) else { continue };
            let (texts, answer) = (texts(turn), answer.trim());
            // The recorder shortened long texts in the one message and not in the other.
            if !answer.is_empty() && !answer.contains("truncated") && !answer.contains("…[+") {
                assert_eq!(texts.matches(answer).count(), 1, "{name} {answer:?} in {texts:?}");
            }
        }
    }
}

#[test]
fn every_call_of_a_completed_turn_is_complete() {
    for (name, play) in plays() {
        for seen in &play.seen {
            let SeenStep::Ended(turn, TurnOutcome::Completed, _) = seen else { continue };
            let Some(turn) = play.chat.turns.iter().find(|recorded| recorded.id == *turn) else { continue };
            for part in &turn.response_parts {
                let ResponsePart::ToolCall(call) = part else { continue };
                let call = serde_json::to_value(&call.tool_call).unwrap();
                let is_denied = call["status"] == "cancelled" && call["reason"] == "denied";
                assert!(call["status"] == "completed" || is_denied, "{name}: {call}");
            }
        }
    }
}

#[test]
fn markup_of_the_runtime_is_not_shown() {
    for (name, play) in plays() {
        for action in &play.actions {
            let json = serde_json::to_string(action).unwrap();
            for tag in [
                "<system-reminder",
                "<tool_use_error",
                "<persisted-output",
                "<local-command",
                "<command-",
                "<tools-used",
                "\\u001b",
            ] {
                assert!(!json.contains(tag), "{name}: {tag} in {json}");
            }
        }
    }
}

#[test]
fn file_content_is_not_streamed() {
    for (name, play) in plays() {
        for action in &play.actions {
            let StateAction::ChatToolCallDelta(delta) = action else { continue };
            let call = play.actions.iter().find_map(|action| match action {
                StateAction::ChatToolCallStart(start) if start.tool_call_id == delta.tool_call_id => {
                    Some(start.tool_name.as_str())
                }
                _ => None,
            });
            let is_edit = edits::is_edit(call.unwrap());
            assert_eq!(is_edit, delta.content.is_none(), "{name}: {delta:?}");
            assert_eq!(is_edit, delta.invocation_message.is_some(), "{name}: {delta:?}");
        }
    }
}

#[test]
fn unmapped_kinds_are_logged_once_with_subtype() {
    let mut mapper = Mapper::default();
    for subtype in ["commands_changed", "notification", "files_persisted", "brand_new"] {
        let frame = json!({"type": "system", "subtype": subtype});
        mapper.unowned(&decode(frame.to_string().as_bytes()).unwrap());
        assert!(mapper.skipped.contains(&format!("system/{subtype}")), "{subtype}: {:?}", mapper.skipped);
    }
    let frame = decode(br#"{"type":"system","subtype":"brand_new"}"#).unwrap();
    assert!(mapper.map(&TurnId::new("t"), &frame).is_empty());
    mapper.unowned(&decode(br#"{"type":"tool_progress"}"#).unwrap());
    assert_eq!(mapper.skipped.len(), 5, "{:?}", mapper.skipped);
}
