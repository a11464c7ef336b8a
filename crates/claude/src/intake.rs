//! Receives the runtime's messages from the reader.
//!
//! Owns the inbox and the state of the runtime's activity. Never blocks: responses go to their requests,
//! all other messages to the inbox, and requests without a consumer are answered with an error
//! immediately.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tokio::sync::watch;
use uuid::Uuid;

use crate::control::Control;
use crate::process::Exit;
use crate::queue::{ByteQueue, PushError};
use crate::runtime::RuntimeEvent;
use crate::wire::message::TaskMessage;
use crate::wire::{ControlRequestMessage, IncomingRequest, Message, SystemMessage};

/// Capacity of the inbox in bytes: far more than the backlog of a working consumer, and twice the longest
/// line. If it is exceeded, the runtime is stopped, because its reader never waits.
pub(crate) const INBOX_LIMIT: usize = 128 * 1024 * 1024;

/// Number of background tasks to track for the stop sequence. Tasks beyond it are killed with the process
/// tree instead of stopped by request.
const TASKS_LIMIT: usize = 1024;

/// The inbox is full because its consumer stopped reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InboxFull;

/// Dispatches the runtime's messages.
#[derive(Debug)]
pub(crate) struct Intake {
    /// Events waiting for the session's owner.
    pub(crate) inbox: ByteQueue<RuntimeEvent>,
    /// Pending requests of both sides.
    pub(crate) control: Arc<Control>,
    /// The runtime's current activity.
    pub(crate) activity: Activity,
    /// The conversation in the runtime's latest message.
    conversation: watch::Sender<Option<Uuid>>,
    /// Start of the first line that is not a message.
    first_noise: OnceLock<String>,
}

impl Intake {
    pub(crate) fn new(control: Arc<Control>) -> Self {
        Self {
            inbox: ByteQueue::new(INBOX_LIMIT),
            control,
            activity: Activity::default(),
            conversation: watch::Sender::new(None),
            first_noise: OnceLock::new(),
        }
    }

    /// Records the start of a line that is not a message.
    pub(crate) fn noise(&self, start: &str) {
        self.first_noise.get_or_init(|| start.to_owned());
    }

    /// Start of the first line that is not a message.
    pub(crate) fn first_noise(&self) -> Option<&str> {
        self.first_noise.get().map(String::as_str)
    }

    /// Watches the conversation that the runtime reports.
    pub(crate) fn conversation(&self) -> watch::Receiver<Option<Uuid>> {
        self.conversation.subscribe()
    }

    /// Handles a message that was `weight` bytes long.
    pub(crate) fn take(&self, message: Message, weight: usize) -> Result<(), InboxFull> {
        self.activity.observe(&message);
        if let Some(conversation) = message.conversation() {
            self.conversation.send_if_modified(|known| known.replace(conversation) != Some(conversation));
        }
        match message {
            Message::ControlResponse(message) => {
                if let Some(response) = message.response {
                    self.control.answered(response);
                }
                Ok(())
            }
            Message::ControlRequest(message) => self.take_request(message, weight),
            Message::ControlCancelRequest(message) => {
                let id = message.request_id.unwrap_or_default();
                self.control.cancelled(&id);
                self.deliver(RuntimeEvent::RequestCancelled { id }, weight)
            }
            Message::System(_)
            | Message::StreamEvent(_)
            | Message::Assistant(_)
            | Message::User(_)
            | Message::Result(_)
            | Message::KeepAlive(_)
            | Message::CommandLifecycle(_)
            | Message::RateLimit(_)
            | Message::ConversationReset(_)
            | Message::Notice(_)
            | Message::Unknown(_) => self.deliver(RuntimeEvent::Message(message), weight),
        }
    }

    fn take_request(&self, message: ControlRequestMessage, weight: usize) -> Result<(), InboxFull> {
        let Some(id) = message.request_id else {
            tracing::warn!("ignoring request without id from the runtime");
            return Ok(());
        };
        self.control.opened(&id);
        let Some(request) = message.request else {
            self.refuse(&id, "the request has no readable body");
            return Ok(());
        };
        if let IncomingRequest::Unknown(request) = &request {
            tracing::warn!(kind = request.kind, "unknown request from the runtime");
            self.refuse(&id, &format!("unsupported request: {}", request.kind));
        }
        match self.inbox.push(RuntimeEvent::Request { id: id.clone(), request }, weight) {
            Ok(()) => Ok(()),
            Err(PushError::Full) => Err(InboxFull),
            Err(PushError::Closed) => {
                self.refuse(&id, "the session is closed");
                Ok(())
            }
        }
    }

    fn deliver(&self, event: RuntimeEvent, weight: usize) -> Result<(), InboxFull> {
        match self.inbox.push(event, weight) {
            // A closed inbox drops events.
            Ok(()) | Err(PushError::Closed) => Ok(()),
            Err(PushError::Full) => Err(InboxFull),
        }
    }

    fn refuse(&self, id: &str, reason: &str) {
        if let Err(error) = self.control.respond(id, Err(reason.to_owned())) {
            tracing::debug!(id, %error, "cannot reject request");
        }
    }

    /// Rejects all undelivered and future requests, after the consumer was dropped.
    pub(crate) fn abandon(&self) {
        for event in self.inbox.abandon() {
            if let RuntimeEvent::Request { id, .. } = event {
                self.refuse(&id, "the session is closed");
            }
        }
    }

    /// Fails all pending requests and delivers the exit as the last event.
    pub(crate) fn exited(&self, exit: Exit) {
        self.control.fail_all();
        self.inbox.finish(RuntimeEvent::Exited(exit));
    }
}

/// The runtime's activity, as far as its messages show.
#[derive(Debug)]
pub(crate) struct Activity {
    /// Whether a turn runs or is about to start.
    busy: watch::Sender<bool>,
    /// Running background tasks.
    tasks: Mutex<BTreeSet<String>>,
}

impl Default for Activity {
    fn default() -> Self {
        Self { busy: watch::Sender::new(false), tasks: Mutex::default() }
    }
}

impl Activity {
    /// Records that a message is being sent to the runtime.
    pub(crate) fn prompted(&self) {
        self.busy.send_replace(true);
    }

    pub(crate) fn is_busy(&self) -> bool {
        *self.busy.borrow()
    }

    /// Waits until no turn runs.
    pub(crate) async fn idle(&self) {
        // Fails only if the sender was dropped, and `self` holds it.
        self.busy.subscribe().wait_for(|busy| !busy).await.ok();
    }

    /// The running background tasks.
    pub(crate) fn tasks(&self) -> Vec<String> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    fn observe(&self, message: &Message) {
        if let Message::Result(result) = message
            && result.queued_turn_count.unwrap_or(0) == 0
        {
            self.busy.send_replace(false);
        }
        let Message::System(message) = message else { return };
        match message {
            SystemMessage::SessionStateChanged(change) => {
                self.busy.send_replace(change.state.as_deref() != Some("idle"));
            }
            SystemMessage::Init(_) => {
                self.busy.send_replace(true);
            }
            SystemMessage::TaskStarted(task) => self.task_started(task),
            SystemMessage::TaskNotification(task) => self.task_ended(task),
            SystemMessage::TaskUpdated(task) => {
                let status = task.patch.as_ref().and_then(|patch| patch.status.as_deref());
                if matches!(status, Some("completed" | "failed" | "killed" | "stopped")) {
                    self.task_ended(task);
                }
            }
            SystemMessage::Status(_)
            | SystemMessage::ApiRetry(_)
            | SystemMessage::CompactBoundary(_)
            | SystemMessage::TaskProgress(_)
            | SystemMessage::HookStarted(_)
            | SystemMessage::HookProgress(_)
            | SystemMessage::HookResponse(_)
            | SystemMessage::Notice(_)
            | SystemMessage::Unknown(_) => {}
        }
    }

    fn task_started(&self, task: &TaskMessage) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = &task.task_id
            && tasks.len() < TASKS_LIMIT
        {
            tasks.insert(id.clone());
        }
    }

    fn task_ended(&self, task: &TaskMessage) {
        if let Some(id) = &task.task_id {
            self.tasks.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        }
    }
}

#[cfg(test)]
#[path = "intake_tests.rs"]
mod tests;
