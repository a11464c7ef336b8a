//! Sessions with both real runtimes, against the scripted model: every scenario that was recorded.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use innkeeper_claude::process_registry::ProcessRegistry;
use innkeeper_claude::{
    ApiEndpoint, BoxFuture, ClaudeSession, Conversation, EventKind, IncomingRequest, Interrupted,
    LaunchOptions, McpOptions, PermissionAnswer, PermissionMode, Program, RewindMode, SessionEvent,
    SessionOptions, Status, TurnEnding, TurnFailure, TurnResult,
};
use innkeeper_testkit::ScriptedModel;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::for_both_runtimes;
use crate::support::*;

for_both_runtimes!(
    an_answer_streams_and_adds_up,
    thinking_is_told_apart_from_words,
    a_second_turn_remembers_the_first_in_the_same_process,
    tools_run_when_allowed_and_not_when_denied,
    a_question_to_the_user_is_answered,
    a_tool_of_the_hosts_own_is_called,
    a_subagents_work_is_marked_as_its_own,
    an_interrupt_ends_an_answer_in_its_middle,
    a_denial_can_end_the_turn,
    the_model_can_be_changed,
    permission_modes_decide_what_is_asked,
    a_plan_is_approved,
    a_conversation_is_resumed_and_forked,
    failures_of_the_model_fail_the_turn_and_not_the_session,
    files_are_rewound_to_a_message,
    work_in_the_background_belongs_to_no_send,
    a_limit_on_calls_ends_the_turn,
    commands_and_a_compaction_are_settled_like_messages,
    a_cleared_conversation_is_in_use_under_the_id_that_it_goes_on_with,
    two_hundred_interrupts_in_a_row_leave_the_session_usable,
    a_killed_runtime_is_replaced_and_the_conversation_goes_on,
    a_restart_changes_the_options_and_keeps_the_conversation,
);

/// A home, and a model.
pub(crate) struct Inn {
    pub(crate) place: Place,
    pub(crate) model: ScriptedModel,
    pub(crate) launch: LaunchOptions,
}

/// The questions that were asked, as tool and input.
pub(crate) type Asked = Arc<Mutex<Vec<(String, Value)>>>;

impl Inn {
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
        self.asking(|_, _| PermissionAnswer::deny("nobody asked for that")).await.0
    }

    /// A session whose questions about tools are answered by `decide`.
    pub(crate) async fn asking(
        &self,
        decide: impl Fn(&str, &Value) -> PermissionAnswer + Send + Sync + 'static,
    ) -> (ClaudeSession, Asked) {
        let asked = Asked::default();
        let log = Arc::clone(&asked);
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
        (ClaudeSession::start(options, CancellationToken::new()).await.unwrap(), asked)
    }
}

/// A server with one tool, which greets.
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

/// Everything that a session tells, from now on.
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

async fn an_answer_streams_and_adds_up(program: Program) {
    let inn = Inn::new(program).await;
    let session = inn.session().await;
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
    assert!(!lives(pid) && inn.place.scratch_files().is_empty());
}

async fn thinking_is_told_apart_from_words(program: Program) {
    let inn = Inn::new(program).await;
    let session = inn.session().await;
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

async fn a_second_turn_remembers_the_first_in_the_same_process(program: Program) {
    let inn = Inn::new(program).await;
    let session = inn.session().await;
    let pid = session.pid();
    completes(&session, "#demo\ntext The number is 4711.").await;
    let seen = completes(&session, "#demo\necho").await;
    assert!(seen.contains("The number is 4711."), "{seen}");
    assert_eq!(session.pid(), pid);
}

async fn tools_run_when_allowed_and_not_when_denied(program: Program) {
    let inn = Inn::new(program).await;
    let (session, asked) = inn
        .asking(|_, input| match input["command"].as_str() {
            Some("touch allowed") => PermissionAnswer::allow(),
            _ => PermissionAnswer::deny("not on my floor"),
        })
        .await;
    let events = follow(&session);
    let bash = |command: &str| tool("Bash", json!({ "command": command, "description": "d" }));
    completes(&session, &format!("#demo\n{}\ntext done", bash("touch allowed"))).await;
    completes(&session, &format!("#demo\n{}\ntext done", bash("touch denied"))).await;
    assert!(inn.place.path("work/allowed").exists() && !inn.place.path("work/denied").exists());
    let results = tool_results(&events);
    assert_eq!(results.iter().map(|(_, is_error)| *is_error).collect::<Vec<_>>(), [false, true]);
    assert!(results[1].0.contains("not on my floor"), "{results:?}");
    assert_eq!(asked.lock().unwrap().len(), 2);
    let artifact = session.artifact();
    assert_eq!((artifact.tool_calls, artifact.tool_results), (2, 2));
}

async fn a_question_to_the_user_is_answered(program: Program) {
    let inn = Inn::new(program).await;
    let (session, asked) = inn
        .asking(|_, input| {
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
    assert_eq!(asked.lock().unwrap()[0].0, "AskUserQuestion");
    let results = tool_results(&events);
    assert!(!results[0].1 && results[0].0.contains("Attic"), "{results:?}");
}

async fn a_tool_of_the_hosts_own_is_called(program: Program) {
    let mut inn = Inn::new(program).await;
    inn.launch.mcp = McpOptions { in_process: vec!["host".to_owned()], ..McpOptions::default() };
    let (session, asked) = inn.asking(|_, _| PermissionAnswer::allow()).await;
    let events = follow(&session);
    let call = tool("mcp__host__greet", json!({ "name": "Bob" }));
    completes(&session, &format!("#demo\n{call}\ntext done")).await;
    assert_eq!(asked.lock().unwrap()[0].0, "mcp__host__greet");
    assert_eq!(tool_results(&events), [("Hello Bob".to_owned(), false)]);
    let status = soon(session.controls().unwrap().mcp_status()).await.unwrap();
    let server = &status.servers.unwrap()[0];
    assert_eq!((server.name.as_deref(), server.status.as_deref()), (Some("host"), Some("connected")));
}

async fn a_subagents_work_is_marked_as_its_own(program: Program) {
    let inn = Inn::new(program).await;
    let (session, _) = inn.asking(|_, _| PermissionAnswer::allow()).await;
    let events = follow(&session);
    let bash = tool("Bash", json!({ "command": "touch by-the-agent", "description": "d" }));
    let task = json!({ "description": "d", "subagent_type": "general-purpose", "run_in_background": false,
        "prompt": format!("#demo\n{bash}\ntext The agent is done.") });
    completes(&session, &format!("#demo\n{}\ntext All done.", tool("Task", task))).await;
    assert!(inn.place.path("work/by-the-agent").exists());
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

/// Sends a script and waits until the first words of its answer.
async fn speaking(session: &ClaudeSession, script: &str) -> innkeeper_claude::Turn {
    let mut turn = session.send(script).unwrap();
    loop {
        let event = soon(turn.next()).await.expect("the turn ended").unwrap();
        if matches!(event.kind, EventKind::TextDelta { .. }) {
            return turn;
        }
    }
}

/// Says something, and then nothing for a long time.
const HANGS: &str = "#demo\ntext One moment please\nwait 60000\ntext too late";

async fn an_interrupt_ends_an_answer_in_its_middle(program: Program) {
    let inn = Inn::new(program).await;
    let session = inn.session().await;
    let pid = session.pid();
    let turn = speaking(&session, HANGS).await;
    let next = session.send("#demo\ntext next").unwrap();
    assert_eq!(soon(session.interrupt()).await, Interrupted::Turn);
    assert!(matches!(soon(turn.result()).await, Err(TurnFailure::Interrupted)));
    assert_eq!(soon(next.result()).await.unwrap().text, "next");
    // A time-out ends a turn in the same way.
    let late =
        session.send(innkeeper_claude::Prompt::from(HANGS).within(Duration::from_millis(300))).unwrap();
    assert!(matches!(soon(late.result()).await, Err(TurnFailure::TimedOut { .. })));
    assert_eq!(completes(&session, "#demo\ntext and next").await, "and next");
    assert_eq!(session.pid(), pid);
}

async fn a_denial_can_end_the_turn(program: Program) {
    let inn = Inn::new(program).await;
    let (session, _) =
        inn.asking(|_, _| PermissionAnswer::Deny { message: "stop".to_owned(), interrupt: true }).await;
    let bash = tool("Bash", json!({ "command": "touch x", "description": "d" }));
    let result = play(&session, &format!("#demo\n{bash}\ntext never said")).await;
    assert_eq!(result.ending, TurnEnding::Aborted);
    assert_eq!(completes(&session, "#demo\ntext next").await, "next");
}

async fn the_model_can_be_changed(program: Program) {
    let inn = Inn::new(program).await;
    let session = inn.session().await;
    let controls = session.controls().unwrap();
    let models =
        || -> Vec<String> { inn.model.log().entries().iter().map(|entry| entry.model.clone()).collect() };
    completes(&session, "#demo\ntext one").await;
    assert_eq!(models().last().unwrap(), "claude-sonnet-4-5");
    soon(controls.set_model(Some("claude-haiku-4-5"))).await.unwrap();
    completes(&session, "#demo\ntext two").await;
    assert_eq!(models().last().unwrap(), "claude-haiku-4-5");
    soon(controls.set_max_thinking_tokens(Some(2000))).await.unwrap();
    completes(&session, "#demo\ntext three").await;
    let last: Value = serde_json::from_slice(&inn.model.log().entries().last().unwrap().body).unwrap();
    assert_eq!(last["thinking"]["budget_tokens"], 2000, "{}", last["thinking"]);
}

async fn permission_modes_decide_what_is_asked(program: Program) {
    let mut inn = Inn::new(program).await;
    inn.launch.permission_mode = Some(PermissionMode::AcceptEdits);
    let (session, asked) = inn.asking(|_, _| PermissionAnswer::deny("no")).await;
    let controls = session.controls().unwrap();
    let write = |name: &str| {
        let file = inn.place.path("work").join(name);
        format!("#demo\n{}\ntext done", tool("Write", json!({ "file_path": file, "content": "x" })))
    };
    completes(&session, &write("accepted")).await;
    assert!(inn.place.path("work/accepted").exists());
    assert_eq!(asked.lock().unwrap().len(), 0);
    let answer = soon(controls.set_permission_mode(PermissionMode::Default)).await.unwrap();
    assert_eq!(answer.mode.as_deref(), Some("default"));
    completes(&session, &write("asked")).await;
    assert_eq!(asked.lock().unwrap().len(), 1);
    soon(controls.set_permission_mode(PermissionMode::DontAsk)).await.unwrap();
    completes(&session, &write("not-asked")).await;
    assert_eq!(asked.lock().unwrap().len(), 1);
    assert!(!inn.place.path("work/asked").exists() && !inn.place.path("work/not-asked").exists());
}

async fn a_plan_is_approved(program: Program) {
    let mut inn = Inn::new(program).await;
    inn.launch.permission_mode = Some(PermissionMode::Plan);
    let (session, asked) = inn.asking(|_, _| PermissionAnswer::allow()).await;
    let events = follow(&session);
    let plan = tool("ExitPlanMode", json!({ "plan": "Sweep the hall." }));
    completes(&session, &format!("#demo\n{plan}\ntext done")).await;
    assert_eq!(asked.lock().unwrap()[0].0, "ExitPlanMode");
    assert!(!tool_results(&events)[0].1);
    // Out of plan mode, edits are asked about again.
    let write = tool("Write", json!({ "file_path": inn.place.path("work/after"), "content": "x" }));
    completes(&session, &format!("#demo\n{write}\ntext done")).await;
    assert_eq!(asked.lock().unwrap()[1].0, "Write");
    assert!(inn.place.path("work/after").exists());
}

async fn a_conversation_is_resumed_and_forked(program: Program) {
    let mut inn = Inn::new(program).await;
    let first = inn.session().await;
    completes(&first, "#demo\ntext The number is 4711.").await;
    soon(first.terminate()).await;
    inn.launch.conversation = Conversation::Resume(first.conversation());
    let resumed = inn.session().await;
    assert_eq!(resumed.conversation(), first.conversation());
    assert!(completes(&resumed, "#demo\necho").await.contains("The number is 4711."));

    let fork = resumed.fork(|_| (), CancellationToken::new()).await.unwrap();
    assert_ne!(fork.conversation(), resumed.conversation());
    completes(&fork, "#demo\ntext Only the fork says 0815.").await;
    assert!(completes(&fork, "#demo\necho").await.contains("The number is 4711."));
    assert!(!completes(&resumed, "#demo\necho").await.contains("0815"));
}

async fn failures_of_the_model_fail_the_turn_and_not_the_session(program: Program) {
    let inn = Inn::new(program).await;
    let session = inn.session().await;
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

async fn files_are_rewound_to_a_message(program: Program) {
    let mut inn = Inn::new(program).await;
    inn.launch.file_checkpoints = true;
    inn.launch.permission_mode = Some(PermissionMode::AcceptEdits);
    let session = inn.session().await;
    let file = inn.place.path("work/guests.txt");
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

async fn work_in_the_background_belongs_to_no_send(program: Program) {
    let inn = Inn::new(program).await;
    let (session, _) = inn.asking(|_, _| PermissionAnswer::allow()).await;
    let events = follow(&session);
    let command = json!({ "command": "until [ -e go ]; do sleep 0.05; done; echo woken", "description": "d", "run_in_background": true });
    assert_eq!(completes(&session, &format!("#demo\n{}\ntext begun", tool("Bash", command))).await, "begun");
    // The task ends, and the runtime begins a turn by itself.
    std::fs::write(inn.place.path("work/go"), "").unwrap();
    let unasked = || {
        let events = events.lock().unwrap();
        events.iter().any(|event| event.turn.is_none() && matches!(event.kind, EventKind::Result { .. }))
    };
    until(unasked).await;
    assert_eq!(completes(&session, "#demo\ntext asked").await, "asked");
    assert_eq!(session.artifact().turns, 2);
    // One that does not end by itself is ended by request.
    let command = json!({ "command": "sleep 600", "description": "d", "run_in_background": true });
    completes(&session, &format!("#demo\n{}\ntext begun", tool("Bash", command))).await;
    let pid = session.pid().unwrap();
    soon(session.terminate()).await;
    assert!(!lives(pid));
}

async fn a_limit_on_calls_ends_the_turn(program: Program) {
    let mut inn = Inn::new(program).await;
    inn.launch.max_turns = Some(1);
    let (session, _) = inn.asking(|_, _| PermissionAnswer::allow()).await;
    let bash = tool("Bash", json!({ "command": "true", "description": "d" }));
    let result = play(&session, &format!("#demo\n{bash}\ntext never said")).await;
    assert_eq!(result.message.subtype.as_deref(), Some("error_max_turns"));
    assert_eq!(completes(&session, "#demo\ntext next").await, "next");
}

async fn commands_and_a_compaction_are_settled_like_messages(program: Program) {
    let inn = Inn::new(program).await;
    let session = inn.session().await;
    let events = follow(&session);
    assert!(completes(&session, "/cost").await.contains("Total cost"));
    completes(&session, "#demo\ntext one").await;
    completes(&session, "/compact").await;
    assert_eq!(completes(&session, "#demo\ntext two").await, "two");
    let events = events.lock().unwrap();
    let compactions = events.iter().filter(|event| matches!(event.kind, EventKind::Compaction { .. }));
    assert_eq!(compactions.count(), 1);
}

async fn a_cleared_conversation_is_in_use_under_the_id_that_it_goes_on_with(program: Program) {
    let mut inn = Inn::new(program).await;
    inn.launch.registry = Some(inn.place.path("running"));
    let registry = ProcessRegistry::new(inn.place.path("running"));
    let in_use =
        || -> Vec<_> { registry.list().unwrap().iter().map(|runtime| runtime.conversation).collect() };
    let session = inn.session().await;
    let first = session.conversation();
    completes(&session, "#demo\ntext The number is 4711.").await;
    play(&session, "/clear").await;
    let seen = completes(&session, "#demo\necho").await;
    // The older runtime does not clear; then nothing has changed.
    assert_eq!(session.conversation() == first, seen.contains("The number is 4711."), "{seen}");
    until(|| in_use() == [session.conversation()]).await;
    if session.conversation() != first {
        inn.launch.conversation = Conversation::Resume(first);
        let before = inn.session().await;
        assert!(completes(&before, "#demo\necho").await.contains("The number is 4711."));
    }
}

async fn two_hundred_interrupts_in_a_row_leave_the_session_usable(program: Program) {
    let inn = Inn::new(program).await;
    let session = inn.session().await;
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

async fn a_killed_runtime_is_replaced_and_the_conversation_goes_on(program: Program) {
    let inn = Inn::new(program).await;
    let session = inn.session().await;
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
    // The newer runtime's socket would stay behind after such an end.
    assert!(!std::path::Path::new(&format!("/tmp/cc-socks/{pid}.sock")).exists());
}

async fn a_restart_changes_the_options_and_keeps_the_conversation(program: Program) {
    let inn = Inn::new(program).await;
    let session = inn.session().await;
    completes(&session, "#demo\ntext The number is 4711.").await;
    let pid = session.pid();
    session
        .restart(|launch| launch.append_system_prompt = Some("Speak like an innkeeper.".to_owned()))
        .await
        .unwrap();
    assert_ne!(session.pid(), pid);
    completes(&session, "#demo\ntext Aye.").await;
    let last = inn.model.conversations().pop().unwrap();
    assert!(last.contains("Speak like an innkeeper.") && last.contains("The number is 4711."));
}
