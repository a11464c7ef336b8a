//! Commands and subagents that may continue after their call is complete.

use std::collections::{HashMap, HashSet};

use innkeeper_claude::wire::message::TaskMessage;
use innkeeper_core::ids::TurnId;

/// Maximum number of tasks that are distinguished. More are treated as ended.
const MAX_TASKS: usize = 1024;

/// The tasks of one runtime, by id.
#[derive(Debug, Default)]
pub(super) struct RuntimeTasks(HashMap<String, RuntimeTask>);

#[derive(Debug)]
struct RuntimeTask {
    /// The call that started it.
    call: Option<String>,
    /// The turn that started it.
    turn: Option<TurnId>,
    is_agent: bool,
    /// Whether the runtime says that it continues in the background.
    is_detached: bool,
    /// Whether its call is complete, so that the recorder waits for the end of the task.
    is_recorded: bool,
    /// Whether the runtime reports the results of its calls. An older one does not for a
    /// subagent in the background.
    has_results: bool,
    has_ended: bool,
}

/// What the end of a task means.
pub(super) enum TaskEnd {
    /// The calls of a subagent have ended.
    Subagent,
    /// A command in the background has ended, which this call started.
    Command(String),
    /// Nothing: the task is unknown, has ended before, or its call is not complete.
    Nothing,
}

impl RuntimeTasks {
    /// The turn that started a subagent.
    pub(super) fn turn_of(&self, agent: &str) -> Option<&TurnId> {
        self.0.get(agent)?.turn.as_ref()
    }

    /// Whether the runtime does not report the results of a subagent's calls.
    pub(super) fn hides_results(&self, agent: &str) -> bool {
        self.0.get(agent).is_some_and(|task| !task.has_results)
    }

    /// Whether a subagent is at work.
    pub(super) fn is_live_agent(&self, agent: &str) -> bool {
        self.0.get(agent).is_some_and(|task| task.is_agent && !task.has_ended)
    }

    /// The subagents that are at work.
    pub(super) fn live_agents(&self) -> HashSet<String> {
        let live = self.0.iter().filter(|(_, task)| task.is_agent && !task.has_ended);
        live.map(|(id, _)| id.clone()).collect()
    }

    pub(super) fn started(&mut self, started: &TaskMessage, turn: Option<TurnId>) {
        let Some(id) = started.task_id.clone().filter(|_| self.has_room()) else { return };
        let flag = started.extra.get("is_backgrounded").map(|raw| raw.get() == "true");
        let task = RuntimeTask {
            is_agent: started.task_type.as_deref() == Some("local_agent"),
            is_detached: flag.unwrap_or(false),
            ..RuntimeTask::new(started.tool_use_id.clone(), turn)
        };
        self.0.entry(id).or_insert(task);
    }

    /// A result of a subagent's call arrived. Subagents are named by the call that started them.
    pub(super) fn has_result(&mut self, parent: &str) {
        let tasks = self.0.values_mut().filter(|task| task.call.as_deref() == Some(parent));
        tasks.for_each(|task| task.has_results = true);
    }

    /// Whether a complete call continues in a task, which the result may name. The end of the
    /// task is then reported.
    pub(super) fn continues(&mut self, call: &str, turn: &TurnId, named: Option<&str>) -> bool {
        let of_call = |task: &RuntimeTask| task.call.as_deref() == Some(call) && !task.is_agent;
        let task = match named {
            Some(task) if self.0.contains_key(task) || self.has_room() => {
                let unknown = || RuntimeTask::new(Some(call.to_owned()), Some(turn.clone()));
                Some(self.0.entry(task.to_owned()).or_insert_with(unknown))
            }
            Some(_) => None,
            None => self.0.values_mut().find(|task| of_call(task) && task.is_detached),
        };
        let Some(task) = task.filter(|task| !task.has_ended) else { return false };
        task.is_recorded = true;
        true
    }

    pub(super) fn ended(&mut self, id: &str) -> TaskEnd {
        let Some(task) = self.0.get_mut(id) else { return TaskEnd::Nothing };
        if std::mem::replace(&mut task.has_ended, true) {
            return TaskEnd::Nothing;
        }
        if task.is_agent {
            return TaskEnd::Subagent;
        }
        if !task.is_recorded {
            // The result of its call follows.
            return TaskEnd::Nothing;
        }
        self.0.remove(id).and_then(|task| task.call).map_or(TaskEnd::Nothing, TaskEnd::Command)
    }

    /// Forgets the ended tasks of a turn.
    pub(super) fn turn_ended(&mut self, turn: &TurnId) {
        self.0.retain(|_, task| !(task.has_ended && task.turn.as_ref() == Some(turn)));
    }

    /// Forgets all tasks. Returns the calls of commands in the background.
    pub(super) fn clear(&mut self) -> Vec<String> {
        let tasks = std::mem::take(&mut self.0).into_values();
        tasks.filter(|task| task.is_recorded).filter_map(|task| task.call).collect()
    }

    fn has_room(&mut self) -> bool {
        if self.0.len() >= MAX_TASKS {
            self.0.retain(|_, task| !task.has_ended);
        }
        self.0.len() < MAX_TASKS
    }
}

impl RuntimeTask {
    fn new(call: Option<String>, turn: Option<TurnId>) -> Self {
        Self {
            call,
            turn,
            is_agent: false,
            is_detached: false,
            is_recorded: false,
            has_results: false,
            has_ended: false,
        }
    }
}
