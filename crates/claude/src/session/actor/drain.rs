//! Waits for the end of an abandoned turn.
//!
//! Owns the first steps of stopping, during which the runtime stays alive. The interrupt is repeated: a
//! newer runtime that has not started the message yet responds to the interrupt and then starts the turn
//! anyway.

use std::time::Duration;

use tokio::time::Instant;

use super::super::Interrupted;
use super::{Actor, Afterwards, SessionStage};
use crate::controls::Queued;
use crate::runtime::{INTERRUPT_STEP, StopOptions, TASKS_STEP};

/// Interval between interrupts. A runtime takes about 20 ms to end its turn.
const REPEAT: Duration = Duration::from_millis(250);

/// Number of interrupts per turn. Counting interrupts instead of time tolerates a suspended machine.
const INTERRUPTS: u128 = INTERRUPT_STEP.as_millis() / REPEAT.as_millis();

/// Progress of ending a turn.
#[derive(Debug)]
pub(super) struct Drain {
    /// Time of the next step.
    pub(super) next: Instant,
    step: Step,
}

#[derive(Debug)]
enum Step {
    /// The number of interrupts left.
    Interrupting { left: u128 },
    /// Background tasks were asked to stop; they delay the end of a turn in older runtimes.
    StoppingTasks,
}

impl Drain {
    /// Starts with an immediate interrupt.
    pub(super) fn begin(now: Instant) -> Self {
        Self { next: now, step: Step::Interrupting { left: INTERRUPTS } }
    }
}

impl Actor {
    /// Runs the step that is due.
    pub(super) fn drain_on(&mut self, now: Instant) {
        let Some(Drain { step, .. }) = self.drain.take() else { return };
        let Some(live) = &self.live else { return };
        match step {
            Step::Interrupting { left: left @ 1.. } => {
                // The runtime may already be idle while a response is still pending.
                if self.machine.needs_interrupt() {
                    self.send_interrupt(Queued::Cancel);
                }
                self.drain = Some(Drain { next: now + REPEAT, step: Step::Interrupting { left: left - 1 } });
            }
            Step::Interrupting { .. } => {
                let background = live.runtime.background_tasks();
                for task in &background {
                    let (controls, task) = (live.runtime.controls(), task.clone());
                    self.tasks.spawn(async move {
                        if let Err(error) = controls.stop_task(&task).await {
                            tracing::debug!(%error, "cannot stop background task");
                        }
                    });
                }
                let patience = if background.is_empty() { Duration::ZERO } else { TASKS_STEP };
                self.drain = Some(Drain { next: now + patience, step: Step::StoppingTasks });
            }
            Step::StoppingTasks => {
                tracing::warn!(conversation = %self.shared.conversation(), "runtime does not end its turn; stopping the runtime");
                let options = StopOptions { interrupt: false, sigint: self.options.sigint, kill: false };
                self.stop(options, Afterwards::Nothing);
            }
        }
    }

    /// Interrupts the runtime's current activity. The request is queued when this returns: from a
    /// separate task, the next message could overtake it and have its turn interrupted.
    pub(super) fn send_interrupt(&mut self, queued: Queued) {
        let Some(live) = &self.live else { return };
        let (answer, generation) = (live.runtime.controls().interrupt(queued), live.generation);
        self.machine.interrupt_sent();
        self.interrupting.spawn(async move {
            if let Err(error) = answer.await {
                tracing::debug!(%error, "interrupt failed");
            }
            generation
        });
    }

    /// Handles the end of an abandoned turn.
    pub(super) fn drained(&mut self) {
        self.drain = None;
        self.quiet_at = None;
        if matches!(self.stage, SessionStage::Turn(None)) {
            self.stage = SessionStage::Idle;
        }
        for reply in self.interrupts.drain(..) {
            reply.send(Interrupted::Turn).ok();
        }
    }
}
