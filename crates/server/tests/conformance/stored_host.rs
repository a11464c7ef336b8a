//! A host whose storage survives restarts, for tests of the agent interface.

use std::sync::Arc;

use ahp_types::state::{Message, MessageKind, MessageOrigin};
use innkeeper_core::agent::TurnLink;
use innkeeper_core::channel::ChannelUri;
use innkeeper_core::storage::Storage as _;
use innkeeper_core_fakes::{MemoryStorage, Player, Stage, StageTraits};
use innkeeper_testkit::Observer;
use serde_json::{Value, json};

use crate::stage_host::{StageHost, StageOptions};

pub(crate) const SESSION: &str = "scripted:/1";

/// A host with persistent storage, one session and one client.
pub(crate) struct StoredHost {
    pub(crate) host: StageHost,
    pub(crate) storage: MemoryStorage,
    pub(crate) alice: Observer,
    pub(crate) chat: String,
}

impl StoredHost {
    pub(crate) async fn start(traits: StageTraits) -> Self {
        let storage = MemoryStorage::new();
        let options = StageOptions {
            stage: Stage::new(traits),
            storage: Arc::new(storage.clone()),
            ..StageOptions::default()
        };
        let host = StageHost::start(options).await.unwrap();
        let mut alice = host.observer("alice").await.unwrap();
        alice.create(SESSION, &["file:///w"]).await.unwrap();
        let chat = alice.open_session(SESSION).await.unwrap();
        Self { host, storage, alice, chat }
    }

    pub(crate) async fn restart(self) -> Self {
        let Self { host, storage, alice, chat } = self;
        drop(alice);
        let host = host.restart().await.unwrap();
        let mut alice = host.observer("alice").await.unwrap();
        alice.open_session(SESSION).await.unwrap();
        Self { host, storage, alice, chat }
    }

    /// Restarts the host; this agent exits when it is told to.
    pub(crate) async fn restart_with(self, player: Player) -> Self {
        let (kept, left) = tokio::join!(self.restart(), player.leave_when_told());
        left.unwrap();
        kept
    }

    /// Starts a turn. Returns the agent that was opened for it.
    pub(crate) async fn begin(&mut self, turn: &str) -> Player {
        self.alice.say(&self.chat, turn, "hello").await.unwrap();
        let mut player = self.host.stage().player().await.unwrap();
        assert_eq!(player.prompt().await.unwrap().0, turn);
        player
    }

    pub(crate) async fn finish(&mut self, player: &Player, turn: &str) {
        player.text(turn, &format!("{turn}-p"), &["answer"]).await.unwrap();
        player.complete(turn).await.unwrap();
        self.alice.until_turn_over(&self.chat, turn).await.unwrap();
    }

    /// The last turn of the chat as the client sees it.
    pub(crate) fn last_turn(&self) -> Value {
        json!(self.alice.chat(&self.chat).unwrap().turns.last())
    }

    /// Waits until these links are stored, which takes up to 100 ms.
    pub(crate) async fn wait_for_links(&self, wanted: &[(String, TurnLink)]) {
        while self.links().await != wanted {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    pub(crate) async fn links(&self) -> Vec<(String, TurnLink)> {
        let session = self.storage.load_session(ChannelUri::new(SESSION)).await.unwrap().unwrap();
        let mut links = session.chats[0].links.clone();
        links.sort_by(|one, other| one.0.cmp(&other.0));
        links
    }
}

pub(crate) fn said_by(kind: MessageKind, text: &str) -> Message {
    Message {
        text: text.to_owned(),
        origin: MessageOrigin { kind },
        attachments: None,
        model: None,
        agent: None,
        meta: None,
    }
}
