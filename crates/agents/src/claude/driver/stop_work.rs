//! Stops single commands and subagents while the turn goes on.
//!
//! A request to stop work is answered when the runtime reports its end. The runtime is asked
//! repeatedly until then: it accepts a request about a call without a task, and ignores it.

use std::time::Duration;

use innkeeper_claude::{RequestError, RunningCommand};
use innkeeper_core::agent::{AgentEvent, StopTarget, StoppedWork, WorkKind};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{ClaudeDriver, End};

/// Pause between two attempts to stop work.
const STOP_PAUSE: Duration = Duration::from_millis(250);

/// How long a command may take to become a task; runtimes need 2 to 3 s.
const TASK_LIMIT: Duration = Duration::from_secs(4);

/// How long the runtime may take to stop work.
const STOP_LIMIT: Duration = Duration::from_secs(8);

/// Maximum number of pending stop requests.
const MAX_STOPS: usize = 64;

const BY_ITSELF: &str = "This cannot be stopped by itself. Stop the turn instead.";

/// Requests of the session that wait for the end of work.
#[derive(Debug, Default)]
pub(super) struct StopRequests {
    pending: Vec<PendingStop>,
    /// Reads the process table; at most one task.
    pub(super) search: JoinSet<Vec<RunningCommand>>,
}

#[derive(Debug)]
struct PendingStop {
    request: u64,
    asked: Instant,
    next: Instant,
    /// What has not ended yet.
    targets: Vec<StopEntry>,
    stopped: Vec<StoppedWork>,
    is_all: bool,
}

#[derive(Debug)]
struct StopEntry {
    /// The task, once it is known.
    task: Option<String>,
    /// The running call, for one that the turn waits for.
    call: Option<String>,
    /// The command of the call.
    command: Option<String>,
    kind: WorkKind,
    label: String,
}

impl StopRequests {
    /// When the runtime is asked again.
    pub(super) fn next(&self) -> Option<Instant> {
        self.pending.iter().map(|stop| stop.next).min()
    }

    fn targets(&mut self) -> impl Iterator<Item = &mut StopEntry> {
        self.pending.iter_mut().flat_map(|stop| &mut stop.targets)
    }
}

impl PendingStop {
    /// The answer, if the request is over.
    fn answer(&mut self, now: Instant) -> Option<Result<Vec<StoppedWork>, String>> {
        let stopped = || self.stopped.clone();
        if self.targets.is_empty() {
            let is_late = self.stopped.is_empty() && !self.is_all;
            return Some(match is_late {
                true => Err("The work finished before it could be stopped.".to_owned()),
                false => Ok(stopped()),
            });
        }
        let waited = now.duration_since(self.asked);
        if waited >= TASK_LIMIT && self.targets.iter().all(|target| target.task.is_none()) {
            return Some(Err(BY_ITSELF.to_owned()));
        }
        (waited >= STOP_LIMIT).then(|| match self.stopped.is_empty() {
            _ if self.is_all => {
                let labels: Vec<_> = self.targets.iter().map(|target| target.label.as_str()).collect();
                Err(format!("Still running: {}. Restart the agent to end them.", labels.join(", ")))
            }
            true => Err("Claude did not stop it in time. Stop the turn instead.".to_owned()),
            false => Ok(stopped()),
        })
    }
}

impl ClaudeDriver {
    /// Starts to stop work.
    pub(super) fn stop_work(&mut self, request: u64, target: &StopTarget) -> Result<(), End> {
        let targets = if self.stops.pending.len() < MAX_STOPS {
            self.stop_entries(target)
        } else {
            Err("too many pending stop requests; wait for their answers".to_owned())
        };
        let targets = match targets {
            Ok(targets) => targets,
            Err(reason) => return self.answer_stop(request, Err(reason)),
        };
        let is_all = *target == StopTarget::Background;
        if is_all {
            // No turn follows a command that was stopped.
            let subagents = targets.iter().filter(|target| target.kind == WorkKind::Subagent);
            for task in subagents.filter_map(|target| target.task.as_deref()) {
                self.notices.silence(task);
            }
        }
        let now = Instant::now();
        let stopped = Vec::new();
        self.stops.pending.push(PendingStop { request, asked: now, next: now, targets, stopped, is_all });
        self.retry_stops()
    }

    fn stop_entries(&self, target: &StopTarget) -> Result<Vec<StopEntry>, String> {
        let tasks = self.edits.tasks();
        let entry = |id: &str, task: &super::tasks::RuntimeTask| StopEntry {
            task: Some(id.to_owned()),
            call: task.call.clone(),
            command: None,
            kind: task.kind(),
            label: task.shown_label(),
        };
        match target {
            StopTarget::Background => Ok(tasks.shown().map(|(id, task)| entry(id, task)).collect()),
            StopTarget::Work(id) => match tasks.live(id) {
                Some(task) => Ok(vec![entry(id, task)]),
                None => Err("This work is not running; it may have finished.".to_owned()),
            },
            StopTarget::ToolCall(call) => {
                if self.is_undecided(call) {
                    return Err("This call waits for permission. Deny it instead.".to_owned());
                }
                match tasks.live_of_call(call) {
                    Some((id, task)) if task.can_be_stopped() => Ok(vec![entry(id, task)]),
                    Some(_) => Err(BY_ITSELF.to_owned()),
                    None => self.call_without_task(call).map(|entry| vec![entry]),
                }
            }
        }
    }

    /// A call that is not a task yet.
    fn call_without_task(&self, call: &str) -> Result<StopEntry, String> {
        let Some((name, input)) = self.mapper.open_call(call) else {
            return Err("This call is not running; it may have finished.".to_owned());
        };
        let text = |field: &str| input.get(field).and_then(|value| value.as_str()).map(str::to_owned);
        let kind = match name {
            "Bash" => WorkKind::Command,
            "Task" | "Agent" => WorkKind::Subagent,
            _ => return Err(BY_ITSELF.to_owned()),
        };
        let command = text("command").filter(|_| kind == WorkKind::Command);
        let label = text("description").or_else(|| command.clone()).unwrap_or_else(|| name.to_owned());
        Ok(StopEntry { task: None, call: Some(call.to_owned()), command, kind, label })
    }

    /// Asks the runtime, and answers the requests that are over.
    pub(super) fn retry_stops(&mut self) -> Result<(), End> {
        self.answer_stops()?;
        let now = Instant::now();
        let mut must_search = false;
        for stop in self.stops.pending.iter_mut().filter(|stop| stop.next <= now) {
            stop.next = now + STOP_PAUSE;
            for target in &mut stop.targets {
                let call = target.call.as_deref().filter(|_| target.task.is_none());
                let known = call.and_then(|call| self.edits.tasks().live_of_call(call));
                if let Some((id, _)) = known.filter(|(_, task)| task.can_be_stopped()) {
                    target.task = Some(id.to_owned());
                }
                match &target.task {
                    Some(task) => self.requests.stop_task(&self.runtime.controls(), task),
                    None => must_search |= target.command.is_some(),
                }
            }
        }
        if must_search && self.stops.search.is_empty() {
            let runtime = self.runtime.clone();
            self.stops.search.spawn(async move { runtime.running_commands().await });
        }
        Ok(())
    }

    /// The process table was read. The runtime is asked to stop the commands that are among the found
    /// ones and not yet known as tasks.
    pub(super) fn commands_found(&mut self, found: &[RunningCommand]) {
        let unknown: Vec<_> =
            found.iter().filter(|running| !self.edits.tasks().is_known(&running.task)).collect();
        let open: Vec<(String, String)> = self
            .mapper
            .running_calls()
            .filter_map(|(id, _)| {
                let (_, input) = self.mapper.open_call(id)?;
                Some((id.to_owned(), input.get("command")?.as_str()?.to_owned()))
            })
            .collect();
        for target in self.stops.targets().filter(|target| target.task.is_none()) {
            let Some(command) = &target.command else { continue };
            let is_other = |id: &str| target.call.as_deref() != Some(id);
            let mut same = unknown.iter().filter(|running| running.is(command));
            // Of two equal commands it is not known which one belongs to the call.
            if let (Some(running), None) = (same.next(), same.next())
                && !open.iter().any(|(id, command)| is_other(id) && running.is(command))
            {
                target.task = Some(running.task.clone());
            }
        }
    }

    /// The runtime answered a request to stop a task.
    pub(super) fn stop_answered(&mut self, task: &str, answer: Result<(), RequestError>) -> Result<(), End> {
        if let Err(error) = answer {
            tracing::debug!(%error, task, "cannot stop a task");
            return Ok(());
        }
        // Older runtimes accept only tasks that they can stop, and report the end later.
        let is_in_time = match self.edits.tasks().live(task) {
            Some(known) => known.ends_in_time(),
            None => self.turns.names_messages(),
        };
        if is_in_time {
            return Ok(());
        }
        if self.edits.tasks().shown().any(|(id, _)| id == task) {
            self.edits.task_ended(task);
        }
        self.work_ended(task, "stopped")
    }

    /// A task has ended.
    pub(super) fn stop_ended(&mut self, task: &str, is_stopped: bool) -> Result<(), End> {
        self.target_ended(is_stopped, |target| target.task.as_deref() == Some(task))
    }

    /// A call has ended, but its work continues in a task, which is stopped instead.
    pub(super) fn stopped_call_continues(&mut self, call: &str, task: &str) -> Result<(), End> {
        let now = Instant::now();
        for stop in &mut self.stops.pending {
            for target in stop.targets.iter_mut().filter(|target| target.call.as_deref() == Some(call)) {
                target.task = Some(task.to_owned());
                stop.next = now;
            }
        }
        self.retry_stops()
    }

    /// A call has ended.
    pub(super) fn stopped_call_ended(&mut self, call: &str, is_error: bool) -> Result<(), End> {
        let is_call = |target: &StopEntry| target.call.as_deref() == Some(call);
        self.target_ended(is_error, is_call)
    }

    fn target_ended(&mut self, is_stopped: bool, is_it: impl Fn(&StopEntry) -> bool) -> Result<(), End> {
        if self.stops.pending.is_empty() {
            return Ok(());
        }
        for stop in &mut self.stops.pending {
            for target in stop.targets.extract_if(.., |target| is_it(target)) {
                if is_stopped {
                    if let Some(call) = &target.call {
                        self.mapper.stopped(call);
                    }
                    stop.stopped.push(StoppedWork { kind: target.kind, label: target.label });
                }
            }
        }
        self.answer_stops()
    }

    fn answer_stops(&mut self) -> Result<(), End> {
        let now = Instant::now();
        let mut answers = Vec::new();
        self.stops.pending.retain_mut(|stop| match stop.answer(now) {
            Some(answer) => {
                answers.push((stop.request, answer));
                false
            }
            None => true,
        });
        for (request, answer) in answers {
            self.answer_stop(request, answer)?;
        }
        Ok(())
    }

    fn answer_stop(&mut self, request: u64, result: Result<Vec<StoppedWork>, String>) -> Result<(), End> {
        Ok(self.events.push(AgentEvent::WorkStopped { request, result })?)
    }
}
