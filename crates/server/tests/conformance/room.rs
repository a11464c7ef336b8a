//! Sessions with several chats, two clients and a scripted agent per chat, and the check
//! that all copies of chat fields agree.

use std::sync::Arc;

use ahp_types::state::{AgentCapabilities, ChatState, MultipleChatsCapability, SessionState, SessionSummary};
use innkeeper_core::agent::AgentFeatures;
use innkeeper_core_fakes::{MemoryStorage, Player, Stage, StageTraits};
use innkeeper_testkit::Observer;
use serde_json::{Value, json};

use crate::scene::{DIRECTORY, copies_agree, started};
use crate::stage_host::{StageHost, StageOptions};
use crate::wire::Wire;

pub(crate) const ONE: &str = "scripted:/1";
pub(crate) const TWO: &str = "scripted:/2";
pub(crate) const SIDE: &str = "ahp-chat:/side";

/// A host with two clients and one or two sessions. Its agent supports several chats, forks
/// and side chats.
pub(crate) struct Room {
    pub(crate) host: StageHost,
    pub(crate) storage: MemoryStorage,
    pub(crate) alice: Observer,
    pub(crate) wire: Wire,
    /// The default chat of the first session.
    pub(crate) chat: String,
}

pub(crate) fn stage() -> Stage {
    let chats = MultipleChatsCapability { fork: Some(true), side_chat: Some(true) };
    let capabilities = AgentCapabilities { multiple_chats: Some(chats), ..AgentCapabilities::default() };
    Stage::new(StageTraits {
        features: AgentFeatures::ALL,
        capabilities: Some(capabilities),
        ..StageTraits::default()
    })
}

pub(crate) async fn host_on(storage: &MemoryStorage) -> StageHost {
    let options =
        StageOptions { stage: stage(), storage: Arc::new(storage.clone()), ..StageOptions::default() };
    StageHost::start(options).await.unwrap()
}

impl Room {
    pub(crate) async fn new() -> Self {
        let storage = MemoryStorage::new();
        let host = host_on(&storage).await;
        let mut alice = host.observer("alice").await.unwrap();
        let wire = Wire::open(&host, "wire", &["1.0.0"]).await;
        alice.create(ONE, &[DIRECTORY]).await.unwrap();
        let chat = alice.open_session(ONE).await.unwrap();
        Self { host, storage, alice, wire, chat }
    }

    /// Creates a room whose first session has a second chat.
    pub(crate) async fn with_side() -> Self {
        let mut room = Self::new().await;
        room.create(json!({})).await;
        room.alice.subscribe(SIDE).await.unwrap();
        room.alice.settle().await.unwrap();
        room
    }

    /// Creates the second chat, with additional parameters.
    pub(crate) async fn create(&mut self, more: Value) {
        let mut params = json!({"channel": ONE, "chat": SIDE});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        assert_eq!(self.wire.ask("createChat", params).await, Value::Null);
    }

    pub(crate) async fn move_to(&mut self, destination: Value) -> String {
        let moved = self.wire.ask("moveChat", json!({"channel": SIDE, "destination": destination})).await;
        moved["session"].as_str().unwrap().to_owned()
    }

    /// Starts a turn in a chat without an open agent. Returns the agent that is opened.
    pub(crate) async fn begin(&mut self, chat: &str, turn: &str) -> Player {
        self.alice.dispatch(chat, started(turn)).await.unwrap();
        let mut player = self.host.stage().player().await.unwrap();
        assert_eq!(player.prompt().await.unwrap().0, turn);
        player
    }

    /// Runs a turn to completion in a chat without an open agent. Returns the agent.
    pub(crate) async fn turn(&mut self, chat: &str, turn: &str) -> Player {
        let player = self.begin(chat, turn).await;
        player.text(turn, &format!("{turn}-p"), &["an ", "answer"]).await.unwrap();
        player.complete(turn).await.unwrap();
        self.alice.until_turn_over(chat, turn).await.unwrap();
        player
    }

    /// Starts another turn in a chat with an open agent.
    pub(crate) async fn again(&mut self, player: &mut Player, chat: &str, turn: &str) {
        self.alice.dispatch(chat, started(turn)).await.unwrap();
        assert_eq!(player.prompt().await.unwrap().0, turn);
    }

    /// Checks that the clients have the same state as a new client.
    pub(crate) async fn agree(&mut self) {
        self.alice.settle().await.unwrap();
        let mut judge = Wire::open(&self.host, "judge", &["1.0.0"]).await;
        let sessions: Vec<String> = [ONE, TWO]
            .iter()
            .filter(|uri| self.alice.state(uri).is_some())
            .map(|uri| (*uri).to_owned())
            .collect();
        for session in sessions {
            let chats = agreed(&mut judge, &session).await;
            assert_eq!(json!(self.alice.state(&session)), judge.snapshot(&session).await, "{session}");
            for chat in chats {
                if let Some(mirror) = self.alice.state(&chat.resource) {
                    assert_eq!(json!(mirror), json!(chat), "{}", chat.resource);
                }
            }
        }
    }

    /// Checks that the URI of a chat that could not be stored can be used.
    pub(crate) async fn create_again(&mut self) {
        self.wire.ask("createChat", json!({"channel": ONE, "chat": "ahp-chat:/new"})).await;
        self.agree().await;
    }

    /// Runs a turn in the second session, so that it is listed.
    pub(crate) async fn turn_in_two(&mut self) {
        let chat = self.alice.open_session(TWO).await.unwrap();
        self.turn(&chat, "o1").await.crash().await.unwrap();
    }

    pub(crate) fn chats_of(&self, session: &str) -> Vec<&str> {
        self.alice.session(session).unwrap().chats.iter().map(|chat| chat.resource.as_str()).collect()
    }
}

/// Checks that the copies of the chat fields of a session agree. Returns its chats.
pub(crate) async fn agreed(judge: &mut Wire, session: &str) -> Vec<ChatState> {
    let state: SessionState = serde_json::from_value(judge.snapshot(session).await).unwrap();
    let mut chats = Vec::new();
    for entry in &state.chats {
        chats.push(serde_json::from_value(judge.snapshot(&entry.resource).await).unwrap());
    }
    let listed = judge.ask("listSessions", json!({})).await;
    let rows: Vec<SessionSummary> = serde_json::from_value(listed["items"].clone()).unwrap();
    copies_agree(&chats, &state, rows.iter().find(|row| row.resource == session));
    chats
}
