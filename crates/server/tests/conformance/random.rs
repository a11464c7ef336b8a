//! Random tests of one chat: clients and an agent act in random order, validly or not, with
//! lost connections and with restarts and crashes of the host. All clients end with the same
//! state, and every decision that the host published before a crash is restored.

mod crash;
mod steps;

use std::sync::Arc;
use std::time::Duration;

use ahp_types::state::{
    AgentCapabilities, ChatState, MultipleWorkingDirectoriesCapability, SessionState, SessionSummary,
};
use innkeeper_core::agent::{
    AgentCommand, AgentEvent, AgentFeatures, TodoItem, TodoList, TodoStatus, TurnOutcome,
};
use innkeeper_core::edits::{ChangeCounts, ChangeList, SessionChangeCounts};
use innkeeper_core::ids::{ClientId, TurnId};
use innkeeper_core::{ChannelUri, EditConfig};
use innkeeper_core_fakes::{MemoryStorage, Player, ScriptedEditLog, Stage, StageTraits};
use innkeeper_testkit::eventually;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

use crate::scene::copies_agree;
use crate::stage_host::{StageHost, StageOptions};
use crate::test_clients::{CLIENTS, TestClients};
use crate::wire::Wire;
use steps::{ActionChannel, AgentStep, ClientAction, Step};

/// Number of random tests, and the maximum number of steps of one.
const CASES: u32 = 20;
const STEPS: usize = 100;

/// Number of steps between comparisons of all clients.
const CHECK_EVERY: usize = 10;

/// How long to wait for an expected condition.
const TIMEOUT: Duration = Duration::from_secs(20);

#[test]
fn random_steps_leave_all_clients_with_the_same_state() {
    let config =
        Config { cases: CASES, max_shrink_iters: 64, failure_persistence: None, ..Config::default() };
    let cases = proptest::collection::vec(steps::step(), 1..STEPS);
    TestRunner::new(config)
        .run(&cases, |steps| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(run(&steps));
            Ok(())
        })
        .unwrap();
}

async fn run(steps: &[Step]) {
    let mut test = RandomTest::new().await;
    let begin = Step::Client { client: 0, action: ClientAction::Start };
    test.apply(&begin).await;
    test.settle().await;
    for (number, step) in steps.iter().enumerate() {
        test.apply(step).await;
        if number % CHECK_EVERY == CHECK_EVERY - 1 {
            test.check().await;
        }
    }
    test.clients.reconnect_all(test.host.as_ref().unwrap()).await;
    test.check().await;
}

/// Options of a host on this storage.
fn options(storage: &MemoryStorage, log: &ScriptedEditLog) -> StageOptions {
    let capabilities = AgentCapabilities {
        multiple_working_directories: Some(MultipleWorkingDirectoriesCapability::default()),
        ..AgentCapabilities::default()
    };
    let traits = StageTraits {
        features: AgentFeatures::ALL,
        capabilities: Some(capabilities),
        ..StageTraits::default()
    };
    let stage = Stage::new(traits);
    let edits = EditConfig { log: Arc::new(log.clone()), default_directory: None };
    let storage = Arc::new(storage.clone());
    StageOptions { stage, storage, edits, prewarm: true, ..StageOptions::default() }
}

/// The state of a random test: a host, three clients, some of which may be disconnected, and
/// an agent, if one is open.
struct RandomTest {
    /// `None` only during a restart.
    host: Option<StageHost>,
    clients: TestClients,
    /// The storage of the host.
    storage: MemoryStorage,
    /// The edit log of the host. It survives crashes.
    log: ScriptedEditLog,
    /// The number of changed files and of added lines in each.
    edited: (usize, i64),
    /// The marker that the agent sent after everything was handled, if there is an agent.
    mark: Option<Value>,
    /// Fetches the snapshots that the clients are compared with.
    judge: Wire,
    session: String,
    chat: String,
    changeset: String,
    player: Option<Player>,
    /// Number of agents taken from the stage.
    taken: usize,
    /// The latest turn that the agent was prompted for.
    turn: String,
    /// The calls of that turn; an agent starts each call once.
    calls: Vec<usize>,
    /// The judge's unanswered requests to stop work and to restart the agent.
    requests: Vec<Value>,
    /// The agent's unanswered requests to stop work.
    stops: Vec<u64>,
    /// Whether a client has restarted the agent.
    leaving: bool,
    /// Source of unique ids.
    counter: usize,
}

impl RandomTest {
    async fn new() -> Self {
        let storage = MemoryStorage::new();
        let log = ScriptedEditLog::default();
        let host = StageHost::start(options(&storage, &log)).await.unwrap();
        let session = "scripted:/random".to_owned();
        let mut judge = Wire::open(&host, "judge", &["1.0.0"]).await;
        judge.ask("createSession", json!({"channel": session, "workingDirectories": ["file:///w"]})).await;
        let chat = judge.snapshot(&session).await["defaultChat"].as_str().unwrap().to_owned();
        judge.snapshot(&chat).await;
        let changeset = format!("{session}/changeset/session");
        judge.snapshot(&changeset).await;
        let mut clients = TestClients::connect(&host).await;
        for client in clients.all_connected() {
            client.open_session(&session).await.unwrap();
            client.subscribe(&changeset).await.unwrap();
        }
        let (turn, player) = (String::new(), None);
        Self {
            host: Some(host),
            clients,
            storage,
            log,
            edited: (0, 0),
            mark: None,
            judge,
            session,
            chat,
            changeset,
            player,
            taken: 0,
            turn,
            calls: Vec::new(),
            requests: Vec::new(),
            stops: Vec::new(),
            leaving: false,
            counter: 0,
        }
    }

    async fn apply(&mut self, step: &Step) {
        match step {
            Step::Client { client, action } => {
                self.counter += 1;
                let (channel, action) = action.to_action(*client, self.counter, &self.turn, &self.calls);
                let channel = match channel {
                    ActionChannel::Session => &self.session,
                    ActionChannel::Chat => &self.chat,
                    ActionChannel::Changeset => &self.changeset,
                };
                if let Some(client) = self.clients.connected(*client) {
                    client.dispatch(channel, action).await.unwrap();
                }
            }
            Step::Agent(step) => self.act(step).await,
            Step::Stop { work } => {
                let what = work.map_or(json!("all"), |work| json!({"workId": steps::work_id(work)}));
                let params = json!({"channel": self.chat, "what": what});
                self.requests.push(self.judge.send_request("innkeeper/stop", params).await);
            }
            Step::RestartAgent => {
                // An agent that is being opened may never appear on the stage.
                self.settle().await;
                if self.player.is_some() {
                    let params = json!({"channel": self.chat});
                    self.requests.push(self.judge.send_request("innkeeper/restartAgent", params).await);
                    self.leaving = true;
                }
            }
            Step::Edit { files, added } => self.edit(*files, *added),
            Step::Disconnect { client } => self.clients.disconnect(*client).await,
            Step::Reconnect { client } => self.clients.reconnect(*client, self.host.as_ref().unwrap()).await,
            Step::Settle => self.settle().await,
            Step::Restart => self.restart().await,
            Step::Kill { settled } => self.kill(*settled).await,
        }
    }

    fn host(&self) -> &StageHost {
        self.host.as_ref().unwrap()
    }

    /// Shuts down the host cleanly, starts another one, and reconnects all clients.
    async fn restart(&mut self) {
        self.settle().await;
        let player = self.player.take();
        let leaves = async {
            if let Some(player) = player {
                player.leave_when_told().await.unwrap();
            }
        };
        let host = self.host.take().unwrap();
        let (host, ()) = tokio::join!(host.restart(), leaves);
        self.move_to(host.unwrap()).await;
    }

    /// Continues with another host, to which all clients reconnect.
    async fn move_to(&mut self, host: StageHost) {
        let host = self.host.insert(host);
        self.judge = Wire::open(host, "judge", &["1.0.0"]).await;
        for channel in [&self.session, &self.chat, &self.changeset] {
            self.judge.snapshot(channel).await;
        }
        (self.requests, self.stops, self.leaving) = (Vec::new(), Vec::new(), false);
        self.clients.mark_all_disconnected();
        self.clients.reconnect_all(host).await;
    }

    /// Ends the agent that a client has restarted.
    async fn leave(&mut self) {
        if std::mem::take(&mut self.leaving)
            && let Some(player) = self.player.take()
        {
            player.leave_when_told().await.unwrap();
        }
    }

    /// Lets the agent act, if there is one, whether or not its turn is still running. An agent
    /// that is being restarted acts, too, and its output is dropped.
    async fn act(&mut self, step: &AgentStep) {
        if self.host().stage().asked() > self.taken {
            self.player = Some(self.host().stage().player().await.unwrap());
            self.taken += 1;
        }
        self.read_commands();
        self.counter += 1;
        let Some(player) = self.player.take() else { return };
        let (turn, id) = (self.turn.clone(), format!("p{}", self.counter));
        match step {
            AgentStep::Text => player.text(&turn, &id, &["a", "b"]).await.unwrap(),
            AgentStep::AskToRun { call } | AgentStep::RunAtClient { call, .. }
                if self.calls.contains(call) => {}
            AgentStep::AskToRun { call } => {
                self.calls.push(*call);
                let more =
                    json!({"editable": true, "options": [{"id": "o", "label": "O", "kind": "approve"}]});
                player.ask_to_run(&turn, &steps::call_id(*call), more).await.unwrap();
            }
            AgentStep::RunAtClient { call, client } => {
                self.calls.push(*call);
                player.run_at_client(&turn, &steps::call_id(*call), CLIENTS[*client].0).await.unwrap();
            }
            AgentStep::Ran { call, confirm } => {
                let more = json!({"requiresResultConfirmation": confirm});
                player.ran(&turn, &steps::call_id(*call), more).await.unwrap();
            }
            AgentStep::Ask => {
                let question = json!([{"kind": "text", "id": "name", "message": "?", "required": true}]);
                player.ask("q", question).await.unwrap();
            }
            AgentStep::Steered { message } => {
                player.steered(&turn, &steps::message_id(*message), steps::WAITING_TEXT).await.unwrap();
            }
            AgentStep::Work { work } => {
                player.run_in_background(&turn, "k0", &steps::work_id(*work), "make").await.unwrap();
            }
            AgentStep::WorkDone { work } => {
                let done = json!({"type": "chat/backgroundWorkRemoved", "id": steps::work_id(*work)});
                player.act(done).await.unwrap();
            }
            AgentStep::Title => {
                player.send(AgentEvent::TitleSuggested { title: id }).await.unwrap();
            }
            AgentStep::Discard { call } => {
                // The last text, if the previous step was one.
                let text = format!("p{}", self.counter - 1);
                let parts = vec![text, steps::call_id(*call)];
                player.send(AgentEvent::PartsDiscarded { turn: TurnId::new(&turn), parts }).await.unwrap();
            }
            AgentStep::Todo { items } => {
                let item = TodoItem { text: id, status: TodoStatus::InProgress };
                let list = TodoList { items: vec![item; *items] };
                player.send(AgentEvent::TodoChanged { list }).await.unwrap();
            }
            AgentStep::Complete => player.end(&turn, TurnOutcome::Completed).await.unwrap(),
            AgentStep::Crash => {
                player.crash().await.unwrap();
                self.leaving = false;
                return;
            }
        }
        self.player = Some(player);
    }

    /// Changes the edit log.
    fn edit(&mut self, files: usize, added: i64) {
        self.edited = (files, added);
        let changed = (0..files).map(|number| ScriptedEditLog::file(&steps::file_uri(number), added));
        let list = ChangeList { files: changed.collect(), ..ChangeList::default() };
        let lines = u64::try_from(added).unwrap() * files as u64;
        let counts = ChangeCounts { files: files as u64, added: lines, removed: 0 };
        let chats = vec![(ChannelUri::new(&self.chat), counts)];
        self.log.show(&self.session, list);
        self.log.count(&self.session, SessionChangeCounts { session: counts, chats });
    }

    /// Waits until the changeset and the counts show the edit log.
    async fn settle_edits(&mut self) {
        let (files, added) = self.edited;
        let wanted = (files, json!(i64::try_from(files).unwrap() * added));
        let deadline = tokio::time::Instant::now() + TIMEOUT;
        loop {
            let shown = self.judge.snapshot(&self.changeset).await;
            let each = |file: &Value| file["edit"]["diff"]["added"] == json!(added);
            let shown_files = shown["files"].as_array().unwrap();
            let session = self.judge.snapshot(&self.session).await;
            let counts = &session["chats"][0]["changes"];
            let is_counted = (counts["files"] == json!(files) && counts["additions"] == wanted.1)
                || (files == 0 && counts.is_null());
            let is_shown = shown["status"] == "ready" && shown_files.len() == wanted.0;
            if is_counted && is_shown && shown_files.iter().all(each) {
                return;
            }
            assert!(tokio::time::Instant::now() < deadline, "not shown: {wanted:?} {shown} {counts}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Reads the commands of the agent.
    fn read_commands(&mut self) {
        while let Some(command) = self.player.as_mut().and_then(Player::waiting_command) {
            if let AgentCommand::Prompt { turn, .. } = command {
                self.turn = turn.as_str().to_owned();
                self.calls.clear();
            } else if let AgentCommand::StopWork { request, .. } = command {
                self.stops.push(request);
            }
        }
    }

    /// Answers the requests that the agent has received.
    async fn answer_stops(&mut self) {
        for request in std::mem::take(&mut self.stops) {
            if let Some(player) = &self.player {
                player.stopped(request, Ok(&["make"])).await.unwrap();
            }
        }
    }

    /// Waits until everything that the clients and the agent have sent is handled.
    async fn settle(&mut self) {
        self.mark = None;
        loop {
            self.settle_clients().await;
            self.judge.barrier(&self.chat).await;
            self.leave().await;
            self.judge.barrier(&self.chat).await;
            if self.host().stage().asked() > self.taken {
                self.player = Some(self.host().stage().player().await.unwrap());
                self.taken += 1;
            }
            self.read_commands();
            self.answer_stops().await;
            for id in std::mem::take(&mut self.requests) {
                let answer = self.judge.answer(&id).await;
                let unknown = answer["error"]["code"] == -32602;
                assert!(unknown || answer["result"].is_object(), "{answer}");
            }
            if let Some(player) = &self.player {
                // The session publishes this marker after everything that the agent sent before it.
                self.counter += 1;
                let mark = json!(format!("mark {}", self.counter));
                let tools = json!([{"name": mark}]);
                player.act(json!({"type": "session/serverToolsChanged", "tools": tools})).await.unwrap();
                self.judge.until(|message| message["params"]["action"]["tools"] == tools).await;
                self.judge.barrier(&self.chat).await;
                self.mark = Some(mark);
                self.read_commands();
            }
            if self.host().stage().asked() == self.taken {
                return;
            }
        }
    }

    /// Waits until the host has read everything that the clients sent, also the disconnected ones.
    async fn settle_clients(&mut self) {
        let Some(store) = self.host.as_ref().map(|host| host.host().store()) else { return };
        self.clients.settle().await;
        for name in self.clients.disconnected() {
            let gone = || !store.has_audience(&[], Some(&ClientId::new(name)));
            eventually(TIMEOUT, "the host detaches disconnected clients", gone).await.unwrap();
        }
    }

    /// Checks that all connected clients have the state that a new client receives.
    async fn check(&mut self) {
        self.settle().await;
        self.settle_edits().await;
        self.check_changeset().await;
        self.settle().await;
        let channels = ["ahp-root://", &self.session, &self.chat];
        let mut fresh = Vec::new();
        for channel in channels {
            fresh.push(self.judge.snapshot(channel).await);
        }
        let listed = self.judge.ask("listSessions", json!({})).await;
        let rows: Vec<SessionSummary> = serde_json::from_value(listed["items"].clone()).unwrap();
        for client in self.clients.all_connected() {
            client.settle().await.unwrap();
            for (channel, state) in channels.iter().zip(&fresh) {
                assert_eq!(json!(client.state(channel)), *state, "{channel}");
            }
            let fields = |row: &SessionSummary| json!([row.title, row.status, row.chats, row.meta]);
            assert_eq!(client.rows.get(&self.session).map(fields), rows.first().map(fields));
        }
        let chat: ChatState = serde_json::from_value(fresh[2].clone()).unwrap();
        let session: SessionState = serde_json::from_value(fresh[1].clone()).unwrap();
        copies_agree(std::slice::from_ref(&chat), &session, rows.first());
        self.check_invariants(&chat, &session);
    }

    /// Checks that all connected clients have the same changeset. It may still be computed once
    /// more after a review.
    async fn check_changeset(&mut self) {
        let channel = self.changeset.clone();
        for client in self.clients.all_connected() {
            let deadline = tokio::time::Instant::now() + TIMEOUT;
            loop {
                let fresh = self.judge.snapshot(&channel).await;
                client.settle().await.unwrap();
                let mirrored = json!(client.state(&channel));
                if mirrored == fresh {
                    break;
                }
                assert!(tokio::time::Instant::now() < deadline, "{mirrored} differs from {fresh}");
            }
        }
    }

    /// Checks invariants of every reachable state.
    fn check_invariants(&self, chat: &ChatState, session: &SessionState) {
        let known = session.working_directories.as_deref().unwrap_or_default();
        let foreign = chat.working_directories.iter().flatten().find(|directory| !known.contains(directory));
        assert_eq!(foreign, None, "the chat has a directory that its session lacks");
        let mut ids: Vec<&str> = chat.turns.iter().map(|turn| turn.id.as_str()).collect();
        ids.extend(chat.active_turn.as_ref().map(|turn| turn.id.as_str()));
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all, "two turns with one id");
        if let Some(active) = &chat.active_turn {
            assert_eq!(active.id, self.turn, "the agent works on another turn");
        }
        let open: Vec<Value> = json!(chat.turns)
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|turn| turn["responseParts"].as_array().unwrap().clone())
            .filter(|part| part["kind"] == "toolCall")
            .filter(|part| !matches!(part["toolCall"]["status"].as_str(), Some("completed" | "cancelled")))
            .collect();
        assert_eq!(open, [] as [Value; 0], "an ended turn has an open call");
    }
}
