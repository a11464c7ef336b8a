//! The driver's reports to a scripted recorder of edits, against a fake runtime.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

use ahp_types::actions::StateAction;
use ahp_types::state::{FileEdit, ToolResultContent};
use innkeeper_core::agent::{Approval, BoxFuture, PermissionStage, PermissionVerdict, ToolAnswer};
use innkeeper_core::edits::{CallOutcome, EditReach, EditSource, PlannedEdit, RecordedEdit, TrackedCall};
use serde_json::Value;
use tokio::sync::Semaphore;

use super::tests::{Scene, hook_about, request_about};
use super::*;

/// A recorder that reports what it is told, and completes its work when the test permits it.
#[derive(Debug)]
struct ScriptedRecorder {
    told: mpsc::Sender<String>,
    /// A permit for each piece of work.
    permits: Arc<Semaphore>,
    /// The edits of calls, by id.
    edits: Mutex<HashMap<String, Vec<RecordedEdit>>>,
}

/// The test's end of a recorder.
struct Script {
    recorder: Arc<ScriptedRecorder>,
    told: mpsc::Receiver<String>,
}

/// A recorder whose work is done at once.
fn fast() -> Script {
    let script = slow();
    script.recorder.permits.add_permits(10_000);
    script
}

/// A recorder whose work waits for permits.
fn slow() -> Script {
    let (told, receiver) = mpsc::channel(256);
    let recorder = ScriptedRecorder { told, permits: Arc::new(Semaphore::new(0)), edits: Mutex::default() };
    Script { recorder: Arc::new(recorder), told: receiver }
}

impl Script {
    async fn scene(&mut self) -> Scene {
        let scene = Scene::in_recorded_turn(Arc::clone(&self.recorder) as Arc<dyn EditRecorder>).await;
        assert_eq!(self.next().await, "begin turn");
        scene
    }

    /// The next thing that the recorder was told.
    async fn next(&mut self) -> String {
        tokio::time::timeout(Duration::from_secs(30), self.told.recv()).await.unwrap().unwrap()
    }

    async fn told<const N: usize>(&mut self, expected: [&str; N]) {
        for expected in expected {
            assert_eq!(self.next().await, expected);
        }
    }

    /// Everything that the recorder was told and the test has not read.
    fn rest(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.told.try_recv().ok()).collect()
    }

    /// Lets the recorder do some work.
    fn permit(&self, works: usize) {
        self.recorder.permits.add_permits(works);
    }
}

impl ScriptedRecorder {
    fn work<T: Send + 'static>(&self, told: String, result: T) -> BoxFuture<T> {
        let (sender, permits) = (self.told.clone(), Arc::clone(&self.permits));
        Box::pin(async move {
            sender.try_send(told).unwrap();
            permits.acquire().await.unwrap().forget();
            result
        })
    }
}

impl EditRecorder for ScriptedRecorder {
    fn begin_turn(&self, turn: &TurnId) {
        self.told.try_send(format!("begin {}", turn.as_str())).unwrap();
    }

    fn before_call(&self, call: TrackedCall) -> BoxFuture<()> {
        let reach = match call.reach {
            EditReach::Files(files) => format!("{files:?}"),
            EditReach::AnyFile => "any".to_owned(),
            EditReach::AnyFileAlready => "already".to_owned(),
        };
        self.work(format!("before {} {reach} in {}", call.tool_call, call.turn.as_str()), ())
    }

    fn after_call(&self, tool_call: String, outcome: CallOutcome) -> BoxFuture<Vec<RecordedEdit>> {
        let edits = self.edits.lock().unwrap().remove(&tool_call).unwrap_or_default();
        let background = if outcome.in_background { " in background" } else { "" };
        let original = match outcome.original {
            Some((path, Some(content))) => format!(" {}={content:?}", path.display()),
            Some((path, None)) => format!(" {}=absent", path.display()),
            None => String::new(),
        };
        self.work(format!("after {tool_call}{background}{original}"), edits)
    }

    fn background_ended(&self, tool_call: String) -> BoxFuture<()> {
        self.work(format!("ended {tool_call}"), ())
    }

    fn preview(&self, turn: TurnId, planned: Vec<PlannedEdit>) -> BoxFuture<Vec<RecordedEdit>> {
        let edits = planned.iter().map(|_| edit()).collect();
        self.work(format!("preview in {}", turn.as_str()), edits)
    }

    fn end_turn(&self, turn: TurnId, continuing: HashSet<String>) -> BoxFuture<()> {
        let mut continuing: Vec<String> = continuing.into_iter().collect();
        continuing.sort();
        let except =
            if continuing.is_empty() { String::new() } else { format!(" except {}", continuing.join(" ")) };
        self.work(format!("end {}{except}", turn.as_str()), ())
    }
}

fn edit() -> RecordedEdit {
    let after = serde_json::from_value(json!({
        "uri": "file:///project/a", "content": {"uri": "innkeeper-blob:/00/a"},
    }));
    let edit = FileEdit { before: None, after: Some(after.unwrap()), diff: None };
    RecordedEdit { edit, source: EditSource::Tool }
}

fn hook(call: &str, tool: &str, input: Value) -> Value {
    let mut frame = hook_about("hook", json!({"tool_name": tool, "tool_input": input}));
    frame["request"]["tool_use_id"] = json!(call);
    frame
}

fn write(path: &str) -> Value {
    json!({"file_path": path, "content": ""})
}

fn tool_use(call: &str, tool: &str, input: Value) -> Value {
    let block = json!({"type": "tool_use", "id": call, "name": tool, "input": input});
    json!({"type": "assistant", "message": {"id": format!("of-{call}"), "content": [block]}})
}

fn tool_result(call: &str, structured: Value) -> Value {
    let block = json!({"type": "tool_result", "tool_use_id": call, "content": "done"});
    json!({"type": "user", "message": {"role": "user", "content": [block]}, "tool_use_result": structured})
}

fn system(subtype: &str, fields: Value) -> Value {
    let mut frame = json!({"type": "system", "subtype": subtype});
    frame.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    frame
}

impl Scene {
    /// Lets the runtime ask before it uses a tool, and answers.
    async fn use_tool(&mut self, frame: Value, verdict: PermissionVerdict) -> Value {
        let call = frame["request"]["tool_use_id"].as_str().unwrap().to_owned();
        self.runtime.say(frame).await;
        self.query().await;
        self.decide_about(&call, PermissionStage::BeforeUse, verdict).await;
        self.runtime.read().await
    }

    /// Uses a tool to which the policy does not object.
    async fn run(&mut self, call: &str, tool: &str, input: Value) {
        self.runtime.say(tool_use(call, tool, input.clone())).await;
        self.use_tool(hook(call, tool, input), PermissionVerdict::NoObjection).await;
    }

    /// Waits for the result of a call.
    async fn completed(&mut self) -> ahp_types::actions::ChatToolCallCompleteAction {
        loop {
            if let AgentEvent::Action(action) = self.events.recv().await.unwrap()
                && let StateAction::ChatToolCallComplete(complete) = *action
            {
                return complete;
            }
        }
    }
}

#[tokio::test]
async fn call_runs_after_its_files_were_read() {
    let mut script = slow();
    let mut scene = script.scene().await;
    scene.runtime.say(hook("call", "Write", write("a.txt"))).await;
    scene.query().await;
    scene.decide_about("call", PermissionStage::BeforeUse, PermissionVerdict::NoObjection).await;
    script.told([r#"before call ["/project/a.txt"] in turn"#]).await;
    assert!(scene.runtime.is_silent(Duration::from_millis(50)).await, "answered before the file was read");
    script.permit(1);
    let answer = scene.runtime.read().await;
    assert_eq!(answer["response"]["response"], json!({}), "{answer}");
    script.permit(100);
    scene.stop().await;
}

#[tokio::test]
async fn denied_and_reading_calls_are_not_announced() {
    let mut script = fast();
    let mut scene = script.scene().await;
    let denied = PermissionVerdict::Denied { reason: "rule".to_owned() };
    scene.use_tool(hook("call", "Write", write("a.txt")), denied).await;
    scene.run("reading", "Read", json!({"file_path": "/project/a.txt"})).await;
    scene.run("shell", "Bash", json!({"command": "ls"})).await;
    script.told(["before shell any in turn"]).await;
    scene.stop().await;
}

#[tokio::test]
async fn call_is_announced_again_with_the_input_that_the_user_allowed() {
    let mut script = fast();
    let mut scene = script.scene().await;
    scene.run("call", "Write", write("/project/a.txt")).await;
    script.told([r#"before call ["/project/a.txt"] in turn"#]).await;
    let ask = json!({"subtype": "can_use_tool", "tool_name": "Write", "tool_use_id": "call", "input": write("a.txt")});
    scene.runtime.say(request_about("p", ask.clone())).await;
    let query = scene.query().await;
    assert_eq!((query.question.edits.len(), query.stage), (1, PermissionStage::Required));
    script.told(["preview in turn"]).await;
    let confirmed = |approval, input: Option<&str>| AgentCommand::ToolAnswer {
        turn: TurnId::new("turn"),
        tool_call: "call".to_owned(),
        answer: ToolAnswer::Confirmed {
            approval,
            input: input.map(str::to_owned),
            option: None,
            suggestion: None,
            remembered: Vec::new(),
        },
    };
    let edited = confirmed(Approval::Approved, Some(r#"{"file_path": "b.txt", "content": ""}"#));
    scene.commands.send(edited).await.unwrap();
    scene.query().await;
    scene.decide_about("call", PermissionStage::BeforeUse, PermissionVerdict::NoObjection).await;
    script.told([r#"before call ["/project/b.txt"] in turn"#]).await;
    assert_eq!(scene.runtime.read().await["response"]["response"]["behavior"], "allow");

    scene.runtime.say(request_about("q", ask)).await;
    scene.query().await;
    script.told(["preview in turn"]).await;
    scene.commands.send(confirmed(Approval::Denied, None)).await.unwrap();
    assert_eq!(scene.runtime.read().await["response"]["response"]["behavior"], "deny");
    // What the user changed while the question was open is not the call's work.
    script.told([r#"before call ["/project/b.txt"] in turn"#, "after call"]).await;
    scene.runtime.say(tool_result("call", json!("Error: denied"))).await;
    scene.runtime.text("m", "text").await;
    scene.stop().await;
    assert_eq!(script.rest(), ["end turn"]);
}

#[tokio::test]
async fn result_with_edits_follows_the_recording() {
    let mut script = slow();
    let mut scene = script.scene().await;
    script.permit(1);
    scene.run("call", "Edit", json!({"file_path": "/project/a", "old_string": "x", "new_string": "y"})).await;
    script.told([r#"before call ["/project/a"] in turn"#]).await;
    script.recorder.edits.lock().unwrap().insert("call".to_owned(), vec![edit()]);
    let structured = json!({"filePath": "/project/a", "oldString": "x", "originalFile": "x\n"});
    scene.runtime.say(tool_result("call", structured)).await;
    scene.runtime.text("m", "later").await;
    script.told([r#"after call /project/a=b"x\n""#]).await;
    // Commands of the session are served meanwhile.
    scene.commands.send(AgentCommand::Cancel { turn: TurnId::new("other") }).await.unwrap();
    let next = tokio::time::timeout(Duration::from_millis(50), scene.completed()).await;
    assert!(next.is_err(), "the result was published before its edits were stored");
    script.permit(100);
    let complete = scene.completed().await;
    let content = complete.result.content.unwrap();
    assert!(
        matches!(&content[..], [ToolResultContent::Text(_), ToolResultContent::FileEdit(_)]),
        "{content:?}"
    );
    scene.stop().await;
}

#[tokio::test]
async fn edits_of_a_command_do_not_replace_its_output() {
    let mut script = slow();
    let mut scene = script.scene().await;
    script.permit(100);
    scene.run("call", "Bash", json!({"command": "x"})).await;
    script.told(["before call any in turn"]).await;
    script.recorder.edits.lock().unwrap().insert("call".to_owned(), vec![edit()]);
    scene.runtime.say(tool_result("call", Value::Null)).await;
    let complete = scene.completed().await;
    let content = complete.result.content.unwrap();
    assert!(matches!(&content[..], [ToolResultContent::Text(_)]), "{content:?}");
    let meta = complete.meta.unwrap();
    assert_eq!(meta["innkeeper.edits"][0]["type"], "fileEdit");
    assert_eq!(meta["toolKind"], "terminal", "reducers replace the metadata of a call");
    scene.stop().await;
}

#[tokio::test]
async fn turn_is_cancelled_while_a_result_is_recorded() {
    let mut script = slow();
    let mut scene = script.scene().await;
    script.permit(1);
    scene.run("call", "Bash", json!({"command": "x"})).await;
    script.told(["before call any in turn"]).await;
    scene.runtime.say(tool_result("call", Value::Null)).await;
    script.told(["after call"]).await;
    scene.cancel("turn").await;
    let interrupt = scene.runtime.request("interrupt").await;
    scene.runtime.agree(&interrupt).await;
    script.permit(100);
    scene
        .runtime
        .result(json!({"subtype": "error_during_execution", "terminal_reason": "aborted_tools"}))
        .await;
    script.told(["end turn"]).await;
    scene.stop().await;
}

#[tokio::test]
async fn call_that_is_denied_during_its_announcement_is_ended_after_it() {
    let mut script = slow();
    let mut scene = script.scene().await;
    scene.runtime.say(hook("call", "Bash", json!({"command": "x"}))).await;
    scene.query().await;
    scene.decide_about("call", PermissionStage::BeforeUse, PermissionVerdict::NoObjection).await;
    script.told(["before call any in turn"]).await;
    scene.cancel("turn").await;
    let answer = scene.runtime.read().await;
    let output = &answer["response"]["response"]["hookSpecificOutput"];
    assert_eq!(output["permissionDecision"], "deny", "{answer}");
    let interrupt = scene.runtime.request("interrupt").await;
    scene.runtime.agree(&interrupt).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    // Otherwise the announcement could come last, and the call would never end.
    assert_eq!(script.rest(), [""; 0]);
    script.permit(100);
    script.told(["before call any in turn", "after call"]).await;
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn closed_session_does_not_wait_for_the_recorder_forever() {
    let mut script = slow();
    let mut scene = script.scene().await;
    script.permit(1);
    scene.run("call", "Bash", json!({"command": "x"})).await;
    scene.runtime.say(tool_result("call", Value::Null)).await;
    script.told(["before call any in turn", "after call"]).await;
    scene.stop().await;
}

#[tokio::test]
async fn background_commands_end_with_notification_update_or_exit() {
    let mut script = fast();
    let mut scene = script.scene().await;
    for call in ["a", "b", "c", "d"] {
        let task = format!("task-{call}");
        scene.run(call, "Bash", json!({"command": "x", "run_in_background": true})).await;
        let started = json!({"task_id": task, "tool_use_id": call, "task_type": "local_bash"});
        scene.runtime.say(system("task_started", started)).await;
        if call == "d" {
            // It ends before the result of its call arrives.
            let ended = json!({"task_id": task, "tool_use_id": call, "status": "completed"});
            scene.runtime.say(system("task_notification", ended)).await;
        }
        scene.runtime.say(tool_result(call, json!({"backgroundTaskId": task}))).await;
        let after = if call == "d" { "after d".to_owned() } else { format!("after {call} in background") };
        script.told([format!("before {call} any in turn").as_str(), &after]).await;
    }
    scene
        .runtime
        .say(system("task_updated", json!({"task_id": "task-a", "patch": {"status": "running"}})))
        .await;
    scene
        .runtime
        .say(system("task_updated", json!({"task_id": "task-a", "patch": {"status": "killed"}})))
        .await;
    scene.runtime.say(system("task_notification", json!({"task_id": "task-a", "status": "stopped"}))).await;
    scene.runtime.say(system("task_notification", json!({"task_id": "task-b", "status": "completed"}))).await;
    script.told(["ended a", "ended b"]).await;
    // A result need not name the task.
    scene.run("e", "Monitor", json!({"command": "x"})).await;
    let started = json!({"task_id": "task-e", "tool_use_id": "e", "is_backgrounded": true});
    scene.runtime.say(system("task_started", started)).await;
    scene.runtime.say(tool_result("e", json!({"taskId": "task-e"}))).await;
    scene.runtime.say(system("task_notification", json!({"task_id": "task-e", "status": "completed"}))).await;
    script.told(["before e any in turn", "after e in background", "ended e"]).await;
    scene.stop().await;
    assert_eq!(script.rest(), ["end turn", "ended c"]);
}

#[tokio::test]
async fn calls_of_a_background_subagent_belong_to_the_turn_that_started_it() {
    let mut script = fast();
    let mut scene = script.scene().await;
    let started = json!({"task_id": "agent", "tool_use_id": "delegate", "task_type": "local_agent"});
    scene.runtime.say(system("task_started", started)).await;
    scene.runtime.say(tool_result("delegate", json!({"status": "async_launched"}))).await;
    scene.runtime.result(json!({})).await;
    scene.runtime.say(system("session_state_changed", json!({"state": "idle"}))).await;
    script.told(["end turn"]).await;
    for call in ["a", "b"] {
        let mut frame = hook(call, "Write", write(&format!("/project/{call}")));
        frame["request"]["input"]["agent_id"] = json!("agent");
        scene.use_tool(frame, PermissionVerdict::NoObjection).await;
    }
    // The runtime does not report the results of these calls.
    script
        .told([r#"before a ["/project/a"] in turn"#, "after a", r#"before b ["/project/b"] in turn"#])
        .await;
    scene.runtime.say(system("task_notification", json!({"task_id": "agent", "status": "completed"}))).await;
    script.told(["after b"]).await;
    scene.stop().await;
}

#[tokio::test]
async fn subagent_whose_turn_ends_during_the_recording_may_use_its_tool() {
    let mut script = slow();
    let mut scene = script.scene().await;
    let started = json!({"task_id": "agent", "tool_use_id": "delegate", "task_type": "local_agent"});
    scene.runtime.say(system("task_started", started)).await;
    let mut frame = hook("call", "Write", write("/project/a"));
    frame["request"]["input"]["agent_id"] = json!("agent");
    scene.runtime.say(frame).await;
    scene.query().await;
    scene.decide_about("call", PermissionStage::BeforeUse, PermissionVerdict::NoObjection).await;
    script.told([r#"before call ["/project/a"] in turn"#]).await;
    scene.runtime.result(json!({})).await;
    scene.runtime.say(system("session_state_changed", json!({"state": "idle"}))).await;
    script.told(["end turn except call"]).await;
    script.permit(100);
    let answer = scene.runtime.read().await;
    assert_eq!(answer["response"]["response"], json!({}), "{answer}");
    scene.stop().await;
}

#[tokio::test]
async fn call_of_a_subagent_continues_after_its_turn_has_ended() {
    let mut script = fast();
    let mut scene = script.scene().await;
    let started = json!({"task_id": "agent", "tool_use_id": "delegate", "task_type": "local_agent"});
    scene.runtime.say(system("task_started", started)).await;
    let mut frame = hook("call", "Bash", json!({"command": "x"}));
    frame["request"]["input"]["agent_id"] = json!("agent");
    scene.use_tool(frame, PermissionVerdict::NoObjection).await;
    scene.runtime.result(json!({})).await;
    scene.runtime.say(system("session_state_changed", json!({"state": "idle"}))).await;
    script.told(["before call any in turn", "end turn except call"]).await;
    let mut result = tool_result("call", Value::Null);
    result["parent_tool_use_id"] = json!("delegate");
    scene.runtime.say(result).await;
    script.told(["after call"]).await;
    scene.stop().await;
}

fn hook_event(subtype: &str, id: &str, name: &str) -> Value {
    let event = name.split(':').next();
    system(subtype, json!({"hook_id": id, "hook_name": name, "hook_event": event}))
}

#[tokio::test]
async fn changes_of_hooks_belong_to_the_turn() {
    let mut script = fast();
    let mut scene = script.scene().await;
    scene.run("a", "Write", write("/project/a")).await;
    for subtype in ["hook_started", "hook_response"] {
        scene.runtime.say(hook_event(subtype, "1", "PostToolUse:Write")).await;
    }
    scene.runtime.say(tool_result("a", Value::Null)).await;
    // The file's own change is read first, then the files that the hook may have changed.
    script
        .told([
            r#"before a ["/project/a"] in turn"#,
            "after a",
            "before hook-1 already in turn",
            "after hook-1",
        ])
        .await;
    scene.run("b", "Write", write("/project/b")).await;
    scene.runtime.say(hook_event("hook_response", "2", "PostToolUse:Write")).await;
    scene.runtime.say(tool_result("b", Value::Null)).await;
    script
        .told([
            r#"before b ["/project/b"] in turn"#,
            "before b/hooks any in turn",
            "after b",
            "after b/hooks",
        ])
        .await;
    // The window of a command includes its hooks.
    for subtype in ["hook_started", "hook_response"] {
        scene.runtime.say(hook_event(subtype, "3", "PostToolUse:Bash")).await;
    }
    scene.run("c", "Bash", json!({"command": "x"})).await;
    scene.runtime.say(tool_result("c", Value::Null)).await;
    script.told(["before c any in turn", "after c"]).await;
    for subtype in ["hook_started", "hook_response"] {
        scene.runtime.say(hook_event(subtype, "4", "Stop")).await;
    }
    script.told(["before hook-4 already in turn", "after hook-4"]).await;
    scene.stop().await;
    assert_eq!(script.rest(), ["end turn"]);
}
