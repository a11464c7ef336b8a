//! How long agents keep their processes, agents that are opened in advance, and turns that the
//! host waits for before it stops. On a paused clock, and therefore without sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use ahp_types::state::{ChatState, SessionLifecycle, TurnState};
use innkeeper_core::agent::{AgentCommand, AgentEvent, History, TurnMessage};
use innkeeper_core::clock::SystemClock;
use innkeeper_core::host::{CreateError, NewSession};
use innkeeper_core::ids::{ClientId, ConnectionId};
use innkeeper_core::state::{Action, Origin, Outbox};
use innkeeper_core::storage::Nowhere;
use innkeeper_core::{
    AgentLifetimes, ChannelUri, EditConfig, Host, HostConfig, HostServices, PermissionConfig,
};
use innkeeper_core_fakes::{Player, Stage};
use serde_json::{Value, json};

use crate::scene::started;

const IDLE: Duration = Duration::from_secs(600);
const UNUSED: Duration = Duration::from_secs(120);
const MOMENT: Duration = Duration::from_secs(1);

struct Inn {
    host: Arc<Host>,
    stage: Stage,
    connection: ConnectionId,
    dispatched: AtomicI64,
}

impl Inn {
    async fn new() -> Self {
        Self::with(AgentLifetimes { idle: Some(IDLE), prewarm: true, unused: UNUSED }).await
    }

    async fn with(lifetimes: AgentLifetimes) -> Self {
        let stage = Stage::default();
        let config = HostConfig {
            providers: vec![stage.provider()],
            clock: Arc::new(SystemClock),
            storage: Arc::new(Nowhere),
            permissions: PermissionConfig::default(),
            edits: EditConfig::none(),
            lifetimes,
            services: HostServices::default(),
        };
        let host = Host::start(config).await.unwrap();
        let connection = host.store().attach(Arc::new(Outbox::default()));
        Self { host, stage, connection, dispatched: AtomicI64::new(0) }
    }

    async fn create(&self, name: &str) -> Result<ChannelUri, CreateError> {
        let session = ChannelUri::new(&format!("scripted:/{name}"));
        let new = NewSession {
            uri: session.clone(),
            provider: None,
            working_directories: Vec::new(),
            config: Default::default(),
            active_client: None,
            creator: Some(ClientId::new("c1")),
        };
        self.host.create_session(new).await?;
        Ok(ChannelUri::default_chat_of(&session))
    }

    /// Dispatches an action, and waits until the session has handled it.
    async fn dispatch(&self, chat: &ChannelUri, action: Value) {
        let client_seq = self.dispatched.fetch_add(1, Ordering::Relaxed) + 1;
        let action = Action::from_client(serde_json::value::to_raw_value(&action).unwrap()).unwrap();
        let origin = Origin { connection: self.connection, client: ClientId::new("c1"), client_seq };
        self.host.dispatch(chat.clone(), action, origin).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    async fn write(&self, chat: &ChannelUri, text: &str) {
        let draft = json!({"text": text, "origin": {"kind": "user"}});
        self.dispatch(chat, json!({"type": "chat/draftChanged", "draft": draft})).await;
    }

    fn chat(&self, chat: &ChannelUri) -> ChatState {
        self.host.store().read(chat, |state| state.chat_doc().unwrap().whole().unwrap()).unwrap()
    }

    fn lifecycle(&self, name: &str) -> SessionLifecycle {
        let session = ChannelUri::new(&format!("scripted:/{name}"));
        self.host.store().read(&session, |state| state.session().unwrap().lifecycle.clone()).unwrap()
    }

    /// A session with one finished turn, and its agent.
    async fn after_turn(&self) -> (ChannelUri, Player) {
        let chat = self.create("1").await.unwrap();
        self.dispatch(&chat, started("t1")).await;
        let mut player = self.stage.player().await.unwrap();
        player.prompt().await.unwrap();
        player.complete("t1").await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
        (chat, player)
    }
}

fn closed(history: History) -> AgentEvent {
    AgentEvent::Closed { history, unsent: None, restart: None }
}

#[tokio::test(start_paused = true)]
async fn idle_agent_is_released_unnoticed_and_next_message_resumes() {
    let inn = Inn::new().await;
    let (chat, mut player) = inn.after_turn().await;
    tokio::time::sleep(IDLE - MOMENT).await;
    assert_eq!(player.waiting_command(), None, "released too early");
    let seq = inn.host.store().seq();
    tokio::time::sleep(2 * MOMENT).await;
    assert_eq!(player.waiting_command(), Some(AgentCommand::Release));
    player.send(closed(History::Resume)).await.unwrap();
    tokio::time::sleep(MOMENT).await;
    assert_eq!(inn.host.store().seq(), seq, "the release was published");
    inn.dispatch(&chat, started("t2")).await;
    let mut next = inn.stage.player().await.unwrap();
    assert_eq!(next.prompt().await.unwrap().0, "t2");
    let histories: Vec<_> = inn.stage.openings().into_iter().map(|opening| opening.history).collect();
    assert_eq!(histories, [History::Fresh, History::Resume]);
}

#[tokio::test(start_paused = true)]
async fn agent_is_not_released_while_it_works_and_is_asked_again_later() {
    let inn = Inn::new().await;
    let (chat, mut player) = inn.after_turn().await;
    player.run_in_background("t1", "call", "w1", "npm run dev").await.unwrap();
    tokio::time::sleep(3 * IDLE).await;
    assert_eq!(player.waiting_command(), None, "released with work in the background");
    player.act(json!({"type": "chat/backgroundWorkRemoved", "id": "w1"})).await.unwrap();
    tokio::time::sleep(IDLE - MOMENT).await;
    assert_eq!(player.waiting_command(), None);
    tokio::time::sleep(2 * MOMENT).await;
    assert_eq!(player.waiting_command(), Some(AgentCommand::Release));
    // The agent knows of work that clients do not see, and ignores the command.
    tokio::time::sleep(IDLE).await;
    assert_eq!(player.waiting_command(), Some(AgentCommand::Release));

    inn.dispatch(&chat, started("t2")).await;
    player.prompt().await.unwrap();
    tokio::time::sleep(3 * IDLE).await;
    assert_eq!(player.waiting_command(), None, "released in a turn");
}

/// Only a client can continue a queue that a stop holds.
#[tokio::test(start_paused = true)]
async fn agent_is_released_while_a_held_message_waits() {
    for kind in ["queued", "steering"] {
        let inn = Inn::new().await;
        let (chat, mut player) = inn.after_turn().await;
        inn.dispatch(&chat, started("t2")).await;
        player.prompt().await.unwrap();
        let waiting = json!({
            "type": "chat/pendingMessageSet", "kind": kind, "id": "q1",
            "message": {"text": "later", "origin": {"kind": "user"}},
        });
        inn.dispatch(&chat, waiting).await;
        if kind == "steering" {
            assert!(matches!(player.waiting_command(), Some(AgentCommand::Steer { .. })));
        }
        inn.dispatch(&chat, json!({"type": "chat/turnCancelled", "turnId": "t2", "duration": 1})).await;
        assert!(matches!(player.waiting_command(), Some(AgentCommand::Cancel { .. })));
        tokio::time::sleep(IDLE + MOMENT).await;
        assert_eq!(player.waiting_command(), Some(AgentCommand::Release), "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn agents_are_kept_if_no_idle_time_is_configured() {
    let inn = Inn::with(AgentLifetimes { idle: None, ..AgentLifetimes::default() }).await;
    let (_, mut player) = inn.after_turn().await;
    tokio::time::sleep(100 * IDLE).await;
    assert_eq!(player.waiting_command(), None);
}

#[tokio::test(start_paused = true)]
async fn message_that_races_the_release_is_sent_to_the_next_agent() {
    let inn = Inn::new().await;
    let (chat, mut player) = inn.after_turn().await;
    tokio::time::sleep(IDLE + MOMENT).await;
    assert_eq!(player.waiting_command(), Some(AgentCommand::Release));
    inn.dispatch(&chat, started("t2")).await;
    let Some(AgentCommand::Prompt { turn, message }) = player.waiting_command() else { panic!("no prompt") };
    player.crash_before(TurnMessage { turn, message }).await.unwrap();
    let mut next = inn.stage.player().await.unwrap();
    assert_eq!(next.prompt().await.unwrap().0, "t2");
    assert_eq!(inn.stage.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn draft_opens_the_agent_unnoticed_and_the_message_goes_to_it() {
    let inn = Inn::new().await;
    let chat = inn.create("1").await.unwrap();
    inn.write(&chat, "").await;
    inn.write(&chat, " ").await;
    assert_eq!(inn.stage.asked(), 0, "an empty draft opened an agent");
    let seq = inn.host.store().seq().0;
    inn.write(&chat, "h").await;
    let mut player = inn.stage.player().await.unwrap();
    inn.write(&chat, "he").await;
    assert_eq!(inn.host.store().seq().0, seq + 2, "more than the drafts was published");
    assert_eq!((inn.stage.asked(), inn.lifecycle("1")), (1, SessionLifecycle::Creating));
    inn.dispatch(&chat, started("t1")).await;
    assert_eq!(player.prompt().await.unwrap().0, "t1");
    assert_eq!((inn.stage.asked(), inn.lifecycle("1")), (1, SessionLifecycle::Ready));
    player.complete("t1").await.unwrap();
    tokio::time::sleep(2 * UNUSED).await;
    assert_eq!(player.waiting_command(), None, "a used agent was released as unused");
}

#[tokio::test(start_paused = true)]
async fn unused_agent_is_released_and_its_conversation_stays_fresh() {
    let inn = Inn::new().await;
    let chat = inn.create("1").await.unwrap();
    inn.write(&chat, "h").await;
    let mut player = inn.stage.player().await.unwrap();
    tokio::time::sleep(UNUSED - MOMENT).await;
    inn.write(&chat, "hello").await;
    tokio::time::sleep(UNUSED - MOMENT).await;
    assert_eq!(player.waiting_command(), None, "released while a client writes");
    tokio::time::sleep(2 * MOMENT).await;
    assert_eq!(player.waiting_command(), Some(AgentCommand::Release));
    player.send(closed(History::Fresh)).await.unwrap();
    tokio::time::sleep(MOMENT).await;
    inn.write(&chat, "hello again").await;
    let mut next = inn.stage.player().await.unwrap();
    inn.dispatch(&chat, started("t1")).await;
    next.prompt().await.unwrap();
    let histories: Vec<_> = inn.stage.openings().into_iter().map(|opening| opening.history).collect();
    assert_eq!(histories, [History::Fresh, History::Fresh]);
}

#[tokio::test(start_paused = true)]
async fn message_during_opening_in_advance_is_sent_when_the_agent_is_open() {
    let inn = Inn::new().await;
    let chat = inn.create("1").await.unwrap();
    inn.stage.hold_openings();
    inn.write(&chat, "h").await;
    inn.dispatch(&chat, started("t1")).await;
    inn.stage.release_openings();
    let mut player = inn.stage.player().await.unwrap();
    assert_eq!(player.prompt().await.unwrap().0, "t1");
    assert_eq!((inn.stage.asked(), inn.lifecycle("1")), (1, SessionLifecycle::Ready));
}

#[tokio::test(start_paused = true)]
async fn failed_opening_in_advance_is_silent_and_reported_for_the_message() {
    let inn = Inn::new().await;
    let chat = inn.create("1").await.unwrap();
    let seq = inn.host.store().seq().0;
    inn.stage.fail_next_opening("install it first");
    inn.write(&chat, "h").await;
    inn.write(&chat, "he").await;
    assert_eq!(inn.stage.asked(), 1, "each key opens an agent");
    assert_eq!(inn.host.store().seq().0, seq + 2, "the failure was published");
    inn.stage.fail_next_opening("install it first");
    inn.dispatch(&chat, started("t1")).await;
    tokio::time::sleep(MOMENT).await;
    let turns = inn.chat(&chat).turns;
    assert_eq!(turns[0].state, TurnState::Error);
    assert!(serde_json::to_string(&turns).unwrap().contains("install it first"));
    inn.write(&chat, "once more").await;
    assert_eq!(inn.stage.asked(), 3, "a message allows another attempt");
}

#[tokio::test(start_paused = true)]
async fn agent_that_ends_unasked_before_its_first_message_is_not_opened_by_each_key() {
    let inn = Inn::new().await;
    let chat = inn.create("1").await.unwrap();
    inn.write(&chat, "h").await;
    let player = inn.stage.player().await.unwrap();
    player.send(closed(History::Fresh)).await.unwrap();
    tokio::time::sleep(MOMENT).await;
    inn.write(&chat, "he").await;
    assert_eq!(inn.stage.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn at_most_four_agents_of_a_host_are_opened_in_advance() {
    let inn = Inn::new().await;
    let mut chats = Vec::new();
    for name in ["1", "2", "3", "4", "5"] {
        let chat = inn.create(name).await.unwrap();
        inn.write(&chat, "h").await;
        chats.push(chat);
    }
    assert_eq!(inn.stage.asked(), 4);
    inn.dispatch(&chats[0], started("t1")).await;
    inn.write(&chats[4], "he").await;
    assert_eq!(inn.stage.asked(), 5, "a used agent keeps its place");
}

#[tokio::test(start_paused = true)]
async fn draft_opens_no_agent_if_that_is_turned_off() {
    let inn = Inn::with(AgentLifetimes { prewarm: false, ..AgentLifetimes::default() }).await;
    let chat = inn.create("1").await.unwrap();
    inn.write(&chat, "h").await;
    assert_eq!(inn.stage.asked(), 0);
}

#[tokio::test(start_paused = true)]
async fn failed_restart_fails_the_message_with_its_cause_and_is_tried_again() {
    let inn = Inn::new().await;
    let (chat, mut player) = inn.after_turn().await;
    inn.dispatch(&chat, started("t2")).await;
    let Some(AgentCommand::Prompt { turn, message }) = player.waiting_command() else { panic!("no prompt") };
    inn.stage.fail_next_opening("The directory is gone.");
    let restart = Some("the changed working directories".to_owned());
    let unsent = Some(Box::new(TurnMessage { turn, message }));
    player.send(AgentEvent::Closed { history: History::Resume, unsent, restart }).await.unwrap();
    tokio::time::sleep(MOMENT).await;
    let shown = serde_json::to_string(&inn.chat(&chat).turns).unwrap();
    let expected = "Cannot restart Scripted for the changed working directories: The directory is gone.";
    assert!(shown.contains(expected), "{shown}");
    inn.dispatch(&chat, started("t3")).await;
    let mut next = inn.stage.player().await.unwrap();
    assert_eq!(next.prompt().await.unwrap().0, "t3");
}

#[tokio::test(start_paused = true)]
async fn draining_host_waits_for_turns_and_accepts_no_others() {
    let inn = Inn::new().await;
    let chat = inn.create("1").await.unwrap();
    let other = inn.create("2").await.unwrap();
    inn.dispatch(&chat, started("t1")).await;
    let mut player = inn.stage.player().await.unwrap();
    player.prompt().await.unwrap();
    let drained = inn.host.drain(Duration::from_secs(60));
    let during = async {
        tokio::time::sleep(MOMENT).await;
        inn.dispatch(&other, started("t1")).await;
        assert!(inn.chat(&other).active_turn.is_none(), "a turn started");
        assert!(matches!(inn.create("3").await, Err(CreateError::Closing)));
        let waiting = json!({
            "type": "chat/pendingMessageSet", "kind": "queued", "id": "q1",
            "message": {"text": "later", "origin": {"kind": "user"}},
        });
        inn.dispatch(&chat, waiting).await;
        inn.write(&other, "h").await;
        player.complete("t1").await.unwrap();
    };
    let begun = tokio::time::Instant::now();
    tokio::join!(drained, during);
    assert!(begun.elapsed() < Duration::from_secs(10), "waited although the turn was over");
    let state = inn.chat(&chat);
    assert!(state.active_turn.is_none() && state.queued_messages.is_some(), "{state:?}");
    assert_eq!(inn.stage.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn draining_host_stops_waiting_at_the_limit() {
    let inn = Inn::new().await;
    let chat = inn.create("1").await.unwrap();
    inn.dispatch(&chat, started("t1")).await;
    let begun = tokio::time::Instant::now();
    inn.host.drain(Duration::from_secs(60)).await;
    assert!((60..62).contains(&begun.elapsed().as_secs()));
    assert!(inn.chat(&chat).active_turn.is_some());
}
