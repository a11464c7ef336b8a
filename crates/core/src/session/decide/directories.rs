//! Where a session and its chats work: what clients change about it, as far as the
//! agent can follow.
//!
//! Directories are known by their addresses, exactly as they were given. A chat has
//! only directories of its session's, so what the session loses, the chat loses too.

use ahp_types::actions::{
    ChatWorkingDirectoryRemovedAction, ChatWorkingDirectorySetAction, SessionWorkingDirectoryReplacedAction,
    StateAction,
};
use ahp_types::state::SessionLifecycle;

use super::{Decision, Effect, Model, Phase, Target, View, reject};
use crate::directories::{MAX_DIRECTORIES, Primary, path_of};

/// A client gives the session another directory.
pub(super) fn set(model: &Model, view: View<'_>, directory: &str) -> Decision {
    let Some(primary) = model.directories else { return one_only() };
    let held = of_session(view);
    if held.iter().any(|known| known == directory) {
        return Decision::default();
    }
    if path_of(directory).is_none() {
        return no_directory();
    }
    let begun =
        view.session.lifecycle != SessionLifecycle::Creating || !matches!(model.phase, Phase::Cold(_));
    if held.is_empty() && primary == Primary::Fixed && begun {
        return reject("the agent has begun to work without a directory, and cannot move to one any more");
    }
    if held.len() >= MAX_DIRECTORIES {
        return reject(&format!("a session has at most {MAX_DIRECTORIES} directories; remove one first"));
    }
    Decision::default()
}

/// A client takes a directory from the session.
pub(super) fn removed(model: &Model, view: View<'_>, directory: &str) -> Decision {
    let Some(primary) = model.directories else { return one_only() };
    match (of_session(view).iter().position(|known| known == directory), primary) {
        (None, _) => return not_of_session(),
        (Some(0), Primary::Fixed) => {
            return reject("the agent lives in the session's first directory: it stays");
        }
        (Some(0), Primary::Replaceable) => {
            return reject("the agent lives in the session's first directory: replace it instead");
        }
        (Some(_), _) => {}
    }
    Decision::default()
}

/// A client puts another directory in the place of one of the session's.
pub(super) fn replaced(
    model: &Model,
    view: View<'_>,
    change: &SessionWorkingDirectoryReplacedAction,
) -> Decision {
    let SessionWorkingDirectoryReplacedAction { directory, replacement } = change;
    let Some(primary) = model.directories else { return one_only() };
    let held = of_session(view);
    match held.iter().position(|known| known == directory) {
        None => return not_of_session(),
        Some(0) if primary != Primary::Replaceable => {
            return reject("the session's first directory cannot be replaced by another one");
        }
        Some(_) => {}
    }
    if directory == replacement {
        return Decision::default();
    }
    if !held.contains(replacement) && path_of(replacement).is_none() {
        return no_directory();
    }
    Decision::default()
}

/// The session works elsewhere: a chat loses what it has lost, and its agent is told.
pub(super) fn followed(view: View<'_>, action: &StateAction) -> Decision {
    let mut decision = told();
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
    // First the new one, so that the chat is never without any.
    if let Some(directory) = replacement.cloned() {
        let set = StateAction::ChatWorkingDirectorySet(ChatWorkingDirectorySetAction { directory });
        decision.actions.push((Target::Chat, set));
    }
    let removed = ChatWorkingDirectoryRemovedAction { directory: lost.clone() };
    decision.actions.push((Target::Chat, StateAction::ChatWorkingDirectoryRemoved(removed)));
    decision
}

/// A client gives a chat a directory of its own, out of the session's.
pub(super) fn chat_set(model: &Model, view: View<'_>, directory: &str) -> Decision {
    if model.directories.is_none() {
        one_only()
    } else if of_session(view).iter().any(|known| known == directory) {
        told()
    } else {
        not_of_session()
    }
}

/// A client takes a directory from a chat.
pub(super) fn chat_removed(model: &Model, view: View<'_>, directory: &str) -> Decision {
    if model.directories.is_none() {
        one_only()
    } else if chat_has(view, directory) {
        told()
    } else {
        reject("the directory is not one of the chat's own")
    }
}

fn of_session(view: View<'_>) -> &[String] {
    view.session.working_directories.as_deref().unwrap_or_default()
}

fn chat_has(view: View<'_>, directory: &str) -> bool {
    view.chat.working_directories.iter().flatten().any(|known| known == directory)
}

fn told() -> Decision {
    Decision { effects: vec![Effect::TellDirectories], ..Decision::default() }
}

fn one_only() -> Decision {
    reject("an agent here works in the directory that its session was created with")
}

fn not_of_session() -> Decision {
    reject("the directory is not one of the session's")
}

fn no_directory() -> Decision {
    reject("the directory is not a file: address of this machine")
}
