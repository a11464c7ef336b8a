//! The configuration schema of a Claude session.

use std::collections::HashMap;

use ahp_types::common::JsonObject;
use ahp_types::state::{ConfigPropertySchema, SessionConfigPropertySchema, SessionConfigSchema};
use innkeeper_claude::PermissionMode;
use innkeeper_core::agent::{ENVIRONMENT, ResolvedConfig, environment_problem};
use serde_json::{Value, json};

/// The property that VS Code shows a picker for in sessions of this provider.
pub(super) const PERMISSION_MODE: &str = "permissionMode";

/// The session's permission rules.
const PERMISSIONS: &str = "permissions";

/// A permission mode that can be offered.
struct OfferedMode {
    name: &'static str,
    label: &'static str,
    description: &'static str,
    mode: PermissionMode,
}

const MODES: [OfferedMode; 5] = [
    OfferedMode {
        name: "default",
        label: "Ask",
        description: "Asks before changing anything",
        mode: PermissionMode::Default,
    },
    OfferedMode {
        name: "acceptEdits",
        label: "Accept edits",
        description: "Edits files in the working directory without asking",
        mode: PermissionMode::AcceptEdits,
    },
    OfferedMode {
        name: "plan",
        label: "Plan",
        description: "Reads and plans without changing anything",
        mode: PermissionMode::Plan,
    },
    OfferedMode {
        name: "auto",
        label: "Auto",
        description: "The runtime checks calls with a model, and refuses those that it cannot check",
        mode: PermissionMode::Auto,
    },
    OfferedMode {
        name: "bypassPermissions",
        label: "Bypass permissions",
        description: "Runs everything without asking, except for what your rules deny",
        mode: PermissionMode::BypassPermissions,
    },
];

/// The permission modes of a host that depend on its environment.
#[derive(Clone, Debug)]
pub(super) struct ModeOffer {
    /// Whether the runtime has accepted the mode `auto`.
    pub(super) auto: bool,
    /// Why the mode `bypassPermissions` is not offered.
    pub(super) bypass_refusal: Option<String>,
}

impl ModeOffer {
    fn modes(&self) -> impl Iterator<Item = &'static OfferedMode> {
        MODES.iter().filter(|offered| match offered.mode {
            PermissionMode::Auto => self.auto,
            PermissionMode::BypassPermissions => self.bypass_refusal.is_none(),
            PermissionMode::Default
            | PermissionMode::AcceptEdits
            | PermissionMode::Plan
            | PermissionMode::DontAsk => true,
        })
    }
}

/// Returns the schema and the valid values out of `chosen`.
pub(super) fn resolve(chosen: &JsonObject, offer: &ModeOffer) -> ResolvedConfig {
    let default = PermissionMode::Default.as_str();
    let is_offered = |value: &&Value| offer.modes().any(|mode| value.as_str() == Some(mode.name));
    let mode = chosen.get(PERMISSION_MODE).filter(is_offered);
    let mode = mode.cloned().unwrap_or_else(|| json!(default));
    let mut values = JsonObject::from_iter([(PERMISSION_MODE.to_owned(), mode)]);
    // Invalid rules are kept: dropping a rule that denies something would allow it.
    let rules = chosen.get(PERMISSIONS).filter(|rules| rules.is_object());
    values.extend(rules.map(|rules| (PERMISSIONS.to_owned(), rules.clone())));
    let variables = chosen.get(ENVIRONMENT).filter(|variables| environment_problem(variables).is_none());
    values.extend(variables.map(|variables| (ENVIRONMENT.to_owned(), variables.clone())));
    ResolvedConfig {
        schema: SessionConfigSchema {
            r#type: "object".to_owned(),
            properties: HashMap::from([
                (PERMISSION_MODE.to_owned(), mode_property(offer)),
                (PERMISSIONS.to_owned(), rules_property()),
                (ENVIRONMENT.to_owned(), environment_property()),
            ]),
            required: None,
        },
        values,
    }
}

fn mode_property(offer: &ModeOffer) -> SessionConfigPropertySchema {
    let description = match &offer.bypass_refusal {
        Some(refusal) => format!("When the agent asks before acting. {refusal}"),
        None => "When the agent asks before acting".to_owned(),
    };
    SessionConfigPropertySchema {
        default: Some(json!(PermissionMode::Default.as_str())),
        r#enum: Some(offer.modes().map(|mode| json!(mode.name)).collect()),
        enum_labels: Some(offer.modes().map(|mode| mode.label.to_owned()).collect()),
        enum_descriptions: Some(offer.modes().map(|mode| mode.description.to_owned()).collect()),
        ..property("string", "Permission mode", &description)
    }
}

fn rules_property() -> SessionConfigPropertySchema {
    let rules = |title: &str| ConfigPropertySchema {
        items: Some(Box::new(plain("string", "Rule"))),
        ..plain("array", title)
    };
    let description = "Rules such as Bash(npm test:*), Edit(src/**) or mcp__github__*";
    SessionConfigPropertySchema {
        properties: Some(HashMap::from([
            ("allow".to_owned(), rules("Allowed without asking")),
            ("ask".to_owned(), rules("Always asked")),
            ("deny".to_owned(), rules("Denied in every mode")),
        ])),
        ..property("object", "Permission rules", description)
    }
}

fn environment_property() -> SessionConfigPropertySchema {
    let description = "Variables for the runtime and the programs that it starts, by name";
    property("object", "Environment variables", description)
}

/// A property that clients can change at any time.
fn property(kind: &str, title: &str, description: &str) -> SessionConfigPropertySchema {
    SessionConfigPropertySchema {
        r#type: kind.to_owned(),
        title: title.to_owned(),
        description: Some(description.to_owned()),
        default: None,
        r#enum: None,
        enum_labels: None,
        enum_descriptions: None,
        read_only: None,
        items: None,
        min_items: None,
        max_items: None,
        properties: None,
        required: None,
        additional_properties: None,
        enum_dynamic: None,
        session_mutable: Some(true),
    }
}

fn plain(kind: &str, title: &str) -> ConfigPropertySchema {
    ConfigPropertySchema {
        r#type: kind.to_owned(),
        title: title.to_owned(),
        description: None,
        default: None,
        r#enum: None,
        enum_labels: None,
        enum_descriptions: None,
        read_only: None,
        items: None,
        min_items: None,
        max_items: None,
        properties: None,
        required: None,
        additional_properties: None,
    }
}

/// Returns the permission mode in a session's configuration.
pub(super) fn permission_mode(config: &JsonObject) -> Option<PermissionMode> {
    config.get(PERMISSION_MODE).and_then(Value::as_str).and_then(mode_named)
}

/// Returns the permission mode with this name.
pub(super) fn mode_named(name: &str) -> Option<PermissionMode> {
    MODES.iter().find(|offered| offered.name == name).map(|offered| offered.mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn everything() -> ModeOffer {
        ModeOffer { auto: true, bypass_refusal: None }
    }

    fn resolved(chosen: Value, offer: &ModeOffer) -> ResolvedConfig {
        resolve(chosen.as_object().unwrap(), offer)
    }

    #[test]
    fn invalid_values_fall_back_to_default_and_unknown_keys_are_ignored() {
        let config = resolved(json!({"permissionMode": "yolo", "isolation": "folder"}), &everything());
        assert_eq!(Value::Object(config.values), json!({"permissionMode": "default"}));
        let config =
            resolved(json!({"permissionMode": "acceptEdits", "environment": {"A=": "1"}}), &everything());
        assert_eq!(permission_mode(&config.values), Some(PermissionMode::AcceptEdits));
        assert_eq!(config.values.get("environment"), None);
    }

    #[test]
    fn session_environment_and_rules_are_kept() {
        let chosen = json!({"environment": {"NODE_ENV": "test"}, "permissions": {"deny": ["Bash(rm:*)"]}});
        let config = resolved(chosen.clone(), &everything());
        assert_eq!(config.values.get("environment"), chosen.get("environment"));
        assert_eq!(config.values.get("permissions"), chosen.get("permissions"));
    }

    #[test]
    fn unavailable_modes_are_not_offered() {
        let refusal = "Bypass is not available.".to_owned();
        let offer = ModeOffer { auto: false, bypass_refusal: Some(refusal.clone()) };
        let config = resolved(json!({"permissionMode": "bypassPermissions"}), &offer);
        assert_eq!(config.values.get("permissionMode"), Some(&json!("default")));
        let property = &config.schema.properties["permissionMode"];
        assert_eq!(property.r#enum, Some(vec![json!("default"), json!("acceptEdits"), json!("plan")]));
        assert!(property.description.as_ref().is_some_and(|text| text.ends_with(&refusal)));
        assert_eq!(property.session_mutable, Some(true));
        let all = resolved(json!({}), &everything());
        assert_eq!(all.schema.properties["permissionMode"].r#enum.as_ref().map(Vec::len), Some(5));
    }
}
