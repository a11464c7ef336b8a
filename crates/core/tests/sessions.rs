//! Tests of sessions in a host with a scripted agent.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ahp_types::common::JsonObject;
use ahp_types::state::{ChatState, TurnState};
use innkeeper_core::agent::{
    AgentCommand, AgentConnection, AgentEvent, AgentFeatures, AgentOffer, AgentProvider, BoxFuture, History,
    OpenAgent, OpenError, ToolAnswer, TurnOutcome, plain_info,
};
use innkeeper_core::clock::SystemClock;
use innkeeper_core::host::NewSession;
use innkeeper_core::ids::ClientId;
use innkeeper_core::state::{Action, Origin, Outbox};
use innkeeper_core::storage::Nowhere;
use innkeeper_core::{
    AgentLifetimes, ChannelUri, EditConfig, Host, HostConfig, HostServices, PermissionConfig,
};
use serde_json::json;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

/// An agent provider controlled by the test.
#[derive(Default)]
struct AgentScript {
    opened: AtomicUsize,
    requests: Mutex<Vec<OpenAgent>>,
    /// One permit lets one `open` call continue.
    gate: Notify,
    /// The agent's ends of the opened links.
    opened_ends: Mutex<Vec<AgentEnd>>,
    entered: Notify,
}

/// The agent's end of a connection.
struct AgentEnd {
    commands: mpsc::Receiver<AgentCommand>,
    events: mpsc::Sender<AgentEvent>,
    close: CancellationToken,
}

struct Scripted(Arc<AgentScript>);

impl AgentProvider for Scripted {
    fn offer(&self) -> watch::Receiver<AgentOffer> {
        let offer = AgentOffer::new(plain_info("scripted", "Scripted"));
        watch::channel(AgentOffer { features: AgentFeatures::ALL, ..offer }).1
    }

    fn open(
        &self,
        request: OpenAgent,
        cancel: CancellationToken,
    ) -> BoxFuture<Result<AgentConnection, OpenError>> {
        let script = Arc::clone(&self.0);
        Box::pin(async move {
            script.opened.fetch_add(1, Ordering::SeqCst);
            script.requests.lock().unwrap().push(request);
            script.entered.notify_one();
            tokio::select! {
                () = cancel.cancelled() => return Err(OpenError::Cancelled),
                () = script.gate.notified() => {}
            }
            let (commands, orders) = mpsc::channel(16);
            let (reports, events) = mpsc::channel(16);
            let close = CancellationToken::new();
            let agent = AgentEnd { commands: orders, events: reports, close: close.clone() };
            script.opened_ends.lock().unwrap().push(agent);
            Ok(AgentConnection { commands, events, close })
        })
    }
}

struct TestHost {
    host: Arc<Host>,
    script: Arc<AgentScript>,
    outbox: Arc<Outbox>,
    origin: Origin,
    session: ChannelUri,
    chat: ChannelUri,
}

impl TestHost {
    async fn new() -> Self {
        let script = Arc::new(AgentScript::default());
        let providers: Vec<Arc<dyn AgentProvider>> = vec![Arc::new(Scripted(Arc::clone(&script)))];
        let host = Host::start(HostConfig {
            providers,
            clock: Arc::new(SystemClock),
            storage: Arc::new(Nowhere),
            permissions: PermissionConfig::default(),
            edits: EditConfig::none(),
            lifetimes: AgentLifetimes::default(),
            services: HostServices::default(),
        })
        .await
        .unwrap();
        let outbox = Arc::new(Outbox::default());
        let connection = host.store().attach(Arc::clone(&outbox));
        let session = ChannelUri::new("scripted:/1");
        let chat = ChannelUri::default_chat_of(&session);
        host.create_session(NewSession {
            uri: session.clone(),
            provider: None,
            working_directories: vec!["file:///w%20x".to_owned()],
            config: JsonObject::new(),
            active_client: None,
            creator: Some(ClientId::new("c1")),
        })
        .await
        .unwrap();
        let origin = Origin { connection, client: ClientId::new("c1"), client_seq: 1 };
        Self { host, script, outbox, origin, session, chat }
    }

    async fn dispatch(&self, action: serde_json::Value) {
        let action = Action::from_client(serde_json::value::to_raw_value(&action).unwrap()).unwrap();
        self.host.dispatch(self.chat.clone(), action, self.origin.clone()).await;
    }

    async fn say(&self, turn: &str) {
        self.dispatch(json!({
            "type": "chat/turnStarted", "turnId": turn, "startedAt": "2025-11-15T09:00:05.000Z",
            "message": {"text": "hello", "origin": {"kind": "user"}},
        }))
        .await;
    }

    async fn cancel(&self, turn: &str) {
        self.dispatch(json!({"type": "chat/turnCancelled", "turnId": turn, "duration": 1})).await;
    }

    fn chat(&self) -> ChatState {
        self.host.store().read(&self.chat, |state| state.chat_doc().unwrap().whole().unwrap()).unwrap()
    }

    /// Yields to other tasks until the published chat satisfies `holds`.
    async fn until(&self, what: &str, holds: impl Fn(&ChatState) -> bool) {
        for _ in 0..10_000 {
            if holds(&self.chat()) {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("timed out waiting until {what}: {:?}", self.chat());
    }

    async fn agent(&self) -> AgentEnd {
        for _ in 0..10_000 {
            if let Some(agent) = self.script.opened_ends.lock().unwrap().pop() {
                return agent;
            }
            tokio::task::yield_now().await;
        }
        panic!("no agent was opened");
    }
}

fn ended(turn: &str, outcome: TurnOutcome) -> AgentEvent {
    AgentEvent::TurnEnded { turn: innkeeper_core::ids::TurnId::new(turn), outcome }
}

#[tokio::test]
async fn agent_is_opened_by_first_message_and_reused_by_second() {
    let test = TestHost::new().await;
    assert_eq!(test.script.opened.load(Ordering::SeqCst), 0, "creating a session does not open an agent");
    assert!(test.host.list_sessions(None, None).rows.is_empty());
    test.say("t1").await;
    test.say("too early").await;
    test.script.gate.notify_one();
    let mut agent = test.agent().await;
    let Some(AgentCommand::Prompt { turn, .. }) = agent.commands.recv().await else { panic!("no prompt") };
    assert_eq!(turn.as_str(), "t1");
    agent.events.send(ended("t1", TurnOutcome::Completed)).await.unwrap();
    test.until("the turn ended", |chat| chat.turns.len() == 1).await;
    test.say("t2").await;
    let Some(AgentCommand::Prompt { turn, .. }) = agent.commands.recv().await else { panic!("no prompt") };
    assert_eq!(turn.as_str(), "t2");
    assert_eq!(test.script.opened.load(Ordering::SeqCst), 1);
    assert_eq!(test.host.list_sessions(None, None).rows.len(), 1);
    let directory = test.script.requests.lock().unwrap()[0].working_directories.clone();
    assert_eq!(directory, [PathBuf::from("/w x")], "the directory URI is decoded");
}

#[tokio::test]
async fn message_cancelled_during_opening_is_not_sent_to_agent() {
    let test = TestHost::new().await;
    test.say("t1").await;
    test.script.entered.notified().await;
    test.cancel("t1").await;
    test.until("the turn is cancelled", |chat| chat.turns.len() == 1).await;
    test.say("t2").await;
    test.script.gate.notify_one();
    let mut agent = test.agent().await;
    let Some(AgentCommand::Prompt { turn, .. }) = agent.commands.recv().await else { panic!("no prompt") };
    assert_eq!(turn.as_str(), "t2", "only the message that was not cancelled");
    assert_eq!(test.chat().turns[0].state, TurnState::Cancelled);
}

#[tokio::test]
async fn dispose_during_opening_cancels_opening() {
    let test = TestHost::new().await;
    test.say("t1").await;
    test.script.entered.notified().await;
    test.host.dispose_session(&test.session).await.unwrap().wait().await.unwrap();
    assert!(test.script.opened_ends.lock().unwrap().is_empty());
    assert!(test.host.store().read(&test.chat, |_| ()).is_none());
    assert!(test.host.dispose_session(&test.session).await.is_err());
}

#[tokio::test]
async fn dispose_waits_for_agent_to_exit() {
    let test = TestHost::new().await;
    test.say("t1").await;
    test.script.gate.notify_one();
    let agent = test.agent().await;
    let dispose = async { test.host.dispose_session(&test.session).await.unwrap().wait().await };
    let exit = async {
        agent.close.cancelled().await;
        assert!(
            test.host.store().read(&test.session, |_| ()).is_some(),
            "the session exists until the agent has exited"
        );
        agent
            .events
            .send(AgentEvent::Closed { history: History::Resume, unsent: None, restart: None })
            .await
            .unwrap();
    };
    tokio::join!(dispose, exit).0.unwrap();
    assert!(test.host.store().read(&test.session, |_| ()).is_none());
    assert!(test.host.list_sessions(None, None).rows.is_empty());
}

#[tokio::test]
async fn turn_fails_when_agent_exits_and_resume_reopens_agent() {
    let test = TestHost::new().await;
    test.say("t1").await;
    test.script.gate.notify_one();
    drop(test.agent().await);
    test.until("the turn has failed", |chat| chat.turns.len() == 1).await;
    assert_eq!(test.chat().turns[0].state, TurnState::Error);
    test.say("t2").await;
    test.script.gate.notify_one();
    test.agent().await;
    let histories: Vec<History> =
        test.script.requests.lock().unwrap().iter().map(|request| request.history.clone()).collect();
    assert_eq!(histories, [History::Fresh, History::Resume]);
    assert_eq!(test.host.list_sessions(None, None).rows.len(), 1, "announced once");
}

#[tokio::test]
async fn shutdown_closes_agents_and_rejects_new_sessions() {
    let test = TestHost::new().await;
    test.say("t1").await;
    test.script.gate.notify_one();
    let agent = test.agent().await;
    let exit = async {
        agent.close.cancelled().await;
        agent
            .events
            .send(AgentEvent::Closed { history: History::Resume, unsent: None, restart: None })
            .await
            .unwrap();
    };
    tokio::join!(test.host.shutdown(), exit);
    let rejected = test.host.create_session(NewSession {
        uri: ChannelUri::new("scripted:/2"),
        provider: None,
        working_directories: Vec::new(),
        config: JsonObject::new(),
        active_client: None,
        creator: None,
    });
    assert!(rejected.await.is_err());
    while let Ok(frames) = test.outbox.next_batch().await {
        assert!(!frames.is_empty());
    }
}

#[tokio::test]
async fn shutdown_closes_sessions_in_every_state_and_is_idempotent() {
    let test = TestHost::new().await;
    test.say("t1").await;
    test.script.gate.notify_one();
    let live = test.agent().await;
    let more = ["scripted:/opening", "scripted:/provisional"].map(ChannelUri::new);
    for uri in &more {
        let session = NewSession {
            uri: uri.clone(),
            provider: None,
            working_directories: Vec::new(),
            config: JsonObject::new(),
            active_client: None,
            creator: Some(ClientId::new("c1")),
        };
        test.host.create_session(session).await.unwrap();
    }
    let started = json!({
        "type": "chat/turnStarted", "turnId": "t2", "startedAt": "2025-11-15T09:00:05.000Z",
        "message": {"text": "hello", "origin": {"kind": "user"}},
    });
    let started = Action::from_client(serde_json::value::to_raw_value(&started).unwrap()).unwrap();
    let origin = Origin { client_seq: 2, ..test.origin.clone() };
    test.host.dispatch(ChannelUri::default_chat_of(&more[0]), started, origin).await;
    while test.script.opened.load(Ordering::SeqCst) < 2 {
        tokio::task::yield_now().await;
    }
    let exit = async {
        live.close.cancelled().await;
        tokio::task::yield_now().await;
        live.events
            .send(AgentEvent::Closed { history: History::Resume, unsent: None, restart: None })
            .await
            .unwrap();
    };
    let both = async { tokio::join!(test.host.shutdown(), test.host.shutdown(), exit) };
    tokio::time::timeout(std::time::Duration::from_secs(30), both).await.unwrap();
    assert!(live.events.is_closed(), "the session dropped its connection to the agent");
    assert_eq!(test.script.opened.load(Ordering::SeqCst), 2, "the provisional session did not open an agent");
    assert!(test.script.opened_ends.lock().unwrap().is_empty(), "the opening was cancelled");
    tokio::time::timeout(std::time::Duration::from_secs(1), test.host.shutdown()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn unused_session_is_removed_after_its_creator_disconnects() {
    let test = TestHost::new().await;
    let exists = || test.host.store().read(&test.session, |_| ()).is_some();
    let connection = test.origin.connection;
    let introduced = test.host.store().introduce(connection, &ClientId::new("c1"), &[], |_, _| {
        innkeeper_core::state::Frame::encode(&"hello")
    });
    introduced.unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(3600)).await;
    assert!(exists(), "its creator is connected");
    test.host.store().detach(connection);
    tokio::time::sleep(std::time::Duration::from_secs(4 * 60)).await;
    assert!(exists(), "the creator may reconnect");
    tokio::time::sleep(std::time::Duration::from_secs(3 * 60)).await;
    assert!(!exists());
    assert!(test.host.dispose_session(&test.session).await.is_err());
}

/// A session with a running turn, in which client `c1` runs a tool.
async fn running_client_tool() -> (TestHost, AgentEnd) {
    let test = TestHost::new().await;
    let introduced = test.host.store().introduce(test.origin.connection, &test.origin.client, &[], |_, _| {
        innkeeper_core::state::Frame::encode(&"hello")
    });
    introduced.unwrap();
    let active = json!({"type": "session/activeClientSet", "activeClient": {"clientId": "c1", "tools": []}});
    let active = Action::from_client(serde_json::value::to_raw_value(&active).unwrap()).unwrap();
    test.host.dispatch(test.session.clone(), active, test.origin.clone()).await;
    test.say("t1").await;
    test.script.gate.notify_one();
    let mut agent = test.agent().await;
    assert!(matches!(agent.commands.recv().await, Some(AgentCommand::Prompt { .. })));
    for action in [
        json!({
            "type": "chat/toolCallStart", "turnId": "t1", "toolCallId": "k1", "toolName": "usages",
            "displayName": "Usages", "contributor": {"kind": "client", "clientId": "c1"},
        }),
        json!({
            "type": "chat/toolCallReady", "turnId": "t1", "toolCallId": "k1", "invocationMessage": "x",
            "confirmed": "not-needed",
        }),
    ] {
        let action = Box::new(serde_json::from_value(action).unwrap());
        agent.events.send(AgentEvent::Action(action)).await.unwrap();
    }
    test.until("the tool runs", |chat| tool_status(chat) == "running").await;
    (test, agent)
}

fn tool_status(chat: &ChatState) -> String {
    let active = json!(chat.active_turn);
    let status = active.pointer("/responseParts/0/toolCall/status");
    status.and_then(|status| status.as_str()).unwrap_or_default().to_owned()
}

fn disconnect(test: &TestHost) {
    test.host.store().detach(test.origin.connection);
    test.host.disconnected(&test.origin.client);
}

#[tokio::test(start_paused = true)]
async fn tools_fail_when_client_does_not_reconnect() {
    let (test, mut agent) = running_client_tool().await;
    disconnect(&test);
    tokio::time::sleep(std::time::Duration::from_secs(29)).await;
    assert_eq!(tool_status(&test.chat()), "running", "the client may reconnect");
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(tool_status(&test.chat()), "completed");
    let Some(AgentCommand::ToolAnswer { tool_call, answer: ToolAnswer::Completed(result), .. }) =
        agent.commands.recv().await
    else {
        panic!("the agent did not receive the answer")
    };
    assert_eq!((tool_call.as_str(), result.success), ("k1", false));
    let clients = test
        .host
        .store()
        .read(&test.session, |state| state.session().map(|session| session.active_clients.len()));
    assert_eq!(clients, Some(Some(0)));
}

#[tokio::test(start_paused = true)]
async fn tools_continue_when_client_reconnects_in_time() {
    let (test, mut agent) = running_client_tool().await;
    disconnect(&test);
    tokio::time::sleep(std::time::Duration::from_secs(20)).await;
    let connection = test.host.store().attach(Arc::new(Outbox::default()));
    let channels = std::slice::from_ref(&test.session);
    let introduced = test.host.store().introduce(connection, &test.origin.client, channels, |_, _| {
        innkeeper_core::state::Frame::encode(&"hello")
    });
    introduced.unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert_eq!(tool_status(&test.chat()), "running");
    assert!(agent.commands.try_recv().is_err());
}
