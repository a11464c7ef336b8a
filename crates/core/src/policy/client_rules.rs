//! Rules in the root configuration that clients publish.

use ahp_types::common::JsonObject;

use super::{RuleScope, RuleSet};

impl RuleSet {
    /// Reads the rules of the root configuration.
    pub fn of_client(root_config: &JsonObject) -> Self {
        let _ = root_config;
        Self::empty(RuleScope::Client)
    }
}
