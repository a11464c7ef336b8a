//! Reports the runtime's tool calls to the recorder of the session's edits.
//!
//! A call that may change files is announced before it runs, and again after a user has allowed
//! it. Its result waits until the recorder has stored the changes. A call that is denied after it
//! was announced is announced once more and ended at once, so that nothing is attributed to it.
//!
//! The work of the recorder that follows from messages is done in their order; the driver reads
//! no further message in the meantime.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ahp_types::state::FileEdit;
use innkeeper_claude::Message;
use innkeeper_claude::turns::TurnKey;
use innkeeper_claude::wire::SystemMessage;
use innkeeper_claude::wire::content::ContentBlock;
use innkeeper_claude::wire::message::{HookMessage, UserFrameMessage};
use innkeeper_core::agent::BoxFuture;
use innkeeper_core::edits::{CallOutcome, EditReach, EditRecorder, RecordedEdit, TrackedCall};
use innkeeper_core::ids::TurnId;
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::super::map::CallEdits;
use super::edit_reach::{ResultFields, planned, reach};
use super::tasks::{RuntimeTasks, TaskEnd, is_final};

/// Maximum number of tools that are known to trigger hooks.
const MAX_HOOKED_TOOLS: usize = 256;

/// How long after all directories were read a hook may be credited with changes that it made
/// before the directories are read again. Later, the changes are more likely the user's.
const FRESH: Duration = Duration::from_secs(5);

/// How long the recorder may take to finish after the runtime has exited.
const FINISH_TIME: Duration = Duration::from_secs(5);

/// Reports the calls of one runtime.
pub(super) struct EditTracking {
    recorder: Arc<dyn EditRecorder>,
    /// The directory in which the runtime was started.
    cwd: PathBuf,
    /// Announced calls without a result, by id.
    calls: HashMap<String, AnnouncedCall>,
    tasks: RuntimeTasks,
    /// Tools that trigger hooks of the user's settings, and whether the hooks run after their use.
    hooked_tools: HashMap<String, bool>,
    /// A hook that ran after a tool call whose result has not arrived.
    ended_hook: Option<String>,
    /// Running hooks that do not belong to a tool call.
    hooks: HashSet<String>,
    /// Cancelled turns on which the runtime still works.
    stopped: Vec<(TurnKey, TurnId)>,
    /// The turn that began last.
    last_turn: Option<TurnId>,
    /// When the recorder last read all directories.
    scanned_at: Option<Instant>,
    /// The work of the recorder.
    work: Option<BoxFuture<CallEdits>>,
}

/// A call that may change files.
#[derive(Clone, Debug)]
pub(super) struct AnnouncedCall {
    id: String,
    turn: TurnId,
    /// What the tool itself may change; `None` if only hooks may change files.
    reach: Option<EditReach>,
    /// Whether hooks that may change any file run with the call.
    with_hooks: bool,
    /// The subagent that makes the call.
    agent: Option<String>,
    /// The runtime's working directory at the time of the call.
    cwd: PathBuf,
    /// Cancelled when its announcement has ended. The recorder must not learn of the end of the
    /// call before.
    announced: CancellationToken,
}

/// A call about which the runtime asks.
pub(super) struct AskedCall<'a> {
    /// The turn that shows it.
    pub(super) turn: Option<&'a TurnId>,
    pub(super) id: &'a str,
    pub(super) tool: &'a str,
    pub(super) input: &'a Value,
    /// The subagent that makes it.
    pub(super) agent: Option<&'a str>,
    /// The runtime's current directory, if known.
    pub(super) cwd: Option<&'a Path>,
}

impl AnnouncedCall {
    /// The id under which the changes of the call's hooks are recorded.
    fn hooks_id(&self) -> String {
        format!("{}/hooks", self.id)
    }

    fn scans(&self) -> bool {
        self.with_hooks || matches!(self.reach, Some(EditReach::AnyFile | EditReach::AnyFileAlready))
    }

    /// What the recorder is told before the call runs.
    fn tracked(&self) -> Vec<TrackedCall> {
        let call = |tool_call, reach| TrackedCall { turn: self.turn.clone(), tool_call, reach };
        let own = self.reach.clone().map(|reach| call(self.id.clone(), reach));
        let hooks = self.with_hooks.then(|| call(self.hooks_id(), EditReach::AnyFile));
        own.into_iter().chain(hooks).collect()
    }

    /// The ids of what the recorder was told.
    fn ids(&self) -> Vec<String> {
        self.tracked().into_iter().map(|call| call.tool_call).collect()
    }
}

impl EditTracking {
    pub(super) fn new(recorder: Arc<dyn EditRecorder>, cwd: PathBuf) -> Self {
        Self {
            recorder,
            cwd,
            calls: HashMap::new(),
            tasks: RuntimeTasks::default(),
            hooked_tools: HashMap::new(),
            ended_hook: None,
            hooks: HashSet::new(),
            stopped: Vec::new(),
            last_turn: None,
            scanned_at: None,
            work: None,
        }
    }

    /// Whether the recorder is at work that later messages wait for.
    pub(super) fn is_recording(&self) -> bool {
        self.work.is_some()
    }

    /// Whether commands or subagents are at work.
    pub(super) fn has_tasks(&self) -> bool {
        self.tasks.any_live()
    }

    /// Waits until the recorder has done its work; returns the edits of the calls whose results
    /// arrived. Cancel-safe.
    pub(super) async fn recorded(&mut self) -> CallEdits {
        let Some(work) = &mut self.work else { return std::future::pending().await };
        let edits = work.await;
        self.work = None;
        edits
    }

    /// What a call may change; `None` if it changes no file.
    pub(super) fn call(&self, asked: &AskedCall<'_>) -> Option<AnnouncedCall> {
        let of_agent = asked.agent.and_then(|agent| self.tasks.turn_of(agent));
        let turn = of_agent.or(asked.turn).or(self.last_turn.as_ref())?;
        let known = self.calls.get(asked.id);
        let cwd = asked.cwd.or(known.map(|call| call.cwd.as_path())).unwrap_or(&self.cwd);
        let reach = reach(asked.tool, asked.input, cwd);
        let with_hooks = match (&reach, self.hooked_tools.get(asked.tool)) {
            // The window of a call that may change any file includes its hooks.
            (Some(EditReach::AnyFile | EditReach::AnyFileAlready), _) | (_, None) => false,
            (Some(EditReach::Files(_)), Some(_)) => true,
            // Hooks before the use of a tool mostly check something.
            (None, Some(runs_after)) => *runs_after,
        };
        if reach.is_none() && !with_hooks {
            return None;
        }
        Some(AnnouncedCall {
            id: asked.id.to_owned(),
            turn: turn.clone(),
            reach,
            with_hooks,
            agent: asked.agent.map(str::to_owned),
            cwd: cwd.to_owned(),
            announced: CancellationToken::new(),
        })
    }

    /// Announces a call to the recorder. The call may run when the future completes.
    pub(super) fn announce(&mut self, call: AnnouncedCall) -> BoxFuture<()> {
        let ended = self.unreported_calls(&call);
        let tracked = call.tracked();
        if call.scans() {
            self.scanned_at = Some(Instant::now());
        }
        let announced = call.announced.clone().drop_guard();
        self.calls.insert(call.id.clone(), call);
        let recorder = Arc::clone(&self.recorder);
        Box::pin(async move {
            let _announced = announced;
            for call in ended {
                recorder.after_call(call, CallOutcome::default()).await;
            }
            for call in tracked {
                recorder.before_call(call).await;
            }
        })
    }

    /// Takes the earlier calls of a subagent whose results the runtime does not report. They are
    /// over: the runtime makes calls that change files one after the other.
    fn unreported_calls(&mut self, call: &AnnouncedCall) -> Vec<String> {
        if !call.agent.as_ref().is_some_and(|agent| self.tasks.hides_results(agent)) {
            return Vec::new();
        }
        let id = call.id.clone();
        self.take_calls(|earlier| earlier.agent == call.agent && earlier.id != id)
            .iter()
            .flat_map(AnnouncedCall::ids)
            .collect()
    }

    fn take_calls(&mut self, is_wanted: impl Fn(&AnnouncedCall) -> bool) -> Vec<AnnouncedCall> {
        let wanted = |call: &AnnouncedCall| is_wanted(call);
        self.calls.extract_if(|_, call| wanted(call)).map(|(_, call)| call).collect()
    }

    /// Records that a call does not run. What changed since it was announced is not its work.
    pub(super) fn forget(&mut self, call: &str) {
        let Some(call) = self.calls.remove(call) else { return };
        let recorder = Arc::clone(&self.recorder);
        self.push(async move {
            call.announced.cancelled().await;
            for tracked in call.tracked() {
                let id = tracked.tool_call.clone();
                recorder.before_call(tracked).await;
                recorder.after_call(id, CallOutcome::default()).await;
            }
            CallEdits::new()
        });
    }

    /// What a call would change.
    pub(super) fn preview(&self, asked: &AskedCall<'_>) -> Option<BoxFuture<Vec<FileEdit>>> {
        let known = self.calls.get(asked.id);
        let cwd = asked.cwd.or(known.map(|call| call.cwd.as_path())).unwrap_or(&self.cwd);
        let planned = planned(asked.tool, asked.input, cwd);
        if planned.is_empty() {
            return None;
        }
        let preview = self.recorder.preview(asked.turn?.clone(), planned);
        Some(Box::pin(async move { preview.await.into_iter().map(|recorded| recorded.edit).collect() }))
    }

    /// The runtime's tasks.
    pub(super) fn tasks(&self) -> &RuntimeTasks {
        &self.tasks
    }

    /// The runtime's tasks, to change what clients know of them.
    pub(super) fn tasks_mut(&mut self) -> &mut RuntimeTasks {
        &mut self.tasks
    }

    /// The turn that began last.
    pub(super) fn last_turn(&self) -> Option<&TurnId> {
        self.last_turn.as_ref()
    }

    /// Whether a subagent is at work, perhaps in the background.
    pub(super) fn is_at_work(&self, agent: &str) -> bool {
        self.tasks.is_live_agent(agent)
    }

    pub(super) fn begin_turn(&mut self, turn: &TurnId) {
        self.recorder.begin_turn(turn);
        self.last_turn = Some(turn.clone());
    }

    /// Ends the calls of a turn, except those of subagents that continue in the background.
    pub(super) fn end_turn(&mut self, turn: TurnId) {
        let live = self.tasks.live_agents();
        let continues = |call: &AnnouncedCall| call.agent.as_ref().is_some_and(|agent| live.contains(agent));
        let ended = self.take_calls(|call| call.turn == turn && !continues(call));
        self.tasks.turn_ended(&turn);
        // A hook of a call whose result is not reported. Later changes are not its work.
        self.ended_hook = None;
        let continuing = self.calls.values().filter(|call| call.turn == turn);
        let continuing: HashSet<String> = continuing.flat_map(AnnouncedCall::ids).collect();
        let recorder = Arc::clone(&self.recorder);
        self.push(async move {
            until_announced(&ended).await;
            recorder.end_turn(turn, continuing).await;
            CallEdits::new()
        });
    }

    /// A turn was cancelled. It ends when the runtime has stopped working on it.
    pub(super) fn turn_stopped(&mut self, key: TurnKey, turn: TurnId) {
        self.stopped.push((key, turn));
    }

    /// The runtime has stopped working on a cancelled turn.
    pub(super) fn turn_drained(&mut self, key: TurnKey) {
        let (drained, stopped) =
            std::mem::take(&mut self.stopped).into_iter().partition(|(of, _)| *of == key);
        self.stopped = stopped;
        let drained: Vec<(TurnKey, TurnId)> = drained;
        for (_, turn) in drained {
            self.end_turn(turn);
        }
    }

    /// Ends everything after the runtime has exited.
    pub(super) async fn finish(&mut self) {
        for (_, turn) in std::mem::take(&mut self.stopped) {
            self.end_turn(turn);
        }
        for call in self.tasks.clear() {
            self.background_ended(call);
        }
        for hook in std::mem::take(&mut self.hooks) {
            self.end_hook(&hook);
        }
        let calls = self.take_calls(|_| true);
        self.end_silently(calls);
        let Some(work) = self.work.take() else { return };
        if tokio::time::timeout(FINISH_TIME, work).await.is_err() {
            tracing::warn!("the recorder of edits did not finish in time");
        }
    }

    /// Follows the runtime's tasks, hooks and results. Returns whether the message must wait for
    /// the recorder.
    pub(super) fn follow(&mut self, message: &Message, turn: Option<TurnId>) -> bool {
        if let Message::User(message) = message {
            return self.results(message);
        }
        let Message::System(message) = message else { return false };
        match message {
            SystemMessage::TaskStarted(task) => {
                self.tasks.started(task, turn.or_else(|| self.last_turn.clone()));
            }
            SystemMessage::TaskUpdated(task) => {
                let status = task.patch.as_ref().and_then(|patch| patch.status.as_deref());
                if let (Some(id), true) = (&task.task_id, status.is_some_and(is_final)) {
                    self.task_ended(id);
                }
            }
            SystemMessage::TaskNotification(task) => {
                if let Some(id) = &task.task_id {
                    self.task_ended(id);
                }
            }
            SystemMessage::HookStarted(hook) => self.hook_started(hook, turn),
            SystemMessage::HookResponse(hook) => self.hook_ended(hook),
            SystemMessage::Init(_)
            | SystemMessage::Status(_)
            | SystemMessage::SessionStateChanged(_)
            | SystemMessage::CompactBoundary(_)
            | SystemMessage::ApiRetry(_)
            | SystemMessage::TaskProgress(_)
            | SystemMessage::HookProgress(_)
            | SystemMessage::Notice(_)
            | SystemMessage::Unknown(_) => {}
        }
        false
    }

    fn results(&mut self, message: &UserFrameMessage) -> bool {
        let content = message.message.as_ref().and_then(|message| message.content.as_ref());
        let blocks = content.map(|content| content.blocks()).unwrap_or_default();
        let ids: Vec<&String> = blocks
            .iter()
            .filter_map(|block| match block {
                ContentBlock::ToolResult(result) => result.tool_use_id.as_ref(),
                ContentBlock::Text(_)
                | ContentBlock::Thinking(_)
                | ContentBlock::ToolUse(_)
                | ContentBlock::Unknown(_) => None,
            })
            .collect();
        let Some(first) = ids.first().map(|id| (*id).clone()) else { return false };
        if let Some(parent) = &message.parent_tool_use_id {
            self.tasks.has_result(parent);
        }
        // The structured output does not name its call.
        let structured = message.tool_use_result.as_deref().filter(|_| ids.len() == 1);
        let mut ended = Vec::new();
        let (mut covers_hooks, mut turn) = (false, None);
        for id in ids {
            let call = self.calls.remove(id);
            let wanted = structured.filter(|raw| call.is_some() || ResultFields::may_have_original(raw));
            let fields = wanted.map(ResultFields::read).unwrap_or_default();
            let in_background = call
                .as_ref()
                .is_some_and(|call| self.tasks.continues(id, &call.turn, fields.background_task.as_deref()));
            let outcome = fields.outcome(in_background);
            match call {
                Some(call) => {
                    covers_hooks |= call.scans();
                    turn = Some(call.turn.clone());
                    ended.extend(call.ids().into_iter().map(|of| (id.clone(), of, outcome.clone())));
                }
                None if outcome.original.is_some() => ended.push((id.clone(), id.clone(), outcome)),
                None => {}
            }
        }
        // The hooks of a call end before its result arrives.
        let hook = self.ended_hook.take().filter(|_| !covers_hooks);
        let turn = turn.or_else(|| self.last_turn.clone());
        let hook = hook.zip(turn).map(|(hook, turn)| TrackedCall {
            turn,
            tool_call: hook_id(&hook),
            reach: EditReach::AnyFileAlready,
        });
        if ended.is_empty() && hook.is_none() {
            return false;
        }
        if covers_hooks || hook.is_some() {
            self.scanned_at = Some(Instant::now());
        }
        self.push(end_calls(Arc::clone(&self.recorder), ended, hook.map(|hook| (first, hook))));
        true
    }

    pub(super) fn task_ended(&mut self, id: &str) {
        match self.tasks.ended(id) {
            TaskEnd::Subagent => {
                let calls = self.take_calls(|call| call.agent.as_deref() == Some(id));
                self.end_silently(calls);
            }
            TaskEnd::Command(call) => self.background_ended(call),
            TaskEnd::Nothing => {}
        }
    }

    /// Ends calls whose results the runtime does not report.
    fn end_silently(&mut self, calls: Vec<AnnouncedCall>) {
        let ended = calls.iter().flat_map(AnnouncedCall::ids);
        let ended: Vec<_> = ended.map(|call| (call.clone(), call, CallOutcome::default())).collect();
        if !ended.is_empty() {
            let ending = end_calls(Arc::clone(&self.recorder), ended, None);
            self.push(async move {
                until_announced(&calls).await;
                ending.await
            });
        }
    }

    fn background_ended(&mut self, call: String) {
        let recorder = Arc::clone(&self.recorder);
        self.scanned_at = Some(Instant::now());
        self.push(async move {
            recorder.background_ended(call).await;
            CallEdits::new()
        });
    }

    /// A hook of the user's settings started. The runtime does not wait for the host.
    fn hook_started(&mut self, hook: &HookMessage, turn: Option<TurnId>) {
        if let Some(tool) = tool_of(hook) {
            let runs_after = hook.hook_event.as_deref() != Some("PreToolUse");
            if self.hooked_tools.len() < MAX_HOOKED_TOOLS {
                *self.hooked_tools.entry(tool.to_owned()).or_default() |= runs_after;
            }
            return;
        }
        let (Some(id), Some(turn)) = (&hook.hook_id, turn) else { return };
        let is_fresh = self.scanned_at.is_some_and(|at| at.elapsed() < FRESH);
        let reach = if is_fresh { EditReach::AnyFileAlready } else { EditReach::AnyFile };
        let call = TrackedCall { turn, tool_call: hook_id(id), reach };
        self.hooks.insert(id.clone());
        self.scanned_at = Some(Instant::now());
        let recorder = Arc::clone(&self.recorder);
        self.push(async move {
            recorder.before_call(call).await;
            CallEdits::new()
        });
    }

    fn hook_ended(&mut self, hook: &HookMessage) {
        let Some(id) = &hook.hook_id else { return };
        if tool_of(hook).is_some() {
            if hook.hook_event.as_deref() != Some("PreToolUse") {
                self.ended_hook = Some(id.clone());
            }
        } else if self.hooks.remove(id) {
            self.end_hook(id);
        }
    }

    fn end_hook(&mut self, id: &str) {
        let ended = vec![(String::new(), hook_id(id), CallOutcome::default())];
        self.push(end_calls(Arc::clone(&self.recorder), ended, None));
    }

    /// Adds work for the recorder, to be done after its other work.
    fn push(&mut self, work: impl Future<Output = CallEdits> + Send + 'static) {
        self.work = Some(match self.work.take() {
            Some(earlier) => Box::pin(async move {
                let mut edits = earlier.await;
                edits.extend(work.await);
                edits
            }),
            None => Box::pin(work),
        });
    }
}

/// Waits until the announcements of calls have ended.
async fn until_announced(calls: &[AnnouncedCall]) {
    for call in calls {
        call.announced.cancelled().await;
    }
}

/// Ends calls, each with the id of the call whose result shows the edits. Then records what a
/// hook changed, which the given result shows, too.
async fn end_calls(
    recorder: Arc<dyn EditRecorder>,
    calls: Vec<(String, String, CallOutcome)>,
    hook: Option<(String, TrackedCall)>,
) -> CallEdits {
    let mut edits = CallEdits::new();
    let mut add = |shown: String, found: Vec<RecordedEdit>| {
        edits.entry(shown).or_default().extend(found.into_iter().map(|recorded| recorded.edit));
    };
    for (shown, call, outcome) in calls {
        add(shown, recorder.after_call(call, outcome).await);
    }
    if let Some((shown, hook)) = hook {
        let id = hook.tool_call.clone();
        recorder.before_call(hook).await;
        add(shown, recorder.after_call(id, CallOutcome::default()).await);
    }
    edits
}

fn hook_id(hook: &str) -> String {
    format!("hook-{hook}")
}

/// The tool whose use triggered a hook, such as `Write` for `PostToolUse:Write`.
fn tool_of(hook: &HookMessage) -> Option<&str> {
    let (event, tool) = hook.hook_name.as_deref()?.split_once(':')?;
    matches!(event, "PreToolUse" | "PostToolUse" | "PostToolUseFailure").then_some(tool)
}
