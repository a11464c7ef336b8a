//! The environment variables in a session's configuration.

use std::collections::BTreeMap;

use ahp_types::common::JsonObject;
use serde_json::Value;

/// The configuration property with environment variables for agents.
pub const ENVIRONMENT: &str = "environment";

/// The environment variables in a session's configuration.
pub fn environment_of(config: &JsonObject) -> BTreeMap<String, String> {
    let Some(variables) = config.get(ENVIRONMENT).and_then(Value::as_object) else {
        return BTreeMap::new();
    };
    let text = |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
    variables.iter().filter_map(text).collect()
}

/// Why a value is not a set of environment variables, if it is not.
pub fn environment_problem(value: &Value) -> Option<&'static str> {
    let Some(variables) = value.as_object() else { return Some("not an object of variables") };
    if variables.keys().any(|name| name.is_empty() || name.contains(['=', '\0'])) {
        return Some("a name is empty or contains '=' or NUL");
    }
    let is_text = |value: &Value| value.as_str().is_some_and(|text| !text.contains('\0'));
    (!variables.values().all(is_text)).then_some("a value is not a text without NUL")
}
