//! The model of each message: selected before the message is written, and rejected if the service
//! does not have it. The runtime then gets neither the message nor the name of the model.

use ahp_types::state::ErrorInfo;
use innkeeper_claude::wire::SystemMessage;
use innkeeper_claude::{Message, RequestError};
use innkeeper_core::agent::{AgentEvent, History, TurnMessage, TurnOutcome};

use super::super::models::UnknownSelection;
use super::super::selection::{Choice, DEFAULT_MODEL};
use super::{ClaudeDriver, End};

impl ClaudeDriver {
    /// The choice for a message, with the model that the runtime is told to use.
    pub(super) fn choice_for(&self, waiting: &TurnMessage) -> Result<Choice, UnknownSelection> {
        let TurnMessage { message, .. } = waiting;
        self.models.resolve(self.choice.next(message.model.as_ref(), message.agent.as_ref()))
    }

    /// Fails the waiting message, whose model the service does not have.
    pub(super) fn reject_model(&mut self, unknown: &UnknownSelection) -> Result<(), End> {
        let error = self.models.error(unknown);
        self.end_waiting(TurnOutcome::Failed(error))
    }

    /// Handles the runtime's answer to the selection of a model.
    pub(super) fn model_selected(
        &mut self,
        choice: Choice,
        answer: Result<(), RequestError>,
    ) -> Result<(), End> {
        let Err(error) = answer else {
            self.choice = choice;
            self.is_choice_known = true;
            return Ok(());
        };
        let explained = model_error(choice.model_name().unwrap_or(&choice.model), &error);
        if matches!(error, RequestError::TimedOut { .. }) {
            // The user's hooks may take this long, or the runtime hangs.
            self.is_choice_known = false;
            self.requests.check_liveness(&self.runtime.controls());
            return self.end_waiting(TurnOutcome::Interrupted(explained));
        }
        // The message that requested the model may have been cancelled meanwhile.
        let wants = |waiting: &TurnMessage| self.choice_for(waiting).as_ref() == Ok(&choice);
        if self.waiting.as_ref().is_some_and(wants) {
            return self.end_waiting(TurnOutcome::Failed(explained));
        }
        Ok(())
    }

    fn end_waiting(&mut self, outcome: TurnOutcome) -> Result<(), End> {
        let Some(TurnMessage { turn, .. }) = self.waiting.take() else { return Ok(()) };
        self.withdraw_steering(&turn);
        Ok(self.events.push(AgentEvent::TurnEnded { turn, outcome })?)
    }

    /// Notes which model the runtime uses by default. A resumed conversation and a project's
    /// settings may use another one.
    pub(super) fn note_default_model(&mut self, message: &Message) {
        let Message::System(SystemMessage::Init(init)) = message else { return };
        let is_first = !std::mem::replace(&mut self.knows_default, true);
        let is_default = self.choice.model == DEFAULT_MODEL && self.choice.model_name().is_none();
        let is_plain = matches!(self.history, History::Fresh) && self.project.is_none();
        if let Some(model) = init.model.as_deref()
            && is_first
            && is_default
            && is_plain
        {
            self.models.note_used(model);
        }
    }
}

fn model_error(model: &str, error: &RequestError) -> ErrorInfo {
    ErrorInfo {
        error_type: "model_not_available".to_owned(),
        message: format!("Cannot use the model {model:?}: {error}."),
        stack: None,
        meta: None,
    }
}
