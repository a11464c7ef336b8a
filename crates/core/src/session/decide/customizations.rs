//! Client actions on a session's customizations: enable and disable them, start and stop
//! MCP servers.

use ahp_types::actions::SessionCustomizationToggledAction;
use ahp_types::state::{
    ChildCustomization, Customization, CustomizationEnablement, McpServerCustomization, McpServerState,
    SessionState,
};

use super::{AgentState, Decision, DecisionView, Effect, reject};
use crate::agent::{AgentCommand, McpServerRequest, Switch};

/// Handles a client's switch of a customization. Without an open agent, the next one is
/// opened with it.
pub(super) fn toggled(session: &SessionState, toggled: &SessionCustomizationToggledAction) -> Decision {
    if !known(session).any(|known| known.id == toggled.id) {
        return reject("the session does not have this customization");
    }
    let switch = Switch { id: toggled.id.clone(), enablement: toggled.enablement.clone() };
    tell(AgentCommand::Toggle(vec![switch]))
}

/// Handles a client's request about an MCP server, which needs an open agent.
pub(super) fn server(
    agent: &AgentState,
    view: DecisionView<'_>,
    id: &str,
    request: McpServerRequest,
) -> Decision {
    if !agent.features.mcp_servers {
        return reject("this agent does not support control of its MCP servers");
    }
    match known(view.session).find(|known| known.id == id) {
        Some(known) if known.server.is_none() => reject("the customization is not an MCP server"),
        Some(_) if !view.has_agent => reject("no agent is running; send a message first"),
        Some(_) => tell(AgentCommand::McpServer { id: id.to_owned(), request }),
        None => reject("the session does not have this MCP server"),
    }
}

fn tell(command: AgentCommand) -> Decision {
    Decision { effects: vec![Effect::AllAgents(command)], ..Decision::default() }
}

/// The explicit switches of a session's customizations.
pub(in crate::session) fn switches(session: &SessionState) -> Vec<Switch> {
    let decided = known(session).filter(|known| !known.enablement.is_empty());
    decided.map(|known| Switch { id: known.id.to_owned(), enablement: known.enablement }).collect()
}

/// The MCP servers that are running or starting in an agent. The other states, such as an
/// error or a missing token, remain useful without an agent.
pub(super) fn running_servers(session: &SessionState) -> impl Iterator<Item = &str> {
    known(session).filter_map(|known| match known.server? {
        McpServerState::Starting(_) | McpServerState::Ready(_) => Some(known.id),
        McpServerState::AuthRequired(_)
        | McpServerState::Error(_)
        | McpServerState::Stopped(_)
        | McpServerState::Unknown(_) => None,
    })
}

/// A customization of a session.
struct SessionCustomization<'a> {
    id: &'a str,
    /// Its state, if it is an MCP server.
    server: Option<&'a McpServerState>,
    /// Its explicit switches; empty if it is enabled by default.
    enablement: Vec<CustomizationEnablement>,
}

impl<'a> SessionCustomization<'a> {
    fn server(server: &'a McpServerCustomization) -> Self {
        let enablement = server.enablement.clone().unwrap_or_default();
        Self { id: &server.id, server: Some(&server.state), enablement }
    }

    /// For kinds that store only whether they are enabled, which applies to this session.
    fn plain(id: &'a str, enabled: bool) -> Self {
        let off = (!enabled).then_some(CustomizationEnablement::Session { enabled });
        Self { id, server: None, enablement: off.into_iter().collect() }
    }
}

/// The customizations of a session; those in containers come after the containers.
fn known(session: &SessionState) -> impl Iterator<Item = SessionCustomization<'_>> {
    let all = || session.customizations.iter().flatten();
    all().filter_map(container).chain(all().flat_map(children).filter_map(child))
}

fn container(customization: &Customization) -> Option<SessionCustomization<'_>> {
    match customization {
        Customization::Plugin(plugin) => {
            let enablement = plugin.enablement.clone().unwrap_or_default();
            Some(SessionCustomization { id: &plugin.id, server: None, enablement })
        }
        Customization::Directory(directory) => {
            Some(SessionCustomization::plain(&directory.id, directory.enabled))
        }
        Customization::McpServer(server) => Some(SessionCustomization::server(server)),
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

fn child(customization: &ChildCustomization) -> Option<SessionCustomization<'_>> {
    let (id, enabled) = match customization {
        ChildCustomization::Agent(agent) => (&agent.id, agent.enabled),
        ChildCustomization::Skill(skill) => (&skill.id, skill.enabled),
        ChildCustomization::Prompt(prompt) => (&prompt.id, prompt.enabled),
        ChildCustomization::Rule(rule) => (&rule.id, rule.enabled),
        ChildCustomization::Hook(hook) => (&hook.id, hook.enabled),
        ChildCustomization::McpServer(server) => return Some(SessionCustomization::server(server)),
        ChildCustomization::Unknown(_) => return None,
    };
    Some(SessionCustomization::plain(id, enabled != Some(false)))
}
