//! The configuration schema of a Claude session.

use std::collections::HashMap;

use ahp_types::common::JsonObject;
use ahp_types::state::{SessionConfigPropertySchema, SessionConfigSchema};
use innkeeper_claude::PermissionMode;
use innkeeper_core::agent::ResolvedConfig;
use serde_json::{Value, json};

/// The property that VS Code shows a picker for in sessions of this provider.
const PERMISSION_MODE: &str = "permissionMode";

/// Environment variables for the runtime. Not in the schema: only programs that create
/// sessions set it.
const ENVIRONMENT: &str = "environment";

/// The modes that work although the host cannot ask the user: name, label, description, mode.
const MODES: [(&str, &str, &str, PermissionMode); 3] = [
    ("default", "Ask", "Asks before changing anything", PermissionMode::Default),
    (
        "acceptEdits",
        "Accept edits",
        "Edits files in the working directory without asking",
        PermissionMode::AcceptEdits,
    ),
    ("plan", "Plan", "Reads and plans without changing anything", PermissionMode::Plan),
];

/// Returns the schema and the valid values out of `chosen`.
pub(super) fn resolve(chosen: &JsonObject) -> ResolvedConfig {
    let (default, ..) = MODES[0];
    let mode = chosen.get(PERMISSION_MODE).filter(|value| mode_named(value).is_some());
    let mode = mode.cloned().unwrap_or_else(|| json!(default));
    let property = SessionConfigPropertySchema {
        r#type: "string".to_owned(),
        title: "Permission mode".to_owned(),
        description: Some("When the agent asks before acting".to_owned()),
        default: Some(json!(default)),
        r#enum: Some(MODES.iter().map(|(name, ..)| json!(name)).collect()),
        enum_labels: Some(MODES.iter().map(|(_, label, ..)| (*label).to_owned()).collect()),
        enum_descriptions: Some(MODES.iter().map(|(_, _, text, _)| (*text).to_owned()).collect()),
        read_only: None,
        items: None,
        min_items: None,
        max_items: None,
        properties: None,
        required: None,
        additional_properties: None,
        enum_dynamic: None,
        session_mutable: None,
    };
    let mut values = JsonObject::from_iter([(PERMISSION_MODE.to_owned(), mode)]);
    let variables = chosen.get(ENVIRONMENT).filter(|variables| is_environment(variables));
    values.extend(variables.map(|variables| (ENVIRONMENT.to_owned(), variables.clone())));
    ResolvedConfig {
        schema: SessionConfigSchema {
            r#type: "object".to_owned(),
            properties: HashMap::from([(PERMISSION_MODE.to_owned(), property)]),
            required: None,
        },
        values,
    }
}

fn is_environment(value: &Value) -> bool {
    value.as_object().is_some_and(|variables| variables.values().all(Value::is_string))
}

/// Returns the permission mode in a session's configuration.
pub(super) fn permission_mode(config: &JsonObject) -> Option<PermissionMode> {
    config.get(PERMISSION_MODE).and_then(mode_named)
}

fn mode_named(value: &Value) -> Option<PermissionMode> {
    let wanted = value.as_str()?;
    MODES.iter().find(|(name, ..)| *name == wanted).map(|(.., mode)| *mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_values_fall_back_to_default_and_unknown_keys_are_ignored() {
        let chosen = json!({"permissionMode": "yolo", "isolation": "folder"});
        let resolved = resolve(chosen.as_object().unwrap());
        assert_eq!(Value::Object(resolved.values), json!({"permissionMode": "default"}));
        let chosen = json!({"permissionMode": "acceptEdits", "environment": {"A": 1}});
        let resolved = resolve(chosen.as_object().unwrap());
        assert_eq!(permission_mode(&resolved.values), Some(PermissionMode::AcceptEdits));
        assert_eq!(resolved.values.get("environment"), None);
    }

    #[test]
    fn session_environment_is_kept() {
        let chosen = json!({"environment": {"NODE_ENV": "test"}});
        let resolved = resolve(chosen.as_object().unwrap());
        assert_eq!(resolved.values.get("environment"), Some(&json!({"NODE_ENV": "test"})));
    }
}
