//! An agent that the prompt controls, so that the load generator decides what is
//! streamed.
//!
//! `stream COUNT PER_SECOND` streams COUNT deltas, each starting with its creation time;
//! `reply BYTES` sends a response of that size at once, half of it as tool output;
//! `replace COUNT BYTES` publishes COUNT tool outputs in sequence, each replacing the
//! previous one.

use std::time::Duration;

use ahp_types::actions::StateAction;
use ahp_types::state::ErrorInfo;
use innkeeper_core::agent::{
    AgentCommand, AgentConnection, AgentEvent, AgentOffer, AgentProvider, BoxFuture, COMMAND_CAPACITY,
    EVENT_CAPACITY, History, OpenAgent, OpenError, TurnOutcome, plain_info,
};
use innkeeper_core::ids::TurnId;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::host::PROVIDER;
use crate::monotonic_nanos;

/// Timer interval: the finest resolution of tokio timers.
const TICK: Duration = Duration::from_millis(1);

/// The agent provider.
#[derive(Clone, Debug)]
pub struct StreamingAgent {
    tasks: TaskTracker,
}

impl StreamingAgent {
    /// Creates a provider whose conversation tasks run on `tasks`.
    pub fn new(tasks: TaskTracker) -> Self {
        Self { tasks }
    }
}

impl AgentProvider for StreamingAgent {
    fn offer(&self) -> watch::Receiver<AgentOffer> {
        watch::channel(AgentOffer::new(plain_info(PROVIDER, "Load"))).1
    }

    fn open(
        &self,
        _request: OpenAgent,
        _cancel: CancellationToken,
    ) -> BoxFuture<Result<AgentConnection, OpenError>> {
        let (commands, orders) = mpsc::channel(COMMAND_CAPACITY);
        let (reports, events) = mpsc::channel(EVENT_CAPACITY);
        let close = CancellationToken::new();
        self.tasks.spawn(converse(orders, reports, close.clone()));
        Box::pin(async move { Ok(AgentConnection { commands, events, close }) })
    }
}

async fn converse(
    mut orders: mpsc::Receiver<AgentCommand>,
    events: mpsc::Sender<AgentEvent>,
    close: CancellationToken,
) {
    loop {
        let command = tokio::select! {
            () = close.cancelled() => break,
            command = orders.recv() => command,
        };
        let (turn, message) = match command {
            None => break,
            Some(AgentCommand::Prompt { turn, message }) => (turn, message),
            Some(_) => continue,
        };
        let outcome = tokio::select! {
            () = close.cancelled() => break,
            () = cancelled(&mut orders, &turn) => TurnOutcome::Cancelled,
            outcome = perform(&events, &turn, &message.text) => outcome,
        };
        if events.send(AgentEvent::TurnEnded { turn, outcome }).await.is_err() {
            return;
        }
    }
    // The send fails if the session has already ended.
    events.send(AgentEvent::Closed { history: History::Resume, unsent: None, restart: None }).await.ok();
}

/// Waits until the turn is cancelled.
async fn cancelled(orders: &mut mpsc::Receiver<AgentCommand>, turn: &TurnId) {
    while let Some(command) = orders.recv().await {
        if matches!(&command, AgentCommand::Cancel { turn: cancelled } if cancelled == turn) {
            return;
        }
    }
}

/// Runs the command in the prompt.
async fn perform(events: &mpsc::Sender<AgentEvent>, turn: &TurnId, words: &str) -> TurnOutcome {
    let words: Vec<&str> = words.split_ascii_whitespace().collect();
    let number = |word: &str| word.parse::<u64>().ok();
    let done = match words.as_slice() {
        ["stream", count, rate] => match (number(count), number(rate)) {
            (Some(count), Some(rate)) => stream(events, turn, count, rate).await,
            _ => return unknown_command(),
        },
        ["reply", bytes] => match number(bytes).and_then(|bytes| usize::try_from(bytes).ok()) {
            Some(bytes) => reply(events, turn, bytes).await,
            None => return unknown_command(),
        },
        ["replace", count, bytes] => match (number(count), number(bytes)) {
            (Some(count), Some(bytes)) => {
                replace(events, turn, count, usize::try_from(bytes).unwrap_or(0)).await
            }
            _ => return unknown_command(),
        },
        _ => return unknown_command(),
    };
    // Sending failed, so the session is gone and the outcome is not used.
    done.map_or(TurnOutcome::Cancelled, |()| TurnOutcome::Completed)
}

fn unknown_command() -> TurnOutcome {
    TurnOutcome::Failed(ErrorInfo {
        error_type: "unknown_command".to_owned(),
        message: "unknown command; use `stream COUNT PER_SECOND`, `reply BYTES` or `replace COUNT BYTES`"
            .to_owned(),
        stack: None,
        meta: None,
    })
}

async fn stream(events: &mpsc::Sender<AgentEvent>, turn: &TurnId, count: u64, rate: u64) -> Option<()> {
    let turn = turn.as_str();
    let part = json!({"kind": "markdown", "id": "text", "content": ""});
    report(events, json!({"type": "chat/responsePart", "turnId": turn, "part": part})).await?;
    let (mut ticks, since, mut sent) = (tokio::time::interval(TICK), Instant::now(), 0);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    while sent < count {
        ticks.tick().await;
        let elapsed = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
        let due = elapsed.saturating_mul(rate) / 1_000_000;
        while sent < due.min(count) {
            let content = format!("{:020} some words of an answer ", monotonic_nanos());
            let delta = json!({"type": "chat/delta", "turnId": turn, "partId": "text", "content": content});
            report(events, delta).await?;
            sent += 1;
        }
    }
    Some(())
}

async fn reply(events: &mpsc::Sender<AgentEvent>, turn: &TurnId, bytes: usize) -> Option<()> {
    let text = words(bytes / 2);
    run_tool(events, turn).await?;
    complete_tool(events, turn, &text).await?;
    let turn = turn.as_str();
    let part = json!({"kind": "markdown", "id": format!("{turn}-text"), "content": text});
    report(events, json!({"type": "chat/responsePart", "turnId": turn, "part": part})).await
}

async fn replace(events: &mpsc::Sender<AgentEvent>, turn: &TurnId, count: u64, bytes: usize) -> Option<()> {
    run_tool(events, turn).await?;
    let text = words(bytes);
    for number in 0..count {
        let content = json!([{"type": "text", "text": format!("{number} {text}")}]);
        report(
            events,
            json!({"type": "chat/toolCallContentChanged", "turnId": turn.as_str(),
            "toolCallId": call_of(turn), "content": content}),
        )
        .await?;
    }
    complete_tool(events, turn, "done").await
}

fn words(bytes: usize) -> String {
    "All work and no play. ".chars().cycle().take(bytes).collect()
}

/// The id of a turn's only tool call.
fn call_of(turn: &TurnId) -> String {
    format!("{turn}-call")
}

async fn run_tool(events: &mpsc::Sender<AgentEvent>, turn: &TurnId) -> Option<()> {
    let (id, turn) = (call_of(turn), turn.as_str());
    report(
        events,
        json!({"type": "chat/toolCallStart", "turnId": turn, "toolCallId": id,
        "toolName": "Read", "displayName": "Read"}),
    )
    .await?;
    report(
        events,
        json!({"type": "chat/toolCallReady", "turnId": turn, "toolCallId": id,
        "invocationMessage": "Reading a file", "confirmed": "not-needed"}),
    )
    .await
}

async fn complete_tool(events: &mpsc::Sender<AgentEvent>, turn: &TurnId, text: &str) -> Option<()> {
    let result = json!({"success": true, "pastTenseMessage": "Read a file",
        "content": [{"type": "text", "text": text}]});
    report(
        events,
        json!({"type": "chat/toolCallComplete", "turnId": turn.as_str(),
        "toolCallId": call_of(turn), "result": result}),
    )
    .await
}

/// Sends an action; `None` if the session is gone.
async fn report(events: &mpsc::Sender<AgentEvent>, action: Value) -> Option<()> {
    let action: StateAction = serde_json::from_value(action).ok()?;
    events.send(AgentEvent::Action(Box::new(action))).await.ok()
}
