//! Control requests with both real runtimes, from the host and to the host.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use innkeeper_claude::{
    BoxFuture, ClaudeSession, Controls, DynamicMcpServer, Effort, HookRegistration, IncomingRequest,
    McpServer, OtherRequest, PermissionAnswer, PermissionMode, Program, RequestError, SessionOptions, Status,
    Toggle,
};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::for_both_runtimes;
use crate::scenarios::{SessionFixture, completes, follow, tool, tool_results};
use crate::support::*;

for_both_runtimes!(
    settings_and_context_can_be_read_and_changed,
    requests_with_unknown_names_are_rejected_and_not_left_pending,
    mcp_servers_can_be_added_toggled_and_reconnected,
    side_question_is_not_part_of_the_conversation,
    host_hooks_are_called_and_decide,
    elicitation_of_mcp_server_is_answered_by_the_host,
    end_session_stops_the_runtime,
);

/// An MCP server with a tool that asks the user for a name.
const SERVER: &str = r#"
const out = (frame) => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', ...frame }) + '\n');
let call;
require('node:readline').createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params, result } = JSON.parse(line);
  if (method === 'initialize') {
    out({ id, result: { protocolVersion: params.protocolVersion, capabilities: { tools: {} },
      serverInfo: { name: 'desk', version: '1' } } });
  } else if (method === 'tools/list') {
    out({ id, result: { tools: [{ name: 'register', description: 'Registers a guest',
      inputSchema: { type: 'object', properties: {} } }] } });
  } else if (method === 'tools/call') {
    call = id;
    out({ id: 'ask', method: 'elicitation/create', params: { message: 'What is your name?', requestedSchema:
      { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] } } });
  } else if (id === 'ask') {
    out({ id: call, result: { content: [{ type: 'text', text: JSON.stringify(result) }] } });
  } else if (id !== undefined) {
    out({ id, result: {} });
  }
});
"#;

fn server(fixture: &SessionFixture) -> McpServer {
    let script: PathBuf = fixture.place.write("desk.js", SERVER);
    let args = vec![script.display().to_string()];
    McpServer::Stdio { command: "node".to_owned(), args, env: BTreeMap::new() }
}

fn value(raw: Option<&serde_json::value::RawValue>) -> Value {
    serde_json::from_str(raw.expect("the response has no body").get()).unwrap()
}

async fn settings_and_context_can_be_read_and_changed(program: Program) {
    let fixture = SessionFixture::new(program).await;
    let (session, _) = fixture.session_with(|_, _| PermissionAnswer::allow()).await;
    let controls = session.controls().unwrap();
    completes(&session, "#demo\ntext one").await;
    let deny = json!({ "permissions": { "deny": ["Bash(rm:*)"] } });
    let Value::Object(deny) = deny else { panic!("{deny}") };
    soon(controls.apply_settings(deny)).await.unwrap();
    soon(controls.set_effort(Some(Effort::Low))).await.unwrap();
    let settings = soon(controls.settings()).await.unwrap();
    let effective = value(settings.effective.as_deref());
    assert_eq!(effective["permissions"]["deny"], json!(["Bash(rm:*)"]), "{effective}");
    assert_eq!(effective["effortLevel"], "low", "{effective}");
    assert_eq!(value(settings.applied.as_deref())["model"], "claude-sonnet-4-5");
    let usage = value(soon(controls.context_usage()).await.unwrap().as_deref());
    assert!(usage["categories"].as_array().is_some_and(|all| !all.is_empty()), "{usage}");
    let plugins = soon(controls.reload_plugins()).await.unwrap();
    assert!(serde_json::to_value(&plugins).unwrap()["commands"].is_array());
    soon(controls.seed_read_state(&fixture.place.path("work/read"), 1_794_732_100_179)).await.unwrap();
    controls.set_variables(&BTreeMap::from([("GUEST".to_owned(), "Bob".to_owned())])).unwrap();
    // The added rule applies, and the older runtime passes on the variable.
    let events = follow(&session);
    for command in ["rm -f x", "echo \"The guest is $GUEST.\""] {
        let bash = tool("Bash", json!({ "command": command, "description": "d" }));
        completes(&session, &format!("#demo\n{bash}\ntext done")).await;
    }
    let results = tool_results(&events);
    assert_eq!((results[0].1, results[1].1), (true, false), "{results:?}");
    let is_newer = session.initialized().unwrap().claude_code_version.is_some();
    assert!(is_newer || results[1].0.contains("The guest is Bob."), "{results:?}");
}

async fn requests_with_unknown_names_are_rejected_and_not_left_pending(program: Program) {
    let fixture = SessionFixture::new(program).await;
    let session = fixture.session().await;
    let controls = session.controls().unwrap();
    completes(&session, "#demo\ntext one").await;
    assert!(!soon(controls.cancel_message(Uuid::new_v4())).await.unwrap());
    for refused in [
        soon(controls.reconnect_mcp("unknown")).await,
        soon(controls.toggle_mcp("unknown", Toggle::On)).await,
    ] {
        assert!(matches!(&refused, Err(RequestError::Refused { .. })), "{refused:?}");
    }
    // The newer runtime reports an unknown task as stopped; the older one does not know the newer requests.
    let is_newer = soon(controls.stop_task("nothing")).await.is_ok();
    let renamed = soon(controls.rename("The inn")).await;
    assert_eq!(renamed.is_ok(), is_newer, "{renamed:?}");
    let version = soon(controls.other(OtherRequest::BinaryVersion, Map::new())).await;
    assert_eq!(version.is_ok(), is_newer, "{version:?}");
    let unknown =
        soon(controls.request_within(std::time::Duration::from_secs(20), "no_such_request", Map::new()))
            .await;
    let Err(RequestError::Refused { message, code }) = unknown else { panic!("{unknown:?}") };
    assert!(message.contains("no_such_request"), "{message}");
    assert_eq!(code.is_some(), is_newer);
    assert_eq!(completes(&session, "#demo\ntext two").await, "two");
}

/// Waits until a server has this status.
async fn becomes(controls: &Controls, name: &str, status: &str) {
    soon(async {
        loop {
            let servers = controls.mcp_status().await.unwrap().servers.unwrap_or_default();
            let server = servers.iter().find(|server| server.name.as_deref() == Some(name));
            if server.is_some_and(|server| server.status.as_deref() == Some(status)) {
                return;
            }
        }
    })
    .await;
}

async fn mcp_servers_can_be_added_toggled_and_reconnected(program: Program) {
    let fixture = SessionFixture::new(program).await;
    let session = fixture.session().await;
    let controls = session.controls().unwrap();
    completes(&session, "#demo\ntext one").await;
    let servers = BTreeMap::from([
        ("desk".to_owned(), DynamicMcpServer::External(server(&fixture))),
        ("host".to_owned(), DynamicMcpServer::InProcess),
    ]);
    let change = soon(controls.set_mcp_servers(&servers)).await.unwrap();
    let mut added = change.added.unwrap();
    added.sort();
    assert_eq!(added, ["desk", "host"]);
    becomes(&controls, "desk", "connected").await;
    becomes(&controls, "host", "connected").await;
    soon(controls.toggle_mcp("desk", Toggle::Off)).await.unwrap();
    becomes(&controls, "desk", "disabled").await;
    soon(controls.toggle_mcp("desk", Toggle::On)).await.unwrap();
    becomes(&controls, "desk", "connected").await;
    soon(controls.reconnect_mcp("desk")).await.unwrap();
    becomes(&controls, "desk", "connected").await;
    let changed = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
    soon(controls.mcp_message("host", changed)).await.unwrap();
    let change = soon(controls.set_mcp_servers(&BTreeMap::new())).await.unwrap();
    assert_eq!(change.removed.unwrap().len(), 2);
}

async fn side_question_is_not_part_of_the_conversation(program: Program) {
    let fixture = SessionFixture::new(program).await;
    let session = fixture.session().await;
    let controls = session.controls().unwrap();
    completes(&session, "#demo\ntext one").await;
    let before = fixture.model.log().entries().len();
    let answer = soon(controls.side_question("#demo\ntext aside")).await.unwrap();
    assert!(answer.response.is_some_and(|words| !words.is_empty()));
    soon(controls.generate_title("a room for two", Toggle::Off)).await.unwrap();
    assert!(fixture.model.log().entries().len() >= before + 2);
    assert_eq!(session.artifact().turns, 1);
    // Neither is part of the conversation.
    let seen = completes(&session, "#demo\necho").await;
    assert!(!seen.contains("aside"), "{seen}");
}

/// Calls that the host received, in order.
type CallLog = Arc<Mutex<Vec<String>>>;

async fn host_hooks_are_called_and_decide(program: Program) {
    let mut fixture = SessionFixture::new(program).await;
    let hook = |event: &str, matcher: Option<&str>| HookRegistration {
        event: event.to_owned(),
        matcher: matcher.map(str::to_owned),
        callbacks: vec![format!("host {event}")],
        timeout_seconds: Some(20),
        blocks_on_failure: false,
    };
    fixture.launch.hooks =
        vec![hook("PreToolUse", Some("Bash")), hook("PostToolUse", None), hook("UserPromptSubmit", None)];
    let calls = CallLog::default();
    let log = Arc::clone(&calls);
    let handler = move |request, _| -> BoxFuture<'static, Result<Value, String>> {
        let answer = match request {
            IncomingRequest::HookCallback(hook) => {
                let input: Value = serde_json::from_str(hook.input.unwrap().get()).unwrap();
                let command = input["tool_input"]["command"].as_str().unwrap_or_default().to_owned();
                log.lock().unwrap().push(format!("{} {command}", hook.callback_id.unwrap()));
                let denial = json!({ "hookSpecificOutput": { "hookEventName": "PreToolUse",
                    "permissionDecision": "deny", "permissionDecisionReason": "denied by the test" } });
                if command == "touch denied" { denial } else { json!({}) }
            }
            IncomingRequest::CanUseTool(question) => PermissionAnswer::allow().to_json(&question),
            other => panic!("{other:?}"),
        };
        Box::pin(std::future::ready(Ok(answer)))
    };
    let options = SessionOptions::new(fixture.launch.clone()).with_handler(handler);
    let session = ClaudeSession::start(options, CancellationToken::new()).await.unwrap();
    let events = follow(&session);
    let bash = |command: &str| tool("Bash", json!({ "command": command, "description": "d" }));
    completes(&session, &format!("#demo\n{}\ntext done", bash("touch allowed"))).await;
    completes(&session, &format!("#demo\n{}\ntext done", bash("touch denied"))).await;
    assert!(fixture.place.path("work/allowed").exists() && !fixture.place.path("work/denied").exists());
    assert!(tool_results(&events)[1].0.contains("denied by the test"), "{events:?}");
    let expected = [
        "host UserPromptSubmit ",
        "host PreToolUse touch allowed",
        "host PostToolUse touch allowed",
        "host UserPromptSubmit ",
        "host PreToolUse touch denied",
    ];
    assert_eq!(*calls.lock().unwrap(), expected);
}

async fn elicitation_of_mcp_server_is_answered_by_the_host(program: Program) {
    let mut fixture = SessionFixture::new(program).await;
    fixture.launch.mcp.servers.insert("desk".to_owned(), server(&fixture));
    let (answers, answer) = tokio::sync::oneshot::channel::<()>();
    let gate = Arc::new(Mutex::new(Some(answer)));
    let handler = move |request, _| -> BoxFuture<'static, Result<Value, String>> {
        let gate = gate.lock().unwrap().take();
        Box::pin(async move {
            match request {
                IncomingRequest::Elicitation(question) => {
                    assert_eq!(question.mcp_server_name.as_deref(), Some("desk"));
                    assert_eq!(question.message.as_deref(), Some("What is your name?"));
                    let schema = value(question.requested_schema.as_deref());
                    assert_eq!(schema["required"], json!(["name"]));
                    gate.unwrap().await.unwrap();
                    Ok(json!({ "action": "accept", "content": { "name": "Bob" } }))
                }
                other => panic!("{other:?}"),
            }
        })
    };
    fixture.launch.permission_mode = Some(PermissionMode::Default);
    fixture.launch.settings =
        Map::from_iter([("permissions".to_owned(), json!({ "allow": ["mcp__desk__register"] }))]);
    let options = SessionOptions::new(fixture.launch.clone()).with_handler(handler);
    let session = ClaudeSession::start(options, CancellationToken::new()).await.unwrap();
    let events = follow(&session);
    let call = tool("mcp__desk__register", json!({}));
    let turn = session.send(format!("#demo\n{call}\ntext done")).unwrap();
    // While the request is pending, the rest of the session continues.
    soon(session.status().wait_for(|status| *status == Status::AwaitingApproval)).await.unwrap();
    becomes(&session.controls().unwrap(), "desk", "connected").await;
    answers.send(()).unwrap();
    assert_eq!(soon(turn.result()).await.unwrap().text, "done");
    let results = tool_results(&events);
    assert!(results[0].0.contains("Bob") && results[0].0.contains("accept"), "{results:?}");
}

async fn end_session_stops_the_runtime(program: Program) {
    let fixture = SessionFixture::new(program).await;
    let session = fixture.session().await;
    completes(&session, "#demo\ntext one").await;
    let pid = session.pid().unwrap();
    soon(session.controls().unwrap().end_session(Some("end of the test"))).await.unwrap();
    until(|| session.pid().is_none()).await;
    assert!(!lives(pid));
    // The next send resumes the conversation.
    assert!(completes(&session, "#demo\necho").await.contains("one"));
}
