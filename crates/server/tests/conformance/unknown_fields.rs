//! Unknown fields: the echo keeps all of them, the published state keeps some. The snapshot
//! below lists those that the state drops.

use serde_json::{Map, Value, json};

use crate::scene::Scene;

/// Adds an unknown field to every object of a value.
fn marked(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut all: Map<String, Value> =
                fields.iter().map(|(key, value)| (key.clone(), marked(value))).collect();
            all.insert("x".to_owned(), json!("?"));
            Value::Object(all)
        }
        Value::Array(items) => items.iter().map(marked).collect(),
        other => other.clone(),
    }
}

/// Collects the paths of the fields that were sent and are not kept.
fn collect_lost(sent: &Value, kept: &Value, place: &str, found: &mut Vec<String>) {
    match (sent, kept) {
        (Value::Object(sent), Value::Object(kept)) => {
            for (key, value) in sent {
                let place = format!("{place}.{key}");
                match kept.get(key) {
                    Some(kept) => collect_lost(value, kept, &place, found),
                    None => found.push(place),
                }
            }
        }
        (Value::Array(sent), Value::Array(kept)) if sent.len() == kept.len() => {
            for (number, (sent, kept)) in sent.iter().zip(kept).enumerate() {
                collect_lost(sent, kept, &format!("{place}[{number}]"), found);
            }
        }
        (sent, kept) if sent == kept => {}
        _ => found.push(format!("{place} (changed)")),
    }
}

fn rich_message() -> Value {
    json!({
        "text": "look", "origin": {"kind": "user"}, "model": {"id": "m", "config": {"thinkingLevel": "high"}},
        "agent": {"uri": "agent:/x"}, "_meta": {"vendor": {"deep": 1}},
        "attachments": [
            {"type": "simple", "label": "a", "_meta": {"kept": {}},
             "range": {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 1}}},
            {"type": "resource", "label": "b", "uri": "file:///b"},
            {"type": "unheardOf", "label": "c", "data": {"deep": []}},
        ],
    })
}

#[tokio::test]
async fn state_keeps_unknown_fields_only_where_its_types_are_open() {
    let (mut scene, _player) = Scene::in_turn("t1").await;
    let (session, chat) = (scene.session.clone(), scene.chat.clone());
    let message = marked(&rich_message());
    let active = marked(&json!({
        "clientId": "wire", "displayName": "W",
        "tools": [{"name": "n", "inputSchema": {"type": "object"}, "annotations": {"title": "t"}, "_meta": {}}],
        "customizations": [{"type": "plugin", "id": "p", "uri": "file:///p", "name": "P", "nonce": "1"}],
    }));
    let values = json!({"vendor.key": {"deep": [{"x": null}]}});
    let sent = [
        (chat.clone(), json!({"type": "chat/draftChanged", "draft": message})),
        (
            chat.clone(),
            json!({"type": "chat/pendingMessageSet", "kind": "queued", "id": "m1", "message": message}),
        ),
        (session.clone(), json!({"type": "session/activeClientSet", "activeClient": active})),
        ("ahp-root://".to_owned(), json!({"type": "root/configChanged", "config": values})),
    ];
    for (channel, action) in sent {
        // This also compares the echo with the dispatched action.
        scene.accepted(&channel, action).await;
    }
    let (chat, session) = (scene.wire.snapshot(&chat).await, scene.wire.snapshot(&session).await);
    let root = scene.wire.snapshot("ahp-root://").await;
    let mut all = Vec::new();
    collect_lost(&message, &chat["draft"], "draft", &mut all);
    collect_lost(&message, &chat["queuedMessages"][0]["message"], "queuedMessages[].message", &mut all);
    collect_lost(&active, &session["activeClients"][0], "activeClients[]", &mut all);
    collect_lost(&values, &root["config"]["values"], "config.values", &mut all);
    insta::assert_snapshot!(all.join("\n"), @r"
    draft.agent.x
    draft.attachments[0].range.end.x
    draft.attachments[0].range.start.x
    draft.attachments[0].range.x
    draft.attachments[0].x
    draft.attachments[1].x
    draft.model.x
    draft.origin.x
    draft.x
    queuedMessages[].message.agent.x
    queuedMessages[].message.attachments[0].range.end.x
    queuedMessages[].message.attachments[0].range.start.x
    queuedMessages[].message.attachments[0].range.x
    queuedMessages[].message.attachments[0].x
    queuedMessages[].message.attachments[1].x
    queuedMessages[].message.model.x
    queuedMessages[].message.origin.x
    queuedMessages[].message.x
    activeClients[].customizations[0].x
    activeClients[].tools[0].annotations.x
    activeClients[].tools[0].x
    activeClients[].x
    ");
}
