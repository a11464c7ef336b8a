//! Measures the cost of a commit: assign a number, reduce, encode, and queue to eight
//! subscribers.

use std::sync::Arc;
use std::time::Duration;

use ahp_types::actions::StateAction;
use ahp_types::state::{ChatState, RootState};
use anyhow::{Context as _, Result};
use innkeeper_bench::monotonic_nanos;
use innkeeper_core::ChannelUri;
use innkeeper_core::state::{Action, ChannelState, ChatDoc, Frame, Outbox, StateStore, Subscription};
use serde_json::{Value, json};

use crate::report::{LoadReport, median};

/// Subscribers of the chat.
const SUBSCRIBERS: usize = 8;

/// Deltas between two drains of the subscribers' queues.
const BATCH: usize = 64;

/// Tool calls in the long turn.
const TOOL_CALLS: usize = 500;

/// Maximum microseconds per commit.
const LIMIT: f64 = 3.0;

/// Maximum cost of a commit in a long turn, relative to an empty one.
const RATIO_LIMIT: f64 = 2.0;

pub(crate) fn measure(quick: bool, report: &mut LoadReport) -> Result<()> {
    let rounds = if quick { 50 } else { 3_000 };
    let empty = CommitBench::new(0)?.delta_cost(rounds)?;
    let long = CommitBench::new(TOOL_CALLS)?.delta_cost(rounds)?;
    report.within("commit of a delta, 8 subscribers", empty, "µs", LIMIT, String::new());
    report.within("  in a turn with 500 tool calls", long, "µs", LIMIT * RATIO_LIMIT, String::new());
    report.within("  ratio", long / empty, "×", RATIO_LIMIT, String::new());
    Ok(())
}

struct CommitBench {
    store: StateStore,
    uri: ChannelUri,
    outboxes: Vec<Arc<Outbox>>,
}

impl CommitBench {
    /// Creates a chat with subscribers and a turn with `tool_calls` tool calls.
    fn new(tool_calls: usize) -> Result<Self> {
        let root = RootState {
            agents: Vec::new(),
            active_sessions: Some(0),
            terminals: None,
            config: None,
            meta: None,
        };
        let store = StateStore::new(root);
        let uri = ChannelUri::default_chat_of(&ChannelUri::new("load:/5f0c7f66-2d3b-4b8e-9d2c-5a3d5b0a7c11"));
        let state: ChatState = serde_json::from_value(json!({
            "resource": uri.as_str(), "title": "", "status": 1,
            "modifiedAt": "2025-11-15T09:00:00.000Z", "turns": [],
        }))?;
        store
            .create(vec![(uri.clone(), ChannelState::Chat(Box::new(ChatDoc::new(state)?)))])
            .ok()
            .context("the chat already exists")?;
        let outboxes: Vec<Arc<Outbox>> = (0..SUBSCRIBERS).map(|_| Arc::default()).collect();
        for outbox in &outboxes {
            let connection = store.attach(Arc::clone(outbox));
            store.subscribe(connection, &uri, Subscription::default(), |_| Frame::encode(&json!({})))?;
        }
        let chat = Self { store, uri, outboxes };
        chat.commit(json!({"type": "chat/turnStarted", "turnId": "turn",
            "startedAt": "2025-11-15T09:00:05.000Z", "message": {"text": "hi", "origin": {"kind": "user"}}}))?;
        for call in 0..tool_calls {
            let id = format!("toolu_{call:024}");
            chat.commit(json!({"type": "chat/toolCallStart", "turnId": "turn", "toolCallId": id,
                "toolName": "Read", "displayName": "Read"}))?;
            chat.commit(json!({"type": "chat/toolCallReady", "turnId": "turn", "toolCallId": id,
                "invocationMessage": "Reading a file", "confirmed": "not-needed"}))?;
            chat.commit(json!({"type": "chat/toolCallComplete", "turnId": "turn", "toolCallId": id,
                "result": {"success": true, "pastTenseMessage": "Read a file"}}))?;
        }
        chat.commit(json!({"type": "chat/responsePart", "turnId": "turn",
            "part": {"kind": "markdown", "id": "text", "content": ""}}))?;
        chat.drain_queues();
        Ok(chat)
    }

    fn commit(&self, action: Value) -> Result<()> {
        let action: StateAction = serde_json::from_value(action)?;
        self.store.commit(&self.uri, &Action::own(action), None)?;
        Ok(())
    }

    fn drain_queues(&self) {
        for outbox in &self.outboxes {
            drop(outbox.try_batch());
        }
    }

    /// Median cost of a delta in microseconds.
    fn delta_cost(&self, rounds: usize) -> Result<f64> {
        let delta: StateAction = serde_json::from_value(json!({"type": "chat/delta", "turnId": "turn",
            "partId": "text", "content": "some words of an answer "}))?;
        let mut costs = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            // Built outside the measurement, since the agent's driver does this.
            let actions: Vec<Action> = (0..BATCH).map(|_| Action::own(delta.clone())).collect();
            let since = monotonic_nanos();
            for action in &actions {
                self.store.commit(&self.uri, action, None)?;
            }
            let took = Duration::from_nanos(monotonic_nanos().saturating_sub(since));
            costs.push(took.as_secs_f64() * 1e6 / BATCH as f64);
            self.drain_queues();
        }
        Ok(median(costs))
    }
}
