//! The rules of a session: a pure function from state and input to a decision.
//!
//! No clock, no I/O, no waiting: the time comes with the input, and external work is
//! returned as effects. Published state is only read here; the actions that change it are
//! returned, and the actor commits them in order.
//!
//! Each submodule holds the rules of one subject: `turns`, `queue`, `tools`, `inputs`,
//! `settings`, `directories`, `customizations`, `children` (subagent chats), `names` (length
//! limits), `agent` (agent events), `leftovers` (state that must not outlive an agent) and
//! `lost_history` (agents that have lost their record).
mod agent;
mod children;
mod customizations;
mod directories;
mod inputs;
mod leftovers;
mod lost_history;
mod names;
mod queue;
mod settings;
mod tools;
mod turns;

use std::time::Duration;

use ahp_types::actions::{SessionCreationFailedAction, SessionReadyAction, StateAction};
use ahp_types::state::{ChatState, ErrorInfo, SessionLifecycle, SessionState};

use super::Ending;
use crate::action::{Dispatched, meaning};
use crate::agent::{
    AgentCommand, AgentEvent, AgentFeatures, History, McpServerRequest, MessageLink, OpenError,
    ResourceToken, ResumeToken, TurnOutcome, Unsent,
};
use crate::directories::Primary;
use crate::ids::{ClientId, TurnId};
use crate::storage::{Rewind, StoredTurn};
pub(super) use children::parent_of;
pub(super) use customizations::switches;
pub(super) use inputs::withdrawn;
pub(super) use leftovers::{of_agent, of_agents};
pub(super) use names::cut as cut_name;
pub(super) use queue::{QueueEffect, holds_queue};
use turns::Resumable;
pub(super) use turns::title_from;

/// The unpublished state of a chat and its agent.
#[derive(Clone, Debug)]
pub(super) struct Model {
    /// The lifecycle phase of the agent.
    pub(super) phase: Phase,
    /// When the running turn began, on the actor's clock.
    /// When the running turn began, on the session's monotonic clock.
    /// How often the agent was opened for the running turn.
    /// How often the agent has been opened for the running turn.
    /// Which commands agents of this kind handle.
    /// The features that the agent supports.
    /// Whether the waiting messages are held back until a client asks to continue.
    /// Whether queued messages are held until a client asks to continue.
    /// Whether the running turn was reopened by a client after it had failed.
    /// Whether the running turn was resumed by a client after it had failed.
    /// A turn that the agent started while another one was running: its output goes
    /// A turn that the agent started while another was running. Its output is added to the
    /// running turn.
    /// What they make of the first of several directories; nothing if they work in one.
    /// The role of the first of several directories; `None` if the agent supports only one.
    /// How far back the agent has to go before it gets a message. Kept until it has shown
    /// How far the agent must rewind before it gets the next message. Kept until the agent
    /// has shown that it did; telling it twice is harmless.
}

/// Where the agent of a chat is in its life.
#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// There is no agent. It is opened when the next message comes.
    Cold(History),
    /// The agent is being opened.
    Opening {
        /// What it takes up, for another try if this one fails.
        history: History,
        /// The message to send when it is there, unless that is cancelled before.
        prompt: Option<Box<Unsent>>,
    },
    /// The agent's own record is missing, and the user is asked how to continue.
    Asking {
        /// What it was to continue.
        history: History,
        /// The message to send when it is there.
        prompt: Box<Unsent>,
    },
    /// The agent is there. Until it has shown that it works, another one would begin the
    /// branch anew.
    Live(History),
    /// The chat leaves, or its session does, as soon as the agent is gone.
    Closing(History),
}

impl Phase {
    /// What an agent that is opened later takes up.
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

/// The published state that decisions are made on.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    /// The session's document.
    pub(super) session: &'a SessionState,
    /// The chat's document; of the finished turns it has the last one.
    pub(super) chat: &'a ChatState,
    /// All of the chat's finished turns.
    pub(super) turns: &'a [StoredTurn],
    /// Whether any chat of the session has an agent.
    pub(super) attended: bool,
    /// The actor's clock, for durations.
    pub(super) now: Duration,
    /// The time of day, as it goes over the wire.
    pub(super) time: &'a str,
}

/// Which of a session's channels an action is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// The session channel.
    Session,
    /// The channel of the chat that the decision is about.
    Chat,
}

/// Something that happened to the chat or to its session.
#[derive(Debug)]
pub(super) enum Input<'a> {
    /// A client dispatched an action.
    Client {
        /// The channel it was dispatched on.
        target: Target,
        /// What it says.
        action: &'a StateAction,
        /// Who sent it.
        client: &'a ClientId,
    },
    /// The agent is ready for prompts.
    Opened,
    /// The agent could not be opened.
    OpenFailed(&'a OpenError),
    /// The agent reported something.
    Agent(AgentEvent),
    /// A client is not there for the session any more.
    Left(&'a ClientId),
    /// The session works elsewhere since this action.
    Directories(&'a StateAction),
    /// A user gave a token for something.
    Token(ResourceToken),
    /// Everything else is done: is there something to go on with?
    Settle,
    /// The session shall end, or the chat shall leave it.
    End(Ending),
}

/// What a decision asks the actor to do, in this order: commit or reject the
/// client's action, take over the new phase, commit the follow-ups, run the effects.
#[derive(Debug, Default)]
pub(super) struct Decision {
    /// Why the client's action is refused; `None` accepts it.
    pub(super) rejection: Option<String>,
    /// The next phase, if it changes.
    pub(super) phase: Option<Phase>,
    /// How far back the agent has to go.
    pub(super) rewind: Option<Rewind>,
    /// Whether the agent has shown that it works on the conversation.
    pub(super) works: bool,
    /// Whether the running turn was reopened by a client.
    pub(super) reopened: Option<bool>,
    /// The agent's name of the conversation, if it reported one.
    pub(super) resume_token: Option<ResumeToken>,
    /// An id of a message of a turn that the agent reported.
    pub(super) link: Option<(TurnId, MessageLink)>,
    /// The agent's own turn whose output goes into the running one, if that changes.
    pub(super) folded: Option<Option<Unsent>>,
    /// The host's own actions that follow.
    pub(super) actions: Vec<(Target, StateAction)>,
    /// What is to be done outside.
    pub(super) effects: Vec<Effect>,
}

/// Something to be done outside of the published state.
#[derive(Debug, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "there are a few of them at a time, and they are moved at once"
)]
pub(super) enum Effect {
    /// Start the agent.
    OpenAgent(History),
    /// Tell it something.
    Agent(AgentCommand),
    /// Tell it where it works now, if it does not know.
    TellDirectories,
    /// End it, or stop opening it.
    CloseAgent,
    /// Nothing of the agent is left: the chat is over.
    Finish,
}

/// Why nothing is taken any more.
const CLOSING: &str = "the chat or its session is being closed";

/// The reason for rejecting an action that clients may not dispatch, or not on this channel.
const WRONG_CHANNEL: &str = "this host does not take this action from a client on this channel";

/// Decides what follows from an input.
pub(super) fn decide(model: &Model, view: View<'_>, input: Input<'_>) -> Decision {
    match input {
        Input::Client { .. } if matches!(model.phase, Phase::Closing(_)) => reject(CLOSING),
        Input::Client { target, action, client } => match (target, meaning(action).dispatched()) {
            (Target::Chat, Some(action)) => decide_chat(model, view, action, client),
            (Target::Session, Some(action)) => decide_session(model, view, action, client),
            (_, None) => not_for_clients(action),
        },
        Input::Opened => decide_opened(model, view),
        Input::OpenFailed(error) => decide_open_failed(model, view, error),
        Input::Agent(event) => agent::said(model, view, event),
        Input::Left(client) => settings::left(view, client),
        Input::Directories(action) => directories::followed(view, action),
        Input::Token(token) => settings::token(view, token),
        // A tool that nobody runs any more holds up its turn, so it comes first.
        Input::Settle => tools::orphaned(view).unwrap_or_else(|| queue::next(model, view)),
        Input::End(ending) => decide_end(model, view, ending),
    }
}

fn decide_chat(model: &Model, view: View<'_>, action: Dispatched<'_>, client: &ClientId) -> Decision {
    match action {
        Dispatched::ChatTurnStarted(started) => turns::started(model, view, started),
        Dispatched::ChatTurnCancelled(cancelled) => {
            let mut decision = turns::cancelled(model, view, &cancelled.turn_id);
            if decision.rejection.is_none() {
                let leftovers = leftovers::of_turn(view.chat).into_iter().chain(queue::unsteered(view));
                decision.actions.extend(leftovers.map(|action| (Target::Chat, action)));
            }
            decision
        }
        Dispatched::ChatTurnResume(resume) => turns::resumed(model, view, &resume.turn_id),
        Dispatched::ChatPendingMessageSet(set) => queue::set(model, view, set),
        Dispatched::ChatPendingMessageRemoved(removed) => queue::removed(view, removed),
        Dispatched::ChatToolCallConfirmed(confirmed) => tools::confirmed(view, confirmed),
        Dispatched::ChatToolCallResultConfirmed(confirmed) => tools::result_confirmed(view, confirmed),
        Dispatched::ChatToolCallComplete(completed) => tools::completed(view, client, completed),
        Dispatched::ChatToolCallContentChanged(changed) => {
            tools::content_changed(view, client, &changed.turn_id, &changed.tool_call_id)
        }
        Dispatched::ChatInputAnswerChanged(changed) => inputs::answer_changed(view, changed),
        Dispatched::ChatInputCompleted(completed) => {
            let decision = inputs::completed(view, completed);
            lost_history::answered(model, view, completed).unwrap_or(decision)
        }
        Dispatched::ChatTruncated(truncated) => turns::truncated(model, view, truncated.turn_id.as_deref()),
        Dispatched::ChatWorkingDirectorySet(set) => directories::chat_set(model, view, &set.directory),
        Dispatched::ChatWorkingDirectoryRemoved(removed) => {
            directories::chat_removed(model, view, &removed.directory)
        }
        // VS Code renames a session on the channel of its chat.
        Dispatched::SessionTitleChanged(changed) => turns::renamed(view, changed),
        Dispatched::ChatQueuedMessagesReordered(_)
        | Dispatched::ChatDraftChanged(_)
        | Dispatched::ChatIsReadChanged(_)
        | Dispatched::ChatIsArchivedChanged(_) => Decision::default(),
        Dispatched::RootConfigChanged(_)
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

fn decide_session(model: &Model, view: View<'_>, action: Dispatched<'_>, client: &ClientId) -> Decision {
    match action {
        Dispatched::SessionTitleChanged(changed) => turns::session_renamed(view, changed),
        Dispatched::SessionIsReadChanged(_) | Dispatched::SessionIsArchivedChanged(_) => Decision::default(),
        Dispatched::SessionActiveClientSet(set) => {
            settings::only_itself(client, &set.active_client.client_id)
        }
        Dispatched::SessionActiveClientRemoved(removed) => settings::only_itself(client, &removed.client_id),
        Dispatched::SessionConfigChanged(changed) => {
            settings::config_changed(model.features, view.session, changed)
        }
        Dispatched::SessionWorkingDirectorySet(set) => directories::set(model, view, &set.directory),
        Dispatched::SessionWorkingDirectoryRemoved(removed) => {
            directories::removed(model, view, &removed.directory)
        }
        Dispatched::SessionWorkingDirectoryReplaced(change) => directories::replaced(model, view, change),
        Dispatched::SessionCustomizationToggled(toggled) => customizations::toggled(view.session, toggled),
        Dispatched::SessionMcpServerStartRequested(wanted) => {
            customizations::server(model, view, &wanted.id, McpServerRequest::Start)
        }
        Dispatched::SessionMcpServerStopRequested(wanted) => {
            customizations::server(model, view, &wanted.id, McpServerRequest::Stop)
        }
        Dispatched::SessionMcpServerBackgroundRequested(wanted) => {
            customizations::server(model, view, &wanted.id, McpServerRequest::Background)
        }
        Dispatched::RootConfigChanged(_)
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
        reject("the action is unknown to this host, or malformed")
    } else {
        reject(WRONG_CHANNEL)
    }
}

fn decide_opened(model: &Model, view: View<'_>) -> Decision {
    let Phase::Opening { prompt, history } = &model.phase else { return Decision::default() };
    // What is sent to an agent that begins from nothing may be all that it remembers.
    let next = if *history == History::Fresh { History::Resume } else { history.clone() };
    let mut decision = Decision { phase: Some(Phase::Live(next)), ..Decision::default() };
    if view.session.lifecycle != SessionLifecycle::Ready {
        decision.actions.push((Target::Session, StateAction::SessionReady(SessionReadyAction {})));
    }
    // An agent without a history has nothing to forget.
    let remembers = matches!(history, History::Resume | History::Branch(_));
    if let Some(Rewind { to }) = model.rewind.as_ref().filter(|_| remembers) {
        let to = to.as_deref().map(TurnId::new);
        decision.effects.push(Effect::Agent(AgentCommand::Rewind { to }));
    }
    if let Some(prompt) = prompt {
        decision.effects.push(Effect::Agent(Unsent::clone(prompt).into()));
        decision.effects.extend(queue::steer_anew(model, view));
    }
    decision
}

fn decide_open_failed(model: &Model, view: View<'_>, error: &OpenError) -> Decision {
    let history = match &model.phase {
        Phase::Opening { history, .. } => history.clone(),
        Phase::Closing(_) => return Decision { effects: vec![Effect::Finish], ..Decision::default() },
        Phase::Cold(_) | Phase::Asking { .. } | Phase::Live(_) => return Decision::default(),
    };
    let info = match error {
        OpenError::Cancelled => error_info("cancelled", "starting the agent was cancelled"),
        OpenError::Failed { error_type, message } => error_info(error_type, message),
        OpenError::HistoryMissing { message } => {
            if let Some(decision) = lost_history::missing(model, view, message) {
                return decision;
            }
            lost_history::error(message)
        }
    };
    let mut decision = Decision { phase: Some(Phase::Cold(history)), ..Decision::default() };
    if let Some(turn) = turns::running(view) {
        let failed = turns::failed(model, view, turn, info.clone(), Resumable::Yes);
        decision.actions.push((Target::Chat, failed));
    }
    // Another message tries again, and makes the session ready if that works. Its state
    // keeps the error even so, as the protocol has no word to take it back; what counts
    // is the lifecycle.
    if view.session.lifecycle != SessionLifecycle::Ready
        && view.session.creation_error.as_ref() != Some(&info)
    {
        let failed = SessionCreationFailedAction { error: info };
        decision.actions.push((Target::Session, StateAction::SessionCreationFailed(failed)));
    }
    decision
}

/// The action that closes a turn whose host was killed, after it had run so many
/// milliseconds. It is unknown what the agent did last, so the user can resume the turn,
/// but not a subagent's.
pub(super) fn interrupted(chat: &ChatState, turn: &str, ran: i64) -> StateAction {
    let info = error_info("host_stopped", "The host ended while this turn was running.");
    turns::failed_after(ran, turn, info, resumable(chat))
}

/// Whether a turn of this chat can be resumed after it was cut off. A subagent's cannot.
fn resumable(chat: &ChatState) -> Resumable {
    if parent_of(chat).is_some() { Resumable::No } else { Resumable::Yes }
}

fn decide_end(model: &Model, view: View<'_>, ending: Ending) -> Decision {
    let mut decision = Decision { phase: Some(Phase::Closing(model.phase.history())), ..Decision::default() };
    if let Some(turn) = turns::running(view) {
        let action = match ending {
            Ending::Dispose => turns::ended(model, view, turn, TurnOutcome::Cancelled),
            Ending::Suspend | Ending::Unload => {
                let info = error_info("host_stopped", "The host was stopped while this turn was running.");
                turns::failed(model, view, turn, info, resumable(view.chat))
            }
        };
        let withdrawn = inputs::withdrawn(view.chat).into_iter();
        decision.actions.extend(withdrawn.chain([action]).map(|action| (Target::Chat, action)));
    }
    decision.effects.push(match model.phase {
        Phase::Cold(_) | Phase::Asking { .. } => Effect::Finish,
        Phase::Opening { .. } | Phase::Live(_) | Phase::Closing(_) => Effect::CloseAgent,
    });
    decision
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
