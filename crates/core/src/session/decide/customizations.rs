//! What clients do with a session's customizations: switch them on and off, start
//! and stop MCP servers. Only with those that the session has.

use ahp_types::actions::SessionCustomizationToggledAction;
use ahp_types::state::{ChildCustomization, Customization, SessionState};

use super::{Decision, Effect, reject};
use crate::agent::{AgentCommand, McpServerRequest};

/// A client switches a customization on or off.
pub(super) fn toggled(session: &SessionState, toggled: &SessionCustomizationToggledAction) -> Decision {
    if !known(session).any(|(id, _)| id == toggled.id) {
        return reject("the session has no such customization");
    }
    tell(AgentCommand::Toggle { id: toggled.id.clone(), enablement: toggled.enablement.clone() })
}

/// A client wants something of an MCP server.
pub(super) fn server(session: &SessionState, id: &str, request: McpServerRequest) -> Decision {
    match known(session).find(|(known, _)| *known == id) {
        Some((_, Kind::McpServer)) => tell(AgentCommand::McpServer { id: id.to_owned(), request }),
        Some((_, Kind::Other)) => reject("the customization is not an MCP server"),
        None => reject("the session has no such MCP server"),
    }
}

fn tell(command: AgentCommand) -> Decision {
    Decision { effects: vec![Effect::Agent(command)], ..Decision::default() }
}

#[derive(Clone, Copy)]
enum Kind {
    McpServer,
    Other,
}

/// The customizations of a session by their ids, those in containers after the containers.
fn known(session: &SessionState) -> impl Iterator<Item = (&str, Kind)> {
    let all = || session.customizations.iter().flatten();
    all().filter_map(container).chain(all().flat_map(children).filter_map(child))
}

fn container(customization: &Customization) -> Option<(&str, Kind)> {
    match customization {
        Customization::Plugin(plugin) => Some((&plugin.id, Kind::Other)),
        Customization::Directory(directory) => Some((&directory.id, Kind::Other)),
        Customization::McpServer(server) => Some((&server.id, Kind::McpServer)),
        Customization::Unknown(_) => None,
    }
}

fn children(customization: &Customization) -> &[ChildCustomization] {
    match customization {
        Customization::Plugin(plugin) => plugin.children.as_deref().unwrap_or_default(),
        Customization::Directory(directory) => directory.children.as_deref().unwrap_or_default(),
        Customization::McpServer(_) | Customization::Unknown(_) => &[],
    }
}

fn child(customization: &ChildCustomization) -> Option<(&str, Kind)> {
    match customization {
        ChildCustomization::Agent(agent) => Some((&agent.id, Kind::Other)),
        ChildCustomization::Skill(skill) => Some((&skill.id, Kind::Other)),
        ChildCustomization::Prompt(prompt) => Some((&prompt.id, Kind::Other)),
        ChildCustomization::Rule(rule) => Some((&rule.id, Kind::Other)),
        ChildCustomization::Hook(hook) => Some((&hook.id, Kind::Other)),
        ChildCustomization::McpServer(server) => Some((&server.id, Kind::McpServer)),
        ChildCustomization::Unknown(_) => None,
    }
}
