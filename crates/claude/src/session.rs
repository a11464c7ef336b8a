//! A live conversation with a runtime.
//!
//! Owns the start with its handshake, the handle that talks to the runtime, the stream of what it says, and
//! the stop ladder. Does not know what a turn is. The invariants: a start that fails, is cancelled or is
//! dropped leaves no process, and so does dropping the last handle together with the events.

mod start;

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use uuid::Uuid;

pub use start::{Initialized, ModelInfo, StartError};

use crate::control::{REQUEST_TIMEOUT, RequestError, SendError};
use crate::intake::Intake;
use crate::process::{Exit, Process};
use crate::wire::{IncomingRequest, Message};

/// How long a running turn gets to end after an interrupt, before the ladder goes on.
const INTERRUPT_STEP: Duration = Duration::from_secs(2);

/// How long background tasks get to stop when asked to.
const TASKS_STEP: Duration = Duration::from_secs(1);

/// How long the runtime gets to exit after the end of its stdin.
const CLOSE_STEP: Duration = Duration::from_secs(1);

/// How long the tree gets to exit after SIGTERM. The newer runtime takes up to 1.5 s to end its own children.
const TERMINATE_STEP: Duration = Duration::from_secs(2);

/// A message of the user's.
#[derive(Debug, Clone, PartialEq)]
pub struct UserMessage {
    /// The message's id, fresh for every message: the runtime silently drops one that it has seen.
    pub uuid: Uuid,
    /// What it says.
    pub content: UserContent,
}

/// What a message of the user's says.
#[derive(Debug, Clone, PartialEq)]
pub enum UserContent {
    /// Plain text.
    Text(String),
    /// Content blocks as in the model API.
    Blocks(Vec<Value>),
}

impl From<&str> for UserContent {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for UserContent {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// What a runtime says.
#[derive(Debug)]
pub enum SessionEvent {
    /// A message.
    Message(Message),
    /// A question, to be answered with [`ClaudeSession::respond`]. The runtime waits for the answer, without
    /// a limit for permissions.
    Request {
        /// The question's id.
        id: String,
        /// What is asked. An unknown kind has been answered with an error already.
        request: IncomingRequest,
    },
    /// A question is withdrawn and must not be answered any more.
    RequestCancelled {
        /// The question's id.
        id: String,
    },
    /// The runtime and everything that it started is gone. The last event.
    Exited(Exit),
}

/// What the handles and the events share. Dropping the last of them ends the tree.
#[derive(Debug)]
struct Shared {
    process: Process,
    intake: Arc<Intake>,
    conversation: Uuid,
    pid: u32,
    initialized: Initialized,
}

/// A handle to a live conversation; cheap to clone.
#[derive(Debug, Clone)]
pub struct ClaudeSession {
    shared: Arc<Shared>,
}

impl ClaudeSession {
    /// The runtime's process id.
    pub fn pid(&self) -> u32 {
        self.shared.pid
    }

    /// The conversation's id.
    pub fn conversation(&self) -> Uuid {
        self.shared.conversation
    }

    /// What the runtime said about itself at its start.
    pub fn initialized(&self) -> &Initialized {
        &self.shared.initialized
    }

    /// How the runtime ended, if it did.
    pub fn exit(&self) -> Option<Exit> {
        self.shared.process.exit_so_far()
    }

    /// Hands a message of the user's to the runtime. Never waits; when it is read is up to the runtime.
    pub fn send(&self, message: UserMessage) -> Result<(), SendError> {
        let content = match message.content {
            UserContent::Text(text) => json!(text),
            UserContent::Blocks(blocks) => json!(blocks),
        };
        self.shared.intake.activity.prompted();
        self.shared.intake.control.send(&json!({
            "type": "user",
            "session_id": "",
            "parent_tool_use_id": null,
            "uuid": message.uuid.to_string(),
            "message": { "role": "user", "content": content },
        }))
    }

    /// Answers a question of the runtime's. Never waits.
    pub fn respond(&self, request_id: &str, answer: Result<Value, String>) -> Result<(), SendError> {
        self.shared.intake.control.respond(request_id, answer)
    }

    /// Sends a control request and waits for its answer, which has a body or not.
    pub async fn request(
        &self,
        subtype: &str,
        fields: Map<String, Value>,
    ) -> Result<Option<Box<RawValue>>, RequestError> {
        self.shared.intake.control.request(subtype, fields, REQUEST_TIMEOUT).await
    }

    /// Asks the runtime to end its turn. The turn's result follows in the events; an idle runtime just
    /// says yes.
    pub async fn interrupt(&self) -> Result<(), RequestError> {
        self.request("interrupt", Map::new()).await.map(|_| ())
    }

    /// Ends the runtime, politely first, and waits until everything that it started is gone: at most 8 s.
    /// The end goes on if the returned future is dropped; calling it again waits for the same end.
    pub async fn stop(&self) -> Exit {
        if self.shared.process.begin_stop() {
            let shared = Arc::clone(&self.shared);
            self.shared.process.run(async move {
                tokio::select! {
                    _ = shared.process.exited() => {}
                    () = ladder(&shared) => {}
                }
            });
        }
        self.shared.process.exited().await
    }
}

/// The stop ladder. Its steps are at most 6 s long, and the kill at its end waits for nobody's consent.
async fn ladder(shared: &Shared) {
    let Shared { process, intake, .. } = shared;
    if intake.activity.is_busy() {
        let interrupted = async {
            if let Ok(asked) = intake.control.ask("interrupt", Map::new()) {
                // Whatever the answer is, the turn's own end is what counts.
                asked.answer(INTERRUPT_STEP).await.ok();
                intake.activity.idle().await;
            }
        };
        tokio::time::timeout(INTERRUPT_STEP, interrupted).await.ok();
    }
    let stops: Vec<_> = intake
        .activity
        .tasks()
        .into_iter()
        .filter_map(|task| {
            intake.control.ask("stop_task", Map::from_iter([("task_id".to_owned(), json!(task))])).ok()
        })
        .collect();
    let stopped = async {
        for asked in stops {
            asked.answer(TASKS_STEP).await.ok();
        }
    };
    tokio::time::timeout(TASKS_STEP, stopped).await.ok();
    process.close_stdin();
    if tokio::time::timeout(CLOSE_STEP, process.exited()).await.is_ok() {
        return;
    }
    process.terminate();
    if tokio::time::timeout(TERMINATE_STEP, process.exited()).await.is_ok() {
        return;
    }
    process.kill();
}

/// What the runtime says, in order. Dropping it answers the runtime's open and later questions with an
/// error, so that it does not wait for ever.
#[derive(Debug)]
pub struct SessionEvents {
    shared: Arc<Shared>,
}

impl SessionEvents {
    /// The next event; nothing after the exit. Cancel-safe.
    pub async fn next(&mut self) -> Option<SessionEvent> {
        self.shared.intake.inbox.pop().await
    }

    /// The next event if there is one already.
    pub fn try_next(&mut self) -> Option<SessionEvent> {
        self.shared.intake.inbox.try_pop()
    }
}

impl Drop for SessionEvents {
    fn drop(&mut self) {
        self.shared.intake.abandon();
    }
}
