//! Work in the background: the chat's list of it, and the turns that the runtime starts at its end.
//!
//! The state of the tasks is in `tasks`. A task is in the list from the moment when the runtime says
//! that it continues in the background until its end. What the runtime says at the end is kept until
//! the runtime starts a turn for it.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use ahp_types::actions::{ChatBackgroundWorkRemovedAction, ChatBackgroundWorkSetAction, StateAction};
use ahp_types::common::JsonObject;
use ahp_types::state::{BackgroundShellWork, BackgroundSubagentWork, BackgroundWork, Message as UserInput};
use innkeeper_claude::Message;
use innkeeper_claude::wire::content::ContentBlock;
use innkeeper_claude::wire::message::{TaskMessage, UserFrameMessage};
use innkeeper_claude::wire::{SystemMessage, SystemNotice};
use innkeeper_core::agent::{AgentEvent, WorkKind};
use innkeeper_core::clock::{Clock as _, SystemClock, wire_time};
use innkeeper_core::ids::TurnId;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::map::Mapper;
use super::tasks::{RuntimeTask, is_final};
use super::{ClaudeDriver, End};

/// Key of metadata about work in the background.
const WORK_KEY: &str = "innkeeper.work";

/// Maximum number of ended tasks that may each start a turn.
const MAX_NOTICES: usize = 64;

/// How long the runtime may take to begin a turn about a stopped subagent. Not every end starts one.
const SILENCED_TURN_LIMIT: Duration = Duration::from_secs(2);

/// Longest label and longest report of a task that a message repeats, in characters.
const LABEL_LENGTH: usize = 200;
const REPORT_LENGTH: usize = 2000;

/// The ended tasks for which the runtime may start a turn, in the order in which they ended.
#[derive(Debug, Default)]
pub(super) struct WorkNotices {
    waiting: VecDeque<WorkNotice>,
    /// Subagents that were stopped together with everything else, so that no turn may follow.
    silenced: HashSet<String>,
    /// Until when the next message waits for the turns that may not follow: an interrupt of such a turn
    /// could hit the message.
    held_until: Option<Instant>,
}

/// What the runtime said at the end of a task.
#[derive(Debug)]
pub(super) struct WorkNotice {
    text: String,
    meta: Option<Value>,
    /// Whether the turn that follows is stopped at once.
    pub(super) is_silenced: bool,
}

impl WorkNotices {
    /// The notice of the turn that the runtime starts now.
    pub(super) fn next(&mut self) -> Option<WorkNotice> {
        self.waiting.pop_front()
    }

    /// No turn may follow the end of a task.
    pub(super) fn silence(&mut self, task: &str) {
        if self.silenced.len() < MAX_NOTICES {
            self.silenced.insert(task.to_owned());
            self.held_until = Some(Instant::now() + SILENCED_TURN_LIMIT);
        }
    }

    /// Until when the next message waits, if a turn that may not follow can still begin.
    pub(super) fn held_until(&self) -> Option<Instant> {
        let is_expected = !self.silenced.is_empty() || self.waiting.iter().any(|notice| notice.is_silenced);
        self.held_until.filter(|until| is_expected && Instant::now() < *until)
    }

    fn add(&mut self, is_silenced: bool, text: String, meta: Option<Value>) {
        if self.waiting.len() < MAX_NOTICES {
            self.waiting.push_back(WorkNotice { text, meta, is_silenced });
        }
    }
}

impl WorkNotice {
    /// The message of the turn that the task starts.
    pub(super) fn message(notice: Option<Self>) -> UserInput {
        let (text, meta) = notice.map(|notice| (notice.text, notice.meta)).unwrap_or_default();
        let text = if text.is_empty() { "Background work continues".to_owned() } else { text };
        let meta = meta.map(|work| JsonObject::from_iter([(WORK_KEY.to_owned(), work)]));
        UserInput { meta, ..super::report::system_message(text) }
    }
}

/// The parts of a call's structured result that say where the work continues.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct LaunchedWork {
    background_task_id: Option<String>,
    agent_id: Option<String>,
    status: Option<String>,
}

impl LaunchedWork {
    /// The task in which the call continues, and whether it is a subagent.
    fn read(structured: &RawValue) -> Option<(String, bool)> {
        let json = structured.get();
        if !json.contains("\"backgroundTaskId\"") && !json.contains("\"async_launched\"") {
            return None;
        }
        let launched: Self = serde_json::from_str(json).ok()?;
        let agent = launched.agent_id.filter(|_| launched.status.as_deref() == Some("async_launched"));
        let command = launched.background_task_id.map(|task| (task, false));
        command.or_else(|| agent.map(|task| (task, true)))
    }
}

impl RuntimeTask {
    /// The kind of work.
    pub(super) fn kind(&self) -> WorkKind {
        if self.is_agent { WorkKind::Subagent } else { WorkKind::Command }
    }

    /// What the work is, for the user.
    pub(super) fn shown_label(&self) -> String {
        match (self.label.trim(), self.is_agent) {
            ("", true) => "Subagent".to_owned(),
            ("", false) => "Command".to_owned(),
            (label, _) => shortened(label, LABEL_LENGTH),
        }
    }
}

impl ClaudeDriver {
    /// Publishes what a message says about work in the background.
    pub(super) fn follow_work(&mut self, message: &Message) -> Result<(), End> {
        if let Message::User(frame) = message {
            return self.results_of_work(frame);
        }
        let Message::System(message) = message else { return Ok(()) };
        match message {
            SystemMessage::TaskStarted(task) => match &task.task_id {
                Some(id) if self.edits.tasks().is_detached(id) => self.show_work(id),
                Some(_) | None => Ok(()),
            },
            SystemMessage::TaskUpdated(task) => {
                let status = task.patch.as_ref().and_then(|patch| patch.status.as_deref());
                match (&task.task_id, status.filter(|status| is_final(status))) {
                    (Some(id), Some(status)) => self.work_ended(id, status),
                    (_, _) => Ok(()),
                }
            }
            SystemMessage::TaskNotification(task) => self.work_announced(task),
            SystemMessage::SessionStateChanged(changed) => {
                if changed.state.as_deref() == Some("idle") {
                    // The runtime starts no turn for these.
                    self.notices.waiting.clear();
                }
                Ok(())
            }
            SystemMessage::Notice(notice) => match notice.as_ref() {
                SystemNotice::BackgroundTasksChanged(changed) => {
                    self.work_listed(changed.tasks.as_deref().unwrap_or_default())
                }
                SystemNotice::Informational(_)
                | SystemNotice::ModelFallback(_)
                | SystemNotice::ModelRefusalFallback(_)
                | SystemNotice::Notification(_)
                | SystemNotice::PermissionDenied(_)
                | SystemNotice::CommandsChanged(_)
                | SystemNotice::ControlRequestProgress(_)
                | SystemNotice::SessionTitleChanged(_)
                | SystemNotice::ThinkingTokens(_)
                | SystemNotice::Envelope(_) => Ok(()),
            },
            SystemMessage::Init(_)
            | SystemMessage::Status(_)
            | SystemMessage::ApiRetry(_)
            | SystemMessage::CompactBoundary(_)
            | SystemMessage::TaskProgress(_)
            | SystemMessage::HookStarted(_)
            | SystemMessage::HookProgress(_)
            | SystemMessage::HookResponse(_)
            | SystemMessage::Unknown(_) => Ok(()),
        }
    }

    /// Adds a task to the chat's list, unless it is there.
    fn show_work(&mut self, id: &str) -> Result<(), End> {
        let Some(task) = self.edits.tasks_mut().show(id) else { return Ok(()) };
        let (is_agent, call, turn, label) =
            (task.is_agent, task.call.clone(), task.turn.clone(), task.shown_label());
        let has_label = !task.label.trim().is_empty();
        let input = call.as_deref().and_then(|call| self.mapper.input_of(call));
        let command = input.as_ref().and_then(|input| input.get("command")?.as_str().map(str::to_owned));
        let command_label = command.as_deref().and_then(|command| command.lines().next());
        let label = match command_label.filter(|_| !has_label) {
            Some(command) => shortened(command, LABEL_LENGTH),
            None => label,
        };
        let mut origin = JsonObject::new();
        origin.extend(call.map(|call| ("toolCallId".to_owned(), json!(call))));
        origin.extend(turn.map(|turn| ("turnId".to_owned(), json!(turn.as_str()))));
        let meta = Some(JsonObject::from_iter([(WORK_KEY.to_owned(), Value::Object(origin))]));
        let (id, started_at) = (id.to_owned(), wire_time(SystemClock.now()));
        let work = if is_agent {
            // Subagents do not have chats of their own yet.
            let chat = self.chat.as_str().to_owned();
            BackgroundWork::Subagent(BackgroundSubagentWork { id, label, started_at, meta, chat })
        } else {
            let command = command.unwrap_or_else(|| label.clone());
            BackgroundWork::Shell(BackgroundShellWork {
                id,
                label,
                started_at,
                meta,
                command,
                terminal: None,
            })
        };
        let set = StateAction::ChatBackgroundWorkSet(ChatBackgroundWorkSetAction { work });
        Ok(self.events.push(AgentEvent::Action(Box::new(set)))?)
    }

    /// A task has ended, or the runtime has agreed to end it.
    pub(super) fn work_ended(&mut self, id: &str, status: &str) -> Result<(), End> {
        if self.edits.tasks_mut().hide(id).is_some() {
            let removed = ChatBackgroundWorkRemovedAction { id: id.to_owned() };
            let removed = StateAction::ChatBackgroundWorkRemoved(removed);
            self.events.push(AgentEvent::Action(Box::new(removed)))?;
        }
        self.stop_ended(id, status != "completed")
    }

    /// The runtime announces the end of a task, and may start a turn for it.
    fn work_announced(&mut self, task: &TaskMessage) -> Result<(), End> {
        let Some(id) = &task.task_id else { return Ok(()) };
        let status = task.status.as_deref().unwrap_or("completed");
        let summary = task.summary.as_deref().unwrap_or_default().trim();
        let has_output = task.output_file.as_deref().is_some_and(|file| !file.is_empty());
        // Not every end starts a turn.
        // One that ended by itself before it could be stopped reports its result.
        let is_silenced = self.notices.silenced.remove(id) && matches!(status, "stopped" | "killed");
        let is_unknown = !self.edits.tasks().is_known(id);
        if let Some(ended) = self.edits.tasks_mut().announced(id) {
            let text = notice_text(ended, status, summary);
            let meta = notice_meta(id, ended, status);
            // The runtime tells the model only with the next message that a command was stopped.
            if ended.is_agent || !matches!(status, "stopped" | "killed") {
                self.notices.add(is_silenced, text, Some(meta));
            }
        } else if is_unknown && has_output {
            self.notices.add(is_silenced, shortened(summary, REPORT_LENGTH), None);
        }
        self.work_ended(id, status)
    }

    /// Notes in a turn which work has ended during it. Older runtimes tell only the model, if the turn
    /// goes on.
    pub(super) fn note_ended_work(&mut self, turn: &TurnId) -> Result<(), End> {
        for task in self.edits.tasks_mut().take_unannounced() {
            let kind = if task.is_agent { "Subagent" } else { "Background command" };
            let text = format!("{kind} \"{}\" ended.", task.shown_label());
            self.events.push(Mapper::note(turn, "task", text))?;
        }
        Ok(())
    }

    /// The runtime lists the tasks in the background.
    fn work_listed(&mut self, tasks: &[Box<RawValue>]) -> Result<(), End> {
        #[derive(Deserialize)]
        struct ListedTask {
            task_id: String,
        }
        let listed = tasks.iter().filter_map(|raw| serde_json::from_str::<ListedTask>(raw.get()).ok());
        let listed: HashSet<String> = listed.map(|task| task.task_id).collect();
        for id in self.edits.tasks_mut().unlisted(&listed) {
            self.edits.task_ended(&id);
            self.work_ended(&id, "completed")?;
        }
        for id in &listed {
            self.show_work(id)?;
        }
        Ok(())
    }

    /// Results of calls, which may say that the work continues in the background.
    fn results_of_work(&mut self, frame: &UserFrameMessage) -> Result<(), End> {
        let content = frame.message.as_ref().and_then(|message| message.content.as_ref());
        let blocks = content.map(|content| content.blocks()).unwrap_or_default();
        let results: Vec<_> = blocks
            .iter()
            .filter_map(|block| match block {
                ContentBlock::ToolResult(result) => Some((result.tool_use_id.as_deref()?, result)),
                ContentBlock::Text(_)
                | ContentBlock::Thinking(_)
                | ContentBlock::ToolUse(_)
                | ContentBlock::Unknown(_) => None,
            })
            .collect();
        // The structured result does not name its call.
        let mut continued = None;
        if let [(call, _)] = results.as_slice()
            && let Some(structured) = frame.tool_use_result.as_deref()
            && let Some((id, is_agent)) = LaunchedWork::read(structured)
        {
            let turn: Option<TurnId> = self.edits.last_turn().cloned();
            self.edits.tasks_mut().detached(&id, call, turn, is_agent);
            self.show_work(&id)?;
            if self.edits.tasks().live(&id).is_some() {
                continued = Some(*call);
                self.stopped_call_continues(call, &id)?;
            }
        }
        for (call, result) in results.into_iter().filter(|(call, _)| continued != Some(*call)) {
            self.stopped_call_ended(call, result.is_error == Some(true))?;
        }
        Ok(())
    }
}

/// The message of the turn that follows the end of a task. Some summaries are only the description
/// of the task, others only a subagent's report.
fn notice_text(task: &RuntimeTask, status: &str, summary: &str) -> String {
    let label = task.shown_label();
    if summary != label && summary.contains(&label) {
        return shortened(summary, REPORT_LENGTH);
    }
    let kind = if task.is_agent { "Subagent" } else { "Background command" };
    let ended = format!("{kind} \"{label}\" {status}");
    match summary {
        "" => ended,
        summary if summary == label => ended,
        summary => format!("{ended}: {}", shortened(summary, REPORT_LENGTH)),
    }
}

fn notice_meta(id: &str, task: &RuntimeTask, status: &str) -> Value {
    let mut meta = json!({
        "id": id, "kind": task.kind().as_str(), "label": task.shown_label(), "status": status,
    });
    if let Value::Object(meta) = &mut meta {
        meta.extend(task.call.as_ref().map(|call| ("toolCallId".to_owned(), json!(call))));
        meta.extend(task.turn.as_ref().map(|turn| ("turnId".to_owned(), json!(turn.as_str()))));
    }
    meta
}

fn shortened(text: &str, length: usize) -> String {
    match text.char_indices().nth(length) {
        Some((end, _)) => text.get(..end).map(|start| format!("{start}…")).unwrap_or_default(),
        None => text.to_owned(),
    }
}
