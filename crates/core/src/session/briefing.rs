//! What an agent knows of its session beside its conversation: it is opened with all of
//! it, and told what changes. Read off the published state, which stays the truth.

use std::path::PathBuf;
use std::sync::Arc;

use ahp_types::common::JsonObject;
use ahp_types::state::{ChatState, SessionActiveClient, SessionState};

use super::decide::switches;
use crate::agent::{AgentCommand, ClientTool, Switch};
use crate::directories::{self, Primary};
use crate::ids::ClientId;

/// Most commands that tell an agent what is new.
pub(super) const MOST_NEWS: usize = 3;

/// What the agent of one chat knows, or should know.
#[derive(Clone, Debug, Default)]
pub(super) struct Briefing {
    /// The directories to work in.
    pub(super) directories: Vec<PathBuf>,
    /// The session's configuration values.
    pub(super) config: JsonObject,
    /// The tools of all clients that take part.
    pub(super) client_tools: Arc<[ClientTool]>,
    /// What was decided about customizations.
    pub(super) switches: Vec<Switch>,
}

impl Briefing {
    /// What the agent of a chat should know, if it makes this of several directories.
    pub(super) fn of(session: &SessionState, chat: &ChatState, primary: Option<Primary>) -> Self {
        Self {
            directories: directories::of_chat(session, chat, primary),
            config: session.config.as_ref().map(|config| config.values.clone()).unwrap_or_default(),
            client_tools: session.active_clients.iter().flat_map(tools_of).collect(),
            switches: switches(session),
        }
    }

    /// Takes over what is new, and answers what the agent has to be told of it. Switches
    /// are not among it: an agent is told of each, and changes them itself.
    pub(super) fn update(&mut self, now: Self) -> Vec<AgentCommand> {
        let mut news = Vec::new();
        if now.directories != self.directories {
            news.push(AgentCommand::Directories(now.directories.clone()));
        }
        if now.config != self.config {
            news.push(AgentCommand::Config(now.config.clone()));
        }
        if now.client_tools != self.client_tools {
            news.push(AgentCommand::ClientTools(Arc::clone(&now.client_tools)));
        }
        *self = now;
        news
    }

    /// What was switched since then.
    pub(super) fn switched(&self, now: &Self) -> Vec<Switch> {
        // What is not named any more is on.
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
