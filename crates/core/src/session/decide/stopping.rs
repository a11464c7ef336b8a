//! Requests to stop work, and to restart the agent.

use ahp_types::common::StringOrMarkdown;
use ahp_types::state::{BackgroundWork, ToolCallState};

use super::leftovers::{self, WorkFacts};
use super::turns::{self, Resumable};
use super::{
    ActionTarget, AgentState, CLOSING, Decision, DecisionView, Effect, Phase, error_info, inputs, parent_of,
    process_of, reject, titles, tools,
};
use crate::agent::{AgentCommand, StopTarget, StoppedWork, TurnOutcome, WorkKind};

/// The effect of a request to stop work.
#[derive(Debug, Default, PartialEq)]
pub(in crate::session) struct StopPlan {
    /// The work that the decision itself stops.
    pub(in crate::session) stopped: Vec<StoppedWork>,
    /// The work that the agent is asked to stop. It counts as stopped if the agent ends before
    /// it answers. `None` if the agent is not asked.
    pub(in crate::session) asked: Option<Vec<StoppedWork>>,
}

/// Stops work: `StopTarget::Background` also cancels the running turn. `request` identifies the
/// request in the agent's answer.
pub(super) fn stop(
    agent: &AgentState,
    view: DecisionView<'_>,
    request: u64,
    target: &StopTarget,
) -> Decision {
    if let Some(refused) = refusal(agent, view, "stop the work in its parent chat") {
        return refused;
    }
    match target {
        StopTarget::Background => stop_all(agent, view, request),
        StopTarget::ToolCall(id) => match work_of_call(view, id) {
            Ok(work) => ask_agent(agent, request, target, work),
            Err(reason) => reject(reason),
        },
        StopTarget::Work(id) => match background(view).find(|work| work.id == id.as_str()) {
            Some(work) => ask_agent(agent, request, target, work.into()),
            None => reject("no work with this workId is running in the background of this chat"),
        },
    }
}

/// Cancels the running turn and stops all work in the background.
fn stop_all(agent: &AgentState, view: DecisionView<'_>, request: u64) -> Decision {
    let mut decision = Decision::default();
    let mut stopped = Vec::new();
    if let Some(active) = &view.chat.active_turn {
        decision = turns::cancelled(agent, view, &active.id);
        let ended = turns::ended(agent, view, &active.id, TurnOutcome::Cancelled);
        decision.actions.insert(0, (ActionTarget::Chat, ended));
        let label = Some(titles::title_from(&active.message.text)).filter(|label| !label.is_empty());
        let label = label.unwrap_or_else(|| "Turn".to_owned());
        stopped.push(StoppedWork { kind: WorkKind::Turn, label });
    }
    let works: Vec<StoppedWork> = background(view).map(StoppedWork::from).collect();
    let can_ask = matches!(agent.phase, Phase::Live(_)) && agent.features.stop_work;
    // The turn may have started work that is not in the list yet.
    let asked = (can_ask && (!stopped.is_empty() || !works.is_empty())).then_some(works);
    if asked.is_some() {
        let target = StopTarget::Background;
        decision.effects.push(Effect::Agent(AgentCommand::StopWork { request, target }));
    }
    decision.stop = StopPlan { stopped, asked };
    decision
}

/// Asks the agent to stop one piece of work.
fn ask_agent(agent: &AgentState, request: u64, target: &StopTarget, work: StoppedWork) -> Decision {
    match agent.phase {
        Phase::Live(_) => {}
        Phase::Opening { .. } => return reject("the agent is being restarted, which ends this work"),
        Phase::Cold(_) | Phase::Asking { .. } | Phase::Closing(_) => {
            return reject("the agent is not running, so this work has ended");
        }
    }
    if !agent.features.stop_work {
        return reject("this agent cannot stop single calls and commands; stop the turn instead");
    }
    let command = AgentCommand::StopWork { request, target: target.clone() };
    let stop = StopPlan { stopped: Vec::new(), asked: Some(vec![work]) };
    Decision { stop, effects: vec![Effect::Agent(command)], ..Decision::default() }
}

/// The work of a tool call: it runs in the turn, or has moved to the background.
fn work_of_call(view: DecisionView<'_>, id: &str) -> Result<StoppedWork, &'static str> {
    if let Some(work) = background(view).find(|work| work.tool_call() == Some(id)) {
        return Ok(work.into());
    }
    let running = turns::running(view);
    match running.and_then(|turn| tools::call(view, turn, id)) {
        Some(ToolCallState::Running(call)) => {
            let (StringOrMarkdown::Plain(text) | StringOrMarkdown::Markdown { markdown: text }) =
                &call.invocation_message;
            let is_subagent = call.meta.as_ref().and_then(|meta| meta.get("toolKind"))
                == Some(&serde_json::Value::from("subagent"));
            let kind = if is_subagent { WorkKind::Subagent } else { WorkKind::Command };
            Ok(StoppedWork { kind, label: titles::title_from(text) })
        }
        Some(
            ToolCallState::Streaming(_)
            | ToolCallState::PendingConfirmation(_)
            | ToolCallState::AuthRequired(_),
        ) => Err("the tool call has not started; deny it, or stop the turn"),
        Some(
            ToolCallState::PendingResultConfirmation(_)
            | ToolCallState::Completed(_)
            | ToolCallState::Cancelled(_)
            | ToolCallState::Unknown(_),
        ) => Err("the tool call with this toolCallId has finished"),
        None => Err("no tool call with this toolCallId is running in this chat"),
    }
}

/// Ends the agent's process. The next message opens another agent. While the process is
/// ending, the chat is in the phase `Opening`: messages wait, and output is dropped.
pub(super) fn restart(agent: &AgentState, view: DecisionView<'_>) -> Decision {
    if let Some(refused) = refusal(agent, view, "restart the agent of its parent chat") {
        return refused;
    }
    let history = match &agent.phase {
        Phase::Opening { history, .. } | Phase::Live(history) => history.clone(),
        // There is no process.
        Phase::Cold(_) | Phase::Asking { .. } | Phase::Closing(_) => return Decision::default(),
    };
    let mut decision = Decision {
        phase: Some(Phase::Opening { history, prompt: None }),
        folded: Some(None),
        effects: vec![Effect::CloseAgent],
        ..Decision::default()
    };
    if let Some(turn) = turns::running(view) {
        let message = format!("{} was restarted. Resume the turn, or send a message.", agent.name);
        let info = error_info("agent_restarted", &message);
        let failed = turns::failed(agent, view, turn, info, Resumable::Yes);
        let mut actions =
            leftovers::stop_background_work(view.chat, view.turns, &process_of(agent), view.time);
        actions.extend(inputs::cancel_open_requests(view.chat));
        actions.push(failed);
        actions.extend(leftovers::clear_turn(view.chat));
        decision.actions.extend(actions.into_iter().map(|action| (ActionTarget::Chat, action)));
    }
    decision
}

/// Follows from a cancelled opening: a message that came in the meantime opens another agent.
pub(super) fn opening_cancelled(agent: &AgentState) -> Option<Decision> {
    let Phase::Opening { history, prompt } = &agent.phase else { return None };
    let history = history.clone();
    match prompt {
        None => Some(Decision { phase: Some(Phase::Cold(history)), ..Decision::default() }),
        Some(_) if agent.openings < super::agent::MAX_OPENINGS => {
            Some(Decision { effects: vec![Effect::open(history)], ..Decision::default() })
        }
        Some(_) => None,
    }
}

/// Rejects a request for the chat of a subagent, or for one that is closing.
fn refusal(agent: &AgentState, view: DecisionView<'_>, instead: &str) -> Option<Decision> {
    if matches!(agent.phase, Phase::Closing(_)) {
        return Some(reject(CLOSING));
    }
    let parent = parent_of(view.chat)?;
    Some(reject(&format!("this chat belongs to a subagent; {instead} {parent}")))
}

fn background(view: DecisionView<'_>) -> impl Iterator<Item = WorkFacts<'_>> {
    let works: &[BackgroundWork] = view.chat.background_work.as_deref().unwrap_or_default();
    works.iter().filter_map(WorkFacts::of)
}
