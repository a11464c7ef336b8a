//! Random clients and a random agent: whatever they do, valid or not, in whatever
//! order, with whatever connections lost and whatever restarts of the host, everybody
//! ends up with the same state. What anybody was told of is there after the host was
//! killed.

mod crash;
mod steps;

use std::sync::Arc;
use std::time::Duration;

use ahp_types::state::{
    AgentCapabilities, ChatState, MultipleWorkingDirectoriesCapability, SessionState, SessionSummary,
};
use innkeeper_core::agent::{AgentCommand, AgentEvent, AgentFeatures, TurnOutcome};
use innkeeper_core::ids::ClientId;
use innkeeper_testkit::{MemoryStorage, Player, Stage, StageHost, StageOptions, StageTraits, eventually};
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

use crate::guests::{CLIENTS, Guests};
use crate::scene::copies_agree;
use crate::wire::Wire;
use steps::{AgentStep, ClientAction, Step};

/// Plays that are tried, and how long one is.
const PLAYS: u32 = 20;
const STEPS: usize = 100;

/// After how many steps everybody is compared.
const CHECK_EVERY: usize = 10;

/// How long something may take that must happen.
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn whatever_happens_everybody_ends_up_with_the_same_state() {
    let config =
        Config { cases: PLAYS, max_shrink_iters: 64, failure_persistence: None, ..Config::default() };
    let plays = proptest::collection::vec(steps::step(), 1..STEPS);
    TestRunner::new(config)
        .run(&plays, |play| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(perform(&play));
            Ok(())
        })
        .unwrap();
}

async fn perform(play: &[Step]) {
    let mut world = World::new().await;
    let begin = Step::Client { who: 0, action: ClientAction::Start };
    world.take(&begin).await;
    world.settle().await;
    for (number, step) in play.iter().enumerate() {
        world.take(step).await;
        if number % CHECK_EVERY == CHECK_EVERY - 1 {
            world.check().await;
        }
    }
    world.guests.all_come_back(world.host.as_ref().unwrap()).await;
    world.check().await;
}

/// What a host on this storage is started with.
fn options(storage: &MemoryStorage) -> StageOptions {
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
    StageOptions { stage, storage: Arc::new(storage.clone()), ..StageOptions::default() }
}

/// Three clients, of which some may be away, and an agent, which may not be there.
struct World {
    /// There is always one, but for the moment between two.
    host: Option<StageHost>,
    guests: Guests,
    /// What the host writes down, and what it cannot but find again.
    storage: MemoryStorage,
    /// The last thing that the agent said when all was handled.
    mark: Option<Value>,
    /// Sees everything and compares.
    judge: Wire,
    session: String,
    chat: String,
    player: Option<Player>,
    /// Agents that were taken from the stage.
    taken: usize,
    /// The turn that the agent was last asked to work on.
    turn: String,
    /// The calls of that turn, since an agent begins each of them once.
    calls: Vec<usize>,
    /// For ids that were not used before.
    counter: usize,
}

impl World {
    async fn new() -> Self {
        let storage = MemoryStorage::new();
        let host = StageHost::start(options(&storage)).await.unwrap();
        let session = "scripted:/random".to_owned();
        let mut judge = Wire::open(&host, "judge", &["1.0.0"]).await;
        judge.ask("createSession", json!({"channel": session, "workingDirectories": ["file:///w"]})).await;
        let chat = judge.snapshot(&session).await["defaultChat"].as_str().unwrap().to_owned();
        judge.snapshot(&chat).await;
        let mut guests = Guests::connect(&host).await;
        for client in guests.all_present() {
            client.open_session(&session).await.unwrap();
        }
        let (turn, player) = (String::new(), None);
        Self {
            host: Some(host),
            guests,
            storage,
            mark: None,
            judge,
            session,
            chat,
            player,
            taken: 0,
            turn,
            calls: Vec::new(),
            counter: 0,
        }
    }

    async fn take(&mut self, step: &Step) {
        match step {
            Step::Client { who, action } => {
                self.counter += 1;
                let (on_chat, action) = action.on_the_wire(*who, self.counter, &self.turn, &self.calls);
                let channel = if on_chat { &self.chat } else { &self.session };
                if let Some(client) = self.guests.present(*who) {
                    client.dispatch(channel, action).await.unwrap();
                }
            }
            Step::Agent(step) => self.act(step).await,
            Step::Away { who } => self.guests.go(*who).await,
            Step::Back { who } => self.guests.come_back(*who, self.host.as_ref().unwrap()).await,
            Step::Listen => self.settle().await,
            Step::Restart => self.restart().await,
            Step::Kill { calm } => self.kill(*calm).await,
        }
    }

    fn host(&self) -> &StageHost {
        self.host.as_ref().unwrap()
    }

    /// Another host goes on where this one ends, and everybody comes back to it.
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

    /// Everybody comes to another host.
    async fn move_to(&mut self, host: StageHost) {
        let host = self.host.insert(host);
        self.judge = Wire::open(host, "judge", &["1.0.0"]).await;
        for channel in [&self.session, &self.chat] {
            self.judge.snapshot(channel).await;
        }
        self.guests.are_left();
        self.guests.all_come_back(host).await;
    }

    /// What the agent does, if there is one. It does not look whether its turn still runs.
    async fn act(&mut self, step: &AgentStep) {
        if self.host().stage().asked() > self.taken {
            self.player = Some(self.host().stage().player().await.unwrap());
            self.taken += 1;
        }
        self.hear();
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
            AgentStep::RunAtClient { call, who } => {
                self.calls.push(*call);
                player.run_at_client(&turn, &steps::call_id(*call), CLIENTS[*who].0).await.unwrap();
            }
            AgentStep::Ran { call, confirm } => {
                let more = json!({"requiresResultConfirmation": confirm});
                player.ran(&turn, &steps::call_id(*call), more).await.unwrap();
            }
            AgentStep::Ask => {
                let question = json!([{"kind": "text", "id": "name", "message": "?", "required": true}]);
                player.ask("q", question).await.unwrap();
            }
            AgentStep::Steered { message } => player.steered(&steps::message_id(*message)).await.unwrap(),
            AgentStep::Title => {
                player.send(AgentEvent::TitleSuggested { title: id }).await.unwrap();
            }
            AgentStep::Complete => player.end(&turn, TurnOutcome::Completed).await.unwrap(),
            AgentStep::Crash => {
                player.crash().await.unwrap();
                return;
            }
        }
        self.player = Some(player);
    }

    /// Takes the agent's orders.
    fn hear(&mut self) {
        while let Some(command) = self.player.as_mut().and_then(Player::waiting_command) {
            if let AgentCommand::Prompt { turn, .. } = command {
                self.turn = turn.as_str().to_owned();
                self.calls.clear();
            }
        }
    }

    /// Waits until everything that clients and agent have said is handled.
    async fn settle(&mut self) {
        self.mark = None;
        loop {
            self.settle_clients().await;
            self.judge.barrier(&self.chat).await;
            if self.host().stage().asked() > self.taken {
                self.player = Some(self.host().stage().player().await.unwrap());
                self.taken += 1;
            }
            self.hear();
            if let Some(player) = &self.player {
                // A mark that the session publishes after all that the agent said before.
                self.counter += 1;
                let mark = json!(format!("mark {}", self.counter));
                player.act(json!({"type": "chat/activityChanged", "activity": mark})).await.unwrap();
                self.judge.until(|message| message["params"]["action"]["activity"] == mark).await;
                self.judge.barrier(&self.chat).await;
                self.mark = Some(mark);
                self.hear();
            }
            if self.host().stage().asked() == self.taken {
                return;
            }
        }
    }

    /// Waits until the host has read what the clients sent, also those that are gone.
    async fn settle_clients(&mut self) {
        let Some(store) = self.host.as_ref().map(|host| host.host().store()) else { return };
        self.guests.settle().await;
        for name in self.guests.absent() {
            let gone = || !store.has_audience(&[], Some(&ClientId::new(name)));
            eventually(PATIENCE, "the host lets go of who is gone", gone).await.unwrap();
        }
    }

    /// Everybody who is there has what somebody gets who comes now.
    async fn check(&mut self) {
        self.settle().await;
        let channels = ["ahp-root://", &self.session, &self.chat];
        let mut fresh = Vec::new();
        for channel in channels {
            fresh.push(self.judge.snapshot(channel).await);
        }
        let listed = self.judge.ask("listSessions", json!({})).await;
        let rows: Vec<SessionSummary> = serde_json::from_value(listed["items"].clone()).unwrap();
        for client in self.guests.all_present() {
            client.settle().await.unwrap();
            for (channel, state) in channels.iter().zip(&fresh) {
                assert_eq!(json!(client.state(channel)), *state, "{channel}");
            }
            let folded = client.rows.get(&self.session).map(|row| json!([row.title, row.status, row.chats]));
            let row = rows.first().map(|row| json!([row.title, row.status, row.chats]));
            assert_eq!(folded, row);
        }
        let chat: ChatState = serde_json::from_value(fresh[2].clone()).unwrap();
        let session: SessionState = serde_json::from_value(fresh[1].clone()).unwrap();
        copies_agree(std::slice::from_ref(&chat), &session, rows.first());
        self.never(&chat, &session);
    }

    /// What must never be, whatever happened.
    fn never(&self, chat: &ChatState, session: &SessionState) {
        let known = session.working_directories.as_deref().unwrap_or_default();
        let foreign = chat.working_directories.iter().flatten().find(|directory| !known.contains(directory));
        assert_eq!(foreign, None, "a chat works where its session does not");
        let mut ids: Vec<&str> = chat.turns.iter().map(|turn| turn.id.as_str()).collect();
        ids.extend(chat.active_turn.as_ref().map(|turn| turn.id.as_str()));
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all, "two turns with one id");
        if let Some(active) = &chat.active_turn {
            assert_eq!(active.id, self.turn, "the agent works on what runs");
        }
        let open: Vec<Value> = json!(chat.turns)
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|turn| turn["responseParts"].as_array().unwrap().clone())
            .filter(|part| part["kind"] == "toolCall")
            .filter(|part| !matches!(part["toolCall"]["status"].as_str(), Some("completed" | "cancelled")))
            .collect();
        assert_eq!(open, [] as [Value; 0], "a turn that is over has no open call");
    }
}
