use ahp_types::actions::ActionEnvelope;
use proptest::prelude::*;
use serde_json::json;

use super::super::frame::{Action, EncodedEnvelope, Origin, envelope};
use super::*;
use crate::ids::{ClientId, ConnectionId};

fn action(value: serde_json::Value) -> StateAction {
    let action: StateAction = serde_json::from_value(value.clone()).unwrap();
    assert!(!matches!(action, StateAction::Unknown(_)), "unknown action: {value}");
    action
}

fn own(channel: &str, seq: u64, value: serde_json::Value) -> Frame {
    envelope(&ChannelUri::new(channel), &Action::own(action(value)), ServerSeq(seq), None, None).unwrap()
}

fn delta(channel: &str, seq: u64, part: &str, content: &str) -> Frame {
    own(channel, seq, json!({"type": "chat/delta", "turnId": "t", "partId": part, "content": content}))
}

fn params(frame: &Frame) -> serde_json::Value {
    serde_json::from_slice::<serde_json::Value>(frame.bytes()).unwrap()["params"].clone()
}

/// Merges frames and returns the sequence number and content of each result.
fn merged(mut frames: Vec<Frame>) -> Vec<(u64, serde_json::Value)> {
    coalesce(&mut frames, 0);
    frames
        .iter()
        .map(|frame| {
            let params = params(frame);
            let action = &params["action"];
            let said = ["content", "activity", "usage"].iter().find_map(|field| action.get(field));
            (params["serverSeq"].as_u64().unwrap(), said.cloned().unwrap_or_default())
        })
        .collect()
}

#[test]
fn text_for_same_part_is_merged_with_last_sequence_number() {
    let frames =
        vec![delta("a:/1", 1, "p", "on"), delta("a:/1", 2, "p", "e \"two\"\n"), delta("a:/1", 3, "p", "é")];
    assert_eq!(merged(frames), [(3, json!("one \"two\"\né"))]);
}

#[test]
fn text_for_other_part_kind_turn_or_channel_is_not_merged() {
    let reasoning = json!({"type": "chat/reasoning", "turnId": "t", "partId": "p", "content": "x"});
    let other_turn = json!({"type": "chat/delta", "turnId": "t2", "partId": "p", "content": "x"});
    let with_meta = json!({"type": "chat/delta", "turnId": "t", "partId": "p", "content": "x", "_meta": {}});
    let frames = vec![
        delta("a:/1", 1, "p", "x"),
        delta("a:/1", 2, "q", "x"),
        delta("a:/2", 3, "q", "x"),
        own("a:/2", 4, reasoning),
        own("a:/2", 5, other_turn),
        own("a:/2", 6, with_meta.clone()),
        own("a:/2", 7, with_meta),
    ];
    let numbers: Vec<u64> = merged(frames).iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn frames_are_not_merged_across_other_channel() {
    let frames = vec![delta("a:/1", 1, "p", "x"), delta("a:/2", 2, "p", "y"), delta("a:/1", 3, "p", "z")];
    assert_eq!(merged(frames), [(1, json!("x")), (2, json!("y")), (3, json!("z"))]);
}

#[test]
fn frames_are_not_merged_across_response() {
    let answer = Frame::encode(&json!({"id": 1, "params": {"serverSeq": 0}})).unwrap();
    let frames = vec![delta("a:/1", 1, "p", "x"), answer, delta("a:/1", 2, "p", "y")];
    assert_eq!(merged(frames).len(), 3);
}

#[test]
fn last_of_replacing_values_is_kept() {
    let activity = |text: &str| json!({"type": "chat/activityChanged", "activity": text});
    let usage = |turn: &str, tokens: u32| json!({"type": "chat/usage", "turnId": turn, "usage": {"inputTokens": tokens}});
    let frames = vec![
        own("a:/1", 1, activity("reads")),
        own("a:/1", 2, activity("writes")),
        own("a:/2", 3, activity("waits")),
        own("a:/2", 4, usage("t", 1)),
        own("a:/2", 5, usage("t", 2)),
        own("a:/2", 6, usage("t2", 3)),
    ];
    assert_eq!(
        merged(frames),
        [
            (2, json!("writes")),
            (3, json!("waits")),
            (5, json!({"inputTokens": 2})),
            (6, json!({"inputTokens": 3})),
        ]
    );
}

#[test]
fn echo_is_not_merged() {
    let origin = Origin { connection: ConnectionId(1), client: ClientId::new("c"), client_seq: 1 };
    let frames = (1..=3)
        .map(|seq| {
            let action = Action::own(action(
                json!({"type": "chat/delta", "turnId": "t", "partId": "p", "content": "x"}),
            ));
            envelope(&ChannelUri::new("a:/1"), &action, ServerSeq(seq), Some(&origin), None).unwrap()
        })
        .collect();
    assert_eq!(merged(frames).len(), 3);
}

#[test]
fn merged_frame_size_is_bounded() {
    let text = "x".repeat(1000);
    let mut frames: Vec<Frame> = (1..=200).map(|seq| delta("a:/1", seq, "p", &text)).collect();
    coalesce(&mut frames, 0);
    assert_eq!(frames.len(), 4);
    assert!(frames.iter().all(|frame| frame.len() < MAX_MERGED + 2000));
}

proptest! {
    #[test]
    fn hand_encoded_envelope_equals_official_encoding(
        kind in 0..3usize, channel in ".*", turn in ".*", part in ".*", content in any::<String>(), seq in 0..1u64 << 53,
    ) {
        let action = match kind {
            0 => action(json!({"type": "chat/delta", "turnId": turn, "partId": part, "content": content})),
            1 => action(json!({"type": "chat/reasoning", "turnId": turn, "partId": part, "content": content})),
            _ => action(json!({"type": "chat/toolCallDelta", "turnId": turn, "toolCallId": part, "content": content})),
        };
        let frame = Stream::of(&action).unwrap().encode(&ChannelUri::new(&channel), ServerSeq(seq)).unwrap();
        let inner = serde_json::to_value(EncodedEnvelope::of(&frame)).unwrap();
        prop_assert_eq!(&inner, &params(&frame));
        let said: ActionEnvelope = serde_json::from_value(inner).unwrap();
        let expected = ActionEnvelope { channel, action, server_seq: seq, origin: None, rejection_reason: None };
        prop_assert_eq!(said, expected);
    }
}
