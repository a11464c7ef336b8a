//! A running runtime at the level of messages.
//!
//! Owns the start with its handshake, the handle for sending, the event stream and the stop sequence.
//! Does not know about turns. Invariants: a start that fails, is cancelled or is dropped leaves no
//! process; neither does dropping the last handle and the events.

mod start;
mod stop_sequence;
mod user_message;
mod version;

use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Map, Value};
use uuid::Uuid;

pub use start::{Initialized, ModelInfo, StartError};
pub use stop_sequence::StopOptions;
pub(crate) use stop_sequence::{INTERRUPT_STEP, TASKS_STEP};
pub use user_message::{Priority, UserContent, UserMessage};
pub use version::RuntimeVersion;

use crate::control::{REQUEST_TIMEOUT, RequestError, SendError};
use crate::controls::Controls;
use crate::intake::Intake;
use crate::process::{Exit, Process};
use crate::running_commands::{self, RunningCommand};
use crate::wire::{IncomingRequest, Message};

/// An event from a runtime.
#[derive(Debug)]
pub enum RuntimeEvent {
    /// A message.
    Message(Message),
    /// A request to answer with [`Runtime::respond`]. The runtime waits for the answer, for permissions
    /// without a timeout.
    Request {
        /// Request id.
        id: String,
        /// The request. Unknown kinds were already answered with an error.
        request: IncomingRequest,
    },
    /// A request was cancelled and must not be answered.
    RequestCancelled {
        /// Request id.
        id: String,
    },
    /// The runtime and all its descendants have exited. Always the last event.
    Exited(Exit),
}

/// State shared by the handles and the event stream. Dropping the last reference terminates the process
/// tree.
#[derive(Debug)]
struct Shared {
    process: Process,
    intake: Arc<Intake>,
    conversation: Uuid,
    /// Only known for a local process.
    pid: Option<u32>,
    initialized: Initialized,
}

/// A handle to a running runtime; cheap to clone.
#[derive(Debug, Clone)]
pub struct Runtime {
    shared: Arc<Shared>,
}

impl Runtime {
    /// The runtime's process id, if it is a local process.
    pub fn pid(&self) -> Option<u32> {
        self.shared.pid
    }

    pub fn conversation(&self) -> Uuid {
        self.shared.conversation
    }

    /// The runtime's response to the handshake.
    pub fn initialized(&self) -> &Initialized {
        &self.shared.initialized
    }

    /// The exit, if the runtime has exited.
    pub fn exit(&self) -> Option<Exit> {
        self.shared.process.exit_so_far()
    }

    /// Sends a user message to the runtime. Never waits; the runtime decides when to read it.
    pub fn send(&self, message: &UserMessage) -> Result<(), SendError> {
        self.shared.intake.activity.prompted();
        self.shared.intake.control.send(&message.to_frame())
    }

    /// Answers a request from the runtime. Never waits.
    pub fn respond(&self, request_id: &str, answer: Result<Value, String>) -> Result<(), SendError> {
        self.shared.intake.control.respond(request_id, answer)
    }

    /// The typed control requests.
    pub fn controls(&self) -> Controls {
        Controls::new(Arc::clone(&self.shared.intake.control))
    }

    /// Sends any control request and waits for its response, which may have no body.
    pub async fn request(
        &self,
        subtype: &str,
        fields: Map<String, Value>,
    ) -> Result<Option<Box<RawValue>>, RequestError> {
        self.shared.intake.control.request(subtype, fields, REQUEST_TIMEOUT).await
    }

    /// Asks the runtime to end its turn. The turn's result follows in the events; an idle runtime only
    /// confirms.
    pub async fn interrupt(&self) -> Result<(), RequestError> {
        self.request("interrupt", Map::new()).await.map(|_| ())
    }

    /// The running background tasks.
    pub fn background_tasks(&self) -> Vec<String> {
        self.shared.intake.activity.tasks()
    }

    /// The shell commands of the runtime's tools, from the operating system's process table. Runtimes
    /// report the task of a command late, and older ones only at its end. Empty where there is no
    /// `/proc`, and for a runtime that is not a local process.
    pub async fn running_commands(&self) -> Vec<RunningCommand> {
        let Some(pid) = self.pid().and_then(|pid| i32::try_from(pid).ok()) else { return Vec::new() };
        tokio::task::spawn_blocking(move || running_commands::of(pid)).await.unwrap_or_default()
    }

    /// Stops the runtime, gracefully first, and waits until all its descendants have exited: at most 8 s.
    /// The stop continues if the future is dropped; another call waits for the same stop.
    pub async fn stop(&self) -> Exit {
        self.stop_with(StopOptions::default()).await
    }

    /// Stops the runtime like [`Self::stop`], with the given options.
    pub async fn stop_with(&self, options: StopOptions) -> Exit {
        if self.shared.process.begin_stop() {
            let shared = Arc::clone(&self.shared);
            self.shared.process.run(async move {
                tokio::select! {
                    _ = shared.process.exited() => {}
                    () = stop_sequence::run(&shared.process, &shared.intake, options) => {}
                }
            });
        }
        self.shared.process.exited().await
    }

    /// Waits until the runtime and all its descendants have exited.
    pub async fn exited(&self) -> Exit {
        self.shared.process.exited().await
    }
}

/// The event stream of a runtime, in order. Dropping it answers pending and later requests with an error,
/// so that the runtime does not wait forever.
#[derive(Debug)]
pub struct RuntimeEvents {
    shared: Arc<Shared>,
}

impl RuntimeEvents {
    /// The next event; `None` after the exit. Cancel-safe.
    pub async fn next(&mut self) -> Option<RuntimeEvent> {
        self.shared.intake.inbox.pop().await
    }

    /// The next event with the length of its line. Cancel-safe.
    pub(crate) async fn next_weighed(&mut self) -> Option<(RuntimeEvent, usize)> {
        self.shared.intake.inbox.pop_weighed().await
    }

    /// The next event, if one is queued.
    pub fn try_next(&mut self) -> Option<RuntimeEvent> {
        self.shared.intake.inbox.try_pop()
    }
}

impl Drop for RuntimeEvents {
    fn drop(&mut self) {
        self.shared.intake.abandon();
    }
}
