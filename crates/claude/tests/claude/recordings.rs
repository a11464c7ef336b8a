//! Recorded frames of both real runtimes decode into typed messages and lose nothing.

use std::path::{Path, PathBuf};

use innkeeper_claude::wire::{ContentBlock, IncomingRequest, StreamEvent, SystemMessage, decode};
use innkeeper_claude::{Message, wire::BlockDelta};
use serde_json::Value;

/// Every frame that a runtime wrote, in all recordings.
fn frames() -> Vec<(PathBuf, Value)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings");
    let mut frames = Vec::new();
    for version in ["0.2.112", "0.3.325"] {
        let scenarios = std::fs::read_dir(root.join(version)).unwrap();
        for scenario in scenarios.map(|entry| entry.unwrap().path()) {
            let wire = std::fs::read_to_string(scenario.join("wire.jsonl")).unwrap();
            let lines = wire.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            let from_runtime = lines.filter(|line| line["dir"] == "cli->host");
            frames.extend(from_runtime.map(|mut line| (scenario.clone(), line["msg"].take())));
        }
    }
    assert!(frames.len() > 150, "only {} frames", frames.len());
    frames
}

#[test]
fn every_recorded_frame_is_of_a_known_kind_and_encodes_to_itself() {
    for (scenario, frame) in frames() {
        let line = frame.to_string();
        let message = decode(line.as_bytes()).unwrap();
        let again = serde_json::to_string(&message).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&again).unwrap(), frame, "{}", scenario.display());
        assert!(is_known(&message), "{}: {line}", scenario.display());
    }
}

/// Whether every tagged part of the message has a type of its own.
fn is_known(message: &Message) -> bool {
    let known_blocks = |message: &Option<innkeeper_claude::wire::ApiMessage>| {
        let content = message.as_ref().and_then(|message| message.content.as_ref());
        content.is_none_or(|content| {
            content.blocks().iter().all(|block| !matches!(block, ContentBlock::Unknown(_)))
        })
    };
    match message {
        Message::Unknown(_) | Message::System(SystemMessage::Unknown(_)) => false,
        Message::Assistant(message) => known_blocks(&message.message),
        Message::User(message) => known_blocks(&message.message),
        Message::ControlRequest(message) => {
            !matches!(message.request, None | Some(IncomingRequest::Unknown(_)))
        }
        Message::StreamEvent(message) => match &message.event {
            None | Some(StreamEvent::Unknown(_)) => false,
            Some(StreamEvent::ContentBlockStart(event)) => {
                !matches!(event.content_block, None | Some(ContentBlock::Unknown(_)))
            }
            Some(StreamEvent::ContentBlockDelta(event)) => {
                !matches!(event.delta, None | Some(BlockDelta::Unknown(_)))
            }
            Some(_) => true,
        },
        _ => true,
    }
}

/// Recordings in which every answer was streamed to its end.
const UNBROKEN: [&str; 4] = ["hello", "thinking", "two_turns", "bash"];

#[test]
fn streamed_text_adds_up_to_the_whole_text_where_nothing_broke() {
    let mut streamed = String::new();
    let mut whole = String::new();
    for (scenario, frame) in frames() {
        if !UNBROKEN.iter().any(|name| scenario.ends_with(name)) {
            continue;
        }
        match decode(frame.to_string().as_bytes()).unwrap() {
            Message::StreamEvent(message) => {
                if let Some(StreamEvent::ContentBlockDelta(event)) = message.event
                    && let Some(BlockDelta::Text(delta)) = event.delta
                {
                    streamed.push_str(&delta.text.unwrap());
                }
            }
            Message::Assistant(message) => {
                for block in message.message.unwrap().content.unwrap().blocks() {
                    if let ContentBlock::Text(block) = block {
                        whole.push_str(block.text.as_ref().unwrap());
                    }
                }
            }
            _ => {}
        }
    }
    assert!(!whole.is_empty());
    assert_eq!(streamed, whole);
}
