//! What clients do with a session's customizations: switch them on and off, start
//! and stop MCP servers. Only with those that the session has.

use ahp_types::actions::SessionCustomizationToggledAction;
use ahp_types::state::{
    ChildCustomization, Customization, CustomizationEnablement, McpServerCustomization, McpServerState,
    SessionState,
};

use super::{Decision, Effect, Model, View, reject};
use crate::agent::{AgentCommand, McpServerRequest, Switch};

/// A client switches a customization on or off. Without an agent, the next one is opened
/// with it.
pub(super) fn toggled(session: &SessionState, toggled: &SessionCustomizationToggledAction) -> Decision {
    if !known(session).any(|known| known.id == toggled.id) {
        return reject("the session has no such customization");
    }
    let switch = Switch { id: toggled.id.clone(), enablement: toggled.enablement.clone() };
    tell(AgentCommand::Toggle(vec![switch]))
}

/// A client's request about an MCP server, which only an agent has.
pub(super) fn server(model: &Model, view: View<'_>, id: &str, request: McpServerRequest) -> Decision {
    if !model.features.mcp_servers {
        return reject("this agent's MCP servers cannot be controlled by clients");
    }
    match known(view.session).find(|known| known.id == id) {
        Some(known) if known.server.is_none() => reject("the customization is not an MCP server"),
        Some(_) if !view.attended => reject("no agent is running that has the server; send a message first"),
        Some(_) => tell(AgentCommand::McpServer { id: id.to_owned(), request }),
        None => reject("the session has no such MCP server"),
    }
}

fn tell(command: AgentCommand) -> Decision {
    Decision { effects: vec![Effect::Agent(command)], ..Decision::default() }
}

/// What was decided about the session's customizations.
pub(in crate::session) fn switches(session: &SessionState) -> Vec<Switch> {
    let decided = known(session).filter(|known| !known.enablement.is_empty());
    decided.map(|known| Switch { id: known.id.to_owned(), enablement: known.enablement }).collect()
}

/// The MCP servers of a session that an agent has, or is about to have. What is wrong with
/// the others, and the token that they need, a user can see to without one.
pub(super) fn running_servers(session: &SessionState) -> impl Iterator<Item = &str> {
    known(session).filter_map(|known| match known.server? {
        McpServerState::Starting(_) | McpServerState::Ready(_) => Some(known.id),
        McpServerState::AuthRequired(_)
        | McpServerState::Error(_)
        | McpServerState::Stopped(_)
        | McpServerState::Unknown(_) => None,
    })
}

/// A customization that a session has.
struct Known<'a> {
    id: &'a str,
    /// Its state if it is an MCP server.
    server: Option<&'a McpServerState>,
    /// What was decided about it; nothing if it is simply on.
    enablement: Vec<CustomizationEnablement>,
}

impl<'a> Known<'a> {
    fn server(server: &'a McpServerCustomization) -> Self {
        let enablement = server.enablement.clone().unwrap_or_default();
        Self { id: &server.id, server: Some(&server.state), enablement }
    }

    /// Of some kinds only the outcome is kept, which counts in this session.
    fn plain(id: &'a str, enabled: bool) -> Self {
        let off = (!enabled).then_some(CustomizationEnablement::Session { enabled });
        Self { id, server: None, enablement: off.into_iter().collect() }
    }
}

/// The customizations of a session, those in containers after the containers.
fn known(session: &SessionState) -> impl Iterator<Item = Known<'_>> {
    let all = || session.customizations.iter().flatten();
    all().filter_map(container).chain(all().flat_map(children).filter_map(child))
}

fn container(customization: &Customization) -> Option<Known<'_>> {
    match customization {
        Customization::Plugin(plugin) => {
            let enablement = plugin.enablement.clone().unwrap_or_default();
            Some(Known { id: &plugin.id, server: None, enablement })
        }
        Customization::Directory(directory) => Some(Known::plain(&directory.id, directory.enabled)),
        Customization::McpServer(server) => Some(Known::server(server)),
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

fn child(customization: &ChildCustomization) -> Option<Known<'_>> {
    let (id, enabled) = match customization {
        ChildCustomization::Agent(agent) => (&agent.id, agent.enabled),
        ChildCustomization::Skill(skill) => (&skill.id, skill.enabled),
        ChildCustomization::Prompt(prompt) => (&prompt.id, prompt.enabled),
        ChildCustomization::Rule(rule) => (&rule.id, rule.enabled),
        ChildCustomization::Hook(hook) => (&hook.id, hook.enabled),
        ChildCustomization::McpServer(server) => return Some(Known::server(server)),
        ChildCustomization::Unknown(_) => return None,
    };
    Some(Known::plain(id, enabled != Some(false)))
}
