//! Permission rules between the runtime and the session.

use innkeeper_core::policy::PermissionRule;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// What the runtime suggests for later calls.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RuleSuggestions {
    /// Rules that allow calls.
    pub(super) rules: Vec<String>,
    /// Whether to accept all edits.
    pub(super) accept_edits: bool,
}

impl RuleSuggestions {
    /// Reads the suggestions of a request. Unknown kinds and invalid rules are ignored.
    pub(super) fn parse(suggestions: Option<&RawValue>) -> Self {
        let suggestions: Vec<Value> =
            suggestions.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
        let mut found = Self::default();
        for suggestion in suggestions {
            let text = |field: &str| suggestion.get(field).and_then(Value::as_str);
            match (text("type"), text("behavior"), text("mode")) {
                (Some("addRules"), Some("allow"), _) => {
                    let rules = suggestion.get("rules").and_then(Value::as_array).into_iter().flatten();
                    found.rules.extend(rules.filter_map(rule_text));
                }
                (Some("setMode"), _, Some("acceptEdits")) => found.accept_edits = true,
                _ => {}
            }
        }
        found
    }
}

fn rule_text(rule: &Value) -> Option<String> {
    let tool = rule.get("toolName")?.as_str()?;
    let text = match rule.get("ruleContent").and_then(Value::as_str) {
        Some(content) => format!("{tool}({content})"),
        None => tool.to_owned(),
    };
    text.parse::<PermissionRule>().is_ok().then_some(text)
}

/// The session's rules in the runtime's format, valid for this session only: the runtime would
/// write rules with another destination to the user's files.
pub(super) fn for_runtime(rules: &[String]) -> Vec<Value> {
    if rules.is_empty() {
        return Vec::new();
    }
    let rules: Vec<Value> = rules
        .iter()
        .map(|rule| match rule.strip_suffix(')').and_then(|rule| rule.split_once('(')) {
            Some((tool, content)) => json!({"toolName": tool, "ruleContent": content}),
            None => json!({"toolName": rule}),
        })
        .collect();
    vec![json!({"type": "addRules", "rules": rules, "behavior": "allow", "destination": "session"})]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggested_rules_and_mode_are_read() {
        let suggestions = json!([
            {"type": "addRules", "behavior": "allow", "destination": "localSettings",
             "rules": [{"toolName": "Bash", "ruleContent": "npm test *"}, {"toolName": "mcp__ask__plain"}, {"ruleContent": "x"}]},
            {"type": "addRules", "behavior": "deny", "rules": [{"toolName": "Read"}]},
            {"type": "setMode", "mode": "acceptEdits", "destination": "session"},
            {"type": "addDirectories", "directories": ["/other"], "destination": "session"},
            7,
        ]);
        let raw = RawValue::from_string(suggestions.to_string()).unwrap();
        let expected = RuleSuggestions {
            rules: vec!["Bash(npm test *)".to_owned(), "mcp__ask__plain".to_owned()],
            accept_edits: true,
        };
        assert_eq!(RuleSuggestions::parse(Some(&raw)), expected);
        assert_eq!(RuleSuggestions::parse(None), RuleSuggestions::default());
    }

    #[test]
    fn rules_are_returned_for_the_session() {
        let rules = ["Bash(echo \"(a)\":*)".to_owned(), "WebSearch".to_owned()];
        let expected = json!([{"type": "addRules", "behavior": "allow", "destination": "session", "rules": [
            {"toolName": "Bash", "ruleContent": "echo \"(a)\":*"}, {"toolName": "WebSearch"}]}]);
        assert_eq!(json!(for_runtime(&rules)), expected);
        assert_eq!(for_runtime(&[]), Vec::<Value>::new());
    }
}
