//! The session data that an agent gets besides its conversation. An agent is opened with
//! all of it and is then sent the changes. It is always read from the published state.

use std::path::PathBuf;
use std::sync::Arc;

use ahp_types::common::JsonObject;
use ahp_types::state::{ChatState, SessionActiveClient, SessionState};

use super::chats::Chat;
use super::decide::switches;
use super::publisher::Publisher;
use crate::agent::{AgentCommand, COMMAND_CAPACITY, ClientTool, Switch};
use crate::directories::{self, Primary};
use crate::ids::ClientId;

/// Most commands in one briefing.
const MAX_BRIEFING: usize = 3;

/// Free places that an agent's command queue must have before the agent is briefed, so
/// that user commands still fit.
const BRIEFING_ROOM: usize = COMMAND_CAPACITY / 2;

/// Places for a briefing and the command that follows it.
const BRIEFING_AND_COMMAND: usize = MAX_BRIEFING + 1;

/// When an agent is briefed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Brief {
    /// Now, if its queue has room besides its work.
    IfRoom,
    /// Before the next command, unless that command would not fit then.
    First,
}

/// The session data that the agent of one chat has, or should have.
#[derive(Clone, Debug, Default)]
pub(super) struct Briefing {
    /// The directories to work in.
    pub(super) directories: Vec<PathBuf>,
    /// The session's configuration values.
    pub(super) config: JsonObject,
    /// The tools of all active clients.
    pub(super) client_tools: Arc<[ClientTool]>,
    /// The customizations that are switched on or off explicitly.
    pub(super) switches: Vec<Switch>,
}

impl Briefing {
    /// Reads the data for the agent of a chat from the published state.
    fn of(session: &SessionState, chat: &ChatState, primary: Option<Primary>) -> Self {
        Self {
            directories: directories::of_chat(session, chat, primary),
            config: session.config.as_ref().map(|config| config.values.clone()).unwrap_or_default(),
            client_tools: session.active_clients.iter().flat_map(tools_of).collect(),
            switches: switches(session),
        }
    }

    /// Replaces the data and returns the commands that update the agent. Switches are not
    /// included: each toggle is sent to the agent separately.
    fn update(&mut self, now: Self) -> Vec<AgentCommand> {
        let mut commands = Vec::new();
        if now.directories != self.directories {
            commands.push(AgentCommand::Directories(now.directories.clone()));
        }
        if now.config != self.config {
            commands.push(AgentCommand::Config(now.config.clone()));
        }
        if now.client_tools != self.client_tools {
            commands.push(AgentCommand::ClientTools(Arc::clone(&now.client_tools)));
        }
        *self = now;
        commands
    }

    /// The switches that differ from these.
    fn switched(&self, now: &Self) -> Vec<Switch> {
        // A customization without a switch is enabled.
        let on = |then: &&Switch| now.switches.iter().all(|switch| switch.id != then.id);
        let on = self
            .switches
            .iter()
            .filter(on)
            .map(|then| Switch { id: then.id.clone(), enablement: Vec::new() });
        let changed = now.switches.iter().filter(|switch| !self.switches.contains(switch)).cloned();
        changed.chain(on).collect()
    }
}

impl Chat {
    /// The current session data for the agent.
    pub(super) fn briefing(&self, publisher: &Publisher) -> Briefing {
        let of =
            |session: &SessionState, chat: &ChatState| Briefing::of(session, chat, self.agent.directories);
        publisher.with_state(&self.uri, of).unwrap_or_default()
    }

    /// Sends changes of the session data to the agent. A busy agent gets only the latest
    /// state later, since clients may change settings at any rate.
    pub(super) fn update_briefing(&mut self, publisher: &Publisher, when: Brief) {
        // Checked first, because collecting the data is expensive.
        if self.can_brief(when) {
            let now = self.briefing(publisher);
            self.brief(now);
        }
    }

    /// Briefs an agent that had no room for the last briefing.
    pub(super) fn update_if_outdated(&mut self, publisher: &Publisher, when: Brief) {
        if self.briefing_outdated {
            self.update_briefing(publisher, when);
        }
    }

    /// Sends the agent the changes since its opening began.
    pub(super) fn brief_after_opening(&mut self, publisher: &Publisher) {
        let now = self.briefing(publisher);
        let switched = self.briefed.switched(&now);
        if self.can_brief(Brief::First) {
            self.brief(now);
        }
        if !switched.is_empty() {
            self.command(AgentCommand::Toggle(switched));
        }
    }

    fn brief(&mut self, now: Briefing) {
        for command in self.briefed.update(now) {
            self.command(command);
        }
    }

    /// Whether there is an agent with room for a briefing. An agent without room is marked
    /// for a later briefing.
    fn can_brief(&mut self, when: Brief) -> bool {
        let Some(connection) = &self.connection else { return false };
        let room = match when {
            Brief::IfRoom => BRIEFING_ROOM,
            Brief::First => BRIEFING_AND_COMMAND,
        };
        self.briefing_outdated = connection.commands.capacity() < room;
        !self.briefing_outdated
    }
}

fn tools_of(client: &SessionActiveClient) -> impl Iterator<Item = ClientTool> + '_ {
    let id = ClientId::new(&client.client_id);
    client.tools.iter().map(move |tool| ClientTool { client: id.clone(), tool: tool.clone() })
}
