//! The decision about a request.

use super::{
    PermissionMode, PermissionRequest, PolicyContext, PolicyDecision, PolicyLayer, PolicyVerdict,
    RuleBehavior,
};

/// Decides about a request.
pub fn decide(request: &PermissionRequest, context: &PolicyContext<'_>) -> PolicyDecision {
    for behavior in [RuleBehavior::Deny, RuleBehavior::Ask] {
        for set in context.rules {
            if let Some(rule) = set.rules(behavior).iter().find(|rule| rule.tool() == request.tool) {
                let verdict =
                    if behavior == RuleBehavior::Deny { PolicyVerdict::Deny } else { PolicyVerdict::Ask };
                return PolicyDecision {
                    verdict,
                    layer: PolicyLayer::Rule(set.scope()),
                    rule: Some(rule.to_string()),
                    reason: format!("The rule {rule} of {} matches.", set.scope().description()),
                    would_allow: Vec::new(),
                    overrides_agent: verdict == PolicyVerdict::Ask,
                };
            }
        }
    }
    let (verdict, layer) = match context.mode {
        PermissionMode::BypassPermissions => (PolicyVerdict::Allow, PolicyLayer::Mode),
        PermissionMode::Default
        | PermissionMode::AcceptEdits
        | PermissionMode::Plan
        | PermissionMode::Auto => (PolicyVerdict::Ask, PolicyLayer::Default),
    };
    PolicyDecision {
        verdict,
        layer,
        rule: None,
        reason: String::new(),
        would_allow: Vec::new(),
        overrides_agent: false,
    }
}
