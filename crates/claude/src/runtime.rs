//! A running runtime, message by message.
//!
//! Owns the start with its handshake, the handle that talks to the runtime, the stream of what it says, and
//! the stop ladder. Does not know what a turn is. The invariants: a start that fails, is cancelled or is
//! dropped leaves no process, and so does dropping the last handle together with the events.

mod ladder;
mod start;
mod user_message;

use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Map, Value};
use uuid::Uuid;

pub use ladder::StopOptions;
pub(crate) use ladder::{INTERRUPT_STEP, TASKS_STEP};
pub use start::{Initialized, ModelInfo, StartError};
pub use user_message::{Priority, UserContent, UserMessage};

use crate::control::{REQUEST_TIMEOUT, RequestError, SendError};
use crate::controls::Controls;
use crate::intake::Intake;
use crate::process::{Exit, Process};
use crate::wire::{IncomingRequest, Message};

/// What a runtime says.
#[derive(Debug)]
pub enum RuntimeEvent {
    /// A message.
    Message(Message),
    /// A question, to be answered with [`Runtime::respond`]. The runtime waits for the answer, without
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
    /// Only known of a process of this machine.
    pid: Option<u32>,
    initialized: Initialized,
}

/// A handle to a running runtime; cheap to clone.
#[derive(Debug, Clone)]
pub struct Runtime {
    shared: Arc<Shared>,
}

impl Runtime {
    /// The runtime's process id, if it is a process of this machine.
    pub fn pid(&self) -> Option<u32> {
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
    pub fn send(&self, message: &UserMessage) -> Result<(), SendError> {
        self.shared.intake.activity.prompted();
        self.shared.intake.control.send(&message.to_frame())
    }

    /// Answers a question of the runtime's. Never waits.
    pub fn respond(&self, request_id: &str, answer: Result<Value, String>) -> Result<(), SendError> {
        self.shared.intake.control.respond(request_id, answer)
    }

    /// The control requests, typed.
    pub fn controls(&self) -> Controls {
        Controls::new(Arc::clone(&self.shared.intake.control))
    }

    /// Sends any control request and waits for its answer, which has a body or not.
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

    /// The background tasks that have not ended.
    pub fn background_tasks(&self) -> Vec<String> {
        self.shared.intake.activity.tasks()
    }

    /// Ends the runtime, politely first, and waits until everything that it started is gone: at most 8 s.
    /// The end goes on if the returned future is dropped; calling it again waits for the same end.
    pub async fn stop(&self) -> Exit {
        self.stop_with(StopOptions::default()).await
    }

    /// Ends the runtime as [`Self::stop`] does, by other steps.
    pub async fn stop_with(&self, options: StopOptions) -> Exit {
        if self.shared.process.begin_stop() {
            let shared = Arc::clone(&self.shared);
            self.shared.process.run(async move {
                tokio::select! {
                    _ = shared.process.exited() => {}
                    () = ladder::descend(&shared.process, &shared.intake, options) => {}
                }
            });
        }
        self.shared.process.exited().await
    }

    /// Waits until the runtime and everything that it started is gone.
    pub async fn exited(&self) -> Exit {
        self.shared.process.exited().await
    }
}

/// What the runtime says, in order. Dropping it answers the runtime's open and later questions with an
/// error, so that it does not wait for ever.
#[derive(Debug)]
pub struct RuntimeEvents {
    shared: Arc<Shared>,
}

impl RuntimeEvents {
    /// The next event; nothing after the exit. Cancel-safe.
    pub async fn next(&mut self) -> Option<RuntimeEvent> {
        self.shared.intake.inbox.pop().await
    }

    /// The next event with the length of the line that it came as. Cancel-safe.
    pub(crate) async fn next_weighed(&mut self) -> Option<(RuntimeEvent, usize)> {
        self.shared.intake.inbox.pop_weighed().await
    }

    /// The next event if there is one already.
    pub fn try_next(&mut self) -> Option<RuntimeEvent> {
        self.shared.intake.inbox.try_pop()
    }
}

impl Drop for RuntimeEvents {
    fn drop(&mut self) {
        self.shared.intake.abandon();
    }
}
