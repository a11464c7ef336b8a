//! Random chats: whatever is created, forked, moved, worked on, taken back and disposed,
//! in whatever order, with whatever connections lost, disks full and hosts ended or
//! killed, every chat is in one session, and everybody has the same of it. What anybody
//! was shown is there at the next host if this one ends in order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ahp_types::state::{ChatState, SessionSummary};
use innkeeper_core::agent::AgentCommand;
use innkeeper_core::storage::StorageError;
use innkeeper_testkit::{MemoryStorage, Player, StageHost, StageOptions};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

use crate::guests::{CLIENTS, Guests};
use crate::room::{agreed, stage};
use crate::scene::{DIRECTORY, message, pending, started};
use crate::wire::Wire;

/// Plays that are tried, and how long one is.
const PLAYS: u32 = 16;
const STEPS: usize = 40;

/// After how many steps everybody is compared.
const CHECK_EVERY: usize = 8;

/// Something that happens. Numbers choose among what there is.
#[derive(Clone, Debug)]
enum Step {
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
        who: usize,
    },
    Cancel {
        chat: usize,
        who: usize,
    },
    Queue {
        chat: usize,
        who: usize,
    },
    Draft {
        chat: usize,
        who: usize,
    },
    Truncate {
        chat: usize,
        who: usize,
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
    Away {
        who: usize,
    },
    Back {
        who: usize,
    },
    /// From now on nothing can be stored.
    FullDisk,
    /// There is room again.
    FreeDisk,
    /// In order; in the middle of everything, or when all is said.
    Restart {
        calm: bool,
    },
    Kill,
}

fn step() -> impl Strategy<Value = Step> {
    let one = 0..64_usize;
    let who = 0..CLIENTS.len();
    let source = proptest::option::of((one.clone(), any::<bool>()));
    prop_oneof![
        4 => (one.clone(), source, any::<bool>()).prop_map(|(session, source, begin)| Step::Create { session, source, begin }),
        2 => one.clone().prop_map(|chat| Step::Dispose { chat }),
        4 => (one.clone(), one.clone(), proptest::option::of(one.clone()))
            .prop_map(|(chat, session, after)| Step::Move { chat, session, after }),
        1 => one.clone().prop_map(|chat| Step::MoveOut { chat }),
        1 => one.clone().prop_map(|session| Step::DisposeSession { session }),
        5 => (one.clone(), who.clone()).prop_map(|(chat, who)| Step::Start { chat, who }),
        1 => (one.clone(), who.clone()).prop_map(|(chat, who)| Step::Cancel { chat, who }),
        2 => (one.clone(), who.clone()).prop_map(|(chat, who)| Step::Queue { chat, who }),
        1 => (one.clone(), who.clone()).prop_map(|(chat, who)| Step::Draft { chat, who }),
        2 => (one.clone(), who.clone(), proptest::option::weighted(0.8, one.clone()))
            .prop_map(|(chat, who, turn)| Step::Truncate { chat, who, turn }),
        6 => one.clone().prop_map(|agent| Step::Finish { agent }),
        1 => one.clone().prop_map(|agent| Step::Ask { agent }),
        1 => one.prop_map(|agent| Step::Crash { agent }),
        1 => who.clone().prop_map(|who| Step::Away { who }),
        2 => who.prop_map(|who| Step::Back { who }),
        1 => Just(Step::FullDisk),
        2 => Just(Step::FreeDisk),
        1 => any::<bool>().prop_map(|calm| Step::Restart { calm }),
        1 => Just(Step::Kill),
    ]
}

#[test]
fn whatever_chats_do_each_is_in_one_session_and_everybody_has_the_same_of_it() {
    let config =
        Config { cases: PLAYS, max_shrink_iters: 64, failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&proptest::collection::vec(step(), 1..STEPS), |play| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(perform(&play));
            Ok(())
        })
        .unwrap();
}

async fn perform(play: &[Step]) {
    let mut world = World::new().await;
    for (number, step) in play.iter().enumerate() {
        world.take(step).await;
        if number % CHECK_EVERY == CHECK_EVERY - 1 {
            world.check().await;
        }
    }
    world.restart_calmly().await;
    world.check().await;
}

/// A live agent and the turn that it works on.
struct Agent {
    player: Player,
    turn: Option<String>,
}

/// The agents of all chats. They end when they are told to.
#[derive(Default)]
struct Agents {
    live: Vec<Agent>,
}

impl Agents {
    /// Takes in new agents, hears what they are asked, and lets go who shall end.
    async fn tend(&mut self, host: &StageHost) {
        while let Some(player) = host.stage().waiting_player() {
            self.live.push(Agent { player, turn: None });
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
                // If the host was killed, nobody hears it.
                self.live.remove(at).player.leave_when_told().await.ok();
            } else {
                at += 1;
            }
        }
    }

    /// Tends them until something else is done.
    async fn while_waiting<T>(&mut self, host: &StageHost, done: impl Future<Output = T>) -> T {
        let tending = async {
            loop {
                self.tend(host).await;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            done = done => done,
            () = tending => unreachable!("it goes on for ever"),
        }
    }
}

struct World {
    host: Option<StageHost>,
    storage: MemoryStorage,
    guests: Guests,
    judge: Wire,
    agents: Agents,
    /// The addresses of all that there was, in the order of creation.
    sessions: Vec<String>,
    chats: Vec<String>,
    counter: usize,
}

async fn host_on(storage: &MemoryStorage) -> StageHost {
    let options =
        StageOptions { stage: stage(), storage: Arc::new(storage.clone()), ..StageOptions::default() };
    StageHost::start(options).await.unwrap()
}

impl World {
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
        let guests = Guests::connect(&host).await;
        let agents = Agents::default();
        let mut world =
            Self { host: Some(host), storage, guests, judge, agents, sessions, chats, counter: 0 };
        // Both are listed, or a host that starts later could find them not worth keeping.
        for chat in world.chats.clone() {
            world.guests.one(0).dispatch(&chat, started("first")).await.unwrap();
        }
        world.settle().await;
        world
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

    /// A request of the judge's, which may fail.
    async fn ask(&mut self, method: &str, params: Value) -> Option<Value> {
        let Self { agents, judge, host, .. } = self;
        let answer = agents.while_waiting(host.as_ref().unwrap(), judge.request(method, params)).await;
        answer.get("result").cloned()
    }

    async fn dispatch(&mut self, who: usize, chat: usize, action: Value) {
        let chat = self.chat(chat);
        if let Some(client) = self.guests.present(who) {
            client.dispatch(&chat, action).await.unwrap();
        }
    }

    async fn take(&mut self, step: &Step) {
        match step {
            Step::Create { .. } | Step::Dispose { .. } | Step::Move { .. } | Step::MoveOut { .. } => {
                self.ask_for(step).await;
            }
            // The last one stays, or nothing would be left to play with.
            Step::DisposeSession { session } if self.sessions.len() > 3 => {
                let session = self.session(*session);
                self.ask("disposeSession", json!({"channel": session})).await;
            }
            Step::DisposeSession { .. } => {}
            Step::Start { chat, who } => {
                let turn = self.id("t");
                self.dispatch(*who, *chat, started(&turn)).await;
            }
            Step::Cancel { chat, who } => {
                let turn = json!(self.guests.one(*who).state(&self.chat(*chat)))["activeTurn"]["id"].clone();
                let cancelled = json!({"type": "chat/turnCancelled", "turnId": turn, "duration": 1});
                if turn.is_string() {
                    self.dispatch(*who, *chat, cancelled).await;
                }
            }
            Step::Queue { chat, who } => {
                let id = self.id("m");
                self.dispatch(*who, *chat, pending("queued", &id, "later")).await;
            }
            Step::Draft { chat, who } => {
                let draft = message(&self.id("d"));
                self.dispatch(*who, *chat, json!({"type": "chat/draftChanged", "draft": draft})).await;
            }
            Step::Truncate { chat, who, turn } => {
                let turns = json!(self.guests.one(*who).state(&self.chat(*chat)))["turns"].clone();
                let turns = turns.as_array().map_or(&[][..], Vec::as_slice);
                let id = turn.map(|turn| turns.get(turn % turns.len().max(1)).map(|turn| turn["id"].clone()));
                let truncated = match id {
                    None => json!({"type": "chat/truncated"}),
                    Some(id) => json!({"type": "chat/truncated", "turnId": id.unwrap_or(json!("none"))}),
                };
                self.dispatch(*who, *chat, truncated).await;
            }
            Step::Finish { agent } | Step::Ask { agent } | Step::Crash { agent } => {
                self.act(step, *agent).await;
            }
            Step::Away { who } => self.guests.go(*who).await,
            Step::Back { who } => self.guests.come_back(*who, self.host.as_ref().unwrap()).await,
            Step::FullDisk => self.storage.fail_writes(Some(StorageError::Full)),
            Step::FreeDisk => self.storage.fail_writes(None),
            Step::Restart { calm: false } => self.restart().await,
            Step::Restart { calm: true } => self.restart_calmly().await,
            Step::Kill => self.kill().await,
        }
    }

    async fn ask_for(&mut self, step: &Step) {
        match step {
            Step::Create { session, source, begin } => {
                let chat = format!("ahp-chat:/{}", self.id("c"));
                let mut params = json!({"channel": self.session(*session), "chat": chat});
                if let Some((source, fork)) = source {
                    let source = self.chat(*source);
                    let turns = json!(self.guests.one(0).state(&source))["turns"].clone();
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
            Step::Dispose { chat } => {
                let chat = self.chat(*chat);
                self.ask("disposeChat", json!({"channel": chat})).await;
            }
            Step::Move { chat, session, after } => {
                let mut destination = json!({"kind": "session", "session": self.session(*session)});
                if let Some(after) = after {
                    destination["after"] = json!(self.chat(*after));
                }
                let chat = self.chat(*chat);
                self.ask("moveChat", json!({"channel": chat, "destination": destination})).await;
            }
            Step::MoveOut { chat } => {
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

    /// What an agent does, if there is one. It does not look whether its turn still runs.
    async fn act(&mut self, step: &Step, number: usize) {
        let Self { agents, host, .. } = self;
        agents.tend(host.as_ref().unwrap()).await;
        let count = agents.live.len();
        if count == 0 {
            return;
        }
        if matches!(step, Step::Crash { .. }) {
            // It may be told to end at the same time.
            agents.live.remove(number % count).player.crash().await.ok();
            return;
        }
        let call = self.id("k");
        let agent = &self.agents.live[number % count];
        let Some(turn) = &agent.turn else { return };
        if matches!(step, Step::Ask { .. }) {
            agent.player.ask_to_run(turn, &call, json!({})).await.ok();
        } else {
            agent.player.text(turn, &call, &["it ", "is ", "done"]).await.ok();
            agent.player.complete(turn).await.ok();
        }
    }

    /// A restart after which all must be there that was shown before it.
    async fn restart_calmly(&mut self) {
        self.check().await;
        let shown = self.homes().await;
        self.restart().await;
        let found = self.homes().await;
        assert_eq!(found.keys().collect::<Vec<_>>(), shown.keys().collect::<Vec<_>>(), "the chats");
        for (uri, (session, chat)) in shown {
            let (home, found) = &found[&uri];
            assert_eq!(*home, session, "{uri} is elsewhere");
            assert_eq!(found.turns.get(..chat.turns.len()), Some(&chat.turns[..]), "{uri}");
            // The turn that ran is over.
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
        // A host that cannot store anything does not start, and one that ends cannot help it.
        self.storage.fail_writes(None);
        self.guests.all_go().await;
        let host = self.host.take().unwrap();
        let stage = host.stage().clone();
        let mut live = std::mem::take(&mut self.agents.live);
        let leaving = async {
            // Some may be opened while the host ends.
            loop {
                while let Some(player) = stage.waiting_player() {
                    live.push(Agent { player, turn: None });
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
            () = leaving => unreachable!("it goes on for ever"),
        }
        self.begin_on(self.storage.clone()).await;
    }

    async fn kill(&mut self) {
        self.guests.all_go().await;
        let left = self.storage.after_a_crash();
        drop(self.host.take());
        self.begin_on(left).await;
    }

    async fn begin_on(&mut self, storage: MemoryStorage) {
        self.agents = Agents::default();
        self.storage = storage;
        let host = host_on(&self.storage).await;
        self.judge = Wire::open(&host, "judge", &["1.0.0"]).await;
        self.guests.all_come_back(&host).await;
        self.host = Some(host);
    }

    /// Waits until everything that clients and agents have said is handled.
    async fn settle(&mut self) {
        for _ in 0..3 {
            self.guests.settle().await;
            let Self { agents, host, .. } = self;
            let host = host.as_ref().unwrap();
            agents.tend(host).await;
            // An opening, or the end of an agent, takes a few turns of the wheel.
            agents.while_waiting(host, tokio::time::sleep(Duration::from_millis(5))).await;
        }
    }

    /// Every chat is in one session, all copies of its facts agree, and everybody who is
    /// there has what somebody gets who comes now.
    async fn check(&mut self) {
        // What the agents did meanwhile may still be on its way; then it is looked at again.
        for attempt in 0.. {
            self.settle().await;
            let before = self.host().host().store().seq();
            let homes = self.homes().await;
            let mirrored = self.mirrored(&homes).await;
            self.settle().await;
            if self.host().host().store().seq() == before {
                mirrored.unwrap();
                return;
            }
            assert!(attempt < 50, "the host never rests");
        }
    }

    /// The chats and their sessions.
    async fn homes(&mut self) -> BTreeMap<String, (String, ChatState)> {
        let listed = self.judge.ask("listSessions", json!({})).await;
        let rows: Vec<SessionSummary> = serde_json::from_value(listed["items"].clone()).unwrap();
        let mut homes = BTreeMap::new();
        for row in &rows {
            for chat in agreed(&mut self.judge, &row.resource).await {
                let elsewhere = homes.insert(chat.resource.clone(), (row.resource.clone(), chat));
                assert!(elsewhere.is_none(), "{elsewhere:?} and {}", row.resource);
            }
        }
        homes
    }

    /// Compares what the clients have; they begin to watch what they did not yet.
    async fn mirrored(&mut self, homes: &BTreeMap<String, (String, ChatState)>) -> Result<(), String> {
        let mut differs = Ok(());
        for client in self.guests.all_present() {
            for (uri, (session, chat)) in homes {
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
