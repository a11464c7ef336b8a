//! The decision about a request, in the order: hard denies, ask rules, mode, allow rules, defaults.

use url::Url;

use super::command_pattern::{CommandForms, PatternMatch, line_text};
use super::path_subject::{PathSubject, PatternBases};
use super::protected::Protection;
use super::rule_set::{RuleGroup, RuleNeed};
use super::shell::{PathAccess, ShellLine};
use super::{
    PermissionMode, PermissionRequest, PolicyContext, PolicyDecision, PolicyLayer, PolicyVerdict,
    RuleBehavior, RuleScope, RuleSet, ToolAccess, protected, suggest,
};

/// Most rules that a decision suggests.
const MAX_SUGGESTIONS: usize = 3;

/// Decides about a request.
pub fn decide(request: &PermissionRequest, context: &PolicyContext<'_>) -> PolicyDecision {
    let judge = Judge::new(request, context);
    let mut decision = judge
        .hard_deny()
        .or_else(|| judge.restriction(RuleBehavior::Ask))
        .or_else(|| judge.bypass())
        .unwrap_or_else(|| judge.by_access());
    if context.mode == PermissionMode::Plan && judge.changes_something() {
        match (decision.verdict, decision.layer) {
            // Some agents do not ask in plan mode.
            (PolicyVerdict::Ask, _) => decision.overrides_agent = true,
            // A rule for later work does not start it.
            (PolicyVerdict::Allow, PolicyLayer::Rule(_)) => {
                let reason = "Plan mode asks before everything that may change something.".to_owned();
                decision = PolicyDecision {
                    overrides_agent: true,
                    ..self::decision(PolicyVerdict::Ask, PolicyLayer::Mode, reason)
                };
            }
            (PolicyVerdict::Allow | PolicyVerdict::Deny, _) => {}
        }
    }
    decision
}

/// A request with everything that is compared with rules.
pub(super) struct Judge<'a> {
    request: &'a PermissionRequest,
    pub(super) context: &'a PolicyContext<'a>,
    /// From the narrowest to the widest scope.
    pub(super) sets: Vec<(&'a RuleSet, PatternBases)>,
    pub(super) paths: Vec<JudgedPath<'a>>,
    /// The commands of a shell line.
    pub(super) commands: Vec<CommandForms>,
    /// The text of a shell line.
    pub(super) line_text: Vec<char>,
}

/// A path of the request.
pub(super) struct JudgedPath<'a> {
    pub(super) subject: PathSubject<'a>,
    pub(super) access: PathAccess,
    is_tree: bool,
    /// The command of a shell line whose operand it is.
    pub(super) command: Option<usize>,
}

/// Whether a write is allowed, and why not.
pub(super) enum WriteVerdict<'a> {
    Rule { scope: RuleScope, rule: &'a str },
    Mode,
    Ask { layer: PolicyLayer, reason: String },
}

impl<'a> Judge<'a> {
    fn new(request: &'a PermissionRequest, context: &'a PolicyContext<'a>) -> Self {
        let mut sets: Vec<_> = context.rules.iter().map(|set| (*set, set.bases(context))).collect();
        sets.sort_by_key(|(set, _)| set.scope());
        let of_tool = |path, access| JudgedPath {
            subject: PathSubject::new(path, context),
            access,
            is_tree: false,
            command: None,
        };
        let paths = match &request.access {
            ToolAccess::Read(paths) => paths.iter().map(|path| of_tool(path, PathAccess::Read)).collect(),
            ToolAccess::Write(paths) => paths.iter().map(|path| of_tool(path, PathAccess::Write)).collect(),
            ToolAccess::Shell(shell) => shell
                .line
                .paths()
                .iter()
                .zip(&shell.paths)
                .map(|(path, resolved)| JudgedPath {
                    subject: PathSubject::new(resolved, context),
                    access: path.access,
                    is_tree: path.is_tree,
                    command: path.command,
                })
                .collect(),
            ToolAccess::Internal | ToolAccess::Fetch { .. } | ToolAccess::Mcp { .. } | ToolAccess::Other => {
                Vec::new()
            }
        };
        let (commands, line_text) = match &request.access {
            ToolAccess::Shell(shell) => (CommandForms::of_line(&shell.line), line_text(&shell.line)),
            ToolAccess::Internal
            | ToolAccess::Read(_)
            | ToolAccess::Write(_)
            | ToolAccess::Fetch { .. }
            | ToolAccess::Mcp { .. }
            | ToolAccess::Other => (Vec::new(), Vec::new()),
        };
        Self { request, context, sets, paths, commands, line_text }
    }

    /// The line of a shell request.
    pub(super) fn line(&self) -> Option<&'a ShellLine> {
        match &self.request.access {
            ToolAccess::Shell(shell) => Some(&shell.line),
            ToolAccess::Internal
            | ToolAccess::Read(_)
            | ToolAccess::Write(_)
            | ToolAccess::Fetch { .. }
            | ToolAccess::Mcp { .. }
            | ToolAccess::Other => None,
        }
    }

    /// Whether the request may change anything outside the conversation.
    fn changes_something(&self) -> bool {
        match &self.request.access {
            ToolAccess::Internal | ToolAccess::Read(_) => false,
            ToolAccess::Shell(shell) => !self.shell_only_reads(&shell.line),
            ToolAccess::Write(_) | ToolAccess::Fetch { .. } | ToolAccess::Mcp { .. } | ToolAccess::Other => {
                true
            }
        }
    }

    /// Denies that hold in every mode.
    fn hard_deny(&self) -> Option<PolicyDecision> {
        let restriction = self.restriction(RuleBehavior::Deny);
        if restriction.as_ref().is_some_and(|decision| decision.verdict == PolicyVerdict::Deny) {
            return restriction;
        }
        for path in self.paths.iter().filter(|path| path.access == PathAccess::Write) {
            let is_guarded = |directory: &std::path::PathBuf| {
                path.subject.is_below(directory) || (path.is_tree && path.subject.contains(directory))
            };
            let given = &path.subject.path.given;
            let is_unguarded = |directory: &std::path::PathBuf| path.subject.is_below(directory);
            let unguarded = !path.is_tree && self.context.unguarded.iter().any(is_unguarded);
            if !unguarded && self.context.guarded.iter().any(is_guarded) {
                let reason = format!("Writing to the host's own files is denied: {given}.");
                return Some(decision(PolicyVerdict::Deny, PolicyLayer::GuardedPath, reason));
            }
            if protected::is_git_internal(&path.subject, path.is_tree) {
                let reason = format!("Writing to the internals of a Git repository is denied: {given}.");
                return Some(decision(PolicyVerdict::Deny, PolicyLayer::GitInternals, reason));
            }
        }
        // A deny rule that may match asks.
        restriction
    }

    /// The decision of a rule that denies or asks. A rule that may match asks.
    fn restriction(&self, behavior: RuleBehavior) -> Option<PolicyDecision> {
        let mut possible = None;
        for (set, bases) in &self.sets {
            let Some((rule, found)) = self.restricted_by(set.group(behavior), bases) else { continue };
            let scope = set.scope();
            let (verdict, reason) = match (behavior, found) {
                (RuleBehavior::Deny, PatternMatch::Yes) => {
                    (PolicyVerdict::Deny, format!("The rule {rule} of {} denies this.", scope.description()))
                }
                (RuleBehavior::Ask | RuleBehavior::Allow, PatternMatch::Yes) => {
                    (PolicyVerdict::Ask, format!("The rule {rule} of {} asks for this.", scope.description()))
                }
                (_, PatternMatch::Maybe | PatternMatch::No) => (
                    PolicyVerdict::Ask,
                    format!(
                        "The rule {rule} of {} may match; this is not known before it runs.",
                        scope.description()
                    ),
                ),
            };
            let decision = PolicyDecision {
                rule: Some(rule.to_owned()),
                overrides_agent: verdict == PolicyVerdict::Ask,
                ..decision(verdict, PolicyLayer::Rule(scope), reason)
            };
            if found == PatternMatch::Yes {
                return Some(decision);
            }
            possible.get_or_insert(decision);
        }
        possible
    }

    /// The rule of a group that restricts the request.
    fn restricted_by<'r>(
        &self,
        group: &'r RuleGroup,
        bases: &PatternBases,
    ) -> Option<(&'r str, PatternMatch)> {
        let certain = |rule: &'r str| (rule, PatternMatch::Yes);
        let tool = self.request.tool.as_str();
        if let Some(rule) = group.tool(tool) {
            return Some(certain(rule));
        }
        let is_internal = matches!(self.request.access, ToolAccess::Internal);
        if let Some(rule) = group.everything().filter(|_| !is_internal) {
            return Some(certain(rule));
        }
        match &self.request.access {
            ToolAccess::Shell(_) => self.shell_restricted_by(group, bases),
            ToolAccess::Read(paths) | ToolAccess::Write(paths) if !paths.is_empty() => {
                let restricting =
                    |path: &JudgedPath<'_>| group.restricting_path(tool, path.access, &path.subject, bases);
                self.paths.iter().find_map(restricting).map(certain)
            }
            ToolAccess::Fetch { url } => match host_of(url) {
                Some(host) => group.fetch(Some(&host)).map(certain),
                None => {
                    let possible = group.first_domain().map(|rule| (rule, PatternMatch::Maybe));
                    group.fetch(None).map(certain).or(possible)
                }
            },
            ToolAccess::Mcp { server, tool } => group.mcp(server, tool).map(certain),
            ToolAccess::Internal | ToolAccess::Read(_) | ToolAccess::Write(_) | ToolAccess::Other => {
                group.restricting_unknown(tool)
            }
        }
    }

    fn bypass(&self) -> Option<PolicyDecision> {
        if self.context.mode != PermissionMode::BypassPermissions {
            return None;
        }
        let has_patterns = || {
            self.sets.iter().any(|(set, _)| {
                set.group(RuleBehavior::Deny).has_command_patterns()
                    || set.group(RuleBehavior::Ask).has_command_patterns()
            })
        };
        if let Some(reason) = self.line().and_then(|line| line.not_understood)
            && has_patterns()
        {
            let reason =
                format!("The command line is not understood, and rules deny some commands: {reason}.");
            return Some(PolicyDecision {
                overrides_agent: true,
                ..decision(PolicyVerdict::Ask, PolicyLayer::NotUnderstood, reason)
            });
        }
        Some(decision(PolicyVerdict::Allow, PolicyLayer::Mode, "The mode allows this.".to_owned()))
    }

    fn by_access(&self) -> PolicyDecision {
        match &self.request.access {
            ToolAccess::Internal => decision(
                PolicyVerdict::Allow,
                PolicyLayer::Internal,
                "The tool changes nothing outside the conversation.".to_owned(),
            ),
            ToolAccess::Read(_) => self.read(),
            ToolAccess::Write(_) => self.write(),
            ToolAccess::Shell(shell) => self.shell(&shell.line),
            ToolAccess::Fetch { url } => {
                let host = host_of(url);
                let rule = self.allowing(|group| group.fetch(host.as_deref()));
                let reason = "Reading from the network needs a permission.";
                rule.unwrap_or_else(|| ask(reason, suggest::for_host(host.as_deref())))
            }
            ToolAccess::Mcp { server, tool } => {
                self.allowing(|group| group.mcp(server, tool)).unwrap_or_else(|| {
                    ask("Calling a tool of an MCP server needs a permission.", suggest::for_mcp(server, tool))
                })
            }
            ToolAccess::Other => {
                let tool = self.request.tool.as_str();
                self.allowing(|group| group.tool(tool))
                    .unwrap_or_else(|| ask("This tool needs a permission.", suggest::for_tool(tool)))
            }
        }
    }

    /// The decision of the narrowest rule that allows.
    fn allowing<'r>(&'r self, find: impl Fn(&'r RuleGroup) -> Option<&'r str>) -> Option<PolicyDecision> {
        self.sets.iter().find_map(|(set, _)| {
            find(set.group(RuleBehavior::Allow)).map(|rule| allowed_by(set.scope(), rule.to_owned()))
        })
    }

    fn read(&self) -> PolicyDecision {
        let tool = self.request.tool.as_str();
        let mut last = None;
        for path in &self.paths {
            let rule = self.sets.iter().find_map(|(set, bases)| {
                let group = set.group(RuleBehavior::Allow);
                let rule =
                    group.allowing_path(tool, path.access, &path.subject, bases, RuleNeed::default())?;
                Some(allowed_by(set.scope(), rule.to_owned()))
            });
            if rule.is_none() && !path.subject.is_inside() {
                return ask(
                    &format!(
                        "The path is outside of the session's directories: {}.",
                        path.subject.path.given
                    ),
                    suggest::for_read(&path.subject),
                );
            }
            last = rule;
        }
        match last {
            Some(allowed) => allowed,
            None if self.paths.is_empty() => ask("The paths that are read are not known.", Vec::new()),
            None => decision(
                PolicyVerdict::Allow,
                PolicyLayer::WorkspaceRead,
                "Reading inside of the session's directories is allowed.".to_owned(),
            ),
        }
    }

    fn write(&self) -> PolicyDecision {
        let mut allowed = None;
        let mut asked: Option<(PolicyLayer, String)> = None;
        let mut suggestions = Vec::new();
        for path in &self.paths {
            match self.write_verdict(&self.request.tool, &path.subject) {
                WriteVerdict::Rule { scope, rule } => {
                    allowed.get_or_insert_with(|| allowed_by(scope, rule.to_owned()));
                }
                WriteVerdict::Mode => {}
                WriteVerdict::Ask { layer, reason } => {
                    let is_protected = layer == PolicyLayer::ProtectedPath;
                    let rules = suggest::for_write(&path.subject, is_protected, self.context);
                    // Several paths need a rule each; for one path, each of the rules is enough.
                    suggestions.extend(if self.paths.len() > 1 {
                        rules.last().cloned().into_iter().collect()
                    } else {
                        rules
                    });
                    if asked.is_none() || is_protected {
                        asked = Some((layer, reason));
                    }
                }
            }
        }
        if let Some((layer, reason)) = asked {
            let is_complete = suggestions.len() <= MAX_SUGGESTIONS;
            return PolicyDecision {
                would_allow: if is_complete { suggestions } else { Vec::new() },
                overrides_agent: layer == PolicyLayer::ProtectedPath,
                ..decision(PolicyVerdict::Ask, layer, reason)
            };
        }
        if self.paths.is_empty() {
            return ask("The paths that are written are not known.", Vec::new());
        }
        allowed.unwrap_or_else(|| {
            let reason = "The mode allows edits inside of the session's directories.".to_owned();
            decision(PolicyVerdict::Allow, PolicyLayer::WorkspaceWrite, reason)
        })
    }

    /// Whether a write to one path is allowed.
    pub(super) fn write_verdict(&self, tool: &str, subject: &PathSubject<'_>) -> WriteVerdict<'_> {
        let protection = protected::protection(subject, self.context);
        let need = RuleNeed { protection: protection.as_ref(), is_absolute: !subject.is_inside() };
        for (set, bases) in &self.sets {
            let group = set.group(RuleBehavior::Allow);
            let rule = group
                .allowing_path(tool, PathAccess::Write, subject, bases, need)
                .or_else(|| set.client.approves_edit(subject, bases, need));
            if let Some(rule) = rule {
                return WriteVerdict::Rule { scope: set.scope(), rule };
            }
        }
        let given = &subject.path.given;
        if !subject.is_inside() {
            let reason = format!("The path is outside of the session's directories: {given}.");
            return WriteVerdict::Ask { layer: PolicyLayer::Default, reason };
        }
        if let Some(Protection { reason, .. }) = protection {
            let reason = format!("The path is protected, because {reason}: {given}.");
            return WriteVerdict::Ask { layer: PolicyLayer::ProtectedPath, reason };
        }
        if self.context.mode == PermissionMode::AcceptEdits {
            return WriteVerdict::Mode;
        }
        let reason = "Editing a file needs a permission in this mode.".to_owned();
        WriteVerdict::Ask { layer: PolicyLayer::WorkspaceWrite, reason }
    }
}

/// A decision without a rule.
pub(super) fn decision(verdict: PolicyVerdict, layer: PolicyLayer, reason: String) -> PolicyDecision {
    PolicyDecision { verdict, layer, rule: None, reason, would_allow: Vec::new(), overrides_agent: false }
}

/// A question that no other part of the policy asks.
pub(super) fn ask(reason: &str, would_allow: Vec<String>) -> PolicyDecision {
    PolicyDecision { would_allow, ..decision(PolicyVerdict::Ask, PolicyLayer::Default, reason.to_owned()) }
}

/// The decision of a rule that allows.
pub(super) fn allowed_by(scope: RuleScope, rule: String) -> PolicyDecision {
    let reason = format!("The rule {rule} of {} allows this.", scope.description());
    PolicyDecision { rule: Some(rule), ..decision(PolicyVerdict::Allow, PolicyLayer::Rule(scope), reason) }
}

/// The host of an address, in lower case.
fn host_of(url: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    Some(url.host_str()?.trim_end_matches('.').to_lowercase()).filter(|host| !host.is_empty())
}
