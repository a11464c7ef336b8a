//! Every recorded scenario, with both real runtimes and the scripted model.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use innkeeper_claude::process_registry::ProcessRegistry;
use innkeeper_claude::{
    ApiEndpoint, BoxFuture, ClaudeSession, Conversation, EventKind, IncomingRequest, Interrupted,
    LaunchOptions, McpOptions, PermissionAnswer, PermissionMode, Program, RewindMode, SessionEvent,
    SessionOptions, Status, TurnEnding, TurnFailure, TurnResult,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::for_both_runtimes;
use crate::scripted_model::ScriptedModel;
use crate::support::*;

for_both_runtimes!(
    streamed_text_equals_the_result,
    thinking_is_separate_from_text,
    second_turn_sees_the_first_in_the_same_process,
    tools_run_only_if_allowed,
    question_to_the_user_is_answered,
    host_tool_is_called,
    subagent_events_carry_their_parent,
    interrupt_ends_a_streaming_response,
    denial_can_end_the_turn,
    model_can_be_changed,
    permission_mode_decides_which_tools_need_approval,
    plan_can_be_approved,
    conversation_can_be_resumed_and_forked,
    model_errors_fail_the_turn_but_not_the_session,
    files_can_be_rewound_to_a_message,
    background_work_does_not_belong_to_a_send,
    turn_limit_ends_the_turn,
    commands_and_compaction_settle_like_messages,
    cleared_conversation_is_leased_under_its_new_id,
    session_is_usable_after_200_interrupts,
    killed_runtime_is_replaced_and_conversation_continues,
    restart_changes_options_and_keeps_the_conversation,
);

/// Directories, a scripted model and launch options.
pub(crate) struct SessionFixture {
    pub(crate) place: Place,
    pub(crate) model: ScriptedModel,
    pub(crate) launch: LaunchOptions,
}

/// Permission requests that were received, as tool and input.
pub(crate) type PermissionRequests = Arc<Mutex<Vec<(String, Value)>>>;

impl SessionFixture {
    pub(crate) async fn new(program: Program) -> Self {
        let place = Place::new();
        let model = ScriptedModel::start().await.unwrap();
        let mut launch = place.options(program);
        launch.endpoint = Some(ApiEndpoint {
            base_url: model.base_url().to_owned(),
            bearer: model.bearer(&launch.conversation.id().to_string()),
        });
        launch.model = Some("claude-sonnet-4-5".to_owned());
        Self { place, model, launch }
    }

    pub(crate) async fn session(&self) -> ClaudeSession {
        self.session_with(|_, _| PermissionAnswer::deny("unexpected permission request")).await.0
    }

    /// Starts a session whose permission requests are answered by `decide`.
    pub(crate) async fn session_with(
        &self,
        decide: impl Fn(&str, &Value) -> PermissionAnswer + Send + Sync + 'static,
    ) -> (ClaudeSession, PermissionRequests) {
        let requests = PermissionRequests::default();
        let log = Arc::clone(&requests);
        let handler = move |request, _cancel| -> BoxFuture<'static, Result<Value, String>> {
            let answer = match request {
                IncomingRequest::CanUseTool(question) => {
                    let tool = question.tool_name.clone().unwrap();
                    let input = serde_json::from_str(question.input.as_ref().unwrap().get()).unwrap();
                    let answer = decide(&tool, &input).to_json(&question);
                    log.lock().unwrap().push((tool, input));
                    Ok(answer)
                }
                IncomingRequest::McpMessage(message) => Ok(mcp(message.message.unwrap().get())),
                other => Err(format!("unexpected: {other:?}")),
            };
            Box::pin(std::future::ready(answer))
        };
        let options = SessionOptions::new(self.launch.clone()).with_handler(handler);
        (ClaudeSession::start(options, CancellationToken::new()).await.unwrap(), requests)
    }
}

/// An MCP server with one tool, which greets.
fn mcp(message: &str) -> Value {
    let message: Value = serde_json::from_str(message).unwrap();
    let result = match message["method"].as_str().unwrap() {
        "initialize" => json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
            "serverInfo": { "name": "host", "version": "1" } }),
        "tools/list" => json!({ "tools": [{ "name": "greet", "description": "Greets",
            "inputSchema": { "type": "object", "properties": { "name": { "type": "string" } } } }] }),
        "tools/call" => json!({ "content": [{ "type": "text",
            "text": format!("Hello {}", message["params"]["arguments"]["name"].as_str().unwrap()) }] }),
        _ => json!({}),
    };
    json!({ "mcp_response": { "jsonrpc": "2.0", "id": message["id"], "result": result } })
}

async fn play(session: &ClaudeSession, script: &str) -> TurnResult {
    soon(session.send(script).unwrap().result()).await.unwrap()
}

pub(crate) async fn completes(session: &ClaudeSession, script: &str) -> String {
    let result = play(session, script).await;
    assert_eq!(result.ending, TurnEnding::Completed, "{:?}", result.message);
    result.text
}

/// Collects all events of a session from now on.
pub(crate) fn follow(session: &ClaudeSession) -> Arc<Mutex<Vec<SessionEvent>>> {
    let events = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&events);
    session.on_event(move |event| log.lock().unwrap().push(event.clone())).keep();
    events
}

pub(crate) fn tool_results(events: &Mutex<Vec<SessionEvent>>) -> Vec<(String, bool)> {
    let events = events.lock().unwrap();
    let results = events.iter().filter_map(|event| match &event.kind {
        EventKind::ToolResult { output, is_error, .. } => Some((output.clone(), *is_error)),
        _ => None,
    });
    results.collect()
}

pub(crate) fn tool(name: &str, input: Value) -> String {
    format!("tool {name} {input}")
}

async fn streamed_text_equals_the_result(program: Program) {
    let fixture = SessionFixture::new(program).await;
    let session = fixture.session().await;
    let mut turn = session.send("#demo\nchunk 4\ntext Welcome to the inn, dear guest.").unwrap();
    let (mut pieces, mut whole) = (Vec::new(), Vec::new());
    while let Some(event) = soon(turn.next()).await {
        match &event.unwrap().kind {
            EventKind::TextDelta { text } => pieces.push(text.clone()),
            EventKind::Text { text } => whole.push(text.clone()),
            _ => {}
        }
    }
    let result = soon(turn.result()).await.unwrap();
    assert_eq!(result.text, "Welcome to the inn, dear guest.");
    assert_eq!((pieces.concat(), whole), (result.text.clone(), vec![result.text]));
    assert!(pieces.len() >= 5, "{pieces:?}");
    let artifact = session.artifact();
    assert_eq!((artifact.turns, artifact.tokens), (1, result.tokens));
    assert!(artifact.tokens.output > 0);
    assert_eq!(*session.status().borrow(), Status::Idle);
    let pid = session.pid().unwrap();
    soon(session.terminate()).await;
    assert!(!lives(pid) && fixture.place.scratch_files().is_empty());
}

async fn thinking_is_separate_from_text(program: Program) {
    let fixture = SessionFixture::new(program).await;
    let session = fixture.session().await;
    let events = follow(&session);
    assert_eq!(completes(&session, "#demo\nthink Is the kettle on?\ntext It is.").await, "It is.");
    let events = events.lock().unwrap();
    let thought = events.iter().filter_map(|event| match &event.kind {
        EventKind::Thinking { text } => Some(text.clone()),
        _ => None,
    });
    assert_eq!(thought.collect::<Vec<_>>(), ["Is the kettle on?"]);
    assert!(events.iter().any(|event| matches!(event.kind, EventKind::ThinkingDelta { .. })));
}

async fn second_turn_sees_the_first_in_the_same_process(program: Program) {
    let fixture = SessionFixture::new(program).await;
    let session = fixture.session().await;
    let pid = session.pid();
    completes(&session, "#demo\ntext The number is 4711.").await;
    let seen = completes(&session, "#demo\necho").await;
    assert!(seen.contains("The number is 4711."), "{seen}");
    assert_eq!(session.pid(), pid);
}

async fn tools_run_only_if_allowed(program: Program) {
    let fixture = SessionFixture::new(program).await;
    let (session, requests) = fixture
        .session_with(|_, input| match input["command"].as_str() {
            Some("touch allowed") => PermissionAnswer::allow(),
            _ => PermissionAnswer::deny("denied by the test"),
        })
        .await;
    let events = follow(&session);
    let bash = |command: &str| tool("Bash", json!({ "command": command, "description": "d" }));
    completes(&session, &format!("#demo\n{}\ntext done", bash("touch allowed"))).await;
    completes(&session, &format!("#demo\n{}\ntext done", bash("touch denied"))).await;
    assert!(fixture.place.path("work/allowed").exists() && !fixture.place.path("work/denied").exists());
    let results = tool_results(&events);
    assert_eq!(results.iter().map(|(_, is_error)| *is_error).collect::<Vec<_>>(), [false, true]);
    assert!(results[1].0.contains("denied by the test"), "{results:?}");
    assert_eq!(requests.lock().unwrap().len(), 2);
    let artifact = session.artifact();
    assert_eq!((artifact.tool_calls, artifact.tool_results), (2, 2));
}

async fn question_to_the_user_is_answered(program: Program) {
    let fixture = SessionFixture::new(program).await;
    let (session, requests) = fixture
        .session_with(|_, input| {
            let mut input = input.clone();
            input["answers"] = json!({ "Which room?": "Attic" });
            PermissionAnswer::Allow { updated_input: Some(input), updated_permissions: Vec::new() }
        })
        .await;
    let events = follow(&session);
    let option = |label: &str| json!({ "label": label, "description": label });
    let question = json!({ "questions": [{ "question": "Which room?", "header": "Room", "multiSelect": false,
        "options": [option("Attic"), option("Cellar")] }] });
    completes(&session, &format!("#demo\n{}\ntext done", tool("AskUserQuestion", question))).await;
    assert_eq!(requests.lock().unwrap()[0].0, "AskUserQuestion");
    let results = tool_results(&events);
    assert!(!results[0].1 && results[0].0.contains("Attic"), "{results:?}");
}

async fn host_tool_is_called(program: Program) {
    let mut fixture = SessionFixture::new(program).await;
    fixture.launch.mcp = McpOptions { in_process: vec!["host".to_owned()], ..McpOptions::default() };
    let (session, requests) = fixture.session_with(|_, _| PermissionAnswer::allow()).await;
    let events = follow(&session);
    let call = tool("mcp__host__greet", json!({ "name": "Bob" }));
    completes(&session, &format!("#demo\n{call}\ntext done")).await;
    assert_eq!(requests.lock().unwrap()[0].0, "mcp__host__greet");
    assert_eq!(tool_results(&events), [("Hello Bob".to_owned(), false)]);
    let status = soon(session.controls().unwrap().mcp_status()).await.unwrap();
    let server = &status.servers.unwrap()[0];
    assert_eq!((server.name.as_deref(), server.status.as_deref()), (Some("host"), Some("connected")));
}

async fn subagent_events_carry_their_parent(program: Program) {
    let fixture = SessionFixture::new(program).await;
    let (session, _) = fixture.session_with(|_, _| PermissionAnswer::allow()).await;
    let events = follow(&session);
    let bash = tool("Bash", json!({ "command": "touch by-the-agent", "description": "d" }));
    let task = json!({ "description": "d", "subagent_type": "general-purpose", "run_in_background": false,
        "prompt": format!("#demo\n{bash}\ntext The agent is done.") });
    completes(&session, &format!("#demo\n{}\ntext All done.", tool("Task", task))).await;
    assert!(fixture.place.path("work/by-the-agent").exists());
    let events = events.lock().unwrap();
    let mut calls = BTreeMap::new();
    for event in events.iter() {
        if let EventKind::ToolUse { id, name, .. } = &event.kind {
            calls.insert(name.clone(), (id.clone(), event.subagent.clone()));
        }
    }
    let (task, main) = calls.get("Task").or_else(|| calls.get("Agent")).unwrap().clone();
    assert_eq!(main, None);
    assert_eq!(calls["Bash"].1, Some(task.clone()));
    let handed_back = events.iter().any(|event| match &event.kind {
        EventKind::ToolResult { tool_use_id, output, .. } => {
            *tool_use_id == task && output.contains("The agent is done.")
        }
        _ => false,
    });
    assert!(handed_back, "{events:?}");
}

/// Sends a script and waits for the first text of the response.
async fn speaking(session: &ClaudeSession, script: &str) -> innkeeper_claude::Turn {
    let mut turn = session.send(script).unwrap();
    loop {
        let event = soon(turn.next()).await.expect("the turn ended early").unwrap();
        if matches!(event.kind, EventKind::TextDelta { .. }) {
            return turn;
        }
    }
}

/// Sends some text, and then nothing for a long time.
const HANGS: &str = "#demo\ntext One moment please\nwait 60000\ntext too late";

async fn interrupt_ends_a_streaming_response(program: Program) {
    let fixture = SessionFixture::new(program).await;
    let session = fixture.session().await;
    let pid = session.pid();
    let turn = speaking(&session, HANGS).await;
    let next = session.send("#demo\ntext next").unwrap();
    assert_eq!(soon(session.interrupt()).await, Interrupted::Turn);
    assert!(matches!(soon(turn.result()).await, Err(TurnFailure::Interrupted)));
    assert_eq!(soon(next.result()).await.unwrap().text, "next");
    // A timeout ends a turn in the same way.
    let late =
        session.send(innkeeper_claude::Prompt::from(HANGS).within(Duration::from_millis(300))).unwrap();
    assert!(matches!(soon(late.result()).await, Err(TurnFailure::TimedOut { .. })));
    assert_eq!(completes(&session, "#demo\ntext and next").await, "and next");
    assert_eq!(session.pid(), pid);
}

async fn denial_can_end_the_turn(program: Program) {
    let fixture = SessionFixture::new(program).await;
    let (session, _) = fixture
        .session_with(|_, _| PermissionAnswer::Deny { message: "stop".to_owned(), interrupt: true })
        .await;
    let bash = tool("Bash", json!({ "command": "touch x", "description": "d" }));
    let result = play(&session, &format!("#demo\n{bash}\ntext never said")).await;
    assert_eq!(result.ending, TurnEnding::Aborted);
    assert_eq!(completes(&session, "#demo\ntext next").await, "next");
}

async fn model_can_be_changed(program: Program) {
    let fixture = SessionFixture::new(program).await;
    let session = fixture.session().await;
    let controls = session.controls().unwrap();
    let models =
        || -> Vec<String> { fixture.model.log().entries().iter().map(|entry| entry.model.clone()).collect() };
    completes(&session, "#demo\ntext one").await;
    assert_eq!(models().last().unwrap(), "claude-sonnet-4-5");
    soon(controls.set_model(Some("claude-haiku-4-5"))).await.unwrap();
    completes(&session, "#demo\ntext two").await;
    assert_eq!(models().last().unwrap(), "claude-haiku-4-5");
    soon(controls.set_max_thinking_tokens(Some(2000))).await.unwrap();
    completes(&session, "#demo\ntext three").await;
    let last: Value = serde_json::from_slice(&fixture.model.log().entries().last().unwrap().body).unwrap();
    assert_eq!(last["thinking"]["budget_tokens"], 2000, "{}", last["thinking"]);
}

async fn permission_mode_decides_which_tools_need_approval(program: Program) {
    let mut fixture = SessionFixture::new(program).await;
    fixture.launch.permission_mode = Some(PermissionMode::AcceptEdits);
    let (session, requests) = fixture.session_with(|_, _| PermissionAnswer::deny("no")).await;
    let controls = session.controls().unwrap();
    let write = |name: &str| {
        let file = fixture.place.path("work").join(name);
        format!("#demo\n{}\ntext done", tool("Write", json!({ "file_path": file, "content": "x" })))
    };
    completes(&session, &write("accepted")).await;
    assert!(fixture.place.path("work/accepted").exists());
    assert_eq!(requests.lock().unwrap().len(), 0);
    let answer = soon(controls.set_permission_mode(PermissionMode::Default)).await.unwrap();
    assert_eq!(answer.mode.as_deref(), Some("default"));
    completes(&session, &write("asked")).await;
    assert_eq!(requests.lock().unwrap().len(), 1);
    soon(controls.set_permission_mode(PermissionMode::DontAsk)).await.unwrap();
    completes(&session, &write("not-asked")).await;
    assert_eq!(requests.lock().unwrap().len(), 1);
    assert!(!fixture.place.path("work/asked").exists() && !fixture.place.path("work/not-asked").exists());
}

async fn plan_can_be_approved(program: Program) {
    let mut fixture = SessionFixture::new(program).await;
    fixture.launch.permission_mode = Some(PermissionMode::Plan);
    let (session, requests) = fixture.session_with(|_, _| PermissionAnswer::allow()).await;
    let events = follow(&session);
    let plan = tool("ExitPlanMode", json!({ "plan": "Sweep the hall." }));
    completes(&session, &format!("#demo\n{plan}\ntext done")).await;
    assert_eq!(requests.lock().unwrap()[0].0, "ExitPlanMode");
    assert!(!tool_results(&events)[0].1);
    // Outside of plan mode, edits need approval again.
    let write = tool("Write", json!({ "file_path": fixture.place.path("work/after"), "content": "x" }));
    completes(&session, &format!("#demo\n{write}\ntext done")).await;
    assert_eq!(requests.lock().unwrap()[1].0, "Write");
    assert!(fixture.place.path("work/after").exists());
}

async fn conversation_can_be_resumed_and_forked(program: Program) {
    let mut fixture = SessionFixture::new(program).await;
    let first = fixture.session().await;
    completes(&first, "#demo\ntext The number is 4711.").await;
    soon(first.terminate()).await;
    fixture.launch.conversation = Conversation::Resume(first.conversation());
    let resumed = fixture.session().await;
    assert_eq!(resumed.conversation(), first.conversation());
    assert!(completes(&resumed, "#demo\necho").await.contains("The number is 4711."));

    let fork = resumed.fork(|_| (), CancellationToken::new()).await.unwrap();
    assert_ne!(fork.conversation(), resumed.conversation());
    completes(&fork, "#demo\ntext Only the fork says 0815.").await;
    assert!(completes(&fork, "#demo\necho").await.contains("The number is 4711."));
    assert!(!completes(&resumed, "#demo\necho").await.contains("0815"));
}

async fn model_errors_fail_the_turn_but_not_the_session(program: Program) {
    let fixture = SessionFixture::new(program).await;
    let session = fixture.session().await;
    let pid = session.pid();
    for failure in [
        "error 429 rate_limit_error always",
        "error 500 api_error always",
        "error 529 overloaded_error always",
    ] {
        let result = play(&session, &format!("#demo\n{failure}")).await;
        assert_eq!(result.ending, TurnEnding::Failed, "{failure}: {:?}", result.message);
        let status = failure.split(' ').nth(1).unwrap();
        let said = result.message.api_error_status.map(|status| status.to_string());
        assert!(result.text.contains(status) || said.as_deref() == Some(status), "{failure}: {result:?}");
    }
    let result = play(&session, "#demo\ntext half an ans\ndrop always").await;
    assert_eq!(result.ending, TurnEnding::Failed, "{:?}", result.message);
    assert_eq!(completes(&session, "#demo\ntext all is well").await, "all is well");
    assert!(session.artifact().errors >= 4, "{}", session.artifact().errors);
    assert_eq!(session.pid(), pid);
}

async fn files_can_be_rewound_to_a_message(program: Program) {
    let mut fixture = SessionFixture::new(program).await;
    fixture.launch.file_checkpoints = true;
    fixture.launch.permission_mode = Some(PermissionMode::AcceptEdits);
    let session = fixture.session().await;
    let file = fixture.place.path("work/guests.txt");
    let write = tool("Write", json!({ "file_path": file, "content": "Alice\nBob\n" }));
    let turn = session.send(format!("#demo\n{write}\ntext done")).unwrap();
    let message = turn.uuid();
    soon(turn.result()).await.unwrap();
    assert!(file.exists());
    let controls = session.controls().unwrap();
    let dry = soon(controls.rewind_files(message, RewindMode::DryRun)).await.unwrap();
    assert_eq!(dry.can_rewind, Some(true), "{dry:?}");
    assert!(file.exists());
    soon(controls.rewind_files(message, RewindMode::Restore)).await.unwrap();
    assert!(!file.exists());
}

async fn background_work_does_not_belong_to_a_send(program: Program) {
    let fixture = SessionFixture::new(program).await;
    let (session, _) = fixture.session_with(|_, _| PermissionAnswer::allow()).await;
    let events = follow(&session);
    let command = json!({ "command": "until [ -e go ]; do sleep 0.05; done; echo woken", "description": "d", "run_in_background": true });
    assert_eq!(completes(&session, &format!("#demo\n{}\ntext begun", tool("Bash", command))).await, "begun");
    // The task ends, and the runtime starts a turn.
    std::fs::write(fixture.place.path("work/go"), "").unwrap();
    let background_turn = || {
        let events = events.lock().unwrap();
        events.iter().any(|event| event.turn.is_none() && matches!(event.kind, EventKind::Result { .. }))
    };
    until(background_turn).await;
    assert_eq!(completes(&session, "#demo\ntext asked").await, "asked");
    assert_eq!(session.artifact().turns, 2);
    // A task that is still running is stopped with the session.
    let command = json!({ "command": "sleep 600", "description": "d", "run_in_background": true });
    completes(&session, &format!("#demo\n{}\ntext begun", tool("Bash", command))).await;
    let pid = session.pid().unwrap();
    soon(session.terminate()).await;
    assert!(!lives(pid));
}

async fn turn_limit_ends_the_turn(program: Program) {
    let mut fixture = SessionFixture::new(program).await;
    fixture.launch.max_turns = Some(1);
    let (session, _) = fixture.session_with(|_, _| PermissionAnswer::allow()).await;
    let bash = tool("Bash", json!({ "command": "true", "description": "d" }));
    let result = play(&session, &format!("#demo\n{bash}\ntext never said")).await;
    assert_eq!(result.message.subtype.as_deref(), Some("error_max_turns"));
    assert_eq!(completes(&session, "#demo\ntext next").await, "next");
}

async fn commands_and_compaction_settle_like_messages(program: Program) {
    let fixture = SessionFixture::new(program).await;
    let session = fixture.session().await;
    let events = follow(&session);
    assert!(completes(&session, "/cost").await.contains("Total cost"));
    completes(&session, "#demo\ntext one").await;
    completes(&session, "/compact").await;
    assert_eq!(completes(&session, "#demo\ntext two").await, "two");
    let events = events.lock().unwrap();
    let compactions = events.iter().filter(|event| matches!(event.kind, EventKind::Compaction { .. }));
    assert_eq!(compactions.count(), 1);
}

async fn cleared_conversation_is_leased_under_its_new_id(program: Program) {
    let mut fixture = SessionFixture::new(program).await;
    fixture.launch.registry = Some(fixture.place.path("running"));
    let registry = ProcessRegistry::new(fixture.place.path("running"));
    let in_use =
        || -> Vec<_> { registry.list().unwrap().iter().map(|runtime| runtime.conversation).collect() };
    let session = fixture.session().await;
    let first = session.conversation();
    completes(&session, "#demo\ntext The number is 4711.").await;
    play(&session, "/clear").await;
    let seen = completes(&session, "#demo\necho").await;
    // The older runtime does not clear; then nothing has changed.
    assert_eq!(session.conversation() == first, seen.contains("The number is 4711."), "{seen}");
    until(|| in_use() == [session.conversation()]).await;
    if session.conversation() != first {
        fixture.launch.conversation = Conversation::Resume(first);
        let before = fixture.session().await;
        assert!(completes(&before, "#demo\necho").await.contains("The number is 4711."));
    }
}

async fn session_is_usable_after_200_interrupts(program: Program) {
    let fixture = SessionFixture::new(program).await;
    let session = fixture.session().await;
    let pid = session.pid().unwrap();
    for _ in 0..200 {
        let turn = session.send(HANGS).unwrap();
        assert_eq!(soon(session.interrupt()).await, Interrupted::Turn);
        assert!(matches!(soon(turn.result()).await, Err(TurnFailure::Interrupted)));
    }
    assert_eq!(completes(&session, "#demo\ntext still here").await, "still here");
    assert_eq!(session.pid(), Some(pid));
    soon(session.terminate()).await;
    assert!(!lives(pid));
}

async fn killed_runtime_is_replaced_and_conversation_continues(program: Program) {
    let fixture = SessionFixture::new(program).await;
    let session = fixture.session().await;
    let conversation = session.conversation();
    completes(&session, "#demo\ntext The number is 4711.").await;
    let turn = speaking(&session, HANGS).await;
    let pid = session.pid().unwrap();
    kill(Pid::from_raw(pid.try_into().unwrap()), Signal::SIGKILL).unwrap();
    let error = soon(turn.result()).await.unwrap_err();
    let TurnFailure::UnexpectedExit(exit) = &error else { panic!("{error:?}") };
    assert_eq!(exit.exit.signal, Some(9));
    let seen = completes(&session, "#demo\necho").await;
    assert!(seen.contains("The number is 4711."), "{seen}");
    assert_eq!(session.conversation(), conversation);
    assert_ne!(session.pid(), Some(pid));
    // The newer runtime does not remove its socket after such an exit.
    assert!(!std::path::Path::new(&format!("/tmp/cc-socks/{pid}.sock")).exists());
}

async fn restart_changes_options_and_keeps_the_conversation(program: Program) {
    let fixture = SessionFixture::new(program).await;
    let session = fixture.session().await;
    completes(&session, "#demo\ntext The number is 4711.").await;
    let pid = session.pid();
    session
        .restart(|launch| launch.append_system_prompt = Some("Answer in one sentence.".to_owned()))
        .await
        .unwrap();
    assert_ne!(session.pid(), pid);
    completes(&session, "#demo\ntext Aye.").await;
    let last = fixture.model.conversations().pop().unwrap();
    assert!(last.contains("Answer in one sentence.") && last.contains("The number is 4711."));
}
