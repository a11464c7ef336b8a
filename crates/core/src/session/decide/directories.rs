//! Client actions on the working directories of a session and its chats.
//!
//! Directories are compared by URI, exactly as given. A chat's directories are a subset of
//! its session's, so a directory that the session loses is removed from the chats too.

use ahp_types::actions::{
    ChatWorkingDirectoryRemovedAction, ChatWorkingDirectorySetAction, SessionWorkingDirectoryReplacedAction,
    StateAction,
};
use ahp_types::state::SessionLifecycle;

use super::{ActionTarget, AgentState, Decision, DecisionView, Effect, Phase, reject};
use crate::agent::History;
use crate::directories::{MAX_DIRECTORIES, Primary, path_of};

/// Handles a client's addition of a session directory.
pub(super) fn set(agent: &AgentState, view: DecisionView<'_>, directory: &str) -> Decision {
    let Some(primary) = agent.directories else { return unsupported() };
    let held = of_session(view);
    if held.iter().any(|known| known == directory) {
        return Decision::default();
    }
    if path_of(directory).is_none() {
        return invalid_directory();
    }
    // An agent that was opened in advance has not begun; it is opened again in the directory.
    let is_unused = match &agent.phase {
        Phase::Cold(_) | Phase::Live(History::Fresh) | Phase::Opening { prompt: None, .. } => true,
        Phase::Live(_) | Phase::Opening { .. } | Phase::Asking { .. } | Phase::Closing(_) => false,
    };
    let begun = view.session.lifecycle != SessionLifecycle::Creating || !is_unused;
    if held.is_empty() && primary == Primary::Fixed && begun {
        return reject("this agent was started without a directory and cannot change to one");
    }
    if held.len() >= MAX_DIRECTORIES {
        return reject(&format!(
            "a session can have at most {MAX_DIRECTORIES} directories; remove one first"
        ));
    }
    Decision::default()
}

/// Handles a client's removal of a session directory.
pub(super) fn removed(agent: &AgentState, view: DecisionView<'_>, directory: &str) -> Decision {
    let Some(primary) = agent.directories else { return unsupported() };
    match (of_session(view).iter().position(|known| known == directory), primary) {
        (None, _) => return unknown_directory(),
        (Some(0), Primary::Fixed) => {
            return reject("the agent runs in the session's first directory, which cannot be removed");
        }
        (Some(0), Primary::Replaceable) => {
            return reject("the agent runs in the session's first directory; replace it instead");
        }
        (Some(_), _) => {}
    }
    Decision::default()
}

/// Handles a client's replacement of a session directory.
pub(super) fn replaced(
    agent: &AgentState,
    view: DecisionView<'_>,
    change: &SessionWorkingDirectoryReplacedAction,
) -> Decision {
    let SessionWorkingDirectoryReplacedAction { directory, replacement } = change;
    let Some(primary) = agent.directories else { return unsupported() };
    let held = of_session(view);
    match held.iter().position(|known| known == directory) {
        None => return unknown_directory(),
        Some(0) if primary != Primary::Replaceable => {
            return reject("the session's first directory cannot be replaced");
        }
        Some(_) => {}
    }
    if directory == replacement {
        return Decision::default();
    }
    if !held.contains(replacement) && path_of(replacement).is_none() {
        return invalid_directory();
    }
    Decision::default()
}

/// Applies a change of the session's directories to a chat, and updates its agent.
pub(super) fn session_changed(view: DecisionView<'_>, action: &StateAction) -> Decision {
    let mut decision = update_agent();
    let (lost, replacement) = if let StateAction::SessionWorkingDirectoryRemoved(removed) = action {
        (&removed.directory, None)
    } else if let StateAction::SessionWorkingDirectoryReplaced(change) = action {
        (&change.directory, Some(&change.replacement))
    } else {
        return decision;
    };
    if !chat_has(view, lost) || of_session(view).contains(lost) {
        return decision;
    }
    // The new directory is added first, so that the chat always has one.
    if let Some(directory) = replacement.cloned() {
        let set = StateAction::ChatWorkingDirectorySet(ChatWorkingDirectorySetAction { directory });
        decision.actions.push((ActionTarget::Chat, set));
    }
    let removed = ChatWorkingDirectoryRemovedAction { directory: lost.clone() };
    decision.actions.push((ActionTarget::Chat, StateAction::ChatWorkingDirectoryRemoved(removed)));
    decision
}

/// Handles a client's addition of a chat directory; it must be a session directory.
pub(super) fn chat_set(agent: &AgentState, view: DecisionView<'_>, directory: &str) -> Decision {
    if agent.directories.is_none() {
        unsupported()
    } else if of_session(view).iter().any(|known| known == directory) {
        update_agent()
    } else {
        unknown_directory()
    }
}

/// Handles a client's removal of a chat directory.
pub(super) fn chat_removed(agent: &AgentState, view: DecisionView<'_>, directory: &str) -> Decision {
    if agent.directories.is_none() {
        unsupported()
    } else if chat_has(view, directory) {
        update_agent()
    } else {
        reject("the chat does not have this directory")
    }
}

fn of_session(view: DecisionView<'_>) -> &[String] {
    view.session.working_directories.as_deref().unwrap_or_default()
}

fn chat_has(view: DecisionView<'_>, directory: &str) -> bool {
    view.chat.working_directories.iter().flatten().any(|known| known == directory)
}

fn update_agent() -> Decision {
    Decision { effects: vec![Effect::UpdateDirectories], ..Decision::default() }
}

fn unsupported() -> Decision {
    reject("this agent does not support changing the session's directory")
}

fn unknown_directory() -> Decision {
    reject("the session does not have this directory")
}

fn invalid_directory() -> Decision {
    reject("the directory is not a file: URI on this machine")
}
