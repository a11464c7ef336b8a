//! The session data that an agent gets besides its conversation. An agent is opened with
//! all of it and is then sent the changes. It is always read from the published state.

use std::path::PathBuf;
use std::sync::Arc;

use ahp_types::common::JsonObject;
use ahp_types::state::{ChatState, SessionActiveClient, SessionState};

use super::decide::switches;
use crate::agent::{AgentCommand, ClientTool, Switch};
use crate::directories::{self, Primary};
use crate::ids::ClientId;

/// Most commands in one briefing.
pub(super) const MAX_BRIEFING: usize = 3;

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
    pub(super) fn of(session: &SessionState, chat: &ChatState, primary: Option<Primary>) -> Self {
        Self {
            directories: directories::of_chat(session, chat, primary),
            config: session.config.as_ref().map(|config| config.values.clone()).unwrap_or_default(),
            client_tools: session.active_clients.iter().flat_map(tools_of).collect(),
            switches: switches(session),
        }
    }

    /// Replaces the data and returns the commands that update the agent. Switches are not
    /// included: each toggle is sent to the agent separately.
    pub(super) fn update(&mut self, now: Self) -> Vec<AgentCommand> {
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
    pub(super) fn switched(&self, now: &Self) -> Vec<Switch> {
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

fn tools_of(client: &SessionActiveClient) -> impl Iterator<Item = ClientTool> + '_ {
    let id = ClientId::new(&client.client_id);
    client.tools.iter().map(move |tool| ClientTool { client: id.clone(), tool: tool.clone() })
}
