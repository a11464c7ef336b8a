//! What happens next in a session: a pure function of its state and an input.
//!
//! No clock, no I/O, no waiting: the time comes in with the input, and what must
//! be done outside goes out as effects. Published state is only read here; the
//! actions that change it are returned for the actor to commit, in order.

use std::time::Duration;

use ahp_types::actions::{
    ChatErrorAction, ChatTurnCancelledAction, ChatTurnCompleteAction, ChatTurnStartedAction,
    SessionReadyAction, SessionTitleChangedAction, StateAction,
};
use ahp_types::state::{
    ChatInteractivity, ChatState, ErrorInfo, ErrorResponsePart, Message, MessageKind, SessionState,
};
use jiff::Timestamp;

use crate::agent::{AgentCommand, AgentEvent, History, OpenError, TurnOutcome};
use crate::ids::{ClientId, TurnId};

/// Longest title that is made from a message, in characters.
const TITLE_LENGTH: usize = 60;

/// Everything about a session that is not published.
#[derive(Clone, Debug)]
pub(super) struct Model {
    /// Where the agent is in its life.
    pub(super) phase: Phase,
    /// When the running turn began, on the actor's clock.
    pub(super) turn_began: Duration,
    /// Whether the session is in the list that every client sees.
    pub(super) listed: bool,
}

/// Where the agent of a session is in its life.
#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// There is no agent. It is opened when the next message comes.
    Cold(History),
    /// The agent is being opened.
    Opening {
        /// What it takes up, for another try if this one fails.
        history: History,
        /// The message to send when it is there, unless that is cancelled before.
        prompt: Option<Box<Prompt>>,
    },
    /// The agent is there.
    Live,
    /// The session ends as soon as the agent is gone.
    Closing,
}

/// A message on its way to the agent.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Prompt {
    /// The turn that it opened.
    pub(super) turn: TurnId,
    /// What the user said.
    pub(super) message: Message,
}

/// The published state that decisions are made on.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    /// The session's document.
    pub(super) session: &'a SessionState,
    /// Its chat's document.
    pub(super) chat: &'a ChatState,
    /// The actor's clock, for durations.
    pub(super) now: Duration,
}

/// Which of a session's channels an action is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// The session channel.
    Session,
    /// The default chat's channel.
    Chat,
}

/// Something that happened to the session.
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
    /// The session shall end.
    End,
}

/// What a decision asks the actor to do, in this order: commit or reject the
/// client's action, take over the new phase, commit the follow-ups, run the effects.
#[derive(Debug, Default)]
pub(super) struct Decision {
    /// Why the client's action is refused; `None` accepts it.
    pub(super) rejection: Option<String>,
    /// The next phase, if it changes.
    pub(super) phase: Option<Phase>,
    /// The host's own actions that follow.
    pub(super) actions: Vec<(Target, StateAction)>,
    /// What is to be done outside.
    pub(super) effects: Vec<Effect>,
}

/// Something to be done outside of the published state.
#[derive(Debug, PartialEq)]
pub(super) enum Effect {
    /// Start the agent.
    OpenAgent(History),
    /// Send it this message.
    Prompt(Prompt),
    /// Tell it to stop working on this turn.
    Cancel(TurnId),
    /// End it, or stop opening it.
    CloseAgent,
    /// Show the session in the list.
    List,
    /// Nothing of the agent is left: the actor can stop.
    Finish,
}

/// Decides what follows from an input.
pub(super) fn decide(model: &Model, view: View<'_>, input: Input<'_>) -> Decision {
    match input {
        Input::Client { target, action, client } => decide_client(model, view, target, action, client),
        Input::Opened => decide_opened(model),
        Input::OpenFailed(error) => decide_open_failed(model, view, error),
        Input::Agent(event) => decide_agent(model, view, event),
        Input::End => decide_end(model, view),
    }
}

fn decide_client(
    model: &Model,
    view: View<'_>,
    target: Target,
    action: &StateAction,
    client: &ClientId,
) -> Decision {
    if matches!(model.phase, Phase::Closing) {
        return reject("the session is being disposed");
    }
    match (target, action) {
        (Target::Chat, StateAction::ChatTurnStarted(started)) => decide_turn_started(model, view, started),
        (Target::Chat, StateAction::ChatTurnCancelled(cancelled)) => {
            decide_turn_cancelled(model, view, &cancelled.turn_id)
        }
        (
            Target::Chat,
            StateAction::ChatDraftChanged(_)
            | StateAction::ChatIsReadChanged(_)
            | StateAction::ChatIsArchivedChanged(_),
        )
        | (
            Target::Session,
            StateAction::SessionTitleChanged(_)
            | StateAction::SessionIsReadChanged(_)
            | StateAction::SessionIsArchivedChanged(_),
        ) => Decision::default(),
        (Target::Session, StateAction::SessionActiveClientSet(set)) => {
            only_itself(client, &set.active_client.client_id)
        }
        (Target::Session, StateAction::SessionActiveClientRemoved(removed)) => {
            only_itself(client, &removed.client_id)
        }
        (Target::Session, StateAction::SessionConfigChanged(changed)) => {
            decide_config_changed(view.session, changed.config.keys())
        }
        (_, StateAction::Unknown(_)) => reject("the action is unknown to this host, or malformed"),
        _ => reject("this host does not take this action from a client on this channel"),
    }
}

fn decide_turn_started(model: &Model, view: View<'_>, started: &ChatTurnStartedAction) -> Decision {
    let chat = view.chat;
    if chat.active_turn.is_some() {
        return reject("a turn is already running in this chat");
    }
    if chat.turns.iter().any(|turn| turn.id == started.turn_id) {
        return reject("the chat already has a turn with this id");
    }
    if started.message.origin.kind != MessageKind::User {
        return reject("a client can only send messages of origin \"user\"");
    }
    if matches!(chat.interactivity, Some(ChatInteractivity::ReadOnly | ChatInteractivity::Hidden)) {
        return reject("this chat takes no messages");
    }
    if started.started_at.parse::<Timestamp>().is_err() {
        return reject("startedAt is not an RFC 3339 time");
    }
    let prompt = Prompt { turn: TurnId::new(&started.turn_id), message: started.message.clone() };
    let mut decision = Decision::default();
    if view.session.title.is_empty() {
        let title = title_from(&started.message.text);
        if !title.is_empty() {
            let action = StateAction::SessionTitleChanged(SessionTitleChangedAction { title });
            decision.actions.push((Target::Session, action));
        }
    }
    match &model.phase {
        Phase::Cold(history) => {
            decision.phase = Some(Phase::Opening { history: *history, prompt: Some(Box::new(prompt)) });
            decision.effects.push(Effect::OpenAgent(*history));
        }
        // The turn that started the opening was cancelled meanwhile.
        Phase::Opening { history, prompt: _ } => {
            decision.phase = Some(Phase::Opening { history: *history, prompt: Some(Box::new(prompt)) });
        }
        Phase::Live => decision.effects.push(Effect::Prompt(prompt)),
        Phase::Closing => return reject("the session is being disposed"),
    }
    decision
}

fn decide_turn_cancelled(model: &Model, view: View<'_>, turn: &str) -> Decision {
    if view.chat.active_turn.as_ref().is_none_or(|active| active.id != turn) {
        return reject("this turn is not running");
    }
    let mut decision = Decision::default();
    match &model.phase {
        Phase::Opening { history, prompt: _ } => {
            decision.phase = Some(Phase::Opening { history: *history, prompt: None });
        }
        Phase::Live => decision.effects.push(Effect::Cancel(TurnId::new(turn))),
        Phase::Cold(_) | Phase::Closing => {}
    }
    decision
}

fn only_itself(client: &ClientId, named: &str) -> Decision {
    if client.as_str() == named {
        Decision::default()
    } else {
        reject("a client can only set or remove itself")
    }
}

fn decide_config_changed<'a>(session: &SessionState, keys: impl Iterator<Item = &'a String>) -> Decision {
    let properties = session.config.as_ref().map(|config| &config.schema.properties);
    for key in keys {
        let property = properties.and_then(|properties| properties.get(key));
        if property.is_none_or(|property| property.session_mutable != Some(true)) {
            return reject(&format!("\"{key}\" cannot be changed in a running session"));
        }
    }
    Decision::default()
}

fn decide_opened(model: &Model) -> Decision {
    let Phase::Opening { prompt, .. } = &model.phase else { return Decision::default() };
    let mut decision = Decision { phase: Some(Phase::Live), ..Decision::default() };
    if !model.listed {
        decision.actions.push((Target::Session, StateAction::SessionReady(SessionReadyAction {})));
        decision.effects.push(Effect::List);
    }
    if let Some(prompt) = prompt {
        decision.effects.push(Effect::Prompt(Prompt::clone(prompt)));
    }
    decision
}

fn decide_open_failed(model: &Model, view: View<'_>, error: &OpenError) -> Decision {
    let history = match &model.phase {
        Phase::Opening { history, .. } => *history,
        Phase::Closing => return Decision { effects: vec![Effect::Finish], ..Decision::default() },
        Phase::Cold(_) | Phase::Live => return Decision::default(),
    };
    let mut decision = Decision { phase: Some(Phase::Cold(history)), ..Decision::default() };
    let info = match error {
        OpenError::Cancelled => error_info("cancelled", "starting the agent was cancelled"),
        OpenError::Failed { error_type, message } => error_info(error_type, message),
    };
    if let Some(turn) = running_turn(view) {
        decision.actions.push((Target::Chat, turn_failed(model, view, turn, info)));
    }
    decision
}

fn decide_agent(model: &Model, view: View<'_>, event: AgentEvent) -> Decision {
    let mut decision = Decision::default();
    match event {
        AgentEvent::Action(action) => {
            // What comes late for a turn that is over is dropped: a cancelled turn
            // stays cancelled.
            let turn = turn_of(&action);
            if turn.is_none() || turn == view.chat.active_turn.as_ref().map(|active| active.id.as_str()) {
                decision.actions.push((Target::Chat, *action));
            }
        }
        AgentEvent::TurnEnded { turn, outcome } => {
            if running_turn(view) == Some(turn.as_str()) {
                decision.actions.push((Target::Chat, turn_ended(model, view, turn.as_str(), outcome)));
            }
        }
        AgentEvent::Closed { history } => {
            if matches!(model.phase, Phase::Closing) {
                decision.effects.push(Effect::Finish);
                return decision;
            }
            decision.phase = Some(Phase::Cold(history));
            if let Some(turn) = running_turn(view) {
                let info = error_info("agent_closed", "the agent ended before it finished the turn");
                decision.actions.push((Target::Chat, turn_failed(model, view, turn, info)));
            }
        }
    }
    decision
}

fn decide_end(model: &Model, view: View<'_>) -> Decision {
    let mut decision = Decision { phase: Some(Phase::Closing), ..Decision::default() };
    if let Some(turn) = running_turn(view) {
        decision.actions.push((Target::Chat, turn_ended(model, view, turn, TurnOutcome::Cancelled)));
    }
    decision.effects.push(match model.phase {
        Phase::Cold(_) => Effect::Finish,
        Phase::Opening { .. } | Phase::Live | Phase::Closing => Effect::CloseAgent,
    });
    decision
}

impl From<Prompt> for AgentCommand {
    fn from(prompt: Prompt) -> Self {
        Self::Prompt { turn: prompt.turn, message: prompt.message }
    }
}

fn reject(reason: &str) -> Decision {
    Decision { rejection: Some(reason.to_owned()), ..Decision::default() }
}

fn running_turn(view: View<'_>) -> Option<&str> {
    view.chat.active_turn.as_ref().map(|active| active.id.as_str())
}

fn turn_ended(model: &Model, view: View<'_>, turn: &str, outcome: TurnOutcome) -> StateAction {
    let turn_id = turn.to_owned();
    let duration = turn_duration(model, view);
    match outcome {
        TurnOutcome::Completed => {
            StateAction::ChatTurnComplete(ChatTurnCompleteAction { turn_id, duration, meta: None })
        }
        TurnOutcome::Cancelled => {
            StateAction::ChatTurnCancelled(ChatTurnCancelledAction { turn_id, duration, meta: None })
        }
        TurnOutcome::Failed(info) => turn_failed(model, view, turn, info),
    }
}

fn turn_failed(model: &Model, view: View<'_>, turn: &str, error: ErrorInfo) -> StateAction {
    StateAction::ChatError(ChatErrorAction {
        turn_id: turn.to_owned(),
        duration: turn_duration(model, view),
        part: ErrorResponsePart { error, resumable: None },
        meta: None,
    })
}

fn turn_duration(model: &Model, view: View<'_>) -> i64 {
    i64::try_from(view.now.saturating_sub(model.turn_began).as_millis()).unwrap_or(i64::MAX)
}

fn error_info(error_type: &str, message: &str) -> ErrorInfo {
    ErrorInfo { error_type: error_type.to_owned(), message: message.to_owned(), stack: None, meta: None }
}

/// The turn that a chat action belongs to, if it belongs to one.
fn turn_of(action: &StateAction) -> Option<&str> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the other actions name no turn")]
    match action {
        StateAction::ChatDelta(action) => Some(&action.turn_id),
        StateAction::ChatReasoning(action) => Some(&action.turn_id),
        StateAction::ChatResponsePart(action) => Some(&action.turn_id),
        StateAction::ChatUsage(action) => Some(&action.turn_id),
        StateAction::ChatToolCallStart(action) => Some(&action.turn_id),
        StateAction::ChatToolCallDelta(action) => Some(&action.turn_id),
        StateAction::ChatToolCallReady(action) => Some(&action.turn_id),
        StateAction::ChatToolCallContentChanged(action) => Some(&action.turn_id),
        StateAction::ChatToolCallComplete(action) => Some(&action.turn_id),
        _ => None,
    }
}

/// A provisional title: the message's first line, cut at a word.
fn title_from(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    if line.chars().count() <= TITLE_LENGTH {
        return line.to_owned();
    }
    let cut: String = line.chars().take(TITLE_LENGTH).collect();
    let kept = cut.rsplit_once(' ').map_or(cut.as_str(), |(kept, _)| kept);
    format!("{kept}…")
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
