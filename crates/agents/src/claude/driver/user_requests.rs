//! Requests of the runtime that wait for the session: tool calls that need permission, plans,
//! questions and elicitations.
//!
//! A request is answered exactly once: by the session's policy, by a user, or with a denial
//! when its turn is cancelled. A request that the runtime withdraws is not answered.

use std::path::{Path, PathBuf};

use ahp_types::actions::{ChatInputCompletedAction, ChatInputRequestedAction, StateAction};
use ahp_types::state::{ChatInputRequest, ChatInputResponseKind, FileEdit};
use innkeeper_claude::wire::control::{CanUseTool, Elicitation, HookCallback};
use innkeeper_claude::{IncomingRequest, PermissionAnswer};
use innkeeper_core::agent::{
    AgentEvent, Approval, BoxFuture, InputAnswer, PermissionQuery, PermissionQuestion, PermissionStage,
    PermissionVerdict, ToolAnswer,
};
use innkeeper_core::audit::input_digest;
use innkeeper_core::ids::TurnId;
use serde_json::{Value, json};
use uuid::Uuid;

use super::super::elicitation::{self, PendingElicitation};
use super::super::plan_review::{self, EXIT_PLAN_MODE, PlanSource};
use super::super::rule_suggestions::RuleSuggestions;
use super::super::user_questions::{ASK_USER_QUESTION, UserQuestions};
use super::answers::{hook_decision, permission_answer, question, value_of};
use super::edits::{AnnouncedCall, AskedCall};
use super::{ClaudeDriver, End};

/// Id of the hook that the runtime calls before it uses a tool.
pub(in super::super) const BEFORE_TOOL_USE: &str = "before-tool-use";

/// The answer to the model when a call is denied because its turn was stopped.
const STOPPED: &str = "The user stopped the turn.";

/// A request of the runtime that waits for the session.
#[derive(Debug)]
pub(super) struct WaitingRequest {
    /// The runtime's id of the request.
    id: String,
    /// The turn that shows it; `None` for a background task between turns.
    turn: Option<TurnId>,
    kind: WaitingKind,
}

/// A request for permission whose turn has ended.
#[derive(Debug)]
pub(super) struct UnansweredRequest {
    id: String,
    tool_call: String,
    ask: Box<CanUseTool>,
}

#[derive(Debug)]
enum WaitingKind {
    /// The runtime is about to use a tool.
    BeforeUse { tool_call: String, call: Option<AnnouncedCall> },
    /// The runtime needs permission to use a tool.
    Permission { tool_call: String, ask: Box<CanUseTool> },
    /// The user has allowed a call with a changed input, which is checked before it runs.
    Edited { tool_call: String, ask: Box<CanUseTool>, answer: PermissionAnswer },
    /// The call may run as soon as the recorder has read what it may change.
    Recording { tool_call: String, answer: Value, denial: Value },
    /// The runtime needs approval of a plan.
    Plan { tool_call: String, ask: Box<CanUseTool> },
    /// A tool asks the user.
    Questions { request: String, questions: Box<UserQuestions>, ask: Box<CanUseTool> },
    /// An MCP server asks the user.
    Elicitation { request: String, pending: PendingElicitation },
}

impl WaitingRequest {
    /// Whether a turn shows the request.
    pub(super) fn is_of(&self, turn: &TurnId) -> bool {
        self.turn.as_ref() == Some(turn)
    }
}

impl WaitingKind {
    fn tool_call(&self) -> Option<&str> {
        match self {
            Self::BeforeUse { tool_call, .. }
            | Self::Permission { tool_call, .. }
            | Self::Edited { tool_call, .. }
            | Self::Recording { tool_call, .. }
            | Self::Plan { tool_call, .. } => Some(tool_call),
            Self::Questions { .. } | Self::Elicitation { .. } => None,
        }
    }

    fn input_request(&self) -> Option<&str> {
        match self {
            Self::Questions { request, .. } | Self::Elicitation { request, .. } => Some(request),
            Self::BeforeUse { .. }
            | Self::Permission { .. }
            | Self::Edited { .. }
            | Self::Recording { .. }
            | Self::Plan { .. } => None,
        }
    }

    fn stage(&self) -> Option<PermissionStage> {
        match self {
            Self::BeforeUse { .. } | Self::Edited { .. } => Some(PermissionStage::BeforeUse),
            Self::Permission { .. } => Some(PermissionStage::Required),
            Self::Recording { .. }
            | Self::Plan { .. }
            | Self::Questions { .. }
            | Self::Elicitation { .. } => None,
        }
    }

    /// Whether no user is asked.
    fn is_check(&self) -> bool {
        match self {
            Self::BeforeUse { .. } | Self::Edited { .. } | Self::Recording { .. } => true,
            Self::Permission { .. }
            | Self::Plan { .. }
            | Self::Questions { .. }
            | Self::Elicitation { .. } => false,
        }
    }

    /// The answer that denies the request.
    fn denial(&self, reason: &str) -> Value {
        match self {
            Self::BeforeUse { .. } => hook_decision("deny", reason),
            Self::Permission { ask, .. }
            | Self::Edited { ask, .. }
            | Self::Plan { ask, .. }
            | Self::Questions { ask, .. } => PermissionAnswer::deny(reason).to_json(ask),
            Self::Recording { denial, .. } => denial.clone(),
            Self::Elicitation { .. } => elicitation::cancelled(),
        }
    }
}

/// A request after the file system was read for it.
#[derive(Debug)]
pub(super) enum PreparedRequest {
    /// A tool call with its paths resolved.
    Query(Box<PermissionQuery>),
    /// A plan with its text.
    Plan { turn: TurnId, tool_call: String, text: String },
    /// The recorder has read what a call may change. Names the runtime's request.
    Recorded(String),
}

impl ClaudeDriver {
    /// Responds to a request of the runtime, or passes it to the session.
    pub(super) fn runtime_request(&mut self, id: &str, request: IncomingRequest) -> Result<(), End> {
        let answer = match request {
            IncomingRequest::CanUseTool(ask) => return self.permission_request(id, ask),
            IncomingRequest::HookCallback(hook) => return self.hook_callback(id, &hook),
            IncomingRequest::Elicitation(request) => return self.elicitation(id, &request),
            IncomingRequest::McpMessage(_) => Err("this host does not run MCP servers".to_owned()),
            IncomingRequest::UserDialog(_) => Err("this host does not show dialogs".to_owned()),
            IncomingRequest::TokenRefresh(_) => Err("this host does not have another token".to_owned()),
            // `innkeeper-claude` has already responded.
            IncomingRequest::Unknown(_) => return Ok(()),
        };
        self.respond(id, answer);
        Ok(())
    }

    /// The runtime no longer waits for a response.
    pub(super) fn request_withdrawn(&mut self, id: &str) -> Result<(), End> {
        let Some(at) = self.waiting_requests.iter().position(|waiting| waiting.id == id) else {
            return Ok(());
        };
        let WaitingRequest { turn, kind, .. } = self.waiting_requests.remove(at);
        match kind {
            WaitingKind::BeforeUse { .. } | WaitingKind::Edited { .. } | WaitingKind::Recording { .. } => {}
            WaitingKind::Permission { tool_call, .. } | WaitingKind::Plan { tool_call, .. } => {
                self.edits.forget(&tool_call);
                self.events.push(AgentEvent::PermissionWithdrawn { tool_call })?;
            }
            WaitingKind::Questions { request, .. } | WaitingKind::Elicitation { request, .. } => {
                let cancelled = ChatInputCompletedAction {
                    request_id: request,
                    response: ChatInputResponseKind::Cancel,
                    answers: None,
                };
                self.act(StateAction::ChatInputCompleted(cancelled))?;
            }
        }
        self.end_question_turn(turn.as_ref())
    }

    /// Passes a request to the session, after the file system was read for it.
    pub(super) fn request_prepared(&mut self, prepared: PreparedRequest) -> Result<(), End> {
        match prepared {
            PreparedRequest::Query(mut query) => {
                let stage = Some(query.stage);
                let of_call = |waiting: &&WaitingRequest| {
                    waiting.kind.tool_call() == Some(&query.tool_call) && waiting.kind.stage() == stage
                };
                if let Some(waiting) = self.waiting_requests.iter().find(of_call) {
                    // The turn may have ended meanwhile.
                    query.turn.clone_from(&waiting.turn);
                    self.events.push(AgentEvent::PermissionRequested(query))?;
                }
            }
            PreparedRequest::Plan { turn, tool_call, text } => {
                if self.is_waiting(&tool_call, |kind| matches!(kind, WaitingKind::Plan { .. })) {
                    self.act(plan_review::ask(&turn, &tool_call, text))?;
                }
            }
            PreparedRequest::Recorded(id) => {
                let at = self.waiting_requests.iter().position(|waiting| waiting.id == id);
                let Some(at) = at else { return Ok(()) };
                let waiting = self.waiting_requests.remove(at);
                if let WaitingKind::Recording { answer, .. } = waiting.kind {
                    self.respond(&id, Ok(answer));
                    return self.end_question_turn(waiting.turn.as_ref());
                }
            }
        }
        Ok(())
    }

    /// Answers a request that lets a call run, after the recorder has read what the call may
    /// change.
    fn let_run(
        &mut self,
        waiting: WaitingRequest,
        call: Option<AnnouncedCall>,
        answer: Value,
    ) -> Result<(), End> {
        let WaitingRequest { id, turn, kind } = waiting;
        let Some((call, tool_call)) = call.zip(kind.tool_call().map(str::to_owned)) else {
            self.respond(&id, Ok(answer));
            return self.end_question_turn(turn.as_ref());
        };
        let denial = kind.denial(STOPPED);
        self.wait(&id, turn, WaitingKind::Recording { tool_call, answer, denial });
        let recording = self.edits.announce(call);
        self.preparing.spawn(async move {
            recording.await;
            PreparedRequest::Recorded(id)
        });
        Ok(())
    }

    /// What a call that needs permission may change.
    fn asked_call(&self, turn: Option<&TurnId>, ask: &CanUseTool, input: &Value) -> Option<AnnouncedCall> {
        self.edits.call(&AskedCall {
            turn,
            id: ask.tool_use_id.as_deref()?,
            tool: ask.tool_name.as_deref()?,
            input,
            agent: ask.agent_id.as_deref(),
            cwd: None,
        })
    }

    /// Answers a request with the decision of the session's policy.
    pub(super) fn policy_decided(
        &mut self,
        tool_call: &str,
        stage: PermissionStage,
        verdict: PermissionVerdict,
    ) -> Result<(), End> {
        let Some(mut waiting) = self.take_waiting(tool_call, |kind| kind.stage() == Some(stage)) else {
            return Ok(());
        };
        if let PermissionVerdict::Denied { reason } = &verdict {
            self.mapper.denied(tool_call);
            self.edits.forget(tool_call);
            self.respond(&waiting.id, Ok(waiting.kind.denial(reason)));
            return self.end_question_turn(waiting.turn.as_ref());
        }
        let turn = waiting.turn.clone();
        let (call, answer) = match (&mut waiting.kind, verdict) {
            (WaitingKind::Permission { ask, .. }, _) => {
                let call = self.asked_call(turn.as_ref(), ask, &value_of(ask.input.as_deref()));
                (call, PermissionAnswer::allow().to_json(ask))
            }
            (WaitingKind::Edited { ask, answer, .. }, _) => {
                let edited = match &*answer {
                    PermissionAnswer::Allow { updated_input, .. } => updated_input.as_ref(),
                    PermissionAnswer::Deny { .. } => None,
                };
                let call = edited.and_then(|edited| self.asked_call(turn.as_ref(), ask, edited));
                (call, answer.to_json(ask))
            }
            (WaitingKind::BeforeUse { call, .. }, verdict) => {
                let answer = match verdict {
                    PermissionVerdict::MustAsk { reason } => hook_decision("ask", &reason),
                    PermissionVerdict::Allowed => {
                        hook_decision("allow", "A permission rule allows this call.")
                    }
                    PermissionVerdict::NoObjection | PermissionVerdict::Denied { .. } => json!({}),
                };
                (call.take(), answer)
            }
            (
                WaitingKind::Recording { .. }
                | WaitingKind::Plan { .. }
                | WaitingKind::Questions { .. }
                | WaitingKind::Elicitation { .. },
                _,
            ) => return Ok(()),
        };
        self.let_run(waiting, call, answer)
    }

    /// Answers a request with a user's decision about a tool call or a plan.
    pub(super) fn user_decided(&mut self, tool_call: &str, answer: ToolAnswer) -> Result<(), End> {
        let ToolAnswer::Confirmed { approval, input, option, suggestion, remembered } = answer else {
            tracing::error!(tool_call, "received the result of a tool that the runtime runs itself");
            return Ok(());
        };
        let asked =
            |kind: &WaitingKind| matches!(kind, WaitingKind::Permission { .. } | WaitingKind::Plan { .. });
        let Some(waiting) = self.take_waiting(tool_call, asked) else { return Ok(()) };
        self.goes_on(Some(tool_call))?;
        if approval == Approval::Denied {
            self.mapper.denied(tool_call);
        }
        let answer = match &waiting.kind {
            WaitingKind::Permission { ask, .. } => {
                let answer =
                    permission_answer(ask, approval, input.as_deref(), suggestion.as_deref(), &remembered);
                if let PermissionAnswer::Allow { updated_input: Some(edited), .. } = &answer {
                    let edited = edited.clone();
                    self.check_edited(waiting, tool_call, edited, answer);
                    return Ok(());
                }
                if matches!(answer, PermissionAnswer::Allow { .. }) {
                    let call = self.asked_call(waiting.turn.as_ref(), ask, &value_of(ask.input.as_deref()));
                    let answer = answer.to_json(ask);
                    return self.let_run(waiting, call, answer);
                }
                self.edits.forget(tool_call);
                answer.to_json(ask)
            }
            WaitingKind::Plan { ask, .. } => {
                let input = value_of(ask.input.as_deref());
                plan_review::answered(approval, option.as_deref(), suggestion.as_deref(), &input).to_json(ask)
            }
            WaitingKind::BeforeUse { .. }
            | WaitingKind::Edited { .. }
            | WaitingKind::Recording { .. }
            | WaitingKind::Questions { .. }
            | WaitingKind::Elicitation { .. } => {
                return Ok(());
            }
        };
        self.respond(&waiting.id, Ok(answer));
        self.end_question_turn(waiting.turn.as_ref())
    }

    /// Asks the session about an input that the user has changed: what is denied in every mode
    /// stays denied.
    fn check_edited(
        &mut self,
        waiting: WaitingRequest,
        tool_call: &str,
        edited: Value,
        answer: PermissionAnswer,
    ) {
        let WaitingRequest { id, turn, kind: WaitingKind::Permission { ask, .. } } = waiting else { return };
        let name = ask.tool_name.clone().unwrap_or_default();
        if let Some(turn) = &turn {
            // The call is known, so no action follows; its result names the new input.
            self.mapper.permission_requested(turn, tool_call, &name, &edited);
        }
        let question = question(&name, &edited, None, RuleSuggestions::default());
        let tool_call = tool_call.to_owned();
        self.wait(&id, turn.clone(), WaitingKind::Edited { tool_call: tool_call.clone(), ask, answer });
        self.prepare((turn, tool_call, PermissionStage::BeforeUse), name, edited, (question, None));
    }

    /// Answers a request with a user's answers to questions.
    pub(super) fn user_answered(&mut self, answer: &InputAnswer) -> Result<(), End> {
        let is_this =
            |waiting: &WaitingRequest| waiting.kind.input_request() == Some(answer.request.as_str());
        let Some(at) = self.waiting_requests.iter().position(is_this) else { return Ok(()) };
        let waiting = self.waiting_requests.remove(at);
        self.goes_on(None)?;
        let reply = match &waiting.kind {
            WaitingKind::Questions { questions, ask, .. } => questions.answered(answer).to_json(ask),
            WaitingKind::Elicitation { pending, .. } => pending.answered(answer),
            WaitingKind::BeforeUse { .. }
            | WaitingKind::Permission { .. }
            | WaitingKind::Edited { .. }
            | WaitingKind::Recording { .. }
            | WaitingKind::Plan { .. } => {
                return Ok(());
            }
        };
        self.respond(&waiting.id, Ok(reply));
        self.end_question_turn(waiting.turn.as_ref())
    }

    /// Drops the requests of a turn that has ended: some runtimes do not withdraw them. Checks
    /// that no user sees are still answered, since a subagent in the background may wait for them.
    /// Returns the subagents' requests for permission, with which they wait, too.
    pub(super) fn turn_without_requests(&mut self, turn: &TurnId) -> Vec<UnansweredRequest> {
        let mut unanswered = Vec::new();
        for mut waiting in std::mem::take(&mut self.waiting_requests) {
            if !waiting.is_of(turn) {
                self.waiting_requests.push(waiting);
                continue;
            }
            if waiting.kind.is_check() {
                waiting.turn = None;
                self.waiting_requests.push(waiting);
            } else if let WaitingKind::Permission { tool_call, ask } = waiting.kind
                && ask.agent_id.as_deref().is_some_and(|agent| self.edits.is_at_work(agent))
            {
                unanswered.push(UnansweredRequest { id: waiting.id, tool_call, ask });
            }
        }
        unanswered
    }

    /// Asks again in another turn.
    pub(super) fn ask_again(&mut self, unanswered: Vec<UnansweredRequest>) -> Result<(), End> {
        for UnansweredRequest { id, tool_call, ask } in unanswered {
            // Clients show the call as part of the ended turn.
            self.mapper.forget_call(tool_call);
            self.permission_request(&id, ask)?;
        }
        Ok(())
    }

    /// Denies the requests of a turn that was cancelled.
    pub(super) fn deny_requests_of(&mut self, turn: &TurnId) {
        let (denied, kept) =
            std::mem::take(&mut self.waiting_requests).into_iter().partition(|waiting| waiting.is_of(turn));
        self.waiting_requests = kept;
        self.deny_requests(denied);
        self.question_turn.take_if(|asking| asking == turn);
    }

    /// Denies all requests, before the runtime's stdin is closed: some runtimes use a tool whose
    /// check is not answered.
    pub(super) fn deny_all_requests(&mut self) {
        let all = std::mem::take(&mut self.waiting_requests);
        self.deny_requests(all);
    }

    fn deny_requests(&mut self, denied: Vec<WaitingRequest>) {
        for WaitingRequest { id, kind, .. } in denied {
            if let Some(tool_call) = kind.tool_call() {
                self.mapper.denied(tool_call);
                self.edits.forget(tool_call);
            }
            self.respond(&id, Ok(kind.denial(STOPPED)));
        }
    }

    fn permission_request(&mut self, id: &str, ask: Box<CanUseTool>) -> Result<(), End> {
        let tool_call = ask.tool_use_id.clone().unwrap_or_else(|| format!("call-{id}"));
        let name = ask.tool_name.clone().unwrap_or_else(|| "unknown".to_owned());
        let input = value_of(ask.input.as_deref());
        let Some(turn) = self.turn_of_request(&name, ask.agent_id.as_deref())? else {
            self.respond(id, Ok(PermissionAnswer::deny(STOPPED).to_json(&ask)));
            return Ok(());
        };
        if name == ASK_USER_QUESTION {
            return self.questions(id, turn, &tool_call, &input, ask);
        }
        // Newer runtimes remove the plan from the input.
        let written = self.mapper.input_of(&tool_call);
        for action in self.mapper.permission_requested(&turn, &tool_call, &name, &input) {
            self.act(action)?;
        }
        if name == EXIT_PLAN_MODE {
            let source = PlanSource::of_call(&input, written.as_ref(), self.plan_file.as_deref());
            self.wait(id, Some(turn.clone()), WaitingKind::Plan { tool_call: tool_call.clone(), ask });
            self.preparing.spawn_blocking(move || PreparedRequest::Plan {
                turn,
                tool_call,
                text: source.read(),
            });
            return Ok(());
        }
        let suggestions = RuleSuggestions::parse(ask.permission_suggestions.as_deref());
        let question = question(&name, &input, Some(&ask), suggestions);
        let asked = AskedCall {
            turn: Some(&turn),
            id: &tool_call,
            tool: &name,
            input: &input,
            agent: None,
            cwd: None,
        };
        let preview = self.edits.preview(&asked);
        self.wait(id, Some(turn.clone()), WaitingKind::Permission { tool_call: tool_call.clone(), ask });
        self.prepare((Some(turn), tool_call, PermissionStage::Required), name, input, (question, preview));
        Ok(())
    }

    fn hook_callback(&mut self, id: &str, hook: &HookCallback) -> Result<(), End> {
        if hook.callback_id.as_deref() != Some(BEFORE_TOOL_USE) {
            self.respond(id, Ok(json!({})));
            return Ok(());
        }
        let call = hook.input.as_deref().and_then(|input| serde_json::from_str::<Value>(input.get()).ok());
        let Some(call) = call else {
            // A call that cannot be checked must not run.
            self.respond(id, Ok(hook_decision("deny", "The host cannot read this call.")));
            return Ok(());
        };
        let text = |field: &str| call.get(field).and_then(Value::as_str).map(str::to_owned);
        let name = text("tool_name").unwrap_or_else(|| "unknown".to_owned());
        let tool_call = hook.tool_use_id.clone().or_else(|| text("tool_use_id"));
        let tool_call = tool_call.unwrap_or_else(|| format!("call-{id}"));
        let (agent, cwd) = (text("agent_id"), text("cwd").map(PathBuf::from));
        let in_background = self.is_in_background(agent.as_deref());
        // A background task may use tools while no turn is shown; its requests are still checked.
        let turn = match self.shown_turn() {
            Some(turn) => Some(turn),
            None if in_background || self.turns.is_free() => None,
            None => {
                self.respond(id, Ok(hook_decision("deny", STOPPED)));
                return Ok(());
            }
        };
        let input = call.get("tool_input").cloned().unwrap_or(Value::Null);
        let path = input.get("file_path").and_then(Value::as_str).map(Path::new);
        if let Some(path) = path.filter(|path| name == "Write" && self.access.is_in_plans(path)) {
            self.plan_file = Some(path.to_owned());
        }
        let asked = self.edits.call(&AskedCall {
            turn: turn.as_ref(),
            id: &tool_call,
            tool: &name,
            input: &input,
            agent: agent.as_deref(),
            cwd: cwd.as_deref().filter(|cwd| cwd.is_absolute()),
        });
        let question = question(&name, &input, None, RuleSuggestions::default());
        // The end of the shown turn does not end the work in the background.
        let turn = turn.filter(|_| !in_background);
        self.wait(id, turn.clone(), WaitingKind::BeforeUse { tool_call: tool_call.clone(), call: asked });
        self.prepare((turn, tool_call, PermissionStage::BeforeUse), name, input, (question, None));
        Ok(())
    }

    fn questions(
        &mut self,
        id: &str,
        turn: TurnId,
        tool_call: &str,
        input: &Value,
        ask: Box<CanUseTool>,
    ) -> Result<(), End> {
        match UserQuestions::parse(&format!("question-{tool_call}"), input) {
            Ok((questions, request)) => {
                let kind = WaitingKind::Questions {
                    request: request.id.clone(),
                    questions: Box::new(questions),
                    ask,
                };
                self.wait(id, Some(turn), kind);
                self.act(input_requested(request))
            }
            Err(problem) => {
                self.respond(id, Ok(PermissionAnswer::deny(problem).to_json(&ask)));
                self.end_question_turn(Some(&turn))
            }
        }
    }

    fn elicitation(&mut self, id: &str, request: &Elicitation) -> Result<(), End> {
        let server = request.mcp_server_name.clone().unwrap_or_default();
        let shown = PendingElicitation::parse(&format!("elicitation-{id}"), request);
        let (Some((pending, shown)), Some(turn)) = (shown, self.turn_of_request(&server, None)?) else {
            tracing::warn!(server, "declined an elicitation that cannot be shown");
            self.respond(id, Ok(elicitation::declined()));
            return Ok(());
        };
        self.wait(id, Some(turn), WaitingKind::Elicitation { request: shown.id.clone(), pending });
        self.act(input_requested(shown))
    }

    /// The turn that shows a request. A background task that asks while no turn is running gets
    /// a turn of its own, so that clients can show the question. `None` if the turn of the
    /// request was cancelled.
    fn turn_of_request(&mut self, subject: &str, agent: Option<&str>) -> Result<Option<TurnId>, End> {
        if let Some(turn) = self.shown_turn() {
            return Ok(Some(turn));
        }
        if !self.turns.is_free() && !self.is_in_background(agent) {
            return Ok(None);
        }
        let turn = TurnId::new(&format!("question-{}", Uuid::new_v4()));
        let message = super::report::system_message(format!("A background task asks about {subject}"));
        self.question_turn = Some(turn.clone());
        self.events.push(AgentEvent::TurnStarted { turn: turn.clone(), message })?;
        Ok(Some(turn))
    }

    /// Whether a subagent works in the background, so that it goes on when a turn is stopped.
    fn is_in_background(&self, agent: Option<&str>) -> bool {
        agent.is_some_and(|agent| {
            self.edits.tasks().is_live_agent(agent) && self.edits.tasks().is_detached(agent)
        })
    }

    pub(super) fn shown_turn(&self) -> Option<TurnId> {
        let current = self.requested.as_ref().or(self.background.as_ref());
        current.map(|current| current.turn.clone()).or_else(|| self.question_turn.clone())
    }

    /// Ends a turn that only shows questions, after the last one. Clients see a turn that the runtime
    /// started meanwhile as a part of it, so it ends after that one.
    pub(super) fn end_question_turn(&mut self, turn: Option<&TurnId>) -> Result<(), End> {
        if self.background.is_some()
            || self.waiting_requests.iter().any(|waiting| waiting.turn.as_ref() == turn)
        {
            return Ok(());
        }
        match self.question_turn.take_if(|asking| Some(&*asking) == turn) {
            Some(turn) => {
                let outcome = innkeeper_core::agent::TurnOutcome::Completed;
                Ok(self.events.push(AgentEvent::TurnEnded { turn, outcome })?)
            }
            None => Ok(()),
        }
    }

    /// Resolves the paths of a call and computes what it would change, then asks the session.
    fn prepare(
        &mut self,
        (turn, tool_call, stage): (Option<TurnId>, String, PermissionStage),
        name: String,
        input: Value,
        (question, preview): (PermissionQuestion, Option<BoxFuture<Vec<FileEdit>>>),
    ) {
        let access = self.access.clone();
        let resolve = move |edits| {
            let request = access.request(&name, &input);
            let digest = input_digest(input.to_string().as_bytes());
            let roots = access.roots.clone();
            let question = PermissionQuestion { edits, ..question };
            let query =
                PermissionQuery { turn, tool_call, stage, request, roots, input_digest: digest, question };
            PreparedRequest::Query(Box::new(query))
        };
        let Some(preview) = preview else {
            self.preparing.spawn_blocking(move || resolve(Vec::new()));
            return;
        };
        self.preparing.spawn(async move {
            let edits = preview.await;
            match tokio::task::spawn_blocking(move || resolve(edits)).await {
                Ok(prepared) => prepared,
                Err(error) => match error.try_into_panic() {
                    // Handled like the panic of any other preparation.
                    Ok(panic) => std::panic::resume_unwind(panic),
                    // The host is stopping.
                    Err(_) => std::future::pending().await,
                },
            }
        });
    }

    fn wait(&mut self, id: &str, turn: Option<TurnId>, kind: WaitingKind) {
        self.waiting_requests.push(WaitingRequest { id: id.to_owned(), turn, kind });
    }

    /// Whether a call does not run yet.
    pub(super) fn is_undecided(&self, tool_call: &str) -> bool {
        self.is_waiting(tool_call, |_| true)
    }

    /// Whether a user is asked something.
    pub(super) fn asks_user(&self) -> bool {
        self.waiting_requests.iter().any(|waiting| !waiting.kind.is_check())
    }

    fn is_waiting(&self, tool_call: &str, is: impl Fn(&WaitingKind) -> bool) -> bool {
        let of_call = |waiting: &WaitingRequest| waiting.kind.tool_call() == Some(tool_call);
        self.waiting_requests.iter().any(|waiting| of_call(waiting) && is(&waiting.kind))
    }

    fn take_waiting(&mut self, tool_call: &str, is: impl Fn(&WaitingKind) -> bool) -> Option<WaitingRequest> {
        let is_this =
            |waiting: &WaitingRequest| waiting.kind.tool_call() == Some(tool_call) && is(&waiting.kind);
        let at = self.waiting_requests.iter().position(is_this)?;
        Some(self.waiting_requests.remove(at))
    }

    fn act(&mut self, action: StateAction) -> Result<(), End> {
        Ok(self.events.push(AgentEvent::Action(Box::new(action)))?)
    }

    fn respond(&self, id: &str, answer: Result<Value, String>) {
        if let Err(error) = self.runtime.respond(id, answer) {
            tracing::debug!(%error, "cannot respond to the runtime");
        }
    }
}

fn input_requested(request: ChatInputRequest) -> StateAction {
    StateAction::ChatInputRequested(ChatInputRequestedAction { request })
}
