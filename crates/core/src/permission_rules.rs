//! The permission rules that apply to more than one session.
//!
//! Rules for all sessions and for a workspace root come from storage, the administrator's from
//! the configuration file, and those of clients from the host-wide configuration. They are
//! compiled when they change. A session adds its own rules.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ahp_types::common::JsonObject;

use crate::host::{AdministratorRules, PermissionConfig};
use crate::policy::{RuleScope, RuleSet};
use crate::storage::{Change, Storage, StorageError, StoredRule, StoredRuleBehavior, StoredRuleScope};

/// The keys of the host-wide configuration that contain clients' rules.
const CLIENT_KEYS: [&str; 5] = [
    "terminalAutoApproveEnabled",
    "terminalAutoApproveRules",
    "autoApprovePolicyRestricted",
    "editAutoApprovePatterns",
    "permissions",
];

/// Paths and rules that the policy uses in every session.
pub(crate) struct PermissionRules {
    storage: Arc<dyn Storage>,
    /// Paths that no agent may write to, except for those in `unguarded`.
    guarded: Vec<PathBuf>,
    unguarded: Vec<PathBuf>,
    /// The user's home directory.
    home: Option<PathBuf>,
    administrator: RuleSet,
    state: Mutex<RulesState>,
}

struct RulesState {
    stored: Vec<StoredRule>,
    compiled: Arc<StoredRuleSets>,
    /// The values from which the clients' rules were compiled.
    client_values: JsonObject,
    client: Arc<RuleSet>,
}

/// Compiled rules from storage.
#[derive(Debug)]
struct StoredRuleSets {
    always: RuleSet,
    /// By workspace root.
    workspaces: HashMap<PathBuf, RuleSet>,
}

/// The rules for one decision.
#[derive(Clone, Debug)]
pub(crate) struct RulesSnapshot {
    stored: Arc<StoredRuleSets>,
    client: Arc<RuleSet>,
}

impl RulesSnapshot {
    /// The rules that apply in a session with these roots.
    pub(crate) fn of_roots<'a>(
        &'a self,
        roots: impl Iterator<Item = &'a Path>,
    ) -> impl Iterator<Item = &'a RuleSet> {
        let workspaces = roots.filter_map(|root| self.stored.workspaces.get(root));
        workspaces.chain([&self.stored.always, self.client.as_ref()])
    }
}

impl std::fmt::Debug for PermissionRules {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("PermissionRules").finish_non_exhaustive()
    }
}

impl PermissionRules {
    pub(crate) fn new(storage: Arc<dyn Storage>, stored: Vec<StoredRule>, config: PermissionConfig) -> Self {
        let PermissionConfig { administrator, guarded_paths: guarded, unguarded_paths: unguarded, home } =
            config;
        let AdministratorRules { allow, ask, deny } = &administrator;
        let administrator = compile(RuleScope::Administrator, None, allow, ask, deny);
        let state = RulesState {
            compiled: Arc::new(compile_stored(&stored)),
            stored,
            client_values: JsonObject::new(),
            client: Arc::new(RuleSet::of_client(&JsonObject::new())),
        };
        Self { storage, guarded, unguarded, home, administrator, state: Mutex::new(state) }
    }

    /// Paths that no agent may write to.
    pub(crate) fn guarded(&self) -> &[PathBuf] {
        &self.guarded
    }

    /// Directories inside of the guarded ones in which sessions work.
    pub(crate) fn unguarded(&self) -> &[PathBuf] {
        &self.unguarded
    }

    /// The user's home directory.
    pub(crate) fn home(&self) -> Option<&Path> {
        self.home.as_deref()
    }

    /// The administrator's rules.
    pub(crate) fn administrator(&self) -> &RuleSet {
        &self.administrator
    }

    /// The current rules. `root_config` is the host-wide configuration.
    pub(crate) fn snapshot(&self, root_config: Option<&JsonObject>) -> RulesSnapshot {
        let mut state = self.lock();
        let values = root_config.map(client_values).unwrap_or_default();
        if values != state.client_values {
            state.client = Arc::new(RuleSet::of_client(&values));
            state.client_values = values;
        }
        RulesSnapshot { stored: Arc::clone(&state.compiled), client: Arc::clone(&state.client) }
    }

    /// Adds rules that allow calls in a workspace. They apply at once; storing them may fail.
    pub(crate) fn allow_in_workspace(
        &self,
        root: &Path,
        rules: &[String],
        created_at: i64,
    ) -> impl Future<Output = Result<(), StorageError>> + Send + use<> {
        let scope = StoredRuleScope::from_root(root.to_string_lossy().into_owned());
        let mut state = self.lock();
        let mut changes = Vec::new();
        for rule in rules {
            let known = |stored: &StoredRule| {
                stored.scope == scope && stored.behavior == StoredRuleBehavior::Allow && stored.rule == *rule
            };
            if state.stored.iter().any(known) {
                continue;
            }
            let rule = StoredRule {
                scope: scope.clone(),
                behavior: StoredRuleBehavior::Allow,
                rule: rule.clone(),
                created_at,
            };
            state.stored.push(rule.clone());
            changes.push(self.storage.write(vec![Change::PutRule(rule)]));
        }
        state.compiled = Arc::new(compile_stored(&state.stored));
        async move {
            for change in changes {
                change.await?;
            }
            Ok(())
        }
    }

    fn lock(&self) -> MutexGuard<'_, RulesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The values of the host-wide configuration that contain clients' rules.
fn client_values(root_config: &JsonObject) -> JsonObject {
    let value = |key: &&str| Some(((*key).to_owned(), root_config.get(*key)?.clone()));
    CLIENT_KEYS.iter().filter_map(value).collect()
}

fn compile_stored(stored: &[StoredRule]) -> StoredRuleSets {
    let mut by_root: HashMap<&str, Vec<&StoredRule>> = HashMap::new();
    for rule in stored {
        by_root.entry(rule.scope.root()).or_default().push(rule);
    }
    let set = |scope, base: Option<&Path>, rules: &[&StoredRule]| {
        let of = |behavior| {
            let rules = rules.iter().filter(|rule| rule.behavior == behavior);
            rules.map(|rule| rule.rule.clone()).collect::<Vec<_>>()
        };
        let (allow, ask, deny) =
            (of(StoredRuleBehavior::Allow), of(StoredRuleBehavior::Ask), of(StoredRuleBehavior::Deny));
        compile(scope, base, &allow, &ask, &deny)
    };
    let always = by_root.remove("").unwrap_or_default();
    let workspaces = by_root.into_iter().map(|(root, rules)| {
        let root = PathBuf::from(root);
        let compiled = set(RuleScope::Workspace, Some(&root), &rules);
        (root, compiled)
    });
    StoredRuleSets { always: set(RuleScope::Always, None, &always), workspaces: workspaces.collect() }
}

fn compile(
    scope: RuleScope,
    base: Option<&Path>,
    allow: &[String],
    ask: &[String],
    deny: &[String],
) -> RuleSet {
    let (rules, errors) = RuleSet::compile(scope, base, allow, ask, deny);
    for error in errors {
        tracing::warn!(?scope, %error, "invalid permission rule");
    }
    rules
}
