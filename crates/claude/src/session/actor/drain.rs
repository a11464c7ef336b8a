//! Waiting for the end of a turn that nobody wants any more.
//!
//! Owns the first steps of the ladder, after which the runtime still lives. The interrupt is repeated: a
//! newer runtime that has not taken the message up yet answers it, and then begins the turn all the same.

use std::time::Duration;

use tokio::time::Instant;

use super::super::Interrupted;
use super::{Actor, Afterwards, Stage};
use crate::controls::Queued;
use crate::runtime::{INTERRUPT_STEP, StopOptions, TASKS_STEP};

/// The pause between two interrupts. A runtime takes about 20 ms to end its turn.
const REPEAT: Duration = Duration::from_millis(250);

/// How many interrupts a turn gets. They are counted, so that a machine that stands still for a while does not
/// cost a runtime its time to answer.
const INTERRUPTS: u128 = INTERRUPT_STEP.as_millis() / REPEAT.as_millis();

/// How far the end of a turn has come.
#[derive(Debug)]
pub(super) struct Drain {
    /// When the next step is due.
    pub(super) next: Instant,
    step: Step,
}

#[derive(Debug)]
enum Step {
    /// So many interrupts are left to be sent.
    Interrupting { left: u128 },
    /// Background tasks, which hold back the end of an older runtime's turn, were asked to stop.
    StoppingTasks,
}

impl Drain {
    /// The first interrupt is due at once.
    pub(super) fn begin(now: Instant) -> Self {
        Self { next: now, step: Step::Interrupting { left: INTERRUPTS } }
    }
}

impl Actor {
    /// Takes the step that is due.
    pub(super) fn drain_on(&mut self, now: Instant) {
        let Some(Drain { step, .. }) = self.drain.take() else { return };
        let Some(live) = &self.live else { return };
        match step {
            Step::Interrupting { left: left @ 1.. } => {
                // The runtime may have stopped while an answer is still in flight.
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
                            tracing::debug!(%error, "a background task could not be stopped");
                        }
                    });
                }
                let patience = if background.is_empty() { Duration::ZERO } else { TASKS_STEP };
                self.drain = Some(Drain { next: now + patience, step: Step::StoppingTasks });
            }
            Step::StoppingTasks => {
                tracing::warn!(conversation = %self.board.conversation(), "a runtime does not end its turn; ending it");
                let options = StopOptions { interrupt: false, sigint: self.options.sigint };
                self.stop(options, Afterwards::Nothing);
            }
        }
    }

    /// Interrupts whatever the runtime is doing. The request is written when this returns: written from a
    /// task, it could be overtaken by the next message, and end that one's turn.
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

    /// The turn that nobody wants any more is over.
    pub(super) fn drained(&mut self) {
        self.drain = None;
        self.quiet_at = None;
        if matches!(self.stage, Stage::Turn(None)) {
            self.stage = Stage::Idle;
        }
        for reply in self.interrupts.drain(..) {
            reply.send(Interrupted::Turn).ok();
        }
    }
}
