//! Tool calls about which the permission policy decides: rules, modes, questions to the user,
//! and the audit records.

use std::path::PathBuf;
use std::sync::Arc;

use ahp_types::state::ChatState;
use innkeeper_core::agent::{
    AgentCommand, AgentEvent, Approval, PermissionQuery, PermissionQuestion, PermissionStage,
    PermissionVerdict, ToolAnswer,
};
use innkeeper_core::audit::input_digest;
use innkeeper_core::ids::TurnId;
use innkeeper_core::policy::{PermissionRequest, ResolvedPath, ShellAccess, ShellLine, ToolAccess};
use innkeeper_core_fakes::{MemoryStorage, Player, ScriptedEditLog};
use serde_json::{Value, json};

use crate::scene::{Scene, cancelled, started};
use crate::stage_host::StageOptions;
use crate::wire::Wire;

/// How often two clients answer the same request.
const ROUNDS: usize = 1_000;

/// Calls in one turn of this test. A long turn would make every step slower.
const CALLS_IN_TURN: usize = 20;

fn resolved(path: &str) -> ResolvedPath {
    let path = PathBuf::from(path);
    ResolvedPath { given: path.display().to_string(), lexical: path.clone(), real: Some(path) }
}

fn query(call: &str, stage: PermissionStage, tool: &str, access: ToolAccess) -> PermissionQuery {
    PermissionQuery {
        turn: Some(TurnId::new("t1")),
        tool_call: call.to_owned(),
        stage,
        request: PermissionRequest { tool: tool.to_owned(), access },
        roots: Arc::new([resolved("/w")]),
        input_digest: input_digest(call.as_bytes()),
        question: PermissionQuestion {
            title: "Run this command?".to_owned(),
            invocation: "Run it".into(),
            input: "npm test".to_owned(),
            editable: true,
            agent_reason: None,
            suggested_rules: Vec::new(),
            suggests_accepting_edits: false,
            can_remember: true,
            edits: Vec::new(),
        },
    }
}

fn shell(call: &str, stage: PermissionStage, command: &str) -> PermissionQuery {
    let access = ShellAccess { line: ShellLine::parse(command), paths: Vec::new() };
    query(call, stage, "Bash", ToolAccess::Shell(Box::new(access)))
}

fn write(call: &str, path: &str) -> PermissionQuery {
    query(call, PermissionStage::Required, "Write", ToolAccess::Write(vec![resolved(path)]))
}

/// Starts a tool call and asks for permission.
async fn request(player: &Player, query: PermissionQuery) {
    request_with_meta(player, query, json!({})).await;
}

async fn request_with_meta(player: &Player, query: PermissionQuery, meta: Value) {
    let turn = query.turn.as_ref().map(TurnId::as_str);
    let started = json!({
        "type": "chat/toolCallStart", "turnId": turn, "toolCallId": query.tool_call, "toolName": query.request.tool,
        "displayName": "Tool", "_meta": meta,
    });
    player.act(started).await.unwrap();
    player.send(AgentEvent::PermissionRequested(Box::new(query))).await.unwrap();
}

fn call<'a>(chat: &'a Value, id: &str) -> &'a Value {
    let parts = chat["activeTurn"]["responseParts"].as_array().map(Vec::as_slice).unwrap_or_default();
    parts.iter().map(|part| &part["toolCall"]).find(|call| call["toolCallId"] == id).unwrap_or(&Value::Null)
}

fn has_status(id: &'static str, status: &'static str) -> impl Fn(&ChatState) -> bool {
    move |chat| call(&json!(chat), id)["status"] == status
}

fn answer(call: &str, option: &str) -> Value {
    let approved = option != "deny";
    let mut action = json!({
        "type": "chat/toolCallConfirmed", "turnId": "t1", "toolCallId": call, "approved": approved,
        "selectedOptionId": option,
    });
    if approved {
        action["confirmed"] = json!("user-action");
    } else {
        action["reason"] = json!("denied");
        action["reasonMessage"] = json!("No.");
    }
    action
}

/// The next decision that the agent receives.
async fn decision(player: &mut Player) -> AgentCommand {
    loop {
        let command = player.command().await.unwrap();
        if !matches!(command, AgentCommand::Config(_)) {
            return command;
        }
    }
}

async fn verdict(player: &mut Player) -> PermissionVerdict {
    match decision(player).await {
        AgentCommand::PermissionVerdict { verdict, .. } => verdict,
        other => panic!("not a verdict: {other:?}"),
    }
}

fn config(values: Value) -> Value {
    json!({"type": "session/configChanged", "config": values})
}

/// A session with a running turn and storage, which keeps audit records.
async fn audited_turn() -> (Scene, Player) {
    let storage = Arc::new(MemoryStorage::new());
    let mut scene = Scene::of(StageOptions { storage, ..StageOptions::default() }).await;
    let player = scene.begin("t1").await;
    (scene, player)
}

/// The first audit records, newest first, once there are as many.
async fn audit(scene: &mut Scene, count: usize) -> Vec<Value> {
    loop {
        let page = scene.wire.ask("innkeeper/audit", json!({})).await;
        let records = page["records"].as_array().unwrap().clone();
        if records.len() >= count {
            return records;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn answer_for_the_session_becomes_a_rule_and_allows_the_next_call() {
    let (mut scene, mut player) = audited_turn().await;
    let terminal = json!({"toolKind": "terminal"});
    request_with_meta(&player, shell("k1", PermissionStage::Required, "npm test"), terminal).await;
    scene.until("the question", has_status("k1", "pending-confirmation")).await;
    let chat = json!(scene.alice.chat(&scene.chat).unwrap());
    let asked = call(&chat, "k1");
    assert_eq!(asked["_meta"]["toolKind"], Value::Null, "VS Code ignores the options of a terminal");
    let rules = asked["_meta"]["innkeeper.permission"]["rules"].clone();
    assert_eq!(rules, json!(["Bash(npm test:*)"]));
    let offered: Vec<&str> =
        asked["options"].as_array().unwrap().iter().map(|option| option["id"].as_str().unwrap()).collect();
    assert_eq!(offered, ["allow-once", "allow-session", "allow-workspace", "deny"]);

    // The answer shows the kind again.
    let mut echo = answer("k1", "allow-session");
    echo["_meta"] = asked["_meta"].clone();
    let kind = echo["_meta"].as_object_mut().unwrap().remove("innkeeper.toolKind");
    echo["_meta"]["toolKind"] = kind.unwrap();
    assert_eq!(echo["_meta"]["toolKind"], "terminal");
    let channel = scene.chat.clone();
    scene.completed(&channel, answer("k1", "allow-session"), echo).await;
    let AgentCommand::ToolAnswer { answer: given, .. } = decision(&mut player).await else {
        panic!("not an answer")
    };
    let ToolAnswer::Confirmed { approval, remembered, .. } = given else { panic!("not a confirmation") };
    assert_eq!((approval, json!(remembered)), (Approval::Approved, rules.clone()));
    let values = json!(scene.alice.session(&scene.session).unwrap())["config"]["values"].clone();
    assert_eq!(values["permissions"], json!({"allow": rules}));

    request(&player, shell("k2", PermissionStage::Required, "npm test -- --watch")).await;
    assert_eq!(verdict(&mut player).await, PermissionVerdict::Allowed);
    scene.until("the call runs", has_status("k2", "running")).await;
    let records = audit(&mut scene, 3).await;
    let summary: Vec<_> = records
        .iter()
        .map(|record| (record["toolCall"].as_str(), record["decision"].as_str(), record["layer"].as_str()))
        .collect();
    assert_eq!(
        summary,
        [
            (Some("k2"), Some("allow"), Some("rule-session")),
            (Some("k1"), Some("allow"), Some("user")),
            (Some("k1"), Some("ask"), Some("default")),
        ]
    );
    assert_eq!((&records[1]["client"], &records[1]["rule"]), (&json!("wire"), &json!("Bash(npm test:*)")));
}

#[tokio::test]
async fn pending_call_shows_the_edits_that_it_would_make() {
    let (mut scene, player) = Scene::in_turn("t1").await;
    let mut asked = write("k1", "/w/a.rs");
    let edit = ScriptedEditLog::file("file:///w/a.rs", 1).edit;
    asked.question.edits = vec![edit.clone()];
    request(&player, asked).await;
    scene.until("the question", has_status("k1", "pending-confirmation")).await;
    let chat = json!(scene.alice.chat(&scene.chat).unwrap());
    assert_eq!(call(&chat, "k1")["edits"], json!({"items": [edit]}));
    let session = json!(scene.bob.session(&scene.session).unwrap());
    assert_eq!(session["inputNeeded"][0]["toolCall"]["edits"], json!({"items": [edit]}));
}

#[tokio::test]
async fn rule_for_the_workspace_applies_in_other_sessions_of_it() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    request(&player, shell("k1", PermissionStage::Required, "npm test")).await;
    scene.until("the question", has_status("k1", "pending-confirmation")).await;
    scene.chat_accepts(answer("k1", "allow-workspace")).await;
    assert!(matches!(decision(&mut player).await, AgentCommand::ToolAnswer { .. }));
    let values = json!(scene.alice.session(&scene.session).unwrap())["config"]["values"].clone();
    assert_eq!(values.get("permissions"), None, "the rule was added to the session");
    request(&player, shell("k2", PermissionStage::Required, "npm test")).await;
    assert_eq!(verdict(&mut player).await, PermissionVerdict::Allowed);
    // A session in another workspace is asked.
    let mut elsewhere = shell("k3", PermissionStage::Required, "npm test");
    elsewhere.roots = Arc::new([resolved("/elsewhere")]);
    request(&player, elsewhere).await;
    scene.until("the question", has_status("k3", "pending-confirmation")).await;
}

#[tokio::test]
async fn denying_rule_holds_in_every_mode() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    scene.session_accepts(config(json!({"permissions": {"deny": ["Bash(rm:*)"]}}))).await;
    for (number, mode) in
        ["default", "acceptEdits", "plan", "auto", "bypassPermissions"].into_iter().enumerate()
    {
        scene.session_accepts(config(json!({"permissionMode": mode}))).await;
        let id: &'static str = ["k0", "k1", "k2", "k3", "k4"][number];
        request(&player, shell(id, PermissionStage::BeforeUse, "ls && rm -rf x")).await;
        assert!(matches!(verdict(&mut player).await, PermissionVerdict::Denied { .. }), "{mode}");
        scene.until("the call is denied", has_status(id, "completed")).await;
        let chat = json!(scene.alice.chat(&scene.chat).unwrap());
        assert_eq!(call(&chat, id)["error"]["code"], "denied");
        let reason = call(&chat, id)["error"]["message"].as_str().unwrap().to_owned();
        assert!(reason.contains("Bash(rm:*)"), "{reason}");
    }
}

#[tokio::test]
async fn call_before_use_is_only_asked_about_if_a_rule_says_so() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    scene.session_accepts(config(json!({"permissions": {"ask": ["Bash(git push:*)"]}}))).await;
    request(&player, shell("k1", PermissionStage::BeforeUse, "npm test")).await;
    assert_eq!(verdict(&mut player).await, PermissionVerdict::NoObjection);
    for mode in ["acceptEdits", "bypassPermissions"] {
        scene.session_accepts(config(json!({"permissionMode": mode}))).await;
        request(&player, shell("k2", PermissionStage::BeforeUse, "git push origin")).await;
        assert!(matches!(verdict(&mut player).await, PermissionVerdict::MustAsk { .. }), "{mode}");
    }
    player.ran("t1", "k1", json!({})).await.unwrap();
    player.complete("t1").await.unwrap();
    scene.until_over("t1").await;
}

#[tokio::test]
async fn change_of_the_mode_answers_open_requests() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    request(&player, write("k1", "/w/a.txt")).await;
    scene.until("the question", has_status("k1", "pending-confirmation")).await;
    scene.session_accepts(config(json!({"permissionMode": "acceptEdits"}))).await;
    assert_eq!(verdict(&mut player).await, PermissionVerdict::Allowed);
    scene.until("the call runs", has_status("k1", "running")).await;
    let late = scene.chat_rejects(answer("k1", "deny")).await;
    assert!(late.contains("not waiting"), "{late}");
    assert_eq!(scene.alice.session(&scene.session).unwrap().input_needed.as_deref().unwrap_or_default(), []);
}

#[tokio::test]
async fn requests_of_a_cancelled_turn_are_removed_and_later_ones_denied() {
    let (mut scene, mut player) = audited_turn().await;
    request(&player, write("k1", "/w/a.txt")).await;
    scene.until("the question", has_status("k1", "pending-confirmation")).await;
    scene.chat_accepts(cancelled("t1")).await;
    assert!(matches!(decision(&mut player).await, AgentCommand::Cancel { .. }));
    assert_eq!(scene.alice.session(&scene.session).unwrap().input_needed.as_deref().unwrap_or_default(), []);
    player.send(AgentEvent::PermissionRequested(Box::new(write("k2", "/w/b.txt")))).await.unwrap();
    assert!(matches!(verdict(&mut player).await, PermissionVerdict::Denied { .. }));
    let records = audit(&mut scene, 3).await;
    let ended: Vec<_> = records.iter().filter(|record| record["layer"] == "turn-ended").collect();
    assert_eq!(ended.len(), 2, "{records:?}");
}

#[tokio::test]
async fn withdrawn_request_runs_without_an_answer() {
    let (mut scene, player) = Scene::in_turn("t1").await;
    request(&player, write("k1", "/w/a.txt")).await;
    scene.until("the question", has_status("k1", "pending-confirmation")).await;
    player.send(AgentEvent::PermissionWithdrawn { tool_call: "k1".to_owned() }).await.unwrap();
    scene.until("the call runs", has_status("k1", "running")).await;
}

#[tokio::test]
async fn invalid_rules_are_rejected() {
    let (mut scene, _player) = Scene::in_turn("t1").await;
    for invalid in [
        json!({"permissions": {"deny": ["Bash(rm"]}}),
        json!({"permissions": {"never": []}}),
        json!({"permissions": {"allow": "Bash"}}),
    ] {
        let reason = scene.session_rejects(config(invalid.clone())).await;
        assert!(reason.contains("permissions"), "{invalid}: {reason}");
    }
}

#[tokio::test]
async fn two_clients_that_answer_at_once_cause_one_decision() {
    let mut scene = Scene::new().await;
    let mut player = scene.begin("t0").await;
    // The other clients of the scene record all messages, which would make every round slower.
    let Scene { host, chat, .. } = scene;
    let mut one = Wire::open(&host, "one", &["1.0.0"]).await;
    let mut other = Wire::open(&host, "other", &["1.0.0"]).await;
    one.snapshot(&chat).await;
    other.snapshot(&chat).await;
    let mut turn = "t0".to_owned();
    for round in 0..ROUNDS {
        let id = format!("k{round}");
        let asked = PermissionQuery { turn: Some(TurnId::new(&turn)), ..write(&id, "/w/a.txt") };
        request(&player, asked).await;
        let is_asked = |message: &Value| {
            let action = &message["params"]["action"];
            action["type"] == "chat/toolCallReady" && action["toolCallId"] == id
        };
        one.until(is_asked).await;
        other.until(is_asked).await;
        let in_turn = |mut answer: Value| {
            answer["turnId"] = json!(turn);
            answer
        };
        let (allowed, denied) = tokio::join!(
            one.dispatch(&chat, in_turn(answer(&id, "allow-once"))),
            other.dispatch(&chat, in_turn(answer(&id, "deny"))),
        );
        let AgentCommand::ToolAnswer { tool_call, answer: given, .. } = decision(&mut player).await else {
            panic!("not an answer")
        };
        assert_eq!(tool_call, id);
        let ToolAnswer::Confirmed { approval, .. } = given else { panic!("not a confirmation") };
        let accepted = |envelope: &Value| envelope.get("rejectionReason").is_none();
        let accepted = (accepted(&one.envelope(allowed).await), accepted(&other.envelope(denied).await));
        let expected = (approval == Approval::Approved, approval == Approval::Denied);
        assert_eq!(accepted, expected, "round {round}");
        player.ran(&turn, &id, json!({})).await.unwrap();
        if round % CALLS_IN_TURN == CALLS_IN_TURN - 1 {
            player.complete(&turn).await.unwrap();
            one.until(|message| message["params"]["action"]["type"] == "chat/turnComplete").await;
            turn = format!("t{}", round + 1);
            one.dispatch(&chat, started(&turn)).await;
            player.prompt().await.unwrap();
        }
        one.log.clear();
        other.log.clear();
    }
    assert_eq!(player.waiting_command(), None, "the agent received a second answer");
}
