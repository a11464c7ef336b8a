//! Changesets: their catalogue, channels, counts and stored contents. The test scripts the
//! edit log.

use std::sync::Arc;
use std::time::Duration;

use ahp_types::state::{ChangesetState, ChangesetStatus};
use innkeeper_core::edits::{
    ChangeCounts, ChangeList, ChangeSelection, ChangedFile, EditError, SessionChangeCounts,
};
use innkeeper_core::{ChannelUri, EditConfig};
use innkeeper_core_fakes::{EditHousekeeping, MemoryStorage, ScriptedEditLog};
use innkeeper_testkit::{CameBack, Observer, Seen, eventually};
use serde_json::{Value, json};

use crate::room::{ONE, SIDE, TWO, stage};
use crate::scene::{DIRECTORY, Scene};
use crate::stage_host::{StageHost, StageOptions};
use crate::wire::Wire;

pub(crate) const FILE: &str = "file:///w/a.rs";
pub(crate) const OTHER: &str = "file:///w/b.rs";

/// Options for a host with a scripted edit log, and the log.
pub(crate) fn scripted() -> (StageOptions, ScriptedEditLog) {
    let log = ScriptedEditLog::default();
    let edits = EditConfig { log: Arc::new(log.clone()), default_directory: None };
    (StageOptions { stage: stage(), edits, ..StageOptions::default() }, log)
}

/// A list of files with these numbers of added lines.
pub(crate) fn list(files: &[(&str, i64)]) -> ChangeList {
    let files = files.iter().map(|(uri, added)| ScriptedEditLog::file(uri, *added)).collect();
    ChangeList { files, ..ChangeList::default() }
}

/// The address of a changeset of the first session.
pub(crate) fn changeset(path: &str) -> String {
    format!("{ONE}/changeset/{path}")
}

/// Waits until a client's changeset meets a condition.
pub(crate) async fn until(observer: &mut Observer, channel: &str, holds: impl Fn(&ChangesetState) -> bool) {
    let wanted = |observer: &Observer| observer.changeset(channel).is_ok_and(&holds);
    observer.until(&format!("the wanted state of {channel}"), wanted).await.unwrap();
}

fn is_ready(state: &ChangesetState) -> bool {
    state.status == ChangesetStatus::Ready
}

fn files(state: &ChangesetState) -> Vec<&str> {
    state.files.iter().map(|file| file.id.as_str()).collect()
}

/// A scene with a scripted edit log, in which all clients look at a changeset that is ready.
pub(crate) async fn scene_with(changes: ChangeList) -> (Scene, ScriptedEditLog, String) {
    let (options, log) = scripted();
    let mut scene = Scene::of(options).await;
    log.show(ONE, changes);
    let channel = changeset("session");
    scene.alice.subscribe(&channel).await.unwrap();
    until(&mut scene.alice, &channel, is_ready).await;
    scene.bob.subscribe(&channel).await.unwrap();
    scene.wire.snapshot(&channel).await;
    (scene, log, channel)
}

/// Checks that the official clients, of both protocol versions, and a new client have the same
/// state of a changeset. Returns it.
pub(crate) async fn agreed(scene: &mut Scene, channel: &str) -> Value {
    let state = scene.wire.snapshot(channel).await;
    for observer in [&mut scene.alice, &mut scene.bob] {
        let same = |observer: &Observer| json!(observer.state(channel)) == state;
        observer.until("the same changeset", same).await.unwrap();
    }
    state
}

#[tokio::test]
async fn sessions_and_chats_list_their_changesets_only_with_an_edit_log() {
    let (options, _log) = scripted();
    let mut scene = Scene::of(options).await;
    let templates = |state: &Value| -> Vec<String> {
        let entries = state["changesets"].as_array().unwrap();
        assert!(entries.iter().all(|entry| entry["capabilities"]["review"] == json!({})));
        entries.iter().map(|entry| format!("{} {}", entry["changeKind"], entry["uriTemplate"])).collect()
    };
    let session = scene.wire.snapshot(ONE).await;
    assert_eq!(
        templates(&session),
        [
            r#""session" "scripted:/1/changeset/session""#,
            r#""uncommitted" "scripted:/1/changeset/uncommitted""#,
            r#""turn" "scripted:/1/changeset/turn/{turnId}""#,
            r#""compare-turns" "scripted:/1/changeset/compare/{originalTurnId}/{modifiedTurnId}""#,
        ]
    );
    let chat = scene.wire.snapshot(&scene.chat.clone()).await;
    let of_chat = templates(&chat);
    assert_eq!(of_chat.len(), 3);
    assert!(
        of_chat[0].starts_with(r#""session" "scripted:/1/changeset/chat/"#) && of_chat[0].ends_with("/all\"")
    );
    scene.agree().await;

    let mut without = Scene::new().await;
    assert_eq!(without.wire.snapshot(ONE).await.get("changesets"), None);
    assert_eq!(without.wire.refused("subscribe", json!({"channel": changeset("session")})).await, -32008);
}

#[tokio::test]
async fn subscribed_changeset_is_computed_and_follows_the_log() {
    let (mut scene, log, channel) = scene_with(list(&[(FILE, 1)])).await;
    let first = agreed(&mut scene, &channel).await;
    assert_eq!(first["files"][0]["id"], FILE);
    assert_eq!(first["files"][0]["reviewed"], false);
    assert_eq!(first["files"][0]["_meta"]["innkeeper.edit"], json!({"sources": ["tool"]}));
    let actions = scene.alice.actions(&channel).unwrap();
    assert_eq!(actions, ["changeset/contentChanged", "changeset/statusChanged"]);

    log.show(ONE, list(&[(FILE, 2), (OTHER, 1)]));
    until(&mut scene.alice, &channel, |state| files(state) == [FILE, OTHER]).await;
    log.show(ONE, list(&[(OTHER, 1)]));
    until(&mut scene.alice, &channel, |state| files(state) == [OTHER]).await;
    agreed(&mut scene, &channel).await;
    let actions = scene.alice.actions(&channel).unwrap();
    let single = ["changeset/fileSet", "changeset/fileSet", "changeset/fileRemoved"];
    assert_eq!(actions[2..], single, "only the differences");

    let names: Vec<String> = (0..40).map(|number| format!("file:///w/{number}.rs")).collect();
    let many: Vec<(&str, i64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    log.show(ONE, list(&many));
    until(&mut scene.alice, &channel, |state| state.files.len() == 40).await;
    agreed(&mut scene, &channel).await;
    assert_eq!(scene.alice.actions(&channel).unwrap().last().unwrap(), "changeset/contentChanged");
}

#[tokio::test]
async fn failed_computation_is_shown_and_repaired() {
    let (mut scene, log, channel) = scene_with(list(&[(FILE, 1)])).await;
    log.fail(ONE, Some(EditError::Invalid("disk full".to_owned())));
    until(&mut scene.alice, &channel, |state| state.status == ChangesetStatus::Error).await;
    let failed = agreed(&mut scene, &channel).await;
    assert_eq!((&failed["error"]["message"], &failed["files"][0]["id"]), (&json!("disk full"), &json!(FILE)));
    log.fail(ONE, None);
    until(&mut scene.alice, &channel, is_ready).await;
    assert_eq!(agreed(&mut scene, &channel).await.get("error"), None);
}

#[tokio::test]
async fn changesets_of_turns_select_their_turns() {
    let (options, log) = scripted();
    let mut scene = Scene::of(options).await;
    let mut player = scene.begin("one").await;
    player.complete("one").await.unwrap();
    scene.until_over("one").await;
    scene.chat_accepts(crate::scene::started("two")).await;
    player.prompt().await.unwrap();
    log.show_turns(&["one"], list(&[(FILE, 1)]));
    log.show_turns(&["two"], list(&[(OTHER, 1)]));
    for (path, wanted) in [("turn/one", FILE), ("turn/two", OTHER), ("compare/one/two", OTHER)] {
        let channel = changeset(path);
        scene.alice.subscribe(&channel).await.unwrap();
        until(&mut scene.alice, &channel, |state| is_ready(state) && files(state) == [wanted]).await;
    }
    let scopes = log.scopes();
    assert!(scopes.iter().all(|scope| scope.chat.as_ref().map(ChannelUri::as_str) == Some(&scene.chat)));
    assert!(scopes.iter().all(|scope| scope.roots == [std::path::PathBuf::from("/w")]));
    assert!(scopes.iter().any(|scope| scope.selection == ChangeSelection::Turns(vec!["two".to_owned()])));
}

#[tokio::test]
async fn subscribe_rejects_changesets_of_unknown_sessions_chats_and_turns() {
    let (options, _log) = scripted();
    let mut scene = Scene::of(options).await;
    scene.begin("one").await;
    for (channel, reason) in [
        ("scripted:/9/changeset/session".to_owned(), "unknown channel"),
        (changeset("other"), "unknown channel"),
        (changeset("turn/nine"), "unknown turn"),
        (changeset("compare/one/nine"), "unknown turn"),
        (changeset("chat/YWhwLWNoYXQ6Lzk/all"), "the session has no chat ahp-chat:/9"),
    ] {
        let answer = scene.wire.request("subscribe", json!({"channel": channel})).await;
        assert_eq!(answer["error"]["code"], -32008, "{channel}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(reason), "{channel}: {message}");
    }
    let created = scene.wire.refused("createSession", json!({"channel": changeset("session")})).await;
    assert_eq!(created, -32602);
}

#[tokio::test]
async fn review_is_stored_and_published_only_for_known_files() {
    let (mut scene, log, channel) = scene_with(list(&[(FILE, 1), (OTHER, 1)])).await;
    let review = |files: Value, reviewed: bool| json!({"type": "changeset/filesReviewChanged", "files": files, "reviewed": reviewed});
    scene.accepted(&channel, review(json!([FILE]), true)).await;
    let state = agreed(&mut scene, &channel).await;
    assert_eq!(
        (&state["files"][0]["reviewed"], &state["files"][1]["reviewed"]),
        (&json!(true), &json!(false))
    );
    scene.accepted(&channel, review(json!([FILE]), false)).await;
    assert_eq!(agreed(&mut scene, &channel).await["files"][0]["reviewed"], false);

    let unknown = scene.rejected(&channel, review(json!([FILE, "file:///w/none"]), true)).await;
    assert!(unknown.contains("file:///w/none"), "{unknown}");
    let wrong = scene.rejected(&channel, json!({"type": "changeset/cleared"})).await;
    assert!(wrong.contains("clients may not dispatch"), "{wrong}");
    let closed = scene.rejected(&changeset("uncommitted"), review(json!([FILE]), true)).await;
    assert!(closed.contains("subscribe"), "{closed}");
    log.fail(ONE, Some(EditError::Closed));
    let failed = scene.rejected(&channel, review(json!([FILE]), true)).await;
    assert!(failed.contains("shutting down"), "{failed}");
    // On other channels the action is not valid.
    scene.chat_rejects(review(json!([FILE]), true)).await;
    scene.session_rejects(review(json!([FILE]), true)).await;
}

#[tokio::test]
async fn counts_are_in_the_session_and_its_row_and_survive_a_restart() {
    let (options, log) = scripted();
    let storage = MemoryStorage::new();
    let options = StageOptions { storage: Arc::new(storage.clone()), ..options };
    let mut scene = Scene::of(options).await;
    let player = scene.begin("one").await;
    player.complete("one").await.unwrap();
    scene.until_over("one").await;
    let chat = ChannelUri::new(&scene.chat);
    let of_chat = ChangeCounts { files: 2, added: 5, removed: 1 };
    let session = ChangeCounts { files: 3, ..of_chat };
    log.count(ONE, SessionChangeCounts { session, chats: vec![(chat.clone(), of_chat)] });
    let counted = |observer: &Observer| observer.rows[ONE].changes.is_some();
    scene.alice.until("the counts", counted).await.unwrap();
    scene.agree().await;
    let wanted = |files: i64| json!({"additions": 5, "deletions": 1, "files": files});
    let shown = |observer: &Observer| {
        let session = observer.session(ONE).unwrap();
        (json!(observer.rows[ONE].changes), json!(session.chats[0].changes))
    };
    assert_eq!(shown(&scene.alice), (wanted(3), wanted(2)));

    // Nothing is published if nothing changed.
    let (before, counted) = (scene.alice.seen.len(), log.times_counted());
    log.count(ONE, SessionChangeCounts { session, chats: vec![(chat.clone(), of_chat)] });
    let again = || log.times_counted() > counted;
    eventually(Duration::from_secs(20), "counts are read again", again).await.unwrap();
    scene.agree().await;
    assert_eq!(scene.alice.seen.len(), before);

    let Scene { host, alice, bob, wire, .. } = scene;
    drop((alice, bob, wire));
    let (host, left) = tokio::join!(host.restart(), player.leave_when_told());
    left.unwrap();
    let host = host.unwrap();
    let mut alice = host.observer("alice").await.unwrap();
    let rows = alice.list_sessions().await.unwrap();
    alice.rows = rows.into_iter().map(|row| (row.resource.clone(), row)).collect();
    assert_eq!(json!(alice.rows[ONE].changes), wanted(3));
    alice.open_session(ONE).await.unwrap();
    assert_eq!(shown(&alice), (wanted(3), wanted(2)));

    // Counts cannot be removed; they become zero.
    log.count(ONE, SessionChangeCounts::default());
    let zero = json!({"additions": 0, "deletions": 0, "files": 0});
    let is_zero = |observer: &Observer| shown(observer) == (zero.clone(), zero.clone());
    alice.until("counts of zero", is_zero).await.unwrap();
}

#[tokio::test]
async fn reconnected_client_continues_its_changeset() {
    let (options, log) = scripted();
    let options = StageOptions { storage: Arc::new(MemoryStorage::new()), ..options };
    let host = StageHost::start(options).await.unwrap();
    let mut alice = host.observer("alice").await.unwrap();
    alice.create(ONE, &[DIRECTORY]).await.unwrap();
    let chat = alice.open_session(ONE).await.unwrap();
    alice.say(&chat, "one", "hello").await.unwrap();
    let player = host.stage().player().await.unwrap();
    log.show(ONE, list(&[(FILE, 1)]));
    let channel = changeset("session");
    alice.subscribe(&channel).await.unwrap();
    until(&mut alice, &channel, is_ready).await;

    alice.client.shutdown().await;
    log.show(ONE, list(&[(FILE, 1), (OTHER, 1)]));
    alice.reconnect(host.address(), "alice").await.unwrap();
    assert_eq!(alice.came_back, Some(CameBack::Replay));
    until(&mut alice, &channel, |state| state.files.len() == 2).await;

    alice.client.shutdown().await;
    let (host, left) = tokio::join!(host.restart(), player.leave_when_told());
    left.unwrap();
    let host = host.unwrap();
    alice.reconnect(host.address(), "alice").await.unwrap();
    until(&mut alice, &channel, |state| is_ready(state) && state.files.len() == 2).await;
    alice.agrees_with_a_fresh_client(host.address()).await.unwrap();
}

#[tokio::test]
async fn disposed_session_clears_its_changesets_and_removes_its_edits() {
    let (mut scene, log, channel) = scene_with(list(&[(FILE, 1)])).await;
    scene.begin("one").await;
    scene.alice.dispose_session(ONE).await.unwrap();
    let removed = |observer: &Observer| !observer.rows.contains_key(ONE);
    scene.alice.until("the removal", removed).await.unwrap();
    let order: Vec<&str> = scene
        .alice
        .seen
        .iter()
        .filter_map(|seen| match seen {
            Seen::Action(envelope) if envelope.channel == channel => {
                (json!(envelope.action)["type"] == "changeset/cleared").then_some("cleared")
            }
            Seen::SessionRemoved(_) => Some("removed"),
            _ => None,
        })
        .collect();
    assert_eq!(order, ["cleared", "removed"]);
    assert_eq!(log.housekeeping(), [EditHousekeeping::SessionRemoved(ChannelUri::new(ONE))]);
    assert_eq!(scene.wire.refused("subscribe", json!({"channel": channel})).await, -32008);
}

#[tokio::test]
async fn edits_follow_forked_moved_and_disposed_chats() {
    let (options, log) = scripted();
    let host = StageHost::start(options).await.unwrap();
    let mut wire = Wire::open(&host, "wire", &["1.0.0"]).await;
    let mut alice = host.observer("alice").await.unwrap();
    for session in [ONE, TWO] {
        alice.create(session, &[DIRECTORY]).await.unwrap();
    }
    let chat = alice.open_session(ONE).await.unwrap();
    alice.say(&chat, "one", "hello").await.unwrap();
    let mut player = host.stage().player().await.unwrap();
    player.prompt().await.unwrap();
    player.complete("one").await.unwrap();
    alice.until_turn_over(&chat, "one").await.unwrap();
    let source = json!({"kind": "fork", "chat": chat, "turnId": "one"});
    wire.ask("createChat", json!({"channel": ONE, "chat": SIDE, "source": source})).await;
    let uri = ChannelUri::new;
    let forked = EditHousekeeping::Forked(uri(&chat), uri(SIDE), vec!["one".to_owned()]);
    assert_eq!(log.housekeeping(), [forked]);

    let template = |state: &Value| state["changesets"][0]["uriTemplate"].as_str().unwrap().to_owned();
    let old = template(&wire.snapshot(SIDE).await);
    assert!(old.starts_with(ONE));
    wire.snapshot(&old).await;
    let destination = json!({"kind": "session", "session": TWO});
    wire.ask("moveChat", json!({"channel": SIDE, "destination": destination})).await;
    assert_eq!(log.housekeeping()[1], EditHousekeeping::Moved(uri(SIDE), uri(TWO)));
    let new = template(&wire.snapshot(SIDE).await);
    assert!(new.starts_with(TWO));
    let changed = wire.actions(SIDE).contains(&"chat/changesetsChanged");
    assert!(changed && wire.actions(&old).contains(&"changeset/cleared"));
    assert_eq!(wire.refused("subscribe", json!({"channel": old})).await, -32008);
    wire.snapshot(&new).await;

    wire.ask("disposeChat", json!({"channel": SIDE})).await;
    assert!(wire.actions(&new).contains(&"changeset/cleared"));
    let removed = || log.housekeeping().len() == 3;
    eventually(Duration::from_secs(20), "the edits are removed", removed).await.unwrap();
    assert_eq!(log.housekeeping()[2], EditHousekeeping::ChatRemoved(uri(SIDE)));
}

#[tokio::test]
async fn stored_contents_and_diffs_are_read_resolved_and_watched() {
    let (options, log) = scripted();
    let mut scene = Scene::of(options).await;
    let wire = &mut scene.wire;
    let (before, after) = (log.store(b"old\n"), log.store(b"\xff\xfe"));
    let blob = format!("innkeeper-blob:/{before}/a.rs");
    let read = wire.ask("resourceRead", json!({"uri": blob})).await;
    assert_eq!(read, json!({"data": "old\n", "encoding": "utf-8", "contentType": "text/x-rust"}));
    let binary = format!("innkeeper-blob:/{after}/a");
    let read = wire.ask("resourceRead", json!({"uri": binary})).await;
    assert_eq!((&read["data"], &read["encoding"]), (&json!("//4="), &json!("base64")));
    let encoded = wire.ask("resourceRead", json!({"uri": blob, "encoding": "base64"})).await;
    assert_eq!(encoded["data"], "b2xkCg==");
    let resolved = wire.ask("resourceResolve", json!({"uri": blob})).await;
    assert_eq!((&resolved["type"], &resolved["size"]), (&json!("file"), &json!(4)));
    assert_eq!((&resolved["uri"], &resolved["etag"]), (&json!(blob), &json!(before.to_string())));
    let watch = wire.ask("createResourceWatch", json!({"uri": blob, "recursive": false})).await;
    let state = wire.snapshot(watch["channel"].as_str().unwrap()).await;
    assert_eq!(state["root"], json!(blob));

    let diff = wire.ask("resourceRead", json!({"uri": format!("innkeeper-diff:/-/{before}/a.rs")})).await;
    assert_eq!(diff["contentType"], "application/json");
    let diff: Value = serde_json::from_str(diff["data"].as_str().unwrap()).unwrap();
    assert_eq!(diff, json!({"before": null, "after": "old\n"}));

    let unknown = "0".repeat(64);
    for uri in [
        format!("innkeeper-blob:/{unknown}/a.rs"),
        "innkeeper-blob:/12/a.rs".to_owned(),
        format!("innkeeper-diff:/{unknown}/-/a.rs"),
        "innkeeper-diff:/x".to_owned(),
    ] {
        for method in ["resourceRead", "resourceResolve", "createResourceWatch"] {
            assert_eq!(wire.refused(method, json!({"uri": uri})).await, -32008, "{method} {uri}");
        }
    }
}

#[tokio::test]
async fn many_large_contents_are_read_at_once() {
    let (options, log) = scripted();
    let mut scene = Scene::of(options).await;
    let wire = &mut scene.wire;
    let content = log.store(&vec![0xff; 6 * 1024 * 1024]);
    let mut requests = Vec::new();
    for _ in 0..16 {
        let params = json!({"uri": format!("innkeeper-blob:/{content}/a")});
        requests.push(wire.send_request("resourceRead", params).await);
    }
    // Together, the responses are larger than the connection's queue.
    tokio::time::sleep(Duration::from_secs(2)).await;
    for id in requests {
        let answer = wire.answer(&id).await;
        let data = answer["result"]["data"].as_str().unwrap();
        assert_eq!(data.len(), 8 * 1024 * 1024);
    }
}

#[tokio::test]
async fn number_of_watched_contents_is_limited() {
    let (options, log) = scripted();
    let mut scene = Scene::of(options).await;
    let wire = &mut scene.wire;
    let watch = json!({"uri": format!("innkeeper-blob:/{}/a", log.store(b"x")), "recursive": false});
    for _ in 0..256 {
        wire.ask("createResourceWatch", watch.clone()).await;
    }
    let refused = wire.request("createResourceWatch", watch).await;
    assert!(refused["error"]["message"].as_str().unwrap().contains("256 watches"), "{refused}");
}

/// A changed file whose undo is refused.
pub(crate) fn not_undoable(uri: &str) -> ChangedFile {
    ChangedFile { not_undoable: Some("too large".to_owned()), ..ScriptedEditLog::file(uri, 1) }
}
