//! The driver against a fake runtime scripted frame by frame, on a paused clock.

use std::io;
use std::sync::Mutex;

use ahp_types::actions::StateAction;
use innkeeper_claude::{
    BoxFuture, ByteStream, Conversation, Directories, LaunchOptions, Program, StreamLaunch, StreamOnlyPeer,
    StreamTransport, Transport, WardenProgram,
};
use innkeeper_core::agent::{
    Approval, PermissionStage, PermissionVerdict, RecorderSource, ResumeToken, ToolAnswer,
};
use innkeeper_core::edits::NoRecorder;
use innkeeper_core::model::ModelEndpoint;
use innkeeper_core::policy::{PathResolver, ResolvedPath, ToolAccess};
use serde_json::Value;
use std::path::Path;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};
use tokio_util::task::TaskTracker;

use super::super::models::tests::FakeCatalogue;
use super::*;

/// Resolves paths without the file system.
struct NoPaths;

impl PathResolver for NoPaths {
    fn resolve(&self, path: &str, base: &Path) -> ResolvedPath {
        let lexical = base.join(path);
        ResolvedPath { given: path.to_owned(), real: Some(lexical.clone()), lexical }
    }
}

/// The runtime's end of the pipes.
pub(super) struct FakeRuntime {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: WriteHalf<DuplexStream>,
}

impl FakeRuntime {
    /// Reads the next frame from the host.
    pub(super) async fn read(&mut self) -> Value {
        let line = self.lines.next_line().await.unwrap().expect("the host closed the pipe");
        serde_json::from_str(&line).unwrap()
    }

    /// Whether the host writes nothing for `time`.
    pub(super) async fn is_silent(&mut self, time: Duration) -> bool {
        tokio::time::timeout(time, self.lines.next_line()).await.is_err()
    }

    pub(super) async fn say(&mut self, frame: Value) {
        self.writer.write_all(format!("{frame}\n").as_bytes()).await.unwrap();
    }

    pub(super) async fn agree(&mut self, request: &Value) {
        let response = json!({"subtype": "success", "request_id": request["request_id"], "response": {}});
        self.say(json!({"type": "control_response", "response": response})).await;
    }

    /// Reads a control request and checks its subtype.
    pub(super) async fn request(&mut self, subtype: &str) -> Value {
        let frame = self.read().await;
        assert_eq!(frame["request"]["subtype"], subtype, "{frame}");
        frame
    }

    /// Reads a user message; returns its uuid.
    pub(super) async fn prompt(&mut self) -> Value {
        let frame = self.read().await;
        assert_eq!(frame["type"], "user", "{frame}");
        frame["uuid"].clone()
    }

    pub(super) async fn lifecycle(&mut self, uuid: &Value, state: &str) {
        self.say(json!({"type": "command_lifecycle", "command_uuid": uuid, "state": state})).await;
    }

    /// Writes a complete assistant message.
    pub(super) async fn text(&mut self, id: &str, text: &str) {
        let content = json!([{"type": "text", "text": text}]);
        self.say(json!({"type": "assistant", "message": {"id": id, "content": content}})).await;
    }

    pub(super) async fn result(&mut self, fields: Value) {
        let mut frame = json!({"type": "result", "subtype": "success", "terminal_reason": "completed"});
        frame.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        self.say(frame).await;
    }
}

/// Transport that hands the other end of a pipe to the host, once.
struct Pipe(Mutex<Option<DuplexStream>>);

impl StreamTransport for Pipe {
    fn open<'a>(&'a self, _: StreamLaunch<'a>) -> BoxFuture<'a, io::Result<ByteStream>> {
        let near = self.0.lock().unwrap().take().expect("started twice");
        let (reader, writer) = tokio::io::split(near);
        Box::pin(async {
            Ok(ByteStream {
                reader: Box::new(reader),
                writer: Box::new(writer),
                peer: Box::new(StreamOnlyPeer),
            })
        })
    }
}

/// A driver with a fake runtime; the test acts as the session.
pub(super) struct Scene {
    pub(super) runtime: FakeRuntime,
    pub(super) commands: mpsc::Sender<AgentCommand>,
    pub(super) events: mpsc::Receiver<AgentEvent>,
    tasks: TaskTracker,
    pub(super) close: CancellationToken,
    /// The last resume token, links and turns that the driver reported.
    token: Option<ResumeToken>,
    links: Vec<(TurnId, MessageLink)>,
    started: Vec<(TurnId, String)>,
    pub(super) auto_mode: Arc<AutoMode>,
    _scratch: tempfile::TempDir,
}

impl Scene {
    pub(super) async fn start() -> Self {
        Self::with_recorder(NoRecorder::shared()).await
    }

    pub(super) async fn with_recorder(recorder: Arc<dyn EditRecorder>) -> Self {
        Self::with(recorder, FakeCatalogue::of(&[])).await
    }

    pub(super) async fn with_models(catalogue: Arc<FakeCatalogue>) -> Self {
        Self::with(NoRecorder::shared(), catalogue).await
    }

    pub(super) async fn with(recorder: Arc<dyn EditRecorder>, models: Arc<dyn ModelEndpoint>) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let (near, far) = tokio::io::duplex(1 << 16);
        let (reader, writer) = tokio::io::split(far);
        let mut runtime = FakeRuntime { lines: BufReader::new(reader).lines(), writer };
        let directories =
            Directories { cwd: scratch.path().to_owned(), scratch: scratch.path().join("scratch") };
        let warden = WardenProgram { path: "unused".into(), args: Vec::new() };
        let conversation = Uuid::from_u128(7);
        let program = Program::from_path("unused");
        let options = LaunchOptions::new(program, warden, Conversation::New(conversation), directories);
        let transport = Transport::Stream(Arc::new(Pipe(Mutex::new(Some(near)))));
        let answer = async {
            let initialize = runtime.request("initialize").await;
            runtime.agree(&initialize).await;
        };
        let start = Runtime::start_over(options, &transport, CancellationToken::new());
        let (started, ()) = tokio::join!(start, answer);
        let request = OpenAgent {
            conversation,
            history: History::Fresh,
            resume_token: None,
            working_directories: Vec::new(),
            selection: Default::default(),
            answer: None,
            trusted: Default::default(),
            config: Default::default(),
            environment: Default::default(),
            client_tools: Arc::new([]),
            switches: Vec::new(),
            edits: RecorderSource::none(),
        };
        let (commands, orders) = mpsc::channel(16);
        let (reports, events) = mpsc::channel(256);
        let (tasks, close) = (TaskTracker::new(), CancellationToken::new());
        let opened = (request, ConversationIdentity::new(conversation, false));
        let auto_mode = Arc::new(AutoMode::default());
        // Otherwise the driver asks the runtime after the first turn.
        auto_mode.set(Some(false));
        let driver = ClaudeDriver::new(
            started.unwrap(),
            (orders, reports),
            close.clone(),
            opened,
            (AgentModels::new(models), Choice::of(&Default::default())),
            None,
            (
                AccessResolver::new(Arc::new(NoPaths), "/project".into(), &[], None),
                recorder,
                Arc::clone(&auto_mode),
            ),
        );
        tasks.spawn(driver.run());
        Self {
            runtime,
            commands,
            events,
            tasks,
            close,
            token: None,
            links: Vec::new(),
            started: Vec::new(),
            auto_mode,
            _scratch: scratch,
        }
    }

    pub(super) async fn prompt(&self, turn: &str, model: Option<&str>) {
        let mut message = json!({"text": turn, "origin": {"kind": "user"}});
        if let Some(model) = model {
            message["model"] = json!({"id": model});
        }
        let message = serde_json::from_value(message).unwrap();
        self.commands.send(AgentCommand::Prompt { turn: TurnId::new(turn), message }).await.unwrap();
    }

    pub(super) async fn cancel(&self, turn: &str) {
        self.commands.send(AgentCommand::Cancel { turn: TurnId::new(turn) }).await.unwrap();
    }

    /// Waits for the end of a turn; returns the texts reported until then, and the turn.
    pub(super) async fn ended(&mut self) -> (Vec<String>, String, TurnOutcome) {
        let mut texts = Vec::new();
        loop {
            match self.events.recv().await.unwrap() {
                AgentEvent::TurnEnded { turn, outcome } => return (texts, turn.as_str().to_owned(), outcome),
                AgentEvent::Action(action) => {
                    if let StateAction::ChatResponsePart(part) = *action {
                        texts.push(serde_json::to_value(part.part).unwrap()["content"].to_string());
                    }
                }
                AgentEvent::ResumeToken(token) => self.token = Some(token),
                AgentEvent::MessageLinked { turn, link } => self.links.push((turn, link)),
                AgentEvent::TurnStarted { turn, message } => self.started.push((turn, message.text)),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Closes the runtime's end of the pipe, then stops the driver.
    pub(super) async fn stop(self) {
        let Self { runtime, tasks, close, .. } = self;
        drop(runtime);
        close.cancel();
        tasks.close();
        tasks.wait().await;
    }
}

#[tokio::test(start_paused = true)]
async fn interrupt_is_repeated_until_turn_ends() {
    let mut scene = Scene::start().await;
    scene.prompt("first", None).await;
    let first = scene.runtime.prompt().await;
    scene.cancel("first").await;
    scene.prompt("second", None).await;
    let ignored = scene.runtime.request("interrupt").await;
    assert_eq!(ignored["request"]["cancel_queued"], true);
    scene.runtime.lifecycle(&first, "started").await;
    let heeded = scene.runtime.request("interrupt").await;
    let aborted = json!({"user_message_uuids": [first], "subtype": "error_during_execution",
        "terminal_reason": "aborted_streaming"});
    scene.runtime.result(aborted).await;
    for interrupt in [heeded, ignored] {
        let is_silent = scene.runtime.is_silent(Duration::from_secs(1)).await;
        assert!(is_silent, "a pending interrupt could hit the next message");
        scene.runtime.agree(&interrupt).await;
    }
    let second = scene.runtime.prompt().await;
    scene.runtime.result(json!({"user_message_uuids": [second]})).await;
    let (_, turn, outcome) = scene.ended().await;
    assert_eq!((turn.as_str(), outcome), ("second", TurnOutcome::Completed));
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn runtime_that_ignores_interrupts_is_stopped() {
    let mut scene = Scene::start().await;
    scene.prompt("first", None).await;
    let first = scene.runtime.prompt().await;
    scene.runtime.lifecycle(&first, "started").await;
    scene.cancel("first").await;
    let began = Instant::now();
    for _ in 0..INTERRUPT_LIMIT {
        let interrupt = scene.runtime.request("interrupt").await;
        scene.runtime.agree(&interrupt).await;
    }
    // The last step of stopping closes the pipe.
    while scene.runtime.lines.next_line().await.unwrap().is_some() {}
    assert!(began.elapsed() >= INTERRUPT_PAUSE * INTERRUPT_LIMIT);
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn message_waits_until_model_change_is_acknowledged() {
    let mut scene = Scene::start().await;
    scene.prompt("first", None).await;
    let first = scene.runtime.prompt().await;
    scene.runtime.result(json!({"user_message_uuids": [first]})).await;
    scene.ended().await;
    scene.prompt("second", Some("opus")).await;
    let select = scene.runtime.request("set_model").await;
    assert_eq!(select["request"]["model"], "opus");
    scene.cancel("second").await;
    scene.prompt("third", Some("opus")).await;
    assert!(scene.runtime.is_silent(Duration::from_secs(1)).await, "message was written before the response");
    scene.runtime.agree(&select).await;
    let third = scene.runtime.prompt().await;
    scene.runtime.result(json!({"user_message_uuids": [third]})).await;
    assert_eq!(scene.ended().await.1, "third");
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn background_turn_is_reported_as_separate_turn() {
    let mut scene = Scene::start().await;
    scene.runtime.say(json!({"type": "system", "subtype": "init", "capabilities": []})).await;
    scene.runtime.text("m1", "background").await;
    scene.prompt("asked", None).await;
    let asked = scene.runtime.prompt().await;
    scene.runtime.text("m2", "more background").await;
    scene.runtime.result(json!({"origin": {"kind": "task-notification"}})).await;
    let (texts, turn, outcome) = scene.ended().await;
    assert_eq!(texts, ["\"background\"", "\"more background\""]);
    assert_eq!((turn.as_str(), outcome), (scene.started[0].0.as_str(), TurnOutcome::Completed));
    scene.runtime.lifecycle(&asked, "started").await;
    scene.runtime.text("m3", "answer").await;
    scene.runtime.result(json!({"user_message_uuids": [asked]})).await;
    let (texts, turn, _) = scene.ended().await;
    assert_eq!((texts, turn.as_str()), (vec!["\"answer\"".to_owned()], "asked"));
    assert_eq!(scene.started.len(), 1);
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn changed_directories_do_not_end_a_background_turn() {
    let mut scene = Scene::start().await;
    scene.runtime.say(json!({"type": "system", "subtype": "init", "capabilities": []})).await;
    scene.runtime.text("m1", "background").await;
    while !matches!(scene.events.recv().await.unwrap(), AgentEvent::TurnStarted { .. }) {}
    scene.commands.send(AgentCommand::Directories(vec!["/other".into()])).await.unwrap();
    scene.prompt("asked", None).await;
    assert!(scene.runtime.is_silent(Duration::from_secs(1)).await, "the old runtime gets the message");
    scene.runtime.result(json!({"origin": {"kind": "task-notification"}})).await;
    let (_, _, outcome) = scene.ended().await;
    assert_eq!(outcome, TurnOutcome::Completed);
    drop(scene.runtime);
    loop {
        if let AgentEvent::Closed { unsent, restart, .. } = scene.events.recv().await.unwrap() {
            assert_eq!(unsent.unwrap().turn.as_str(), "asked");
            assert!(restart.is_some());
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn session_receives_message_ids_and_conversation_id() {
    let mut scene = Scene::start().await;
    scene.prompt("first", None).await;
    let first = scene.runtime.prompt().await;
    scene.runtime.lifecycle(&first, "started").await;
    let answer = json!({"type": "assistant", "uuid": "a1", "message": {"id": "m1", "content": []}});
    scene.runtime.say(answer).await;
    scene.runtime.result(json!({"user_message_uuids": [first]})).await;
    scene.ended().await;
    let turn = TurnId::new("first");
    let links =
        [MessageLink::Prompt(first.as_str().unwrap().to_owned()), MessageLink::Answer("a1".to_owned())];
    assert_eq!(scene.links, links.map(|link| (turn.clone(), link)));
    let name = Uuid::from_u128(7);
    assert_eq!(scene.token, Some(ConversationIdentity::new(name, true).token()));
    // After `/clear` the conversation has a new id and no messages.
    let other = Uuid::from_u128(8);
    let reset = json!({"type": "conversation_reset", "new_conversation_id": other.to_string()});
    scene.runtime.say(reset).await;
    scene.prompt("second", None).await;
    let second = scene.runtime.prompt().await;
    scene.runtime.result(json!({"user_message_uuids": [second]})).await;
    scene.ended().await;
    assert_eq!(scene.token, Some(ConversationIdentity::new(name, true).renamed(other).token()));
    scene.stop().await;
}

/// A request of the runtime about a call of the tool `Write`.
pub(super) fn request_about(id: &str, request: Value) -> Value {
    json!({"type": "control_request", "request_id": id, "request": request})
}

pub(super) fn hook_about(id: &str, input: Value) -> Value {
    let request = json!({"subtype": "hook_callback", "callback_id": BEFORE_TOOL_USE, "tool_use_id": "call", "input": input});
    request_about(id, request)
}

impl Scene {
    /// Starts a turn.
    pub(super) async fn in_turn() -> Self {
        Self::in_recorded_turn(NoRecorder::shared()).await
    }

    /// Starts a turn whose edits are recorded.
    pub(super) async fn in_recorded_turn(recorder: Arc<dyn EditRecorder>) -> Self {
        let mut scene = Self::with_recorder(recorder).await;
        scene.prompt("turn", None).await;
        let uuid = scene.runtime.prompt().await;
        scene.runtime.lifecycle(&uuid, "started").await;
        scene
    }

    /// Waits for the next question to the session's policy.
    pub(super) async fn query(&mut self) -> innkeeper_core::agent::PermissionQuery {
        loop {
            if let AgentEvent::PermissionRequested(query) = self.events.recv().await.unwrap() {
                return *query;
            }
        }
    }

    async fn decide(&self, stage: PermissionStage, verdict: PermissionVerdict) {
        self.decide_about("call", stage, verdict).await;
    }

    pub(super) async fn decide_about(&self, call: &str, stage: PermissionStage, verdict: PermissionVerdict) {
        let tool_call = call.to_owned();
        self.commands.send(AgentCommand::PermissionVerdict { tool_call, stage, verdict }).await.unwrap();
    }
}

#[tokio::test]
async fn tool_is_used_only_after_the_policy_has_decided() {
    let mut scene = Scene::in_turn().await;
    let write = |path: &str| json!({"tool_name": "Write", "tool_input": {"file_path": path, "content": ""}});
    for (verdict, expected) in [
        (PermissionVerdict::NoObjection, Value::Null),
        (PermissionVerdict::MustAsk { reason: "rule".to_owned() }, json!("ask")),
        (PermissionVerdict::Denied { reason: "rule".to_owned() }, json!("deny")),
    ] {
        scene.runtime.say(hook_about("h", write("a.txt"))).await;
        let query = scene.query().await;
        assert_eq!((query.tool_call.as_str(), query.stage), ("call", PermissionStage::BeforeUse));
        scene.decide(PermissionStage::BeforeUse, verdict).await;
        let answer = scene.runtime.read().await;
        let decision = &answer["response"]["response"]["hookSpecificOutput"]["permissionDecision"];
        assert_eq!(decision, &expected, "{answer}");
    }
    scene.runtime.say(hook_about("h", json!("not an object"))).await;
    scene.query().await;
    scene.stop().await;
}

#[tokio::test]
async fn unanswered_check_is_denied_before_the_runtime_is_stopped() {
    let mut scene = Scene::in_turn().await;
    scene.runtime.say(hook_about("h", json!({"tool_name": "Bash", "tool_input": {"command": "rm x"}}))).await;
    scene.query().await;
    scene.close.cancel();
    let answer = scene.runtime.read().await;
    assert_eq!(answer["response"]["request_id"], "h");
    let output = &answer["response"]["response"]["hookSpecificOutput"];
    assert_eq!(output["permissionDecision"], "deny", "{answer}");
    scene.stop().await;
}

#[tokio::test]
async fn input_that_the_user_changed_is_checked_again() {
    let mut scene = Scene::in_turn().await;
    for (verdict, expected) in [
        (PermissionVerdict::NoObjection, ("allow", "b.txt")),
        (
            PermissionVerdict::Denied { reason: "a rule denies this".to_owned() },
            ("deny", "a rule denies this"),
        ),
    ] {
        let input = json!({"file_path": "a.txt", "content": ""});
        let ask =
            json!({"subtype": "can_use_tool", "tool_name": "Write", "tool_use_id": "call", "input": input});
        scene.runtime.say(request_about("p", ask)).await;
        assert_eq!(scene.query().await.stage, PermissionStage::Required);
        let answer = ToolAnswer::Confirmed {
            approval: Approval::Approved,
            input: Some(r#"{"file_path": "b.txt", "content": ""}"#.to_owned()),
            option: None,
            suggestion: None,
            remembered: Vec::new(),
        };
        let turn = TurnId::new("turn");
        let command = AgentCommand::ToolAnswer { turn, tool_call: "call".to_owned(), answer };
        scene.commands.send(command).await.unwrap();
        let query = scene.query().await;
        assert_eq!(query.stage, PermissionStage::BeforeUse);
        let ToolAccess::Write(paths) = &query.request.access else { panic!("{query:?}") };
        assert_eq!(paths[0].given, "b.txt");
        scene.decide(PermissionStage::BeforeUse, verdict).await;
        let answer = scene.runtime.read().await["response"]["response"].clone();
        assert_eq!(answer["behavior"], expected.0);
        let detail =
            if expected.0 == "allow" { &answer["updatedInput"]["file_path"] } else { &answer["message"] };
        assert_eq!(detail, expected.1);
    }
    scene.stop().await;
}

#[tokio::test]
async fn question_of_a_background_subagent_is_asked_again_after_its_turn() {
    let mut scene = Scene::in_turn().await;
    let started = json!({"type": "system", "subtype": "task_started", "task_id": "agent", "tool_use_id": "delegate", "task_type": "local_agent"});
    scene.runtime.say(started).await;
    for agent in ["agent", "unknown"] {
        let ask = json!({"subtype": "can_use_tool", "tool_name": "Bash", "tool_use_id": agent, "agent_id": agent, "input": {"command": "x"}});
        scene.runtime.say(request_about(agent, ask)).await;
        assert_eq!(scene.query().await.turn, Some(TurnId::new("turn")));
    }
    scene.runtime.result(json!({})).await;
    scene.runtime.say(json!({"type": "system", "subtype": "session_state_changed", "state": "idle"})).await;
    assert_eq!(scene.ended().await.1, "turn");
    let query = scene.query().await;
    let turn = query.turn.unwrap();
    assert!(turn.as_str().starts_with("question-"), "{turn}");
    assert_eq!((query.tool_call.as_str(), query.stage), ("agent", PermissionStage::Required));
    scene.decide_about("agent", PermissionStage::Required, PermissionVerdict::Allowed).await;
    let answer = scene.runtime.read().await;
    assert_eq!(answer["response"]["request_id"], "agent");
    assert_eq!(answer["response"]["response"]["behavior"], "allow", "{answer}");
    assert_eq!(scene.ended().await.1, turn.as_str());
    scene.stop().await;
}
