//! The rules and the mode with which a session decides about tool calls.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ahp_types::common::JsonObject;
use ahp_types::state::SessionState;
use serde_json::{Value, json};

use crate::agent::PermissionQuery;
use crate::permission_rules::{PermissionRules, RulesSnapshot};
use crate::policy::{
    self, PermissionMode, PermissionRule, PolicyContext, PolicyDecision, RuleScope, RuleSet,
};

/// The key of the session's configuration that holds its permission mode.
pub(super) const PERMISSION_MODE: &str = "permissionMode";

/// The key of the session's configuration that holds its permission rules.
pub(super) const PERMISSIONS: &str = "permissions";

/// Most rules in the session's configuration.
const MAX_SESSION_RULES: usize = 1_000;

/// The session's compiled rules, compiled again when they have changed.
#[derive(Debug, Default)]
pub(super) struct SessionRules {
    /// The value of the configuration, and the folder to which patterns are relative.
    source: Option<(Value, Option<PathBuf>)>,
    compiled: Option<Arc<RuleSet>>,
}

impl SessionRules {
    /// The compiled rules of this session.
    fn of(&mut self, session: &SessionState, base: Option<&Path>) -> Arc<RuleSet> {
        let value = config_value(session, PERMISSIONS).cloned().unwrap_or(Value::Null);
        let source = (value, base.map(Path::to_owned));
        match &self.compiled {
            Some(compiled) if self.source.as_ref() == Some(&source) => Arc::clone(compiled),
            Some(_) | None => {
                let [allow, ask, deny] = ["allow", "ask", "deny"].map(|key| rules_in(&source.0, key));
                let (rules, errors) = RuleSet::compile(RuleScope::Session, base, &allow, &ask, &deny);
                for error in errors {
                    tracing::warn!(%error, "invalid permission rule in the session's configuration");
                }
                let compiled = Arc::new(rules);
                (self.source, self.compiled) = (Some(source), Some(Arc::clone(&compiled)));
                compiled
            }
        }
    }
}

/// Everything that a decision about a tool call depends on, besides the call.
#[derive(Clone, Debug)]
pub(super) struct PolicyInputs {
    session: Arc<RuleSet>,
    shared: RulesSnapshot,
    host: Arc<PermissionRules>,
    mode: PermissionMode,
}

impl PolicyInputs {
    pub(super) fn new(
        own: &mut SessionRules,
        host: &Arc<PermissionRules>,
        session: &SessionState,
        root_config: Option<&JsonObject>,
        base: Option<&Path>,
    ) -> Self {
        let mode = config_value(session, PERMISSION_MODE).and_then(Value::as_str);
        Self {
            session: own.of(session, base),
            shared: host.snapshot(root_config),
            host: Arc::clone(host),
            mode: mode.and_then(PermissionMode::parse).unwrap_or_default(),
        }
    }

    /// The session's permission mode.
    pub(super) fn mode(&self) -> PermissionMode {
        self.mode
    }

    /// Decides about a call.
    pub(super) fn decide(&self, query: &PermissionQuery) -> PolicyDecision {
        let roots = query.roots.iter().map(|root| root.lexical.as_path());
        let rules: Vec<&RuleSet> = [self.session.as_ref(), self.host.administrator()]
            .into_iter()
            .chain(self.shared.of_roots(roots))
            .collect();
        let context = PolicyContext {
            rules: &rules,
            roots: &query.roots,
            mode: self.mode,
            guarded: self.host.guarded(),
            unguarded: self.host.unguarded(),
            home: self.host.home(),
        };
        policy::decide(&query.request, &context)
    }
}

/// The session's `permissions` with further allowed rules.
pub(super) fn with_allowed(session: &SessionState, rules: &[String]) -> Value {
    let mut permissions = match config_value(session, PERMISSIONS) {
        Some(Value::Object(permissions)) => permissions.clone(),
        Some(_) | None => JsonObject::new(),
    };
    let mut allowed = rules_in(&Value::Object(permissions.clone()), "allow");
    allowed.extend(rules.iter().filter(|rule| !allowed.contains(rule)).cloned().collect::<Vec<_>>());
    // The oldest rules leave first; the user is then asked again.
    let surplus = allowed.len().saturating_sub(MAX_SESSION_RULES);
    allowed.drain(..surplus);
    permissions.insert("allow".to_owned(), json!(allowed));
    Value::Object(permissions)
}

/// Why a client's value for `permissions` is invalid.
pub(super) fn problem_of(permissions: &Value) -> Option<String> {
    let Some(permissions) = permissions.as_object() else { return Some("it is not an object".to_owned()) };
    let mut count = 0;
    for (behavior, rules) in permissions {
        if !matches!(behavior.as_str(), "allow" | "ask" | "deny") {
            return Some(format!("unknown key {behavior:?}; use allow, ask and deny"));
        }
        let Some(rules) = rules.as_array() else { return Some(format!("{behavior:?} is not a list")) };
        count += rules.len();
        for rule in rules {
            let Some(rule) = rule.as_str() else { return Some(format!("{rule} is not a text")) };
            if let Err(error) = rule.parse::<PermissionRule>() {
                return Some(error.to_string());
            }
        }
    }
    (count > MAX_SESSION_RULES).then(|| format!("more than {MAX_SESSION_RULES} rules"))
}

fn config_value<'a>(session: &'a SessionState, key: &str) -> Option<&'a Value> {
    session.config.as_ref()?.values.get(key)
}

fn rules_in(permissions: &Value, behavior: &str) -> Vec<String> {
    let rules = permissions.get(behavior).and_then(Value::as_array).into_iter().flatten();
    // A value that is not a text fails closed: it does not parse as a rule.
    rules.map(|rule| rule.as_str().map_or_else(|| rule.to_string(), str::to_owned)).collect()
}

/// The folder for which rules of a workspace are stored: the first root.
pub(super) fn workspace_of(query: &PermissionQuery) -> Option<&Path> {
    query.roots.first().map(|root| root.lexical.as_path())
}
