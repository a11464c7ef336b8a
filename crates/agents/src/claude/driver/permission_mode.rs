//! The permission mode of the runtime: changes by clients, and changes by the runtime itself.

use std::sync::atomic::{AtomicU8, Ordering};

use ahp_types::actions::{ChatResponsePartAction, StateAction};
use ahp_types::common::{JsonObject, StringOrMarkdown};
use ahp_types::state::{ResponsePart, SystemNotificationResponsePart};
use innkeeper_claude::wire::SystemMessage;
use innkeeper_claude::{Message, PermissionMode, RequestError};
use innkeeper_core::agent::AgentEvent;
use serde_json::json;

use super::super::config::{self, PERMISSION_MODE};
use super::super::requests::RequestPurpose;
use super::{ClaudeDriver, End};

/// Whether the installed runtime accepts the mode `auto`. Asked once per host, after a turn, so
/// that no message waits for it.
#[derive(Debug, Default)]
pub(in super::super) struct AutoMode {
    state: AtomicU8,
}

const UNKNOWN: u8 = 0;
const ASKED: u8 = 1;
const ACCEPTED: u8 = 2;

impl AutoMode {
    /// Whether a runtime has accepted the mode.
    pub(in super::super) fn is_accepted(&self) -> bool {
        self.state.load(Ordering::Relaxed) == ACCEPTED
    }

    /// Whether the caller has to ask its runtime.
    fn claim(&self) -> bool {
        self.state.compare_exchange(UNKNOWN, ASKED, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Lets another runtime be asked, if this request asked a runtime that has exited.
    pub(super) fn forget_probe(&self, request: &RequestPurpose) {
        if matches!(request, RequestPurpose::ProbeAuto(_)) {
            self.set(None);
        }
    }

    pub(super) fn set(&self, accepted: Option<bool>) {
        let state = match accepted {
            Some(true) => ACCEPTED,
            Some(false) => ASKED,
            None => UNKNOWN,
        };
        self.state.store(state, Ordering::Relaxed);
    }
}

impl ClaudeDriver {
    /// Applies the session's configuration, also in the middle of a turn.
    pub(super) fn configure(&mut self, values: &JsonObject) {
        self.launch.configure(values);
        let wanted = config::permission_mode(values).unwrap_or(PermissionMode::Default);
        if wanted != self.mode {
            self.mode = wanted;
            // The probe returns to the earlier mode; the change follows it.
            if !self.requests.is_probing() {
                self.requests.set_mode(&self.runtime.controls(), wanted);
            }
        }
    }

    /// Handles the runtime's response to a change of the mode.
    pub(super) fn mode_set(
        &mut self,
        mode: PermissionMode,
        answer: Result<(), RequestError>,
    ) -> Result<(), End> {
        let Err(error) = answer else {
            self.runtime_mode = mode;
            return Ok(());
        };
        tracing::warn!(%error, mode = mode.as_str(), "cannot change the permission mode");
        // A later change may already be on its way.
        if self.mode == mode && !self.requests.is_changing_mode() {
            self.publish_mode(self.runtime_mode)?;
            self.notify(format!("The permission mode cannot be changed to {}: {error}.", mode.as_str()))?;
        }
        Ok(())
    }

    /// Publishes a mode that the runtime changed itself, for example when a plan is approved.
    pub(super) fn note_mode(&mut self, message: &Message) -> Result<(), End> {
        let reported = match message {
            Message::System(SystemMessage::Status(status)) => status.permission_mode.as_deref(),
            Message::System(SystemMessage::Init(init)) => init.permission_mode.as_deref(),
            _ => None,
        };
        let Some(mode) = reported.and_then(config::mode_named) else { return Ok(()) };
        // A report may be older than a change that is on its way.
        if self.requests.is_changing_mode() {
            return Ok(());
        }
        self.runtime_mode = mode;
        if mode != self.mode { self.publish_mode(mode) } else { Ok(()) }
    }

    /// Asks the runtime once whether it accepts the mode `auto`. Called while it is idle.
    pub(super) fn probe_auto(&mut self) {
        if self.turn_ended && self.auto_mode.claim() {
            self.requests.probe_auto(&self.runtime.controls(), self.mode);
        }
    }

    /// Handles the result of the probe, after which the runtime is in the mode `returned` again.
    pub(super) fn auto_probed(&mut self, returned: PermissionMode, answer: Result<(), RequestError>) {
        // After a failure the runtime may still be in the mode `auto`.
        let restore = answer.is_err() || self.mode != returned;
        self.auto_mode.set(match answer {
            Ok(()) => Some(true),
            Err(RequestError::Refused { .. }) => Some(false),
            Err(RequestError::Send(_) | RequestError::TimedOut { .. } | RequestError::Exited) => {
                // Asks again after the next turn, not at once.
                self.turn_ended = false;
                None
            }
        });
        if restore {
            self.requests.set_mode(&self.runtime.controls(), self.mode);
        }
    }

    fn publish_mode(&mut self, mode: PermissionMode) -> Result<(), End> {
        self.mode = mode;
        let values = JsonObject::from_iter([(PERMISSION_MODE.to_owned(), json!(mode.as_str()))]);
        Ok(self.events.push(AgentEvent::ConfigChanged { values })?)
    }

    /// Adds a note to the running turn, if there is one.
    fn notify(&mut self, text: String) -> Result<(), End> {
        let Some(current) = self.requested.as_ref().or(self.background.as_ref()) else { return Ok(()) };
        let part = ResponsePart::SystemNotification(SystemNotificationResponsePart {
            content: StringOrMarkdown::from(text),
            meta: None,
        });
        let action = ChatResponsePartAction { turn_id: current.turn.as_str().to_owned(), part, meta: None };
        let action = StateAction::ChatResponsePart(action);
        Ok(self.events.push(AgentEvent::Action(Box::new(action)))?)
    }
}
