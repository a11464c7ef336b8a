//! Session settings: active clients, configuration, and tokens.

use ahp_types::actions::{
    SessionActiveClientRemovedAction, SessionConfigChangedAction, SessionIsReadChangedAction, StateAction,
};
use ahp_types::state::{
    ConfigPropertySchema, SessionConfigPropertySchema, SessionConfigState, SessionState, SessionStatus,
};
use serde_json::Value;

use super::{ActionTarget, Decision, DecisionView, Effect, reject};
use crate::agent::{AgentCommand, AgentFeatures, ENVIRONMENT, ResourceToken, environment_problem};
use crate::ids::ClientId;
use crate::session::awaited;
use crate::session::policy_inputs::{self, PERMISSIONS};

/// Accepts a client's entry or removal as active client only for itself, so that it cannot
/// act in another client's name.
pub(super) fn check_own_client_id(client: &ClientId, named: &str) -> Decision {
    if client.as_str() == named {
        Decision::default()
    } else {
        reject("a client can only set or remove itself")
    }
}

/// Removes a client that has disconnected.
pub(super) fn client_left(view: DecisionView<'_>, client: &ClientId) -> Decision {
    let mut decision = Decision::default();
    if view.session.active_clients.iter().any(|active| active.client_id == client.as_str()) {
        let removed = SessionActiveClientRemovedAction { client_id: client.as_str().to_owned() };
        decision.actions.push((ActionTarget::Session, StateAction::SessionActiveClientRemoved(removed)));
    }
    decision
}

/// Passes a user's token to the agent, if the session still waits for it.
pub(super) fn token(view: DecisionView<'_>, token: ResourceToken) -> Decision {
    let mut decision = Decision::default();
    if awaited(view.session).any(|resource| resource.resource == token.resource) {
        decision.effects.push(Effect::AllAgents(AgentCommand::Token(token)));
    }
    decision
}

/// Marks the session unread, if it is read.
pub(super) fn mark_unread(view: DecisionView<'_>) -> Option<(ActionTarget, StateAction)> {
    let read = view.session.status & SessionStatus::IsRead.0 != 0;
    let action = StateAction::SessionIsReadChanged(SessionIsReadChangedAction { is_read: false });
    read.then_some((ActionTarget::Session, action))
}

/// Handles a client's change of the configuration. Immutable properties cannot change, and
/// a value must match its property's type.
pub(super) fn config_changed(
    features: AgentFeatures,
    session: &SessionState,
    changed: &SessionConfigChangedAction,
) -> Decision {
    let Some(config) = &session.config else { return reject("the session has no configuration") };
    let lost = config
        .values
        .keys()
        .filter(|key| changed.replace == Some(true) && !changed.config.contains_key(*key));
    for key in changed.config.keys().chain(lost) {
        let property = config.schema.properties.get(key);
        if !features.live_config || property.is_none_or(|property| property.session_mutable != Some(true)) {
            return reject(&format!("\"{key}\" cannot be changed in a running session"));
        }
    }
    for (key, value) in &changed.config {
        if config.schema.properties.get(key).is_some_and(|property| !fits(Shape::from(property), value)) {
            return reject(&format!("invalid value for \"{key}\""));
        }
        if key == PERMISSIONS
            && let Some(problem) = policy_inputs::problem_of(value)
        {
            return reject(&format!("invalid value for \"{key}\": {problem}"));
        }
        if key == ENVIRONMENT
            && let Some(problem) = environment_problem(value)
        {
            return reject(&format!("invalid value for \"{key}\": {problem}"));
        }
    }
    Decision::default()
}

/// Whether a value is valid for a property.
pub(super) fn is_valid(config: &SessionConfigState, key: &str, value: &Value) -> bool {
    config.schema.properties.get(key).is_some_and(|property| fits(Shape::from(property), value))
}

/// The type constraints that both kinds of property schemas have.
struct Shape<'a> {
    kind: &'a str,
    choices: Option<&'a [Value]>,
    items: Option<&'a ConfigPropertySchema>,
    count: (Option<i64>, Option<i64>),
}

impl<'a> From<&'a SessionConfigPropertySchema> for Shape<'a> {
    fn from(property: &'a SessionConfigPropertySchema) -> Self {
        // A dynamic list of choices may be incomplete.
        let dynamic = property.enum_dynamic == Some(true);
        Self {
            kind: &property.r#type,
            choices: property.r#enum.as_deref().filter(|_| !dynamic),
            items: property.items.as_ref(),
            count: (property.min_items, property.max_items),
        }
    }
}

impl<'a> From<&'a ConfigPropertySchema> for Shape<'a> {
    fn from(property: &'a ConfigPropertySchema) -> Self {
        Self {
            kind: &property.r#type,
            choices: property.r#enum.as_deref(),
            items: property.items.as_deref(),
            count: (property.min_items, property.max_items),
        }
    }
}

/// Whether a value matches a property's type. Unknown types from newer protocols pass.
fn fits(shape: Shape<'_>, value: &Value) -> bool {
    let typed = match shape.kind {
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "object" => value.is_object(),
        "array" => value.as_array().is_some_and(|items| {
            let count = i64::try_from(items.len()).unwrap_or(i64::MAX);
            shape.count.0.is_none_or(|least| count >= least)
                && shape.count.1.is_none_or(|most| count <= most)
                && items.iter().all(|item| shape.items.is_none_or(|inner| fits(Shape::from(inner), item)))
        }),
        _ => true,
    };
    typed && shape.choices.is_none_or(|choices| choices.contains(value))
}
