//! The official client with a mirror: every envelope is folded with the official
//! reducers, so that a test can compare the result with a fresh snapshot.

use std::collections::BTreeMap;
use std::time::Duration;

use ahp::reducers::{apply_action_to_chat, apply_action_to_root, apply_action_to_session};
use ahp::{Client, ClientConfig, ClientEvent, ClientEventStream, SubscriptionEvent};
use ahp_types::actions::{ActionEnvelope, StateAction};
use ahp_types::commands::{
    CreateSessionParams, DisposeSessionParams, ListSessionsParams, ListSessionsResult, ReconnectResult,
};
use ahp_types::common::ROOT_RESOURCE_URI;
use ahp_types::state::{
    ChatState, ResponsePart, RootState, SessionState, SessionSummary, Snapshot, SnapshotState,
};
use ahp_ws::WebSocketTransport;
use anyhow::{Context as _, Result, bail};
use futures_util::FutureExt as _;
use serde_json::{Value, json};

/// How long a test waits for what it expects, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Events that the official client keeps for a test; it skips what it cannot keep,
/// so this is more than any test makes before it looks.
const EVENT_BUFFER: usize = 65_536;

/// The same for tests that look often. The client makes room for all of them with
/// every subscription, which takes long.
const SMALL_EVENT_BUFFER: usize = 2_048;

/// Something that the host told the client, in order.
#[derive(Clone, Debug)]
pub enum Seen {
    /// An action on a channel.
    Action(Box<ActionEnvelope>),
    /// A session came into the list.
    SessionAdded(String),
    /// A session left the list.
    SessionRemoved(String),
    /// A session's row changed.
    SummaryChanged(String),
}

/// An official client and what it knows.
pub struct Observer {
    /// The client itself.
    pub client: Client,
    /// The protocols that it speaks.
    versions: Vec<String>,
    events: ClientEventStream,
    states: BTreeMap<String, (u64, SnapshotState)>,
    /// The rows of the list, folded from the notifications.
    pub rows: BTreeMap<String, SessionSummary>,
    /// Everything that was seen, in order.
    pub seen: Vec<Seen>,
    /// The number of the last envelope, which the next one must exceed.
    last_seq: u64,
    /// What it got when it came back last.
    pub came_back: Option<CameBack>,
    /// What the host did that it must never do.
    violation: Option<String>,
}

/// What a client got that came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CameBack {
    /// What it had missed.
    Replay,
    /// Everything as it is.
    Snapshots,
    /// Everything as it is, after it had introduced itself again.
    Anew,
}

impl std::fmt::Debug for Observer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Observer").field("seen", &self.seen.len()).finish_non_exhaustive()
    }
}

impl Observer {
    /// Connects and subscribes to the root channel.
    pub async fn connect(address: &str, client_id: &str) -> Result<Self> {
        Self::connect_as(address, client_id, &["1.0.0", "0.9.0"]).await
    }

    /// The same with chosen protocol versions.
    pub async fn connect_as(address: &str, client_id: &str, versions: &[&str]) -> Result<Self> {
        Self::connect_with(address, client_id, versions, EVENT_BUFFER).await
    }

    /// The same for a test that looks often, and so needs to keep little.
    pub async fn connect_small(address: &str, client_id: &str, versions: &[&str]) -> Result<Self> {
        Self::connect_with(address, client_id, versions, SMALL_EVENT_BUFFER).await
    }

    async fn connect_with(
        address: &str,
        client_id: &str,
        versions: &[&str],
        subscription_buffer: usize,
    ) -> Result<Self> {
        let transport = WebSocketTransport::connect(address).await?;
        let config = ClientConfig { subscription_buffer, ..ClientConfig::default() };
        let client = Client::connect(transport, config).await?;
        let events = client.events();
        let versions: Vec<String> = versions.iter().map(|version| (*version).to_owned()).collect();
        let subscriptions = vec![ROOT_RESOURCE_URI.to_owned()];
        let result = client.initialize(client_id.to_owned(), versions.clone(), subscriptions).await?;
        let mut observer = Self {
            client,
            versions,
            events,
            states: BTreeMap::new(),
            rows: BTreeMap::new(),
            seen: Vec::new(),
            last_seq: 0,
            came_back: None,
            violation: None,
        };
        for snapshot in result.snapshots {
            observer.take_snapshot(snapshot)?;
        }
        Ok(observer)
    }

    /// Comes back over a new connection, to the channels that it had. What it missed is
    /// folded like everything else; rows are asked for, since they are not replayed. A
    /// host that does not know it any more is introduced to it again.
    pub async fn reconnect(&mut self, address: &str, client_id: &str) -> Result<()> {
        let transport = WebSocketTransport::connect(address).await?;
        let config = ClientConfig { subscription_buffer: SMALL_EVENT_BUFFER, ..ClientConfig::default() };
        self.client = Client::connect(transport, config).await?;
        self.events = self.client.events();
        let channels: Vec<String> = self.states.keys().cloned().collect();
        let (name, seen) = (client_id.to_owned(), i64::try_from(self.last_seq)?);
        let result = self.client.reconnect(name.clone(), seen, channels.clone()).await;
        self.came_back = Some(match &result {
            Ok(ReconnectResult::Replay(_)) => CameBack::Replay,
            Ok(ReconnectResult::Snapshot(_)) => CameBack::Snapshots,
            Err(_) => CameBack::Anew,
        });
        match result {
            Ok(ReconnectResult::Replay(replay)) => {
                for envelope in replay.actions {
                    self.take_action(envelope);
                }
                self.states.retain(|channel, _| !replay.missing.contains(channel));
            }
            Ok(ReconnectResult::Snapshot(result)) => self.take_snapshots(result.snapshots)?,
            Err(_) => {
                let result = self.client.initialize(name, self.versions.clone(), channels).await?;
                self.last_seq = 0;
                self.take_snapshots(result.snapshots)?;
            }
        }
        let rows = self.list_sessions().await?;
        self.rows = rows.into_iter().map(|row| (row.resource.clone(), row)).collect();
        self.no_violation()
    }

    /// The number of the last envelope that came.
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// Creates a session of the `claude` provider.
    pub async fn create_session(&self, session: &str, working_directory: &str) -> Result<()> {
        let params = CreateSessionParams {
            channel: session.to_owned(),
            meta: None,
            provider: Some("claude".to_owned()),
            working_directories: Some(vec![working_directory.to_owned()]),
            config: None,
            active_client: None,
            progress_token: None,
        };
        Ok(self.client.request("createSession", params).await?)
    }

    /// Disposes a session.
    pub async fn dispose_session(&self, session: &str) -> Result<()> {
        let params = DisposeSessionParams { channel: session.to_owned(), meta: None };
        Ok(self.client.request("disposeSession", params).await?)
    }

    /// Creates a session of the host's first provider.
    pub async fn create(&self, session: &str, working_directories: &[&str]) -> Result<()> {
        let directories: Vec<String> = working_directories.iter().map(|uri| (*uri).to_owned()).collect();
        let params = CreateSessionParams {
            channel: session.to_owned(),
            meta: None,
            provider: None,
            working_directories: (!directories.is_empty()).then_some(directories),
            config: None,
            active_client: None,
            progress_token: None,
        };
        Ok(self.client.request("createSession", params).await?)
    }

    /// The session list.
    pub async fn list_sessions(&self) -> Result<Vec<SessionSummary>> {
        let params = ListSessionsParams {
            channel: ROOT_RESOURCE_URI.to_owned(),
            meta: None,
            limit: None,
            cursor: None,
        };
        let result: ListSessionsResult = self.client.request("listSessions", params).await?;
        Ok(result.items)
    }

    /// Subscribes and starts to mirror a channel.
    pub async fn subscribe(&mut self, channel: &str) -> Result<()> {
        let (result, _) = self.client.subscribe(channel.to_owned()).await?;
        self.take_snapshot(result.snapshot.context("no snapshot")?)
    }

    /// Subscribes to a session and to its default chat; answers the chat.
    pub async fn open_session(&mut self, session: &str) -> Result<String> {
        self.subscribe(session).await?;
        let chat = self.session(session)?.default_chat.clone().context("no default chat")?;
        self.subscribe(&chat).await?;
        Ok(chat)
    }

    /// Starts a turn with a message of the user's.
    pub async fn say(&self, chat: &str, turn: &str, text: &str) -> Result<i64> {
        let action = json!({
            "type": "chat/turnStarted", "turnId": turn, "startedAt": "2026-11-15T09:00:05.000Z",
            "message": {"text": text, "origin": {"kind": "user"}},
        });
        self.dispatch(chat, action).await
    }

    /// Dispatches an action; answers its number.
    pub async fn dispatch(&self, channel: &str, action: Value) -> Result<i64> {
        let action: StateAction = serde_json::from_value(action)?;
        Ok(self.client.dispatch(channel.to_owned(), action).await?.client_seq)
    }

    /// Takes what the host says until a condition holds.
    pub async fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) -> Result<()> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while !holds(self) {
            let event = tokio::time::timeout_at(deadline, self.events.recv())
                .await
                .with_context(|| format!("waited in vain: {what}; last seen {:?}", self.seen.last()))?;
            self.take(event.with_context(|| format!("the connection ended: {what}"))?);
        }
        self.no_violation()
    }

    /// Takes everything that the host has said so far: what it queued for this client
    /// before it answers a request. After this, what was not seen was not said.
    pub async fn settle(&mut self) -> Result<()> {
        // Not a ping, which is answered beside the order of everything else.
        let params = ListSessionsParams {
            channel: ROOT_RESOURCE_URI.to_owned(),
            meta: None,
            limit: Some(1),
            cursor: None,
        };
        drop(self.client.request::<_, ListSessionsResult>("listSessions", params).await?);
        // Without tokio's budget, which lets a channel look empty after some hundred events.
        while let Some(event) = tokio::task::unconstrained(self.events.recv()).now_or_never() {
            self.take(event.context("the connection ended")?);
        }
        self.no_violation()
    }

    fn no_violation(&self) -> Result<()> {
        match &self.violation {
            Some(violation) => bail!("the host broke the protocol: {violation}"),
            None => Ok(()),
        }
    }

    /// Takes what the host says until a turn is over.
    pub async fn until_turn_over(&mut self, chat: &str, turn: &str) -> Result<()> {
        let over = |observer: &Self| {
            observer.chat(chat).is_ok_and(|state| state.turns.iter().any(|past| past.id == turn))
        };
        self.until(&format!("turn {turn} is over"), over).await
    }

    /// Compares the mirror of every channel with a fresh client's snapshot. The
    /// mirror may be behind, so it takes what is on its way until both agree.
    pub async fn agrees_with_a_fresh_client(&mut self, address: &str) -> Result<()> {
        let channels: Vec<String> = self.states.keys().cloned().collect();
        let mut fresh = Self::connect(address, "fresh").await?;
        for channel in channels {
            fresh.subscribe(&channel).await?;
            let wanted = fresh.states.get(&channel).map(|(_, state)| state.clone()).context("no snapshot")?;
            let agrees =
                |observer: &Self| observer.states.get(&channel).is_some_and(|(_, state)| *state == wanted);
            self.until(&format!("the mirror of {channel} equals {wanted:?}"), agrees).await?;
        }
        fresh.client.shutdown().await;
        Ok(())
    }

    /// The mirror of any channel.
    pub fn state(&self, channel: &str) -> Option<&SnapshotState> {
        self.states.get(channel).map(|(_, state)| state)
    }

    /// The envelopes that answer a dispatch: one, if the host does what it must.
    pub fn answers(&self, client_id: &str, client_seq: i64) -> Vec<&ActionEnvelope> {
        let envelopes = self.seen.iter().filter_map(|seen| match seen {
            Seen::Action(envelope) => Some(envelope.as_ref()),
            Seen::SessionAdded(_) | Seen::SessionRemoved(_) | Seen::SummaryChanged(_) => None,
        });
        envelopes
            .filter(|envelope| {
                envelope
                    .origin
                    .as_ref()
                    .is_some_and(|origin| origin.client_id == client_id && origin.client_seq == client_seq)
            })
            .collect()
    }

    /// The mirror of a chat.
    pub fn chat(&self, channel: &str) -> Result<&ChatState> {
        match self.states.get(channel) {
            Some((_, SnapshotState::Chat(state))) => Ok(state),
            _ => bail!("{channel} is no chat that is mirrored"),
        }
    }

    /// The words of the running turn.
    pub fn text_so_far(&self, channel: &str) -> Result<String> {
        let active = self.chat(channel)?.active_turn.as_ref().context("no turn is running")?;
        let words = active.response_parts.iter().filter_map(|part| match part {
            ResponsePart::Markdown(part) => Some(part.content.as_str()),
            _ => None,
        });
        Ok(words.collect())
    }

    /// The mirror of a session.
    pub fn session(&self, channel: &str) -> Result<&SessionState> {
        match self.states.get(channel) {
            Some((_, SnapshotState::Session(state))) => Ok(state),
            _ => bail!("{channel} is no session that is mirrored"),
        }
    }

    /// The mirror of the root.
    pub fn root(&self) -> Result<&RootState> {
        match self.states.get(ROOT_RESOURCE_URI) {
            Some((_, SnapshotState::Root(state))) => Ok(state),
            _ => bail!("the root is not mirrored"),
        }
    }

    /// The actions seen on a channel, by their names on the wire, in order.
    pub fn actions(&self, channel: &str) -> Result<Vec<String>> {
        let of_channel = self.seen.iter().filter_map(|seen| match seen {
            Seen::Action(envelope) if envelope.channel == channel => Some(&envelope.action),
            Seen::Action(_) | Seen::SessionAdded(_) | Seen::SessionRemoved(_) | Seen::SummaryChanged(_) => {
                None
            }
        });
        of_channel
            .map(|action| {
                let value = serde_json::to_value(action)?;
                Ok(value["type"].as_str().context("an action without a type")?.to_owned())
            })
            .collect()
    }

    fn take_snapshot(&mut self, snapshot: Snapshot) -> Result<()> {
        let seq = u64::try_from(snapshot.from_seq)?;
        self.states.insert(snapshot.resource, (seq, snapshot.state));
        Ok(())
    }

    /// Takes the place of everything that was mirrored: what is not there is gone.
    fn take_snapshots(&mut self, snapshots: Vec<Snapshot>) -> Result<()> {
        self.states.clear();
        for snapshot in snapshots {
            self.take_snapshot(snapshot)?;
        }
        Ok(())
    }

    fn take_action(&mut self, envelope: ActionEnvelope) {
        if envelope.server_seq <= self.last_seq {
            let (seq, last) = (envelope.server_seq, self.last_seq);
            self.violation.get_or_insert(format!("envelope {seq} came after {last}"));
        }
        self.last_seq = envelope.server_seq;
        self.fold(&envelope);
        self.seen.push(Seen::Action(Box::new(envelope)));
    }

    fn take(&mut self, event: ClientEvent) {
        match event.event {
            SubscriptionEvent::Action(envelope) => self.take_action(envelope),
            SubscriptionEvent::SessionAdded(added) => {
                self.seen.push(Seen::SessionAdded(added.summary.resource.clone()));
                self.rows.insert(added.summary.resource.clone(), added.summary);
            }
            SubscriptionEvent::SessionRemoved(removed) => {
                self.rows.remove(&removed.session);
                self.seen.push(Seen::SessionRemoved(removed.session));
            }
            SubscriptionEvent::SessionSummaryChanged(changed) => {
                if let Some(row) = self.rows.get_mut(&changed.session) {
                    row.title = changed.changes.title.unwrap_or_else(|| row.title.clone());
                    row.status = changed.changes.status.unwrap_or(row.status);
                    row.modified_at = changed.changes.modified_at.unwrap_or_else(|| row.modified_at.clone());
                    row.chats = changed.changes.chats.or_else(|| row.chats.take());
                    let directories = changed.changes.working_directories;
                    row.working_directories = directories.or_else(|| row.working_directories.take());
                }
                self.seen.push(Seen::SummaryChanged(changed.session));
            }
            _ => {}
        }
    }

    fn fold(&mut self, envelope: &ActionEnvelope) {
        if envelope.rejection_reason.is_some() {
            return;
        }
        let Some((seq, state)) = self.states.get_mut(&envelope.channel) else { return };
        // What the snapshot holds already came before it.
        if envelope.server_seq <= *seq {
            return;
        }
        *seq = envelope.server_seq;
        match state {
            SnapshotState::Root(state) => apply_action_to_root(state, &envelope.action),
            SnapshotState::Session(state) => apply_action_to_session(state, &envelope.action),
            SnapshotState::Chat(state) => apply_action_to_chat(state, &envelope.action),
            _ => return,
        };
    }
}
