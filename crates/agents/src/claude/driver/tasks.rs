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
pub(super) struct RuntimeTask {
    /// The call that started it.
    pub(super) call: Option<String>,
    /// The turn that started it.
    pub(super) turn: Option<TurnId>,
    pub(super) is_agent: bool,
    /// The runtime's description, or the name of the kind of work.
    pub(super) label: String,
    /// Whether the runtime says that it continues in the background.
    is_detached: bool,
    /// Whether the runtime says of each task where it runs. Older ones do not: they also report the
    /// end of a task late, and stop no subagent that the turn waits for.
    tells_place: bool,
    /// Whether clients know it as work in the background.
    is_shown: bool,
    /// Whether the runtime has listed it among the work in the background.
    is_listed: bool,
    /// Whether the runtime has announced its end, so that no further message about it follows.
    is_announced: bool,
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

/// Whether a task with this status has ended.
pub(super) fn is_final(status: &str) -> bool {
    matches!(status, "completed" | "failed" | "killed" | "stopped")
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

    /// Whether a command or a subagent is at work.
    pub(super) fn any_live(&self) -> bool {
        self.0.values().any(|task| !task.has_ended)
    }

    /// A task that has not ended.
    pub(super) fn live(&self, id: &str) -> Option<&RuntimeTask> {
        self.0.get(id).filter(|task| !task.has_ended)
    }

    /// The task of a call that has not ended, by the id of the call.
    pub(super) fn live_of_call(&self, call: &str) -> Option<(&str, &RuntimeTask)> {
        let of_call = |task: &RuntimeTask| task.call.as_deref() == Some(call) && !task.has_ended;
        self.0.iter().find(|(_, task)| of_call(task)).map(|(id, task)| (id.as_str(), task))
    }

    /// Whether a task is known, running or ended.
    pub(super) fn is_known(&self, id: &str) -> bool {
        self.0.contains_key(id)
    }

    /// The tasks that clients see as work in the background.
    pub(super) fn shown(&self) -> impl Iterator<Item = (&str, &RuntimeTask)> {
        let shown = self.0.iter().filter(|(_, task)| task.is_shown && !task.has_ended);
        shown.map(|(id, task)| (id.as_str(), task))
    }

    /// Whether a subagent works in the background for which the runtime holds results back.
    pub(super) fn withholds_results(&self) -> bool {
        self.0.values().any(|task| task.is_agent && task.is_detached && !task.tells_place && !task.has_ended)
    }

    /// A task goes on in the background. Returns it if clients do not know it yet.
    pub(super) fn show(&mut self, id: &str) -> Option<&RuntimeTask> {
        let task = self.0.get_mut(id).filter(|task| !task.has_ended)?;
        task.is_detached = true;
        (!std::mem::replace(&mut task.is_shown, true)).then_some(&*task)
    }

    /// Whether the runtime says that a task runs in the background.
    pub(super) fn is_detached(&self, id: &str) -> bool {
        self.0.get(id).is_some_and(|task| task.is_detached)
    }

    /// The result of a call says that the call continues in this task.
    pub(super) fn detached(&mut self, id: &str, call: &str, turn: Option<TurnId>, is_agent: bool) {
        if self.0.contains_key(id) || !self.has_room() {
            return;
        }
        let task = RuntimeTask { is_agent, ..RuntimeTask::new(Some(call.to_owned()), turn) };
        self.0.insert(id.to_owned(), task);
    }

    /// The runtime lists its work in the background. Returns the tasks that are no longer listed.
    pub(super) fn unlisted(&mut self, listed: &HashSet<String>) -> Vec<String> {
        let mut gone = Vec::new();
        for (id, task) in self.0.iter_mut().filter(|(_, task)| !task.has_ended) {
            let was_listed = std::mem::replace(&mut task.is_listed, listed.contains(id));
            if was_listed && !task.is_listed {
                gone.push(id.clone());
            }
        }
        gone
    }

    /// Clients no longer see a task as work in the background. Returns it if they did.
    pub(super) fn hide(&mut self, id: &str) -> Option<&RuntimeTask> {
        let task = self.0.get_mut(id)?;
        std::mem::take(&mut task.is_shown).then_some(&*task)
    }

    /// The runtime announced the end of a task. Returns it if it ran in the background.
    pub(super) fn announced(&mut self, id: &str) -> Option<&RuntimeTask> {
        let task = self.0.get_mut(id)?;
        task.is_announced = true;
        task.is_detached.then_some(&*task)
    }

    /// Takes the tasks in the background whose end the runtime has not announced.
    pub(super) fn take_unannounced(&mut self) -> Vec<RuntimeTask> {
        let is_it = |task: &RuntimeTask| task.is_detached && task.has_ended && !task.is_announced;
        self.0.extract_if(|_, task| is_it(task)).map(|(_, task)| task).collect()
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
            tells_place: flag.is_some(),
            label: started.description.clone().unwrap_or_default(),
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
        task.call.clone().map_or(TaskEnd::Nothing, TaskEnd::Command)
    }

    /// Forgets the ended tasks of a turn, and those in the background that nothing more is said of.
    pub(super) fn turn_ended(&mut self, turn: &TurnId) {
        self.0.retain(|_, task| {
            let is_over = if task.is_detached { task.is_announced } else { task.turn.as_ref() == Some(turn) };
            !(task.has_ended && is_over)
        });
    }

    /// Forgets all tasks. Returns the calls of commands in the background.
    pub(super) fn clear(&mut self) -> Vec<String> {
        let tasks = std::mem::take(&mut self.0).into_values();
        let recorded = tasks.filter(|task| task.is_recorded && !task.has_ended);
        recorded.filter_map(|task| task.call).collect()
    }

    fn has_room(&mut self) -> bool {
        if self.0.len() >= MAX_TASKS {
            self.0.retain(|_, task| !task.has_ended);
        }
        self.0.len() < MAX_TASKS
    }
}

impl RuntimeTask {
    /// Whether the runtime can stop it alone. Older ones let a subagent go on that the turn waits for.
    pub(super) fn can_be_stopped(&self) -> bool {
        !self.is_agent || self.is_detached || self.tells_place
    }

    /// Whether the runtime reports the end of the task as soon as it has ended.
    pub(super) fn ends_in_time(&self) -> bool {
        self.tells_place
    }

    fn new(call: Option<String>, turn: Option<TurnId>) -> Self {
        Self {
            call,
            turn,
            is_agent: false,
            label: String::new(),
            is_detached: false,
            tells_place: false,
            is_shown: false,
            is_listed: false,
            is_announced: false,
            is_recorded: false,
            has_results: false,
            has_ended: false,
        }
    }
}
