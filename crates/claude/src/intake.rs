//! Where the runtime's messages arrive, on the reader's side.
//!
//! Owns the inbox and what is known of the runtime's activity. Never waits: answers go to their requests,
//! everything else to the inbox, and requests that nobody will answer are answered with an error at once.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use uuid::Uuid;

use crate::control::Control;
use crate::process::Exit;
use crate::queue::{ByteQueue, Refused};
use crate::runtime::RuntimeEvent;
use crate::wire::message::TaskMessage;
use crate::wire::{ControlRequestMessage, IncomingRequest, Message, SystemMessage};

/// The most bytes of messages that wait for the session's owner. Far more than a consumer that is alive
/// falls behind, and twice the longest line. Above it the runtime is ended: its reader never waits.
pub(crate) const INBOX_LIMIT: usize = 128 * 1024 * 1024;

/// The most background tasks that are remembered for the stop ladder. Those beyond it are ended with the
/// process tree instead of by request.
const TASKS_LIMIT: usize = 1024;

/// The inbox is full: its consumer has stopped consuming.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InboxFull;

/// Takes the runtime's messages apart.
#[derive(Debug)]
pub(crate) struct Intake {
    /// What waits for the session's owner.
    pub(crate) inbox: ByteQueue<RuntimeEvent>,
    /// The open requests of both sides.
    pub(crate) control: Arc<Control>,
    /// What the runtime is busy with.
    pub(crate) activity: Activity,
    /// The conversation that the runtime last said it works on.
    conversation: watch::Sender<Option<Uuid>>,
}

impl Intake {
    pub(crate) fn new(control: Arc<Control>) -> Self {
        Self {
            inbox: ByteQueue::new(INBOX_LIMIT),
            control,
            activity: Activity::default(),
            conversation: watch::Sender::new(None),
        }
    }

    /// The conversation that the runtime works on, as far as it has said so.
    pub(crate) fn conversation(&self) -> watch::Receiver<Option<Uuid>> {
        self.conversation.subscribe()
    }

    /// Takes one message that came as `weight` bytes.
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
            tracing::warn!("the runtime sent a request without an id, which cannot be answered");
            return Ok(());
        };
        self.control.opened(&id);
        let Some(request) = message.request else {
            self.refuse(&id, "the request has no readable body");
            return Ok(());
        };
        if let IncomingRequest::Unknown(request) = &request {
            tracing::warn!(kind = request.kind, "the runtime sent a request of an unknown kind");
            self.refuse(&id, &format!("unsupported request: {}", request.kind));
        }
        match self.inbox.push(RuntimeEvent::Request { id: id.clone(), request }, weight) {
            Ok(()) => Ok(()),
            Err(Refused::Full) => Err(InboxFull),
            Err(Refused::Closed) => {
                self.refuse(&id, "nobody is there to answer");
                Ok(())
            }
        }
    }

    fn deliver(&self, event: RuntimeEvent, weight: usize) -> Result<(), InboxFull> {
        match self.inbox.push(event, weight) {
            // A consumer that went away wants no more events.
            Ok(()) | Err(Refused::Closed) => Ok(()),
            Err(Refused::Full) => Err(InboxFull),
        }
    }

    fn refuse(&self, id: &str, reason: &str) {
        if let Err(error) = self.control.respond(id, Err(reason.to_owned())) {
            tracing::debug!(id, %error, "a request could not be refused");
        }
    }

    /// The consumer went away: what it has not seen is refused, and so is what still comes.
    pub(crate) fn abandon(&self) {
        for event in self.inbox.abandon() {
            if let RuntimeEvent::Request { id, .. } = event {
                self.refuse(&id, "nobody is there to answer");
            }
        }
    }

    /// The runtime is gone. The last event says so.
    pub(crate) fn exited(&self, exit: Exit) {
        self.control.fail_all();
        self.inbox.finish(RuntimeEvent::Exited(exit));
    }
}

/// What the runtime is busy with, as far as its messages tell.
#[derive(Debug)]
pub(crate) struct Activity {
    /// Whether a turn runs or is about to.
    busy: watch::Sender<bool>,
    /// Background tasks that have not ended.
    tasks: Mutex<BTreeSet<String>>,
}

impl Default for Activity {
    fn default() -> Self {
        Self { busy: watch::Sender::new(false), tasks: Mutex::default() }
    }
}

impl Activity {
    /// A message is on its way to the runtime.
    pub(crate) fn prompted(&self) {
        self.busy.send_replace(true);
    }

    pub(crate) fn is_busy(&self) -> bool {
        *self.busy.borrow()
    }

    /// Waits until no turn runs.
    pub(crate) async fn idle(&self) {
        // It fails only when the sender is gone, which `self` holds.
        self.busy.subscribe().wait_for(|busy| !busy).await.ok();
    }

    /// The background tasks that have not ended.
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
