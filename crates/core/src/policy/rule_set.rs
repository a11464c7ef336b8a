//! The compiled rules of one scope.

use std::path::Path;

use super::{PermissionRule, RuleBehavior, RuleError, RuleScope};

/// The compiled rules of one scope.
#[derive(Clone, Debug)]
pub struct RuleSet {
    scope: RuleScope,
    allow: Vec<PermissionRule>,
    ask: Vec<PermissionRule>,
    deny: Vec<PermissionRule>,
}

impl RuleSet {
    /// Compiles rules. `base` is the directory of relative path patterns.
    pub fn compile(
        scope: RuleScope,
        base: Option<&Path>,
        allow: &[String],
        ask: &[String],
        deny: &[String],
    ) -> (Self, Vec<RuleError>) {
        let mut errors = Vec::new();
        let mut parse = |texts: &[String], behavior| {
            let mut rules = Vec::new();
            for text in texts {
                match text.parse::<PermissionRule>() {
                    Ok(rule) => rules.push(rule),
                    Err(problem) => errors.push(RuleError { text: text.clone(), behavior, scope, problem }),
                }
            }
            rules
        };
        let rules = Self {
            scope,
            allow: parse(allow, RuleBehavior::Allow),
            ask: parse(ask, RuleBehavior::Ask),
            deny: parse(deny, RuleBehavior::Deny),
        };
        let _ = base;
        (rules, errors)
    }

    /// Rules without any content.
    pub fn empty(scope: RuleScope) -> Self {
        Self { scope, allow: Vec::new(), ask: Vec::new(), deny: Vec::new() }
    }

    /// The scope of all rules in the set.
    pub fn scope(&self) -> RuleScope {
        self.scope
    }

    pub(super) fn rules(&self, behavior: RuleBehavior) -> &[PermissionRule] {
        match behavior {
            RuleBehavior::Allow => &self.allow,
            RuleBehavior::Ask => &self.ask,
            RuleBehavior::Deny => &self.deny,
        }
    }
}
