//! What each protocol action means to the host, decided in one place.
//!
//! [`meaning`] is an exhaustive match over `StateAction`, written as a table in
//! `table.rs`: an action that a new protocol version adds does not compile until it has a
//! row. This module holds the types of the table's columns. It does not decide whether an
//! action is valid in the current state; that is up to `session::decide`.

mod dispatched;
mod merging;
mod table;

pub(crate) use dispatched::Dispatched;
pub(crate) use merging::{Merging, TextDelta};
pub(crate) use table::{meaning, turn_of};

use crate::channel::ChannelKind;

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ActionMeaning<'a> {
    /// The channel kind the protocol defines the action for; `None` if the action is unknown.
    pub(crate) channel: Option<ChannelKind>,
    /// How a client's action is accepted; `None` if clients may not dispatch it.
    pub(crate) client: Option<ClientRule<'a>>,
    /// When an agent's action is published; `None` if agents may not send it.
    pub(crate) agent: Option<AgentRule<'a>>,
    /// Durability when the host publishes the action, for itself or for an agent.
    pub(crate) host: Durability,
    /// What the action does to the turns of its chat.
    pub(crate) turn: Option<TurnEffect>,
    /// Whether a client that dispatches the action wants the chat's queue to go on, even
    /// after a failed turn that can be resumed.
    pub(crate) resumes_queue: bool,
    /// Whether the action can change a summary of the chat or session. The actions that
    /// cannot arrive by the thousand during a turn.
    pub(crate) shows_in_list: bool,
    /// What the session's agents must be told after the action.
    pub(crate) told: Option<AgentUpdate>,
    /// Whether an agent that sends the action has taken up its conversation.
    pub(crate) shows_work: bool,
    /// How the action merges with its neighbours on the way to a slow client.
    pub(crate) merging: Merging<'a>,
}

impl<'a> ActionMeaning<'a> {
    /// The action, typed as one that a client dispatched; `None` if clients may not.
    pub(crate) fn dispatched(&self) -> Option<Dispatched<'a>> {
        self.client.map(|rule| rule.action)
    }

    /// Whether the action ends a turn.
    pub(crate) fn ends_turn(&self) -> bool {
        self.turn == Some(TurnEffect::Ends)
    }

    /// Whether the action starts a turn or reopens the last one.
    pub(crate) fn begins_turn(&self) -> bool {
        matches!(self.turn, Some(TurnEffect::Starts | TurnEffect::Resumes))
    }
}

/// How a client's action is accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientRule<'a> {
    /// The action, typed as one that clients may dispatch.
    pub(crate) action: Dispatched<'a>,
    /// Durability of the action when a client dispatches it.
    pub(crate) durability: Durability,
}

/// Whether an action is stored before or after its publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Stored first: turn boundaries and decisions.
    Ahead,
    /// Stored within a tenth of a second after publication: frequent, and little is lost.
    After,
}

/// When an agent's action is published. Otherwise it is late, and dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgentRule<'a> {
    /// While this turn runs.
    InTurn(&'a str),
    /// While any turn runs.
    Running,
    /// Always.
    Anytime,
}

/// What an action does to the turns of a chat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnEffect {
    /// Starts a turn.
    Starts,
    /// Reopens the last turn.
    Resumes,
    /// Ends the running turn.
    Ends,
    /// Removes the last turns.
    Truncates,
}

/// What agents must be told after an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgentUpdate {
    /// The configuration and the clients that take part.
    Settings,
    /// The working directories.
    Directories,
}

#[cfg(test)]
#[path = "action_tests.rs"]
mod tests;
