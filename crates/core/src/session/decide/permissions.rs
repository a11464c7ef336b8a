//! Tool calls that need permission: the policy decides, or asks the user.
//!
//! Every call gets one decision. A call that the user is asked about stays open until a client
//! answers it, the rules or the mode change so that the policy can decide, the agent withdraws
//! it, or its turn ends.

use ahp_types::actions::{
    ChatToolCallCompleteAction, ChatToolCallConfirmedAction, ChatToolCallReadyAction,
    SessionConfigChangedAction, StateAction,
};
use ahp_types::common::{JsonObject, StringOrMarkdown};
use ahp_types::state::{
    ConfirmationOption, ConfirmationOptionKind, FileEditCollection, ToolCallCancellationReason,
    ToolCallConfirmationReason, ToolCallResult, ToolCallState, ToolInput,
};
use serde_json::{Value, json};

use super::{ActionTarget, AgentState, Decision, DecisionView, Effect, settings, tools, turns};
use crate::agent::{AgentCommand, PermissionQuery, PermissionStage, PermissionVerdict};
use crate::audit::AuditDecision;
use crate::ids::{ClientId, TurnId};
use crate::policy::{PermissionMode, PolicyDecision, PolicyLayer, PolicyVerdict, ToolAccess};
use crate::session::call_kind;
use crate::session::policy_inputs::{PERMISSION_MODE, PERMISSIONS, PolicyInputs, with_allowed, workspace_of};

/// The key of a call's `_meta` that explains the decision about it.
const META: &str = "innkeeper.permission";

const ALLOW_ONCE: &str = "allow-once";
const ALLOW_SESSION: &str = "allow-session";
const ALLOW_WORKSPACE: &str = "allow-workspace";
const ALLOW_SUGGESTED: &str = "allow-suggested";
const ACCEPT_EDITS: &str = "accept-edits";
const DENY: &str = "deny";

/// The layer in the audit records of decisions that are not made by the policy.
const LAYER_USER: &str = "user";
const LAYER_AGENT: &str = "agent";
const LAYER_TURN_ENDED: &str = "turn-ended";

/// Most calls that a ledger remembers. An agent runs far fewer at once.
const MAX_CALLS: usize = 256;

/// The calls of a chat's agent that have no decision yet.
#[derive(Clone, Debug, Default)]
pub(in crate::session) struct PermissionLedger {
    /// Calls that a user is asked about.
    open: Vec<OpenPermission>,
    /// Calls that the agent decides about with its own rules.
    left_to_agent: Vec<AuditFacts>,
}

#[derive(Clone, Debug)]
struct OpenPermission {
    query: PermissionQuery,
    /// The rules that the remembering options add.
    rules: Vec<String>,
}

/// A change of the ledger.
#[derive(Debug)]
pub(in crate::session) enum LedgerChange {
    /// A user is asked about a call.
    Opened(Box<PermissionQuery>, Vec<String>),
    /// The agent decides about a call.
    LeftToAgent(AuditFacts),
    /// There is a decision about a call, or it is no longer needed.
    Closed(String),
}

/// An audit record without the time and the place of the decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::session) struct AuditFacts {
    pub(in crate::session) turn: Option<String>,
    pub(in crate::session) tool_call: String,
    pub(in crate::session) tool: String,
    pub(in crate::session) input_digest: String,
    pub(in crate::session) decision: AuditDecision,
    pub(in crate::session) layer: String,
    pub(in crate::session) rule: Option<String>,
    pub(in crate::session) client: Option<ClientId>,
}

impl AuditFacts {
    fn new(query: &PermissionQuery, decision: AuditDecision, layer: &str) -> Self {
        Self {
            turn: query.turn.as_ref().map(|turn| turn.as_str().to_owned()),
            tool_call: query.tool_call.clone(),
            tool: query.request.tool.clone(),
            input_digest: query.input_digest.clone(),
            decision,
            layer: layer.to_owned(),
            rule: None,
            client: None,
        }
    }

    fn of_policy(query: &PermissionQuery, made: &PolicyDecision) -> Self {
        let decision = match made.verdict {
            PolicyVerdict::Allow => AuditDecision::Allow,
            PolicyVerdict::Ask => AuditDecision::Ask,
            PolicyVerdict::Deny => AuditDecision::Deny,
        };
        Self { rule: made.rule.clone(), ..Self::new(query, decision, made.layer.name()) }
    }
}

impl PermissionLedger {
    /// Applies a change.
    pub(in crate::session) fn apply(&mut self, change: LedgerChange) {
        match change {
            LedgerChange::Opened(query, rules) => {
                self.close(&query.tool_call);
                self.open.push(OpenPermission { query: *query, rules });
            }
            LedgerChange::LeftToAgent(facts) => {
                if self.left_to_agent.len() == MAX_CALLS {
                    self.left_to_agent.remove(0);
                }
                self.left_to_agent.push(facts);
            }
            LedgerChange::Closed(tool_call) => self.close(&tool_call),
        }
    }

    fn close(&mut self, tool_call: &str) {
        self.open.retain(|open| open.query.tool_call != tool_call);
        self.left_to_agent.retain(|facts| facts.tool_call != tool_call);
    }

    fn open(&self, tool_call: &str) -> Option<&OpenPermission> {
        self.open.iter().find(|open| open.query.tool_call == tool_call)
    }

    /// Forgets all calls. Returns the records of those that a user was asked about.
    pub(in crate::session) fn clear(&mut self) -> Vec<AuditFacts> {
        let Self { open, .. } = std::mem::take(self);
        let denied =
            |open: &OpenPermission| AuditFacts::new(&open.query, AuditDecision::Deny, LAYER_TURN_ENDED);
        open.iter().map(denied).collect()
    }

    /// The first call that a user is asked about.
    pub(in crate::session) fn first_open(&self) -> Option<&PermissionQuery> {
        self.open.first().map(|open| &open.query)
    }
}

/// Decides about a call that the agent asks for.
pub(super) fn queried(
    agent: &AgentState,
    view: DecisionView<'_>,
    policy: &PolicyInputs,
    mut query: PermissionQuery,
) -> Decision {
    let running = turns::running(view);
    if let (Some(folded), Some(running)) = (&agent.folded, running)
        && Some(&folded.turn) == query.turn.as_ref()
    {
        query.turn = Some(TurnId::new(running));
    }
    // A tool of a cancelled turn must not run, and a question needs a turn that shows it.
    let is_over = match &query.turn {
        Some(turn) => running != Some(turn.as_str()),
        None => query.stage == PermissionStage::Required,
    };
    if is_over || agent.permissions.open.len() >= MAX_CALLS {
        let reason = "The turn of this tool call has ended.".to_owned();
        let mut decision = verdict(&query, PermissionVerdict::Denied { reason });
        audit(&mut decision, AuditFacts::new(&query, AuditDecision::Deny, LAYER_TURN_ENDED));
        return decision;
    }
    let made = policy.decide(&query);
    match (query.stage, made.verdict) {
        (_, PolicyVerdict::Deny) => denied(view, &query, &made),
        (PermissionStage::BeforeUse, PolicyVerdict::Ask) if made.overrides_agent => {
            verdict(&query, PermissionVerdict::MustAsk { reason: made.reason })
        }
        (PermissionStage::BeforeUse, PolicyVerdict::Ask) => {
            let facts = AuditFacts::new(&query, AuditDecision::Allow, LAYER_AGENT);
            let mut decision = verdict(&query, PermissionVerdict::NoObjection);
            decision.permissions.push(LedgerChange::LeftToAgent(facts));
            decision
        }
        // The agent then does not ask, which saves the second question.
        (PermissionStage::BeforeUse, PolicyVerdict::Allow) if matches!(made.layer, PolicyLayer::Rule(_)) => {
            allowed(view, &query, &made)
        }
        (PermissionStage::BeforeUse, PolicyVerdict::Allow) => {
            let mut decision = verdict(&query, PermissionVerdict::NoObjection);
            // Recorded when the call completes, unless the agent still asks.
            decision.permissions.push(LedgerChange::LeftToAgent(AuditFacts::of_policy(&query, &made)));
            decision
        }
        (PermissionStage::Required, PolicyVerdict::Allow) => allowed(view, &query, &made),
        (PermissionStage::Required, PolicyVerdict::Ask) => ask(view, policy, query, &made),
    }
}

/// Decides again about the calls that a user is asked about, after a change of the rules or
/// the mode.
pub(super) fn reconsidered(agent: &AgentState, view: DecisionView<'_>, policy: &PolicyInputs) -> Decision {
    let mut decision = Decision::default();
    for OpenPermission { query, .. } in &agent.permissions.open {
        let made = policy.decide(query);
        let approved = match made.verdict {
            PolicyVerdict::Ask => continue,
            PolicyVerdict::Allow => true,
            PolicyVerdict::Deny => false,
        };
        // The call may have been answered in the same moment.
        if !tools::waits_for_confirmation(view, turn_of(query), &query.tool_call) {
            continue;
        }
        let reply = if approved {
            PermissionVerdict::Allowed
        } else {
            PermissionVerdict::Denied { reason: made.reason.clone() }
        };
        decision.extend(verdict(query, reply));
        decision.actions.push((ActionTarget::Chat, confirmed_by_host(view, query, &made, approved)));
        decision.permissions.push(LedgerChange::Closed(query.tool_call.clone()));
        audit(&mut decision, AuditFacts::of_policy(query, &made));
    }
    decision
}

/// The consequences of a client's answer, besides the answer to the agent: rules to remember,
/// and the audit record. Returns the remembered rules, too.
pub(super) fn answered(
    agent: &AgentState,
    view: DecisionView<'_>,
    confirmed: &ChatToolCallConfirmedAction,
    client: &ClientId,
) -> (Decision, Vec<String>) {
    let mut decision = Decision::default();
    let Some(OpenPermission { query, rules }) = agent.permissions.open(&confirmed.tool_call_id) else {
        return (decision, Vec::new());
    };
    decision.permissions.push(LedgerChange::Closed(query.tool_call.clone()));
    let made = if confirmed.approved { AuditDecision::Allow } else { AuditDecision::Deny };
    let mut facts = AuditFacts::new(query, made, LAYER_USER);
    facts.client = Some(client.clone());
    let chosen = confirmed.selected_option_id.as_deref().filter(|_| confirmed.approved);
    let remembered = match chosen {
        Some(ALLOW_SESSION | ALLOW_WORKSPACE) => rules.clone(),
        Some(ALLOW_SUGGESTED) => query.question.suggested_rules.clone(),
        Some(_) | None => Vec::new(),
    };
    if !remembered.is_empty() {
        facts.rule = Some(remembered.join(", "));
    }
    let (workspace, changed) = match chosen {
        Some(ALLOW_WORKSPACE) => (workspace_of(query), None),
        Some(ALLOW_SESSION | ALLOW_SUGGESTED) => {
            (None, Some((PERMISSIONS, with_allowed(view.session, &remembered))))
        }
        Some(ACCEPT_EDITS) => (None, Some((PERMISSION_MODE, json!(PermissionMode::AcceptEdits.name())))),
        Some(_) | None => (None, None),
    };
    if let Some(root) = workspace {
        let root = root.to_owned();
        decision.effects.push(Effect::RememberRules { root, rules: remembered.clone() });
    }
    if let Some((key, value)) = changed {
        let config = JsonObject::from_iter([(key.to_owned(), value)]);
        let changed = SessionConfigChangedAction { config, replace: None };
        decision.actions.push((ActionTarget::Session, StateAction::SessionConfigChanged(changed)));
    }
    audit(&mut decision, facts);
    (decision, remembered)
}

/// The agent no longer needs an answer.
pub(super) fn withdrawn(agent: &AgentState, view: DecisionView<'_>, tool_call: &str) -> Decision {
    let mut decision = Decision::default();
    let Some(OpenPermission { query, .. }) = agent.permissions.open(tool_call) else { return decision };
    decision.permissions.push(LedgerChange::Closed(tool_call.to_owned()));
    if tools::waits_for_confirmation(view, turn_of(query), tool_call) {
        let confirmed = ChatToolCallConfirmedAction {
            confirmed: Some(ToolCallConfirmationReason::NotNeeded),
            ..confirmation(view, query, true)
        };
        decision.actions.push((ActionTarget::Chat, StateAction::ChatToolCallConfirmed(confirmed)));
    }
    audit(&mut decision, AuditFacts::new(query, AuditDecision::Allow, LAYER_AGENT));
    decision
}

/// Records the decision about a call that the agent has completed without asking.
pub(super) fn completed(agent: &AgentState, tool_call: &str, decision: &mut Decision) {
    let left = agent.permissions.left_to_agent.iter().find(|facts| facts.tool_call == tool_call);
    if let Some(facts) = left {
        audit(decision, facts.clone());
        decision.permissions.push(LedgerChange::Closed(tool_call.to_owned()));
    }
}

fn denied(view: DecisionView<'_>, query: &PermissionQuery, made: &PolicyDecision) -> Decision {
    let mut decision = verdict(query, PermissionVerdict::Denied { reason: made.reason.clone() });
    if query.turn.is_none() {
        audit(&mut decision, AuditFacts::of_policy(query, made));
        return decision;
    }
    // VS Code does not show a call that was cancelled before it ran, so the call fails.
    let ready = ChatToolCallReadyAction {
        confirmation_title: None,
        editable: None,
        confirmed: Some(ToolCallConfirmationReason::Setting),
        ..ready(view, query, made)
    };
    decision.actions.push((ActionTarget::Chat, StateAction::ChatToolCallReady(ready)));
    decision.actions.push((ActionTarget::Chat, failed_as_denied(query, made)));
    decision.permissions.push(LedgerChange::Closed(query.tool_call.clone()));
    audit(&mut decision, AuditFacts::of_policy(query, made));
    decision
}

/// The end of a call that the policy denied.
fn failed_as_denied(query: &PermissionQuery, made: &PolicyDecision) -> StateAction {
    let target = query.question.invocation.as_text();
    StateAction::ChatToolCallComplete(ChatToolCallCompleteAction {
        turn_id: turn_of(query).to_owned(),
        tool_call_id: query.tool_call.clone(),
        meta: None,
        result: ToolCallResult {
            success: false,
            past_tense_message: StringOrMarkdown::Markdown {
                markdown: format!("Denied: {target}. {}", made.reason),
            },
            content: None,
            structured_content: None,
            error: Some(json!({"code": "denied", "message": made.reason})),
        },
        requires_result_confirmation: None,
    })
}

fn allowed(view: DecisionView<'_>, query: &PermissionQuery, made: &PolicyDecision) -> Decision {
    let mut decision = verdict(query, PermissionVerdict::Allowed);
    let confirmed = match made.layer {
        PolicyLayer::Internal | PolicyLayer::WorkspaceRead => ToolCallConfirmationReason::NotNeeded,
        PolicyLayer::GuardedPath
        | PolicyLayer::GitInternals
        | PolicyLayer::Rule(_)
        | PolicyLayer::Mode
        | PolicyLayer::WorkspaceWrite
        | PolicyLayer::ProtectedPath
        | PolicyLayer::NotUnderstood
        | PolicyLayer::Default => ToolCallConfirmationReason::Setting,
    };
    let ready = ChatToolCallReadyAction {
        confirmation_title: None,
        editable: None,
        confirmed: Some(confirmed),
        ..ready(view, query, made)
    };
    if query.turn.is_some() {
        decision.actions.push((ActionTarget::Chat, StateAction::ChatToolCallReady(ready)));
    }
    decision.permissions.push(LedgerChange::Closed(query.tool_call.clone()));
    audit(&mut decision, AuditFacts::of_policy(query, made));
    decision
}

fn ask(
    view: DecisionView<'_>,
    policy: &PolicyInputs,
    query: PermissionQuery,
    made: &PolicyDecision,
) -> Decision {
    let question = &query.question;
    // The rules for a shell line allow it together; other calls need only the best rule.
    let together = matches!(query.request.access, ToolAccess::Shell(_));
    let needed = if together { made.would_allow.len() } else { 1 };
    let rules = match (question.can_remember, made.would_allow.is_empty()) {
        (false, _) => Vec::new(),
        (true, false) => made.would_allow.iter().take(needed).cloned().collect(),
        (true, true) => question.suggested_rules.clone(),
    };
    let mut ready = ready(view, &query, made);
    if let Some(meta) = &mut ready.meta {
        call_kind::hide(meta);
    }
    ready.options = Some(options(&query, &rules, policy.mode()));
    ready.edits = (!question.edits.is_empty()).then(|| FileEditCollection { items: question.edits.clone() });
    let explained = ready.meta.as_mut().and_then(|meta| meta.get_mut(META)?.as_object_mut());
    if let Some(explained) = explained {
        explained.insert("rules".to_owned(), json!(rules));
        if let Some(reason) = &question.agent_reason {
            explained.insert("agentReason".to_owned(), json!(reason));
        }
        if rules == question.suggested_rules && !rules.is_empty() {
            explained.insert("suggestedBy".to_owned(), json!("agent"));
        }
    }
    let mut decision = Decision::default();
    audit(&mut decision, AuditFacts::of_policy(&query, made));
    decision.actions.push((ActionTarget::Chat, StateAction::ChatToolCallReady(ready)));
    decision.actions.extend(settings::mark_unread(view));
    decision.permissions.push(LedgerChange::Closed(query.tool_call.clone()));
    decision.permissions.push(LedgerChange::Opened(Box::new(query), rules));
    decision
}

/// The answers that a user can choose from. The first one has the least effect.
fn options(query: &PermissionQuery, rules: &[String], mode: PermissionMode) -> Vec<ConfirmationOption> {
    let option = |id: &str, label: &str, kind: ConfirmationOptionKind, group| ConfirmationOption {
        id: id.to_owned(),
        label: label.to_owned(),
        kind,
        group: Some(group),
    };
    let approve = || ConfirmationOptionKind::Approve;
    let mut options = vec![option(ALLOW_ONCE, "Allow once", approve(), 0)];
    if !rules.is_empty() {
        options.push(option(ALLOW_SESSION, "Allow for this session", approve(), 0));
        options.push(option(ALLOW_WORKSPACE, "Always allow in this workspace", approve(), 0));
    }
    let suggested = &query.question.suggested_rules;
    if query.question.can_remember && !suggested.is_empty() && suggested != rules {
        let label = format!("Allow {} for this session", suggested.join(", "));
        options.push(option(ALLOW_SUGGESTED, &label, approve(), 0));
    }
    if query.question.suggests_accepting_edits && mode == PermissionMode::Default {
        options.push(option(ACCEPT_EDITS, "Accept all edits in this session", approve(), 0));
    }
    options.push(option(DENY, "Deny", ConfirmationOptionKind::Deny, 1));
    options
}

/// A call that waits for confirmation.
fn ready(view: DecisionView<'_>, query: &PermissionQuery, made: &PolicyDecision) -> ChatToolCallReadyAction {
    let question = &query.question;
    let mut explained = JsonObject::from_iter([
        ("layer".to_owned(), json!(made.layer.name())),
        ("reason".to_owned(), json!(made.reason)),
    ]);
    explained.extend(made.rule.as_ref().map(|rule| ("rule".to_owned(), json!(rule))));
    // Reducers replace the metadata, so what the call already has is repeated.
    let mut meta =
        tools::call(view, turn_of(query), &query.tool_call).and_then(meta_of).cloned().unwrap_or_default();
    meta.insert(META.to_owned(), Value::Object(explained));
    ChatToolCallReadyAction {
        turn_id: turn_of(query).to_owned(),
        tool_call_id: query.tool_call.clone(),
        meta: Some(meta),
        contributor: None,
        intention: None,
        invocation_message: question.invocation.clone(),
        tool_input: Some(ToolInput::Inline(question.input.clone())),
        confirmation_title: Some(StringOrMarkdown::from(question.title.clone())),
        risk_assessment: None,
        edits: None,
        editable: question.editable.then_some(true),
        confirmed: None,
        options: None,
    }
}

fn confirmed_by_host(
    view: DecisionView<'_>,
    query: &PermissionQuery,
    made: &PolicyDecision,
    approved: bool,
) -> StateAction {
    let mut action = confirmation(view, query, approved);
    if approved {
        action.confirmed = Some(ToolCallConfirmationReason::Setting);
    } else {
        action.reason = Some(ToolCallCancellationReason::Denied);
        action.reason_message = Some(StringOrMarkdown::from(made.reason.clone()));
    }
    StateAction::ChatToolCallConfirmed(action)
}

fn confirmation(
    view: DecisionView<'_>,
    query: &PermissionQuery,
    approved: bool,
) -> ChatToolCallConfirmedAction {
    let call = tools::call(view, turn_of(query), &query.tool_call);
    ChatToolCallConfirmedAction {
        turn_id: turn_of(query).to_owned(),
        tool_call_id: query.tool_call.clone(),
        meta: call_kind::shown(call.and_then(meta_of)),
        approved,
        confirmed: None,
        reason: None,
        edited_tool_input: None,
        user_suggestion: None,
        reason_message: None,
        selected_option_id: None,
    }
}

/// The turn that shows a call; empty if no turn does.
fn turn_of(query: &PermissionQuery) -> &str {
    query.turn.as_ref().map_or("", TurnId::as_str)
}

fn verdict(query: &PermissionQuery, verdict: PermissionVerdict) -> Decision {
    let command =
        AgentCommand::PermissionVerdict { tool_call: query.tool_call.clone(), stage: query.stage, verdict };
    Decision { effects: vec![Effect::Agent(command)], ..Decision::default() }
}

fn audit(decision: &mut Decision, facts: AuditFacts) {
    decision.effects.push(Effect::Audit(Box::new(facts)));
}

/// The metadata of a call.
pub(in crate::session) fn meta_of(call: &ToolCallState) -> Option<&JsonObject> {
    match call {
        ToolCallState::Streaming(call) => call.meta.as_ref(),
        ToolCallState::PendingConfirmation(call) => call.meta.as_ref(),
        ToolCallState::Running(call) => call.meta.as_ref(),
        ToolCallState::AuthRequired(call) => call.meta.as_ref(),
        ToolCallState::PendingResultConfirmation(call) => call.meta.as_ref(),
        ToolCallState::Completed(call) => call.meta.as_ref(),
        ToolCallState::Cancelled(call) => call.meta.as_ref(),
        ToolCallState::Unknown(_) => None,
    }
}
