//! Tokens that clients send with `authenticate`, for resources that an agent declares and
//! for resources that a session currently waits for.

use std::time::Duration;

use innkeeper_core::agent::{AgentCommand, ResourceToken};
use innkeeper_core_fakes::{Player, Stage, StageTraits};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use crate::scene::Scene;
use crate::stage_host::{StageHost, StageOptions};
use crate::wire::Wire;

const API: &str = "https://api.example";
const MCP: &str = "https://mcp.example";
const SECRET: &str = "gho_SECRET";

fn authenticate(resource: &str, token: &str) -> Value {
    json!({"channel": "ahp-root://", "resource": resource, "token": token})
}

/// Starts a host whose agent requires a token for one resource and accepts one for another.
async fn host_requiring_a_token() -> (StageHost, Wire) {
    let resources = json!([
        {"resource": API, "resource_name": "The API", "authorization_servers": ["https://login.example"]},
        {"resource": "https://extra.example", "required": false},
    ]);
    let traits = StageTraits {
        protected_resources: serde_json::from_value(resources).unwrap(),
        ..StageTraits::default()
    };
    let options = StageOptions { stage: Stage::new(traits), ..StageOptions::default() };
    let host = StageHost::start(options).await.unwrap();
    let wire = Wire::open(&host, "wire", &["1.0.0"]).await;
    (host, wire)
}

fn secrets(stage: &Stage) -> Vec<Option<String>> {
    let secret = |token: ResourceToken| token.token.map(|token| token.expose_secret().to_owned());
    stage.tokens().into_iter().map(secret).collect()
}

#[tokio::test]
async fn session_creation_requires_the_token_of_the_agent() {
    let (host, mut wire) = host_requiring_a_token().await;
    let agents = wire.snapshot("ahp-root://").await["agents"].clone();
    assert_eq!(agents[0]["protectedResources"][0]["resource_name"], "The API");
    let create = |session: &str| json!({"channel": session});
    let refused = wire.request("createSession", create("scripted:/1")).await;
    assert_eq!(refused["error"]["code"], -32007);
    assert_eq!(refused["error"]["data"]["resources"], json!([agents[0]["protectedResources"][0]]));
    assert_eq!(wire.refused("subscribe", create("scripted:/1")).await, -32008, "the rejected session exists");
    let mut params = authenticate(API, SECRET);
    params["expiresIn"] = json!(3600);
    params["scopes"] = json!(["read"]);
    assert_eq!(wire.ask("authenticate", params.clone()).await, json!({}));
    assert_eq!(wire.ask("authenticate", params).await, json!({}), "the token cannot be sent twice");
    let wanted = ResourceToken {
        resource: API.to_owned(),
        token: Some(SecretString::from(SECRET)),
        expires_in: Some(Duration::from_secs(3600)),
        scopes: Some(vec!["read".to_owned()]),
    };
    assert_eq!(host.stage().tokens(), [wanted.clone(), wanted]);
    assert_eq!(wire.ask("createSession", create("scripted:/1")).await, Value::Null);
    let mut revoke = authenticate(API, "");
    revoke["expiresIn"] = json!(0);
    assert_eq!(wire.ask("authenticate", revoke).await, json!({}), "expiry is ignored for an empty token");
    assert_eq!(wire.refused("createSession", create("scripted:/2")).await, -32007);
    assert_eq!(secrets(host.stage()), [Some(SECRET.to_owned()), Some(SECRET.to_owned()), None]);
    assert!(!format!("{:?}", host.stage().tokens()).contains(SECRET));
}

#[tokio::test]
async fn rejected_token_is_not_repeated_in_the_error() {
    let (host, mut wire) = host_requiring_a_token().await;
    let wrong = [
        authenticate("https://elsewhere.example", SECRET),
        json!({"resource": API}),
        json!({"token": SECRET}),
        json!({"resource": API, "token": [SECRET]}),
        json!({"resource": {"token": SECRET}, "token": SECRET}),
        json!({"resource": API, "token": SECRET, "expiresIn": SECRET}),
        json!({"resource": API, "token": SECRET, "expiresIn": 0}),
        json!({"resource": API, "token": SECRET, "expiresIn": -5}),
        json!({"resource": API, "token": SECRET, "scopes": SECRET}),
        json!([SECRET]),
    ];
    for params in wrong {
        let answer = wire.request("authenticate", params.clone()).await;
        assert_eq!(answer["error"]["code"], -32602, "{params}");
        assert!(!answer.to_string().contains("gho_"), "{answer}");
    }
    let unknown = wire.request("authenticate", authenticate("https://elsewhere.example", SECRET)).await;
    let text = unknown["error"]["message"].as_str().unwrap();
    assert!(text.contains("https://elsewhere.example") && text.contains(API), "{text}");
    host.stage().refuse_next_token("gho_SECRET has expired");
    let refused = wire.request("authenticate", authenticate(API, SECRET)).await;
    assert_eq!(refused["error"]["code"], -32007);
    assert_eq!(refused["error"]["data"]["resources"][0]["resource"], API);
    assert!(refused["error"]["message"].as_str().unwrap().contains("has expired"));
    assert!(!refused.to_string().contains("gho_"), "{refused}");
    assert!(host.stage().tokens().is_empty());
}

/// The next command of the agent, which must be a token.
async fn token(player: &mut Player) -> ResourceToken {
    match player.command().await.unwrap() {
        AgentCommand::Token(token) => token,
        other => panic!("not a token: {other:?}"),
    }
}

#[tokio::test]
async fn tool_call_awaiting_sign_in_receives_the_token_and_continues() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    assert_eq!(scene.wire.refused("authenticate", authenticate(MCP, SECRET)).await, -32602);
    let start = json!({
        "type": "chat/toolCallStart", "turnId": "t1", "toolCallId": "k1", "toolName": "issues",
        "displayName": "Issues", "contributor": {"kind": "mcp", "customizationId": "server"},
    });
    player.act(start).await.unwrap();
    let ready = json!({
        "type": "chat/toolCallReady", "turnId": "t1", "toolCallId": "k1", "invocationMessage": "List issues",
        "confirmed": "not-needed",
    });
    player.act(ready).await.unwrap();
    let auth = json!({"reason": "required", "resource": {"resource": MCP}});
    let required =
        json!({"type": "chat/toolCallAuthRequired", "turnId": "t1", "toolCallId": "k1", "auth": auth});
    player.act(required).await.unwrap();
    scene.until("the call waits", |chat| chat.status == 24).await;
    assert_eq!(scene.wire.ask("authenticate", authenticate(MCP, SECRET)).await, json!({}));
    let told = token(&mut player).await;
    assert_eq!((told.resource.as_str(), told.token.unwrap().expose_secret()), (MCP, SECRET));
    assert_eq!(
        secrets(scene.host.stage()),
        [Some(SECRET.to_owned())],
        "the provider did not receive the token"
    );
    let resolved = json!({"type": "chat/toolCallAuthResolved", "turnId": "t1", "toolCallId": "k1"});
    player.act(resolved).await.unwrap();
    scene.until("the call continues", |chat| chat.status == 8).await;
    assert_eq!(scene.wire.refused("authenticate", authenticate(MCP, SECRET)).await, -32602);
    assert_eq!(player.waiting_command(), None);
}

#[tokio::test]
async fn mcp_server_awaiting_sign_in_receives_the_token() {
    let (mut scene, mut player) = Scene::in_turn("t1").await;
    let waiting = |resource: &str| json!({"kind": "authRequired", "reason": "required", "resource": {"resource": resource}});
    let server = |id: &str, state: Value| json!({"type": "mcpServer", "id": id, "uri": "file:///m", "name": "M", "state": state});
    let inner = "https://inner.example";
    let plugin = json!({"type": "plugin", "id": "plugin", "uri": "file:///p", "name": "P", "children": [server("inner", waiting(inner))]});
    let offered = json!([server("server", waiting(MCP)), plugin]);
    player.act(json!({"type": "session/customizationsChanged", "customizations": offered})).await.unwrap();
    player.text("t1", "p1", &["x"]).await.unwrap();
    scene
        .until("the customizations", |chat| json!(chat.active_turn)["responseParts"][0]["content"] == "x")
        .await;
    for resource in [MCP, inner] {
        assert_eq!(scene.wire.ask("authenticate", authenticate(resource, SECRET)).await, json!({}));
        assert_eq!(token(&mut player).await.resource, resource);
    }
    let unknown = scene.wire.request("authenticate", authenticate(API, SECRET)).await;
    let text = unknown["error"]["message"].as_str().unwrap().to_owned();
    assert!(text.contains(MCP) && text.contains(inner), "{text}");
    let ready = json!({"type": "session/mcpServerStateChanged", "id": "server", "state": {"kind": "ready"}});
    player.act(ready).await.unwrap();
    player.complete("t1").await.unwrap();
    scene.until_over("t1").await;
    assert_eq!(scene.wire.refused("authenticate", authenticate(MCP, SECRET)).await, -32602);
    player.crash().await.unwrap();
    assert_eq!(scene.wire.ask("authenticate", authenticate(inner, "another")).await, json!({}));
    assert_eq!(
        secrets(scene.host.stage()).last(),
        Some(&Some("another".to_owned())),
        "the provider did not receive the token for the next agent"
    );
}

#[tokio::test]
async fn rejects_token_if_none_is_required() {
    let mut scene = Scene::new().await;
    let answer = scene.wire.request("authenticate", authenticate(API, SECRET)).await;
    assert_eq!(answer["error"]["code"], -32602);
    assert!(answer["error"]["message"].as_str().unwrap().contains("no tokens are needed"), "{answer}");
    scene.agree().await;
}
