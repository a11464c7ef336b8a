//! The rules of a session: a pure function from state and input to a decision.
//!
//! No clock, no I/O, no waiting: the time comes with the input, and external work is
//! returned as effects. Published state is only read here; the actions that change it are
//! returned, and the actor commits them in order.
//!
//! Each submodule holds the rules of one subject: `turns`, `queue`, `tools`, `inputs`,
//! `titles`, `settings`, `directories`, `customizations`, `children` (subagent chats), `names` (length
//! limits), `times` (times from clients), `chats` (the list of chats), `new_chats`, `agent`
//! (agent events), `leftovers` (state that must not outlive an agent), `prewarm` (agents that
//! are opened in advance), `opening_question` (questions before an agent can be opened),
//! `permissions` (tool calls that need permission), `lost_history` (agents that have lost their
//! record), `discarded_parts` (answers that an agent starts again), `starting` (the activity while
//! an agent starts) and `stopping` (requests to stop work, and to restart the agent).

mod agent;
mod chats;
mod children;
mod customizations;
mod directories;
mod discarded_parts;
mod inputs;
mod leftovers;
mod lost_history;
mod names;
mod new_chats;
mod opening_question;
mod permissions;
mod prewarm;
mod queue;
mod settings;
mod starting;
mod stopping;
mod times;
mod titles;
mod tools;
mod turns;

use std::path::PathBuf;
use std::time::Duration;

use ahp_types::actions::{SessionCreationFailedAction, SessionReadyAction, StateAction};
use ahp_types::state::{ChatState, ErrorInfo, SessionLifecycle, SessionState};

use super::SessionEnding;
use super::chat_todo::ChatTodo;
use super::policy_inputs::PolicyInputs;
use crate::action::{Dispatched, meaning};
use crate::agent::{
    AgentCommand, AgentEvent, AgentFeatures, History, McpServerRequest, MessageLink, OpenError,
    OpeningAnswer, PermissionQuery, ResourceToken, ResumeToken, StopTarget, TurnMessage, TurnOutcome,
};
use crate::directories::Primary;
use crate::ids::{ClientId, TurnId};
use crate::storage::{Rewind, StoredTurn};
use crate::usage::ModelUse;
pub(super) use chats::{
    ChatChange, ChatFacts, adoption, chat_removed, check_anchor, check_change, check_placement, check_room,
    order_after,
};
pub(super) use children::parent_of;
pub(super) use customizations::switches;
pub(super) use inputs::cancel_open_requests;
pub(super) use leftovers::{clear_session_agents, clear_turn, stop_background_work};
pub(super) use names::cut as cut_name;
pub(super) use new_chats::{BranchSource, NewChatView, check_initial_message, new_chat};
pub(super) use opening_question::QuestionTopic;
pub(super) use permissions::{AuditFacts, LedgerChange, PermissionLedger, meta_of};
pub(super) use queue::{QueueEffect, STEERING_META, holds_queue};
pub(super) use stopping::StopPlan;
pub(super) use titles::{FirstExchange, first_exchange};
pub(super) use tools::tool_call_in;
use turns::Resumable;

/// The unpublished state of a chat's agent and queue.
#[derive(Clone, Debug)]
pub(super) struct AgentState {
    /// The lifecycle phase of the agent.
    pub(super) phase: Phase,
    /// When the running turn began, on the session's monotonic clock.
    pub(super) turn_began: Duration,
    /// How often the agent has been opened for the running turn.
    pub(super) openings: u32,
    /// The features that the agent supports.
    pub(super) features: AgentFeatures,
    /// The agent's name for users.
    pub(super) name: String,
    /// What the last agent was closed for, if the next one must be opened with a change. Kept
    /// until one is open.
    pub(super) restart: Option<String>,
    /// Whether queued messages are held until a client asks to continue.
    pub(super) queue_held: bool,
    /// Whether the running turn was resumed by a client after it had failed.
    pub(super) reopened: bool,
    /// A turn that the agent started while another was running. Its output is added to the
    /// running turn.
    pub(super) folded: Option<TurnMessage>,
    /// The role of the first of several directories; `None` if the agent supports only one.
    pub(super) directories: Option<Primary>,
    /// The tool calls that have no decision yet.
    pub(super) permissions: PermissionLedger,
    /// How far the agent must rewind before it gets the next message. Kept until the agent
    /// has shown that it did; telling it twice is harmless.
    pub(super) rewind: Option<Rewind>,
}

/// The lifecycle phase of a chat's agent.
#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// There is no agent. The next message opens one.
    Cold(History),
    /// The agent is being opened, or a client has restarted it and its process is ending.
    Opening {
        /// The history it is opened with, for a retry after a failure.
        history: History,
        /// The message to send when it is open, unless the turn is cancelled first.
        prompt: Option<Box<TurnMessage>>,
    },
    /// The agent cannot be opened until the user has answered a question.
    Asking {
        /// The history that it was opened with.
        history: History,
        /// The message to send when it is open.
        prompt: Box<TurnMessage>,
        /// The topic of the question.
        topic: QuestionTopic,
    },
    /// The agent is open. Holds the history for the next agent: that of the opening until
    /// this agent has produced output, except that a fresh agent counts as resumable from its
    /// first message, and only from then on.
    Live(History),
    /// The chat or its session ends as soon as the agent has closed.
    Closing(History),
}

impl Phase {
    /// The history with which the next agent is opened.
    pub(super) fn history(&self) -> History {
        match self {
            Self::Cold(history)
            | Self::Opening { history, .. }
            | Self::Asking { history, .. }
            | Self::Live(history)
            | Self::Closing(history) => history.clone(),
        }
    }
}

/// The published state on which a decision is based.
#[derive(Clone, Copy, Debug)]
pub(super) struct DecisionView<'a> {
    /// The session's document.
    pub(super) session: &'a SessionState,
    /// The chat's document; it contains only the last finished turn.
    pub(super) chat: &'a ChatState,
    /// All finished turns of the chat.
    pub(super) turns: &'a [StoredTurn],
    /// Whether any chat of the session has an agent.
    pub(super) has_agent: bool,
    /// The session's monotonic clock, for durations.
    pub(super) now: Duration,
    /// The wall-clock time, formatted for the protocol.
    pub(super) time: &'a str,
}

/// The channel of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ActionTarget {
    /// The session channel.
    Session,
    /// The channel of the chat that is decided about.
    Chat,
}

/// An event that concerns a chat or its session.
#[derive(Debug)]
pub(super) enum DecisionInput<'a> {
    /// A client dispatched an action.
    Client {
        /// The channel it was dispatched on.
        target: ActionTarget,
        /// The action.
        action: &'a StateAction,
        /// The client that sent it.
        client: &'a ClientId,
    },
    /// The agent is ready for prompts.
    Opened,
    /// The agent could not be opened.
    OpenFailed(&'a OpenError),
    /// The agent reported an event.
    Agent(AgentEvent),
    /// The agent needs a decision about a tool call.
    Permission(PermissionQuery, &'a PolicyInputs),
    /// The rules or the permission mode may have changed.
    PolicyChanged(&'a PolicyInputs),
    /// A model has written a title for the session.
    TitleWritten(&'a str),
    /// A client has left the session.
    ClientLeft(&'a ClientId),
    /// A client writes a message, so the agent can be opened in advance.
    Prewarm,
    /// This action changed the session's directories.
    Directories(&'a StateAction),
    /// A user provided a token for a resource.
    Token(ResourceToken),
    /// All earlier work is done: fail orphaned tool calls, or start the next message.
    StartWaiting,
    /// A client wants to stop work.
    Stop {
        /// Identifies the request in the agent's answer.
        request: u64,
        /// The work.
        target: &'a StopTarget,
    },
    /// A client wants to restart the agent.
    Restart,
    /// Like `StartWaiting` while the host is stopping: waiting messages keep waiting.
    FailOrphanedCalls,
    /// The session ends, or the chat leaves it.
    End(SessionEnding),
}

/// Work for the actor, in this order: commit or reject the client's action, apply the
/// new agent state, commit the follow-up actions, run the effects.
#[derive(Debug, Default)]
pub(super) struct Decision {
    /// Why the client's action is rejected; `None` accepts it.
    pub(super) rejection: Option<String>,
    /// The next phase, if it changes.
    pub(super) phase: Option<Phase>,
    /// How far the agent has to rewind, if that changes.
    pub(super) rewind: Option<Rewind>,
    /// Whether the agent has shown that it works on the conversation.
    pub(super) works: bool,
    /// Whether the running turn was resumed by a client, if that changes.
    pub(super) reopened: Option<bool>,
    /// The agent's name for the conversation, if it reported one.
    pub(super) resume_token: Option<ResumeToken>,
    /// A message id that the agent reported, with its turn.
    pub(super) link: Option<(TurnId, MessageLink)>,
    /// The agent's own turn that is folded into the running one, if that changes.
    pub(super) folded: Option<Option<TurnMessage>>,
    /// What the agent was closed for, if that changes.
    pub(super) restart: Option<Option<String>>,
    /// The effect of a request to stop work.
    pub(super) stop: StopPlan,
    /// Changes of the tool calls without a decision.
    pub(super) permissions: Vec<LedgerChange>,
    /// The chat's to-do list, if the agent reported it.
    pub(super) todo: Option<ChatTodo>,
    /// What the agent used, if it reported that.
    pub(super) used: Option<ModelUse>,
    /// The host's follow-up actions.
    pub(super) actions: Vec<(ActionTarget, StateAction)>,
    /// External work.
    pub(super) effects: Vec<Effect>,
}

impl Decision {
    /// Adds another decision about the same input, unless the input is rejected.
    fn and(mut self, other: Self) -> Self {
        if self.rejection.is_none() {
            self.extend(other);
        }
        self
    }

    /// Appends the actions, effects and open permissions of another decision.
    fn extend(&mut self, other: Self) {
        self.permissions.extend(other.permissions);
        self.actions.extend(other.actions);
        self.effects.extend(other.effects);
    }
}

/// Work outside the published state.
#[derive(Debug, PartialEq)]
pub(super) enum Effect {
    /// Open an agent.
    OpenAgent {
        /// The history to open it with.
        history: History,
        /// The user's answer to the provider's question.
        answer: Option<OpeningAnswer>,
    },
    /// Send it a command.
    Agent(AgentCommand),
    /// Send a command to the agents of all chats of the session.
    AllAgents(AgentCommand),
    /// Send it its current directories, if they have changed.
    UpdateDirectories,
    /// Allow tool calls in a workspace from now on.
    RememberRules {
        /// The workspace.
        root: PathBuf,
        /// The rules.
        rules: Vec<String>,
    },
    /// Record a decision about a tool call.
    Audit(Box<AuditFacts>),
    /// Close it, or cancel its opening.
    CloseAgent,
    /// The agent has stopped: the chat is finished.
    Finish,
}

impl Effect {
    /// Opens an agent with this history.
    fn open(history: History) -> Self {
        Self::OpenAgent { history, answer: None }
    }
}

/// Why actions are rejected while a chat or session closes.
const CLOSING: &str = "the chat or its session is closing";

/// Why an action is rejected that clients may not dispatch, or not on this channel.
const WRONG_CHANNEL: &str = "clients may not dispatch this action on this channel";

/// Decides what follows from an input.
pub(super) fn decide(agent: &AgentState, view: DecisionView<'_>, input: DecisionInput<'_>) -> Decision {
    starting::with_activity(agent, view, decide_input(agent, view, input))
}

fn decide_input(agent: &AgentState, view: DecisionView<'_>, input: DecisionInput<'_>) -> Decision {
    match input {
        DecisionInput::Client { .. } if matches!(agent.phase, Phase::Closing(_)) => reject(CLOSING),
        DecisionInput::Client { target, action, client } => match (target, meaning(action).dispatched()) {
            (ActionTarget::Chat, Some(action)) => decide_chat(agent, view, action, client),
            (ActionTarget::Session, Some(action)) => decide_session(agent, view, action, client),
            (_, None) => not_for_clients(action),
        },
        DecisionInput::Opened => Decision { restart: Some(None), ..decide_opened(agent, view) },
        DecisionInput::OpenFailed(error) => decide_open_failed(agent, view, error),
        DecisionInput::Agent(event) => agent::handle_event(agent, view, event),
        // The agent is being restarted and needs no answer.
        DecisionInput::Permission(..) if matches!(agent.phase, Phase::Opening { .. }) => Decision::default(),
        DecisionInput::Permission(query, policy) => permissions::queried(agent, view, policy, query),
        DecisionInput::PolicyChanged(policy) => permissions::reconsidered(agent, view, policy),
        DecisionInput::TitleWritten(title) => titles::written(view, title),
        DecisionInput::ClientLeft(client) => settings::client_left(view, client),
        DecisionInput::Prewarm => prewarm::requested(agent, view),
        DecisionInput::Directories(action) => directories::session_changed(view, action),
        DecisionInput::Token(token) => settings::token(view, token),
        // An orphaned tool call blocks its turn, so it is handled first.
        DecisionInput::StartWaiting => {
            tools::fail_orphaned_calls(view).unwrap_or_else(|| queue::next(agent, view))
        }
        DecisionInput::Stop { request, target } => stopping::stop(agent, view, request, target),
        DecisionInput::Restart => stopping::restart(agent, view),
        DecisionInput::FailOrphanedCalls => tools::fail_orphaned_calls(view).unwrap_or_default(),
        DecisionInput::End(ending) => decide_end(agent, view, ending),
    }
}

fn decide_chat(
    agent: &AgentState,
    view: DecisionView<'_>,
    action: Dispatched<'_>,
    client: &ClientId,
) -> Decision {
    match action {
        Dispatched::ChatTurnStarted(started) => turns::started(agent, view, started),
        Dispatched::ChatTurnCancelled(cancelled) => turns::cancelled(agent, view, &cancelled.turn_id),
        Dispatched::ChatTurnResume(resume) => turns::resumed(agent, view, &resume.turn_id),
        Dispatched::ChatPendingMessageSet(set) => queue::set(agent, view, set),
        Dispatched::ChatPendingMessageRemoved(removed) => queue::removed(view, removed),
        Dispatched::ChatToolCallConfirmed(confirmed) => {
            let (decision, remembered) = permissions::answered(agent, view, confirmed, client);
            tools::confirmed(view, confirmed, remembered).and(decision)
        }
        Dispatched::ChatToolCallResultConfirmed(confirmed) => tools::result_confirmed(view, confirmed),
        Dispatched::ChatToolCallComplete(completed) => tools::completed(view, client, completed),
        Dispatched::ChatToolCallContentChanged(changed) => {
            tools::content_changed(view, client, &changed.turn_id, &changed.tool_call_id)
        }
        Dispatched::ChatInputAnswerChanged(changed) => inputs::answer_changed(view, changed),
        Dispatched::ChatInputCompleted(completed) => {
            let decision = inputs::completed(view, completed);
            opening_question::answered(agent, view, completed).unwrap_or(decision)
        }
        Dispatched::ChatTruncated(truncated) => turns::truncated(agent, view, truncated.turn_id.as_deref()),
        Dispatched::ChatWorkingDirectorySet(set) => directories::chat_set(agent, view, &set.directory),
        Dispatched::ChatWorkingDirectoryRemoved(removed) => {
            directories::chat_removed(agent, view, &removed.directory)
        }
        // VS Code renames a session on the channel of its chat.
        Dispatched::SessionTitleChanged(changed) => turns::renamed(view, changed),
        Dispatched::ChatQueuedMessagesReordered(_)
        | Dispatched::ChatDraftChanged(_)
        | Dispatched::ChatIsReadChanged(_)
        | Dispatched::ChatIsArchivedChanged(_) => Decision::default(),
        Dispatched::RootConfigChanged(_)
        | Dispatched::ChangesetFilesReviewChanged(_)
        | Dispatched::SessionIsReadChanged(_)
        | Dispatched::SessionIsArchivedChanged(_)
        | Dispatched::SessionActiveClientSet(_)
        | Dispatched::SessionActiveClientRemoved(_)
        | Dispatched::SessionWorkingDirectorySet(_)
        | Dispatched::SessionWorkingDirectoryRemoved(_)
        | Dispatched::SessionWorkingDirectoryReplaced(_)
        | Dispatched::SessionCustomizationToggled(_)
        | Dispatched::SessionMcpServerStartRequested(_)
        | Dispatched::SessionMcpServerStopRequested(_)
        | Dispatched::SessionMcpServerBackgroundRequested(_)
        | Dispatched::SessionConfigChanged(_) => reject(WRONG_CHANNEL),
    }
}

fn decide_session(
    agent: &AgentState,
    view: DecisionView<'_>,
    action: Dispatched<'_>,
    client: &ClientId,
) -> Decision {
    match action {
        Dispatched::SessionTitleChanged(changed) => turns::session_renamed(view, changed),
        Dispatched::SessionIsReadChanged(_) | Dispatched::SessionIsArchivedChanged(_) => Decision::default(),
        Dispatched::SessionActiveClientSet(set) => {
            settings::check_own_client_id(client, &set.active_client.client_id)
        }
        Dispatched::SessionActiveClientRemoved(removed) => {
            settings::check_own_client_id(client, &removed.client_id)
        }
        Dispatched::SessionConfigChanged(changed) => {
            settings::config_changed(agent.features, view.session, changed)
        }
        Dispatched::SessionWorkingDirectorySet(set) => directories::set(agent, view, &set.directory),
        Dispatched::SessionWorkingDirectoryRemoved(removed) => {
            directories::removed(agent, view, &removed.directory)
        }
        Dispatched::SessionWorkingDirectoryReplaced(change) => directories::replaced(agent, view, change),
        Dispatched::SessionCustomizationToggled(toggled) => customizations::toggled(view.session, toggled),
        Dispatched::SessionMcpServerStartRequested(wanted) => {
            customizations::server(agent, view, &wanted.id, McpServerRequest::Start)
        }
        Dispatched::SessionMcpServerStopRequested(wanted) => {
            customizations::server(agent, view, &wanted.id, McpServerRequest::Stop)
        }
        Dispatched::SessionMcpServerBackgroundRequested(wanted) => {
            customizations::server(agent, view, &wanted.id, McpServerRequest::Background)
        }
        Dispatched::RootConfigChanged(_)
        | Dispatched::ChangesetFilesReviewChanged(_)
        | Dispatched::ChatTurnStarted(_)
        | Dispatched::ChatToolCallConfirmed(_)
        | Dispatched::ChatToolCallComplete(_)
        | Dispatched::ChatToolCallResultConfirmed(_)
        | Dispatched::ChatToolCallContentChanged(_)
        | Dispatched::ChatTurnCancelled(_)
        | Dispatched::ChatTurnResume(_)
        | Dispatched::ChatWorkingDirectorySet(_)
        | Dispatched::ChatWorkingDirectoryRemoved(_)
        | Dispatched::ChatPendingMessageSet(_)
        | Dispatched::ChatPendingMessageRemoved(_)
        | Dispatched::ChatQueuedMessagesReordered(_)
        | Dispatched::ChatDraftChanged(_)
        | Dispatched::ChatIsReadChanged(_)
        | Dispatched::ChatIsArchivedChanged(_)
        | Dispatched::ChatInputAnswerChanged(_)
        | Dispatched::ChatInputCompleted(_)
        | Dispatched::ChatTruncated(_) => reject(WRONG_CHANNEL),
    }
}

fn not_for_clients(action: &StateAction) -> Decision {
    if matches!(action, StateAction::Unknown(_)) {
        reject("unknown or malformed action")
    } else {
        reject(WRONG_CHANNEL)
    }
}

fn decide_opened(agent: &AgentState, view: DecisionView<'_>) -> Decision {
    let Phase::Opening { prompt, history } = &agent.phase else { return Decision::default() };
    // A new agent has history as soon as it has received the first message.
    let begins = *history == History::Fresh && prompt.is_some();
    let next = if begins { History::Resume } else { history.clone() };
    let mut decision = Decision { phase: Some(Phase::Live(next)), ..Decision::default() };
    if prompt.is_some() {
        // Without a message, clients do not notice that the agent was opened in advance.
        decision.actions.extend(ready(view));
    }
    // An agent without history does not need to rewind.
    let remembers = matches!(history, History::Resume | History::Branch(_));
    if let Some(Rewind { to }) = agent.rewind.as_ref().filter(|_| remembers) {
        let to = to.as_deref().map(TurnId::new);
        decision.effects.push(Effect::Agent(AgentCommand::Rewind { to }));
    }
    if let Some(prompt) = prompt {
        decision.effects.push(Effect::Agent(TurnMessage::clone(prompt).into()));
        decision.effects.extend(queue::send_waiting_steering(agent, view, prompt.turn.as_str()));
    }
    decision
}

/// The action that makes the session ready, unless it is.
fn ready(view: DecisionView<'_>) -> Option<(ActionTarget, StateAction)> {
    let action = StateAction::SessionReady(SessionReadyAction {});
    (view.session.lifecycle != SessionLifecycle::Ready).then_some((ActionTarget::Session, action))
}

fn decide_open_failed(agent: &AgentState, view: DecisionView<'_>, error: &OpenError) -> Decision {
    if matches!(error, OpenError::Cancelled)
        && let Some(decision) = stopping::opening_cancelled(agent)
    {
        return decision;
    }
    let (history, prompt) = match &agent.phase {
        Phase::Opening { history, prompt } => (history.clone(), prompt),
        Phase::Closing(_) => return Decision { effects: vec![Effect::Finish], ..Decision::default() },
        Phase::Cold(_) | Phase::Asking { .. } | Phase::Live(_) => return Decision::default(),
    };
    let info = match error {
        OpenError::Cancelled => error_info("cancelled", "starting the agent was cancelled"),
        OpenError::Failed { error_type, message } => match &agent.restart {
            Some(cause) => {
                error_info(error_type, &format!("Cannot restart {} for {cause}: {message}", agent.name))
            }
            None => error_info(error_type, message),
        },
        OpenError::HistoryMissing { message } => {
            if let Some(decision) = lost_history::missing(agent, view, message) {
                return decision;
            }
            lost_history::error(message)
        }
        OpenError::Question(question) => {
            let topic = QuestionTopic::Provider(question.topic.clone());
            return opening_question::ask(agent, view, question, topic);
        }
    };
    let mut decision = Decision { phase: Some(Phase::Cold(history)), ..Decision::default() };
    if let Some(turn) = turns::running(view) {
        let failed = turns::failed(agent, view, turn, info.clone(), Resumable::Yes);
        decision.actions.push((ActionTarget::Chat, failed));
    }
    // The next message retries and makes the session ready on success. The state keeps the
    // error, since the protocol has no action that clears it; the lifecycle is decisive. Without
    // a message, no client waits for the agent.
    if prompt.is_some()
        && view.session.lifecycle != SessionLifecycle::Ready
        && view.session.creation_error.as_ref() != Some(&info)
    {
        let failed = SessionCreationFailedAction { error: info };
        decision.actions.push((ActionTarget::Session, StateAction::SessionCreationFailed(failed)));
    }
    decision
}

/// The action that closes a turn which was interrupted by the end of the host after `ran`
/// milliseconds. The agent's last step is unknown, so the user can resume the turn, unless
/// it is a subagent's.
pub(super) fn interrupted(chat: &ChatState, turn: &str, ran: i64) -> StateAction {
    turns::failed_after(ran, turn, host_stopped(), resumable(chat))
}

fn host_stopped() -> ErrorInfo {
    error_info("host_stopped", "The host stopped while this turn was running.")
}

/// Whether an interrupted turn of this chat can be resumed. A subagent's cannot.
fn resumable(chat: &ChatState) -> Resumable {
    if parent_of(chat).is_some() { Resumable::No } else { Resumable::Yes }
}

fn decide_end(agent: &AgentState, view: DecisionView<'_>, ending: SessionEnding) -> Decision {
    let mut decision = Decision { phase: Some(Phase::Closing(agent.phase.history())), ..Decision::default() };
    if ending == SessionEnding::Suspend {
        let stopped = leftovers::stop_background_work(view.chat, view.turns, &process_of(agent), view.time);
        decision.actions.extend(stopped.into_iter().map(|action| (ActionTarget::Chat, action)));
    }
    if let Some(turn) = turns::running(view) {
        let action = match ending {
            SessionEnding::Dispose => turns::ended(agent, view, turn, TurnOutcome::Cancelled),
            // An unloaded session has no running turn.
            SessionEnding::Suspend | SessionEnding::Unload => {
                turns::failed(agent, view, turn, host_stopped(), resumable(view.chat))
            }
        };
        let cancel_open_requests = inputs::cancel_open_requests(view.chat).into_iter();
        decision
            .actions
            .extend(cancel_open_requests.chain([action]).map(|action| (ActionTarget::Chat, action)));
    }
    decision.effects.push(match agent.phase {
        Phase::Cold(_) | Phase::Asking { .. } => Effect::Finish,
        Phase::Opening { .. } | Phase::Live(_) | Phase::Closing(_) => Effect::CloseAgent,
    });
    decision
}

/// The name of the agent's process for users.
fn process_of(agent: &AgentState) -> String {
    format!("the {} process", agent.name)
}

fn reject(reason: &str) -> Decision {
    Decision { rejection: Some(reason.to_owned()), ..Decision::default() }
}

pub(super) fn error_info(error_type: &str, message: &str) -> ErrorInfo {
    ErrorInfo { error_type: error_type.to_owned(), message: message.to_owned(), stack: None, meta: None }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
