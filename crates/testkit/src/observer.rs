//! The official client with a mirror: every envelope is applied with the official
//! reducers, so that a test can compare the result with a fresh snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ahp::reducers::{
    apply_action_to_changeset, apply_action_to_chat, apply_action_to_root, apply_action_to_session,
};
use ahp::{Client, ClientConfig, ClientEvent, ClientEventStream, SubscriptionEvent};
use ahp_types::actions::{ActionEnvelope, StateAction};
use ahp_types::commands::{
    ContentEncoding, CreateSessionParams, DisposeSessionParams, ListSessionsParams, ListSessionsResult,
    ReconnectResult, ResourceReadResult,
};
use ahp_types::common::ROOT_RESOURCE_URI;
use ahp_types::messages::JsonRpcError;
use ahp_types::state::{
    ChangesetState, ChatState, ResponsePart, RootState, SessionState, SessionSummary, Snapshot, SnapshotState,
};
use ahp_ws::WebSocketTransport;
use anyhow::{Context as _, Result, bail};
use futures_util::FutureExt as _;
use serde_json::{Value, json};

use crate::session_status;

/// Timeout for expected events, generous for busy machines.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Event buffer of the official client. The client drops events that do not fit, so this
/// exceeds what any test produces between two reads.
const EVENT_BUFFER: usize = 65_536;

/// Event buffer for tests that read often. The client allocates the whole buffer per
/// subscription, which is slow for the large one.
const SMALL_EVENT_BUFFER: usize = 2_048;

/// A message from the host.
#[derive(Clone, Debug)]
pub enum Seen {
    /// An action on a channel.
    Action(Box<ActionEnvelope>),
    /// A session was added to the list.
    SessionAdded(String),
    /// A session was removed from the list.
    SessionRemoved(String),
    /// A session's summary changed.
    SummaryChanged(String),
}

/// An official client and the state it received.
pub struct Observer {
    /// The client.
    pub client: Client,
    /// Offered protocol versions.
    versions: Vec<String>,
    events: ClientEventStream,
    states: BTreeMap<String, (u64, SnapshotState)>,
    /// The session list, updated from notifications.
    pub rows: BTreeMap<String, SessionSummary>,
    /// All received messages, in order.
    pub seen: Vec<Seen>,
    /// Sequence number of the last envelope; the next one must be greater.
    last_seq: u64,
    /// What the host sent on the last reconnect.
    pub came_back: Option<CameBack>,
    /// The first protocol violation of the host.
    violation: Option<String>,
}

/// What the host sent to a client that reconnected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CameBack {
    /// The missed actions.
    Replay,
    /// Snapshots.
    Snapshots,
    /// Snapshots, after `reconnect` failed and the client sent `initialize`.
    Initialized,
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

    /// Connects with these protocol versions.
    pub async fn connect_as(address: &str, client_id: &str, versions: &[&str]) -> Result<Self> {
        Self::connect_with(address, client_id, versions, EVENT_BUFFER).await
    }

    /// Connects with a small event buffer, for tests that read often.
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

    /// Reconnects to the subscribed channels over a new connection. Replayed actions are
    /// applied like others; the session list is requested, since it is not replayed. If
    /// the host does not know the client, sends `initialize`.
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
            Err(_) => CameBack::Initialized,
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

    /// Answers the host's requests for these files, given as URI, data and encoding. All others do not exist.
    pub fn serve_files(&self, files: &[(&str, &str, ContentEncoding)]) {
        let file = |&(uri, data, encoding): &(&str, &str, ContentEncoding)| {
            let content = ResourceReadResult { data: data.to_owned(), encoding, content_type: None };
            (uri.to_owned(), content)
        };
        let files: Arc<BTreeMap<String, ResourceReadResult>> = Arc::new(files.iter().map(file).collect());
        let handlers = ahp::ResourceRequestHandlers::new().on_resource_read(move |params| {
            let found = files.get(&params.uri).cloned();
            let missing = JsonRpcError { code: -32008, message: "no such file".to_owned(), data: None };
            async move { found.ok_or(missing) }
        });
        self.client.set_resource_request_handlers(handlers);
    }

    /// Sequence number of the last envelope.
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// Creates a session with the `claude` provider.
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

    /// Creates a session with the host's first provider.
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

    /// Requests the session list.
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

    /// Subscribes to a channel and mirrors it.
    pub async fn subscribe(&mut self, channel: &str) -> Result<()> {
        let (result, _) = self.client.subscribe(channel.to_owned()).await?;
        self.take_snapshot(result.snapshot.context("no snapshot in the response")?)
    }

    /// Subscribes to a session and its default chat; returns the chat.
    pub async fn open_session(&mut self, session: &str) -> Result<String> {
        self.subscribe(session).await?;
        let chat = self.session(session)?.default_chat.clone().context("no default chat")?;
        self.subscribe(&chat).await?;
        Ok(chat)
    }

    /// Starts a turn with a user message.
    pub async fn say(&self, chat: &str, turn: &str, text: &str) -> Result<i64> {
        let action = json!({
            "type": "chat/turnStarted", "turnId": turn, "startedAt": "2025-11-15T09:00:05.000Z",
            "message": {"text": text, "origin": {"kind": "user"}},
        });
        self.dispatch(chat, action).await
    }

    /// Dispatches an action; returns its client sequence number.
    pub async fn dispatch(&self, channel: &str, action: Value) -> Result<i64> {
        let action: StateAction = serde_json::from_value(action)?;
        Ok(self.client.dispatch(channel.to_owned(), action).await?.client_seq)
    }

    /// Processes messages until a condition holds.
    pub async fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) -> Result<()> {
        let deadline = tokio::time::Instant::now() + TIMEOUT;
        while !holds(self) {
            let event = tokio::time::timeout_at(deadline, self.events.recv()).await.with_context(|| {
                format!("timed out waiting for: {what}; last message {:?}", self.seen.last())
            })?;
            self.take(event.with_context(|| format!("the connection closed while waiting for: {what}"))?);
        }
        self.no_violation()
    }

    /// Processes messages until a point in time.
    pub async fn follow(&mut self, until: tokio::time::Instant) -> Result<()> {
        while let Ok(event) = tokio::time::timeout_at(until, self.events.recv()).await {
            self.take(event.context("the connection closed")?);
        }
        self.no_violation()
    }

    /// Processes all messages that the host has sent so far: the messages queued for this
    /// client before the response to a request. Afterwards, a message not in `seen` was
    /// not sent.
    pub async fn settle(&mut self) -> Result<()> {
        // Not `ping`: its response is not ordered with other messages.
        let params = ListSessionsParams {
            channel: ROOT_RESOURCE_URI.to_owned(),
            meta: None,
            limit: Some(1),
            cursor: None,
        };
        drop(self.client.request::<_, ListSessionsResult>("listSessions", params).await?);
        // Tokio's cooperative budget would make the channel appear empty after a few
        // hundred events.
        while let Some(event) = tokio::task::unconstrained(self.events.recv()).now_or_never() {
            self.take(event.context("the connection closed")?);
        }
        self.no_violation()
    }

    fn no_violation(&self) -> Result<()> {
        match &self.violation {
            Some(violation) => bail!("the host violated the protocol: {violation}"),
            None => Ok(()),
        }
    }

    /// Processes messages until a turn ends.
    pub async fn until_turn_over(&mut self, chat: &str, turn: &str) -> Result<()> {
        let over = |observer: &Self| {
            observer.chat(chat).is_ok_and(|state| state.turns.iter().any(|past| past.id == turn))
        };
        self.until(&format!("end of turn {turn}"), over).await
    }

    /// Checks that the mirror of every channel equals a fresh client's snapshot. The
    /// mirror may lag, so it processes messages until both are equal.
    pub async fn agrees_with_a_fresh_client(&mut self, address: &str) -> Result<()> {
        let channels: Vec<String> = self.states.keys().cloned().collect();
        let mut fresh = Self::connect(address, "fresh").await?;
        for channel in channels {
            fresh.subscribe(&channel).await?;
            let wanted = fresh.states.get(&channel).map(|(_, state)| state.clone()).context("no snapshot")?;
            let agrees =
                |observer: &Self| observer.states.get(&channel).is_some_and(|(_, state)| *state == wanted);
            self.until(&format!("mirror of {channel} to equal {wanted:?}"), agrees).await?;
        }
        fresh.client.shutdown().await;
        Ok(())
    }

    /// The mirrored state of a channel.
    pub fn state(&self, channel: &str) -> Option<&SnapshotState> {
        self.states.get(channel).map(|(_, state)| state)
    }

    /// The envelopes that answer a dispatch; a correct host sends exactly one.
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

    /// The mirrored state of a chat.
    pub fn chat(&self, channel: &str) -> Result<&ChatState> {
        match self.states.get(channel) {
            Some((_, SnapshotState::Chat(state))) => Ok(state),
            _ => bail!("{channel} is not a mirrored chat"),
        }
    }

    /// The text of the running turn.
    pub fn text_so_far(&self, channel: &str) -> Result<String> {
        let active = self.chat(channel)?.active_turn.as_ref().context("no turn is running")?;
        let words = active.response_parts.iter().filter_map(|part| match part {
            ResponsePart::Markdown(part) => Some(part.content.as_str()),
            _ => None,
        });
        Ok(words.collect())
    }

    /// The mirrored state of a session.
    pub fn session(&self, channel: &str) -> Result<&SessionState> {
        match self.states.get(channel) {
            Some((_, SnapshotState::Session(state))) => Ok(state),
            _ => bail!("{channel} is not a mirrored session"),
        }
    }

    /// The mirrored state of a changeset.
    pub fn changeset(&self, channel: &str) -> Result<&ChangesetState> {
        match self.states.get(channel) {
            Some((_, SnapshotState::Changeset(state))) => Ok(state),
            _ => bail!("{channel} is not a mirrored changeset"),
        }
    }

    /// The mirrored root state.
    pub fn root(&self) -> Result<&RootState> {
        match self.states.get(ROOT_RESOURCE_URI) {
            Some((_, SnapshotState::Root(state))) => Ok(state),
            _ => bail!("the root channel is not mirrored"),
        }
    }

    /// The action types received on a channel, in order.
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
                Ok(value["type"].as_str().context("action has no type")?.to_owned())
            })
            .collect()
    }

    fn take_snapshot(&mut self, snapshot: Snapshot) -> Result<()> {
        let seq = u64::try_from(snapshot.from_seq)?;
        self.states.insert(snapshot.resource, (seq, snapshot.state));
        Ok(())
    }

    /// Replaces all mirrored states; channels without a snapshot are removed.
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
            self.violation.get_or_insert(format!("envelope {seq} received after {last}"));
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
                    row.meta = changed.changes.meta.or_else(|| row.meta.take());
                    row.modified_at = changed.changes.modified_at.unwrap_or_else(|| row.modified_at.clone());
                    row.chats = changed.changes.chats.or_else(|| row.chats.take());
                    row.changes = changed.changes.changes.or_else(|| row.changes.take());
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
        // The snapshot already includes this action.
        if envelope.server_seq <= *seq {
            return;
        }
        *seq = envelope.server_seq;
        match state {
            SnapshotState::Root(state) => apply_action_to_root(state, &envelope.action),
            SnapshotState::Session(state) => {
                let outcome = apply_action_to_session(state, &envelope.action);
                session_status::derive(state);
                outcome
            }
            SnapshotState::Chat(state) => apply_action_to_chat(state, &envelope.action),
            SnapshotState::Changeset(state) => apply_action_to_changeset(state, &envelope.action),
            _ => return,
        };
    }
}
