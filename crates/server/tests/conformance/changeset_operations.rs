//! `invokeChangesetOperation`: undo, keep, redo and restore. The test answers for the edit log.

use innkeeper_core::edits::{
    BlobDigest, BlobUri, ChangeList, ChangeSelection, EditConflict, EditError, OperationKind,
    OperationReport, OperationTarget,
};
use innkeeper_core_fakes::PendingOperation;
use serde_json::{Value, json};

use crate::changesets::{FILE, OTHER, agreed, changeset, list, not_undoable, scene_with, scripted, until};
use crate::scene::Scene;

fn report(changed: &[&str], refused: Vec<EditConflict>) -> OperationReport {
    OperationReport {
        operation: None,
        changed: changed.iter().map(|uri| (*uri).to_owned()).collect(),
        refused,
    }
}

fn conflict(uri: &str) -> EditConflict {
    EditConflict {
        uri: uri.to_owned(),
        reason: "the same lines were changed later".to_owned(),
        preview: Some(BlobUri::new(BlobDigest::of(b"<<<"), b"a.rs")),
        can_force: true,
    }
}

/// Invokes an operation and answers it for the edit log. Returns the operation and the response.
async fn invoke(
    scene: &mut Scene,
    log: &innkeeper_core_fakes::ScriptedEditLog,
    params: Value,
    result: Result<OperationReport, EditError>,
) -> (PendingSummary, Value) {
    let id = scene.wire.send_request("invokeChangesetOperation", params).await;
    let pending: PendingOperation = log.operation().await;
    let operation = pending.operation.clone();
    pending.answer(result);
    let answer = scene.wire.answer(&id).await;
    ((operation.kind, operation.target, operation.force, operation.scope.selection), answer)
}

type PendingSummary = (OperationKind, OperationTarget, bool, ChangeSelection);

#[tokio::test]
async fn operation_runs_and_its_status_is_published() {
    let (mut scene, log, channel) = scene_with(list(&[(FILE, 1), (OTHER, 1)])).await;
    let undo = json!({"channel": channel, "operationId": "undo"});
    let (operation, answer) = invoke(&mut scene, &log, undo, Ok(report(&[FILE, OTHER], Vec::new()))).await;
    assert_eq!(operation, (OperationKind::Undo, OperationTarget::Changeset, false, ChangeSelection::All));
    assert_eq!(answer["result"], json!({"message": {"markdown": "Undid the changes of 2 files."}}));
    let state = agreed(&mut scene, &channel).await;
    assert_eq!(state["operations"][0]["status"], "idle");
    let statuses: Vec<&Value> = scene
        .wire
        .envelopes()
        .filter(|envelope| envelope["action"]["type"] == "changeset/operationStatusChanged")
        .map(|envelope| &envelope["action"]["status"])
        .collect();
    assert_eq!(statuses, ["running", "idle"]);

    let failure = EditError::File { path: "/w/a.rs".to_owned(), reason: "disk full".to_owned() };
    let undo = json!({"channel": channel, "operationId": "undo"});
    let (_, answer) = invoke(&mut scene, &log, undo, Err(failure)).await;
    assert_eq!(answer["error"]["code"], -32603);
    let state = agreed(&mut scene, &channel).await;
    assert_eq!(state["operations"][0]["status"], "error");
    assert!(state["operations"][0]["error"]["message"].as_str().unwrap().contains("disk full"));
}

#[tokio::test]
async fn operation_acts_on_the_target_of_the_client() {
    let (mut scene, log, channel) = scene_with(list(&[(FILE, 1)])).await;
    let one = || Ok(report(&[FILE], Vec::new()));
    let target = json!({"kind": "resource", "resource": FILE});
    let keep = json!({"channel": channel, "operationId": "keep", "target": target});
    let (operation, answer) = invoke(&mut scene, &log, keep, one()).await;
    assert_eq!((operation.0, operation.1), (OperationKind::Keep, OperationTarget::File(FILE.to_owned())));
    assert_eq!(answer["result"]["message"]["markdown"], "Kept the changes of 1 file.");
    let range = json!({"start": {"line": 1, "character": 0}, "end": {"line": 3, "character": 0}});
    let target = json!({"kind": "range", "resource": FILE, "range": range});
    let undo = json!({
        "channel": channel, "operationId": "undo", "target": target, "_meta": {"innkeeper.force": true},
    });
    let (operation, _) = invoke(&mut scene, &log, undo, one()).await;
    let lines = OperationTarget::Lines { uri: FILE.to_owned(), start: 1, end: 3 };
    assert_eq!((operation.1, operation.2), (lines, true));
}

#[tokio::test]
async fn invalid_operations_are_rejected() {
    let (mut scene, log, channel) = scene_with(list(&[(FILE, 1)])).await;
    let file = |uri: &str| json!({"kind": "resource", "resource": uri});
    let range = |start: i64, end: i64| {
        let position = |line: i64| json!({"line": line, "character": 0});
        json!({"kind": "range", "resource": FILE, "range": {"start": position(start), "end": position(end)}})
    };
    for (operation, target, code) in [
        ("commit", Value::Null, -32602),
        ("redo", Value::Null, -32602),
        ("restore", Value::Null, -32602),
        ("undo", file("file:///w/none"), -32602),
        ("redo", file(FILE), -32602),
        ("keep", range(0, 1), -32602),
        ("undo", range(2, 1), -32602),
        ("undo", range(-1, 1), -32602),
        ("undo", json!({"kind": "planet", "resource": FILE}), -32602),
    ] {
        let mut params = json!({"channel": channel, "operationId": operation});
        if !target.is_null() {
            params["target"] = target.clone();
        }
        let refused = scene.wire.refused("invokeChangesetOperation", params).await;
        assert_eq!(refused, code, "{operation} {target}");
    }
    for (channel, code) in [
        ("scripted:/9/changeset/session".to_owned(), -32008),
        (changeset("turn/none"), -32008),
        (scene.chat.clone(), -32008),
    ] {
        let params = json!({"channel": channel, "operationId": "undo"});
        assert_eq!(scene.wire.refused("invokeChangesetOperation", params).await, code, "{channel}");
    }
    let without = json!({"channel": channel});
    assert_eq!(scene.wire.refused("invokeChangesetOperation", without).await, -32602);
    log.show(crate::room::ONE, ChangeList { files: vec![not_undoable(FILE)], ..ChangeList::default() });
    let disabled =
        |state: &ahp_types::state::ChangesetState| json!(state)["operations"][0]["status"] == "disabled";
    until(&mut scene.alice, &channel, disabled).await;
    let params = json!({"channel": channel, "operationId": "undo"});
    assert_eq!(scene.wire.refused("invokeChangesetOperation", params).await, -32602);
}

#[tokio::test]
async fn refused_files_are_reported_with_their_previews() {
    let (mut scene, log, channel) = scene_with(list(&[(FILE, 1), (OTHER, 1)])).await;
    let undo = json!({"channel": channel, "operationId": "undo"});
    let partly = Ok(report(&[FILE], vec![conflict(OTHER)]));
    let (_, answer) = invoke(&mut scene, &log, undo.clone(), partly).await;
    let preview = conflict(OTHER).preview.unwrap().to_string();
    let refusal = json!({
        "uri": OTHER, "reason": "the same lines were changed later", "preview": preview, "canForce": true,
    });
    let result = &answer["result"];
    assert_eq!(result["_meta"]["innkeeper.refused"], json!([refusal]));
    assert_eq!(result["followUp"], json!({"content": {"uri": preview}}));
    let message = result["message"]["markdown"].as_str().unwrap();
    assert!(message.contains("Left 1 file alone") && message.contains("b.rs"), "{message}");

    let all = Ok(report(&[], vec![conflict(OTHER)]));
    let (_, answer) = invoke(&mut scene, &log, undo.clone(), all).await;
    assert_eq!(
        (&answer["error"]["code"], &answer["error"]["data"]),
        (&json!(-32011), &json!({"refused": [refusal]}))
    );
    let (_, answer) = invoke(&mut scene, &log, undo, Ok(report(&[], Vec::new()))).await;
    assert_eq!(answer["result"]["message"]["markdown"], "There was nothing to undo.");
}

#[tokio::test]
async fn redo_is_enabled_by_the_log_and_restore_includes_later_turns() {
    let (options, log) = scripted();
    let mut scene = Scene::of(options).await;
    let mut player = scene.begin("one").await;
    player.complete("one").await.unwrap();
    scene.until_over("one").await;
    scene.chat_accepts(crate::scene::started("two")).await;
    player.prompt().await.unwrap();
    let redo = Some("undo of a.rs".to_owned());
    log.show_turns(&["one"], ChangeList { redo, ..list(&[(FILE, 1)]) });
    let channel = changeset("turn/one");
    // The changeset is opened for the operation.
    let params = json!({"channel": channel, "operationId": "restore"});
    let (operation, answer) = invoke(&mut scene, &log, params, Ok(report(&[FILE], Vec::new()))).await;
    let turns = ChangeSelection::Turns(vec!["one".to_owned(), "two".to_owned()]);
    assert_eq!((operation.0, operation.3), (OperationKind::Restore, turns));
    assert_eq!(answer["result"]["message"]["markdown"], "Restored 1 file.");
    let state = scene.wire.snapshot(&channel).await;
    let labels: Vec<&Value> =
        state["operations"].as_array().unwrap().iter().map(|one| &one["label"]).collect();
    assert_eq!(labels, ["Undo", "Keep", "Redo: undo of a.rs", "Restore files to before this turn"]);
    assert!(state["operations"][3]["confirmation"].is_string());
    let params = json!({"channel": channel, "operationId": "redo"});
    let (operation, _) = invoke(&mut scene, &log, params, Ok(report(&[FILE], Vec::new()))).await;
    assert_eq!((operation.0, operation.1), (OperationKind::Redo, OperationTarget::Changeset));
}

#[tokio::test]
async fn operations_of_one_changeset_run_one_after_the_other() {
    let (mut scene, log, channel) = scene_with(list(&[(FILE, 1), (OTHER, 1)])).await;
    let keep = |uri: &str| json!({"channel": channel, "operationId": "keep", "target": {"kind": "resource", "resource": uri}});
    let first = scene.wire.send_request("invokeChangesetOperation", keep(FILE)).await;
    let running = log.operation().await;
    let second = scene.wire.send_request("invokeChangesetOperation", keep(OTHER)).await;
    // Requests of the connection are still answered.
    scene.wire.settle().await;
    running.answer(Ok(report(&[FILE], Vec::new())));
    assert!(scene.wire.answer(&first).await["result"].is_object());
    let running = log.operation().await;
    assert_eq!(running.operation.target, OperationTarget::File(OTHER.to_owned()));
    running.answer(Ok(report(&[OTHER], Vec::new())));
    assert!(scene.wire.answer(&second).await["result"].is_object());
}
