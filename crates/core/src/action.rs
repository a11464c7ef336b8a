//! Classifies every protocol action for the host.
//!
//! [`meaning`] is an exhaustive match over `StateAction`, written as a table in
//! `table.rs`. An action that a new protocol version adds does not compile until it has a
//! row. This module defines the types of the table's columns. It does not check whether
//! an action is valid in the current state; `session::decide` does.

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
    /// Durability of the action when the host publishes it for itself or for an agent.
    pub(crate) host: Durability,
    /// Effect of the action on the turns of its chat.
    pub(crate) turn: Option<TurnEffect>,
    /// Whether the chat's queue continues when a client dispatches this action, even
    /// after a failed turn that can be resumed.
    pub(crate) resumes_queue: bool,
    /// Whether the action can change a summary of the chat or session. A turn produces
    /// thousands of the actions that cannot.
    pub(crate) shows_in_list: bool,
    /// The update that the session sends to its agents after the action.
    pub(crate) agent_update: Option<AgentUpdate>,
    /// Whether the action, sent by an agent, shows that the agent has started its
    /// conversation.
    pub(crate) shows_work: bool,
    /// How the action merges with adjacent actions in the outbox of a slow client.
    pub(crate) merging: Merging<'a>,
}

impl<'a> ActionMeaning<'a> {
    /// The action as a [`Dispatched`] value; `None` if clients may not dispatch it.
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

/// How the host accepts a client's action.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientRule<'a> {
    /// The action as a [`Dispatched`] value.
    pub(crate) action: Dispatched<'a>,
    /// Durability of the action when a client dispatches it.
    pub(crate) durability: Durability,
}

/// Whether an action is stored before or after it is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Stored before publication: turn boundaries and users' choices.
    Ahead,
    /// Stored within 0.1 s after publication. For frequent actions, where a crash loses
    /// little.
    After,
}

/// When an agent's action is published. At any other time it is late and dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgentRule<'a> {
    /// While this turn runs.
    InTurn(&'a str),
    /// While any turn runs.
    Running,
    /// Always.
    Anytime,
}

/// Effect of an action on the turns of a chat.
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

/// An update that agents receive after an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgentUpdate {
    /// The configuration and the active clients.
    Settings,
    /// The working directories.
    Directories,
}

#[cfg(test)]
#[path = "action_tests.rs"]
mod tests;
