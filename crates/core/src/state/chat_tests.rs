use ahp_types::state::TurnState;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn empty() -> ChatState {
    serde_json::from_value(json!({
        "resource": "ahp-chat:/1", "title": "", "status": 1, "modifiedAt": "2026-11-15T09:00:00.000Z",
        "turns": [],
    }))
    .unwrap()
}

fn action(value: serde_json::Value) -> StateAction {
    let action = serde_json::from_value(value).unwrap();
    assert!(!matches!(action, StateAction::Unknown(_)), "{action:?}");
    action
}

/// A random action on a chat; many are invalid in the current state.
fn step() -> impl Strategy<Value = StateAction> {
    let turn = (0..6_u8).prop_map(|number| format!("t{number}"));
    (0..9_u8, turn).prop_map(|(kind, turn)| {
        action(match kind {
            0 | 1 => json!({
                "type": "chat/turnStarted", "turnId": turn, "startedAt": "2026-11-15T09:00:05.000Z",
                "message": {"text": "hi", "origin": {"kind": "user"}},
            }),
            2 => json!({
                "type": "chat/responsePart", "turnId": turn,
                "part": {"kind": "markdown", "id": "p", "content": "a \"turns\":[] b"},
            }),
            3 => json!({"type": "chat/delta", "turnId": turn, "partId": "p", "content": "c"}),
            4 => json!({"type": "chat/turnComplete", "turnId": turn, "duration": 5}),
            5 => json!({
                "type": "chat/error", "turnId": turn, "duration": 7,
                "part": {"kind": "error", "error": {"errorType": "x", "message": "y"}, "resumable": true},
            }),
            6 => json!({"type": "chat/turnResume", "turnId": turn}),
            7 => json!({"type": "chat/truncated", "turnId": turn}),
            _ => json!({"type": "chat/truncated"}),
        })
    })
}

/// Whether the host would accept an action: one turn at a time, unique turn ids.
fn fits(state: &ChatState, action: &StateAction) -> bool {
    let StateAction::ChatTurnStarted(started) = action else { return true };
    state.active_turn.is_none() && state.turns.iter().all(|turn| turn.id != started.turn_id)
}

proptest! {
    #[test]
    fn document_equals_result_of_official_reducers(
        steps in proptest::collection::vec(step(), 0..60),
        stored_after in 0..60_usize,
    ) {
        let mut official = empty();
        let mut doc = ChatDoc::new(empty()).unwrap();
        let mut stored: Vec<StoredTurn> = Vec::new();
        for (number, action) in steps.iter().enumerate() {
            if !fits(&official, action) {
                continue;
            }
            let expected = apply_action_to_chat(&mut official, action);
            let outcome = doc.reduce(action).unwrap();
            prop_assert_eq!(format!("{outcome:?}"), format!("{expected:?}"));
            prop_assert_eq!(&doc.whole().unwrap(), &official);
            let snapshot = serde_json::to_value(doc.window(None)).unwrap();
            prop_assert_eq!(snapshot, serde_json::to_value(&official).unwrap());
            if number % 3 == stored_after % 3 && let Some((keep, turns)) = doc.take_changed_turns() {
                stored.truncate(keep);
                stored.extend(turns);
            }
        }
        if let Some((keep, turns)) = doc.take_changed_turns() {
            stored.truncate(keep);
            stored.extend(turns);
        }
        let header = serde_json::to_string(&doc.header()).unwrap();
        let found = ChatDoc::from_stored(serde_json::from_str(&header).unwrap(), stored).unwrap();
        prop_assert_eq!(found.whole().unwrap(), official);
    }
}

#[test]
fn window_has_newest_turns_and_cursor_for_older_ones() {
    let mut doc = ChatDoc::new(empty()).unwrap();
    for number in 0..4 {
        let turn = format!("t{number}");
        let started = json!({
            "type": "chat/turnStarted", "turnId": turn, "startedAt": "2026-11-15T09:00:05.000Z",
            "message": {"text": "hi", "origin": {"kind": "user"}},
        });
        doc.reduce(&action(started)).unwrap();
        doc.reduce(&action(json!({"type": "chat/turnComplete", "turnId": turn, "duration": 5}))).unwrap();
    }
    let window: ChatState =
        serde_json::from_value(serde_json::to_value(doc.window(Some(2))).unwrap()).unwrap();
    let ids: Vec<&str> = window.turns.iter().map(|turn| turn.id.as_str()).collect();
    assert_eq!(ids, ["t2", "t3"]);
    assert_eq!(window.turns_next_cursor.as_deref().and_then(cursor_turn), Some("t2"));
    assert!(window.turns.iter().all(|turn| turn.state == TurnState::Complete));
    let whole = serde_json::to_value(doc.window(Some(4))).unwrap();
    assert_eq!(whole["turnsNextCursor"], serde_json::Value::Null);
}

#[test]
fn snapshot_contains_every_chat_field() {
    let full = json!({
        "resource": "ahp-chat:/1", "title": "t", "status": 8, "activity": "busy",
        "modifiedAt": "2026-11-15T09:00:00.000Z",
        "changes": {"additions": 1, "deletions": 2, "files": 3},
        "origin": {"kind": "user"}, "movable": false, "interactivity": "full",
        "workingDirectories": ["file:///w"],
        "changesets": [{"label": "l", "uriTemplate": "u", "changeKind": "session"}],
        "backgroundWork": [], "canvases": [], "turns": [],
        "activeTurn": {
            "id": "a", "startedAt": "2026-11-15T09:00:00.000Z", "responseParts": [],
            "message": {"text": "x", "origin": {"kind": "user"}},
        },
        "steeringMessage": {"id": "s", "message": {"text": "x", "origin": {"kind": "user"}}},
        "queuedMessages": [{"id": "q", "message": {"text": "x", "origin": {"kind": "user"}}}],
        "draft": {"text": "d", "origin": {"kind": "user"}},
        "_meta": {"k": 1},
    });
    let state: ChatState = serde_json::from_value(full).unwrap();
    let doc = ChatDoc::new(state.clone()).unwrap();
    assert_eq!(serde_json::to_value(doc.window(None)).unwrap(), serde_json::to_value(&state).unwrap());
}

#[test]
fn window_and_pages_are_limited_by_size() {
    const MIB: usize = 1024 * 1024;
    let turn = |(number, size): (usize, usize)| {
        let body = serde_json::value::to_raw_value(&"x".repeat(size)).unwrap();
        StoredTurn { id: format!("t{number}"), body: body.into() }
    };
    let turns: Vec<StoredTurn> =
        [10 * MIB, 40 * MIB, 20 * MIB, 10 * MIB, 1].into_iter().enumerate().map(turn).collect();
    assert_eq!(page_start(&turns, usize::MAX), 2, "31 MiB");
    assert_eq!(page_start(&turns, 1), 4);
    assert_eq!(page_start(&turns, 0), 4, "at least one turn");
    assert_eq!(page_start(&turns[..2], 50), 1, "a turn that is too large is alone");
    assert_eq!(page_start(&turns[..1], 50), 0);
    assert_eq!(page_start(&[], 50), 0);
}
