//! Random tests of several chats: chats are created, forked, moved, used, truncated and
//! disposed in random order, with lost connections, full disks, and restarts and crashes of
//! the host. Every chat is in exactly one session, and all clients have the same state of it.
//! After a clean shutdown the next host has everything that was published.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ahp_types::state::{ChatState, SessionSummary};
use innkeeper_core::agent::AgentCommand;
use innkeeper_core::storage::StorageError;
use innkeeper_core_fakes::{MemoryStorage, Player};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

use crate::changesets::scripted;
use crate::room::agreed;
use crate::scene::{DIRECTORY, message, pending, started};
use crate::stage_host::{StageHost, StageOptions};
use crate::test_clients::{CLIENTS, TestClients};
use crate::wire::Wire;

/// Number of random tests, and the maximum number of steps of one.
const CASES: u32 = 16;
const STEPS: usize = 40;

/// Number of steps between comparisons of all clients.
const CHECK_EVERY: usize = 8;

/// One step of a test. Numbers select among the existing chats, sessions, clients or agents.
#[derive(Clone, Debug)]
enum ChatStep {
    Create {
        session: usize,
        source: Option<(usize, bool)>,
        begin: bool,
    },
    Dispose {
        chat: usize,
    },
    Move {
        chat: usize,
        session: usize,
        after: Option<usize>,
    },
    MoveOut {
        chat: usize,
    },
    DisposeSession {
        session: usize,
    },
    Start {
        chat: usize,
        client: usize,
    },
    Cancel {
        chat: usize,
        client: usize,
    },
    Queue {
        chat: usize,
        client: usize,
    },
    Draft {
        chat: usize,
        client: usize,
    },
    Truncate {
        chat: usize,
        client: usize,
        turn: Option<usize>,
    },
    Finish {
        agent: usize,
    },
    Ask {
        agent: usize,
    },
    Crash {
        agent: usize,
    },
    Disconnect {
        client: usize,
    },
    Reconnect {
        client: usize,
    },
    /// Writes fail from now on.
    FullDisk,
    /// Writes succeed again.
    FreeDisk,
    /// A clean shutdown and a new host, at once or after everything is handled.
    Restart {
        settled: bool,
    },
    Kill,
}

fn step() -> impl Strategy<Value = ChatStep> {
    let one = 0..64_usize;
    let client = 0..CLIENTS.len();
    let source = proptest::option::of((one.clone(), any::<bool>()));
    prop_oneof![
        4 => (one.clone(), source, any::<bool>()).prop_map(|(session, source, begin)| ChatStep::Create { session, source, begin }),
        2 => one.clone().prop_map(|chat| ChatStep::Dispose { chat }),
        4 => (one.clone(), one.clone(), proptest::option::of(one.clone()))
            .prop_map(|(chat, session, after)| ChatStep::Move { chat, session, after }),
        1 => one.clone().prop_map(|chat| ChatStep::MoveOut { chat }),
        1 => one.clone().prop_map(|session| ChatStep::DisposeSession { session }),
        5 => (one.clone(), client.clone()).prop_map(|(chat, client)| ChatStep::Start { chat, client }),
        1 => (one.clone(), client.clone()).prop_map(|(chat, client)| ChatStep::Cancel { chat, client }),
        2 => (one.clone(), client.clone()).prop_map(|(chat, client)| ChatStep::Queue { chat, client }),
        1 => (one.clone(), client.clone()).prop_map(|(chat, client)| ChatStep::Draft { chat, client }),
        2 => (one.clone(), client.clone(), proptest::option::weighted(0.8, one.clone()))
            .prop_map(|(chat, client, turn)| ChatStep::Truncate { chat, client, turn }),
        6 => one.clone().prop_map(|agent| ChatStep::Finish { agent }),
        1 => one.clone().prop_map(|agent| ChatStep::Ask { agent }),
        1 => one.prop_map(|agent| ChatStep::Crash { agent }),
        1 => client.clone().prop_map(|client| ChatStep::Disconnect { client }),
        2 => client.prop_map(|client| ChatStep::Reconnect { client }),
        1 => Just(ChatStep::FullDisk),
        2 => Just(ChatStep::FreeDisk),
        1 => any::<bool>().prop_map(|settled| ChatStep::Restart { settled }),
        1 => Just(ChatStep::Kill),
    ]
}

#[test]
fn random_chat_operations_keep_every_chat_in_one_session_for_all_clients() {
    let config =
        Config { cases: CASES, max_shrink_iters: 64, failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&proptest::collection::vec(step(), 1..STEPS), |steps| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(run(&steps));
            Ok(())
        })
        .unwrap();
}

async fn run(steps: &[ChatStep]) {
    let mut test = RandomChatTest::new().await;
    for (number, step) in steps.iter().enumerate() {
        test.apply(step).await;
        if number % CHECK_EVERY == CHECK_EVERY - 1 {
            test.check().await;
        }
    }
    test.restart_settled().await;
    test.check().await;
}

/// An open agent and the turn that it works on.
struct LiveAgent {
    player: Player,
    turn: Option<String>,
}

/// The open agents of all chats. Each ends when the host closes it.
#[derive(Default)]
struct LiveAgents {
    live: Vec<LiveAgent>,
}

impl LiveAgents {
    /// Adds new agents, reads their commands, and ends those that the host closes.
    async fn update(&mut self, host: &StageHost) {
        while let Some(player) = host.stage().waiting_player() {
            self.live.push(LiveAgent { player, turn: None });
        }
        let mut at = 0;
        while at < self.live.len() {
            let agent = &mut self.live[at];
            while let Some(command) = agent.player.waiting_command() {
                if let AgentCommand::Prompt { turn, .. } = command {
                    agent.turn = Some(turn.as_str().to_owned());
                }
            }
            if agent.player.close().is_cancelled() {
                // Fails if the host has crashed.
                self.live.remove(at).player.leave_when_told().await.ok();
            } else {
                at += 1;
            }
        }
    }

    /// Updates the agents until a future completes.
    async fn while_waiting<T>(&mut self, host: &StageHost, done: impl Future<Output = T>) -> T {
        let updating = async {
            loop {
                self.update(host).await;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            done = done => done,
            () = updating => unreachable!("the loop never ends"),
        }
    }
}

/// The state of a random test.
struct RandomChatTest {
    host: Option<StageHost>,
    storage: MemoryStorage,
    clients: TestClients,
    judge: Wire,
    agents: LiveAgents,
    /// The URIs of all sessions and chats ever created, in order of creation.
    sessions: Vec<String>,
    chats: Vec<String>,
    counter: usize,
}

async fn host_on(storage: &MemoryStorage) -> StageHost {
    // With an edit log, chats have changesets, whose addresses change when a chat moves.
    let (options, _log) = scripted();
    let options = StageOptions { storage: Arc::new(storage.clone()), ..options };
    StageHost::start(options).await.unwrap()
}

impl RandomChatTest {
    async fn new() -> Self {
        let storage = MemoryStorage::new();
        let host = host_on(&storage).await;
        let mut judge = Wire::open(&host, "judge", &["1.0.0"]).await;
        let sessions = vec!["scripted:/1".to_owned(), "scripted:/2".to_owned()];
        let mut chats = Vec::new();
        for session in &sessions {
            judge.ask("createSession", json!({"channel": session, "workingDirectories": [DIRECTORY]})).await;
            chats.push(judge.snapshot(session).await["defaultChat"].as_str().unwrap().to_owned());
        }
        let clients = TestClients::connect(&host).await;
        let agents = LiveAgents::default();
        let mut test =
            Self { host: Some(host), storage, clients, judge, agents, sessions, chats, counter: 0 };
        // A turn lists both sessions; otherwise a later host could remove them as unused.
        for chat in test.chats.clone() {
            test.clients.get(0).dispatch(&chat, started("first")).await.unwrap();
        }
        test.settle().await;
        test
    }

    fn host(&self) -> &StageHost {
        self.host.as_ref().unwrap()
    }

    fn id(&mut self, kind: &str) -> String {
        self.counter += 1;
        format!("{kind}{}", self.counter)
    }

    fn chat(&self, number: usize) -> String {
        self.chats[number % self.chats.len()].clone()
    }

    fn session(&self, number: usize) -> String {
        self.sessions[number % self.sessions.len()].clone()
    }

    /// Sends a request that may fail. Returns the result, if any.
    async fn ask(&mut self, method: &str, params: Value) -> Option<Value> {
        let Self { agents, judge, host, .. } = self;
        let answer = agents.while_waiting(host.as_ref().unwrap(), judge.request(method, params)).await;
        answer.get("result").cloned()
    }

    async fn dispatch(&mut self, client: usize, chat: usize, action: Value) {
        let chat = self.chat(chat);
        if let Some(client) = self.clients.connected(client) {
            client.dispatch(&chat, action).await.unwrap();
        }
    }

    async fn apply(&mut self, step: &ChatStep) {
        match step {
            ChatStep::Create { .. }
            | ChatStep::Dispose { .. }
            | ChatStep::Move { .. }
            | ChatStep::MoveOut { .. } => {
                self.request(step).await;
            }
            // Keeps a minimum of sessions for the following steps.
            ChatStep::DisposeSession { session } if self.sessions.len() > 3 => {
                let session = self.session(*session);
                self.ask("disposeSession", json!({"channel": session})).await;
            }
            ChatStep::DisposeSession { .. } => {}
            ChatStep::Start { chat, client } => {
                let turn = self.id("t");
                self.dispatch(*client, *chat, started(&turn)).await;
            }
            ChatStep::Cancel { chat, client } => {
                let turn =
                    json!(self.clients.get(*client).state(&self.chat(*chat)))["activeTurn"]["id"].clone();
                let cancelled = json!({"type": "chat/turnCancelled", "turnId": turn, "duration": 1});
                if turn.is_string() {
                    self.dispatch(*client, *chat, cancelled).await;
                }
            }
            ChatStep::Queue { chat, client } => {
                let id = self.id("m");
                self.dispatch(*client, *chat, pending("queued", &id, "later")).await;
            }
            ChatStep::Draft { chat, client } => {
                let draft = message(&self.id("d"));
                self.dispatch(*client, *chat, json!({"type": "chat/draftChanged", "draft": draft})).await;
            }
            ChatStep::Truncate { chat, client, turn } => {
                let turns = json!(self.clients.get(*client).state(&self.chat(*chat)))["turns"].clone();
                let turns = turns.as_array().map_or(&[][..], Vec::as_slice);
                let id = turn.map(|turn| turns.get(turn % turns.len().max(1)).map(|turn| turn["id"].clone()));
                let truncated = match id {
                    None => json!({"type": "chat/truncated"}),
                    Some(id) => json!({"type": "chat/truncated", "turnId": id.unwrap_or(json!("none"))}),
                };
                self.dispatch(*client, *chat, truncated).await;
            }
            ChatStep::Finish { agent } | ChatStep::Ask { agent } | ChatStep::Crash { agent } => {
                self.act(step, *agent).await;
            }
            ChatStep::Disconnect { client } => self.clients.disconnect(*client).await,
            ChatStep::Reconnect { client } => {
                self.clients.reconnect(*client, self.host.as_ref().unwrap()).await
            }
            ChatStep::FullDisk => self.storage.fail_writes(Some(StorageError::Full)),
            ChatStep::FreeDisk => self.storage.fail_writes(None),
            ChatStep::Restart { settled: false } => self.restart().await,
            ChatStep::Restart { settled: true } => self.restart_settled().await,
            ChatStep::Kill => self.kill().await,
        }
    }

    async fn request(&mut self, step: &ChatStep) {
        match step {
            ChatStep::Create { session, source, begin } => {
                let chat = format!("ahp-chat:/{}", self.id("c"));
                let mut params = json!({"channel": self.session(*session), "chat": chat});
                if let Some((source, fork)) = source {
                    let source = self.chat(*source);
                    let turns = json!(self.clients.get(0).state(&source))["turns"].clone();
                    let turn = turns.as_array().and_then(|turns| turns.last()).map(|turn| turn["id"].clone());
                    let kind = if *fork { "fork" } else { "sideChat" };
                    params["source"] =
                        json!({"kind": kind, "chat": source, "turnId": turn.unwrap_or(json!("none"))});
                }
                if *begin {
                    params["initialMessage"] = message("begin");
                }
                if self.ask("createChat", params).await.is_some() {
                    self.chats.push(chat);
                }
            }
            ChatStep::Dispose { chat } => {
                let chat = self.chat(*chat);
                self.ask("disposeChat", json!({"channel": chat})).await;
            }
            ChatStep::Move { chat, session, after } => {
                let mut destination = json!({"kind": "session", "session": self.session(*session)});
                if let Some(after) = after {
                    destination["after"] = json!(self.chat(*after));
                }
                let chat = self.chat(*chat);
                self.ask("moveChat", json!({"channel": chat, "destination": destination})).await;
            }
            ChatStep::MoveOut { chat } => {
                let chat = self.chat(*chat);
                let moved = self
                    .ask("moveChat", json!({"channel": chat, "destination": {"kind": "newSession"}}))
                    .await;
                let session = moved.map(|moved| moved["session"].as_str().unwrap().to_owned());
                self.sessions.extend(session);
            }
            _ => {}
        }
    }

    /// Lets an agent act, if there is one, whether or not its turn is still running.
    async fn act(&mut self, step: &ChatStep, number: usize) {
        let Self { agents, host, .. } = self;
        agents.update(host.as_ref().unwrap()).await;
        let count = agents.live.len();
        if count == 0 {
            return;
        }
        if matches!(step, ChatStep::Crash { .. }) {
            // Fails if the host closes the agent at the same time.
            agents.live.remove(number % count).player.crash().await.ok();
            return;
        }
        let call = self.id("k");
        let agent = &self.agents.live[number % count];
        let Some(turn) = &agent.turn else { return };
        if matches!(step, ChatStep::Ask { .. }) {
            agent.player.ask_to_run(turn, &call, json!({})).await.ok();
        } else {
            agent.player.text(turn, &call, &["it ", "is ", "done"]).await.ok();
            agent.player.complete(turn).await.ok();
        }
    }

    /// Restarts the host after everything is handled and checks that all published state is
    /// restored.
    async fn restart_settled(&mut self) {
        self.check().await;
        let shown = self.chats_by_uri().await;
        self.restart().await;
        let found = self.chats_by_uri().await;
        assert_eq!(
            found.keys().collect::<Vec<_>>(),
            shown.keys().collect::<Vec<_>>(),
            "other chats were restored"
        );
        for (uri, (session, chat)) in shown {
            let (found_session, found) = &found[&uri];
            assert_eq!(*found_session, session, "{uri} is in another session");
            assert_eq!(found.turns.get(..chat.turns.len()), Some(&chat.turns[..]), "{uri}");
            // The running turn was ended by the restart.
            let running = chat.active_turn.as_ref().map(|turn| &turn.id);
            assert_eq!(found.turns.get(chat.turns.len()).map(|turn| &turn.id), running, "{uri}");
            let waiting = json!([chat.queued_messages, chat.steering_message, chat.draft, chat.title]);
            assert_eq!(
                json!([found.queued_messages, found.steering_message, found.draft, found.title]),
                waiting,
                "{uri}"
            );
        }
    }

    async fn restart(&mut self) {
        // A host cannot start, and cannot shut down cleanly, if writes fail.
        self.storage.fail_writes(None);
        self.clients.disconnect_all().await;
        let host = self.host.take().unwrap();
        let stage = host.stage().clone();
        let mut live = std::mem::take(&mut self.agents.live);
        let leaving = async {
            // Agents may be opened while the host shuts down.
            loop {
                while let Some(player) = stage.waiting_player() {
                    live.push(LiveAgent { player, turn: None });
                }
                if let Some(at) = live.iter().position(|agent| agent.player.close().is_cancelled()) {
                    live.remove(at).player.leave_when_told().await.ok();
                } else {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        };
        tokio::select! {
            () = host.stop() => {}
            () = leaving => unreachable!("the loop never ends"),
        }
        self.start_on(self.storage.clone()).await;
    }

    async fn kill(&mut self) {
        self.clients.disconnect_all().await;
        let left = self.storage.after_a_crash();
        drop(self.host.take());
        self.start_on(left).await;
    }

    async fn start_on(&mut self, storage: MemoryStorage) {
        self.agents = LiveAgents::default();
        self.storage = storage;
        let host = host_on(&self.storage).await;
        self.judge = Wire::open(&host, "judge", &["1.0.0"]).await;
        self.clients.reconnect_all(&host).await;
        self.host = Some(host);
    }

    /// Waits until everything that the clients and agents have sent is handled.
    async fn settle(&mut self) {
        for _ in 0..3 {
            self.clients.settle().await;
            let Self { agents, host, .. } = self;
            let host = host.as_ref().unwrap();
            agents.update(host).await;
            // Opening or ending an agent takes a few scheduler rounds.
            agents.while_waiting(host, tokio::time::sleep(Duration::from_millis(5))).await;
        }
    }

    /// Checks that every chat is in one session, that all copies of its fields agree, and
    /// that all connected clients have the state that a new client receives.
    async fn check(&mut self) {
        // Agent output may still be in transit; then the check is repeated.
        for attempt in 0.. {
            self.settle().await;
            let before = self.host().host().store().seq();
            let chats = self.chats_by_uri().await;
            let compared = self.compare_clients(&chats).await;
            self.settle().await;
            if self.host().host().store().seq() == before {
                compared.unwrap();
                return;
            }
            assert!(attempt < 50, "the host never becomes idle");
        }
    }

    /// All chats by URI, each with its session. Checks that no chat is in two sessions.
    async fn chats_by_uri(&mut self) -> BTreeMap<String, (String, ChatState)> {
        let listed = self.judge.ask("listSessions", json!({})).await;
        let rows: Vec<SessionSummary> = serde_json::from_value(listed["items"].clone()).unwrap();
        let mut chats = BTreeMap::new();
        for row in &rows {
            for chat in agreed(&mut self.judge, &row.resource).await {
                let elsewhere = chats.insert(chat.resource.clone(), (row.resource.clone(), chat));
                assert!(elsewhere.is_none(), "{elsewhere:?} is also in {}", row.resource);
            }
        }
        chats
    }

    /// Compares the state of the connected clients. Subscribes them to channels that they lack.
    async fn compare_clients(&mut self, chats: &BTreeMap<String, (String, ChatState)>) -> Result<(), String> {
        let mut differs = Ok(());
        for client in self.clients.all_connected() {
            for (uri, (session, chat)) in chats {
                for channel in [session, uri] {
                    if client.state(channel).is_none() {
                        client.subscribe(channel).await.map_err(|error| format!("{channel}: {error:#}"))?;
                    }
                }
                client.settle().await.unwrap();
                if json!(client.state(uri)) != json!(chat) {
                    differs = Err(format!("{uri}: {:?}\nis not\n{chat:?}", client.state(uri)));
                }
            }
        }
        differs
    }
}
