//! Pending control requests of the driver.
//!
//! A request is written when it is created, so requests and messages keep their order. Any number of
//! requests can be in flight; the driver decides which messages wait for a response.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use innkeeper_claude::{Controls, PermissionMode, Queued, RequestError};
use uuid::Uuid;

use super::selection::Choice;

/// Purpose of a control request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RequestPurpose {
    /// Stops a cancelled turn.
    Interrupt,
    /// Takes back a message that the runtime has not started on.
    Withdraw(Uuid),
    /// Switches to this model and effort for the waiting message.
    Select(Choice),
    /// Switches to this permission mode.
    Mode(PermissionMode),
    /// Finds out whether the runtime accepts the mode `auto`, and returns to this mode.
    ProbeAuto(PermissionMode),
    /// Stops this task.
    StopTask(String),
    /// Finds out whether a silent runtime still responds.
    Liveness,
}

/// Requests in flight.
#[derive(Default)]
pub(super) struct Requests {
    waiting: Vec<PendingControl>,
}

struct PendingControl {
    purpose: RequestPurpose,
    answer: Pin<Box<dyn Future<Output = Result<(), RequestError>> + Send>>,
}

impl Requests {
    /// Interrupts the current turn. Newer runtimes also drop or keep a message that they have not
    /// started on; older ones keep it.
    pub(super) fn interrupt(&mut self, controls: &Controls, queued: Queued) {
        let answer = controls.interrupt(queued);
        let answer = Box::pin(async move { answer.await.map(drop) });
        self.waiting.push(PendingControl { purpose: RequestPurpose::Interrupt, answer });
    }

    /// Takes back a message. Refused if the runtime has started on it.
    pub(super) fn withdraw(&mut self, controls: &Controls, message: Uuid) {
        let answer = controls.cancel_message(message);
        let answer = Box::pin(async move {
            if answer.await? {
                return Ok(());
            }
            Err(RequestError::Refused { message: "the message is not waiting".to_owned(), code: None })
        });
        self.waiting.push(PendingControl { purpose: RequestPurpose::Withdraw(message), answer });
    }

    /// Switches the runtime from the model and effort `now`, if they are known, to `wanted`.
    pub(super) fn select(&mut self, controls: &Controls, now: Option<&Choice>, wanted: Choice) {
        let is_other_model = now.is_none_or(|now| wanted.model_name() != now.model_name());
        let is_other_effort = now.is_none_or(|now| wanted.effort != now.effort);
        let model = is_other_model.then(|| controls.set_model(wanted.model_name()));
        let (effort, controls) = (is_other_effort.then_some(wanted.effort), controls.clone());
        let answer = Box::pin(async move {
            if let Some(selected) = model {
                selected.await?;
            }
            match effort {
                Some(effort) => controls.set_effort(effort).await,
                None => Ok(()),
            }
        });
        self.waiting.push(PendingControl { purpose: RequestPurpose::Select(wanted), answer });
    }

    /// Switches the runtime to a permission mode.
    pub(super) fn set_mode(&mut self, controls: &Controls, mode: PermissionMode) {
        let controls = controls.clone();
        let answer = Box::pin(async move { set_mode(&controls, mode).await });
        self.waiting.push(PendingControl { purpose: RequestPurpose::Mode(mode), answer });
    }

    /// Finds out whether the runtime accepts the mode `auto`.
    pub(super) fn probe_auto(&mut self, controls: &Controls, current: PermissionMode) {
        let controls = controls.clone();
        let answer = Box::pin(async move {
            let accepted = set_mode(&controls, PermissionMode::Auto).await;
            if accepted.is_ok() {
                set_mode(&controls, current).await?;
            }
            accepted
        });
        self.waiting.push(PendingControl { purpose: RequestPurpose::ProbeAuto(current), answer });
    }

    /// Whether no response is pending.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Stops a task, unless the runtime is being asked to.
    pub(super) fn stop_task(&mut self, controls: &Controls, task: &str) {
        let purpose = RequestPurpose::StopTask(task.to_owned());
        if self.waiting.iter().any(|request| request.purpose == purpose) {
            return;
        }
        let (controls, task) = (controls.clone(), task.to_owned());
        let answer = Box::pin(async move { controls.stop_task(&task).await });
        self.waiting.push(PendingControl { purpose, answer });
    }

    /// Finds out whether the runtime still responds, unless it is being asked.
    pub(super) fn check_liveness(&mut self, controls: &Controls) {
        if self.waiting.iter().any(|request| request.purpose == RequestPurpose::Liveness) {
            return;
        }
        let controls = controls.clone();
        let answer = Box::pin(async move { controls.mcp_status().await.map(drop) });
        self.waiting.push(PendingControl { purpose: RequestPurpose::Liveness, answer });
    }

    /// Whether a change of model, effort or permission mode is pending.
    pub(super) fn is_configuring(&self) -> bool {
        self.waiting.iter().any(|request| match request.purpose {
            RequestPurpose::Select(_) | RequestPurpose::Mode(_) | RequestPurpose::ProbeAuto(_) => true,
            RequestPurpose::Interrupt
            | RequestPurpose::StopTask(_)
            | RequestPurpose::Withdraw(_)
            | RequestPurpose::Liveness => false,
        })
    }

    /// Whether the runtime is being asked about the mode `auto`.
    pub(super) fn is_probing(&self) -> bool {
        self.waiting.iter().any(|request| matches!(request.purpose, RequestPurpose::ProbeAuto(_)))
    }

    /// Whether a change of the permission mode is pending.
    pub(super) fn is_changing_mode(&self) -> bool {
        let changes = |request: &PendingControl| {
            matches!(request.purpose, RequestPurpose::Mode(_) | RequestPurpose::ProbeAuto(_))
        };
        self.waiting.iter().any(changes)
    }

    /// Returns the next response; pending while there are no requests. Cancel-safe: a request stays in the
    /// list until its response is returned.
    pub(super) async fn next(&mut self) -> (RequestPurpose, Result<(), RequestError>) {
        poll_fn(|context| {
            for (index, request) in self.waiting.iter_mut().enumerate() {
                if let Poll::Ready(answer) = request.answer.as_mut().poll(context) {
                    let purpose = self.waiting.remove(index).purpose;
                    return Poll::Ready((purpose, answer));
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Sets a permission mode. A runtime that reports another mode has refused it.
async fn set_mode(controls: &Controls, mode: PermissionMode) -> Result<(), RequestError> {
    let answer = controls.set_permission_mode(mode).await?;
    match answer.mode {
        Some(reported) if reported != mode.as_str() => Err(RequestError::Refused {
            message: format!("the permission mode is still {reported}"),
            code: None,
        }),
        Some(_) | None => Ok(()),
    }
}
