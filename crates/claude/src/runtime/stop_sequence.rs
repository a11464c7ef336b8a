//! The stop sequence of a runtime, gracefully first.
//!
//! Owns the steps, their order and their deadlines. The steps take at most 7 s, counting only time while
//! the host runs; the final kill is unconditional.

use std::time::Duration;

use serde_json::{Map, json};

use crate::countdown;
use crate::intake::Intake;
use crate::process::Process;

/// Time for a running turn to end after an interrupt.
pub(crate) const INTERRUPT_STEP: Duration = Duration::from_secs(2);

/// Time for background tasks to stop.
pub(crate) const TASKS_STEP: Duration = Duration::from_secs(1);

/// Time for the runtime to exit after SIGINT, if that step is enabled.
pub(crate) const SIGNAL_STEP: Duration = Duration::from_secs(1);

/// Time for the runtime to exit after its stdin is closed.
pub(crate) const CLOSE_STEP: Duration = Duration::from_secs(1);

/// Time for the tree to exit after SIGTERM. The newer runtime takes up to 1.5 s to stop its own children.
pub(crate) const TERMINATE_STEP: Duration = Duration::from_secs(2);

/// The steps of the stop sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopOptions {
    /// Whether to interrupt a running turn by request first.
    pub interrupt: bool,
    /// Whether to send SIGINT to the tree before closing stdin. It ends the runtime; for the older
    /// version it corresponds to Ctrl-C in a terminal.
    pub sigint: bool,
    /// Whether to skip all other steps and kill the tree, so that the runtime cannot run hooks when
    /// it exits.
    pub kill: bool,
}

impl Default for StopOptions {
    fn default() -> Self {
        Self { interrupt: true, sigint: false, kill: false }
    }
}

/// Runs the stop sequence; the caller waits for the exit.
pub(super) async fn run(process: &Process, intake: &Intake, options: StopOptions) {
    if options.kill {
        process.kill();
        return;
    }
    if options.interrupt && intake.activity.is_busy() {
        let interrupted = async {
            if let Ok(asked) = intake.control.ask("interrupt", Map::new()) {
                // Only the end of the turn matters, not the response.
                asked.answer(INTERRUPT_STEP).await.ok();
                intake.activity.idle().await;
            }
        };
        countdown::within(INTERRUPT_STEP, interrupted).await;
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
    countdown::within(within, process.exited()).await.is_some()
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
    countdown::within(TASKS_STEP, stopped).await;
}
