//! The stop ladder: how a runtime is ended, politely first.
//!
//! Owns the steps, their order and their deadlines. Its steps are at most 7 s long, in which the host runs, and
//! the kill at its end waits for nobody's consent.

use std::time::Duration;

use serde_json::{Map, json};

use crate::intake::Intake;
use crate::patience;
use crate::process::Process;

/// How long a running turn gets to end after an interrupt, before the ladder goes on.
pub(crate) const INTERRUPT_STEP: Duration = Duration::from_secs(2);

/// How long background tasks get to stop when asked to.
pub(crate) const TASKS_STEP: Duration = Duration::from_secs(1);

/// How long the runtime gets to exit after SIGINT, where that step is wanted.
pub(crate) const SIGNAL_STEP: Duration = Duration::from_secs(1);

/// How long the runtime gets to exit after the end of its stdin.
pub(crate) const CLOSE_STEP: Duration = Duration::from_secs(1);

/// How long the tree gets to exit after SIGTERM. The newer runtime takes up to 1.5 s to end its own children.
pub(crate) const TERMINATE_STEP: Duration = Duration::from_secs(2);

/// Which steps the ladder has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopOptions {
    /// Whether a running turn is interrupted by request first.
    pub interrupt: bool,
    /// Whether SIGINT is sent to the tree before stdin is closed. It ends the runtime; with the older version
    /// it is the step that a terminal's user would take.
    pub sigint: bool,
}

impl Default for StopOptions {
    fn default() -> Self {
        Self { interrupt: true, sigint: false }
    }
}

/// Goes down the ladder; the caller waits for the exit.
pub(super) async fn descend(process: &Process, intake: &Intake, options: StopOptions) {
    if options.interrupt && intake.activity.is_busy() {
        let interrupted = async {
            if let Ok(asked) = intake.control.ask("interrupt", Map::new()) {
                // Whatever the answer is, the turn's own end is what counts.
                asked.answer(INTERRUPT_STEP).await.ok();
                intake.activity.idle().await;
            }
        };
        patience::within(INTERRUPT_STEP, interrupted).await;
    }
    if options.interrupt {
        stop_tasks(intake).await;
    }
    if options.sigint {
        process.interrupt();
        if exits(process, SIGNAL_STEP).await {
            return;
        }
    }
    process.close_stdin();
    if exits(process, CLOSE_STEP).await {
        return;
    }
    process.terminate();
    if exits(process, TERMINATE_STEP).await {
        return;
    }
    process.kill();
}

async fn exits(process: &Process, within: Duration) -> bool {
    patience::within(within, process.exited()).await.is_some()
}

async fn stop_tasks(intake: &Intake) {
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
    patience::within(TASKS_STEP, stopped).await;
}
