//! Decodes every recorded frame and encodes it again.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use innkeeper_claude::Message;
use innkeeper_claude::wire::{BlockDelta, ContentBlock, StreamEvent, decode};
use serde_json::Value;

use super::frames::{Recording, VERSIONS, recordings};
use super::kinds::{events_of, kind_of};

fn decoded(frame: &Value) -> Message {
    decode(frame.to_string().as_bytes()).unwrap()
}

#[test]
fn all_scenarios_of_both_versions_exist() {
    let counts = VERSIONS.map(|version| {
        let recordings = recordings(version);
        (recordings.len(), recordings.iter().map(|recording| recording.frames.len()).sum::<usize>())
    });
    insta::assert_debug_snapshot!("counts", counts);
}

#[test]
fn every_frame_round_trips() {
    for version in VERSIONS {
        for recording in recordings(version) {
            for frame in &recording.frames {
                let again = serde_json::to_string(&decoded(frame)).unwrap();
                let again: Value = serde_json::from_str(&again).unwrap();
                assert_eq!(&again, frame, "{version} {}", recording.name);
            }
        }
    }
}

#[test]
fn every_frame_has_a_known_kind() {
    let mut unknown = BTreeSet::new();
    for version in VERSIONS {
        for recording in recordings(version) {
            for frame in recording.frames.iter().filter(|frame| kind_of(&decoded(frame)).is_none()) {
                unknown.insert(format!("{version} {}: {:.160}", recording.name, frame.to_string()));
            }
        }
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
}

#[test]
fn frames_match_the_reviewed_events() {
    for version in VERSIONS {
        let mut text = String::new();
        for recording in recordings(version) {
            writeln!(text, "{}", recording.name).unwrap();
            for (meaning, count) in runs(&recording) {
                let times = if count > 1 { format!(" × {count}") } else { String::new() };
                writeln!(text, "  {meaning}{times}").unwrap();
            }
        }
        insta::assert_snapshot!(format!("events_{version}"), text);
    }
}

/// Kinds and events of a recording's frames; repetitions are counted.
fn runs(recording: &Recording) -> Vec<(String, usize)> {
    let mut runs: Vec<(String, usize)> = Vec::new();
    for frame in &recording.frames {
        let message = decoded(frame);
        let kind = kind_of(&message).unwrap_or_else(|| "unknown".into());
        let meaning = events_of(&message).into_iter().fold(kind, |kind, event| format!("{kind} → {event}"));
        match runs.last_mut() {
            Some((last, count)) if *last == meaning => *count += 1,
            _ => runs.push((meaning, 1)),
        }
    }
    runs
}

#[test]
fn streamed_text_equals_complete_text_of_an_uninterrupted_turn() {
    for version in VERSIONS {
        let recordings = recordings(version);
        for name in ["hello", "thinking", "two_turns", "bash", "parallel_tools", "subagent"] {
            let recording = recordings.iter().find(|recording| recording.name == name).unwrap();
            let messages: Vec<Message> = recording.frames.iter().map(decoded).collect();
            let streamed: String = messages.iter().filter_map(text_delta).collect();
            let whole: String = messages.iter().flat_map(texts).collect();
            assert!(!whole.is_empty(), "{version} {name}");
            assert_eq!(streamed, whole, "{version} {name}");
        }
    }
}

fn text_delta(message: &Message) -> Option<String> {
    let Message::StreamEvent(event) = message else { return None };
    let Some(StreamEvent::ContentBlockDelta(delta)) = &event.event else { return None };
    let Some(BlockDelta::Text(text)) = &delta.delta else { return None };
    text.text.clone()
}

/// Texts of a complete message of the main thread.
fn texts(message: &Message) -> Vec<String> {
    let Message::Assistant(assistant) = message else { return Vec::new() };
    let content = assistant.message.as_ref().and_then(|message| message.content.as_ref());
    let blocks = content.filter(|_| assistant.parent_tool_use_id.is_none()).map(|content| content.blocks());
    let text = |block: &ContentBlock| match block {
        ContentBlock::Text(block) => block.text.clone(),
        _ => None,
    };
    blocks.unwrap_or_default().iter().filter_map(text).collect()
}
